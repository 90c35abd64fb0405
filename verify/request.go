package verify

import (
	"fmt"
	"slices"
	"strings"
)

// The checks of one request by itself.

// checkRequest returns what is wrong with a request's record. A failed
// request may end anywhere, but what it has must still be in order.
func (p *replay) checkRequest(r *Request) error {
	plan := &p.cell.plan
	if err := r.checkShape(plan); err != nil {
		return err
	}
	if err := r.checkOrder(plan); err != nil {
		return err
	}
	prompt := p.prompts[r.Prompt]
	target := p.report.Header.Target
	if target == nil && (r.SentIDs != nil || r.SentText != "") {
		return fmt.Errorf("sent_ids or sent_text, but this run's own server reads the corpus's prompts as they are")
	}
	if target != nil && prompt != nil {
		if err := p.checkSent(r, prompt); err != nil {
			return err
		}
	}
	if r.Failure != nil {
		return r.checkFailure()
	}
	if err := r.checkStream(); err != nil {
		return err
	}
	if prompt == nil {
		return nil // the plan has it, and a problem for it
	}
	if target != nil {
		return p.checkForeign(r, prompt)
	}
	if r.PromptIDs != nil && prompt.IDs != nil && !slices.Equal(r.PromptIDs, prompt.IDs) {
		return fmt.Errorf("prompt_ids aren't those of prompt %q: %s", r.Prompt, firstDifference(r.PromptIDs, prompt.IDs))
	}
	if r.Usage != nil && r.Usage.PromptTokens != prompt.Input {
		return fmt.Errorf("usage.prompt_tokens %d, want %d", r.Usage.PromptTokens, prompt.Input)
	}
	n, known := r.Tokens()
	if plan.ExactOutput && (!known || n != r.OutputTokens || r.Finish != "length") {
		return fmt.Errorf("no failure, yet %d tokens (known: %t) with finish %q, want %d with \"length\"", n, known, r.Finish, r.OutputTokens)
	}
	if err := r.checkOwn(); err != nil {
		return err
	}
	return p.checkAnswer(r, r.TokenIDs, &r.Text)
}

// firstDifference says where two lists of ids that aren't equal begin to differ.
func firstDifference(have, want []int32) string {
	if len(have) != len(want) {
		return fmt.Sprintf("%d ids, want %d", len(have), len(want))
	}
	i := 0
	for have[i] == want[i] {
		i++
	}
	return fmt.Sprintf("[%d] = %d, want %d", i, have[i], want[i])
}

func (r *Request) checkShape(plan *Plan) error {
	switch {
	case r.Phase != PhaseWarmup && r.Phase != PhaseMeasured && (r.Phase != PhaseSettle || plan.Load.Kind != LoadOpen):
		return fmt.Errorf("phase %q, want %q or %q", r.Phase, PhaseWarmup, PhaseMeasured)
	case r.Phase == PhaseWarmup && !slices.Contains(plan.Warmups, r.Prompt):
		return fmt.Errorf("prompt %q is no warmup of the plan", r.Prompt)
	case r.Phase != PhaseWarmup && !slices.Contains(plan.Prompts, r.Prompt):
		return fmt.Errorf("prompt %q is not in the plan", r.Prompt)
	case r.Client < 0 || r.Client >= max(plan.Load.Conc, 1):
		return fmt.Errorf("client %d, want 0 to %d", r.Client, max(plan.Load.Conc, 1)-1)
	case r.Pass < 0 || r.Phase == PhaseWarmup && r.Pass != 0:
		return fmt.Errorf("pass %d in phase %q", r.Pass, r.Phase)
	case r.OutputTokens != plan.outputTokens(r):
		return fmt.Errorf("output_tokens %d, want %d", r.OutputTokens, plan.outputTokens(r))
	case len(r.EventKinds) != len(r.EventNS):
		return fmt.Errorf("%d event_kinds for %d event_ns", len(r.EventKinds), len(r.EventNS))
	case r.EventIDs != nil && len(r.EventIDs) != len(r.EventNS):
		return fmt.Errorf("%d event_ids for %d event_ns", len(r.EventIDs), len(r.EventNS))
	case r.EventIDs == nil && r.TokenIDs != nil:
		return fmt.Errorf("token_ids without event_ids")
	}
	sum := 0
	for i, n := range r.EventIDs {
		if n < 0 || n > 0 && !carriesToken(r.EventKinds[i]) {
			return fmt.Errorf("event %d of kind %q carries %d ids", i, r.EventKinds[i], n)
		}
		if sum += n; sum > len(r.TokenIDs) {
			break // before it overflows
		}
	}
	if sum != len(r.TokenIDs) {
		return fmt.Errorf("event_ids add up to %d, want the %d token_ids", sum, len(r.TokenIDs))
	}
	if u := r.Usage; u != nil && (u.PromptTokens < 0 || u.CompletionTokens < 0 || u.CachedTokens != nil && *u.CachedTokens < 0) {
		return fmt.Errorf("usage has a negative number")
	}
	for i := range r.EventKinds {
		if kind := r.EventKinds[i]; !carriesToken(kind) && kind != EventOther && kind != EventError && kind != EventDone {
			return fmt.Errorf("event %d has the unknown kind %q", i, kind)
		}
	}
	return nil
}

