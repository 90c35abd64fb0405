package load

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"

	"servebench/sse"
	"servebench/verify"
)

// Prompts for servers whose tokenizer isn't known here.

// Numbers of prompts that are made of each length.
const (
	promptsMade = 6
	warmupsMade = 1
)

// words is a text without a meaning, for prompts of any length.
var words = strings.Fields(`
	the old bridge over the river was built of stone and wood by people who had come from the hills in the spring
	they brought bread and salt and a little money for they did not know how long the work would take
	every morning one of them went down to the water to see how high it stood and wrote the number in a small book
	when the rain came the number rose and the work stood still and they sat under the trees and told each other stories
	a child from the village asked how a bridge can stand when there is nothing under it but air and nobody could say it well
	so the oldest of them took five flat stones and showed how each of them leans on the next and none of them can fall`)

// textOf returns a text of n words, each beginning elsewhere.
func textOf(n, which int) string {
	out := make([]string, n)
	for i := range out {
		out[i] = words[(which*17+i)%len(words)]
	}
	return strings.Join(out, " ")
}

// idPrompt returns n ids that stand one after the other in the prompts of
// base, each time from another place on. ok is false if base has none.
func idPrompt(base *verify.Corpus, n, which int) (ids []int32, ok bool) {
	if base == nil {
		return nil, false
	}
	var all []int32
	for i := range base.Prompts {
		all = append(all, base.Prompts[i].IDs...)
	}
	if len(all) == 0 {
		return nil, false
	}
	for i := range n {
		ids = append(ids, all[(which*61+i)%len(all)])
	}
	return ids, true
}

// probeIDs returns a short prompt of ids for a server whose vocabulary isn't
// known: it has the largest of base, nil if there are none.
func probeIDs(base *verify.Corpus) []int32 {
	ids, _ := idPrompt(base, verify.SaltIDs, 0)
	if len(ids) > 0 {
		ids[len(ids)-1] = slices.Max(base.Pool())
	}
	return ids
}

// hasTexts returns an error if a prompt of one of the lengths has ids alone.
func hasTexts(corpus *verify.Corpus, inputs []int) error {
	for i := range corpus.Prompts {
		if p := &corpus.Prompts[i]; slices.Contains(inputs, p.Input) && p.Text == "" {
			return fmt.Errorf("load: prompt %s has ids and no text, but the target is sent texts: a chat has nothing else, -inexact-input wants them, and of ids it either refuses this one or counts it wrong. Add the text", p.ID)
		}
	}
	return nil
}

func hasIDs(corpus *verify.Corpus, inputs []int) bool {
	for i := range corpus.Prompts {
		if p := &corpus.Prompts[i]; slices.Contains(inputs, p.Input) && p.IDs == nil {
			return false
		}
	}
	return true
}

// corpusOf collects the prompts of base of each length, and has those made
// that it lacks. For a trace, which isn't nil then, a prompt of each of its
// lengths is made.
func corpusOf(base *verify.Corpus, trace []verify.Due, inputs []int, make func(n, which int) verify.Prompt) *verify.Corpus {
	var prompts []verify.Prompt
	if trace != nil {
		return seal(tracePrompts(trace, make))
	}
	for _, n := range inputs {
		have := 0
		if base != nil {
			for _, p := range base.Prompts {
				if p.Input == n {
					prompts = append(prompts, p)
					have++
				}
			}
		}
		if have > 0 {
			continue
		}
		for i := range promptsMade + warmupsMade {
			p := make(n, i)
			p.ID, p.Input, p.Warmup = fmt.Sprintf("%d-%d", n, i), n, i >= promptsMade
			if p.Warmup {
				p.ID = fmt.Sprintf("%d-warmup", n)
			}
			prompts = append(prompts, p)
		}
	}
	return seal(prompts)
}

