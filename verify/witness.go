package verify

import (
	"fmt"
	"slices"
)

// The server's log against itself and against what its clients saw.

// check holds a server's record against itself.
func (s *Served) check() error {
	switch {
	case s.ID == "":
		return fmt.Errorf("its id is empty")
	case s.ArrivalNS < 1 || s.ReleaseNS > maxNS || s.QueuedNS > maxNS:
		return fmt.Errorf("arrival_ns %d, queued_ns %d, release_ns %d, want stamps from 1 to %d", s.ArrivalNS, s.QueuedNS, s.ReleaseNS, int64(maxNS))
	case len(s.TokenIDs) != len(s.TokenNS):
		return fmt.Errorf("%d token_ids and %d token_ns, want as many of each", len(s.TokenIDs), len(s.TokenNS))
	case (s.SlotNS == 0) != (s.ReleaseNS == 0):
		return fmt.Errorf("slot_ns %d and release_ns %d, want both or neither", s.SlotNS, s.ReleaseNS)
	case s.SlotNS == 0 && (len(s.TokenIDs) > 0 || s.Steps != 0):
		return fmt.Errorf("%d tokens and %d steps without the slot", len(s.TokenIDs), s.Steps)
	case s.SlotNS > 0 && s.QueuedNS == 0:
		return fmt.Errorf("slot_ns %d without queued_ns", s.SlotNS)
	case s.QueuedNS > 0 && len(s.PromptIDs) == 0:
		return fmt.Errorf("queued_ns %d without prompt_ids", s.QueuedNS)
	case s.Error == "" && s.SlotNS == 0:
		return fmt.Errorf("no error, yet it never had the slot")
	case s.Error == "" && s.Steps != len(s.TokenIDs):
		return fmt.Errorf("%d steps for %d tokens, want as many", s.Steps, len(s.TokenIDs))
	case s.Steps < len(s.TokenIDs) || s.Steps > len(s.TokenIDs)+1:
		return fmt.Errorf("%d steps for %d tokens, want as many or one more", s.Steps, len(s.TokenIDs))
	}
	name, last := "arrival_ns", s.ArrivalNS
	for i := range 3 + len(s.TokenNS) {
		next, ns := "", int64(0)
		switch {
		case i == 0:
			next, ns = "queued_ns", s.QueuedNS
		case i == 1:
			next, ns = "slot_ns", s.SlotNS
		case i == 2+len(s.TokenNS):
			next, ns = "release_ns", s.ReleaseNS
		default:
			next, ns = "token_ns", s.TokenNS[i-2]
			if ns == 0 {
				return fmt.Errorf("token_ns[%d] = 0", i-2)
			}
		}
		if ns == 0 {
			continue // never came
		}
		if ns < last {
			if next == "token_ns" {
				next = fmt.Sprintf("token_ns[%d]", i-2)
			}
			return fmt.Errorf("%s %d lies before %s %d", next, ns, name, last)
		}
		name, last = next, ns
	}
	return nil
}

// checkWitnesses holds what the clients saw against what the server logged.
func (p *replay) checkWitnesses(_ string, closing *Configuration) {
	if p.report.Header.Target != nil {
		return
	}
	c := p.cell
	slack := p.report.Header.Clock.ErrorNS + p.report.Servers[len(p.report.Servers)-1].ClockErrorNS
	for i, r := range c.requests {
		s := c.servedByID[r.ID]
		var err error
		switch {
		case s != nil && r.unsent():
			err = fmt.Errorf("it was never sent, yet the server has a record of it")
		case s != nil:
			if err = compareWitnesses(r, s, slack); err == nil && slices.Equal(s.PromptIDs, p.prompts[r.Prompt].IDs) {
				err = p.checkAnswer(r, s.TokenIDs, nil) // a failed one's too
			}
		case closing.Valid && r.Failure == nil:
			err = fmt.Errorf("the server has no record of it")
		}
		if err != nil {
			p.problemAt(c.lines[i], "request "+r.ID, "%v", err)
		}
	}
	if !closing.Valid {
		return
	}
	for i, s := range c.served {
		if !c.ids[s.ID] {
			p.problemAt(c.servedLines[i], "served "+s.ID, "no client sent it")
		}
	}
}

func compareWitnesses(r *Request, s *Served, slack int64) error {
	if s.ArrivalNS+slack < max(r.StartNS, r.ConnectedNS) {
		return fmt.Errorf("the server had it at %d, before its client was connected at %d", s.ArrivalNS, max(r.StartNS, r.ConnectedNS))
	}
	if r.HeadersNS > 0 && r.HeadersNS+slack < s.ArrivalNS {
		return fmt.Errorf("headers_ns %d lies before the server had the request, %d", r.HeadersNS, s.ArrivalNS)
	}
	token := 0
	for i, n := range r.EventIDs {
		for range n {
			switch {
			case token >= len(s.TokenIDs):
				return fmt.Errorf("it has %d tokens, the server made %d", len(r.TokenIDs), len(s.TokenIDs))
			case s.TokenIDs[token] != r.TokenIDs[token]:
				return fmt.Errorf("token_ids[%d] = %d, the server made %d", token, r.TokenIDs[token], s.TokenIDs[token])
			case s.TokenNS[token] > r.EventNS[i]+slack:
				return fmt.Errorf("token %d arrived at %d, before the server made it at %d", token, r.EventNS[i], s.TokenNS[token])
			}
			token++
		}
	}
	if (r.PromptIDs != nil || r.Failure == nil) && !slices.Equal(s.PromptIDs, r.PromptIDs) {
		return fmt.Errorf("prompt_ids aren't those that the server logged: %s", firstDifference(r.PromptIDs, s.PromptIDs))
	}
	if r.Failure != nil {
		return nil // also if the prompt was read as other ids: that is a failure
	}
	switch {
	case s.Error != "":
		return fmt.Errorf("no failure, yet the server logged the error %q", s.Error)
	case token != len(s.TokenIDs):
		return fmt.Errorf("it has %d tokens, the server made %d", token, len(s.TokenIDs))
	case s.ReleaseNS > r.EndNS+slack:
		return fmt.Errorf("it ended at %d, before the server released the slot at %d", r.EndNS, s.ReleaseNS)
	}
	return nil
}
