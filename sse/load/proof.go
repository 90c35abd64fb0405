package load

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"runtime"
	"slices"
	"strconv"
	"sync"
	"time"

	"servebench/sse"
	"servebench/verify"
)

// Roofline says when a run tries its own client against a null server, and
// records what it could do as the record "client".
type Roofline int

const (
	RooflineOpen   Roofline = iota // before the first open loop, for each GOMAXPROCS
	RooflineAlways                 // before the first configuration, for each GOMAXPROCS
	RooflineNever
)

// How the client is tried: it takes about a second, and up to two on a machine
// that has something else to do.
const (
	proofLimit    = 4 * time.Second        // then it is given up
	proofIdle     = time.Second            // a stream that is silent for so long is a stall
	proofTrial    = 400 * time.Millisecond // about so long is each of the two trials
	proofWarmup   = 100                    // requests before them
	proofStreams  = 32                     // under way at once
	proofRequests = 2000                   // of a trial at most
	proofSamples  = 1500                   // events of a trial whose stamps are recorded, at most
	leastTokens   = 8                      // of an answer
	mostTokens    = 256
)

// prove tries the client once for each GOMAXPROCS, if it is wanted before a
// plan. What can't be proven makes no configuration invalid: its evidence
// says that there is no roofline.
func (r *Run) prove(ctx context.Context, plan *verify.Plan) {
	if r.proof == RooflineNever || r.proof == RooflineOpen && plan.Load.Kind != verify.LoadOpen {
		return
	}
	if _, tried := r.proven[plan.GOMAXPROCS]; tried {
		return
	}
	p := prover{clock: r.Clock, base: r.Header.Clock, tokens: min(max(plan.OutputTokens, leastTokens), mostTokens), reuse: r.target != nil && r.target.Reuse}
	record, err := p.prove(ctx)
	if err == nil {
		err = r.append(record)
	}
	r.proven[plan.GOMAXPROCS] = err
}

// Unproven returns why the client could not be tried, nil if it could or
// nobody wanted it.
func (r *Run) Unproven() error {
	var errs []error
	for _, gomaxprocs := range slices.Sorted(maps.Keys(r.proven)) {
		if err := r.proven[gomaxprocs]; err != nil {
			errs = append(errs, fmt.Errorf("load: the client's roofline for GOMAXPROCS %d: %w", gomaxprocs, err))
		}
	}
	return errors.Join(errs...)
}

// prover tries the client against a null server.
type prover struct {
	clock  *sse.Clock
	base   verify.Clock // as the evidence has it
	tokens int
	reuse  bool
	start  func(tokens int) (*nullProcess, error) // startNull; for tests
	ask    nullAsk                                // what is asked for in each trial besides its pace; for tests
}

func (p *prover) prove(ctx context.Context) (*verify.Client, error) {
	ctx, cancel := context.WithTimeout(ctx, proofLimit)
	defer cancel()
	start := p.start
	if start == nil {
		start = startNull
	}
	server, err := start(p.tokens)
	if err != nil {
		return nil, err
	}
	defer server.stop()
	if p.base.BaseNS == 0 || server.Clock != p.base.Name {
		return nil, fmt.Errorf("load: null server: its clock %s can't be laid beside this process's %s", server.Clock, p.base.Name)
	}
	record := &verify.Client{
		Kind: verify.KindClient, GOMAXPROCS: runtime.GOMAXPROCS(0), Tokens: p.tokens, Reuse: p.reuse, ClockErrorNS: server.ErrorNS,
	}
	client := &sse.Client{BaseURL: server.URL, Model: "null", Clock: p.clock, Idle: proofIdle, Reuse: p.reuse}
	defer client.Close()
	events := float64(p.tokens + 2) // of an answer: the usage and the end, too
	fast := func(n int) (*verify.Trial, error) {
		load := verify.Load{Kind: verify.LoadOpen, MaxInflight: proofStreams}
		return p.try(ctx, server, client, load, p.ask, make([]int64, n))
	}
	warm, err := fast(proofWarmup)
	if err != nil {
		return nil, err
	}
	rate := warm.EventsPerS / events // of requests
	best, err := fast(clamp(int(rate*proofTrial.Seconds()), proofWarmup, proofRequests))
	if err != nil {
		return nil, err
	}
	best.DueNS, best.LagP50NS, best.LagP99NS = nil, 0, 0 // all at once, which is no schedule
	record.Fast = *best

	share := best.EventsPerS * verify.RooflineShare / 100
	load := verify.Load{
		Kind: verify.LoadOpen, Arrival: verify.ArrivalConstant, Rate: strconv.FormatFloat(math.Round(share/events*1000)/1000, 'f', -1, 64),
		Requests: clamp(int(share/events*proofTrial.Seconds()), 10, proofRequests),
	}
	due, err := load.Schedule()
	if err != nil {
		return nil, fmt.Errorf("load: null server: %w", err)
	}
	ask := p.ask
	ask.Gap = time.Duration(1e9 / share * events / float64(p.tokens)) // of writes
	paced, err := p.try(ctx, server, client, load, ask, due)
	if err != nil {
		return nil, err
	}
	record.Paced = *paced
	return record, nil
}

