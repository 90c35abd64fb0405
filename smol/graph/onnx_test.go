package graph

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"
)

// field is one field of a message on the wire.
type field struct {
	number protowire.Number
	varint int64
	bits   uint32
	bytes  []byte
}

// fields splits a message; it fails the test on what isn't one.
func fields(t *testing.T, b []byte) []field {
	t.Helper()
	var out []field
	for len(b) > 0 {
		num, typ, n := protowire.ConsumeTag(b)
		if n < 0 {
			t.Fatalf("tag: %v", protowire.ParseError(n))
		}
		b = b[n:]
		f := field{number: num}
		switch typ {
		case protowire.VarintType:
			var v uint64
			v, n = protowire.ConsumeVarint(b)
			f.varint = int64(v)
		case protowire.Fixed32Type:
			f.bits, n = protowire.ConsumeFixed32(b)
		case protowire.BytesType:
			f.bytes, n = protowire.ConsumeBytes(b)
		default:
			t.Fatalf("field %d has wire type %d", num, typ)
		}
		if n < 0 {
			t.Fatalf("field %d: %v", num, protowire.ParseError(n))
		}
		b = b[n:]
		out = append(out, f)
	}
	return out
}

// parsed is the graph as a reader of the file sees it.
type parsed struct {
	opsets        map[string]int64
	ir            int64
	nodes         []parsedNode
	inits         map[string]parsedTensor
	inputs, value []string // "name type[dims]", in order; value holds the outputs
}

type parsedNode struct {
	op, domain, name string
	in, out          []string
	attrs            map[string]string
}

type parsedTensor struct {
	dims           []int64
	typ            int64
	raw            []byte
	location       string
	offset, length int64
}

func parseONNX(t *testing.T, data []byte) parsed {
	t.Helper()
	p := parsed{opsets: map[string]int64{}, inits: map[string]parsedTensor{}}
	var graph []byte
	for _, f := range fields(t, data) {
		switch f.number {
		case 1:
			p.ir = f.varint
		case 7:
			graph = f.bytes
		case 8:
			var domain string
			var version int64
			for _, o := range fields(t, f.bytes) {
				if o.number == 1 {
					domain = string(o.bytes)
				} else {
					version = o.varint
				}
			}
			p.opsets[domain] = version
		}
	}
	for _, f := range fields(t, graph) {
		switch f.number {
		case 1:
			p.nodes = append(p.nodes, parseNode(t, f.bytes))
		case 5:
			name, tensor := parseTensor(t, f.bytes)
			if _, twice := p.inits[name]; twice {
				t.Errorf("initializer %q stands there twice", name)
			}
			p.inits[name] = tensor
		case 11:
			p.inputs = append(p.inputs, parseValue(t, f.bytes))
		case 12:
			p.value = append(p.value, parseValue(t, f.bytes))
		}
	}
	return p
}

func parseNode(t *testing.T, b []byte) parsedNode {
	n := parsedNode{attrs: map[string]string{}}
	for _, f := range fields(t, b) {
		switch f.number {
		case 1:
			n.in = append(n.in, string(f.bytes))
		case 2:
			n.out = append(n.out, string(f.bytes))
		case 3:
			n.name = string(f.bytes)
		case 4:
			n.op = string(f.bytes)
		case 5:
			var name, value string
			for _, a := range fields(t, f.bytes) {
				switch a.number {
				case 1:
					name = string(a.bytes)
				case 2:
					value = fmt.Sprint(math.Float32frombits(a.bits))
				case 3:
					value = fmt.Sprint(a.varint)
				case 20:
					value += map[int64]string{1: " float", 2: " int"}[a.varint]
				}
			}
			n.attrs[name] = value
		case 7:
			n.domain = string(f.bytes)
		}
	}
	return n
}

