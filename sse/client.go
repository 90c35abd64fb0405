package sse

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"servebench/verify"
)

// Client sends requests in OpenAI's streaming dialect and stamps what comes
// back, one attempt each. It is safe for concurrent use once its fields are
// set.
type Client struct {
	BaseURL string        // http://host:port, with or without a slash, /v1 or a path before it
	Model   string        // sent as model; left out if empty
	Clock   *Clock        // required
	Idle    time.Duration // a read or a connect that takes longer is a stall; 0 means DefaultIdle, below 0 no limit

	Chat     bool                       // ask /v1/chat/completions, with the prompt as the only message
	Header   http.Header                // sent with each request, over the client's own
	Fields   map[string]json.RawMessage // of each request's body, over the client's own; null leaves one out
	Proxy    func(*http.Request) (*url.URL, error)
	Insecure bool // accept any certificate
	Reuse    bool // keep connections for later requests; else each has a new one

	// Dial replaces the dialer, for tests without a network.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)

	mu      sync.Mutex
	wires   []*wire         // kept for Reuse
	shared  *http.Transport // for Reuse through a proxy
	pollers []*poller
	closed  bool
}

// DefaultIdle is how long a stream may be silent. A live stream is never cut.
const DefaultIdle = 5 * time.Minute

// Ask is what a request asks for.
type Ask struct {
	ID           string // sent as X-Request-Id
	Prompt       string
	PromptIDs    []int32 // in place of Prompt, where the server takes ids
	OutputTokens int     // at most
	Completion   bool    // say so as max_completion_tokens, too
	MinTokens    int     // at least, where the server knows it; 0 leaves it out
	IgnoreEOS    bool    // go on past the end of the answer
	TokenIDs     bool    // ask for ids of prompt and answer
}

// generation is the body of a request to either endpoint.
type generation struct {
	Model          string         `json:"model,omitempty"`
	Prompt         any            `json:"prompt,omitempty"`
	Messages       []chatMessage  `json:"messages,omitempty"`
	MaxTokens      int            `json:"max_tokens"`
	MaxCompletion  int            `json:"max_completion_tokens,omitempty"`
	Temperature    float64        `json:"temperature"`
	Stream         bool           `json:"stream"`
	StreamOptions  map[string]any `json:"stream_options"`
	MinTokens      int            `json:"min_tokens,omitempty"`
	IgnoreEOS      bool           `json:"ignore_eos,omitempty"`
	ReturnTokenIDs bool           `json:"return_token_ids,omitempty"`
}

type chatMessage struct {
	Role    string `json:"role"`
	Content string `json:"content"`
}

// body returns the JSON that asks for ask.
func (c *Client) body(ask *Ask) ([]byte, error) {
	g := generation{
		Model: c.Model, MaxTokens: ask.OutputTokens, Stream: true, StreamOptions: map[string]any{"include_usage": true},
		MinTokens: ask.MinTokens, IgnoreEOS: ask.IgnoreEOS, ReturnTokenIDs: ask.TokenIDs,
	}
	if ask.Completion {
		g.MaxCompletion = ask.OutputTokens
	}
	switch {
	case c.Chat && ask.PromptIDs != nil:
		return nil, errors.New("sse: a chat has no prompt of ids")
	case c.Chat:
		g.Messages = []chatMessage{{"user", ask.Prompt}}
	case ask.PromptIDs != nil:
		g.Prompt = ask.PromptIDs
	default:
		g.Prompt = ask.Prompt
	}
	data, err := json.Marshal(&g)
	if err != nil || len(c.Fields) == 0 {
		return data, err
	}
	fields := map[string]json.RawMessage{}
	if err := json.Unmarshal(data, &fields); err != nil {
		return nil, err
	}
	for name, value := range c.Fields {
		if string(value) == "null" {
			delete(fields, name)
		} else {
			fields[name] = value
		}
	}
	return json.Marshal(fields)
}

// Endpoint returns the URL of path, "completions" say, below base: /v1 is
// added unless base ends in it.
func Endpoint(base, path string) (string, error) {
	u, err := url.Parse(base)
	if err != nil {
		return "", fmt.Errorf("sse: base URL: %w", err)
	}
	if u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return "", fmt.Errorf("sse: base URL %q, want http://HOST:PORT or https://HOST", base)
	}
	if u.RawQuery != "" || u.Fragment != "" {
		u.RawQuery, u.Fragment = "", "" // may be secret
		return "", fmt.Errorf("sse: base URL %q has a query or a fragment, want none", u.Redacted())
	}
	if !strings.HasSuffix(strings.TrimRight(u.Path, "/"), "/v1") {
		u = u.JoinPath("v1")
	}
	return u.JoinPath(path).String(), nil
}

// Complete sends one request and fills in everything that a client sees: the
// stamps from StartNS on, events, ids, text, usage, end and, if it failed,
// why. What came before a failure is kept. The fields that belong to the plan,
// and ScheduledNS, are the caller's. It is Exchange and Read in one.
func (c *Client) Complete(ctx context.Context, ask Ask, r *verify.Request) {
	c.Exchange(ctx, ask, r).Read()
}

// newRequest returns the request that asks for ask.
func (c *Client) newRequest(ctx context.Context, ask *Ask) (*http.Request, error) {
	path := "completions"
	if c.Chat {
		path = "chat/completions"
	}
	endpoint, err := Endpoint(c.BaseURL, path)
	if err != nil {
		return nil, err
	}
	body, err := c.body(ask)
	if err != nil {
		return nil, err
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, endpoint, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("Accept", "text/event-stream")
	if ask.ID != "" {
		request.Header.Set("X-Request-Id", ask.ID)
	}
	for name, values := range c.Header {
		request.Header[name] = values
	}
	return request, nil
}

// idle returns the limit on one operation, 0 for none.
func (c *Client) idle() time.Duration {
	if c.Idle == 0 {
		return DefaultIdle
	}
	return max(c.Idle, 0)
}
