package main

import (
	"bytes"
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

func TestShowClients(t *testing.T) {
	var row string
	showClients(func(key, format string, args ...any) { row = key }, nil)
	if row != "" {
		t.Errorf("row %q of no client", row)
	}
}
