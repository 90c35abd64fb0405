package verify

import (
	"math"
	"slices"
	"strings"
)

// The metrics, by the unit that names each on a benchmark line. Every value
// is a pure function of recorded integers, and its arithmetic gives the same
// bits on every machine: integers as far as they go, and no product next to a
// sum that a compiler might fuse.
const (
	UnitTTFT50     = "ttft-p50-s"  // start to first token's arrival, median, s
	UnitTPOT50     = "tpot-p50-ms" // (last - first token)/(tokens - 1), median over requests, ms
	UnitE2E95      = "p95-s"       // start to last token's arrival, 95th percentile, s
	UnitThroughput = "tok/s"       // measured tokens / (last end - first start)
	UnitPeak       = "rss-peak-B"  // resident set of the server, its peak during the configuration
	UnitCost       = "usd/Mtok"    // assumed price of an hour / tokens of an hour

	// For a Target only.
	UnitGap50    = "gap-p50-ms"   // between two events that carry tokens, median over all gaps, ms
	UnitAnswer50 = "answer-p50-s" // start to first token of the answer, after the reasoning, median, s
	UnitFailed   = "failed"       // measured requests that failed, where some may
)

// Units returns the units of all metrics, sorted as a benchmark line has them.
func Units() []string {
	return []string{UnitE2E95, UnitPeak, UnitThroughput, UnitTPOT50, UnitTTFT50, UnitCost}
}

// TargetUnits returns the units of all metrics of a Target.
func TargetUnits() []string {
	return []string{UnitAnswer50, UnitFailed, UnitGap50, UnitE2E95, UnitThroughput, UnitTPOT50, UnitTTFT50, UnitCost}
}

// HigherIsBetter says in which direction a unit improves.
func HigherIsBetter(unit string) bool {
	return slices.Contains([]string{UnitThroughput, UnitAchieved, UnitGoodput, UnitSLOShare, UnitSaturation, UnitBracket}, unit)
}

// Percentile returns 100 times the percentile of sorted, linearly
// interpolated between closest ranks (numpy's default; definition 7 of
// Hyndman and Fan, 1996): exact, since it stays an integer. percent is 0 to
// 100. ok is false for an empty slice, which has no percentile. Values must
// stay below 2^63/100, which for ns is almost three years.
func Percentile(sorted []int64, percent int) (hundredths int64, ok bool) {
	if len(sorted) == 0 {
		return 0, false
	}
	rank := int64(percent) * int64(len(sorted)-1)
	low, part := rank/100, rank%100
	hundredths = sorted[low] * 100
	if part != 0 {
		hundredths += (sorted[low+1] - sorted[low]) * part
	}
	return hundredths, true
}

// PercentileFloat is Percentile for values that are no integers.
func PercentileFloat(sorted []float64, percent int) (value float64, ok bool) {
	if len(sorted) == 0 {
		return 0, false
	}
	rank := percent * (len(sorted) - 1)
	low, part := rank/100, rank%100
	value = sorted[low]
	if part != 0 {
		step := float64((sorted[low+1] - sorted[low]) * float64(part))
		value += float64(step / 100)
	}
	return value, true
}

// FirstTokenNS is the arrival of the first event that carries a generated
// token of any kind, and LastTokenNS that of the last; ok is false if none
// does.
func (r *Request) FirstTokenNS() (ns int64, ok bool) {
	for i := range min(len(r.EventKinds), len(r.EventNS)) {
		if carriesToken(r.EventKinds[i]) {
			return r.EventNS[i], true
		}
	}
	return 0, false
}

// LastTokenNS: see FirstTokenNS.
func (r *Request) LastTokenNS() (ns int64, ok bool) {
	for i := min(len(r.EventKinds), len(r.EventNS)) - 1; i >= 0; i-- {
		if carriesToken(r.EventKinds[i]) {
			return r.EventNS[i], true
		}
	}
	return 0, false
}

