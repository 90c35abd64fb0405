package sse

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"time"

	"servebench/verify"
)

// Reply is what one request brought back: bytes, with the moments at which
// they arrived. Read makes events, text and usage of them. That may wait until
// no stream is under way, for reading beside other streams delays the stamps
// of theirs; until then the bytes are kept in memory.
type Reply struct {
	client   *Client
	request  *verify.Request
	response *http.Response // nil where it must be parsed from raw
	raw      []byte         // as the connection had it; the body alone if bare
	reads    []readMark
	bare     bool
	canceled bool
	err      error // nil for a whole response
	kept     *buffer
}

// Exchange sends one request, in one attempt, and takes in the response to its
// end. Of r it fills in what the bytes need not be read for: the stamps but
// EventNS, and Reused. Read, called once and by one goroutine, adds the rest;
// till then r is incomplete and doesn't tell whether the request failed.
func (c *Client) Exchange(ctx context.Context, ask Ask, r *verify.Request) *Reply {
	reply := &Reply{client: c, request: r}
	request, err := c.newRequest(ctx, &ask)
	direct := false
	if err == nil {
		direct, err = c.direct(request)
	}
	switch {
	case err != nil:
		r.StartNS = c.Clock.Now()
		reply.err = err
	case direct:
		c.exchangeDirect(ctx, request, ask.OutputTokens, reply)
	default:
		c.exchangeProxied(ctx, request, reply)
	}
	if r.EndNS == 0 {
		r.EndNS = c.Clock.Now()
	}
	deadline, limited := ctx.Deadline() // which a dial may notice before ctx does
	reply.canceled = ctx.Err() != nil || limited && !time.Now().Before(deadline)
	r.SentNS = min(r.SentNS, r.EndNS)
	return reply
}

// Err returns why the response isn't whole, nil if it is. Whether it is a
// proper answer is for Read to tell.
func (reply *Reply) Err() error { return reply.err }

// Size returns how many bytes are kept until Read.
func (reply *Reply) Size() int { return cap(reply.raw) }

// Read fills in what Exchange has left: events and their stamps, ids, text,
// usage, finish reason, status and, if the request failed, why. What came
// before a failure is kept.
func (reply *Reply) Read() {
	r := reply.request
	got := received{body: reply.raw, spans: []span{{0, 0}}}
	var parseErr error
	if !reply.bare {
		got, parseErr = parseReceived(reply.raw)
		if reply.response == nil && parseErr == nil {
			reply.response, parseErr = http.ReadResponse(bufio.NewReaderSize(bytes.NewReader(got.head), 512), nil)
		}
	}
	read(r, reply.response, got, reply.reads, cmp.Or(reply.err, parseErr))
	if r.Failure != nil {
		r.Failure.Class = reply.class()
		if r.Failure.Class == verify.FailStall {
			r.Failure.Message = fmt.Sprintf("nothing came for %v: %s", reply.client.idle(), r.Failure.Message)
		}
		r.Failure.Message = boundMessage(r.Failure.Message)
	}
	reply.kept.free()
	reply.kept, reply.raw, reply.reads = nil, nil, nil
}

// class turns a transport's error into a failure's class. A class that was
// given for another reason stays.
func (reply *Reply) class() string {
	r := reply.request
	switch {
	case reply.canceled:
		return verify.FailCanceled
	case r.Failure.Class != "":
		return r.Failure.Class
	case errors.Is(reply.err, os.ErrDeadlineExceeded):
		return verify.FailStall
	case r.ConnectedNS == 0:
		return verify.FailConnect
	case r.SentNS == 0:
		return verify.FailWrite
	}
	return verify.FailStream
}
