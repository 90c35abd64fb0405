package load

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"servebench/sse"
	"servebench/verify"
)

// Run is the evidence of one process while it grows. Its methods are called
// by one goroutine.
type Run struct {
	Header verify.Header // as written
	Clock  *sse.Clock

	evidence *verify.Writer
	corpus   *verify.Corpus
	prompts  map[string]*verify.Prompt
	lock     *os.File
	servers  int
	process  *Process // of the last server record, nil for a target
	target   *Target  // nil for a server that is started here
	proof    Roofline
	proven   map[int]error // by GOMAXPROCS for which the client was tried
	idle     time.Duration
	asleep   func() time.Duration // what the machine has slept since it was started
	configs  int
	repeats  map[string]int
	invalid  []string
	broken   error // of writing; set by the goroutine that writes, read when it has ended
}

// Options describe a run.
type Options struct {
	Dir       string         // for the evidence; made if need be
	Source    string         // directory of the code under version control, for its revision
	Flags     []verify.Flag  //
	HourlyUSD float64        // an assumption; 0 for none
	Corpus    *verify.Corpus // of all prompts; for a target those to make its prompts from, nil for none
	Inputs    []int          // for a target: lengths of prompts that will be asked for; nil means 64
	Trace     []verify.Due   // prompts of its lengths are made, of Corpus's ids for a server that is started here, in place of Inputs
	Target    *Target        // the server, if it is started elsewhere
	OrderSeed int64          // the caller measures in its order, see verify.CompareOrder; 0 for none
	Idle      time.Duration  // how long a server may be silent within an answer; 0 means sse.DefaultIdle
	Roofline  Roofline       // when the client is tried against a null server
}

// busyLimit is the share of CPU time in use before a run from which it warns.
const busyLimit = 0.15

// defaultInput is the length of a target's prompts unless Options say more.
const defaultInput = 64

// NewRun opens a new evidence file and writes its first records. It looks at
// the machine for half a second; what is doubtful stands in Header.Warnings.
// A target is first asked what it takes, and whether the length of a prompt
// can be proven.
func NewRun(o Options) (*Run, error) {
	r := &Run{
		Clock: sse.NewClock(), corpus: o.Corpus, prompts: map[string]*verify.Prompt{}, repeats: map[string]int{},
		proof: o.Roofline, proven: map[int]error{}, idle: o.Idle, asleep: asleep,
	}
	var about *verify.Target
	if o.Target != nil {
		target := *o.Target
		target.trace = o.Trace
		r.target = &target
		if o.Inputs == nil {
			o.Inputs = []int{defaultInput}
		}
		corpus, err := r.target.open(context.Background(), r.Clock, o.Idle, o.Inputs, o.Corpus)
		if err != nil {
			return nil, err
		}
		o.Corpus, r.corpus, about = corpus, corpus, r.target.evidence
	} else if o.Trace != nil {
		corpus, err := idCorpus(o.Corpus, o.Trace, nil)
		if err != nil {
			return nil, err
		}
		o.Corpus, r.corpus = corpus, corpus
	}
	started := time.Now()
	var unique [4]byte
	rand.Read(unique[:])
	host := describeHost()
	warnings := []string{}
	var err error
	switch r.lock, err = lockMachine(); {
	case err == nil:
		host.MachineLock = true
	case errors.Is(err, errLocked):
		warnings = append(warnings, "another run holds the machine-wide lock: both disturb each other")
	default:
		warnings = append(warnings, fmt.Sprintf("the machine-wide lock can't be had, so another run may be under way: %v", err))
	}
	if share, ok := busyShare(500 * time.Millisecond); ok && share > busyLimit {
		warnings = append(warnings, fmt.Sprintf("the machine is busy: %.0f %% of its CPU time was in use before the start", share*100))
	}
	commit, clean := revision(o.Source)
	r.Header = verify.Header{
		Run:     fmt.Sprintf("%s-%d-%s", started.UTC().Format("20060102T150405Z"), os.Getpid(), hex.EncodeToString(unique[:])),
		Started: started.UTC().Format(time.RFC3339Nano), Clock: r.Clock.Evidence(),
		Revision: commit, CleanTree: clean, Go: runtime.Version(), Modules: modules(), Flags: o.Flags,
		HourlyUSD: o.HourlyUSD, Energy: verify.Unmeasured, Host: host, Warnings: warnings, Target: about,
		OrderSeed: o.OrderSeed,
	}
	for i := range o.Corpus.Prompts {
		r.prompts[o.Corpus.Prompts[i].ID] = &o.Corpus.Prompts[i]
	}
	if r.evidence, err = verify.Create(o.Dir, r.Header); err == nil {
		if err = r.append(o.Corpus); err == nil && r.target != nil {
			r.servers++
			err = r.append(&verify.Server{Kind: verify.KindServer, Server: r.servers, ReadyNS: r.Clock.Now(), Model: verify.Model{ID: about.Model}})
		}
		if err != nil {
			r.Discard()
			return nil, err
		}
		return r, nil
	}
	if r.lock != nil {
		r.lock.Close()
	}
	return nil, err
}

