package graph

import (
	"encoding/json"
	"math"
	"path/filepath"
	"slices"
	"testing"
)

// tinyGoldens are greedy answers of the tiny model by ONNX Runtime 1.24.1
// from Python, its prompts tokenized by tokenizers 0.23.3 from the
// tokenizer.json that WriteTiny writes.
var tinyGoldens = []struct {
	text           string
	prompt, answer []int32
}{
	{
		"The capital of France is",
		[]int32{297, 296, 380, 121, 132, 379, 307, 48, 86, 130, 113, 126, 324, 312},
		[]int32{30, 41, 344, 489, 256, 406, 60, 386, 41, 147, 489, 63, 170, 52, 52, 307, 79, 335, 131, 27},
	},
	{
		"1234",
		[]int32{65, 66, 67, 68},
		[]int32{77, 418, 298, 430, 63, 232, 213, 85, 437, 424, 437, 424, 455, 63, 424, 63, 424, 424, 385, 222},
	},
	{
		"Rain, rain: the dog!",
		[]int32{98, 318, 60, 482, 74, 261, 501, 49},
		[]int32{134, 355, 324, 149, 447, 246, 93, 343, 260, 322, 373, 84, 339, 298, 307, 76, 206, 401, 330, 231},
	},
}

// reference is a Llama in float64, straight from the weights in Hugging
// Face's layout and with none of the graph's shortcuts.
type reference struct {
	c       Config
	w       map[string][]float64
	k, v    [][][]float64 // layer, position, kv heads × head dim
	visited int
}

func newReference(t *testing.T, w Weights) *reference {
	t.Helper()
	r := &reference{c: w.Config(), w: map[string][]float64{}}
	for _, s := range r.c.Shapes() {
		v := make([]float32, s.Elements())
		if err := w.Load(s.Name, v); err != nil {
			t.Fatal(err)
		}
		for _, x := range v {
			r.w[s.Name] = append(r.w[s.Name], float64(x))
		}
	}
	r.k = make([][][]float64, r.c.Layers)
	r.v = make([][][]float64, r.c.Layers)
	return r
}

// product is W·x for W [rows, len(x)].
func product(w, x []float64) []float64 {
	out := make([]float64, len(w)/len(x))
	for i := range out {
		for j, v := range x {
			out[i] += w[i*len(x)+j] * v
		}
	}
	return out
}

func (r *reference) norm(x []float64, name string) []float64 {
	var sum float64
	for _, v := range x {
		sum += v * v
	}
	scale := 1 / math.Sqrt(sum/float64(len(x))+r.c.NormEps)
	out := make([]float64, len(x))
	for i, v := range x {
		out[i] = v * scale * r.w[name][i]
	}
	return out
}

// rotate turns the pairs of every head by the position's angles.
func (r *reference) rotate(x []float64, position int) {
	half := r.c.HeadDim / 2
	for h := 0; h < len(x); h += r.c.HeadDim {
		for i := range half {
			angle := float64(position) * math.Pow(r.c.RopeTheta, -float64(2*i)/float64(r.c.HeadDim))
			a, b := x[h+i], x[h+half+i]
			x[h+i] = a*math.Cos(angle) - b*math.Sin(angle)
			x[h+half+i] = b*math.Cos(angle) + a*math.Sin(angle)
		}
	}
}

// step reads one token and returns the most likely next one, and by how much
// its logit is ahead.
func (r *reference) step(id int32) (next int32, lead float64) {
	c := r.c
	x := slices.Clone(r.w[nameEmbed][int(id)*c.Hidden:][:c.Hidden])
	add := func(y []float64) {
		for i := range x {
			x[i] += y[i]
		}
	}
	for l := range c.Layers {
		w := func(part string) []float64 { return r.w[weightName(l, part)] }
		h := r.norm(x, weightName(l, partNorm1))
		q, k := product(w(partQ), h), product(w(partK), h)
		r.rotate(q, r.visited)
		r.rotate(k, r.visited)
		r.k[l] = append(r.k[l], k)
		r.v[l] = append(r.v[l], product(w(partV), h))
		attention := make([]float64, c.Heads*c.HeadDim)
		for head := range c.Heads {
			kv := head / (c.Heads / c.KVHeads) * c.HeadDim
			var total float64
			for p := range r.k[l] {
				var score float64
				for i := range c.HeadDim {
					score += q[head*c.HeadDim+i] * r.k[l][p][kv+i]
				}
				weight := math.Exp(score / math.Sqrt(float64(c.HeadDim)))
				total += weight
				for i := range c.HeadDim {
					attention[head*c.HeadDim+i] += weight * r.v[l][p][kv+i]
				}
			}
			for i := range c.HeadDim {
				attention[head*c.HeadDim+i] /= total
			}
		}
		add(product(w(partO), attention))
		h = r.norm(x, weightName(l, partNorm2))
		gate, up := product(w(partGate), h), product(w(partUp), h)
		for i, g := range gate {
			up[i] *= g / (1 + math.Exp(-g))
		}
		add(product(w(partDown), up))
	}
	r.visited++
	logits := product(r.w[nameEmbed], r.norm(x, nameNorm))
	best, second := 0, -1
	for i, v := range logits {
		switch {
		case v > logits[best]:
			best, second = i, best
		case i != best && (second < 0 || v > logits[second]):
			second = i
		}
	}
	return int32(best), logits[best] - logits[second]
}

