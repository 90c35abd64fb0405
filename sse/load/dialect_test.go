package load

import (
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"servebench/sse"
	"servebench/verify"
)

// matrixCorpus is the corpus of the matrix.
func matrixCorpus(t testing.TB) *verify.Corpus {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("..", "..", "testdata", "corpus.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	c, err := verify.ReadCorpus("corpus.jsonl", data)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

var everyField = []string{"cache_prompt", "ignore_eos", "max_tokens", "min_tokens", "return_token_ids", "stream_options", "temperature"}

func but(fields ...string) []string {
	return slices.DeleteFunc(slices.Clone(everyField), func(f string) bool { return slices.Contains(fields, f) })
}

// Whatever a server refuses, what it takes is found, and each request after
// that has just it.
func TestDialect(t *testing.T) {
	completion := func(fields []string) []string {
		out := slices.Clone(fields)
		out[slices.Index(out, "max_tokens")] = "max_completion_tokens"
		slices.Sort(out)
		return out
	}
	for _, test := range []struct {
		name   string
		server *stranger
		chat   bool
		fields string // of the user, name=JSON
		want   []string
		most   int // probes, the one of ids among them
	}{
		{"all", &stranger{}, false, "", everyField, 2},
		{"a chat takes all", &stranger{}, true, "", everyField, 1},
		{"no ignore_eos", &stranger{refuses: []string{"ignore_eos"}}, false, "", but("ignore_eos"), 7},
		{"no min_tokens", &stranger{refuses: []string{"min_tokens"}, status: 422}, false, "", but("min_tokens"), 7},
		{"no return_token_ids", &stranger{refuses: []string{"return_token_ids"}}, false, "", but("return_token_ids"), 7},
		{"no cache_prompt", &stranger{refuses: []string{"cache_prompt"}, status: 422}, false, "", but("cache_prompt"), 7},
		{"no extension, as transformers serve", &stranger{refuses: extraFields, status: 422, ids: "no"}, true, "", commonFields, 7},
		{"a server's own error", &stranger{refuses: extraFields, status: 500}, false, "", commonFields, 7},
		{"no stream_options", &stranger{refuses: []string{"stream_options"}}, false, "", but("stream_options"), 12},
		{"no temperature", &stranger{refuses: []string{"temperature"}}, false, "", but("temperature"), 12},
		{"max_completion_tokens", &stranger{refuses: []string{"max_tokens"}}, true, "", completion(everyField), 12},
		{"a reasoning model of OpenAI's", &stranger{refuses: append([]string{"max_tokens", "temperature"}, extraFields...), wants: "max_completion_tokens"}, true, "",
			[]string{"max_completion_tokens", "stream_options"}, 12},
		{"neither temperature nor stream_options", &stranger{refuses: []string{"temperature", "stream_options"}}, false, "", but("temperature", "stream_options"), 13},
		{"max_completion_tokens without stream_options", &stranger{refuses: []string{"max_tokens", "stream_options"}}, true, "", completion(but("stream_options")), 13},
		{"nothing but a bound", &stranger{refuses: append([]string{"temperature", "stream_options"}, extraFields...)}, false, "", []string{"max_tokens"}, 13},
		{"nothing but the other bound", &stranger{refuses: append([]string{"temperature", "stream_options", "max_tokens"}, extraFields...)}, false, "", []string{"max_completion_tokens"}, 14},
		{"the user's own temperature", &stranger{}, false, `temperature=0.5 ignore_eos=false`, but("temperature", "ignore_eos"), 2},
		{"the user leaves one out", &stranger{refuses: []string{"cache_prompt"}}, false, `cache_prompt=null`, but("cache_prompt"), 2},
		{"the user's own bound", &stranger{refuses: []string{"max_tokens", "max_completion_tokens"}}, false, `max_tokens=null max_completion_tokens=null max_new_tokens=5`, but("max_tokens"), 7},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			test.server.models = []string{"m"}
			s := test.server.start(t)
			want := slices.Sorted(slices.Values(test.want))
			target := Target{InexactInput: true, Fields: fieldsOf(test.fields)}
			if test.chat {
				target.API = "chat"
			}
			opened, err := s.opened(t, target)
			if err != nil {
				t.Fatal(err)
			}
			if got := opened.evidence.Optional; !slices.Equal(got, want) {
				t.Errorf("optional %q, want %q", got, want)
			}
			if n := len(s.seen()); n > test.most {
				t.Errorf("%d probes, want at most %d", n, test.most)
			}
			// A request of a configuration.
			client := opened.connect()
			defer client.Close()
			r := new(verify.Request)
			ask := opened.ask(&outgoing{prompt: &verify.Prompt{Text: "one two three"}}, 5)
			ask.ID = "1.0.0"
			client.Complete(t.Context(), ask, r)
			if r.Failure != nil {
				t.Fatal(r.Failure)
			}
			keys := append([]string{"model", "prompt", "stream"}, want...)
			if test.chat {
				keys[1] = "messages"
			}
			for name, value := range target.Fields {
				if string(value) != "null" {
					keys = append(keys, name)
				}
			}
			slices.Sort(keys)
			last := s.requests()[0]
			if got := last.keys(); !slices.Equal(got, keys) {
				t.Errorf("a request has %q, want %q", got, keys)
			}
			for name, value := range map[string]string{
				"ignore_eos": "true", "min_tokens": "5", "return_token_ids": "true", "cache_prompt": "false",
				"stream_options": `{"include_usage":true}`, "temperature": "0", "max_tokens": "5", "max_completion_tokens": "5", "stream": "true",
			} {
				if user := target.Fields[name]; user != nil {
					value = string(user)
				}
				if got := last.fields[name]; got != nil && string(got) != value {
					t.Errorf("%s is %s, want %s", name, got, value)
				}
			}
		})
	}
}

