package verify

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

// tamperedOpen is tampered, of open loops: goodOpen with one thing changed,
// and what follows from it made right again.
var tamperedOpen = []struct {
	name   string
	change func(f *file)
	want   string
}{
	// The plan.
	{"neither open nor closed", func(f *file) { f.plan(1).Load.Kind = "ajar" }, `verify: run.jsonl:4: plan 1: load "ajar" with conc 0, want "closed" with at least 1, or "open" with 0`},
	{"open with clients", func(f *file) { f.plan(1).Load.Conc = 2 }, `verify: run.jsonl:4: plan 1: load "open" with conc 2, want "closed" with at least 1, or "open" with 0`},
	{"closed with a rate", func(f *file) { f.plan(2).Load.Kind, f.plan(2).Load.Conc = LoadClosed, 1 }, `verify: run.jsonl:45: plan 2: load "closed" has fields of an open loop`},
	{"no such process", func(f *file) { f.plan(1).Load.Arrival = "fractal" }, `verify: run.jsonl:4: plan 1: load: arrival "fractal", want "poisson", "constant", "gamma" or "trace"`},
	{"rate of another axis", func(f *file) { f.plan(1).Load.Rate = "121" }, `verify: run.jsonl:4: plan 1: axis rate=120, but the record says 121`},
	{"axis of another rate", func(f *file) {
		p := f.plan(1)
		p.Name, p.Axes[2].Value = strings.Replace(p.Name, "rate=120", "rate=12", 1), "12"
	}, `verify: run.jsonl:4: plan 1: axis rate=12, but the record says 120`},
	{"steps under another axis", func(f *file) { f.plan(4).Load.Steps[1].Rate = "51" }, `verify: run.jsonl:82: plan 4: axis rate=20x0.2s+50x0.1s, but the record says 20x0.2s+51x0.1s`},
	{"steps and a rate", func(f *file) { f.plan(4).Load.Rate = "20" }, `verify: run.jsonl:82: plan 4: load: steps beside a rate or a duration`},
	{"burstiness of Poisson", func(f *file) { f.plan(1).Load.Burstiness = "1" }, `verify: run.jsonl:4: plan 1: load: arrival "poisson" with a burstiness`},
	{"negative seed", func(f *file) { f.plan(1).Load.Seed = -3 }, `verify: run.jsonl:4: plan 1: load: seed -3, requests 9, max_inflight 2, settle_ns 25000000, want 0 or more; max_lag_ns 10000000, want 1 to 1000000000`},
	{"negative number of requests", func(f *file) { f.plan(3).Load.Requests = -1 }, `verify: run.jsonl:61: plan 3: load: seed 8, requests -1, max_inflight 0, settle_ns 0, want 0 or more; max_lag_ns 10000000, want 1 to 1000000000`},
	{"negative cap", func(f *file) { f.plan(2).Load.MaxInflight = -1 }, `verify: run.jsonl:45: plan 2: load: seed 0, requests 5, max_inflight -1, settle_ns 0, want 0 or more; max_lag_ns 10000000, want 1 to 1000000000`},
	{"settling before the beginning", func(f *file) { f.plan(1).Load.SettleNS = -1 }, `verify: run.jsonl:4: plan 1: load: seed 3, requests 9, max_inflight 2, settle_ns -1, want 0 or more; max_lag_ns 10000000, want 1 to 1000000000`},
	{"settling to the end", func(f *file) { f.plan(1).Load.SettleNS = 1e9 }, `verify: run.jsonl:4: plan 1: load: settle_ns 1000000000, but the last request is due 95303239 ns after the beginning: none is measured`},
	{"no bound for the lag", func(f *file) { f.plan(1).Load.MaxLagNS = 0 }, `verify: run.jsonl:4: plan 1: load: seed 3, requests 9, max_inflight 2, settle_ns 25000000, want 0 or more; max_lag_ns 0, want 1 to 1000000000`},
	{"any lag will do", func(f *file) { f.plan(1).Load.MaxLagNS = mostMaxLagNS + 1 }, `verify: run.jsonl:4: plan 1: load: seed 3, requests 9, max_inflight 2, settle_ns 25000000, want 0 or more; max_lag_ns 1000000001, want 1 to 1000000000`},
	{"bound of something else", func(f *file) { f.plan(1).Load.SLO[0].Metric = "itl" }, `verify: run.jsonl:4: plan 1: slo: itl of at most 70000000 ns, want ttft, tpot and e2e, each once, above 0`},
	{"bound twice", func(f *file) { f.plan(1).Load.SLO[1].Metric = "ttft" }, `verify: run.jsonl:4: plan 1: slo: ttft of at most 2055000 ns, want ttft, tpot and e2e, each once, above 0`},
	{"bound of nothing", func(f *file) { f.plan(1).Load.SLO[2].MostNS = 0 }, `verify: run.jsonl:4: plan 1: slo: e2e of at most 0 ns, want ttft, tpot and e2e, each once, above 0`},
	{"share of none", func(f *file) { f.plan(1).Load.Share = "0/4" }, `verify: run.jsonl:4: plan 1: load: share "0/4", want 1/4 to 4/4, say`},
	{"share of one", func(f *file) { f.plan(1).Load.Share = "1/1" }, `verify: run.jsonl:4: plan 1: load: share "1/1", want 1/4 to 4/4, say`},
	{"share beyond all", func(f *file) { f.plan(1).Load.Share = "5/4" }, `verify: run.jsonl:4: plan 1: load: share "5/4", want 1/4 to 4/4, say`},
	{"share in words", func(f *file) { f.plan(1).Load.Share = "1 of 4" }, `verify: run.jsonl:4: plan 1: load: share "1 of 4", want 1/4 to 4/4, say`},
	{"share with a zero before", func(f *file) { f.plan(1).Load.Share = "01/4" }, `verify: run.jsonl:4: plan 1: load: share "01/4", want 1/4 to 4/4, say`},

	// The schedule.
	{"another seed", func(f *file) { f.plan(1).Load.Seed++ }, `verify: run.jsonl:6: request 1.0.0: scheduled_ns 368065097 is 1062511 ns after the beginning by the plan, but pass 0 can't have begun before 367379198`},
	{"another process", func(f *file) { f.plan(1).Load.Arrival = ArrivalConstant }, `verify: run.jsonl:7: request 1.0.1: scheduled_ns 389254699, but by the plan and the other requests it was due at 376398430`},
	{"another burstiness", func(f *file) { f.plan(3).Load.Burstiness = "0.6" }, `verify: run.jsonl:63: request 3.0.0: scheduled_ns 1306905149 is 5743804 ns after the beginning by the plan, but pass 0 can't have begun before 1302948367`},
	{"due a nanosecond later", func(f *file) { f.request("1.0.5").ScheduledNS++; f.recompute(1) }, `verify: run.jsonl:11: request 1.0.5: scheduled_ns 429833362, but by the plan and the other requests it was due at 429833361`},
	{"all of a pass due before the warmup was over", func(f *file) { shiftPass(f, 1, 0, -ms) }, `verify: run.jsonl:6: request 1.0.0: scheduled_ns 367065097 is 655899 ns after the beginning by the plan, but pass 0 can't have begun before 367379198`},
	{"all of a pass due before the last one was over", func(f *file) { shiftPass(f, 1, 1, -10*ms) }, `verify: run.jsonl:15: request 1.1.0: scheduled_ns 542510390 is 1062511 ns after the beginning by the plan, but pass 1 can't have begun before 551417879`},
	{"settling that is measured", func(f *file) { f.request("1.0.1").Phase = PhaseMeasured; f.recompute(1) }, `verify: run.jsonl:7: request 1.0.1: phase "measured", want "settle" for what is due 21845501 ns after the beginning`},
	{"measured one that settles", func(f *file) { f.request("1.0.4").Phase = PhaseSettle; f.recompute(1) }, `verify: run.jsonl:10: request 1.0.4: phase "settle", want "measured" for what is due 47175552 ns after the beginning`},
	{"settling in a closed loop", func(f *file) { *f = *good(); f.request("1.0.1").Phase = PhaseSettle }, `verify: run.jsonl:7: request 1.0.1: phase "settle", want "warmup" or "measured"`},
	{"prompt of another place", func(f *file) { swapPrompt(f, "2.0.1", "4-c") }, `verify: run.jsonl:48: request 2.0.1: prompt "4-c", want "4-b" in its place`},
	{"due request that is missing", func(f *file) { forget(f, "1.0.4"); f.recompute(1) }, `verify: run.jsonl:42: configuration 1: request 1.0.4 was due, and no record says what became of it`},
	{"last request that is missing", func(f *file) { forget(f, "2.0.4"); f.recompute(2) }, `verify: run.jsonl:57: configuration 2: request 2.0.4 was due, and no record says what became of it`},
	{"pass that is missing", func(f *file) { f.configuration(2).Passes = 2 }, `verify: run.jsonl:59: configuration 2: pass 1 has no requests`},
	{"pass too many", func(f *file) { f.configuration(1).Passes = 1 }, `verify: run.jsonl:15: request 1.1.0: pass 1, want below the 1 of its configuration`},
	{"request that nobody planned", func(f *file) { rename(f, "2.0.4", "2.0.5") }, `verify: run.jsonl:51: request 2.0.5: the plan has no such place: 5 requests are due in a pass`},
	{"place twice", func(f *file) { rename(f, "2.0.4", "2.0.3") }, `verify: run.jsonl:51: request 2.0.3: an earlier one has its id`},
	{"place twice, written otherwise", func(f *file) { rename(f, "2.0.4", "2.0.03") }, `verify: run.jsonl:51: request 2.0.03: the plan has no such place: 5 requests are due in a pass`},
	{"place of another pass", func(f *file) { rename(f, "2.0.4", "2.1.4") }, `verify: run.jsonl:51: request 2.1.4: pass 1, want below the 1 of its configuration`},
	{"warmup that is missing", func(f *file) { forget(f, "2.w.0"); f.recompute(2) }, `verify: run.jsonl:57: configuration 2: prompt "4-warmup" was not sent in the warmup`},
	{"warmup of another prompt", func(f *file) { f.plan(2).Warmups = nil }, `verify: run.jsonl:46: request 2.w.0: prompt "4-warmup" is no warmup of the plan`},

	// The cap.
	{"more under way than the cap", func(f *file) { f.plan(3).Load.MaxInflight = 4 }, `verify: run.jsonl:81: configuration 3: 5 requests were under way at once, max_inflight is 4`},
	{"admitted without a cap", func(f *file) { r := f.request("2.0.1"); r.AdmittedNS = r.ScheduledNS; f.recompute(2) }, `verify: run.jsonl:48: request 2.0.1: admitted_ns 808983624 in phase "measured" with max_inflight 0, want none`},
	{"warmup admitted", func(f *file) { r := f.request("1.w.0"); r.AdmittedNS = r.ScheduledNS; f.recompute(1) }, `verify: run.jsonl:5: request 1.w.0: admitted_ns 347000000 in phase "warmup" with max_inflight 2, want none`},
	{"admitted before it was due", func(f *file) { r := f.request("1.1.4"); r.AdmittedNS = r.ScheduledNS - 1; f.recompute(1) }, `verify: run.jsonl:19: request 1.1.4: admitted_ns 582847901 lies before scheduled_ns 582847902`},
	{"admitted after it started", func(f *file) { r := f.request("1.1.4"); r.AdmittedNS = r.StartNS + 1; f.recompute(1) }, `verify: run.jsonl:19: request 1.1.4: start_ns 613679268 lies before admitted_ns 613679269`},
	{"a wait without need", func(f *file) { r := f.request("1.0.0"); r.AdmittedNS = r.StartNS; f.recompute(1) }, `verify: run.jsonl:6: request 1.0.0: admitted_ns 368066309, but it had no need to wait: 0 were due before it, max_inflight is 2`},
	{"lag called a longer wait", func(f *file) { r := f.request("1.1.4"); r.AdmittedNS = r.StartNS; f.recompute(1) }, `verify: run.jsonl:19: request 1.1.4: admitted_ns 613679268, but no place became free then, or another request has got it`},
	{"admitted in the place of none", func(f *file) { r := f.request("1.0.5"); r.AdmittedNS = r.StartNS; f.recompute(1) }, `verify: run.jsonl:11: request 1.0.5: admitted_ns 450223779, but no place became free then, or another request has got it`},
	{"admitted in a place that another had got", func(f *file) {
		f.request("1.1.8").AdmittedNS = f.request("1.1.7").AdmittedNS
		f.recompute(1)
	}, `verify: run.jsonl:23: request 1.1.8: admitted_ns 674737918, but no place became free then, or another request has got it`},
	{"out of turn", func(f *file) { // both have one prompt
		a, b := f.request("1.1.5"), f.request("1.1.8")
		f.served(a.ID).ID, f.served(b.ID).ID = b.ID, a.ID
		a.ID, b.ID = b.ID, a.ID
		a.ScheduledNS, b.ScheduledNS = b.ScheduledNS, a.ScheduledNS
		f.recompute(1)
	}, `verify: run.jsonl:21: request 1.1.6: start_ns 654340776 lies before request 1.1.5, which was due before it, was admitted, 695107934`},

	// The pace.
	{"generator that lagged", func(f *file) { f.plan(1).Load.MaxLagNS = 1000 }, `verify: run.jsonl:44: configuration 1: it is called valid, but the generator lagged: 99 % of its requests started within 0.002 ms of when they were due, the bound is 0.001 ms`},
	{"one that lagged", func(f *file) { late(f, 11*ms, "2.0.4"); f.recompute(2) }, `verify: run.jsonl:59: configuration 2: it is called valid, but the generator lagged: 99 % of its requests started within 10.561 ms of when they were due, the bound is 10.000 ms`},
	{"called valid, but some weren't sent", func(f *file) {
		f.plan(4).MaxFailed = 20
		f.configuration(4).Valid, f.configuration(4).Reasons = true, []string{}
		f.recompute(4)
	}, `verify: run.jsonl:103: configuration 4: it is called valid, but 9 of 13 requests that were due were not sent`},
	{"more failed than it bears", func(f *file) { f.plan(3).MaxFailed = 1; f.recompute(3) }, `verify: run.jsonl:81: configuration 3: it is called valid, but 2 of 8 measured requests and 0 warmups failed`},

	// What wasn't sent.
	{"unsent and ended", func(f *file) { f.request("4.0.7").EndNS++; f.recompute(4) }, `verify: run.jsonl:91: request 4.0.7: it was never sent, yet start_ns 1661493206, end_ns 1661493207, want one moment from the plan's 1470464602 on`},
	{"given up before the plan", func(f *file) { r := f.request("4.0.7"); r.StartNS = 1; r.EndNS = 1; f.recompute(4) }, `verify: run.jsonl:91: request 4.0.7: it was never sent, yet start_ns 1, end_ns 1, want one moment from the plan's 1470464602 on`},
	{"unsent and connected", func(f *file) { r := f.request("4.0.7"); r.ConnectedNS = r.StartNS; f.recompute(4) }, `verify: run.jsonl:91: request 4.0.7: it was never sent, yet admitted_ns 0, connected_ns 1661493206, sent_ns 0, headers_ns 0, 0 events`},
	{"unsent and admitted", func(f *file) { r := f.request("4.0.4"); r.AdmittedNS = r.StartNS; f.recompute(4) }, `verify: run.jsonl:88: request 4.0.4: it was never sent, yet admitted_ns 1661493206, connected_ns 0, sent_ns 0, headers_ns 0, 0 events`},
	{"unsent and answered", func(f *file) { f.request("4.0.7").Status = 200; f.recompute(4) }, `verify: run.jsonl:91: request 4.0.7: it was never sent, yet it has something of an answer`},
	{"unsent warmup", func(f *file) { unsend(f, "4.w.0"); f.recompute(4) }, `verify: run.jsonl:83: request 4.w.0: failure.class "unsent" in phase "warmup" of a load "open": only an open loop gives up`},
	{"unsent in a closed loop", func(f *file) { *f = *goodAndBad(); unsend(f, "4.0.1"); f.recompute(4) }, `verify: run.jsonl:77: request 4.0.1: failure.class "unsent" in phase "measured" of a load "closed": only an open loop gives up`},
	{"unsent, but the server has it", func(f *file) {
		s := *f.served("4.0.3")
		s.ID, s.ArrivalNS, s.QueuedNS = "4.0.7", f.request("4.0.7").EndNS, f.request("4.0.7").EndNS
		f.insertAfter(f.served("4.0.3"), &s)
		f.recompute(4)
	}, `verify: run.jsonl:91: request 4.0.7: it was never sent, yet the server has a record of it`},
	{"without a word", func(f *file) { f.request("4.0.7").Failure.Message = ""; f.recompute(4) }, `verify: run.jsonl:91: request 4.0.7: failure.message is empty`},

	// What the closing record says.
	{"no account of the plan", func(f *file) { f.configuration(1).Open = nil }, `verify: run.jsonl:44: configuration 1: open is there: false, want it for open loops and nothing else`},
	{"account of a closed loop", func(f *file) { *f = *good(); f.configuration(1).Open = &Open{} }, `verify: run.jsonl:26: configuration 1: open is there: true, want it for open loops and nothing else`},
	{"wait", func(f *file) { f.configuration(1).Spans.WaitNS-- }, `verify: run.jsonl:44: configuration 1: spans.wait_ns 369155942, but its records give 369155943`},
	{"wait of a settling", func(f *file) { f.configuration(1).Excluded.WaitNS-- }, `verify: run.jsonl:44: configuration 1: excluded.wait_ns 12257818, but its records give 12257819`},
	{"more that are good", func(f *file) { f.plan(1).Load.SLO = []Bound{{"ttft", 1e9}} }, `verify: run.jsonl:44: configuration 1: open.good 5, but its records give 13`},
	{"goodput", func(f *file) { metric(f, 1, UnitGoodput).Value++ }, `verify: run.jsonl:44: configuration 1: metric goodput-req/s = 15.612734593717931, but its records give goodput-req/s = 14.612734593717931`},
	{"share of the good", func(f *file) { metric(f, 1, UnitSLOShare).Value = 1 }, `verify: run.jsonl:44: configuration 1: metric slo-share = 1, but its records give slo-share = 0.38461538461538464`},
	{"offered rate", func(f *file) { metric(f, 1, UnitOffered).Value = 120 }, `verify: run.jsonl:44: configuration 1: metric offered-req/s = 120, but its records give offered-req/s = 92.0514748165115`},
	{"latency from send for one from due", func(f *file) { metric(f, 1, UnitTTFT95).Value = metric(f, 1, UnitTTFTSent95).Value }, `verify: run.jsonl:44: configuration 1: metric ttft-p95-s = 0.0324231842, but its records give ttft-p95-s = 0.0866993334`},
	{"99th percentile of too few", func(f *file) {
		c := f.configuration(1)
		i := slices.IndexFunc(c.Metrics, func(m Metric) bool { return m.Unit > UnitTTFT99 })
		c.Metrics = slices.Insert(c.Metrics, i, Metric{UnitTTFT99, 0.035})
	}, `verify: run.jsonl:44: configuration 1: metric ttft-p99-s = 0.035, but its records give ttft-sent-p50-s = 0.032300297`},
}

