package sse

import (
	"bufio"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"servebench/verify"
)

// recording is one answer of a real server, as testdata/real has it.
type recording struct {
	Case   string       `json:"case"`
	Path   string       `json:"path"`
	Reads  [][2]float64 `json:"reads"` // ms since the request, bytes
	Raw    string       `json:"raw"`
	Expect *struct {
		Status    int     `json:"status"`
		Class     string  `json:"class"`
		Message   *string `json:"message"`
		Kinds     string  `json:"kinds"`
		Text      string  `json:"text"`
		Reasoning string  `json:"reasoning"`
		Finish    string  `json:"finish"`
		IDs       []int32 `json:"ids"`
		EventIDs  []int   `json:"event_ids"`
		PromptIDs []int32 `json:"prompt_ids"`
		Usage     []*int  `json:"usage"` // of the prompt, of the answer, from a cache
		FirstRead *int    `json:"first_read"`
		LastRead  *int    `json:"last_read"`
	} `json:"expect"`
}

// recordings returns the recordings by server.
func recordings(t testing.TB) map[string][]*recording {
	paths, err := filepath.Glob("testdata/real/*.jsonl")
	if err != nil || len(paths) == 0 {
		t.Fatalf("testdata/real has no recording: %v", err)
	}
	out := map[string][]*recording{}
	for _, path := range paths {
		file, err := os.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		defer file.Close()
		server := strings.TrimSuffix(filepath.Base(path), ".jsonl")
		for decoder := json.NewDecoder(file); ; {
			r := &recording{}
			if err := decoder.Decode(r); err == io.EOF {
				break
			} else if err != nil {
				t.Fatalf("%s: %v", path, err)
			}
			out[server] = append(out[server], r)
		}
	}
	return out
}

// play answers one request with the first n bytes of r, each read when it
// came; then it waits for the client, or hangs up if that isn't all.
func (r *recording) play(conn net.Conn, n int) {
	defer conn.Close()
	if _, err := http.ReadRequest(bufio.NewReader(conn)); err != nil {
		return
	}
	at, ms := 0, 0.0
	for _, read := range r.Reads {
		time.Sleep(after(read[0]) - after(ms))
		ms = read[0]
		end := min(at+int(read[1]), n)
		if _, err := io.WriteString(conn, r.Raw[at:end]); err != nil {
			return
		}
		at = end
	}
	if n == len(r.Raw) {
		io.Copy(io.Discard, conn)
	}
}

func after(ms float64) time.Duration { return time.Duration(ms * float64(time.Millisecond)) }

// replay lets the client ask a server that answers with the first n bytes of r.
func (r *recording) replay(n int) (got *verify.Request, begin int64) {
	clock := NewClock()
	got = complete(pipe(func(conn net.Conn) {
		begin = clock.Now()
		r.play(conn, n)
	}), clock)
	return got, begin
}

// What real servers said, in the reads in which it came: kinds, text, ids,
// counts, end, failure and the moments of the first and the last token are
// those that testdata/real/expect.py found in the recording by other means.
func TestRealAnswers(t *testing.T) {
	for server, list := range recordings(t) {
		for _, rec := range list {
			if rec.Expect == nil {
				continue
			}
			t.Run(server+"/"+rec.Case, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					r, begin := rec.replay(len(rec.Raw))
					rec.check(t, r)
					at := func(read *int) int64 { return begin + int64(after(rec.Reads[*read][0])) }
					want := rec.Expect
					first, ok := r.FirstTokenNS()
					if ok != (want.FirstRead != nil) {
						t.Fatalf("a token came: %t, want %t", ok, !ok)
					}
					if last, _ := r.LastTokenNS(); ok && (first != at(want.FirstRead) || last != at(want.LastRead)) {
						t.Errorf("tokens from %d to %d, want %d to %d", first, last, at(want.FirstRead), at(want.LastRead))
					}
				})
			})
		}
	}
}

