package sse

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"os"
	"strings"
	"sync/atomic"
	"time"

	"servebench/verify"
)

// Client sends requests in OpenAI's streaming dialect and stamps what comes
// back. Each request gets a connection of its own, and one attempt. It is
// safe for concurrent use once its fields are set.
type Client struct {
	BaseURL string        // http://host:port, with or without a slash, /v1 or a path before it
	Model   string        // sent as model; left out if empty
	Clock   *Clock        // required
	Idle    time.Duration // a read or a connect that takes longer is a stall; 0 means DefaultIdle, below 0 no limit
	// Dial replaces the dialer, for tests without a network.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
}

// DefaultIdle is how long a stream may be silent. A live stream is never cut.
const DefaultIdle = 5 * time.Minute

// Ask is what a request asks for.
type Ask struct {
	ID           string // sent as X-Request-Id
	Prompt       string
	OutputTokens int
	IgnoreEOS    bool // go on past the end of the answer
	TokenIDs     bool // ask for ids of prompt and answer
}

// completionRequest is the body of POST /v1/completions.
type completionRequest struct {
	Model          string         `json:"model,omitempty"`
	Prompt         string         `json:"prompt"`
	MaxTokens      int            `json:"max_tokens"`
	Temperature    float64        `json:"temperature"`
	Stream         bool           `json:"stream"`
	StreamOptions  map[string]any `json:"stream_options"`
	IgnoreEOS      bool           `json:"ignore_eos,omitempty"`
	ReturnTokenIDs bool           `json:"return_token_ids,omitempty"`
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
		return "", fmt.Errorf("sse: base URL %q has a query or a fragment, want none", base)
	}
	if !strings.HasSuffix(strings.TrimRight(u.Path, "/"), "/v1") {
		u = u.JoinPath("v1")
	}
	return u.JoinPath(path).String(), nil
}

// Complete sends one completions request and fills in everything that a
// client sees: the stamps from StartNS on, events, ids, text, usage, end and,
// if it failed, why. What came before a failure is kept. The fields that
// belong to the plan, and ScheduledNS, are the caller's.
func (c *Client) Complete(ctx context.Context, ask Ask, r *verify.Request) {
	endpoint, err := Endpoint(c.BaseURL, "completions")
	if err == nil {
		var body []byte
		body, err = json.Marshal(completionRequest{
			Model: c.Model, Prompt: ask.Prompt, MaxTokens: ask.OutputTokens, Stream: true,
			StreamOptions: map[string]any{"include_usage": true}, IgnoreEOS: ask.IgnoreEOS, ReturnTokenIDs: ask.TokenIDs,
		})
		if err == nil {
			c.exchange(ctx, endpoint, ask.ID, body, r)
			return
		}
	}
	r.StartNS = c.Clock.Now()
	r.EndNS = r.StartNS
	r.Failure = &verify.Failure{Class: verify.FailConnect, Message: err.Error()}
}

// exchange makes the connection, sends, reads to the end, and only then
// looks at what it has.
func (c *Client) exchange(ctx context.Context, endpoint, id string, body []byte, r *verify.Request) {
	var conn atomic.Pointer[capture] // the transport dials in a goroutine of its own
	var sent atomic.Int64            // and writes in another
	dial := func(ctx context.Context, network, address string) (net.Conn, error) {
		plain, err := c.dial(ctx, network, address)
		if err != nil {
			return nil, err
		}
		kept := c.capture(plain)
		conn.Store(kept)
		return kept, nil
	}
	transport := &http.Transport{
		DisableKeepAlives:  true,
		DisableCompression: true,
		DialContext:        dial,
		DialTLSContext: func(ctx context.Context, network, address string) (net.Conn, error) {
			plain, err := c.dial(ctx, network, address)
			if err != nil {
				return nil, err
			}
			host, _, err := net.SplitHostPort(address)
			if err != nil {
				return nil, err
			}
			secure := tls.Client(plain, &tls.Config{ServerName: host, NextProtos: []string{"http/1.1"}})
			if err := secure.HandshakeContext(ctx); err != nil {
				plain.Close()
				return nil, err
			}
			kept := c.capture(secure)
			conn.Store(kept)
			return kept, nil
		},
		TLSNextProto: map[string]func(string, *tls.Conn) http.RoundTripper{}, // HTTP/1 only: one stream, one connection
	}
	defer transport.CloseIdleConnections()
	trace := &httptrace.ClientTrace{
		GotConn: func(info httptrace.GotConnInfo) {
			r.ConnectedNS = c.Clock.Now()
			r.Reused = info.Reused
		},
		WroteRequest: func(info httptrace.WroteRequestInfo) {
			if info.Err == nil {
				sent.Store(c.Clock.Now())
			}
		},
	}
	request, err := http.NewRequestWithContext(httptrace.WithClientTrace(ctx, trace), http.MethodPost, endpoint, bytes.NewReader(body))
	if err != nil {
		r.StartNS = c.Clock.Now()
		r.EndNS = r.StartNS
		r.Failure = &verify.Failure{Class: verify.FailConnect, Message: err.Error()}
		return
	}
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("Accept", "text/event-stream")
	if id != "" {
		request.Header.Set("X-Request-Id", id)
	}

	r.StartNS = c.Clock.Now()
	response, err := transport.RoundTrip(request) // no redirects, no retries of ours
	if err == nil {
		_, err = io.Copy(io.Discard, response.Body)
		response.Body.Close()
	}
	r.EndNS = c.Clock.Now()

	var raw []byte
	var reads []readMark
	if kept := conn.Load(); kept != nil {
		raw, reads = kept.take()
	}
	if len(reads) > 0 {
		r.HeadersNS = reads[0].ns
	}
	if r.HeadersNS > 0 && r.HeadersNS < r.ConnectedNS {
		// The first byte was read before the transport said that the
		// connection was there.
		r.ConnectedNS = r.HeadersNS
	}
	r.SentNS = min(sent.Load(), r.EndNS)
	read(r, response, raw, reads, err)
	if r.Failure != nil {
		r.Failure.Class = c.classify(ctx, r, err)
		if r.Failure.Class == verify.FailStall {
			r.Failure.Message = fmt.Sprintf("nothing came for %v: %s", c.idle(), r.Failure.Message)
		}
		r.Failure.Message = boundMessage(r.Failure.Message)
	}
}

