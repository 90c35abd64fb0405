package smol

import (
	"fmt"
	"syscall"
	"unsafe"

	"servebench/smol/graph"
)

// buffers is the memory that the graph's inputs and outputs are bound to. It
// lies outside Go's heap, since ONNX Runtime keeps pointers into it between
// calls, and is resident only where it has been written: a large context
// costs nothing until it is used.
type buffers struct {
	block   []byte
	prompt  []float32   // embeddings of a prompt's ids, as many as the context
	last    []float32   // the embedding of a step's one id
	seqlens []int32     // the one sequence's length without its last token
	total   []int32     // the one sequence's length
	next    []int64     // the answer
	caches  [][]float32 // key and value of layer 0, of layer 1, …
}

const pageSize = 4096

func newBuffers(c graph.Config, context int) (*buffers, error) {
	cacheLen := c.KVHeads * context * c.HeadDim
	size := 3*pageSize + round(c.Hidden*4) + round(context*c.Hidden*4) + 2*c.Layers*round(cacheLen*4)
	block, err := syscall.Mmap(-1, 0, size, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_ANON|syscall.MAP_PRIVATE)
	if err != nil {
		return nil, fmt.Errorf("smol: %d bytes for a context of %d tokens: %w", size, context, err)
	}
	smallPages(block)
	b := &buffers{block: block}
	rest := block
	take := func(bytes int) unsafe.Pointer {
		p := unsafe.Pointer(unsafe.SliceData(rest))
		rest = rest[round(bytes):]
		return p
	}
	b.seqlens = unsafe.Slice((*int32)(take(4)), 1)
	b.total = unsafe.Slice((*int32)(take(4)), 1)
	b.next = unsafe.Slice((*int64)(take(8)), 1)
	b.last = unsafe.Slice((*float32)(take(c.Hidden*4)), c.Hidden)
	b.prompt = unsafe.Slice((*float32)(take(context*c.Hidden*4)), context*c.Hidden)
	for range 2 * c.Layers {
		b.caches = append(b.caches, unsafe.Slice((*float32)(take(cacheLen*4)), cacheLen))
	}
	return b, nil
}

// close unmaps the block; nothing may be bound to it any more.
func (b *buffers) close() error {
	block := b.block
	*b = buffers{}
	if block == nil {
		return nil
	}
	return syscall.Munmap(block)
}

func round(bytes int) int { return (bytes + pageSize - 1) &^ (pageSize - 1) }