func carriesToken(kind byte) bool {
	return kind == EventContent || kind == EventReasoning || kind == EventTool
}

// FirstAnswerNS is the arrival of the first event that carries a token of the
// answer or of a tool call, not of the reasoning before it.
func (r *Request) FirstAnswerNS() (ns int64, ok bool) {
	for i := range min(len(r.EventKinds), len(r.EventNS)) {
		if carriesToken(r.EventKinds[i]) && r.EventKinds[i] != EventReasoning {
			return r.EventNS[i], true
		}
	}
	return 0, false
}

// Tokens is the number of generated tokens: ids where the server gives them,
// else its own count; known is false where it gives neither.
func (r *Request) Tokens() (n int, known bool) {
	switch {
	case r.EventIDs != nil:
		return len(r.TokenIDs), true
	case r.Usage != nil:
		return r.Usage.CompletionTokens, true
	}
	return 0, false
}

// TTFT is start to first token's arrival in ns.
func (r *Request) TTFT() (ns int64, ok bool) {
	first, ok := r.FirstTokenNS()
	return first - r.StartNS, ok
}

// E2E is start to last token's arrival in ns.
func (r *Request) E2E() (ns int64, ok bool) {
	last, ok := r.LastTokenNS()
	return last - r.StartNS, ok
}

// TPOT is (last - first token's arrival)/(tokens - 1) in ns, undefined below
// two tokens.
func (r *Request) TPOT() (ns float64, ok bool) {
	n, known := r.Tokens()
	if !known || n < 2 {
		return 0, false
	}
	first, ok := r.FirstTokenNS()
	if !ok {
		return 0, false
	}
	last, _ := r.LastTokenNS()
	return float64(last-first) / float64(n-1), true
}

// Summary gathers what a configuration's closing record says. The zero value
// is ready, for a run's own server; for a Target set Foreign first,
// for an open loop Open. Add each request, AddServed each request with its server's record,
// AddMemory each memory record, all in any order, then Fill and Metrics. It
// keeps no reference to any of them. Failed requests and warmups are told from
// the measured ones here, in one place.
type Summary struct {
	Foreign *Plan // of the configuration if the server is a Target, else nil
	Open    *Plan // of the configuration if it is an open loop, else nil

	Measured     int   // requests, failed ones too
	Failed       int   // of the measured
	WarmupFailed int   //
	Tokens       int64 // of measured requests that didn't fail
	BeginNS      int64 // first measured start
	EndNS        int64 // last measured end

	counted   Spans // of measured requests that didn't fail
	excluded  Spans // of all others
	sampled   Sampled
	ttft, e2e []int64
	tpot      []float64
	gaps      []int64 // for a Target
	answer    []int64
	reasoned  bool // some request has reasoning
	prompt    int64
	cached    int64
	open      open
	queue     []int64
	unknown   int   // measured and not failed, yet of unknown length
	firstNS   int64 // sample
	lastNS    int64 // sample
}

// counts says whether a request enters the metrics.
func (r *Request) counts() bool { return r.Phase == PhaseMeasured && r.Failure == nil }

func (s *Summary) spans(r *Request) *Spans {
	if r.counts() {
		return &s.counted
	}
	return &s.excluded
}

// Add takes a finished request.
func (s *Summary) Add(r *Request) {
	s.addSpans(r)
	if s.Open != nil {
		s.addOpen(r)
	}
	if r.Phase != PhaseMeasured {
		if r.Failure != nil && r.Phase == PhaseWarmup {
			s.WarmupFailed++
		}
		return
	}
	begin := r.StartNS
	if s.Open != nil {
		begin = r.ScheduledNS
	}
	if s.Measured == 0 || begin < s.BeginNS {
		s.BeginNS = begin
	}
	s.EndNS = max(s.EndNS, r.EndNS)
	s.Measured++
	if r.Failure != nil {
		s.Failed++
		return
	}
	n, known := r.Tokens()
	s.Tokens += int64(n)
	if !known {
		s.unknown++
	}
	if ns, ok := r.TTFT(); ok {
		s.ttft = append(s.ttft, ns)
	}
	if ns, ok := r.E2E(); ok {
		s.e2e = append(s.e2e, ns)
	}
	if ns, ok := r.TPOT(); ok {
		s.tpot = append(s.tpot, ns)
	}
	if s.Foreign != nil {
		s.addForeign(r)
	}
}

