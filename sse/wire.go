package sse

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"slices"
	"strings"
	"time"
)

// wire is a connection on which requests go straight from the goroutine that
// asks to the socket, and responses straight back: no goroutine, buffer or
// timer of a transport's stands between a read and its stamp.
//
// Note: net/http's Transport carried these requests before. It costs several
// goroutines and tens of allocations a request and a timer's change a read,
// which at a thousand streams comes back as late stamps of other streams. It
// still carries what goes through a proxy.
type wire struct {
	net.Conn          // nil for a socket that the poller reads
	plain    net.Conn // below TLS, or Conn itself
	fd       int      // of the poller's
	key      wireKey
	used     bool // it has carried a request
}

func (w *wire) close() {
	if w.Conn == nil {
		closeSocket(w.fd)
		return
	}
	w.Conn.Close()
}

// wireKey says which requests a kept wire can carry.
type wireKey struct {
	scheme, address string
	insecure        bool
	polled          bool
}

func (c *Client) wireKey(request *http.Request) wireKey {
	u := request.URL
	key := wireKey{u.Scheme, u.Host, c.Insecure, c.polls(request)}
	if u.Port() == "" {
		port := "80"
		if key.scheme == "https" {
			port = "443"
		}
		key.address = net.JoinHostPort(u.Hostname(), port)
	}
	return key
}

// direct reports whether request goes to its target without a proxy.
func (c *Client) direct(request *http.Request) (bool, error) {
	for _, b := range []byte(request.URL.Host) {
		if b >= 0x80 {
			return false, nil // net/http knows how such a name is spelled
		}
	}
	if c.Proxy == nil {
		return true, nil
	}
	proxy, err := c.Proxy(request)
	return proxy == nil, err
}

// atOnce is the largest request that is written before anything is read. A
// larger one may not fit the buffers between here and a server that has
// refused it already.
const atOnce = 16 << 10

// exchangeDirect carries request, which is sent as message, to its target.
func (c *Client) exchangeDirect(ctx context.Context, request *http.Request, outputTokens int, reply *Reply) {
	expected := min(smallResponse+outputTokens*tokenBytes, largeResponse)
	r := reply.request
	message := bytes.NewBuffer(make([]byte, 0, request.ContentLength+512))
	request.Close = !c.Reuse
	if err := request.Write(message); err != nil {
		r.StartNS = c.Clock.Now()
		reply.err = err
		return
	}
	if c.polls(request) {
		c.exchangePolled(ctx, request, message.Bytes(), expected, reply)
		return
	}
	r.StartNS = c.Clock.Now()
	w, err := c.connect(ctx, request)
	if err != nil {
		reply.err = err
		return
	}
	r.ConnectedNS = c.Clock.Now()
	r.Reused = w.used
	w.used = true
	stop := context.AfterFunc(ctx, func() { w.close() })

	in := intake{clock: c.Clock, idle: c.idle(), buffer: newBuffer(expected)}
	whole := false // the request is written
	if message.Len() <= atOnce {
		whole, err = in.exchange(w, message.Bytes(), &r.SentNS)
	} else {
		whole, err = in.exchangeLarge(w, message.Bytes(), &r.SentNS)
	}
	r.EndNS = c.Clock.Now()
	reply.err = err
	reply.kept, reply.raw, reply.reads = in.buffer, in.buffer.raw, in.buffer.reads
	if len(reply.reads) > 0 {
		r.HeadersNS = reply.reads[0].ns
	}
	if stop() && whole && err == nil && c.Reuse && in.again {
		c.keep(w)
	} else {
		w.close()
	}
}

// intake takes in one response.
type intake struct {
	clock  *Clock
	idle   time.Duration
	buffer *buffer
	frame  framing
	again  bool // the connection can carry another request
}

const (
	smallResponse = 6 << 10 // the first size of a buffer, without tokens
	tokenBytes    = 256     // of a token's event, as most servers have it
	largeResponse = 1 << 20 // the first size of a buffer, at most
	leastRead     = 4 << 10 // with less room a buffer grows
)

// room returns where the next read goes.
func (in *intake) room() []byte {
	b := in.buffer
	if cap(b.raw)-len(b.raw) < leastRead {
		b.raw = slices.Grow(b.raw, max(cap(b.raw), leastRead))
	}
	return b.raw[len(b.raw):cap(b.raw)]
}

// took takes the n bytes that a read has put into room, and reports whether
// the response is over: whole, or with an error no response.
func (in *intake) took(n int, ns int64) (over bool, err error) {
	b := in.buffer
	b.raw = b.raw[:len(b.raw)+n]
	b.reads = append(b.reads, readMark{len(b.raw), ns})
	ended, err := in.frame.ended(b.raw)
	if ended {
		in.again = !in.frame.closes && len(b.raw) == in.frame.next
		b.raw = b.raw[:in.frame.next]
	}
	return ended || err != nil, err
}

// closed returns what the connection's end, met by err, is to the response:
// nil if it is the response's end, too.
func (in *intake) closed(err error) error {
	switch {
	case err == io.EOF && in.frame.state == untilClose:
		return nil
	case err == io.EOF && len(in.buffer.raw) > 0:
		return io.ErrUnexpectedEOF
	}
	return err
}

