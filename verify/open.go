package verify

import (
	"cmp"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"
)

// What an open loop is judged by. Latencies there run from the moment at which
// a request was due: a client that waits for a slow server before it sends,
// and then measures from the send, hides that wait (Gil Tene's coordinated
// omission). The latencies from the send stand beside them.

// Open sums up how well the plan of an open loop was kept, over measured
// requests.
type Open struct {
	Due          int   `json:"due"`            // all of them
	Sent         int   `json:"sent"`           // of them, the request left the client
	Refused      int   `json:"refused"`        // of the sent, answered with status 429 or 503
	Unsent       int   `json:"unsent"`         // of the due, given up before they were sent
	FirstDueNS   int64 `json:"first_due_ns"`   //
	LastDueNS    int64 `json:"last_due_ns"`    //
	FirstStartNS int64 `json:"first_start_ns"` // of the sent
	LastStartNS  int64 `json:"last_start_ns"`  //
	Gaps         int   `json:"gaps"`           // between two of the due, one after the other in a pass
	DueSpanNS    int64 `json:"due_span_ns"`    // first to last due in a pass, summed over passes
	StartSpanNS  int64 `json:"start_span_ns"`  // first to last start of the sent, the same
	LagNS        int64 `json:"lag_ns"`         // sum over the sent: start after a request was due and admitted
	LagP50NS     int64 `json:"lag_p50_ns"`     //
	LagP99NS     int64 `json:"lag_p99_ns"`     //
	LagMaxNS     int64 `json:"lag_max_ns"`     //
	WaitNS       int64 `json:"wait_ns"`        // sum over the sent: admitted after due, because of max_inflight
	Waited       int   `json:"waited"`         // how many of them did
	MostInflight int   `json:"most_inflight"`  // under way at once, of all but warmups
	InflightNS   int64 `json:"inflight_ns"`    // sum of the time under way, of the sent; over the duration it is the mean number
	Good         int   `json:"good"`           // meet every bound of the SLO
}

// Units of open loops.
const (
	UnitTTFT95     = "ttft-p95-s"      // due to first token
	UnitTTFT99     = "ttft-p99-s"      // the same, with enough requests
	UnitTTFTSent50 = "ttft-sent-p50-s" // start to first token, as a closed loop has it
	UnitTTFTSent95 = "ttft-sent-p95-s" //
	UnitE2E99      = "p99-s"           // due to last token, with enough requests
	UnitE2ESent95  = "p95-sent-s"      // start to last token
	UnitOffered    = "offered-req/s"   // by the due times
	UnitAchieved   = "achieved-req/s"  // by the starts
	UnitLag99      = "lag-p99-ms"      // the generator's own delay
	UnitWait       = "wait-mean-ms"    // because of max_inflight, over all sent
	UnitInflight   = "inflight-max"    //
	UnitGoodput    = "goodput-req/s"   // good requests / (last end - first due)
	UnitSLOShare   = "slo-share"       // good requests / all measured, failed and unsent ones too
)

// OpenUnits returns the units that only an open loop has.
func OpenUnits() []string {
	return []string{
		UnitAchieved, UnitGoodput, UnitInflight, UnitLag99, UnitOffered, UnitE2ESent95, UnitE2E99, UnitSLOShare,
		UnitTTFT95, UnitTTFT99, UnitTTFTSent50, UnitTTFTSent95, UnitWait,
	}
}

// leastAchieved is the part of the offered rate, in percent, that a
// configuration without max_inflight has to send.
const leastAchieved = 95

// Bounds that a plan may set for the generator's lag.
const (
	DefaultMaxLagNS = 10_000_000
	mostMaxLagNS    = 1_000_000_000
)

// PercentileFloor is how many samples a percentile needs before it says
// something: with fewer, the chance that at most one of them lies above the
// true percentile is more than 1 %. It is the rule behind MLPerf Inference's
// early stopping: 64 samples for the 90th percentile, 662 for the 99th.
func PercentileFloor(percent int) int {
	p := float64(percent) / 100
	power := 1.0 // p^(n-1)
	for n := 1; ; n++ {
		if power*p+float64(n)*(1-p)*power <= 0.01 {
			return n
		}
		power *= p
	}
}

