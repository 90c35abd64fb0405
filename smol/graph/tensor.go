package graph

import (
	"encoding/binary"
	"fmt"
	"io"
	"math"
	"slices"
)

// Type is how a container stores the elements of a tensor.
type Type uint8

// The types that can be read. Q8_0 and Q4_1 are blocks of 32 elements along
// the innermost dimension.
const (
	F32 Type = iota + 1
	F16
	BF16
	Q8_0
	Q4_1
)

// format describes a Type: its name, the elements of a block, the bytes of a
// block, and the decoder of whole blocks.
type format struct {
	name     string
	elements int
	bytes    int
	decode   func(dst []float32, src []byte)
}

var formats = [...]format{
	F32:  {"F32", 1, 4, decodeF32},
	F16:  {"F16", 1, 2, decodeF16},
	BF16: {"BF16", 1, 2, decodeBF16},
	Q8_0: {"Q8_0", 32, 34, decodeQ8_0},
	Q4_1: {"Q4_1", 32, 20, decodeQ4_1},
}

func (t Type) String() string {
	if t < F32 || int(t) >= len(formats) {
		return fmt.Sprintf("Type(%d)", uint8(t))
	}
	return formats[t].name
}

// Tensor is the entry of one tensor in a container: where it lies, not what
// it holds.
type Tensor struct {
	Shape
	Type Type

	offset int64 // of the first byte, from the start of the file
	bytes  int64
}

// dataBytes returns the bytes that shape takes in type t. It errs if a
// dimension is not positive, the innermost is no whole number of blocks, or
// the product is beyond anything that a file could hold.
func dataBytes(t Type, dims []int) (int64, error) {
	const most = int64(1) << 44 // elements; keeps every product below in an int64
	f := formats[t]
	n := int64(1)
	for _, d := range dims {
		if d <= 0 || int64(d) > most {
			return 0, fmt.Errorf("dimension %d of %v, want 1 to %d", d, dims, most)
		}
		if n > most/int64(d) {
			return 0, fmt.Errorf("shape %v has more than %d elements", dims, most)
		}
		n *= int64(d)
	}
	if inner := dims[len(dims)-1]; inner%f.elements != 0 {
		return 0, fmt.Errorf("innermost dimension %d of %v, want a multiple of %d for %v", inner, dims, f.elements, t)
	}
	return n / int64(f.elements) * int64(f.bytes), nil
}

// checkLayout errs if two of the tensors share a byte or one of them leaves
// [start, end) of the file.
func checkLayout(tensors []Tensor, start, end int64) error {
	order := slices.Clone(tensors)
	slices.SortFunc(order, func(a, b Tensor) int {
		switch {
		case a.offset < b.offset:
			return -1
		case a.offset > b.offset:
			return 1
		}
		return 0
	})
	last, lastName := start, ""
	for _, t := range order {
		if t.offset < start || t.offset > end || t.bytes > end-t.offset {
			return fmt.Errorf("tensor %q: %d bytes at %d, want them within %d to %d; is the file cut short?", t.Name, t.bytes, t.offset, start, end)
		}
		if t.offset < last {
			return fmt.Errorf("tensor %q at %d overlaps %q, which ends at %d", t.Name, t.offset, lastName, last)
		}
		last, lastName = t.offset+t.bytes, t.Name
	}
	return nil
}

// readTensor fills dst, which holds exactly t.Elements values.
func readTensor(r io.ReaderAt, t Tensor, dst []float32) error {
	if int64(len(dst)) != t.Elements() {
		return fmt.Errorf("tensor %q: room for %d values, want %d", t.Name, len(dst), t.Elements())
	}
	f := formats[t.Type]
	const blocks = 1 << 15 // at most 1.1 MB at a time
	buf := make([]byte, int(min(int64(blocks*f.bytes), t.bytes)))
	for off := int64(0); off < t.bytes; {
		n := int(min(int64(len(buf)), t.bytes-off))
		if _, err := r.ReadAt(buf[:n], t.offset+off); err != nil {
			if err == io.EOF {
				err = io.ErrUnexpectedEOF
			}
			return fmt.Errorf("tensor %q: %d bytes at %d: %w", t.Name, n, t.offset+off, err)
		}
		values := n / f.bytes * f.elements
		f.decode(dst[:values], buf[:n])
		dst = dst[values:]
		off += int64(n)
	}
	return nil
}

func decodeF32(dst []float32, src []byte) {
	for i := range dst {
		dst[i] = math.Float32frombits(binary.LittleEndian.Uint32(src[4*i:]))
	}
}

func decodeF16(dst []float32, src []byte) {
	for i := range dst {
		dst[i] = halfToFloat(binary.LittleEndian.Uint16(src[2*i:]))
	}
}

// decodeBF16 widens: a bfloat16 is the upper half of a float32.
func decodeBF16(dst []float32, src []byte) {
	for i := range dst {
		dst[i] = math.Float32frombits(uint32(binary.LittleEndian.Uint16(src[2*i:])) << 16)
	}
}

// decodeQ8_0 reads blocks of a half-precision scale d and 32 signed bytes q;
// the value is d·q.
func decodeQ8_0(dst []float32, src []byte) {
	for len(src) > 0 {
		d := halfToFloat(binary.LittleEndian.Uint16(src))
		for i, q := range src[2:34] {
			dst[i] = d * float32(int8(q))
		}
		dst, src = dst[32:], src[34:]
	}
}

// decodeQ4_1 reads blocks of a half-precision scale d, a half-precision
// minimum m and 16 bytes, whose low nibbles q are elements 0 to 15 and whose
// high nibbles are 16 to 31; the value is d·q+m. The product of 11 bits and 4
// is exact, so it's all the same whether a processor fuses it with the sum.
func decodeQ4_1(dst []float32, src []byte) {
	for len(src) > 0 {
		d := halfToFloat(binary.LittleEndian.Uint16(src))
		m := halfToFloat(binary.LittleEndian.Uint16(src[2:]))
		for i, q := range src[4:20] {
			dst[i] = d*float32(q&15) + m
			dst[i+16] = d*float32(q>>4) + m
		}
		dst, src = dst[32:], src[20:]
	}
}

// halfToFloat widens an IEEE 754 binary16, which is exact.
func halfToFloat(h uint16) float32 {
	sign := uint32(h>>15) << 31
	exp := uint32(h>>10) & 31
	frac := uint32(h) & 1023
	switch exp {
	case 0: // zero or subnormal: frac units of 2^-24
		v := float32(frac) * (1.0 / (1 << 24))
		return math.Float32frombits(math.Float32bits(v) | sign)
	case 31: // infinity or NaN, its payload kept
		return math.Float32frombits(sign | 255<<23 | frac<<13)
	}
	return math.Float32frombits(sign | (exp+127-15)<<23 | frac<<13)
}
