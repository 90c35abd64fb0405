package verify

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"math"
	"reflect"
	"slices"
	"strconv"
	"strings"
)

// The highest rate at which a server still holds an SLO is searched for. Each
// rate that is tried is a configuration of its own, a probe, with all its
// requests in the evidence; which rate comes next follows from the first and
// from which of them held. So whoever has the file makes the search again.

// Saturation closes a search: the probes before it are its own. It has the one
// printed line. What follows from the probes, Fill sets.
type Saturation struct {
	Kind       string   `json:"kind"`
	Name       string   `json:"name"`       // of the benchmark, without the GOMAXPROCS suffix
	Axes       []Axis   `json:"axes"`       // in the order of the name
	Repetition int      `json:"repetition"` // of this name and GOMAXPROCS in this file, from 1
	GOMAXPROCS int      `json:"gomaxprocs"` // of the measuring process
	Passes     int      `json:"passes"`     // iterations of the benchmark; the first has the whole search
	Probes     []int    `json:"probes"`     // their configurations, in the order of the search
	Seed       int64    `json:"seed"`       // from which ProbeSeed has that of each probe
	Share      int      `json:"share"`      // percent of a probe's measured requests that must be good for its rate to hold
	Low        string   `json:"low"`        // highest probed rate that held, "" for none
	High       string   `json:"high"`       // lowest probed rate that did not, "" for none
	Metrics    []Metric `json:"metrics"`    // none if invalid
	Valid      bool     `json:"valid"`      //
	Reasons    []string `json:"reasons"`    // why it isn't valid
}

// Units of a saturation.
const (
	UnitSaturation = "saturation-req/s" // highest probed rate that held
	UnitBracket    = "bracket-req/s"    // lowest probed rate that did not
	UnitProbes     = "probes"           // rates that were tried
)

// SaturationUnits returns the units of a saturation's line.
func SaturationUnits() []string {
	return []string{UnitBracket, UnitGoodput, UnitProbes, UnitSaturation}
}

// Limits of a search.
const (
	MaxProbes     = 20 // rates that are tried
	bracketWithin = 1.1
	leastRate     = 1e-6
	mostRate      = 1e6
)

// Search is the search for the highest rate that holds: from Start the rate
// is doubled until one doesn't hold, or halved until one does. Then the
// geometric mean of the two is tried, until the higher is at most 1.1 times
// the lower. After MaxProbes it ends in any case.
type Search struct {
	Start     string // a decimal number, requests a second
	Low, High string // highest rate that held, lowest that didn't; "" if there is none so far
	Probes    int
}

// Next returns the rate to try next; more is false when the search is over.
// Rates but the first have four significant digits.
func (s *Search) Next() (rate string, more bool) {
	low, _ := strconv.ParseFloat(s.Low, 64)
	high, _ := strconv.ParseFloat(s.High, 64)
	next := 0.0
	switch {
	case s.Probes == 0:
		return s.Start, s.Start != ""
	case s.Probes >= MaxProbes:
		return "", false
	case s.High == "":
		next = 2 * low
	case s.Low == "":
		next = high / 2
	case high <= float64(bracketWithin*low):
		return "", false
	default:
		next = math.Sqrt(float64(low * high))
	}
	rate = rateText(next)
	return rate, rate != ""
}

// Add takes the outcome of the rate that Next returned.
func (s *Search) Add(rate string, held bool) {
	s.Probes++
	if held {
		s.Low = rate
	} else {
		s.High = rate
	}
}

// rateText is a rate with four significant digits as an axis has it, "" for
// one that no axis can have.
func rateText(v float64) string {
	v, err := strconv.ParseFloat(strconv.FormatFloat(v, 'g', 4, 64), 64)
	if err != nil || !(v >= leastRate && v <= mostRate) {
		return ""
	}
	return strconv.FormatFloat(v, 'f', -1, 64)
}

// StartRate is where a search starts that nobody gave a rate: half of what one
// client got in a closed loop, by its closing record. "" if that says nothing.
func StartRate(c *Configuration) string {
	if c.Measured == 0 || c.EndNS <= c.BeginNS {
		return ""
	}
	return rateText(float64(int64(c.Measured)*1e9) / float64(2*(c.EndNS-c.BeginNS)))
}

// ProbeSeed is the seed of a probe's arrivals, of 53 bits: each has a schedule
// of its own, so that no accident of one decides them all.
func ProbeSeed(seed int64, probe int) int64 {
	sum := sha256.Sum256(fmt.Appendf(nil, "probe %d %d", seed, probe))
	return int64(binary.BigEndian.Uint64(sum[:]) >> 11)
}

// Holds says whether at least so many percent of an open loop's measured
// requests were good.
func (o *Open) Holds(percent int) bool {
	return o.Due > 0 && int64(o.Good)*100 >= int64(o.Due)*int64(percent)
}

