package graph

import (
	"context"
	"fmt"
	"math"
)

// microsoft is the domain of ONNX Runtime's own operators.
const microsoft = "com.microsoft"

// The names of the graph's inputs and outputs. Shapes: S is the number of new
// tokens, M the capacity of the key and value buffers, in tokens. A past
// tensor and its present twin may be the same memory, which makes them a
// buffer that a run appends to.
const (
	InputEmbeds = "inputs_embeds"         // float32 [1, S, hidden]: the new tokens' rows of the embedding
	InputSeqLen = "seqlens_k"             // int32 [1]: tokens in the buffer after the run, less one
	InputTotal  = "total_sequence_length" // int32 [1]: tokens in the buffer after the run
	OutputNext  = "next_id"               // int64 [1, 1]: the most likely token after the last
	// OutputLogits is there only if Options.Logits asks for it.
	OutputLogits = "logits" // float32 [1, 1, vocabulary]: of the last position
)

// The names of a layer's key and value buffers, float32
// [1, kv heads, M, head dim]; layers count from 0.
func PastKey(layer int) string      { return fmt.Sprintf("past_key.%d", layer) }
func PastValue(layer int) string    { return fmt.Sprintf("past_value.%d", layer) }
func PresentKey(layer int) string   { return fmt.Sprintf("present_key.%d", layer) }
func PresentValue(layer int) string { return fmt.Sprintf("present_value.%d", layer) }

// builder collects the parts of a GraphProto, encoded, while weights stream
// into the data file. The first error sticks; what follows it does nothing.
type builder struct {
	ctx     context.Context
	config  Config
	weights Weights
	data    *outFile
	err     error

	nodes, inits, inputs, outputs []byte

	embedding extent // in the data file

	raw, turned []float32 // a weight as loaded and transposed; reused
}

func (b *builder) node(op, domain string, in, out []string, attrs ...attribute) {
	b.nodes = appendMessage(b.nodes, 1, nodeProto(op, domain, in, out, attrs))
}

func (b *builder) initializer(tensor []byte) { b.inits = appendMessage(b.inits, 5, tensor) }

func (b *builder) input(name string, elem int64, dims ...any) {
	b.inputs = appendMessage(b.inputs, 11, valueProto(name, elem, dims...))
}

func (b *builder) output(name string, elem int64, dims ...any) {
	b.outputs = appendMessage(b.outputs, 12, valueProto(name, elem, dims...))
}

// load returns the named weight, valid until the next load. It errs on a
// value that no sound model holds.
func (b *builder) load(name string, elements int) []float32 {
	if b.err == nil {
		b.err = b.ctx.Err()
	}
	if b.err != nil {
		return nil
	}
	if cap(b.raw) < elements {
		b.raw = make([]float32, elements)
	}
	w := b.raw[:elements]
	if b.err = b.weights.Load(name, w); b.err != nil {
		return nil
	}
	for i, v := range w {
		if math.Float32bits(v)>>23&255 == 255 {
			b.err = fmt.Errorf("graph: weight %q: element %d is %v, want a finite number", name, i, v)
			return nil
		}
	}
	return w
}

// external writes values to the data file as the initializer name.
func (b *builder) external(name string, values []float32, dims ...int) extent {
	if b.err != nil {
		return extent{}
	}
	at, err := b.data.floats(values)
	if err != nil {
		b.err = fmt.Errorf("graph: %w", err)
		return extent{}
	}
	b.initializer(externalProto(name, dims, at))
	return at
}

// norm adds a norm's weight, which is small enough to live in the graph.
func (b *builder) norm(name, weight string) {
	if w := b.load(weight, b.config.Hidden); b.err == nil {
		b.initializer(inlineProto(name, w))
	}
}

// matMul adds out = x · Wᵀ for the weight [rows, cols]. The transposed weight
// is what the data file holds, so that MatMul takes it as it is and ONNX
// Runtime packs it once, while it loads.
func (b *builder) matMul(out, x, name, weight string, rows, cols int) {
	w := b.load(weight, rows*cols)
	if b.err != nil {
		return
	}
	if cap(b.turned) < len(w) {
		b.turned = make([]float32, len(w))
	}
	t := b.turned[:len(w)]
	transpose(t, w, rows, cols)
	b.external(name, t, cols, rows)
	b.node("MatMul", "", []string{x, name}, []string{out})
}

