package graph

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
)

// Safetensors is an open safetensors file: its header in memory, the tensors
// on disk.
type Safetensors struct {
	tensors []Tensor
	index   map[string]int
	r       io.ReaderAt
	close   func() error
}

// maxHeader is the longest header that the format allows, in bytes.
const maxHeader = 100_000_000

// OpenSafetensors reads the header of the file at path. The caller closes it.
func OpenSafetensors(path string) (*Safetensors, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("graph: %w", err)
	}
	info, err := f.Stat()
	if err != nil {
		f.Close()
		return nil, fmt.Errorf("graph: %w", err)
	}
	s, err := NewSafetensors(f, info.Size())
	if err != nil {
		f.Close()
		return nil, fmt.Errorf("%w (in %s)", err, path)
	}
	s.close = f.Close
	return s, nil
}

// NewSafetensors reads the header of a file of size bytes. As the format
// demands, the tensors must cover the rest of the file, without a gap or an
// overlap. r must outlive the Safetensors.
func NewSafetensors(r io.ReaderAt, size int64) (*Safetensors, error) {
	if err := checkLFS(r); err != nil {
		return nil, fmt.Errorf("graph: safetensors: %w", err)
	}
	s := &Safetensors{r: r, index: map[string]int{}}
	if err := s.readHeader(size); err != nil {
		return nil, fmt.Errorf("graph: safetensors: %w", err)
	}
	return s, nil
}

// Close closes the file that OpenSafetensors opened.
func (s *Safetensors) Close() error {
	if s.close == nil {
		return nil
	}
	return s.close()
}

// Tensors is the directory in the order of the data; it's not to be modified.
func (s *Safetensors) Tensors() []Tensor { return s.tensors }

// Read fills dst with the named tensor's values as float32. len(dst) must be
// the number of its elements.
func (s *Safetensors) Read(name string, dst []float32) error {
	i, ok := s.index[name]
	if !ok {
		return fmt.Errorf("graph: safetensors: no tensor %q", name)
	}
	if err := readTensor(s.r, s.tensors[i], dst); err != nil {
		return fmt.Errorf("graph: safetensors: %w", err)
	}
	return nil
}

var safetensorsTypes = map[string]Type{"F32": F32, "F16": F16, "BF16": BF16}

func (s *Safetensors) readHeader(size int64) error {
	var length [8]byte
	if size < int64(len(length)) {
		return fmt.Errorf("%d bytes, want at least %d: %w", size, len(length), io.ErrUnexpectedEOF)
	}
	if _, err := s.r.ReadAt(length[:], 0); err != nil {
		return fmt.Errorf("length of the header: %w", err)
	}
	n := binary.LittleEndian.Uint64(length[:])
	if n > maxHeader || n > uint64(size-8) {
		return fmt.Errorf("a header of %d bytes, want at most %d; is the file cut short?", n, min(maxHeader, size-8))
	}
	header := make([]byte, n)
	if _, err := s.r.ReadAt(header, 8); err != nil && err != io.EOF {
		return fmt.Errorf("header: %w", err)
	}
	var entries map[string]json.RawMessage
	if err := json.Unmarshal(header, &entries); err != nil {
		return fmt.Errorf("header: %w", err)
	}
	start := 8 + int64(n)
	for name, raw := range entries {
		if name == "__metadata__" {
			continue
		}
		var e struct {
			DType   string  `json:"dtype"`
			Shape   []int   `json:"shape"`
			Offsets []int64 `json:"data_offsets"`
		}
		if err := json.Unmarshal(raw, &e); err != nil {
			return fmt.Errorf("tensor %q: %w", name, err)
		}
		typ, ok := safetensorsTypes[e.DType]
		if !ok {
			return fmt.Errorf("tensor %q: type %q, want F32, F16 or BF16", name, e.DType)
		}
		if len(e.Shape) == 0 {
			return fmt.Errorf("tensor %q: no dimensions, want at least 1", name)
		}
		want, err := dataBytes(typ, e.Shape)
		if err != nil {
			return fmt.Errorf("tensor %q: %w", name, err)
		}
		if len(e.Offsets) != 2 || e.Offsets[0] < 0 || e.Offsets[1] < e.Offsets[0] || e.Offsets[1] > size-start {
			return fmt.Errorf("tensor %q: data_offsets %v, want two that rise from 0 to at most %d; is the file cut short?", name, e.Offsets, size-start)
		}
		if got := e.Offsets[1] - e.Offsets[0]; got != want {
			return fmt.Errorf("tensor %q: %d bytes, want %d for %v %v", name, got, want, e.DType, e.Shape)
		}
		s.tensors = append(s.tensors, Tensor{
			Shape: Shape{name, e.Shape}, Type: typ,
			offset: start + e.Offsets[0], bytes: want,
		})
	}
	slices.SortFunc(s.tensors, func(a, b Tensor) int {
		if a.offset != b.offset {
			if a.offset < b.offset {
				return -1
			}
			return 1
		}
		return strings.Compare(a.Name, b.Name)
	})
	if err := checkLayout(s.tensors, start, size); err != nil {
		return err
	}
	next := start
	for i, t := range s.tensors {
		if t.offset != next {
			return fmt.Errorf("tensor %q at %d, want %d: the format allows no gap", t.Name, t.offset, next)
		}
		next += t.bytes
		s.index[t.Name] = i
	}
	if next != size {
		return fmt.Errorf("%d bytes after the last tensor, want none", size-next)
	}
	return nil
}
