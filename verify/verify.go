// Package verify is the evidence of a measurement: its schema, its writer, its
// reader, the definition of every metric and every check. It imports the
// standard library alone, so that whoever doubts a number needs nothing but
// the file, these sources and Go.
//
// It can't tell who ran a measurement or whether the server was the one
// named: it proves that what a file says is consistent, in itself and with
// what was printed.
//
// Replay reads a file as a stream:
//
//  1. A line is decoded strictly: known fields only, and encoding the record
//     again must give the same bytes, so that nothing hides in a line.
//  2. Records come in a fixed order (see the Kind constants). Each is held
//     against itself and what came before it: the corpus against its hash, a
//     model's files against its size, a plan against its server and corpus, a
//     request's stamps, stream and answer against each other.
//  3. From plan to configuration, requests (the client's view) and served
//     records (the server's) are kept. The closing record lets them be judged
//     together: conservation, the two witnesses against each other, the slot,
//     the load, the phases, then the totals and the peak, and last the
//     metrics, computed again from the stamps and compared to the last bit.
//  4. The trailer is held against the counts and the hash of all before it.
//
// Report.CheckPrinted then holds the lines of a benchmark's output against
// what was replayed. SCHEMA.md describes records and checks.
//
// Merge judges the files of several generators together.
//
// Memory is bounded by the largest configuration, not by the file; but for each
// request Result.Inflight keeps when it began and ended, and of one of several
// generators the latencies are kept, for Merge.
package verify

import (
	"bufio"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"io"
)

// Verdict is what a replay comes to.
type Verdict int

const (
	Consistent   Verdict = iota // whole, and every number follows from what was recorded
	Inconsistent                // something contradicts something else
	Incomplete                  // no contradiction, but the end is missing
)

func (v Verdict) String() string {
	return [...]string{"consistent", "inconsistent", "incomplete"}[v]
}

// Problem is one contradiction, at a line of the file.
type Problem struct {
	File  string
	Line  int    // from 1; 0 for what is missing and has no line
	Where string // the record: "request 1.0.3", "configuration 2", …
	Err   string // value and expectation
}

func (p *Problem) Error() string {
	text := "verify: "
	switch {
	case p.File != "" && p.Line > 0:
		text += fmt.Sprintf("%s:%d: ", p.File, p.Line)
	case p.File != "":
		text += p.File + ": "
	case p.Line > 0:
		text += fmt.Sprintf("line %d: ", p.Line)
	}
	if p.Where != "" {
		text += p.Where + ": "
	}
	return text + p.Err
}

// maxProblems bounds a report; a file that is wrong everywhere needs no more.
const maxProblems = 100

// maxLine bounds one record. A request of a hundred thousand tokens takes
// about 2 MiB.
const maxLine = 256 << 20

// Result is one configuration as replayed.
type Result struct {
	Plan          Plan
	Configuration *Configuration // nil if the file ends before it
	Requests      int            // seen, warmups too
	QueueP50NS    int64          // median wait for the slot of measured requests; -1 if no server's log tells
	Strain        []string       // why the client may have been the bottleneck; each is one of the report's Warnings
	Inflight      []Inflight     // requests under way over time, without warmups

	samples *Summary // of one of several generators, for Merge
}

// Report is what Replay found in a file.
type Report struct {
	Verdict     Verdict
	Problems    []*Problem // at most 100
	Warnings    []string   // doubts that contradict nothing; the run's own are in Header
	Header      *Header    // nil if the file has no readable first line
	Corpus      *Corpus
	Servers     []Server
	Clients     []Client
	Results     []Result
	Saturations []Saturation // searches, over the results that are probes
	Trailer     *Trailer     // nil if it is missing
	SHA256      string       // of the whole file
	Missing     string       // what an incomplete file lacks

	answers map[string]answer // by prompt id, the longest
}

// Err is the first problem, or what is missing, or nil.
func (r *Report) Err() error {
	switch {
	case len(r.Problems) > 0:
		return r.Problems[0]
	case r.Verdict == Incomplete:
		return fmt.Errorf("verify: incomplete: %s", r.Missing)
	}
	return nil
}

// Valid returns the number of configurations that have metrics.
func (r *Report) Valid() (n int) {
	for _, c := range r.Results {
		if c.Configuration != nil && c.Configuration.Valid {
			n++
		}
	}
	return n
}

// Invalid returns the configurations that the run itself calls invalid.
func (r *Report) Invalid() (out []Result) {
	for _, c := range r.Results {
		if c.Configuration != nil && !c.Configuration.Valid {
			out = append(out, c)
		}
	}
	return out
}

// Replay reads evidence and checks it. name stands in the problems. Its error
// is that of reading; what the bytes say is in the report.
func Replay(name string, source io.Reader) (*Report, error) {
	return replayFile(name, source, maxLine)
}

func replayFile(name string, source io.Reader, limit int) (*Report, error) {
	p := &replay{
		report:  &Report{answers: map[string]answer{}},
		name:    name,
		hash:    sha256.New(),
		decoder: newDecoder(),
		prompts: map[string]*Prompt{},
		sent:    map[[sha256.Size]byte]string{},
		repeats: map[string]int{},
	}
	reader := bufio.NewReaderSize(source, 1<<16)
	var long []byte // what was read of a line longer than the reader's buffer
	for !p.broken && len(p.report.Problems) < maxProblems {
		line, err := reader.ReadSlice('\n')
		if len(long) > 0 || errors.Is(err, bufio.ErrBufferFull) {
			long = append(long, line...)
			line = long
		}
		switch {
		case err != nil && err != io.EOF && !errors.Is(err, bufio.ErrBufferFull):
			return nil, fmt.Errorf("verify: %s: %w", name, err)
		case len(line) > limit:
			p.line++
			p.stop(recordAt(line), "a line of over %d bytes", limit)
		case errors.Is(err, bufio.ErrBufferFull):
			continue
		case err == io.EOF:
			p.end(line)
			p.broken = true // there is no more
		default:
			p.record(line[:len(line)-1])
		}
		p.hash.Write(line) // after its record, for the trailer's hash is of the bytes before it
		long = long[:0]
	}
	p.closeCell()
	if _, err := io.Copy(p.hash, reader); err != nil {
		return nil, fmt.Errorf("verify: %s: %w", name, err)
	}
	r := p.report
	r.SHA256 = hex.EncodeToString(p.hash.Sum(nil))
	switch {
	case len(r.Problems) > 0:
		r.Verdict = Inconsistent
	case r.Trailer == nil:
		r.Verdict = Incomplete
	}
	return r, nil
}

