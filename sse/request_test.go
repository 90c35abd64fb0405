package sse

import (
	"encoding/json"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"
)

var requestLimits = Limits{Context: 100, Vocabulary: 1000, EOS: 2}

func TestDecodeCompletion(t *testing.T) {
	tests := []struct {
		name, body string
		want       request
	}{
		{"text", `{"prompt":"hi"}`, request{hasPrompt: true, tokens: 16, text: "hi"}},
		{"ids", `{"prompt":[0,999]}`, request{hasPrompt: true, tokens: 16, ids: []int32{0, 999}}},
		{"a list of one text", `{"prompt":["hi"]}`, request{hasPrompt: true, tokens: 16, text: "hi"}},
		{"a list of one list of ids", `{"prompt":[[1,2]]}`, request{hasPrompt: true, tokens: 16, ids: []int32{1, 2}}},
		{"escapes", `{"prompt":"\ud83d\ude00\u0000\\ud800 \n"}`, request{hasPrompt: true, tokens: 16, text: "😀\x00\\ud800 \n"}},
		{"spaces", " {\n\"prompt\" :\t[ 1 , 2 ] , \"max_tokens\" : 3 }\r\n", request{hasPrompt: true, tokens: 3, ids: []int32{1, 2}}},
		{"an escaped name", `{"\u0070rompt":"hi"}`, request{hasPrompt: true, tokens: 16, text: "hi"}},
		{"all that it can do", `{"model":"m","prompt":"hi","max_tokens":99,"stream":true,"stream_options":{"include_usage":true,"include_obfuscation":false,"continuous_usage_stats":null},
			"ignore_eos":true,"min_tokens":99,"return_token_ids":true,"return_stamps":true}`,
			request{hasPrompt: true, model: "m", text: "hi", tokens: 99, minTokens: 99, stream: true, hasStreamUsage: true, usage: true, ignoreEOS: true, returnIDs: true, returnStamps: true}},
		{"neutral values", `{"prompt":"hi","temperature":0,"top_p":1,"top_k":-1,"min_p":0.0,"n":1,"best_of":1,"use_beam_search":false,"frequency_penalty":0,"presence_penalty":-0.0,
			"repetition_penalty":1e0,"logit_bias":{ },"logprobs":null,"echo":false,"stop":[ ],"stop_token_ids":[],"suffix":"","cache_prompt":false,"seed":-7,"user":"somebody","min_tokens":0}`,
			request{hasPrompt: true, tokens: 16, text: "hi"}},
		{"no stream has no options", `{"prompt":"hi","stream":false,"stream_options":null}`, request{hasPrompt: true, tokens: 16, text: "hi"}},
	}
	for _, test := range tests {
		q, r := decodeCompletion([]byte(test.body), requestLimits, 16)
		if r != nil || !reflect.DeepEqual(*q, test.want) {
			t.Errorf("%s: decodeCompletion(%s) = %+v, %v; want %+v", test.name, test.body, q, r, test.want)
		}
	}
}

// Every known parameter may be null, which is leaving it out.
func TestNullIsAbsent(t *testing.T) {
	for _, p := range completionParameters {
		if p.name == "prompt" {
			continue
		}
		q, r := decodeCompletion([]byte(`{"prompt":"hi","`+p.name+`":null}`), requestLimits, 16)
		if want := (request{hasPrompt: true, tokens: 16, text: "hi"}); r != nil || !reflect.DeepEqual(*q, want) {
			t.Errorf("%s = null: %+v, %v; want %+v", p.name, q, r, want)
		}
	}
}