// Fill sets Probes, Low and High from the probes, and the metrics if it is
// valid.
func (s *Saturation) Fill(probes []Result) {
	s.Probes, s.Metrics = []int{}, []Metric{}
	var search Search
	goodput := map[string]float64{}
	for i := range probes {
		plan, c := &probes[i].Plan, probes[i].Configuration
		s.Probes = append(s.Probes, plan.Config)
		if plan.Load.Kind != LoadOpen || c == nil || !c.Valid || c.Open == nil {
			continue
		}
		search.Add(plan.Load.Rate, c.Open.Holds(s.Share))
		for _, m := range c.Metrics {
			if m.Unit == UnitGoodput {
				goodput[plan.Load.Rate] = m.Value
			}
		}
	}
	s.Low, s.High = search.Low, search.High
	if !s.Valid {
		return
	}
	add := func(unit, rate string) {
		if v, err := strconv.ParseFloat(rate, 64); err == nil {
			s.Metrics = append(s.Metrics, Metric{unit, v})
		}
	}
	add(UnitBracket, s.High)
	if v, ok := goodput[s.Low]; ok {
		s.Metrics = append(s.Metrics, Metric{UnitGoodput, v})
	}
	s.Metrics = append(s.Metrics, Metric{UnitProbes, float64(search.Probes)})
	add(UnitSaturation, s.Low)
}

// probeOf returns the name of the benchmark that a probe belongs to: its own
// without the last axis.
func (plan *Plan) probeOf() string {
	return plan.Name[:max(0, strings.LastIndexByte(plan.Name, '/'))]
}

// planProbe checks a plan's place in a search, if it has one.
func (p *replay) planProbe(where string, plan *Plan) {
	if plan.Probe == 0 {
		if len(p.probes) > 0 {
			p.stop(where, "it stands in the search %s, which isn't closed", p.probes[0].Plan.probeOf())
		}
		return
	}
	if want := len(p.probes) + 1; plan.Probe != want {
		p.problem(where, "probe %d, want %d", plan.Probe, want)
		return
	}
	l := &plan.Load
	if len(plan.Axes) > 0 {
		last := plan.Axes[len(plan.Axes)-1]
		if want := map[string]string{LoadClosed: "conc", LoadOpen: "rate"}[l.Kind]; last.Key != want {
			p.problem(where, "a probe of a load %q with the last axis %s, want %s", l.Kind, last.Key, want)
		}
	}
	if l.Kind == LoadClosed {
		if l.Conc != 1 || plan.Probe > 1 || plan.MaxFailed != 0 {
			p.problem(where, "probe %d is a closed loop with conc %d and max_failed %d, want 1 and 0, and only the first to be one", plan.Probe, l.Conc, plan.MaxFailed)
		}
		return
	}
	if len(l.SLO) == 0 || l.Rate == "" || l.Share != "" {
		p.problem(where, "a probe with rate %q, share %q and %d bounds of an slo, want a rate, no share and at least one bound", l.Rate, l.Share, len(l.SLO))
	}
	if due, err := l.Schedule(); err == nil && plan.MaxFailed != len(due) {
		p.problem(where, "max_failed %d of a probe, want all of the %d that are due: each is a miss", plan.MaxFailed, len(due))
	}
	if len(p.probes) == 0 {
		return
	}
	before := p.probes[len(p.probes)-1].Plan
	alike := *plan
	alike.Config, alike.Name, alike.Axes, alike.Repetition, alike.Probe = before.Config, before.Name, before.Axes, before.Repetition, before.Probe
	alike.Prompts, alike.Warmups, alike.PerPass = before.Prompts, before.Warmups, before.PerPass // as many as there are requests, and of the axis input
	alike.MaxFailed, alike.PlannedNS = before.MaxFailed, before.PlannedNS
	alike.Load.Rate, alike.Load.Seed = before.Load.Rate, before.Load.Seed
	if before.Load.Kind == LoadClosed {
		alike.Load = before.Load
	}
	if plan.probeOf() != before.probeOf() || !reflect.DeepEqual(alike, before) {
		p.problem(where, "it differs from probe %d in more than its rate and its seed", before.Probe)
	}
}

