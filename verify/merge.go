package verify

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"
)

// Where one generator isn't enough, several share a rate, each in a process,
// often on a machine, of its own. Each leaves its own file. Merge judges them
// together.
//
// Machines' clocks aren't the same, and nothing here needs them to be: each
// latency is taken on one machine, from when that machine's own plan said that
// the request was due; percentiles are over all of these latencies. Rates are
// those of each generator, added up. What is under way at once is told for each
// generator and never for all, for that would take a common clock. Wall clocks
// serve for one thing alone: to see that the generators ran at the same time.
// What they say is shown as an offset that each machine declares.

// Part is one generator's file.
type Part struct {
	Name   string // of the file; stands in problems
	Report *Report
}

// Merged is what Merge found.
type Merged struct {
	Verdict  Verdict
	Problems []*Problem // of the files, or why they aren't those of one load
	Warnings []string
	Missing  string // what incomplete evidence lacks
	Results  []MergedResult
}

// MergedResult is one configuration of all generators.
type MergedResult struct {
	Plan       Plan // of the first generator, without its share and seed
	Generators []Generator
	Measured   int // requests, failed ones too
	Failed     int
	Tokens     int64
	OverlapNS  int64    // for so long all generators were at work, by the clocks of their machines
	LongestNS  int64    // of any generator's work
	Metrics    []Metric // none if a generator's configuration is invalid
	Reasons    []string // why it is invalid, by generator
}

// Generator is one generator's part in a configuration.
type Generator struct {
	Name          string // of the file
	Share         string
	Seed          int64
	OffsetNS      int64 // of its schedule's beginning to the first generator's, as their wall clocks have it
	Configuration *Configuration
}

// leastOverlap is the part of the longest generator's time, in percent, during
// which all of them have to be at work; below fullOverlap there is a warning.
const (
	leastOverlap = 50
	fullOverlap  = 90
)

// Err is the first problem, or what is missing, or nil.
func (m *Merged) Err() error {
	return (&Report{Verdict: m.Verdict, Problems: m.Problems, Missing: m.Missing}).Err()
}

// Valid returns the number of configurations that have metrics.
func (m *Merged) Valid() (n int) {
	for i := range m.Results {
		if len(m.Results[i].Reasons) == 0 {
			n++
		}
	}
	return n
}

// Merge judges the files of all generators of one load, in any order. They
// must be of one plan but for the share and the seed, have every share once and
// no seed twice, and have run at the same time.
//
// The metrics of a merged configuration are those of a single one, but for
// inflight-max, rss-peak-B and usd/Mtok, which it doesn't have, and the rates
// (tok/s, offered-req/s, achieved-req/s, goodput-req/s), which are sums of the
// generators' own.
func Merge(parts ...Part) *Merged {
	m := &Merged{}
	for _, part := range parts {
		m.Problems = append(m.Problems, part.Report.Problems...)
		if part.Report.Verdict == Incomplete && m.Missing == "" {
			m.Missing = part.Name + ": " + part.Report.Missing
		}
	}
	if len(m.Problems) == 0 && m.Missing == "" && m.sameRun(parts) {
		for i := range parts[0].Report.Results {
			m.merge(parts, i)
		}
	}
	switch {
	case len(m.Problems) > 0:
		m.Verdict = Inconsistent
	case m.Missing != "":
		m.Verdict = Incomplete
	}
	return m
}

func (m *Merged) problem(part Part, where, format string, args ...any) {
	m.Problems = append(m.Problems, &Problem{part.Name, 0, where, fmt.Sprintf(format, args...)})
}