func (c *Client) dial(ctx context.Context, network, address string) (net.Conn, error) {
	if c.Dial != nil {
		return c.Dial(ctx, network, address)
	}
	d := net.Dialer{Timeout: c.idle()}
	return d.DialContext(ctx, network, address)
}

// idle returns the limit on one operation, 0 for none.
func (c *Client) idle() time.Duration {
	if c.Idle == 0 {
		return DefaultIdle
	}
	return max(c.Idle, 0)
}

func (c *Client) capture(conn net.Conn) *capture {
	return &capture{Conn: conn, clock: c.Clock, idle: c.idle()}
}

// classify turns a transport's error into a class. A class that read has
// given for another reason stays.
func (c *Client) classify(ctx context.Context, r *verify.Request, err error) string {
	switch {
	case ctx.Err() != nil:
		return verify.FailCanceled
	case err == nil || r.Failure.Class != "":
		return r.Failure.Class
	case errors.Is(err, os.ErrDeadlineExceeded):
		return verify.FailStall
	case r.ConnectedNS == 0:
		return verify.FailConnect
	case r.SentNS == 0:
		return verify.FailWrite
	}
	return verify.FailStream
}

// read fills r from a response as it was received; err is that of the
// transport.
func read(r *verify.Request, response *http.Response, raw []byte, reads []readMark, err error) {
	fail := func(class, format string, args ...any) {
		if r.Failure == nil {
			r.Failure = &verify.Failure{Class: class, Message: fmt.Sprintf(format, args...)}
		}
	}
	if response == nil {
		fail("", "%v", err)
		return
	}
	r.Status = response.StatusCode
	got, parseErr := parseReceived(raw)
	if parseErr != nil {
		fail(verify.FailReply, "%v", parseErr)
		return
	}
	if r.Status != http.StatusOK {
		fail(verify.FailStatus, "%s: %s", response.Status, message(got.body))
		return
	}
	if coding := response.Header.Get("Content-Encoding"); coding != "" && coding != "identity" {
		fail(verify.FailReply, "the answer is compressed (%s), though nobody asked for it: its events can't be timed", coding)
		return
	}
	media, _, _ := mime.ParseMediaType(response.Header.Get("Content-Type"))
	if media != "text/event-stream" {
		fail(verify.FailReply, "content type %q, want text/event-stream: %s", response.Header.Get("Content-Type"), message(got.body))
		return
	}
	script := transcript{request: r}
	when := arrivals{got.spans, reads}
	for event := range Events(got.body) {
		script.event(event, when.at(event.End))
	}
	script.finish()
	switch {
	case r.Failure != nil:
	case err != nil:
		fail("", "the stream broke off: %v", err)
	case got.end != nil:
		fail(verify.FailStream, "the stream broke off: %v", got.end)
	case r.Finish == "" && !strings.ContainsRune(r.EventKinds, verify.EventDone):
		fail(verify.FailStream, "the stream ended without a finish reason or [DONE]")
	default:
		if _, ok := r.FirstTokenNS(); !ok {
			fail(verify.FailEmpty, "the stream ended properly but carried no token")
		}
	}
}

// boundMessage bounds a message and makes it valid UTF-8.
func boundMessage(message string) string {
	const most = 1000
	message = strings.ToValidUTF8(message, "�")
	if len(message) > most {
		message = strings.ToValidUTF8(message[:most], "") + "…"
	}
	return message
}
