package verify

import (
	"fmt"
	"slices"
)

// The checks of one request, by itself and against its other witness.

// checkRequest returns what is wrong with a request's record. A failed
// request may end anywhere, but what it has must still be in order.
func (p *replay) checkRequest(r *Request) error {
	if err := r.checkShape(&p.cell.plan); err != nil {
		return err
	}
	if err := r.checkOrder(); err != nil {
		return err
	}
	if r.ScheduledNS < p.cell.plan.PlannedNS {
		return fmt.Errorf("scheduled_ns %d lies before the plan, %d", r.ScheduledNS, p.cell.plan.PlannedNS)
	}
	if r.Failure != nil {
		if r.Failure.Class == "" || r.Failure.Message == "" {
			return fmt.Errorf("a failure without class or message")
		}
		return nil
	}
	if err := r.checkStream(); err != nil {
		return err
	}
	prompt := p.prompts[r.Prompt]
	if prompt == nil {
		return fmt.Errorf("prompt %q isn't in the corpus", r.Prompt)
	}
	if r.PromptIDs != nil && prompt.IDs != nil && !slices.Equal(r.PromptIDs, prompt.IDs) {
		return fmt.Errorf("prompt_ids are not those of prompt %q", r.Prompt)
	}
	if r.Usage != nil && r.Usage.PromptTokens != prompt.Input {
		return fmt.Errorf("the server counted %d prompt tokens, want %d", r.Usage.PromptTokens, prompt.Input)
	}
	if p.report.Header.Target == nil && (r.PromptIDs == nil || r.EventIDs == nil || r.Usage == nil) {
		return fmt.Errorf("prompt ids, token ids or usage are missing")
	}
	n, known := r.Tokens()
	if p.cell.plan.ExactOutput && (!known || n != r.OutputTokens || r.Finish != "length") {
		return fmt.Errorf("%d tokens (known: %t) with finish %q, want %d with \"length\"", n, known, r.Finish, r.OutputTokens)
	}
	return p.checkAnswer(r)
}

// checkAnswer: decoding is greedy, so one prompt has one answer.
func (p *replay) checkAnswer(r *Request) error {
	if r.EventIDs == nil || p.report.Header.Target != nil {
		return nil
	}
	known := p.answers[r.Prompt]
	for i := range min(len(known), len(r.TokenIDs)) {
		if known[i] != r.TokenIDs[i] {
			return fmt.Errorf("token_ids[%d] = %d, but an earlier request got %d there for the same prompt", i, r.TokenIDs[i], known[i])
		}
	}
	if len(r.TokenIDs) > len(known) {
		p.answers[r.Prompt] = r.TokenIDs
	}
	for i, id := range r.TokenIDs {
		if vocabulary := p.report.Servers[len(p.report.Servers)-1].Model.Vocabulary; id < 0 || int(id) >= vocabulary {
			return fmt.Errorf("token_ids[%d] = %d, want 0 to %d", i, id, vocabulary-1)
		}
	}
	return nil
}

func (r *Request) checkShape(plan *Plan) error {
	switch {
	case r.Phase != PhaseWarmup && r.Phase != PhaseMeasured:
		return fmt.Errorf("phase %q", r.Phase)
	case r.Phase == PhaseWarmup && !slices.Contains(plan.Warmups, r.Prompt):
		return fmt.Errorf("prompt %q is no warmup of the plan", r.Prompt)
	case r.Phase == PhaseMeasured && !slices.Contains(plan.Prompts, r.Prompt):
		return fmt.Errorf("prompt %q is not in the plan", r.Prompt)
	case r.Client < 0 || r.Client >= plan.Load.Conc:
		return fmt.Errorf("client %d, want 0 to %d", r.Client, plan.Load.Conc-1)
	case r.Pass < 0 || r.Phase == PhaseWarmup && r.Pass != 0:
		return fmt.Errorf("pass %d of phase %s", r.Pass, r.Phase)
	case r.OutputTokens != plan.OutputTokens:
		return fmt.Errorf("output_tokens %d, want %d", r.OutputTokens, plan.OutputTokens)
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
		sum += n
	}
	if sum != len(r.TokenIDs) {
		return fmt.Errorf("event_ids add up to %d, want the %d token_ids", sum, len(r.TokenIDs))
	}
	return nil
}

