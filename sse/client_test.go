package sse

import (
	"bufio"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"servebench/verify"
)

// script is a recorded or invented stream as testdata/sse has it: what a
// server sends, step by step, and what a client must make of it.
type script struct {
	ID            string            `json:"id"`
	Status        int               `json:"status"`
	Headers       map[string]string `json:"headers"`
	Framing       string            `json:"framing"` // chunked, length, close
	ContentLength *int              `json:"content_length"`
	End           string            `json:"end"` // clean, no_terminator, rst
	Steps         []struct {
		SleepMS int    `json:"sleep_ms"`
		B64     string `json:"b64"`
		Line    *struct {
			Token string `json:"token"`
			Bytes int    `json:"bytes"`
		} `json:"line"`
	} `json:"steps"`
	Expect struct {
		Outcome     string `json:"outcome"` // ok, fail, policy
		ErrorClass  string `json:"error_class"`
		TokenEvents int    `json:"token_events"`
		FirstStep   *int   `json:"first_token_step"`
		LastStep    *int   `json:"last_token_step"`
		Text        string `json:"text"`
		Completion  *int   `json:"usage_completion_tokens"`
		Finish      string `json:"finish"`
		HTTP        int    `json:"http"`
	} `json:"expect"`
}

func scripts(t testing.TB) []script {
	paths, err := filepath.Glob("testdata/scripts/*.json")
	if err != nil || len(paths) == 0 {
		t.Fatalf("testdata/scripts has no script: %v", err)
	}
	var out []script
	for _, path := range paths {
		data, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		var s script
		if err := json.Unmarshal(data, &s); err != nil {
			t.Fatalf("%s: %v", path, err)
		}
		out = append(out, s)
	}
	return out
}

// step returns the bytes of step i.
func (s *script) step(t testing.TB, i int) []byte {
	if line := s.Steps[i].Line; line != nil {
		const format = `data: {"id":"c1","object":"chat.completion.chunk","created":1,"model":"m","choices":[{"index":0,"delta":{"content":"%s"},"finish_reason":null}],"pad":"%s"}`
		pad := line.Bytes - len(fmt.Sprintf(format, line.Token, ""))
		return []byte(fmt.Sprintf(format, line.Token, strings.Repeat("x", pad)) + "\n\n")
	}
	data, err := base64.StdEncoding.DecodeString(s.Steps[i].B64)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// play serves s on conn once, on the clock of its steps.
func (s *script) play(t testing.TB, conn net.Conn) {
	defer conn.Close()
	if _, err := http.ReadRequest(bufio.NewReader(conn)); err != nil {
		return
	}
	total := 0
	for i := range s.Steps {
		total += len(s.step(t, i))
	}
	head := fmt.Sprintf("HTTP/1.1 %d X\r\n", s.Status)
	for name, value := range s.Headers {
		head += name + ": " + value + "\r\n"
	}
	switch s.Framing {
	case "chunked":
		head += "Transfer-Encoding: chunked\r\n"
	case "close":
		head += "Connection: close\r\n"
	case "length":
		if s.ContentLength != nil {
			total = *s.ContentLength
		}
		head += fmt.Sprintf("Content-Length: %d\r\n", total)
	}
	io.WriteString(conn, head+"\r\n")
	for i := range s.Steps {
		time.Sleep(time.Duration(s.Steps[i].SleepMS) * time.Millisecond)
		data := s.step(t, i)
		if s.Framing == "chunked" {
			data = []byte(fmt.Sprintf("%x\r\n%s\r\n", len(data), data))
		}
		conn.Write(data)
	}
	if s.Framing == "chunked" && s.End == "clean" {
		io.WriteString(conn, "0\r\n\r\n")
	}
}

// due returns ns from the first step's begin to step i's write.
func (s *script) due(i int) (ns int64) {
	for j := range i + 1 {
		ns += int64(s.Steps[j].SleepMS) * int64(time.Millisecond)
	}
	return ns
}

// classes translates the scripts' names of failures into ours.
var classes = map[string]string{
	"no_tokens":     verify.FailEmpty,
	"in_band_error": verify.FailServer,
	"http_status":   verify.FailStatus,
	"transport":     verify.FailStream,
}

func ask() Ask { return Ask{ID: "t", Prompt: "p", OutputTokens: 16} }

func complete(dial func(context.Context, string, string) (net.Conn, error), clock *Clock) *verify.Request {
	c := Client{BaseURL: "http://server", Clock: clock, Dial: dial}
	r := &verify.Request{}
	c.Complete(context.Background(), ask(), r)
	return r
}

// pipe returns a dialer whose connections are served by play, and fake time
// moves through.
func pipe(play func(net.Conn)) func(context.Context, string, string) (net.Conn, error) {
	return func(context.Context, string, string) (net.Conn, error) {
		client, server := net.Pipe()
		go play(server)
		return client, nil
	}
}

func TestClientScripts(t *testing.T) {
	for _, s := range scripts(t) {
		t.Run(s.ID, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var begin int64
				clock := NewClock()
				r := complete(pipe(func(conn net.Conn) {
					begin = clock.Now()
					s.play(t, conn)
				}), clock)
				check(t, &s, r)
				for step, first := range map[*int]bool{s.Expect.FirstStep: true, s.Expect.LastStep: false} {
					if step == nil {
						continue
					}
					got, _ := r.LastTokenNS()
					if first {
						got, _ = r.FirstTokenNS()
					}
					if want := begin + s.due(*step); got != want {
						t.Errorf("token of step %d (first: %t) arrived at %d, want %d", *step, first, got, want)
					}
				}
			})
		})
	}
}

