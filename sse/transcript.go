package sse

import (
	"bytes"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/tidwall/gjson"

	"servebench/verify"
)

// transcript reads the payloads of a stream's events into a request's record,
// in whatever dialect they come. What it takes for what is in PROTOCOL.md,
// "How answers of other servers are read".
type transcript struct {
	request   *verify.Request
	kinds     []byte // of each event so far; bare where only ids came
	text      []byte
	reasoning []byte
	ids       []int // in each event so far
	withIDs   bool  // some event has ids
	without   bool  // some event has a token, and nothing said of ids
	cached    *int  // cache hits that stand outside the usage
	done      bool
}

// bare stands for the kind of an event with ids and nothing to show for them:
// half a rune, the end token, a tag that a parser keeps to itself. finish
// replaces it.
const bare = 0

func (t *transcript) fail(class, format string, args ...any) {
	if t.request.Failure == nil {
		t.request.Failure = &verify.Failure{Class: class, Message: fmt.Sprintf(format, args...)}
	}
}

// event takes one event that arrived at ns. Pings aren't recorded.
func (t *transcript) event(e Event, ns int64) {
	data := bytes.TrimSpace(e.Data)
	switch e.Type {
	case "error":
		t.fail(verify.FailServer, "%s", message(data))
		t.add(verify.EventError, 0, ns)
		return
	case "ping", "heartbeat", "keepalive", "keep-alive":
		return
	}
	if len(data) == 0 {
		return
	}
	if string(data) == "[DONE]" {
		if !t.done { // some proxies add theirs to the server's
			t.done = true
			t.add(verify.EventDone, 0, ns)
		}
		return
	}
	number := len(t.kinds)
	if t.done {
		t.fail(verify.FailStream, "event %d comes after [DONE]", number)
		t.add(verify.EventOther, 0, ns)
		return
	}
	if !validJSON(data) {
		t.fail(verify.FailStream, "event %d is no JSON: %s", number, clip(data))
		t.add(verify.EventOther, 0, ns)
		return
	}
	kind, ids := t.chunk(number, gjson.ParseBytes(data))
	t.add(kind, ids, ns)
}

func (t *transcript) add(kind byte, ids int, ns int64) {
	t.request.EventNS = append(t.request.EventNS, ns)
	t.kinds = append(t.kinds, kind)
	t.ids = append(t.ids, ids)
}

// chunk takes event number's payload, one JSON value.
func (t *transcript) chunk(number int, object gjson.Result) (kind byte, ids int) {
	var trouble complaint
	var choices gjson.Result
	object.ForEach(func(key, value gjson.Result) bool {
		switch key.Str {
		case "choices":
			choices = value
		case "usage":
			t.usage(value)
		case "x_groq":
			t.usage(value.Get("usage"))
		case "timings": // of llama.cpp
			t.cacheHits(value.Get("cache_n"))
		case "prompt_token_ids":
			t.prompt(number, value)
		default:
			trouble.member(key.Str, value)
		}
		return true
	})
	if trouble.isError(choices.IsArray()) {
		t.fail(verify.FailServer, "%s", message([]byte(object.Raw)))
		return verify.EventError, 0
	}
	if !choices.IsArray() {
		return verify.EventOther, 0
	}
	kind = verify.EventOther
	choices.ForEach(func(_, choice gjson.Result) bool {
		k, n := t.choice(number, choice)
		ids += n
		if rank(k) > rank(kind) {
			kind = k
		}
		return kind != verify.EventError
	})
	if kind == verify.EventError {
		t.request.TokenIDs = t.request.TokenIDs[:len(t.request.TokenIDs)-ids]
		return kind, 0
	}
	return kind, ids
}

// rank orders kinds by what an event with several of them is.
func rank(kind byte) int {
	return strings.IndexByte("o\x00trce", kind)
}

// complaint gathers the members of a payload that say that it is an error.
type complaint struct {
	error    gjson.Result
	byType   bool // "type" or "object" says so
	code     bool // there is a code
	text     bool // there is a message
	detail   bool // FastAPI's
	numbered bool // FastChat's error_code
}

func (c *complaint) member(name string, value gjson.Result) {
	switch name {
	case "error":
		c.error = value
	case "type", "object":
		c.byType = c.byType || value.Str == "error"
	case "code", "statusCode", "status_code":
		c.code = c.code || something(value)
	case "message":
		c.text = value.Str != ""
	case "detail":
		c.detail = something(value)
	case "error_code":
		c.numbered = something(value)
	}
}

