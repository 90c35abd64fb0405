package verify

import (
	"fmt"
	"math"
	"reflect"
	"slices"
	"testing"
)

// Generators of a constant process interleave into the one that a single
// generator would have, to the ns, for as many requests or for as long.
func TestSharesOfAConstantProcess(t *testing.T) {
	for _, whole := range []Load{
		{Kind: LoadOpen, Arrival: ArrivalConstant, Rate: "3", Requests: 10},
		{Kind: LoadOpen, Arrival: ArrivalConstant, Rate: "7", DurationNS: 5e9},
		{Kind: LoadOpen, Arrival: ArrivalConstant, Steps: []Step{{"1", 4e9}, {"40", 1e9}}},
	} {
		want, err := whole.Schedule()
		if err != nil {
			t.Fatal(err)
		}
		for _, parts := range []int{2, 3, 4} {
			var got []int64
			for part := 1; part <= parts; part++ {
				l := whole
				l.Share, l.Seed = fmt.Sprintf("%d/%d", part, parts), int64(part)
				due, err := l.Schedule()
				if err != nil {
					t.Fatal(err)
				}
				got = append(got, due...)
			}
			slices.Sort(got)
			if !slices.Equal(got, want) {
				t.Errorf("%d generators of %+v: %v, want %v", parts, whole, got, want)
			}
		}
	}
}

// Together four Poisson processes of a quarter of the rate are one of the
// whole rate: mean and variance of its gaps, and no correlation between two
// generators though their seeds differ by what a pass adds.
func TestSharesOfAPoissonProcess(t *testing.T) {
	const parts, rate, n = 4, 20.0, 40_000
	var all []int64
	var each [parts][]int64
	for part := range parts {
		l := &Load{Kind: LoadOpen, Arrival: ArrivalPoisson, Rate: "20", DurationNS: n / rate * 1e9, Seed: int64(5 + part), Share: fmt.Sprintf("%d/%d", part+1, parts)}
		due, err := l.Schedule()
		if err != nil {
			t.Fatal(err)
		}
		if got := float64(len(due)); math.Abs(got-n/parts) > 5*math.Sqrt(n/parts) {
			t.Errorf("generator %d has %v requests, want about %d", part+1, got, n/parts)
		}
		each[part] = due
		all = append(all, due...)
	}
	slices.Sort(all)
	var sum, squares float64
	for i := 1; i < len(all); i++ {
		gap := float64(all[i]-all[i-1]) / 1e9 * rate
		sum += gap
		squares += gap * gap
	}
	mean := sum / float64(len(all)-1)
	variance := squares/float64(len(all)-1) - mean*mean
	if math.Abs(mean-1) > 5/math.Sqrt(n) || math.Abs(variance-1) > 0.1 {
		t.Errorf("mean gap %v and variance %v, want 1 and 1", mean, variance)
	}
	// The second pass of the first has the seed of the second.
	second, err := (&Load{Kind: LoadOpen, Arrival: ArrivalPoisson, Rate: "20", DurationNS: n / rate * 1e9, Seed: 5, Share: "1/4"}).PassSchedule(1)
	if err != nil || slices.Equal(second[:10], each[1][:10]) {
		t.Errorf("pass 1 of the first generator is pass 0 of the second (%v)", err)
	}
}

func TestSharesPinned(t *testing.T) {
	for _, test := range []struct {
		load Load
		want []int64
	}{
		{Load{Kind: LoadOpen, Arrival: ArrivalConstant, Rate: "3", Requests: 8, Share: "3/3"}, []int64{666666666, 1666666666}},
		{Load{Kind: LoadOpen, Arrival: ArrivalPoisson, Rate: "2", Seed: 7, Requests: 9, Share: "2/4"}, []int64{363508679, 8960558221}},
		{Load{Kind: LoadOpen, Arrival: ArrivalGamma, Burstiness: "0.25", Rate: "2", Seed: 7, Requests: 9, Share: "1/4"}, []int64{5287231453, 5303901093, 5572894485}},
	} {
		got, err := test.load.Schedule()
		if err != nil || !slices.Equal(got, test.want) {
			t.Errorf("%+v: %v, %#v, want %v", test.load, err, got, test.want)
		}
	}
}

func TestSharesRefused(t *testing.T) {
	for share, want := range map[string]string{
		"1":      `share "1", want 1/4 to 4/4, say`,
		"0/4":    `share "0/4", want 1/4 to 4/4, say`,
		"5/4":    `share "5/4", want 1/4 to 4/4, say`,
		"1/1":    `share "1/1", want 1/4 to 4/4, say`,
		"01/4":   `share "01/4", want 1/4 to 4/4, say`,
		"1/1001": `share "1/1001", want 1/4 to 4/4, say`,
		"4/4":    `share 4/4 of 3 requests has none of them`,
	} {
		l := &Load{Kind: LoadOpen, Arrival: ArrivalPoisson, Rate: "1", Requests: 3, Share: share}
		if _, err := l.Schedule(); err == nil || err.Error() != want {
			t.Errorf("%s: %v, want %s", share, err, want)
		}
	}
}

// A server that a run started has one generator.
func TestShareOfAnOwnServer(t *testing.T) {
	f := traced()
	p := f.plan(1)
	p.Load = Load{Kind: LoadOpen, Arrival: ArrivalConstant, Rate: "1", Requests: 6, MaxLagNS: DefaultMaxLagNS, Share: "1/2"}
	p.Name, p.Axes = "BenchmarkServe/threads=1/rate=1", []Axis{{"threads", "1"}, {"rate", "1"}}
	const want = `verify: run.jsonl:4: plan 1: load: share "1/2", but a server that this run started has no other generator`
	if report := replayed(t, f.encode()); report.Verdict != Inconsistent || report.Err().Error() != want {
		t.Errorf("%v, want %s", report.Err(), want)
	}
}

// Of what a plan says of a generator's load nothing can be changed unnoticed.
func TestEveryFieldOfAGeneratorBears(t *testing.T) {
	allowed := map[string]string{
		"load.slo[].most_ns": "a bound that nobody comes near",
		"load.max_lag_ns":    "a bound, far above what was measured",
		"load.duration_ns":   "no request is due within the next ns",
		"load.settle_ns":     "nothing is due in the first ns",
	}
	f := generator(2)
	var list []mutation
	mutations("load", reflect.ValueOf(&f.plan(2).Load).Elem(), &list)
	survived := map[string]bool{}
	for _, m := range list {
		m.do()
		if report := replayed(t, f.encode()); report.Verdict == Consistent {
			if survived[m.path] = true; allowed[m.path] == "" {
				t.Errorf("%s can be changed unnoticed: %s", m.path, m.what)
			}
		}
		m.undo()
	}
	for path := range allowed {
		if !survived[path] {
			t.Errorf("every change of %s was noticed", path)
		}
	}
}
