package clients

import (
	"encoding/json"
	"errors"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/openai/openai-go/v3"
)

// treatment is what smol/serve does with one parameter of OpenAI's: it
// follows it, takes values that change nothing, or refuses it by name.
type treatment struct {
	// neutral values leave the answer as it is, and are taken.
	neutral []string
	// refused values ask for another answer than the server can give. Each is
	// refused by the parameter's name or that of a part of it. None for a
	// parameter that never has a bearing on a greedy answer, as why says.
	refused []string
	why     string
}

const (
	notKept      = "nothing is kept of a request, so it has nothing to name"
	nothingDrawn = "the most likely token is taken, nothing is drawn"
)

// common are the parameters that both endpoints have.
var common = map[string]treatment{
	"model":             {neutral: []string{`""`}, refused: []string{`"gpt-5"`, `7`}},
	"max_tokens":        {neutral: []string{`3`}, refused: []string{`0`, `-1`, `"8"`, `2.5`, `1000000`}},
	"stream":            {neutral: []string{`false`}, refused: []string{`"yes"`, `1`}},
	"stream_options":    {refused: []string{`{"include_usage":true}`, `true`}}, // without stream; see below
	"temperature":       {neutral: []string{`0`, `0.0`}, refused: []string{`0.7`, `1`, `1e-9`, `-1`, `"0"`}},
	"top_p":             {neutral: []string{`1`, `1.0`}, refused: []string{`0.9`, `0`, `2`}},
	"n":                 {neutral: []string{`1`}, refused: []string{`2`, `0`}},
	"frequency_penalty": {neutral: []string{`0`}, refused: []string{`0.5`, `-2`}},
	"presence_penalty":  {neutral: []string{`0`}, refused: []string{`0.5`, `-2`}},
	"logit_bias":        {neutral: []string{`{}`}, refused: []string{`{"5":-100}`}},
	"stop":              {neutral: []string{`[]`, `""`}, refused: []string{`"\n"`, `["a","b"]`}},
	"seed":              {neutral: []string{`7`, `-1`}, why: nothingDrawn},
	"user":              {neutral: []string{`"somebody"`}, why: notKept},
}

// completionTreatments are those of /v1/completions alone.
var completionTreatments = map[string]treatment{
	"prompt":   {refused: []string{`["a","b"]`, `[[1],[2]]`, `""`, `[]`, `7`, `[-1]`, `[1e9]`}},
	"best_of":  {neutral: []string{`1`}, refused: []string{`3`}},
	"echo":     {neutral: []string{`false`}, refused: []string{`true`}},
	"logprobs": {refused: []string{`0`, `5`}},
	"suffix":   {neutral: []string{`""`}, refused: []string{`"the end"`}},
}

