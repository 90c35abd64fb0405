package load

import (
	"context"
	"fmt"
	"maps"
	"runtime"
	"strings"
	"testing"
	"time"

	"servebench/sse"
	"servebench/verify"
)

// Cell is one configuration. Its axes are the key=value parts of the
// benchmark's name.
type Cell struct {
	Conc int // closed-loop clients; 0 means 1, unless Open is there

	// Open is how requests arrive in an open loop, in place of Conc. Kind and
	// what has a default (MaxLagNS) are filled in. A trace (see TraceLoad) also
	// says which prompts are sent and how long their answers are.
	Open *verify.Load

	OutputTokens int      // of each request; 0 means 24
	ExactOutput  bool     // ids and counts must be exactly as planned
	Prompts      []string // ids in the corpus, each sent once a pass
	Warmups      []string // sent before the first pass, kept and excluded

	// For a target, which has no need of Prompts and Warmups.
	Input     int // length of the prompts in tokens; 0 means 64
	Requests  int // of a pass; 0 means 6, or Conc if that is more
	MaxFailed int // measured requests that may fail, shown beside the metrics; of an open loop on any server
	MaxCached int // percent of the prompts' tokens that a cache may answer; 0 means 5, below 0 none

	probe int // number in a search for a saturation, from 1; 0 for none
}

// Defaults of a Cell.
const (
	defaultOutputTokens = 24
	defaultRequests     = 6
	defaultMaxCached    = 5
)

// Benchmark measures cell on the server added last, or on the target: a
// warmup, then one pass of the prompts an iteration. It reports the metrics of
// a valid configuration; an invalid one fails b with its reasons and has no
// metrics. Everything is in the evidence in either case.
func (r *Run) Benchmark(b *testing.B, cell Cell) {
	b.Helper()
	plan, c, err := r.measure(b.Context(), b.Name(), cell, b.Loop)
	if err != nil {
		r.Unmeasured(b, err)
	}
	r.report(b, plan.Repetition, c.Metrics, c.Reasons)
}

// report gives b what is printed for it, or fails it for reasons.
func (r *Run) report(b *testing.B, repetition int, metrics []verify.Metric, reasons []string) {
	b.Helper()
	if len(reasons) > 0 {
		r.invalid = append(r.invalid, fmt.Sprintf("%s (repetition %d): %s", b.Name(), repetition, firstLine(reasons[0])))
		b.Fatalf("invalid, no metrics: %s", strings.Join(reasons, "\n"))
	}
	for _, m := range metrics {
		b.ReportMetric(m.Value, m.Unit)
	}
	b.ReportMetric(0, "ns/op") // a pass has no length of interest
}