// Path returns the name of the evidence file.
func (r *Run) Path() string { return r.evidence.Path() }

func (r *Run) append(record any) error {
	err := r.evidence.Append(record)
	if err != nil && r.broken == nil {
		r.broken = err
	}
	return err
}

// AddServer records a server that was started after the run; the
// configurations that follow are measured on it.
func (r *Run) AddServer(p *Process) error {
	r.servers++
	r.process = p
	s := p.Ready.Server
	s.Kind, s.Server, s.Binary = verify.KindServer, r.servers, p.Binary
	s.ReadyNS = r.Clock.Stamp(p.readyAt)
	s.LoadNS = int64(p.readyAt.Sub(p.started))
	return r.append(&s)
}

// End is how a run ended.
type End struct {
	Path    string
	SHA256  string         // of the file; "" if it isn't whole
	Invalid []string       // configurations without a line, with the reason
	Report  *verify.Report // nil if the file isn't whole or can't be read
}

// Configurations returns how many configurations have begun.
func (r *Run) Configurations() int { return r.configs }

// Failed tells whether any configuration has no line.
func (r *Run) Failed() bool { return len(r.invalid) > 0 }

// Unmeasured fails b, a configuration that could not even begin, and counts it
// among the invalid ones. The evidence has no record of it.
func (r *Run) Unmeasured(b *testing.B, err error) {
	b.Helper()
	r.invalid = append(r.invalid, fmt.Sprintf("%s: not measured: %s", b.Name(), firstLine(err.Error())))
	b.Fatalf("not measured, no metrics: %v", err)
}

func firstLine(text string) string {
	line, _, _ := strings.Cut(text, "\n")
	return line
}

// Discard removes the file of a run that measured nothing.
func (r *Run) Discard() {
	if r.configs == 0 {
		r.evidence.Abandon()
		os.Remove(r.Path())
	}
	if r.lock != nil {
		r.lock.Close()
	}
}

// Close ends the file and replays it from the disk. Its error is that of the
// evidence: not written, not readable or not consistent.
func (r *Run) Close() (*End, error) {
	if r.lock != nil {
		defer r.lock.Close()
	}
	s := &End{Path: r.Path(), Invalid: r.invalid}
	var err error
	if s.SHA256, err = r.evidence.Close(r.Clock.Now()); err != nil {
		return s, err
	}
	file, err := os.Open(s.Path)
	if err != nil {
		return s, fmt.Errorf("load: evidence: %w", err)
	}
	defer file.Close()
	if s.Report, err = verify.Replay(s.Path, file); err != nil {
		return s, err
	}
	if s.Report.SHA256 != s.SHA256 {
		return s, fmt.Errorf("load: evidence %s has sha256 %s on the disk, but %s was written", s.Path, s.Report.SHA256, s.SHA256)
	}
	return s, s.Report.Err()
}

