package sse

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"servebench/verify"
)

// wireServer answers each connection with play and returns its base URL.
func wireServer(t *testing.T, play func(conn net.Conn, number int)) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { listener.Close() })
	go func() {
		for number := 0; ; number++ {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go func() {
				defer conn.Close()
				play(conn, number)
			}()
		}
	}()
	return "http://" + listener.Addr().String()
}

// onBothWays runs test over a socket that is polled, where there is such a
// thing, and over a connection that each goroutine reads itself.
func onBothWays(t *testing.T, test func(t *testing.T, client *Client)) {
	t.Run("polled", func(t *testing.T) { test(t, &Client{Clock: NewClock()}) })
	t.Run("read", func(t *testing.T) {
		var d net.Dialer
		test(t, &Client{Clock: NewClock(), Dial: d.DialContext})
	})
}

const (
	wireHead  = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
	wireToken = "3e\r\n" + `data: {"choices":[{"index":0,"text":"a","finish_reason":""}]}` + "\n\r\n" + "1\r\n\n\r\n"
	wireDone  = "e\r\ndata: [DONE]\n\n\r\n0\r\n\r\n"
)

func TestWireStall(t *testing.T) {
	onBothWays(t, func(t *testing.T, c *Client) {
		const idle = 80 * time.Millisecond
		c.Idle = idle
		c.BaseURL = wireServer(t, func(conn net.Conn, _ int) {
			http.ReadRequest(bufio.NewReader(conn))
			io.WriteString(conn, wireHead)
			for range 4 { // longer than the limit in all
				time.Sleep(idle / 2)
				io.WriteString(conn, wireToken)
			}
			io.Copy(io.Discard, conn)
		})
		r := &verify.Request{}
		c.Complete(t.Context(), ask(), r)
		if r.Failure == nil || r.Failure.Class != verify.FailStall || r.Text != "aaaa" {
			t.Fatalf("failure %+v with text %q, want a stall after aaaa", r.Failure, r.Text)
		}
		if silent := time.Duration(r.EndNS - r.EventNS[3]); silent < idle || silent > idle+5*time.Second {
			t.Errorf("given up after %v of silence, want %v", silent, idle)
		}
	})
}

func TestWireCanceled(t *testing.T) {
	onBothWays(t, func(t *testing.T, c *Client) {
		ctx, cancel := context.WithCancel(t.Context())
		c.BaseURL = wireServer(t, func(conn net.Conn, _ int) {
			http.ReadRequest(bufio.NewReader(conn))
			io.WriteString(conn, wireHead+wireToken)
			time.Sleep(20 * time.Millisecond)
			cancel()
			io.Copy(io.Discard, conn) // until the client has gone
		})
		r := &verify.Request{}
		c.Complete(ctx, ask(), r)
		if r.Failure == nil || r.Failure.Class != verify.FailCanceled || r.Text != "a" {
			t.Errorf("failure %+v with text %q, want it canceled after a", r.Failure, r.Text)
		}
	})
}

// A server that has broken off at once with its last bytes, or later, is
// noticed without waiting for the idle limit.
func TestWireBroken(t *testing.T) {
	for _, pause := range []time.Duration{0, 30 * time.Millisecond} {
		for _, reset := range []bool{false, true} {
			t.Run(fmt.Sprintf("pause=%v/reset=%t", pause, reset), func(t *testing.T) {
				onBothWays(t, func(t *testing.T, c *Client) {
					c.BaseURL = wireServer(t, func(conn net.Conn, _ int) {
						http.ReadRequest(bufio.NewReader(conn))
						io.WriteString(conn, wireHead+wireToken)
						time.Sleep(pause)
						if reset {
							conn.(*net.TCPConn).SetLinger(0)
						}
					})
					r := &verify.Request{}
					c.Complete(t.Context(), ask(), r)
					if r.Failure == nil || r.Failure.Class != verify.FailStream {
						t.Errorf("failure %+v, want %s", r.Failure, verify.FailStream)
					}
					if pause > 0 && r.Text != "a" {
						t.Errorf("text %q, want what came before", r.Text)
					}
				})
			})
		}
	}
}