// sameRun holds what all files have in common against that of the first.
func (m *Merged) sameRun(parts []Part) bool {
	if len(parts) < 2 {
		for _, part := range parts {
			m.problem(part, "", "one file alone: there is nothing to merge")
		}
		return false
	}
	first := parts[0]
	runs := map[string]string{}
	for _, part := range parts {
		r := part.Report
		if before := runs[r.Header.Run]; before != "" {
			m.problem(part, "header", "run %s is that of %s, too", r.Header.Run, before)
		}
		runs[r.Header.Run] = part.Name
		if len(r.Saturations) > 0 {
			m.problem(part, "", "%s can't be merged: each of its probes follows from those before it in the same process", r.Saturations[0].Name)
		}
		if r.Header.Target == nil {
			m.problem(part, "header", "no target: generators share a server that none of them started")
		}
		if len(m.Problems) > 0 {
			continue
		}
		if text := r.Header.Target.differs(first.Report.Header.Target, first.Name); text != "" {
			m.problem(part, "header", "target: %s", text)
		}
		if r.Corpus.SHA256 != first.Report.Corpus.SHA256 {
			m.problem(part, "corpus", "sha256 %q isn't that of %s, %q", r.Corpus.SHA256, first.Name, first.Report.Corpus.SHA256)
		}
		if have, want := len(r.Results), len(first.Report.Results); have != want {
			m.problem(part, "", "%d configurations, but %s has %d", have, first.Name, want)
		}
		if r.Header.Revision != first.Report.Header.Revision || r.Header.Go != first.Report.Header.Go {
			m.Warnings = append(m.Warnings, fmt.Sprintf("%s is of revision %q with %s, %s of %q with %s", part.Name, r.Header.Revision, r.Header.Go, first.Name, first.Report.Header.Revision, first.Report.Header.Go))
		}
	}
	return len(m.Problems) == 0
}

// differs says in which field the target of a file of that name isn't the same.
// Each generator has salts of its own.
func (t *Target) differs(first *Target, name string) string {
	a, b := *t, *first
	if a.SaltSeed > 0 && b.SaltSeed > 0 {
		a.SaltSeed, b.SaltSeed = 0, 0
	}
	return differing(a, b, name)
}

// differing says in which field, as JSON has it, a isn't b, which is of the
// file of that name.
func differing[T any](a, b T, name string) string {
	x, y := reflect.ValueOf(a), reflect.ValueOf(b)
	for i := range x.NumField() {
		have, want := x.Field(i).Interface(), y.Field(i).Interface()
		if reflect.DeepEqual(have, want) {
			continue
		}
		field, _, _ := strings.Cut(x.Type().Field(i).Tag.Get("json"), ",")
		if kind := x.Field(i).Kind(); kind == reflect.Slice || kind == reflect.Pointer {
			return fmt.Sprintf("%s isn't that of %s", field, name)
		}
		return fmt.Sprintf("%s %#v, but %s has %#v", field, have, name, want)
	}
	return ""
}

// common returns what the plans of all generators of one load have in common.
// How many requests may fail follows from how many a generator has, and so may
// the number of prompts that it takes from the corpus.
func (plan *Plan) common() Plan {
	p := *plan
	p.Server, p.PlannedNS, p.MaxFailed, p.Prompts = 0, 0, 0, nil
	p.Load.Share, p.Load.Seed = "", 0
	return p
}

