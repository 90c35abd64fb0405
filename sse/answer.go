package sse

import (
	"fmt"
	"mime"
	"net/http"
	"strings"

	"servebench/verify"
)

// read fills r from a response as it was received; err is that of the
// transport.
func read(r *verify.Request, response *http.Response, got received, reads []readMark, err error) {
	fail := func(class, format string, args ...any) {
		if r.Failure == nil {
			r.Failure = &verify.Failure{Class: class, Message: fmt.Sprintf(format, args...)}
		}
	}
	if response == nil {
		fail("", "%v", err)
		return
	}
	r.Status = response.StatusCode
	if r.Status != http.StatusOK {
		fail(verify.FailStatus, "%s: %s", response.Status, message(got.body))
		return
	}
	if coding := response.Header.Get("Content-Encoding"); coding != "" && coding != "identity" {
		fail(verify.FailReply, "the answer is compressed (%s), though nobody asked for it: its events can't be timed", coding)
		return
	}
	media, _, _ := mime.ParseMediaType(response.Header.Get("Content-Type"))
	if media != "text/event-stream" {
		fail(verify.FailReply, "content type %q, want text/event-stream: %s", response.Header.Get("Content-Type"), message(got.body))
		return
	}
	script := transcript{request: r}
	when := arrivals{got.spans, reads}
	for event := range Events(got.body) {
		script.event(event, when.at(event.End))
	}
	script.finish()
	switch {
	case r.Failure != nil:
	case err != nil:
		fail("", "the stream broke off: %v", err)
	case got.end != nil:
		fail(verify.FailStream, "the stream broke off: %v", got.end)
	case r.Finish == "" && !strings.ContainsRune(r.EventKinds, verify.EventDone):
		fail(verify.FailStream, "the stream ended without a finish reason or [DONE]")
	default:
		if _, ok := r.FirstTokenNS(); !ok {
			fail(verify.FailEmpty, "the stream ended properly but carried no token")
		}
	}
}

// boundMessage bounds a message, makes it valid UTF-8 and stands in for an
// empty one, for a failure is never without.
func boundMessage(message string) string {
	const most = 1000
	message = strings.ToValidUTF8(message, "�")
	if message == "" {
		return "the server gives no reason"
	}
	if len(message) > most {
		message = strings.ToValidUTF8(message[:most], "") + "…"
	}
	return message
}
