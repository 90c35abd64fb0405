package verify

import (
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"testing/iotest"
)

// printedText has to be what package testing prints, for every number.
func TestPrintedTextIsTestings(t *testing.T) {
	check := func(x float64) {
		t.Helper()
		fields := strings.Fields(testing.BenchmarkResult{N: 1, Extra: map[string]float64{"x": x}}.String())
		if len(fields) != 3 || fields[2] != "x" {
			t.Fatalf("testing prints %v as %q", x, fields)
		}
		if got := printedText(x); got != fields[1] {
			t.Errorf("printedText(%v) = %s, testing prints %s", x, got, fields[1])
		}
	}
	for _, x := range []float64{0, 1, 15, 0.234, 1234.5, 123456789, 1e-8, 5e-8, 4.99e-8, 1e22, math.SmallestNonzeroFloat64, math.MaxFloat64, math.Copysign(0, -1)} {
		check(x)
		check(-x)
	}
	for exponent := -8; exponent <= 5; exponent++ { // where the number of places changes
		for _, lead := range []float64{9.9995, 9.995, 9.9994999, 9.99951, 1} {
			x := lead * math.Pow10(exponent)
			for range 4 {
				x = math.Nextafter(x, 0)
			}
			for range 8 {
				check(x)
				x = math.Nextafter(x, math.Inf(1))
			}
		}
	}
	random := rand.New(rand.NewPCG(1, 2))
	for range 20_000 {
		x := math.Pow(10, random.Float64()*30-12)
		check(x)
		check(math.Round(x*1e4) / 1e4)
	}
}

