package sse

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"
)

// capture is a connection under net/http that keeps what it reads with the
// moment at which each read returned.
type capture struct {
	net.Conn
	clock *Clock
	idle  time.Duration

	mu      sync.Mutex
	current *tape
}

// tape is what a capture read for one request.
type tape struct {
	mu    sync.Mutex
	bytes []byte
	reads []readMark
}

// readMark says that the first End bytes were there at NS.
type readMark struct {
	end int
	ns  int64
}

func (c *capture) Read(p []byte) (int, error) {
	if c.idle > 0 {
		c.Conn.SetReadDeadline(time.Now().Add(c.idle))
	}
	n, err := c.Conn.Read(p)
	ns := c.clock.Now()
	if n > 0 {
		c.mu.Lock()
		to := c.current
		c.mu.Unlock()
		to.mu.Lock()
		to.bytes = append(to.bytes, p[:n]...)
		to.reads = append(to.reads, readMark{len(to.bytes), ns})
		to.mu.Unlock()
	}
	return n, err
}

// begin starts the tape of another request, and forgets the time that
// the connection was at rest: a read is under way already. What an earlier
// request read stays on its own tape, for the transport hands a
// connection on before the earlier one has looked.
func (c *capture) begin() *tape {
	if c.idle > 0 {
		c.Conn.SetReadDeadline(time.Now().Add(c.idle))
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.current = &tape{}
	return c.current
}

// take returns what was read so far.
func (r *tape) take() (raw []byte, reads []readMark) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.bytes, r.reads
}

// received is a raw HTTP/1 response, taken apart as far as it goes.
type received struct {
	head  []byte // of the final response, with the empty line
	body  []byte
	spans []span // where the body's bytes stand in the raw ones, in order
	end   error  // nil if a chunked body has its last chunk, or it isn't chunked
}

type span struct{ body, raw int }

var errNoHead = errors.New("no response head")

// parseReceived finds head and body in raw. Interim (1xx) responses are
// skipped. Content-Length isn't enforced here; who received has done it. The
// body of chunks is put together in raw itself, which holds nothing else of
// use after that.
func parseReceived(raw []byte) (received, error) {
	var r received
	pos := 0
	for {
		head, length := cutHead(raw[pos:])
		if length == 0 {
			return r, errNoHead
		}
		line, fields, _ := bytes.Cut(head, []byte("\n"))
		parts := bytes.Fields(line)
		if len(parts) < 2 || !bytes.HasPrefix(parts[0], []byte("HTTP/1.")) {
			return r, malformed(line)
		}
		if code := parts[1]; len(code) == 3 && code[0] == '1' && string(code) != "101" {
			pos += length
			continue
		}
		r.head = raw[pos : pos+length]
		pos += length
		if !isChunked(fields) {
			r.body = raw[pos:]
			r.spans = []span{{0, pos}}
			return r, nil
		}
		r.end = r.unchunk(raw, pos)
		return r, nil
	}
}

// cutHead returns the lines up to the first empty one, and the length with it.
func cutHead(raw []byte) (head []byte, length int) {
	for pos := 0; pos < len(raw); {
		end := bytes.IndexByte(raw[pos:], '\n')
		if end < 0 {
			return nil, 0
		}
		line := raw[pos : pos+end]
		if len(line) == 0 || len(line) == 1 && line[0] == '\r' {
			return raw[:pos], pos + end + 1
		}
		pos += end + 1
	}
	return nil, 0
}

func isChunked(fields []byte) bool {
	for line := range bytes.Lines(fields) {
		name, value, _ := bytes.Cut(line, []byte(":"))
		if bytes.EqualFold(bytes.TrimSpace(name), []byte("transfer-encoding")) {
			return bytes.Contains(bytes.ToLower(value), []byte("chunked"))
		}
	}
	return false
}

var errNoLastChunk = errors.New("the last chunk is missing")

func (r *received) unchunk(raw []byte, pos int) error {
	r.body = raw[pos:pos]
	for {
		end := bytes.IndexByte(raw[pos:], '\n')
		if end < 0 {
			return errNoLastChunk
		}
		size, err := chunkSize(raw[pos : pos+end])
		if err != nil {
			return err
		}
		pos += end + 1
		if size == 0 {
			return nil
		}
		stop := min(pos+size, len(raw))
		r.spans = append(r.spans, span{len(r.body), pos})
		r.body = append(r.body, raw[pos:stop]...)
		if stop-pos < size {
			return errNoLastChunk
		}
		pos = stop
		const newline = "\r\n"
		if after := raw[pos:min(pos+len(newline), len(raw))]; len(after) < len(newline) {
			return errNoLastChunk
		} else if string(after) != newline {
			return fmt.Errorf("%q after a chunk's data, want %q", after, newline)
		}
		pos += len(newline)
	}
}

// arrivals maps growing offsets into the body to the moments at which the
// bytes before them were there.
type arrivals struct {
	spans []span
	reads []readMark
}

// at returns when the first n bytes of the body had arrived. n must not fall
// from one call to the next.
func (a *arrivals) at(n int) int64 {
	for len(a.spans) > 1 && a.spans[1].body < n {
		a.spans = a.spans[1:]
	}
	raw := a.spans[0].raw + n - a.spans[0].body
	for len(a.reads) > 1 && a.reads[0].end < raw {
		a.reads = a.reads[1:]
	}
	return a.reads[0].ns
}
