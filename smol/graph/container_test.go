package graph

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// ggufFile collects the parts of a GGUF for tests. What it writes is not
// checked, so that it can also write nonsense.
type ggufFile struct {
	meta    []byte
	keys    uint64
	tensors []byte
	count   uint64
	data    []byte
}

func le[T any](b []byte, v T) []byte {
	out, err := binary.Append(b, binary.LittleEndian, v)
	if err != nil {
		panic(err)
	}
	return out
}

func ggufStr(b []byte, s string) []byte {
	return append(le(b, uint64(len(s))), s...)
}

// key adds a value in its encoded form, after its type.
func (g *ggufFile) key(name string, kind uint32, encoded []byte) {
	g.meta = append(le(ggufStr(g.meta, name), kind), encoded...)
	g.keys++
}

// set adds a value of the type that fits v.
func (g *ggufFile) set(name string, v any) {
	kinds := func(v any) uint32 {
		switch v.(type) {
		case uint8, []uint8:
			return ggufUint8
		case int8, []int8:
			return ggufInt8
		case uint16, []uint16:
			return ggufUint16
		case int16, []int16:
			return ggufInt16
		case uint32, []uint32:
			return ggufUint32
		case int32, []int32:
			return ggufInt32
		case float32, []float32:
			return ggufFloat32
		case bool, []bool:
			return ggufBool
		case uint64, []uint64:
			return ggufUint64
		case int64, []int64:
			return ggufInt64
		case float64, []float64:
			return ggufFloat64
		}
		panic(fmt.Sprintf("%T", v))
	}
	switch v := v.(type) {
	case string:
		g.key(name, ggufString, ggufStr(nil, v))
	case []string:
		b := le(le([]byte(nil), uint32(ggufString)), uint64(len(v)))
		for _, s := range v {
			b = ggufStr(b, s)
		}
		g.key(name, ggufArray, b)
	case uint8, int8, uint16, int16, uint32, int32, float32, bool, uint64, int64, float64:
		g.key(name, kinds(v), le([]byte(nil), v))
	default:
		var n int
		switch v := v.(type) {
		case []uint8:
			n = len(v)
		case []int8:
			n = len(v)
		case []uint16:
			n = len(v)
		case []int16:
			n = len(v)
		case []uint32:
			n = len(v)
		case []int32:
			n = len(v)
		case []float32:
			n = len(v)
		case []bool:
			n = len(v)
		case []uint64:
			n = len(v)
		case []int64:
			n = len(v)
		case []float64:
			n = len(v)
		}
		g.key(name, ggufArray, le(le(le([]byte(nil), kinds(v)), uint64(n)), v))
	}
}

// tensor adds a tensor whose data follows that of the last one, aligned.
func (g *ggufFile) tensor(name string, kind uint32, dims []int, data []byte) {
	for len(g.data)%32 != 0 {
		g.data = append(g.data, 0)
	}
	g.entry(name, kind, dims, uint64(len(g.data)))
	g.data = append(g.data, data...)
}

// entry adds a tensor at any offset.
func (g *ggufFile) entry(name string, kind uint32, dims []int, offset uint64) {
	b := le(ggufStr(g.tensors, name), uint32(len(dims)))
	for _, d := range slices.Backward(dims) {
		b = le(b, uint64(d))
	}
	g.tensors = le(le(b, kind), offset)
	g.count++
}

func (g *ggufFile) bytes() []byte {
	b := le(le(le([]byte("GGUF"), uint32(3)), g.count), g.keys)
	b = append(append(b, g.meta...), g.tensors...)
	for len(b)%32 != 0 {
		b = append(b, 0)
	}
	return append(b, g.data...)
}

func floatBytes(v []float32) []byte { return le([]byte(nil), v) }

// safetensorsFile is the file with this header and data.
func safetensorsFile(header string, data []byte) []byte {
	return append(append(le([]byte(nil), uint64(len(header))), header...), data...)
}

func openGGUF(data []byte) (*GGUF, error) { return NewGGUF(bytes.NewReader(data), int64(len(data))) }

func openSafetensors(data []byte) (*Safetensors, error) {
	return NewSafetensors(bytes.NewReader(data), int64(len(data)))
}

