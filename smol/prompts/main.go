// Command prompts writes prompts of exactly the wanted numbers of tokens, for
// any model that has a tokenizer.json, so that the input length of a
// benchmark is a fact before the first request is sent:
//
//	go run ./smol/prompts -tokenizer tokenizer.json -input 64,256 -n 6 -passes 4 > prompts.jsonl
//
// How a prompt comes to be:
//
//  1. Sentences are drawn from a word list with the seed: English by its
//     grammar, without a meaning, ASCII only.
//  2. The text is encoded as a completion server would encode it, with the
//     special tokens that the tokenizer's post-processor adds, and words are
//     added or taken away until there are exactly N ids. A text is only ever
//     counted; none is made by decoding ids, which need not come back.
//  3. It must differ from every other prompt of the file from its first
//     token on, as long as there are enough first words, so that no prefix
//     cache can answer for it. What a template or a BOS puts before it is
//     the same for all of them.
//
// A text ends in the middle of a sentence, so that a model has something to
// say. The output is a corpus file, one verify.Prompt a line, that
// verify.ReadCorpus reads. Its ids tell what a prompt is for: p064-03-s7 is
// the fourth measured one of 64 tokens with seed 7, w064-00-s7 the first for a
// warmup. A configuration takes n of the former and warmups of the latter, in
// order, and with enough passes none is sent twice: as many as configurations
// ask for this length, times -count. So for -conc 1,2 and -count 6 it is
// -passes 12. The same flags and tokenizer give the same bytes, on every
// machine.
//
// # Chats
//
// A chat server puts a template around the user's message. With -chat-prefix
// and -chat-suffix, the texts that it puts before and after, N counts all
// three together, encoded as one, while the line's text is the message alone
// and its ids are null: a chat takes no ids. Names of special tokens in prefix
// and suffix become those tokens; the post-processor adds nothing then, since
// a template brings its own BOS. How many tokens are the template's is said on
// standard error. For SmolLM2's template, in bash:
//
//	go run ./smol/prompts -tokenizer smol/native/v1/model/tokenizer.json \
//	  -chat-prefix $'<|im_start|>system\nYou are a helpful AI assistant named SmolLM, trained by Hugging Face<|im_end|>\n<|im_start|>user\n' \
//	  -chat-suffix $'<|im_end|>\n<|im_start|>assistant\n' > prompts.jsonl
//
// For another model, have a Jinja engine render the message "HERE" and cut the
// result there (tokenizer.apply_chat_template with tokenize=False and
// add_generation_prompt=True in Hugging Face's transformers, /apply-template
// of llama.cpp's server).
//
// A server may still count otherwise: one that adds a BOS that tokenizer.json
// doesn't have (then -special=false and one token more), or a template with
// the date in it. So a benchmark holds each request's usage against N.
package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"

	"servebench/verify"
)

const usage = `Usage: go run ./smol/prompts -tokenizer FILE [flags] > prompts.jsonl

Writes prompts of exactly the wanted numbers of tokens for the model that FILE,
a Hugging Face tokenizer.json, belongs to. Each begins with another token, so
that no prefix cache answers. See go doc ./smol/prompts.

Needs what go run ./smol/setup puts in place.

Flags:
`

// maxInput bounds N: with a prompt's counting being linear in N, it bounds
// the time, too.
const maxInput = 8192

// maxPrompts bounds the prompts of one file.
const maxPrompts = 10000

// options are the flags.
type options struct {
	tokenizer  string
	inputs     []int
	n          int
	warmups    int
	passes     int
	seed       uint64
	chat       bool
	prefix     string
	suffix     string
	addSpecial bool
}

