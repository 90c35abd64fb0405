package verify

import (
	"bytes"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"
)

// tried is good with a record of its client, and what each configuration
// asked of it.
func tried() *file {
	f := good()
	now := clock{seed: 11}
	c := &Client{Kind: KindClient, GOMAXPROCS: 2, Tokens: 8, ClockErrorNS: 100, Fast: trial(&now, ms, false), Paced: trial(&now, 20*ms, true)}
	f.insertAfter(f.server(1), c)
	for config := 1; config <= 4; config++ {
		var of []*Request
		e := &Effort{CPUNS: 3 * ms, GCCycles: 1, GCPauseNS: 40 * us, Sched: []Bucket{{900, 990}, {8 * us, 9}, {2 * ms, 1}}}
		each(f, func(r *Request) {
			if r.Config == config && r.Phase == PhaseMeasured {
				of = append(of, r)
				if e.BeginNS == 0 || r.StartNS < e.BeginNS {
					e.BeginNS = r.StartNS
				}
				e.EndNS = max(e.EndNS, r.EndNS)
			}
		})
		e.Count(slices.Values(of))
		e.Figure()
		f.configuration(config).Client = e
	}
	return f
}

// trial makes ten requests of ten events each, from a stamp on.
func trial(now *clock, at int64, paced bool) (t Trial) {
	t.Effort = Effort{BeginNS: at, EndNS: at + 15*ms, CPUNS: 9 * ms, Sched: []Bucket{{800, 50}, {3 * us, 49}, {60 * us, 1}}}
	for i := range int64(10) {
		due := at + i*ms
		if paced {
			t.DueNS = append(t.DueNS, due)
		}
		start := due + 10*us + now.jitter(us)
		t.StartNS = append(t.StartNS, start)
		t.EndNS = append(t.EndNS, start+900*us+now.jitter(us))
		t.Reads = append(t.Reads, 7+int(i)%2)
		t.WrittenNS = append(t.WrittenNS, start+100*us)
		t.ReadNS = append(t.ReadNS, start+120*us+now.jitter(us))
	}
	t.Figure(8)
	return t
}

func client(f *file) *Client { return find(f, func(*Client) bool { return true }) }

func TestClientEvidence(t *testing.T) {
	report := replayed(t, tried().encode())
	if report.Verdict != Consistent || len(report.Warnings) > 0 {
		t.Fatalf("%v: %v, warnings %q", report.Verdict, report.Err(), report.Warnings)
	}
	c := report.Roofline(2)
	if c == nil || report.Roofline(1) != nil {
		t.Fatalf("roofline %v, want one for GOMAXPROCS 2 alone", c)
	}
	// Ten answers of eight tokens, the usage and the end, in 9.9 ms.
	if got := fmt.Sprintf("%.0f events/s, %.3f a read, %.0f ns each", c.Fast.EventsPerS, c.Fast.EventsPerRead, c.Fast.CPUPerEventNS); got != "10100 events/s, 1.333 a read, 90000 ns each" {
		t.Errorf("the fast trial comes to %s", got)
	}
	if got := c.Paced.Effort.SchedP99NS; got != 3*us {
		t.Errorf("sched_p99_ns %d, want 3000: 99 of 100 lie below", got)
	}
	e := report.Results[0].Configuration.Client
	if e.Events != 9*7 || e.SchedP99NS != 900 {
		t.Errorf("%d events and sched_p99_ns %d, want 63 and 900", e.Events, e.SchedP99NS)
	}
}

// A window of 100 ms has its begin, and not the moment 100 ms later.
func TestBusiest(t *testing.T) {
	for _, test := range []struct {
		ns   []int64
		want int
	}{
		{nil, 0},
		{[]int64{5}, 1},
		{[]int64{1, 1 + BusyNS}, 1},
		{[]int64{1, BusyNS}, 2},
		{[]int64{1, 2, 3, BusyNS + 2, BusyNS + 2, BusyNS + 2, BusyNS + 2}, 5},
	} {
		var e Effort
		half := len(test.ns) / 2
		e.Count(slices.Values([]*Request{
			{Phase: PhaseWarmup, EventNS: []int64{1, 1, 1, 1, 1, 1, 1}}, {Phase: PhaseMeasured, EventNS: test.ns[half:]}, {Phase: PhaseSettle, EventNS: test.ns[:half]},
		}))
		if e.Events != len(test.ns) || e.Busiest != test.want {
			t.Errorf("%v: %d events, busiest %d, want %d and %d", test.ns, e.Events, e.Busiest, len(test.ns), test.want)
		}
	}
}

