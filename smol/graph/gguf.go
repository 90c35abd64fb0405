package graph

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"io"
	"math"
	"os"
)

// GGUF is an open file of GGUF version 3, little-endian: metadata and the
// directory of tensors in memory, the tensors themselves on disk.
type GGUF struct {
	meta    map[string]any
	tensors []Tensor
	index   map[string]int
	r       io.ReaderAt
	close   func() error
}

// What a GGUF may claim before it is taken for damaged.
const (
	maxGGUFKeys    = 1 << 16
	maxGGUFTensors = 1 << 16
	maxGGUFName    = 1 << 16 // bytes of a key or a tensor's name
	maxGGUFDims    = 4
)

// OpenGGUF reads the directory of the file at path. The caller closes it.
func OpenGGUF(path string) (*GGUF, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("graph: %w", err)
	}
	info, err := f.Stat()
	if err != nil {
		f.Close()
		return nil, fmt.Errorf("graph: %w", err)
	}
	g, err := NewGGUF(f, info.Size())
	if err != nil {
		f.Close()
		return nil, fmt.Errorf("%w (in %s)", err, path)
	}
	g.close = f.Close
	return g, nil
}

// NewGGUF reads the directory of a file of size bytes. Memory stays within a
// small multiple of size, whatever the file claims. r must outlive the GGUF.
func NewGGUF(r io.ReaderAt, size int64) (*GGUF, error) {
	if err := checkLFS(r); err != nil {
		return nil, fmt.Errorf("graph: gguf: %w", err)
	}
	g := &GGUF{r: r, meta: map[string]any{}, index: map[string]int{}}
	c := &cursor{r: bufio.NewReaderSize(io.NewSectionReader(r, 0, size), 1<<16), size: size}
	if err := g.readDirectory(c); err != nil {
		return nil, fmt.Errorf("graph: gguf: %w", err)
	}
	return g, nil
}

// Close closes the file that OpenGGUF opened.
func (g *GGUF) Close() error {
	if g.close == nil {
		return nil
	}
	return g.close()
}

// Tensors is the directory in the file's order; it's not to be modified.
func (g *GGUF) Tensors() []Tensor { return g.tensors }

// Read fills dst with the named tensor's values as float32, in the layout of
// the file. len(dst) must be the number of its elements.
func (g *GGUF) Read(name string, dst []float32) error {
	i, ok := g.index[name]
	if !ok {
		return fmt.Errorf("graph: gguf: no tensor %q", name)
	}
	if err := readTensor(g.r, g.tensors[i], dst); err != nil {
		return fmt.Errorf("graph: gguf: %w", err)
	}
	return nil
}

// Value returns the metadata under key: a bool, a string, an integer or float
// of the stored width, or a slice of these. ok is false if there is none.
func (g *GGUF) Value(key string) (v any, ok bool) {
	v, ok = g.meta[key]
	return v, ok
}

// meta returns the value under key, which must be there and be a T.
func metaValue[T any](g *GGUF, key string) (T, error) {
	var zero T
	v, ok := g.meta[key]
	if !ok {
		return zero, fmt.Errorf("graph: gguf: no metadata %q", key)
	}
	t, ok := v.(T)
	if !ok {
		return zero, fmt.Errorf("graph: gguf: metadata %q is a %T, want a %T", key, v, zero)
	}
	return t, nil
}

// metaInt returns the integer under key, of whatever width.
func metaInt(g *GGUF, key string) (int, error) {
	v, ok := g.meta[key]
	if !ok {
		return 0, fmt.Errorf("graph: gguf: no metadata %q", key)
	}
	var n int64
	switch v := v.(type) {
	case uint8:
		n = int64(v)
	case int8:
		n = int64(v)
	case uint16:
		n = int64(v)
	case int16:
		n = int64(v)
	case uint32:
		n = int64(v)
	case int32:
		n = int64(v)
	case uint64:
		n = int64(min(v, math.MaxInt64))
	case int64:
		n = v
	default:
		return 0, fmt.Errorf("graph: gguf: metadata %q is a %T, want an integer", key, v)
	}
	if n < 0 || n > math.MaxInt32 {
		return 0, fmt.Errorf("graph: gguf: metadata %q is %v, want 0 to %d", key, v, math.MaxInt32)
	}
	return int(n), nil
}

