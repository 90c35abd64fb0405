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

	mu       sync.Mutex
	inflight int
	waiting  []func() // due, but beyond MaxInflight; first in, first out
}

var errGivenUp = errors.New("load: it was due, but the run was called off before it was sent")

// run sends the requests of one pass, due at ns after the moment of the call,
// and returns when all have ended. With ctx done the rest is recorded as
// unsent.
func (o *openLoop) run(ctx context.Context, pass int, due []int64, prompts []outgoing) {
	// All that can be made before the first is due.
	requests := make([]*verify.Request, len(due))
	for i := range due {
		p := &prompts[i]
		requests[i] = o.request(o.plan.Load.PhaseAt(due[i]), pass, i, p)
		if i < len(o.plan.Load.Trace) {
			requests[i].OutputTokens = o.plan.Load.Trace[i].Output
		}
	}
	var all sync.WaitGroup
	base := time.Now()
	begin := o.client.Clock.Stamp(base)
	timer := time.NewTimer(0)
	defer timer.Stop()
	for i, r := range requests {
		r.ScheduledNS = begin + due[i]
		if wait := time.Until(base.Add(time.Duration(due[i]))); wait > 0 && ctx.Err() == nil {
			timer.Reset(wait)
			select {
			case <-timer.C:
			case <-ctx.Done():
			}
		}
		if ctx.Err() != nil {
			o.giveUp(r)
			continue
		}
		all.Add(1)
		o.admit(func(waited bool) {
			go func() {
				defer all.Done()
				defer o.release()
				if waited {
					r.AdmittedNS = o.client.Clock.Now()
				}
				if ctx.Err() != nil {
					r.AdmittedNS = 0
					o.giveUp(r)
					return
				}
				o.send(ctx, &prompts[i], r)
			}()
		})
	}
	all.Wait()
}

// admit starts a request, or has it wait for another's end.
func (o *openLoop) admit(start func(waited bool)) {
	o.mu.Lock()
	if most := o.plan.Load.MaxInflight; most > 0 && o.inflight >= most {
		o.waiting = append(o.waiting, func() { start(true) })
		o.mu.Unlock()
		return
	}
	o.inflight++
	o.mu.Unlock()
	start(false)
}

// release gives the place of a request that has ended to the next that waits.
func (o *openLoop) release() {
	o.mu.Lock()
	if len(o.waiting) == 0 {
		o.inflight--
		o.mu.Unlock()
		return
	}
	next := o.waiting[0]
	o.waiting = o.waiting[1:]
	o.mu.Unlock()
	next()
}

// giveUp records a request that was never sent.
func (o *openLoop) giveUp(r *verify.Request) {
	r.StartNS = o.client.Clock.Now()
	r.EndNS = r.StartNS
	r.Failure = &verify.Failure{Class: verify.FailUnsent, Message: errGivenUp.Error()}
	o.done(r)
}
