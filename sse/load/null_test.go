package load

import (
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"servebench/sse"
)

// A request may come in any pieces, and be longer than the first buffer.
func TestNullServerReadsARequest(t *testing.T) {
	request := "POST /v1/completions HTTP/1.1\r\nHost: h\r\nContent-Length: 9000\r\nX-Request-Id: 1.0.7\r\n\r\n" + strings.Repeat("x", 9000)
	for _, size := range []int{1, 50, 1000, len(request)} {
		client, server := net.Pipe()
		go func() {
			for at := 0; at < len(request); at += size {
				io.WriteString(client, request[at:min(at+size, len(request))])
			}
		}()
		if id, _, err := readNull(server, make([]byte, 0, 100)); id != "1.0.7" || err != nil {
			t.Errorf("pieces of %d bytes: %q, %v, want 1.0.7", size, id, err)
		}
		client.Close()
	}
	client, server := net.Pipe()
	go func() { io.WriteString(client, request[:500]); client.Close() }()
	if _, _, err := readNull(server, make([]byte, 0, 100)); err != io.EOF {
		t.Errorf("half a request: %v, want EOF", err)
	}
}

// The process ends with its input, whatever is under way, and so with the
// process that started it. What it doesn't understand it doesn't guess.
func TestNullServerEnds(t *testing.T) {
	p, err := startNull(3)
	if err != nil {
		t.Fatal(err)
	}
	conn, err := net.Dial("tcp", strings.TrimPrefix(p.URL, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := p.next(nullAsk{Stall: true}); err != nil {
		t.Fatal(err)
	}
	io.WriteString(conn, "POST / HTTP/1.1\r\nContent-Length: 0\r\n\r\n")
	if n, err := conn.Read(make([]byte, 10)); n == 0 {
		t.Errorf("nothing of an answer: %v", err)
	}
	p.kill = func() { t.Error("it had to be killed") }
	begin := time.Now()
	p.stop()
	conn.SetReadDeadline(begin.Add(time.Minute))
	if _, err := io.Copy(io.Discard, conn); err != nil && !strings.Contains(err.Error(), "reset") {
		t.Errorf("its connection: %v, want it closed", err)
	}
	if err := serveNull(3, strings.NewReader("{]"), io.Discard); err == nil || !strings.HasPrefix(err.Error(), "load: null server: invalid character") {
		t.Errorf("serveNull = %v, want what it can't read", err)
	}
}

// Streams are written to in turn: no answer is over before another has begun.
func TestNullServerTakesTurns(t *testing.T) {
	s, err := newNullServer(sse.NewClock(), 20)
	if err != nil {
		t.Fatal(err)
	}
	s.mu.Lock()
	s.ask.Gap = time.Millisecond
	s.mu.Unlock()
	for _, id := range []string{"a", "b", "c"} {
		conn, err := net.Dial("tcp", s.listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		io.WriteString(conn, "POST / HTTP/1.1\r\nX-Request-Id: "+id+"\r\nContent-Length: 0\r\n\r\n")
	}
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); time.Sleep(time.Millisecond) {
		s.mu.Lock()
		n := len(s.written)
		s.mu.Unlock()
		if n == 3 {
			break
		}
	}
	s.close()
	var first, last int64 // the last begin and the first end
	for id, stamps := range s.written {
		if len(stamps) != 20 {
			t.Fatalf("%s has %d stamps, want 20", id, len(stamps))
		}
		first = max(first, stamps[0])
		if last == 0 || stamps[19] < last {
			last = stamps[19]
		}
	}
	if len(s.written) != 3 || last <= first {
		t.Errorf("%d answers, the last begins at %d, the first ends at %d, want them to overlap", len(s.written), first, last)
	}
}
