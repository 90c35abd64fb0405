package load

import (
	"syscall"
	"testing"
	"time"

	"servebench/verify"
)

// A server that stands still and goes on is measured as one that was slow; one
// that doesn't go on is given up, and the next configuration has a new one.
func TestStopped(t *testing.T) {
	t.Parallel()
	const pause = 700 * time.Millisecond
	t.Run("continued", func(t *testing.T) {
		t.Parallel()
		p := newPlace(t)
		a := p.start("-test.bench", oneCell, "-test.benchtime", "3x") // so that two slow ones of 18 are in the p95
		a.midway(5)
		signal(t, a.mustServer(), syscall.SIGSTOP)
		time.Sleep(pause)
		signal(t, a.mustServer(), syscall.SIGCONT)
		o := a.wait()
		o.clean(t, 1)
		longest := time.Duration(0)
		for _, m := range o.report.Results[0].Configuration.Metrics {
			if m.Unit == verify.UnitE2E95 {
				longest = time.Duration(m.Value * float64(time.Second))
			}
		}
		if longest < pause {
			t.Errorf("%s is %v, though the server stood still for %v", verify.UnitE2E95, longest, pause)
		}
	})
	t.Run("for good", func(t *testing.T) {
		t.Parallel()
		p := newPlace(t)
		idle := "500ms"
		if p.real() {
			idle = "5s"
		}
		a := p.start("-test.bench", twoCells, "-test.benchtime", "3x", "-idle", idle)
		a.midway(5)
		signal(t, a.mustServer(), syscall.SIGSTOP)
		o := a.wait()
		o.documented(t, "The server goes silent", 0)
		if o.code != 1 || o.report == nil || o.report.Verdict != verify.Consistent {
			t.Fatalf("exit code %d, stderr %s, want 1 and consistent evidence", o.code, o.stderr)
		}
		if valid, invalid := o.report.Valid(), len(o.report.Invalid()); valid != 1 || invalid != 1 || len(o.report.Servers) != 2 {
			t.Errorf("%d valid and %d invalid configurations on %d servers, want 1 and 1 on 2", valid, invalid, len(o.report.Servers))
		}
		if o.took > time.Minute {
			t.Errorf("it took %v", o.took)
		}
		p.noOrphan()
	})
}
