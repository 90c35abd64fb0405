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
}

func (d *dialect) has(field string) bool { return slices.Contains(d.fields, field) }

// ask completes a with what the target takes of it.
func (d *dialect) ask(a sse.Ask) sse.Ask {
	a.IgnoreEOS = d.has(fieldIgnoreEOS)
	a.TokenIDs = d.has(fieldTokenIDs)
	if d.has(fieldMinTokens) {
		a.MinTokens = a.OutputTokens
	}
	return a
}

// body returns what goes into every request's body beside what sse.Client
// puts there; the user's own fields stay as they are.
func (d *dialect) body(user map[string]json.RawMessage, outputTokens int) map[string]json.RawMessage {
	out := map[string]json.RawMessage{}
	if d.has(fieldCache) {
		out[fieldCache] = json.RawMessage("false")
	}
	for _, field := range commonFields {
		if !d.has(field) {
			out[field] = json.RawMessage("null")
		}
	}
	if d.has(fieldMaxCompletion) {
		out[fieldMaxCompletion] = json.RawMessage(fmt.Sprint(outputTokens))
	}
	maps.Copy(out, user)
	return out
}

// probeTokens are asked for of a target to find out what it takes.
const probeTokens = 2

// learn finds out what the server behind client takes. client's Fields are
// the user's, and are left as they were. ids is a prompt to try, or nil.
func learn(ctx context.Context, client *sse.Client, ids []int32) (*dialect, error) {
	user := client.Fields
	defer func() { client.Fields = user }()
	number := 0
	try := func(d *dialect, ids []int32) *verify.Request {
		number++
		client.Fields = d.body(user, probeTokens)
		r := new(verify.Request)
		client.Complete(ctx, d.ask(sse.Ask{
			ID: fmt.Sprintf("probe.%d", number), Prompt: "The old bridge over the river", PromptIDs: ids, OutputTokens: probeTokens,
		}), r)
		return r
	}
	all := &dialect{fields: slices.Concat(extraFields, commonFields)}
	first := try(all, nil)
	if err := hopeless(client, first); err != nil {
		return nil, err
	}
	known := all
	if first.Failure != nil {
		known = nil
		var last *verify.Request
		for _, common := range [][]string{
			commonFields,
			{fieldStreamOptions, fieldTemperature, fieldMaxCompletion},
			{fieldTemperature, fieldMaxTokens},
			{fieldStreamOptions, fieldMaxTokens},
			{fieldStreamOptions, fieldMaxCompletion},
			{fieldMaxTokens},
		} {
			d := &dialect{fields: common}
			last = try(d, nil)
			if err := hopeless(client, last); err != nil {
				return nil, err
			}
			if last.Failure == nil {
				known = d
				break
			}
		}
		if known == nil {
			return nil, refused(client, last)
		}
		for _, extra := range extraFields {
			d := &dialect{fields: append(slices.Clone(known.fields), extra)}
			if r := try(d, nil); r.Failure == nil {
				known = d
			} else if err := hopeless(client, r); err != nil {
				return nil, err
			}
		}
	}
	slices.Sort(known.fields)
	if ids != nil && !client.Chat {
		r := try(known, ids)
		known.ids = r.Failure == nil && r.Usage != nil && r.Usage.PromptTokens == len(ids)
	}
	return known, nil
}

// hopeless returns an error for a failure that no other field would mend.
func hopeless(client *sse.Client, r *verify.Request) error {
	switch {
	case r.Failure == nil:
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
	hint := ""
	switch r.Status {
	case http.StatusUnauthorized, http.StatusForbidden:
		hint = ": it wants a key, in the environment variable that -key-env (Target.KeyFrom) names, or another -header"
	case http.StatusNotFound, http.StatusMethodNotAllowed:
		hint = fmt.Sprintf(": is %q its model, and does it have this endpoint? -api chat (Target.API) asks /v1/chat/completions, -api completions /v1/completions", client.Model)
	case http.StatusTooManyRequests, http.StatusServiceUnavailable:
		hint = ": it is busy or not ready yet"
	}
	if r.Status == 0 && strings.Contains(r.Failure.Message, "certificate") {
		hint = ": -insecure (Target.Insecure) accepts any certificate"
	}
	return fmt.Errorf("load: the target doesn't answer: %s: %s%s", r.Failure.Class, r.Failure.Message, hint)
}
