package sse

import (
	"errors"
	"fmt"
	"io"
	"reflect"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// plainChat renders a conversation for the model of bytes.
func plainChat(messages []Message) (string, error) {
	var b strings.Builder
	for _, m := range messages {
		if m.Content == "unspeakable" {
			return "", errors.New("no words for it")
		}
		fmt.Fprintf(&b, "%s:%s\n", m.Role[:1], m.Content)
	}
	return b.String() + "a:", nil
}

func TestChatStreamIsExact(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		model := &byteModel{script: []byte("Hé"), endAt: 4, prefill: 70 * time.Millisecond, step: 20 * time.Millisecond}
		r := newRig(t, model, Options{Model: "m", Chat: plainChat}, nil)
		resp, conn := r.post("/v1/chat/completions", "c", `{"model":"m","messages":[{"role":"user","content":"x"}],"stream":true,
			"stream_options":{"include_usage":true},"return_token_ids":true,"return_stamps":true}`)
		defer conn.Close()
		base := r.clock.Absolute(1)
		head := fmt.Sprintf(`{"id":"chatcmpl-c","object":"chat.completion.chunk","created":%d,"model":"m","choices":`, time.Now().Unix())
		ms := func(n int64) int64 { return base + n*int64(time.Millisecond) }
		want := []got{
			{70 * time.Millisecond, fmt.Sprintf(`%s[{"index":0,"delta":{"role":"assistant","content":"H"},"logprobs":null,"finish_reason":null,"token_ids":[72],"stamp_ns":%d}],"prompt_token_ids":[117,58,120,10,97,58]}`, head, ms(70))},
			{90 * time.Millisecond, fmt.Sprintf(`%s[{"index":0,"delta":{"content":""},"logprobs":null,"finish_reason":null,"token_ids":[195],"stamp_ns":%d}]}`, head, ms(90))},
			{110 * time.Millisecond, fmt.Sprintf(`%s[{"index":0,"delta":{"content":"é"},"logprobs":null,"finish_reason":null,"token_ids":[169],"stamp_ns":%d}]}`, head, ms(110))},
			{130 * time.Millisecond, fmt.Sprintf(`%s[{"index":0,"delta":{"content":""},"logprobs":null,"finish_reason":"stop","token_ids":[256],"stamp_ns":%d}]}`, head, ms(130))},
			{130 * time.Millisecond, head + `[],"usage":{"prompt_tokens":6,"completion_tokens":4,"total_tokens":10}}`},
			{130 * time.Millisecond, "[DONE]"},
		}
		if got := r.events(resp.Body); !reflect.DeepEqual(got, want) {
			t.Errorf("events:\n%v\nwant:\n%v", got, want)
		}
		if log := r.served(); len(log) != 1 || log[0].Error != "" || log[0].Steps != 4 || !reflect.DeepEqual(log[0].PromptIDs, []int32{117, 58, 120, 10, 97, 58}) {
			t.Errorf("log = %+v, want the prompt u:x\\na: and 4 steps", log)
		}
	})
}

func TestChatInOnePiece(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, &byteModel{script: []byte("Hé")}, Options{Model: "m", Chat: plainChat}, nil)
		resp, conn := r.post("/v1/chat/completions", "c", `{"messages":[{"role":"system","content":"s"},{"role":"user","content":[{"type":"text","text":"x"}]}],"max_completion_tokens":3,"return_token_ids":true}`)
		defer conn.Close()
		want := fmt.Sprintf(`{"id":"chatcmpl-c","object":"chat.completion","created":%d,"model":"m","choices":[{"index":0,"message":{"role":"assistant","content":"Hé","refusal":null},"logprobs":null,"finish_reason":"length","token_ids":[72,195,169]}],"usage":{"prompt_tokens":10,"completion_tokens":3,"total_tokens":13},"prompt_token_ids":[115,58,115,10,117,58,120,10,97,58]}`, time.Now().Unix())
		body, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		if resp.StatusCode != 200 || string(body) != want {
			t.Errorf("%d\n%s\nwant\n%s", resp.StatusCode, body, want)
		}
	})
}

