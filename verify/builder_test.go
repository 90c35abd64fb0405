package verify

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
)

// file is evidence under construction: its records, in order, but for the
// trailer, which encode makes.
type file struct {
	records []any
	trailer Trailer
}

// encode gives the file's bytes with a trailer whose counts and hash are
// right, as an attacker would make them; what f.trailer counts is added.
func (f *file) encode() []byte {
	var out bytes.Buffer
	t := f.trailer
	for _, record := range f.records {
		out.Write(line(record))
		t.Records++
		switch r := record.(type) {
		case *Request:
			t.Requests++
			if r.Failure != nil {
				t.Failed++
			}
			n, _ := r.Tokens()
			t.Tokens += int64(n)
		case *Configuration:
			t.Configurations++
			if !r.Valid {
				t.Invalid++
			}
		}
	}
	sum := sha256.Sum256(out.Bytes())
	t.SHA256 = hex.EncodeToString(sum[:])
	out.Write(line(&t))
	return out.Bytes()
}

func line(record any) []byte {
	b, err := json.Marshal(record)
	if err != nil {
		panic(err)
	}
	return append(b, '\n')
}

func (f *file) header() *Header { return f.records[0].(*Header) }
func (f *file) corpus() *Corpus { return f.records[1].(*Corpus) }

func (f *file) server(n int) *Server {
	return find(f, func(s *Server) bool { return s.Server == n })
}

func (f *file) plan(config int) *Plan {
	return find(f, func(p *Plan) bool { return p.Config == config })
}

func (f *file) request(id string) *Request {
	return find(f, func(r *Request) bool { return r.ID == id })
}

func (f *file) served(id string) *Served {
	return find(f, func(s *Served) bool { return s.ID == id })
}

func (f *file) memory(config int) *Memory {
	return find(f, func(m *Memory) bool { return m.Config == config })
}

func (f *file) configuration(config int) *Configuration {
	return find(f, func(c *Configuration) bool { return c.Config == config })
}

func find[T any](f *file, is func(*T) bool) *T {
	for _, record := range f.records {
		if r, ok := record.(*T); ok && is(r) {
			return r
		}
	}
	panic(fmt.Sprintf("no such %T", *new(T)))
}

func (f *file) index(record any) int {
	for i, r := range f.records {
		if r == record {
			return i
		}
	}
	panic("no such record")
}

func (f *file) remove(record any) {
	f.records = slices.Delete(f.records, f.index(record), f.index(record)+1)
}

func (f *file) insertAfter(record, added any) {
	f.records = slices.Insert(f.records, f.index(record)+1, added)
}

// each calls do with each record of a kind in a configuration.
func each[T any](f *file, do func(*T)) {
	for _, record := range slices.Clone(f.records) {
		if r, ok := record.(*T); ok {
			do(r)
		}
	}
}

// recompute fills in all that a configuration says of its records, metrics
// too, as an attacker with this package would.
func (f *file) recompute(config int) {
	var sum Summary
	if f.header().Target != nil {
		sum.Foreign = f.plan(config)
	}
	if f.plan(config).Load.Kind == LoadOpen {
		sum.Open = f.plan(config)
	}
	served := map[string]*Served{}
	each(f, func(s *Served) {
		if s.Config == config {
			served[s.ID] = s
		}
	})
	each(f, func(r *Request) {
		if r.Config != config {
			return
		}
		sum.Add(r)
		if s := served[r.ID]; s != nil {
			sum.AddServed(r, s)
		}
	})
	each(f, func(m *Memory) {
		if m.Config == config {
			sum.AddMemory(m)
		}
	})
	c := f.configuration(config)
	sum.Fill(f.plan(config), c)
	c.Metrics = nil
	if c.Valid {
		c.Metrics = sum.Metrics(c.PeakBytes, f.header().HourlyUSD)
	}
}

// invalidate makes a configuration one that calls itself invalid.
func (f *file) invalidate(config int, reason string) {
	c := f.configuration(config)
	c.Valid, c.Reasons = false, []string{reason}
	f.recompute(config)
}