// open is what a Summary gathers of an open loop.
type open struct {
	Open
	ttft, e2e []int64 // from due
	lags      []int64
	edges     []edge
	passes    map[int]*passSpan
}

// passSpan is how long measured requests of a pass were due, and were started.
type passSpan struct {
	due, sent                                int
	firstDue, lastDue, firstStart, lastStart int64
}

type edge struct {
	ns    int64
	delta int
}

// addOpen takes a request of an open loop. What counts there is the moment in
// which it was due: where it was admitted later, that wait is part of its
// latency.
func (s *Summary) addOpen(r *Request) {
	o := &s.open
	if r.Phase == PhaseWarmup {
		return
	}
	sent := !r.unsent()
	if sent {
		o.edges = append(o.edges, edge{r.StartNS, 1}, edge{r.EndNS, -1})
	}
	if r.Phase != PhaseMeasured {
		return
	}
	if o.Due == 0 || r.ScheduledNS < o.FirstDueNS {
		o.FirstDueNS = r.ScheduledNS
	}
	o.LastDueNS = max(o.LastDueNS, r.ScheduledNS)
	o.Due++
	pass := o.passes[r.Pass]
	if pass == nil {
		if o.passes == nil {
			o.passes = map[int]*passSpan{}
		}
		pass = &passSpan{firstDue: r.ScheduledNS, lastDue: r.ScheduledNS}
		o.passes[r.Pass] = pass
	}
	pass.due++
	pass.firstDue, pass.lastDue = min(pass.firstDue, r.ScheduledNS), max(pass.lastDue, r.ScheduledNS)
	if !sent {
		o.Unsent++
		return
	}
	if o.Sent == 0 || r.StartNS < o.FirstStartNS {
		o.FirstStartNS = r.StartNS
	}
	o.LastStartNS = max(o.LastStartNS, r.StartNS)
	o.Sent++
	if pass.sent++; pass.sent == 1 {
		pass.firstStart, pass.lastStart = r.StartNS, r.StartNS
	}
	pass.firstStart, pass.lastStart = min(pass.firstStart, r.StartNS), max(pass.lastStart, r.StartNS)
	if r.Status == 429 || r.Status == 503 {
		o.Refused++
	}
	if r.AdmittedNS > 0 {
		o.Waited++
		o.WaitNS += r.AdmittedNS - r.ScheduledNS
	}
	lag := r.StartNS - max(r.ScheduledNS, r.AdmittedNS)
	o.lags = append(o.lags, lag)
	o.LagNS += lag
	o.InflightNS += r.EndNS - r.StartNS
	if r.Failure != nil {
		return
	}
	if first, ok := r.FirstTokenNS(); ok {
		o.ttft = append(o.ttft, first-r.ScheduledNS)
	}
	if last, ok := r.LastTokenNS(); ok {
		o.e2e = append(o.e2e, last-r.ScheduledNS)
	}
	if r.meets(s.Open.Load.SLO) {
		o.Good++
	}
}

// meets says whether an answer is good: within every bound, from its due time
// on. TPOT isn't defined below two tokens and then bounds nothing.
func (r *Request) meets(slo []Bound) bool {
	for _, bound := range slo {
		switch bound.Metric {
		case "ttft":
			if ns, ok := r.FirstTokenNS(); !ok || ns-r.ScheduledNS > bound.MostNS {
				return false
			}
		case "e2e":
			if ns, ok := r.LastTokenNS(); !ok || ns-r.ScheduledNS > bound.MostNS {
				return false
			}
		case "tpot":
			if n, known := r.Tokens(); !known {
				return false // it can't be shown
			} else if ns, ok := r.TPOT(); ok && ns > float64(bound.MostNS) || n < 1 {
				return false
			}
		}
	}
	return true
}