// Where a chat sets no bound, the answer may fill the context.
func TestChatWithoutBound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		model := &byteModel{script: []byte("z")}
		r := newRig(t, model, Options{Chat: plainChat}, nil)
		_, _, body := r.whole("POST", "/v1/chat/completions", `{"messages":[{"role":"user","content":"x"}]}`)
		if !strings.Contains(body, `"finish_reason":"length"`) || !strings.Contains(body, `"total_tokens":64}`) {
			t.Errorf("answer = %s, want one that ends with the context of 64", body)
		}
	})
}

func TestNoChatTemplate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, &byteModel{script: []byte("z")}, Options{Model: "m"}, nil)
		want := `{"error":{"message":"model \"m\" has no chat template that this server knows: use /v1/completions","type":"invalid_request_error","param":null,"code":"not_found"}}`
		for _, path := range []string{"/v1/chat/completions", "/tokenize"} {
			if status, _, body := r.whole("POST", path, `{"messages":[{"role":"user","content":"x"}]}`); status != 404 || body != want {
				t.Errorf("%s: %d %s, want 404 %s", path, status, body, want)
			}
		}
	})
}

func TestChatRefusals(t *testing.T) {
	const ask = `"messages":[{"role":"user","content":"x"}]`
	tests := []struct{ name, body, param, code, message string }{
		{"no messages", `{}`, "messages", "missing_required_parameter", "messages is missing: send an array of messages, each with role and content"},
		{"a prompt", `{"prompt":"x"}`, "prompt", "unknown_parameter", `unknown parameter "prompt": it is refused because it might change the answer`},
		{"messages as text", `{"messages":"x"}`, "messages", "invalid_type", "messages is text, want an array of messages"},
		{"no message", `{"messages":[]}`, "messages", "invalid_value", "messages is empty: send at least one"},
		{"a message as text", `{"messages":["x"]}`, "messages[0]", "invalid_type", "messages[0] is text, want an object"},
		{"no role", `{"messages":[{"content":"x"}]}`, "messages[0].role", "missing_required_parameter", "messages[0].role is missing, want system, user or assistant"},
		{"no content", `{"messages":[{"role":"user"}]}`, "messages[0].content", "missing_required_parameter", "messages[0].content is missing, want text"},
		{"null content", `{"messages":[{"role":"assistant","content":null}]}`, "messages[0].content", "invalid_type", "messages[0].content is null, want text"},
		{"role twice", `{"messages":[{"role":"user","role":"system","content":"x"}]}`, "messages[0].role", "duplicate_parameter", "messages[0].role is given twice"},
		{"a tool's role", `{"messages":[{"role":"user","content":"x"},{"role":"tool","content":"x"}]}`, "messages[1].role", "unsupported_value", `messages[1].role = "tool" isn't supported, want system, user or assistant`},
		{"tool calls", `{"messages":[{"role":"assistant","content":"x","tool_calls":[{}]}]}`, "messages[0].tool_calls", "unsupported_value", "messages[0].tool_calls isn't supported: leave it out"},
		{"a name", `{"messages":[{"role":"user","content":"x","name":"Ann"}]}`, "messages[0].name", "unsupported_value", "messages[0].name isn't supported: leave it out"},
		{"an unknown member", `{"messages":[{"role":"user","content":"x","weight":1}]}`, "messages[0].weight", "unknown_parameter", `unknown parameter "messages[0].weight": it is refused because it might change the answer`},
		{"two parts", `{"messages":[{"role":"user","content":[{"type":"text","text":"x"},{"type":"text","text":"y"}]}]}`, "messages[0].content", "unsupported_value", "messages[0].content holds 2 parts: send one text"},
		{"a picture", `{"messages":[{"role":"user","content":[{"type":"image_url","image_url":{"url":"data:"}}]}]}`, "messages[0].content[0].type", "unsupported_value", `messages[0].content[0].type = "image_url" isn't supported, want "text"`},
		{"a picture, its kind last", `{"messages":[{"role":"user","content":[{"image_url":{"url":"data:"},"type":"image_url"}]}]}`, "messages[0].content[0].type", "unsupported_value", `messages[0].content[0].type = "image_url" isn't supported, want "text"`},
		{"a part with more", `{"messages":[{"role":"user","content":[{"type":"text","text":"x","cache_control":{}}]}]}`, "messages[0].content[0].cache_control", "unknown_parameter", `unknown parameter "messages[0].content[0].cache_control": it is refused because it might change the answer`},
		{"half a surrogate pair", `{"messages":[{"role":"user","content":"\udc00"}]}`, "messages[0].content", "invalid_value", `messages[0].content has half a surrogate pair, \udc00, which stands for no character`},
		{"two bounds", `{` + ask + `,"max_tokens":4,"max_completion_tokens":4}`, "max_completion_tokens", "duplicate_parameter", "max_completion_tokens: the bound of the answer is given twice, as max_tokens and max_completion_tokens: send one"},
		{"max_completion_tokens as the context", `{` + ask + `,"max_completion_tokens":100}`, "max_completion_tokens", "context_length_exceeded", "max_completion_tokens = 100 leaves no room for a prompt: the context holds 100 tokens of prompt and answer together"},
		{"min_tokens above max_completion_tokens", `{` + ask + `,"max_completion_tokens":4,"min_tokens":5,"ignore_eos":true}`, "min_tokens", "invalid_value", "min_tokens = 5 is above max_completion_tokens = 4"},
		{"max_completion_tokens 0", `{` + ask + `,"max_completion_tokens":0}`, "max_completion_tokens", "invalid_value", "max_completion_tokens = 0, want at least 1"},
		{"logprobs", `{` + ask + `,"logprobs":true}`, "logprobs", "unsupported_value", "logprobs = true isn't supported: leave it out or send false"},
		{"top_logprobs", `{` + ask + `,"top_logprobs":2}`, "top_logprobs", "unsupported_value", "top_logprobs = 2 isn't supported: leave it out"},
		{"response_format", `{` + ask + `,"response_format":{"type":"json_object"}}`, "response_format", "unsupported_value", `response_format = {"type":"json_object"} isn't supported: leave it out or send {"type":"text"}`},
		{"modalities", `{` + ask + `,"modalities":["audio"]}`, "modalities", "unsupported_value", `modalities = ["audio"] isn't supported: leave it out or send ["text"]`},
		{"tools", `{` + ask + `,"tools":[{"type":"function"}]}`, "tools", "unsupported_value", `tools = [{"type":"function"}] isn't supported: leave it out or send []`},
		{"tool_choice", `{` + ask + `,"tool_choice":"required"}`, "tool_choice", "unsupported_value", `tool_choice = "required" isn't supported: leave it out or send "none" or "auto"`},
		{"parallel_tool_calls", `{` + ask + `,"parallel_tool_calls":1}`, "parallel_tool_calls", "unsupported_value", "parallel_tool_calls = 1 isn't supported: leave it out or send true or false"},
		{"functions", `{` + ask + `,"functions":[{}]}`, "functions", "unsupported_value", "functions = [{}] isn't supported: leave it out or send []"},
		{"function_call", `{` + ask + `,"function_call":{"name":"f"}}`, "function_call", "unsupported_value", `function_call = {"name":"f"} isn't supported: leave it out or send "none" or "auto"`},
		{"add_generation_prompt", `{` + ask + `,"add_generation_prompt":false}`, "add_generation_prompt", "unsupported_value", "add_generation_prompt = false isn't supported: leave it out or send true"},
		{"continue_final_message", `{` + ask + `,"continue_final_message":true}`, "continue_final_message", "unsupported_value", "continue_final_message = true isn't supported: leave it out or send false"},
		{"chat_template_kwargs", `{` + ask + `,"chat_template_kwargs":{"enable_thinking":false}}`, "chat_template_kwargs", "unsupported_value", `chat_template_kwargs = {"enable_thinking":false} isn't supported: leave it out or send {}`},
		{"service_tier", `{` + ask + `,"service_tier":"flex"}`, "service_tier", "unsupported_value", `service_tier = "flex" isn't supported: leave it out or send "auto" or "default"`},
		{"store", `{` + ask + `,"store":true}`, "store", "unsupported_value", "store = true isn't supported: leave it out or send false"},
		{"metadata", `{` + ask + `,"metadata":{"a":"b"}}`, "metadata", "unsupported_value", `metadata = {"a":"b"} isn't supported: leave it out or send {}`},
		{"safety_identifier as a number", `{` + ask + `,"safety_identifier":1}`, "safety_identifier", "invalid_type", "safety_identifier is a number, want text"},
		{"prompt_cache_key as a number", `{` + ask + `,"prompt_cache_key":1}`, "prompt_cache_key", "invalid_type", "prompt_cache_key is a number, want text"},
		{"temperature", `{` + ask + `,"temperature":0.2}`, "temperature", "unsupported_value", "temperature = 0.2 isn't supported: leave it out or send 0"},
		{"prompt_cache_options", `{` + ask + `,"prompt_cache_options":{}}`, "prompt_cache_options", "unsupported_value", "prompt_cache_options = {} isn't supported: leave it out"},
		{"prompt_cache_retention", `{` + ask + `,"prompt_cache_retention":"24h"}`, "prompt_cache_retention", "unsupported_value", `prompt_cache_retention = "24h" isn't supported: leave it out`},
		{"audio", `{` + ask + `,"audio":{"voice":"alloy"}}`, "audio", "unsupported_value", `audio = {"voice":"alloy"} isn't supported: leave it out`},
		{"moderation", `{` + ask + `,"moderation":{}}`, "moderation", "unsupported_value", "moderation = {} isn't supported: leave it out"},
		{"prediction", `{` + ask + `,"prediction":{"type":"content"}}`, "prediction", "unsupported_value", `prediction = {"type":"content"} isn't supported: leave it out`},
		{"reasoning_effort", `{` + ask + `,"reasoning_effort":"low"}`, "reasoning_effort", "unsupported_value", `reasoning_effort = "low" isn't supported: leave it out`},
		{"verbosity", `{` + ask + `,"verbosity":"low"}`, "verbosity", "unsupported_value", `verbosity = "low" isn't supported: leave it out`},
		{"web_search_options", `{` + ask + `,"web_search_options":{}}`, "web_search_options", "unsupported_value", "web_search_options = {} isn't supported: leave it out"},
		{"an unknown parameter", `{` + ask + `,"thinking":"low"}`, "thinking", "unknown_parameter", `unknown parameter "thinking": it is refused because it might change the answer`},
	}
	refused := map[string]bool{"messages": true}
	for _, test := range tests {
		q, r := decodeChat([]byte(test.body), requestLimits, 16)
		want := &refusal{400, test.param, test.code, test.message}
		if !reflect.DeepEqual(r, want) {
			t.Errorf("%s: decodeChat(%s)\n= %+v, %+v\nwant %+v", test.name, test.body, q, r, want)
		}
		refused[test.param] = true
	}
	for _, p := range generationParameters {
		refused[p.name] = true // by TestRefusals
	}
	for _, p := range chatParameters {
		if !refused[p.name] {
			t.Errorf("no case refuses a value of %s", p.name)
		}
		if p.name == "messages" {
			continue
		}
		values := append([]string{"null"}, p.neutral...)
		for _, v := range values {
			if _, r := decodeChat([]byte(`{`+ask+`,"`+p.name+`":`+v+`}`), requestLimits, 16); r != nil {
				t.Errorf("%s = %s: %v, want it accepted", p.name, v, r)
			}
		}
	}
}

