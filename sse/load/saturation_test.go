package load

import (
	"context"
	"errors"
	"io"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"servebench/verify"
)

// oneAtATime answers one request after the other, each in d: it can take one
// every d, and no more.
func oneAtATime(d time.Duration) func(net.Conn) {
	slot := make(chan struct{}, 1)
	return func(conn net.Conn) {
		slot <- struct{}{}
		time.Sleep(d)
		<-slot
		io.WriteString(conn, streamHead+oneToken)
	}
}

// searchOn makes a search in the bubble of the caller: each probe is played on
// a server of its own, an idle one.
func searchOn(t *testing.T, open verify.Load, answer func() func(net.Conn)) (s *search, rates []string) {
	t.Helper()
	s = &search{name: "BenchmarkSaturation/input=1", cell: Cell{Open: &open}, share: 90}
	s.measure = func(ctx context.Context, name string, cell Cell, more func() bool) (*verify.Plan, *verify.Configuration, error) {
		plan := &verify.Plan{Config: cell.probe, Probe: cell.probe, Name: name, Load: verify.Load{Kind: verify.LoadClosed, Conc: cell.Conc}, MaxFailed: cell.MaxFailed}
		requests := 6
		if cell.Open != nil {
			plan.Load = *cell.Open
			due, err := plan.Load.Schedule()
			if err != nil {
				t.Fatal(err)
			}
			requests = len(due)
			if plan.MaxFailed != requests {
				t.Errorf("max_failed %d of %d requests: a failure is a miss", plan.MaxFailed, requests)
			}
		}
		passes := 0
		for more() {
			passes++
		}
		if passes != 1 {
			t.Errorf("%d passes of a probe, want 1", passes)
		}
		_, axis, _ := strings.Cut(name, "BenchmarkSaturation/input=1/")
		rates = append(rates, axis)
		p := play(t, ctx, plan.Load, requests, &scripted{answer: answer()}, time.Minute)
		c := &verify.Configuration{Valid: true}
		p.sum.Fill(plan, c)
		return plan, c, nil
	}
	s.make(t.Context())
	return s, rates
}

// A server that takes ten requests a second is found to, to the ns: time is
// fake, arrivals are regular, and within 200 requests a queue of a bit more
// than that many is noticed.
func TestSaturationIsFound(t *testing.T) {
	slo := []verify.Bound{{Metric: "e2e", MostNS: 150_000_000}}
	constant := verify.Load{Kind: verify.LoadOpen, Arrival: verify.ArrivalConstant, Requests: 200, SLO: slo}
	poisson := verify.Load{Kind: verify.LoadOpen, Arrival: verify.ArrivalPoisson, Seed: 42, Requests: 2000, SLO: slo}
	from := func(l verify.Load, rate string) verify.Load { l.Rate = rate; return l }
	for _, test := range []struct {
		name      string
		load      verify.Load
		rates     string
		low, high string
	}{
		{"from an estimate", constant, "conc=1 rate=5 rate=10 rate=20 rate=14.14 rate=11.89 rate=10.9", "10", "10.9"},
		{"from below", from(constant, "1.3"), "rate=1.3 rate=2.6 rate=5.2 rate=10.4 rate=7.354 rate=8.745 rate=9.537", "9.537", "10.4"},
		{"from above", from(constant, "36"), "rate=36 rate=18 rate=9 rate=12.73 rate=10.7 rate=9.813", "9.813", "10.7"},
		// A queue comes and goes long before a server is full. With Poisson
		// arrivals at rate r and a service of d (M/D/1), a wait of at most
		// t < d has the probability (1-rd)e^(rt): for 50 ms of 100 it is 90 %
		// at r = 1.757.
		{"by Poisson", poisson, "conc=1 rate=5 rate=2.5 rate=1.25 rate=1.768 rate=1.487 rate=1.621", "1.621", "1.768"},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, rates := searchOn(t, test.load, func() func(net.Conn) { return oneAtATime(100 * time.Millisecond) })
				record := &verify.Saturation{Share: s.share, Valid: len(s.reasons) == 0}
				record.Fill(s.probes)
				if got := strings.Join(rates, " "); got != test.rates || record.Low != test.low || record.High != test.high || len(s.reasons) > 0 {
					t.Errorf("%s, %q to %q, %q\nwant %s, %q to %q", got, record.Low, record.High, s.reasons, test.rates, test.low, test.high)
				}
			})
		})
	}
}

// Each probe has arrivals of its own.
func TestProbesDiffer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, _ := searchOn(t, verify.Load{Arrival: verify.ArrivalPoisson, Seed: 7, Rate: "4", Requests: 50, SLO: []verify.Bound{{Metric: "ttft", MostNS: 1e9}}},
			func() func(net.Conn) { return oneAtATime(100 * time.Millisecond) })
		seen := map[int64]bool{}
		for i, p := range s.probes {
			if p.Plan.Load.Seed != verify.ProbeSeed(7, i+1) || seen[p.Plan.Load.Seed] {
				t.Errorf("probe %d has seed %d, want one of its own, %d", i+1, p.Plan.Load.Seed, verify.ProbeSeed(7, i+1))
			}
			seen[p.Plan.Load.Seed] = true
		}
		if len(s.probes) < 3 {
			t.Errorf("%d probes, want some", len(s.probes))
		}
	})
}