const (
	ms     = int64(1_000_000)
	us     = int64(1_000)
	digest = "4355a46b19d348dc2f57c046f8ef63d4538ebb936000f3c9ee954a27460dd865"
)

func goodPrompt(id string, warmup bool, text string, ids ...int32) Prompt {
	sum := sha256.Sum256([]byte(text))
	return Prompt{ID: id, Input: len(ids), Warmup: warmup, Text: text, IDs: ids, SHA256: hex.EncodeToString(sum[:])}
}

func goodCorpus(prompts ...Prompt) *Corpus {
	c := &Corpus{Kind: KindCorpus, Name: "small.jsonl", Prompts: prompts}
	seal(c)
	return c
}

// seal sets the hashes of a corpus.
func seal(c *Corpus) {
	var all []byte
	for i := range c.Prompts {
		sum := sha256.Sum256([]byte(c.Prompts[i].Text))
		c.Prompts[i].SHA256 = hex.EncodeToString(sum[:])
		all = append(all, line(&c.Prompts[i])...)
	}
	sum := sha256.Sum256(all)
	c.Bytes, c.SHA256 = int64(len(all)), hex.EncodeToString(sum[:])
}

// clock is simulated time, with a jitter that repeats itself from run to run
// but hardly within one.
type clock struct{ seed uint32 }

func (c *clock) jitter(most int64) int64 {
	c.seed = c.seed*1664525 + 1013904223
	return int64(c.seed>>8) % most
}

// good builds a small whole run: one server of one thread and one of two, on
// each a configuration measured twice, with one and with two clients; three
// prompts and a warmup of four tokens, three passes, five tokens an answer.
func good() *file {
	f := &file{trailer: Trailer{Kind: KindTrailer, Ended: "2026-11-30T20:00:01.6Z"}}
	f.records = []any{
		&Header{
			Kind: KindHeader, Schema: Schema, Run: "20261130T200000Z-0011223344556677", Started: "2026-11-30T20:00:00.123456789Z",
			Clock:    Clock{Name: "CLOCK_MONOTONIC", BaseNS: 86_400_000_000_001, ErrorNS: 150},
			Revision: "0123456789abcdef0123456789abcdef01234567", CleanTree: true, Go: "go1.26.8",
			Modules:   []Module{{"servebench", "(devel)", ""}, {"golang.org/x/sys", "v0.50.0", "h1:abc="}},
			Flags:     []Flag{{"test.count", "2", true}, {"threads", "1,2", false}},
			HourlyUSD: 0.25, Energy: Unmeasured,
			Host: Host{OS: "linux", Arch: "amd64", Kernel: "6.12.0", CPU: "Some CPU", CPUs: 2, AllowedCPUs: 2, Governor: "performance",
				CgroupCPUMax: "max 100000", CgroupMemBytes: 4 << 30, MemTotalBytes: 8 << 30, MemFreeBytes: 6 << 30, Load: []float64{0.25, 0.5, 1}, MachineLock: true},
			Warnings: []string{},
		},
		goodCorpus(
			goodPrompt("4-warmup", true, "Wake up, <you>!", 3, 1, 4, 1),
			goodPrompt("4-a", false, "Où est la gare ?", 5, 9, 2, 6),
			goodPrompt("4-b", false, "猫は眠っている。", 5, 3, 5, 8),
			goodPrompt("4-c", false, "line one\nline two", 9, 7, 9, 3),
		),
	}
	now := clock{seed: 7}
	t := 40 * ms
	config := 0
	for number, threads := range []int{1, 2} {
		t += 300 * ms
		f.records = append(f.records, &Server{
			Kind: KindServer, Server: number + 1, ReadyNS: t, PID: 4711 + number, Binary: File{"serve", 12_345_678, digest}, Go: "go1.26.8",
			Libraries:    []Library{{"onnxruntime", "1.24.1", File{"libonnxruntime.so.1", 22_052_768, digest}}, {"tokenizers", "1.23.0", File{}}},
			IntraThreads: threads, InterThreads: 1, Spinning: threads > 1, HugePages: "collapse", Slots: 1, ContextLimit: 8192,
			LoadNS: 290 * ms, ClockErrorNS: 120,
			Model: Model{ID: "tiny", Source: "made for these tests", Precision: "fp32", Parameters: 1000, Vocabulary: 50,
				Files:  []File{{"model.onnx", 512, digest}, {"model.data", 4096, digest}},
				Inputs: []File{{"model.gguf", 1024, digest}}},
		})
		for repetition := 1; repetition <= 2; repetition++ {
			config++
			t = f.measure(&now, t+5*ms, config, number+1, threads, repetition)
		}
	}
	f.trailer.EndNS = t + 20*ms
	return f
}