func TestGGUFMetadata(t *testing.T) {
	want := map[string]any{
		"u8": uint8(200), "i8": int8(-3), "u16": uint16(65535), "i16": int16(-300),
		"u32": uint32(1 << 31), "i32": int32(-1 << 31), "f32": float32(0.1), "bool": true,
		"string": "größer ▁", "empty": "", "u64": uint64(math.MaxUint64), "i64": int64(math.MinInt64), "f64": 0.1,
		"u8s": []uint8{1, 2}, "i8s": []int8{-1}, "u16s": []uint16{7}, "i16s": []int16{-7}, "u32s": []uint32{8},
		"i32s": []int32{3, 3, 1}, "f32s": []float32{1.5}, "bools": []bool{true, false},
		"strings": []string{"a", "", "Ġt"}, "u64s": []uint64{9}, "i64s": []int64{-9}, "f64s": []float64{2.5},
		"none": []int32{},
	}
	var f ggufFile
	for k, v := range want {
		f.set(k, v)
	}
	g, err := openGGUF(f.bytes())
	if err != nil {
		t.Fatal(err)
	}
	for k, v := range want {
		got, ok := g.Value(k)
		if !ok || fmt.Sprintf("%T %v", got, got) != fmt.Sprintf("%T %v", v, v) {
			t.Errorf("Value(%q) = %T %v, want %T %v", k, got, got, v, v)
		}
	}
	if _, ok := g.Value("other"); ok {
		t.Error(`Value("other") is there, want none`)
	}
}

func TestGGUFTensors(t *testing.T) {
	var f ggufFile
	f.set("general.alignment", uint32(32))
	f.tensor("plain", 0, []int{2, 3}, floatBytes([]float32{1, 2, 3, 4, 5, 6}))
	f.tensor("half", 1, []int{2}, le([]byte(nil), []uint16{0x3c00, 0xc000}))
	f.tensor("brain", 30, []int{2}, le([]byte(nil), []uint16{0x3f80, 0xc000}))
	g, err := openGGUF(f.bytes())
	if err != nil {
		t.Fatal(err)
	}
	if got, want := fmt.Sprint(g.Tensors()[0].Shape), "{plain [2 3]}"; got != want {
		t.Errorf("Tensors()[0].Shape = %s, want %s: outermost first", got, want)
	}
	for name, want := range map[string][]float32{
		"plain": {1, 2, 3, 4, 5, 6}, "half": {1, -2}, "brain": {1, -2},
	} {
		got := make([]float32, len(want))
		if err := g.Read(name, got); err != nil || !slices.Equal(got, want) {
			t.Errorf("Read(%q) = %v, %v, want %v", name, got, err, want)
		}
	}
	if err := g.Read("plain", make([]float32, 5)); err == nil || err.Error() != `graph: gguf: tensor "plain": room for 5 values, want 6` {
		t.Errorf("Read into 5 values: %v", err)
	}
	if err := g.Read("other", nil); err == nil || err.Error() != `graph: gguf: no tensor "other"` {
		t.Errorf("Read of no tensor: %v", err)
	}
}