func clamp(n, least, most int) int { return max(least, min(n, most)) }

// try sends requests as an open loop does and returns what became of them,
// with all that follows from it.
func (p *prover) try(ctx context.Context, server *nullProcess, client *sse.Client, load verify.Load, ask nullAsk, due []int64) (*verify.Trial, error) {
	if _, err := server.next(ask); err != nil {
		return nil, err
	}
	plan := &verify.Plan{Config: 1, OutputTokens: p.tokens, ExactOutput: true, Load: load}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var mu sync.Mutex
	var got []*verify.Request
	var failed *verify.Request // the first
	loop := &openLoop{sender: &sender{client: client, plan: plan, done: func(r *verify.Request) {
		mu.Lock()
		if got = append(got, r); r.Failure != nil && failed == nil {
			failed = r
			cancel()
		}
		mu.Unlock()
	}}}
	prompt := outgoing{prompt: &verify.Prompt{ID: "null", Input: len(nullPrompt), IDs: nullPrompt}}
	runtime.GC() // whoever measures next does it, so that the trials are alike
	effort := beginEffort(p.clock)
	loop.run(ctx, 0, due, around([]outgoing{prompt}, len(due)))
	trial := &verify.Trial{Effort: effort.end()}
	if failed != nil {
		return nil, fmt.Errorf("load: null server: request %s failed: %s: %s", failed.ID, failed.Failure.Class, failed.Failure.Message)
	}
	written, err := server.next(ask)
	if err != nil {
		return nil, err
	}
	slices.SortFunc(got, func(a, b *verify.Request) int {
		return cmp.Or(cmp.Compare(a.ScheduledNS, b.ScheduledNS), cmp.Compare(a.StartNS, b.StartNS))
	})
	type event struct{ written, read int64 }
	var events []event
	for _, r := range got {
		stamps := written[r.ID]
		if len(stamps) != p.tokens || len(r.EventNS) < p.tokens {
			return nil, fmt.Errorf("load: null server: it has %d stamps of the %d events of request %s, want %d", len(stamps), len(r.EventNS), r.ID, p.tokens)
		}
		trial.DueNS = append(trial.DueNS, r.ScheduledNS)
		trial.StartNS = append(trial.StartNS, r.StartNS)
		trial.EndNS = append(trial.EndNS, r.EndNS)
		trial.Reads = append(trial.Reads, len(slices.Compact(slices.Clone(r.EventNS))))
		for i, ns := range stamps {
			events = append(events, event{ns - p.base.BaseNS, r.EventNS[i]})
		}
	}
	slices.SortFunc(events, func(a, b event) int { return cmp.Compare(a.written, b.written) })
	every := (len(events) + proofSamples - 1) / proofSamples
	for i := 0; i < len(events); i += every {
		trial.WrittenNS = append(trial.WrittenNS, events[i].written)
		trial.ReadNS = append(trial.ReadNS, events[i].read)
	}
	trial.Figure(p.tokens)
	return trial, nil
}