// saturation checks the record that closes a search.
func (p *replay) saturation(s *Saturation) {
	where := "saturation " + s.Name
	switch {
	case p.cell != nil:
		p.stop(where, "it stands within configuration %d", p.cell.plan.Config)
		return
	case len(p.probes) == 0:
		p.stop(where, "it stands after no probe")
		return
	}
	probes := p.probes
	p.probes = nil
	p.report.Saturations = append(p.report.Saturations, *s)
	first := &probes[0].Plan
	if s.Name != first.probeOf() || s.GOMAXPROCS != first.GOMAXPROCS || !slices.Equal(s.Axes, first.Axes[:max(0, len(first.Axes)-1)]) {
		p.problem(where, "axes %v and gomaxprocs %d, but its probes are %s with %d", s.Axes, s.GOMAXPROCS, first.probeOf(), first.GOMAXPROCS)
	}
	key := s.printedName()
	if p.repeats[key]++; s.Repetition != p.repeats[key] {
		p.problem(where, "repetition %d of %s, want %d", s.Repetition, key, p.repeats[key])
	}
	if s.Share < 1 || s.Share > 100 || s.Seed < 0 || s.Passes < 0 || s.Valid && s.Passes < 1 {
		p.problem(where, "share %d, seed %d, passes %d, want 1 to 100, 0 or more, at least 1", s.Share, s.Seed, s.Passes)
		return
	}
	if s.Valid != (len(s.Reasons) == 0) || slices.Contains(s.Reasons, "") {
		p.problem(where, "valid is %t with the reasons %q, want none or at least one that says why", s.Valid, s.Reasons)
		return
	}
	if p.checkSearch(where, s, probes) {
		p.checkFilled(where, s, probes)
	}
}

// checkSearch makes the search again.
func (p *replay) checkSearch(where string, s *Saturation, probes []Result) (ok bool) {
	search := &Search{Start: probes[0].Plan.Load.Rate}
	for i := range probes {
		plan, c := &probes[i].Plan, probes[i].Configuration
		if c == nil || c.Passes > 1 || c.Passes < 1 && c.Valid {
			p.problem(where, "probe %d is of more than one pass, or of none", plan.Probe)
			return false
		}
		if !c.Valid && (s.Valid || i < len(probes)-1) {
			p.problem(where, "probe %d, configuration %d, is invalid, and the search went on", plan.Probe, plan.Config)
			return false
		}
		if plan.Load.Kind == LoadClosed {
			search.Start = StartRate(c)
			continue
		}
		if want := ProbeSeed(s.Seed, plan.Probe); plan.Load.Seed != want {
			p.problem(where, "probe %d has the seed %d, but seed %d gives it %d", plan.Probe, plan.Load.Seed, s.Seed, want)
			return false
		}
		switch rate, more := search.Next(); {
		case !more:
			p.problem(where, "probe %d of rate %s, but the search was over after %d rates", plan.Probe, plan.Load.Rate, search.Probes)
			return false
		case plan.Load.Rate != rate:
			p.problem(where, "probe %d of rate %s, but by those before it rate %s comes next", plan.Probe, plan.Load.Rate, rate)
			return false
		}
		if c.Valid && c.Open != nil {
			search.Add(plan.Load.Rate, c.Open.Holds(s.Share))
		}
	}
	if !s.Valid {
		return true
	}
	if rate, more := search.Next(); more {
		p.problem(where, "it is called valid, but the search isn't over: rate %s comes next", rate)
		return false
	}
	if search.Low == "" || search.High == "" {
		p.problem(where, "it is called valid, but of %d rates none or all held", search.Probes)
		return false
	}
	p.warnBracket(where, s, probes)
	return true
}

// checkFilled holds what a closing record says of its probes against them.
func (p *replay) checkFilled(where string, s *Saturation, probes []Result) {
	want := *s
	want.Fill(probes)
	switch {
	case !slices.Equal(s.Probes, want.Probes):
		p.problem(where, "probes %v, but those before it are %v", s.Probes, want.Probes)
	case s.Low != want.Low:
		p.problem(where, "low %q, but by its probes the highest rate that held is %q", s.Low, want.Low)
	case s.High != want.High:
		p.problem(where, "high %q, but by its probes the lowest rate that did not hold is %q", s.High, want.High)
	case !slices.Equal(s.Metrics, want.Metrics):
		p.problem(where, "metrics %v, but its probes give %v", s.Metrics, want.Metrics)
	}
}

// warnBracket says what makes a bracket doubtful.
func (p *replay) warnBracket(where string, s *Saturation, probes []Result) {
	low, _ := strconv.ParseFloat(s.Low, 64)
	high, _ := strconv.ParseFloat(s.High, 64)
	if high > float64(bracketWithin*low) {
		p.warn("%s, repetition %d: after %d rates the bracket is still %s to %s requests a second", where, s.Repetition, MaxProbes, s.Low, s.High)
	}
	if s.Share == 100 {
		return // no number of requests shows that none would ever miss
	}
	floor := PercentileFloor(s.Share)
	for i := range probes {
		l, c := &probes[i].Plan.Load, probes[i].Configuration
		if (l.Rate == s.Low || l.Rate == s.High) && c.Measured < floor {
			p.warn("%s, repetition %d: the %d requests at rate %s are too few to say whether %d %% of them would be good, %d more are needed", where, s.Repetition, c.Measured, l.Rate, s.Share, floor-c.Measured)
		}
	}
}

// printedName is the name as package testing prints it.
func (s *Saturation) printedName() string {
	return (&Plan{Name: s.Name, GOMAXPROCS: s.GOMAXPROCS}).printedName()
}
