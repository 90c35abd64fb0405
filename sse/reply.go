package sse

import (
	"fmt"
	"net/http"
	"strconv"
)

// refusal is an answer that isn't one: an error in the dialect's form. What
// the fields hold, and every code, stands in PROTOCOL.md.
type refusal struct {
	status  int
	param   string // the parameter at fault, "" for none
	code    string
	message string
}

func (r *refusal) Error() string { return strconv.Itoa(r.status) + " " + r.message }

// refuse makes a refusal of a request that names the parameter at fault.
func refuse(param, code, format string, args ...any) *refusal {
	return &refusal{http.StatusBadRequest, param, code, fmt.Sprintf(format, args...)}
}

// appendError appends the dialect's error object.
func (r *refusal) appendError(dst []byte) []byte {
	kind := "invalid_request_error"
	if r.status >= 500 {
		kind = "server_error"
	}
	dst = append(dst, `{"error":{"message":`...)
	dst = appendJSONString(dst, r.message)
	dst = append(dst, `,"type":`...)
	dst = appendJSONString(dst, kind)
	dst = append(dst, `,"param":`...)
	if r.param == "" {
		dst = append(dst, "null"...)
	} else {
		dst = appendJSONString(dst, r.param)
	}
	dst = append(dst, `,"code":`...)
	dst = appendJSONString(dst, r.code)
	return append(dst, "}}"...)
}

// write sends the refusal as the whole response.
func (r *refusal) write(w http.ResponseWriter) {
	if r.status == http.StatusServiceUnavailable {
		w.Header().Set("Retry-After", "1")
	}
	writeJSON(w, r.status, r.appendError(nil))
}

// writeJSON sends body, one JSON value, as the whole response. An error of
// the connection is nobody's to handle: the client sees it.
func writeJSON(w http.ResponseWriter, status int, body []byte) {
	h := w.Header()
	h.Set("Content-Type", "application/json")
	h.Set("Content-Length", strconv.Itoa(len(body)))
	h.Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	w.Write(body)
}
