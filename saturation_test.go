package servebench

import (
	"flag"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"servebench/sse/load"
	"servebench/verify"
)

var sloShare = flag.Int("slo-share", load.DefaultSLOShare, "BenchmarkSaturation: a rate holds if `PERCENT` of its requests keep -slo")

// saturating tells whether BenchmarkSaturation measures something: it is
// selected, and there is an SLO and a rate to search for.
func saturating() bool {
	return len(sloBounds) > 0 && selected("BenchmarkSaturation") && unsearchable() == ""
}

// unsearchable names a flag with which there is no rate to search for, or "".
func unsearchable() string {
	switch {
	case len(rateSteps) > 0:
		return "steps"
	case *tracePath != "":
		return "trace-file"
	case *share != "":
		return "share"
	}
	return ""
}

// searchLoad is what BenchmarkSaturation's probes have in common; its rate, if
// there is one, is the first.
func searchLoad() *verify.Load {
	l := openLoad()
	least := math.Inf(1)
	for _, rate := range rateAxis {
		if v, err := strconv.ParseFloat(rate, 64); err == nil && v < least {
			l.Rate, least = rate, v
		}
	}
	return &l
}

// unmeasuredSaturation says why BenchmarkSaturation, though selected, measures
// nothing; "" if it does, or isn't selected.
func unmeasuredSaturation() string {
	switch name := unsearchable(); {
	case !selected("BenchmarkSaturation"):
	case len(sloBounds) == 0:
		return "BenchmarkSaturation is skipped: it needs -slo, as in -slo ttft=500ms,tpot=50ms"
	case name != "":
		return fmt.Sprintf("BenchmarkSaturation is skipped: with -%s there is no rate to search for", name)
	}
	return ""
}

// searches returns those of BenchmarkSaturation, whose load has no axis.
func searches() []configuration {
	if !saturating() {
		return nil
	}
	return alongAxes("BenchmarkSaturation", []string{""}, []*verify.Load{searchLoad()})
}

// BenchmarkSaturation searches for the highest rate that holds -slo, from the
// least -rate, or from what one client gets. Without -slo it does nothing. A
// search is one line, and one iteration: what -benchtime adds does nothing.
func BenchmarkSaturation(b *testing.B) {
	if run == nil || !saturating() {
		b.Skip("there is no -slo to hold, or no rate to search for")
	}
	measureEach(b, searches(), func(b *testing.B, c configuration) {
		cell := run.cell(b, c)
		cell.Open = c.load
		run.Saturation(b, cell, *sloShare)
	})
}

// slack makes a search on a busy machine come to its end: whatever the rate is
// that it finds.
var slack = []string{"-settle", "0", "-max-lag", "1s", "-max-inflight", "1000", "-roofline=false"}

// saturated runs a search and checks its evidence against what it printed.
func saturated(t *testing.T, a again) *verify.Report {
	t.Helper()
	if a.code != 0 {
		t.Fatalf("exit code %d, stdout: %s, stderr: %s", a.code, a.stdout, a.stderr)
	}
	report := a.report(t)
	printed, err := verify.ParsePrinted("stdout", strings.NewReader(a.stdout))
	if err != nil {
		t.Fatal(err)
	}
	report.CheckPrinted(printed)
	if err := report.Err(); err != nil {
		t.Fatal(err)
	}
	for _, unit := range verify.SaturationUnits() {
		if !strings.Contains(a.stdout, "Unit "+unit+" better=") || strings.Count(a.stdout, " "+unit) < len(report.Saturations) {
			t.Errorf("no line of unit %s, or fewer numbers of it than searches, in\n%s", unit, a.stdout)
		}
	}
	for _, s := range report.Saturations {
		low, _ := strconv.ParseFloat(s.Low, 64)
		high, _ := strconv.ParseFloat(s.High, 64)
		if !s.Valid || !(low > 0 && high > low && (high <= 1.1*low || len(s.Probes) > 20)) {
			t.Errorf("search %+v, want a bracket of a tenth", s)
		}
	}
	return report
}

// names returns the printed ones.
func (a *again) names() (out []string) {
	for line := range strings.Lines(a.stdout) {
		if name, _, found := strings.Cut(line, " "); found && strings.HasPrefix(name, "Benchmark") {
			out = append(out, strings.TrimSpace(strings.TrimPrefix(name, "Benchmark")))
		}
	}
	return out
}