// What the libraries of others send with nothing in it is accepted.
func TestChatMessagesOfClients(t *testing.T) {
	q, r := decodeChat([]byte(`{"messages":[{"role":"system","content":"s","name":null},
		{"role":"assistant","content":"a","refusal":null,"tool_calls":[],"function_call":null,"audio":null,"annotations":[]},
		{"content":[{"text":"u","type":"text"}],"role":"user","name":""}]}`), requestLimits, 16)
	if want := []Message{{"system", "s"}, {"assistant", "a"}, {"user", "u"}}; r != nil || !reflect.DeepEqual(q.messages, want) || q.tokens != 0 {
		t.Errorf("messages = %+v (%v), want %+v without a bound", q, r, want)
	}
}

func TestChatThatCannotBeRendered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, &byteModel{script: []byte("z")}, Options{Chat: plainChat}, nil)
		want := `{"error":{"message":"messages can't be rendered: no words for it","type":"invalid_request_error","param":"messages","code":"invalid_value"}}`
		if status, _, body := r.whole("POST", "/v1/chat/completions", `{"messages":[{"role":"user","content":"unspeakable"}]}`); status != 400 || body != want {
			t.Errorf("%d %s, want 400 %s", status, body, want)
		}
		want = `{"error":{"message":"messages has 6 tokens and min_tokens is 59, want at most 64 together","type":"invalid_request_error","param":"min_tokens","code":"context_length_exceeded"}}`
		if status, _, body := r.whole("POST", "/v1/chat/completions", `{"messages":[{"role":"user","content":"x"}],"min_tokens":59,"ignore_eos":true}`); status != 400 || body != want {
			t.Errorf("%d %s, want 400 %s", status, body, want)
		}
		want = `{"error":{"message":"messages has 65 tokens, want at most 63: the context holds 64 of prompt and answer together","type":"invalid_request_error","param":"messages","code":"context_length_exceeded"}}`
		if status, _, body := r.whole("POST", "/v1/chat/completions", `{"messages":[{"role":"user","content":"`+strings.Repeat("x", 60)+`"}]}`); status != 400 || body != want {
			t.Errorf("%d %s, want 400 %s", status, body, want)
		}
	})
}

