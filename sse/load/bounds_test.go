//go:build unix

package load

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"servebench/verify"
)

// go test's own flags do what a Go user expects of them. The root's tests have
// those that change which lines there are; here are the rest, and the ways
// they meet.

// fast makes the server in testdata answer at once.
func (p *place) fast() *place {
	p.env = append(p.env, "FAKESERVE_STEP=50us")
	return p
}

func TestBounds(t *testing.T) {
	for _, test := range []struct {
		name  string
		args  []string
		lines int
		check func(*testing.T, *outcome)
	}{
		{"count 10", []string{"-test.bench", oneCell, "-test.count", "10"}, 10, func(t *testing.T, o *outcome) {
			for i, r := range o.report.Results {
				if r.Plan.Repetition != i+1 {
					t.Errorf("line %d is repetition %d", i+1, r.Plan.Repetition)
				}
			}
		}},
		{"benchtime 300ms", []string{"-test.bench", oneCell, "-test.benchtime", "300ms"}, 1, func(t *testing.T, o *outcome) {
			// Between the first request's start and the last one's end.
			if c := o.report.Results[0].Configuration; c.EndNS-c.BeginNS < 290e6 {
				t.Errorf("%d passes in %d ns, want as many as 300 ms take", c.Passes, c.EndNS-c.BeginNS)
			}
		}},
		{"count, cpu, benchtime, shuffle", []string{"-test.bench", twoCells, "-test.count", "2", "-test.cpu", "1,2", "-test.benchtime", "2x", "-test.shuffle", "on"}, 8, func(t *testing.T, o *outcome) {
			for _, r := range o.report.Results {
				if r.Configuration.Passes != 2 {
					t.Errorf("%d passes, want 2", r.Configuration.Passes)
				}
			}
			o.says(t, "-test.shuffle ")
		}},
		{"benchmem", []string{"-test.bench", oneCell, "-test.benchmem"}, 1, func(t *testing.T, o *outcome) {
			o.says(t, " B/op", " allocs/op")
		}},
		{"skip", []string{"-test.bench", "Serve", "-test.skip", "Serve/threads=2"}, 4, nil},
		{"run", []string{"-test.bench", oneCell, "-test.run", "^TestCorpus$", "-test.v"}, 1, func(t *testing.T, o *outcome) {
			o.says(t, "--- PASS: TestCorpus")
		}},
		{"verbose", []string{"-test.bench", twoCells, "-test.v"}, 2, nil},
		{"parallel and timeout", []string{"-test.bench", oneCell, "-test.parallel", "1", "-test.timeout", "1h"}, 1, nil},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			o := newPlace(t).fast().start(test.args...).wait()
			o.clean(t, test.lines)
			if test.check != nil && !t.Failed() {
				test.check(t, o)
			}
		})
	}
}

// A pattern without a configuration measures nothing, and says so.
func TestNoConfiguration(t *testing.T) {
	t.Parallel()
	o := newPlace(t).start("-test.bench", "Serve/threads=9").wait()
	o.documented(t, "-bench selects nothing", 0)
	if o.code != 0 || o.path != "" || o.lines > 0 {
		t.Errorf("exit code %d, evidence %q, %d results, want 0 and nothing", o.code, o.path, o.lines)
	}
}

// With -failfast the first failure is the last.
func TestFailFast(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		args     []string
		measured int
	}{{nil, 2}, {[]string{"-test.failfast"}, 1}} {
		p := newPlace(t).fast()
		p.server, _ = buildFake()
		p.env = append(p.env, "FAKESERVE_ILL=error")
		o := p.start(append(test.args, "-test.bench", twoCells)...).wait()
		if o.code != 1 || o.report == nil || len(o.report.Results) != test.measured || o.lines > 0 {
			t.Errorf("%q: exit code %d, evidence %q, want 1 and %d configurations", test.args, o.code, o.path, test.measured)
		}
		if test.args != nil {
			o.says(t, "not measured, no metrics: -failfast, and one before it failed")
		}
	}
}

// A server that doesn't start is tried once for each number of threads, and
// its configurations count as failed at every -count.
func TestServerOfSomeThreads(t *testing.T) {
	t.Parallel()
	p := newPlace(t).fast()
	p.server, _ = buildFake()
	p.env = append(p.env, "FAKESERVE_ILL=threads")
	o := p.start("-test.bench", "Serve/threads=./input=64", "-test.count", "2").wait()
	o.says(t, "fakeserve: no more threads")
	o.documented(t, "The server doesn't start", 1)
	if o.code != 1 || o.lines != 4 || o.report == nil || o.report.Valid() != 4 || len(o.report.Results) != 4 {
		t.Errorf("exit code %d with %d results, evidence %q; want 1 with the 4 of one thread", o.code, o.lines, o.path)
	}
}

