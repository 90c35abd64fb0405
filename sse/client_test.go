package sse

import (
	"bufio"
	"cmp"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"servebench/verify"
)

// script is a stream as testdata/scripts has it: what a server sends, step by
// step, and what a client must make of it.
type script struct {
	ID            string            `json:"id"`
	Interim       string            `json:"interim"` // before the head, as it stands
	Status        int               `json:"status"`
	Headers       map[string]string `json:"headers"`
	Framing       string            `json:"framing"` // chunked, length, close
	ContentLength *int              `json:"content_length"`
	End           string            `json:"end"` // clean, no_terminator, rst
	Steps         []struct {
		SleepMS int    `json:"sleep_ms"`
		Text    string `json:"text"` // or
		B64     string `json:"b64"`  // or
		Line    *struct {
			Token string `json:"token"`
			Bytes int    `json:"bytes"`
		} `json:"line"`
	} `json:"steps"`
	Expect struct {
		Outcome     string  `json:"outcome"` // ok, fail, policy
		ErrorClass  string  `json:"error_class"`
		Class       string  `json:"class"`   // in our words
		Message     string  `json:"message"` // what it begins with
		TokenEvents int     `json:"token_events"`
		FirstStep   *int    `json:"first_token_step"`
		LastStep    *int    `json:"last_token_step"`
		Kinds       *string `json:"kinds"`
		Text        string  `json:"text"`
		Reasoning   *string `json:"reasoning"`
		Completion  *int    `json:"usage_completion_tokens"`
		Cached      *int    `json:"cached_tokens"`
		IDs         []int32 `json:"ids"`
		Finish      string  `json:"finish"`
		HTTP        int     `json:"http"`
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
	if text := s.Steps[i].Text; text != "" {
		return []byte(text)
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
	head := s.Interim + fmt.Sprintf("HTTP/1.1 %d X\r\n", s.Status)
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
	if want := s.Expect.Kinds; want != nil && r.EventKinds != *want {
		t.Errorf("kinds %q, want %q", r.EventKinds, *want)
	}
	if want := s.Expect.Reasoning; want != nil && r.Reasoning != *want {
		t.Errorf("reasoning %q, want %q", r.Reasoning, *want)
	}
	if s.Expect.Finish != "" && r.Finish != s.Expect.Finish {
		t.Errorf("finish %q, want %q", r.Finish, s.Expect.Finish)
	}
	if want := s.Expect.Completion; want != nil && (r.Usage == nil || r.Usage.CompletionTokens != *want) {
		t.Errorf("usage %+v, want %d completion tokens", r.Usage, *want)
	}
	if want := s.Expect.Cached; want != nil && (r.Usage == nil || r.Usage.CachedTokens == nil || *r.Usage.CachedTokens != *want) {
		t.Errorf("usage %+v, want %d cached tokens", r.Usage, *want)
	}
	if s.Expect.Outcome != "fail" {
		if !slices.Equal(r.TokenIDs, s.Expect.IDs) {
			t.Errorf("ids %v, want %v", r.TokenIDs, s.Expect.IDs)
		}
		if r.Failure != nil {
			t.Fatalf("failure %+v, want none", r.Failure)
		}
		return
	}
	class := cmp.Or(s.Expect.Class, classes[s.Expect.ErrorClass])
	if r.Failure == nil {
		t.Fatalf("no failure, want %s", class)
	}
	if r.Failure.Class != class || !strings.HasPrefix(r.Failure.Message, s.Expect.Message) {
		t.Errorf("failure %q: %q, want %q: %q", r.Failure.Class, r.Failure.Message, class, s.Expect.Message)
	}
	if s.Expect.HTTP != 0 && r.Status != s.Expect.HTTP {
		t.Errorf("status %d, want %d", r.Status, s.Expect.HTTP)
	}
}

// cuts returns offsets into n bytes where a test cuts, each or about most of
// them, evenly spread, and the last.
func cuts(n, most int) []int {
	if most /= slowness; testing.Short() {
		most = most/9 + 1
	}
	stride := max(1, n/most)
	var at []int
	for cut := 1; cut < n; cut += stride {
		at = append(at, cut)
	}
	return append(at, n-1)
}

const streamHead = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n"

// streams are the scripts whose outcome lies in their events alone, with
// those events; most is how long they may be.
func streams(t *testing.T, most int) map[*script][]byte {
	out := map[*script][]byte{}
	for _, s := range scripts(t) {
		var body []byte
		for i := range s.Steps {
			body = append(body, s.step(t, i)...)
		}
		coding := s.Headers["Content-Encoding"]
		if s.Status == 200 && s.End == "clean" && s.ContentLength == nil && len(body) > 1 && len(body) <= most && (coding == "" || coding == "identity") &&
			strings.HasPrefix(strings.ToLower(s.Headers["Content-Type"]+s.Headers["content-type"]), "text/event-stream") {
			out[&s] = body
		}
	}
	return out
}

// Each script arrives in two reads, cut at every offset, with a pause between
// them: what is read stays the same, and each event has the stamp of the read
// that completed it.
func TestClientCutAnywhere(t *testing.T) {
	const pause = 7 * time.Millisecond
	for s, body := range streams(t, 4096) {
		t.Run(s.ID, func(t *testing.T) {
			var ends []int
			for event := range Events(body) {
				if len(event.Data) > 0 {
					ends = append(ends, event.End)
				}
			}
			for _, cut := range cuts(len(body), 500) {
				synctest.Test(t, func(t *testing.T) {
					var begin int64
					clock := NewClock()
					r := complete(pipe(func(conn net.Conn) {
						defer conn.Close()
						http.ReadRequest(bufio.NewReader(conn))
						begin = clock.Now()
						io.WriteString(conn, streamHead)
						conn.Write(body[:cut])
						time.Sleep(pause)
						conn.Write(body[cut:])
					}), clock)
					check(t, s, r)
					if !slices.IsSorted(r.EventNS) {
						t.Fatalf("cut at %d: stamps %v run backwards", cut, r.EventNS)
					}
					if len(ends) != len(r.EventNS) {
						return // some aren't of the answer
					}
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

// A stream without a length breaks off after every byte, and the connection
// closes properly: what isn't a failure then is the whole answer, with the
// number of its tokens or none.
func TestClientBrokenOffAnywhere(t *testing.T) {
	for s, body := range streams(t, 4096) {
		if s.Expect.Outcome == "fail" {
			continue
		}
		t.Run(s.ID, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				get := func(body []byte) *verify.Request {
					return complete(pipe(func(conn net.Conn) {
						defer conn.Close()
						http.ReadRequest(bufio.NewReader(conn))
						io.WriteString(conn, streamHead)
						conn.Write(body)
					}), NewClock())
				}
				whole := get(body)
				if whole.Failure != nil && s.Expect.Outcome == "ok" {
					t.Fatalf("failure %+v", whole.Failure)
				}
				tokens, _ := whole.Tokens()
				for _, cut := range cuts(len(body), 300) {
					r := get(body[:cut])
					if r.Failure != nil {
						if r.Failure.Class != verify.FailStream && r.Failure.Class != verify.FailEmpty {
							t.Errorf("broken off after %d: failure %+v", cut, r.Failure)
						}
						continue
					}
					n, known := r.Tokens()
					if r.Text != whole.Text || r.Reasoning != whole.Reasoning || known && n != tokens {
						t.Errorf("broken off after %d: a success with text %q, reasoning %q and %d tokens (known: %t), want %q, %q and %d", cut, r.Text, r.Reasoning, n, known, whole.Text, whole.Reasoning, tokens)
					}
				}
			})
		})
	}
}

func TestClientFailures(t *testing.T) {
	const head = streamHead
	const token = `data: {"choices":[{"index":0,"text":"a","finish_reason":null}]}` + "\n\n"
	tests := []struct {
		name    string
		reply   string
		class   string
		message string
	}{
		{"nothing", "", verify.FailStream, "EOF"},
		{"not HTTP", "hello\r\n\r\n", verify.FailStream, "malformed HTTP response"},
		{"a status of nothing", "HTTP/1.1 000 Hm\r\nContent-Length: 0\r\n\r\n", verify.FailReply, `status "000 Hm" is none of HTTP`},
		{"a redirect is not followed", "HTTP/1.1 307 Moved\r\nLocation: /elsewhere\r\nContent-Length: 0\r\n\r\n", verify.FailStatus, "307 Moved to /elsewhere: the server gives no reason"},
		{"error in the OpenAI form", "HTTP/1.1 400 Bad\r\nContent-Length: 41\r\n\r\n" + `{"error":{"message":"no such parameter"}}`, verify.FailStatus, "400 Bad: no such parameter"},
		{"error in the FastAPI form", "HTTP/1.1 422 No\r\nContent-Length: 17\r\n\r\n" + `{"detail":"what"}`, verify.FailStatus, "422 No: what"},
		{"not streamed", "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 16\r\n\r\n" + `{"error":"whoa"}`, verify.FailReply, `content type "application/json", want text/event-stream: whoa`},
		{"compressed", "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nContent-Encoding: gzip\r\nContent-Length: 1\r\n\r\nx", verify.FailReply, "the answer is compressed (gzip), though nobody asked for it: its events can't be timed"},
		{"a broken chunked coding", "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n40\r\n" + token + "\r\nxyz\r\n", verify.FailStream, "the stream broke off: "},
		{"a chunk that goes on after its length", "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n4f\r\n" + token + "data: [DONE]\n\n\r\v0\r\n\r\n", verify.FailStream, `the stream broke off: "\r\v" after a chunk's data, want "\r\n"`},
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

// What the metrics of a script come to, by hand, from its steps' times.
func TestClientScriptMetrics(t *testing.T) {
	const ms = int64(time.Millisecond)
	tests := []struct {
		script string
		tokens int   // by the server's own count
		ttft   int64 // of the first token of any kind
		answer int64 // of the first that isn't reasoning; 0 for none
		tpot   int64 // 0 for undefined
		gap    int64 // the last between two events with a token; 0 for none
	}{
		{"C13_role_only_first_chunk", 2, 160 * ms, 160 * ms, 20 * ms, 20 * ms},
		{"C14_usage_only_last_chunk_empty_choices", 3, 10 * ms, 10 * ms, 10 * ms, 10 * ms},
		{"C16_several_tokens_per_chunk", 9, 100 * ms, 100 * ms, 45 * ms / 2, 90 * ms},
		{"C18_reasoning_then_content", 4, 65 * ms, 145 * ms, 80 * ms / 3, 60 * ms},
		{"C18b_reasoning_only_then_length", 2, 40 * ms, 0, 10 * ms, 10 * ms},
		{"C21_stops_early_3_of_128", 3, 30 * ms, 30 * ms, 30 * ms, 30 * ms},
		{"C23_one_token", 1, 50 * ms, 50 * ms, 0, 0},
		{"ids_bare", 5, 60 * ms, 90 * ms, 10 * ms, 10 * ms},
		{"tool_calls", 6, 70 * ms, 70 * ms, 4 * ms, 10 * ms},
		{"no_done", 0, 50 * ms, 50 * ms, 0, 10 * ms},
	}
	all := scripts(t)
	for _, test := range tests {
		t.Run(test.script, func(t *testing.T) {
			i := slices.IndexFunc(all, func(s script) bool { return s.ID == test.script })
			if i < 0 {
				t.Fatal("no such script")
			}
			synctest.Test(t, func(t *testing.T) {
				clock := NewClock()
				r := complete(pipe(func(conn net.Conn) { all[i].play(t, conn) }), clock)
				var at []int64
				for i, kind := range []byte(r.EventKinds) {
					if strings.IndexByte("crt", kind) >= 0 {
						at = append(at, r.EventNS[i])
					}
				}
				gap := int64(0)
				if n := len(at); n > 1 {
					gap = at[n-1] - at[n-2]
				}
				ttft, _ := r.TTFT()
				answer, ok := r.FirstAnswerNS()
				if ok {
					answer -= r.StartNS
				}
				tpot, defined := r.TPOT()
				tokens, _ := r.Tokens()
				if tokens != test.tokens || ttft != test.ttft || answer != test.answer || int64(tpot) != test.tpot || defined != (test.tpot > 0) || gap != test.gap {
					t.Errorf("%d tokens, TTFT %d, answer at %d, TPOT %v, gap %d, want %+v", tokens, ttft, answer, tpot, gap, test)
				}
			})
		})
	}
}