// exchange writes message, stamps that in sent, and reads. It reports whether
// message is written.
func (in *intake) exchange(w *wire, message []byte, sent *int64) (bool, error) {
	writeErr := in.write(w, message)
	if writeErr == nil {
		*sent = in.clock.Now()
	} else if errors.Is(writeErr, os.ErrDeadlineExceeded) {
		return false, writeErr
	}
	// Who refuses a request need not have read it to its end: the answer
	// counts for more than the write that failed.
	err := in.read(w)
	if err != nil && writeErr != nil {
		err = writeErr
	}
	return writeErr == nil, err
}

// exchangeLarge is exchange with a read under way while it writes.
func (in *intake) exchangeLarge(w *wire, message []byte, sent *int64) (bool, error) {
	var writeErr error
	var ns int64
	written := make(chan struct{})
	go func() {
		defer close(written)
		if writeErr = in.write(w, message); writeErr == nil {
			ns = in.clock.Now()
		} else if errors.Is(writeErr, os.ErrDeadlineExceeded) {
			w.close() // nothing more will come of it
		}
	}()
	err := in.read(w)
	select {
	case <-written:
	default:
		w.close() // the answer is there, or there will be none
		<-written
	}
	*sent = ns
	if err != nil && writeErr != nil && !errors.Is(writeErr, net.ErrClosed) {
		err = writeErr
	}
	return writeErr == nil, err
}

// write writes message in pieces, each within the idle limit.
func (in *intake) write(w *wire, message []byte) error {
	for piece := range slices.Chunk(message, 64<<10) {
		if in.idle > 0 {
			w.SetWriteDeadline(time.Now().Add(in.idle))
		}
		if _, err := w.Write(piece); err != nil {
			return err
		}
	}
	return nil
}

// read reads until the response is over. Each read is stamped straight after
// the system call and before anybody looks at the bytes.
func (in *intake) read(w *wire) error {
	last := in.clock.Now()
	// One timer a connection: setting it at each read costs more than the
	// read. When it fires it is set to what the last read has earned.
	if in.idle > 0 {
		w.SetReadDeadline(time.Now().Add(in.idle))
	}
	for {
		n, err := w.Read(in.room())
		ns := in.clock.Now()
		if n > 0 {
			last = ns
			if over, err := in.took(n, ns); over {
				return err
			}
		}
		switch {
		case err == nil:
		case errors.Is(err, os.ErrDeadlineExceeded):
			left := in.idle - time.Duration(ns-last)
			if left <= 0 {
				return err
			}
			w.SetReadDeadline(time.Now().Add(left))
		default:
			return in.closed(err)
		}
	}
}

// connect returns a wire to request's target: one that was kept, or new.
func (c *Client) connect(ctx context.Context, request *http.Request) (*wire, error) {
	key := c.wireKey(request)
	if w := c.kept(key); w != nil {
		return w, nil
	}
	plain, err := c.dial(ctx, "tcp", key.address)
	if err != nil {
		return nil, err
	}
	if key.scheme != "https" {
		return &wire{Conn: plain, plain: plain, key: key}, nil
	}
	if idle := c.idle(); idle > 0 {
		plain.SetDeadline(time.Now().Add(idle))
	}
	settings := c.tlsConfig()
	settings.ServerName = strings.TrimSuffix(request.URL.Hostname(), ".")
	secure := tls.Client(plain, settings)
	if err := secure.HandshakeContext(ctx); err != nil {
		plain.Close()
		return nil, err
	}
	plain.SetDeadline(time.Time{})
	return &wire{Conn: secure, plain: plain, key: key}, nil
}

// keep puts w by for a later request.
func (c *Client) keep(w *wire) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		w.close()
		return
	}
	c.wires = append(c.wires, w)
}

// kept returns a wire that was put by and still lives, nil if there is none.
// One that its server closes in the very moment is taken for alive, and its
// request fails: it would be a second attempt to send it again.
func (c *Client) kept(key wireKey) *wire {
	for {
		c.mu.Lock()
		i := len(c.wires) - 1
		for i >= 0 && c.wires[i].key != key {
			i--
		}
		if i < 0 {
			c.mu.Unlock()
			return nil
		}
		w := c.wires[i]
		c.wires = slices.Delete(c.wires, i, i+1)
		c.mu.Unlock()
		if w.alive() {
			return w
		}
		w.close()
	}
}

// alive reports whether nothing has come since the last response: neither an
// end nor bytes that nobody asked for.
func (w *wire) alive() bool {
	if w.Conn == nil {
		return quietSocket(w.fd)
	}
	if !quiet(w.plain) {
		return false
	}
	// What TLS has read ahead, and a connection that isn't a socket's.
	w.SetReadDeadline(time.Now().Add(-time.Second))
	var one [1]byte
	n, err := w.Read(one[:])
	return n == 0 && errors.Is(err, os.ErrDeadlineExceeded)
}