// checkOrder: a request's own stamps never run backwards. Equal stamps are
// fine: events that share a read share its arrival.
func (r *Request) checkOrder() error {
	type stamp struct {
		name string
		ns   int64
	}
	ordered := func(stamps ...stamp) error {
		last := stamps[0]
		for _, s := range stamps[1:] {
			if s.ns == 0 {
				continue // never came
			}
			if s.ns < last.ns {
				return fmt.Errorf("%s %d lies before %s %d", s.name, s.ns, last.name, last.ns)
			}
			last = s
		}
		return nil
	}
	if r.ScheduledNS < 1 || r.StartNS < 1 || r.EndNS < 1 {
		return fmt.Errorf("scheduled_ns %d, start_ns %d, end_ns %d: each must be there", r.ScheduledNS, r.StartNS, r.EndNS)
	}
	last := int64(0)
	if n := len(r.EventNS); n > 0 {
		last = r.EventNS[n-1]
		if r.HeadersNS == 0 {
			return fmt.Errorf("%d events without headers_ns", n)
		}
	}
	if err := ordered(stamp{"scheduled_ns", r.ScheduledNS}, stamp{"start_ns", r.StartNS}, stamp{"connected_ns", r.ConnectedNS},
		stamp{"headers_ns", r.HeadersNS}, stamp{"the last event", last}, stamp{"end_ns", r.EndNS}); err != nil {
		return err
	}
	if err := ordered(stamp{"connected_ns", r.ConnectedNS}, stamp{"sent_ns", r.SentNS}, stamp{"end_ns", r.EndNS}); err != nil {
		return err
	}
	before := stamp{"headers_ns", r.HeadersNS}
	for i, ns := range r.EventNS {
		if ns < before.ns {
			return fmt.Errorf("event_ns[%d] %d lies before %s %d", i, ns, before.name, before.ns)
		}
		before = stamp{fmt.Sprintf("event_ns[%d]", i), ns}
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
	case r.Finish == "":
		return fmt.Errorf("no failure, yet no finish reason")
	}
	done := 0
	for i := range r.EventKinds {
		switch kind := r.EventKinds[i]; kind {
		case EventContent, EventReasoning, EventTool, EventOther:
			if done > 0 {
				return fmt.Errorf("event %d of kind %q after the end", i, kind)
			}
		case EventDone:
			done++
		case EventError:
			return fmt.Errorf("no failure, yet event %d is an error", i)
		default:
			return fmt.Errorf("event %d has the unknown kind %q", i, kind)
		}
	}
	if done > 1 {
		return fmt.Errorf("the stream ends %d times", done)
	}
	if _, ok := r.FirstTokenNS(); !ok {
		return fmt.Errorf("no failure, yet no token")
	}
	if r.Usage != nil && r.EventIDs != nil && r.Usage.CompletionTokens != len(r.TokenIDs) {
		return fmt.Errorf("the server counted %d tokens, but sent %d ids", r.Usage.CompletionTokens, len(r.TokenIDs))
	}
	return nil
}