func TestTokenize(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		model := &byteModel{script: []byte("z")}
		r := newRig(t, model, Options{Model: "m", Chat: plainChat}, nil)
		tests := []struct {
			body   string
			status int
			want   string
		}{
			{`{"model":"m","prompt":"Az"}`, 200, `{"count":2,"max_model_len":64,"tokens":[65,122]}`},
			{`{"content":"Az","add_special":false,"with_pieces":false}`, 200, `{"count":2,"max_model_len":64,"tokens":[65,122]}`},
			{`{"model":"m","prompt":"Az","content":"Az"}`, 200, `{"count":2,"max_model_len":64,"tokens":[65,122]}`},
			{`{"messages":[{"role":"user","content":"x"}]}`, 200, `{"count":6,"max_model_len":64,"tokens":[117,58,120,10,97,58]}`},
			{`{"prompt":""}`, 200, `{"count":0,"max_model_len":64,"tokens":[]}`},
			{`{"prompt":"Az","content":"A"}`, 400, `{"error":{"message":"prompt and content differ: send one of them","type":"invalid_request_error","param":"content","code":"invalid_value"}}`},
			{`{}`, 400, `{"error":{"message":"send either prompt (or content), a text, or messages","type":"invalid_request_error","param":"prompt","code":"missing_required_parameter"}}`},
			{`{"prompt":"x","messages":[{"role":"user","content":"x"}]}`, 400, `{"error":{"message":"send either prompt (or content), a text, or messages","type":"invalid_request_error","param":"prompt","code":"missing_required_parameter"}}`},
			{`{"prompt":[65]}`, 400, `{"error":{"message":"prompt is an array, want text","type":"invalid_request_error","param":"prompt","code":"invalid_type"}}`},
			{`{"prompt":"x","add_special_tokens":true}`, 400, `{"error":{"message":"add_special_tokens = true isn't supported: leave it out or send false","type":"invalid_request_error","param":"add_special_tokens","code":"unsupported_value"}}`},
			{`{"prompt":"x","model":"n"}`, 404, `{"error":{"message":"model \"n\" isn't served, want \"m\"","type":"invalid_request_error","param":"model","code":"model_not_found"}}`},
			{`{"prompt":"\u0000"}`, 400, `{"error":{"message":"prompt can't be tokenized: text holds a NUL","type":"invalid_request_error","param":"prompt","code":"invalid_value"}}`},
		}
		for _, test := range tests {
			if status, _, body := r.whole("POST", "/tokenize", test.body); status != test.status || body != test.want {
				t.Errorf("%s:\n%d %s\nwant\n%d %s", test.body, status, body, test.status, test.want)
			}
		}
		if model.steps != 0 || len(r.served()) != 0 {
			t.Errorf("%d runs of the model and %v in the log, want none", model.steps, r.served())
		}
	})
}