func main() {
	err := mainErr(os.Args[1:], os.Stdout, os.Stderr)
	switch {
	case errors.Is(err, flag.ErrHelp):
	case errors.Is(err, errUsage):
		os.Exit(2)
	case err != nil:
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// errUsage means that the flag package has said what was wrong.
var errUsage = errors.New("usage")

func parse(args []string, stderr io.Writer) (o options, err error) {
	fs := flag.NewFlagSet("prompts", flag.ContinueOnError)
	fs.SetOutput(stderr)
	fs.Usage = func() {
		fmt.Fprint(stderr, usage)
		fs.PrintDefaults()
	}
	var inputs string
	fs.StringVar(&o.tokenizer, "tokenizer", "", "the model's tokenizer.json, a `file`; required")
	fs.StringVar(&inputs, "input", "64,256", "`lengths` of the prompts in tokens, separated by commas, each 1 to "+strconv.Itoa(maxInput))
	fs.IntVar(&o.n, "n", 6, "measured prompts of each length for one pass, the benchmark's -requests")
	fs.IntVar(&o.warmups, "warmups", 1, "prompts of each length to warm up with before one pass")
	fs.IntVar(&o.passes, "passes", 1, "passes that the file is for, each with prompts of its own: the configurations that have this length, 2 for -conc 1,2, times -count")
	fs.Uint64Var(&o.seed, "seed", 1, "`seed` of the texts; another one for each file that the same server is asked")
	fs.StringVar(&o.prefix, "chat-prefix", "", "the `text` that the chat template puts before a message, counted in the length")
	fs.StringVar(&o.suffix, "chat-suffix", "", "the `text` that the chat template puts after a message, counted in the length")
	fs.BoolVar(&o.addSpecial, "special", true, "count the special tokens that tokenizer.json's post-processor adds, a BOS say; by default they are, but not with a template")
	if err := fs.Parse(args); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			return o, err
		}
		return o, errUsage
	}
	special := false
	fs.Visit(func(f *flag.Flag) {
		switch f.Name {
		case "chat-prefix", "chat-suffix":
			o.chat = true
		case "special":
			special = true
		}
	})
	if o.chat && !special {
		o.addSpecial = false
	}
	o.inputs, err = parseInputs(inputs)
	switch {
	case fs.NArg() > 0:
		return o, fmt.Errorf("prompts: arguments %q, want none; see -h", fs.Args())
	case err != nil:
		return o, err
	case o.tokenizer == "":
		return o, errors.New("prompts: no -tokenizer: name the model's tokenizer.json; that of the model which go run ./smol/setup puts in place is smol/native/v1/model/tokenizer.json")
	case o.n < 1:
		return o, fmt.Errorf("prompts: -n %d, want at least 1", o.n)
	case o.warmups < 0:
		return o, fmt.Errorf("prompts: -warmups %d, want at least 0", o.warmups)
	case o.passes < 1:
		return o, fmt.Errorf("prompts: -passes %d, want at least 1", o.passes)
	case o.n > maxPrompts || o.warmups > maxPrompts || o.passes > maxPrompts || o.prompts() > maxPrompts:
		return o, fmt.Errorf("prompts: -n %d, -warmups %d, -passes %d and %d lengths make %d prompts, want at most %d: write several files, each with its own -seed",
			o.n, o.warmups, o.passes, len(o.inputs), o.prompts(), maxPrompts)
	}
	return o, nil
}

// prompts is how many the file will have.
func (o *options) prompts() int { return len(o.inputs) * (o.n + o.warmups) * o.passes }

func parseInputs(list string) (inputs []int, err error) {
	for field := range strings.SplitSeq(list, ",") {
		n, err := strconv.Atoi(field)
		if err != nil || n < 1 || n > maxInput {
			return nil, fmt.Errorf("prompts: -input %q: length %q, want an integer from 1 to %d", list, field, maxInput)
		}
		if slices.Contains(inputs, n) {
			return nil, fmt.Errorf("prompts: -input %q has %d twice: ask for more with -n or -passes", list, n)
		}
		inputs = append(inputs, n)
	}
	return inputs, nil
}

// mainErr writes the file to stdout, all of it or nothing, and then one line
// on what it is to stderr.
func mainErr(args []string, stdout, stderr io.Writer) error {
	o, err := parse(args, stderr)
	if err != nil {
		return err
	}
	enc, err := openEncoder(o.tokenizer)
	if err != nil {
		return err
	}
	defer enc.close()
	w, err := newWriter(enc, frame{prefix: o.prefix, suffix: o.suffix, addSpecial: o.addSpecial}, o.seed)
	if err != nil {
		return err
	}
	var file bytes.Buffer
	for _, input := range o.inputs {
		for _, kind := range []struct {
			letter string
			n      int
		}{{"w", o.warmups * o.passes}, {"p", o.n * o.passes}} {
			for i := range kind.n {
				p, err := w.prompt(input)
				if err != nil {
					return err
				}
				p.ID = fmt.Sprintf("%s%03d-%02d-s%d", kind.letter, input, i, o.seed)
				p.Warmup = kind.letter == "w"
				if o.chat {
					p.IDs = nil
				}
				line, err := json.Marshal(p)
				if err != nil {
					return fmt.Errorf("prompts: %s: %w", p.ID, err)
				}
				file.Write(line)
				file.WriteByte('\n')
			}
		}
	}
	if _, err := verify.ReadCorpus("prompts.jsonl", file.Bytes()); err != nil {
		return fmt.Errorf("prompts: what was made isn't a corpus, which is a mistake in this program: %w", err)
	}
	if _, err := stdout.Write(file.Bytes()); err != nil {
		return fmt.Errorf("prompts: %w", err)
	}
	fmt.Fprintf(stderr, "prompts: %d of %s tokens; %s; %s\n", o.prompts(), joinInputs(o.inputs), w.frameTokens(o.chat), w.sharing())
	return nil
}

func joinInputs(inputs []int) string {
	var s []string
	for _, n := range inputs {
		s = append(s, strconv.Itoa(n))
	}
	return strings.Join(s, ", ")
}