// metaFloat returns the float under key, of either width.
func metaFloat(g *GGUF, key string) (float64, error) {
	switch v := g.meta[key].(type) {
	case float32:
		return float64(v), nil
	case float64:
		return v, nil
	case nil:
		return 0, fmt.Errorf("graph: gguf: no metadata %q", key)
	default:
		return 0, fmt.Errorf("graph: gguf: metadata %q is a %T, want a float", key, v)
	}
}

// readDirectory reads everything before the tensors' bytes.
func (g *GGUF) readDirectory(c *cursor) error {
	magic, err := c.take(4)
	if err != nil {
		return fmt.Errorf("magic: %w", err)
	}
	if string(magic) != "GGUF" {
		return fmt.Errorf("begins with %q, want \"GGUF\"", magic)
	}
	version, err := c.uint32()
	if err != nil {
		return fmt.Errorf("version: %w", err)
	}
	if version == 3<<24 {
		return fmt.Errorf("a big-endian file; only little-endian is read")
	}
	if version != 3 {
		return fmt.Errorf("version %d, want 3", version)
	}
	tensors, err := c.count("tensors", maxGGUFTensors)
	if err != nil {
		return err
	}
	keys, err := c.count("metadata keys", maxGGUFKeys)
	if err != nil {
		return err
	}
	for i := range keys {
		if err := g.readKey(c); err != nil {
			return fmt.Errorf("metadata %d of %d: %w", i+1, keys, err)
		}
	}
	alignment := 32
	if _, ok := g.meta["general.alignment"]; ok {
		if alignment, err = metaInt(g, "general.alignment"); err != nil {
			return err
		}
		if alignment < 8 || alignment > 1<<20 || alignment&(alignment-1) != 0 {
			return fmt.Errorf("general.alignment %d, want a power of two from 8 to %d", alignment, 1<<20)
		}
	}
	for i := range tensors {
		t, err := readGGUFTensor(c, int64(alignment))
		if err != nil {
			return fmt.Errorf("tensor %d of %d: %w", i+1, tensors, err)
		}
		if _, twice := g.index[t.Name]; twice {
			return fmt.Errorf("tensor %d of %d: %q stands there twice", i+1, tensors, t.Name)
		}
		g.index[t.Name] = len(g.tensors)
		g.tensors = append(g.tensors, t)
	}
	start := (c.off + int64(alignment) - 1) / int64(alignment) * int64(alignment)
	for i := range g.tensors {
		g.tensors[i].offset += start // no overflow: readGGUFTensor bounds it by the file's size
	}
	return checkLayout(g.tensors, start, c.size)
}

func (g *GGUF) readKey(c *cursor) error {
	key, err := c.string(maxGGUFName)
	if err != nil {
		return fmt.Errorf("key: %w", err)
	}
	if _, twice := g.meta[key]; twice {
		return fmt.Errorf("key %q stands there twice", key)
	}
	kind, err := c.uint32()
	if err != nil {
		return fmt.Errorf("%q: type: %w", key, err)
	}
	v, err := readGGUFValue(c, kind)
	if err != nil {
		return fmt.Errorf("%q: %w", key, err)
	}
	g.meta[key] = v
	return nil
}

// ggufTypes are the types of tensors by their number in a GGUF.
var ggufTypes = map[uint32]Type{0: F32, 1: F16, 3: Q4_1, 8: Q8_0, 30: BF16}

