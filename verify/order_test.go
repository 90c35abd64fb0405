package verify

import (
	"bytes"
	"slices"
	"strings"
	"testing"
)

// The order of a seed is pinned: evidence of today is replayed in years.
func TestOrderPinned(t *testing.T) {
	names := []string{"BenchmarkServe/threads=1/input=64/conc=1", "BenchmarkServe/threads=1/input=64/conc=2", "BenchmarkServe/threads=2/input=64/conc=1", "BenchmarkServe/threads=2/input=64/conc=2"}
	for seed, want := range map[int64]string{1: "1/2 1/1 2/2 2/1", 7: "2/1 1/1 2/2 1/2"} {
		slices.SortFunc(names, func(a, b string) int { return CompareOrder(seed, a, b) })
		var got []string
		for _, name := range names {
			parts := strings.Split(name, "/")
			got = append(got, parts[1][len("threads="):]+"/"+parts[3][len("conc="):])
		}
		if got := strings.Join(got, " "); got != want {
			t.Errorf("seed %d: %s, want %s", seed, got, want)
		}
	}
}

// Every order of four comes about as often as any other: chi squared with 23
// degrees of freedom is above 49.7 in one case of a thousand, and these seeds
// are fixed.
func TestOrderIsFair(t *testing.T) {
	const seeds = 24_000
	counts := map[string]float64{}
	for seed := range int64(seeds) {
		names := []string{"a", "b", "c", "d"}
		slices.SortFunc(names, func(a, b string) int { return CompareOrder(seed+1, a, b) })
		counts[strings.Join(names, "")]++
	}
	chi := 0.0
	for _, n := range counts {
		chi += (n - seeds/24) * (n - seeds/24) / (seeds / 24)
	}
	if len(counts) != 24 || chi > 49.7 {
		t.Errorf("%d orders, chi squared %v", len(counts), chi)
	}
}

func TestOrderEvidence(t *testing.T) {
	// good has two configurations, each twice.
	with := func(seed int64, flags ...Flag) *file {
		f := good()
		f.header().OrderSeed = seed
		f.header().Flags = append(f.header().Flags, flags...)
		return f
	}
	for _, f := range []*file{with(1), with(1, Flag{"order", "1", true}), with(0, Flag{"order", "0", false})} {
		if report := replayed(t, f.encode()); report.Err() != nil {
			t.Errorf("seed %d: %v", f.header().OrderSeed, report.Err())
		}
	}
	for _, test := range []struct {
		name string
		f    *file
		want string
	}{
		{"other order", with(10), `verify: run.jsonl:51: plan 3: BenchmarkServe/threads=2/input=4/conc=2 comes after BenchmarkServe/threads=1/input=4/conc=1, but by order_seed 10 it goes before it`},
		{"negative", with(-1), `verify: run.jsonl:1: header: order_seed -1 is negative`},
		{"other than the flag", with(1, Flag{"order", "7", true}), `verify: run.jsonl:1: header: order_seed 1, but the flag order has 7`},
	} {
		if report := replayed(t, test.f.encode()); report.Verdict != Inconsistent || report.Err().Error() != test.want {
			t.Errorf("%s:\n got %v\nwant %s", test.name, report.Err(), test.want)
		}
	}
	// Another benchmark's configurations have an order of their own.
	f := with(10)
	each(f, func(p *Plan) {
		if p.Server == 1 {
			p.Name = "BenchmarkOther/threads=1/input=4/conc=1"
		}
	})
	if report := replayed(t, f.encode()); report.Err() != nil {
		t.Error(report.Err())
	}
	// Of a run that was cut short, what is there is checked.
	cut := with(10).encode()
	cut = cut[:bytes.Index(cut, []byte(`{"kind":"request","config":3`))]
	if report := replayed(t, cut); report.Verdict != Inconsistent {
		t.Errorf("cut short: %v, %v", report.Verdict, report.Err())
	}
}
