// Package sse is the wire of a measured LLM server, both of its ends: the
// server's handler over a Generator, and the measuring client. It speaks
// OpenAI's dialect of server-sent events; PROTOCOL.md has the server's part.
// It knows no model and needs nothing but Go.
//
// It is not a gateway, not a client library for applications, and not where
// metrics are defined: that is package verify, which both ends leave their
// records to, each its own.
//
// The way of a request:
//
//  1. Client opens a connection, sends the request, and stamps each read as
//     it returns, before anything is parsed.
//  2. Handler reads and checks the body, tokenizes the prompt, and puts the
//     request into the queue for the one slot: first come, first served.
//  3. With the slot it runs the Generator and stamps each token when its id
//     is known, then sends it as one event, flushed at once.
//  4. The slot is freed, the record, a verify.Served, is given out, and only
//     then the response ends.
//  5. Client takes the bytes apart into events, each with the stamp of the
//     read that completed it, and fills in a verify.Request.
//
// Both stamp ns with a Clock, which ties their times to one system clock.
package sse

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"servebench/verify"
)

// Options set a Handler up. The zero value is usable.
type Options struct {
	// Model is the id that answers carry and that requests may name.
	// Default "model".
	Model string
	// BodyBytes bounds a request's body. Default 1 MiB; 0 and below mean it.
	BodyBytes int64
	// Queue bounds how many requests wait for the slot; one more is refused
	// with 503. Default 1024; 0 and below mean it.
	Queue int
	// Tokens is max_tokens where a request has none. Default 16, as OpenAI
	// documents it for completions; 0 and below mean it.
	Tokens int
	// Chat, if set, renders a conversation as the model's own template does,
	// the opening of the assistant's next turn included. Its errors refuse
	// the request. Without it there are no chat completions.
	Chat func([]Message) (string, error)
	// Clock gives the stamps. Default: a new one.
	Clock *Clock
	// Served, if set, gets the record of each request for an answer, refused
	// and abandoned ones too: after the slot is free and before the last
	// bytes of the response are written, so that a client that has seen the
	// end knows the record is there. Stamps are on the clock's absolute
	// scale, Config is 0. Calls may come at the same time. The slices are
	// the callee's to keep.
	Served func(verify.Served)
}

// bodyLimit is how long a client may take to send a request's body.
const bodyLimit = 30 * time.Second

// Handler serves a Generator in OpenAI's dialect: see PROTOCOL.md for what it
// takes and gives. One request at a time has the generator, in the order in
// which they arrived.
//
// An http.Server around it must have no WriteTimeout, which would cut streams
// of any health, and should have a ReadHeaderTimeout.
type Handler struct {
	generator Generator
	limits    Limits
	options   Options
	created   int64  // Unix time, s
	prefix    string // of ids that the server makes
	made      atomic.Int64
	slot      slot
	broken    atomic.Pointer[refusal] // why nothing is generated any more
}

// NewHandler returns a Handler over g.
func NewHandler(g Generator, o Options) *Handler {
	if o.Model == "" {
		o.Model = "model"
	}
	if o.BodyBytes <= 0 {
		o.BodyBytes = 1 << 20
	}
	if o.Queue <= 0 {
		o.Queue = 1024
	}
	if o.Tokens <= 0 {
		o.Tokens = 16
	}
	if o.Clock == nil {
		o.Clock = NewClock()
	}
	var random [6]byte
	rand.Read(random[:])
	return &Handler{
		generator: g,
		limits:    g.Limits(),
		options:   o,
		created:   time.Now().Unix(),
		prefix:    hex.EncodeToString(random[:]) + "-",
		slot:      slot{now: o.Clock.Now, limit: o.Queue},
	}
}

func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	path := r.URL.Path
	switch {
	case path == "/v1/completions":
		if allow(w, r, http.MethodPost) {
			h.serve(w, r, completionShape, decodeCompletion)
		}
	case path == "/v1/chat/completions":
		if h.options.Chat == nil {
			h.noChat().write(w)
		} else if allow(w, r, http.MethodPost) {
			h.serve(w, r, chatShape, decodeChat)
		}
	case path == "/tokenize":
		if allow(w, r, http.MethodPost) {
			h.serveTokenize(w, r)
		}
	case path == "/v1/models":
		if allow(w, r, http.MethodGet, http.MethodHead) {
			b := append([]byte(nil), `{"object":"list","data":[`...)
			b = h.appendModel(b)
			writeJSON(w, http.StatusOK, append(b, "]}"...))
		}
	case strings.HasPrefix(path, "/v1/models/"):
		if allow(w, r, http.MethodGet, http.MethodHead) {
			if id := path[len("/v1/models/"):]; id != h.options.Model {
				h.noModel(id).write(w)
				return
			}
			writeJSON(w, http.StatusOK, h.appendModel(nil))
		}
	case path == "/healthz":
		if allow(w, r, http.MethodGet, http.MethodHead) {
			h.serveHealth(w)
		}
	default:
		(&refusal{http.StatusNotFound, "", "not_found", fmt.Sprintf("nothing is served at %q", excerpt(path))}).write(w)
	}
}

