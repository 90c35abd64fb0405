package clients

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"reflect"
	"runtime/debug"
	"strings"
	"sync"
	"testing"

	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"
	"github.com/openai/openai-go/v3/packages/ssestream"
)

// openaiGo is the official Go library.
type openaiGo struct{ client openai.Client }

func newOpenAIGo(t *testing.T, url string) openaiGo {
	t.Helper()
	return openaiGo{openai.NewClient(option.WithBaseURL(url+"/v1"), option.WithAPIKey("none"))}
}

// parameters puts a body into the library's own struct, which is how its
// users write one. What that has no field for is set as they set it.
func parameters(body map[string]any, params any) ([]option.RequestOption, error) {
	all, err := json.Marshal(body)
	if err != nil {
		return nil, err
	}
	if err := json.Unmarshal(all, params); err != nil {
		return nil, err
	}
	written, err := json.Marshal(params)
	if err != nil {
		return nil, err
	}
	var known map[string]any
	if err := json.Unmarshal(written, &known); err != nil {
		return nil, err
	}
	var options []option.RequestOption
	for name, value := range body {
		if got, ok := known[name]; !ok || !jsonEqual(got, value) {
			options = append(options, option.WithJSONSet(name, value))
		}
	}
	return options, nil
}

// openaiFailure makes a failure of the library's errors.
func openaiFailure(err error) error {
	if e := new(openai.Error); errors.As(err, &e) {
		return &failure{e.StatusCode, e.Type, e.Code, e.Param, e.Message}
	}
	if e := new(ssestream.StreamError); errors.As(err, &e) {
		return readFailure(0, e.Event.Data)
	}
	return err
}

func (c openaiGo) ask(ctx context.Context, q question) (answer, error) {
	a, err := c.read(ctx, q)
	return a, openaiFailure(err)
}

func (c openaiGo) read(ctx context.Context, q question) (a answer, err error) {
	add := func(text, finish, role string) {
		a.Text += text
		a.FinishReason += finish
		a.Role += role
		if q.stream() {
			a.Events++
			if a.Events == 1 && q.first != nil {
				q.first()
			}
		}
	}
	usage := func(u openai.CompletionUsage) {
		a.PromptTokens += int(u.PromptTokens)
		a.AnswerTokens += int(u.CompletionTokens)
	}
	id := option.WithHeader("X-Request-Id", q.id)
	if q.chat {
		var p openai.ChatCompletionNewParams
		options, err := parameters(q.body, &p)
		if err != nil {
			return a, err
		}
		options = append(options, id)
		if !q.stream() {
			whole, err := c.client.Chat.Completions.New(ctx, p, options...)
			if err != nil {
				return a, err
			}
			for _, choice := range whole.Choices {
				add(choice.Message.Content, choice.FinishReason, string(choice.Message.Role))
			}
			usage(whole.Usage)
			return a, nil
		}
		s := c.client.Chat.Completions.NewStreaming(ctx, p, options...)
		defer s.Close()
		for s.Next() {
			for _, choice := range s.Current().Choices {
				add(choice.Delta.Content, choice.FinishReason, choice.Delta.Role)
			}
			usage(s.Current().Usage)
		}
		return a, s.Err()
	}
	var p openai.CompletionNewParams
	options, err := parameters(q.body, &p)
	if err != nil {
		return a, err
	}
	options = append(options, id)
	if !q.stream() {
		whole, err := c.client.Completions.New(ctx, p, options...)
		if err != nil {
			return a, err
		}
		for _, choice := range whole.Choices {
			add(choice.Text, string(choice.FinishReason), "")
		}
		usage(whole.Usage)
		return a, nil
	}
	s := c.client.Completions.NewStreaming(ctx, p, options...)
	defer s.Close()
	for s.Next() {
		for _, choice := range s.Current().Choices {
			add(choice.Text, string(choice.FinishReason), "")
		}
		usage(s.Current().Usage)
	}
	return a, s.Err()
}

// leave cancels the request's context, as a program does that gives up.
func (c openaiGo) leave(q question) error {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	q.first = cancel
	_, err := c.ask(ctx, q)
	if errors.Is(err, context.Canceled) {
		return nil
	}
	return err // nil where the answer was faster
}

func TestOpenAIGo(t *testing.T) {
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, m := range info.Deps {
			if strings.HasPrefix(m.Path, "github.com/openai/") {
				t.Logf("%s %s", m.Path, m.Version)
			}
		}
	}
	testClient(t, func(t *testing.T, url string) client { return newOpenAIGo(t, url) })
}

