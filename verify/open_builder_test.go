package verify

import (
	"fmt"
	"slices"
	"testing"
)

// goodOpen builds a small whole run of open loops, two on each of two servers:
// Poisson arrivals with a cap, a settling and an SLO, in two passes; constant
// ones; bursty ones with two that were refused and borne; and steps that were
// called off midway, which is invalid.
func goodOpen() *file {
	f := good()
	second := f.server(2)
	f.records = f.records[:f.index(f.plan(1))]
	f.header().Flags = []Flag{{"test.count", "1", false}, {"threads", "1,2", true}}
	now := clock{seed: 9}
	slo := []Bound{{"ttft", 70 * ms}, {"tpot", 2055 * us}, {"e2e", 80 * ms}}
	t := f.server(1).ReadyNS + 5*ms
	for i, load := range []Load{
		{Arrival: ArrivalPoisson, Rate: "120", Seed: 3, Requests: 9, MaxInflight: 2, SettleNS: 25 * ms, SLO: slo},
		{Arrival: ArrivalConstant, Rate: "20", Requests: 5},
		{Arrival: ArrivalGamma, Burstiness: "0.5", Rate: "40", Seed: 8, DurationNS: 300 * ms, SLO: slo[:1]},
		{Arrival: ArrivalPoisson, Seed: 5, Steps: []Step{{"20", 200 * ms}, {"50", 100 * ms}}, MaxInflight: 1},
	} {
		load.Kind, load.MaxLagNS = LoadOpen, DefaultMaxLagNS
		passes := 1
		if i == 0 {
			passes = 2
		}
		if i == 2 {
			t += 300 * ms
			second.ReadyNS = t
			f.records = append(f.records, second)
		}
		t = f.measureOpen(&now, t, i+1, load, passes)
	}
	f.trailer.EndNS = t + 20*ms

	// Two refusals.
	f.plan(3).MaxFailed = 2
	for i, id := range refused {
		r, s := f.request(id), f.served(id)
		r.Status, r.Failure = 503-74*i, &Failure{FailStatus, "the queue is full"}
		r.EventNS, r.EventKinds, r.EventIDs, r.TokenIDs, r.PromptIDs, r.Text, r.Finish, r.Usage = nil, "", nil, nil, nil, "", "", nil
		r.EndNS = r.HeadersNS + 10*us
		*s = Served{Kind: s.Kind, Config: s.Config, ID: s.ID, ArrivalNS: s.ArrivalNS, Error: "the queue is full"}
	}
	f.recompute(3)

	// Called off: who had the one place is canceled, who waits for it or isn't
	// due yet is unsent.
	canceled := f.request("4.0.3")
	off := canceled.SentNS + ms
	canceled.EventNS, canceled.EventKinds, canceled.EventIDs, canceled.TokenIDs, canceled.PromptIDs, canceled.Text, canceled.Finish, canceled.Usage = nil, "", nil, nil, nil, "", "", nil
	canceled.HeadersNS, canceled.Status, canceled.EndNS, canceled.Failure = 0, 0, off, &Failure{FailCanceled, "context canceled"}
	s := f.served("4.0.3")
	*s = Served{Kind: s.Kind, Config: 4, ID: s.ID, ArrivalNS: s.ArrivalNS, QueuedNS: s.QueuedNS, PromptIDs: s.PromptIDs, Error: "the client has left"}
	each(f, func(r *Request) {
		if place := r.place(); r.Config == 4 && r.Phase != PhaseWarmup && place > 3 {
			f.remove(f.served(r.ID))
			*r = Request{Kind: r.Kind, Config: 4, ID: r.ID, Phase: r.Phase, Prompt: r.Prompt, OutputTokens: r.OutputTokens,
				ScheduledNS: r.ScheduledNS, StartNS: off + 5*us, EndNS: off + 5*us, Failure: &Failure{FailUnsent, "called off"}}
		}
	})
	f.invalidate(4, "the server's process ended")
	return f
}

// refused are the requests of goodOpen that failed and were borne.
var refused = []string{"3.0.4", "3.0.5"}

