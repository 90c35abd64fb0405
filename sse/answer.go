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
	if response.StatusCode < 100 {
		fail(verify.FailReply, "status %q is none of HTTP", response.Status)
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
	words, said := outcry(got.body)
	end := 0 // of the last event
	for event := range Events(got.body) {
		if words != nil && said <= event.End {
			script.event(Event{Type: "error", Data: words}, when.at(said))
			words = nil
		}
		script.event(event, when.at(event.End))
		end = event.End
	}
	if words != nil {
		script.event(Event{Type: "error", Data: words}, when.at(said))
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
		script.compareCounts()
	}
}

// outcry finds an error that is no event to the standard: a line that is a
// whole JSON object with an error, as some servers end a stream that has
// begun, or a block of type error without data, whose words may stand in its
// comments. end is where it is complete.
func outcry(body []byte) (words []byte, end int) {
	suspect := bytes.HasPrefix(body, []byte("{"))
	for _, sign := range []string{"\n{", "event: error", "event:error"} {
		suspect = suspect || bytes.Contains(body, []byte(sign))
	}
	if !suspect {
		return nil, 0
	}
	isError, hasData := false, false
	var comments [][]byte
	for line := range bytes.Lines(body) {
		end += len(line)
		line = bytes.TrimRight(line, "\r\n")
		field, value, _ := bytes.Cut(line, []byte(":"))
		switch value = bytes.TrimSpace(value); {
		case len(line) == 0:
			if isError && !hasData {
				return append([]byte{}, bytes.Join(comments, []byte(" "))...), end
			}
			isError, hasData, comments = false, false, nil
		case line[0] == '{':
			if validJSON(line) && something(gjson.GetBytes(line, "error")) {
				return line, end
			}
		case line[0] == ':':
			comments = append(comments, value)
		case string(field) == "data":
			hasData = true
		case string(field) == "event":
			isError = string(value) == "error"
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
