package clients

import (
	"context"
	"errors"
	"os"
	"strings"
	"testing"
	"time"
)

// client is one that is put to the test.
type client interface {
	// ask returns the answer to q, or a *failure where the server gave an
	// error.
	ask(ctx context.Context, q question) (answer, error)
	// leave asks q, a stream, and goes away as such a client's users do,
	// once the first event is there. A whole answer that came first is no
	// error.
	leave(q question) error
}

// Questions that every client is asked.
const (
	capital = "What is the capital of France? Answer in one sentence."
	letters = "Repeat: é, ß, 漢字, 😀, naïve café."
)

// testClient asks a client, made by connect for a server's address, all that
// every client has to master.
func testClient(t *testing.T, connect func(t *testing.T, url string) client) {
	s := sharedServer(t)
	c := connect(t, s.url)
	t.Run("answers", func(t *testing.T) { testAnswers(t, s, c) })
	t.Run("Paris", func(t *testing.T) { testParis(t, s, c) })
	t.Run("events", func(t *testing.T) { testEvents(t, s, c) })
	t.Run("failures", func(t *testing.T) { testFailures(t, s, c) })
	t.Run("leaving", func(t *testing.T) { testLeaving(t, s, c.leave) })
	t.Run("stopping", func(t *testing.T) { testStopping(t, connect) })
}

// The answers are those of the reference, in one piece and in a stream, and
// so are the counts where they are asked for.
func testAnswers(t *testing.T, s *server, c client) {
	tests := []struct {
		name string
		question
	}{
		{"completion", completion(s.model, "The capital of France is", 8)},
		{"completion of ids", completion(s.model, []int{5, 6, 7}, 8)},
		{"completion of one token", completion(s.model, "Once upon a time", 1)},
		{"completion past the end", completion(s.model, letters, 16).with(map[string]any{"ignore_eos": true})},
		{"chat", conversation(s.model, capital, 8)},
		{"chat by the new name", conversation(s.model, capital, 8).with(map[string]any{"max_tokens": nil, "max_completion_tokens": 5})},
		{"chat of several turns", conversation(s.model, "", 8).with(map[string]any{"messages": []any{
			map[string]any{"role": "system", "content": "Answer in one word."},
			map[string]any{"role": "user", "content": "What is the capital of Italy?"},
			map[string]any{"role": "assistant", "content": "Rome."},
			map[string]any{"role": "user", "content": []any{map[string]any{"type": "text", "text": "And of France?"}}},
		}})},
		{"chat past the end", conversation(s.model, letters, 16).with(map[string]any{"ignore_eos": true})},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			want, err := s.reference(test.question)
			if err != nil {
				t.Fatal(err)
			}
			if want.Text == "" || want.FinishReason == "" || want.PromptTokens == 0 || want.AnswerTokens == 0 || (want.Role == "assistant") != test.chat {
				t.Fatalf("the reference is %+v, want a text, a reason, counts, and a role in a chat", want)
			}
			got, err := c.ask(t.Context(), test.with(nil))
			if err != nil || got != want {
				t.Errorf("in one piece: %+v, %v\nwant %+v", got, err, want)
			}
			want.Events = want.AnswerTokens // one for each token
			got, err = c.ask(t.Context(), test.with(map[string]any{"stream": true, "stream_options": map[string]any{"include_usage": true}}))
			if err != nil || got != want {
				t.Errorf("stream with usage: %+v, %v\nwant %+v", got, err, want)
			}
			want.PromptTokens, want.AnswerTokens = 0, 0
			got, err = c.ask(t.Context(), test.with(map[string]any{"stream": true}))
			if err != nil || got != want {
				t.Errorf("stream without usage: %+v, %v\nwant %+v", got, err, want)
			}
		})
	}
}