// A configuration that asks for more than a share of what its client can do is
// called into question, and stays consistent.
func TestStrain(t *testing.T) {
	open := &Plan{GOMAXPROCS: 2, Load: Load{Kind: LoadOpen, MaxLagNS: 10 * ms}}
	closed := &Plan{GOMAXPROCS: 2, Load: Load{Kind: LoadClosed, Conc: 1}}
	calm := Trial{EventsPerS: 40_000, StampP99NS: ms, LagP99NS: 2 * ms}
	late := calm
	late.LagP99NS = 11 * ms
	for _, test := range []struct {
		name    string
		plan    *Plan
		clients []Client
		effort  Effort
		want    []string
	}{
		{"a quarter", open, []Client{{GOMAXPROCS: 2, Fast: calm, Paced: calm}}, Effort{Busiest: 1000, SchedP99NS: 10 * ms}, nil},
		{"more", open, []Client{{GOMAXPROCS: 2, Fast: calm, Paced: calm}}, Effort{Busiest: 1001},
			[]string{"its client took 10010 events a second at its busiest, more than 25 % of the 40000 of its roofline: it may have been the bottleneck"}},
		{"more in a closed loop", closed, []Client{{GOMAXPROCS: 2, Fast: calm, Paced: late}}, Effort{Busiest: 1001, SchedP99NS: 20 * ms},
			[]string{"its client took 10010 events a second at its busiest, more than 25 % of the 40000 of its roofline: it may have been the bottleneck"}},
		{"the last roofline counts", open, []Client{{GOMAXPROCS: 2, Fast: calm, Paced: calm}, {GOMAXPROCS: 2, Fast: Trial{EventsPerS: 400}, Paced: calm}}, Effort{Busiest: 11},
			[]string{"its client took 110 events a second at its busiest, more than 25 % of the 400 of its roofline: it may have been the bottleneck"}},
		{"slow goroutines", open, []Client{{GOMAXPROCS: 2, Fast: calm, Paced: calm}}, Effort{SchedP99NS: 10*ms + 1},
			[]string{"1 % of its client's goroutines waited for a CPU for 10.000 ms or more, the bound of its lag is 10.000 ms: it may have been the bottleneck"}},
		{"late with nothing to wait for", open, []Client{{GOMAXPROCS: 2, Fast: calm, Paced: late}}, Effort{},
			[]string{"with nothing to wait for, its client was late by 11.000 ms for 1 % of its stamps or starts, the bound of its lag is 10.000 ms: the machine was too busy, or too slow"}},
		{"untried", open, []Client{{GOMAXPROCS: 1, Fast: calm, Paced: calm}}, Effort{},
			[]string{"no roofline of its client is recorded for GOMAXPROCS 2: nothing shows how much more it could have taken"}},
		{"untried, closed", closed, nil, Effort{Busiest: 1 << 30}, nil},
	} {
		t.Run(test.name, func(t *testing.T) {
			if got := (&Report{Clients: test.clients}).strain(test.plan, &test.effort); !slices.Equal(got, test.want) {
				t.Errorf("doubts\n%q, want\n%q", got, test.want)
			}
		})
	}
	f := tried()
	client(f).Fast.EndNS[9] += 5 * ms
	client(f).Fast.Figure(8)
	report := replayed(t, f.encode())
	want := "its client took 350 events a second at its busiest, more than 25 % of the"
	if report.Verdict != Consistent || len(report.Results[0].Strain) > 0 {
		t.Errorf("%v, doubts %q, want none while a quarter isn't reached", report.Verdict, report.Results[0].Strain)
	}
	client(f).Fast = Trial{StartNS: []int64{ms}, EndNS: []int64{15 * ms}, Reads: []int{1}, WrittenNS: []int64{2 * ms}, ReadNS: []int64{2 * ms}, Effort: client(f).Fast.Effort}
	client(f).Fast.Figure(8)
	if report = replayed(t, f.encode()); report.Verdict != Consistent || len(report.Results[0].Strain) != 1 || !strings.HasPrefix(report.Results[0].Strain[0], want) {
		t.Errorf("%v (%v), doubts %q, want one: %s", report.Verdict, report.Err(), report.Results[0].Strain, want)
	}
	if len(report.Warnings) == 0 || report.Warnings[0] != "configuration 1, BenchmarkServe/threads=1/input=4/conc=1: "+report.Results[0].Strain[0] {
		t.Errorf("warnings %q, want the doubt among them", report.Warnings)
	}
}