// A server may refuse a request of which it has read only the head, and say
// so while most of it is still to be written.
func TestWireRefusedEarly(t *testing.T) {
	onBothWays(t, func(t *testing.T, c *Client) {
		release := make(chan struct{})
		c.BaseURL = wireServer(t, func(conn net.Conn, _ int) {
			bufio.NewReaderSize(conn, 16).ReadString('\n')
			io.WriteString(conn, "HTTP/1.1 413 Too Large\r\nContent-Length: 3\r\n\r\nno!")
			<-release // it neither reads on nor closes
		})
		r := &verify.Request{}
		c.Complete(t.Context(), Ask{Prompt: strings.Repeat("x", 32<<20)}, r)
		close(release)
		if r.Status != 413 || r.Failure == nil || r.Failure.Message != "413 Too Large: no!" || r.SentNS != 0 {
			t.Errorf("status %d, failure %+v, sent_ns %d; want 413 with its message, not sent", r.Status, r.Failure, r.SentNS)
		}
	})
}

func TestWireLargeRequest(t *testing.T) {
	onBothWays(t, func(t *testing.T, c *Client) {
		var got atomic.Int64
		c.BaseURL = wireServer(t, func(conn net.Conn, _ int) {
			r, err := http.ReadRequest(bufio.NewReader(conn))
			if err != nil {
				return
			}
			n, _ := io.Copy(io.Discard, r.Body)
			got.Store(n)
			io.WriteString(conn, wireHead+wireToken+wireDone)
		})
		r := &verify.Request{}
		c.Complete(t.Context(), Ask{Prompt: strings.Repeat("x", 32<<20)}, r)
		if r.Failure != nil || got.Load() < 32<<20 || r.SentNS <= r.ConnectedNS || r.HeadersNS < r.ConnectedNS {
			t.Errorf("failure %+v, %d bytes arrived, stamps %d, %d, %d", r.Failure, got.Load(), r.ConnectedNS, r.SentNS, r.HeadersNS)
		}
	})
}

// A kept connection that its server has closed, or on which it has sent what
// nobody asked for, isn't used again.
func TestWireKept(t *testing.T) {
	for _, after := range []string{"nothing", "end", "bytes"} {
		t.Run(after, func(t *testing.T) {
			onBothWays(t, func(t *testing.T, c *Client) {
				c.Reuse = true
				defer c.Close()
				c.BaseURL = wireServer(t, func(conn net.Conn, _ int) {
					requests := bufio.NewReader(conn)
					for {
						r, err := http.ReadRequest(requests)
						if err != nil {
							return
						}
						io.Copy(io.Discard, r.Body)
						io.WriteString(conn, wireHead+wireToken+wireDone)
						switch after {
						case "end":
							return
						case "bytes":
							time.Sleep(10 * time.Millisecond) // a response of its own
							io.WriteString(conn, "HTTP/1.1 408 Timeout\r\n\r\n")
						}
					}
				})
				for i := range 3 {
					r := &verify.Request{}
					c.Complete(t.Context(), ask(), r)
					if r.Failure != nil || r.Reused != (after == "nothing" && i > 0) {
						t.Errorf("request %d: reused %t, failure %+v", i, r.Reused, r.Failure)
					}
					time.Sleep(50 * time.Millisecond)
				}
			})
		})
	}
}

// However many streams end at once, and whichever starts while the last of
// them ends, none is lost.
func TestWireManyStreams(t *testing.T) {
	onBothWays(t, func(t *testing.T, c *Client) {
		c.BaseURL = wireServer(t, func(conn net.Conn, _ int) {
			http.ReadRequest(bufio.NewReader(conn))
			io.WriteString(conn, wireHead+wireToken)
			time.Sleep(time.Millisecond)
			io.WriteString(conn, wireDone)
		})
		failures := make(chan *verify.Failure, 64)
		for range cap(failures) {
			go func() {
				var first *verify.Failure
				for range 20 {
					r := &verify.Request{}
					if c.Complete(t.Context(), ask(), r); r.Failure != nil {
						first = r.Failure
					}
				}
				failures <- first
			}()
		}
		for range cap(failures) {
			if failure := <-failures; failure != nil {
				t.Errorf("failure %+v", failure)
			}
		}
	})
}

