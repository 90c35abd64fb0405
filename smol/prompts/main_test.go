package main

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"servebench/smol/graph"
	"servebench/verify"
)

// ownTokenizer is that of the model which the set-up puts in place.
const ownTokenizer = "../native/v1/model/tokenizer.json"

// tokenizerFiles returns tokenizers of four families: WordPiece and BPE,
// of one case and of two, with a BOS alone and with an end as well, one that
// cuts and pads, and the measured model's own.
func tokenizerFiles(t *testing.T) map[string]string {
	t.Helper()
	out, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "github.com/daulet/tokenizers").Output()
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(strings.TrimSpace(string(out)), "test", "data")
	return map[string]string{
		"BERT":    filepath.Join(dir, "bert-base-uncased.json"),
		"MiniLM":  filepath.Join(dir, "all-minilm-l6-v2.json"),
		"Cohere":  filepath.Join(dir, "cohere-tokenizer.json"),
		"Llama 3": filepath.Join(dir, "Meta-Llama-3-8B-Instruct.json"),
		"SmolLM2": ownTokenizer,
	}
}

// run returns what the command writes.
func run(t *testing.T, args ...string) (*verify.Corpus, []byte, string) {
	t.Helper()
	var stdout, stderr bytes.Buffer
	if err := mainErr(args, &stdout, &stderr); err != nil {
		t.Fatalf("prompts %q: %v", args, err)
	}
	c, err := verify.ReadCorpus("prompts.jsonl", stdout.Bytes())
	if err != nil {
		t.Fatalf("prompts %q: %v", args, err)
	}
	return c, stdout.Bytes(), stderr.String()
}

// counter returns an encoder of the test's own, opened apart from those of
// the command.
func counter(t *testing.T, file string) func(text string, addSpecial bool) []int32 {
	t.Helper()
	enc, err := openEncoder(file)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(enc.close)
	return func(text string, addSpecial bool) []int32 {
		ids, err := enc.encode(text, addSpecial)
		if err != nil {
			t.Fatal(err)
		}
		return ids
	}
}

// Each tokenizer gives each text exactly as many ids as were asked for, and
// no two texts begin with the same one.
func TestExact(t *testing.T) {
	around := map[string]int{"BERT": 2, "MiniLM": 2, "Cohere": 2, "Llama 3": 1}
	for name, file := range tokenizerFiles(t) {
		t.Run(name, func(t *testing.T) {
			lengths := []int{16, 64, 256, 511}
			for _, n := range []int{1, 2, 3} {
				if n > around[name] {
					lengths = append(lengths, n)
				}
			}
			list := strings.Trim(strings.ReplaceAll(fmt.Sprint(lengths), " ", ","), "[]")
			count := counter(t, file)
			c, _, said := run(t, "-tokenizer", file, "-input", list, "-n", "3", "-warmups", "1", "-passes", "2", "-seed", "7")
			if want := len(lengths) * 4 * 2; len(c.Prompts) != want {
				t.Errorf("%d prompts, want %d", len(c.Prompts), want)
			}
			if want := fmt.Sprintf("%d of each are the post-processor's", around[name]); !strings.Contains(said, want) {
				t.Errorf("it says %q, want %q", said, want)
			}
			front := 1
			if around[name] == 0 {
				front = 0
			}
			first := map[int32]string{}
			warmups := 0
			for _, p := range c.Prompts {
				ids := count(p.Text, true)
				if len(ids) != p.Input || !slices.Equal(ids, p.IDs) {
					t.Errorf("%s: %d tokens by the tokenizer, %d recorded, want %d: %q", p.ID, len(ids), len(p.IDs), p.Input, p.Text)
				}
				if bare := count(p.Text, false); len(ids)-len(bare) != around[name] {
					t.Errorf("%s: %d tokens, %d without the post-processor, want %d between them", p.ID, len(ids), len(bare), around[name])
				}
				if other, ok := first[ids[front]]; ok {
					t.Errorf("%s and %s begin with token %d both", p.ID, other, ids[front])
				}
				first[ids[front]] = p.ID
				if p.Warmup {
					warmups++
				}
				letter := "p"
				if p.Warmup {
					letter = "w"
				}
				if !strings.HasPrefix(p.ID, fmt.Sprintf("%s%03d-0", letter, p.Input)) || !strings.HasSuffix(p.ID, "-s7") {
					t.Errorf("id %q of a prompt with input %d and warmup %v", p.ID, p.Input, p.Warmup)
				}
			}
			if want := len(lengths) * 2; warmups != want {
				t.Errorf("%d warmups, want %d", warmups, want)
			}
		})
	}
}

// A vocabulary of little more than bytes: words are many tokens each, so the
// last of them hardly ever fit.
func TestBytes(t *testing.T) {
	dir := t.TempDir()
	if _, err := graph.WriteTiny(dir, graph.Options{}); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(dir, "tokenizer.json")
	count := counter(t, file)
	for n := 6; n <= 40; n++ {
		c, _, _ := run(t, "-tokenizer", file, "-input", fmt.Sprint(n), "-n", "2", "-warmups", "1")
		for _, p := range c.Prompts {
			if ids := count(p.Text, true); len(ids) != n {
				t.Errorf("%s: %d tokens, want %d: %q", p.ID, len(ids), n, p.Text)
			}
		}
	}
}