// The model that can answer a question does.
func testParis(t *testing.T, s *server, c client) {
	if !s.real {
		t.Skip("the tiny model can't answer a question: go run ./smol/setup puts the real one in place")
	}
	for _, stream := range []bool{false, true} {
		got, err := c.ask(t.Context(), conversation(s.model, "What is the capital of France?", 40).with(map[string]any{"stream": stream}))
		if err != nil || !strings.Contains(got.Text, "Paris") || got.FinishReason != "stop" {
			t.Errorf("stream %v: %+v, %v; want an answer with Paris that comes to its end", stream, got, err)
		}
	}
}

// A stream's events come as they are made: when the client has the first one,
// the server isn't done.
func testEvents(t *testing.T, s *server, c client) {
	if !s.real {
		t.Skip("the tiny model is done before a client can look")
	}
	const tokens = 24
	for _, q := range []question{completion(s.model, "Once upon a time", tokens), conversation(s.model, "Tell a story.", tokens)} {
		q := q.with(map[string]any{"stream": true, "ignore_eos": true})
		seen := false
		q.first = func() {
			seen = true
			if entry, done, err := s.find(q.id); done || err != nil {
				t.Errorf("%s: at the first event the log has the request already: %+v, %v", q.path(), entry, err)
			}
		}
		if got, err := c.ask(t.Context(), q); err != nil || got.Events != tokens || !seen {
			t.Errorf("%s: %+v, %v; want %d events", q.path(), got, err, tokens)
		}
	}
}

// Errors arrive with their status, code and parameter, also where a stream
// was asked for.
func testFailures(t *testing.T, s *server, c client) {
	text, talk := completion(s.model, "Hi", 2), conversation(s.model, "Hi", 2)
	message := func(role string, content any) map[string]any {
		return map[string]any{"messages": []any{map[string]any{"role": role, "content": content}}}
	}
	tests := []struct {
		name string
		question
		values map[string]any
		status int
		code   string
		param  string
	}{
		{"temperature", text, map[string]any{"temperature": 0.7}, 400, "unsupported_value", "temperature"},
		{"top_p", text, map[string]any{"top_p": 0.9}, 400, "unsupported_value", "top_p"},
		{"two answers", text, map[string]any{"n": 2}, 400, "unsupported_value", "n"},
		{"logprobs", text, map[string]any{"logprobs": 3}, 400, "unsupported_value", "logprobs"},
		{"echo", text, map[string]any{"echo": true}, 400, "unsupported_value", "echo"},
		{"stop", text, map[string]any{"stop": []any{"\n"}}, 400, "unsupported_value", "stop"},
		{"two prompts", text, map[string]any{"prompt": []any{"a", "b"}}, 400, "unsupported_value", "prompt"},
		{"an empty prompt", text, map[string]any{"prompt": ""}, 400, "invalid_value", "prompt"},
		{"max_tokens 0", text, map[string]any{"max_tokens": 0}, 400, "invalid_value", "max_tokens"},
		{"no room", text, map[string]any{"max_tokens": s.context}, 400, "context_length_exceeded", "max_tokens"},
		{"another model", text, map[string]any{"model": "no-such-model"}, 404, "model_not_found", "model"},

		{"temperature", talk, map[string]any{"temperature": 0.7}, 400, "unsupported_value", "temperature"},
		{"two answers", talk, map[string]any{"n": 2}, 400, "unsupported_value", "n"},
		{"tools", talk, map[string]any{"tools": []any{map[string]any{"type": "function", "function": map[string]any{"name": "weather"}}}}, 400, "unsupported_value", "tools"},
		{"JSON", talk, map[string]any{"response_format": map[string]any{"type": "json_object"}}, 400, "unsupported_value", "response_format"},
		{"logprobs", talk, map[string]any{"logprobs": true}, 400, "unsupported_value", "logprobs"},
		{"reasoning", talk, map[string]any{"reasoning_effort": "low"}, 400, "unsupported_value", "reasoning_effort"},
		{"a developer", talk, message("developer", "Hi"), 400, "unsupported_value", "messages[0].role"},
		{"a picture", talk, message("user", []any{map[string]any{"type": "image_url", "image_url": map[string]any{"url": "data:,"}}}), 400, "unsupported_value", "messages[0].content[0].type"},
		{"no messages", talk, map[string]any{"messages": []any{}}, 400, "invalid_value", "messages"},
		{"no room", talk, map[string]any{"max_tokens": s.context - 1}, 400, "context_length_exceeded", "max_tokens"},
		{"no room by the new name", talk, map[string]any{"max_tokens": nil, "max_completion_tokens": s.context - 1}, 400, "context_length_exceeded", "max_completion_tokens"},
		{"another model", talk, map[string]any{"model": "no-such-model"}, 404, "model_not_found", "model"},
	}
	for _, test := range tests {
		kind := "completion"
		if test.chat {
			kind = "chat"
		}
		t.Run(kind+"/"+test.name, func(t *testing.T) {
			for _, stream := range []bool{false, true} {
				q := test.with(test.values).with(map[string]any{"stream": stream})
				got, err := c.ask(t.Context(), q)
				f := new(failure)
				if !errors.As(err, &f) {
					t.Fatalf("stream %v: %+v, %v; want %d %s", stream, got, err, test.status, test.code)
				}
				if want := (failure{test.status, "invalid_request_error", test.code, test.param, f.Message}); *f != want || f.Message == "" {
					t.Errorf("stream %v: %v\nwant %v", stream, f, &want)
				}
			}
		})
	}
}