// finish computes what needs all requests.
func (o *open) finish() Open {
	slices.Sort(o.lags)
	if h, ok := Percentile(o.lags, 50); ok {
		o.LagP50NS = h / 100
		h, _ = Percentile(o.lags, 99)
		o.LagP99NS = h / 100
		o.LagMaxNS = o.lags[len(o.lags)-1]
	}
	slices.SortFunc(o.edges, func(a, b edge) int { return cmp.Or(cmp.Compare(a.ns, b.ns), a.delta-b.delta) })
	o.Gaps, o.DueSpanNS, o.StartSpanNS = 0, 0, 0
	for _, pass := range o.passes {
		o.Gaps += pass.due - 1
		o.DueSpanNS += pass.lastDue - pass.firstDue
		o.StartSpanNS += pass.lastStart - pass.firstStart
	}
	now := 0
	o.MostInflight = 0
	for _, e := range o.edges {
		now += e.delta
		o.MostInflight = max(o.MostInflight, now)
	}
	return o.Open
}

// offered is the rate, in requests a second, at which they were due, and
// achieved that at which they were sent, if all of them were; ok is false where
// there are too few for one. The time between two passes is in neither.
func (o *Open) offered() (perSecond float64, ok bool) { return o.rate(o.DueSpanNS) }

func (o *Open) achieved() (perSecond float64, ok bool) {
	perSecond, ok = o.rate(o.StartSpanNS)
	return perSecond, ok && o.Unsent == 0
}

func (o *Open) rate(spanNS int64) (float64, bool) {
	if o.Gaps < 1 || spanNS < 1 {
		return 0, false
	}
	return float64(int64(o.Gaps)*1e9) / float64(spanNS), true
}

// metrics are those of an open loop beside the others.
func (o *open) metrics(add func(unit string, value float64, ok bool), plan *Plan, endNS int64, unknown bool) {
	seconds := func(samples []int64, unit string, percent int, least int) {
		h, ok := Percentile(samples, percent)
		add(unit, float64(h)/1e11, ok && len(samples) >= least)
	}
	total := o.finish()
	slices.Sort(o.ttft)
	slices.Sort(o.e2e)
	seconds(o.ttft, UnitTTFT95, 95, 0)
	seconds(o.ttft, UnitTTFT99, 99, PercentileFloor(99))
	seconds(o.e2e, UnitE2E99, 99, PercentileFloor(99))
	v, ok := total.offered()
	add(UnitOffered, v, ok)
	v, ok = total.achieved()
	add(UnitAchieved, v, ok)
	add(UnitLag99, float64(total.LagP99NS)/1e6, total.Sent > 0)
	add(UnitWait, float64(total.WaitNS)/float64(int64(total.Sent)*1e6), total.Sent > 0 && plan.Load.MaxInflight > 0)
	add(UnitInflight, float64(total.MostInflight), total.Sent > 0)
	if judged := !unknown || !slices.ContainsFunc(plan.Load.SLO, func(b Bound) bool { return b.Metric == "tpot" }); judged && len(plan.Load.SLO) > 0 {
		span := endNS - total.FirstDueNS
		add(UnitGoodput, float64(int64(total.Good)*1e9)/float64(span), span > 0)
		add(UnitSLOShare, float64(total.Good)/float64(total.Due), total.Due > 0)
	}
}

