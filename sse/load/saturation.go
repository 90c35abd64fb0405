package load

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"

	"servebench/verify"
)

// DefaultSLOShare is the percentage of a probe's measured requests that must
// be good for its rate to hold.
const DefaultSLOShare = 90

// Saturation searches for the highest rate at which the server added last, or
// the target, holds the SLO of cell.Open: at least share percent of the
// measured requests are good; 0 means DefaultSLOShare. A request that failed,
// was refused or was never sent is a miss, whatever MaxFailed says.
//
// Each rate that is tried is one pass of an open loop after a warmup, as
// Benchmark would measure it, and stands in the evidence as a probe. The first
// rate is cell.Open.Rate; without one it is half of what one client gets in a
// closed loop, which is then the first probe. See verify.Search for what comes
// after it. A probe begins when all requests of the one before have ended, and
// has arrivals of its own, from cell.Open.Seed and its number.
//
// It reports the bracket, the number of rates and the goodput at the highest
// that held. A probe that is invalid ends the search, and so fails b.
func (r *Run) Saturation(b *testing.B, cell Cell, share int) {
	b.Helper()
	if share == 0 {
		share = DefaultSLOShare
	}
	switch {
	case cell.Open == nil || len(cell.Open.SLO) == 0:
		r.Unmeasured(b, errors.New("load: no SLO to saturate (Cell.Open.SLO)"))
	case len(cell.Open.Steps) > 0 || len(cell.Open.Trace) > 0 || cell.Open.Share != "":
		r.Unmeasured(b, errors.New("load: steps, a trace or a share in Cell.Open, but a search has one rate at a time, from one generator"))
	case share < 1 || share > 100:
		r.Unmeasured(b, fmt.Errorf("load: %d %% of the requests are to be good, want 1 to 100", share))
	}
	s := &search{measure: r.measure, name: b.Name(), cell: cell, share: share}
	passes := 0
	for b.Loop() {
		if passes == 0 { // what -benchtime adds is no part of it
			s.make(b.Context())
		}
		passes++
	}
	if len(s.probes) == 0 {
		r.Unmeasured(b, errors.New(strings.Join(s.reasons, "\n")))
	}
	key := fmt.Sprintf("%s-%d", s.name, runtime.GOMAXPROCS(0))
	r.repeats[key]++
	record := &verify.Saturation{
		Kind: verify.KindSaturation, Name: s.name, Axes: axes(s.name), Repetition: r.repeats[key], GOMAXPROCS: runtime.GOMAXPROCS(0),
		Passes: passes, Seed: cell.Open.Seed, Share: share, Valid: len(s.reasons) == 0, Reasons: []string{},
	}
	for _, reason := range s.reasons {
		record.Reasons = append(record.Reasons, strings.ToValidUTF8(reason, "�"))
	}
	record.Fill(s.probes)
	if err := r.append(record); err != nil {
		s.reasons = append(s.reasons, err.Error())
	}
	r.report(b, record.Repetition, record.Metrics, s.reasons)
}

// search is one search under way.
type search struct {
	measure func(ctx context.Context, name string, cell Cell, more func() bool) (*verify.Plan, *verify.Configuration, error)
	name    string // of the benchmark
	cell    Cell
	share   int
	probes  []verify.Result
	reasons []string // why it has no result
}

// make makes the whole search.
func (s *search) make(ctx context.Context) {
	rates := verify.Search{Start: s.cell.Open.Rate}
	if rates.Start == "" {
		one := s.cell
		one.Open, one.Conc, one.Requests, one.MaxFailed = nil, 1, 0, 0
		c := s.probe(ctx, "conc=1", one)
		if c == nil {
			return
		}
		if rates.Start = verify.StartRate(c); rates.Start == "" {
			s.fail("its rate is out of all bounds")
			return
		}
	}
	for {
		rate, more := rates.Next()
		if !more {
			break
		}
		open := *s.cell.Open
		open.Kind, open.Rate, open.Seed = verify.LoadOpen, rate, verify.ProbeSeed(open.Seed, len(s.probes)+1)
		cell := s.cell
		cell.Open = &open
		due, err := open.Schedule()
		if err != nil {
			s.fail("probe %d, rate=%s: %v: give it more time, or a number of requests in place of a time", len(s.probes)+1, rate, err)
			return
		}
		cell.MaxFailed = len(due)
		c := s.probe(ctx, "rate="+rate, cell)
		switch {
		case c == nil:
			return
		case c.Open.Due == 0:
			s.fail("probe %d, rate=%s: all of its %d requests were due before the steady state: give it more time", len(s.probes), rate, len(due))
			return
		}
		held := c.Open.Holds(s.share)
		rates.Add(rate, held)
		if !held && c.Open.MostInflight == 1 {
			s.fail("probe %d, rate=%s: requests don't keep the SLO though each of them was alone, so no rate holds it: see what one client gets (-conc 1), and choose bounds that it keeps", len(s.probes), rate)
			return
		}
	}
	switch {
	case rates.Low == "":
		s.fail("no rate held, down to %s requests a second, after %d rates: %d %% of the requests don't keep the SLO however few there are", rates.High, rates.Probes, s.share)
	case rates.High == "":
		s.fail("every rate held, up to %s requests a second, after %d rates: start higher", rates.Low, rates.Probes)
	}
}

func (s *search) fail(format string, args ...any) {
	s.reasons = append(s.reasons, fmt.Sprintf(format, args...))
}

// probe measures one configuration of the search. It returns nil if that has
// no numbers, with the reasons in s.
func (s *search) probe(ctx context.Context, axis string, cell Cell) *verify.Configuration {
	cell.probe = len(s.probes) + 1
	first := true
	once := func() bool { defer func() { first = false }(); return first }
	plan, c, err := s.measure(ctx, s.name+"/"+axis, cell, once)
	if err != nil {
		s.fail("probe %d, %s: %v", cell.probe, axis, err)
		return nil
	}
	s.probes = append(s.probes, verify.Result{Plan: *plan, Configuration: c})
	for _, reason := range c.Reasons {
		s.fail("probe %d, %s: %s", cell.probe, axis, reason)
	}
	if !c.Valid {
		return nil
	}
	return c
}
