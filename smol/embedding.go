package smol

import (
	"fmt"
	"os"
	"unsafe"
)

// embedding looks up the rows that ids stand for, in the file: read, they
// cost a copy of a few kB a token, while looked up through a map of the file,
// by the graph, each makes its surroundings resident, and a few hundred
// tokens nearly all 113 MB.
type embedding struct {
	f      *os.File
	offset int64
	width  int // floats in a row
}

func openEmbedding(path string, offset int64, width int) (*embedding, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	return &embedding{f: f, offset: offset, width: width}, nil
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