func (rec *recording) check(t *testing.T, r *verify.Request) {
	t.Helper()
	want := rec.Expect
	if r.Status != want.Status || r.EventKinds != want.Kinds || r.Text != want.Text || r.Reasoning != want.Reasoning || r.Finish != want.Finish {
		t.Errorf("status %d, kinds %q, text %q, reasoning %q, finish %q, want %d, %q, %q, %q, %q",
			r.Status, r.EventKinds, r.Text, r.Reasoning, r.Finish, want.Status, want.Kinds, want.Text, want.Reasoning, want.Finish)
	}
	if !slices.Equal(r.TokenIDs, want.IDs) || !slices.Equal(r.EventIDs, want.EventIDs) || !slices.Equal(r.PromptIDs, want.PromptIDs) {
		t.Errorf("ids %v in events %v of the prompt %v, want %v in %v of %v", r.TokenIDs, r.EventIDs, r.PromptIDs, want.IDs, want.EventIDs, want.PromptIDs)
	}
	switch {
	case (r.Usage == nil) != (want.Usage == nil):
		t.Errorf("usage %+v, want %v", r.Usage, want.Usage)
	case r.Usage == nil:
	case r.Usage.PromptTokens != *want.Usage[0] || r.Usage.CompletionTokens != *want.Usage[1] || (r.Usage.CachedTokens == nil) != (want.Usage[2] == nil):
		t.Errorf("usage %+v, want %d, %d, %v", r.Usage, *want.Usage[0], *want.Usage[1], want.Usage[2])
	case want.Usage[2] != nil && *r.Usage.CachedTokens != *want.Usage[2]:
		t.Errorf("%d cached tokens, want %d", *r.Usage.CachedTokens, *want.Usage[2])
	}
	switch {
	case (r.Failure == nil) != (want.Class == ""):
		t.Errorf("failure %+v, want class %q", r.Failure, want.Class)
	case r.Failure == nil:
	case r.Failure.Class != want.Class:
		t.Errorf("failure %+v, want class %q", r.Failure, want.Class)
	case want.Message != nil && !strings.HasSuffix(r.Failure.Message, *want.Message):
		t.Errorf("failure %q, want the words %q", r.Failure.Message, *want.Message)
	}
}

// The same by hand: what the three servers, with the same weights, answered to
// the same prompts, with how many tokens by their own count in how many events.
// A token of an end has no text, and bytes of one character share an event.
func TestRealAnswersByHand(t *testing.T) {
	const (
		capital = "The capital of France is Paris."                                       // and an end token
		short   = " Paris.\n\nThe answer is:"                                             // 8 tokens
		date    = " Paris.\n\nThe answer is: 2018-01-22 12:12:53."                        // 29, and an end token
		further = " Paris.\n\nThe answer is: 2018-01-22 12:12:53.\n\nThe answer is: 2018" // 40, the end token hindered
		runes   = "🎉🚀\n\n# 1.1.1.1.1\n\n# 1"                                              // 24, in 20 events
	)
	tests := []struct {
		server string
		cases  string
		text   string
		tokens int // 0 where the server wasn't asked for them
		events int // with a token
		finish string
	}{
		{"llamaserver", "chat err-chat-model err-chat-temp", capital, 0, 7, "stop"},
		{"llamaserver", "chat-usage chat-stop chat-logprobs chat-maxcompl chat-min_tokens chat-return_token_ids", capital, 8, 7, "stop"},
		{"llamaserver", "comp-text comp-text-usage comp-ids comp-ids-usage comp-idsnested comp-contusage comp-logprobs comp-nocache comp-return_token_ids err-model err-temp", short, 8, 8, "length"},
		{"llamaserver", "comp-stop comp-maxctx comp-min_tokens", date, 30, 29, "stop"},
		{"llamaserver", "comp-ignore_eos", further, 40, 40, "length"},
		{"llamaserver", "comp-utf8", runes, 24, 20, "length"},
		{"llamaserver", "comp-stopstr", " Paris.\n\nThe ", 6, 6, "stop"},
		{"llamaserver", "err-max0", " Paris", 1, 1, "length"},
		{"llamaserver", "err-chat-max0", "The", 0, 1, "length"},
		{"transformers", "chat chat-usage chat-logprobs chat-maxcompl err-chat-temp", capital, 8, 7, "length"},
		{"transformers", "chat-stop", capital, 8, 7, "stop"},
		{"transformers", "comp-text comp-text-usage comp-contusage comp-logprobs err-temp", short, 8, 8, "length"},
		{"transformers", "comp-stop", date, 30, 29, "stop"},
		{"transformers", "comp-utf8", runes, 24, 20, "length"},
		{"transformers", "err-chat-long", "\n\n\n\n\n\n\n\n", 8, 8, "length"},
		{"litellm", "chat", "Hello", 2, 2, "length"},
		{"litellm", "chat-stop", "abc", 3, 3, "stop"},
		{"litellm", "comp", "Hello", 3, 2, "stop"},            // ids and their end token's event are lost on the way
		{"litellm", "chat-broken-off", "Hello", 1, 2, "stop"}, // end and count are the proxy's own
		{"ollama", "chat", "Hello", 3, 2, "stop"},
		{"ollama", "comp", "Hello", 2, 2, "length"}, // usage is 0 in every event but the last
		{"vllm", "chat", capital, 0, 7, "stop"},
		{"vllm", "chat-usage chat-stop chat-logprobs chat-maxcompl", capital, 8, 7, "stop"},
		{"vllm", "chat-return_token_ids", capital, 8, 8, "stop"},
		{"vllm", "chat-stoptok-ids", "Hello! How can I assist you today?", 10, 10, "stop"},
		{"vllm", "comp-text comp-ids", short, 0, 8, "length"},
		{"vllm", "comp-text-usage comp-ids-usage comp-idsnested comp-idsresp comp-contusage comp-forceusage comp-logprobs comp-return_token_ids", short, 8, 8, "length"},
		{"vllm", "comp-echo", "The capital of France is" + short, 8, 8, "length"},
		{"vllm", "comp-stop", date, 30, 29, "stop"},
		{"vllm", "comp-min_tokens", further, 40, 40, "length"},
		{"vllm", "comp-utf8", runes, 24, 20, "length"},
		{"vllm", "comp-stopstr", " Paris.\n\nThe ", 6, 6, "stop"},
		{"vllm", "interval4-chat-return_token_ids", capital, 8, 3, "stop"},
		{"vllm", "interval4-comp-logprobs interval4-comp-return_token_ids", short, 8, 3, "length"},
	}
	all := recordings(t)
	for _, test := range tests {
		for _, name := range strings.Fields(test.cases) {
			t.Run(test.server+"/"+name, func(t *testing.T) {
				rec := find(t, all, test.server, name)
				synctest.Test(t, func(t *testing.T) {
					r, _ := rec.replay(len(rec.Raw))
					tokens, known := r.Tokens()
					events := strings.Count(r.EventKinds, "c")
					if r.Failure != nil || r.Text != test.text || tokens != test.tokens || known != (tokens > 0) || events != test.events || r.Finish != test.finish {
						t.Errorf("failure %+v, text %q, %d tokens (known: %t) in %d events, finish %q, want %+v", r.Failure, r.Text, tokens, known, events, r.Finish, test)
					}
				})
			})
		}
	}
}