func (s *Summary) addForeign(r *Request) {
	last := int64(0)
	for i := range min(len(r.EventKinds), len(r.EventNS)) {
		if !carriesToken(r.EventKinds[i]) {
			continue
		}
		if last > 0 {
			s.gaps = append(s.gaps, r.EventNS[i]-last)
		}
		last = r.EventNS[i]
		s.reasoned = s.reasoned || r.EventKinds[i] == EventReasoning
	}
	if ns, ok := r.FirstAnswerNS(); ok {
		s.answer = append(s.answer, ns-r.StartNS)
	}
	if r.Usage != nil {
		s.prompt += int64(r.Usage.PromptTokens)
		if r.Usage.CachedTokens != nil {
			s.cached += int64(*r.Usage.CachedTokens)
		}
	}
}

// between is b - a, or 0 if one of the two moments never came.
func between(a, b int64) int64 {
	if a == 0 || b == 0 {
		return 0
	}
	return b - a
}

func (s *Summary) addSpans(r *Request) {
	sum := s.spans(r)
	sum.Requests++
	sum.DelayNS += between(r.ScheduledNS, r.StartNS)
	sum.WaitNS += between(r.ScheduledNS, r.AdmittedNS)
	sum.ConnectNS += between(r.StartNS, r.ConnectedNS)
	sum.SendNS += between(r.ConnectedNS, r.SentNS)
	sum.HeadersNS += between(r.StartNS, r.HeadersNS)
	for _, ns := range r.EventNS {
		sum.EventsNS += ns - r.StartNS
	}
	sum.EndNS += between(r.StartNS, r.EndNS)
}

// AddServed takes what the server logged of r.
func (s *Summary) AddServed(r *Request, served *Served) {
	sum := s.spans(r)
	sum.Served++
	sum.ArriveNS += between(r.StartNS, served.ArrivalNS)
	sum.ReadNS += between(served.ArrivalNS, served.QueuedNS)
	sum.QueueNS += between(served.QueuedNS, served.SlotNS)
	sum.SlotNS += between(served.SlotNS, served.ReleaseNS)
	token := 0
	for i, n := range r.EventIDs {
		for range n {
			if token == len(served.TokenNS) || i >= len(r.EventNS) {
				break
			}
			sum.DeliveryNS += r.EventNS[i] - served.TokenNS[token]
			token++
		}
	}
	sum.Tokens += int64(token)
	if r.counts() && served.QueuedNS > 0 && served.SlotNS > 0 {
		s.queue = append(s.queue, served.SlotNS-served.QueuedNS)
	}
}

// AddMemory takes samples of the resident set; they come in the order of
// their time.
func (s *Summary) AddMemory(m *Memory) {
	sum := &s.sampled
	for i, ns := range m.TimeNS[:min(len(m.TimeNS), len(m.RSSBytes))] {
		if sum.Samples == 0 {
			s.firstNS = ns
		} else {
			sum.GapNS = max(sum.GapNS, ns-s.lastNS)
		}
		s.lastNS = ns
		sum.Samples++
		sum.MaxBytes = max(sum.MaxBytes, m.RSSBytes[i])
		sum.SumBytes += m.RSSBytes[i]
	}
}