// checkOrder: a request's own stamps never run backwards. Equal ones are
// fine: events that share a read share its arrival. Absent ones, 0, never
// came.
func (r *Request) checkOrder(plan *Plan) error {
	if r.ScheduledNS < plan.PlannedNS || r.EndNS > maxNS || r.ScheduledNS > maxNS {
		return fmt.Errorf("scheduled_ns %d to end_ns %d, want them from the plan's %d to %d", r.ScheduledNS, r.EndNS, plan.PlannedNS, int64(maxNS))
	}
	if r.StartNS < 1 {
		return fmt.Errorf("start_ns %d, want above 0", r.StartNS)
	}
	if r.unsent() {
		return r.checkUnsent(plan)
	}
	if r.HeadersNS == 0 && len(r.EventNS) > 0 {
		return fmt.Errorf("%d events without headers_ns", len(r.EventNS))
	}
	name, last := "scheduled_ns", r.ScheduledNS
	step := func(next string, ns int64) error {
		if ns == 0 {
			return nil
		}
		if ns < last {
			return fmt.Errorf("%s %d lies before %s %d", next, ns, name, last)
		}
		name, last = next, ns
		return nil
	}
	if err := step("admitted_ns", r.AdmittedNS); err != nil {
		return err
	}
	if r.AdmittedNS != 0 && (plan.Load.MaxInflight == 0 || r.Phase == PhaseWarmup) {
		return fmt.Errorf("admitted_ns %d in phase %q with max_inflight %d, want none", r.AdmittedNS, r.Phase, plan.Load.MaxInflight)
	}
	if err := step("start_ns", r.StartNS); err != nil {
		return err
	}
	if err := step("connected_ns", r.ConnectedNS); err != nil {
		return err
	}
	// An answer may begin before the request is written to its end.
	if r.SentNS != 0 && (r.SentNS < last || r.SentNS > r.EndNS) {
		return fmt.Errorf("sent_ns %d, want %s %d to end_ns %d", r.SentNS, name, last, r.EndNS)
	}
	if err := step("headers_ns", r.HeadersNS); err != nil {
		return err
	}
	for i, ns := range r.EventNS {
		if ns < last {
			return fmt.Errorf("event_ns[%d] %d lies before %d, the one before it or headers_ns", i, ns, last)
		}
		last = ns
	}
	if len(r.EventNS) > 0 {
		name = "the last event"
	}
	if r.EndNS < last {
		return fmt.Errorf("end_ns %d lies before %s %d", r.EndNS, name, last)
	}
	return nil
}

// checkUnsent: a request that an open loop gave up has the moment in which it
// did, which may lie before it was due, and nothing else.
func (r *Request) checkUnsent(plan *Plan) error {
	switch {
	case plan.Load.Kind != LoadOpen || r.Phase == PhaseWarmup:
		return fmt.Errorf("failure.class %q in phase %q of a load %q: only an open loop gives up", r.Failure.Class, r.Phase, plan.Load.Kind)
	case r.StartNS < plan.PlannedNS || r.EndNS != r.StartNS:
		return fmt.Errorf("it was never sent, yet start_ns %d, end_ns %d, want one moment from the plan's %d on", r.StartNS, r.EndNS, plan.PlannedNS)
	case r.AdmittedNS != 0 || r.ConnectedNS != 0 || r.SentNS != 0 || r.HeadersNS != 0 || len(r.EventNS) > 0:
		return fmt.Errorf("it was never sent, yet admitted_ns %d, connected_ns %d, sent_ns %d, headers_ns %d, %d events", r.AdmittedNS, r.ConnectedNS, r.SentNS, r.HeadersNS, len(r.EventNS))
	case r.Status != 0 || r.Finish != "" || r.Usage != nil || r.Reused || r.PromptIDs != nil || r.Text != "" || r.Reasoning != "":
		return fmt.Errorf("it was never sent, yet it has something of an answer")
	}
	return nil
}

// checkFailure holds the class of a failure against what was seen.
func (r *Request) checkFailure() error {
	_, token := r.FirstTokenNS()
	ok := true
	switch r.Failure.Class {
	case FailConnect:
		ok = r.ConnectedNS == 0
	case FailStatus:
		ok = r.Status != 200 && r.Status != 0
	case FailServer:
		ok = strings.ContainsRune(r.EventKinds, EventError)
	case FailEmpty:
		ok = !token
	case FailUnsent: // see checkUnsent
	case FailWrite, FailReply, FailStream, FailStall, FailShort, FailPrompt, FailUsage, FailCanceled:
	default:
		return fmt.Errorf("failure.class %q is unknown", r.Failure.Class)
	}
	if !ok {
		return fmt.Errorf("failure.class %q, but connected_ns is %d, status %d, event_kinds %q", r.Failure.Class, r.ConnectedNS, r.Status, r.EventKinds)
	}
	if r.Failure.Message == "" {
		return fmt.Errorf("failure.message is empty")
	}
	return nil
}

