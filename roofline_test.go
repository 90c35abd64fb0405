package servebench

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
)

// The client is tried before open loops, once for each GOMAXPROCS, and before
// closed ones if that is asked for. What it asks of a benchmark's output is
// nothing.
func TestMatrixRoofline(t *testing.T) {
	open := []string{"-rate", "100", "-requests", "20", "-max-lag", "1s"}
	for _, test := range []struct {
		name    string
		args    []string
		tried   []int // GOMAXPROCS
		untried int   // configurations whose client is called into question for that
	}{
		{"open loop", open, []int{1}, 0},
		{"open loop, never", slices.Concat(open, []string{"-roofline=false"}), nil, 1},
		{"open loop, two numbers of CPUs", slices.Concat(open, []string{"-test.cpu", "1,2"}), []int{1, 2}, 0},
		{"closed loop", nil, nil, 0},
		{"closed loop, wanted", []string{"-roofline"}, []int{1}, 0},
	} {
		t.Run(test.name, func(t *testing.T) {
			args := []string{"-test.bench", "Serve/threads=1/input=64", "-test.cpu", "1", "-threads", "1", "-input", "64"}
			if test.args == nil || test.args[0] == "-roofline" {
				args = append(args, "-conc", "1")
			}
			a := runAgain(t, "", append(args, test.args...)...)
			if a.code != 0 {
				t.Fatalf("exit code %d, stderr: %s", a.code, a.stderr)
			}
			report := a.report(t)
			if err := report.Err(); err != nil {
				t.Error(err)
			}
			var tried []int
			for _, c := range report.Clients {
				tried = append(tried, c.GOMAXPROCS)
			}
			if !slices.Equal(tried, test.tried) {
				t.Errorf("tried with GOMAXPROCS %v, want %v", tried, test.tried)
			}
			if got := strings.Count(a.stderr, "no roofline of its client is recorded"); got != test.untried {
				t.Errorf("stderr has %d configurations without a roofline, want %d: %s", got, test.untried, a.stderr)
			}
			for _, c := range report.Results {
				if c.Configuration.Client == nil {
					t.Errorf("configuration %d says nothing of its client", c.Plan.Config)
				}
			}
			if info, err := os.Stat(a.files[0]); err != nil || info.Size() > 4<<20 {
				t.Errorf("evidence %v (%v)", info, err)
			}
		})
	}
	a := runAgain(t, "", "-test.bench", ".", "-roofline=often")
	if want := `invalid boolean value "often" for -roofline: want true or false`; a.code != 2 || !strings.Contains(a.stderr, want) {
		t.Errorf("exit code %d, stderr %s, want 2 and %s", a.code, a.stderr, want)
	}
	if got, want := fmt.Sprint(&clientProof), "open loops"; got != want {
		t.Errorf("-roofline is %q unless it is given, want %q", got, want)
	}
}