// Words of structures that expect.py doesn't read, and failures by hand.
func TestRealFailuresByHand(t *testing.T) {
	tests := []struct{ server, name, class, message string }{
		{"llamaserver", "err-path", "status", "404 Not Found: File Not Found"},
		{"llamaserver", "err-badid", "status", "400 Bad Request: Prompt contains invalid tokens"},
		{"llamaserver", "err-long", "status", "400 Bad Request: request (9000 tokens) exceeds the available context size (2048 tokens), try increasing it"},
		{"llamaserver", "comp-n2", "stream", "event 0 has choice 1, though one answer was asked for"},
		{"llamaserver", "comp-batch2", "stream", "event 1 has choice 1, though one answer was asked for"},
		{"llamaserver", "native-completion", "stream", "the stream ended without a finish reason or [DONE]"},
		{"llamaserver", "comp-nostream", "reply", `content type "application/json; charset=utf-8", want text/event-stream: {"choices":[{"text":" Paris.`},
		{"litellm", "chat-error-in-stream", "server", "litellm.APIConnectionError: APIConnectionError: OpenAIException - EngineCore encountered an issue."},
		{"litellm", "chat-reset", "server", "litellm.APIConnectionError: APIConnectionError: OpenAIException - Connection error."},
		{"litellm", "chat-429", "status", "429 Too Many Requests: litellm.RateLimitError: RateLimitError: OpenAIException - slow down"},
		{"litellm", "chat-nothing", "empty", "the stream ended properly but carried no token"},
		{"litellm", "chat-html", "empty", "the stream ended properly but carried no token"},
		{"ollama", "chat-error-in-stream", "stream", "the stream ended without a finish reason or [DONE]"}, // its words are lost on the way
		{"ollama", "comp-error-in-stream", "stream", "the stream ended without a finish reason or [DONE]"},
		{"ollama", "chat-refused", "status", "404 Not Found: model 'refuse' not found"},
		{"transformers", "comp-ids", "status", "400 Bad Request: prompt must be a string."},
		{"transformers", "comp-ignore_eos", "status", "422 Unprocessable Entity: Unexpected fields in the request: {'ignore_eos'}"},
		{"transformers", "err-json", "status", `422 Unprocessable Entity: [{"type":"json_invalid","loc":["body",25],"msg":"JSON decode error"`},
		{"transformers", "err-noprompt", "server", "cannot reshape tensor of 0 elements into shape"},
		{"transformers", "err-chat-max0", "server", "`max_new_tokens` must be greater than 0, but is 0."},
		{"vllm", "enginekill", "server", "EngineCore encountered an issue. See stack trace (above) for the root cause."},
		{"vllm", "err-badid", "server", "Token id 999999999 is out of vocabulary"},
		{"vllm", "err-model", "status", "404 Not Found: The model `no-such-model` does not exist. Valid aliases: smollm2."},
		{"vllm", "comp-n2", "stream", "event 1 has choice 1, though one answer was asked for"},
		{"vllm", "chat-nostream", "reply", `content type "application/json", want text/event-stream: {"id":`},
	}
	all := recordings(t)
	for _, test := range tests {
		t.Run(test.server+"/"+test.name, func(t *testing.T) {
			rec := find(t, all, test.server, test.name)
			synctest.Test(t, func(t *testing.T) {
				r, _ := rec.replay(len(rec.Raw))
				if r.Failure == nil || r.Failure.Class != test.class || !strings.HasPrefix(r.Failure.Message, test.message) {
					t.Errorf("failure %+v, want %s: %s", r.Failure, test.class, test.message)
				}
			})
		})
	}
}

