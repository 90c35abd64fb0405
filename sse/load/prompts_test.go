package load

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode"

	"servebench/sse"
	"servebench/verify"
)

// Ways to count that no prompt maker would choose.
var badTokenizers = []struct {
	name   string
	tokens func(string) int
	added  int
}{
	{"words", nil, 0},
	{"BOS and EOS", nil, 2},
	{"words merged in pairs", func(text string) int { // across the space, where both are short
		n, merged := 0, false
		words := strings.Fields(text)
		for i, word := range words {
			if merged = !merged && i > 0 && len(word)+len(words[i-1]) < 8; !merged {
				n++
			}
		}
		return n
	}, 1},
	{"pieces of four letters, digits alone", func(text string) int {
		n := 0
		for word := range strings.FieldsSeq(text) {
			letters := 0
			for _, r := range word {
				if unicode.IsLetter(r) {
					letters++
				} else {
					n++
				}
			}
			n += (letters + 3) / 4
		}
		return n
	}, 1},
	{"an unknown word is as many as it has bytes", func(text string) int {
		n := 0
		for word := range strings.FieldsSeq(text) {
			if len(word) > 3 {
				n += len(word)
			} else {
				n++
			}
		}
		return n
	}, 0},
	{"bytes", func(text string) int { return len(text) }, 1},
	{"letters, a line break is one", func(text string) int { return len(strings.ReplaceAll(text, " ", "")) }, 1},
}

// fitted is one call of fit on a server with such a tokenizer.
func fitted(t *testing.T, s *stranger, chat bool, salt string, n int) (string, int, error) {
	t.Helper()
	client := &sse.Client{BaseURL: s.url, Model: "m", Clock: sse.NewClock(), Idle: time.Minute, Chat: chat}
	tokenizer, err := client.Tokenizer(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	before := s.asks.Load()
	text, err := fit(t.Context(), tokenizer, salt, textOf(n, 3), n)
	return text, int(s.asks.Load() - before), err
}

func TestFit(t *testing.T) {
	salt := verify.SaltText(7, "1.0.0")
	for _, test := range badTokenizers {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			s := (&stranger{tokenize: "vllm", tokens: test.tokens, added: test.added}).start(t)
			most := 0
			for _, n := range []int{1, 2, 3, 6, 7, 16, 64, 511, 4096} {
				for _, salt := range []string{"", salt} {
					text, asks, err := fitted(t, s, false, salt, n)
					if least := s.count(salt) + s.added; err != nil {
						if salt == "" {
							least = s.count(words[3*17%len(words)]) + s.added
						}
						if least <= n || !strings.Contains(err.Error(), fmt.Sprintf("%d tokens are too few: ", n)) || !strings.Contains(err.Error(), "(-input)") {
							t.Errorf("%d tokens with salt %q: %v, though %d are enough", n, salt, err, least)
						}
						continue
					}
					if got := s.count(text) + s.added; got != n {
						t.Errorf("%d tokens, want %d: %.80q", got, n, text)
					}
					if !strings.HasPrefix(text, salt) {
						t.Errorf("%.80q doesn't begin with %q", text, salt)
					}
					if text != strings.TrimSpace(text) && strings.TrimSpace(text) == "" {
						t.Errorf("a text of blanks: %q", text)
					}
					most = max(most, asks)
				}
			}
			if most > 30 {
				t.Errorf("%d requests for one prompt, want few", most)
			}
			t.Logf("at most %d requests for one prompt", most)
		})
	}
}

func TestFitChat(t *testing.T) {
	for _, dialect := range []string{"vllm", "llama"} {
		s := (&stranger{tokenize: dialect, template: 30}).start(t)
		for n, fits := range map[int]bool{16: false, 36: true, 64: true, 511: true} {
			text, _, err := fitted(t, s, true, verify.SaltText(7, "1.0.0"), n)
			if fits != (err == nil) {
				t.Errorf("%s, %d tokens: %v", dialect, n, err)
			}
			if err == nil && s.count(text)+30 != n {
				t.Errorf("%s: %d tokens, want %d with the template", dialect, s.count(text)+30, n)
			}
		}
	}
}