// TestGGUFRefuses holds files that claim what isn't so. None may cost more
// than the error.
func TestGGUFRefuses(t *testing.T) {
	head := func(version uint32, tensors, keys uint64) []byte {
		return le(le(le([]byte("GGUF"), version), tensors), keys)
	}
	one := func(build func(f *ggufFile)) []byte {
		var f ggufFile
		build(&f)
		return f.bytes()
	}
	for _, tt := range []struct {
		name, want string
		data       []byte
	}{
		{"empty", "graph: gguf: magic: the file ends at 0: unexpected EOF", nil},
		{"another format", `graph: gguf: begins with "PK\x03\x04", want "GGUF"`, []byte("PK\x03\x04 and so on")},
		{"a pointer", "graph: gguf: a Git LFS pointer, not the file itself; fetch it with git lfs pull, or run  go run ./smol/setup",
			[]byte("version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 98362432\n")},
		{"version 2", "graph: gguf: version 2, want 3", head(2, 0, 0)},
		{"big-endian", "graph: gguf: a big-endian file; only little-endian is read", head(3<<24, 0, 0)},
		{"tensors without end", "graph: gguf: 18446744073709551615 tensors, want at most 65536", head(3, math.MaxUint64, 0)},
		{"keys without end", "graph: gguf: 1099511627776 metadata keys, want at most 65536", head(3, 0, 1<<40)},
		{"a long key", "graph: gguf: metadata 1 of 1: key: a string of 4294967296 bytes, want at most 4", append(le(head(3, 0, 1), uint64(1<<32)), "abcd"...)},
		{"an unknown type", `graph: gguf: metadata 1 of 1: "k": type 13, want 0 to 12`,
			one(func(f *ggufFile) { f.key("k", 13, nil) })},
		{"a bool of 2", `graph: gguf: metadata 1 of 1: "k": bool 2, want 0 or 1`,
			one(func(f *ggufFile) { f.key("k", ggufBool, []byte{2}) })},
		{"an array without end", `graph: gguf: metadata 1 of 1: "k": 2305843009213693952 elements, but only 15 bytes are left`,
			one(func(f *ggufFile) { f.key("k", ggufArray, le(le([]byte(nil), uint32(ggufString)), uint64(1<<61))) })},
		{"arrays in an array", `graph: gguf: metadata 1 of 1: "k": an array of arrays, which no llama has`,
			one(func(f *ggufFile) { f.key("k", ggufArray, le(le([]byte(nil), uint32(ggufArray)), uint64(1))) })},
		{"a key twice", `graph: gguf: metadata 2 of 2: key "k" stands there twice`,
			one(func(f *ggufFile) { f.set("k", true); f.set("k", true) })},
		{"a tensor twice", `graph: gguf: tensor 2 of 2: "w" stands there twice`,
			one(func(f *ggufFile) {
				f.tensor("w", 0, []int{1}, floatBytes([]float32{1}))
				f.tensor("w", 0, []int{1}, floatBytes([]float32{1}))
			})},
		{"no dimensions", `graph: gguf: tensor 1 of 1: "w": 0 dimensions, want 1 to 4`,
			one(func(f *ggufFile) { f.tensor("w", 0, nil, nil) })},
		{"dimensions without end", `graph: gguf: tensor 1 of 1: "w": 4294967295 dimensions, want 1 to 4`,
			append(le(ggufStr(head(3, 1, 0), "w"), uint32(math.MaxUint32)), make([]byte, 64)...)},
		{"an empty dimension", `graph: gguf: tensor 1 of 1: "w": dimension 0 of [0 2], want 1 to 17592186044416`,
			one(func(f *ggufFile) { f.tensor("w", 0, []int{0, 2}, nil) })},
		{"a product that overflows", `graph: gguf: tensor 1 of 1: "w": shape [4294967296 4294967296] has more than 17592186044416 elements`,
			one(func(f *ggufFile) { f.tensor("w", 0, []int{1 << 32, 1 << 32}, nil) })},
		{"half a block", `graph: gguf: tensor 1 of 1: "w": innermost dimension 48 of [2 48], want a multiple of 32 for Q4_1`,
			one(func(f *ggufFile) { f.tensor("w", 3, []int{2, 48}, nil) })},
		{"an unknown quantization", `graph: gguf: tensor 1 of 1: "w": type 12, want F32 (0), F16 (1), Q4_1 (3), Q8_0 (8) or BF16 (30)`,
			one(func(f *ggufFile) { f.tensor("w", 12, []int{256}, nil) })},
		{"an offset that overflows", `graph: gguf: tensor 1 of 1: "w": offset 18446744073709551584 in a file of 64 bytes; is it cut short?`,
			one(func(f *ggufFile) { f.entry("w", 0, []int{8}, math.MaxUint64-31) })},
		{"an offset out of line", `graph: gguf: tensor 1 of 1: "w": offset 4, want a multiple of 32`,
			one(func(f *ggufFile) { f.entry("w", 0, []int{1}, 4) })},
		{"tensors that overlap", `graph: gguf: tensor "b" at 128 overlaps "a", which ends at 192`,
			one(func(f *ggufFile) {
				f.tensor("a", 0, []int{24}, make([]byte, 96))
				f.entry("b", 0, []int{8}, 32)
			})},
		{"an alignment of 3", "graph: gguf: general.alignment 3, want a power of two from 8 to 1048576",
			one(func(f *ggufFile) { f.set("general.alignment", uint32(3)) })},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, err := openGGUF(tt.data)
			if err == nil || err.Error() != tt.want {
				t.Errorf("NewGGUF: %v\nwant %s", err, tt.want)
			}
		})
	}
}