// Missed says why a plan wasn't kept well enough to be called open, or "".
func (o *Open) Missed(l *Load) string {
	switch {
	case o.Due == 0:
		return "no request was due after the settling: none is measured"
	case o.Unsent > 0:
		return fmt.Sprintf("%d of %d requests that were due were not sent", o.Unsent, o.Due)
	case o.LagP99NS > l.MaxLagNS:
		return fmt.Sprintf("the generator lagged: 99 %% of its requests started within %.3f ms of when they were due, the bound is %.3f ms", float64(o.LagP99NS)/1e6, float64(l.MaxLagNS)/1e6)
	// As many were sent as were due, so that their rates are as the times that
	// this took. One that lags within its bound, as the last may, is no slower.
	case l.MaxInflight == 0 && (o.StartSpanNS-l.MaxLagNS)*leastAchieved > o.DueSpanNS*100:
		offered, _ := o.offered()
		achieved, _ := o.achieved()
		return fmt.Sprintf("the rate wasn't kept: %.4g requests a second of %.4g were sent, less than %d %%", achieved, offered, leastAchieved)
	}
	return ""
}

// planLoad checks how requests of a plan arrive.
func (p *replay) planLoad(where string, plan *Plan) {
	l := &plan.Load
	if l.Kind == LoadClosed {
		if l.Conc < 1 {
			p.problem(where, "load %q with conc %d, want at least 1", l.Kind, l.Conc)
		}
		if !reflect.DeepEqual(*l, Load{Kind: l.Kind, Conc: l.Conc}) {
			p.problem(where, "load %q has fields of an open loop", l.Kind)
		}
		return
	}
	if l.Kind != LoadOpen || l.Conc != 0 {
		p.problem(where, "load %q with conc %d, want %q with at least 1, or %q with 0", l.Kind, l.Conc, LoadClosed, LoadOpen)
		return
	}
	if due, err := l.Schedule(); err != nil {
		p.problem(where, "load: %v", err)
	} else if last := due[len(due)-1]; last < l.SettleNS {
		p.problem(where, "load: settle_ns %d, but the last request is due %d ns after the beginning: none is measured", l.SettleNS, last)
	}
	if l.Seed < 0 || l.Requests < 0 || l.MaxInflight < 0 || l.SettleNS < 0 || l.MaxLagNS < 1 || l.MaxLagNS > mostMaxLagNS {
		p.problem(where, "load: seed %d, requests %d, max_inflight %d, settle_ns %d, want 0 or more; max_lag_ns %d, want 1 to %d", l.Seed, l.Requests, l.MaxInflight, l.SettleNS, l.MaxLagNS, int64(mostMaxLagNS))
	}
	seen := map[string]bool{}
	for _, bound := range l.SLO {
		if bound.Metric != "ttft" && bound.Metric != "tpot" && bound.Metric != "e2e" || seen[bound.Metric] || bound.MostNS < 1 {
			p.problem(where, "slo: %s of at most %d ns, want ttft, tpot and e2e, each once, above 0", bound.Metric, bound.MostNS)
		}
		seen[bound.Metric] = true
	}
	p.planTrace(where, plan)
	if l.Share != "" && plan.Probe == 0 && p.report.Header.Target == nil { // a probe has none at all
		p.problem(where, "load: share %q, but a server that this run started has no other generator", l.Share)
	}
}

// mostGenerators bounds the parts of a share.
const mostGenerators = 1000

// share reads Share: the part-th of so many generators, 1 of 1 if empty.
func (l *Load) share() (part, parts int, err error) {
	if l.Share == "" {
		return 1, 1, nil
	}
	before, after, _ := strings.Cut(l.Share, "/")
	part, err1 := strconv.Atoi(before)
	parts, err2 := strconv.Atoi(after)
	if err1 != nil || err2 != nil || part < 1 || part > parts || parts < 2 || parts > mostGenerators || fmt.Sprintf("%d/%d", part, parts) != l.Share {
		return 0, 0, fmt.Errorf("share %q, want 1/4 to 4/4, say", l.Share)
	}
	return part, parts, nil
}

// RateAxis is the value of the axis rate of an open loop.
func (l *Load) RateAxis() string {
	if len(l.Steps) == 0 {
		return l.Rate
	}
	parts := make([]string, len(l.Steps))
	for i, step := range l.Steps {
		parts[i] = fmt.Sprintf("%sx%gs", step.Rate, float64(step.DurationNS)/1e9)
	}
	return strings.Join(parts, "+")
}

