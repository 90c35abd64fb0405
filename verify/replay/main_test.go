package main

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const frozen = "../testdata/servebench-1"

// spoiled writes a copy of the frozen evidence with a part replaced.
func spoiled(t *testing.T, change func(string) string) string {
	t.Helper()
	data, err := os.ReadFile(frozen + ".jsonl")
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "run.jsonl")
	if err := os.WriteFile(path, []byte(change(string(data))), 0o666); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestShow(t *testing.T) {
	want, err := os.ReadFile(filepath.Join("testdata", "servebench-1.golden"))
	if err != nil {
		t.Fatal(err)
	}
	var stdout, stderr bytes.Buffer
	code := run([]string{"-printed", frozen + ".txt", frozen + ".jsonl"}, &stdout, &stderr)
	if code != exitConsistent || stderr.Len() > 0 {
		t.Errorf("exit code %d, stderr %q, want 0 and none", code, &stderr)
	}
	if got := stdout.String(); got != string(want) {
		t.Errorf("output:\n%s\nwant\n%s", got, want)
	}
}

func generators(numbers ...string) (paths []string) {
	for _, n := range numbers {
		paths = append(paths, "../testdata/generators/"+n+".jsonl")
	}
	return paths
}

func TestShowGenerators(t *testing.T) {
	golden := filepath.Join("testdata", "generators.golden")
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	var stdout, stderr bytes.Buffer
	if code := run(generators("4", "2", "1", "3"), &stdout, &stderr); code != exitConsistent || stderr.Len() > 0 {
		t.Errorf("exit code %d, stderr %q, want 0 and none", code, &stderr)
	}
	if got := stdout.String(); got != string(want) {
		t.Errorf("output:\n%s\nwant\n%s", got, want)
	}
}