// A model that spends the probe's two tokens on thoughts that it keeps to
// itself takes what it is sent all the same.
func TestDialectEmptyAnswer(t *testing.T) {
	t.Parallel()
	s := (&stranger{models: []string{"m"}, refuses: []string{"max_tokens"}}).start(t)
	var empty atomic.Int64
	s.answer = func(n int, _ string, w http.ResponseWriter, _ *http.Request) bool {
		if s.seen()[n-1].fields["max_tokens"] != nil {
			return false // refused
		}
		empty.Add(1)
		s.stream(w, true, 0, "length", 6, true)
		return true
	}
	opened, err := s.opened(t, Target{InexactInput: true, API: "chat"})
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Contains(opened.evidence.Optional, "max_completion_tokens") || empty.Load() == 0 {
		t.Errorf("optional %q", opened.evidence.Optional)
	}
}

// Prompts of ids are used where the server counts them right.
func TestDialectIDs(t *testing.T) {
	for _, test := range []struct {
		name   string
		server *stranger
		chat   bool
		want   string // how the length is known, or the error
	}{
		{"right", &stranger{added: 1}, false, verify.PromptsIDs},
		{"BOS before ids", &stranger{added: 1, ids: "added", tokenize: "vllm"}, false, verify.PromptsTokenize},
		{"refused, vLLM's tokenize", &stranger{ids: "no", tokenize: "vllm", added: 1}, false, verify.PromptsTokenize},
		{"refused, llama.cpp's tokenize", &stranger{ids: "no", tokenize: "llama", added: 1}, false, verify.PromptsTokenize},
		{"refused, TGI's tokenize", &stranger{ids: "no", tokenize: "tgi", added: 2}, false, verify.PromptsTokenize},
		{"vLLM's chat", &stranger{tokenize: "vllm", template: 30}, true, verify.PromptsTokenize},
		{"llama.cpp's chat", &stranger{tokenize: "llama", template: 30}, true, verify.PromptsTokenize},
		{"TGI's chat", &stranger{tokenize: "tgi", template: 30}, true, "neither takes ids nor counts tokens"},
		{"none", &stranger{ids: "no"}, false, "go run ./smol/prompts and name them with -prompts, or measure with -inexact-input"},
		{"no usage", &stranger{noUsage: true, tokenize: "vllm"}, false, "its answers have no usage, which would confirm its /tokenize"},
		{"tokenize and usage differ", &stranger{ids: "no", tokenize: "wrong"}, false, `its /tokenize counts 7 tokens for "The old bridge over the river", but its usage 6`},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			test.server.models = []string{"m"}
			s := test.server.start(t)
			target := Target{}
			if test.chat {
				target.API = "chat"
			}
			opened, err := s.opened(t, target)
			if err != nil {
				if !strings.Contains(err.Error(), test.want) || strings.Contains(err.Error(), "\n\n") {
					t.Errorf("error %v, want %q", err, test.want)
				}
				return
			}
			if got := opened.evidence.Prompts; got != test.want {
				t.Errorf("prompts %q, want %q", got, test.want)
			}
			if test.chat {
				for _, a := range s.seen() {
					if strings.HasPrefix(a.prompt, "[1") {
						t.Errorf("ids in a chat: %s", a.prompt)
					}
				}
			}
		})
	}
}