func TestGGUFCutShort(t *testing.T) {
	whole := smallGGUF()
	if _, err := openGGUF(whole); err != nil {
		t.Fatal(err)
	}
	for n := range whole {
		if _, err := openGGUF(whole[:n]); err == nil {
			t.Errorf("NewGGUF of %d of %d bytes: no error", n, len(whole))
		}
	}
}

// smallGGUF has a little of everything.
func smallGGUF() []byte {
	var f ggufFile
	f.set("general.architecture", "llama")
	f.set("tokens", []string{"a", "b"})
	f.set("types", []int32{1, 3})
	f.set("eps", float32(1e-5))
	f.tensor("w", 3, []int{2, 32}, make([]byte, 40))
	f.tensor("e", 8, []int{1, 32}, make([]byte, 34))
	f.tensor("n", 0, []int{2}, floatBytes([]float32{1, 2}))
	return f.bytes()
}

func FuzzGGUF(f *testing.F) {
	f.Add(smallGGUF())
	f.Add([]byte("GGUF\x03\x00\x00\x00"))
	f.Fuzz(func(t *testing.T, data []byte) {
		g, err := openGGUF(data)
		if err != nil {
			if !strings.HasPrefix(err.Error(), "graph: gguf: ") {
				t.Errorf("error %q doesn't say whose it is", err)
			}
			return
		}
		readAll(t, g, len(data))
		// Neither may panic, whatever the metadata.
		FromGGUF(g)
	})
}

// readAll reads every tensor of a file of size bytes, which none may exceed.
func readAll(t *testing.T, c container, size int) {
	t.Helper()
	for _, tensor := range c.Tensors() {
		if tensor.Elements() > 32*int64(size) {
			t.Fatalf("%q has %d elements in a file of %d bytes", tensor.Name, tensor.Elements(), size)
		}
		if err := c.Read(tensor.Name, make([]float32, tensor.Elements())); err != nil {
			t.Errorf("Read(%q): %v", tensor.Name, err)
		}
	}
}

func TestSafetensors(t *testing.T) {
	header := `{"__metadata__":{"format":"pt"},` +
		`"b":{"dtype":"BF16","shape":[3],"data_offsets":[8,14]},` +
		`"a":{"dtype":"F32","shape":[2,1],"data_offsets":[0,8]},` +
		`"c":{"dtype":"F16","shape":[1],"data_offsets":[14,16]}}  `
	data := floatBytes([]float32{0.1, -2})
	data = le(data, []uint16{0x3f80, 0xc040, 0x0001}) // 1, -3, the least subnormal
	data = le(data, uint16(0x3555))                   // about a third
	s, err := openSafetensors(safetensorsFile(header, data))
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string][]float32{
		"a": {0.1, -2},
		"b": {1, -3, math.Float32frombits(1 << 16)},
		"c": {0x1.554p-2},
	} {
		got := make([]float32, len(want))
		if err := s.Read(name, got); err != nil || !slices.Equal(got, want) {
			t.Errorf("Read(%q) = %v, %v, want %v", name, got, err, want)
		}
	}
}

