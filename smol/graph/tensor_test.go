package graph

import (
	"math"
	"slices"
	"testing"
)

// TestHalf checks every binary16 against its definition.
func TestHalf(t *testing.T) {
	for h := range 1 << 16 {
		sign, exp, frac := 1.0, h>>10&31, float64(h&1023)
		if h>>15 == 1 {
			sign = -1
		}
		want := sign * math.Ldexp(1+frac/1024, exp-15)
		switch {
		case exp == 0:
			want = sign * math.Ldexp(frac/1024, -14)
		case exp == 31 && frac == 0:
			want = math.Inf(int(sign))
		case exp == 31:
			want = math.NaN()
		}
		got := halfToFloat(uint16(h))
		if math.IsNaN(want) {
			if got == got {
				t.Errorf("halfToFloat(%#04x) = %v, want NaN", h, got)
			}
			continue
		}
		if float64(got) != want || math.Signbit(float64(got)) != (sign < 0) {
			t.Errorf("halfToFloat(%#04x) = %v, want %v", h, got, want)
		}
	}
}

func TestDecodeQ8_0(t *testing.T) {
	block := le([]byte(nil), uint16(0x3800)) // d = 0.5
	for i := range 32 {
		block = append(block, byte(int8(i*8-128)))
	}
	got := make([]float32, 32)
	decodeQ8_0(got, block)
	var want []float32
	for q := -128; q < 128; q += 8 {
		want = append(want, float32(q)/2)
	}
	if !slices.Equal(got, want) {
		t.Errorf("decodeQ8_0 = %v, want %v", got, want)
	}
}

func TestDecodeQ4_1(t *testing.T) {
	// Two blocks: d = 0.25, m = -2 and d = 1, m = 0.
	block := le(le([]byte(nil), uint16(0x3400)), uint16(0xc000))
	for i := range 16 {
		block = append(block, byte(i|(15-i)<<4)) // element i is i, element 16+i is 15-i
	}
	block = le(le(block, uint16(0x3c00)), uint16(0))
	block = append(block, make([]byte, 16)...)
	got := make([]float32, 64)
	decodeQ4_1(got, block)
	want := []float32{
		-2, -1.75, -1.5, -1.25, -1, -0.75, -0.5, -0.25, 0, 0.25, 0.5, 0.75, 1, 1.25, 1.5, 1.75,
		1.75, 1.5, 1.25, 1, 0.75, 0.5, 0.25, 0, -0.25, -0.5, -0.75, -1, -1.25, -1.5, -1.75, -2,
	}
	want = append(want, make([]float32, 32)...)
	if !slices.Equal(got, want) {
		t.Errorf("decodeQ4_1 = %v, want %v", got, want)
	}
}

// TestReadTensorInChunks reads one that's larger than a chunk.
func TestReadTensorInChunks(t *testing.T) {
	want := make([]float32, 3<<15+7)
	for i := range want {
		want[i] = float32(i)
	}
	var f ggufFile
	f.tensor("w", 0, []int{len(want)}, floatBytes(want))
	g, err := openGGUF(f.bytes())
	if err != nil {
		t.Fatal(err)
	}
	got := make([]float32, len(want))
	if err := g.Read("w", got); err != nil || !slices.Equal(got, want) {
		t.Errorf("Read differs; %v", err)
	}
}