func parseTensor(t *testing.T, b []byte) (string, parsedTensor) {
	var name string
	var p parsedTensor
	for _, f := range fields(t, b) {
		switch f.number {
		case 1:
			p.dims = append(p.dims, f.varint)
		case 2:
			p.typ = f.varint
		case 8:
			name = string(f.bytes)
		case 9:
			p.raw = f.bytes
		case 13:
			kv := fields(t, f.bytes)
			value := string(kv[1].bytes)
			switch key := string(kv[0].bytes); key {
			case "location":
				p.location = value
			case "offset":
				p.offset, _ = strconv.ParseInt(value, 10, 64)
			case "length":
				p.length, _ = strconv.ParseInt(value, 10, 64)
			default:
				t.Errorf("%s: external data has the key %q", name, key)
			}
		case 14:
			if f.varint != 1 {
				t.Errorf("%s: data location %d, want 1", name, f.varint)
			}
		}
	}
	return name, p
}

func parseValue(t *testing.T, b []byte) string {
	var name, typ string
	var dims []string
	for _, f := range fields(t, b) {
		if f.number == 1 {
			name = string(f.bytes)
			continue
		}
		for _, f := range fields(t, fields(t, f.bytes)[0].bytes) { // TypeProto.Tensor
			if f.number == 1 {
				typ = map[int64]string{1: "float32", 6: "int32", 7: "int64"}[f.varint]
				continue
			}
			for _, d := range fields(t, f.bytes) {
				v := fields(t, d.bytes)[0]
				if v.number == 1 {
					dims = append(dims, fmt.Sprint(v.varint))
				} else {
					dims = append(dims, string(v.bytes))
				}
			}
		}
	}
	return fmt.Sprintf("%s %s[%s]", name, typ, strings.Join(dims, ","))
}

// writeTiny returns the parsed graph and the bytes of the data file.
func writeTiny(t *testing.T, o Options) (parsed, []byte, *Manifest) {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "tiny")
	m, err := WriteTiny(dir, o)
	if err != nil {
		t.Fatal(err)
	}
	proto, err := os.ReadFile(filepath.Join(dir, GraphFile))
	if err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(filepath.Join(dir, DataFile))
	if err != nil {
		t.Fatal(err)
	}
	return parseONNX(t, proto), data, m
}

func TestGraphInterface(t *testing.T) {
	p, _, _ := writeTiny(t, Options{})
	if p.ir != 10 || len(p.opsets) != 2 || p.opsets[""] != 18 || p.opsets["com.microsoft"] != 1 {
		t.Errorf("IR %d, opsets %v, want 10, 18 and com.microsoft 1", p.ir, p.opsets)
	}
	wantIn := []string{
		"inputs_embeds float32[1,S,96]", "seqlens_k int32[1]", "total_sequence_length int32[1]",
		"past_key.0 float32[1,2,M,16]", "past_value.0 float32[1,2,M,16]",
		"past_key.1 float32[1,2,M,16]", "past_value.1 float32[1,2,M,16]",
	}
	wantOut := []string{
		"next_id int64[1,1]",
		"present_key.0 float32[1,2,M,16]", "present_value.0 float32[1,2,M,16]",
		"present_key.1 float32[1,2,M,16]", "present_value.1 float32[1,2,M,16]",
	}
	if !slices.Equal(p.inputs, wantIn) {
		t.Errorf("inputs %q\nwant %q", p.inputs, wantIn)
	}
	if !slices.Equal(p.value, wantOut) {
		t.Errorf("outputs %q\nwant %q", p.value, wantOut)
	}
	p, _, _ = writeTiny(t, Options{Logits: true})
	if wantOut = slices.Insert(wantOut, 1, "logits float32[1,1,512]"); !slices.Equal(p.value, wantOut) {
		t.Errorf("outputs with logits %q\nwant %q", p.value, wantOut)
	}
}

