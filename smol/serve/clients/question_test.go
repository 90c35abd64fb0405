package clients

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"sync/atomic"
)

// question is one request, before a client gives it its own form.
type question struct {
	id    string         // X-Request-Id
	chat  bool           // of chat completions, else of completions
	body  map[string]any // JSON values
	first func()         // called once a stream's first event is there; nil for nothing
}

func (q question) path() string {
	if q.chat {
		return "/v1/chat/completions"
	}
	return "/v1/completions"
}

func (q question) stream() bool { return q.body["stream"] == true }

// with returns q with other values in its body and an id of its own.
func (q question) with(values map[string]any) question {
	q.body = maps.Clone(q.body)
	maps.Copy(q.body, values)
	q.id = newID()
	return q
}

var ids atomic.Int64

func newID() string { return fmt.Sprintf("clients-%d", ids.Add(1)) }

// completion asks for the continuation of prompt, a text or ids.
func completion(model string, prompt any, tokens int) question {
	return question{id: newID(), body: map[string]any{
		"model": model, "prompt": prompt, "max_tokens": tokens, "temperature": 0,
	}}
}

// conversation asks for the answer to one message.
func conversation(model, message string, tokens int) question {
	return question{id: newID(), chat: true, body: map[string]any{
		"model": model, "max_tokens": tokens, "temperature": 0,
		"messages": []any{map[string]any{"role": "user", "content": message}},
	}}
}

// answer is what a client understood.
type answer struct {
	Text         string
	FinishReason string
	PromptTokens int // as usage says; 0 where there was none
	AnswerTokens int
	Events       int    // with a choice, of a stream; 0 else
	Role         string // of a chat
}

// failure is an error that the server gave, as a client understood it.
type failure struct {
	Status            int // 0 for one within a stream
	Type, Code, Param string
	Message           string
}

func (f *failure) Error() string {
	return fmt.Sprintf("%d %s %s (%s): %s", f.Status, f.Type, f.Code, f.Param, f.Message)
}

// readAnswer reads a whole response by the protocol, with no client's help:
// a stream that doesn't end with [DONE] or an error is an error.
func readAnswer(status int, body []byte, stream bool) (a answer, err error) {
	if status != 200 {
		return a, readFailure(status, body)
	}
	type object struct {
		Choices []struct {
			Text           string
			Delta, Message struct{ Role, Content string }
			FinishReason   string `json:"finish_reason"`
		}
		Usage struct {
			PromptTokens int `json:"prompt_tokens"`
			AnswerTokens int `json:"completion_tokens"`
		}
	}
	add := func(data []byte) error {
		var o object
		if err := json.Unmarshal(data, &o); err != nil {
			return fmt.Errorf("%q: %w", data, err)
		}
		for _, c := range o.Choices {
			a.Text += c.Text + c.Delta.Content + c.Message.Content
			a.FinishReason += c.FinishReason
			a.Role += c.Delta.Role + c.Message.Role
			if stream {
				a.Events++
			}
		}
		a.PromptTokens += o.Usage.PromptTokens
		a.AnswerTokens += o.Usage.AnswerTokens
		return nil
	}
	if !stream {
		return a, add(body)
	}
	for rest := body; ; {
		event, more, ok := bytes.Cut(rest, []byte("\n\n"))
		data, isData := bytes.CutPrefix(event, []byte("data: "))
		if !ok || !isData {
			return a, fmt.Errorf("the stream ends %q, want data: [DONE]", body[max(0, len(body)-200):])
		}
		if last := string(data) == "[DONE]"; last || bytes.HasPrefix(data, []byte(`{"error":`)) {
			if len(more) > 0 {
				return a, fmt.Errorf("after %q the stream goes on: %q", data, more)
			}
			if !last {
				return a, readFailure(0, data)
			}
			return a, nil
		}
		if err := add(data); err != nil {
			return a, err
		}
		rest = more
	}
}

func readFailure(status int, body []byte) error {
	var v struct{ Error *failure }
	if err := json.Unmarshal(body, &v); err != nil || v.Error == nil {
		return fmt.Errorf("status %d with %q, want an error object (%v)", status, body, err)
	}
	v.Error.Status = status
	return v.Error
}

// jsonEqual compares two values by what they are in JSON.
func jsonEqual(a, b any) bool {
	x, errX := json.Marshal(a)
	y, errY := json.Marshal(b)
	if errX != nil || errY != nil {
		return false
	}
	var u, v any
	if json.Unmarshal(x, &u) != nil || json.Unmarshal(y, &v) != nil {
		return false
	}
	x, _ = json.Marshal(u)
	y, _ = json.Marshal(v)
	return bytes.Equal(x, y)
}
