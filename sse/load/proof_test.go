package load

import (
	"encoding/json"
	"fmt"
	"io"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"servebench/sse"
	"servebench/verify"
)

// prover1 tries a client of its own.
func prover1(tokens int) *prover {
	clock := sse.NewClock()
	return &prover{clock: clock, base: clock.Evidence(), tokens: tokens}
}

// The record is what verify wants of one, small, and says something of both
// kinds of connections.
func TestProof(t *testing.T) {
	for _, reuse := range []bool{false, true} {
		p := prover1(mostTokens)
		p.reuse = reuse
		c, err := p.prove(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		line, err := json.Marshal(c)
		if err != nil || len(line) > 300_000 {
			t.Errorf("a record of %d bytes (%v), want at most 300000", len(line), err)
		}
		for _, trial := range []*verify.Trial{&c.Fast, &c.Paced} {
			if trial.EventsPerS <= 0 || trial.EventsPerRead < 1 || trial.StampP50NS <= 0 || trial.StampP99NS < trial.StampP50NS {
				t.Errorf("reuse %t: %.0f events/s, %.2f a read, stamps late by %d and %d ns", reuse, trial.EventsPerS, trial.EventsPerRead, trial.StampP50NS, trial.StampP99NS)
			}
			if runtime.GOOS == "linux" && trial.CPUPerEventNS <= 0 || len(trial.Effort.Sched) == 0 {
				t.Errorf("reuse %t: %v ns of CPU an event, %d buckets of waits", reuse, trial.CPUPerEventNS, len(trial.Effort.Sched))
			}
		}
		if c.Paced.EventsPerS > c.Fast.EventsPerS {
			t.Errorf("reuse %t: paced at %.0f events/s, above %.0f at full speed", reuse, c.Paced.EventsPerS, c.Fast.EventsPerS)
		}
	}
}

// The largest record that a machine of any speed can give.
func TestProofIsSmall(t *testing.T) {
	long := func(n int) []int64 {
		list := make([]int64, n)
		for i := range list {
			list[i] = 86_400_000_000_000 + int64(i) // a day after the start
		}
		return list
	}
	trial := verify.Trial{
		DueNS: long(proofRequests), StartNS: long(proofRequests), EndNS: long(proofRequests), Reads: make([]int, proofRequests),
		WrittenNS: long(proofSamples), ReadNS: long(proofSamples), Effort: verify.Effort{Sched: make([]verify.Bucket, 200)},
	}
	fast := trial
	fast.DueNS = nil
	line, err := json.Marshal(&verify.Client{Fast: fast, Paced: trial})
	if err != nil || len(line) > 300_000 {
		t.Errorf("a record of %d bytes (%v), want at most 300000", len(line), err)
	}
}

func TestProofOfAStalledServer(t *testing.T) {
	t.Parallel() // it waits
	p := prover1(8)
	p.ask.Stall = true
	begin := time.Now()
	c, err := p.prove(t.Context())
	if err == nil || !strings.Contains(err.Error(), "failed: stall: nothing came for 1s") {
		t.Errorf("prove = %v, %v, want the stall", c, err)
	}
	if d := time.Since(begin); d > proofLimit+2*time.Second {
		t.Errorf("it took %v to notice", d)
	}
}

// once is one pass.
func once() func() bool {
	n := 0
	return func() bool { n++; return n == 1 }
}

// openCell is twenty requests at two hundred a second.
func openCell() Cell {
	cell := cellOfTests
	cell.Conc = 0
	cell.Open = &verify.Load{Kind: verify.LoadOpen, Arrival: verify.ArrivalConstant, Rate: "200", Requests: 20, MaxLagNS: 1_000_000_000}
	return cell
}

// openRun measures openCell once and closes the run.
func openRun(t *testing.T, change func(run *Run, cell *Cell)) *verify.Report {
	t.Helper()
	run := newRun(t)
	server, err := StartServer(t.Context(), fake(t))
	if err != nil {
		t.Fatal(err)
	}
	defer server.Stop()
	if err := run.AddServer(server); err != nil {
		t.Fatal(err)
	}
	cell := openCell()
	change(run, &cell)
	name := "BenchmarkServe/input=3/rate=200"
	if cell.Open == nil {
		name = fmt.Sprintf("BenchmarkServe/input=3/conc=%d", cell.Conc)
	}
	if _, _, err := run.measure(t.Context(), name, cell, once()); err != nil {
		t.Fatal(err)
	}
	end, err := run.Close()
	if err != nil {
		t.Fatal(err)
	}
	return end.Report
}

func TestRunIsProven(t *testing.T) {
	for _, test := range []struct {
		name     string
		roofline Roofline
		want     int // records
	}{{"by default", RooflineOpen, 1}, {"always", RooflineAlways, 1}, {"never", RooflineNever, 0}} {
		t.Run(test.name, func(t *testing.T) {
			var unproven error
			report := openRun(t, func(run *Run, _ *Cell) { run.proof, unproven = test.roofline, run.Unproven() })
			if len(report.Clients) != test.want || unproven != nil {
				t.Fatalf("%d records of the client (%v), want %d", len(report.Clients), unproven, test.want)
			}
			e := report.Results[0].Configuration.Client
			if e == nil || e.Events != 20*7 || e.Busiest < 7 || e.EndNS-e.BeginNS < 90_000_000 || runtime.GOOS == "linux" && e.CPUNS <= 0 {
				t.Errorf("effort %+v, want 140 events in about 100 ms", e)
			}
			doubts := strings.Join(report.Results[0].Strain, "; ")
			if untried := strings.Contains(doubts, "no roofline of its client is recorded"); untried != (test.want == 0) {
				t.Errorf("doubts %q", doubts)
			}
			if list := report.Results[0].Inflight; len(list) < 2 || list[len(list)-1].Requests != 0 {
				t.Errorf("in flight %v, want it to end with none", list)
			}
		})
	}
}

// A closed loop has no roofline unless it is asked for.
func TestClosedLoopIsNotTried(t *testing.T) {
	report := openRun(t, func(run *Run, cell *Cell) { cell.Open, cell.Conc = nil, 1 })
	if len(report.Clients) != 0 || len(report.Results[0].Strain) != 0 {
		t.Errorf("%d records of the client, doubts %q, want none", len(report.Clients), report.Results[0].Strain)
	}
}

// A client that has no CPU to itself is called into question by its own
// evidence, though each request's stamps may look well.
func TestSlowClientIsFlagged(t *testing.T) {
	report := openRun(t, func(run *Run, cell *Cell) {
		run.proof = RooflineNever
		cell.Open.MaxLagNS = 2_000_000
		before := runtime.GOMAXPROCS(1)
		var stop atomic.Bool
		for range 3 {
			go func() {
				for !stop.Load() {
				}
			}()
		}
		t.Cleanup(func() { stop.Store(true); runtime.GOMAXPROCS(before) })
	})
	c := report.Results[0].Configuration
	if c.Client.SchedP99NS <= 2_000_000 {
		t.Errorf("sched_p99_ns %d beside three goroutines that spin, want more than 2 ms", c.Client.SchedP99NS)
	}
	if doubts := strings.Join(report.Results[0].Strain, "; "); !strings.Contains(doubts, "of its client's goroutines waited for a CPU for") {
		t.Errorf("doubts %q, want the wait for a CPU among them", doubts)
	}
}

// nullWithin is a null server in this process.
func nullWithin(tokens int) (*nullProcess, error) {
	ask, in := io.Pipe()
	out, say := io.Pipe()
	ended := make(chan error, 1)
	go func() { ended <- serveNull(tokens, ask, say) }()
	p := &nullProcess{in: in, say: json.NewEncoder(in), hear: json.NewDecoder(out), kill: func() { in.Close() }, wait: func() { <-ended }}
	return p, p.hear.Decode(&p.nullReady)
}

// BenchmarkProof shows why the null server is a process of its own: within the
// client's, its work can't be told from the client's, and its goroutines stand
// in the way of those whose stamps are looked at. See OPENLOOP.md.
func BenchmarkProof(b *testing.B) {
	for _, kind := range []struct {
		name  string
		start func(int) (*nullProcess, error)
	}{{"child", startNull}, {"within", nullWithin}} {
		for _, reuse := range []bool{false, true} {
			b.Run(fmt.Sprintf("server=%s/reuse=%t", kind.name, reuse), func(b *testing.B) {
				var c *verify.Client
				for b.Loop() {
					p := prover1(defaultOutputTokens)
					p.reuse, p.start = reuse, kind.start
					var err error
					if c, err = p.prove(b.Context()); err != nil {
						b.Fatal(err)
					}
				}
				for _, trial := range []struct {
					name string
					*verify.Trial
				}{{"fast", &c.Fast}, {"paced", &c.Paced}} {
					b.ReportMetric(trial.EventsPerS, trial.name+"-events/s")
					b.ReportMetric(trial.EventsPerRead, trial.name+"-events/read")
					b.ReportMetric(trial.CPUPerEventNS/1e3, trial.name+"-cpu-µs/event")
					b.ReportMetric(float64(trial.StampP50NS)/1e3, trial.name+"-stamp-p50-µs")
					b.ReportMetric(float64(trial.StampP99NS)/1e3, trial.name+"-stamp-p99-µs")
				}
				b.ReportMetric(float64(c.Paced.LagP50NS)/1e3, "lag-p50-µs")
				b.ReportMetric(float64(c.Paced.LagP99NS)/1e3, "lag-p99-µs")
				b.ReportMetric(float64(c.Paced.Effort.SchedP99NS)/1e3, "paced-sched-p99-µs")
				b.ReportMetric(float64(c.Fast.Effort.GCPauseNS)/1e3/float64(max(1, c.Fast.Effort.GCCycles)), "gc-pause-µs/cycle")
			})
		}
	}
}
