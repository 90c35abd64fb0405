package verify

import (
	"reflect"
	"slices"
	"strings"
	"testing"
)

const traceHead = "TIMESTAMP,ContextTokens,GeneratedTokens\n"

func TestReadTrace(t *testing.T) {
	for _, test := range []struct {
		name, data string
		want       []Due
		lines      []int
	}{
		{"2023", traceHead + "2023-11-16 18:15:46.6805900,374,44\n2023-11-16 18:15:50.9951690,396,109\n2023-11-16 18:15:50.9951690,2,1\n", []Due{{0, 374, 44}, {4314579000, 396, 109}, {4314579000, 2, 1}}, []int{2, 3, 4}},
		{"2024, with a zone", traceHead + "2024-05-10 00:00:00.009930+00:00,2162,5\n2024-05-10 00:00:00.017335+00:00,2399,6\n", []Due{{0, 2162, 5}, {7405000, 2399, 6}}, []int{2, 3}},
		{"of Windows", "\ufeff" + strings.ReplaceAll(traceHead, "\n", "\r\n") + "2023-11-16 18:15:46,1,2\r\n\r\n2023-11-16 18:15:47,3,4", []Due{{0, 1, 2}, {1e9, 3, 4}}, []int{2, 4}},
		{"over midnight", traceHead + "2023-12-31 23:59:59.5,1,2\n2024-01-01 00:00:00.5,3,4\n", []Due{{0, 1, 2}, {1e9, 3, 4}}, []int{2, 3}},
	} {
		got, err := ReadTrace("dir/"+test.name+".csv", []byte(test.data))
		if err != nil {
			t.Errorf("%s: %v", test.name, err)
			continue
		}
		if !slices.Equal(got.Requests, test.want) || !slices.Equal(got.Lines, test.lines) || got.File.Name != test.name+".csv" || got.File.Bytes != int64(len(test.data)) {
			t.Errorf("%s: %+v, want %v at %v", test.name, got, test.want, test.lines)
		}
	}
}

func TestReadTraceRefuses(t *testing.T) {
	const row = "2023-11-16 18:15:46.6805900,374,44\n"
	for _, test := range []struct{ name, data, want string }{
		{"nothing", "", "verify: t.csv: no requests, want the line TIMESTAMP,ContextTokens,GeneratedTokens and one for each request"},
		{"header alone", traceHead, "verify: t.csv: no requests, want the line TIMESTAMP,ContextTokens,GeneratedTokens and one for each request"},
		{"no header", row, `verify: t.csv:1:1: the header is "2023-11-16 18:15:46.6805900,374,44", want TIMESTAMP,ContextTokens,GeneratedTokens, as the public Azure LLM inference traces have it`},
		{"another layout", "Timestamp,Model,Request tokens\n", `verify: t.csv:1:1: the header is "Timestamp,Model,Request tokens", want TIMESTAMP,ContextTokens,GeneratedTokens, as the public Azure LLM inference traces have it`},
		{"a column more", traceHead + "2023-11-16 18:15:46.6805900,374,44,1\n", "verify: t.csv:2:1: 4 columns, want TIMESTAMP,ContextTokens,GeneratedTokens"},
		{"a column less", traceHead + row + "2023-11-16 18:15:47,374\n", "verify: t.csv:3:1: 2 columns, want TIMESTAMP,ContextTokens,GeneratedTokens"},
		{"a quote", traceHead + "2023-11-16 18:15:47,3\"74,1\n", `verify: t.csv:2:22: bare " in non-quoted-field`},
		{"seconds", traceHead + "1700158546.68,374,44\n", `verify: t.csv:2:1: TIMESTAMP "1700158546.68", want one as 2023-11-16 18:15:46.6805900, with or without a zone as +00:00`},
		{"no such day", traceHead + "2023-02-30 18:15:46,374,44\n", `verify: t.csv:2:1: TIMESTAMP "2023-02-30 18:15:46", want one as 2023-11-16 18:15:46.6805900, with or without a zone as +00:00`},
		{"two forms", traceHead + row + "2023-11-16 18:15:47+00:00,374,44\n", `verify: t.csv:3:1: TIMESTAMP "2023-11-16 18:15:47+00:00", want it in the form of those before it`},
		{"back in time", traceHead + row + "\n2023-11-16 18:15:46.68,374,44\n", "verify: t.csv:4:1: TIMESTAMP 2023-11-16 18:15:46.68 lies before that of the request ahead of it: sort the lines by their times"},
		{"years", traceHead + row + "2025-11-16 18:15:46.6805900,1,1\n", "verify: t.csv:3:1: TIMESTAMP 2025-11-16 18:15:46.6805900 lies 17544h0m0s after the first, want at most 10007h59m57.018963968s"},
		{"no answer", traceHead + "2023-11-16 18:15:46.6805900,374,0\n", `verify: t.csv:2:33: GeneratedTokens "0", want a whole number from 1 to 10000000: take out what was no answer`},
		{"half a token", traceHead + "2023-11-16 18:15:46.6805900,37.4,44\n", `verify: t.csv:2:29: ContextTokens "37.4", want a whole number from 1 to 10000000: take out what was no answer`},
		{"negative", traceHead + "2023-11-16 18:15:46.6805900,-3,44\n", `verify: t.csv:2:29: ContextTokens "-3", want a whole number from 1 to 10000000: take out what was no answer`},
		{"too much to keep", traceHead + "2023-11-16 18:15:46,9999999,1\n2023-11-16 18:15:46,9999999,1\n2023-11-16 18:15:46,2,1\n", "verify: t.csv:4:21: a prompt of each length so far would have 10000001 tokens together, want at most 10000000: replay it in parts"},
	} {
		if _, err := ReadTrace("t.csv", []byte(test.data)); err == nil || err.Error() != test.want {
			t.Errorf("%s:\n got %v\nwant %s", test.name, err, test.want)
		}
	}
}

