package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"servebench/verify"
)

// probe makes what a table shows of a configuration of a search.
func probe(config, number int, rate string, good int, valid bool) verify.Result {
	c := &verify.Configuration{Valid: valid, Open: &verify.Open{Due: 50, Good: good, MostInflight: 7, LagP99NS: 950_000}}
	if valid {
		c.Metrics = []verify.Metric{{Unit: verify.UnitGoodput, Value: 11.25}, {Unit: verify.UnitE2E95, Value: 0.3}, {Unit: verify.UnitTTFT95, Value: 0.2}, {Unit: verify.UnitTTFT50, Value: 0.1}}
	}
	return verify.Result{Configuration: c, Plan: verify.Plan{Config: config, Probe: number, Name: "BenchmarkSaturation/input=64/rate=" + rate, Load: verify.Load{
		Kind: verify.LoadOpen, Rate: rate, SLO: []verify.Bound{{Metric: "ttft", MostNS: 200_000_000}, {Metric: "e2e", MostNS: 3_000_000_000}},
	}}}
}

func estimate(config int, valid bool) verify.Result {
	return verify.Result{Configuration: &verify.Configuration{Valid: valid}, Plan: verify.Plan{
		Config: config, Probe: 1, Name: "BenchmarkSaturation/input=64/conc=1", Load: verify.Load{Kind: verify.LoadClosed, Conc: 1},
	}}
}

func TestShowSearches(t *testing.T) {
	unfinished := probe(9, 2, "8", 40, true)
	unfinished.Configuration = nil
	serve := probe(4, 0, "1", 50, true)
	r := &verify.Report{
		Results: []verify.Result{
			estimate(1, true), probe(2, 2, "10", 45, true), probe(3, 3, "20", 44, true),
			serve,
			probe(5, 1, "10", 45, true), probe(6, 2, "20", 0, false),
			estimate(7, false),
			probe(8, 1, "4", 50, true), unfinished,
		},
		Saturations: []verify.Saturation{
			{Name: "BenchmarkSaturation/input=64", Repetition: 1, Probes: []int{1, 2, 3}, Low: "10", High: "20", Share: 90, Valid: true},
			{Name: "BenchmarkSaturation/input=64", Repetition: 2, Probes: []int{5, 6}, Low: "10", Share: 90, Reasons: []string{"probe 2, rate=20: it lagged"}},
			{Name: "BenchmarkSaturation/input=64", Repetition: 3, Probes: []int{7}, Share: 90, Reasons: []string{"probe 1, conc=1: a request failed"}},
		},
	}
	var b strings.Builder
	showSearches(&b, r)
	want, err := os.ReadFile(filepath.Join("testdata", "searches.golden"))
	if err != nil {
		t.Fatal(err)
	}
	if got := b.String(); got != string(want) {
		t.Errorf("output:\n%s\nwant\n%s", got, want)
	}
	if got, want := counts(r), "9 configurations, 6 valid, 2 invalid; 8 of them are probes of 4 searches"; got != want {
		t.Errorf("counts %q, want %q", got, want)
	}
	b.Reset()
	if err := show(&b, "run.jsonl", r, false); err != nil {
		t.Fatal(err)
	}
	for want, times := range map[string]int{
		"\nINVALID: search BenchmarkSaturation/input=64, repetition 2: probe 2, rate=20: it lagged\n": 1,
		"INVALID: ":                       2, // not its probe, too
		"  Saturation/input=64/rate=1-0 ": 1, // the table of configurations has the one that is no probe
	} {
		if got := strings.Count(b.String(), want); got != times {
			t.Errorf("%q stands %d times, want %d, in\n%s", want, got, times, &b)
		}
	}
}
