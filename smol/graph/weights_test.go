package graph

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"testing"
)

func TestUnpermute(t *testing.T) {
	// Two heads of four rows, two columns; a GGUF has rows 0, 2, 1, 3.
	src := []float32{
		0, 1, 20, 21, 10, 11, 30, 31,
		40, 41, 60, 61, 50, 51, 70, 71,
	}
	want := []float32{
		0, 1, 10, 11, 20, 21, 30, 31,
		40, 41, 50, 51, 60, 61, 70, 71,
	}
	got := make([]float32, len(src))
	unpermute(got, src, 2, 4)
	if !slices.Equal(got, want) {
		t.Errorf("unpermute = %v, want %v", got, want)
	}
}

// TestContainersAgree takes the tiny model through both containers: the
// model directory must be the same to the last byte.
func TestContainersAgree(t *testing.T) {
	want, err := WriteTiny(filepath.Join(t.TempDir(), "tiny"), Options{})
	if err != nil {
		t.Fatal(err)
	}
	g, err := openGGUF(asGGUF(t, nil))
	if err != nil {
		t.Fatal(err)
	}
	fromGGUF, err := FromGGUF(g)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(fromGGUF.Tokenizer, Tiny().Tokenizer) || fromGGUF.ChatTemplate != Tiny().ChatTemplate {
		t.Error("FromGGUF: tokenizer or chat template differ from the tiny model's")
	}
	file, config := asSafetensors(t)
	s, err := openSafetensors(file)
	if err != nil {
		t.Fatal(err)
	}
	fromSafetensors, err := FromSafetensors(s, config, Tiny().Tokenizer, []byte(`{"chat_template":"{{ x }}"}`))
	if err != nil {
		t.Fatal(err)
	}
	if got := fromSafetensors.ChatTemplate; got != "{{ x }}" {
		t.Errorf("ChatTemplate = %q, want {{ x }}", got)
	}
	for name, m := range map[string]Model{"GGUF": fromGGUF, "safetensors": fromSafetensors} {
		got, err := Write(t.Context(), filepath.Join(t.TempDir(), "model"), m, Options{})
		if err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(got.Files, want.Files) {
			t.Errorf("from %s: files %v, want %v", name, got.Files, want.Files)
		}
		if m.Precision != "fp32" {
			t.Errorf("from %s: precision %q, want fp32", name, m.Precision)
		}
	}
}

func TestPrecision(t *testing.T) {
	var f ggufFile
	f.tensor("norm", 0, []int{64}, make([]byte, 256))
	f.tensor("w", 3, []int{4, 32}, make([]byte, 80))
	f.tensor("e", 8, []int{2, 32}, make([]byte, 68))
	g, err := openGGUF(f.bytes())
	if err != nil {
		t.Fatal(err)
	}
	if got, want := precision(g), "fp32, dequantized from Q4_1"; got != want {
		t.Errorf("precision = %q, want %q", got, want)
	}
	for dtype, want := range map[string]string{"BF16": "fp32, widened from bf16", "F16": "fp32, widened from fp16"} {
		s, err := openSafetensors(safetensorsFile(`{"w":{"dtype":"`+dtype+`","shape":[1],"data_offsets":[0,2]}}`, make([]byte, 2)))
		if err != nil {
			t.Fatal(err)
		}
		if got := precision(s); got != want {
			t.Errorf("precision = %q, want %q", got, want)
		}
	}
}

