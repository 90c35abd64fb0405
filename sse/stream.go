package sse

import (
	"errors"
	"net/http"
	"strconv"
	"time"
)

// writeLimit is how long a client may leave a stream unread once the
// system's buffers are full. Then it counts as gone, so that one that sleeps
// can't keep the slot for ever. A stream itself has no limit.
const writeLimit = 30 * time.Second

// stream writes one answer as server-sent events, each with one Write and,
// while the answer is under way, flushed at once. Its buffer is reused, so a
// token costs no allocation.
type stream struct {
	w       http.ResponseWriter
	control *http.ResponseController
	clock   *Clock

	shape
	opened bool   // the response's head is sent
	chunk  []byte // what opens the data of each event, up to choices' value
	buf    []byte
	text   runes
	sent   int   // events with a token
	limit  int64 // stamp at which the write limit was last moved
}

// shape is where an endpoint's answers differ in form.
type shape struct {
	prompt     string // the parameter that the prompt comes from
	idPrefix   string // of "id"
	object     string // of a whole answer
	event      string // "object" of an event
	firstOpen  string // before the text in the first event's choice
	textOpen   string // the same in a later one
	textClose  string // after it
	wholeOpen  string // before the text in a whole answer's choice
	wholeClose string
	outerIDs   bool // the prompt's ids stand beside the choices and not in one
}

var completionShape = shape{
	prompt:     "prompt",
	idPrefix:   "cmpl-",
	object:     "text_completion",
	event:      "text_completion",
	firstOpen:  `"text":"`,
	textOpen:   `"text":"`,
	textClose:  `"`,
	wholeOpen:  `"text":"`,
	wholeClose: `"`,
}

// token is what one event tells about a generated token.
type token struct {
	id      int32
	piece   []byte
	stampNS int64  // absolute
	finish  string // why it is the last, "" if it isn't
}

// appendHead appends the members that open every object of an answer.
func appendHead(dst []byte, object, id string, created int64, model string) []byte {
	dst = append(dst, `{"id":`...)
	dst = appendJSONString(dst, id)
	dst = append(dst, `,"object":"`...)
	dst = append(dst, object...)
	dst = append(dst, `","created":`...)
	dst = strconv.AppendInt(dst, created, 10)
	dst = append(dst, `,"model":`...)
	return appendJSONString(dst, model)
}

// open sends the response's head: the request is in the queue. Nothing was
// sent if it returns http.ErrNotSupported.
func (s *stream) open() error {
	h := s.w.Header()
	h.Set("Content-Type", "text/event-stream; charset=utf-8")
	h.Set("Cache-Control", "no-cache")
	h.Set("X-Accel-Buffering", "no")
	s.moveLimit()
	err := s.control.Flush()
	s.opened = !errors.Is(err, http.ErrNotSupported)
	return err
}

// token sends the event of one token.
func (s *stream) token(q *request, prompt []int32, t token) error {
	b := append(s.buf[:0], "data: "...)
	b = append(b, s.chunk...)
	b = append(b, `[{"index":0,`...)
	if s.sent == 0 {
		b = append(b, s.firstOpen...)
	} else {
		b = append(b, s.textOpen...)
	}
	b = s.text.appendText(b, t.piece, t.finish != "")
	b = append(b, s.textClose...)
	b = appendFinish(b, t.finish)
	if q.returnIDs {
		if s.sent == 0 && !s.outerIDs {
			b = appendIDs(append(b, `,"prompt_token_ids":`...), prompt)
		}
		b = append(b, `,"token_ids":[`...)
		b = strconv.AppendInt(b, int64(t.id), 10)
		b = append(b, ']')
	}
	if q.returnStamps {
		b = append(b, `,"stamp_ns":`...)
		b = strconv.AppendInt(b, t.stampNS, 10)
	}
	b = append(b, "}]"...)
	if q.returnIDs && s.sent == 0 && s.outerIDs {
		b = appendIDs(append(b, `,"prompt_token_ids":`...), prompt)
	}
	b = append(b, "}\n\n"...)
	s.buf = b
	s.sent++
	if err := s.write(b); err != nil {
		return err
	}
	return s.control.Flush()
}

// close sends the end of a whole answer; what carries it to the client is the
// end of the response.
func (s *stream) close(q *request, promptTokens, tokens int) error {
	if q.usage {
		b := append(s.buf[:0], "data: "...)
		b = append(b, s.chunk...)
		b = append(b, "[],"...)
		b = appendUsage(b, promptTokens, tokens)
		b = append(b, "}\n\n"...)
		s.buf = b
		if err := s.write(b); err != nil {
			return err
		}
	}
	return s.write([]byte("data: [DONE]\n\n"))
}

// fail sends an error in place of the rest of the answer. No [DONE] comes
// after it: that is kept for a whole answer.
func (s *stream) fail(r *refusal) error {
	b := append(s.buf[:0], "data: "...)
	b = r.appendError(b)
	b = append(b, "\n\n"...)
	s.buf = b
	return s.write(b)
}

func (s *stream) write(event []byte) error {
	if s.clock.Now()-s.limit > int64(time.Second) {
		s.moveLimit()
	}
	_, err := s.w.Write(event)
	return err
}

// moveLimit gives the next writes time again. Not every ResponseWriter has a
// limit to move; without one a client that sleeps is the server's to bound.
func (s *stream) moveLimit() {
	s.limit = s.clock.Now()
	_ = s.control.SetWriteDeadline(time.Now().Add(writeLimit))
}

func appendFinish(dst []byte, finish string) []byte {
	dst = append(dst, `,"logprobs":null,"finish_reason":`...)
	if finish == "" {
		return append(dst, "null"...)
	}
	dst = append(dst, '"')
	dst = append(dst, finish...)
	return append(dst, '"')
}

func appendIDs(dst []byte, ids []int32) []byte {
	dst = append(dst, '[')
	for i, id := range ids {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = strconv.AppendInt(dst, int64(id), 10)
	}
	return append(dst, ']')
}

func appendUsage(dst []byte, prompt, answer int) []byte {
	dst = append(dst, `"usage":{"prompt_tokens":`...)
	dst = strconv.AppendInt(dst, int64(prompt), 10)
	dst = append(dst, `,"completion_tokens":`...)
	dst = strconv.AppendInt(dst, int64(answer), 10)
	dst = append(dst, `,"total_tokens":`...)
	dst = strconv.AppendInt(dst, int64(prompt+answer), 10)
	return append(dst, '}')
}