// TestGraphNodes checks that the graph is in order, complete, and made of the
// operators that it's known to be fast with.
func TestGraphNodes(t *testing.T) {
	p, _, _ := writeTiny(t, Options{})
	known := map[string]bool{"": true}
	for name := range p.inits {
		known[name] = true
	}
	for _, in := range p.inputs {
		known[strings.Fields(in)[0]] = true
	}
	used := map[string]bool{}
	ops := map[string]int{}
	var layers []string // of the attention nodes
	for _, n := range p.nodes {
		for _, in := range n.in {
			if !known[in] {
				t.Errorf("%s %q takes %q, which nothing before it makes", n.op, n.name, in)
			}
			used[in] = true
		}
		for _, out := range n.out {
			if out != "" && known[out] {
				t.Errorf("%s %q makes %q, which is there already", n.op, n.name, out)
			}
			known[out] = true
		}
		if n.name != n.out[0] {
			t.Errorf("%s is called %q, want %q", n.op, n.name, n.out[0])
		}
		ops[n.domain+":"+n.op]++
		if n.op != "GroupQueryAttention" {
			continue
		}
		l := strconv.Itoa(len(layers))
		layers = append(layers, l)
		wantIn := []string{"q." + l, "k." + l, "v." + l, "past_key." + l, "past_value." + l,
			"seqlens_k", "total_sequence_length", "cos_cache", "sin_cache"}
		wantOut := []string{"attention." + l, "present_key." + l, "present_value." + l}
		if !slices.Equal(n.in, wantIn) || !slices.Equal(n.out, wantOut) {
			t.Errorf("attention %v → %v\nwant %v → %v", n.in, n.out, wantIn, wantOut)
		}
		want := map[string]string{"num_heads": "6 int", "kv_num_heads": "2 int", "scale": "0.25 float",
			"do_rotary": "1 int", "rotary_interleaved": "0 int", "local_window_size": "-1 int"}
		if fmt.Sprint(n.attrs) != fmt.Sprint(want) {
			t.Errorf("attention %v, want %v", n.attrs, want)
		}
	}
	want := map[string]int{
		":Gather": 2, ":SimplifiedLayerNormalization": 1, "com.microsoft:SkipSimplifiedLayerNormalization": 4,
		":MatMul": 14, "com.microsoft:GroupQueryAttention": 2, "com.microsoft:QuickGelu": 2, ":Mul": 2,
		"com.microsoft:FusedMatMul": 4, ":Concat": 1, ":ArgMax": 1,
	}
	if fmt.Sprint(ops) != fmt.Sprint(want) {
		t.Errorf("operators %v\nwant %v", ops, want)
	}
	for name := range p.inits {
		if !used[name] {
			t.Errorf("nothing takes the initializer %q", name)
		}
	}
	for _, out := range p.value {
		if name := strings.Fields(out)[0]; !known[name] {
			t.Errorf("nothing makes the output %q", name)
		}
	}

	// After the last layer's attention only the last position goes on.
	for _, n := range p.nodes {
		if n.name == "o.1" && n.in[0] != "attention.last" || n.name == "h2.1" && n.in[0] != "residual.last" {
			t.Errorf("%q takes %q, want the last position only", n.name, n.in[0])
		}
	}
}

func TestHeadParts(t *testing.T) {
	for vocabulary, want := range map[int]string{1: "[1]", 4: "[1 1 1 1]", 5: "[2 2 1]", 49152: "[12288 12288 12288 12288]", 49153: "[12289 12289 12289 12286]"} {
		if got := fmt.Sprint(headParts(vocabulary)); got != want {
			t.Errorf("headParts(%d) = %s, want %s", vocabulary, got, want)
		}
	}
}

