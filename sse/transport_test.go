package sse

import (
	"bufio"
	"compress/gzip"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

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
		conn, buffered, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		go func() {
			io.Copy(target, buffered) // the server may have read a byte of it
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

// Whatever the server makes of a request, it hears of it once.
func TestClientTriesOnce(t *testing.T) {
	tests := []struct {
		name   string
		answer http.HandlerFunc
		class  string
		status int
		says   string
	}{
		{"429 with Retry-After", func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Retry-After", "0")
			http.Error(w, `{"error":{"message":"slow down"}}`, http.StatusTooManyRequests)
		}, verify.FailStatus, 429, "429 Too Many Requests: slow down"},
		{"503 with a page", func(w http.ResponseWriter, _ *http.Request) {
			http.Error(w, "<html>down</html>", http.StatusServiceUnavailable)
		}, verify.FailStatus, 503, "503 Service Unavailable: <html>down</html>"},
		{"408, which says try again", func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusRequestTimeout)
		}, verify.FailStatus, 408, "408 Request Timeout: the server gives no reason"},
		{"425", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusTooEarly) }, verify.FailStatus, 425, "425 Too Early"},
		{"307 to itself", func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "/v1/completions/", http.StatusTemporaryRedirect)
		}, verify.FailStatus, 307, "307 Temporary Redirect to /v1/completions/: "},
		{"hung up on", func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, verify.FailStream, 0, "EOF"},
	}
	for _, test := range tests {
		for _, reuse := range []bool{false, true} {
			var asked atomic.Int32
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				asked.Add(1)
				io.Copy(io.Discard, r.Body)
				test.answer(w, r)
			}))
			c := Client{BaseURL: server.URL, Clock: NewClock(), Reuse: reuse}
			r := &verify.Request{}
			c.Complete(t.Context(), Ask{Prompt: "p"}, r)
			if asked.Load() != 1 || r.Failure == nil || r.Failure.Class != test.class || r.Status != test.status || !strings.Contains(r.Failure.Message, test.says) {
				t.Errorf("%s (reuse %t): asked %d times, status %d, failure %+v, want once, %d, %s: %s", test.name, reuse, asked.Load(), r.Status, r.Failure, test.status, test.class, test.says)
			}
			c.Close()
			server.Close()
		}
	}
}

// A base URL in each of its forms reaches each endpoint, once and nothing else.
func TestClientReachesEndpoint(t *testing.T) {
	for _, base := range []string{"", "/", "/v1", "/v1/", "/team/x/v1", "/team/x/v1/", "/team/x"} {
		for _, chat := range []bool{false, true} {
			var paths []string
			server := httptest.NewServer(echo(func(r *http.Request, _ []byte) { paths = append(paths, r.Method+" "+r.URL.Path) }))
			want := "/v1/completions"
			if chat {
				want = "/v1/chat/completions"
			}
			if strings.HasPrefix(base, "/team/x") {
				want = "/team/x" + want
			}
			c := Client{BaseURL: server.URL + base, Clock: NewClock(), Chat: chat}
			r := &verify.Request{}
			c.Complete(t.Context(), Ask{Prompt: "p"}, r)
			if r.Failure != nil || len(paths) != 1 || paths[0] != "POST "+want {
				t.Errorf("base %q, chat %t: failure %+v, asked for %q, want POST %s once", base, chat, r.Failure, paths, want)
			}
			server.Close()
		}
	}
}

// localhost is ::1 and 127.0.0.1; a server on one of them is found.
func TestClientLocalhost(t *testing.T) {
	tried := 0
	for _, address := range []string{"127.0.0.1:0", "[::1]:0"} {
		listener, err := net.Listen("tcp", address)
		if err != nil {
			t.Logf("no %s here: %v", address, err)
			continue
		}
		asked := 0
		server := httptest.NewUnstartedServer(echo(func(*http.Request, []byte) { asked++ }))
		server.Listener.Close()
		server.Listener = listener
		server.Start()
		if addresses, err := net.LookupHost("localhost"); err != nil || !slices.Contains(addresses, listener.Addr().(*net.TCPAddr).IP.String()) {
			t.Logf("localhost is %q here (%v), not %s", addresses, err, address)
			server.Close()
			continue
		}
		tried++
		c := Client{BaseURL: "http://localhost:" + strconv.Itoa(listener.Addr().(*net.TCPAddr).Port), Clock: NewClock()}
		r := &verify.Request{}
		if c.Complete(t.Context(), Ask{Prompt: "p"}, r); r.Failure != nil || asked != 1 {
			t.Errorf("a server on %s: failure %+v, asked %d times, want once", address, r.Failure, asked)
		}
		server.Close()
	}
	if tried == 0 {
		t.Skip("localhost is no loopback address here")
	}
}