// measureOpen adds a configuration of an open loop and returns when it was
// closed.
func (f *file) measureOpen(now *clock, t int64, config int, load Load, passes int) int64 {
	server := (config + 1) / 2
	threads := fmt.Sprint(server)
	plan := &Plan{
		Kind: KindPlan, Config: config, Server: server, Name: "BenchmarkServe/threads=" + threads + "/input=4/rate=" + load.RateAxis(),
		Axes:       []Axis{{"threads", threads}, {"input", "4"}, {"rate", load.RateAxis()}},
		Repetition: 1, GOMAXPROCS: 2, Load: load,
		Prompts: []string{"4-a", "4-b", "4-c"}, Warmups: []string{"4-warmup"}, OutputTokens: 5, ExactOutput: true, PlannedNS: t,
	}
	f.records = append(f.records, plan)
	var served []any
	add := func(r *Request, s *Served, phase string, pass, i int) {
		r.Config, r.Phase, r.Pass, r.ID = config, phase, pass, RequestID(config, phase, pass, i)
		s.Config, s.ID = config, r.ID
		f.records = append(f.records, r)
		served = append(served, s)
		t = max(t, r.EndNS)
	}
	slotFree := t
	r, s := exchange(now, t+2*ms, &slotFree, f.prompt("4-warmup"), plan.OutputTokens)
	add(r, s, PhaseWarmup, 0, 0)
	for pass := range passes {
		due, err := load.PassSchedule(pass)
		if err != nil {
			panic(err)
		}
		begin := t + 30*us
		places := make([]int64, load.MaxInflight)
		for i, at := range due {
			at += begin
			start, admitted, place := at, int64(0), 0
			if load.MaxInflight > 0 {
				if place = slices.Index(places, slices.Min(places)); places[place] > at {
					start, admitted = places[place], places[place]
				}
			}
			r, s := exchange(now, start, &slotFree, f.prompt(plan.promptAt(pass, i)), plan.OutputTokens)
			r.ScheduledNS, r.AdmittedNS = at, admitted
			if load.MaxInflight > 0 {
				places[place] = r.EndNS
			}
			add(r, s, load.PhaseAt(at-begin), pass, i)
		}
	}
	f.records = append(f.records, served...)
	memory := &Memory{Kind: KindMemory, Config: config}
	for ns := plan.PlannedNS + ms; ns < t; ns += 10 * ms {
		memory.TimeNS = append(memory.TimeNS, ns)
		memory.RSSBytes = append(memory.RSSBytes, 5_000_000+4096*now.jitter(100))
	}
	f.records = append(f.records, memory, &Configuration{
		Kind: KindConfiguration, Config: config, Passes: passes, PeakBytes: 5_500_928, PeakSource: PeakVmHWM, Valid: true, Reasons: []string{},
	})
	f.recompute(config)
	return t + ms
}

func TestGoodOpenEvidenceIsConsistent(t *testing.T) {
	f := goodOpen()
	report := replayed(t, f.encode())
	for _, p := range report.Problems {
		t.Error(p)
	}
	if report.Verdict != Consistent || report.Valid() != 3 || len(report.Invalid()) != 1 {
		t.Errorf("verdict %v, %d valid and %d invalid", report.Verdict, report.Valid(), len(report.Invalid()))
	}
	if want := "configuration 1, BenchmarkServe/threads=1/input=4/rate=120: 13 requests are too few for the 95th percentile, 117 more are needed: it is there for comparison, and says little"; len(report.Warnings) != 6 || report.Warnings[0] != want {
		t.Errorf("warnings %q, want two for each valid configuration, and first\n%s", report.Warnings, want)
	}
	// It has of everything.
	if o := f.configuration(1).Open; o.Waited == 0 || o.Good == 0 || o.Good == o.Due || o.MostInflight != 2 || f.configuration(1).Spans.WaitNS == 0 {
		t.Errorf("%+v", o)
	}
	if o := f.configuration(3).Open; o.Refused != 2 {
		t.Errorf("%+v", o)
	}
	if o := f.configuration(4).Open; o.Unsent == 0 || o.Sent == 0 {
		t.Errorf("%+v", o)
	}
}
