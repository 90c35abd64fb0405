package main

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"servebench/verify"
)

func TestInflightParts(t *testing.T) {
	list := []verify.Inflight{{NS: 10, Requests: 1}, {NS: 20, Requests: 3}, {NS: 25, Requests: 2}, {NS: 40, Requests: 0}}
	got := inflightParts(list, 2)
	// 10 ns of none, then 10 of one; 5 of three, then 15 of two.
	want := []inflightPart{{0, 20, 0.5, 1}, {20, 40, 2.25, 3}}
	if len(got) != 2 || got[0] != want[0] || got[1] != want[1] {
		t.Errorf("parts %v, want %v", got, want)
	}
	if got := inflightParts(nil, 2); got != nil {
		t.Errorf("parts %v of nothing", got)
	}
}

func TestShowInflight(t *testing.T) {
	var stdout, stderr bytes.Buffer
	if code := run([]string{"-inflight", frozen + ".jsonl"}, &stdout, &stderr); code != exitConsistent || stderr.Len() > 0 {
		t.Fatalf("exit code %d, stderr %s", code, &stderr)
	}
	_, text, found := strings.Cut(stdout.String(), "In flight, configuration 3, BenchmarkServe/threads=2/input=4/conc=2, repetition 1:\n")
	lines := strings.Split(text, "\n")
	if !found || len(lines) < inflightSlots || strings.Join(strings.Fields(lines[0]), " ") != "from to mean most" {
		t.Fatalf("no table of configuration 3 in\n%s", &stdout)
	}
	most := map[string]int{}
	for _, line := range lines[1 : inflightSlots+1] {
		cells := strings.Fields(line)
		most[cells[5]]++
	}
	if most["2"] == 0 || most["0"]+most["1"]+most["2"] != inflightSlots {
		t.Errorf("most under way, and how often: %v, want 2, as many as clients, and never more", most)
	}
}

// A request that ends before it starts is a problem of the file, and no reason
// to stop.
func TestShowImpossibleInflight(t *testing.T) {
	var b strings.Builder
	showInflight(&b, &verify.Report{Results: []verify.Result{{Inflight: []verify.Inflight{{NS: 0, Requests: -1}, {NS: 1 << 55, Requests: 0}}}}})
	if !strings.Contains(b.String(), "-1.00") {
		t.Errorf("%s\nwant -1 under way", &b)
	}
}

func TestShowClients(t *testing.T) {
	var rows []string
	row := func(key, format string, args ...any) { rows = append(rows, key+": "+fmt.Sprintf(format, args...)) }
	showClients(row, nil)
	showClients(row, []verify.Client{{GOMAXPROCS: 2, Fast: verify.Trial{EventsPerS: 61_701.4}, Paced: verify.Trial{
		EventsPerS: 15_280, StampP50NS: 26_940, StampP99NS: 160_500, LagP50NS: 120_900, LagP99NS: 2_313_000, CPUPerEventNS: 29_480,
	}}})
	want := "Client: GOMAXPROCS 2: 61701 events/s of a null server; at 15280, stamps late by 27 µs p50 and 160 µs p99, starts by 121 µs and 2313 µs, 29.5 µs of CPU an event"
	if len(rows) != 1 || rows[0] != want {
		t.Errorf("rows\n%q, want\n%q", rows, want)
	}
}
