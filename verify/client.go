package verify

import (
	"cmp"
	"fmt"
	"iter"
	"slices"
)

// The proof that the client was not the bottleneck: what the same generator
// could do against a server that does nothing (its roofline), and what each
// configuration asked of it.

// Client is what the measuring process can do: the open loop that measures
// servers, against one on the same machine that writes answers made
// beforehand. It stands before the configurations that it is about, those
// with its GOMAXPROCS.
type Client struct {
	Kind         string `json:"kind"`
	GOMAXPROCS   int    `json:"gomaxprocs"`
	Tokens       int    `json:"tokens"`          // of each answer, an event and a write each; the last write also has the usage and the end
	Reuse        bool   `json:"reuse,omitempty"` // connections serve one request after the other
	ClockErrorNS int64  `json:"clock_error_ns"`  // of the null server's clock
	Fast         Trial  `json:"fast"`            // the null server writes as fast as it can, and the next request starts when one has ended
	Paced        Trial  `json:"paced"`           // events and requests at even distances, at a quarter of the fast trial's rate
}

// Trial is some requests to the null server, all answered in full.
type Trial struct {
	DueNS     []int64 `json:"due_ns,omitempty"` // of each request of the paced trial
	StartNS   []int64 `json:"start_ns"`         // of each request
	EndNS     []int64 `json:"end_ns"`           //
	Reads     []int   `json:"reads"`            // in which its events came: those with one stamp came in one
	WrittenNS []int64 `json:"written_ns"`       // of some events, evenly taken: the null server was about to write it
	ReadNS    []int64 `json:"read_ns"`          // of the same: the client had it
	Effort    Effort  `json:"effort"`

	// What follows from these.
	EventsPerS    float64 `json:"events_per_s"`               // events / (last end - first start)
	EventsPerRead float64 `json:"events_per_read"`            // 1 and a little where each came by itself
	StampP50NS    int64   `json:"stamp_p50_ns"`               // written to read
	StampP99NS    int64   `json:"stamp_p99_ns"`               //
	LagP50NS      int64   `json:"lag_p50_ns,omitempty"`       // due to start
	LagP99NS      int64   `json:"lag_p99_ns,omitempty"`       //
	CPUPerEventNS float64 `json:"cpu_per_event_ns,omitempty"` // effort.cpu_ns / events
}

// Effort is what a stretch of time cost the measuring process.
type Effort struct {
	BeginNS    int64    `json:"begin_ns"`
	EndNS      int64    `json:"end_ns"`
	CPUNS      int64    `json:"cpu_ns,omitempty"` // in user and kernel mode; absent where the system doesn't tell
	GCCycles   int64    `json:"gc_cycles"`
	GCPauseNS  int64    `json:"gc_pause_ns"`       // sum of the times for which the collector stopped the process
	Sched      []Bucket `json:"sched,omitempty"`   // how long goroutines waited for a CPU that were ready, as the runtime counts it: one in some
	SchedP99NS int64    `json:"sched_p99_ns"`      // follows from these
	Events     int      `json:"events"`            // of requests but warmups
	Busiest    int      `json:"busiest,omitempty"` // most events within 100 ms; not of a trial
}

// Bucket is a bar of a histogram, without those that are empty.
type Bucket struct {
	BelowNS int64 `json:"below_ns"`
	Count   int64 `json:"count"`
}

const (
	// BusyNS is the window in which the busiest moment of a configuration is
	// looked for.
	BusyNS = 100_000_000
	// RooflineShare is the part of the roofline, in percent, above which a
	// configuration may have been slowed down by its client.
	RooflineShare = 25
	// mostTrial bounds the requests, and the sampled events, of a trial.
	mostTrial = 2500
	// nullExtra is how many events of a null server's answer have no token.
	nullExtra = 2
)

// Figure computes what follows from the samples, with so many tokens in an
// answer.
func (t *Trial) Figure(tokens int) {
	t.Effort.Figure()
	t.Effort.Events = len(t.StartNS) * (tokens + nullExtra)
	t.EventsPerS, t.EventsPerRead, t.CPUPerEventNS = 0, 0, 0
	if len(t.StartNS) > 0 && len(t.EndNS) > 0 {
		if span := slices.Max(t.EndNS) - slices.Min(t.StartNS); span > 0 {
			t.EventsPerS = float64(int64(t.Effort.Events)*1e9) / float64(span)
		}
	}
	reads := 0
	for _, n := range t.Reads {
		reads += n
	}
	if reads > 0 {
		t.EventsPerRead = float64(t.Effort.Events) / float64(reads)
	}
	if t.Effort.Events > 0 {
		t.CPUPerEventNS = float64(t.Effort.CPUNS) / float64(t.Effort.Events)
	}
	t.StampP50NS, t.StampP99NS = halves(t.WrittenNS, t.ReadNS)
	t.LagP50NS, t.LagP99NS = halves(t.DueNS, t.StartNS)
}