// isError tells whether it is one. Beside choices only an error with content
// counts: some servers fill in every member of every chunk.
func (c *complaint) isError(choices bool) bool {
	if something(c.error) || c.byType {
		return true
	}
	if choices {
		return false
	}
	return c.error.Exists() && c.error.Type != gjson.Null || c.detail || c.numbered || c.code && c.text
}

// something tells whether a value is more than null, false, 0, "", [] or {}.
func something(v gjson.Result) bool {
	switch v.Type {
	case gjson.True:
		return true
	case gjson.String:
		return v.Str != ""
	case gjson.Number:
		return v.Num != 0
	case gjson.JSON:
		found := false
		v.ForEach(func(_, _ gjson.Result) bool { found = true; return false })
		return found
	}
	return false
}

// choice reads text, reasoning, tool calls, ids and finish reason of one
// choice, in the forms of both the completions and the chat endpoint.
func (t *transcript) choice(number int, choice gjson.Result) (kind byte, ids int) {
	said, thought := len(t.text), len(t.reasoning)
	var wordless wordless
	var list, finish, failure gjson.Result
	index := int64(0)
	choice.ForEach(func(key, value gjson.Result) bool {
		switch key.Str {
		case "index":
			index = value.Int()
		case "text":
			t.text = append(t.text, value.Str...)
		case "delta":
			wordless = t.delta(value)
		case "token_ids":
			list = value
		case "prompt_token_ids":
			t.prompt(number, value)
		case "finish_reason", "finishReason": // Gemini had both, one of them empty
			if value.Str != "" {
				finish = value
			}
		case "usage": // Moonshot's place for it
			t.usage(value)
		case "error": // OpenRouter's
			failure = value
		}
		return true
	})
	kind = verify.EventError
	switch {
	case index != 0:
		t.fail(verify.FailStream, "event %d has choice %d, though one answer was asked for", number, index)
		kind = verify.EventOther
	case something(failure):
		t.fail(verify.FailServer, "%s", message([]byte(choice.Raw)))
	case finish.Str == "error" || finish.Str == "abort":
		t.fail(verify.FailServer, "the server gives finish_reason %q", finish.Str)
	default:
		kind = verify.EventContent
	}
	if kind != verify.EventContent {
		t.text, t.reasoning = t.text[:said], t.reasoning[:thought]
		return kind, 0
	}
	if finish.Str != "" {
		t.request.Finish = finish.Str
	}
	before := len(t.request.TokenIDs)
	t.request.TokenIDs = t.appendIDs(t.request.TokenIDs, number, list)
	ids = len(t.request.TokenIDs) - before
	switch {
	case len(t.text) > said || wordless.audio:
	case len(t.reasoning) > thought || wordless.reasoning:
		kind = verify.EventReasoning
	case wordless.tool:
		kind = verify.EventTool
	case ids > 0:
		kind = bare
	default:
		return verify.EventOther, 0
	}
	t.withIDs = t.withIDs || ids > 0
	// [] says that this event has the text of tokens that were counted before.
	t.without = t.without || !list.IsArray()
	return kind, ids
}

// wordless says what a delta has that was generated and is no text.
type wordless struct {
	reasoning bool // enciphered
	tool      bool // a piece of a call
	audio     bool // samples
}

func (t *transcript) delta(delta gjson.Result) (w wordless) {
	said := len(t.text)
	var thoughts [3]string // one reasoning, by names of which some servers give several
	var details gjson.Result
	hidden := false
	delta.ForEach(func(key, value gjson.Result) bool {
		switch key.Str {
		case "content":
			t.content(value)
		case "refusal":
			t.text = append(t.text, value.Str...)
		case "reasoning_content":
			thoughts[0] = value.Str
		case "reasoning":
			thoughts[1] = value.Str
		case "thinking":
			thoughts[2] = value.Str
		case "reasoning_details", "thinking_blocks":
			details = value
		case "tool_calls":
			value.ForEach(func(_, call gjson.Result) bool {
				w.tool = w.tool || called(call.Get("function")) || called(call.Get("custom"))
				return true
			})
		case "function_call":
			w.tool = w.tool || called(value)
		case "audio":
			t.text = append(t.text, value.Get("transcript").Str...)
			w.audio = w.audio || value.Get("data").Str != ""
		case "extra_content": // Gemini's
			hidden = value.Get("google.thought").Bool()
		}
		return true
	})
	if hidden {
		t.reasoning = append(t.reasoning, t.text[said:]...)
		t.text = t.text[:said]
	}
	for _, thought := range thoughts {
		if thought != "" {
			t.reasoning = append(t.reasoning, thought...)
			return w
		}
	}
	details.ForEach(func(_, detail gjson.Result) bool {
		for _, name := range []string{"text", "summary", "thinking"} {
			t.reasoning = append(t.reasoning, detail.Get(name).Str...)
		}
		w.reasoning = w.reasoning || detail.Get("data").Str != ""
		return true
	})
	return w
}