// allow answers a request of another method itself.
func allow(w http.ResponseWriter, r *http.Request, methods ...string) bool {
	for _, m := range methods {
		if r.Method == m {
			return true
		}
	}
	w.Header().Set("Allow", strings.Join(methods, ", "))
	(&refusal{http.StatusMethodNotAllowed, "", "method_not_allowed",
		fmt.Sprintf("%s takes %s, not %s", r.URL.Path, strings.Join(methods, " and "), excerpt(r.Method))}).write(w)
	return false
}

func (h *Handler) appendModel(dst []byte) []byte {
	dst = append(dst, `{"id":`...)
	dst = appendJSONString(dst, h.options.Model)
	dst = append(dst, `,"object":"model","created":`...)
	dst = strconv.AppendInt(dst, h.created, 10)
	dst = append(dst, `,"owned_by":"servebench","max_model_len":`...)
	dst = strconv.AppendInt(dst, int64(h.limits.Context), 10)
	return append(dst, '}')
}

func (h *Handler) noModel(id string) *refusal {
	return &refusal{http.StatusNotFound, "model", "model_not_found",
		fmt.Sprintf("model %q isn't served, want %q", excerpt(id), h.options.Model)}
}

func (h *Handler) noChat() *refusal {
	return &refusal{http.StatusNotFound, "", "not_found", fmt.Sprintf("model %q has no chat template that this server knows: use /v1/completions", h.options.Model)}
}

func (h *Handler) serveHealth(w http.ResponseWriter) {
	if r := h.broken.Load(); r != nil {
		r.write(w)
		return
	}
	b := append([]byte(nil), `{"status":"ok","model":`...)
	b = appendJSONString(b, h.options.Model)
	b = append(b, `,"context":`...)
	b = strconv.AppendInt(b, int64(h.limits.Context), 10)
	b = append(b, `,"vocabulary":`...)
	b = strconv.AppendInt(b, int64(h.limits.Vocabulary), 10)
	b = append(b, `,"slots":1}`...)
	writeJSON(w, http.StatusOK, b)
}

// Why a request ended whose client went away, and one whose response was
// ended by a panic in writing it.
var (
	errLeft    = errors.New("the client left")
	errAborted = errors.New("the response was aborted")
)

// answer is one request on its way.
type answer struct {
	*Handler
	ctx     context.Context
	cancel  context.CancelCauseFunc
	request *request
	served  *verify.Served
	stream  *stream // nil for an answer in one piece
	text    []byte  // of an answer in one piece, as the inside of a JSON string
	runes   runes
	finish  string
}

// serve answers one request: read it, queue it, generate, free the slot,
// record it, end the response.
func (h *Handler) serve(w http.ResponseWriter, r *http.Request, form shape, decode func([]byte, Limits, int) (*request, *refusal)) {
	clock := h.options.Clock
	served := verify.Served{Kind: verify.KindServed, ArrivalNS: clock.Absolute(clock.Now())}
	id, ok := requestID(r)
	if !ok {
		id = h.prefix + strconv.FormatInt(h.made.Add(1), 10)
	}
	served.ID = id
	w.Header().Set("X-Request-Id", id)

	recorded := false
	record := func(err error) {
		recorded = true
		if err != nil {
			served.Error = err.Error()
		}
		if h.options.Served != nil {
			h.options.Served(served)
		}
	}
	defer func() {
		if !recorded { // a panic of what wraps w, which net/http takes care of
			record(errAborted)
		}
	}()

	control := http.NewResponseController(w)
	q, err := h.read(w, r, control, form, decode)
	var a *answer
	if err == nil {
		ctx, cancel := context.WithCancelCause(r.Context())
		defer cancel(nil)
		a = &answer{Handler: h, ctx: ctx, cancel: cancel, request: q, served: &served}
		id, created := form.idPrefix+id, time.Now().Unix()
		if q.stream {
			a.stream = &stream{w: w, control: control, clock: clock, shape: form}
			a.stream.chunk = append(appendHead(nil, form.event, id, created, h.options.Model), `,"choices":`...)
		} else {
			a.text = append(appendHead(nil, form.object, id, created, h.options.Model), `,"choices":[{"index":0,`...)
			a.text = append(a.text, form.wholeOpen...)
		}
		err = a.run()
	}
	record(err)
	if errors.Is(err, errLeft) {
		return // nobody is there
	}
	// The limit holds for what net/http still has to write after the return,
	// which then lifts it.
	_ = control.SetWriteDeadline(time.Now().Add(writeLimit))
	a.end(w, form, err)
}