func TestTraceAxis(t *testing.T) {
	for file, want := range map[string]string{
		"AzureLLMInferenceTrace_conv.csv": "AzureLLMInferenceTrace_conv", "azure-2023.csv": "azure_2023", "azure-2023-11-16": "azure-2023-11_16",
		"a b=c.csv": "a_b_c", "a.b.csv": "a.b", ".csv": "trace", "été.csv": "_t_", "x-": "x_", "x-y2": "x-y2",
	} {
		if got := (&Load{TraceFile: &File{Name: file}}).TraceAxis(); got != want {
			t.Errorf("%q: %q, want %q", file, got, want)
		}
	}
}

func FuzzReadTrace(f *testing.F) {
	f.Add([]byte(traceHead + "2023-11-16 18:15:46.6805900,374,44\n2023-11-16 18:15:46.6805901,4,4\n"))
	f.Add([]byte("\ufeff" + traceHead + "2024-05-10 00:00:00.009930+00:00,2162,5\r\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		trace, err := ReadTrace("t.csv", data)
		if err != nil {
			return
		}
		l := &Load{Kind: LoadOpen, Arrival: ArrivalTrace, Trace: trace.Requests, TraceFile: &trace.File, TraceScale: "1"}
		if due, err := l.Schedule(); err != nil || due[0] != 0 || len(due) != len(trace.Lines) {
			t.Errorf("it was read, but has no schedule: %v", err)
		}
	})
}

// traced builds evidence of a trace: three requests, two of them of four tokens
// and one of two, with times stretched by 2.
func traced() *file {
	f := good()
	f.records = f.records[:3] // one server
	f.corpus().Prompts = append(f.corpus().Prompts, goodPrompt("2-a", false, "Hi !", 7, 8))
	seal(f.corpus())
	plan := &Plan{
		Kind: KindPlan, Config: 1, Server: 1, Name: "BenchmarkServe/threads=1/trace=day", Axes: []Axis{{"threads", "1"}, {"trace", "day"}},
		Repetition: 1, GOMAXPROCS: 1, Prompts: []string{"4-a", "2-a", "4-b"}, Warmups: []string{"4-warmup"}, OutputTokens: 5, ExactOutput: true, PlannedNS: 400 * ms,
		Load: Load{Kind: LoadOpen, Arrival: ArrivalTrace, Trace: []Due{{0, 4, 5}, {10 * ms, 2, 3}, {30 * ms, 4, 2}}, TraceFile: &File{"day.csv", 140, digest},
			TraceScale: "2", MaxLagNS: DefaultMaxLagNS},
	}
	f.records = append(f.records, plan)
	now, slotFree := clock{seed: 3}, plan.PlannedNS
	var served []any
	add := func(phase, id, prompt string, at int64, output int) {
		r, s := exchange(&now, at, &slotFree, f.prompt(prompt), output)
		r.Config, r.ID, r.Phase = 1, id, phase
		s.Config, s.ID = 1, id
		f.records = append(f.records, r)
		served = append(served, s)
	}
	add(PhaseWarmup, "1.w.0", "4-warmup", 401*ms, 5)
	add(PhaseMeasured, "1.0.0", "4-a", 500*ms, 5)
	add(PhaseMeasured, "1.0.1", "2-a", 520*ms, 3)
	add(PhaseMeasured, "1.0.2", "4-b", 560*ms, 2)
	f.records = append(f.records, served...)
	f.records = append(f.records, &Configuration{Kind: KindConfiguration, Config: 1, Passes: 1, PeakSource: Unmeasured, Valid: true, Reasons: []string{}})
	f.retrace()
	f.trailer.EndNS = 700 * ms
	return f
}

