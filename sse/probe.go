package sse

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"

	"github.com/tidwall/gjson"
)

// What is asked of a server outside of any measurement: who it is, and how
// long a text is to it.

// probeLimit bounds the answer to such a question.
const probeLimit = 16 << 20

// probe sends one request and returns a good answer's body. An answer with
// another status is a *StatusError.
func (c *Client) probe(ctx context.Context, method, endpoint string, body any) ([]byte, http.Header, error) {
	var reader io.Reader
	if body != nil {
		data, err := json.Marshal(body)
		if err != nil {
			return nil, nil, fmt.Errorf("sse: %w", err)
		}
		reader = bytes.NewReader(data)
	}
	if idle := c.idle(); idle > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, idle)
		defer cancel()
	}
	request, err := http.NewRequestWithContext(ctx, method, endpoint, reader)
	if err != nil {
		return nil, nil, fmt.Errorf("sse: %w", err)
	}
	if body != nil {
		request.Header.Set("Content-Type", "application/json")
	}
	for name, values := range c.Header {
		request.Header[name] = values
	}
	transport := &http.Transport{
		Proxy: c.Proxy, DialContext: c.dial, DisableKeepAlives: true, DisableCompression: true,
		TLSClientConfig: c.tlsConfig(),
	}
	defer transport.CloseIdleConnections()
	response, err := transport.RoundTrip(request)
	if err != nil {
		return nil, nil, fmt.Errorf("sse: %s %s: %w", method, endpoint, err)
	}
	defer response.Body.Close()
	data, err := io.ReadAll(io.LimitReader(response.Body, probeLimit))
	if err != nil {
		return nil, nil, fmt.Errorf("sse: %s %s: %w", method, endpoint, err)
	}
	if response.StatusCode != http.StatusOK {
		text := boundMessage(message(data))
		if location := response.Header.Get("Location"); location != "" {
			text = "it points to " + location + "; name that in the URL"
		}
		return nil, response.Header, &StatusError{method, endpoint, response.StatusCode, text}
	}
	return data, response.Header, nil
}

// StatusError is an answer with a status other than 200.
type StatusError struct {
	Method, URL string
	Status      int
	Message     string // the server's, bounded
}

func (e *StatusError) Error() string {
	return fmt.Sprintf("sse: %s %s: %d %s: %s", e.Method, e.URL, e.Status, http.StatusText(e.Status), e.Message)
}

// ErrNoModels says that a server has no list of models, or an empty one.
var ErrNoModels = errors.New("sse: no model is listed")

// Models asks for the ids of the models that the server has, and for what it
// calls itself, its Server header. An error may be a *StatusError, or wrap
// ErrNoModels: not every server has such a list.
func (c *Client) Models(ctx context.Context) (ids []string, software string, err error) {
	endpoint, err := Endpoint(c.BaseURL, "models")
	if err != nil {
		return nil, "", err
	}
	data, header, err := c.probe(ctx, http.MethodGet, endpoint, nil)
	software = header.Get("Server")
	if err != nil {
		return nil, software, err
	}
	gjson.GetBytes(data, "data.#.id").ForEach(func(_, id gjson.Result) bool {
		if id.Str != "" {
			ids = append(ids, id.Str)
		}
		return true
	})
	if len(ids) == 0 {
		return nil, software, fmt.Errorf("%w: %s: %s", ErrNoModels, endpoint, boundMessage(string(data)))
	}
	return ids, software, nil
}

// Tokenizer counts tokens with a server's /tokenize. Make it with
// Client.Tokenizer.
type Tokenizer struct {
	client   *Client
	endpoint string
	form     func(text string) (any, error)
}

// ErrNoTokenizer says that a server has no /tokenize that is understood here.
var ErrNoTokenizer = errors.New("sse: the server has no /tokenize")

// Tokenizer finds out how the server's /tokenize is asked: as vLLM's,
// llama.cpp's or TGI's, and how for a chat, whose template counts too. Its
// error wraps ErrNoTokenizer where there is none.
func (c *Client) Tokenizer(ctx context.Context) (*Tokenizer, error) {
	root, err := url.Parse(c.BaseURL)
	if err != nil {
		return nil, fmt.Errorf("sse: base URL: %w", err)
	}
	root.Path = strings.TrimSuffix(strings.TrimRight(root.Path, "/"), "/v1")
	at := func(path string) string { return root.JoinPath(path).String() }
	text := func(text string) (any, error) {
		return map[string]any{
			"model": c.Model, "prompt": text, // vLLM
			"content": text, "add_special": true, "parse_special": true, // llama.cpp; a completion of a text has both
		}, nil
	}
	plain := func(text string) (any, error) {
		return map[string]any{"model": c.Model, "prompt": text}, nil
	}
	var tries []*Tokenizer
	if c.Chat {
		tries = []*Tokenizer{
			{c, at("tokenize"), func(text string) (any, error) {
				return map[string]any{"model": c.Model, "messages": []chatMessage{{"user", text}}, "add_generation_prompt": true}, nil
			}},
			{c, at("tokenize"), func(text string) (any, error) { // llama.cpp
				data, _, err := c.probe(ctx, http.MethodPost, at("apply-template"), map[string]any{"messages": []chatMessage{{"user", text}}})
				if err != nil {
					return nil, err
				}
				prompt := gjson.GetBytes(data, "prompt")
				if prompt.Type != gjson.String {
					return nil, fmt.Errorf("sse: %s gives no prompt: %s", at("apply-template"), boundMessage(string(data)))
				}
				return map[string]any{"content": prompt.Str, "add_special": true, "parse_special": true}, nil
			}},
		}
	} else {
		tries = []*Tokenizer{
			{c, at("tokenize"), text},
			{c, at("tokenize"), plain}, // a server that refuses what it doesn't know
			{c, at("tokenize"), func(text string) (any, error) { return map[string]any{"inputs": text}, nil }},
		}
	}
	var errs []error
	for _, t := range tries {
		// Twice as long a text has more tokens, or what is counted is
		// something else.
		short, err := t.Count(ctx, "the lake")
		if err == nil {
			var long int
			if long, err = t.Count(ctx, "the lake and the city in the east"); err == nil && long > short {
				return t, nil
			}
			if err == nil {
				err = fmt.Errorf("sse: %s counts %d and %d tokens for a text and a longer one", t.endpoint, short, long)
			}
		}
		errs = append(errs, err)
		if status := new(StatusError); !errors.As(err, &status) && ctx.Err() != nil {
			break
		}
	}
	return nil, fmt.Errorf("%w: %w", ErrNoTokenizer, errors.Join(errs...))
}

// Count returns how many tokens a completion of text, or a chat of the one
// message text, would have as its prompt.
func (t *Tokenizer) Count(ctx context.Context, text string) (int, error) {
	body, err := t.form(text)
	if err != nil {
		return 0, err
	}
	data, _, err := t.client.probe(ctx, http.MethodPost, t.endpoint, body)
	if err != nil {
		return 0, err
	}
	answer := gjson.ParseBytes(data)
	if count := answer.Get("count"); count.Type == gjson.Number && count.Int() > 0 {
		return int(count.Int()), nil
	}
	list := answer.Get("tokens")
	if answer.IsArray() {
		list = answer
	}
	if n := len(list.Array()); list.IsArray() && n > 0 {
		return n, nil
	}
	return 0, fmt.Errorf("sse: %s gives no tokens: %s", t.endpoint, boundMessage(string(data)))
}