// The longest has its length, too.
func TestLongest(t *testing.T) {
	c, _, _ := run(t, "-tokenizer", ownTokenizer, "-input", "8192", "-n", "1", "-warmups", "0")
	if ids := counter(t, ownTokenizer)(c.Prompts[0].Text, true); len(c.Prompts) != 1 || len(ids) != 8192 {
		t.Errorf("%d prompts, the first of %d tokens, want 1 of 8192", len(c.Prompts), len(ids))
	}
}

// The same flags give the same bytes, and another seed other texts.
func TestSeed(t *testing.T) {
	args := []string{"-tokenizer", ownTokenizer, "-input", "16,64", "-n", "2", "-seed", "7"}
	c, a, _ := run(t, args...)
	_, b, _ := run(t, args...)
	if !bytes.Equal(a, b) {
		t.Error("two runs with the same flags differ")
	}
	args[len(args)-1] = "8"
	other, _, _ := run(t, args...)
	for i, p := range other.Prompts {
		if p.Text == c.Prompts[i].Text {
			t.Errorf("seed 7 and 8 both give %q", p.Text)
		}
	}
	// Pinned: whoever reads "seed 7" in a record can make the prompts again,
	// on whatever machine.
	const want = "a6ce83226941e0e31414cdc406c019e040e73cb459fc000731446b63f15a1639"
	if got := fmt.Sprintf("%x", sha256.Sum256(a)); got != want {
		t.Errorf("the file has SHA-256 %s, want %s: with another one, old seeds mean other prompts", got, want)
	}
}

// More prompts than first words share one token, but not two.
func TestManyShareLittle(t *testing.T) {
	c, _, said := run(t, "-tokenizer", ownTokenizer, "-input", "16", "-n", "200", "-passes", "3", "-warmups", "0")
	if !strings.Contains(said, "none the first 2") {
		t.Errorf("it says %q, want that some share their first token", said)
	}
	seen := map[[2]int32]string{}
	for _, p := range c.Prompts {
		begin := [2]int32(p.IDs[:2])
		if seen[begin] != "" {
			t.Errorf("%s and %s begin with tokens %d", p.ID, seen[begin], begin)
		}
		seen[begin] = p.ID
	}
}

// In a chat, template and message have the length together, and the text is
// the message.
func TestChat(t *testing.T) {
	const prefix = "<|im_start|>user\n"
	const suffix = "<|im_end|>\n<|im_start|>assistant\n"
	c, _, said := run(t, "-tokenizer", ownTokenizer, "-input", "16,64", "-n", "3", "-chat-prefix", prefix, "-chat-suffix", suffix)
	count := counter(t, ownTokenizer)
	// <|im_start|> user \n, <|im_end|> \n <|im_start|> ass istant \n.
	if !strings.Contains(said, "9 of each are the template's") {
		t.Errorf("it says %q, want 9 tokens of the template", said)
	}
	for _, p := range c.Prompts {
		if ids := count(prefix+p.Text+suffix, false); len(ids) != p.Input || p.IDs != nil {
			t.Errorf("%s: %d tokens in all and ids %v, want %d and none", p.ID, len(ids), p.IDs, p.Input)
		}
	}
}

// A template's BOS isn't doubled by the post-processor.
func TestChatBOS(t *testing.T) {
	file := tokenizerFiles(t)["Llama 3"]
	const prefix = "<|begin_of_text|><|start_header_id|>user<|end_header_id|>\n\n"
	const suffix = "<|eot_id|><|start_header_id|>assistant<|end_header_id|>\n\n"
	const bos = 128000
	count := counter(t, file)
	c, _, _ := run(t, "-tokenizer", file, "-input", "32", "-n", "1", "-chat-prefix", prefix, "-chat-suffix", suffix)
	for _, p := range c.Prompts {
		ids := count(prefix+p.Text+suffix, false)
		if len(ids) != 32 || ids[0] != bos || slices.Contains(ids[1:], bos) {
			t.Errorf("%s: %v, want 32 tokens and one BOS", p.ID, ids)
		}
	}
}

// Without the post-processor, the text has all the tokens.
func TestWithoutSpecial(t *testing.T) {
	file := tokenizerFiles(t)["Llama 3"]
	count := counter(t, file)
	c, _, _ := run(t, "-tokenizer", file, "-input", "1,16", "-n", "2", "-special=false")
	for _, p := range c.Prompts {
		if ids := count(p.Text, false); len(ids) != p.Input {
			t.Errorf("%s: %d tokens, want %d", p.ID, len(ids), p.Input)
		}
	}
}

