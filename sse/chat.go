package sse

import (
	"encoding/json"
	"fmt"
	"slices"
)

// Message is one turn of a conversation. Role is system, user or assistant.
type Message struct {
	Role    string
	Content string
}

var chatShape = shape{
	prompt:     "messages",
	idPrefix:   "chatcmpl-",
	object:     "chat.completion",
	event:      "chat.completion.chunk",
	firstOpen:  `"delta":{"role":"assistant","content":"`,
	textOpen:   `"delta":{"content":"`,
	textClose:  `"}`,
	wholeOpen:  `"message":{"role":"assistant","content":"`,
	wholeClose: `","refusal":null}`,
	outerIDs:   true,
}

// chatParameters are the parameters of /v1/chat/completions.
var chatParameters = slices.Concat([]parameter{
	{name: "messages", read: readMessages},
	{name: newMaxTokens, read: readMaxTokens(newMaxTokens)},
	{name: "logprobs", neutral: []string{"false"}},
	{name: "top_logprobs"},
	{name: "response_format", neutral: []string{`{"type":"text"}`}},
	{name: "modalities", neutral: []string{`["text"]`}},
	{name: "tools", neutral: []string{"[]"}},
	{name: "tool_choice", neutral: []string{`"none"`, `"auto"`}},
	{name: "parallel_tool_calls", neutral: []string{"true", "false"}},
	{name: "functions", neutral: []string{"[]"}},
	{name: "function_call", neutral: []string{`"none"`, `"auto"`}},
	{name: "add_generation_prompt", neutral: []string{"true"}},
	{name: "continue_final_message", neutral: []string{"false"}},
	{name: "chat_template_kwargs", neutral: []string{"{}"}},
	{name: "service_tier", neutral: []string{`"auto"`, `"default"`}},
	{name: "store", neutral: []string{"false"}},
	{name: "metadata", neutral: []string{"{}"}},
	{name: "safety_identifier", read: readAnyString("safety_identifier")},
	{name: "prompt_cache_key", read: readAnyString("prompt_cache_key")},
	{name: "prompt_cache_options"},
	{name: "prompt_cache_retention"},
	{name: "audio"},
	{name: "moderation"},
	{name: "prediction"},
	{name: "reasoning_effort"},
	{name: "verbosity"},
	{name: "web_search_options"},
}, generationParameters)

// decodeChat reads the body of a chat completions request, as
// decodeCompletion does its own. An answer may fill the context where the
// body sets no bound, so the other endpoint's default isn't used.
func decodeChat(body []byte, limits Limits, _ int) (*request, *refusal) {
	q := new(request)
	if r := decodeObject(q, body, chatParameters, limits); r != nil {
		return nil, r
	}
	if q.messages == nil {
		return nil, refuse("messages", "missing_required_parameter", "messages is missing: send an array of messages, each with role and content")
	}
	if r := q.check(limits); r != nil {
		return nil, r
	}
	return q, nil
}

// roles are those that a message may have.
var roles = []string{"system", "user", "assistant"}

func readMessages(q *request, value json.RawMessage, _ Limits) *refusal {
	elements, r := readArray(value, "messages", "an array of messages")
	if r != nil {
		return r
	}
	if len(elements) == 0 {
		return refuse("messages", "invalid_value", "messages is empty: send at least one")
	}
	for i, e := range elements {
		m, r := readMessage(e, fmt.Sprintf("messages[%d]", i))
		if r != nil {
			return r
		}
		q.messages = append(q.messages, m)
	}
	return nil
}

// readMessage reads one message, named where in refusals. Members that a
// client's library sends with nothing in them are passed over.
func readMessage(value json.RawMessage, where string) (m Message, r *refusal) {
	hasContent := false
	r = eachMember(value, where, func(name string, value json.RawMessage) *refusal {
		full := where + "." + excerpt(name)
		switch name {
		case "role":
			if r := readString(value, full, &m.Role); r != nil {
				return r
			}
			if !slices.Contains(roles, m.Role) {
				return refuse(full, "unsupported_value", "%s = %q isn't supported, want system, user or assistant", full, excerpt(m.Role))
			}
			return nil
		case "content":
			hasContent = true
			return readContent(value, full, &m.Content)
		case "name", "refusal", "audio", "function_call", "tool_calls", "annotations":
			if isNull(value) || string(value) == "[]" || string(value) == `""` {
				return nil
			}
			return refuse(full, "unsupported_value", "%s isn't supported: leave it out", full)
		}
		return refuse(full, "unknown_parameter", "unknown parameter %q: it is refused because it might change the answer", full)
	})
	if r == nil && m.Role == "" {
		r = refuse(where+".role", "missing_required_parameter", "%s.role is missing, want system, user or assistant", where)
	}
	if r == nil && !hasContent {
		r = refuse(where+".content", "missing_required_parameter", "%s.content is missing, want text", where)
	}
	return m, r
}

// readContent reads a message's content: text, or a list of one part that is
// text. How more parts are joined is not the template's to say.
func readContent(value json.RawMessage, where string, to *string) *refusal {
	if value[0] != '[' {
		return readString(value, where, to)
	}
	parts, r := readArray(value, where, "text")
	if r != nil {
		return r
	}
	if len(parts) != 1 {
		return refuse(where, "unsupported_value", "%s holds %d parts: send one text", where, len(parts))
	}
	var kind, text, other string
	where += "[0]"
	r = eachMember(parts[0], where, func(name string, value json.RawMessage) *refusal {
		full := where + "." + excerpt(name)
		switch name {
		case "type":
			return readString(value, full, &kind)
		case "text":
			return readString(value, full, &text)
		}
		if other == "" {
			other = full
		}
		return nil
	})
	if r != nil {
		return r
	}
	// The kind is what is refused, wherever among the members it stands.
	if kind != "text" {
		return refuse(where+".type", "unsupported_value", "%s.type = %q isn't supported, want \"text\"", where, excerpt(kind))
	}
	if other != "" {
		return refuse(other, "unknown_parameter", "unknown parameter %q: it is refused because it might change the answer", other)
	}
	*to = text
	return nil
}
