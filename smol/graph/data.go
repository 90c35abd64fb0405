package graph

import (
	"bufio"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"hash"
	"io"
	"math"
	"os"
	"path/filepath"
)

// dataAlign is where a tensor may begin in the data file, in bytes. ONNX
// Runtime maps the file, and a map begins at a page.
const dataAlign = 4096

// extent is where a tensor lies in the data file.
type extent struct{ offset, bytes int64 }

// outFile is a file that's written once, front to back, and hashed on the
// way.
type outFile struct {
	f        *os.File
	w        *bufio.Writer
	hash     hash.Hash
	size     int64
	progress func(bytes int64) // may be nil
}

func createFile(path string, progress func(int64)) (*outFile, error) {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if err != nil {
		return nil, err
	}
	h := sha256.New()
	return &outFile{f: f, w: bufio.NewWriterSize(io.MultiWriter(f, h), 1<<20), hash: h, progress: progress}, nil
}

func (o *outFile) Write(p []byte) (int, error) {
	n, err := o.w.Write(p)
	o.size += int64(n)
	if o.progress != nil {
		o.progress(int64(n))
	}
	return n, err
}

// align pads with zeros to the next multiple of dataAlign.
func (o *outFile) align() error {
	_, err := o.Write(make([]byte, (dataAlign-o.size%dataAlign)%dataAlign))
	return err
}

// floats aligns and writes values, little-endian.
func (o *outFile) floats(values []float32) (extent, error) {
	if err := o.align(); err != nil {
		return extent{}, err
	}
	at := extent{o.size, 4 * int64(len(values))}
	buf := make([]byte, 0, 1<<18)
	for len(values) > 0 {
		n := min(len(values), cap(buf)/4)
		buf = buf[:0]
		for _, v := range values[:n] {
			buf = binary.LittleEndian.AppendUint32(buf, math.Float32bits(v))
		}
		if _, err := o.Write(buf); err != nil {
			return extent{}, err
		}
		values = values[n:]
	}
	return at, nil
}

// finish makes the file durable and returns it by content.
func (o *outFile) finish() (File, error) {
	if err := o.w.Flush(); err != nil {
		return File{}, err
	}
	if err := o.f.Sync(); err != nil {
		return File{}, err
	}
	if err := o.f.Close(); err != nil {
		return File{}, err
	}
	return File{filepath.Base(o.f.Name()), o.size, hex.EncodeToString(o.hash.Sum(nil))}, nil
}

// writeFile writes data to a new file at path, durably.
func writeFile(path string, data []byte) (File, error) {
	o, err := createFile(path, nil)
	if err != nil {
		return File{}, fmt.Errorf("graph: %w", err)
	}
	defer o.f.Close() // after finish it has no effect
	if _, err := o.Write(data); err != nil {
		return File{}, fmt.Errorf("graph: %w", err)
	}
	f, err := o.finish()
	if err != nil {
		return File{}, fmt.Errorf("graph: %w", err)
	}
	return f, nil
}
