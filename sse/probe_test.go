package sse

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"
)

// oracle answers questions in place of a server.
func oracle(t *testing.T, answer func(path string, body map[string]json.RawMessage) (status int, text string)) *Client {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body := map[string]json.RawMessage{}
		data, _ := io.ReadAll(r.Body)
		json.Unmarshal(data, &body)
		status, text := answer(r.URL.Path, body)
		w.Header().Set("Server", "oracle")
		w.WriteHeader(status)
		io.WriteString(w, text)
	}))
	t.Cleanup(s.Close)
	return &Client{BaseURL: s.URL + "/v1", Model: "m", Clock: NewClock(), Idle: 10 * time.Second}
}

func TestModels(t *testing.T) {
	for _, test := range []struct {
		name   string
		status int
		text   string
		want   []string
		err    string
	}{
		{"one", 200, `{"data":[{"id":"a"}]}`, []string{"a"}, ""},
		{"some without an id", 200, `{"data":[{"id":"a"},{},{"id":7},{"id":""},{"id":"b"}]}`, []string{"a", "b"}, ""},
		{"none", 200, `{"data":[]}`, nil, "sse: no model is listed: "},
		{"a page", 200, `<html>`, nil, "sse: no model is listed: "},
		{"nothing", 200, ``, nil, "the server gives no reason"},
		{"refused", 401, `{"error":{"message":"who are you?"}}`, nil, "/v1/models: 401 Unauthorized: who are you?"},
	} {
		t.Run(test.name, func(t *testing.T) {
			c := oracle(t, func(path string, _ map[string]json.RawMessage) (int, string) {
				if path != "/v1/models" {
					t.Errorf("asked for %s", path)
				}
				return test.status, test.text
			})
			ids, software, err := c.Models(t.Context())
			if !slices.Equal(ids, test.want) || software != "oracle" {
				t.Errorf("Models() = %q, %q", ids, software)
			}
			if test.err == "" && err != nil || test.err != "" && (err == nil || !strings.Contains(err.Error(), test.err)) {
				t.Errorf("error %v, want %q", err, test.err)
			}
			if status := new(StatusError); errors.As(err, &status) != (test.status != 200) {
				t.Errorf("error %#v of status %d", err, test.status)
			}
			if errors.Is(err, ErrNoModels) != (test.status == 200 && test.want == nil) {
				t.Errorf("error %v is ErrNoModels: %t", err, errors.Is(err, ErrNoModels))
			}
		})
	}
}

func TestTokenizer(t *testing.T) {
	numbers := func(n int) string { return "[" + strings.TrimSuffix(strings.Repeat("0,", n), ",") + "]" }
	words := func(text json.RawMessage) int {
		var s string
		json.Unmarshal(text, &s)
		return len(strings.Fields(s))
	}
	for _, test := range []struct {
		name   string
		chat   bool
		answer func(path string, body map[string]json.RawMessage) (int, string)
		want   int // tokens of "one two three", 0 for no tokenizer
	}{
		{"count", false, func(_ string, b map[string]json.RawMessage) (int, string) {
			return 200, fmt.Sprintf(`{"count":%d}`, words(b["prompt"])+1)
		}, 4},
		{"tokens", false, func(_ string, b map[string]json.RawMessage) (int, string) {
			if string(b["add_special"]) != "true" {
				return 400, "{}"
			}
			return 200, fmt.Sprintf(`{"tokens":%s}`, numbers(words(b["content"])+1))
		}, 4},
		{"tokens with their texts", false, func(_ string, b map[string]json.RawMessage) (int, string) {
			return 200, `{"tokens":[` + strings.TrimSuffix(strings.Repeat(`{"id":1,"piece":"x"},`, words(b["content"])), ",") + `]}`
		}, 3},
		{"a list", false, func(_ string, b map[string]json.RawMessage) (int, string) {
			if b["inputs"] == nil || len(b) > 1 {
				return 422, "{}"
			}
			return 200, numbers(words(b["inputs"]))
		}, 3},
		{"strict", false, func(_ string, b map[string]json.RawMessage) (int, string) {
			if b["content"] != nil || b["prompt"] == nil {
				return 422, "{}"
			}
			return 200, fmt.Sprintf(`{"count":%d,"tokens":[]}`, words(b["prompt"]))
		}, 3},
		{"the same for any text", false, func(string, map[string]json.RawMessage) (int, string) { return 200, `{"count":7}` }, 0},
		{"a negative count", false, func(string, map[string]json.RawMessage) (int, string) { return 200, `{"count":-7}` }, 0},
		{"a count in words", false, func(string, map[string]json.RawMessage) (int, string) { return 200, `{"count":"seven"}` }, 0},
		{"a page", false, func(string, map[string]json.RawMessage) (int, string) { return 200, `<html>` }, 0},
		{"none", false, func(string, map[string]json.RawMessage) (int, string) { return 404, `{"detail":"Not Found"}` }, 0},
		{"messages", true, func(path string, b map[string]json.RawMessage) (int, string) {
			var m []chatMessage
			if json.Unmarshal(b["messages"], &m) != nil || len(m) != 1 || string(b["add_generation_prompt"]) != "true" {
				return 400, "{}"
			}
			return 200, fmt.Sprintf(`{"count":%d}`, len(strings.Fields(m[0].Content))+30)
		}, 33},
		{"a template first", true, func(path string, b map[string]json.RawMessage) (int, string) {
			var m []chatMessage
			switch {
			case path == "/apply-template" && json.Unmarshal(b["messages"], &m) == nil && len(m) == 1:
				return 200, fmt.Sprintf(`{"prompt":"<s> %s <e>"}`, m[0].Content)
			case path == "/tokenize" && b["content"] != nil:
				return 200, fmt.Sprintf(`{"tokens":%s}`, numbers(words(b["content"])))
			}
			return 400, "{}"
		}, 5},
		{"a template without a prompt", true, func(path string, b map[string]json.RawMessage) (int, string) { return 200, `{"tokens":[]}` }, 0},
		{"texts alone, for a chat", true, func(path string, b map[string]json.RawMessage) (int, string) {
			if path != "/tokenize" || b["prompt"] == nil {
				return 404, "{}"
			}
			return 200, `{"count":3}`
		}, 0},
	} {
		t.Run(test.name, func(t *testing.T) {
			c := oracle(t, func(path string, b map[string]json.RawMessage) (int, string) {
				if path != "/tokenize" && path != "/apply-template" {
					t.Errorf("asked for %s", path)
				}
				return test.answer(path, b)
			})
			c.Chat = test.chat
			tokenizer, err := c.Tokenizer(t.Context())
			if test.want == 0 {
				if !errors.Is(err, ErrNoTokenizer) {
					t.Errorf("Tokenizer() = %v, %v, want ErrNoTokenizer", tokenizer, err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if n, err := tokenizer.Count(t.Context(), "one two three"); n != test.want || err != nil {
				t.Errorf("Count = %d, %v, want %d", n, err, test.want)
			}
		})
	}
}

func TestTokenizerStops(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	asked := 0
	c := oracle(t, func(string, map[string]json.RawMessage) (int, string) {
		asked++
		cancel()
		time.Sleep(50 * time.Millisecond)
		return 404, ""
	})
	if _, err := c.Tokenizer(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("error %v, want the context's", err)
	}
	if asked != 1 {
		t.Errorf("%d requests, want none after the context's end", asked)
	}
}
