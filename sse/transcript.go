package sse

import (
	"bytes"
	"fmt"
	"strings"

	"github.com/tidwall/gjson"

	"servebench/verify"
)

// transcript reads the payloads of a stream's events into a request's record.
type transcript struct {
	request   *verify.Request
	kinds     strings.Builder
	text      strings.Builder
	reasoning strings.Builder
	ids       []int // of each event so far
	withIDs   bool  // some event has ids
	without   bool  // some event has a token, but no ids
	done      bool
}

func (t *transcript) fail(class, format string, args ...any) {
	if t.request.Failure == nil {
		t.request.Failure = &verify.Failure{Class: class, Message: fmt.Sprintf(format, args...)}
	}
}

// event takes one event that arrived at ns.
func (t *transcript) event(e Event, ns int64) {
	data := bytes.TrimSpace(e.Data)
	if len(data) == 0 {
		return // gateways use it as a ping
	}
	kind, ids := t.payload(e.Type, data)
	t.request.EventNS = append(t.request.EventNS, ns)
	t.kinds.WriteByte(kind)
	t.ids = append(t.ids, ids)
}

func (t *transcript) payload(event string, data []byte) (kind byte, ids int) {
	number := len(t.ids)
	if string(data) == "[DONE]" {
		t.done = true
		return verify.EventDone, 0
	}
	if t.done {
		t.fail(verify.FailStream, "event %d comes after [DONE]", number)
		return verify.EventOther, 0
	}
	if !gjson.ValidBytes(data) {
		t.fail(verify.FailStream, "event %d is no JSON: %s", number, data)
		return verify.EventOther, 0
	}
	object := gjson.ParseBytes(data)
	if err := object.Get("error"); err.Exists() && err.Type != gjson.Null {
		t.fail(verify.FailServer, "%s", message(data))
		return verify.EventError, 0
	}
	if event == "error" {
		t.fail(verify.FailServer, "%s", message(data))
		return verify.EventError, 0
	}
	t.usage(object.Get("usage"))
	t.prompt(object.Get("prompt_token_ids"))
	kind = verify.EventOther
	object.Get("choices").ForEach(func(_, choice gjson.Result) bool {
		if index := choice.Get("index").Int(); index != 0 {
			t.fail(verify.FailStream, "event %d has choice %d, though one answer was asked for", number, index)
			return false
		}
		var n int
		kind, n = t.choice(choice)
		ids += n
		return true
	})
	return kind, ids
}

// choice reads text, reasoning, tool calls, ids and finish reason of one
// choice, in the forms of both the completions and the chat endpoint.
func (t *transcript) choice(choice gjson.Result) (kind byte, ids int) {
	kind = verify.EventOther
	delta := choice.Get("delta")
	text := choice.Get("text").Str + delta.Get("content").Str + delta.Get("refusal").Str
	reasoning := delta.Get("reasoning_content").Str
	if reasoning == "" {
		reasoning = delta.Get("reasoning").Str
	}
	tool := notEmpty(delta.Get("tool_calls")) || notEmpty(delta.Get("function_call"))
	list := choice.Get("token_ids")
	list.ForEach(func(_, id gjson.Result) bool {
		t.request.TokenIDs = append(t.request.TokenIDs, int32(id.Int()))
		ids++
		return true
	})
	switch {
	case text != "":
		kind = verify.EventContent
	case reasoning != "":
		kind = verify.EventReasoning
	case tool:
		kind = verify.EventTool
	case ids > 0:
		kind = verify.EventContent // a token without text, or half a rune
	}
	if kind != verify.EventOther {
		if ids > 0 {
			t.withIDs = true
		} else {
			t.without = true
		}
	}
	t.text.WriteString(text)
	t.reasoning.WriteString(reasoning)
	t.prompt(choice.Get("prompt_token_ids"))
	if finish := choice.Get("finish_reason"); finish.Str != "" {
		t.request.Finish = finish.Str
	}
	return kind, ids
}

func notEmpty(v gjson.Result) bool {
	return v.IsArray() && len(v.Array()) > 0 || v.IsObject() && len(v.Map()) > 0
}

func (t *transcript) prompt(list gjson.Result) {
	if !list.IsArray() || t.request.PromptIDs != nil {
		return
	}
	ids := make([]int32, 0, 256)
	list.ForEach(func(_, id gjson.Result) bool {
		ids = append(ids, int32(id.Int()))
		return true
	})
	t.request.PromptIDs = ids
}

func (t *transcript) usage(usage gjson.Result) {
	if !usage.IsObject() || !usage.Get("completion_tokens").Exists() {
		return
	}
	u := &verify.Usage{
		PromptTokens:     int(usage.Get("prompt_tokens").Int()),
		CompletionTokens: int(usage.Get("completion_tokens").Int()),
	}
	if cached := usage.Get("prompt_tokens_details.cached_tokens"); cached.Exists() {
		n := int(cached.Int())
		u.CachedTokens = &n
	}
	t.request.Usage = u
}

// finish writes what was collected. Ids count only if every token came with
// one: a server that gives some of them has given none.
func (t *transcript) finish() {
	r := t.request
	r.EventKinds = t.kinds.String()
	r.Text = strings.ToValidUTF8(t.text.String(), "�")
	r.Reasoning = strings.ToValidUTF8(t.reasoning.String(), "�")
	if t.withIDs && !t.without {
		r.EventIDs = t.ids
	} else {
		r.TokenIDs = nil
	}
	if r.Failure == nil && r.Usage != nil && r.EventIDs != nil && r.Usage.CompletionTokens != len(r.TokenIDs) {
		t.fail(verify.FailUsage, "the server counted %d tokens, but sent %d ids", r.Usage.CompletionTokens, len(r.TokenIDs))
	}
}

// message digs the text out of an error body, in any of its known clothes:
// {"error":{"message":…}}, {"error":"…"}, {"detail":…}, {"message":…}, or as
// it stands.
func message(body []byte) string {
	if gjson.ValidBytes(body) {
		for _, path := range []string{"error.message", "error", "detail", "message"} {
			if v := gjson.GetBytes(body, path); v.Exists() && v.Type != gjson.Null {
				return v.String()
			}
		}
	}
	return string(bytes.TrimSpace(body))
}