// check holds what the client made of a script against what it expects.
func check(t *testing.T, s *script, r *verify.Request) {
	t.Helper()
	tokens := 0
	for i := range r.EventKinds {
		switch r.EventKinds[i] {
		case verify.EventContent, verify.EventReasoning, verify.EventTool:
			tokens++
		}
	}
	if tokens != s.Expect.TokenEvents {
		t.Errorf("%d events carry a token, want %d (kinds %q)", tokens, s.Expect.TokenEvents, r.EventKinds)
	}
	if r.Text != s.Expect.Text {
		t.Errorf("text %q, want %q", r.Text, s.Expect.Text)
	}
	if s.Expect.Outcome == "fail" {
		if r.Failure == nil {
			t.Fatalf("no failure, want %s", classes[s.Expect.ErrorClass])
		}
		if r.Failure.Class != classes[s.Expect.ErrorClass] {
			t.Errorf("failure %+v, want class %s", r.Failure, classes[s.Expect.ErrorClass])
		}
		if s.Expect.HTTP != 0 && r.Status != s.Expect.HTTP {
			t.Errorf("status %d, want %d", r.Status, s.Expect.HTTP)
		}
		return
	}
	if r.Failure != nil {
		t.Fatalf("failure %+v, want none", r.Failure)
	}
	if s.Expect.Finish != "" && r.Finish != s.Expect.Finish {
		t.Errorf("finish %q, want %q", r.Finish, s.Expect.Finish)
	}
	if want := s.Expect.Completion; want != nil && (r.Usage == nil || r.Usage.CompletionTokens != *want) {
		t.Errorf("usage %+v, want %d completion tokens", r.Usage, *want)
	}
}

// Each script arrives in two reads, cut at every offset, with a pause between
// them: what is read stays the same, and each event has the stamp of the read
// that completed it.
func TestClientCutAnywhere(t *testing.T) {
	const pause = 7 * time.Millisecond
	for _, s := range scripts(t) {
		var body []byte
		for i := range s.Steps {
			body = append(body, s.step(t, i)...)
		}
		if s.Expect.Outcome != "ok" || len(body) > 4096 {
			continue
		}
		t.Run(s.ID, func(t *testing.T) {
			var ends []int
			for event := range Events(body) {
				if len(event.Data) > 0 {
					ends = append(ends, event.End)
				}
			}
			stride := 1
			if testing.Short() {
				stride = 17
			}
			for cut := 1; cut < len(body); cut += stride {
				synctest.Test(t, func(t *testing.T) {
					var begin int64
					clock := NewClock()
					r := complete(pipe(func(conn net.Conn) {
						defer conn.Close()
						http.ReadRequest(bufio.NewReader(conn))
						begin = clock.Now()
						io.WriteString(conn, "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n")
						conn.Write(body[:cut])
						time.Sleep(pause)
						conn.Write(body[cut:])
					}), clock)
					check(t, &s, r)
					for i, end := range ends {
						want := begin
						if end > cut {
							want += int64(pause)
						}
						if r.EventNS[i] != want {
							t.Fatalf("cut at %d: event %d ends at %d and arrived at %d, want %d", cut, i, end, r.EventNS[i], want)
						}
					}
				})
			}
		})
	}
}