// replay is the state between two lines.
type replay struct {
	report  *Report
	name    string
	hash    hash.Hash
	decoder *decoder
	line    int
	broken  bool // order is lost; later lines would only repeat the first problem

	prompts map[string]*Prompt
	pool    []int32                      // of the corpus, for a target's salts
	sent    map[[sha256.Size]byte]string // prompts as sent to a target, and by which request
	repeats map[string]int               // of a name and GOMAXPROCS
	ordered map[string]string            // by benchmark, the last name, where there is an order_seed
	cell    *cell                        // the open configuration
	probes  []Result                     // of the open search
	lastNS  int64                        // end of all before the open configuration
	slot    *Served                      // the last to hold the server's slot before it

	trailer Trailer // counted here
}

func (p *replay) problem(where, format string, args ...any) {
	p.problemAt(p.line, where, format, args...)
}

func (p *replay) problemAt(line int, where, format string, args ...any) {
	if len(p.report.Problems) < maxProblems {
		p.report.Problems = append(p.report.Problems, &Problem{p.name, line, where, fmt.Sprintf(format, args...)})
	}
}

// stop reports a problem after which later lines make no sense.
func (p *replay) stop(where, format string, args ...any) {
	p.problem(where, format, args...)
	p.broken = true
}

func (p *replay) warn(format string, args ...any) {
	p.report.Warnings = append(p.report.Warnings, fmt.Sprintf(format, args...))
}

// end is called with what stands after the last newline.
func (p *replay) end(rest []byte) {
	r := p.report
	switch {
	case r.Trailer != nil && len(rest) > 0:
		p.line++
		p.problem("", "%d bytes after the trailer", len(rest))
	case r.Trailer != nil || len(r.Problems) > 0:
	case r.Header == nil:
		const opening = `{"kind":"header",`
		if n := min(len(rest), len(opening)); string(rest[:n]) != opening[:n] {
			p.line++
			p.problem("", "not evidence: the first line is no header record")
			break
		}
		r.Missing = "no header: the file is empty or its first line is cut off"
	case p.cell != nil:
		r.Missing = fmt.Sprintf("the run ended within configuration %d, %s, after %d requests", p.cell.plan.Config, p.cell.plan.Name, len(p.cell.requests))
	case len(p.probes) > 0:
		r.Missing = fmt.Sprintf("the run ended within the search %s, after %d probes", p.probes[0].Plan.probeOf(), len(p.probes))
	default:
		r.Missing = fmt.Sprintf("no trailer: the run ended after %d configurations", len(r.Results))
	}
}

func (p *replay) closeCell() {
	if c := p.cell; c != nil {
		result := Result{
			Plan: c.plan, Configuration: c.configuration, Requests: len(c.requests), QueueP50NS: c.queueNS,
			Strain: c.strain, Inflight: inflightOver(c.requests),
		}
		if c.plan.Load.Share != "" {
			result.samples = &c.sum
		}
		p.report.Results = append(p.report.Results, result)
		if c.plan.Probe > 0 {
			p.probes = append(p.probes, result)
		}
		p.cell = nil
	}
}

func (p *replay) record(line []byte) {
	p.line++
	r := p.report
	kind, ok := recordKind(line)
	switch {
	case r.Header == nil && kind != KindHeader:
		p.stop("", "not evidence: the first line is no header record")
		return
	case !ok:
		p.stop("", "no record: %s, want {\"kind\":…", excerpt(line, 0))
		return
	case r.Trailer != nil:
		p.stop("", "a %q record after the trailer", kind)
		return
	case r.Header != nil && kind == KindHeader:
		p.stop("", "a second header")
		return
	}
	switch kind {
	case KindHeader:
		var head struct {
			Schema string `json:"schema"`
		}
		if err := json.Unmarshal(line, &head); err == nil && head.Schema != Schema {
			p.stop("header", "schema %q, want %q", head.Schema, Schema)
			return
		}
		take(p, line, p.header)
	case KindCorpus:
		take(p, line, p.corpus)
	case KindServer:
		take(p, line, p.server)
	case KindPlan:
		take(p, line, p.plan)
	case KindRequest:
		take(p, line, p.request)
	case KindServed:
		take(p, line, p.served)
	case KindMemory:
		take(p, line, p.memory)
	case KindConfiguration:
		take(p, line, p.configuration)
	case KindSaturation:
		take(p, line, p.saturation)
	case KindClient:
		take(p, line, p.client)
	case KindTrailer:
		take(p, line, p.close)
	default:
		p.stop("", "kind %q is unknown to %s", kind, Schema)
	}
	p.trailer.Records++
}

// take decodes a line and hands the record on.
func take[T any](p *replay, line []byte, check func(*T)) {
	v := new(T)
	if err := p.decoder.decode(line, v); err != nil {
		p.stop(recordAt(line), "%v", err)
		return
	}
	check(v)
}