// checkStream: a request that counts as a success ended as the protocol says.
func (r *Request) checkStream() error {
	switch {
	case r.ConnectedNS == 0 || r.SentNS == 0 || r.HeadersNS == 0:
		return fmt.Errorf("no failure, yet connected_ns %d, sent_ns %d, headers_ns %d", r.ConnectedNS, r.SentNS, r.HeadersNS)
	case r.Status != 200:
		return fmt.Errorf("no failure, yet status %d", r.Status)
	case strings.ContainsRune(r.EventKinds, EventError):
		return fmt.Errorf("no failure, yet event %d is an error", strings.IndexByte(r.EventKinds, EventError))
	}
	done := strings.IndexByte(r.EventKinds, EventDone)
	if done >= 0 && done < len(r.EventKinds)-1 {
		return fmt.Errorf("no failure, yet event %d comes after the end", done+1)
	}
	if done < 0 && r.Finish == "" {
		return fmt.Errorf("no failure, yet neither a finish reason nor an end")
	}
	if _, ok := r.FirstTokenNS(); !ok {
		return fmt.Errorf("no failure, yet no token")
	}
	return r.checkCounts()
}

// checkCounts holds the server's count against its stream. The end token of an
// answer that ends by itself may be in the count or in the ids alone; and
// without ids there may be one event more than tokens, of text that was held
// back.
func (r *Request) checkCounts() error {
	if r.Usage == nil {
		return nil
	}
	counted := r.Usage.CompletionTokens
	if r.EventIDs != nil {
		off := counted - len(r.TokenIDs)
		if off != 0 && !(r.Finish == "stop" && (off == 1 || off == -1)) {
			return fmt.Errorf("usage.completion_tokens %d, but %d token_ids", counted, len(r.TokenIDs))
		}
		return nil
	}
	events := 0
	for i := range r.EventKinds {
		if carriesToken(r.EventKinds[i]) {
			events++
		}
	}
	if counted < 1 || events > counted+1 {
		return fmt.Errorf("usage.completion_tokens %d, but %d events carry tokens", counted, events)
	}
	return nil
}

// checkOwn: what this project's server says of every answer, on a connection
// of its own: an event for each id, then the usage, then the end, and nothing
// from a cache.
func (r *Request) checkOwn() error {
	switch {
	case r.PromptIDs == nil || r.EventIDs == nil || r.Usage == nil:
		return fmt.Errorf("prompt_ids, event_ids or usage are missing")
	case r.Usage.CompletionTokens != len(r.TokenIDs):
		return fmt.Errorf("usage.completion_tokens %d, but %d token_ids", r.Usage.CompletionTokens, len(r.TokenIDs))
	case r.Reused:
		return fmt.Errorf("reused is true, want a new connection for each request")
	case r.Usage.CachedTokens != nil:
		return fmt.Errorf("usage.cached_tokens %d from a server that has no cache", *r.Usage.CachedTokens)
	case r.Reasoning != "":
		return fmt.Errorf("reasoning %q from a server that has none", r.Reasoning)
	}
	for i, n := range r.EventIDs {
		if want := strings.IndexByte(r.EventKinds[i:i+1], EventContent) + 1; n != want {
			return fmt.Errorf("event %d of kind %q carries %d ids, want %d", i, r.EventKinds[i], n, want)
		}
	}
	if want := strings.Repeat("c", len(r.TokenIDs)) + "od"; r.EventKinds != want {
		return fmt.Errorf("event_kinds %q, want %d of %q, then \"od\"", r.EventKinds, len(r.TokenIDs), "c")
	}
	return nil
}

// answer is what a prompt was answered with.
type answer struct {
	ids  []int32
	text *string // nil as long as only failed requests had it
	id   string  // of the request
}

// checkAnswer: decoding is greedy, so one prompt has one answer, in every
// pass, with any number of threads and clients. text is nil where it isn't
// whole.
func (p *replay) checkAnswer(r *Request, ids []int32, text *string) error {
	if vocabulary := p.report.Servers[len(p.report.Servers)-1].Model.Vocabulary; outside(ids, vocabulary) >= 0 {
		i := outside(ids, vocabulary)
		return fmt.Errorf("token_ids[%d] = %d, want 0 to %d", i, ids[i], vocabulary-1)
	}
	known := p.report.answers[r.Prompt]
	for i := range min(len(known.ids), len(ids)) {
		if known.ids[i] != ids[i] {
			return fmt.Errorf("token_ids[%d] = %d, but request %s got %d for the same prompt", i, ids[i], known.id, known.ids[i])
		}
	}
	switch {
	case len(ids) < len(known.ids):
	case len(ids) > len(known.ids) || known.text == nil:
		p.report.answers[r.Prompt] = answer{ids, text, r.ID}
	case text != nil && *text != *known.text:
		return fmt.Errorf("its text is not that of request %s, though its ids are", known.id)
	}
	return nil
}
