package verify

import (
	"bytes"
	"crypto/sha256"
	"encoding/csv"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Trace is a recorded load: when requests came and how long they were.
type Trace struct {
	File     File
	Requests []Due // times as in the file, from the first on
	Lines    []int // of the file, of each request
}

// traceColumns is the layout of the public Azure LLM inference traces of 2023
// and 2024.
var traceColumns = []string{"TIMESTAMP", "ContextTokens", "GeneratedTokens"}

// traceTimes are the forms of their timestamps, fractions of a second included.
var traceTimes = []string{"2006-01-02 15:04:05", "2006-01-02 15:04:05Z07:00"}

const (
	mostTrace       = 1_000_000  // requests
	mostTraceTokens = 10_000_000 // in prompts of all lengths, which are one record of the evidence
)

// ReadTrace reads a trace: CSV with a header line and a line for each request,
// in the order of their times. name is the file's, and stands in errors, which
// name line and column.
func ReadTrace(name string, data []byte) (*Trace, error) {
	base := filepath.Base(name)
	sum := sha256.Sum256(data)
	t := &Trace{File: File{base, int64(len(data)), hex.EncodeToString(sum[:])}}
	reader := csv.NewReader(bytes.NewReader(bytes.TrimPrefix(data, []byte("\ufeff"))))
	reader.FieldsPerRecord = -1 // looked at here
	reader.ReuseRecord = true
	var first, last time.Time
	lengths, tokens := map[int]bool{}, 0
	layout := ""
	for header := true; ; header = false {
		record, err := reader.Read()
		if err == io.EOF {
			break
		}
		if parse := new(csv.ParseError); errors.As(err, &parse) {
			return nil, fmt.Errorf("verify: %s:%d:%d: %w", base, parse.Line, parse.Column, parse.Err)
		} else if err != nil {
			return nil, fmt.Errorf("verify: %s: %w", base, err)
		}
		wrong := func(column int, format string, args ...any) error {
			line, at := reader.FieldPos(column)
			return fmt.Errorf("verify: %s:%d:%d: %s", base, line, at, fmt.Sprintf(format, args...))
		}
		if header {
			if !slices.Equal(record, traceColumns) {
				return nil, wrong(0, "the header is %.60q, want %s, as the public Azure LLM inference traces have it", strings.Join(record, ","), strings.Join(traceColumns, ","))
			}
			continue
		}
		if len(record) != len(traceColumns) {
			return nil, wrong(0, "%d columns, want %s", len(record), strings.Join(traceColumns, ","))
		}
		at, form, err := traceTime(record[0], layout)
		if err != nil {
			return nil, wrong(0, "%v", err)
		}
		layout = form
		if len(t.Requests) == 0 {
			first, last = at, at
		}
		switch {
		case at.Before(last):
			return nil, wrong(0, "TIMESTAMP %s lies before that of the request ahead of it: sort the lines by their times", record[0])
		case at.Sub(first) > maxNS:
			return nil, wrong(0, "TIMESTAMP %s lies %v after the first, want at most %v", record[0], at.Sub(first), time.Duration(maxNS))
		case len(t.Requests) == mostTrace:
			return nil, wrong(0, "more than %d requests: replay it in parts", mostTrace)
		}
		last = at
		due := Due{DueNS: int64(at.Sub(first))}
		for column, into := range []*int{1: &due.Input, 2: &due.Output} {
			if into == nil {
				continue
			}
			if *into, err = strconv.Atoi(record[column]); err != nil || *into < 1 || *into > mostTraceTokens {
				return nil, wrong(column, "%s %.20q, want a whole number from 1 to %d: take out what was no answer", traceColumns[column], record[column], mostTraceTokens)
			}
		}
		if !lengths[due.Input] {
			lengths[due.Input] = true
			if tokens += due.Input; tokens > mostTraceTokens {
				return nil, wrong(1, "a prompt of each length so far would have %d tokens together, want at most %d: replay it in parts", tokens, mostTraceTokens)
			}
		}
		line, _ := reader.FieldPos(0)
		t.Requests, t.Lines = append(t.Requests, due), append(t.Lines, line)
	}
	if len(t.Requests) == 0 {
		return nil, fmt.Errorf("verify: %s: no requests, want the line %s and one for each request", base, strings.Join(traceColumns, ","))
	}
	return t, nil
}

// traceTime reads a timestamp; all of a file have the layout of the first.
func traceTime(text, layout string) (time.Time, string, error) {
	for _, form := range traceTimes {
		if at, err := time.Parse(form, text); err == nil && (layout == "" || layout == form) {
			return at, form, nil
		}
	}
	if layout != "" {
		return time.Time{}, "", fmt.Errorf("TIMESTAMP %.40q, want it in the form of those before it", text)
	}
	return time.Time{}, "", fmt.Errorf("TIMESTAMP %.40q, want one as 2023-11-16 18:15:46.6805900, with or without a zone as +00:00", text)
}

// Describe names a trace in one line, as the configuration line "trace" of a
// benchmark's output has it.
func (t *Trace) Describe() string { return t.File.describe() }

func (f *File) describe() string { return fmt.Sprintf("%s, sha256 %.16s", f.Name, f.SHA256) }

// Within returns an error that names the first request whose prompt and answer
// together are longer than limit tokens.
func (t *Trace) Within(limit int) error {
	for i, due := range t.Requests {
		if due.Input+due.Output > limit {
			return fmt.Errorf("verify: %s:%d: ContextTokens %d and GeneratedTokens %d are more than the model's context of %d tokens: take such lines out, or measure a model with a longer context", t.File.Name, t.Lines[i], due.Input, due.Output, limit)
		}
	}
	return nil
}

// Longest is the most tokens, prompt and answer together, of a request.
func (t *Trace) Longest() (tokens int) {
	for _, due := range t.Requests {
		tokens = max(tokens, due.Input+due.Output)
	}
	return tokens
}

// TraceAxis is the value of the axis trace: the file's name without its ending,
// with nothing in it that means something in a benchmark's name.
func (l *Load) TraceAxis() string {
	if l.TraceFile == nil {
		return ""
	}
	name := strings.TrimSuffix(l.TraceFile.Name, filepath.Ext(l.TraceFile.Name))
	name = strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("._-", r) {
			return r
		}
		return '_'
	}, name)
	// What ends like the suffix for GOMAXPROCS would be taken for one.
	if dash := strings.LastIndexByte(name, '-'); dash >= 0 && strings.Trim(name[dash+1:], "0123456789") == "" {
		name = name[:dash] + "_" + name[dash+1:]
	}
	if name == "" {
		return "trace"
	}
	return name
}

