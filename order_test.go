package servebench

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"servebench/verify"
)

// A random order has the same names, -bench selects from it as from any other,
// and the verifier holds it against its seed.
func TestMatrixOrder(t *testing.T) {
	inOrder := func(seed int64, names []string) []string {
		names = slices.Clone(names)
		slices.SortFunc(names, func(a, b string) int { return verify.CompareOrder(seed, "Benchmark"+a, "Benchmark"+b) })
		return names
	}
	for _, test := range []struct {
		seed    int64
		pattern string
		count   int
		from    []string
		starts  bool // more servers than threads, and a note that says so
	}{
		{7, ".", 1, matrixNames, true},
		{8, "Serve", 2, matrixNames, true},
		{7, "Serve/threads=2", 1, matrixNames[4:], true},
		{7, "Serve/./input=64/conc=1", 1, []string{matrixNames[0], matrixNames[4]}, true},
		{7, "Serve/threads=1/input=256/conc=2|Other", 1, matrixNames[3:4], true},
		{0, ".", 1, matrixNames, false},
	} {
		t.Run(fmt.Sprintf("%d %s", test.seed, test.pattern), func(t *testing.T) {
			t.Parallel()
			a := runAgain(t, "", "-test.bench", test.pattern, "-test.cpu", "1", "-test.count", fmt.Sprint(test.count), "-order", fmt.Sprint(test.seed))
			if a.code != 0 {
				t.Fatalf("exit code %d, stderr: %s", a.code, a.stderr)
			}
			want := test.from
			if test.seed > 0 {
				want = inOrder(test.seed, want)
			}
			if names, _ := a.lines(t); !slices.Equal(names, repeated(want, test.count)) {
				t.Errorf("lines %q, want %q", names, repeated(want, test.count))
			}
			report := a.report(t)
			if report.Err() != nil || report.Header.OrderSeed != test.seed {
				t.Errorf("order_seed %d, %v", report.Header.OrderSeed, report.Err())
			}
			if note := strings.Contains(a.stderr, "servers are started up to"); note != test.starts {
				t.Errorf("stderr: %s", a.stderr)
			}
		})
	}
	a := runAgain(t, "", "-test.bench", ".", "-order", "-3")
	if want := "-order -3, want a seed from 1 on"; a.code != 2 || !strings.Contains(a.stderr, want) {
		t.Errorf("exit code %d, stderr %s, want 2 and %q", a.code, a.stderr, want)
	}
}