func TestTamperedClientEvidence(t *testing.T) {
	const at = "verify: run.jsonl:4: client of GOMAXPROCS 2: "
	const closing = "verify: run.jsonl:27: configuration 1: client: "
	for _, test := range []struct {
		name   string
		change func(f *file)
		want   string
	}{
		{"before the server", func(f *file) { c := client(f); f.remove(c); f.insertAfter(f.corpus(), c) }, `verify: run.jsonl:3: client of GOMAXPROCS 2: it stands before the server`},
		{"in a configuration", func(f *file) { c := client(f); f.remove(c); f.insertAfter(f.plan(1), c) }, `verify: run.jsonl:5: client of GOMAXPROCS 2: it stands within configuration 1`},
		{"no GOMAXPROCS", func(f *file) { client(f).GOMAXPROCS = 0 }, `verify: run.jsonl:4: client of GOMAXPROCS 0: gomaxprocs 0 and tokens 8, want at least 1 of each`},
		{"kept connections", func(f *file) { client(f).Reuse = true }, at + `reuse is true, want what the run's requests do`},
		{"vague clock", func(f *file) { client(f).ClockErrorNS = 2 * ms }, at + `clock known to within 2000000 ns, want 0 to 1000000`},
		{"both trials at once", func(f *file) { client(f).Fast.Effort.EndNS = 20*ms + 1 }, at + `the paced trial begins at 20000000, before the fast one ends at 20000001`},
		{"due in the fast trial", func(f *file) { client(f).Fast.DueNS = client(f).Fast.StartNS }, at + `fast: 10 due_ns, 10 start_ns, 10 end_ns, 10 reads, want as many of each, 1 to 2500, and no due_ns in the fast one`},
		{"no due in the paced one", func(f *file) { client(f).Paced.DueNS = nil }, at + `paced: 0 due_ns, 10 start_ns, 10 end_ns, 10 reads, want as many of each, 1 to 2500, and no due_ns in the fast one`},
		{"request left out", func(f *file) { client(f).Fast.StartNS = client(f).Fast.StartNS[1:] }, at + `fast: 0 due_ns, 9 start_ns, 10 end_ns, 10 reads, want as many of each, 1 to 2500, and no due_ns in the fast one`},
		{"too many", func(f *file) {
			for range 8 {
				c := client(f)
				c.Paced.WrittenNS, c.Paced.ReadNS = slices.Repeat(c.Paced.WrittenNS, 2), slices.Repeat(c.Paced.ReadNS, 2)
			}
		}, at + `paced: 2560 written_ns and 2560 read_ns, want as many of each, 1 to 2500`},
		{"sample left out", func(f *file) { client(f).Fast.ReadNS = client(f).Fast.ReadNS[1:] }, at + `fast: 10 written_ns and 9 read_ns, want as many of each, 1 to 2500`},
		{"early", func(f *file) { client(f).Fast.StartNS[0] = ms - 1 }, at + `fast: request 0 is due at 1000000, starts at 999999 and ends at 1910769, want them in this order, within 1000000 to 16000000`},
		{"before it was due", func(f *file) { client(f).Paced.DueNS[0] += ms }, at + `paced: request 0 is due at 21000000, starts at 20010826 and ends at 20910980, want them in this order, within 20000000 to 35000000`},
		{"after the end", func(f *file) { client(f).Fast.EndNS[0] += 20 * ms }, at + `fast: request 0 is due at 1000000, starts at 1010085 and ends at 21910769, want them in this order, within 1000000 to 16000000`},
		{"more reads than writes", func(f *file) { client(f).Fast.Reads[3] = 9 }, at + `fast: request 3 has 9 reads, want 1 to the 8 writes of an answer`},
		{"read before it was written", func(f *file) { client(f).Fast.ReadNS[2] = client(f).Fast.WrittenNS[2] - 251 }, at + `fast: event 2 is written at 3110299 and read at 3110048, want them in this order to within 250 ns, after 2110078 and before 16000000`},
		{"in another order", func(f *file) { s := client(f).Fast.WrittenNS; s[1], s[2] = s[2], s[1] }, at + `fast: event 1 is written at 3110299 and read at 2130122, want them in this order to within 250 ns, after 1110085 and before 16000000`},
		{"faster", func(f *file) { client(f).Fast.EventsPerS *= 2 }, at + `fast: events_per_s 20199.057673561412, but its samples give 10099.528836780706`},
		{"one a read", func(f *file) { client(f).Fast.EventsPerRead = 1 }, at + `fast: events_per_read 1, but its samples give 1.3333333333333333`},
		{"prompter stamps", func(f *file) { client(f).Paced.StampP99NS-- }, at + `paced: stamp_p99_ns 20977, but its samples give 20978`},
		{"prompter stamps in the middle", func(f *file) { client(f).Paced.StampP50NS-- }, at + `paced: stamp_p50_ns 20466, but its samples give 20467`},
		{"prompter starts", func(f *file) { client(f).Paced.LagP99NS-- }, at + `paced: lag_p99_ns 10802, but its samples give 10803`},
		{"prompter starts in the middle", func(f *file) { client(f).Paced.LagP50NS-- }, at + `paced: lag_p50_ns 10355, but its samples give 10356`},
		{"cheaper events", func(f *file) { client(f).Fast.CPUPerEventNS = 1 }, at + `fast: cpu_per_event_ns 1, but its samples give 90000`},
		{"more events", func(f *file) { client(f).Fast.Effort.Events++ }, at + `fast: effort.events 101, but its samples give 100`},
		{"a busiest moment", func(f *file) { client(f).Fast.Effort.Busiest++ }, at + `fast: effort.busiest 1, but its samples give 0`},
		{"goroutines that wait less", func(f *file) { client(f).Paced.Effort.SchedP99NS = 1 }, at + `paced: sched_p99_ns 1, but its histogram gives 3000`},
		{"bars in another order", func(f *file) { s := client(f).Paced.Effort.Sched; s[0], s[1] = s[1], s[0] }, at + `paced: sched[1] has 50 below 800 ns, want at least 1, and more ns than 3000`},
		{"more CPU than there is", func(f *file) { client(f).Fast.Effort.CPUNS = 300 * ms }, at + `fast: cpu_ns 300000000 in 15000000 ns, want 0 to 230000000 on 2 CPUs`},
		{"a pause beyond the end", func(f *file) { client(f).Fast.Effort.GCPauseNS = 16 * ms }, at + `fast: gc_cycles 0 and gc_pause_ns 16000000, want 0 or more, and a pause of at most 15000000`},
		{"no time", func(f *file) { client(f).Fast.Effort.EndNS = ms }, at + `fast: from begin_ns 1000000 to end_ns 1000000, want 1 to 36028797018963968, and the end after the begin`},
		{"while a configuration ran", func(f *file) { c := client(f); f.remove(c); f.insertAfter(f.configuration(1), c) }, `verify: run.jsonl:27: client of GOMAXPROCS 2: fast: begin_ns 1000000, want ` + fmt.Sprint(tried().configuration(1).Client.EndNS) + `, the end of what is before it, or later`},

		{"events of a configuration", func(f *file) { f.configuration(1).Client.Events++ }, closing + `64 events, 35 at its busiest, but its requests have 63, and 35`},
		{"busiest of a configuration", func(f *file) { f.configuration(1).Client.Busiest-- }, closing + `63 events, 34 at its busiest, but its requests have 63, and 35`},
		{"part of a configuration", func(f *file) { f.configuration(1).Client.BeginNS++ }, closing + `from begin_ns 369450300 to end_ns 557197133, want planned_ns 345000000 before it, and all its requests, 369450299 to 557197133, within it`},
		{"warmup of a configuration", func(f *file) { f.configuration(1).Client.BeginNS = f.plan(1).PlannedNS - 1 }, closing + `from begin_ns 344999999 to end_ns 557197133, want planned_ns 345000000 before it, and all its requests, 369450299 to 557197133, within it`},
		{"waits of a configuration", func(f *file) { f.configuration(1).Client.SchedP99NS-- }, closing + `sched_p99_ns 899, but its histogram gives 900`},
	} {
		t.Run(test.name, func(t *testing.T) {
			f := tried()
			test.change(f)
			report := replayed(t, f.encode())
			if report.Verdict != Inconsistent {
				t.Fatalf("verdict = %v, want inconsistent", report.Verdict)
			}
			if got := report.Err().Error(); got != test.want {
				t.Errorf("problem:\n got %s\nwant %s", got, test.want)
			}
		})
	}
}

