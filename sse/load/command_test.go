//go:build unix

package load

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"servebench/verify"
)

// The tests of bad luck and of go test's own flags run the command that a user
// runs, go test -bench of the module, as a process of its own: its exit code,
// its output and the file it leaves are what they judge. By default it
// measures the server in testdata, in an instant; .ci/long runs the same tests
// with the real one.

const module = "../.." // relative to this package

// compiled is the benchmark as go test -c makes it.
var compiled = sync.OnceValues(func() (program string, err error) { return compile("servebench.test") })

func compile(name string, flags ...string) (program string, err error) {
	if _, err := buildFake(); err != nil {
		return "", err
	}
	program = filepath.Join(fakeDir, name)
	args := append([]string{"test", "-c", "-o", program}, flags...)
	if out, err := exec.Command("go", append(args, module)...).CombinedOutput(); err != nil {
		return "", fmt.Errorf("%w\n%s", err, out)
	}
	return program, nil
}

// place is where runs happen: a directory for their evidence and one for what
// is temporary, whose name in their environment also tells them apart from
// every other process of the machine.
type place struct {
	t        testing.TB
	program  string
	server   string
	evidence string
	tmp      string
	env      []string
	known    map[string][32]byte // evidence files so far and their hashes
}

func newPlace(t testing.TB) *place {
	t.Helper()
	program, err := compiled()
	if err != nil {
		t.Fatal(err)
	}
	server, err := buildFake()
	if err != nil {
		t.Fatal(err)
	}
	if *ordealServe != "" {
		server = *ordealServe
	}
	corpus, err := filepath.Abs(filepath.Join(module, "testdata", "corpus.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	p := &place{t: t, program: program, server: server, known: map[string][32]byte{}}
	p.evidence, p.tmp = filepath.Join(t.TempDir(), "evidence"), t.TempDir()
	p.env = []string{"TMPDIR=" + p.tmp, "FAKESERVE_CORPUS=" + corpus, "FAKESERVE_STEP=2ms"}
	return p
}

// real tells whether the measured server is the real one.
func (p *place) real() bool { return *ordealServe != "" }

// oneCell and twoCells are -bench patterns.
const (
	oneCell  = "Serve/threads=1/input=64/conc=2"
	twoCells = "Serve/threads=1/input=64"
)

// arguments are those of a run, all but the program's name.
func (p *place) arguments(args []string) []string {
	return append(append([]string{"-test.run=^$", "-test.cpu=1"}, p.ours()...), args...)
}

// ours are the benchmark's own among them.
func (p *place) ours() []string {
	ours := []string{"-server", p.server, "-evidence", p.evidence}
	if p.real() {
		ours = append(ours, "-output-tokens", "4")
	}
	return ours
}

// passes is a -benchtime that leaves seconds for what shall happen midway.
func (p *place) passes() string {
	if p.real() {
		return "3x"
	}
	return "10x"
}

// attempt is one run.
type attempt struct {
	place          *place
	command        *exec.Cmd
	stdout, stderr bytes.Buffer // to be read once ended is closed
	begin          time.Time
	ended          chan struct{}
	err            error // of Wait, if it isn't about the exit code
}

// start starts a run with args.
func (p *place) start(args ...string) *attempt { return p.startAs(p.program, p.arguments(args)) }

// shell is start by way of sh, which first does what before says.
func (p *place) shell(before string, args ...string) *attempt {
	return p.startAs("/bin/sh", append([]string{"-c", before + `; exec "$0" "$@"`, p.program}, p.arguments(args)...))
}

func (p *place) startAs(program string, args []string) *attempt {
	p.t.Helper()
	a := p.prepare(program, args)
	a.run()
	return a
}

// prepare is startAs, but for the start.
func (p *place) prepare(program string, args []string) *attempt {
	a := &attempt{place: p, command: exec.Command(program, args...), ended: make(chan struct{})}
	a.command.Dir = module
	a.command.Env = append(os.Environ(), p.env...)
	a.command.Stdout, a.command.Stderr = &a.stdout, &a.stderr
	a.command.WaitDelay = time.Minute // then something holds on to its output
	return a
}

func (a *attempt) run() {
	t := a.place.t
	t.Helper()
	a.begin = time.Now()
	if err := a.command.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		var exit *exec.ExitError
		if err := a.command.Wait(); err != nil && !errors.As(err, &exit) {
			a.err = err
		}
		close(a.ended)
	}()
	t.Cleanup(func() {
		a.command.Process.Kill()
		<-a.ended
	})
}

// outcome is what is left of a run.
type outcome struct {
	code   int // -1 if a signal ended it
	stdout string
	stderr string
	path   string         // of the evidence, "" if there is none
	report *verify.Report // nil if there is no evidence
	lines  int            // of results
	took   time.Duration
}

// wait waits for the end of a run and checks what holds after any, however it
// went: the files of earlier runs are as they were, there is at most one new
// one, it contradicts nothing, every printed result is in it as printed, and
// success means that all of it is valid.
func (a *attempt) wait() *outcome {
	t, p := a.place.t, a.place
	t.Helper()
	if <-a.ended; a.err != nil {
		t.Fatalf("%v; stderr: %s", a.err, a.stderr.String())
	}
	o := &outcome{
		code: a.command.ProcessState.ExitCode(), stdout: a.stdout.String(), stderr: a.stderr.String(), took: time.Since(a.begin),
	}
	paths, err := filepath.Glob(filepath.Join(p.evidence, "*"))
	if err != nil {
		t.Fatal(err)
	}
	for path, sum := range p.known {
		data, err := os.ReadFile(path)
		if err != nil || sha256.Sum256(data) != sum {
			t.Errorf("%s of an earlier run is not what it was (%v)", path, err)
		}
	}
	for _, path := range paths {
		if _, known := p.known[path]; known {
			continue
		}
		if o.path != "" {
			t.Errorf("a run left %s and %s, want one file", o.path, path)
		}
		o.path = path
		data, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		p.known[path] = sha256.Sum256(data)
	}
	t.Logf("exit code %d after %v\n%s%s", o.code, o.took.Round(time.Millisecond), o.stdout, o.stderr)
	o.replay(t)
	return o
}

func (o *outcome) replay(t testing.TB) {
	t.Helper()
	printed, err := verify.ParsePrinted("stdout", strings.NewReader(o.stdout))
	if err != nil {
		t.Errorf("what was printed can't be read: %v", err)
		return
	}
	for _, r := range printed.Results {
		if !r.Failed {
			o.lines++
		}
	}
	if o.path == "" {
		if o.lines > 0 {
			t.Errorf("%d results were printed and none recorded", o.lines)
		}
		return
	}
	file, err := os.Open(o.path)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	if o.report, err = verify.Replay(filepath.Base(o.path), file); err != nil {
		t.Fatal(err)
	}
	if o.report.Verdict == verify.Inconsistent {
		t.Errorf("the evidence contradicts itself: %v", o.report.Err())
		return
	}
	if o.report.Verdict == verify.Consistent && o.code >= 0 {
		o.report.CheckPrinted(printed)
		if err := o.report.Err(); err != nil {
			t.Errorf("what was printed isn't what was recorded: %v", err)
		}
	}
	if o.lines > o.report.Valid() {
		t.Errorf("%d results were printed, but %d are recorded as valid", o.lines, o.report.Valid())
	}
	if o.code == 0 && (o.report.Verdict != verify.Consistent || len(o.report.Invalid()) > 0) {
		t.Errorf("exit code 0 with evidence that is %v with %d invalid configurations", o.report.Verdict, len(o.report.Invalid()))
	}
}

// clean checks that a run went as it should, with so many results.
func (o *outcome) clean(t testing.TB, lines int) {
	t.Helper()
	if o.code != 0 || o.lines != lines || o.report == nil || o.report.Valid() != lines {
		t.Errorf("exit code %d with %d results, want 0 with %d; stderr:\n%s\nstdout:\n%s", o.code, o.lines, lines, o.stderr, o.stdout)
	}
}

// says checks that a run's output has each of these texts.
func (o *outcome) says(t testing.TB, texts ...string) {
	t.Helper()
	for _, text := range texts {
		if !strings.Contains(o.stdout+o.stderr, text) {
			t.Errorf("no %q in stderr:\n%s\nand stdout:\n%s", text, o.stderr, o.stdout)
		}
	}
}

// documented checks that a run's output has what FAILURES.md shows in one of
// the fenced blocks of a section, line by line; … stands for anything.
func (o *outcome) documented(t testing.TB, section string, block int) {
	t.Helper()
	page, err := os.ReadFile("FAILURES.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, found := strings.Cut(string(page), "\n## "+section+"\n")
	rest, _, _ = strings.Cut(rest, "\n## ")
	blocks := strings.Split(rest, "```")
	if at := 2*block + 1; !found || at >= len(blocks) {
		t.Fatalf("FAILURES.md has no block %d in a section %q", block, section)
	} else {
		rest = blocks[at]
	}
	for line := range strings.Lines(strings.TrimSpace(rest)) {
		pattern := strings.ReplaceAll(regexp.QuoteMeta(strings.TrimSpace(line)), "…", ".*")
		if !regexp.MustCompile(pattern).MatchString(o.stdout + o.stderr) {
			t.Errorf("FAILURES.md, %s, shows %q, which isn't in stderr:\n%s\nand stdout:\n%s", section, line, o.stderr, o.stdout)
		}
	}
}

// incomplete checks that a run failed and left evidence that reads as cut
// short.
func (o *outcome) incomplete(t testing.TB) {
	t.Helper()
	if o.code == 0 || o.report == nil || o.report.Verdict != verify.Incomplete {
		t.Errorf("exit code %d and evidence %q, want a failure and incomplete evidence", o.code, o.path)
	}
}

// midway waits until a run has recorded so many requests.
func (a *attempt) midway(requests int) {
	t := a.place.t
	t.Helper()
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(2 * time.Millisecond) {
		paths, err := filepath.Glob(filepath.Join(a.place.evidence, "*"))
		if err != nil {
			t.Fatal(err)
		}
		for _, path := range paths {
			if _, known := a.place.known[path]; known {
				continue
			}
			data, err := os.ReadFile(path)
			if err == nil && bytes.Count(data, []byte(`{"kind":"request"`)) >= requests {
				return
			}
		}
		select {
		case <-a.ended:
			t.Fatalf("it ended before %d requests were recorded\n%s%s", requests, a.stdout.String(), a.stderr.String())
		default:
		}
		if time.Now().After(deadline) {
			t.Fatalf("no %d requests are recorded after a minute", requests)
		}
	}
}