// checkWitnesses holds what the client saw against what the server logged.
func (p *replay) checkWitnesses(valid bool) {
	if p.report.Header.Target != nil {
		if len(p.cell.served) > 0 {
			p.problem("served "+p.cell.served[0].ID, "a log of a server that this run didn't start")
		}
		return
	}
	server := p.report.Servers[len(p.report.Servers)-1]
	slack := p.report.Header.Clock.ErrorNS + server.ClockErrorNS
	byID := map[string]*Served{}
	for i, s := range p.cell.served {
		where := "served " + s.ID
		if byID[s.ID] != nil {
			p.problemAt(p.cell.servedLines[i], where, "logged twice")
		}
		byID[s.ID] = s
		if err := s.check(); err != nil {
			p.problemAt(p.cell.servedLines[i], where, "%v", err)
		}
	}
	for i, r := range p.cell.requests {
		where := "request " + r.ID
		s := byID[r.ID]
		delete(byID, r.ID)
		if s == nil {
			if r.Failure == nil {
				p.problemAt(p.cell.lines[i], where, "the server has no record of it")
			}
			continue
		}
		if err := compareWitnesses(r, s, slack); err != nil {
			p.problemAt(p.cell.lines[i], where, "%v", err)
		}
	}
	for i, s := range p.cell.served {
		if byID[s.ID] != nil && valid {
			p.problemAt(p.cell.servedLines[i], "served "+s.ID, "no client sent it")
		}
	}
}

// check holds a server's record against itself.
func (s *Served) check() error {
	if len(s.TokenIDs) != len(s.TokenNS) {
		return fmt.Errorf("%d token_ids and %d token_ns", len(s.TokenIDs), len(s.TokenNS))
	}
	name, last := "arrival_ns", s.ArrivalNS
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
	if s.ArrivalNS < 1 {
		return fmt.Errorf("arrival_ns %d", s.ArrivalNS)
	}
	if err := step("queued_ns", s.QueuedNS); err != nil {
		return err
	}
	if err := step("slot_ns", s.SlotNS); err != nil {
		return err
	}
	for i, ns := range s.TokenNS {
		if err := step(fmt.Sprintf("token_ns[%d]", i), ns); err != nil {
			return err
		}
	}
	if (s.SlotNS == 0) != (s.ReleaseNS == 0) || s.SlotNS == 0 && len(s.TokenIDs) > 0 {
		return fmt.Errorf("slot_ns %d and release_ns %d with %d tokens", s.SlotNS, s.ReleaseNS, len(s.TokenIDs))
	}
	if s.Error == "" && s.Steps != len(s.TokenIDs) {
		return fmt.Errorf("%d steps for %d tokens", s.Steps, len(s.TokenIDs))
	}
	return step("release_ns", s.ReleaseNS)
}

func compareWitnesses(r *Request, s *Served, slack int64) error {
	if s.ArrivalNS+slack < r.StartNS {
		return fmt.Errorf("the server had it at %d, before its start_ns %d", s.ArrivalNS, r.StartNS)
	}
	token := 0
	for i, n := range r.EventIDs {
		for range n {
			switch {
			case token >= len(s.TokenIDs):
				return fmt.Errorf("it has token %d, which the server never made", token)
			case s.TokenIDs[token] != r.TokenIDs[token]:
				return fmt.Errorf("token_ids[%d] = %d, the server logged %d", token, r.TokenIDs[token], s.TokenIDs[token])
			case s.TokenNS[token] > r.EventNS[i]+slack:
				return fmt.Errorf("token %d arrived at %d, before the server made it at %d", token, r.EventNS[i], s.TokenNS[token])
			}
			token++
		}
	}
	if r.PromptIDs != nil && !slices.Equal(r.PromptIDs, s.PromptIDs) {
		return fmt.Errorf("prompt_ids are not those that the server logged")
	}
	if r.Failure != nil {
		return nil
	}
	switch {
	case s.Error != "":
		return fmt.Errorf("no failure, yet the server logged %q", s.Error)
	case token != len(s.TokenIDs):
		return fmt.Errorf("it has %d tokens, the server logged %d", token, len(s.TokenIDs))
	case s.ReleaseNS > r.EndNS+slack:
		return fmt.Errorf("it ended at %d, before the server released the slot at %d", r.EndNS, s.ReleaseNS)
	}
	return nil
}