// What gives no number says why.
func TestSaturationIsNotFound(t *testing.T) {
	slo := []verify.Bound{{Metric: "e2e", MostNS: 150_000_000}}
	instant := func() func(net.Conn) { return takes(0) }
	refused := func() func(net.Conn) {
		return func(conn net.Conn) {
			io.WriteString(conn, "HTTP/1.1 503 Service Unavailable\r\nConnection: close\r\n\r\n")
		}
	}
	for _, test := range []struct {
		name   string
		load   verify.Load
		answer func() func(net.Conn)
		want   string
	}{
		{"it can take anything", verify.Load{Rate: "1", Requests: 10}, instant,
			"every rate held, up to 524000 requests a second, after 20 rates: start higher"},
		{"it refuses everything", verify.Load{Rate: "1", Requests: 10}, refused,
			"no rate held, down to 0.000001906 requests a second, after 20 rates: 90 % of the requests don't keep the SLO however few there are"},
		{"nobody is there in time", verify.Load{Rate: "1", DurationNS: 3e9}, refused,
			"probe 2, rate=0.5: no request is due within the duration: give it more time, or a number of requests in place of a time"},
		{"all of it is before the steady state", verify.Load{Rate: "1", Requests: 10, SettleNS: 3600e9}, instant,
			"probe 1, rate=1: all of its 10 requests were due before the steady state: give it more time"},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				load := test.load
				load.Kind, load.Arrival, load.SLO, load.Seed = verify.LoadOpen, verify.ArrivalPoisson, slo, 3
				s, _ := searchOn(t, load, test.answer)
				if got := strings.Join(s.reasons, "\n"); got != test.want {
					t.Errorf("reasons:\n got %s\nwant %s", got, test.want)
				}
			})
		})
	}
}

// A probe that is invalid, or that can't begin, is the last.
func TestProbeEndsSearch(t *testing.T) {
	for _, test := range []struct {
		name   string
		bad    int // which probe
		err    error
		want   string
		probes int
	}{
		{"an invalid estimate", 1, nil, "probe 1, conc=1: it lagged\nprobe 1, conc=1: it slept", 1},
		{"an invalid probe", 3, nil, "probe 3, rate=10: it lagged\nprobe 3, rate=10: it slept", 3},
		{"one that can't begin", 3, errors.New("load: out of prompts"), "probe 3, rate=10: load: out of prompts", 2},
	} {
		t.Run(test.name, func(t *testing.T) {
			s := &search{name: "BenchmarkSaturation", cell: Cell{Open: &verify.Load{Arrival: verify.ArrivalConstant, Requests: 10}}, share: 90}
			s.measure = func(_ context.Context, name string, cell Cell, _ func() bool) (*verify.Plan, *verify.Configuration, error) {
				c := &verify.Configuration{Valid: true, Measured: 10, EndNS: 1e9, Open: &verify.Open{Due: 10, Good: 10}}
				if cell.probe == test.bad {
					c = &verify.Configuration{Reasons: []string{"it lagged", "it slept"}}
				}
				if cell.probe == test.bad && test.err != nil {
					return nil, nil, test.err
				}
				return &verify.Plan{Name: name}, c, nil
			}
			s.make(t.Context())
			if got := strings.Join(s.reasons, "\n"); got != test.want || len(s.probes) != test.probes {
				t.Errorf("%d probes, reasons:\n got %s\nwant %s after %d", len(s.probes), got, test.want, test.probes)
			}
		})
	}
}

func TestSaturationOfNothing(t *testing.T) {
	slo := []verify.Bound{{Metric: "e2e", MostNS: 1}}
	for _, test := range []struct {
		cell  Cell
		share int
		want  string
	}{
		{Cell{}, 0, "load: no SLO to saturate (Cell.Open.SLO)"},
		{Cell{Open: &verify.Load{}}, 0, "load: no SLO to saturate (Cell.Open.SLO)"},
		{Cell{Open: &verify.Load{SLO: slo, Share: "1/2"}}, 0, "load: steps, a trace or a share in Cell.Open, but a search has one rate at a time, from one generator"},
		{Cell{Open: &verify.Load{SLO: slo}}, 101, "load: 101 % of the requests are to be good, want 1 to 100"},
		{Cell{Open: &verify.Load{SLO: slo}}, 0, "probe 1, conc=1: load: no server was added to the run"},
	} {
		run := &Run{}
		testing.Benchmark(func(b *testing.B) { run.Saturation(b, test.cell, test.share) })
		if got, want := strings.Join(run.invalid, "\n"), ": not measured: "+test.want; got != want {
			t.Errorf("invalid:\n got %s\nwant %s", got, want)
		}
	}
}