func TestSafetensorsRefuses(t *testing.T) {
	entry := func(dtype, shape, offsets string) string {
		return fmt.Sprintf(`{"w":{"dtype":%q,"shape":%s,"data_offsets":%s}}`, dtype, shape, offsets)
	}
	for _, tt := range []struct {
		name, want string
		data       []byte
	}{
		{"empty", "graph: safetensors: 0 bytes, want at least 8: unexpected EOF", nil},
		{"a pointer", "graph: safetensors: a Git LFS pointer, not the file itself; fetch it with git lfs pull, or run  go run ./smol/setup",
			[]byte("version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 269060552\n")},
		{"a header without end", "graph: safetensors: a header of 18446744073709551615 bytes, want at most 8; is the file cut short?",
			le(le([]byte(nil), uint64(math.MaxUint64)), uint64(0))},
		{"no JSON", "graph: safetensors: header: invalid character 'x' looking for beginning of value", safetensorsFile("x", nil)},
		{"an unknown type", `graph: safetensors: tensor "w": type "I8", want F32, F16 or BF16`,
			safetensorsFile(entry("I8", "[4]", "[0,4]"), make([]byte, 4))},
		{"no dimensions", `graph: safetensors: tensor "w": no dimensions, want at least 1`,
			safetensorsFile(entry("F32", "[]", "[0,4]"), make([]byte, 4))},
		{"a negative dimension", `graph: safetensors: tensor "w": dimension -1 of [-1], want 1 to 17592186044416`,
			safetensorsFile(entry("F32", "[-1]", "[0,4]"), make([]byte, 4))},
		{"a product that overflows", `graph: safetensors: tensor "w": shape [17592186044416 2] has more than 17592186044416 elements`,
			safetensorsFile(entry("F32", "[17592186044416,2]", "[0,4]"), make([]byte, 4))},
		{"an end beyond the file", `graph: safetensors: tensor "w": data_offsets [0 8], want two that rise from 0 to at most 4; is the file cut short?`,
			safetensorsFile(entry("F32", "[2]", "[0,8]"), make([]byte, 4))},
		{"an end before the start", `graph: safetensors: tensor "w": data_offsets [4 0], want two that rise from 0 to at most 4; is the file cut short?`,
			safetensorsFile(entry("F32", "[1]", "[4,0]"), make([]byte, 4))},
		{"bytes that aren't the shape's", `graph: safetensors: tensor "w": 4 bytes, want 8 for F32 [2]`,
			safetensorsFile(entry("F32", "[2]", "[0,4]"), make([]byte, 4))},
		{"a gap", `graph: safetensors: tensor "w" at 66, want 62: the format allows no gap`,
			safetensorsFile(entry("F32", "[1]", "[4,8]"), make([]byte, 8))},
		{"a rest", "graph: safetensors: 4 bytes after the last tensor, want none",
			safetensorsFile(entry("F32", "[1]", "[0,4]"), make([]byte, 8))},
		{"an overlap", `graph: safetensors: tensor "b" at 120 overlaps "a", which ends at 124`,
			safetensorsFile(`{"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},"b":{"dtype":"F32","shape":[2],"data_offsets":[4,12]}}`, make([]byte, 12))},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, err := openSafetensors(tt.data)
			if err == nil || err.Error() != tt.want {
				t.Errorf("NewSafetensors: %v\nwant %s", err, tt.want)
			}
		})
	}
}

func TestSafetensorsCutShort(t *testing.T) {
	whole := safetensorsFile(`{"w":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}}`, make([]byte, 8))
	for n := range whole {
		if _, err := openSafetensors(whole[:n]); err == nil {
			t.Errorf("NewSafetensors of %d of %d bytes: no error", n, len(whole))
		}
	}
}

func FuzzSafetensors(f *testing.F) {
	f.Add(safetensorsFile(`{"w":{"dtype":"BF16","shape":[2,1],"data_offsets":[0,4]}}`, make([]byte, 4)))
	f.Add(safetensorsFile(`{}`, nil))
	f.Fuzz(func(t *testing.T, data []byte) {
		s, err := openSafetensors(data)
		if err != nil {
			if !strings.HasPrefix(err.Error(), "graph: safetensors: ") {
				t.Errorf("error %q doesn't say whose it is", err)
			}
			return
		}
		readAll(t, s, len(data))
	})
}

func TestOpenNamesTheFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "weights")
	if err := os.WriteFile(path, []byte("GG"), 0o644); err != nil {
		t.Fatal(err)
	}
	for name, open := range map[string]func() error{
		"OpenGGUF":        func() error { _, err := OpenGGUF(path); return err },
		"OpenSafetensors": func() error { _, err := OpenSafetensors(path); return err },
	} {
		if err := open(); err == nil || !strings.Contains(err.Error(), path) {
			t.Errorf("%s: %v, want an error that names %s", name, err, path)
		}
	}
}

