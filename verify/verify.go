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
//  2. Records come in a fixed order (see the Kind constants); the corpus is
//     held against its hash, a server's model against its size.
//  3. From plan to configuration, requests (the client's view) and served
//     records (the server's) are collected. Then the configuration is judged:
//     each request by itself, the two witnesses against each other, the slot,
//     the load, the prompts and answers, and last the metrics, computed again
//     from the stamps and compared to the last bit.
//  4. The trailer is held against the counts and the hash of all before it.
//
// Memory is bounded by the largest configuration, not by the file.
package verify

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"io"
	"strings"
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
	Line  int
	Where string // the record: "request 1.0.3", "configuration 2", …
	Err   string // value and expectation
}

func (p *Problem) Error() string {
	place := fmt.Sprintf("line %d", p.Line)
	if p.File != "" {
		place = fmt.Sprintf("%s:%d", p.File, p.Line)
	}
	if p.Where == "" {
		return fmt.Sprintf("verify: %s: %s", place, p.Err)
	}
	return fmt.Sprintf("verify: %s: %s: %s", place, p.Where, p.Err)
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
}

// Report is what Replay found in a file.
type Report struct {
	Verdict  Verdict
	Problems []*Problem // at most 100
	Header   *Header    // nil if the file has no readable first line
	Corpus   *Corpus
	Servers  []Server
	Results  []Result
	Trailer  *Trailer // nil if it is missing
	SHA256   string   // of the whole file
	Missing  string   // what an incomplete file lacks
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
	p := &replay{
		report:  &Report{},
		name:    name,
		hash:    sha256.New(),
		prompts: map[string]*Prompt{},
		answers: map[string][]int32{},
		ids:     map[string]bool{},
		repeats: map[string]int{},
	}
	reader := bufio.NewReaderSize(source, 1<<20)
	var line []byte
	for {
		part, err := reader.ReadSlice('\n')
		line = append(line, part...)
		if errors.Is(err, bufio.ErrBufferFull) {
			if len(line) > maxLine {
				p.line++
				p.problem("", "a line of over %d bytes", maxLine)
				break
			}
			continue
		}
		if err == nil {
			p.record(line[:len(line)-1])
			p.hash.Write(line)
			line = line[:0]
			if len(p.report.Problems) >= maxProblems || p.broken {
				break
			}
			continue
		}
		if err != io.EOF {
			return nil, fmt.Errorf("verify: %s: %w", name, err)
		}
		p.hash.Write(line)
		p.end(line)
		break
	}
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
	report *Report
	name   string
	hash   hash.Hash
	line   int
	broken bool // order is lost; later lines would only repeat the first problem

	prompts map[string]*Prompt
	answers map[string][]int32 // by prompt id, the longest answer so far
	ids     map[string]bool    // of requests
	repeats map[string]int     // of a name and GOMAXPROCS
	cell    *cell              // the open configuration
	lastNS  int64              // end of the configuration before

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

// end is called with what stands after the last newline.
func (p *replay) end(rest []byte) {
	r := p.report
	switch {
	case r.Trailer != nil && len(rest) > 0:
		p.line++
		p.problem("", "%d bytes after the trailer", len(rest))
	case r.Trailer != nil || len(r.Problems) > 0:
	case r.Header == nil:
		r.Missing = "no header: the file is empty or its first line is cut off"
		if len(rest) > 0 && !bytes.HasPrefix(rest, []byte(`{"kind":"header",`)) {
			p.line++
			p.problem("", "not evidence: the first line is no header record")
		}
	case p.cell != nil:
		r.Missing = fmt.Sprintf("the run ended within configuration %d, %s, after %d requests", p.cell.plan.Config, p.cell.plan.Name, len(p.cell.requests))
		p.closeCell()
	default:
		r.Missing = fmt.Sprintf("no trailer: the run ended after %d configurations", len(r.Results))
	}
}

func (p *replay) closeCell() {
	if p.cell == nil {
		return
	}
	p.report.Results = append(p.report.Results, Result{p.cell.plan, p.cell.configuration, len(p.cell.requests)})
	p.cell = nil
}

func (p *replay) record(line []byte) {
	p.line++
	r := p.report
	var kind struct {
		Kind   string `json:"kind"`
		Schema string `json:"schema"`
	}
	if err := json.Unmarshal(line, &kind); err != nil {
		// The fields of kind are strings, so only broken JSON comes here.
		p.problem(recordAt(line), "%s", describeJSON(line, err))
		p.broken = true
		return
	}
	if r.Trailer != nil {
		p.problem("", "a %q record after the trailer", kind.Kind)
		p.broken = true
		return
	}
	if (r.Header == nil) != (kind.Kind == KindHeader) {
		if r.Header == nil {
			p.problem("", "the first record is %q, want %q", kind.Kind, KindHeader)
		} else {
			p.problem("", "a second header")
		}
		p.broken = true
		return
	}
	if kind.Kind == KindHeader && kind.Schema != Schema {
		p.problem("header", "schema %q, want %q", kind.Schema, Schema)
		p.broken = true
		return
	}
	switch kind.Kind {
	case KindHeader:
		record(p, line, p.header)
	case KindCorpus:
		record(p, line, p.corpus)
	case KindServer:
		record(p, line, p.server)
	case KindPlan:
		record(p, line, p.plan)
	case KindRequest:
		record(p, line, p.request)
	case KindServed:
		record(p, line, p.served)
	case KindMemory:
		record(p, line, p.memory)
	case KindConfiguration:
		record(p, line, p.configuration)
	case KindTrailer:
		record(p, line, p.end0)
	default:
		p.problem("", "kind %q is unknown to %s", kind.Kind, Schema)
		p.broken = true
	}
	p.trailer.Records++
}

// record decodes line strictly and hands it on.
func record[T any](p *replay, line []byte, take func(*T)) {
	v := new(T)
	dec := json.NewDecoder(bytes.NewReader(line))
	dec.DisallowUnknownFields()
	if err := dec.Decode(v); err != nil {
		p.problem(recordAt(line), "%s", describeJSON(line, err))
		p.broken = true
		return
	}
	again, err := json.Marshal(v)
	if err != nil {
		p.problem(recordAt(line), "%v", err)
		p.broken = true
		return
	}
	if !bytes.Equal(again, line) {
		at := 0
		for at < min(len(again), len(line)) && again[at] == line[at] {
			at++
		}
		p.problem(recordAt(line), "not in canonical form at byte %d: have %s, want %s", at, excerpt(line, at), excerpt(again, at))
		p.broken = true
		return
	}
	take(v)
}

func excerpt(line []byte, at int) string {
	return fmt.Sprintf("%q", line[max(0, at-24):min(len(line), at+24)])
}

// recordAt names a record that can't be decoded, as well as its text allows.
func recordAt(line []byte) string {
	kind, id := scanString(line, `"kind":"`), scanString(line, `"id":"`)
	return strings.TrimSpace(kind + " " + id)
}

func scanString(line []byte, key string) string {
	_, rest, found := bytes.Cut(line, []byte(key))
	if !found {
		return ""
	}
	value, _, found := bytes.Cut(rest[:min(len(rest), 200)], []byte(`"`))
	if !found {
		return ""
	}
	return string(value)
}

// describeJSON adds to an error of encoding/json the field where it stands.
func describeJSON(line []byte, err error) string {
	var offset int64
	var syntax *json.SyntaxError
	var typed *json.UnmarshalTypeError
	switch {
	case errors.As(err, &typed):
		return fmt.Sprintf("field %q: %s doesn't fit its type %s", typed.Field, typed.Value, typed.Type)
	case errors.As(err, &syntax):
		offset = syntax.Offset
	default:
		return err.Error()
	}
	head := line[:min(int(offset), len(line))]
	field := ""
	if end := bytes.LastIndex(head, []byte(`":`)); end >= 0 {
		if begin := bytes.LastIndexByte(head[:end], '"'); begin >= 0 {
			field = string(head[begin+1 : end])
		}
	}
	return fmt.Sprintf("field %q: %v at byte %d, near %s", field, err, offset, excerpt(line, max(0, int(offset)-1)))
}
