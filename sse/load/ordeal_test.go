//go:build unix

package load

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"servebench/verify"
)

// sizes returns at which bytes of its evidence the first and the second
// configuration of a run of twoCells begin, and where it ends.
func (p *place) sizes() (first, second, whole int) {
	p.t.Helper()
	o := p.start("-test.bench", twoCells).wait()
	if o.clean(p.t, 2); p.t.Failed() {
		p.t.FailNow()
	}
	data, err := os.ReadFile(o.path)
	if err != nil {
		p.t.Fatal(err)
	}
	plan := []byte(`{"kind":"plan"`)
	return bytes.Index(data, plan), bytes.LastIndex(data, plan), len(data)
}

// A disk that takes no more, at each stage of a run: RLIMIT_FSIZE lets the
// kernel refuse what goes beyond a size.
func TestFileSizeLimit(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	first, second, whole := p.sizes()
	const block = 512 // as ulimit counts
	for _, test := range []struct {
		name   string
		blocks int
		lines  int // at least, and at most one more
	}{
		{"nothing fits", 1, -1},
		{"into the first configuration", first/block + 4, 0},
		{"into the second", second/block + 4, 1},
		{"all but the end", whole/block - 1, 1},
	} {
		t.Run(test.name, func(t *testing.T) {
			p.t = t
			o := p.shell(fmt.Sprintf("ulimit -f %d", test.blocks), "-test.bench", twoCells).wait()
			if test.lines < 0 {
				o.says(t, "Error: ", "file too large")
				if o.code != 1 || o.path != "" {
					t.Errorf("exit code %d and evidence %q, want 1 and none of a run that never was", o.code, o.path)
				}
				return
			}
			o.incomplete(t)
			o.says(t, "Error: verify: evidence is incomplete, nothing more is recorded: write "+o.path+": file too large",
				"Incomplete: "+o.path)
			if o.lines < test.lines || o.lines > test.lines+1 {
				t.Errorf("%d results, want %d or one more", o.lines, test.lines)
			}
			if o.report.Header == nil || !strings.Contains(o.report.Missing, "the run ended") {
				t.Errorf("the replay says %q, want how far the run got", o.report.Missing)
			}
		})
	}
	p.t = t
	p.start("-test.bench", oneCell).wait().clean(t, 1)
}

// With few descriptors a run works; with none to spare it says so.
func TestFewDescriptors(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	p.shell("ulimit -n 64", "-test.bench", twoCells).wait().clean(t, 2)
	const inherited = "exec 3>&- 4>&- 5>&- 6>&- 7>&- 8>&- 9>&-; "
	o := p.shell(inherited+"ulimit -n 12", "-test.bench", twoCells).wait()
	o.documented(t, "There are few descriptors", 0)
	if o.code == 0 || o.lines > 0 {
		t.Errorf("exit code %d with %d results, want a failure and none", o.code, o.lines)
	}
	p.start("-test.bench", oneCell).wait().clean(t, 1)
}

func TestEvidenceIsNoDirectory(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	p.start("-test.bench", oneCell).wait().clean(t, 1)
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, []byte("mine"), 0o666); err != nil {
		t.Fatal(err)
	}
	for _, dir := range []string{file, filepath.Join(file, "below")} {
		o := p.start("-test.bench", oneCell, "-evidence", dir).wait()
		o.documented(t, "The evidence can't be written", 1)
		if o.code != 1 || o.lines > 0 {
			t.Errorf("exit code %d with %d results, want 1 and none", o.code, o.lines)
		}
	}
	if data, err := os.ReadFile(file); string(data) != "mine" || err != nil {
		t.Errorf("the file in the place of the directory is %q now, %v", data, err)
	}
}

// Two runs at once disturb each other, and the second knows.
func TestTwoRuns(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	first := p.start("-test.bench", twoCells, "-test.benchtime", p.passes())
	first.midway(1)
	q := newPlace(t)
	q.evidence, q.env = filepath.Join(t.TempDir(), "evidence"), p.env // the same machine
	second := q.start("-test.bench", twoCells)
	const warning = "Warning: another run holds the machine-wide lock: both disturb each other"
	o := second.wait()
	o.clean(t, 2)
	o.documented(t, "Two runs at once", 0)
	if o.report.Header.Host.MachineLock {
		t.Error("the second run's evidence says that it held the lock")
	}
	o = first.wait()
	o.clean(t, 2)
	if strings.Contains(o.stderr, warning) || !o.report.Header.Host.MachineLock {
		t.Errorf("the first run's evidence says %t of the lock, stderr: %s", o.report.Header.Host.MachineLock, o.stderr)
	}
	p.start("-test.bench", oneCell).wait().clean(t, 1)
}

// Many runs at once in one directory never share a file.
func TestOneDirectory(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	var runs []*attempt
	for range 3 {
		runs = append(runs, p.start("-test.bench", oneCell))
	}
	for _, a := range runs {
		if <-a.ended; a.err != nil || a.command.ProcessState.ExitCode() != 0 {
			t.Errorf("%v, %v, stderr: %s", a.err, a.command.ProcessState, a.stderr.String())
		}
	}
	paths, err := filepath.Glob(filepath.Join(p.evidence, "*.jsonl"))
	if err != nil || len(paths) != len(runs) {
		t.Fatalf("%d files of %d runs, %v", len(paths), len(runs), err)
	}
	for _, path := range paths {
		file, err := os.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		report, err := verify.Replay(path, file)
		file.Close()
		if err != nil || report.Err() != nil || report.Valid() != 1 {
			t.Errorf("%s: %v, %v", path, err, report.Err())
		}
	}
}

// What happened while the machine slept, nobody saw.
func TestMachineSlept(t *testing.T) {
	run := newRun(t)
	server, err := StartServer(t.Context(), fake(t))
	if err != nil {
		t.Fatal(err)
	}
	defer server.Stop()
	if err := run.AddServer(server); err != nil {
		t.Fatal(err)
	}
	calls := time.Duration(0)
	run.asleep = func() time.Duration { calls++; return 3 * time.Hour * (calls - 1) }
	testing.Benchmark(func(b *testing.B) { run.Benchmark(b, cellOfTests) })
	end, _ := run.Close()
	if reasons := end.Report.Results[0].Configuration.Reasons; len(reasons) != 1 || reasons[0] != "load: the machine slept for 3h0m0s during the configuration" {
		t.Errorf("reasons %q, want the sleep", reasons)
	}
	before := asleep()
	if d := asleep() - before; d.Abs() > sleepSlack {
		t.Errorf("asleep() changes by %v from one call to the next", d)
	}
}

// What can't be recorded isn't measured.
func TestBrokenRun(t *testing.T) {
	run := newRun(t)
	server, err := StartServer(t.Context(), fake(t))
	if err != nil {
		t.Fatal(err)
	}
	defer server.Stop()
	if err := run.AddServer(server); err != nil {
		t.Fatal(err)
	}
	run.evidence.Abandon()
	for range 2 {
		if result := testing.Benchmark(func(b *testing.B) { run.Benchmark(b, cellOfTests) }); len(result.Extra) > 0 {
			t.Errorf("metrics %v of a configuration that isn't recorded", result.Extra)
		}
	}
	end, err := run.Close()
	if err == nil || end.SHA256 != "" || len(end.Invalid) != 2 {
		t.Errorf("Close() = %+v, %v, want two invalid configurations and an error", end, err)
	}
	for _, reason := range end.Invalid {
		if !strings.Contains(reason, "the evidence was abandoned") {
			t.Errorf("reason %q, want why nothing was recorded", reason)
		}
	}
}
