package sse

import (
	"context"
	"crypto/tls"
	"net"
	"net/http"
)

// transport returns what carries one request, and what to call when it is
// over. HTTP/1 only, so that a stream has a connection to itself; no
// compression, which would clump events; no redirects, no retries but the one
// that net/http makes when a kept connection was closed before it was used.
func (c *Client) transport() (t *http.Transport, done func()) {
	if c.Reuse {
		c.once.Do(func() {
			c.shared = c.newTransport()
			c.shared.MaxIdleConnsPerHost = 1 << 16 // none that could serve again is closed
		})
		return c.shared, func() {}
	}
	t = c.newTransport()
	t.DisableKeepAlives = true
	return t, t.CloseIdleConnections
}

// Close closes connections that are kept for reuse.
func (c *Client) Close() {
	c.once.Do(func() {})
	if c.shared != nil {
		c.shared.CloseIdleConnections()
	}
}

func (c *Client) newTransport() *http.Transport {
	settings := &tls.Config{InsecureSkipVerify: c.Insecure, NextProtos: []string{"http/1.1"}}
	return &http.Transport{
		Proxy:              c.Proxy,
		DisableCompression: true,
		TLSClientConfig:    settings, // for a target behind a proxy
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
			config := settings.Clone()
			if config.ServerName, _, err = net.SplitHostPort(address); err == nil {
				secure := tls.Client(plain, config)
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
	return &capture{Conn: conn, clock: c.Clock, idle: c.idle()}
}