// content takes text, or an array of parts of text and of thinking.
func (t *transcript) content(value gjson.Result) {
	if !value.IsArray() {
		t.text = append(t.text, value.Str...)
		return
	}
	value.ForEach(func(_, part gjson.Result) bool {
		t.text = append(append(t.text, part.Get("text").Str...), part.Get("refusal").Str...)
		thinking := part.Get("thinking")
		t.reasoning = append(t.reasoning, thinking.Str...)
		if thinking.IsArray() {
			thinking.ForEach(func(_, piece gjson.Result) bool {
				t.reasoning = append(t.reasoning, piece.Get("text").Str...)
				return true
			})
		}
		return true
	})
}

// called tells whether a piece of a call has anything that was generated: its
// id and type weren't.
func called(function gjson.Result) bool {
	for _, name := range []string{"name", "arguments", "input"} {
		if something(function.Get(name)) {
			return true
		}
	}
	return false
}

func (t *transcript) prompt(number int, list gjson.Result) {
	if list.IsArray() && t.request.PromptIDs == nil {
		t.request.PromptIDs = t.appendIDs(make([]int32, 0, 256), number, list)
	}
}

func (t *transcript) appendIDs(ids []int32, number int, list gjson.Result) []int32 {
	if !list.IsArray() {
		return ids
	}
	list.ForEach(func(_, id gjson.Result) bool {
		n, ok := count(id)
		if !ok {
			t.fail(verify.FailStream, "event %d has %s for a token id, want an integer from 0", number, clip([]byte(id.Raw)))
		}
		ids = append(ids, int32(n))
		return true
	})
	return ids
}

// count returns an integer from 0 to 2^31-1; else 0 and false.
func count(v gjson.Result) (n int, ok bool) {
	if v.Type != gjson.Number || !(v.Num >= 0 && v.Num <= math.MaxInt32) || v.Num != math.Trunc(v.Num) {
		return 0, false
	}
	return int(v.Num), true
}

// usage takes a usage object; the last one that counts the answer's tokens
// stands.
func (t *transcript) usage(usage gjson.Result) {
	if !usage.IsObject() {
		return
	}
	var prompt, completion, total, reasoning gjson.Result
	cached := []gjson.Result{}
	usage.ForEach(func(key, value gjson.Result) bool {
		switch key.Str {
		case "prompt_tokens":
			prompt = value
		case "completion_tokens":
			completion = value
		case "total_tokens":
			total = value
		case "completion_tokens_details":
			reasoning = value.Get("reasoning_tokens")
		case "prompt_tokens_details":
			cached = append(cached, value.Get("cached_tokens"))
		case "cached_tokens", "prompt_cache_hit_tokens", "cache_read_input_tokens":
			cached = append(cached, value)
		}
		return true
	})
	if !completion.Exists() || completion.Type == gjson.Null {
		return
	}
	u := &verify.Usage{}
	var ok [2]bool
	u.PromptTokens, ok[0] = count(prompt)
	u.CompletionTokens, ok[1] = count(completion)
	if !ok[0] && prompt.Exists() || !ok[1] {
		t.fail(verify.FailUsage, "usage has prompt_tokens %s and completion_tokens %s, want integers from 0", clip([]byte(prompt.Raw)), clip([]byte(completion.Raw)))
	}
	// xAI counts a reasoning beside the answer, others within it: the total tells.
	if hidden, ok := count(reasoning); ok && total.Num == float64(u.PromptTokens+u.CompletionTokens+hidden) {
		u.CompletionTokens += hidden
	}
	for _, hits := range cached {
		if n, ok := count(hits); ok && (u.CachedTokens == nil || n > *u.CachedTokens) {
			u.CachedTokens = &n
		}
	}
	t.request.Usage = u
}