// transpose sets dst, [cols, rows], to src, [rows, cols], in tiles that stay
// in the cache.
func transpose(dst, src []float32, rows, cols int) {
	const tile = 32
	for r0 := 0; r0 < rows; r0 += tile {
		for c0 := 0; c0 < cols; c0 += tile {
			for r := r0; r < min(r0+tile, rows); r++ {
				for c := c0; c < min(c0+tile, cols); c++ {
					dst[c*rows+r] = src[r*cols+c]
				}
			}
		}
	}
}

// skipNorm adds h = RMSNorm(residual + x) and, unless sum is "", the sum as
// an output of its own.
func (b *builder) skipNorm(h, sum, residual, x, weight string) {
	out := []string{h}
	if sum != "" {
		out = append(out, "", "", sum)
	}
	b.node("SkipSimplifiedLayerNormalization", microsoft, []string{residual, x, weight}, out,
		floatAttr("epsilon", float32(b.config.NormEps)))
}

// rotary returns the cosines and sines of every position's angles, each
// [context, head dim / 2]. Frequencies and angles are rounded to float32, as
// the model was trained.
func rotary(c Config) (cos, sin []float32) {
	half := c.HeadDim / 2
	cos, sin = make([]float32, c.Context*half), make([]float32, c.Context*half)
	for i := range half {
		frequency := float32(1 / math.Pow(c.RopeTheta, float64(2*i)/float64(c.HeadDim)))
		for p := range c.Context {
			angle := float64(float32(p) * frequency)
			cos[p*half+i] = float32(math.Cos(angle))
			sin[p*half+i] = float32(math.Sin(angle))
		}
	}
	return cos, sin
}

// build lays down the whole graph and returns the ModelProto.
func (b *builder) build(logits bool) ([]byte, error) {
	c := b.config
	b.input(InputEmbeds, onnxFloat, 1, "S", c.Hidden)
	b.input(InputSeqLen, onnxInt32, 1)
	b.input(InputTotal, onnxInt32, 1)
	b.output(OutputNext, onnxInt64, 1, 1)
	if logits {
		b.output(OutputLogits, onnxFloat, 1, 1, c.Vocabulary)
	}
	cos, sin := rotary(c)
	b.external("cos_cache", cos, c.Context, c.HeadDim/2)
	b.external("sin_cache", sin, c.Context, c.HeadDim/2)
	b.initializer(inlineInt64Proto("last", -1))

	if embed := b.load(nameEmbed, c.Vocabulary*c.Hidden); b.err == nil {
		var err error
		if b.embedding, err = b.data.floats(embed); err != nil {
			b.err = fmt.Errorf("graph: %w", err)
		}
	}

	residual, x := InputEmbeds, ""
	for l := range c.Layers {
		residual, x = b.layer(l, residual, x)
	}
	b.norm("norm", nameNorm)
	b.skipNorm("h", "", residual, x, "norm")

	// The head is packed for the multiplication from the embedding's bytes, so
	// the file holds them once. It comes in parts because ONNX Runtime packs
	// one initializer after the other and lets go of the original only then: a
	// head in one piece would, while it loads, need its size in memory twice.
	// And the embedding itself is no initializer: looked up through a map of
	// the file, a few hundred tokens make nearly all of it resident.
	var parts []string
	at := b.embedding.offset
	for i, rows := range headParts(c.Vocabulary) {
		name, part := fmt.Sprintf("lm_head.%d", i), fmt.Sprintf("logits.%d", i)
		size := 4 * int64(rows) * int64(c.Hidden)
		b.initializer(externalProto(name, []int{rows, c.Hidden}, extent{at, size}))
		at += size
		b.node("FusedMatMul", microsoft, []string{"h", name}, []string{part}, intAttr("transB", 1))
		parts = append(parts, part)
	}
	b.node("Concat", "", parts, []string{OutputLogits}, intAttr("axis", -1))
	b.node("ArgMax", "", []string{OutputLogits}, []string{OutputNext}, intAttr("axis", -1), intAttr("keepdims", 0))

	if b.err != nil {
		return nil, b.err
	}
	graph := appendString(b.nodes, 2, "decoder")
	graph = append(graph, b.inits...)
	graph = append(graph, b.inputs...)
	graph = append(graph, b.outputs...)
	return modelProto(graph), nil
}

