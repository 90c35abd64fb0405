package sse

import (
	"encoding/json"
	"errors"
	"net/http"
	"strconv"
)

// tokenizeParameters are the parameters of /tokenize, under vLLM's names and
// llama.cpp's.
var tokenizeParameters = []parameter{
	{name: "model", read: func(q *request, v json.RawMessage, _ Limits) *refusal { return readString(v, "model", &q.model) }},
	{name: "prompt", read: readTokenizeText("prompt")},
	{name: "content", read: readTokenizeText("content")},
	{name: "messages", read: readMessages},
	{name: "add_special_tokens", neutral: []string{"false"}},
	{name: "add_special", neutral: []string{"false"}},
	{name: "parse_special", neutral: []string{"true"}},
	{name: "add_generation_prompt", neutral: []string{"true"}},
	{name: "return_token_strs", neutral: []string{"false"}},
	{name: "with_pieces", neutral: []string{"false"}},
}

// readTokenizeText takes a text over; a client that doesn't know the server
// may give it under both names.
func readTokenizeText(name string) func(*request, json.RawMessage, Limits) *refusal {
	return func(q *request, value json.RawMessage, _ Limits) *refusal {
		before, had := q.text, q.hasPrompt
		q.hasPrompt = true
		if r := readString(value, name, &q.text); r != nil {
			return r
		}
		if had && q.text != before {
			return refuse(name, "invalid_value", "prompt and content differ: send one of them")
		}
		return nil
	}
}

// decodeTokenize reads the body of a tokenize request.
func decodeTokenize(body []byte, limits Limits) (*request, *refusal) {
	q := new(request)
	if r := decodeObject(q, body, tokenizeParameters, limits); r != nil {
		return nil, r
	}
	if q.hasPrompt == (q.messages != nil) {
		return nil, refuse("prompt", "missing_required_parameter", "send either prompt (or content), a text, or messages")
	}
	return q, nil
}

// serveTokenize answers with the ids of a text, exactly those that a
// completion of it would read. It doesn't wait for the slot and isn't logged.
func (h *Handler) serveTokenize(w http.ResponseWriter, r *http.Request) {
	body, refused := h.readBody(w, r, http.NewResponseController(w))
	var q *request
	if refused == nil {
		q, refused = decodeTokenize(body, h.limits)
	}
	param := "prompt"
	if refused == nil && q.messages != nil {
		param = "messages"
	}
	if refused == nil && q.model != "" && q.model != h.options.Model {
		refused = h.noModel(q.model)
	}
	if refused == nil && (q.text != "" || q.messages != nil) { // the empty text has no tokens
		if err := h.tokenize(q, param); err != nil && !errors.As(err, &refused) {
			refused = &refusal{http.StatusInternalServerError, "", "generation_failed", err.Error()}
		}
	}
	if refused != nil {
		refused.write(w)
		return
	}
	b := append([]byte(nil), `{"count":`...)
	b = strconv.AppendInt(b, int64(len(q.ids)), 10)
	b = append(b, `,"max_model_len":`...)
	b = strconv.AppendInt(b, int64(h.limits.Context), 10)
	b = appendIDs(append(b, `,"tokens":`...), q.ids)
	writeJSON(w, http.StatusOK, append(b, '}'))
}