// textCorpus has texts alone: what ids they have with the target's tokenizer
// isn't known.
func textCorpus(base *verify.Corpus, trace []verify.Due, inputs []int) *verify.Corpus {
	c := corpusOf(base, trace, inputs, func(n, which int) verify.Prompt { return verify.Prompt{Text: textOf(n, which)} })
	for i := range c.Prompts {
		c.Prompts[i].IDs = nil
	}
	return seal(c.Prompts)
}

// idCorpus has prompts of ids of each length, and all that base has besides:
// salts are drawn from the ids of a corpus.
func idCorpus(base *verify.Corpus, trace []verify.Due, inputs []int) (*verify.Corpus, error) {
	if _, ok := idPrompt(base, 1, 0); !ok {
		return nil, errors.New("load: the corpus has no ids")
	}
	if trace != nil {
		inputs = nil
	}
	c := corpusOf(base, trace, inputs, func(n, which int) verify.Prompt {
		ids, _ := idPrompt(base, n, which)
		return verify.Prompt{IDs: ids}
	})
	for _, p := range base.Prompts {
		if !slices.Contains(inputs, p.Input) && p.IDs != nil {
			c.Prompts = append(c.Prompts, p)
		}
	}
	return seal(c.Prompts), nil
}

// corpusName is what a corpus is called that was made for a run.
const corpusName = "made.jsonl"

// seal makes a corpus of prompts and sets their hashes.
func seal(prompts []verify.Prompt) *verify.Corpus {
	c := &verify.Corpus{Kind: verify.KindCorpus, Name: corpusName, Prompts: prompts}
	var all []byte
	for i := range prompts {
		sum := sha256.Sum256([]byte(prompts[i].Text))
		prompts[i].SHA256 = hex.EncodeToString(sum[:])
		line, _ := json.Marshal(&prompts[i]) // of strings and integers it can't fail
		all = append(append(all, line...), '\n')
	}
	sum := sha256.Sum256(all)
	c.Bytes, c.SHA256 = int64(len(all)), hex.EncodeToString(sum[:])
	return c
}

// ReadPrompts reads a user's file of prompts, a JSON object a line: text, and
// where they are known input, the number of its tokens as the server counts
// them, and ids; warmup for one that is sent before the first pass, or some of
// each length are; an id of its own. input is the length, about, of those that
// say nothing of it; 0 refuses them. What testdata/corpus.jsonl has is such a
// file.
func ReadPrompts(path string, data []byte, input int) (*verify.Corpus, error) {
	name := filepath.Base(path)
	var prompts []verify.Prompt
	seen := map[string]bool{}
	data = bytes.TrimPrefix(data, []byte("\ufeff"))
	if len(data) > mostPromptBytes {
		return nil, fmt.Errorf("load: %s has %d bytes, want at most %d: measure in several runs", name, len(data), mostPromptBytes)
	}
	for number := 1; len(data) > 0; number++ {
		line, rest, _ := bytes.Cut(data, []byte("\n"))
		data = rest
		if line = bytes.TrimSpace(line); len(line) == 0 {
			continue
		}
		wrong := func(format string, args ...any) error {
			return fmt.Errorf("load: %s:%d: %s", name, number, fmt.Sprintf(format, args...))
		}
		d := json.NewDecoder(bytes.NewReader(line))
		d.DisallowUnknownFields()
		var p verify.Prompt
		if err := d.Decode(&p); err != nil {
			return nil, wrong(`%v; want {"text":"…"} with, if you like, "input", "ids", "warmup" and "id"`, err)
		}
		if _, err := d.Token(); err != io.EOF {
			return nil, wrong("more than one object on the line")
		}
		if p.Text == "" && len(p.IDs) == 0 {
			return nil, wrong("neither text nor ids")
		}
		if i := slices.IndexFunc(p.IDs, func(id int32) bool { return id < 0 }); i >= 0 {
			return nil, wrong("ids[%d] is %d, want 0 or more", i, p.IDs[i])
		}
		if len(p.IDs) == 0 {
			p.IDs = nil
		}
		if p.ID == "" {
			p.ID = fmt.Sprintf("line-%d", number)
		}
		if seen[p.ID] {
			return nil, wrong("id %q stands twice", p.ID)
		}
		seen[p.ID] = true
		if p.Input == 0 {
			p.Input = len(p.IDs)
		}
		if p.Input == 0 {
			p.Input = input
		}
		switch sum := sha256.Sum256([]byte(p.Text)); {
		case p.Input < 1:
			return nil, wrong("no input, the number of tokens: give it, or measure with -inexact-input and one -input N for all of them")
		case p.IDs != nil && len(p.IDs) != p.Input:
			return nil, wrong("input %d, but %d ids", p.Input, len(p.IDs))
		case p.SHA256 != "" && p.SHA256 != hex.EncodeToString(sum[:]):
			return nil, wrong("sha256 isn't that of the text")
		}
		prompts = append(prompts, p)
	}
	if len(prompts) == 0 {
		return nil, fmt.Errorf("load: %s has no prompts", name)
	}
	markWarmups(prompts)
	c := seal(prompts)
	c.Name = name
	return c, nil
}