// measure plans a configuration, makes passes for as long as more says, and
// closes it. A closed one without reasons is valid. Its error is why it could
// not even begin; the evidence then has no record of it.
func (r *Run) measure(parent context.Context, name string, cell Cell, more func() bool) (*verify.Plan, *verify.Configuration, error) {
	switch {
	case r.process == nil && r.target == nil:
		return nil, nil, errNoServer
	case r.broken != nil:
		return nil, nil, r.broken
	}
	cell.Conc = max(cell.Conc, 1)
	arrivals := verify.Load{Kind: verify.LoadClosed, Conc: cell.Conc}
	if cell.Open != nil {
		arrivals = *cell.Open
		arrivals.Kind = verify.LoadOpen
		if arrivals.MaxLagNS == 0 {
			arrivals.MaxLagNS = verify.DefaultMaxLagNS
		}
		if due, err := arrivals.Schedule(); err != nil {
			return nil, nil, fmt.Errorf("load: %w", err)
		} else if last := time.Duration(due[len(due)-1]); last < time.Duration(arrivals.SettleNS) {
			return nil, nil, fmt.Errorf("load: the last request is due after %v, but none is measured before %v (Load.SettleNS)", last, time.Duration(arrivals.SettleNS))
		}
	}
	if arrivals.Arrival == verify.ArrivalTrace {
		if err := r.traced(&cell); err != nil {
			return nil, nil, err
		}
	}
	if cell.OutputTokens == 0 {
		cell.OutputTokens = defaultOutputTokens
	}
	key := fmt.Sprintf("%s-%d", name, runtime.GOMAXPROCS(0))
	plan := &verify.Plan{
		Kind: verify.KindPlan, Config: r.configs + 1, Server: r.servers, Name: name, Axes: axes(name),
		Repetition: r.repeats[key] + 1, GOMAXPROCS: runtime.GOMAXPROCS(0), Load: arrivals,
		Prompts: cell.Prompts, Warmups: cell.Warmups, OutputTokens: cell.OutputTokens, ExactOutput: cell.ExactOutput,
		Probe: cell.probe,
	}
	var source passes
	var err error
	if r.target != nil {
		source, err = r.prepare(parent, plan, cell)
	} else {
		if cell.Open != nil {
			plan.MaxFailed = cell.MaxFailed
		}
		source, err = r.fixed(plan)
	}
	if err != nil {
		return nil, nil, err
	}
	r.prove(parent, plan)
	r.configs++
	r.repeats[key]++
	plan.PlannedNS = r.Clock.Now()
	slept := r.asleep()
	ctx, cancel := context.WithCancelCause(parent)
	defer cancel(nil)
	if err := r.append(plan); err != nil {
		cancel(err)
	}
	rec := newRecorder(r, plan, cancel)
	loop := &sender{plan: plan, target: r.target, done: func(request *verify.Request) { rec.records <- request }}
	var watch *memory
	if r.target != nil {
		loop.client = r.target.connect()
		defer loop.client.Close()
	} else {
		loop.client = &sse.Client{BaseURL: "http://" + r.process.Ready.Addr, Model: r.process.Ready.Server.Model.ID, Clock: r.Clock, Idle: r.idle}
		go func() { // a dead server can't answer
			select {
			case <-r.process.Dead():
				cancel(r.process.Err())
			case <-ctx.Done():
			}
		}()
		watch = watchMemory(r.process.command.Process.Pid, plan.Config, r.Clock, func(m *verify.Memory) { rec.records <- m })
	}
	closedLoop{loop}.run(ctx, verify.PhaseWarmup, 0, source(-1))
	passes := 0
	effort := beginEffort(r.Clock)
	for more() {
		if ctx.Err() != nil {
			continue
		}
		if prompts := source(passes); cell.Open == nil {
			closedLoop{loop}.run(ctx, verify.PhaseMeasured, passes, prompts)
		} else if due, err := plan.Load.PassSchedule(passes); err == nil {
			(&openLoop{sender: loop}).run(ctx, passes, due, prompts)
		}
		passes++
	}
	client := effort.end()
	var served []*verify.Served
	var logErr error
	peak, peakSource := int64(0), verify.Unmeasured
	if r.process != nil {
		served, logErr = r.served(plan, int(loop.sent.Load()))
		for _, s := range served {
			rec.records <- s
		}
		peak, peakSource = watch.end()
	}
	rec.end()

	c := &verify.Configuration{
		Kind: verify.KindConfiguration, Config: plan.Config, Passes: passes,
		PeakBytes: peak, PeakSource: peakSource, Metrics: []verify.Metric{}, Reasons: []string{},
	}
	rec.summary.Fill(plan, c)
	client.Count(maps.Values(rec.requests))
	c.Client = &client

	// What made requests fail comes before them.
	reasons := []string{}
	if r.broken != nil {
		reasons = append(reasons, r.broken.Error())
	}
	if r.process != nil && r.process.Err() != nil {
		reasons = append(reasons, r.process.Err().Error())
	}
	if logErr != nil {
		reasons = append(reasons, logErr.Error())
	}
	if slept = r.asleep() - slept; slept > sleepSlack {
		reasons = append(reasons, fmt.Sprintf("load: the machine slept for %v during the configuration", slept.Round(time.Millisecond)))
	}
	reasons = append(reasons, rec.reasons...)
	if sent := int(loop.sent.Load()); r.process != nil && len(reasons) == 0 && len(served) < sent {
		reasons = append(reasons, fmt.Sprintf("load: the server logged %d of %d requests, %v after the last had ended", len(served), sent, logWait))
	}
	if cached := rec.summary.CachedPercent(); cached > float64(plan.MaxCached) {
		reasons = append(reasons, fmt.Sprintf("a cache answered %.1f %% of the prompts' tokens, more than the limit of %d %%: turn it off in the server, or raise -max-cached (Cell.MaxCached)", cached, plan.MaxCached))
	}
	if c.Open != nil {
		if missed := c.Open.Missed(&plan.Load); missed != "" {
			reasons = append(reasons, missed)
		}
	}
	if passes == 0 {
		reasons = append(reasons, "no pass was made")
	}
	if rec.stalled != nil && r.process != nil {
		r.process.Kill() // whoever comes next wants one that answers
	}
	if c.Valid = len(reasons) == 0; c.Valid {
		c.Metrics = rec.summary.Metrics(peak, r.Header.HourlyUSD)
	}
	for _, reason := range reasons {
		c.Reasons = append(c.Reasons, strings.ToValidUTF8(reason, "�"))
	}
	if err := r.append(c); err != nil && c.Valid {
		c.Valid = false // what isn't recorded isn't printed
		c.Reasons = append(c.Reasons, err.Error())
	}
	return plan, c, nil
}