// chatTreatments are those of /v1/chat/completions alone.
var chatTreatments = map[string]treatment{
	"messages": {refused: []string{
		`[]`, `"Hi"`, `[{"role":"user"}]`, `[{"content":"Hi"}]`,
		`[{"role":"developer","content":"Hi"}]`,
		`[{"role":"function","name":"f","content":"Hi"}]`,
		`[{"role":"tool","tool_call_id":"1","content":"Hi"}]`,
		`[{"role":"user","content":"Hi","name":"somebody"}]`,
		`[{"role":"user","content":[{"type":"text","text":"Hi"},{"type":"text","text":"Ho"}]}]`,
		`[{"role":"user","content":[{"type":"image_url","image_url":{"url":"data:,"}}]}]`,
		`[{"role":"user","content":[{"input_audio":{"data":"","format":"wav"},"type":"input_audio"}]}]`,
		`[{"role":"user","content":[{"type":"file","file":{"file_id":"1"}}]}]`,
		`[{"role":"user","content":"Hi"},{"role":"assistant","content":"Ho","refusal":"no"}]`,
		`[{"role":"assistant","content":"Ho","audio":{"id":"1"}}]`,
		`[{"role":"assistant","content":"Ho","function_call":{"name":"f","arguments":""}}]`,
		`[{"role":"assistant","content":"Ho","tool_calls":[{"id":"1","type":"function","function":{"name":"f","arguments":""}}]}]`,
		`[{"role":"assistant","content":null}]`,
	}},
	"max_completion_tokens":  {neutral: []string{`3`}, refused: []string{`0`, `-1`, `"8"`, `2.5`, `1000000`}},
	"logprobs":               {neutral: []string{`false`}, refused: []string{`true`}},
	"top_logprobs":           {refused: []string{`0`, `5`}},
	"response_format":        {neutral: []string{`{"type":"text"}`}, refused: []string{`{"type":"json_object"}`, `{"type":"json_schema","json_schema":{"name":"x"}}`}},
	"modalities":             {neutral: []string{`["text"]`}, refused: []string{`["text","audio"]`, `["audio"]`}},
	"audio":                  {refused: []string{`{"format":"mp3","voice":"alloy"}`}},
	"tools":                  {neutral: []string{`[]`}, refused: []string{`[{"type":"function","function":{"name":"f"}}]`}},
	"tool_choice":            {neutral: []string{`"none"`, `"auto"`}, refused: []string{`"required"`, `{"type":"function","function":{"name":"f"}}`}},
	"parallel_tool_calls":    {neutral: []string{`true`, `false`}, why: "without tools nothing is called"},
	"functions":              {neutral: []string{`[]`}, refused: []string{`[{"name":"f"}]`}},
	"function_call":          {neutral: []string{`"none"`, `"auto"`}, refused: []string{`{"name":"f"}`}},
	"service_tier":           {neutral: []string{`"auto"`, `"default"`}, refused: []string{`"flex"`, `"priority"`}},
	"store":                  {neutral: []string{`false`}, refused: []string{`true`}},
	"metadata":               {neutral: []string{`{}`}, refused: []string{`{"a":"b"}`}},
	"safety_identifier":      {neutral: []string{`"somebody"`}, why: notKept},
	"prompt_cache_key":       {neutral: []string{`"here"`}, why: "there is no cache"},
	"prompt_cache_options":   {refused: []string{`{"mode":"explicit"}`}},
	"prompt_cache_retention": {refused: []string{`"24h"`}},
	"prediction":             {refused: []string{`{"type":"content","content":"Hi"}`}},
	"reasoning_effort":       {refused: []string{`"low"`, `"none"`}},
	"verbosity":              {refused: []string{`"low"`}},
	"web_search_options":     {refused: []string{`{}`}},
	"moderation":             {refused: []string{`{"model":"omni-moderation-latest"}`}},
}

// endpoints are the two that generate.
var endpoints = []struct {
	name       string
	chat       bool
	params     reflect.Type // of openai-go
	treatments map[string]treatment
}{
	{"completions", false, reflect.TypeFor[openai.CompletionNewParams](), completionTreatments},
	{"chat", true, reflect.TypeFor[openai.ChatCompletionNewParams](), chatTreatments},
}

// parameterNames returns the names of a struct's fields in JSON.
func parameterNames(t reflect.Type) (names []string) {
	for i := range t.NumField() {
		if name, _, _ := strings.Cut(t.Field(i).Tag.Get("json"), ","); name != "" && name != "-" {
			names = append(names, name)
		}
	}
	return names
}

func treatmentOf(name string, own map[string]treatment) (treatment, bool) {
	if t, ok := own[name]; ok {
		return t, true
	}
	t, ok := common[name]
	return t, ok
}

// Every parameter that OpenAI's API has, as openai-go knows it, is followed,
// taken where it changes nothing, or refused by name: none is passed over in
// silence. A parameter that a newer openai-go brings fails here until it has
// its place.
func TestEveryParameter(t *testing.T) {
	s := sharedServer(t)
	c := newOpenAIGo(t, s.url)
	for _, e := range endpoints {
		names := append(parameterNames(e.params), "stream") // that one is in the method's name
		if len(names) < 10 || !slices.Contains(names, "temperature") {
			t.Fatalf("%v has the parameters %q, want those of a create call", e.params, names)
		}
		for name := range e.treatments {
			if !slices.Contains(names, name) {
				t.Errorf("%s: openai-go has no parameter %q any more", e.name, name)
			}
		}
		ask := completion(s.model, "Hi", 3)
		if e.chat {
			ask = conversation(s.model, "Hi", 3)
		}
		want, err := s.reference(ask) // 3 tokens
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range names {
			t.Run(e.name+"/"+name, func(t *testing.T) {
				ask := ask
				if name == "max_completion_tokens" { // the other name of the same
					ask = ask.with(map[string]any{name: 3, "max_tokens": nil})
				}
				parameter, ok := treatmentOf(name, e.treatments)
				if !ok {
					t.Fatalf("openai-go has a parameter %q, and no test says what smol/serve does with it", name)
				}
				if len(parameter.refused) == 0 && parameter.why == "" || len(parameter.neutral)+len(parameter.refused) == 0 {
					t.Fatalf("the treatment of %q has neither a refused value nor a reason", name)
				}
				value := func(text string) (v any) {
					if err := json.Unmarshal([]byte(text), &v); err != nil {
						t.Fatalf("value %s: %v", text, err)
					}
					return v
				}
				for _, text := range append(parameter.neutral, `null`) {
					if text == `null` && ask.body[name] != nil {
						continue // it has to be there
					}
					got, err := c.ask(t.Context(), ask.with(map[string]any{name: value(text)}))
					if err != nil || got != want {
						t.Errorf("%s = %s: %+v, %v; want the answer without it, %+v", name, text, got, err, want)
					}
				}
				for _, text := range parameter.refused {
					got, err := c.ask(t.Context(), ask.with(map[string]any{name: value(text)}))
					f := new(failure)
					if !errors.As(err, &f) || f.Status != http.StatusBadRequest && (name != "model" || f.Status != http.StatusNotFound) || !named(f.Param, name) {
						t.Errorf("%s = %s: %+v, %v; want it refused by its name", name, text, got, err)
					} else if !strings.Contains(f.Message, name) {
						t.Errorf("%s = %s: the message %q doesn't name it", name, text, f.Message)
					}
				}
			})
		}
	}
}

