package load

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"

	"servebench/sse"
	"servebench/verify"
)

// OpenAI's dialect has grown apart: what one server needs for an answer of a
// fixed length another refuses. So before anything is measured a target is
// asked for two tokens, first with every field that would be of use, and then,
// if it refuses, without, to find those that it takes.

// Fields that not every server knows. The last of them are OpenAI's own, yet
// some servers refuse them.
const (
	fieldTokenIDs      = "return_token_ids"
	fieldIgnoreEOS     = "ignore_eos"
	fieldMinTokens     = "min_tokens"
	fieldCache         = "cache_prompt" // false: llama.cpp then reads every prompt anew
	fieldStreamOptions = "stream_options"
	fieldTemperature   = "temperature"
	fieldMaxTokens     = "max_tokens"
	fieldMaxCompletion = "max_completion_tokens" // in place of max_tokens
)

var (
	extraFields  = []string{fieldIgnoreEOS, fieldMinTokens, fieldTokenIDs, fieldCache}
	commonFields = []string{fieldStreamOptions, fieldTemperature, fieldMaxTokens}
)

// dialect is what a target takes.
type dialect struct {
	fields []string // of those above, sorted
	ids    bool     // it reads a prompt of ids, and counts them right

	counted int // its usage of probeText; 0 if it sends none
}

func (d *dialect) has(field string) bool { return slices.Contains(d.fields, field) }

// ask completes a with what the target takes of it.
func (d *dialect) ask(a sse.Ask) sse.Ask {
	a.IgnoreEOS = d.has(fieldIgnoreEOS)
	a.TokenIDs = d.has(fieldTokenIDs)
	a.Completion = d.has(fieldMaxCompletion)
	if d.has(fieldMinTokens) {
		a.MinTokens = a.OutputTokens
	}
	return a
}

// body returns what goes into every request's body beside what sse.Client
// puts there; the user's own fields stay as they are.
func (d *dialect) body(user map[string]json.RawMessage) map[string]json.RawMessage {
	out := map[string]json.RawMessage{}
	if d.has(fieldCache) {
		out[fieldCache] = json.RawMessage("false")
	}
	for _, field := range commonFields {
		if !d.has(field) {
			out[field] = json.RawMessage("null")
		}
	}
	maps.Copy(out, user)
	return out
}

// A target is asked for probeTokens after probeText to find out what it takes.
const (
	probeTokens = 2
	probeText   = "The old bridge over the river"
)

// learn finds out what the server behind client takes. client's Fields are
// the user's, and are left as they were; a field that they have isn't tried.
// ids is a prompt to try, or nil.
func learn(ctx context.Context, client *sse.Client, ids []int32) (*dialect, error) {
	user := client.Fields
	defer func() { client.Fields = user }()
	number := 0
	try := func(d *dialect, ids []int32) *verify.Request {
		number++
		client.Fields = d.body(user)
		r := new(verify.Request)
		client.Complete(ctx, d.ask(sse.Ask{
			ID: fmt.Sprintf("probe.%d", number), Prompt: probeText, PromptIDs: ids, OutputTokens: probeTokens,
		}), r)
		return r
	}
	var known *dialect
	var best, last *verify.Request // the answer to known, and to the last try
	attempt := func(fields []string) (bool, error) {
		d := &dialect{fields: without(fields, user)}
		last = try(d, nil)
		if err := hopeless(client, last); err != nil {
			return false, err
		}
		if taken(last) {
			known, best = d, last
		}
		return taken(last), nil
	}
	if _, err := attempt(slices.Concat(extraFields, commonFields)); err != nil {
		return nil, err
	}
	if known == nil {
		for _, common := range fewerFields() {
			if found, err := attempt(common); found || err != nil {
				if err != nil {
					return nil, err
				}
				break
			}
		}
		if known == nil {
			return nil, refused(client, last)
		}
		for _, extra := range without(extraFields, user) {
			if _, err := attempt(append(slices.Clone(known.fields), extra)); err != nil {
				return nil, err
			}
		}
	}
	slices.Sort(known.fields)
	if best.Usage != nil {
		known.counted = best.Usage.PromptTokens
	}
	if ids != nil && !client.Chat {
		r := try(known, ids)
		known.ids = taken(r) && r.Usage != nil && r.Usage.PromptTokens == len(ids)
	}
	return known, nil
}

