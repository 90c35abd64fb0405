package sse

import "sync"

// buffer is the memory of one response, used again for later ones: a fresh
// one would be paid for in page faults between two reads.
type buffer struct {
	raw   []byte
	reads []readMark
}

var buffers = sync.Pool{New: func() any { return new(buffer) }}

// newBuffer returns an empty buffer with room for bytes of a response.
func newBuffer(bytes int) *buffer {
	b := buffers.Get().(*buffer)
	if cap(b.raw) < bytes {
		b.raw = make([]byte, 0, bytes)
	}
	b.raw, b.reads = b.raw[:0], b.reads[:0]
	return b
}

// free gives the memory back; nobody may look at it after that.
func (b *buffer) free() {
	if b != nil {
		buffers.Put(b)
	}
}