func TestSaturation(t *testing.T) {
	const cell = "/threads=1/input=64"
	for _, test := range []struct {
		name   string
		args   []string
		want   []string // lines
		passes int
		closed bool // it begins with an estimate
	}{
		{"alone", []string{"-test.bench", "Saturation" + cell}, []string{"Saturation" + cell}, 1, true},
		{"count and cpus", []string{"-test.bench", "Saturation" + cell, "-rate", "20", "-test.count", "2", "-test.cpu", "1,2"},
			[]string{"Saturation" + cell, "Saturation" + cell, "Saturation" + cell + "-2", "Saturation" + cell + "-2"}, 1, false},
		{"passes", []string{"-test.bench", "Saturation" + cell, "-test.benchtime", "3x", "-rate", "20"}, []string{"Saturation" + cell}, 3, false},
		{"beside rates", []string{"-test.bench", "(Serve|Saturation)" + cell, "-rate", "40,20"}, []string{"Serve" + cell + "/rate=40", "Serve" + cell + "/rate=20", "Saturation" + cell}, 1, false},
		{"beside clients", []string{"-test.bench", ".", "-threads", "1", "-input", "64", "-conc", "2"}, []string{"Serve" + cell + "/conc=2", "Saturation" + cell}, 1, true},
		{"in an order", []string{"-test.bench", "Saturation", "-threads", "1", "-order", "7"},
			inOrder(7, "Saturation/threads=1/input=64", "Saturation/threads=1/input=256"), 1, true},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			args := slices.Concat([]string{"-test.cpu", "1", "-slo", "e2e=150ms", "-requests", "10", "-arrival", "constant"}, slack, test.args)
			a := runAgain(t, "", args...)
			report := saturated(t, a)
			if got := a.names(); !slices.Equal(got, test.want) {
				t.Errorf("lines %q, want %q", got, test.want)
			}
			if !strings.Contains(a.stdout, "\nslo: e2e=150ms\nslo-share: 90\n") {
				t.Errorf("no configuration lines of the SLO in\n%s", a.stdout)
			}
			for _, s := range report.Saturations {
				first := report.Results[s.Probes[0]-1].Plan
				if s.Passes != test.passes || (first.Load.Kind == verify.LoadClosed) != test.closed || !test.closed && first.Load.Rate != "20" {
					t.Errorf("%d passes, first probe %+v", s.Passes, first.Load)
				}
			}
		})
	}
}

// inOrder returns names as -order has them.
func inOrder(seed int64, names ...string) []string {
	slices.SortFunc(names, func(a, b string) int { return verify.CompareOrder(seed, "Benchmark"+a, "Benchmark"+b) })
	return names
}

// slowly is a model that takes 20 ms for an answer.
type slowly struct{ letters }

func (g *slowly) Prefill(prompt []int32) (int32, error) {
	time.Sleep(20 * time.Millisecond)
	return g.letters.Prefill(prompt)
}

// A server that takes at most 50 a second isn't found to take more.
func TestSaturationOfTarget(t *testing.T) {
	t.Parallel()
	url := serveLetters(t, &slowly{})
	a := runWith(t, nil, slices.Concat([]string{"-target", url, "-test.bench", "Saturation/input=64", "-test.cpu", "1", "-slo", "e2e=100ms", "-slo-share", "80",
		"-requests", "20", "-arrival", "constant", "-rate", "10"}, slack)...)
	report := saturated(t, a)
	if got, want := a.names(), []string{"Saturation/input=64"}; !slices.Equal(got, want) {
		t.Fatalf("lines %q, want %q", got, want)
	}
	s := report.Saturations[0]
	if low, _ := strconv.ParseFloat(s.Low, 64); s.Share != 80 || low > 75 {
		t.Errorf("%s requests a second at %d %%: 20 of them wait for each other", s.Low, s.Share)
	}
}

// A server that goes wrong has no saturation, at no repetition.
func TestSaturationInvalid(t *testing.T) {
	for _, ill := range []string{"die", "error"} {
		t.Run(ill, func(t *testing.T) {
			t.Parallel()
			a := runAgain(t, ill, slices.Concat([]string{"-test.bench", "Saturation/threads=1/input=64", "-test.count", "2", "-slo", "e2e=150ms", "-requests", "10"}, slack)...)
			if a.code != 1 || !strings.Contains(a.stderr, "Invalid: BenchmarkSaturation/threads=1/input=64 (repetition 1): probe 1, conc=1: ") {
				t.Errorf("exit code %d, stderr %s", a.code, a.stderr)
			}
			if strings.Contains(a.stdout, " "+verify.UnitSaturation) != strings.Contains(a.stdout, "Unit "+verify.UnitSaturation) || strings.Contains(a.stdout, "\t") {
				t.Errorf("a line of a search without a number:\n%s", a.stdout)
			}
			report := a.report(t)
			if report.Verdict != verify.Consistent || len(report.Saturations) == 0 || report.Saturations[0].Valid {
				t.Errorf("verdict %v: %v, searches %+v", report.Verdict, report.Err(), report.Saturations)
			}
		})
	}
}