// The probe has the corpus's largest id: a server with fewer would fail in the
// middle of a run.
func TestDialectSmallVocabulary(t *testing.T) {
	t.Parallel()
	s := (&stranger{models: []string{"m"}, tokenize: "vllm"}).start(t)
	s.answer = func(n int, _ string, w http.ResponseWriter, _ *http.Request) bool {
		var ids []int32
		if unmarshal(s.seen()[n-1].fields["prompt"], &ids) && slices.Max(ids) >= 32000 {
			refuseWith(w, 400, "token id out of vocabulary")
			return true
		}
		return false
	}
	opened, err := s.opened(t, Target{})
	if err != nil {
		t.Fatal(err)
	}
	if opened.evidence.Prompts != verify.PromptsTokenize {
		t.Errorf("prompts %q of ids that the server doesn't have", opened.evidence.Prompts)
	}
}

func TestModels(t *testing.T) {
	for _, test := range []struct {
		name   string
		models []string
		given  string
		want   string // model, or error
	}{
		{"one", []string{"only"}, "", "only"},
		{"several", []string{"a", "b"}, "", "error: load: target: which model? -model (Target.Model) names one of the 2 that it serves: a, b"},
		{"several, one given", []string{"a", "b"}, "b", "b"},
		{"no list", nil, "", "error: load: target: which model? -model (Target.Model) names it, for the server doesn't: sse: GET "},
		{"no list, given", nil, "b", "b"},
		{"empty list", []string{}, "", "error: load: target: which model? -model (Target.Model) names it, for the server doesn't: sse: no model is listed: "},
		{"empty list, given", []string{}, "b", "b"},
		{"of two lines", []string{"a\nBenchmarkServe 1 2 tok/s"}, "", `error: load: target: model "a\nBenchmarkServe 1 2 tok/s" has a control character`},
		{"not in the list", []string{"a"}, "b", "b"}, // an alias, maybe: the server decides
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			s := (&stranger{models: test.models}).start(t)
			opened, err := s.opened(t, Target{Model: test.given})
			if want, isError := strings.CutPrefix(test.want, "error: "); isError {
				if err == nil || !strings.HasPrefix(err.Error(), want) {
					t.Errorf("error %v, want %q", err, want)
				}
				if len(s.seen()) > 0 {
					t.Errorf("%d probes without a model", len(s.seen()))
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if opened.evidence.Model != test.want {
				t.Errorf("model %q, want %q", opened.evidence.Model, test.want)
			}
			for _, a := range s.seen() {
				if got := string(a.fields["model"]); got != `"`+test.want+`"` {
					t.Errorf("model %s in a request, want %q", got, test.want)
				}
			}
			if test.models != nil && opened.evidence.Software != "stranger/1" {
				t.Errorf("software %q", opened.evidence.Software)
			}
		})
	}
}

// Each base leads to the endpoint, once.
func TestTargetBases(t *testing.T) {
	s := (&stranger{models: []string{"m"}}).start(t)
	for _, suffix := range []string{"", "/", "/v1", "/v1/", "/team/x/v1", "/team/x"} {
		target := Target{URL: s.url + suffix}
		if _, err := target.open(t.Context(), sse.NewClock(), 0, []int{64}, matrixCorpus(t)); err != nil {
			t.Errorf("%s: %v", suffix, err)
			continue
		}
		want := "/v1/completions"
		if strings.HasPrefix(suffix, "/team") {
			want = "/team/x/v1/completions"
		}
		if got := s.seen()[len(s.seen())-1].path; got != want {
			t.Errorf("%s leads to %s, want %s", suffix, got, want)
		}
	}
}