// Profiles and traces are of the client. The server is the same program,
// started the same way.
func TestProfiles(t *testing.T) {
	t.Parallel()
	p := newPlace(t).fast()
	plain := p.start("-test.bench", oneCell).wait()
	plain.clean(t, 1)
	dir := t.TempDir()
	profiles := []string{"cpuprofile", "memprofile", "blockprofile", "mutexprofile", "trace"}
	args := []string{"-test.bench", oneCell, "-test.outputdir", dir}
	for _, name := range profiles {
		args = append(args, "-test."+name, name)
	}
	o := p.start(args...).wait()
	o.clean(t, 1)
	for _, name := range profiles {
		if info, err := os.Stat(filepath.Join(dir, name)); err != nil || info.Size() == 0 {
			t.Errorf("%s: %v, want a file with something in it", name, err)
		}
	}
	sameServer(t, o, plain)
}

// The race detector watches the client. It finds nothing, and the server is
// the same.
func TestRaceDetector(t *testing.T) {
	if testing.Short() {
		t.Skip("compiles everything again")
	}
	t.Parallel()
	p := newPlace(t).fast()
	plain := p.start("-test.bench", oneCell).wait()
	plain.clean(t, 1)
	var err error
	if p.program, err = compile("servebench-race.test", "-race"); err != nil {
		t.Skipf("no race detector here: %v", err)
	}
	o := p.start("-test.bench", twoCells).wait()
	o.clean(t, 2)
	if strings.Contains(o.stdout+o.stderr, "DATA RACE") {
		t.Error("there is a data race")
	}
	sameServer(t, o, plain)
}

// sameServer checks that two runs measured one server, but for what belongs to
// a process.
func sameServer(t *testing.T, o, plain *outcome) {
	t.Helper()
	if t.Failed() {
		return
	}
	a, b := o.report.Servers[0], plain.report.Servers[0]
	for _, s := range []*verify.Server{&a, &b} {
		s.PID, s.ReadyNS, s.LoadNS, s.ClockErrorNS = 0, 0, 0, 0
	}
	if !reflect.DeepEqual(a, b) {
		t.Errorf("the server was %+v, want %+v", a, b)
	}
}

// go test -json gives every line, and package and result.
func TestJSON(t *testing.T) {
	t.Parallel()
	p := newPlace(t).fast()
	a := p.startAs("go", append([]string{"test", "-json", "-run", "^$", "-cpu", "1", "-bench", twoCells, "."}, p.ours()...))
	if <-a.ended; a.err != nil || a.command.ProcessState.ExitCode() != 0 {
		t.Fatalf("%v, %v; stderr: %s\nstdout: %s", a.err, a.command.ProcessState, a.stderr.String(), a.stdout.String())
	}
	var text strings.Builder
	results := map[string]int{}
	for decoder := json.NewDecoder(bytes.NewReader(a.stdout.Bytes())); decoder.More(); {
		var event struct{ Action, Package, Test, Output string }
		if err := decoder.Decode(&event); err != nil {
			t.Fatal(err)
		}
		if event.Package != "servebench" {
			t.Errorf("package %q, want servebench", event.Package)
		}
		text.WriteString(event.Output)
		if event.Test == "" {
			results[event.Action]++
		}
	}
	if results["pass"] != 1 || results["fail"] != 0 {
		t.Errorf("results %v of the package, want one pass", results)
	}
	paths, err := filepath.Glob(filepath.Join(p.evidence, "*"))
	if err != nil || len(paths) != 1 {
		t.Fatalf("evidence %q, %v, want one file", paths, err)
	}
	o := &outcome{stdout: text.String(), path: paths[0]}
	o.replay(t)
	o.clean(t, 2)
}

// go test -list names the benchmark and starts nothing.
func TestList(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	command := exec.Command("go", "test", "-list", "^(TestCorpus|BenchmarkServe)$", ".", "-server", "no/such/server", "-evidence", p.evidence)
	command.Dir = module
	out, err := command.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if !strings.HasPrefix(string(out), "TestCorpus\nBenchmarkServe\nok") {
		t.Errorf("go test -list prints %q", out)
	}
	if _, err := os.Stat(p.evidence); err == nil {
		t.Error("there is a directory for evidence of nothing")
	}
}