// attempts is how often a test tries to be faster than an answer. The tiny
// model's longest takes some 50 ms, the real one's most of a minute.
const attempts = 20

// A client that goes away midway leaves the server to the next one: what it
// asked for is given up, and the next is answered.
func testLeaving(t *testing.T, s *server, leave func(question) error) {
	const left = "the client left "
	text, talk := completion(s.model, "Hi", s.context-20), conversation(s.model, "Hi", s.context-60)
	for _, q := range []question{text, talk} {
		for attempt := 1; ; attempt++ {
			q := q.with(map[string]any{"stream": true, "ignore_eos": true})
			if err := leave(q); err != nil {
				t.Fatalf("%s: leaving: %v", q.path(), err)
			}
			begin := time.Now()
			if _, err := s.ask(completion(s.model, "Next", 1)); err != nil {
				t.Fatalf("%s: the next request: %v", q.path(), err)
			}
			waited := time.Since(begin)
			entry := s.await(t, q.id)
			if entry.Error == "" && attempt < attempts && !s.real {
				continue // it was faster
			}
			// Half a second of the real model's steps, and that the news
			// takes a moment.
			most := 100
			if !s.real {
				most = s.context
			}
			if !strings.HasPrefix(entry.Error, left) || entry.Steps > most || len(entry.TokenIDs) > most {
				t.Errorf("%s: the log has %d steps, %d tokens and %q; want %q after at most %d",
					q.path(), entry.Steps, len(entry.TokenIDs), entry.Error, left, most)
			}
			t.Logf("%s: given up after %d steps of %v, the next answered after %v", q.path(), entry.Steps, q.body["max_tokens"], waited)
			break
		}
	}
}

// A server that is told to stop midway says so, and no client takes what it
// has for a whole answer.
func testStopping(t *testing.T, connect func(t *testing.T, url string) client) {
	for attempt := 1; ; attempt++ {
		s, err := startServer("-grace", "0s")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(s.stop)
		q := conversation(s.model, "Hi", s.context-60).with(map[string]any{"stream": true, "ignore_eos": true})
		q.first = func() {
			if err := s.command.Process.Signal(os.Interrupt); err != nil {
				t.Error(err)
			}
		}
		got, err := connect(t, s.url).ask(t.Context(), q)
		if err == nil && attempt < attempts && !s.real {
			continue // it was faster
		}
		f := new(failure)
		if want := (failure{0, "server_error", "server_stopping", "", ""}); !errors.As(err, &f) || f.Message == "" || *f != (failure{want.Status, want.Type, want.Code, want.Param, f.Message}) {
			t.Errorf("%d events, %v; want %v", got.Events, err, &want)
		}
		return
	}
}