func TestGGUFWeightsRefuses(t *testing.T) {
	for _, tt := range []struct {
		name, want string
		edit       func(meta map[string]any)
	}{
		{"another architecture", `graph: gguf: architecture "qwen2", want "llama"`,
			func(m map[string]any) { m["general.architecture"] = "qwen2" }},
		{"no architecture", `graph: gguf: no metadata "general.architecture"`,
			func(m map[string]any) { delete(m, "general.architecture") }},
		{"a number for a name", `graph: gguf: metadata "general.architecture" is a uint32, want a string`,
			func(m map[string]any) { m["general.architecture"] = uint32(1) }},
		{"rotary scaling", `graph: gguf: metadata "llama.rope.scaling.type": rotary scaling is not built into the graph`,
			func(m map[string]any) { m["llama.rope.scaling.type"] = "yarn" }},
		{"partial rotary", "graph: gguf: llama.rope.dimension_count 8, want the whole head, 16",
			func(m map[string]any) { m["llama.rope.dimension_count"] = uint32(8) }},
		{"a float for a count", `graph: gguf: metadata "llama.block_count" is a float32, want an integer`,
			func(m map[string]any) { m["llama.block_count"] = float32(2) }},
		{"a negative count", `graph: gguf: metadata "llama.block_count" is -1, want 0 to 2147483647`,
			func(m map[string]any) { m["llama.block_count"] = int32(-1) }},
		{"an int for a float", `graph: gguf: metadata "llama.rope.freq_base" is a uint32, want a float`,
			func(m map[string]any) { m["llama.rope.freq_base"] = uint32(10000) }},
		{"no heads", "graph: gguf: 0 heads in a width of 96, want a divisor",
			func(m map[string]any) { m["llama.attention.head_count"] = uint32(0) }},
		{"too many layers", `graph: no tensor "blk.2.attn_norm.weight" in the file`,
			func(m map[string]any) { m["llama.block_count"] = uint32(3) }},
		{"too few layers", `graph: 9 tensors that the graph has no use for, the first "blk.1.attn_k.weight"`,
			func(m map[string]any) { m["llama.block_count"] = uint32(1) }},
		{"another width", `graph: tensor "blk.0.ffn_gate.weight" has shape [256 96], want [128 96]`,
			func(m map[string]any) { m["llama.feed_forward_length"] = uint32(128) }},
		{"an eos outside", "graph: config: eos 512, want 0 to 511",
			func(m map[string]any) { m["tokenizer.ggml.eos_token_id"] = uint32(512) }},
		{"an unknown splitter", `graph: gguf: tokenizer.ggml.pre "llama-bpe", want "smollm"`,
			func(m map[string]any) { m["tokenizer.ggml.pre"] = "llama-bpe" }},
		{"a bos of its own", "graph: gguf: tokenizer.ggml.add_bos_token true, want false",
			func(m map[string]any) { m["tokenizer.ggml.add_bos_token"] = true }},
		{"types missing", "graph: gguf: 1 token types for 512 tokens",
			func(m map[string]any) { m["tokenizer.ggml.token_type"] = []int32{1} }},
		{"a byte token", "graph: gguf: token 3 is of type 6, want 1 or 3",
			func(m map[string]any) { m["tokenizer.ggml.token_type"].([]int32)[3] = 6 }},
		{"a token twice", `graph: tokenizer: tokens 0 and 3 are both "<|endoftext|>"`,
			func(m map[string]any) { m["tokenizer.ggml.tokens"].([]string)[3] = "<|endoftext|>" }},
		{"a merge of nothing", `graph: tokenizer: merge 0, "q Ġ": no token "qĠ"`,
			func(m map[string]any) { m["tokenizer.ggml.merges"].([]string)[0] = "q Ġ" }},
		{"a merge of three", `graph: tokenizer: merge 1 is "a b c", want two tokens with a space between them`,
			func(m map[string]any) { m["tokenizer.ggml.merges"].([]string)[1] = "a b c" }},
	} {
		t.Run(tt.name, func(t *testing.T) {
			g, err := openGGUF(asGGUF(t, tt.edit))
			if err != nil {
				t.Fatal(err)
			}
			if _, err := FromGGUF(g); err == nil || err.Error() != tt.want {
				t.Errorf("FromGGUF: %v\nwant %s", err, tt.want)
			}
		})
	}
}

func TestSafetensorsWeightsRefuses(t *testing.T) {
	file, _ := asSafetensors(t)
	s, err := openSafetensors(file)
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		name, want string
		edit       map[string]any
	}{
		{"another model", "graph: config.json: model_type gemma, want llama", map[string]any{"model_type": "gemma"}},
		{"another activation", "graph: config.json: hidden_act gelu, want silu", map[string]any{"hidden_act": "gelu"}},
		{"an untied head", "graph: config.json: tie_word_embeddings false, want true", map[string]any{"tie_word_embeddings": false}},
		{"biases", "graph: config.json: attention_bias true, want false", map[string]any{"attention_bias": true}},
		{"rotary scaling", "graph: config.json: rope_scaling is absent false, want true", map[string]any{"rope_scaling": map[string]any{"type": "linear"}}},
		{"a text for a number", "graph: config.json: json: cannot unmarshal string into Go struct field .hidden_size of type int", map[string]any{"hidden_size": "96"}},
		{"heads that don't divide", "graph: config: heads 6, want a multiple of kv heads 4", map[string]any{"num_key_value_heads": 4}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, err := SafetensorsWeights(s, hfConfigOf(tinyConfig, tt.edit))
			if err == nil || err.Error() != tt.want {
				t.Errorf("SafetensorsWeights: %v\nwant %s", err, tt.want)
			}
		})
	}
}

func TestConfigValidateReportsAll(t *testing.T) {
	err := Config{Layers: 1, Hidden: 64, Intermediate: 1 << 20, Heads: 4, KVHeads: 2, HeadDim: 8, Vocabulary: 3, Context: 0, RopeTheta: 1, NormEps: 1}.Validate()
	want := `graph: config: intermediate 1048576, want 1 to 131072
graph: config: head dim 8, want 16 to 1024
graph: config: context 0, want 1 to 131072
graph: config: rope theta 1, want a finite number above 1
graph: config: norm eps 1, want between 0 and 1`
	if err == nil || err.Error() != want {
		t.Errorf("Validate: %v\nwant %s", err, want)
	}
	if err := tinyConfig.Validate(); err != nil {
		t.Errorf("tiny: %v", err)
	}
}

func TestParameters(t *testing.T) {
	smol := Config{
		Layers: 30, Hidden: 576, Intermediate: 1536, Heads: 9, KVHeads: 3, HeadDim: 64,
		Vocabulary: 49152, Context: 8192, RopeTheta: 1e5, NormEps: 1e-5, BOS: 1, EOS: 2,
	}
	if got, want := smol.Parameters(), int64(134515008); got != want {
		t.Errorf("Parameters = %d, want %d", got, want)
	}
	dir := filepath.Join(t.TempDir(), "tiny")
	if _, err := WriteTiny(dir, Options{}); err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(filepath.Join(dir, DataFile))
	if err != nil {
		t.Fatal(err)
	}
	if got := DataBytes(tinyConfig); got != info.Size() {
		t.Errorf("DataBytes = %d, but the file has %d", got, info.Size())
	}
}