// halves returns the median and the 99th percentile of the distances between
// two lists of stamps.
func halves(from, to []int64) (p50, p99 int64) {
	var list []int64
	for i := range min(len(from), len(to)) {
		list = append(list, to[i]-from[i])
	}
	slices.Sort(list)
	p50, _ = Percentile(list, 50)
	p99, _ = Percentile(list, 99)
	return p50 / 100, p99 / 100
}

// Figure computes what follows from the histogram.
func (e *Effort) Figure() {
	e.SchedP99NS = 0
	total := int64(0)
	for _, b := range e.Sched {
		total += b.Count
	}
	below := int64(0)
	for _, b := range e.Sched {
		if below += b.Count; below*100 >= total*99 {
			e.SchedP99NS = b.BelowNS
			return
		}
	}
}

// Count fills in the events of a configuration's requests.
func (e *Effort) Count(requests iter.Seq[*Request]) {
	var stamps []int64
	for r := range requests {
		if r.Phase != PhaseWarmup {
			stamps = append(stamps, r.EventNS...)
		}
	}
	slices.Sort(stamps)
	e.Events, e.Busiest = len(stamps), 0
	first := 0
	for last, ns := range stamps {
		for stamps[first] <= ns-BusyNS {
			first++
		}
		e.Busiest = max(e.Busiest, last-first+1)
	}
}

// faults returns what is wrong with an effort by itself.
func (e *Effort) faults(cpus int) (out []string) {
	fault := func(format string, args ...any) { out = append(out, fmt.Sprintf(format, args...)) }
	span := e.EndNS - e.BeginNS
	if e.BeginNS < 1 || span < 1 || e.EndNS > maxNS {
		fault("from begin_ns %d to end_ns %d, want 1 to %d, and the end after the begin", e.BeginNS, e.EndNS, int64(maxNS))
		return out
	}
	// A system may count in ticks of some ms.
	if most := (span + BusyNS) * int64(max(cpus, 1)); e.CPUNS < 0 || cpus > 0 && e.CPUNS > most {
		fault("cpu_ns %d in %d ns, want 0 to %d on %d CPUs", e.CPUNS, span, most, cpus)
	}
	if e.GCCycles < 0 || e.GCPauseNS < 0 || e.GCPauseNS > span {
		fault("gc_cycles %d and gc_pause_ns %d, want 0 or more, and a pause of at most %d", e.GCCycles, e.GCPauseNS, span)
	}
	last := int64(0)
	for i, b := range e.Sched {
		if b.BelowNS <= last || b.BelowNS > maxNS || b.Count < 1 || b.Count > 1<<40 {
			fault("sched[%d] has %d below %d ns, want at least 1, and more ns than %d", i, b.Count, b.BelowNS, last)
			return out
		}
		last = b.BelowNS
	}
	want := *e
	if want.Figure(); e.SchedP99NS != want.SchedP99NS {
		fault("sched_p99_ns %d, but its histogram gives %d", e.SchedP99NS, want.SchedP99NS)
	}
	return out
}

