package load

import (
	"context"
	"flag"
	"fmt"
	"strconv"
	"strings"

	"servebench/sse"
	"servebench/verify"
)

// connect returns the client of one configuration on t.
func (t *Target) connect() *sse.Client {
	return &sse.Client{
		BaseURL: t.client.BaseURL, Model: t.client.Model, Clock: t.client.Clock, Idle: t.client.Idle, Chat: t.client.Chat,
		Header: t.client.Header, Fields: t.dialect.body(t.Fields), Proxy: t.client.Proxy, Insecure: t.client.Insecure,
		Reuse: t.Reuse,
	}
}

// prepare plans a configuration on the target, and makes its prompts.
func (r *Run) prepare(ctx context.Context, plan *verify.Plan, cell Cell) (passes, error) {
	t := r.target
	input, requests := cell.Input, cell.Requests
	if input == 0 {
		input = defaultInput
	}
	if requests == 0 {
		requests = max(defaultRequests, cell.Conc)
	}
	if plan.Load.Kind == verify.LoadOpen {
		requests, cell.Requests = places(plan, 0), 0
	}
	if cell.Conc > requests {
		return nil, fmt.Errorf("load: %d clients for the %d requests of a pass: at most that many have one", cell.Conc, requests)
	}
	plan.MaxFailed = cell.MaxFailed
	switch {
	case cell.MaxCached == 0:
		plan.MaxCached = defaultMaxCached
	case cell.MaxCached > 0:
		plan.MaxCached = cell.MaxCached
	}
	prompts, warmups := plan.Prompts, plan.Warmups
	if plan.Load.Arrival == verify.ArrivalTrace {
		input = leastInput(plan.Load.Trace)
	} else {
		prompts, warmups = PromptsOf(r.corpus, input)
	}
	if len(prompts) == 0 {
		return nil, fmt.Errorf("load: no prompt of %d tokens: the run was opened for others (Options.Inputs), or the file of prompts has none", input)
	}
	count, known := CountedPasses()
	if plan.Probe > 0 {
		count, known = 1, true
	}
	if t.counted(input) && !known {
		return nil, fmt.Errorf("load: passes have to be counted here, for their prompts are made before the first, or may run out: -benchtime 1x, or 5x, in place of %s", flag.Lookup("test.benchtime").Value)
	}
	switch {
	case t.evidence.SaltSeed != 0: // as often as need be
		plan.Warmups = warmups[:min(len(warmups), warmupsMade)]
		plan.Prompts = prompts
		if plan.Load.Kind == verify.LoadClosed {
			plan.Prompts = around(prompts, requests)
		}
	case t.Unsalted:
		if cell.Requests > len(prompts) || cell.Conc > len(prompts) {
			return nil, fmt.Errorf("load: %d requests a pass by %d clients, but there are %d prompts of %d tokens, and without a salt each is sent once a pass", requests, cell.Conc, len(prompts), input)
		}
		plan.Prompts, plan.Warmups = prompts[:min(len(prompts), requests)], warmups[:min(len(warmups), warmupsMade)]
	default:
		return r.fresh(plan, input, requests, count, prompts, warmups)
	}
	salted := func(pass int) ([]outgoing, error) {
		ids, phase := plan.Prompts, verify.PhaseMeasured
		if pass < 0 {
			ids, phase = plan.Warmups, verify.PhaseWarmup
		}
		out, err := r.find(ids)
		if pass >= 0 {
			out = around(out, places(plan, pass))
		}
		for i := range out {
			if err == nil {
				out[i], err = t.salt(ctx, verify.RequestID(plan.Config, phase, max(pass, 0), i), out[i].prompt)
			}
		}
		return out, err
	}
	prepared := map[int][]outgoing{}
	ahead := 0 // passes that are prepared before the warmup
	if t.counted(input) {
		ahead = count
	}
	for pass := -1; pass < ahead; pass++ {
		var err error
		if prepared[pass], err = salted(pass); err != nil {
			return nil, err
		}
	}
	return func(pass int) []outgoing {
		out, ready := prepared[pass]
		if !ready {
			out, _ = salted(pass) // of ample salts, drawn in no time
		}
		return out
	}, nil
}

// fresh takes prompts from the user's file that no request had before.
func (r *Run) fresh(plan *verify.Plan, input, requests, count int, prompts, warmups []string) (passes, error) {
	t := r.target
	used, warmed, need := t.used[input], t.warmed[input], requests*count
	if used+need > len(prompts) || len(warmups) > 0 && warmed == len(warmups) {
		return nil, fmt.Errorf("load: the prompts of %d tokens run out: this configuration wants %d and a warmup that no request had, but %d of %d and %d of %d warmups were sent before. Make more of them (go run ./smol/prompts -passes …), or send them again with -unsalted (Target.Unsalted), if no cache can answer", input, need, used, len(prompts), warmed, len(warmups))
	}
	t.used[input] = used + need
	plan.Prompts, plan.PerPass = prompts[used:used+need], requests
	if len(warmups) > 0 {
		plan.Warmups = warmups[warmed : warmed+1]
		t.warmed[input]++
	}
	all, err := r.find(plan.Prompts)
	if err != nil {
		return nil, err
	}
	warm, err := r.find(plan.Warmups)
	for _, out := range [][]outgoing{warm, all} {
		for i := range out {
			if err == nil && !t.first(&out[i]) {
				err = fmt.Errorf("load: prompt %s is the same as one before it, which a cache could answer: take it out, or send prompts again with -unsalted (Target.Unsalted)", out[i].prompt.ID)
			}
		}
	}
	return func(pass int) []outgoing {
		if pass < 0 {
			return warm
		}
		return all[pass*requests : (pass+1)*requests]
	}, err
}

// PromptsOf returns the ids of the prompts of one length, and of the warmups.
func PromptsOf(corpus *verify.Corpus, input int) (prompts, warmups []string) {
	for i := range corpus.Prompts {
		switch p := &corpus.Prompts[i]; {
		case p.Input != input:
		case p.Warmup:
			warmups = append(warmups, p.ID)
		default:
			prompts = append(prompts, p.ID)
		}
	}
	return prompts, warmups
}

// CountedPasses returns the passes of a -benchtime like 3x. How many fit into a
// time isn't known.
func CountedPasses() (n int, known bool) {
	f := flag.Lookup("test.benchtime")
	if f == nil {
		return 0, false
	}
	times, found := strings.CutSuffix(f.Value.String(), "x")
	n, err := strconv.Atoi(times)
	return n, found && err == nil && n > 0
}