func TestClientFailures(t *testing.T) {
	const head = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n"
	const token = `data: {"choices":[{"index":0,"text":"a","finish_reason":null}]}` + "\n\n"
	tests := []struct {
		name    string
		reply   string
		class   string
		message string
	}{
		{"nothing", "", verify.FailStream, "EOF"},
		{"not HTTP", "hello\r\n\r\n", verify.FailStream, "malformed HTTP response"},
		{"a redirect is not followed", "HTTP/1.1 307 Moved\r\nLocation: /elsewhere\r\nContent-Length: 0\r\n\r\n", verify.FailStatus, "307 Moved to /elsewhere: "},
		{"error in the OpenAI form", "HTTP/1.1 400 Bad\r\nContent-Length: 41\r\n\r\n" + `{"error":{"message":"no such parameter"}}`, verify.FailStatus, "400 Bad: no such parameter"},
		{"error in the FastAPI form", "HTTP/1.1 422 No\r\nContent-Length: 17\r\n\r\n" + `{"detail":"what"}`, verify.FailStatus, "422 No: what"},
		{"not streamed", "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 16\r\n\r\n" + `{"error":"whoa"}`, verify.FailReply, `content type "application/json", want text/event-stream: whoa`},
		{"compressed", "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nContent-Encoding: gzip\r\nContent-Length: 1\r\n\r\nx", verify.FailReply, "the answer is compressed (gzip), though nobody asked for it: its events can't be timed"},
		{"no end", head + token, verify.FailStream, "the stream ended without a finish reason or [DONE]"},
		{"no JSON", head + "data: {\"choices\":\n\n", verify.FailStream, `event 0 is no JSON: {"choices":`},
		{"text after the end", head + token + "data: [DONE]\n\n" + token, verify.FailStream, "event 2 comes after [DONE]"},
		{"error by event type", head + token + "event: error\ndata: {\"message\":\"out of memory\"}\n\n", verify.FailServer, "out of memory"},
		{"error as text", head + `data: {"error":"no prompt"}` + "\n\ndata: [DONE]\n\n", verify.FailServer, "no prompt"},
		{"error without a word", head + `data: {"error":""}` + "\n\n", verify.FailServer, "the server gives no reason"},
		{"a second answer", head + `data: {"choices":[{"index":1,"text":"a"}]}` + "\n\n", verify.FailStream, "event 0 has choice 1, though one answer was asked for"},
		{"usage contradicts ids", head + `data: {"choices":[{"index":0,"text":"a","token_ids":[5],"finish_reason":"length"}],"usage":{"prompt_tokens":1,"completion_tokens":2}}` + "\n\ndata: [DONE]\n\n", verify.FailUsage, "the server counted 2 tokens, but sent 1 ids"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := complete(pipe(func(conn net.Conn) {
					defer conn.Close()
					http.ReadRequest(bufio.NewReader(conn))
					io.WriteString(conn, test.reply)
				}), NewClock())
				if r.Failure == nil {
					t.Fatal("no failure")
				}
				if r.Failure.Class != test.class || !strings.Contains(r.Failure.Message, test.message) {
					t.Errorf("failure %q, %q, want %q, %q", r.Failure.Class, r.Failure.Message, test.class, test.message)
				}
			})
		})
	}
}