func TestExitCodes(t *testing.T) {
	broken := filepath.Join(t.TempDir(), "old.txt")
	if err := os.WriteFile(broken, []byte("BenchmarkServe-2 \tstray\n"), 0o666); err != nil {
		t.Fatal(err)
	}
	half := spoiled(t, func(s string) string { return s[:len(s)/2] })
	changed := spoiled(t, func(s string) string { return strings.Replace(s, `"steps":5`, `"steps":6`, 1) })
	bell := spoiled(t, func(s string) string { return strings.Replace(s, `"run":"`, `"run":"\u0007`, 1) })
	empty := spoiled(t, func(string) string { return "" })
	for _, test := range []struct {
		name           string
		args           []string
		code           int
		stdout, stderr string // parts
	}{
		{"consistent", []string{frozen + ".jsonl"}, 0, "\nCONSISTENT: every number follows from what was recorded; 4 configurations, 3 valid, 1 invalid\n", ""},
		{"invalid ones are loud", []string{frozen + ".jsonl"}, 0, "\nINVALID: configuration 4, BenchmarkServe/threads=2/input=4/conc=2, repetition 2: request 4.1.0 failed", ""},
		{"changed", []string{changed}, 1, "\nPROBLEM: verify: " + changed + ":15: served 1.w.0: 6 steps for 5 tokens, want as many\n", ""},
		{"changed, last line", []string{changed}, 1, "\nINCONSISTENT: 2 problems; 4 configurations, 3 valid, 1 invalid\n", ""},
		{"control characters", []string{bell}, 1, `Run       \a20261130T200000Z`, ""},
		{"cut off", []string{half}, 2, "\nINCOMPLETE: the run ended within configuration ", ""},
		{"empty", []string{empty}, 2, "INCOMPLETE: no header: the file is empty or its first line is cut off; 0 configurations, 0 valid, 0 invalid\n", ""},
		{"broken benchmark output", []string{"-printed", broken, frozen + ".jsonl"}, 1, "\nPROBLEM: verify: " + broken + ":1: a broken result line", ""},
		{"output of nothing", []string{"-printed", empty, frozen + ".jsonl"}, 1, "it is valid, but no line was printed for it", ""},
		{"cut off and output that contradicts", []string{"-printed", broken, half}, 1, "\nINCONSISTENT: 1 problem; ", ""},
		{"a trace that nothing replayed", []string{"-trace", filepath.Join("..", "..", "testdata", "sample.csv"), frozen + ".jsonl"}, 1, "\nPROBLEM: verify: sample.csv: no configuration replayed a trace\n", ""},
		{"no such trace", []string{"-trace", "no-such-file", frozen + ".jsonl"}, 64, "", "Error: open no-such-file: "},
		{"a trace of another layout", []string{"-trace", broken, frozen + ".jsonl"}, 64, "", "Error: verify: old.txt:1:1: the header is "},
		{"help", []string{"-h"}, 0, "", "exit code: 0 consistent, 1 inconsistent, 2 incomplete, 64 wrong usage or not readable\n"},
		{"no file", nil, 64, "", "Error: no FILE; -h tells the usage\n"},
		{"flag last", []string{frozen + ".jsonl", "-printed", broken}, 64, "", "Error: [\"-printed\" \"" + broken + "\"] is left over: flags come first, then FILE\n"},
		{"two files that aren't of one load", []string{frozen + ".jsonl", changed}, 1, "\nPROBLEM: verify: " + changed + ":15: served 1.w.0: 6 steps for 5 tokens, want as many\n", ""},
		{"three of four generators", generators("1", "2", "4"), 1, "\nPROBLEM: verify: configuration 1: share 3/4 is missing: all generators have to be named\n", ""},
		{"one generator is cut off", []string{half, frozen + ".jsonl"}, 2, "\nINCOMPLETE: " + half + ": the run ended within configuration ", ""},
		{"generators and a flag", append([]string{"-printed", broken}, generators("1", "2")...), 64, "", "Error: -printed, -trace and -inflight are for one FILE\n"},
		{"a generator that isn't there", []string{frozen + ".jsonl", "no-such-file"}, 64, "", "Error: open no-such-file: "},
		{"unknown flag", []string{"-loud", "a"}, 64, "", "flag provided but not defined: -loud\n"},
		{"no such file", []string{"no-such-file"}, 64, "", "Error: open no-such-file: "},
		{"a directory", []string{"."}, 64, "", "Error: verify: .: read .: is a directory\n"},
		{"no such output", []string{"-printed", "no-such-file", frozen + ".jsonl"}, 64, "", "Error: open no-such-file: "},
		{"output is a directory", []string{"-printed", ".", frozen + ".jsonl"}, 64, "", "Error: verify: .: read .: is a directory\n"},
	} {
		t.Run(test.name, func(t *testing.T) {
			var stdout, stderr bytes.Buffer
			code := run(test.args, &stdout, &stderr)
			if code != test.code || !strings.Contains(stdout.String(), test.stdout) || !strings.Contains(stderr.String(), test.stderr) {
				t.Errorf("exit code %d, want %d\nstdout %s\nwant %s\nstderr %s\nwant %s", code, test.code, &stdout, test.stdout, &stderr, test.stderr)
			}
			if (stderr.Len() > 0) != (test.stderr != "") {
				t.Errorf("stderr %q, want %q", &stderr, test.stderr)
			}
		})
	}
}

type brokenPipe struct{}

func (brokenPipe) Write([]byte) (int, error) { return 0, errors.New("broken pipe") }

func TestOutputThatCannotBeWritten(t *testing.T) {
	var stderr bytes.Buffer
	if code := run([]string{frozen + ".jsonl"}, brokenPipe{}, &stderr); code != exitUsage || stderr.String() != "Error: broken pipe\n" {
		t.Errorf("exit code %d, stderr %q, want %d and the error", code, &stderr, exitUsage)
	}
}

func TestReadableNumbers(t *testing.T) {
	for ns, want := range map[int64]string{0: "0 µs", 1757_400: "1757 µs", -1757_400: "-1757 µs", 12_345_678: "12.3 ms", 1_234_567_890: "1.235 s"} {
		if got := duration(ns); got != want {
			t.Errorf("duration(%d) = %s, want %s", ns, got, want)
		}
	}
	for n, want := range map[int64]string{512: "512 B", 2048: "2.0 KiB", 1_073_150_000: "1023.4 MiB", 24 << 30: "24.0 GiB"} {
		if got := bytesText(n); got != want {
			t.Errorf("bytesText(%d) = %s, want %s", n, got, want)
		}
	}
	if got, want := clean("ünï \x1b[2J \"q\" \\n \n"), `ünï \x1b[2J "q" \n \n`; got != want {
		t.Errorf("clean = %s, want %s", got, want)
	}
}