// traceSchedule returns the times of a trace, scaled.
func (l *Load) traceSchedule() ([]int64, error) {
	if len(l.Trace) == 0 {
		return nil, errors.New("a trace of no requests")
	}
	before := int64(0)
	for i := range l.Trace {
		if at := l.Trace[i].DueNS; at < before || at > maxNS {
			return nil, fmt.Errorf("trace[%d] is due at %d ns, want them to rise from 0 on", i, at)
		}
		before = l.Trace[i].DueNS
	}
	scale, err := decimal("trace_scale", l.TraceScale, 1e-6, 1e6)
	if err != nil {
		return nil, err
	}
	due := make([]int64, len(l.Trace))
	for i := range l.Trace {
		scaled := float64(float64(l.Trace[i].DueNS) * scale)
		if scaled > maxNS {
			return nil, fmt.Errorf("trace[%d] is due at %d ns times %s, want at most 2^55 ns", i, l.Trace[i].DueNS, l.TraceScale)
		}
		due[i] = int64(scaled)
	}
	return due, nil
}

// planTrace checks what the plan of a trace says of it.
func (p *replay) planTrace(where string, plan *Plan) {
	l := &plan.Load
	if (l.Arrival == ArrivalTrace) != (l.TraceFile != nil) || (l.TraceFile != nil) != (l.TraceScale != "") {
		p.problem(where, "load: arrival %q, trace_file and trace_scale %q: a trace has both, and nothing else has", l.Arrival, l.TraceScale)
		return
	}
	if l.TraceFile == nil {
		return
	}
	if err := l.TraceFile.check(); err != nil {
		p.problem(where, "load: trace_file: %v", err)
	}
	if l.Rate != "" || l.Burstiness != "" || l.Seed != 0 || l.DurationNS != 0 || l.Requests != 0 || len(l.Steps) > 0 || l.Share != "" {
		p.problem(where, "load: a trace with a rate, burstiness, seed, duration_ns, requests, steps or share: it has its own times")
	}
	if len(l.Trace) > 0 && l.Trace[0].DueNS != 0 {
		p.problem(where, "load: trace[0] is due at %d ns, want 0: times count from the first", l.Trace[0].DueNS)
	}
	for i, due := range l.Trace {
		if due.Input < 1 || due.Output < 1 || due.Input > mostTraceTokens || due.Output > mostTraceTokens {
			p.problem(where, "load: trace[%d] has input %d and output %d, want 1 to %d of each", i, due.Input, due.Output, mostTraceTokens)
			return
		}
	}
	if len(l.Trace) != len(plan.Prompts) {
		p.problem(where, "%d prompts for the trace's %d requests", len(plan.Prompts), len(l.Trace))
		return
	}
	for i, id := range plan.Prompts {
		if prompt := p.prompts[id]; prompt != nil && prompt.Input != l.Trace[i].Input {
			p.problem(where, "prompt %q has %d tokens, want the %d of trace[%d]", id, prompt.Input, l.Trace[i].Input, i)
			return
		}
	}
	// One file has one content.
	for _, before := range p.report.Results {
		other := &before.Plan.Load
		if other.TraceFile == nil || other.TraceFile.SHA256 != l.TraceFile.SHA256 {
			continue
		}
		if *other.TraceFile != *l.TraceFile || !slices.Equal(other.Trace, l.Trace) {
			p.problem(where, "load: trace_file has the sha256 of that of configuration %d, but another name, size or trace", before.Plan.Config)
		}
		return
	}
}

// CheckTrace holds a trace's file against the configurations that replayed it,
// and adds what contradicts to r's problems.
func (r *Report) CheckTrace(t *Trace) {
	problem := func(where, format string, args ...any) {
		r.Problems = append(r.Problems, &Problem{t.File.Name, 0, where, fmt.Sprintf(format, args...)})
		r.Verdict = Inconsistent
	}
	found := false
	for _, c := range r.Results {
		l := &c.Plan.Load
		if l.TraceFile == nil {
			continue
		}
		found = true
		where := fmt.Sprintf("configuration %d", c.Plan.Config)
		if l.TraceFile.SHA256 != t.File.SHA256 || l.TraceFile.Bytes != t.File.Bytes {
			problem(where, "it replayed a trace of %d bytes with sha256 %q, but the file has %d and %q", l.TraceFile.Bytes, l.TraceFile.SHA256, t.File.Bytes, t.File.SHA256)
			continue
		}
		for i := range max(len(l.Trace), len(t.Requests)) {
			if i >= len(l.Trace) || i >= len(t.Requests) || l.Trace[i] != t.Requests[i] {
				problem(where, "its trace isn't that of the file, from request %d on", i)
				break
			}
		}
	}
	if !found {
		problem("", "no configuration replayed a trace")
	}
}
