package sse

import (
	"context"
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"sync/atomic"
)

// exchangeProxied carries request through net/http, which knows the kinds of
// proxies.
func (c *Client) exchangeProxied(ctx context.Context, request *http.Request, reply *Reply) {
	r := reply.request
	var conn atomic.Pointer[tape]
	var sent atomic.Int64 // the transport writes in a goroutine of its own
	transport, done := c.transport()
	defer done()
	trace := &httptrace.ClientTrace{
		GotConn: func(info httptrace.GotConnInfo) {
			r.ConnectedNS = c.Clock.Now()
			r.Reused = info.Reused
			if kept, ok := info.Conn.(*capture); ok {
				conn.Store(kept.begin())
			}
		},
		WroteRequest: func(info httptrace.WroteRequestInfo) {
			if info.Err == nil {
				sent.Store(c.Clock.Now())
			}
		},
	}
	r.StartNS = c.Clock.Now()
	response, err := transport.RoundTrip(request.WithContext(httptrace.WithClientTrace(ctx, trace)))
	if err == nil {
		reply.response = response
		if conn.Load() != nil {
			_, err = io.Copy(io.Discard, response.Body)
		} else {
			// The bytes of the connection are enciphered here.
			r.HeadersNS = c.Clock.Now()
			reply.bare = true
			reply.raw, reply.reads, err = c.readBody(response.Body)
		}
		response.Body.Close()
	}
	reply.err = err
	if kept := conn.Load(); kept != nil {
		// A connection that is being torn down may still be read from: what
		// is taken before the end is stamped was there before it.
		reply.raw, reply.reads = kept.take()
		if len(reply.reads) > 0 {
			r.HeadersNS = reply.reads[0].ns
		}
	}
	r.EndNS = c.Clock.Now()
	r.SentNS = min(sent.Load(), r.EndNS)
	if r.HeadersNS > 0 && r.HeadersNS < r.ConnectedNS {
		// The first byte was read before the transport said that the
		// connection was there.
		r.ConnectedNS = r.HeadersNS
	}
}

// readBody reads a body to its end and stamps each read.
func (c *Client) readBody(body io.Reader) (data []byte, reads []readMark, err error) {
	buffer := make([]byte, 64<<10)
	for {
		n, err := body.Read(buffer)
		if n > 0 {
			data = append(data, buffer[:n]...)
			reads = append(reads, readMark{len(data), c.Clock.Now()})
		}
		if err == io.EOF {
			return data, reads, nil
		}
		if err != nil {
			return data, reads, err
		}
	}
}

// transport returns what carries one request, and what to call when it is
// over. HTTP/1 only, so that a stream has a connection to itself; no
// compression, which would clump events; no redirects, no retries but the one
// that net/http makes when a kept connection was closed before it was used.
func (c *Client) transport() (t *http.Transport, done func()) {
	if c.Reuse {
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.shared == nil {
			c.shared = c.newTransport()
			c.shared.MaxIdleConnsPerHost = 1 << 16 // none that could serve again is closed
		}
		return c.shared, func() {}
	}
	t = c.newTransport()
	t.DisableKeepAlives = true
	return t, t.CloseIdleConnections
}

// Close closes connections that are kept for reuse. Later requests make new
// ones, which are closed after each.
func (c *Client) Close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closed = true
	for _, w := range c.wires {
		w.close()
	}
	c.wires = nil
	if c.shared != nil {
		c.shared.CloseIdleConnections()
	}
}

func (c *Client) tlsConfig() *tls.Config {
	return &tls.Config{InsecureSkipVerify: c.Insecure, NextProtos: []string{"http/1.1"}}
}

func (c *Client) newTransport() *http.Transport {
	return &http.Transport{
		Proxy:              c.Proxy,
		DisableCompression: true,
		TLSClientConfig:    c.tlsConfig(), // for a target behind a proxy
		DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
			plain, err := c.dial(ctx, network, address)
			if err != nil {
				return nil, err
			}
			return c.capture(plain), nil
		},
		DialTLSContext: func(ctx context.Context, network, address string) (net.Conn, error) {
			plain, err := c.dial(ctx, network, address)
			if err != nil {
				return nil, err
			}
			settings := c.tlsConfig()
			if settings.ServerName, _, err = net.SplitHostPort(address); err == nil {
				secure := tls.Client(plain, settings)
				if err = secure.HandshakeContext(ctx); err == nil {
					return c.capture(secure), nil
				}
			}
			plain.Close()
			return nil, err
		},
		TLSNextProto: map[string]func(string, *tls.Conn) http.RoundTripper{},
	}
}

func (c *Client) dial(ctx context.Context, network, address string) (net.Conn, error) {
	if c.Dial != nil {
		return c.Dial(ctx, network, address)
	}
	d := net.Dialer{Timeout: c.idle()}
	return d.DialContext(ctx, network, address)
}

func (c *Client) capture(conn net.Conn) *capture {
	return &capture{Conn: conn, clock: c.Clock, idle: c.idle(), current: &tape{}}
}