// A tokenizer that has no text of an odd length: that is said, after a bounded
// number of tries.
func TestFitImpossible(t *testing.T) {
	s := (&stranger{tokenize: "vllm", tokens: func(text string) int { return 2 * len(strings.Fields(text)) }}).start(t)
	text, asks, err := fitted(t, s, false, "able acid", 65)
	if err == nil || !strings.Contains(err.Error(), "no text of exactly 65 tokens was found, only of 64") {
		t.Errorf("fit = %.40q, %v", text, err)
	}
	if asks > 40 {
		t.Errorf("%d requests to find that out", asks)
	}
}

// A tokenizer that fails in between ends it.
func TestFitError(t *testing.T) {
	s := (&stranger{tokenize: "vllm"}).start(t)
	client := &sse.Client{BaseURL: s.url, Model: "m", Clock: sse.NewClock(), Idle: time.Minute}
	tokenizer, err := client.Tokenizer(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	s.stop()
	if _, err := fit(t.Context(), tokenizer, "able", "one two three", 64); err == nil {
		t.Error("a text of unknown length")
	}
}

func TestIDPrompt(t *testing.T) {
	corpus := matrixCorpus(t)
	for _, n := range []int{1, 2, 16, 64, 511, 4096} {
		c, err := idCorpus(corpus, nil, []int{n})
		if err != nil {
			t.Fatal(err)
		}
		measured, warmups := 0, 0
		seen := map[string]bool{}
		if pool := c.Pool(); !slices.Equal(pool, corpus.Pool()) {
			t.Errorf("salts of %d tokens have a pool of %d ids, want the corpus's", n, len(pool))
		}
		for _, p := range c.Prompts {
			if p.Input != n {
				continue // is there for its ids
			}
			if len(p.IDs) != n {
				t.Errorf("%s has %d ids and input %d, want %d", p.ID, len(p.IDs), p.Input, n)
			}
			if n > 2 && seen[fmt.Sprint(p.IDs)] {
				t.Errorf("%s stands twice", p.ID)
			}
			seen[fmt.Sprint(p.IDs)] = true
			if p.Warmup {
				warmups++
			} else {
				measured++
			}
		}
		if measured != 6 || warmups != 1 {
			t.Errorf("%d prompts and %d warmups of %d tokens, want 6 and 1", measured, warmups, n)
		}
	}
	if _, err := idCorpus(nil, nil, []int{64}); err == nil {
		t.Error("ids of no corpus")
	}
	if ids := probeIDs(nil); ids != nil {
		t.Errorf("probe %d of no corpus", ids)
	}
}

func TestReadPrompts(t *testing.T) {
	for _, test := range []struct {
		name  string
		text  string
		input int
		want  string // ids:input, w for a warmup; or the error
	}{
		{"as it may be", `{"text":"a b c","input":3}` + "\n", 0, "line-1:3"},
		{"all fields", `{"id":"x","input":2,"warmup":true,"text":"a b","ids":[5,6],"sha256":""}` + "\n" + `{"id":"y","input":2,"text":"c d"}`, 0, "x:2w y:2"},
		{"no end of line, CRLF, blank lines, BOM", "\ufeff\r\n{\"text\":\"a\",\"input\":1}\r\n\n  \n{\"text\":\"b\",\"input\":1}", 0, "line-2:1 line-5:1w"},
		{"ids alone", `{"ids":[1,2,3]}`, 0, "line-1:3"},
		{"about", `{"text":"a"}` + "\n" + `{"text":"b"}`, 64, "line-1:64 line-2:64w"},
		{"empty ids", `{"text":"a","ids":[],"input":4}`, 0, "line-1:4"},
		{"no input", `{"text":"a"}`, 0, `load: p.jsonl:1: no input, the number of tokens: give it, or measure with -inexact-input and one -input N for all of them`},
		{"negative input", `{"text":"a","input":-3}`, 0, `load: p.jsonl:1: no input`},
		{"broken JSON", "{\"text\":\"a\",\"input\":1}\n{\"text\":\"b", 0, `load: p.jsonl:2: unexpected EOF; want {"text":"…"}`},
		{"another type", `{"text":5}`, 0, `load: p.jsonl:1: json: cannot unmarshal number`},
		{"no object", `"a"`, 0, `load: p.jsonl:1: json: cannot unmarshal string`},
		{"unknown field", `{"text":"a","prompt":"b"}`, 0, `load: p.jsonl:1: json: unknown field "prompt"; want {"text":"…"}`},
		{"two on a line", `{"text":"a","input":1} {"text":"b","input":1}`, 0, `load: p.jsonl:1: more than one object on the line`},
		{"nothing in it", `{"input":1}`, 0, `load: p.jsonl:1: neither text nor ids`},
		{"empty text", `{"text":"","ids":[]}`, 5, `load: p.jsonl:1: neither text nor ids`},
		{"ids of another number", `{"text":"a","ids":[1,2],"input":3}`, 0, `load: p.jsonl:1: input 3, but 2 ids`},
		{"negative id", `{"text":"a","ids":[1,-2]}`, 0, `load: p.jsonl:1: ids[1] is -2, want 0 or more`},
		{"id too large", `{"text":"a","ids":[4294967296]}`, 0, `load: p.jsonl:1: json: cannot unmarshal number 4294967296`},
		{"twice the id", `{"id":"x","text":"a","input":1}` + "\n" + `{"id":"x","text":"b","input":1}`, 0, `load: p.jsonl:2: id "x" stands twice`},
		{"other hash", `{"text":"a","input":1,"sha256":"00"}`, 0, `load: p.jsonl:1: sha256 isn't that of the text`},
		{"empty", "", 0, "load: p.jsonl has no prompts"},
		{"blank", "\n \r\n", 0, "load: p.jsonl has no prompts"},
		{"huge", strings.Repeat(" ", 64<<20+1), 0, "load: p.jsonl has 67108865 bytes, want at most 67108864: measure in several runs"},
	} {
		t.Run(test.name, func(t *testing.T) {
			c, err := ReadPrompts("some/where/p.jsonl", []byte(test.text), test.input)
			if err != nil {
				if !strings.HasPrefix(err.Error(), test.want) {
					t.Errorf("error %v, want %s", err, test.want)
				}
				return
			}
			var got []string
			for _, p := range c.Prompts {
				text := fmt.Sprintf("%s:%d", p.ID, p.Input)
				if p.Warmup {
					text += "w"
				}
				got = append(got, text)
			}
			if strings.Join(got, " ") != test.want {
				t.Errorf("prompts %q, want %s", got, test.want)
			}
			if c.Name != "p.jsonl" {
				t.Errorf("name %q", c.Name)
			}
		})
	}
}

// A long line is a prompt as any other.
func TestReadPromptsLongLine(t *testing.T) {
	text := strings.Repeat("word ", 1<<20)
	c, err := ReadPrompts("p.jsonl", fmt.Appendf(nil, "{\"text\":%q,\"input\":1048576}\n", text), 0)
	if err != nil || c.Prompts[0].Text != text {
		t.Errorf("%v", err)
	}
}

// Of seven prompts without a mark one is for a warmup: a configuration takes
// one, and six for a pass.
func TestMarkWarmups(t *testing.T) {
	for _, test := range []struct {
		n    int
		want string
	}{{1, "m"}, {2, "mw"}, {6, "mmmmmw"}, {7, "mmmmmmw"}, {13, "mmmmmmmmmmmmw"}, {14, "mmmmmmmmmmmmww"}} {
		prompts := make([]verify.Prompt, test.n)
		markWarmups(prompts)
		got := ""
		for _, p := range prompts {
			if p.Warmup {
				got += "w"
			} else {
				got += "m"
			}
		}
		if got != test.want {
			t.Errorf("of %d: %s, want %s", test.n, got, test.want)
		}
	}
}