// readBody returns the request's whole body.
func (h *Handler) readBody(w http.ResponseWriter, r *http.Request, control *http.ResponseController) ([]byte, *refusal) {
	if e := r.Header.Get("Content-Encoding"); e != "" && !strings.EqualFold(e, "identity") {
		return nil, &refusal{http.StatusUnsupportedMediaType, "", "unsupported_encoding", fmt.Sprintf("Content-Encoding %q isn't supported: send the body as it is", excerpt(e))}
	}
	// The body is read to its end: only then does net/http look out for the
	// client's leaving.
	_ = control.SetReadDeadline(time.Now().Add(bodyLimit))
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, h.options.BodyBytes))
	if err == nil {
		_ = control.SetReadDeadline(time.Time{})
		return body, nil
	}
	// The limit stays, or net/http would wait for the rest of the body.
	if big := new(http.MaxBytesError); errors.As(err, &big) {
		return nil, &refusal{http.StatusRequestEntityTooLarge, "", "body_too_large", fmt.Sprintf("the body has more than %d bytes", big.Limit)}
	}
	return nil, refuse("", "body_unreadable", "the body can't be read: %v", err)
}

// read takes a request in, with its prompt's ids.
func (h *Handler) read(w http.ResponseWriter, r *http.Request, control *http.ResponseController, form shape, decode func([]byte, Limits, int) (*request, *refusal)) (*request, error) {
	body, refused := h.readBody(w, r, control)
	if refused != nil {
		return nil, refused
	}
	q, refused := decode(body, h.limits, h.options.Tokens)
	if refused != nil {
		return nil, refused
	}
	if q.model != "" && q.model != h.options.Model {
		return nil, h.noModel(q.model)
	}
	if err := h.tokenize(q, form.prompt); err != nil {
		return nil, err
	}
	n := len(q.ids)
	if n >= h.limits.Context {
		return nil, tooLong(form.prompt, n, h.limits)
	}
	if q.tokens == 0 {
		q.tokens = h.limits.Context - n
	}
	if n+q.minTokens > h.limits.Context {
		return nil, refuse("min_tokens", "context_length_exceeded", "%s has %d tokens and min_tokens is %d, want at most %d together", form.prompt, n, q.minTokens, h.limits.Context)
	}
	if n+q.tokens > h.limits.Context {
		return nil, refuse(q.bound(), "context_length_exceeded", "%s has %d tokens and %s is %d, want at most %d together", form.prompt, n, q.bound(), q.tokens, h.limits.Context)
	}
	if r := h.broken.Load(); r != nil {
		return nil, r
	}
	return q, nil
}

// tokenize gives q the ids of its prompt, at least one; param is where the
// prompt comes from.
func (h *Handler) tokenize(q *request, param string) error {
	if q.ids != nil {
		return nil
	}
	if q.messages != nil {
		if h.options.Chat == nil {
			return h.noChat()
		}
		text, err := h.options.Chat(q.messages)
		if err != nil {
			return refuse(param, "invalid_value", "%s can't be rendered: %v", param, err)
		}
		q.text = text
	}
	ids, err := h.encode(q.text, param)
	if err != nil {
		return err
	}
	if len(ids) == 0 {
		return refuse(param, "invalid_value", "%s has no tokens: at least one is needed", param)
	}
	q.ids = ids
	return nil
}

// run queues the request and generates its answer, but for the end.
func (a *answer) run() error {
	ticket, err := a.slot.join()
	if err != nil {
		return &refusal{http.StatusServiceUnavailable, "", "queue_full", fmt.Sprintf("%d requests wait already: try again later", a.slot.limit)}
	}
	absolute := a.options.Clock.Absolute
	a.served.QueuedNS = absolute(ticket.joined)
	a.served.PromptIDs = a.request.ids
	if a.stream != nil {
		if err := a.stream.open(); errors.Is(err, http.ErrNotSupported) {
			a.cancel(&refusal{http.StatusInternalServerError, "stream", "stream_unsupported", "a stream can't be flushed here: whatever wraps the handler's ResponseWriter needs a Flush or an Unwrap method"})
		} else if err != nil {
			a.cancel(errLeft)
		}
	}
	if ticket.wait(a.ctx) != nil {
		return a.gone("in the queue")
	}
	a.served.SlotNS = absolute(ticket.begun)
	defer func() { a.served.ReleaseNS = absolute(ticket.release()) }()
	if a.ctx.Err() != nil {
		return a.gone("in the queue")
	}
	if r := a.broken.Load(); r != nil {
		return r
	}
	return a.generate()
}

