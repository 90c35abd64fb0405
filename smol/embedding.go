package smol

import (
	"fmt"
	"os"
	"time"
	"unsafe"
)

// embedding looks up the rows that ids stand for, in the file: read, they
// cost a copy of a few kB a token, while looked up through a map of the file,
// by the graph, each makes its surroundings resident, and a few hundred
// tokens nearly all 113 MB.
type embedding struct {
	f      *os.File
	was    os.FileInfo // what was held against the manifest
	offset int64
	width  int // floats in a row
}

// openEmbedding opens the file, which must be the one that was described by
// was before its hash was taken.
func openEmbedding(path string, was os.FileInfo, offset int64, width int) (*embedding, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	e := &embedding{f: f, was: was, offset: offset, width: width}
	if err := e.unchanged(); err != nil {
		f.Close()
		return nil, err
	}
	return e, nil
}

// unchanged returns an error that wraps ErrChanged if the file isn't what it
// was: one that was written to would go on answering, with other answers. A
// file that takes its place by its name doesn't matter, for this one stays.
func (e *embedding) unchanged() error {
	now, err := e.f.Stat()
	if err != nil {
		return fmt.Errorf("smol: embedding: %w", err)
	}
	if !os.SameFile(now, e.was) || now.Size() != e.was.Size() || !now.ModTime().Equal(e.was.ModTime()) {
		return fmt.Errorf("smol: %s: %w: %d bytes of %s, now %d of %s; run  go run ./smol/setup  and start again", e.f.Name(), ErrChanged,
			e.was.Size(), e.was.ModTime().Format(time.RFC3339Nano), now.Size(), now.ModTime().Format(time.RFC3339Nano))
	}
	return nil
}

// row reads the row of id, which must be in the vocabulary, into dst. The
// file is little-endian, as is every machine that ONNX Runtime runs on.
func (e *embedding) row(id int32, dst []float32) error {
	raw := unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(dst))), 4*e.width)
	if _, err := e.f.ReadAt(raw, e.offset+int64(id)*int64(len(raw))); err != nil {
		return fmt.Errorf("smol: embedding of id %d: %w", id, err)
	}
	return nil
}

func (e *embedding) close() error { return e.f.Close() }