// mostPromptBytes bounds a user's file, which is one record of the evidence.
const mostPromptBytes = 64 << 20

// markWarmups makes the last prompt in seven of each length one for a warmup,
// at least one if there are others, where none is marked: a configuration
// takes one, and six for a pass.
func markWarmups(prompts []verify.Prompt) {
	marked, places := map[int]bool{}, map[int][]int{}
	for i, p := range prompts {
		marked[p.Input] = marked[p.Input] || p.Warmup
		places[p.Input] = append(places[p.Input], i)
	}
	for input, list := range places {
		if n := len(list); n > 1 && !marked[input] {
			for _, i := range list[n-max(1, n/(promptsMade+warmupsMade)):] {
				prompts[i].Warmup = true
			}
		}
	}
}

// fit makes a text of exactly n tokens, by the server's count: salt, then
// words of text, from its beginning again if need be.
func fit(ctx context.Context, tokenizer *sse.Tokenizer, salt, text string, n int) (string, error) {
	source := strings.Fields(text)
	if len(source) == 0 {
		source = words
	}
	first := strings.Fields(salt)
	with := func(k int) string {
		out := slices.Clone(first)
		for i := range k {
			out = append(out, source[i%len(source)])
		}
		return strings.Join(out, " ")
	}
	// Tokens grow with words: find the most words that have at most n.
	few := 0
	if len(first) == 0 {
		few = 1
	}
	fewTokens, err := tokenizer.Count(ctx, with(few))
	if err != nil {
		return "", err
	}
	if fewTokens > n {
		return "", fmt.Errorf("%d tokens are too few: the salt, or one word, and what the server adds have %d. Measure longer prompts (-input), or shorter ones without a salt (-unsalted, Target.Unsalted)", n, fewTokens)
	}
	rate := 1.0 // tokens of a word, by the last two counts
	for many := 8 * (n + 8); fewTokens < n && many-few > 1; {
		// Four fifths of the way, so as to come near it from below.
		k := few + max(1, int(float64(n-fewTokens)*4/5/rate))
		k = min(k, many-1)
		tokens, err := tokenizer.Count(ctx, with(k))
		if err != nil {
			return "", err
		}
		rate = max(1.0/8, float64(tokens-fewTokens)/float64(k-few))
		if tokens > n {
			many = k
		} else {
			few, fewTokens = k, tokens
		}
	}
	best := with(few)
	if fewTokens == n {
		return best, nil
	}
	for _, filler := range []string{" a", " I", ".", "!", " 1", " x", "\n", " é"} {
		for i := 1; i <= n-fewTokens; i++ {
			padded := best + strings.Repeat(filler, i)
			tokens, err := tokenizer.Count(ctx, padded)
			if err != nil {
				return "", err
			}
			if tokens == n {
				return padded, nil
			}
			if tokens > n {
				break
			}
		}
	}
	return "", fmt.Errorf("no text of exactly %d tokens was found, only of %d", n, fewTokens)
}