// asGGUF is the tiny model as a GGUF in F32, rows permuted as the format has
// them; edit may change the metadata.
func asGGUF(t *testing.T, edit func(meta map[string]any)) []byte {
	t.Helper()
	tiny := Tiny()
	c := tiny.Weights.Config()
	tokens, special, merges := tinyVocabulary()
	types := make([]int32, len(tokens))
	for id := range types {
		types[id] = ggufNormal
		if special[id] {
			types[id] = ggufControl
		}
	}
	meta := map[string]any{
		"general.architecture":                   "llama",
		"llama.block_count":                      uint32(c.Layers),
		"llama.embedding_length":                 uint32(c.Hidden),
		"llama.feed_forward_length":              uint32(c.Intermediate),
		"llama.attention.head_count":             uint32(c.Heads),
		"llama.attention.head_count_kv":          uint32(c.KVHeads),
		"llama.context_length":                   uint32(c.Context),
		"llama.vocab_size":                       uint32(c.Vocabulary),
		"llama.rope.dimension_count":             uint32(c.HeadDim),
		"llama.rope.freq_base":                   float32(c.RopeTheta),
		"llama.attention.layer_norm_rms_epsilon": float32(c.NormEps),
		"tokenizer.ggml.model":                   "gpt2",
		"tokenizer.ggml.pre":                     "smollm",
		"tokenizer.ggml.tokens":                  tokens,
		"tokenizer.ggml.token_type":              types,
		"tokenizer.ggml.merges":                  merges,
		"tokenizer.ggml.bos_token_id":            uint32(c.BOS),
		"tokenizer.ggml.eos_token_id":            uint32(c.EOS),
		"tokenizer.ggml.add_bos_token":           false,
		"tokenizer.chat_template":                tiny.ChatTemplate,
	}
	if edit != nil {
		edit(meta)
	}
	var f ggufFile
	for k, v := range meta {
		f.set(k, v)
	}
	names := map[string]string{nameEmbed: "token_embd.weight", nameNorm: "output_norm.weight"}
	for l := range c.Layers {
		for part, name := range ggufParts {
			names[weightName(l, part)] = fmt.Sprintf("blk.%d.%s.weight", l, name)
		}
	}
	for _, s := range c.Shapes() {
		w := make([]float32, s.Elements())
		if err := tiny.Weights.Load(s.Name, w); err != nil {
			t.Fatal(err)
		}
		heads := 0
		switch {
		case strings.Contains(s.Name, partQ):
			heads = c.Heads
		case strings.Contains(s.Name, partK):
			heads = c.KVHeads
		}
		if heads > 0 {
			w = permute(w, heads, c.HeadDim)
		}
		f.tensor(names[s.Name], 0, s.Dims, floatBytes(w))
	}
	return f.bytes()
}

// permute lays the rows of each head out as a GGUF does: pair by pair.
func permute(w []float32, heads, dim int) []float32 {
	in := len(w) / heads / dim
	var out []float32
	for h := range heads {
		for i := range dim / 2 {
			for _, row := range []int{i, i + dim/2} {
				out = append(out, w[(h*dim+row)*in:][:in]...)
			}
		}
	}
	return out
}

// asSafetensors is the tiny model as Hugging Face would have it, in F32, with
// its config.json.
func asSafetensors(t *testing.T) (file, config []byte) {
	t.Helper()
	w := Tiny().Weights
	c := w.Config()
	header := map[string]any{"__metadata__": map[string]string{"format": "pt"}}
	var data []byte
	for _, s := range c.Shapes() {
		v := make([]float32, s.Elements())
		if err := w.Load(s.Name, v); err != nil {
			t.Fatal(err)
		}
		start := len(data)
		data = append(data, floatBytes(v)...)
		header[s.Name] = map[string]any{"dtype": "F32", "shape": s.Dims, "data_offsets": []int{start, len(data)}}
	}
	text, err := json.Marshal(header)
	if err != nil {
		t.Fatal(err)
	}
	return safetensorsFile(string(text), data), hfConfigOf(c, nil)
}

func hfConfigOf(c Config, edit map[string]any) []byte {
	j := map[string]any{
		"model_type": "llama", "hidden_act": "silu", "tie_word_embeddings": true, "rope_scaling": nil,
		"num_hidden_layers": c.Layers, "hidden_size": c.Hidden, "intermediate_size": c.Intermediate,
		"num_attention_heads": c.Heads, "num_key_value_heads": c.KVHeads, "vocab_size": c.Vocabulary,
		"max_position_embeddings": c.Context, "rope_theta": c.RopeTheta, "rms_norm_eps": c.NormEps,
		"bos_token_id": c.BOS, "eos_token_id": c.EOS,
	}
	for k, v := range edit {
		j[k] = v
	}
	text, err := json.Marshal(j)
	if err != nil {
		panic(err)
	}
	return text
}