func TestRefusals(t *testing.T) {
	const status400 = 400
	tests := []struct {
		name, body           string
		param, code, message string
	}{
		// Not one object.
		{"nothing", ``, "", "invalid_json", "the body is empty, want a JSON object"},
		{"cut off", `{"prompt":"hi`, "", "invalid_json", "the body isn't one JSON value: unexpected end of JSON input"},
		{"two objects", `{"prompt":"hi"}{}`, "", "invalid_json", "the body isn't one JSON value: invalid character '{' after top-level value"},
		{"an array", `[1]`, "", "invalid_type", "the body is an array, want an object"},
		{"null", `null`, "", "invalid_type", "the body is null, want an object"},
		{"bytes that aren't UTF-8", "{\"prompt\":\"\xff\"}", "", "invalid_json", "the body isn't valid UTF-8"},
		{"a byte order mark", "\uFEFF{\"prompt\":\"hi\"}", "", "invalid_json", "the body isn't one JSON value: invalid character 'ï' looking for beginning of value"},
		// Names.
		{"no prompt", `{}`, "prompt", "missing_required_parameter", "prompt is missing: send text, or an array of token ids"},
		{"a null prompt", `{"prompt":null}`, "prompt", "missing_required_parameter", "prompt is missing: send text, or an array of token ids"},
		{"an unknown parameter", `{"prompt":"hi","guided_json":{}}`, "guided_json", "unknown_parameter", `unknown parameter "guided_json": it is refused because it might change the answer`},
		{"an unknown parameter without a value", `{"prompt":"hi","x":null}`, "x", "unknown_parameter", `unknown parameter "x": it is refused because it might change the answer`},
		{"a name in capitals", `{"prompt":"hi","Max_Tokens":3}`, "Max_Tokens", "unknown_parameter", `unknown parameter "Max_Tokens": it is refused because it might change the answer`},
		{"a long name", `{"prompt":"hi","` + strings.Repeat("é", 40) + `":1}`, strings.Repeat("é", 30) + "…", "unknown_parameter", `unknown parameter "` + strings.Repeat("é", 30) + `…": it is refused because it might change the answer`},
		{"a parameter twice", `{"prompt":"hi","max_tokens":3,"max_tokens":4}`, "max_tokens", "duplicate_parameter", "max_tokens is given twice"},
		{"a parameter twice, once escaped", `{"prompt":"hi","\u0070rompt":"ho"}`, "prompt", "duplicate_parameter", "prompt is given twice"},
		{"an option twice", `{"prompt":"hi","stream":true,"stream_options":{"include_usage":true,"include_usage":false}}`, "stream_options.include_usage", "duplicate_parameter", "stream_options.include_usage is given twice"},
		// The prompt.
		{"prompt is empty", `{"prompt":""}`, "prompt", "invalid_value", "prompt is empty: at least one token is needed"},
		{"prompt is no list", `{"prompt":[]}`, "prompt", "invalid_value", "prompt is empty: at least one token is needed"},
		{"prompt is an empty list in a list", `{"prompt":[[]]}`, "prompt", "invalid_value", "prompt is empty: at least one token is needed"},
		{"prompt is an empty text in a list", `{"prompt":[""]}`, "prompt", "invalid_value", "prompt is empty: at least one token is needed"},
		{"prompt is a number", `{"prompt":7}`, "prompt", "invalid_type", "prompt is a number, want text or an array of token ids"},
		{"prompt is true", `{"prompt":true}`, "prompt", "invalid_type", "prompt is a boolean, want text or an array of token ids"},
		{"two prompts", `{"prompt":["a","b"]}`, "prompt", "unsupported_value", "prompt holds 2 prompts: send one in each request"},
		{"two prompts of ids", `{"prompt":[[1],[2]]}`, "prompt", "unsupported_value", "prompt holds 2 prompts: send one in each request"},
		{"an id below the vocabulary", `{"prompt":[5,-1]}`, "prompt", "invalid_value", "token 1 of prompt is -1, want an id from 0 to 999"},
		{"an id above the vocabulary", `{"prompt":[1000]}`, "prompt", "invalid_value", "token 0 of prompt is 1000, want an id from 0 to 999"},
		{"an id that would wrap", `{"prompt":[4294967297]}`, "prompt", "invalid_value", "token 0 of prompt is 4294967297, want an id from 0 to 999"},
		{"an id above all bounds", `{"prompt":[1e99]}`, "prompt", "invalid_type", "token 0 of prompt is 1e99, want an integer"},
		{"an id with a fraction", `{"prompt":[1,2.5]}`, "prompt", "invalid_type", "token 1 of prompt is 2.5, want an integer"},
		{"text among ids", `{"prompt":[1,"2"]}`, "prompt", "invalid_type", `token 1 of prompt is "2", want an integer`},
		{"null among ids", `{"prompt":[null]}`, "prompt", "invalid_type", "token 0 of prompt is null, want an integer"},
		{"half a surrogate pair", `{"prompt":"a\ud83db"}`, "prompt", "invalid_value", `prompt has half a surrogate pair, \ud83d, which stands for no character`},
		{"a pair the wrong way round", `{"prompt":"\ude00\ud83d"}`, "prompt", "invalid_value", `prompt has half a surrogate pair, \ude00, which stands for no character`},
		{"as many ids as the context", `{"prompt":[` + strings.Repeat("1,", 99) + `1]}`, "prompt", "context_length_exceeded", "prompt has 100 tokens, want at most 99: the context holds 100 of prompt and answer together"},
		// What can be asked for, asked for wrongly.
		{"max_tokens 0", `{"prompt":"hi","max_tokens":0}`, "max_tokens", "invalid_value", "max_tokens = 0, want at least 1"},
		{"max_tokens below 0", `{"prompt":"hi","max_tokens":-1}`, "max_tokens", "invalid_value", "max_tokens = -1, want at least 1"},
		{"max_tokens as text", `{"prompt":"hi","max_tokens":"8"}`, "max_tokens", "invalid_type", `max_tokens = "8", want an integer`},
		{"max_tokens with a fraction", `{"prompt":"hi","max_tokens":8.0}`, "max_tokens", "invalid_type", "max_tokens = 8.0, want an integer"},
		{"max_tokens as the context", `{"prompt":"hi","max_tokens":100}`, "max_tokens", "context_length_exceeded", "max_tokens = 100 leaves no room for a prompt: the context holds 100 tokens of prompt and answer together"},
		{"stream as a number", `{"prompt":"hi","stream":1}`, "stream", "invalid_type", "stream = 1, want true or false"},
		{"ignore_eos as text", `{"prompt":"hi","ignore_eos":"true"}`, "ignore_eos", "invalid_type", `ignore_eos = "true", want true or false`},
		{"model as a number", `{"prompt":"hi","model":1}`, "model", "invalid_type", "model is a number, want text"},
		{"stream_options as true", `{"prompt":"hi","stream":true,"stream_options":true}`, "stream_options", "invalid_type", "stream_options is a boolean, want an object"},
		{"stream_options without a stream", `{"prompt":"hi","stream_options":{}}`, "stream_options", "invalid_value", "stream_options is for stream = true only"},
		{"an unknown option", `{"prompt":"hi","stream":true,"stream_options":{"x":1}}`, "stream_options.x", "unknown_parameter", `unknown parameter "stream_options.x": it is refused because it might change the answer`},
		{"usage in every event", `{"prompt":"hi","stream":true,"stream_options":{"continuous_usage_stats":true}}`, "stream_options.continuous_usage_stats", "unsupported_value", "stream_options.continuous_usage_stats = true isn't supported: leave it out or send false"},
		{"min_tokens without ignore_eos", `{"prompt":"hi","min_tokens":3}`, "min_tokens", "unsupported_value", "min_tokens = 3 is supported with ignore_eos = true only: the end-of-text token can't be held off"},
		{"min_tokens above max_tokens", `{"prompt":"hi","min_tokens":9,"max_tokens":8,"ignore_eos":true}`, "min_tokens", "invalid_value", "min_tokens = 9 is above max_tokens = 8"},
		{"min_tokens above the default", `{"prompt":"hi","min_tokens":17,"ignore_eos":true}`, "min_tokens", "invalid_value", "min_tokens = 17 is above max_tokens = 16"},
		{"min_tokens below 0", `{"prompt":"hi","min_tokens":-9}`, "min_tokens", "invalid_value", "min_tokens = -9, want at least 0"},
		{"seed as text", `{"prompt":"hi","seed":"x"}`, "seed", "invalid_type", `seed = "x", want an integer`},
		{"user as a number", `{"prompt":"hi","user":1}`, "user", "invalid_type", "user is a number, want text"},
		// What would change the answer.
		{"temperature", `{"prompt":"hi","temperature":1}`, "temperature", "unsupported_value", "temperature = 1 isn't supported: leave it out or send 0"},
		{"temperature nearly 0", `{"prompt":"hi","temperature":1e-9}`, "temperature", "unsupported_value", "temperature = 1e-9 isn't supported: leave it out or send 0"},
		{"temperature as text", `{"prompt":"hi","temperature":"0"}`, "temperature", "unsupported_value", `temperature = "0" isn't supported: leave it out or send 0`},
		{"top_p", `{"prompt":"hi","top_p":0.9}`, "top_p", "unsupported_value", "top_p = 0.9 isn't supported: leave it out or send 1"},
		{"top_k", `{"prompt":"hi","top_k":40}`, "top_k", "unsupported_value", "top_k = 40 isn't supported: leave it out or send -1 or 0 or 1"},
		{"min_p", `{"prompt":"hi","min_p":0.1}`, "min_p", "unsupported_value", "min_p = 0.1 isn't supported: leave it out or send 0"},
		{"n", `{"prompt":"hi","n":2}`, "n", "unsupported_value", "n = 2 isn't supported: leave it out or send 1"},
		{"best_of", `{"prompt":"hi","best_of":3}`, "best_of", "unsupported_value", "best_of = 3 isn't supported: leave it out or send 1"},
		{"use_beam_search", `{"prompt":"hi","use_beam_search":true}`, "use_beam_search", "unsupported_value", "use_beam_search = true isn't supported: leave it out or send false"},
		{"frequency_penalty", `{"prompt":"hi","frequency_penalty":0.5}`, "frequency_penalty", "unsupported_value", "frequency_penalty = 0.5 isn't supported: leave it out or send 0"},
		{"presence_penalty", `{"prompt":"hi","presence_penalty":-2}`, "presence_penalty", "unsupported_value", "presence_penalty = -2 isn't supported: leave it out or send 0"},
		{"repetition_penalty", `{"prompt":"hi","repetition_penalty":1.1}`, "repetition_penalty", "unsupported_value", "repetition_penalty = 1.1 isn't supported: leave it out or send 1"},
		{"logit_bias", `{"prompt":"hi","logit_bias":{"5":-100}}`, "logit_bias", "unsupported_value", `logit_bias = {"5":-100} isn't supported: leave it out or send {}`},
		{"logprobs", `{"prompt":"hi","logprobs":0}`, "logprobs", "unsupported_value", "logprobs = 0 isn't supported: leave it out"},
		{"echo", `{"prompt":"hi","echo":true}`, "echo", "unsupported_value", "echo = true isn't supported: leave it out or send false"},
		{"stop", `{"prompt":"hi","stop":["\n"]}`, "stop", "unsupported_value", `stop = ["\n"] isn't supported: leave it out or send "" or []`},
		{"stop_token_ids", `{"prompt":"hi","stop_token_ids":[2]}`, "stop_token_ids", "unsupported_value", "stop_token_ids = [2] isn't supported: leave it out or send []"},
		{"suffix", `{"prompt":"hi","suffix":"x"}`, "suffix", "unsupported_value", `suffix = "x" isn't supported: leave it out or send ""`},
		{"cache_prompt", `{"prompt":"hi","cache_prompt":true}`, "cache_prompt", "unsupported_value", "cache_prompt = true isn't supported: leave it out or send false"},
	}
	refused := map[string]bool{}
	for _, test := range tests {
		q, r := decodeCompletion([]byte(test.body), requestLimits, 16)
		want := &refusal{status400, test.param, test.code, test.message}
		if !reflect.DeepEqual(r, want) {
			t.Errorf("%s: decodeCompletion(%s)\n= %+v, %+v\nwant %+v", test.name, test.body, q, r, want)
		}
		refused[test.param] = true
	}
	for _, p := range completionParameters {
		if !refused[p.name] && p.name != "return_token_ids" && p.name != "return_stamps" {
			t.Errorf("no case refuses a value of %s", p.name)
		}
	}
}