// The end is found in the same place whether a response comes whole or byte
// by byte, and net/http finds it there.
func TestFraming(t *testing.T) {
	for _, response := range []string{
		wireHead + wireToken + wireDone,
		"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok",
		"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n",
		"HTTP/1.1 204 No Content\r\n\r\n",
		"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok",
		"HTTP/1.1 200 OK\r\ntransfer-encoding: Chunked\r\n\r\n2;name=value\r\nok\r\n0\r\nTrailer: x\r\n\r\n",
		"HTTP/1.0 200 OK\nContent-Length: 2\n\nok",
	} {
		next := "HTTP/1.1 500 NO\r\n\r\n"
		source := bufio.NewReader(strings.NewReader(response + next))
		for {
			got, err := http.ReadResponse(source, nil)
			if err != nil {
				t.Fatalf("%q: net/http: %v", response, err)
			}
			io.Copy(io.Discard, got.Body)
			if got.StatusCode >= 200 {
				break
			}
		}
		if rest, _ := io.ReadAll(source); string(rest) != next {
			t.Fatalf("%q: net/http leaves %q", response, rest)
		}
		var whole framing
		if ended, err := whole.ended([]byte(response + next)); !ended || err != nil || whole.next != len(response) {
			t.Errorf("%q: ended %t at %d, %v, want at %d", response, ended, whole.next, err, len(response))
		}
		var piecewise framing
		for i := range len(response) + 1 {
			ended, err := piecewise.ended([]byte(response)[:i])
			if err != nil || ended != (i == len(response)) {
				t.Errorf("%q: after %d bytes ended %t, %v", response, i, ended, err)
			}
		}
	}
}

func TestFramingRefuses(t *testing.T) {
	for response, want := range map[string]string{
		"hello\r\n\r\n":      `malformed HTTP response "hello"`,
		"HTTP/2 200\r\n\r\n": `malformed HTTP response "HTTP/2 200"`,
		"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n":                            `unsupported transfer encoding "gzip, chunked"`,
		"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\n":                      `bad Content-Length "3"`,
		"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n":                                          `bad Content-Length "-1"`,
		"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nx\r\n":                             `chunk size "x"`,
		"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n\r\n":                              `chunk size ""`,
		"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nfffffffffff\r\n":                   `chunk size "fffffffffff"`,
		"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1;" + strings.Repeat("x", maxLine): fmt.Sprintf("a chunk's length takes more than %d bytes", maxLine),
	} {
		var f framing
		if _, err := f.ended([]byte(response)); err == nil || err.Error() != want {
			t.Errorf("%.60q: %v, want %s", response, err, want)
		}
	}
}

// Whatever comes, bytes that come one by one end where they end together.
func FuzzFraming(f *testing.F) {
	f.Add([]byte(wireHead + wireToken + wireDone))
	f.Add([]byte("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"))
	f.Add([]byte("HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\n\r\nok"))
	f.Fuzz(func(t *testing.T, response []byte) {
		var whole, piecewise framing
		ended, err := whole.ended(response)
		for i := range response {
			early, earlyErr := piecewise.ended(response[:i+1])
			if early || earlyErr != nil {
				if early != ended || ended && whole.next != i+1 || (earlyErr == nil) != (err == nil) {
					t.Fatalf("after %d bytes ended %t, %v; whole ended %t at %d, %v", i+1, early, earlyErr, ended, whole.next, err)
				}
				return
			}
		}
		if len(response) > 0 && (ended || err != nil) {
			t.Fatalf("whole ended %t, %v; byte by byte it doesn't", ended, err)
		}
	})
}
