package main

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"

	"servebench/verify"
)

// frame is what stands around a text when a server encodes it.
type frame struct {
	prefix, suffix string // of a chat template; "" for none
	addSpecial     bool   // the tokenizer's post-processor adds what it adds
}

// writer writes prompts of exact lengths, each unlike all before it.
type writer struct {
	enc    *encoder
	frame  frame
	random *rand.Rand

	openers []string // words to begin with, shuffled
	endings []string // pieces to end with, shuffled, then lastResort
	front   int      // tokens that every prompt begins with: the frame's
	around  int      // tokens of the frame, those at the front included
	used    map[string]bool
	depth   int // the greatest number of tokens, after the front, that it took to be unlike
}

// lastResort are pieces to end with where no word fits: in a vocabulary of
// bytes even " a" is two tokens.
var lastResort = [...]string{" a", ",", ".", "!", "?", "s"}

// maxDepth is the greatest depth that is tried. Three tokens that are shared
// are less than the smallest block of the prefix caches, and cost no time.
const maxDepth = 4

// newWriter returns a writer whose texts depend on the encoder, the frame and
// the seed.
func newWriter(enc *encoder, f frame, seed uint64) (*writer, error) {
	w := &writer{enc: enc, frame: f, random: rand.New(rand.NewPCG(seed, 0)), used: map[string]bool{}, depth: 1}
	known := func(words []string) (known []string, err error) {
		for _, word := range words {
			ids, err := enc.encode(word, false)
			if err != nil {
				return nil, err
			}
			if enc.unknown < 0 || !slices.Contains(ids, enc.unknown) {
				known = append(known, word)
			}
		}
		return known, nil
	}
	all := slices.Concat(openers, nouns, verbs, prepositions, []string{"the", "and", "."})
	ok, err := known(all)
	if err != nil {
		return nil, err
	}
	if len(ok) < len(all) {
		return nil, fmt.Errorf("prompts: %s has no token for %d of the %d English words that texts are made of: write the prompts by other means, one verify.Prompt a line", enc.name, len(all)-len(ok), len(all))
	}
	w.openers = slices.Clone(openers)
	w.random.Shuffle(len(w.openers), func(i, j int) { w.openers[i], w.openers[j] = w.openers[j], w.openers[i] })
	for _, word := range slices.Concat(adjectives, nouns, adverbs) {
		w.endings = append(w.endings, " "+word)
	}
	w.random.Shuffle(len(w.endings), func(i, j int) { w.endings[i], w.endings[j] = w.endings[j], w.endings[i] })
	w.endings = append(w.endings, lastResort[:]...)
	return w, w.measureFrame()
}

// encode returns the ids of a whole prompt with text in it.
func (w *writer) encode(text string) ([]int32, error) {
	return w.enc.encode(w.frame.prefix+text+w.frame.suffix, w.frame.addSpecial)
}

// measureFrame counts what stands around a text and refuses a doubled BOS.
func (w *writer) measureFrame() error {
	var first []int32
	for i, word := range w.openers {
		ids, err := w.encode(word)
		if err != nil {
			return err
		}
		if i == 0 {
			first = ids
			w.front = len(ids)
		}
		w.front = min(w.front, commonPrefix(first, ids), len(ids)-1)
		text, err := w.enc.encode(word, false)
		if err != nil {
			return err
		}
		if around := len(ids) - len(text); i == 0 || around < w.around {
			w.around = around
		}
		if i == 0 && w.frame.addSpecial && w.front >= 2 && ids[0] == ids[1] {
			return fmt.Errorf("prompts: each prompt would begin with token %d twice: the post-processor of %s adds what -chat-prefix begins with already: leave -special out", ids[0], w.enc.name)
		}
	}
	return nil
}

// commonPrefix returns how many elements a and b have in common from their
// beginning on.
func commonPrefix(a, b []int32) int {
	n := 0
	for n < min(len(a), len(b)) && a[n] == b[n] {
		n++
	}
	return n
}

// frameTokens says what the frame adds.
func (w *writer) frameTokens(chat bool) string {
	whose, rest := "post-processor's", "text's"
	if chat {
		whose, rest = "template's", "message's"
	}
	return fmt.Sprintf("%d of each are the %s, the others the %s", w.around, whose, rest)
}

// sharing says how far prompts are alike.
func (w *writer) sharing() string {
	if w.depth <= 1 {
		return "each text begins with another token"
	}
	return fmt.Sprintf("some texts share their first token with another, none the first %d", w.depth)
}

