//go:build !linux

package sse

import (
	"context"
	"net/http"
)

// poller is Linux's.
type poller struct{}

func (c *Client) polls(*http.Request) bool { return false }

func (c *Client) exchangePolled(context.Context, *http.Request, []byte, int, *Reply) {
	panic("sse: nothing is polled here")
}