// generate is called by the holder of the slot.
func (a *answer) generate() error {
	q, served := a.request, a.served
	const usual = 512 // tokens for which room is made beforehand
	served.TokenIDs = make([]int32, 0, min(q.tokens, usual))
	served.TokenNS = make([]int64, 0, min(q.tokens, usual))
	served.Steps = 1
	id, err := a.prefill(q.ids)
	for err == nil {
		t := token{id: id, stampNS: a.options.Clock.Absolute(a.options.Clock.Now())}
		served.TokenIDs = append(served.TokenIDs, id)
		served.TokenNS = append(served.TokenNS, t.stampNS)
		if a.ctx.Err() != nil {
			if len(served.TokenIDs) == 1 {
				return a.gone("in prefill")
			}
			return a.gone(fmt.Sprintf("at token %d", len(served.TokenIDs)))
		}
		switch {
		case id == a.limits.EOS && !q.ignoreEOS:
			t.finish = "stop"
		case len(served.TokenIDs) == q.tokens:
			t.finish = "length"
		}
		if t.piece, err = a.piece(id); err != nil {
			return err
		}
		a.finish = t.finish
		if a.stream == nil {
			a.text = a.runes.appendText(a.text, t.piece, t.finish != "")
		} else if a.stream.token(q, served.PromptIDs, t) != nil {
			a.cancel(errLeft)
			return a.gone(fmt.Sprintf("at token %d", len(served.TokenIDs)))
		}
		if t.finish != "" {
			return nil
		}
		served.Steps++
		id, err = a.step(id)
	}
	return err
}

// gone says why the context ended, and where the request was.
func (a *answer) gone(where string) error {
	cause := context.Cause(a.ctx)
	if r := new(refusal); errors.As(cause, &r) {
		return r
	}
	if errors.Is(cause, context.Canceled) || errors.Is(cause, errLeft) {
		return fmt.Errorf("%w %s", errLeft, where)
	}
	return &refusal{http.StatusServiceUnavailable, "", "server_stopping", fmt.Sprintf("%v %s", cause, where)}
}

// end writes what ends the response: the answer, the rest of it, or an error.
// It is called on nil for a request that was never queued.
func (a *answer) end(w http.ResponseWriter, form shape, err error) {
	if err != nil {
		r := new(refusal)
		if !errors.As(err, &r) {
			r = &refusal{http.StatusInternalServerError, "", "generation_failed", err.Error()}
		}
		if a != nil && a.stream != nil && a.stream.opened {
			_ = a.stream.fail(r)
		} else {
			r.write(w)
		}
		return
	}
	prompt, tokens := len(a.served.PromptIDs), len(a.served.TokenIDs)
	if a.stream != nil {
		_ = a.stream.close(a.request, prompt, tokens)
		return
	}
	b := append(a.text, form.wholeClose...)
	b = appendFinish(b, a.finish)
	if a.request.returnIDs {
		if !form.outerIDs {
			b = appendIDs(append(b, `,"prompt_token_ids":`...), a.served.PromptIDs)
		}
		b = appendIDs(append(b, `,"token_ids":`...), a.served.TokenIDs)
	}
	if a.request.returnStamps {
		b = append(b, `,"stamps_ns":[`...)
		for i, ns := range a.served.TokenNS {
			if i > 0 {
				b = append(b, ',')
			}
			b = strconv.AppendInt(b, ns, 10)
		}
		b = append(b, ']')
	}
	b = append(b, "}],"...)
	b = appendUsage(b, prompt, tokens)
	if a.request.returnIDs && form.outerIDs {
		b = appendIDs(append(b, `,"prompt_token_ids":`...), a.served.PromptIDs)
	}
	writeJSON(w, http.StatusOK, append(b, '}'))
}

// encode, prefill, step and piece are the generator's, with a panic made an error.
// After one, nothing is generated any more: its state is in doubt, and so
// would be every number measured on it.

func (h *Handler) encode(text, param string) (ids []int32, err error) {
	defer h.catch("tokenizing", &err)
	ids, err = h.generator.Encode(text)
	if err != nil {
		return nil, refuse(param, "invalid_value", "%s can't be tokenized: %v", param, err)
	}
	return ids, nil
}

func (h *Handler) prefill(prompt []int32) (id int32, err error) {
	defer h.catch("prefill", &err)
	return h.generator.Prefill(prompt)
}

func (h *Handler) step(last int32) (id int32, err error) {
	defer h.catch("decoding", &err)
	return h.generator.Step(last)
}

func (h *Handler) piece(id int32) (b []byte, err error) {
	defer h.catch("decoding text", &err)
	return h.generator.Piece(id), nil
}

func (h *Handler) catch(doing string, err *error) {
	if p := recover(); p != nil {
		r := &refusal{http.StatusInternalServerError, "", "generator_panicked", fmt.Sprintf("the generator panicked in %s: %v", doing, p)}
		h.broken.CompareAndSwap(nil, r)
		*err = r
	}
}