// merge judges configuration i of all files.
func (m *Merged) merge(parts []Part, i int) {
	before := len(m.Problems)
	first := &parts[0].Report.Results[i]
	where := fmt.Sprintf("configuration %d", i+1)
	shares, seeds := map[int]string{}, map[int64]string{}
	generators := 0
	for _, part := range parts {
		plan := &part.Report.Results[i].Plan
		if plan.Load.Share == "" {
			m.problem(part, where, "%s has no share: it isn't of one of several generators", plan.Name)
			continue
		}
		k, n, _ := plan.Load.share()
		if generators == 0 {
			generators = n
		}
		if n != generators {
			m.problem(part, where, "share %s, but %s has %s", plan.Load.Share, parts[0].Name, first.Plan.Load.Share)
		} else if other := shares[k]; other != "" {
			m.problem(part, where, "share %s is that of %s, too", plan.Load.Share, other)
		}
		shares[k] = part.Name
		if other := seeds[plan.Load.Seed]; other != "" {
			m.problem(part, where, "seed %d is that of %s, too: generators with one seed aren't independent of each other", plan.Load.Seed, other)
		}
		seeds[plan.Load.Seed] = part.Name
		a, b := plan.common(), first.Plan.common()
		if text := differing(a.Load, b.Load, parts[0].Name); text != "" {
			m.problem(part, where, "load: %s", text)
		}
		a.Load, b.Load = Load{}, Load{}
		if text := differing(a, b, parts[0].Name); text != "" {
			m.problem(part, where, "plan: %s", text)
		}
		if fewer := min(len(plan.Prompts), len(first.Plan.Prompts)); !slices.Equal(plan.Prompts[:fewer], first.Plan.Prompts[:fewer]) {
			m.problem(part, where, "plan: prompts aren't those of %s", parts[0].Name)
		}
	}
	for k := 1; k <= generators && len(m.Problems) == before; k++ {
		if shares[k] == "" {
			m.problem(Part{}, where, "share %d/%d is missing: all generators have to be named", k, generators)
		}
	}
	if len(m.Problems) > before {
		return
	}
	parts = slices.Clone(parts)
	slices.SortFunc(parts, func(a, b Part) int {
		x, _, _ := a.Report.Results[i].Plan.Load.share()
		y, _, _ := b.Report.Results[i].Plan.Load.share()
		return x - y
	})
	r := MergedResult{Plan: parts[0].Report.Results[i].Plan}
	r.Plan.Load.Share, r.Plan.Load.Seed = "", 0
	if !m.together(&r, parts, i, where) {
		return
	}
	r.sum(parts, i)
	m.Results = append(m.Results, r)
	if r.Plan.Load.Arrival == ArrivalGamma {
		m.Warnings = append(m.Warnings, fmt.Sprintf("%s, %s: the arrivals of %d generators together are nearer to a Poisson process than burstiness %s says of each", where, r.Plan.Name, len(parts), r.Plan.Load.Burstiness))
	}
	for _, part := range parts {
		for _, doubt := range part.Report.Results[i].Strain {
			m.Warnings = append(m.Warnings, part.Name+": "+doubt)
		}
	}
	if len(r.Reasons) == 0 {
		for _, doubt := range belowFloor(r.Measured - r.Failed) {
			m.Warnings = append(m.Warnings, fmt.Sprintf("%s, %s: %s", where, r.Plan.Name, doubt))
		}
	}
}

// together lists the generators and sees that they were at work at the same
// time, by the wall clocks of their machines: an offset of these is taken for
// one of the work.
func (m *Merged) together(r *MergedResult, parts []Part, i int, where string) bool {
	var base, begin, end time.Time // begin and end of the time that all have in common
	for k, part := range parts {
		report := part.Report
		c, plan := report.Results[i].Configuration, &report.Results[i].Plan
		ended, _ := time.Parse(time.RFC3339Nano, report.Trailer.Ended) // it was checked
		fromNS, toNS := plan.Load.work(c)
		from := ended.Add(time.Duration(fromNS - report.Trailer.EndNS))
		to := ended.Add(time.Duration(toNS - report.Trailer.EndNS))
		if k == 0 {
			base, begin, end = from, from, to
		}
		if from.After(begin) {
			begin = from
		}
		if to.Before(end) {
			end = to
		}
		r.LongestNS = max(r.LongestNS, toNS-fromNS)
		r.Generators = append(r.Generators, Generator{part.Name, plan.Load.Share, plan.Load.Seed, int64(from.Sub(base)), c})
	}
	r.OverlapNS = max(0, int64(end.Sub(begin)))
	switch percent := float64(r.OverlapNS) * 100 / float64(max(r.LongestNS, 1)); {
	case percent < leastOverlap:
		m.problem(Part{}, where, "all generators were at work for %v at the same time, by their wall clocks, and the longest for %v: less than %d %% isn't one load. Start them together, and set the clocks of their machines", time.Duration(r.OverlapNS), time.Duration(r.LongestNS), leastOverlap)
		return false
	case percent < fullOverlap:
		m.Warnings = append(m.Warnings, fmt.Sprintf("%s, %s: all generators were at work for %.0f %% of the time of the longest", where, r.Plan.Name, percent))
	}
	return true
}

