package load

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"servebench/sse"
	"servebench/verify"
)

// closedLoop is Conc clients that share a list of prompts: each takes the
// next one when its last request has ended.
type closedLoop struct{ *sender }

// manyClients is from how many clients on an answer is looked at when the pass
// is over: at a thousand streams the reading of JSON would stand before the
// stamps of others. Fewer have each answer written down as it ends.
const manyClients = 16

// maxPending bounds the bytes of answers that wait to be looked at.
const maxPending = 64 << 20

// run sends every prompt once and returns when all have ended.
func (c closedLoop) run(ctx context.Context, phase string, pass int, prompts []outgoing) {
	var next, pending atomic.Int64
	var clients sync.WaitGroup
	waiting := make([]func(), len(prompts)) // of the answers that are looked at later
	for client := range min(max(c.plan.Load.Conc, 1), len(prompts)) {
		clients.Go(func() {
			for {
				scheduled := c.client.Clock.Now()
				i := int(next.Add(1)) - 1
				if i >= len(prompts) {
					return
				}
				r := c.request(phase, pass, i, &prompts[i])
				r.Client, r.ScheduledNS = client, scheduled
				reply, finish := c.exchange(ctx, &prompts[i], r)
				if c.plan.Load.Conc >= manyClients && reply.Err() == nil && pending.Add(int64(reply.Size())) < maxPending {
					waiting[i] = finish
				} else {
					finish()
				}
			}
		})
	}
	clients.Wait()
	for _, finish := range waiting {
		if finish != nil {
			finish()
		}
	}
}

// sender sends requests of one configuration.
type sender struct {
	client *sse.Client
	plan   *verify.Plan
	target *Target               // nil for a server that was started here
	done   func(*verify.Request) // called by many goroutines, must not block for long
	sent   atomic.Int64          // requests that a server may have seen
}

// request returns the record of the i-th request of a pass, before it is due.
func (s *sender) request(phase string, pass, i int, o *outgoing) *verify.Request {
	return &verify.Request{
		Kind: verify.KindRequest, Config: s.plan.Config, ID: verify.RequestID(s.plan.Config, phase, pass, i),
		Phase: phase, Pass: pass, Prompt: o.prompt.ID, OutputTokens: s.plan.OutputTokens,
		SentText: o.text, SentIDs: o.ids,
	}
}

// send sends a request, waits for its end and hands the record on.
func (s *sender) send(ctx context.Context, o *outgoing, r *verify.Request) {
	_, finish := s.exchange(ctx, o, r)
	finish()
}

// exchange sends a request and waits for its end. finish looks at the answer
// and hands the record on.
func (s *sender) exchange(ctx context.Context, o *outgoing, r *verify.Request) (reply *sse.Reply, finish func()) {
	var ask sse.Ask
	if s.target == nil {
		ask = sse.Ask{Prompt: o.prompt.Text, OutputTokens: r.OutputTokens, IgnoreEOS: true, TokenIDs: true}
		if ask.Prompt == "" {
			ask.PromptIDs = o.prompt.IDs
		}
	} else {
		ask = s.target.ask(o, r.OutputTokens)
	}
	ask.ID = r.ID
	reply = s.client.Exchange(ctx, ask, r)
	if r.SentNS > 0 {
		s.sent.Add(1)
	}
	return reply, func() {
		reply.Read()
		s.judge(o, r)
		s.done(r)
	}
}

// judge fails a request whose answer is proper, but not what the configuration
// is about.
func (s *sender) judge(o *outgoing, r *verify.Request) {
	if s.target == nil {
		judge(r, o.prompt, s.plan.ExactOutput)
		return
	}
	if r.Failure == nil {
		r.Failure = s.plan.Judge(s.target.evidence, r, o.prompt)
	}
	if r.Failure != nil && r.Reused && r.HeadersNS == 0 && r.Failure.Class == verify.FailStream {
		// A server may close after every answer without saying so, and the
		// request has crossed with that.
		r.Failure.Message += ": nothing came on a connection that was kept, which the server may have closed: -connections new (Target.Reuse false)"
	}
	s.target.hideAll(r)
}

// judge fails a request whose stream was proper but isn't what the
// configuration is about: another prompt, another length.
func judge(r *verify.Request, prompt *verify.Prompt, exact bool) {
	fail := func(class, format string, args ...any) {
		if r.Failure == nil {
			r.Failure = &verify.Failure{Class: class, Message: fmt.Sprintf(format, args...)}
		}
	}
	if r.Failure != nil || !exact {
		return
	}
	n, known := r.Tokens()
	switch {
	case r.Usage == nil:
		fail(verify.FailUsage, "the server sent no usage, so its count of the prompt's tokens is unknown")
	case r.Usage.PromptTokens != prompt.Input:
		fail(verify.FailPrompt, "the server counted %d prompt tokens, want %d", r.Usage.PromptTokens, prompt.Input)
	case r.EventIDs == nil || r.PromptIDs == nil:
		fail(verify.FailReply, "the server sent no token ids for every token and for the prompt")
	case !slices.Equal(r.PromptIDs, prompt.IDs):
		fail(verify.FailPrompt, "the server's ids of the prompt are not those of the corpus")
	case !known || n != r.OutputTokens || r.Finish != "length":
		fail(verify.FailShort, "%d tokens with finish reason %q, want %d with \"length\"", n, r.Finish, r.OutputTokens)
	case r.EventKinds != strings.Repeat("c", n)+"od":
		fail(verify.FailStream, "events of kinds %q, want one for each of %d ids, then the usage and the end", r.EventKinds, n)
	}
}
