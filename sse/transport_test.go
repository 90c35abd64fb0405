package sse

import (
	"encoding/json"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"servebench/verify"
)

// echo answers with one token and hands the request on.
func echo(got func(r *http.Request, body []byte)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		got(r, body)
		w.Header().Set("Content-Type", "text/event-stream")
		io.WriteString(w, "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"a\"},\"text\":\"\",\"finish_reason\":\"stop\"}]}\n\ndata: [DONE]\n\n")
	}
}

func TestClientAsks(t *testing.T) {
	tests := []struct {
		name   string
		client *Client
		ask    Ask
		path   string
		body   string
	}{
		{"text", &Client{Model: "m"}, Ask{Prompt: "p", OutputTokens: 3}, "/v1/completions",
			`{"model":"m","prompt":"p","max_tokens":3,"temperature":0,"stream":true,"stream_options":{"include_usage":true}}`},
		{"ids", &Client{}, Ask{PromptIDs: []int32{1, 2}, OutputTokens: 3, MinTokens: 3, IgnoreEOS: true, TokenIDs: true}, "/v1/completions",
			`{"prompt":[1,2],"max_tokens":3,"temperature":0,"stream":true,"stream_options":{"include_usage":true},"min_tokens":3,"ignore_eos":true,"return_token_ids":true}`},
		{"chat", &Client{Chat: true}, Ask{Prompt: "p", OutputTokens: 3}, "/v1/chat/completions",
			`{"messages":[{"role":"user","content":"p"}],"max_tokens":3,"temperature":0,"stream":true,"stream_options":{"include_usage":true}}`},
		{"fields", &Client{Fields: map[string]json.RawMessage{"top_k": []byte("1"), "stream_options": []byte("null")}}, Ask{Prompt: "p", OutputTokens: 3}, "/v1/completions",
			`{"max_tokens":3,"prompt":"p","stream":true,"temperature":0,"top_k":1}`},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			var path, body string
			server := httptest.NewServer(echo(func(r *http.Request, data []byte) { path, body = r.URL.Path, string(data) }))
			defer server.Close()
			test.client.BaseURL, test.client.Clock = server.URL, NewClock()
			r := &verify.Request{}
			test.client.Complete(t.Context(), test.ask, r)
			if r.Failure != nil || path != test.path || body != test.body {
				t.Errorf("failure %+v; asked %s for %s, want %s for %s", r.Failure, path, body, test.path, test.body)
			}
		})
	}
	r := &verify.Request{}
	c := Client{BaseURL: "http://h", Chat: true, Clock: NewClock()}
	if c.Complete(t.Context(), Ask{PromptIDs: []int32{1}}, r); r.Failure == nil || r.Failure.Message != "sse: a chat has no prompt of ids" {
		t.Errorf("a chat of ids: failure %+v", r.Failure)
	}
}

func TestClientHeader(t *testing.T) {
	var got http.Header
	server := httptest.NewServer(echo(func(r *http.Request, _ []byte) { got = r.Header }))
	defer server.Close()
	c := Client{BaseURL: server.URL, Clock: NewClock(), Header: http.Header{"Authorization": {"Bearer x"}, "Accept": {"*/*"}}}
	r := &verify.Request{}
	c.Complete(t.Context(), Ask{ID: "i", Prompt: "p"}, r)
	for name, want := range map[string]string{"Authorization": "Bearer x", "Accept": "*/*", "X-Request-Id": "i", "Content-Type": "application/json", "Accept-Encoding": ""} {
		if v := got.Get(name); v != want {
			t.Errorf("header %s: %q, want %q", name, v, want)
		}
	}
}