func TestOpenAIGoModels(t *testing.T) {
	s := sharedServer(t)
	c := newOpenAIGo(t, s.url).client
	list, err := c.Models.List(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if len(list.Data) != 1 || list.Data[0].ID != s.model || list.Data[0].Object != "model" {
		t.Errorf("Models.List = %s, want %s alone", list.RawJSON(), s.model)
	}
	pages := c.Models.ListAutoPaging(t.Context())
	count := 0
	for pages.Next() {
		count++
	}
	if err := pages.Err(); err != nil || count != 1 {
		t.Errorf("Models.ListAutoPaging gives %d models and %v, want 1 and no error", count, err)
	}
	one, err := c.Models.Get(t.Context(), s.model)
	if err != nil || one.RawJSON() != list.Data[0].RawJSON() {
		t.Errorf("Models.Get(%q) = %v, %v; want it as it is listed", s.model, one, err)
	}
	_, err = c.Models.Get(t.Context(), "no-such-model")
	if f := new(failure); !errors.As(openaiFailure(err), &f) || f.Status != http.StatusNotFound || f.Code != "model_not_found" || f.Param != "model" {
		t.Errorf("Models.Get of another model: %v, want 404 model_not_found", openaiFailure(err))
	}
}

// What the library promises its users to be in an answer is there.
func TestOpenAIGoRequiredFields(t *testing.T) {
	s := sharedServer(t)
	c := newOpenAIGo(t, s.url).client
	hold := func(what string, v any) {
		t.Helper()
		for _, path := range absent(reflect.ValueOf(v), what) {
			t.Errorf("%s isn't in the answer, but the library says that it always is", path)
		}
	}

	text := completion(s.model, "Hi", 2)
	var p openai.CompletionNewParams
	if _, err := parameters(text.body, &p); err != nil {
		t.Fatal(err)
	}
	p.StreamOptions.IncludeUsage = openai.Bool(true)
	events := c.Completions.NewStreaming(t.Context(), p)
	count := 0
	for ; events.Next(); count++ {
		hold("event of Completions.NewStreaming", events.Current())
	}
	if err := events.Err(); err != nil || count == 0 {
		t.Errorf("Completions.NewStreaming: %d events, %v", count, err)
	}
	p.StreamOptions = openai.ChatCompletionStreamOptionsParam{}
	if whole, err := c.Completions.New(t.Context(), p); err != nil {
		t.Error(openaiFailure(err))
	} else {
		hold("Completions.New", *whole)
	}

	talk := conversation(s.model, "Hi", 2)
	var chat openai.ChatCompletionNewParams
	if _, err := parameters(talk.body, &chat); err != nil {
		t.Fatal(err)
	}
	chat.StreamOptions.IncludeUsage = openai.Bool(true)
	chunks := c.Chat.Completions.NewStreaming(t.Context(), chat)
	var all openai.ChatCompletionAccumulator
	for count = 0; chunks.Next(); count++ {
		hold("event of Chat.Completions.NewStreaming", chunks.Current())
		if !all.AddChunk(chunks.Current()) {
			t.Errorf("the library's accumulator refuses event %d, %s", count, chunks.Current().RawJSON())
		}
	}
	if err := chunks.Err(); err != nil || count == 0 {
		t.Errorf("Chat.Completions.NewStreaming: %d events, %v", count, err)
	}
	chat.StreamOptions = openai.ChatCompletionStreamOptionsParam{}
	whole, err := c.Chat.Completions.New(t.Context(), chat)
	if err != nil {
		t.Fatal(openaiFailure(err))
	}
	hold("Chat.Completions.New", *whole)
	if len(all.Choices) != 1 || len(whole.Choices) != 1 || all.Choices[0].Message.Content != whole.Choices[0].Message.Content ||
		all.Choices[0].FinishReason != whole.Choices[0].FinishReason || all.Usage.TotalTokens != whole.Usage.TotalTokens {
		t.Errorf("the accumulator makes %+v of the stream, want the answer in one piece, %s", all.Choices, whole.RawJSON())
	}
}

// absent returns the fields that an answer of the library lacks although its
// type calls them required, null not being a lack.
func absent(v reflect.Value, path string) (paths []string) {
	switch v.Kind() {
	case reflect.Slice:
		for i := range v.Len() {
			paths = append(paths, absent(v.Index(i), path)...)
		}
	case reflect.Struct:
		fields := v.FieldByName("JSON")
		if !fields.IsValid() {
			return nil
		}
		for i := range v.NumField() {
			field := v.Type().Field(i)
			name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
			status := fields
			if field.IsExported() && name != "" && name != "-" {
				status = fields.FieldByName(field.Name)
			}
			raw, ok := status.Interface().(interface{ Raw() string })
			if !ok {
				continue
			}
			if raw.Raw() == "null" {
				continue
			}
			if raw.Raw() != "" {
				paths = append(paths, absent(v.Field(i), path+"."+name)...)
			} else if field.Tag.Get("api") == "required" || field.Tag.Get("default") != "" {
				paths = append(paths, path+"."+name)
			}
		}
	}
	return paths
}

// Clients that come at the same time each get their own answer.
func TestOpenAIGoTogether(t *testing.T) {
	s := sharedServer(t)
	c := newOpenAIGo(t, s.url)
	var all sync.WaitGroup
	for _, prompt := range []string{"One", "Two and two", "Three, four, five", "Six"} {
		for _, stream := range []bool{false, true} {
			q := completion(s.model, prompt, 8).with(map[string]any{"ignore_eos": true})
			want, err := s.reference(q)
			if err != nil {
				t.Fatal(err)
			}
			all.Go(func() {
				got, err := c.ask(t.Context(), q.with(map[string]any{"stream": stream}))
				if err != nil || got.Text != want.Text {
					t.Errorf("%q, stream %v: %q, %v; want %q", prompt, stream, got.Text, err, want.Text)
				}
			})
		}
	}
	all.Wait()
}

// A parameter that is null is one left out, for the library and the server.
func TestOpenAIGoNull(t *testing.T) {
	s := sharedServer(t)
	c := newOpenAIGo(t, s.url)
	q := completion(s.model, "Hi", 2)
	want, err := s.reference(q)
	if err != nil {
		t.Fatal(err)
	}
	got, err := c.ask(t.Context(), q.with(map[string]any{"temperature": nil, "stop": nil, "logprobs": nil, "suffix": nil, "n": nil}))
	if err != nil || got != want {
		t.Errorf("with null parameters: %+v, %v; want %+v", got, err, want)
	}
}