// claims are the fields of a client's record that nothing contradicts, with
// the reasons.
var claims = map[string]string{
	"client.gomaxprocs":                   "says which configurations it is about; those that have none are warned of",
	"client.clock_error_ns":               "a tolerance, at most 1 ms",
	"client.fast.effort.begin_ns":         "before the first request is all that matters of it",
	"client.fast.effort.end_ns":           "after the last is",
	"client.paced.effort.begin_ns":        "as the fast one's",
	"client.paced.effort.end_ns":          "as the fast one's",
	"client.fast.effort.gc_cycles":        "the runtime's own count",
	"client.fast.effort.gc_pause_ns":      "the runtime's own sum",
	"client.fast.effort.sched":            "the runtime's own histogram: its 99th percentile follows",
	"client.fast.effort.sched[].below_ns": "as sched",
	"client.fast.effort.sched[].count":    "as sched",
	"client.paced.effort.gc_cycles":       "as the fast one's", "client.paced.effort.gc_pause_ns": "as the fast one's",
	"client.paced.effort.sched": "as the fast one's", "client.paced.effort.sched[].below_ns": "as the fast one's", "client.paced.effort.sched[].count": "as the fast one's",
	"client.fast.written_ns[]": "the middle of all and the end make the percentiles", "client.fast.read_ns[]": "as written_ns",
	"client.fast.end_ns[]":  "the last makes the rate",
	"client.paced.end_ns[]": "as the fast one's", "client.fast.start_ns[]": "the first makes the rate",
	"configuration.client.cpu_ns": "the kernel's own count", "configuration.client.gc_cycles": "the runtime's own count", "configuration.client.gc_pause_ns": "the runtime's own sum",
	"configuration.client.sched": "as client.fast.effort.sched", "configuration.client.sched[].below_ns": "as sched", "configuration.client.sched[].count": "as sched",
	"configuration.client.begin_ns": "before the first measured request is all that matters of it", "configuration.client.end_ns": "after the last is",
	"client.fast.reads": "which request had how many: their sum is the same", "client.paced.reads": "as the fast one's",
	"client.paced.due_ns[]": "the middle of all and the end make the percentiles", "client.paced.start_ns[]": "as due_ns",
	"client.paced.written_ns[]": "as due_ns", "client.paced.read_ns[]": "as due_ns",
	"client":               "the whole record, as before it was known; an open loop without one is warned of",
	"configuration.client": "may be left out, as before it was known",
}