func TestErrors(t *testing.T) {
	files := tokenizerFiles(t)
	dir := t.TempDir()
	write := func(name, content string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	own := func(args ...string) []string { return append([]string{"-tokenizer", ownTokenizer}, args...) }
	tests := []struct {
		name string
		args []string
		want string
	}{
		{"no tokenizer", nil, "prompts: no -tokenizer: name the model's tokenizer.json; that of the model which go run ./smol/setup puts in place is smol/native/v1/model/tokenizer.json"},
		{"no such file", []string{"-tokenizer", "no-such.json"}, "prompts: -tokenizer: open no-such.json: no such file or directory: name the model's tokenizer.json; go run ./smol/setup leaves one in smol/native/v1/model"},
		{"a pointer", []string{"-tokenizer", write("tokenizer.json", "version https://git-lfs.github.com/spec/v1\n")}, "prompts: tokenizer.json isn't a JSON object (invalid character 'v' looking for beginning of value): want a tokenizer.json, not a tokenizer.model or a Git LFS pointer"},
		{"another file", []string{"-tokenizer", write("config.json", `{"vocab_size":1}`)}, "prompts: config.json has no model (unexpected end of JSON input): want a tokenizer.json, not a tokenizer_config.json or a config.json"},
		{"half a file", []string{"-tokenizer", write("half.json", `{"model":{"type":"BPE"}}`)}, "prompts: half.json: Failed to create tokenizer from bytes: "},
		{"arguments", own("x"), `prompts: arguments ["x"], want none; see -h`},
		{"length 0", own("-input", "0"), `prompts: -input "0": length "0", want an integer from 1 to 8192`},
		{"too long", own("-input", "64,8193"), `prompts: -input "64,8193": length "8193", want an integer from 1 to 8192`},
		{"no length", own("-input", ""), `prompts: -input "": length "", want an integer from 1 to 8192`},
		{"a length twice", own("-input", "64,64"), `prompts: -input "64,64" has 64 twice: ask for more with -n or -passes`},
		{"no prompts", own("-n", "0"), "prompts: -n 0, want at least 1"},
		{"warmups", own("-warmups", "-1"), "prompts: -warmups -1, want at least 0"},
		{"passes", own("-passes", "0"), "prompts: -passes 0, want at least 1"},
		{"too many", own("-input", "64", "-n", "10000"), "prompts: -n 10000, -warmups 1, -passes 1 and 1 lengths make 10001 prompts, want at most 10000: write several files, each with its own -seed"},
		{"room for the post-processor alone", []string{"-tokenizer", files["BERT"], "-input", "2"}, "prompts: -input 2 is too small: 2 tokens stand around each text, so want at least 3"},
		{"room for the template alone", own("-input", "4", "-chat-prefix", "<|im_start|>user\n", "-chat-suffix", "<|im_end|>"), "prompts: -input 4 is too small: 4 tokens stand around each text, so want at least 5"},
		{"more than there are", own("-input", "1", "-n", "2000"), "prompts: -input 1: there are no more texts of so few tokens that each begin unlike the others: want fewer prompts (-n, -warmups, -passes) or longer ones"},
		{"two BOS", []string{"-tokenizer", files["Llama 3"], "-chat-prefix", "<|begin_of_text|>", "-special"}, "prompts: each prompt would begin with token 128000 twice: the post-processor of Meta-Llama-3-8B-Instruct.json adds what -chat-prefix begins with already: leave -special out"},
		{"NUL", own("-chat-prefix", "a\x00b"), `prompts: NUL at byte 1 of the text "a\x00b`},
		{"half a rune", own("-chat-prefix", "a\xc3"), `prompts: the text "a\xc3`},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			var stdout, stderr bytes.Buffer
			err := mainErr(test.args, &stdout, &stderr)
			if err == nil || !strings.HasPrefix(err.Error(), test.want) {
				t.Errorf("prompts %q: %v\nwant %s", test.args, err, test.want)
			}
			if stdout.Len() > 0 {
				t.Errorf("prompts %q writes %d bytes all the same", test.args, stdout.Len())
			}
		})
	}
	var stdout, stderr bytes.Buffer
	if err := mainErr([]string{"-no-such-flag"}, &stdout, &stderr); err != errUsage || !strings.Contains(stderr.String(), "flag provided but not defined: -no-such-flag") {
		t.Errorf("an unknown flag: %v, %q", err, stderr.String())
	}
}

// A vocabulary without the words is refused: its prompts would be one unknown
// token again and again.
func TestUnknownWords(t *testing.T) {
	path := filepath.Join(t.TempDir(), "tokenizer.json")
	const file = `{"version":"1.0","added_tokens":[],"normalizer":null,"pre_tokenizer":{"type":"Whitespace"},"post_processor":null,"decoder":null,"model":{"type":"WordLevel","vocab":{"[UNK]":0,"der":1,"Fluss":2},"unk_token":"[UNK]"}}`
	if err := os.WriteFile(path, []byte(file), 0o600); err != nil {
		t.Fatal(err)
	}
	var stdout, stderr bytes.Buffer
	err := mainErr([]string{"-tokenizer", path}, &stdout, &stderr)
	if err == nil || !strings.Contains(err.Error(), "has no token for") {
		t.Errorf("%v, want that the words are missing", err)
	}
}
