package graph

import (
	"errors"
	"fmt"
	"math"
)

// Config is the shape of a Llama-like decoder with tied embeddings,
// grouped-query attention and rotary positions. Write needs nothing else to
// know which operators to lay down; it has no default.
type Config struct {
	Layers       int     // decoder blocks
	Hidden       int     // width of the residual stream
	Intermediate int     // width of the gated MLP
	Heads        int     // query heads, a multiple of KVHeads
	KVHeads      int     // key and value heads
	HeadDim      int     // width of a head, a multiple of 16
	Vocabulary   int     // token ids are 0 to Vocabulary-1
	Context      int     // positions that the rotary caches cover
	RopeTheta    float64 // base of the rotary frequencies
	NormEps      float64 // added to the mean square in RMSNorm
	BOS          int32   // opens a conversation; never added by itself
	EOS          int32   // ends an answer
}

// The largest values that Validate lets through. They lie far above any model
// that this package is meant for, and low enough that no product of two of
// them overflows an int64.
const (
	maxLayers     = 1 << 10
	maxWidth      = 1 << 17
	maxVocabulary = 1 << 21
	maxContext    = 1 << 17
)

// Validate reports every fault of c, joined, each with its value and bound.
func (c Config) Validate() error {
	var faults []error
	within := func(name string, v, lo, hi int) {
		if v < lo || v > hi {
			faults = append(faults, fmt.Errorf("graph: config: %s %d, want %d to %d", name, v, lo, hi))
		}
	}
	within("layers", c.Layers, 1, maxLayers)
	within("hidden", c.Hidden, 1, maxWidth)
	within("intermediate", c.Intermediate, 1, maxWidth)
	within("heads", c.Heads, 1, maxWidth)
	within("kv heads", c.KVHeads, 1, maxWidth)
	within("head dim", c.HeadDim, 16, 1024)
	within("vocabulary", c.Vocabulary, 1, maxVocabulary)
	within("context", c.Context, 1, maxContext)
	if len(faults) == 0 {
		within("width of all heads", c.Heads*c.HeadDim, 1, maxWidth)
		within("bos", int(c.BOS), 0, c.Vocabulary-1)
		within("eos", int(c.EOS), 0, c.Vocabulary-1)
		if c.Heads%c.KVHeads != 0 {
			faults = append(faults, fmt.Errorf("graph: config: heads %d, want a multiple of kv heads %d", c.Heads, c.KVHeads))
		}
		if c.HeadDim%16 != 0 {
			faults = append(faults, fmt.Errorf("graph: config: head dim %d, want a multiple of 16", c.HeadDim))
		}
	}
	if !(c.RopeTheta > 1) || math.IsInf(c.RopeTheta, 0) {
		faults = append(faults, fmt.Errorf("graph: config: rope theta %v, want a finite number above 1", c.RopeTheta))
	}
	if !(c.NormEps > 0 && c.NormEps < 1) {
		faults = append(faults, fmt.Errorf("graph: config: norm eps %v, want between 0 and 1", c.NormEps))
	}
	return errors.Join(faults...)
}

// Shape names a weight and its dimensions, row-major, outermost first.
type Shape struct {
	Name string
	Dims []int
}

// Elements is the product of the dimensions.
func (s Shape) Elements() int64 {
	n := int64(1)
	for _, d := range s.Dims {
		n *= int64(d)
	}
	return n
}

// The names that Hugging Face gives to a Llama's weights.
const (
	nameEmbed = "model.embed_tokens.weight"
	nameNorm  = "model.norm.weight"

	partNorm1 = "input_layernorm"
	partQ     = "self_attn.q_proj"
	partK     = "self_attn.k_proj"
	partV     = "self_attn.v_proj"
	partO     = "self_attn.o_proj"
	partNorm2 = "post_attention_layernorm"
	partGate  = "mlp.gate_proj"
	partUp    = "mlp.up_proj"
	partDown  = "mlp.down_proj"
)

// weightName is the name of part in a layer, which counts from 0.
func weightName(layer int, part string) string {
	return fmt.Sprintf("model.layers.%d.%s.weight", layer, part)
}

// Shapes lists every weight of the model in the order of the data file: the
// embedding, the layers, the last norm. c must be valid. A projection is
// [out, in].
func (c Config) Shapes() []Shape {
	q, kv := c.Heads*c.HeadDim, c.KVHeads*c.HeadDim
	shapes := make([]Shape, 0, 9*c.Layers+2)
	shapes = append(shapes, Shape{nameEmbed, []int{c.Vocabulary, c.Hidden}})
	for l := range c.Layers {
		shapes = append(shapes,
			Shape{weightName(l, partNorm1), []int{c.Hidden}},
			Shape{weightName(l, partQ), []int{q, c.Hidden}},
			Shape{weightName(l, partK), []int{kv, c.Hidden}},
			Shape{weightName(l, partV), []int{kv, c.Hidden}},
			Shape{weightName(l, partO), []int{c.Hidden, q}},
			Shape{weightName(l, partNorm2), []int{c.Hidden}},
			Shape{weightName(l, partGate), []int{c.Intermediate, c.Hidden}},
			Shape{weightName(l, partUp), []int{c.Intermediate, c.Hidden}},
			Shape{weightName(l, partDown), []int{c.Hidden, c.Intermediate}},
		)
	}
	return append(shapes, Shape{nameNorm, []int{c.Hidden}})
}

// Parameters is the number of weights; the tied embedding counts once.
func (c Config) Parameters() int64 {
	var n int64
	for _, s := range c.Shapes() {
		n += s.Elements()
	}
	return n
}