// measure adds a configuration with as many clients as threads and returns
// when it was closed.
func (f *file) measure(now *clock, t int64, config, server, threads, repetition int) int64 {
	conc := threads
	plan := &Plan{
		Kind: KindPlan, Config: config, Server: server, Name: fmt.Sprintf("BenchmarkServe/threads=%d/input=4/conc=%d", threads, conc),
		Axes:       []Axis{{"threads", fmt.Sprint(threads)}, {"input", "4"}, {"conc", fmt.Sprint(conc)}},
		Repetition: repetition, GOMAXPROCS: 2, Load: Load{Kind: LoadClosed, Conc: conc},
		Prompts: []string{"4-a", "4-b", "4-c"}, Warmups: []string{"4-warmup"}, OutputTokens: 5, ExactOutput: true, PlannedNS: t,
	}
	f.records = append(f.records, plan)
	var served []any
	slotFree := t
	const passes = 3
	for pass := -1; pass < passes; pass++ {
		prompts := plan.Prompts
		if pass < 0 {
			prompts = plan.Warmups
		}
		free := make([]int64, conc)
		for i := range free {
			free[i] = t + 2*ms + int64(i)*10*us
		}
		for i, prompt := range prompts {
			client := slices.Index(free, slices.Min(free))
			r, s := exchange(now, free[client], &slotFree, f.prompt(prompt), plan.OutputTokens)
			r.Config, s.Config = config, config
			r.Client = client
			r.Phase, r.Pass, r.ID = PhaseMeasured, pass, fmt.Sprintf("%d.%d.%d", config, pass, i)
			if pass < 0 {
				r.Phase, r.Pass, r.ID = PhaseWarmup, 0, fmt.Sprintf("%d.w.%d", config, i)
			}
			s.ID = r.ID
			free[client] = r.EndNS + 3*us
			f.records = append(f.records, r)
			served = append(served, s)
		}
		t = slices.Max(free)
	}
	f.records = append(f.records, served...)
	memory := &Memory{Kind: KindMemory, Config: config}
	for ns := plan.PlannedNS + ms; ns < t; ns += 10 * ms {
		memory.TimeNS = append(memory.TimeNS, ns)
		memory.RSSBytes = append(memory.RSSBytes, 5_000_000+4096*now.jitter(100))
	}
	f.records = append(f.records, memory, &Configuration{
		Kind: KindConfiguration, Config: config, Passes: passes, PeakBytes: 5_500_928, PeakSource: "VmHWM", Valid: true, Reasons: []string{},
	})
	f.recompute(config)
	return t + ms
}

func (f *file) prompt(id string) *Prompt {
	for i := range f.corpus().Prompts {
		if p := &f.corpus().Prompts[i]; p.ID == id {
			return p
		}
	}
	panic("no prompt " + id)
}