// fewerFields lists the ways to do without fields of OpenAI's own, the best
// first: usage counts the tokens, temperature 0 makes answers repeatable. One
// that bounds the answer is in each.
func fewerFields() (ways [][]string) {
	for _, rest := range [][]string{{fieldStreamOptions, fieldTemperature}, {fieldStreamOptions}, {fieldTemperature}, {}} {
		for _, bound := range []string{fieldMaxTokens, fieldMaxCompletion} {
			ways = append(ways, append(slices.Clone(rest), bound))
		}
	}
	return ways
}

// without returns fields but for those that the user has.
func without(fields []string, user map[string]json.RawMessage) []string {
	return slices.DeleteFunc(slices.Clone(fields), func(field string) bool { _, has := user[field]; return has })
}

// taken reports whether a server took what it was sent. An answer without a
// token is one, too: a model may have nothing to say, or spend two tokens on
// thoughts that it keeps to itself.
func taken(r *verify.Request) bool { return r.Failure == nil || r.Failure.Class == verify.FailEmpty }

// hopeless returns an error for a failure that no other field would mend.
func hopeless(client *sse.Client, r *verify.Request) error {
	switch {
	case taken(r):
		return nil
	case r.Status == 0, r.Failure.Class == verify.FailStall, r.Failure.Class == verify.FailCanceled,
		r.Status == http.StatusUnauthorized, r.Status == http.StatusForbidden, r.Status == http.StatusNotFound, r.Status == http.StatusMethodNotAllowed,
		r.Status == http.StatusTooManyRequests, r.Status == http.StatusServiceUnavailable, r.Status/100 == 3:
		return refused(client, r)
	}
	return nil
}

// refused says what to do about a target that gives no answer.
func refused(client *sse.Client, r *verify.Request) error {
	text := r.Failure.Class + ": " + r.Failure.Message
	hint := remedy(r.Status, r.Failure.Message)
	if r.Failure.Class == verify.FailStall {
		hint = silent
	}
	if hint == "" && r.Failure.Class == verify.FailReply {
		hint = "is there an OpenAI-compatible server behind " + client.BaseURL + ", or another below it, as in http://HOST/PATH/v1? It must stream"
	}
	if r.Status == http.StatusNotFound || r.Status == http.StatusMethodNotAllowed {
		hint = fmt.Sprintf("is %q its model, and does it have this endpoint? -api chat (Target.API) asks /v1/chat/completions, -api completions /v1/completions", client.Model)
	}
	return noAnswer(text, hint)
}

func noAnswer(text, hint string) error {
	if hint != "" {
		hint = ": " + hint
	}
	return fmt.Errorf("load: the target doesn't answer: %s%s", text, hint)
}

const silent = "is it up? -idle (Options.Idle) bounds its silence"

// remedy names what mends an answer of a status, 0 for none, "" where only the
// server's own words help.
func remedy(status int, message string) string {
	switch {
	case status == http.StatusUnauthorized || status == http.StatusForbidden:
		return "it wants a key, in the environment variable that -key-env (Target.KeyFrom) names, or another -header"
	case status == http.StatusTooManyRequests || status == http.StatusServiceUnavailable:
		return "it is busy or not ready yet: try again"
	case status/100 == 3:
		return "-target (Target.URL) must name the place itself, for nothing is followed"
	case status == 0 && (strings.Contains(message, "certificate") || strings.Contains(message, "x509")):
		return "-insecure (Target.Insecure) accepts any certificate"
	case status == 0 && strings.Contains(message, "gave HTTP response to HTTPS client"), status == 0 && strings.Contains(message, "first record does not look like a TLS handshake"):
		return "it speaks http, not https"
	case status == 0 && (strings.Contains(message, context.DeadlineExceeded.Error()) || strings.Contains(message, "i/o timeout")):
		return silent
	case status == 0:
		return "is it up, and is -target (Target.URL) right?"
	}
	return ""
}
