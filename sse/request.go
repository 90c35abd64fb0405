package sse

import (
	"bytes"
	"encoding/json"
	"math"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// request is what a client asks for, decoded and within the model's limits.
// Its text isn't tokenized yet.
type request struct {
	text     string    // the prompt, if ids and messages are nil
	ids      []int32   // the prompt as the client gave it, each in the vocabulary
	messages []Message // the conversation that the prompt is made from
	model    string    // "" if left out
	tokens   int       // at most so many are generated; 0 for what the context holds
	newName  bool      // max_completion_tokens says so

	ignoreEOS bool
	minTokens int

	stream         bool
	usage          bool // of a stream
	returnIDs      bool
	returnStamps   bool
	hasPrompt      bool
	hasStreamUsage bool // stream_options was there
}

// parameter is one member of a request's body.
type parameter struct {
	name string
	// read takes the value over. A parameter without it doesn't change
	// anything, and only its neutral values are accepted.
	read func(q *request, value json.RawMessage, limits Limits) *refusal
	// neutral values, as JSON, ask for what the server does anyway. null is
	// always one: it stands for a parameter that was left out.
	neutral []string
}

// generationParameters are those that every endpoint that generates takes.
var generationParameters = []parameter{
	{name: "model", read: func(q *request, v json.RawMessage, _ Limits) *refusal { return readString(v, "model", &q.model) }},
	{name: "max_tokens", read: readMaxTokens("max_tokens")},
	{name: "stream", read: func(q *request, v json.RawMessage, _ Limits) *refusal { return readBool(v, "stream", &q.stream) }},
	{name: "stream_options", read: readStreamOptions},
	{name: "ignore_eos", read: func(q *request, v json.RawMessage, _ Limits) *refusal { return readBool(v, "ignore_eos", &q.ignoreEOS) }},
	{name: "min_tokens", read: readMinTokens},
	{name: "return_token_ids", read: func(q *request, v json.RawMessage, _ Limits) *refusal {
		return readBool(v, "return_token_ids", &q.returnIDs)
	}},
	{name: "return_stamps", read: func(q *request, v json.RawMessage, _ Limits) *refusal {
		return readBool(v, "return_stamps", &q.returnStamps)
	}},
	{name: "temperature", neutral: []string{"0"}},
	{name: "top_p", neutral: []string{"1"}},
	{name: "top_k", neutral: []string{"-1", "0", "1"}},
	{name: "min_p", neutral: []string{"0"}},
	{name: "n", neutral: []string{"1"}},
	{name: "best_of", neutral: []string{"1"}},
	{name: "use_beam_search", neutral: []string{"false"}},
	{name: "frequency_penalty", neutral: []string{"0"}},
	{name: "presence_penalty", neutral: []string{"0"}},
	{name: "repetition_penalty", neutral: []string{"1"}},
	{name: "logit_bias", neutral: []string{"{}"}},
	{name: "stop", neutral: []string{`""`, "[]"}},
	{name: "stop_token_ids", neutral: []string{"[]"}},
	{name: "cache_prompt", neutral: []string{"false"}},
	{name: "seed", read: readAnyInteger("seed")},
	{name: "user", read: readAnyString("user")},
}

// completionParameters are the parameters of /v1/completions. What isn't
// among them is refused: it might change the answer.
var completionParameters = slices.Concat([]parameter{
	{name: "prompt", read: readPrompt},
	{name: "logprobs"},
	{name: "echo", neutral: []string{"false"}},
	{name: "suffix", neutral: []string{`""`}},
}, generationParameters)

// decodeCompletion reads the body of a completions request: one JSON object,
// in UTF-8, each parameter known, given once and of its type. tokens is
// max_tokens where the body has none.
func decodeCompletion(body []byte, limits Limits, tokens int) (*request, *refusal) {
	q := new(request)
	if r := decodeObject(q, body, completionParameters, limits); r != nil {
		return nil, r
	}
	if !q.hasPrompt {
		return nil, refuse("prompt", "missing_required_parameter", "prompt is missing: send text, or an array of token ids")
	}
	if q.tokens == 0 {
		q.tokens = tokens
	}
	if r := q.check(limits); r != nil {
		return nil, r
	}
	return q, nil
}

// newMaxTokens is what OpenAI's chats call max_tokens now.
const newMaxTokens = "max_completion_tokens"

// bound is the parameter that bounds the answer, by the name that the client
// used.
func (q *request) bound() string {
	if q.newName {
		return newMaxTokens
	}
	return "max_tokens"
}

// check holds the parameters against each other.
func (q *request) check(limits Limits) *refusal {
	if q.hasStreamUsage && !q.stream {
		return refuse("stream_options", "invalid_value", "stream_options is for stream = true only")
	}
	if q.minTokens > 0 && !q.ignoreEOS {
		return refuse("min_tokens", "unsupported_value", "min_tokens = %d is supported with ignore_eos = true only: the end-of-text token can't be held off", q.minTokens)
	}
	if q.tokens > 0 && q.minTokens > q.tokens {
		return refuse("min_tokens", "invalid_value", "min_tokens = %d is above %s = %d", q.minTokens, q.bound(), q.tokens)
	}
	if q.tokens >= limits.Context {
		return refuse(q.bound(), "context_length_exceeded", "%s = %d leaves no room for a prompt: the context holds %d tokens of prompt and answer together", q.bound(), q.tokens, limits.Context)
	}
	return nil
}

// decodeObject reads body's members into q by the table of parameters.
func decodeObject(q *request, body []byte, parameters []parameter, limits Limits) *refusal {
	if !utf8.Valid(body) {
		return refuse("", "invalid_json", "the body isn't valid UTF-8")
	}
	var whole json.RawMessage
	if err := json.Unmarshal(body, &whole); err != nil {
		if len(bytes.TrimSpace(body)) == 0 {
			return refuse("", "invalid_json", "the body is empty, want a JSON object")
		}
		return refuse("", "invalid_json", "the body isn't one JSON value: %s", strings.TrimPrefix(err.Error(), "json: "))
	}
	return eachMember(whole, "", func(name string, value json.RawMessage) *refusal {
		i := slices.IndexFunc(parameters, func(p parameter) bool { return p.name == name })
		if i < 0 {
			return refuse(excerpt(name), "unknown_parameter", "unknown parameter %q: it is refused because it might change the answer", excerpt(name))
		}
		if p := parameters[i]; isNull(value) || p.isNeutral(value) {
			return nil
		} else if p.read != nil {
			return p.read(q, value, limits)
		} else if len(p.neutral) == 0 {
			return refuse(name, "unsupported_value", "%s = %s isn't supported: leave it out", name, excerpt(string(value)))
		} else {
			return refuse(name, "unsupported_value", "%s = %s isn't supported: leave it out or send %s", name, excerpt(string(value)), strings.Join(p.neutral, " or "))
		}
	})
}

// eachMember calls f for the members of the valid JSON value object, named
// where in messages ("" for the body itself). A value of another kind and a
// name that comes twice are refused.
func eachMember(object json.RawMessage, where string, f func(name string, value json.RawMessage) *refusal) *refusal {
	what := where
	if where == "" {
		what = "the body"
	}
	d := json.NewDecoder(bytes.NewReader(object))
	if t, _ := d.Token(); t != json.Delim('{') {
		return refuse(where, "invalid_type", "%s is %s, want an object", what, kindOf(object))
	}
	seen := map[string]bool{}
	for d.More() {
		t, err := d.Token()
		if err != nil {
			return refuse(where, "invalid_json", "%s isn't valid JSON: %v", what, err)
		}
		name := t.(string)
		var value json.RawMessage
		if err := d.Decode(&value); err != nil {
			return refuse(where, "invalid_json", "%s isn't valid JSON: %v", what, err)
		}
		full := name
		if where != "" {
			full = where + "." + name
		}
		if seen[name] {
			return refuse(excerpt(full), "duplicate_parameter", "%s is given twice", excerpt(full))
		}
		seen[name] = true
		if r := f(name, value); r != nil {
			return r
		}
	}
	return nil
}

func (p parameter) isNeutral(value json.RawMessage) bool {
	var small bytes.Buffer
	if json.Compact(&small, value) != nil {
		return false
	}
	return slices.ContainsFunc(p.neutral, func(n string) bool {
		if small.String() == n {
			return true
		}
		want, err := strconv.ParseFloat(n, 64)
		if err != nil || kindOf(value) != "a number" {
			return false
		}
		got, err := strconv.ParseFloat(small.String(), 64)
		return err == nil && got == want
	})
}

func readPrompt(q *request, value json.RawMessage, limits Limits) *refusal {
	q.hasPrompt = true
	if value[0] == '"' {
		return q.readText(value, "prompt")
	}
	elements, r := readArray(value, "prompt", "text or an array of token ids")
	if r != nil {
		return r
	}
	if len(elements) == 0 {
		return refuse("prompt", "invalid_value", "prompt is empty: at least one token is needed")
	}
	if first := elements[0][0]; first == '"' || first == '[' {
		if len(elements) > 1 {
			return refuse("prompt", "unsupported_value", "prompt holds %d prompts: send one in each request", len(elements))
		}
		if first == '"' {
			return q.readText(elements[0], "prompt[0]")
		}
		if elements, r = readArray(elements[0], "prompt[0]", "an array of token ids"); r != nil {
			return r
		}
		if len(elements) == 0 {
			return refuse("prompt", "invalid_value", "prompt is empty: at least one token is needed")
		}
	}
	if len(elements) >= limits.Context {
		return tooLong("prompt", len(elements), limits)
	}
	q.ids = make([]int32, len(elements))
	for i, e := range elements {
		n, ok := integer(e)
		if !ok {
			return refuse("prompt", "invalid_type", "token %d of prompt is %s, want an integer", i, excerpt(string(e)))
		}
		if n < 0 || n >= int64(limits.Vocabulary) {
			return refuse("prompt", "invalid_value", "token %d of prompt is %d, want an id from 0 to %d", i, n, limits.Vocabulary-1)
		}
		q.ids[i] = int32(n)
	}
	return nil
}

// readText takes a prompt's text over.
func (q *request) readText(value json.RawMessage, where string) *refusal {
	if r := readString(value, where, &q.text); r != nil {
		r.param = "prompt"
		return r
	}
	if q.text == "" {
		return refuse("prompt", "invalid_value", "prompt is empty: at least one token is needed")
	}
	return nil
}

// tooLong refuses a prompt of n tokens that leaves no room for an answer.
func tooLong(param string, n int, limits Limits) *refusal {
	return refuse(param, "context_length_exceeded", "%s has %d tokens, want at most %d: the context holds %d of prompt and answer together", param, n, limits.Context-1, limits.Context)
}

// readMaxTokens is for a parameter that bounds the answer.
func readMaxTokens(name string) func(*request, json.RawMessage, Limits) *refusal {
	return func(q *request, value json.RawMessage, _ Limits) *refusal {
		n, ok := integer(value)
		if !ok {
			return refuse(name, "invalid_type", "%s = %s, want an integer", name, excerpt(string(value)))
		}
		if n < 1 {
			return refuse(name, "invalid_value", "%s = %d, want at least 1", name, n)
		}
		if q.tokens > 0 {
			return refuse(name, "duplicate_parameter", "%s: the bound of the answer is given twice, as max_tokens and max_completion_tokens: send one", name)
		}
		q.tokens, q.newName = int(min(n, math.MaxInt32)), name == newMaxTokens
		return nil
	}
}

func readMinTokens(q *request, value json.RawMessage, _ Limits) *refusal {
	n, ok := integer(value)
	if !ok {
		return refuse("min_tokens", "invalid_type", "min_tokens = %s, want an integer", excerpt(string(value)))
	}
	if n < 0 {
		return refuse("min_tokens", "invalid_value", "min_tokens = %d, want at least 0", n)
	}
	q.minTokens = int(min(n, math.MaxInt32))
	return nil
}

func readStreamOptions(q *request, value json.RawMessage, _ Limits) *refusal {
	q.hasStreamUsage = true
	return eachMember(value, "stream_options", func(name string, value json.RawMessage) *refusal {
		full := "stream_options." + excerpt(name)
		switch name {
		case "include_usage":
			if isNull(value) {
				return nil
			}
			return readBool(value, full, &q.usage)
		case "include_obfuscation", "continuous_usage_stats":
			if isNull(value) || string(value) == "false" {
				return nil
			}
			return refuse(full, "unsupported_value", "%s = %s isn't supported: leave it out or send false", full, excerpt(string(value)))
		}
		return refuse(full, "unknown_parameter", "unknown parameter %q: it is refused because it might change the answer", full)
	})
}

// readAnyInteger is for a parameter that changes nothing, whatever its value.
func readAnyInteger(name string) func(*request, json.RawMessage, Limits) *refusal {
	return func(_ *request, value json.RawMessage, _ Limits) *refusal {
		if _, ok := integer(value); !ok {
			return refuse(name, "invalid_type", "%s = %s, want an integer", name, excerpt(string(value)))
		}
		return nil
	}
}

// readAnyString is for a parameter that changes nothing, whatever its value.
func readAnyString(name string) func(*request, json.RawMessage, Limits) *refusal {
	return func(_ *request, value json.RawMessage, _ Limits) *refusal {
		var s string
		return readString(value, name, &s)
	}
}

func readBool(value json.RawMessage, name string, to *bool) *refusal {
	switch string(value) {
	case "true":
		*to = true
	case "false":
		*to = false
	default:
		return refuse(name, "invalid_type", "%s = %s, want true or false", name, excerpt(string(value)))
	}
	return nil
}

func readString(value json.RawMessage, name string, to *string) *refusal {
	if value[0] != '"' {
		return refuse(name, "invalid_type", "%s is %s, want text", name, kindOf(value))
	}
	if at := loneSurrogate(value); at >= 0 {
		return refuse(name, "invalid_value", "%s has half a surrogate pair, %s, which stands for no character", name, value[at:at+6])
	}
	if err := json.Unmarshal(value, to); err != nil {
		return refuse(name, "invalid_json", "%s isn't valid JSON: %v", name, err)
	}
	return nil
}

func readArray(value json.RawMessage, name, want string) ([]json.RawMessage, *refusal) {
	if value[0] != '[' {
		return nil, refuse(name, "invalid_type", "%s is %s, want %s", name, kindOf(value), want)
	}
	var elements []json.RawMessage
	if err := json.Unmarshal(value, &elements); err != nil {
		return nil, refuse(name, "invalid_json", "%s isn't valid JSON: %v", name, err)
	}
	return elements, nil
}

// integer returns a JSON number that is written as an integer and fits int64.
func integer(value json.RawMessage) (int64, bool) {
	n, err := strconv.ParseInt(string(value), 10, 64)
	return n, err == nil
}

// loneSurrogate returns the offset of the first escaped half of a surrogate
// pair in a JSON string, -1 if there is none. encoding/json would replace it
// and so change the prompt.
func loneSurrogate(s []byte) int {
	for i := 0; i < len(s); i++ {
		if s[i] != '\\' {
			continue
		}
		if s[i+1] != 'u' {
			i++
			continue
		}
		unit := escapedUnit(s[i:])
		if unit < 0xd800 || unit > 0xdfff {
			i += 5
			continue
		}
		low := 0
		if len(s) >= i+12 && s[i+6] == '\\' && s[i+7] == 'u' {
			low = escapedUnit(s[i+6:])
		}
		if unit > 0xdbff || low < 0xdc00 || low > 0xdfff {
			return i
		}
		i += 11
	}
	return -1
}

// escapedUnit returns the number of the escape \uXXXX at the start of s.
func escapedUnit(s []byte) int {
	n, err := strconv.ParseUint(string(s[2:6]), 16, 16)
	if err != nil {
		return 0
	}
	return int(n)
}

func isNull(value json.RawMessage) bool { return string(value) == "null" }

// kindOf names the kind of a valid JSON value.
func kindOf(value json.RawMessage) string {
	for _, c := range value {
		switch c {
		case ' ', '\t', '\r', '\n':
			continue
		case '{':
			return "an object"
		case '[':
			return "an array"
		case '"':
			return "text"
		case 't', 'f':
			return "a boolean"
		case 'n':
			return "null"
		}
		return "a number"
	}
	return "nothing"
}

// excerpt returns s, cut for a message.
func excerpt(s string) string {
	const most = 60
	if len(s) <= most {
		return s
	}
	n := most
	for n > 0 && !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:n] + "…"
}

// requestID returns the client's name for a request if it is fit to be
// recorded and sent back: 1 to 128 letters, digits and any of ._:- .
func requestID(r *http.Request) (string, bool) {
	id := r.Header.Get("X-Request-Id")
	if id == "" || len(id) > 128 {
		return "", false
	}
	for i := range len(id) {
		c := id[i]
		if !(c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || strings.IndexByte("._:-", c) >= 0) {
			return "", false
		}
	}
	return id, true
}