func (t *transcript) cacheHits(v gjson.Result) {
	if n, ok := count(v); ok {
		t.cached = &n
	}
}

// finish writes what was collected. Ids count only if every token came with
// one: a server that gives some of them has given none.
func (t *transcript) finish() {
	r := t.request
	t.nameBare()
	r.EventKinds = string(t.kinds)
	r.Text = strings.ToValidUTF8(string(t.text), "�")
	r.Reasoning = strings.ToValidUTF8(string(t.reasoning), "�")
	r.Finish = strings.ToValidUTF8(r.Finish, "�")
	if t.withIDs && !t.without {
		r.EventIDs = t.ids
	} else {
		r.TokenIDs = nil
	}
	if r.Usage != nil && r.Usage.CachedTokens == nil {
		r.Usage.CachedTokens = t.cached
	}
}

// compareCounts fails an answer, whole as far as it goes, whose usage can't be
// of its stream.
func (t *transcript) compareCounts() {
	r := t.request
	if r.Usage == nil {
		return
	}
	events := 0 // that carry a token
	for _, kind := range t.kinds {
		if kind == verify.EventContent || kind == verify.EventReasoning || kind == verify.EventTool {
			events++
		}
	}
	switch n := r.Usage.CompletionTokens; {
	case r.EventIDs != nil && !countsAgree(n, r):
		t.fail(verify.FailUsage, "the server counted %d tokens, but sent %d ids", n, len(r.TokenIDs))
	case n == 0 && events > 0, r.EventIDs == nil && events > n+1:
		// One more is let be: text that was held back may come by itself at the end.
		t.fail(verify.FailUsage, "the server counted %d tokens, but sent %d events with some: it counts something else, or events aren't sent token by token", n, events)
	}
}

// countsAgree tells whether the server's count is that of its ids. The end
// token of an answer that ended by itself may be in one of them only.
func countsAgree(n int, r *verify.Request) bool {
	off := n - len(r.TokenIDs)
	return off == 0 || r.Finish == "stop" && (off == 1 || off == -1)
}

// nameBare gives events with nothing but ids the kind of the last token that
// showed one, before the first of those its kind: tags around a reasoning are
// part of it, and don't count as the answer's begin.
func (t *transcript) nameBare() {
	shows := func(kind byte) bool {
		return kind == verify.EventContent || kind == verify.EventReasoning || kind == verify.EventTool
	}
	last := byte(verify.EventContent)
	if i := slices.IndexFunc(t.kinds, shows); i >= 0 {
		last = t.kinds[i]
	}
	for i, kind := range t.kinds {
		switch {
		case kind == bare:
			t.kinds[i] = last
		case shows(kind):
			last = kind
		}
	}
}

// message digs the text out of an error's JSON, in any of its known clothes:
// {"error":{"message":…}}, {"error":"…"}, {"detail":…}, {"message":…}, or as
// it stands. A choice's error is dug out likewise.
func message(body []byte) string {
	if validJSON(body) {
		for _, path := range []string{"error.message", "error", "detail", "message"} {
			if v := gjson.GetBytes(body, path); something(v) {
				return v.String()
			}
		}
		if v := gjson.GetBytes(body, "error"); v.Exists() {
			return ""
		}
	}
	return string(bytes.TrimSpace(body))
}

// validJSON tells whether data is one JSON value, of a depth that any sane
// payload has: gjson calls itself for each level, and a stack that overflows
// ends the process.
func validJSON(data []byte) bool {
	const deepest = 10_000 // encoding/json's limit too
	depth, text := 0, false
	if len(data) <= deepest {
		return gjson.ValidBytes(data)
	}
	for i := 0; i < len(data); i++ {
		switch c := data[i]; {
		case text && c == '\\':
			i++
		case c == '"':
			text = !text
		case text:
		case c == '[' || c == '{':
			if depth++; depth > deepest {
				return false
			}
		case c == ']' || c == '}':
			depth--
		}
	}
	return gjson.ValidBytes(data)
}

// clip shortens what a message quotes.
func clip(data []byte) []byte {
	const most = 1000
	return data[:min(len(data), most)]
}
