package sse

import (
	"bytes"
	"cmp"
	"fmt"
	"net/http"
	"strings"

	"github.com/tidwall/gjson"

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
	if n := response.ContentLength; n >= 0 && int64(len(got.body)) > n {
		got.body = got.body[:n] // what stands behind isn't of this response
	}
	if r.Status != http.StatusOK {
		to := ""
		if location := response.Header.Get("Location"); location != "" {
			to = " to " + location
		}
		fail(verify.FailStatus, "%s%s: %s", response.Status, to, reason(got.body))
		return
	}
	if coding := response.Header.Get("Content-Encoding"); coding != "" && !strings.EqualFold(coding, "identity") {
		fail(verify.FailReply, "the answer is compressed (%s), though nobody asked for it: its events can't be timed", coding)
		return
	}
	media, _, _ := strings.Cut(response.Header.Get("Content-Type"), ";")
	if !strings.EqualFold(strings.TrimSpace(media), "text/event-stream") {
		fail(verify.FailReply, "content type %q, want text/event-stream: %s", response.Header.Get("Content-Type"), reason(got.body))
		return
	}
	script := transcript{request: r}
	when := arrivals{got.spans, reads}
	stray, strayEnd := strayError(got.body)
	end := 0 // of the last event
	for event := range Events(got.body) {
		if stray != nil && strayEnd <= event.End {
			script.event(Event{Type: "error", Data: stray}, when.at(strayEnd))
			stray = nil
		}
		script.event(event, when.at(event.End))
		end = event.End
	}
	if stray != nil {
		script.event(Event{Type: "error", Data: stray}, when.at(strayEnd))
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
	case !script.done && unended(got.body[end:]) != nil:
		fail(verify.FailStream, "the stream ended inside an event: %s", clip(unended(got.body[end:])))
	default:
		if _, ok := r.FirstTokenNS(); !ok {
			fail(verify.FailEmpty, "the stream ended properly but carried no token")
		}
	}
}

// strayError finds a line that is a whole JSON object with an error, outside
// of any event, as some servers end a stream that has begun; end is where the
// line is complete. To the standard it is an unknown field and nothing.
func strayError(body []byte) (line []byte, end int) {
	for pos := 0; pos < len(body); {
		next := pos
		if body[pos] != '{' {
			i := bytes.Index(body[pos:], []byte("\n{"))
			if i < 0 {
				return nil, 0
			}
			next = pos + i + 1
		}
		line, _, found := bytes.Cut(body[next:], []byte("\n"))
		pos = next + len(line)
		if validJSON(line) && something(gjson.GetBytes(line, "error")) {
			if found {
				pos++
			}
			return line, pos
		}
	}
	return nil, 0
}

// unended returns what stands after the last event, where that may be the
// begin of another. Blank lines and comments aren't, and neither is a [DONE]
// that lacks its blank line: it carries nothing.
func unended(tail []byte) []byte {
	for line := range bytes.Lines(bytes.ReplaceAll(tail, []byte("\r"), []byte("\n"))) {
		line = bytes.TrimSpace(line)
		value, data := bytes.CutPrefix(line, []byte("data:"))
		if len(line) > 0 && line[0] != ':' && !(data && string(bytes.TrimSpace(value)) == "[DONE]") {
			return line
		}
	}
	return nil
}

const noReason = "the server gives no reason"

// reason returns what a body says of a failure.
func reason(body []byte) string { return cmp.Or(message(body), noReason) }

// boundMessage bounds a message, makes it valid UTF-8 and stands in for an
// empty one, for a failure is never without.
func boundMessage(message string) string {
	const most = 1000
	message = strings.ToValidUTF8(message, "�")
	if message == "" {
		return noReason
	}
	if len(message) > most {
		message = strings.ToValidUTF8(message[:most], "") + "…"
	}
	return message
}