// readGGUFTensor reads one entry; its offset is still relative to the data.
func readGGUFTensor(c *cursor, alignment int64) (Tensor, error) {
	var t Tensor
	var err error
	if t.Name, err = c.string(maxGGUFName); err != nil {
		return t, fmt.Errorf("name: %w", err)
	}
	n, err := c.uint32()
	if err != nil {
		return t, fmt.Errorf("%q: dimensions: %w", t.Name, err)
	}
	if n < 1 || n > maxGGUFDims {
		return t, fmt.Errorf("%q: %d dimensions, want 1 to %d", t.Name, n, maxGGUFDims)
	}
	t.Dims = make([]int, n)
	for i := range t.Dims { // innermost first in the file
		d, err := c.uint64()
		if err != nil {
			return t, fmt.Errorf("%q: dimension %d: %w", t.Name, i, err)
		}
		t.Dims[len(t.Dims)-1-i] = int(min(d, math.MaxInt))
	}
	kind, err := c.uint32()
	if err != nil {
		return t, fmt.Errorf("%q: type: %w", t.Name, err)
	}
	typ, ok := ggufTypes[kind]
	if !ok {
		return t, fmt.Errorf("%q: type %d, want F32 (0), F16 (1), Q4_1 (3), Q8_0 (8) or BF16 (30)", t.Name, kind)
	}
	t.Type = typ
	if t.bytes, err = dataBytes(typ, t.Dims); err != nil {
		return t, fmt.Errorf("%q: %w", t.Name, err)
	}
	off, err := c.uint64()
	if err != nil {
		return t, fmt.Errorf("%q: offset: %w", t.Name, err)
	}
	if off > uint64(c.size) {
		return t, fmt.Errorf("%q: offset %d in a file of %d bytes; is it cut short?", t.Name, off, c.size)
	}
	if int64(off)%alignment != 0 {
		return t, fmt.Errorf("%q: offset %d, want a multiple of %d", t.Name, off, alignment)
	}
	t.offset = int64(off)
	return t, nil
}

// The types of metadata by their number in a GGUF.
const (
	ggufUint8 = iota
	ggufInt8
	ggufUint16
	ggufInt16
	ggufUint32
	ggufInt32
	ggufFloat32
	ggufBool
	ggufString
	ggufArray
	ggufUint64
	ggufInt64
	ggufFloat64
)

func readGGUFValue(c *cursor, kind uint32) (any, error) {
	switch kind {
	case ggufUint8:
		return scalar(c, 1, func(b []byte) uint8 { return b[0] })
	case ggufInt8:
		return scalar(c, 1, func(b []byte) int8 { return int8(b[0]) })
	case ggufUint16:
		return scalar(c, 2, binary.LittleEndian.Uint16)
	case ggufInt16:
		return scalar(c, 2, func(b []byte) int16 { return int16(binary.LittleEndian.Uint16(b)) })
	case ggufUint32:
		return scalar(c, 4, binary.LittleEndian.Uint32)
	case ggufInt32:
		return scalar(c, 4, func(b []byte) int32 { return int32(binary.LittleEndian.Uint32(b)) })
	case ggufFloat32:
		return scalar(c, 4, func(b []byte) float32 { return math.Float32frombits(binary.LittleEndian.Uint32(b)) })
	case ggufUint64:
		return scalar(c, 8, binary.LittleEndian.Uint64)
	case ggufInt64:
		return scalar(c, 8, func(b []byte) int64 { return int64(binary.LittleEndian.Uint64(b)) })
	case ggufFloat64:
		return scalar(c, 8, func(b []byte) float64 { return math.Float64frombits(binary.LittleEndian.Uint64(b)) })
	case ggufBool:
		return c.bool()
	case ggufString:
		return c.string(c.size)
	case ggufArray:
		return readGGUFArray(c)
	}
	return nil, fmt.Errorf("type %d, want 0 to %d", kind, ggufFloat64)
}