// named reports whether param is the parameter name or a part of it.
func named(param, name string) bool {
	rest, ok := strings.CutPrefix(param, name)
	return ok && (rest == "" || rest[0] == '.' || rest[0] == '[')
}

// Every option of a stream, as openai-go knows them, likewise.
func TestEveryStreamOption(t *testing.T) {
	s := sharedServer(t)
	c := newOpenAIGo(t, s.url)
	names := parameterNames(reflect.TypeFor[openai.ChatCompletionStreamOptionsParam]())
	if !slices.Equal(names, []string{"include_obfuscation", "include_usage"}) {
		t.Errorf("openai-go has the stream options %q, want those that this test knows", names)
	}
	for _, e := range endpoints {
		ask := completion(s.model, "Hi", 3).with(map[string]any{"stream": true})
		if e.chat {
			ask = conversation(s.model, "Hi", 3).with(map[string]any{"stream": true})
		}
		want, err := s.reference(ask)
		if err != nil {
			t.Fatal(err)
		}
		got, err := c.ask(t.Context(), ask.with(map[string]any{"stream_options": map[string]any{"include_obfuscation": false, "include_usage": false}}))
		if err != nil || got != want {
			t.Errorf("%s: all options false: %+v, %v; want %+v", e.name, got, err, want)
		}
		want.AnswerTokens = want.Events
		got, err = c.ask(t.Context(), ask.with(map[string]any{"stream_options": map[string]any{"include_usage": true}}))
		if got.PromptTokens == 0 {
			t.Errorf("%s: include_usage: no count of the prompt", e.name)
		}
		if got.PromptTokens = 0; err != nil || got != want {
			t.Errorf("%s: include_usage: %+v, %v; want %+v and the prompt's count", e.name, got, err, want)
		}
		_, err = c.ask(t.Context(), ask.with(map[string]any{"stream_options": map[string]any{"include_obfuscation": true}}))
		const option = "stream_options.include_obfuscation"
		if f := new(failure); !errors.As(err, &f) || f.Status != http.StatusBadRequest || f.Param != option {
			t.Errorf("%s: include_obfuscation: %v, want it refused as %s", e.name, err, option)
		}
	}
}

// The Python package has no parameter that openai-go lacks, and so none that
// isn't held to the above.
func TestPythonParameters(t *testing.T) {
	s := sharedServer(t)
	for _, style := range styles {
		t.Run(style, func(t *testing.T) {
			p := newPython(t, s.url, style)
			for _, e := range endpoints {
				r, err := p.do(order{Do: "parameters", Chat: e.chat}, nil)
				if err != nil || !slices.Contains(r.Parameters, "temperature") {
					t.Fatalf("%s: parameters %q, %v; want those of a create call", e.name, r.Parameters, err)
				}
				for _, name := range r.Parameters {
					switch name {
					case "extra_headers", "extra_query", "extra_body", "timeout":
						continue // of the package itself
					}
					if _, ok := treatmentOf(name, e.treatments); !ok {
						t.Errorf("%s: the package has a parameter %q, and no test says what smol/serve does with it", e.name, name)
					}
				}
			}
		})
	}
}