// Fill sets every field of c that follows from the records of the
// configuration, but for its metrics. The others (Config, Passes, the peak,
// Valid and Reasons) are the caller's.
func (s *Summary) Fill(plan *Plan, c *Configuration) {
	c.Measured, c.Failed, c.WarmupFailed = s.Measured, s.Failed, s.WarmupFailed
	c.Tokens, c.BeginNS, c.EndNS = s.Tokens, s.BeginNS, s.EndNS
	c.LeadNS = between(plan.PlannedNS, s.BeginNS)
	c.Spans, c.Excluded, c.Sampled = s.counted, s.excluded, s.sampled
	c.PromptTokens, c.CachedTokens = s.prompt, s.cached
	c.Open = nil
	if s.Open != nil {
		total := s.open.finish()
		c.Open = &total
	}
	if s.sampled.Samples > 0 {
		c.Sampled.GapNS = max(s.sampled.GapNS, s.firstNS-plan.PlannedNS, s.EndNS-s.lastNS)
	}
}

// QueueP50NS is the median of the time that measured requests waited for the
// slot, by the server's log, in ns; ok is false where there is none.
func (s *Summary) QueueP50NS() (ns int64, ok bool) {
	slices.Sort(s.queue)
	hundredths, ok := Percentile(s.queue, 50)
	return hundredths / 100, ok
}

// CachedPercent is the share of a Target's prompts that a cache answered, by
// its own count; 0 where it doesn't say.
func (s *Summary) CachedPercent() float64 {
	if s.prompt == 0 {
		return 0
	}
	return float64(s.cached*100) / float64(s.prompt)
}

// Metrics returns the numbers of a configuration in the order of their
// units. peakBytes is 0 where memory isn't claimed, hourlyUSD where no price
// is assumed. An undefined metric is absent.
func (s *Summary) Metrics(peakBytes int64, hourlyUSD float64) []Metric {
	var out []Metric
	add := func(unit string, value float64, ok bool) {
		if ok && !math.IsInf(value, 0) && !math.IsNaN(value) {
			out = append(out, Metric{unit, value})
		}
	}
	slices.Sort(s.ttft)
	slices.Sort(s.e2e)
	slices.Sort(s.tpot)
	duration := s.EndNS - s.BeginNS
	counted := s.unknown == 0 && s.Tokens > 0 && duration > 0

	if s.Foreign != nil {
		slices.Sort(s.gaps)
		slices.Sort(s.answer)
		h, ok := Percentile(s.answer, 50)
		add(UnitAnswer50, float64(h)/1e11, ok && s.reasoned)
		h, ok = Percentile(s.gaps, 50)
		add(UnitGap50, float64(h)/1e8, ok)
	}
	ttft, e2e := s.ttft, s.e2e
	h, ok := Percentile(e2e, 95)
	if s.Open != nil {
		add(UnitFailed, float64(s.Failed), s.Open.MaxFailed > 0)
		add(UnitE2ESent95, float64(h)/1e11, ok)
		h, ok = Percentile(ttft, 50)
		add(UnitTTFTSent50, float64(h)/1e11, ok)
		h, ok = Percentile(ttft, 95)
		add(UnitTTFTSent95, float64(h)/1e11, ok)
		s.open.metrics(add, s.Open, s.EndNS, s.unknown > 0)
		ttft, e2e = s.open.ttft, s.open.e2e
		h, ok = Percentile(e2e, 95)
	} else if s.Foreign != nil {
		add(UnitFailed, float64(s.Failed), s.Foreign.MaxFailed > 0)
	}
	add(UnitE2E95, float64(h)/1e11, ok)
	add(UnitPeak, float64(peakBytes), peakBytes > 0)
	add(UnitThroughput, float64(s.Tokens*1e9)/float64(duration), counted)
	tpot, ok := PercentileFloat(s.tpot, 50)
	add(UnitTPOT50, tpot/1e6, ok && s.unknown == 0)
	h, ok = Percentile(ttft, 50)
	add(UnitTTFT50, float64(h)/1e11, ok)
	price := float64(hourlyUSD * float64(duration))
	add(UnitCost, price/float64(s.Tokens*3_600_000), counted && hourlyUSD > 0)
	slices.SortStableFunc(out, func(a, b Metric) int { return strings.Compare(a.Unit, b.Unit) })
	return out
}