func readGGUFArray(c *cursor) (any, error) {
	kind, err := c.uint32()
	if err != nil {
		return nil, fmt.Errorf("type of the elements: %w", err)
	}
	n, err := c.uint64()
	if err != nil {
		return nil, fmt.Errorf("count of the elements: %w", err)
	}
	switch kind {
	case ggufUint8:
		return array(c, n, 1, func() (uint8, error) { return scalar(c, 1, func(b []byte) uint8 { return b[0] }) })
	case ggufInt8:
		return array(c, n, 1, func() (int8, error) { return scalar(c, 1, func(b []byte) int8 { return int8(b[0]) }) })
	case ggufUint16:
		return array(c, n, 2, func() (uint16, error) { return scalar(c, 2, binary.LittleEndian.Uint16) })
	case ggufInt16:
		return array(c, n, 2, func() (int16, error) {
			return scalar(c, 2, func(b []byte) int16 { return int16(binary.LittleEndian.Uint16(b)) })
		})
	case ggufUint32:
		return array(c, n, 4, c.uint32)
	case ggufInt32:
		return array(c, n, 4, func() (int32, error) { v, err := c.uint32(); return int32(v), err })
	case ggufFloat32:
		return array(c, n, 4, func() (float32, error) { v, err := c.uint32(); return math.Float32frombits(v), err })
	case ggufBool:
		return array(c, n, 1, c.bool)
	case ggufString:
		return array(c, n, 8, func() (string, error) { return c.string(c.size) })
	case ggufUint64:
		return array(c, n, 8, c.uint64)
	case ggufInt64:
		return array(c, n, 8, func() (int64, error) { v, err := c.uint64(); return int64(v), err })
	case ggufFloat64:
		return array(c, n, 8, func() (float64, error) { v, err := c.uint64(); return math.Float64frombits(v), err })
	case ggufArray:
		return nil, fmt.Errorf("an array of arrays, which no llama has")
	}
	return nil, fmt.Errorf("type %d of the elements, want 0 to %d", kind, ggufFloat64)
}

// array reads n elements of at least width bytes each. The slice grows as
// elements are read, so a false count costs nothing.
func array[T any](c *cursor, n uint64, width int64, next func() (T, error)) ([]T, error) {
	if left := c.size - c.off; n > uint64(left/width) {
		return nil, fmt.Errorf("%d elements, but only %d bytes are left", n, left)
	}
	s := make([]T, 0, min(n, 1<<12))
	for i := range n {
		v, err := next()
		if err != nil {
			return nil, fmt.Errorf("element %d of %d: %w", i, n, err)
		}
		s = append(s, v)
	}
	return s, nil
}

// cursor reads forward and knows how much is left.
type cursor struct {
	r    *bufio.Reader
	off  int64
	size int64
	tmp  [8]byte
}

// take returns the next n bytes, n at most 8, valid until the next call.
func (c *cursor) take(n int) ([]byte, error) {
	if int64(n) > c.size-c.off {
		return nil, fmt.Errorf("the file ends at %d: %w", c.size, io.ErrUnexpectedEOF)
	}
	if _, err := io.ReadFull(c.r, c.tmp[:n]); err != nil {
		return nil, err
	}
	c.off += int64(n)
	return c.tmp[:n], nil
}

// scalar decodes the next n bytes.
func scalar[T any](c *cursor, n int, decode func([]byte) T) (T, error) {
	b, err := c.take(n)
	if err != nil {
		var zero T
		return zero, err
	}
	return decode(b), nil
}

func (c *cursor) uint32() (uint32, error) { return scalar(c, 4, binary.LittleEndian.Uint32) }
func (c *cursor) uint64() (uint64, error) { return scalar(c, 8, binary.LittleEndian.Uint64) }

func (c *cursor) bool() (bool, error) {
	b, err := c.take(1)
	if err != nil {
		return false, err
	}
	if b[0] > 1 {
		return false, fmt.Errorf("bool %d, want 0 or 1", b[0])
	}
	return b[0] == 1, nil
}

// count reads a number of things that may not be above most.
func (c *cursor) count(what string, most uint64) (int, error) {
	n, err := c.uint64()
	if err != nil {
		return 0, fmt.Errorf("number of %s: %w", what, err)
	}
	if n > most {
		return 0, fmt.Errorf("%d %s, want at most %d", n, what, most)
	}
	return int(n), nil
}

// string reads a string of at most most bytes.
func (c *cursor) string(most int64) (string, error) {
	n, err := c.uint64()
	if err != nil {
		return "", fmt.Errorf("length: %w", err)
	}
	if n > uint64(most) || n > uint64(c.size-c.off) {
		return "", fmt.Errorf("a string of %d bytes, want at most %d", n, min(most, c.size-c.off))
	}
	b := make([]byte, n)
	if _, err := io.ReadFull(c.r, b); err != nil {
		return "", err
	}
	c.off += int64(n)
	return string(b), nil
}