// shiftPass moves when requests of a pass were due.
func shiftPass(f *file, config, pass int, by int64) {
	each(f, func(r *Request) {
		if r.Config == config && r.Phase != PhaseWarmup && r.Pass == pass {
			r.ScheduledNS += by
		}
	})
	f.recompute(config)
}

// forget takes a request out of both witnesses' records.
func forget(f *file, id string) {
	f.remove(f.request(id))
	f.remove(f.served(id))
}

// rename gives a request another id in both.
func rename(f *file, id, to string) {
	r := f.request(id)
	f.served(id).ID, r.ID = to, to
	fmt.Sscanf(to, "2.%d.", &r.Pass)
	f.recompute(r.Config)
}

// swapPrompt has a request sent another prompt, and answered.
func swapPrompt(f *file, id, prompt string) {
	r, s := f.request(id), f.served(id)
	var like *Request
	each(f, func(other *Request) {
		if other.Prompt == prompt && other.Failure == nil {
			like = other
		}
	})
	r.Prompt, r.PromptIDs, r.TokenIDs, r.Text = prompt, like.PromptIDs, like.TokenIDs, like.Text
	s.PromptIDs, s.TokenIDs = like.PromptIDs, like.TokenIDs
}

// late has a request start, and all that follows happen, later than it was due.
func late(f *file, by int64, id string) {
	r := f.request(id)
	due := r.ScheduledNS
	move(r, f.served(id), by)
	r.ScheduledNS = due
}

// unsend makes a request one that was given up.
func unsend(f *file, id string) {
	r := f.request(id)
	f.remove(f.served(id))
	*r = Request{Kind: r.Kind, Config: r.Config, ID: r.ID, Phase: r.Phase, Pass: r.Pass, Client: r.Client, Prompt: r.Prompt, OutputTokens: r.OutputTokens,
		ScheduledNS: r.ScheduledNS, StartNS: r.StartNS, EndNS: r.StartNS, Failure: &Failure{FailUnsent, "called off"}}
}

func metric(f *file, config int, unit string) *Metric {
	list := f.configuration(config).Metrics
	return &list[slices.IndexFunc(list, func(m Metric) bool { return m.Unit == unit })]
}

func TestTamperedOpenEvidenceIsRefused(t *testing.T) {
	data := goodOpen().encode()
	for _, test := range tamperedOpen {
		t.Run(test.name, func(t *testing.T) {
			f := decodeFile(t, data)
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