// client checks the record of a null server's run.
func (p *replay) client(c *Client) {
	where := fmt.Sprintf("client of GOMAXPROCS %d", c.GOMAXPROCS)
	if p.cell != nil {
		p.stop(where, "it stands within configuration %d", p.cell.plan.Config)
		return
	}
	if len(p.report.Servers) == 0 {
		p.stop(where, "it stands before the server")
		return
	}
	if c.GOMAXPROCS < 1 || c.Tokens < 1 || c.Tokens > 1<<20 {
		p.problem(where, "gomaxprocs %d and tokens %d, want at least 1 of each", c.GOMAXPROCS, c.Tokens)
	}
	if target := p.report.Header.Target; c.Reuse != (target != nil && target.Reuse) {
		p.problem(where, "reuse is %t, want what the run's requests do", c.Reuse)
	}
	if c.ClockErrorNS < 0 || c.ClockErrorNS > maxClockErrorNS {
		p.problem(where, "clock known to within %d ns, want 0 to %d", c.ClockErrorNS, maxClockErrorNS)
	}
	slack := c.ClockErrorNS + p.report.Header.Clock.ErrorNS
	if c.Paced.Effort.BeginNS < c.Fast.Effort.EndNS {
		p.problem(where, "the paced trial begins at %d, before the fast one ends at %d", c.Paced.Effort.BeginNS, c.Fast.Effort.EndNS)
	}
	for _, trial := range []struct {
		name string
		*Trial
	}{{"fast", &c.Fast}, {"paced", &c.Paced}} {
		for _, fault := range trial.faults(trial.name == "paced", c.Tokens, slack, p.lastNS, p.report.Header.Host.CPUs) {
			p.problem(where, "%s: %s", trial.name, fault)
		}
	}
	p.lastNS = max(p.lastNS, c.Paced.Effort.EndNS)
	p.report.Clients = append(p.report.Clients, *c)
}

// faults returns what is wrong with a trial that began after a stamp.
func (t *Trial) faults(paced bool, tokens int, slack, after int64, cpus int) (out []string) {
	fault := func(format string, args ...any) { out = append(out, fmt.Sprintf(format, args...)) }
	n := len(t.StartNS)
	if n < 1 || n > mostTrial || len(t.EndNS) != n || len(t.Reads) != n || paced && len(t.DueNS) != n || !paced && t.DueNS != nil {
		fault("%d due_ns, %d start_ns, %d end_ns, %d reads, want as many of each, 1 to %d, and no due_ns in the fast one", len(t.DueNS), n, len(t.EndNS), len(t.Reads), mostTrial)
		return out
	}
	m := len(t.WrittenNS)
	if m < 1 || m > mostTrial || len(t.ReadNS) != m {
		fault("%d written_ns and %d read_ns, want as many of each, 1 to %d", m, len(t.ReadNS), mostTrial)
		return out
	}
	if out = t.Effort.faults(cpus); len(out) > 0 {
		return out
	}
	begin, end := t.Effort.BeginNS, t.Effort.EndNS
	if begin < after {
		fault("begin_ns %d, want %d, the end of what is before it, or later", begin, after)
	}
	for i := range n {
		due := begin
		if paced {
			due = t.DueNS[i]
		}
		if due < begin || t.StartNS[i] < due || t.EndNS[i] <= t.StartNS[i] || t.EndNS[i] > end {
			fault("request %d is due at %d, starts at %d and ends at %d, want them in this order, within %d to %d", i, due, t.StartNS[i], t.EndNS[i], begin, end)
			return out
		}
		if t.Reads[i] < 1 || t.Reads[i] > tokens {
			fault("request %d has %d reads, want 1 to the %d writes of an answer", i, t.Reads[i], tokens)
			return out
		}
	}
	if paced && !slices.IsSorted(t.DueNS) {
		fault("due_ns don't rise")
	}
	last := begin - slack
	for i := range m {
		if t.WrittenNS[i] < last || t.ReadNS[i] < t.WrittenNS[i]-slack || t.ReadNS[i] > end {
			fault("event %d is written at %d and read at %d, want them in this order to within %d ns, after %d and before %d", i, t.WrittenNS[i], t.ReadNS[i], slack, last, end)
			return out
		}
		last = t.WrittenNS[i]
	}
	want := *t
	want.Figure(tokens)
	for _, figure := range []struct {
		name       string
		have, want any
	}{
		{"effort.events", t.Effort.Events, want.Effort.Events},
		{"effort.busiest", t.Effort.Busiest, 0},
		{"events_per_s", t.EventsPerS, want.EventsPerS},
		{"events_per_read", t.EventsPerRead, want.EventsPerRead},
		{"stamp_p50_ns", t.StampP50NS, want.StampP50NS},
		{"stamp_p99_ns", t.StampP99NS, want.StampP99NS},
		{"lag_p50_ns", t.LagP50NS, want.LagP50NS},
		{"lag_p99_ns", t.LagP99NS, want.LagP99NS},
		{"cpu_per_event_ns", t.CPUPerEventNS, want.CPUPerEventNS},
	} {
		if figure.have != figure.want {
			fault("%s %v, but its samples give %v", figure.name, figure.have, figure.want)
		}
	}
	return out
}