// Finish closes the run for a benchmark that has no TestMain, and fails it if
// the evidence isn't whole and consistent:
//
//	defer run.Finish(b)
//
// The name of the file is Path. With -count 2 or more, testing exits with 0
// though a later repetition has failed; a TestMain that looks at End.Invalid
// doesn't.
func (r *Run) Finish(b *testing.B) *End {
	b.Helper()
	if r.configs == 0 {
		r.Discard()
		return &End{Path: r.Path(), Invalid: r.invalid}
	}
	end, err := r.Close()
	if err != nil {
		b.Error(err)
	}
	return end
}

// recorder writes records in a goroutine of its own, so that no client waits
// for the disk between two requests.
type recorder struct {
	run      *Run
	bearable int                     // measured requests that may fail
	stop     context.CancelCauseFunc // ends the configuration's requests
	stalled  error                   // the first stall
	records  chan any
	done     sync.WaitGroup
	requests map[string]*verify.Request // until the server's records are in
	summary  verify.Summary
	reasons  []string
	failed   int
	canceled int // of them: called off after another failed
}

func newRecorder(run *Run, plan *verify.Plan, stop context.CancelCauseFunc) *recorder {
	rec := &recorder{run: run, bearable: plan.MaxFailed, stop: stop, records: make(chan any, 1024), requests: map[string]*verify.Request{}}
	if run.target != nil {
		rec.summary.Foreign = plan
	}
	if plan.Load.Kind == verify.LoadOpen {
		rec.summary.Open = plan
	}
	rec.done.Go(func() {
		for record := range rec.records {
			switch record := record.(type) {
			case *verify.Request:
				rec.take(record)
			case *verify.Served:
				if r := rec.requests[record.ID]; r != nil {
					rec.summary.AddServed(r, record)
				}
			case *verify.Memory:
				rec.summary.AddMemory(record)
			}
			if err := run.append(record); err != nil {
				rec.stop(err) // what isn't recorded need not be measured
			}
		}
	})
	return rec
}

// maxReasons bounds the failures that a configuration spells out; all of them
// are in their requests' records.
const maxReasons = 5

func (rec *recorder) take(r *verify.Request) {
	rec.summary.Add(r)
	rec.requests[r.ID] = r
	if r.Failure == nil {
		return
	}
	rec.failed++
	if r.Failure.Class == verify.FailCanceled {
		rec.canceled++
		return
	}
	if r.Failure.Class == verify.FailStall && rec.stalled == nil && rec.failed > rec.bearable {
		// Each request after it would wait as long, for nothing: its failure
		// has made the configuration invalid.
		rec.stalled = fmt.Errorf("load: called off: request %s stalled", r.ID)
		rec.stop(rec.stalled)
	}
	if rec.failed-rec.canceled <= maxReasons {
		rec.reasons = append(rec.reasons, fmt.Sprintf("request %s (%s, prompt %s) failed: %s: %s", r.ID, r.Phase, r.Prompt, r.Failure.Class, r.Failure.Message))
	}
}

// end waits until all is written. Failures that the plan can bear are no
// reasons, unless nothing else is left.
func (rec *recorder) end() {
	close(rec.records)
	rec.done.Wait()
	if rec.canceled == 0 && rec.summary.WarmupFailed == 0 && rec.summary.Failed <= rec.bearable && rec.summary.Failed < max(1, rec.summary.Measured) {
		rec.reasons = nil
		return
	}
	if more := rec.failed - rec.canceled - maxReasons; more > 0 {
		rec.reasons = append(rec.reasons, fmt.Sprintf("%d more requests failed", more))
	}
	if rec.canceled > 0 {
		rec.reasons = append(rec.reasons, fmt.Sprintf("%d requests were called off", rec.canceled))
	}
}

var errNoServer = errors.New("load: no server was added to the run")