// TestTinyAnswers compares ONNX Runtime's answers on the written graph with a
// computation that shares nothing with it but the weights.
func TestTinyAnswers(t *testing.T) {
	for _, g := range tinyGoldens {
		t.Run(g.text, func(t *testing.T) {
			r := newReference(t, Tiny().Weights)
			var next int32
			var lead float64
			for _, id := range g.prompt {
				next, lead = r.step(id)
			}
			for i, want := range g.answer {
				if next != want {
					t.Fatalf("token %d is %d, want %d", i, next, want)
				}
				// Closer than this, float32 in another order could differ.
				if lead < 1e-3 {
					t.Errorf("token %d leads by %g only", i, lead)
				}
				next, lead = r.step(next)
			}
			distinct := slices.Clone(g.answer)
			slices.Sort(distinct)
			if n := len(slices.Compact(distinct)); n < 12 {
				t.Errorf("%d distinct tokens in %d, want an answer that wanders", n, len(g.answer))
			}
		})
	}
}

// TestTinyWeights pins the pseudo-random stream.
func TestTinyWeights(t *testing.T) {
	w := Tiny().Weights
	for name, want := range map[string][]float32{
		nameEmbed:                {-0.041193455},
		weightName(1, partNorm2): {0.9885207},
		weightName(0, partQ):     {0.09870249},
	} {
		got := make([]float32, len(want))
		if err := w.Load(name, got); err != nil || !slices.Equal(got, want) {
			t.Errorf("%s begins with %v, %v, want %v", name, got, err, want)
		}
	}
}

func TestTinyIsTheSameTwice(t *testing.T) {
	a, err := WriteTiny(filepath.Join(t.TempDir(), "a"), Options{})
	if err != nil {
		t.Fatal(err)
	}
	b, err := WriteTiny(filepath.Join(t.TempDir(), "b"), Options{})
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(a.Files, b.Files) {
		t.Errorf("two times, two models:\n%v\n%v", a.Files, b.Files)
	}
}

func TestTinyVocabulary(t *testing.T) {
	tokens, special, merges := tinyVocabulary()
	if len(tokens) != 512 || len(special) != 17 || len(merges) != 512-17-242 {
		t.Errorf("%d tokens, %d special, %d merges, want 512, 17, 253", len(tokens), len(special), len(merges))
	}
	if tokens[tinyConfig.BOS] != "<|im_start|>" || tokens[tinyConfig.EOS] != "<|im_end|>" {
		t.Errorf("bos %q, eos %q", tokens[tinyConfig.BOS], tokens[tinyConfig.EOS])
	}
	for b, want := range map[byte]string{'a': "a", ' ': "Ġ", '\n': "Ċ", 0: "Ā", 0x7f: "ġ", 0xa0: "ł", 0xad: "Ń", 0xff: "ÿ"} {
		if got := byteSymbol(b); got != want {
			t.Errorf("byteSymbol(%#x) = %q, want %q", b, got, want)
		}
	}
	if slices.Contains(tokens, byteSymbol(4)) || slices.Contains(tokens, byteSymbol(0xff)) || !slices.Contains(tokens, byteSymbol(0xf4)) {
		t.Error("the bytes 0x04 and 0xff have tokens, or 0xf4 has none")
	}
}

func TestTokenizerJSON(t *testing.T) {
	data, err := tokenizerJSON([]string{"<|end|>", "a", "<", "a<"}, map[int]bool{0: true}, []string{"a <"})
	if err != nil {
		t.Fatal(err)
	}
	want := `{"version":"1.0","truncation":null,"padding":null,` +
		`"added_tokens":[{"id":0,"content":"<|end|>","single_word":false,"lstrip":false,"rstrip":false,"normalized":false,"special":true}],` +
		`"normalizer":null,"pre_tokenizer":{"type":"Sequence","pretokenizers":[{"type":"Digits","individual_digits":true},` +
		`{"type":"ByteLevel","add_prefix_space":false,"trim_offsets":true,"use_regex":true}]},"post_processor":null,` +
		`"decoder":{"type":"ByteLevel","add_prefix_space":true,"trim_offsets":true,"use_regex":true},` +
		`"model":{"type":"BPE","dropout":null,"unk_token":null,"continuing_subword_prefix":null,"end_of_word_suffix":null,` +
		`"fuse_unk":false,"byte_fallback":false,"ignore_merges":false,"vocab":{"<|end|>":0,"a":1,"<":2,"a<":3},"merges":[["a","<"]]}}` + "\n"
	if string(data) != want {
		t.Errorf("tokenizerJSON = %s\nwant %s", data, want)
	}
	if !json.Valid(Tiny().Tokenizer) {
		t.Error("the tiny tokenizer.json is no JSON")
	}
	for _, bad := range []string{"", "\xff"} {
		if _, err := tokenizerJSON([]string{"a", bad}, nil, nil); err == nil {
			t.Errorf("tokenizerJSON with the token %q: no error", bad)
		}
	}
}