func TestClientStall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		clock := NewClock()
		r := complete(pipe(func(conn net.Conn) {
			http.ReadRequest(bufio.NewReader(conn))
			io.WriteString(conn, "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\ndata: {\"choices\":[{\"index\":0,\"text\":\"a\"}]}\n\n")
			io.Copy(io.Discard, conn) // until the client gives up
			conn.Close()
		}), clock)
		if r.Failure == nil || r.Failure.Class != verify.FailStall {
			t.Errorf("failure %+v, want a stall", r.Failure)
		}
		if r.EndNS-r.EventNS[0] != int64(DefaultIdle) {
			t.Errorf("it was given up %v after the last event, want %v", time.Duration(r.EndNS-r.EventNS[0]), DefaultIdle)
		}
		if r.Text != "a" {
			t.Errorf("text %q, want what came before", r.Text)
		}
	})
}

// A peer that doesn't even take the request is as silent.
func TestClientStalledWrite(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		done := make(chan struct{})
		r := complete(pipe(func(conn net.Conn) { <-done; conn.Close() }), NewClock())
		close(done)
		if r.Failure == nil || r.Failure.Class != verify.FailStall || r.HeadersNS != 0 {
			t.Errorf("failure %+v with headers_ns %d, want a stall and 0", r.Failure, r.HeadersNS)
		}
		if got := r.EndNS - r.StartNS; got != int64(DefaultIdle) {
			t.Errorf("it was given up after %v, want %v", time.Duration(got), DefaultIdle)
		}
	})
}

// A stream that lives is never cut, however long it takes.
func TestClientSlowStream(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := complete(pipe(func(conn net.Conn) {
			defer conn.Close()
			http.ReadRequest(bufio.NewReader(conn))
			io.WriteString(conn, "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n")
			for range 100 {
				time.Sleep(DefaultIdle - time.Second)
				io.WriteString(conn, "data: {\"choices\":[{\"index\":0,\"text\":\"a\"}]}\n\n")
			}
			io.WriteString(conn, "data: [DONE]\n\n")
		}), NewClock())
		if r.Failure != nil || len(r.Text) != 100 {
			t.Errorf("failure %+v after %q", r.Failure, r.Text)
		}
	})
}

func TestClientCanceled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		c := Client{BaseURL: "http://server", Clock: NewClock(), Dial: pipe(func(conn net.Conn) {
			http.ReadRequest(bufio.NewReader(conn))
			time.Sleep(time.Second)
			cancel()
			io.Copy(io.Discard, conn)
			conn.Close()
		})}
		r := &verify.Request{}
		c.Complete(ctx, ask(), r)
		if r.Failure == nil || r.Failure.Class != verify.FailCanceled {
			t.Errorf("failure %+v, want %s", r.Failure, verify.FailCanceled)
		}
	})
}

func TestClientNoServer(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	listener.Close()
	c := Client{BaseURL: "http://" + listener.Addr().String(), Clock: NewClock()}
	r := &verify.Request{}
	c.Complete(t.Context(), ask(), r)
	if r.Failure == nil || r.Failure.Class != verify.FailConnect || r.ConnectedNS != 0 {
		t.Errorf("failure %+v at connected_ns %d, want %s at 0", r.Failure, r.ConnectedNS, verify.FailConnect)
	}
}

func TestEndpoint(t *testing.T) {
	tests := []struct{ base, want string }{
		{"http://h:1", "http://h:1/v1/completions"},
		{"http://h:1/", "http://h:1/v1/completions"},
		{"http://h:1/v1", "http://h:1/v1/completions"},
		{"http://h:1/v1/", "http://h:1/v1/completions"},
		{"http://h:1/team/x/v1", "http://h:1/team/x/v1/completions"},
		{"https://h/team/x", "https://h/team/x/v1/completions"},
	}
	for _, test := range tests {
		if got, err := Endpoint(test.base, "completions"); got != test.want {
			t.Errorf("Endpoint(%q) = %q, %v, want %q", test.base, got, err, test.want)
		}
	}
	for _, base := range []string{"h:1", "ftp://h", "http://", "http://h?x=1", "http://h#x", "http://h:x"} {
		if got, err := Endpoint(base, "completions"); err == nil {
			t.Errorf("Endpoint(%q) = %q, want an error", base, got)
		}
	}
}