// retrace makes the closing record of traced right again.
func (f *file) retrace() {
	sum := Summary{Open: f.plan(1)}
	each(f, sum.Add)
	each(f, func(s *Served) { sum.AddServed(f.request(s.ID), s) })
	c := f.configuration(1)
	sum.Fill(f.plan(1), c)
	c.Metrics = sum.Metrics(0, f.header().HourlyUSD)
}

func TestTraceEvidence(t *testing.T) {
	report := replayed(t, traced().encode())
	if err := report.Err(); err != nil || report.Valid() != 1 {
		t.Fatalf("%d valid, %v", report.Valid(), err)
	}
	of := &Trace{File: File{"elsewhere.csv", 140, digest}, Requests: []Due{{0, 4, 5}, {10 * ms, 2, 3}, {30 * ms, 4, 2}}}
	if report.CheckTrace(of); report.Err() != nil {
		t.Error(report.Err())
	}
	for _, test := range []struct {
		change func(*Trace)
		want   string
	}{
		{func(of *Trace) { of.File.Bytes++ }, `verify: elsewhere.csv: configuration 1: it replayed a trace of 140 bytes with sha256 "` + digest + `", but the file has 141 and "` + digest + `"`},
		{func(of *Trace) { of.Requests[1].Output++ }, `verify: elsewhere.csv: configuration 1: its trace isn't that of the file, from request 1 on`},
		{func(of *Trace) { of.Requests = of.Requests[:2] }, `verify: elsewhere.csv: configuration 1: its trace isn't that of the file, from request 2 on`},
	} {
		report, of := replayed(t, traced().encode()), &Trace{of.File, slices.Clone(of.Requests), nil}
		test.change(of)
		if report.CheckTrace(of); report.Verdict != Inconsistent || report.Err().Error() != test.want {
			t.Errorf("%v, want %s", report.Err(), test.want)
		}
	}
	report = replayed(t, good().encode())
	if report.CheckTrace(of); report.Err() == nil || report.Err().Error() != "verify: elsewhere.csv: no configuration replayed a trace" {
		t.Errorf("%v of a run without a trace", report.Err())
	}
}

