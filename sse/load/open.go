package load

import (
	"context"
	"errors"
	"sync"
	"time"

	"servebench/verify"
)

// openLoop sends each request when it is due, whatever became of those before
// it. It sleeps until the next is due and never spins; what it is late by
// stands in the evidence.
type openLoop struct {
	*sender
	pacer pacer // nil for the system's best

	mu       sync.Mutex
	inflight int
	waiting  []*arrival // due, but beyond MaxInflight; first in, first out
}

// arrival is a request that is due.
type arrival struct {
	record   *verify.Request
	outgoing *outgoing
}

var errGivenUp = errors.New("load: it was due, but the run was called off before it was sent")

// run sends the requests of one pass, due at ns after the moment of the call,
// and returns when all have ended. With ctx done the rest is recorded as
// unsent.
func (o *openLoop) run(ctx context.Context, pass int, due []int64, prompts []outgoing) {
	p := o.pacer
	if p == nil {
		p = newPacer()
		defer p.close()
	}
	next := o.arrival(pass, 0, due, prompts)
	var all sync.WaitGroup
	base := time.Now()
	begin := o.client.Clock.Stamp(base)
	for i := range due {
		a := next
		a.record.ScheduledNS = begin + due[i]
		p.until(ctx, base.Add(time.Duration(due[i])))
		if ctx.Err() != nil {
			o.giveUp(a.record)
		} else if o.admit(a) {
			all.Go(func() { o.serve(ctx, a) })
		}
		// All that can be made of the next one before it is due.
		next = o.arrival(pass, i+1, due, prompts)
	}
	all.Wait()
}

// arrival makes the i-th request of a pass, nil past the last.
func (o *openLoop) arrival(pass, i int, due []int64, prompts []outgoing) *arrival {
	if i >= len(due) {
		return nil
	}
	r := o.request(o.plan.Load.PhaseAt(due[i]), pass, i, &prompts[i])
	if i < len(o.plan.Load.Trace) {
		r.OutputTokens = o.plan.Load.Trace[i].Output
	}
	return &arrival{r, &prompts[i]}
}

// serve sends a request that has a place among those under way, and then,
// in that place, those that wait for one.
func (o *openLoop) serve(ctx context.Context, a *arrival) {
	for ; a != nil; a = o.release(a.record) {
		if ctx.Err() != nil {
			a.record.AdmittedNS = 0
			o.giveUp(a.record)
			continue
		}
		o.send(ctx, a.outgoing, a.record)
	}
}

// admit says whether a request may start. Else it waits for another's end.
func (o *openLoop) admit(a *arrival) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if most := o.plan.Load.MaxInflight; most > 0 && o.inflight >= most {
		o.waiting = append(o.waiting, a)
		return false
	}
	o.inflight++
	return true
}

// release gives the place of a request that has ended to the one that has
// waited longest, nil if none waits. It is admitted as of that end, so that what
// the client does in between counts as its lag.
func (o *openLoop) release(ended *verify.Request) *arrival {
	o.mu.Lock()
	defer o.mu.Unlock()
	if len(o.waiting) == 0 {
		o.inflight--
		return nil
	}
	a := o.waiting[0]
	o.waiting[0] = nil
	o.waiting = o.waiting[1:]
	a.record.AdmittedNS = max(ended.EndNS, a.record.ScheduledNS)
	return a
}

// giveUp records a request that was never sent.
func (o *openLoop) giveUp(r *verify.Request) {
	r.StartNS = o.client.Clock.Now()
	r.EndNS = r.StartNS
	r.Failure = &verify.Failure{Class: verify.FailUnsent, Message: errGivenUp.Error()}
	o.done(r)
}