// prompt returns a prompt of exactly n tokens that begins like no other so
// far. Its ID and Warmup are for the caller.
func (w *writer) prompt(n int) (verify.Prompt, error) {
	if n <= w.around {
		return verify.Prompt{}, fmt.Errorf("prompts: -input %d is too small: %d tokens stand around each text, so want at least %d", n, w.around, w.around+1)
	}
	for ; w.depth <= min(maxDepth, n-w.around); w.depth++ {
		for _, opener := range w.openers {
			text, ids, err := w.write(opener, n)
			if err != nil {
				return verify.Prompt{}, err
			}
			if text == "" || w.alike(ids) {
				continue
			}
			for depth := range maxDepth {
				w.used[key(ids[w.front:min(w.front+depth+1, len(ids))])] = true
			}
			return verify.Prompt{Input: n, Text: text, IDs: ids, SHA256: hash(text)}, nil
		}
	}
	return verify.Prompt{}, fmt.Errorf("prompts: -input %d: there are no more texts of so few tokens that each begin unlike the others: want fewer prompts (-n, -warmups, -passes) or longer ones", n)
}

// alike reports whether another prompt begins with the same tokens, as many
// as the depth says.
func (w *writer) alike(ids []int32) bool {
	return w.used[key(ids[w.front:min(w.front+w.depth, len(ids))])]
}

// write returns a text, of which a prompt has exactly n tokens, and its ids;
// no text if none was found that begins with opener, or if it wouldn't be
// unlike the others.
func (w *writer) write(opener string, n int) (string, []int32, error) {
	p := prose{random: w.random}
	p.open(opener)
	pieces := []string{p.next()}
	if n-w.around == 1 && w.random.IntN(2) == 0 {
		pieces[0] = opener // in lower case it is another token
	}
	ids, err := w.encode(pieces[0])
	if err != nil || len(ids) > n || w.depth == 1 && w.alike(ids) {
		return "", nil, err
	}
	// Nearly all of it in few steps: as many pieces as have at most the
	// missing tokens by what a piece has had so far, and half of them back
	// where that was too many.
	for step := 1; len(ids) < n-slack && step > 0; {
		step = max(1, (n-slack-len(ids))*len(pieces)/max(1, len(ids)-w.around+1))
		from := len(pieces)
		for range step {
			pieces = append(pieces, p.next())
		}
		for {
			if ids, err = w.encode(strings.Join(pieces, "")); err != nil {
				return "", nil, err
			}
			if len(ids) <= n || len(pieces) == from {
				break
			}
			pieces = pieces[:from+(len(pieces)-from)/2]
		}
	}
	// And then piece by piece while the sentence's own fit.
	for len(ids) < n {
		piece := p.next()
		longer, err := w.encode(strings.Join(pieces, "") + piece)
		if err != nil {
			return "", nil, err
		}
		if len(longer) > n || len(longer) == n && (piece == "." || piece == ",") {
			break
		}
		pieces, ids = append(pieces, piece), longer
	}
	return w.end(pieces, ids, n)
}

// slack is how many tokens from the end texts are ended with care.
const slack = 4

// end adds to pieces, whose prompt has ids, until there are n of them, with
// words rather than marks: a text that isn't finished is gone on with.
func (w *writer) end(pieces []string, ids []int32, n int) (string, []int32, error) {
	for range 100 {
		if len(ids) == n {
			return strings.Join(pieces, ""), ids, nil
		}
		base := strings.Join(pieces, "")
		first := w.random.IntN(len(w.endings) - len(lastResort))
		grown := false
		for i := range w.endings {
			at := i
			if i < len(w.endings)-len(lastResort) {
				at = (first + i) % (len(w.endings) - len(lastResort))
			}
			longer, err := w.encode(base + w.endings[at])
			if err != nil {
				return "", nil, err
			}
			if len(longer) > len(ids) && len(longer) <= n {
				pieces, ids, grown = append(pieces, w.endings[at]), longer, true
				break
			}
		}
		if grown {
			continue
		}
		if len(pieces) == 1 {
			return "", nil, nil
		}
		pieces = pieces[:len(pieces)-1]
		var err error
		if ids, err = w.encode(strings.Join(pieces, "")); err != nil {
			return "", nil, err
		}
	}
	return "", nil, nil
}

func hash(text string) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:])
}

// key is the ids' identity.
func key(ids []int32) string {
	var b []byte
	for _, id := range ids {
		b = binary.LittleEndian.AppendUint32(b, uint32(id))
	}
	return string(b)
}