// checkClient holds what a configuration says of its client against its
// requests, and warns of one that may have slowed the configuration down.
func (p *replay) checkClient(where string, closing *Configuration) {
	e, plan := closing.Client, &p.cell.plan
	if e == nil {
		return
	}
	for _, fault := range e.faults(p.report.Header.Host.CPUs) {
		p.problem(where, "client: %s", fault)
		return
	}
	want := *e
	want.Count(slices.Values(p.cell.requests))
	if e.Events != want.Events || e.Busiest != want.Busiest {
		p.problem(where, "client: %d events, %d at its busiest, but its requests have %d, and %d", e.Events, e.Busiest, want.Events, want.Busiest)
	}
	first, last := int64(maxNS), int64(0)
	for _, r := range p.cell.requests {
		if r.Phase != PhaseWarmup {
			first, last = min(first, r.StartNS), max(last, r.EndNS)
		}
	}
	if e.BeginNS < plan.PlannedNS || first < e.BeginNS || last > e.EndNS {
		p.problem(where, "client: from begin_ns %d to end_ns %d, want planned_ns %d before it, and all its requests, %d to %d, within it", e.BeginNS, e.EndNS, plan.PlannedNS, first, last)
	}
	p.lastNS = max(p.lastNS, e.EndNS)
	for _, doubt := range p.report.strain(plan, e) {
		p.cell.strain = append(p.cell.strain, doubt)
		p.warn("%s, %s: %s", where, plan.Name, doubt)
	}
}

// strain says why a client may have been the bottleneck.
func (r *Report) strain(plan *Plan, e *Effort) (doubts []string) {
	doubt := func(format string, args ...any) { doubts = append(doubts, fmt.Sprintf(format, args...)) }
	rate := float64(e.Busiest) * (1e9 / BusyNS)
	roofline := r.Roofline(plan.GOMAXPROCS)
	switch {
	case roofline == nil && plan.Load.Kind == LoadOpen:
		doubt("no roofline of its client is recorded for GOMAXPROCS %d: nothing shows how much more it could have taken", plan.GOMAXPROCS)
	case roofline == nil:
	case rate*100 > roofline.Fast.EventsPerS*RooflineShare:
		doubt("its client took %.0f events a second at its busiest, more than %d %% of the %.0f of its roofline: it may have been the bottleneck", rate, RooflineShare, roofline.Fast.EventsPerS)
	}
	bound := plan.Load.MaxLagNS
	if roofline != nil && bound > 0 {
		if late := max(roofline.Paced.StampP99NS, roofline.Paced.LagP99NS); late > bound {
			doubt("with nothing to wait for, its client was late by %.3f ms for 1 %% of its stamps or starts, the bound of its lag is %.3f ms: the machine was too busy, or too slow", float64(late)/1e6, float64(bound)/1e6)
		}
	}
	if bound > 0 && e.SchedP99NS > bound {
		doubt("1 %% of its client's goroutines waited for a CPU for %.3f ms or more, the bound of its lag is %.3f ms: it may have been the bottleneck", float64(e.SchedP99NS)/1e6, float64(bound)/1e6)
	}
	return doubts
}

// Roofline returns the last record of the client with a GOMAXPROCS so far, or
// nil.
func (r *Report) Roofline(gomaxprocs int) *Client {
	for i := range slices.Backward(r.Clients) {
		if c := &r.Clients[i]; c.GOMAXPROCS == gomaxprocs {
			return c
		}
	}
	return nil
}

// Inflight is a moment at which the number of requests under way changes.
type Inflight struct {
	NS       int64 // since the first was due
	Requests int   // from then on
}

// inflightOver returns how many requests but warmups were under way over time,
// those that were sent; one that ends when another starts is over before.
func inflightOver(requests []*Request) (out []Inflight) {
	var edges []edge
	first := int64(maxNS)
	for _, r := range requests {
		if r.Phase == PhaseWarmup || r.Failure != nil && r.Failure.Class == FailUnsent {
			continue
		}
		first = min(first, r.ScheduledNS)
		edges = append(edges, edge{r.StartNS, 1}, edge{r.EndNS, -1})
	}
	slices.SortFunc(edges, func(a, b edge) int { return cmp.Or(cmp.Compare(a.ns, b.ns), a.delta-b.delta) })
	now := 0
	for _, e := range edges {
		now += e.delta
		if n := len(out); n > 0 && out[n-1].NS == e.ns-first {
			out[n-1].Requests = now
			continue
		}
		out = append(out, Inflight{e.ns - first, now})
	}
	return out
}
