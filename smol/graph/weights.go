package graph

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
)

// Weights hands out a model's weights under the names and in the layout of
// Config.Shapes, as float32. Loading a tensor twice gives the same values.
type Weights interface {
	Config() Config
	// Load fills dst, which has exactly the tensor's number of elements.
	Load(name string, dst []float32) error
}

// container is what GGUF and Safetensors have in common.
type container interface {
	Tensors() []Tensor
	Read(name string, dst []float32) error
}

// stored are weights in a container under the container's own names.
type stored struct {
	container
	config Config
	theirs map[string]string // our name to the container's
	halves map[string]int    // our name to the heads whose rows are interleaved
}

func (w *stored) Config() Config { return w.config }

func (w *stored) Load(name string, dst []float32) error {
	theirs, ok := w.theirs[name]
	if !ok {
		return fmt.Errorf("graph: no weight %q", name)
	}
	heads, interleaved := w.halves[name]
	if !interleaved {
		return w.Read(theirs, dst)
	}
	src := make([]float32, len(dst))
	if err := w.Read(theirs, src); err != nil {
		return err
	}
	unpermute(dst, src, heads, w.config.HeadDim)
	return nil
}

// unpermute undoes what a GGUF does to the rows of a query or key projection.
// A rotary pair is row i of the first half of a head and row i of its second;
// GGUF lays the two side by side. dst and src are [heads·dim, in].
func unpermute(dst, src []float32, heads, dim int) {
	in := len(src) / (heads * dim)
	for h := range heads {
		for half := range 2 {
			for i := range dim / 2 {
				to := (h*dim + half*dim/2 + i) * in
				from := (h*dim + 2*i + half) * in
				copy(dst[to:to+in], src[from:from+in])
			}
		}
	}
}

// newStored checks that the container holds the weights of config, in their
// shapes, and not one tensor more: a bias or a factor that the graph leaves
// out would change every answer.
func newStored(c container, config Config, theirs map[string]string) (*stored, error) {
	if err := config.Validate(); err != nil {
		return nil, err
	}
	have := map[string]Tensor{}
	for _, t := range c.Tensors() {
		have[t.Name] = t
	}
	for _, s := range config.Shapes() {
		name := theirs[s.Name]
		t, ok := have[name]
		if !ok {
			return nil, fmt.Errorf("graph: no tensor %q in the file", name)
		}
		if !slices.Equal(t.Dims, s.Dims) {
			return nil, fmt.Errorf("graph: tensor %q has shape %v, want %v", name, t.Dims, s.Dims)
		}
		delete(have, name)
	}
	if len(have) > 0 {
		var names []string
		for name := range have {
			names = append(names, name)
		}
		slices.Sort(names)
		return nil, fmt.Errorf("graph: %d tensors that the graph has no use for, the first %q", len(have), names[0])
	}
	return &stored{container: c, config: config, theirs: theirs}, nil
}

// ggufParts are the names that a GGUF gives to the weights of a layer.
var ggufParts = map[string]string{
	partNorm1: "attn_norm",
	partQ:     "attn_q",
	partK:     "attn_k",
	partV:     "attn_v",
	partO:     "attn_output",
	partNorm2: "ffn_norm",
	partGate:  "ffn_gate",
	partUp:    "ffn_up",
	partDown:  "ffn_down",
}

// GGUFWeights reads the weights of a llama from g, which stays the caller's
// to close. It errs on another architecture, on rotary scaling and on tensors
// that the graph has no place for.
func GGUFWeights(g *GGUF) (Weights, error) {
	config, err := ggufConfig(g)
	if err != nil {
		return nil, err
	}
	theirs := map[string]string{nameEmbed: "token_embd.weight", nameNorm: "output_norm.weight"}
	halves := map[string]int{}
	for l := range config.Layers {
		for part, name := range ggufParts {
			theirs[weightName(l, part)] = fmt.Sprintf("blk.%d.%s.weight", l, name)
		}
		halves[weightName(l, partQ)] = config.Heads
		halves[weightName(l, partK)] = config.KVHeads
	}
	w, err := newStored(g, config, theirs)
	if err != nil {
		return nil, err
	}
	w.halves = halves
	return w, nil
}