// Without an SLO, or without a rate to search for, there is a note and nothing
// else.
func TestSaturationSkipped(t *testing.T) {
	const none = "Note: BenchmarkSaturation is skipped: "
	for _, test := range []struct {
		args []string
		want string
		runs bool // BenchmarkServe does
	}{
		{[]string{"-test.bench", "Saturation"}, none + "it needs -slo, as in -slo ttft=500ms,tpot=50ms\n", false},
		{[]string{"-test.bench", "Saturation", "-test.v"}, none + "it needs -slo, as in -slo ttft=500ms,tpot=50ms\n", false},
		{[]string{"-test.bench", "Saturation", "-slo", "ttft=1s", "-steps", "20:300ms"}, none + "with -steps there is no rate to search for\n", false},
		{[]string{"-test.bench", "Saturation", "-slo", "ttft=1s", "-rate", "1", "-share", "1/2", "-seed", "1", "-target", "http://127.0.0.1:1"}, none + "with -share there is no rate to search for\n", false},
		{[]string{"-test.bench", "Saturation", "-slo", "ttft=1s", "-trace-file", samplePath}, none + "with -trace-file there is no rate to search for\n", false},
		{[]string{"-test.bench", "(Serve|Saturation)/threads=1/input=64", "-slo", "ttft=1s", "-steps", "20:300ms", "-max-lag", "1s", "-max-inflight", "100"}, none + "with -steps there is no rate to search for\n", true},
		{[]string{"-test.bench", "(Serve|Saturation)/threads=1/input=64/conc=1"}, "", true},
		{[]string{"-test.bench", "Saturation", "-slo", "ttft=1s", "-test.list", "."}, "", false},
		{[]string{"-test.bench", "Saturation", "-slo", "ttft=1s", "-test.count", "0"}, "", false},
	} {
		t.Run(strings.Join(test.args, " "), func(t *testing.T) {
			t.Parallel()
			run := func(t *testing.T, args ...string) again { return runAgain(t, "", args...) }
			if slices.Contains(test.args, "-target") {
				run = func(t *testing.T, args ...string) again { return runWith(t, nil, args...) }
			}
			a := run(t, test.args...)
			if a.code != 0 || !strings.Contains(a.stderr, test.want) || test.want == "" && strings.Contains(a.stderr, none) {
				t.Errorf("exit code %d, stderr %s, want %q", a.code, a.stderr, test.want)
			}
			if (len(a.files) > 0) != test.runs || strings.Contains(a.stdout, "BenchmarkSaturation/") || strings.Contains(a.stdout, verify.UnitSaturation) {
				t.Errorf("evidence %q, stdout:\n%s", a.files, a.stdout)
			}
		})
	}
}

func TestSaturationFlags(t *testing.T) {
	for _, test := range []struct {
		args []string
		want string
	}{
		{[]string{"-slo-share", "50"}, "-slo-share is for BenchmarkSaturation, with -slo"},
		{[]string{"-slo", "ttft=1s", "-slo-share", "0"}, "-slo-share 0, want 1 to 100"},
		{[]string{"-slo", "ttft=1s", "-slo-share", "101"}, "-slo-share 101, want 1 to 100"},
		{[]string{"-slo", "ttft=1s", "-arrival", "chaos"}, `arrival "chaos", want "poisson", "constant", "gamma"`},
		{[]string{"-slo", "ttft=1s", "-arrival", "gamma", "-burstiness", "0"}, `burstiness "0", want a decimal number`},
		{[]string{"-slo", "ttft=1s", "-requests", "-1"}, "-requests -1"},
		{[]string{"-slo", "ttft=1s", "-test.bench", "Serve"}, "-slo is for an open loop, with -rate, -steps or -trace-file, or for BenchmarkSaturation, with -slo"},
		{[]string{"-slo", "ttft"}, "want ttft=500ms,tpot=50ms,e2e=3s, or some of them"},
	} {
		t.Run(strings.Join(test.args, " "), func(t *testing.T) {
			t.Parallel()
			a := runAgain(t, "", append([]string{"-test.bench", "."}, test.args...)...)
			if a.code != 2 || !strings.Contains(a.stderr, test.want) || len(a.files) > 0 {
				t.Errorf("exit code %d, evidence %q, stderr %s, want 2 and %q", a.code, a.files, a.stderr, test.want)
			}
		})
	}
}

func TestFirstParts(t *testing.T) {
	for pattern, want := range map[string]string{
		"": "", ".": ".", "Serve": "Serve", "Serve/a/b": "Serve", "Serve/a|Other/b": "Serve Other", "(Serve|Saturation)/threads=(1|2)/x": "(Serve|Saturation)",
		"S[/|]x/y|Z": "S[/|]x Z", `A\|B/c`: `A\|B`, "A[(]|B": "A[(] B", "A)|B": "A) B", `A\`: `A\`,
	} {
		if got := strings.Join(firstParts(pattern), " "); got != want {
			t.Errorf("firstParts(%q) = %q, want %q", pattern, got, want)
		}
	}
}