// at returns the plan's load of one pass: each has a seed of its own.
func (l *Load) at(pass int) *Load {
	out := *l
	out.Seed += int64(pass)
	return &out
}

// PassSchedule is the schedule of one pass; passes differ in their seeds.
func (l *Load) PassSchedule(pass int) ([]int64, error) { return l.at(pass).Schedule() }

// place returns the place in its pass that a request's id claims, or -1.
func (r *Request) place() int {
	i, err := strconv.Atoi(r.ID[strings.LastIndexByte(r.ID, '.')+1:])
	if err != nil || i < 0 || r.ID != RequestID(r.Config, r.Phase, r.Pass, i) {
		return -1
	}
	return i
}

// promptAt returns the prompt that an open loop sends in a place of a pass;
// its prompts come again and again.
func (plan *Plan) promptAt(pass, place int) string {
	ids := plan.pass(pass)
	if len(ids) == 0 {
		return ""
	}
	return ids[place%len(ids)]
}

// PhaseAt says of which phase a request of an open loop is by its due time, in
// ns from the beginning of the schedule.
func (l *Load) PhaseAt(dueNS int64) string {
	if dueNS < l.SettleNS {
		return PhaseSettle
	}
	return PhaseMeasured
}

// checkSchedule: every request that the plan has is there once, in its phase,
// and was due when the plan says.
func (p *replay) checkSchedule(where string, closing *Configuration) {
	plan := &p.cell.plan
	if plan.Load.Kind != LoadOpen {
		return
	}
	// Passes are looked at one by one, for a wrong number of them may be any.
	byPass := map[int][]int{}
	least := plan.PlannedNS // what a pass begins after
	for i, r := range p.cell.requests {
		if r.Phase != PhaseWarmup {
			byPass[r.Pass] = append(byPass[r.Pass], i)
		} else {
			least = max(least, r.EndNS)
		}
	}
	for _, pass := range slices.Sorted(maps.Keys(byPass)) {
		if len(p.report.Problems) >= maxProblems {
			return
		}
		due, err := plan.Load.PassSchedule(pass)
		if err != nil {
			p.problem(where, "load: %v", err)
			return
		}
		var begin int64 // of the pass, by the first of its records
		known := false
		last := least
		seen := make([]bool, len(due))
		for _, i := range byPass[pass] {
			r := p.cell.requests[i]
			wrong := func(format string, args ...any) { p.problemAt(p.cell.lines[i], "request "+r.ID, format, args...) }
			last = max(last, r.EndNS)
			place := r.place()
			if place < 0 || place >= len(due) {
				wrong("the plan has no such place: %d requests are due in a pass", len(due))
				continue
			}
			if !known {
				begin, known = r.ScheduledNS-due[place], true
			}
			switch {
			case r.Prompt != plan.promptAt(pass, place):
				wrong("prompt %q, want %q in its place", r.Prompt, plan.promptAt(pass, place))
			case r.Phase != plan.Load.PhaseAt(due[place]):
				wrong("phase %q, want %q for what is due %d ns after the beginning", r.Phase, plan.Load.PhaseAt(due[place]), due[place])
			case begin < least:
				wrong("scheduled_ns %d is %d ns after the beginning by the plan, but %s can't have begun before %d", r.ScheduledNS, due[place], passName(pass), least)
			case r.ScheduledNS != begin+due[place]:
				wrong("scheduled_ns %d, but by the plan and the other requests it was due at %d", r.ScheduledNS, begin+due[place])
			}
			seen[place] = true
		}
		least = last
		if missing := slices.Index(seen, false); missing >= 0 && closing.Valid {
			p.problem(where, "request %s was due, and no record says what became of it", RequestID(plan.Config, plan.Load.PhaseAt(due[missing]), pass, missing))
		}
	}
	if closing.Valid {
		for pass := range closing.Passes {
			if len(byPass[pass]) == 0 {
				p.problem(where, "%s has no requests", passName(pass))
				return
			}
		}
	}
}