// The protocol's page has a row for every parameter with its neutral values.
func TestProtocolNamesEveryParameter(t *testing.T) {
	page, err := os.ReadFile("PROTOCOL.md")
	if err != nil {
		t.Fatal(err)
	}
	rows := map[string]string{}
	for line := range strings.Lines(string(page)) {
		if name, rest, ok := strings.Cut(strings.TrimPrefix(line, "| `"), "` | "); ok {
			rows[name] += rest
		}
	}
	for _, p := range slices.Concat(completionParameters, chatParameters, tokenizeParameters) {
		row, ok := rows[p.name]
		if !ok {
			t.Errorf("PROTOCOL.md has no row for %s", p.name)
		}
		for _, v := range p.neutral {
			if !strings.Contains(row, v) {
				t.Errorf("PROTOCOL.md's row for %s is %q, which lacks %s", p.name, row, v)
			}
		}
	}
}

// Whatever comes, the decoder refuses it with a reason or returns what a
// plain JSON decoder reads too, within the limits.
func FuzzDecodeCompletion(f *testing.F) {
	for _, seed := range []string{
		`{"prompt":"hi"}`, `{"prompt":[1,2],"max_tokens":3,"stream":true,"stream_options":{"include_usage":true}}`,
		`{"prompt":["\ud83d\ude00"],"ignore_eos":true,"min_tokens":2}`, `{"prompt":[[1]],"stop":null,"temperature":0.0}`,
		`{"prompt":"\ud800"}`, `{"prompt":[null]}`, "{\"prompt\":\"\\u0000\u2028\"}", `{"a":[[[[{"b":1}]]]]}`, `{"prompt": [ ] }`,
		`{"prompt":"x","logit_bias":{"1":2},"\u0070rompt":1}`, `[`, `"`, `{"prompt":"\\`, `{"prompt":"\`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		q, r := decodeCompletion(body, requestLimits, 16)
		if (q == nil) == (r == nil) {
			t.Fatalf("a request %v and a refusal %v, want one of them", q, r)
		}
		if r != nil {
			var object struct {
				Error struct{ Message, Type, Code string }
			}
			if err := json.Unmarshal(r.appendError(nil), &object); err != nil || object.Error.Message == "" || r.status != 400 || r.code == "" {
				t.Fatalf("refusal %+v isn't an error object with a message: %v", r, err)
			}
			return
		}
		var plain struct {
			Prompt    any  `json:"prompt"`
			MaxTokens *int `json:"max_tokens"`
			Stream    *bool
		}
		if err := json.Unmarshal(body, &plain); err != nil {
			t.Fatalf("accepted what isn't JSON: %v", err)
		}
		if plain.MaxTokens != nil && *plain.MaxTokens != q.tokens || q.tokens < 1 || q.tokens >= requestLimits.Context {
			t.Fatalf("max_tokens = %d, want %v, within the context", q.tokens, plain.MaxTokens)
		}
		prompt := plain.Prompt
		if list, ok := prompt.([]any); ok && len(list) == 1 {
			if _, isNumber := list[0].(float64); !isNumber {
				prompt = list[0]
			}
		}
		switch p := prompt.(type) {
		case string:
			if q.text != p || q.ids != nil || p == "" || !utf8.ValidString(q.text) {
				t.Fatalf("text %q and ids %v, want the text %q", q.text, q.ids, p)
			}
		case []any:
			if len(q.ids) != len(p) || len(p) == 0 || q.text != "" {
				t.Fatalf("ids %v and text %q, want %d ids", q.ids, q.text, len(p))
			}
			for i, id := range q.ids {
				if float64(id) != p[i].(float64) || id < 0 || int(id) >= requestLimits.Vocabulary {
					t.Fatalf("id %d = %d, want %v", i, id, p[i])
				}
			}
		default:
			t.Fatalf("accepted a prompt that is %T", prompt)
		}
	})
}

// The same for a conversation.
func FuzzDecodeChat(f *testing.F) {
	for _, seed := range []string{
		`{"messages":[{"role":"user","content":"hi"}]}`,
		`{"messages":[{"role":"system","content":[{"type":"text","text":"\ud83d\ude00"}]},{"role":"assistant","content":"","tool_calls":[]}],"max_completion_tokens":3}`,
		`{"messages":[{"role":"user","content":[{"text":"x","type":"image"}]}],"tools":[],"response_format":{"type":"text"}}`,
		`{"messages":[null]}`, `{"messages":[{"role":null,"content":null}]}`, `{"messages":[{}]}`, `{"messages":[{"content":[[]]}]}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		q, r := decodeChat(body, requestLimits, 16)
		if (q == nil) == (r == nil) {
			t.Fatalf("a request %v and a refusal %v, want one of them", q, r)
		}
		if r != nil {
			if !json.Valid(r.appendError(nil)) || r.message == "" || r.status != 400 || r.code == "" {
				t.Fatalf("refusal %+v isn't an error object with a message", r)
			}
			return
		}
		var plain struct {
			Messages []struct {
				Role    string `json:"role"`
				Content any    `json:"content"`
			} `json:"messages"`
		}
		if err := json.Unmarshal(body, &plain); err != nil {
			t.Fatalf("accepted what isn't JSON: %v", err)
		}
		if len(q.messages) == 0 || len(q.messages) != len(plain.Messages) {
			t.Fatalf("%d messages, want %d", len(q.messages), len(plain.Messages))
		}
		for i, m := range q.messages {
			content := plain.Messages[i].Content
			if parts, ok := content.([]any); ok {
				content = parts[0].(map[string]any)["text"]
				if content == nil {
					content = ""
				}
			}
			if m.Content != content || m.Role != plain.Messages[i].Role || !slices.Contains(roles, m.Role) {
				t.Fatalf("message %d = %+v, want %+v", i, m, plain.Messages[i])
			}
		}
	})
}