func parsed(t *testing.T, text string) *Printed {
	t.Helper()
	p, err := ParsePrinted("old.txt", strings.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func TestParsePrinted(t *testing.T) {
	p := parsed(t, strings.Join([]string{
		"Unit tok/s better=higher",
		"Unit p95-s better=lower assume=nothing",
		"goos: linux",
		"model: tiny, fp32, sha256 4355a46b19d348dc",
		"assumed-usd-per-hour: 0.25",
		"empty:",
		"Key: not configuration",
		"space:missing",
		"Note: up to 8 configurations",
		"BenchmarkServe",
		"BenchmarkServe/threads=1/conc=1",
		"BenchmarkServe/threads=1/conc=1-2         \t       3\t        15.00 tok/s\t         0.1250 ttft-p50-s\r",
		"BenchmarkServe/threads=1/conc=2-2         \t--- FAIL: BenchmarkServe/threads=1/conc=2-2",
		"    benchmark.go:97: invalid, no metrics: a request failed",
		"--- FAIL: BenchmarkServe/threads=2/conc=2",
		"Benchmarking isn't a benchmark's name",
		"    12 files changed",
		"12 345 files",
		"PASS",
		"Evidence: testdata/my runs/a.jsonl sha256 " + digest,
		"ok  \tservebench\t61.2s",
		"",
	}, "\n"))
	want := &Printed{
		Name:   "old.txt",
		Units:  []PrintedUnit{{1, "tok/s", "better", "higher"}, {2, "p95-s", "better", "lower"}, {2, "p95-s", "assume", "nothing"}},
		Config: []PrintedConfig{{3, "goos", "linux"}, {4, "model", "tiny, fp32, sha256 4355a46b19d348dc"}, {5, "assumed-usd-per-hour", "0.25"}, {6, "empty", ""}},
		Results: []PrintedResult{
			{Line: 12, Name: "BenchmarkServe/threads=1/conc=1-2", Iterations: 3, Values: []PrintedValue{{"15.00", "tok/s"}, {"0.1250", "ttft-p50-s"}}},
			{Line: 13, Name: "BenchmarkServe/threads=1/conc=2-2", Failed: true},
			{Line: 15, Name: "BenchmarkServe/threads=2/conc=2", Failed: true},
		},
		Runs: []PrintedRun{{20, "testdata/my runs/a.jsonl", digest}},
	}
	if !reflect.DeepEqual(p, want) {
		t.Errorf("ParsePrinted gave\n%+v, want\n%+v", p, want)
	}
}

// What testing says of a failed repetition after the first, twice each time:
// the output of go1.26.8 for five runs of which the second and the fourth
// failed, or the first alone.
func TestPrintedFailures(t *testing.T) {
	for _, test := range []struct{ name, text, want string }{
		{"one CPU", "BenchmarkX/a=1         \t       1\t       151.0 ns/op\n" +
			"BenchmarkX/a=1         \t--- FAIL: BenchmarkX/a=1\n    x_test.go:4: no 2\n--- FAIL: BenchmarkX/a=1\n    x_test.go:4: no 2\n" +
			"BenchmarkX/a=1         \t       1\t       180.0 ns/op\n" +
			"BenchmarkX/a=1         \t--- FAIL: BenchmarkX/a=1\n    x_test.go:4: no 4\n--- FAIL: BenchmarkX/a=1\n    x_test.go:4: no 4\n",
			"BenchmarkX/a=1 BenchmarkX/a=1! BenchmarkX/a=1 BenchmarkX/a=1!"},
		{"two CPUs", "BenchmarkX/a=1-2         \t       1\t       151.0 ns/op\n" +
			"BenchmarkX/a=1-2         \t--- FAIL: BenchmarkX/a=1\n    x_test.go:4: no 2\n--- FAIL: BenchmarkX/a=1-2\n    x_test.go:4: no 2\n" +
			"BenchmarkX/a=1-2         \t       1\t       180.0 ns/op\n",
			"BenchmarkX/a=1-2 BenchmarkX/a=1-2! BenchmarkX/a=1-2"},
		{"verbose, on one CPU and on two", "BenchmarkX\nBenchmarkX/a=1\nBenchmarkX/a=1           \t       1\t       330.0 ns/op\n" +
			"    x_test.go:4: no 2\n--- FAIL: BenchmarkX/a=1\n--- FAIL: BenchmarkX/a=1\n" +
			"BenchmarkX/a=1           \t       1\t       160.0 ns/op\n" +
			"    x_test.go:4: no 4\n--- FAIL: BenchmarkX/a=1\n--- FAIL: BenchmarkX/a=1-2\n" +
			"BenchmarkX/a=1-2         \t       1\t       161.0 ns/op\n",
			"BenchmarkX/a=1 BenchmarkX/a=1! BenchmarkX/a=1 BenchmarkX/a=1-2! BenchmarkX/a=1-2"},
		{"two in a row", "BenchmarkX-2 \t--- FAIL: BenchmarkX\n--- FAIL: BenchmarkX-2\nBenchmarkX-2 \t--- FAIL: BenchmarkX\n--- FAIL: BenchmarkX-2\n", "BenchmarkX-2! BenchmarkX-2!"},
		{"two in a row, verbose", "--- FAIL: BenchmarkX\n--- FAIL: BenchmarkX-2\n--- FAIL: BenchmarkX\n--- FAIL: BenchmarkX-2\n", "BenchmarkX-2! BenchmarkX-2!"},
		{"the first alone, and its parents", "--- FAIL: BenchmarkX\n    --- FAIL: BenchmarkX/a=1\n        x_test.go:4: no 1\n", "BenchmarkX! BenchmarkX/a=1!"},
		{"the first of each of two", "    --- FAIL: BenchmarkX/a=1\n    --- FAIL: BenchmarkX/a=2\n", "BenchmarkX/a=1! BenchmarkX/a=2!"},
	} {
		t.Run(test.name, func(t *testing.T) {
			var got []string
			for _, r := range parsed(t, test.text).Results {
				if r.Failed {
					r.Name += "!"
				}
				got = append(got, r.Name)
			}
			if text := strings.Join(got, " "); text != test.want {
				t.Errorf("results %s, want %s", text, test.want)
			}
		})
	}
}

func TestBrokenPrintedLines(t *testing.T) {
	for _, test := range []struct{ line, want string }{
		{"BenchmarkX-2    \tsetup, b.N = 3", `verify: old.txt:2: a broken result line, "setup," is no number of iterations: "BenchmarkX-2    \tsetup, b.N = 3"`},
		{"BenchmarkX-2    \t", `verify: old.txt:2: a broken result line, its numbers are missing: "BenchmarkX-2    \t"`},
		{"BenchmarkX-2 0 1 tok/s", `verify: old.txt:2: a broken result line, "0" is no number of iterations: "BenchmarkX-2 0 1 tok/s"`},
		{"BenchmarkX-2 99999999999999999999 1 tok/s", `verify: old.txt:2: a broken result line, "99999999999999999999" is no number of iterations: "BenchmarkX-2 99999999999999999999 1 tok/s"`},
		{"BenchmarkX-2 3 15.0", `verify: old.txt:2: a broken result line, "15.0" has no unit: "BenchmarkX-2 3 15.0"`},
		{"BenchmarkX-2 3 many tok/s", `verify: old.txt:2: a broken result line, "many" is no number: "BenchmarkX-2 3 many tok/s"`},
		{"BenchmarkX-2 3 NaN tok/s", `verify: old.txt:2: a broken result line, "NaN" is no number: "BenchmarkX-2 3 NaN tok/s"`},
		{"BenchmarkX-2 3 +Inf tok/s", `verify: old.txt:2: a broken result line, "+Inf" is no number: "BenchmarkX-2 3 +Inf tok/s"`},
		{"BenchmarkX-2 3 1 tok/s 1 tok/s", `verify: old.txt:2: a broken result line, unit tok/s stands twice: "BenchmarkX-2 3 1 tok/s 1 tok/s"`},
		{"BenchmarkX-2 --- FAIL: BenchmarkY-2", `verify: old.txt:2: a broken result line: "BenchmarkX-2 --- FAIL: BenchmarkY-2"`},
		{"       4\t  30272464 ns/op", `verify: old.txt:2: the numbers of a result without its name: other output has broken the line: "       4\t  30272464 ns/op"`},
		{"Unit tok/s higher", `verify: old.txt:2: a Unit line with a setting that isn't key=value: "Unit tok/s higher"`},
		{"Evidence: a.jsonl sha256 1234", `verify: old.txt:2: an evidence line without PATH sha256 SUM: "Evidence: a.jsonl sha256 1234"`},
	} {
		_, err := ParsePrinted("old.txt", strings.NewReader("goos: linux\n"+test.line+"\n"))
		var problem *Problem
		if err == nil || err.Error() != test.want || !errors.As(err, &problem) {
			t.Errorf("ParsePrinted(%q):\n got %v\nwant %s", test.line, err, test.want)
		}
	}
	if _, err := ParsePrinted("old.txt", iotest.ErrReader(io.ErrClosedPipe)); !errors.Is(err, io.ErrClosedPipe) {
		t.Errorf("ParsePrinted of a broken reader = %v, want its error", err)
	}
}

// The files of testdata/bench were printed by go1.26 programs.
func TestParseRealOutput(t *testing.T) {
	const one = "BenchmarkServe/threads=1/input=16/conc=1"
	for _, test := range []struct {
		file  string
		names []string
		err   string
	}{
		{"B01_gomaxprocs1_no_suffix.txt", []string{one, "BenchmarkServe/threads=1/input=16/conc=2"}, ""},
		{"B02_gomaxprocs2_suffix_-2.txt", []string{one + "-2", "BenchmarkServe/threads=1/input=16/conc=2-2"}, ""},
		{"B03_cpu12_count2.txt", []string{one, one, one + "-2", one + "-2"}, ""},
		{"B05_stderr_breaks_result_line.txt", nil, `verify: B05_stderr_breaks_result_line.txt:6: a broken result line, "setup," is no number of iterations: "BenchmarkRampOld-2    \tsetup, b.N = 3"`},
		{"B06_verbose_bare_name_lines.txt", []string{one + "-2"}, ""},
		{"B08_space_and_duplicate_names.txt", []string{"BenchmarkSpaces/conc=1_warm/x-2", "BenchmarkSpaces/dup-2", "BenchmarkSpaces/dup#01-2"}, ""},
	} {
		file, err := os.Open(filepath.Join("testdata", "bench", test.file))
		if err != nil {
			t.Fatal(err)
		}
		defer file.Close()
		p, err := ParsePrinted(test.file, file)
		if err != nil || test.err != "" {
			if err == nil || err.Error() != test.err {
				t.Errorf("%s: error %v, want %q", test.file, err, test.err)
			}
			continue
		}
		var names []string
		for _, r := range p.Results {
			names = append(names, r.Name)
		}
		if !reflect.DeepEqual(names, test.names) {
			t.Errorf("%s: names %q, want %q", test.file, names, test.names)
		}
		if len(p.Config) != 4 || p.Config[3].Value != "Intel(R) Xeon(R) Processor" {
			t.Errorf("%s: configuration %v, want goos, goarch, pkg, cpu", test.file, p.Config)
		}
	}
}

// measuredAs is a report on configurations with the metrics that the files
// of testdata/bench print.
func measuredAs(plans ...Plan) *Report {
	r := &Report{SHA256: digest, Header: &Header{Host: Host{OS: "linux", Arch: "amd64"}}}
	for i, plan := range plans {
		plan.Config = i + 1
		r.Results = append(r.Results, Result{Plan: plan, Configuration: &Configuration{Config: i + 1, Passes: 3, Valid: true, Metrics: []Metric{
			{"p95-ns/op", 196.8e6}, {"rss-B", 123456789}, {"rss-MB", 117.737}, {"tiny-s", 4e-8}, {"tok/s", 1234.49}, {"ttft-ns", 196.8e6}, {"ttft-s", 0.1968},
		}}})
	}
	return r
}

func TestCheckPrintedRealOutput(t *testing.T) {
	const name = "BenchmarkServe/threads=1/input=16/conc="
	for file, plans := range map[string][]Plan{
		"B01_gomaxprocs1_no_suffix.txt":   {{Name: name + "1", Repetition: 1, GOMAXPROCS: 1}, {Name: name + "2", Repetition: 1, GOMAXPROCS: 1}},
		"B02_gomaxprocs2_suffix_-2.txt":   {{Name: name + "1", Repetition: 1, GOMAXPROCS: 2}, {Name: name + "2", Repetition: 1, GOMAXPROCS: 2}},
		"B03_cpu12_count2.txt":            {{Name: name + "1", Repetition: 1, GOMAXPROCS: 1}, {Name: name + "1", Repetition: 2, GOMAXPROCS: 1}, {Name: name + "1", Repetition: 1, GOMAXPROCS: 2}, {Name: name + "1", Repetition: 2, GOMAXPROCS: 2}},
		"B06_verbose_bare_name_lines.txt": {{Name: name + "1", Repetition: 1, GOMAXPROCS: 2}},
	} {
		data, err := os.ReadFile(filepath.Join("testdata", "bench", file))
		if err != nil {
			t.Fatal(err)
		}
		// The value in these files is 1e-9; below 5e-8 all print alike.
		r := measuredAs(plans...)
		if r.CheckPrinted(parsed(t, string(data))); len(r.Problems) > 0 {
			t.Errorf("%s: %v, want no problem", file, r.Problems[0])
		}
		r = measuredAs(plans[1:]...)
		if r.CheckPrinted(parsed(t, string(data))); len(r.Problems) != 1 || r.Verdict != Inconsistent {
			t.Errorf("%s without its first configuration: %v, want a problem", file, r.Problems)
		}
	}
}

// printed is what the good file's run would have printed.
func (f *file) printed(sum string) string {
	var b strings.Builder
	b.WriteString("Unit tok/s better=higher\nUnit p95-s better=lower\nUnit MB/s better=higher\n")
	if t := f.header().Target; t != nil {
		fmt.Fprintf(&b, "model: %s\napi: %s\n", t.Model, t.API)
	} else {
		fmt.Fprintf(&b, "model: %s\n", f.server(1).Model.Describe())
	}
	b.WriteString("output-tokens: 5\ngoos: linux\ngoarch: amd64\npkg: servebench\n")
	each(f, func(c *Configuration) {
		plan := f.plan(c.Config)
		if !c.Valid {
			fmt.Fprintf(&b, "%s \t--- FAIL: %s\n    benchmark.go:97: invalid\n", plan.printedName(), plan.printedName())
			return
		}
		extra := map[string]float64{"ns/op": 0}
		for _, m := range c.Metrics {
			extra[m.Unit] = m.Value
		}
		fmt.Fprintf(&b, "%s \t%s\n", plan.printedName(), testing.BenchmarkResult{N: c.Passes, Extra: extra})
	})
	fmt.Fprintf(&b, "PASS\nEvidence: testdata/runs/a.jsonl sha256 %s\nok  \tservebench\t1.6s\n", sum)
	return b.String()
}

func TestCheckPrinted(t *testing.T) {
	whole := good()
	data := whole.encode()
	sum := replayed(t, data).SHA256
	text := whole.printed(sum)
	cut := func(old, new string) string {
		if !strings.Contains(text, old) {
			t.Fatalf("%q isn't in\n%s", old, text)
		}
		return strings.Replace(text, old, new, 1)
	}
	without := func(part string) string {
		var b strings.Builder
		for line := range strings.Lines(text) {
			if !strings.Contains(line, part) {
				b.WriteString(line)
			}
		}
		return b.String()
	}
	half := decodeFile(t, data)
	half.invalidate(2, "a request failed")
	half.invalidate(4, "a request failed")
	halfData := half.encode()
	halfSum := replayed(t, halfData).SHA256
	halfText := half.printed(halfSum)

	for _, test := range []struct {
		name string
		data []byte
		text string
		want []string
	}{
		{"as it was", data, text, nil},
		{"without the evidence line", data, without("Evidence:"), nil},
		{"with lines of testing's own", data, cut("tok/s\t", "tok/s\t 12 B/op\t 1 allocs/op\t 0 ns/op\t"), nil},
		{"after another run", data, strings.ReplaceAll(halfText, "input=4", "input=5") + text, nil},
		{"before another run", data, text + halfText, nil},
		{"invalid ones printed as failed", halfData, halfText, nil},
		{"a failure without the suffix", halfData, strings.ReplaceAll(halfText, "BenchmarkServe/threads=2/input=4/conc=2-2 \t--- FAIL: BenchmarkServe/threads=2/input=4/conc=2-2\n", "--- FAIL: BenchmarkServe/threads=2/input=4/conc=2\n"), nil},
		{"of another run", data, strings.Replace(text, sum, halfSum, 1), []string{
			fmt.Sprintf(`verify: old.txt:14: evidence with sha256 %q, but the file has %q`, halfSum, sum)}},
		{"one digit", data, cut("0.02047 p95-s", "0.02046 p95-s"), []string{
			`verify: old.txt:9: configuration 1, repetition 1 of BenchmarkServe/threads=1/input=4/conc=1-2: 0.02046 p95-s, but 0.020468727 prints as 0.02047`}},
		{"more digits", data, cut("0.02047 p95-s", "0.020468727 p95-s"), []string{
			`verify: old.txt:9: configuration 1, repetition 1 of BenchmarkServe/threads=1/input=4/conc=1-2: 0.020468727 p95-s, but 0.020468727 prints as 0.02047`}},
		{"a unit less", data, cut("0.02047 p95-s", ""), []string{
			`verify: old.txt:9: configuration 1, repetition 1 of BenchmarkServe/threads=1/input=4/conc=1-2: p95-s is missing, want 0.02047`}},
		{"a unit more", data, cut("0.02047 p95-s", "0.02047 p95-s\t 1.5 J/tok"), []string{
			`verify: old.txt:9: configuration 1, repetition 1 of BenchmarkServe/threads=1/input=4/conc=1-2: 1.5 J/tok is no metric of it`}},
		{"iterations", data, cut("       3\t", "       4\t"), []string{
			`verify: old.txt:9: configuration 1, repetition 1 of BenchmarkServe/threads=1/input=4/conc=1-2: 4 iterations, but passes 3`}},
		{"a line more", data, cut("PASS\n", "BenchmarkServe/threads=1/input=4/conc=1-2 \t 3\t 99 tok/s\nPASS\n"), []string{
			`verify: old.txt:13: BenchmarkServe/threads=1/input=4/conc=1-2 has no configuration in the evidence`}},
		{"another name", data, cut("conc=1-2 \t", "conc=3-2 \t"), []string{
			`verify: old.txt:10: configuration 1, repetition 1 of BenchmarkServe/threads=1/input=4/conc=1-2: 0.02048 p95-s, but 0.020468727 prints as 0.02047`}},
		{"another suffix", data, cut("conc=1-2 \t", "conc=1-4 \t"), []string{
			`verify: old.txt:10: configuration 1, repetition 1 of BenchmarkServe/threads=1/input=4/conc=1-2: 0.02048 p95-s, but 0.020468727 prints as 0.02047`}},
		{"no lines", data, "PASS\n", []string{
			`verify: old.txt: configuration 1, repetition 1 of BenchmarkServe/threads=1/input=4/conc=1-2: it is valid, but no line was printed for it`,
			`verify: old.txt: configuration 2, repetition 2 of BenchmarkServe/threads=1/input=4/conc=1-2: it is valid, but no line was printed for it`,
			`verify: old.txt: configuration 3, repetition 1 of BenchmarkServe/threads=2/input=4/conc=2-2: it is valid, but no line was printed for it`,
			`verify: old.txt: configuration 4, repetition 2 of BenchmarkServe/threads=2/input=4/conc=2-2: it is valid, but no line was printed for it`}},
		{"an invalid one printed", halfData, strings.Replace(text, sum, halfSum, 1), []string{
			`verify: old.txt:10: configuration 2, repetition 2 of BenchmarkServe/threads=1/input=4/conc=1-2: a line was printed, but it isn't valid`,
			`verify: old.txt:12: configuration 4, repetition 2 of BenchmarkServe/threads=2/input=4/conc=2-2: a line was printed, but it isn't valid`}},
		{"a valid one printed as failed", data, strings.Replace(halfText, halfSum, sum, 1), []string{
			`verify: old.txt:10: configuration 2, repetition 2 of BenchmarkServe/threads=1/input=4/conc=1-2: it is valid, but printed as failed`,
			`verify: old.txt:13: configuration 4, repetition 2 of BenchmarkServe/threads=2/input=4/conc=2-2: it is valid, but printed as failed`}},
		{"another machine", data, cut("goarch: amd64", "goarch: arm64"), []string{
			`verify: old.txt:7: goarch: arm64, but the evidence has amd64`}},
		{"another system", data, cut("goos: linux", "goos: plan9"), []string{
			`verify: old.txt:6: goos: plan9, but the evidence has linux`}},
		{"another model", data, cut("model: tiny", "model: huge"), []string{
			`verify: old.txt:4: model: huge, fp32, sha256 4355a46b19d348dc, but the evidence has tiny, fp32, sha256 4355a46b19d348dc`}},
		{"another output length", data, cut("output-tokens: 5", "output-tokens: 6"), []string{
			`verify: old.txt:5: output-tokens: 6, but the evidence has 5`}},
		{"units upside down", data, cut("tok/s better=higher", "tok/s better=lower"), []string{
			`verify: old.txt:1: unit tok/s with better=lower, want higher`}},
	} {
		t.Run(test.name, func(t *testing.T) {
			report := replayed(t, test.data)
			report.CheckPrinted(parsed(t, test.text))
			var got []string
			for _, p := range report.Problems {
				got = append(got, p.Error())
			}
			if len(test.want) > 0 && len(got) > len(test.want) {
				got = got[:len(test.want)] // what follows from the first
			}
			if !reflect.DeepEqual(got, test.want) {
				t.Errorf("problems:\n got %s\nwant %s\nof\n%s", strings.Join(got, "\n     "), strings.Join(test.want, "\n     "), test.text)
			}
			if (report.Verdict == Inconsistent) != (len(test.want) > 0) {
				t.Errorf("verdict %v with %d problems", report.Verdict, len(report.Problems))
			}
		})
	}
}

// An unfinished run has printed lines for what it finished.
func TestCheckPrintedOfAnUnfinishedRun(t *testing.T) {
	f := good()
	text, data := f.printed(digest), f.encode()
	closed := strings.LastIndex(string(data), `{"kind":"configuration"`)
	report := replayed(t, data[:closed])
	text = text[:strings.LastIndex(text, "Benchmark")] // its line was never printed
	if report.CheckPrinted(parsed(t, text)); report.Verdict != Incomplete {
		t.Errorf("verdict %v, problems %v, want incomplete", report.Verdict, report.Problems)
	}
	var empty Report
	if empty.CheckPrinted(parsed(t, "goos: linux\n")); len(empty.Problems) > 0 {
		t.Errorf("a report on nothing: %v", empty.Problems)
	}
}