// checkInflight: no more are under way than the plan lets, and who waits for
// that is let go in the order of the schedule, each in the place of another and
// as of its end.
func (p *replay) checkInflight(where string, closing *Configuration) {
	most := p.cell.plan.Load.MaxInflight
	if closing.Open == nil || most == 0 {
		return
	}
	if closing.Open.MostInflight > most {
		p.problem(where, "%d requests were under way at once, max_inflight is %d", closing.Open.MostInflight, most)
		return
	}
	type sent struct {
		*Request
		place, line int
	}
	byPass := map[int][]sent{}
	for i, r := range p.cell.requests {
		if r.Phase != PhaseWarmup && !r.unsent() {
			byPass[r.Pass] = append(byPass[r.Pass], sent{r, r.place(), p.cell.lines[i]})
		}
	}
	for _, pass := range slices.Sorted(maps.Keys(byPass)) {
		list := byPass[pass]
		slices.SortFunc(list, func(a, b sent) int { return a.place - b.place })
		ends := map[int64]int{} // places that became free
		for _, r := range list {
			ends[r.EndNS]++
		}
		var last sent // to be let go
		for i, r := range list {
			wrong := func(format string, args ...any) { p.problemAt(r.line, "request "+r.ID, format, args...) }
			if last.Request != nil && r.StartNS < last.AdmittedNS {
				wrong("start_ns %d lies before request %s, which was due before it, was admitted, %d", r.StartNS, last.ID, last.AdmittedNS)
			}
			if r.AdmittedNS == 0 {
				continue
			}
			switch {
			case i < most:
				wrong("admitted_ns %d, but it had no need to wait: %d were due before it, max_inflight is %d", r.AdmittedNS, i, most)
			case r.AdmittedNS > r.ScheduledNS && ends[r.AdmittedNS] == 0:
				wrong("admitted_ns %d, but no place became free then, or another request has got it", r.AdmittedNS)
			}
			ends[r.AdmittedNS]--
			if last.Request == nil || r.AdmittedNS > last.AdmittedNS {
				last = r
			}
		}
	}
}

// unsent says whether a request never left an open loop.
func (r *Request) unsent() bool { return r.Failure != nil && r.Failure.Class == FailUnsent }

// differs names the first field of two accounts that isn't the same, by its
// name in the evidence; name is empty if none is.
func (o *Open) differs(want *Open) (name string, have, wanted int64) {
	a, b := reflect.ValueOf(o).Elem(), reflect.ValueOf(want).Elem()
	for i := range a.NumField() {
		if x, y := a.Field(i).Int(), b.Field(i).Int(); x != y {
			name, _, _ = strings.Cut(a.Type().Field(i).Tag.Get("json"), ",")
			return name, x, y
		}
	}
	return "", 0, 0
}

// outputTokens is what a request asks for: the plan's number, or the trace's.
func (plan *Plan) outputTokens(r *Request) int {
	if place := r.place(); plan.Load.Arrival == ArrivalTrace && r.Phase != PhaseWarmup && place >= 0 && place < len(plan.Load.Trace) {
		return plan.Load.Trace[place].Output
	}
	return plan.OutputTokens
}

// warnFloor says which percentiles n requests are too few for.
func (p *replay) warnFloor(where string, n int) {
	for _, doubt := range belowFloor(n) {
		p.warn("%s, %s: %s", where, p.cell.plan.Name, doubt)
	}
}

// belowFloor lists the percentiles that n requests are too few for.
func belowFloor(n int) (doubts []string) {
	for _, percent := range []int{95, 99} {
		if floor := PercentileFloor(percent); n < floor {
			absent := "it is there for comparison, and says little"
			if percent == 99 {
				absent = "it is absent"
			}
			doubts = append(doubts, fmt.Sprintf("%d requests are too few for the %dth percentile, %d more are needed: %s", n, percent, floor-n, absent))
		}
	}
	return doubts
}