// Every field of a client's record, changed by itself, is noticed or a claim.
func TestEveryFieldOfAClientBears(t *testing.T) {
	l := linesOf(tried())
	all := make([]int, len(l.records))
	for i := range all {
		all[i] = i
	}
	survived := map[string][]string{}
	tries := 0
	for i, record := range l.records {
		kind, _ := recordKind(l.encoded[i])
		if c, ok := record.(*Configuration); kind != KindClient && (!ok || c.Config != 1) {
			continue
		}
		var list []mutation
		mutations(kind, reflect.ValueOf(record).Elem(), &list)
		kept := l.encoded[i]
		for _, m := range list {
			if kind != KindClient && !strings.HasPrefix(m.path, "configuration.client") {
				continue
			}
			m.do()
			if l.encoded[i] = line(record); !bytes.Equal(l.encoded[i], kept) {
				if tries++; replayed(t, l.join(all)).Verdict == Consistent {
					survived[m.path] = append(survived[m.path], m.what)
				}
			}
			l.encoded[i] = kept
			m.undo()
		}
	}
	for i := range l.records {
		if kind, _ := recordKind(l.encoded[i]); kind == KindClient {
			if replayed(t, l.join(slices.Delete(slices.Clone(all), i, i+1))).Verdict == Consistent {
				survived[kind] = append(survived[kind], "deleted")
			}
			if replayed(t, l.join(slices.Insert(slices.Clone(all), i, i))).Verdict == Consistent {
				t.Error("a client's record can be doubled")
			}
		}
	}
	for _, path := range slices.Sorted(maps.Keys(survived)) {
		if claims[path] == "" {
			t.Errorf("%s can be changed unnoticed: %s", path, strings.Join(survived[path], ", "))
		}
	}
	for path := range claims {
		if survived[path] == nil {
			t.Errorf("%s is called a claim, but every change of it was noticed", path)
		}
	}
	t.Logf("%d mutations", tries)
}

func TestInflight(t *testing.T) {
	sent := func(phase string, due, start, end int64) *Request {
		return &Request{Phase: phase, ScheduledNS: due, StartNS: start, EndNS: end}
	}
	got := inflightOver([]*Request{
		sent(PhaseWarmup, 1, 1, 90), sent(PhaseSettle, 100, 102, 200), sent(PhaseMeasured, 110, 110, 150), sent(PhaseMeasured, 140, 150, 300),
		{Phase: PhaseMeasured, ScheduledNS: 50, StartNS: 400, EndNS: 400, Failure: &Failure{Class: FailUnsent}},
	})
	if want := []Inflight{{2, 1}, {10, 2}, {50, 2}, {100, 1}, {200, 0}}; !slices.Equal(got, want) {
		t.Errorf("in flight %v, want %v", got, want)
	}
}