// TestGraphData checks where the weights lie and that they're the model's.
func TestGraphData(t *testing.T) {
	p, data, m := writeTiny(t, Options{})
	values := func(name string) []float32 {
		i := p.inits[name]
		raw := i.raw
		if i.location != "" {
			if i.location != DataFile || i.offset%4096 != 0 || i.offset < 0 || i.length < 0 || i.offset+i.length > int64(len(data)) {
				t.Fatalf("%s lies at %s %d+%d, want an offset in %s that 4096 divides", name, i.location, i.offset, i.length, DataFile)
			}
			raw = data[i.offset:][:i.length]
		}
		out := make([]float32, len(raw)/4)
		for j := range out {
			out[j] = math.Float32frombits(binary.LittleEndian.Uint32(raw[4*j:]))
		}
		return out
	}
	w := Tiny().Weights
	load := func(name string) []float32 {
		for _, s := range w.Config().Shapes() {
			if s.Name == name {
				v := make([]float32, s.Elements())
				if err := w.Load(name, v); err != nil {
					t.Fatal(err)
				}
				return v
			}
		}
		t.Fatalf("no weight %q", name)
		return nil
	}
	embed := load(nameEmbed)
	for i, v := range embed {
		if got := math.Float32frombits(binary.LittleEndian.Uint32(data[m.EmbeddingOffset+4*int64(i):])); got != v {
			t.Fatalf("float %d after embedding_offset is %v, want %v", i, got, v)
		}
	}
	for i := range 4 {
		head := p.inits[fmt.Sprintf("lm_head.%d", i)]
		if at := m.EmbeddingOffset + int64(i)*head.length; head.offset != at || fmt.Sprint(head.dims) != "[128 96]" {
			t.Errorf("lm_head.%d %v, want [128 96] at %d", i, head, at)
		}
	}
	if !slices.Equal(values("norm"), load(nameNorm)) || !slices.Equal(values("norm2.1"), load(weightName(1, partNorm2))) {
		t.Error("a norm isn't the model's")
	}
	for name, part := range map[string]string{"wq": partQ, "wk": partK, "wv": partV, "wo": partO, "wgate": partGate, "wup": partUp, "wdown": partDown} {
		for l := range 2 {
			init := fmt.Sprintf("%s.%d", name, l)
			in, out := int(p.inits[init].dims[0]), int(p.inits[init].dims[1])
			got, want := values(init), load(weightName(l, part))
			for r := range out {
				for c := range in {
					if got[c*out+r] != want[r*in+c] {
						t.Fatalf("%s[%d][%d] = %v, want the transposed %v", init, c, r, got[c*out+r], want[r*in+c])
					}
				}
			}
		}
	}
	cos, sin := values("cos_cache"), values("sin_cache")
	// Position 3 of the second pair: the angle is 3·10000^(-2/16).
	if got, want := cos[3*8+1], float32(math.Cos(3*math.Pow(10000, -0.125))); math.Abs(float64(got-want)) > 1e-6 {
		t.Errorf("cos_cache[3][1] = %v, want %v", got, want)
	}
	if got, want := sin[511*8], float32(math.Sin(511)); got != want {
		t.Errorf("sin_cache[511][0] = %v, want %v", got, want)
	}
}

// brokenWeights has one value that no model should have.
type brokenWeights struct{ Weights }

func (b brokenWeights) Load(name string, dst []float32) error {
	err := b.Weights.Load(name, dst)
	if name == weightName(1, partUp) {
		dst[5] = float32(math.Inf(-1))
	}
	return err
}

func TestWriteRefuses(t *testing.T) {
	m := Tiny()
	m.Weights = brokenWeights{m.Weights}
	dir := t.TempDir()
	_, err := Write(t.Context(), dir, m, Options{})
	if want := `graph: weight "model.layers.1.mlp.up_proj.weight": element 5 is -Inf, want a finite number`; err == nil || err.Error() != want {
		t.Errorf("Write: %v\nwant %s", err, want)
	}
	if _, err := os.Stat(filepath.Join(dir, ManifestFile)); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("after an error there is a manifest (%v)", err)
	}
	if _, err := Write(t.Context(), dir, Tiny(), Options{}); !errors.Is(err, os.ErrExist) {
		t.Errorf("Write over another: %v, want that the file exists", err)
	}
}