// passes gives the prompts of a pass, or of the warmup, -1.
type passes func(pass int) []outgoing

// fixed sends the plan's own prompts in every pass.
func (r *Run) fixed(plan *verify.Plan) (passes, error) {
	warmups, err := r.find(plan.Warmups)
	if err != nil {
		return nil, err
	}
	prompts, err := r.find(plan.Prompts)
	return func(pass int) []outgoing {
		if pass < 0 {
			return warmups
		}
		return around(prompts, places(plan, pass))
	}, err
}

// places is how many requests a pass has.
func places(plan *verify.Plan, pass int) int {
	if plan.Load.Kind == verify.LoadClosed {
		return len(plan.Prompts)
	}
	due, _ := plan.Load.PassSchedule(max(pass, 0)) // its error was looked for
	return len(due)
}

// around repeats a list until it has n.
func around[T any](list []T, n int) []T {
	if len(list) == n || len(list) == 0 {
		return list
	}
	out := make([]T, n)
	for i := range out {
		out[i] = list[i%len(list)]
	}
	return out
}

func (r *Run) find(ids []string) ([]outgoing, error) {
	out := make([]outgoing, len(ids))
	for i, id := range ids {
		if out[i].prompt = r.prompts[id]; out[i].prompt == nil {
			return nil, fmt.Errorf("load: prompt %q isn't in the corpus", id)
		}
	}
	return out, nil
}

func axes(name string) []verify.Axis {
	out := []verify.Axis{}
	for part := range strings.SplitSeq(name, "/") {
		if key, value, found := strings.Cut(part, "="); found {
			out = append(out, verify.Axis{Key: key, Value: value})
		}
	}
	return out
}

// logWait is how long the log may lack requests that were sent.
const logWait = 5 * time.Second

// served takes the server's records of a configuration, on the run's clock.
// The server logs a request before its response ends, so they are there at
// once, but for clients that went away.
func (r *Run) served(plan *verify.Plan, want int) ([]*verify.Served, error) {
	var out []*verify.Served
	prefix := fmt.Sprintf("%d.", plan.Config)
	for deadline := time.Now().Add(logWait); ; time.Sleep(20 * time.Millisecond) {
		list, err := r.process.readLog()
		for _, s := range list {
			if strings.HasPrefix(s.ID, prefix) {
				r.rebase(s)
				s.Kind, s.Config = verify.KindServed, plan.Config
				out = append(out, s)
			}
		}
		switch {
		case err != nil:
			return out, err
		case len(out) >= want || r.process.Err() != nil || time.Now().After(deadline):
			return out, nil
		}
	}
}

// rebase moves stamps from the absolute clock to the run's.
func (r *Run) rebase(s *verify.Served) {
	base := r.Header.Clock.BaseNS
	for _, ns := range []*int64{&s.ArrivalNS, &s.QueuedNS, &s.SlotNS, &s.ReleaseNS} {
		if *ns != 0 {
			*ns -= base
		}
	}
	for i := range s.TokenNS {
		s.TokenNS[i] -= base
	}
}