func ggufConfig(g *GGUF) (Config, error) {
	var c Config
	arch, err := metaValue[string](g, "general.architecture")
	if err != nil {
		return c, err
	}
	if arch != "llama" {
		return c, fmt.Errorf("graph: gguf: architecture %q, want \"llama\"", arch)
	}
	for key := range g.meta {
		if strings.HasPrefix(key, "llama.rope.scal") {
			return c, fmt.Errorf("graph: gguf: metadata %q: rotary scaling is not built into the graph", key)
		}
	}
	var bos, eos, rotary int
	for _, f := range []struct {
		key string
		to  *int
	}{
		{"llama.block_count", &c.Layers},
		{"llama.embedding_length", &c.Hidden},
		{"llama.feed_forward_length", &c.Intermediate},
		{"llama.attention.head_count", &c.Heads},
		{"llama.attention.head_count_kv", &c.KVHeads},
		{"llama.context_length", &c.Context},
		{"llama.vocab_size", &c.Vocabulary},
		{"llama.rope.dimension_count", &rotary},
		{"tokenizer.ggml.bos_token_id", &bos},
		{"tokenizer.ggml.eos_token_id", &eos},
	} {
		if *f.to, err = metaInt(g, f.key); err != nil {
			return c, err
		}
	}
	c.BOS, c.EOS = int32(bos), int32(eos)
	if c.RopeTheta, err = metaFloat(g, "llama.rope.freq_base"); err != nil {
		return c, err
	}
	if c.NormEps, err = metaFloat(g, "llama.attention.layer_norm_rms_epsilon"); err != nil {
		return c, err
	}
	if c.Heads == 0 || c.Hidden%c.Heads != 0 {
		return c, fmt.Errorf("graph: gguf: %d heads in a width of %d, want a divisor", c.Heads, c.Hidden)
	}
	c.HeadDim = c.Hidden / c.Heads
	if rotary != c.HeadDim {
		return c, fmt.Errorf("graph: gguf: llama.rope.dimension_count %d, want the whole head, %d", rotary, c.HeadDim)
	}
	return c, c.Validate()
}

// SafetensorsWeights reads the weights of a Hugging Face llama from s, which
// stays the caller's to close. configJSON is the config.json beside it. It
// errs on whatever in either would make the graph compute something else.
func SafetensorsWeights(s *Safetensors, configJSON []byte) (Weights, error) {
	config, err := hfConfig(configJSON)
	if err != nil {
		return nil, err
	}
	theirs := map[string]string{}
	for _, shape := range config.Shapes() {
		theirs[shape.Name] = shape.Name
	}
	return newStored(s, config, theirs)
}

func hfConfig(data []byte) (Config, error) {
	var j struct {
		ModelType     string          `json:"model_type"`
		Layers        int             `json:"num_hidden_layers"`
		Hidden        int             `json:"hidden_size"`
		Intermediate  int             `json:"intermediate_size"`
		Heads         int             `json:"num_attention_heads"`
		KVHeads       int             `json:"num_key_value_heads"`
		HeadDim       int             `json:"head_dim"`
		Vocabulary    int             `json:"vocab_size"`
		Context       int             `json:"max_position_embeddings"`
		RopeTheta     float64         `json:"rope_theta"`
		NormEps       float64         `json:"rms_norm_eps"`
		BOS           int32           `json:"bos_token_id"`
		EOS           int32           `json:"eos_token_id"`
		Activation    string          `json:"hidden_act"`
		Tied          bool            `json:"tie_word_embeddings"`
		AttentionBias bool            `json:"attention_bias"`
		MLPBias       bool            `json:"mlp_bias"`
		Interleaved   bool            `json:"rope_interleaved"`
		Scaling       json.RawMessage `json:"rope_scaling"`
	}
	if err := json.Unmarshal(data, &j); err != nil {
		return Config{}, fmt.Errorf("graph: config.json: %w", err)
	}
	for _, f := range []struct {
		key       string
		got, want any
	}{
		{"model_type", j.ModelType, "llama"},
		{"hidden_act", j.Activation, "silu"},
		{"tie_word_embeddings", j.Tied, true},
		{"attention_bias", j.AttentionBias, false},
		{"mlp_bias", j.MLPBias, false},
		{"rope_interleaved", j.Interleaved, false},
		{"rope_scaling is absent", len(j.Scaling) == 0 || string(j.Scaling) == "null", true},
	} {
		if f.got != f.want {
			return Config{}, fmt.Errorf("graph: config.json: %s %v, want %v", f.key, f.got, f.want)
		}
	}
	c := Config{
		Layers: j.Layers, Hidden: j.Hidden, Intermediate: j.Intermediate,
		Heads: j.Heads, KVHeads: j.KVHeads, HeadDim: j.HeadDim,
		Vocabulary: j.Vocabulary, Context: j.Context,
		RopeTheta: j.RopeTheta, NormEps: j.NormEps, BOS: j.BOS, EOS: j.EOS,
	}
	if c.HeadDim == 0 && c.Heads > 0 {
		c.HeadDim = c.Hidden / c.Heads
	}
	return c, c.Validate()
}

// precision says where float32 values came from: the type that most of the
// container's elements are stored in.
func precision(c container) string {
	elements := map[Type]int64{}
	most := F32
	for _, t := range c.Tensors() {
		elements[t.Type] += t.Elements()
		if elements[t.Type] > elements[most] {
			most = t.Type
		}
	}
	switch most {
	case F32:
		return "fp32"
	case F16:
		return "fp32, widened from fp16"
	case BF16:
		return "fp32, widened from bf16"
	}
	return "fp32, dequantized from " + most.String()
}