// A new connection for each request, or one for all of them: both say which.
func TestClientReuse(t *testing.T) {
	for _, reuse := range []bool{false, true} {
		peers := map[string]bool{}
		server := httptest.NewServer(echo(func(r *http.Request, _ []byte) { peers[r.RemoteAddr] = true }))
		c := Client{BaseURL: server.URL, Clock: NewClock(), Reuse: reuse}
		var last int64
		for i := range 3 {
			r := &verify.Request{}
			c.Complete(t.Context(), Ask{Prompt: "p"}, r)
			if r.Failure != nil || r.Reused != (reuse && i > 0) || len(r.EventNS) != 2 || r.EventNS[0] <= last || r.HeadersNS < r.StartNS {
				t.Errorf("reuse %t, request %d: %+v", reuse, i, r)
			}
			last = r.EndNS
		}
		if want := map[bool]int{false: 3, true: 1}[reuse]; len(peers) != want {
			t.Errorf("reuse %t: %d connections, want %d", reuse, len(peers), want)
		}
		c.Close()
		server.Close()
	}
}

func TestClientTLS(t *testing.T) {
	server := httptest.NewTLSServer(echo(func(r *http.Request, _ []byte) {
		if r.ProtoMajor != 1 {
			t.Errorf("asked in %s, want HTTP/1", r.Proto)
		}
	}))
	defer server.Close()
	server.Config.ErrorLog = nil
	c := Client{BaseURL: server.URL, Clock: NewClock(), Insecure: true}
	r := &verify.Request{}
	if c.Complete(t.Context(), Ask{Prompt: "p"}, r); r.Failure != nil || r.Text != "a" {
		t.Errorf("failure %+v, text %q", r.Failure, r.Text)
	}
	c.Insecure = false
	r = &verify.Request{}
	c.Complete(t.Context(), Ask{Prompt: "p"}, r)
	if r.Failure == nil || r.Failure.Class != verify.FailConnect || !strings.Contains(r.Failure.Message, "certificate") {
		t.Errorf("an unknown certificate: failure %+v", r.Failure)
	}
}

// A target behind a proxy's tunnel: what the connection carries can't be read
// there, so the body's reads are stamped.
func TestClientTunnel(t *testing.T) {
	server := httptest.NewTLSServer(echo(func(*http.Request, []byte) {}))
	defer server.Close()
	tunnels := 0
	proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		target, err := net.Dial("tcp", server.Listener.Addr().String())
		if err != nil || r.Method != http.MethodConnect {
			t.Errorf("the proxy was sent %s, %v", r.Method, err)
			return
		}
		tunnels++
		w.WriteHeader(http.StatusOK)
		conn, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		go func() {
			io.Copy(target, conn)
			target.Close()
		}()
		go func() {
			io.Copy(conn, target)
			conn.Close()
		}()
	}))
	defer proxy.Close()
	address, err := url.Parse(proxy.URL)
	if err != nil {
		t.Fatal(err)
	}
	c := Client{BaseURL: "https://target.invalid", Clock: NewClock(), Proxy: http.ProxyURL(address), Insecure: true}
	r := &verify.Request{}
	c.Complete(t.Context(), Ask{Prompt: "p"}, r)
	if r.Failure != nil || tunnels != 1 || r.Text != "a" || len(r.EventNS) != 2 || r.HeadersNS < r.SentNS || r.EventNS[0] < r.HeadersNS || r.EndNS < r.EventNS[1] {
		t.Errorf("%d tunnels, %+v, failure %+v", tunnels, r, r.Failure)
	}
}

func TestClientProxy(t *testing.T) {
	var asked string
	proxy := httptest.NewServer(echo(func(r *http.Request, _ []byte) { asked = r.URL.String() }))
	defer proxy.Close()
	address, err := url.Parse(proxy.URL)
	if err != nil {
		t.Fatal(err)
	}
	c := Client{BaseURL: "http://target.invalid/x", Clock: NewClock(), Proxy: http.ProxyURL(address)}
	r := &verify.Request{}
	if c.Complete(t.Context(), Ask{Prompt: "p"}, r); r.Failure != nil || asked != "http://target.invalid/x/v1/completions" {
		t.Errorf("failure %+v, the proxy was asked for %q", r.Failure, asked)
	}
	t.Setenv("HTTP_PROXY", proxy.URL)
	c.Proxy, asked = nil, ""
	r = &verify.Request{}
	if c.Complete(t.Context(), Ask{Prompt: "p"}, r); r.Failure == nil || asked != "" {
		t.Errorf("without a proxy: failure %+v, the environment's proxy was asked for %q", r.Failure, asked)
	}
}