func TestTamperedTrace(t *testing.T) {
	const plan = "verify: run.jsonl:4: plan 1: "
	for _, test := range []struct {
		name   string
		change func(f *file)
		want   string
	}{
		{"no file", func(f *file) { f.plan(1).Load.TraceFile = nil }, plan + `load: arrival "trace", trace_file and trace_scale "2": a trace has both, and nothing else has`},
		{"no scale", func(f *file) { f.plan(1).Load.TraceScale = "" }, plan + `load: trace_scale "", want a decimal number from 1e-06 to 1e+06`},
		{"other scale", func(f *file) { f.plan(1).Load.TraceScale = "3" }, `verify: run.jsonl:7: request 1.0.1: scheduled_ns 520000000, but by the plan and the other requests it was due at 530000000`},
		{"a time beyond", func(f *file) { f.plan(1).Load.Trace[2].DueNS = maxNS }, plan + `load: trace[2] is due at 36028797018963968 ns times 2, want at most 2^55 ns`},
		{"file by path", func(f *file) { f.plan(1).Load.TraceFile.Name = "a/day.csv" }, plan + `load: trace_file: file name "a/day.csv", want a base name`},
		{"a rate beside", func(f *file) { f.plan(1).Load.Rate = "1" }, plan + `load: a trace with a rate, burstiness, seed, duration_ns, requests, steps or share: it has its own times`},
		{"a seed beside", func(f *file) { f.plan(1).Load.Seed = 1 }, plan + `load: a trace with a rate, burstiness, seed, duration_ns, requests, steps or share: it has its own times`},
		{"not from its first", func(f *file) {
			for i := range f.plan(1).Load.Trace {
				f.plan(1).Load.Trace[i].DueNS += ms
			}
		}, plan + `load: trace[0] is due at 1000000 ns, want 0: times count from the first`},
		{"no tokens", func(f *file) { f.plan(1).Load.Trace[1].Output = 0 }, plan + `load: trace[1] has input 2 and output 0, want 1 to 10000000 of each`},
		{"a prompt less", func(f *file) { f.plan(1).Prompts = f.plan(1).Prompts[:2] }, plan + `2 prompts for the trace's 3 requests`},
		{"a prompt of another length", func(f *file) { f.plan(1).Prompts[1] = "4-c" }, plan + `prompt "4-c" has 4 tokens, want the 2 of trace[1]`},
		{"another axis", func(f *file) {
			p := f.plan(1)
			p.Name, p.Axes[1].Value = "BenchmarkServe/threads=1/trace=night", "night"
		}, plan + `axis trace=night, but the record says day`},
		{"beyond the context", func(f *file) { f.server(1).ContextLimit = 8 }, plan + `prompt "4-a" of 4 tokens and 5 of output, but the server's context_limit is 8`},
		{"time", func(f *file) { f.plan(1).Load.Trace[1].DueNS += ms }, `verify: run.jsonl:7: request 1.0.1: scheduled_ns 520000000, but by the plan and the other requests it was due at 522000000`},
		{"length of an answer", func(f *file) { f.plan(1).Load.Trace[1].Output = 4 }, `verify: run.jsonl:7: request 1.0.1: output_tokens 3, want 4`},
		{"an answer cut short", func(f *file) { f.request("1.0.1").OutputTokens = 2 }, `verify: run.jsonl:7: request 1.0.1: output_tokens 2, want 3`},
		{"trace beside a rate", func(f *file) { l := &f.plan(1).Load; l.Arrival, l.Rate = ArrivalPoisson, "1" }, plan + `load: arrival "poisson" with a trace`},
		{"one hash, two traces", func(f *file) {
			second := *f.plan(1)
			second.Config, second.Repetition, second.PlannedNS = 2, 2, 690*ms
			second.Load.Trace = slices.Clone(second.Load.Trace)
			second.Load.Trace[2].DueNS++
			f.records = append(f.records, &second, &Configuration{Kind: KindConfiguration, Config: 2, PeakSource: Unmeasured, Reasons: []string{"none"}, Open: &Open{}})
		}, `verify: run.jsonl:14: plan 2: load: trace_file has the sha256 of that of configuration 1, but another name, size or trace`},
	} {
		f := traced()
		test.change(f)
		if report := replayed(t, f.encode()); report.Verdict != Inconsistent || report.Err().Error() != test.want {
			t.Errorf("%s:\n got %v\nwant %s", test.name, report.Err(), test.want)
		}
	}
}

// Of what a plan says of its trace nothing can be changed unnoticed, but for
// what the trace's own file would tell.
func TestEveryFieldOfATraceBears(t *testing.T) {
	allowed := map[string]string{
		"load.trace_file.name":   "its ending; the rest is the axis",
		"load.trace_file.bytes":  "CheckTrace holds it against the file",
		"load.trace_file.sha256": "CheckTrace holds it against the file",
		"load.max_lag_ns":        "a bound, far above what was measured",
	}
	f := traced()
	var list []mutation
	mutations("load", reflect.ValueOf(&f.plan(1).Load).Elem(), &list)
	survived := map[string]bool{}
	for _, m := range list {
		m.do()
		if report := replayed(t, f.encode()); report.Verdict == Consistent {
			if survived[m.path] = true; allowed[m.path] == "" {
				t.Errorf("%s can be changed unnoticed: %s", m.path, m.what)
			}
		}
		m.undo()
	}
	for path := range allowed {
		if !survived[path] {
			t.Errorf("every change of %s was noticed", path)
		}
	}
}