// headParts is how many rows of the vocabulary each part of the head has.
func headParts(vocabulary int) []int {
	const parts = 4
	var rows []int
	for left := vocabulary; left > 0; left -= rows[len(rows)-1] {
		rows = append(rows, min(left, (vocabulary+parts-1)/parts))
	}
	return rows
}

// layer adds block l to the residual stream, which comes as two summands, x
// being "" before the first block, and returns the two that leave it.
func (b *builder) layer(l int, residual, x string) (string, string) {
	c := b.config
	name := func(part string) string { return fmt.Sprintf("%s.%d", part, l) }
	q, kv := c.Heads*c.HeadDim, c.KVHeads*c.HeadDim

	b.norm(name("norm1"), weightName(l, partNorm1))
	h := name("h1")
	if x == "" {
		b.node("SimplifiedLayerNormalization", "", []string{residual, name("norm1")}, []string{h},
			intAttr("axis", -1), floatAttr("epsilon", float32(c.NormEps)), intAttr("stash_type", 1))
	} else {
		b.skipNorm(h, name("r1"), residual, x, name("norm1"))
		residual = name("r1")
	}

	b.matMul(name("q"), h, name("wq"), weightName(l, partQ), q, c.Hidden)
	b.matMul(name("k"), h, name("wk"), weightName(l, partK), kv, c.Hidden)
	b.matMul(name("v"), h, name("wv"), weightName(l, partV), kv, c.Hidden)
	for _, p := range []string{PastKey(l), PastValue(l)} {
		b.input(p, onnxFloat, 1, c.KVHeads, "M", c.HeadDim)
	}
	for _, p := range []string{PresentKey(l), PresentValue(l)} {
		b.output(p, onnxFloat, 1, c.KVHeads, "M", c.HeadDim)
	}
	attention := name("attention")
	b.node("GroupQueryAttention", microsoft,
		[]string{name("q"), name("k"), name("v"), PastKey(l), PastValue(l), InputSeqLen, InputTotal, "cos_cache", "sin_cache"},
		[]string{attention, PresentKey(l), PresentValue(l)},
		intAttr("num_heads", int64(c.Heads)), intAttr("kv_num_heads", int64(c.KVHeads)),
		floatAttr("scale", float32(1/math.Sqrt(float64(c.HeadDim)))),
		intAttr("do_rotary", 1), intAttr("rotary_interleaved", 0), intAttr("local_window_size", -1))

	if l == c.Layers-1 {
		// Keys and values are written; of the rest only the last position is
		// asked for.
		b.node("Gather", "", []string{attention, "last"}, []string{"attention.last"}, intAttr("axis", 1))
		b.node("Gather", "", []string{residual, "last"}, []string{"residual.last"}, intAttr("axis", 1))
		attention, residual = "attention.last", "residual.last"
	}

	b.matMul(name("o"), attention, name("wo"), weightName(l, partO), c.Hidden, q)
	b.norm(name("norm2"), weightName(l, partNorm2))
	h = name("h2")
	b.skipNorm(h, name("r2"), residual, name("o"), name("norm2"))
	b.matMul(name("gate"), h, name("wgate"), weightName(l, partGate), c.Intermediate, c.Hidden)
	b.matMul(name("up"), h, name("wup"), weightName(l, partUp), c.Intermediate, c.Hidden)
	b.node("QuickGelu", microsoft, []string{name("gate")}, []string{name("silu")}, floatAttr("alpha", 1)) // x·sigmoid(x)
	b.node("Mul", "", []string{name("silu"), name("up")}, []string{name("gated")})
	b.matMul(name("down"), name("gated"), name("wdown"), weightName(l, partDown), c.Hidden, c.Intermediate)
	return name("r2"), name("down")
}
