package servebench

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"servebench/verify"
)

var samplePath = filepath.Join("testdata", "sample.csv")

func sampleTrace(t *testing.T) *verify.Trace {
	t.Helper()
	data, err := os.ReadFile(samplePath)
	if err != nil {
		t.Fatal(err)
	}
	trace, err := verify.ReadTrace(samplePath, data)
	if err != nil {
		t.Fatal(err)
	}
	return trace
}

// Every request of a trace is sent when it came, times the scale, as long as it
// was, and asks for as much.
func TestMatrixTrace(t *testing.T) {
	a := runAgain(t, "", "-test.bench", "Serve", "-test.cpu", "1", "-threads", "1", "-trace-file", samplePath, "-trace-scale", "0.05", "-max-lag", "1s", "-max-inflight", "100")
	if a.code != 0 {
		t.Fatalf("exit code %d, stderr: %s", a.code, a.stderr)
	}
	names, config := a.lines(t)
	if want := []string{"Serve/threads=1/trace=sample"}; !slices.Equal(names, want) {
		t.Errorf("lines %q, want %q", names, want)
	}
	trace := sampleTrace(t)
	if want := trace.Describe(); config["trace"] != want || config["trace-scale"] != "0.05" || config["output-tokens"] != "" {
		t.Errorf("configuration lines %q, want the trace %q at 0.05 and no output-tokens", config, want)
	}
	report := a.report(t)
	printed, err := verify.ParsePrinted("stdout", strings.NewReader(a.stdout))
	if err != nil {
		t.Fatal(err)
	}
	report.CheckPrinted(printed)
	report.CheckTrace(trace)
	if err := report.Err(); err != nil {
		t.Fatal(err)
	}
	r := report.Results[0]
	tokens := int64(0)
	for _, due := range trace.Requests {
		tokens += int64(due.Output)
	}
	if c := r.Configuration; c.Measured != len(trace.Requests) || c.Tokens != tokens {
		t.Errorf("%d requests with %d tokens, want the trace's %d with %d", c.Measured, c.Tokens, len(trace.Requests), tokens)
	}
	open := r.Configuration.Open
	last := trace.Requests[len(trace.Requests)-1].DueNS
	if got := open.LastDueNS - open.FirstDueNS; got != last/20 {
		t.Errorf("the last is due %v after the first, want %v", time.Duration(got), time.Duration(last/20))
	}
	// Another file is not what was replayed.
	trace.File.Bytes++
	if report.CheckTrace(trace); report.Err() == nil {
		t.Error("a trace of another size passes")
	}
}

// go test takes -trace for itself and would overwrite the file.
func TestTraceIsGoTests(t *testing.T) {
	path := filepath.Join(t.TempDir(), "mine.csv")
	data, err := os.ReadFile(samplePath)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, data, 0o666); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{{"-test.trace", path}, {"-test.trace", "mine.csv", "-test.outputdir", filepath.Dir(path)}} {
		a := runAgain(t, "", append([]string{"-test.bench", "."}, args...)...)
		if want := "-trace is go test's own, and would overwrite " + path + " with an execution trace: a recorded load is given with -trace-file"; a.code != 2 || !strings.Contains(a.stderr, want) {
			t.Errorf("exit code %d, stderr %s, want 2 and %q", a.code, a.stderr, want)
		}
	}
	if left, err := os.ReadFile(path); err != nil || !bytes.Equal(left, data) {
		t.Errorf("the file isn't what it was (%v)", err)
	}
	a := runAgain(t, "", "-test.bench", "Serve/threads=1/input=64/conc=1", "-test.trace", filepath.Join(t.TempDir(), "execution.trace"))
	if a.code != 0 {
		t.Errorf("an execution trace: exit code %d, stderr %s", a.code, a.stderr)
	}
}

func TestTraceFlags(t *testing.T) {
	write := func(name, text string) string {
		path := filepath.Join(t.TempDir(), name)
		if err := os.WriteFile(path, []byte(text), 0o666); err != nil {
			t.Fatal(err)
		}
		return path
	}
	const head = "TIMESTAMP,ContextTokens,GeneratedTokens\n"
	with := func(args ...string) []string { return append([]string{"-trace-file", samplePath}, args...) }
	for _, test := range []struct {
		args []string
		want string
	}{
		{with("-rate", "1"), "-rate and -trace-file don't go together: the trace has its own times, which -trace-scale multiplies"},
		{with("-steps", "1:1s"), "-steps and -trace-file don't go together"},
		{with("-input", "64"), "-input and -trace-file don't go together: the trace has the length of each prompt"},
		{with("-conc", "1"), "-conc is for a closed loop, -rate, -steps and -trace-file are for an open one: choose"},
		{with("-requests", "5"), "-requests and -trace-file don't go together: the trace has its own; take its first lines for fewer"},
		{with("-duration", "5s"), "-duration and -trace-file don't go together"},
		{with("-arrival", "gamma"), "-arrival and -trace-file don't go together"},
		{with("-burstiness", "2"), "-burstiness and -trace-file don't go together"},
		{with("-output-tokens", "5"), "-output-tokens and -trace-file don't go together: the trace has the length of each answer"},
		{with("-share", "1/2"), "-share and -trace-file don't go together: split the file instead"},
		{with("-seed", "5"), "-seed is for a server that -target names"},
		{with("-target", "http://127.0.0.1:9", "-prompts", "x.jsonl"), "-prompts and -trace-file don't go together: a file of prompts has none for most lengths of a trace; without it they are made"},
		{with("-trace-scale", "0"), `trace_scale "0", want a decimal number from 1e-06 to 1e+06`},
		{with("-trace-scale", "NaN"), `trace_scale "NaN", want a decimal number from 1e-06 to 1e+06`},
		{with("-settle", "1h"), "trace=sample: -settle 1h0m0s excludes every request"},
		{[]string{"-trace-scale", "2"}, "-trace-scale is for -trace-file"},
		{[]string{"-rate", "1", "-trace-scale", "2"}, "-trace-scale is for -trace-file"},
		{[]string{"-trace-file", "no/such.csv"}, "-trace-file: open no/such.csv"},
		{[]string{"-trace-file", write("a.csv", head+"2023-11-16 18:15:46.68,0,5\n")}, `-trace-file: verify: a.csv:2:24: ContextTokens "0", want a whole number from 1 to 10000000: take out what was no answer`},
		{[]string{"-trace-file", write("b.csv", head+"2023-11-16 18:15:46.68,7000,5\n2023-11-16 18:15:47,7000,2000\n")}, `-trace-file: verify: b.csv:3: ContextTokens 7000 and GeneratedTokens 2000 are more than the model's context of 8192 tokens: take such lines out, or measure a model with a longer context`},
	} {
		t.Run(strings.Join(test.args, " "), func(t *testing.T) {
			t.Parallel()
			a := runAgain(t, "", append([]string{"-test.bench", "."}, test.args...)...)
			if a.code != 2 || !strings.Contains(a.stderr, test.want) {
				t.Errorf("exit code %d, stderr %s, want 2 and %q", a.code, a.stderr, test.want)
			}
			if len(a.files) > 0 {
				t.Errorf("evidence %q of a run that never was", a.files)
			}
		})
	}
}
