package graph

import (
	"context"
	"fmt"
	"hash/fnv"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
)

// tinyConfig is the shape of the model that WriteTiny makes: every operator and
// every ratio of SmolLM2-135M-Instruct (three query heads to a key head), at
// a size that loads in an instant.
var tinyConfig = Config{
	Layers: 2, Hidden: 96, Intermediate: 256,
	Heads: 6, KVHeads: 2, HeadDim: 16,
	Vocabulary: 512, Context: 512,
	RopeTheta: 10000, NormEps: 1e-5,
	BOS: 1, EOS: 2,
}

// WriteTiny makes a complete model directory of a model that was never
// trained, for tests: pseudo-random weights, the same in every run, with which
// greedy answers wander instead of repeating a token, and a small byte-level
// BPE of the same kind as the real one. Like the real one, its vocabulary
// lacks some bytes. dir must not exist or be empty; about 1 MB is written.
func WriteTiny(dir string, o Options) (*Manifest, error) {
	return Write(context.Background(), dir, Tiny(), o)
}

// Tiny is the model that WriteTiny writes.
func Tiny() Model {
	tokens, special, merges := tinyVocabulary()
	tokenizer, err := tokenizerJSON(tokens, special, merges)
	if err != nil {
		panic(err) // nothing in it comes from outside
	}
	return Model{
		ID:        "tiny",
		Source:    "servebench/smol/graph, pseudo-random",
		Precision: "fp32",
		Weights:   randomWeights{config: tinyConfig, seed: 1},
		Tokenizer: tokenizer,
		ChatTemplate: "{% for message in messages %}{{'<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n'}}{% endfor %}" +
			"{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}",
	}
}

// randomWeights are uniform pseudo-random weights, each tensor from its own
// PCG stream, which depends on nothing but the seed and the tensor's name.
type randomWeights struct {
	config Config
	seed   uint64
}

func (w randomWeights) Config() Config { return w.config }

// Load draws the weight. Its standard deviation is such that attention is
// neither flat nor a single spike, and that what the blocks add outweighs the
// embedding: with tied embeddings a model would otherwise answer every token
// with the token itself.
func (w randomWeights) Load(name string, dst []float32) error {
	h := fnv.New64a()
	h.Write([]byte(name))
	stream := rand.NewPCG(w.seed, h.Sum64())
	inputs := func(n int) float64 { return 1 / math.Sqrt(float64(n)) }
	var mean, deviation float64
	switch {
	case name == nameEmbed:
		deviation = 0.1
	case name == nameNorm, strings.Contains(name, "layernorm"):
		mean, deviation = 1, 0.1
	case strings.Contains(name, partQ), strings.Contains(name, partK):
		deviation = 1.5 * inputs(w.config.Hidden)
	case strings.Contains(name, partO):
		deviation = 2 * inputs(w.config.Heads*w.config.HeadDim)
	case strings.Contains(name, partDown):
		deviation = 2 * inputs(w.config.Intermediate)
	default:
		deviation = inputs(w.config.Hidden)
	}
	half := deviation * math.Sqrt(3) // of the interval with that deviation
	for i := range dst {
		unit := float64(int64(stream.Uint64()>>40)-1<<23) / (1 << 23) // in [-1, 1), exact
		dst[i] = float32(mean + float64(half*unit))
	}
	return nil
}

// tinyText is what the merges of the tiny tokenizer are learned from.
const tinyText = `The kettle on the stove began to sing before the rain had stopped. Nobody in the house
was in a hurry: the train left at noon, the trunk was packed, and the letters that had to be written had
been written. She counted the stairs on her way down, as she had done every morning since she was a child,
and found the same number. On the table there were bread, butter, two eggs and the newspaper of the day
before. He read the weather aloud, which was wrong, and the price of coal, which was right. Then they talked
about the garden, about the neighbour's dog and about the question whether the bridge would hold another
winter. The answer is that it did. It held for another thirty winters, and when it was taken down at last
the men who did the work said that they had never seen better timber. What is the use of a bridge that
nobody crosses? It keeps the two sides in their places, and that is something.`

// tinyVocabulary returns the tokens by id, which of them are special, and the
// merges by rank: 17 special tokens, as in the real model, then a symbol for
// every byte but those that UTF-8 never uses and byte 4, then merges.
func tinyVocabulary() (tokens []string, special map[int]bool, merges []string) {
	special = map[int]bool{}
	for id := range 17 {
		name := fmt.Sprintf("<|reserved_%d|>", id)
		if id < 3 {
			name = []string{"<|endoftext|>", "<|im_start|>", "<|im_end|>"}[id]
		}
		special[id] = true
		tokens = append(tokens, name)
	}
	for b := range 256 {
		if b == 4 || b == 0xc0 || b == 0xc1 || b >= 0xf5 {
			continue
		}
		tokens = append(tokens, byteSymbol(byte(b)))
	}

	// Words keep the space before them; nothing merges across words.
	var words [][]string
	for _, w := range strings.Fields(tinyText) {
		word := []string{byteSymbol(' ')}
		for _, b := range []byte(w) {
			if b < 'A' {
				break // punctuation stays alone
			}
			word = append(word, byteSymbol(b))
		}
		words = append(words, word)
	}
	known := map[string]bool{}
	for _, t := range tokens {
		known[t] = true
	}
	for len(tokens) < tinyConfig.Vocabulary {
		counts := map[[2]string]int{}
		for _, w := range words {
			for i := range len(w) - 1 {
				counts[[2]string{w[i], w[i+1]}]++
			}
		}
		var best [2]string
		for pair, n := range counts {
			if known[pair[0]+pair[1]] {
				continue // reached by other merges already
			}
			if n > counts[best] || n == counts[best] && slices.Compare(pair[:], best[:]) < 0 {
				best = pair
			}
		}
		merged := best[0] + best[1]
		known[merged] = true
		tokens = append(tokens, merged)
		merges = append(merges, best[0]+" "+best[1])
		for i, w := range words {
			words[i] = mergePair(w, best, merged)
		}
	}
	return tokens, special, merges
}

// mergePair replaces pair by merged wherever it stands in word.
func mergePair(word []string, pair [2]string, merged string) []string {
	out := word[:0]
	for i := 0; i < len(word); i++ {
		if i+1 < len(word) && word[i] == pair[0] && word[i+1] == pair[1] {
			out = append(out, merged)
			i++
		} else {
			out = append(out, word[i])
		}
	}
	return out
}

// byteSymbol is the character that byte-level BPE writes for a byte: itself
// if Latin-1 has something to see there, otherwise the next free one from 256
// on.
func byteSymbol(b byte) string {
	visible := func(b int) bool {
		return b >= '!' && b <= '~' || b >= 0xa1 && b <= 0xac || b >= 0xae
	}
	if visible(int(b)) {
		return string(rune(b))
	}
	n := 256
	for c := range int(b) {
		if !visible(c) {
			n++
		}
	}
	return string(rune(n))
}