// The client says that it takes no compression. A server that compresses all
// the same, and keeps 10 events back till the end, isn't measured; one that
// asks first is, event by event.
func TestClientWantsNoCompression(t *testing.T) {
	for _, always := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			var begin int64
			clock := NewClock()
			r := complete(pipe(func(conn net.Conn) {
				defer conn.Close()
				request, err := http.ReadRequest(bufio.NewReader(conn))
				if err != nil {
					t.Error(err)
					return
				}
				begin = clock.Now()
				head := strings.TrimSuffix(streamHead, "\r\n")
				var body io.Writer = conn
				if always || strings.Contains(request.Header.Get("Accept-Encoding"), "gzip") {
					head += "Content-Encoding: gzip\r\n"
					compressor := gzip.NewWriter(conn)
					defer compressor.Close()
					body = compressor
				}
				io.WriteString(conn, head+"\r\n")
				for range 10 {
					time.Sleep(20 * time.Millisecond)
					io.WriteString(body, "data: {\"choices\":[{\"index\":0,\"text\":\"a\"}]}\n\n")
				}
				io.WriteString(body, "data: [DONE]\n\n")
			}), clock)
			if always {
				if r.Failure == nil || r.Failure.Class != verify.FailReply || !strings.HasPrefix(r.Failure.Message, "the answer is compressed (gzip)") {
					t.Errorf("failure %+v, want a reply that is compressed", r.Failure)
				}
				return
			}
			if r.Failure != nil || r.EventKinds != "ccccccccccd" {
				t.Fatalf("failure %+v, kinds %q", r.Failure, r.EventKinds)
			}
			for i, ns := range r.EventNS[:10] {
				if want := begin + int64(i+1)*20e6; ns != want {
					t.Errorf("event %d arrived at %d, want %d", i, ns, want)
				}
			}
		})
	}
}

// A reset in the middle of a stream, by a real one's kernel.
func TestClientReset(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	read := make(chan struct{})
	go func() {
		conn, err := listener.Accept()
		if err != nil {
			return
		}
		http.ReadRequest(bufio.NewReader(conn))
		io.WriteString(conn, "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\ndata: {\"choices\":[{\"index\":0,\"text\":\"a\",\"finish_reason\":\"stop\"}]}\n\n")
		<-read
		conn.(*net.TCPConn).SetLinger(0)
		conn.Close()
	}()
	time.AfterFunc(50*time.Millisecond, func() { close(read) })
	c := Client{BaseURL: "http://" + listener.Addr().String(), Clock: NewClock()}
	r := &verify.Request{}
	c.Complete(t.Context(), Ask{Prompt: "p"}, r)
	if r.Failure == nil || r.Failure.Class != verify.FailStream || !strings.Contains(r.Failure.Message, "connection reset") || r.Text != "a" {
		t.Errorf("failure %+v after %q, want a reset after what came", r.Failure, r.Text)
	}
}

// Pings are life: a queue may be longer than the idle limit. They stamp
// nothing. When they stop, that is a stall.
func TestClientPings(t *testing.T) {
	for _, stall := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			var begin int64
			clock := NewClock()
			r := complete(pipe(func(conn net.Conn) {
				defer conn.Close()
				http.ReadRequest(bufio.NewReader(conn))
				begin = clock.Now()
				io.WriteString(conn, streamHead)
				for range 10 {
					time.Sleep(DefaultIdle - time.Second)
					io.WriteString(conn, ": ping\n\n")
				}
				if stall {
					io.Copy(io.Discard, conn)
					return
				}
				io.WriteString(conn, "data: {\"choices\":[{\"index\":0,\"text\":\"a\",\"finish_reason\":\"stop\"}]}\n\n")
			}), clock)
			alive := 10 * int64(DefaultIdle-time.Second)
			if stall {
				if r.Failure == nil || r.Failure.Class != verify.FailStall || r.EndNS-begin != alive+int64(DefaultIdle) {
					t.Errorf("failure %+v after %d ns, want a stall after %d", r.Failure, r.EndNS-begin, alive+int64(DefaultIdle))
				}
				return
			}
			if first, _ := r.FirstTokenNS(); r.Failure != nil || first-begin != alive || len(r.EventNS) != 1 {
				t.Errorf("failure %+v, first token after %d ns in %d events, want %d in 1", r.Failure, first-begin, len(r.EventNS), alive)
			}
		})
	}
}