// work returns when a generator was at work: from the beginning of its first
// schedule, which is before the first request, to the last end or to the end of
// its schedule, if that is later.
func (l *Load) work(c *Configuration) (fromNS, toNS int64) {
	due, _ := l.PassSchedule(0) // it was checked
	fromNS = c.Open.FirstDueNS
	if i := slices.IndexFunc(due, func(ns int64) bool { return l.PhaseAt(ns) == PhaseMeasured }); i >= 0 {
		fromNS -= due[i]
	}
	length := l.DurationNS
	for _, step := range l.Steps {
		length += step.DurationNS
	}
	return fromNS, max(c.EndNS, fromNS+length)
}

// sum computes what all generators come to.
func (r *MergedResult) sum(parts []Part, i int) {
	plan := r.Plan
	total := &Summary{Open: &plan, Foreign: &plan}
	plan.MaxFailed = 0
	rates := map[string]float64{}
	have := map[string]int{} // generators that have a rate
	for k, part := range parts {
		result := &part.Report.Results[i]
		plan.MaxFailed += result.Plan.MaxFailed
		total.addSummary(result.samples)
		for _, reason := range result.Configuration.Reasons {
			r.Reasons = append(r.Reasons, fmt.Sprintf("%s: %s", r.Generators[k].Share, reason))
		}
		for _, metric := range result.Configuration.Metrics {
			if isRate(metric.Unit) {
				rates[metric.Unit] += metric.Value
				have[metric.Unit]++
			}
		}
	}
	r.Plan.MaxFailed = plan.MaxFailed
	r.Measured, r.Failed, r.Tokens = total.Measured, total.Failed, total.Tokens
	if len(r.Reasons) > 0 {
		return
	}
	for _, metric := range total.Metrics(0, 0) {
		if !isRate(metric.Unit) && metric.Unit != UnitInflight {
			r.Metrics = append(r.Metrics, metric)
		}
	}
	for unit, value := range rates {
		if have[unit] == len(parts) {
			r.Metrics = append(r.Metrics, Metric{unit, value})
		}
	}
	slices.SortFunc(r.Metrics, func(a, b Metric) int { return strings.Compare(a.Unit, b.Unit) })
}

func isRate(unit string) bool {
	return slices.Contains([]string{UnitThroughput, UnitOffered, UnitAchieved, UnitGoodput}, unit)
}

// addSummary adds the samples of another generator: all that isn't a moment on
// its clock.
func (s *Summary) addSummary(o *Summary) {
	s.Measured += o.Measured
	s.Failed += o.Failed
	s.WarmupFailed += o.WarmupFailed
	s.Tokens += o.Tokens
	s.ttft = append(s.ttft, o.ttft...)
	s.e2e = append(s.e2e, o.e2e...)
	s.tpot = append(s.tpot, o.tpot...)
	s.gaps = append(s.gaps, o.gaps...)
	s.answer = append(s.answer, o.answer...)
	s.reasoned = s.reasoned || o.reasoned
	s.prompt += o.prompt
	s.cached += o.cached
	s.unknown += o.unknown
	s.open.ttft = append(s.open.ttft, o.open.ttft...)
	s.open.e2e = append(s.open.e2e, o.open.e2e...)
	s.open.lags = append(s.open.lags, o.open.lags...)
	s.open.Due += o.open.Due
	s.open.Sent += o.open.Sent
	s.open.Refused += o.open.Refused
	s.open.Unsent += o.open.Unsent
	s.open.WaitNS += o.open.WaitNS
	s.open.Waited += o.open.Waited
	s.open.Good += o.open.Good
}