// find returns one recording.
func find(t *testing.T, all map[string][]*recording, server, name string) *recording {
	for _, rec := range all[server] {
		if rec.Case == name {
			return rec
		}
	}
	t.Fatalf("testdata/real has no %s of %s", name, server)
	return nil
}

// What real servers say of their models, and of the tokens of "The capital of
// France is".
func TestRealProbes(t *testing.T) {
	tests := []struct {
		server, model, software string
		tokens                  int // 0 for a 404
		refusal                 string
	}{
		{"llamaserver", "smollm2", "llama.cpp", 5, ""},
		{"transformers", "/srv/models/smollm2", "uvicorn", 0, "sse: POST http://server/tokenize: 404 Not Found: Not Found"},
		{"vllm", "smollm2", "uvicorn", 5, ""},
	}
	all := recordings(t)
	for _, test := range tests {
		t.Run(test.server, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				client := func(name string) *Client {
					rec := find(t, all, test.server, name)
					return &Client{BaseURL: "http://server", Clock: NewClock(), Dial: pipe(func(conn net.Conn) { rec.play(conn, len(rec.Raw)) })}
				}
				models, software, err := client("get-models").Models(t.Context())
				if err != nil || !slices.Equal(models, []string{test.model}) || software != test.software {
					t.Errorf("models %q of %q, %v, want %q of %q", models, software, err, test.model, test.software)
				}
				tokenizer := &Tokenizer{client("tokenize"), "http://server/tokenize", func(text string) (any, error) { return map[string]string{"prompt": text}, nil }}
				n, err := tokenizer.Count(t.Context(), "The capital of France is")
				if n != test.tokens || (err == nil) != (test.refusal == "") {
					t.Errorf("%d tokens, %v, want %d", n, err, test.tokens)
				}
				if err != nil && err.Error() != test.refusal {
					t.Errorf("%v, want %s", err, test.refusal)
				}
			})
		})
	}
}

// A recording breaks off after some byte: that is a failure, of the stream or
// the one that it had anyway; what came before is kept.
func TestRealAnswersBrokenOff(t *testing.T) {
	for server, list := range recordings(t) {
		t.Run(server, func(t *testing.T) {
			for _, rec := range list {
				if rec.Expect == nil {
					continue
				}
				for _, cut := range cuts(len(rec.Raw), 60) {
					synctest.Test(t, func(t *testing.T) {
						r, _ := rec.replay(cut)
						if r.Failure == nil || r.Failure.Class != verify.FailStream && r.Failure.Class != rec.Expect.Class {
							t.Errorf("%s, broken off after %d of %d bytes: failure %+v, want one of the stream", rec.Case, cut, len(rec.Raw), r.Failure)
						}
						if !strings.HasPrefix(rec.Expect.Text, r.Text) || !strings.HasPrefix(rec.Expect.Kinds, r.EventKinds) {
							t.Errorf("%s, broken off after %d of %d bytes: text %q of kinds %q, want the begin of %q, %q", rec.Case, cut, len(rec.Raw), r.Text, r.EventKinds, rec.Expect.Text, rec.Expect.Kinds)
						}
						if !slices.IsSorted(r.EventNS) {
							t.Errorf("%s, broken off after %d: stamps %v", rec.Case, cut, r.EventNS)
						}
					})
				}
			}
		})
	}
}