// exchange simulates one request to a server of one slot.
func exchange(now *clock, free int64, slotFree *int64, prompt *Prompt, tokens int) (*Request, *Served) {
	r := &Request{Kind: KindRequest, Prompt: prompt.ID, OutputTokens: tokens, PromptIDs: prompt.IDs, Status: 200, Finish: "length",
		Usage: &Usage{PromptTokens: prompt.Input, CompletionTokens: tokens}}
	s := &Served{Kind: KindServed, PromptIDs: prompt.IDs, Steps: tokens}
	r.ScheduledNS = free
	r.StartNS = r.ScheduledNS + us + now.jitter(us)
	r.ConnectedNS = r.StartNS + 50*us + now.jitter(us)
	r.SentNS = r.ConnectedNS + 9*us + now.jitter(us)
	s.ArrivalNS = r.ConnectedNS + 15*us + now.jitter(us)
	s.QueuedNS = s.ArrivalNS + 20*us + now.jitter(us)
	r.HeadersNS = s.QueuedNS + 30*us + now.jitter(us)
	s.SlotNS = max(s.QueuedNS+100, *slotFree+100)
	at := s.SlotNS + 10*ms
	for i := range tokens {
		at += 2*ms + now.jitter(100*us)
		s.TokenIDs = append(s.TokenIDs, (prompt.IDs[0]*7+int32(i)*11)%50)
		s.TokenNS = append(s.TokenNS, at)
		r.EventNS = append(r.EventNS, at+25*us+now.jitter(5*us))
		r.EventIDs = append(r.EventIDs, 1)
	}
	r.TokenIDs = s.TokenIDs
	s.ReleaseNS = at + 40*us
	*slotFree = s.ReleaseNS
	r.EventNS = append(r.EventNS, s.ReleaseNS+30*us, s.ReleaseNS+30*us)
	r.EventIDs = append(r.EventIDs, 0, 0)
	r.EventKinds = strings.Repeat("c", tokens) + "od"
	r.Text = "answer to " + prompt.Text
	r.EndNS = s.ReleaseNS + 55*us + now.jitter(us)
	return r, s
}

// decodeFile reads bytes that encode made, as fresh records to change.
func decodeFile(t testing.TB, data []byte) *file {
	t.Helper()
	f := &file{}
	for l := range bytes.Lines(data) {
		record := newRecord(t, l)
		if trailer, ok := record.(*Trailer); ok {
			f.trailer = Trailer{Kind: trailer.Kind, Ended: trailer.Ended, EndNS: trailer.EndNS}
			continue
		}
		f.records = append(f.records, record)
	}
	return f
}

func newRecord(t testing.TB, l []byte) any {
	t.Helper()
	kind, _ := recordKind(l)
	record, ok := map[string]any{
		KindHeader: &Header{}, KindCorpus: &Corpus{}, KindServer: &Server{}, KindPlan: &Plan{}, KindRequest: &Request{},
		KindClient: &Client{}, KindServed: &Served{}, KindMemory: &Memory{}, KindConfiguration: &Configuration{}, KindSaturation: &Saturation{},
		KindTrailer: &Trailer{},
	}[kind]
	if !ok {
		t.Fatalf("no kind: %s", l)
	}
	if err := json.Unmarshal(l, record); err != nil {
		t.Fatal(err)
	}
	return record
}

// replayed reads evidence from memory.
func replayed(t testing.TB, data []byte) *Report {
	t.Helper()
	report, err := Replay("run.jsonl", bytes.NewReader(data))
	if err != nil {
		t.Fatal(err)
	}
	return report
}

func TestGoodEvidenceIsConsistent(t *testing.T) {
	data := good().encode()
	report := replayed(t, data)
	for _, p := range report.Problems {
		t.Error(p)
	}
	if report.Verdict != Consistent || report.Err() != nil || report.Valid() != 4 || len(report.Invalid()) != 0 || len(report.Results) != 4 {
		t.Errorf("verdict %v, error %v, %d valid and %d invalid of %d", report.Verdict, report.Err(), report.Valid(), len(report.Invalid()), len(report.Results))
	}
	if len(report.Warnings) > 0 {
		t.Errorf("warnings %q, want none", report.Warnings)
	}
	if sum := sha256.Sum256(data); report.SHA256 != hex.EncodeToString(sum[:]) {
		t.Errorf("SHA256 = %s, want that of the file", report.SHA256)
	}
	if got := report.Results[3]; got.Requests != 10 || got.Plan.Repetition != 2 || got.QueueP50NS < ms {
		t.Errorf("last result: %d requests, repetition %d, queue %d ns, want 10, 2 and a wait", got.Requests, got.Plan.Repetition, got.QueueP50NS)
	}
}
