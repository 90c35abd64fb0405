package verify

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// searching says how searched builds a search.
type searching struct {
	start string   // "" for an estimate
	rates []string // what is probed, nil for what a search does
	e2e   int64    // of the SLO
	share int
}

// whole is a search from an estimate to a bracket, on a server that takes one
// request at a time, for about 20 ms.
var whole = searching{e2e: 60 * ms, share: 80}

// searched builds a run of one search.
func searched(how searching) *file {
	f := good()
	f.records = f.records[:f.index(f.plan(1))]
	f.header().Flags = []Flag{{"test.count", "1", false}, {"threads", "1", true}}
	second := *good().server(2) // what a server says of itself is held against another
	s := &Saturation{
		Kind: KindSaturation, Name: "BenchmarkSaturation/threads=1/input=4", Axes: []Axis{{"threads", "1"}, {"input", "4"}},
		Repetition: 1, GOMAXPROCS: 2, Passes: 1, Seed: 42, Share: how.share, Valid: true, Reasons: []string{},
	}
	now := clock{seed: 9}
	t := f.server(1).ReadyNS + 5*ms
	search := Search{Start: how.start}
	config := 0
	if how.start == "" {
		config++
		t = f.measureProbe(&now, t, s.Name, config, Load{Kind: LoadClosed, Conc: 1})
		search.Start = StartRate(f.configuration(config))
	}
	for {
		rate, more := search.Next()
		if how.rates != nil {
			if more = search.Probes < len(how.rates); more {
				rate = how.rates[search.Probes]
			}
		}
		if !more {
			break
		}
		config++
		t = f.measureProbe(&now, t, s.Name, config, Load{
			Kind: LoadOpen, Arrival: ArrivalPoisson, Rate: rate, Seed: ProbeSeed(s.Seed, config), Requests: 12,
			SLO: []Bound{{"e2e", how.e2e}}, MaxLagNS: DefaultMaxLagNS,
		})
		search.Add(rate, f.configuration(config).Open.Holds(how.share))
	}
	second.ReadyNS = t
	f.records = append(f.records, s, &second)
	f.fill()
	f.trailer.EndNS = t + 20*ms
	return f
}

// measureProbe adds a probe of one pass and returns when it was closed.
func (f *file) measureProbe(now *clock, t int64, name string, config int, load Load) int64 {
	last := Axis{"rate", load.Rate}
	if load.Kind == LoadClosed {
		last = Axis{"conc", "1"}
	}
	plan := &Plan{
		Kind: KindPlan, Config: config, Server: 1, Name: name + "/" + last.Key + "=" + last.Value, Axes: []Axis{{"threads", "1"}, {"input", "4"}, last},
		Repetition: 1, GOMAXPROCS: 2, Load: load, MaxFailed: load.Requests, Probe: config,
		Prompts: []string{"4-a", "4-b", "4-c"}, Warmups: []string{"4-warmup"}, OutputTokens: 5, ExactOutput: true, PlannedNS: t,
	}
	f.records = append(f.records, plan)
	var served []any
	slotFree := t
	exchange := func(at int64, prompt, phase string, place int) {
		r, s := exchange(now, at, &slotFree, f.prompt(prompt), plan.OutputTokens)
		r.Config, r.Phase, r.ID = config, phase, RequestID(config, phase, 0, place)
		s.Config, s.ID = config, r.ID
		f.records = append(f.records, r)
		served = append(served, s)
		t = max(t, r.EndNS+3*us)
	}
	exchange(t+2*ms, "4-warmup", PhaseWarmup, 0)
	due, err := load.Schedule()
	begin := t
	for i := range max(len(due), 3) {
		if err == nil {
			exchange(begin+due[i], plan.Prompts[i%3], PhaseMeasured, i)
		} else {
			exchange(t, plan.Prompts[i], PhaseMeasured, i)
		}
	}
	f.records = append(append(f.records, served...), &Configuration{
		Kind: KindConfiguration, Config: config, Passes: 1, PeakSource: Unmeasured, Valid: true, Reasons: []string{},
	})
	f.recompute(config)
	return t + ms
}

func (f *file) saturation() *Saturation { return find(f, func(*Saturation) bool { return true }) }

// fill computes what a closing record says of its probes.
func (f *file) fill() {
	var probes []Result
	each(f, func(p *Plan) {
		if p.Probe > 0 {
			probes = append(probes, Result{Plan: *p, Configuration: f.configuration(p.Config)})
		}
	})
	f.saturation().Fill(probes)
}

// giveUp makes the n-th configuration the last of a search, invalid.
func giveUp(f *file, n int) {
	s := f.saturation()
	f.records = append(f.records[:f.index(f.configuration(n))+1], s, f.server(2))
	f.invalidate(n, "the generator lagged")
	s.Valid, s.Reasons = false, []string{"probe 3: the generator lagged"}
	f.fill()
}

func TestSearch(t *testing.T) {
	for _, test := range []struct {
		start     string
		capacity  float64 // up to it, rates hold
		want      string  // rates
		low, high string
	}{
		{"1", 5, "1 2 4 8 5.657 4.757 5.188", "4.757", "5.188"},
		{"0.5", 0.5, "0.5 1 0.7071 0.5946 0.5453", "0.5", "0.5453"},
		{"40", 9, "40 20 10 5 7.071 8.409 9.17", "8.409", "9.17"},
		{"0.123456", 0.2, "0.123456 0.2469 0.1746 0.2076 0.1904", "0.1904", "0.2076"},
		{"1", 1e9, "1 2 4 8 16 32 64 128 256 512 1024 2048 4096 8192 16380 32760 65520 131000 262000 524000", "524000", ""},
		{"300000", 1e9, "300000 600000", "600000", ""},
		{"0.000003", 0, "0.000003 0.0000015", "", "0.0000015"},
		{"", 1, "", "", ""},
	} {
		s := Search{Start: test.start}
		var rates []string
		for {
			rate, more := s.Next()
			if !more {
				break
			}
			rates = append(rates, rate)
			v, err := strconv.ParseFloat(rate, 64)
			if err != nil {
				t.Fatal(err)
			}
			s.Add(rate, v <= test.capacity)
		}
		if got := strings.Join(rates, " "); got != test.want || s.Low != test.low || s.High != test.high || s.Probes != len(rates) {
			t.Errorf("from %s to %v:\n got %s, %q and %q after %d\nwant %s, %q and %q", test.start, test.capacity, got, s.Low, s.High, s.Probes, test.want, test.low, test.high)
		}
	}
}

// What a probe is drawn from is pinned: other machines and later versions
// must come to the same.
func TestProbeSeed(t *testing.T) {
	for probe, want := range map[int]int64{1: 8799991415524497, 2: 813257558195149} {
		if got := ProbeSeed(42, probe); got != want {
			t.Errorf("ProbeSeed(42, %d) = %d, want %d", probe, got, want)
		}
	}
}

func TestSearchedEvidence(t *testing.T) {
	for _, test := range []struct {
		name   string
		file   *file
		valid  bool
		probes int
		units  []string
	}{
		{"from an estimate", searched(whole), true, 6, SaturationUnits()},
		{"from a rate", searched(searching{start: "20", e2e: 60 * ms, share: 80}), true, 5, SaturationUnits()},
		{"from above", searched(searching{start: "90", e2e: 60 * ms, share: 80}), true, 6, SaturationUnits()},
		{"none holds", invalidSearch(searched(searching{start: "90", e2e: ms, share: 80})), false, 20, nil},
		{"a probe is invalid", func() *file { f := searched(whole); giveUp(f, 3); return f }(), false, 3, nil},
		{"the estimate is invalid", func() *file { f := searched(whole); giveUp(f, 1); return f }(), false, 1, nil},
	} {
		t.Run(test.name, func(t *testing.T) {
			report := replayed(t, test.file.encode())
			if err := report.Err(); err != nil || len(report.Saturations) != 1 {
				t.Fatalf("%d searches, %v", len(report.Saturations), err)
			}
			s := report.Saturations[0]
			if s.Valid != test.valid || len(s.Probes) != test.probes || !slices.Equal(units(s.Metrics), test.units) {
				t.Errorf("valid %t with %d probes and %v, want %t with %d and %v", s.Valid, len(s.Probes), s.Metrics, test.valid, test.probes, test.units)
			}
			few := 0
			for _, warning := range report.Warnings {
				if strings.Contains(warning, "requests are too few for") {
					t.Errorf("warning of a percentile that isn't printed: %s", warning)
				}
				if strings.HasSuffix(warning, "are too few to say whether 80 % of them would be good, 19 more are needed") {
					few++
				}
			}
			if want := map[bool]int{true: 2}[test.valid]; few != want {
				t.Errorf("%d warnings of too few requests in %q, want %d", few, report.Warnings, want)
			}
		})
	}
}

// invalidSearch has a search call itself invalid.
func invalidSearch(f *file) *file {
	s := f.saturation()
	s.Valid, s.Reasons = false, []string{"no rate held"}
	f.fill()
	return f
}

// without probes a search's rates but for one.
func without(i int) searching {
	how := whole
	each(searched(whole), func(p *Plan) {
		if p.Load.Kind == LoadOpen {
			how.rates = append(how.rates, p.Load.Rate)
		}
	})
	how.rates = slices.Delete(how.rates, i, i+1)
	return how
}

func TestTamperedSearchIsRefused(t *testing.T) {
	const saturation = "saturation BenchmarkSaturation/threads=1/input=4: "
	data := searched(whole).encode()
	same := func(change func(f *file)) []byte {
		f := decodeFile(t, data)
		change(f)
		return f.encode()
	}
	for _, test := range []struct {
		name string
		data []byte
		want string // after the line's number
	}{
		{"a probe left out", same(func(f *file) {
			begin, end := f.index(f.plan(3)), f.index(f.configuration(3))+1
			f.records = slices.Delete(f.records, begin, end)
		}), `plan 4: configuration number 4, want 3`},
		{"a probe left out, the others numbered again", searched(without(1)).encode(), `saturation: probe 3 of rate 34.65, but by those before it rate 49 comes next`},
		{"the last probe left out", searched(without(4)).encode(), `saturation: it is called valid, but the search isn't over: rate 44.93 comes next`},
		{"a probe too many", searched(searching{start: "20", rates: []string{"20", "40", "28.28", "33.63", "36.68", "35.12"}, e2e: 60 * ms, share: 80}).encode(), `saturation: probe 6 of rate 35.12, but the search was over after 5 rates`},
		{"low that did not hold", same(func(f *file) { s := f.saturation(); s.Low = s.High }), `saturation: low "49", but by its probes the highest rate that held is "44.93"`},
		{"high that held", same(func(f *file) { s := f.saturation(); s.High = s.Low }), `saturation: high "44.93", but by its probes the lowest rate that did not hold is "49"`},
		{"no low", same(func(f *file) { f.saturation().Low = "" }), `saturation: low "", but by its probes the highest rate that held is "44.93"`},
		{"another metric", same(func(f *file) { f.saturation().Metrics[3].Value *= 2 }), `saturation: metrics [{bracket-req/s 49} {goodput-req/s 35.98989931958828} {probes 5} {saturation-req/s 89.86}], but its probes give [{bracket-req/s 49} {goodput-req/s 35.98989931958828} {probes 5} {saturation-req/s 44.93}]`},
		{"goodput of another probe", same(func(f *file) { f.saturation().Metrics[1].Value++ }), `saturation: metrics [{bracket-req/s 49} {goodput-req/s 36.98989931958828} {probes 5} {saturation-req/s 44.93}], but its probes give [{bracket-req/s 49} {goodput-req/s 35.98989931958828} {probes 5} {saturation-req/s 44.93}]`},
		{"a metric left out", same(func(f *file) { s := f.saturation(); s.Metrics = s.Metrics[1:] }), `saturation: metrics [{goodput-req/s 35.98989931958828} {probes 5} {saturation-req/s 44.93}], but its probes give [{bracket-req/s 49} {goodput-req/s 35.98989931958828} {probes 5} {saturation-req/s 44.93}]`},
		{"a smaller share", same(func(f *file) { f.saturation().Share = 1; f.fill() }), `saturation: probe 4 of rate 34.65, but by those before it rate 98 comes next`},
		{"no share", same(func(f *file) { f.saturation().Share = 0; f.fill() }), `saturation: share 0, seed 42, passes 1, want 1 to 100, 0 or more, at least 1`},
		{"another seed", same(func(f *file) { f.saturation().Seed++ }), `saturation: probe 2 has the seed 813257558195149, but seed 43 gives it 6763727411875643`},
		{"probes in another order", same(func(f *file) { p := f.saturation().Probes; p[0], p[1] = p[1], p[0] }), `saturation: probes [2 1 3 4 5 6], but those before it are [1 2 3 4 5 6]`},
		{"another name", same(func(f *file) { f.saturation().Name = "BenchmarkServe/threads=1/input=4" }), `saturation BenchmarkServe/threads=1/input=4: axes [{threads 1} {input 4}] and gomaxprocs 2, but its probes are BenchmarkSaturation/threads=1/input=4 with 2`},
		{"another repetition", same(func(f *file) { f.saturation().Repetition = 2 }), `saturation: repetition 2 of BenchmarkSaturation/threads=1/input=4-2, want 1`},
		{"no iteration", same(func(f *file) { f.saturation().Passes = 0 }), `saturation: share 80, seed 42, passes 0, want 1 to 100, 0 or more, at least 1`},
		{"valid with a reason against it", same(func(f *file) { f.saturation().Reasons = []string{"a busy machine"} }), `saturation: valid is true with the reasons ["a busy machine"], want none or at least one that says why`},
		{"invalid with metrics", same(func(f *file) {
			s := f.saturation()
			s.Valid, s.Reasons = false, []string{"a busy machine"}
		}), `saturation: metrics [{bracket-req/s 49} {goodput-req/s 35.98989931958828} {probes 5} {saturation-req/s 44.93}], but its probes give []`},
		{"valid with an invalid probe", same(func(f *file) { f.invalidate(3, "the generator lagged"); f.fill() }), `saturation: probe 3, configuration 3, is invalid, and the search went on`},
		{"valid with an invalid estimate", same(func(f *file) { f.invalidate(1, "the generator lagged"); f.fill() }), `saturation: probe 1, configuration 1, is invalid, and the search went on`},
		{"an invalid probe in the middle", same(func(f *file) {
			f.invalidate(3, "the generator lagged")
			s := f.saturation()
			s.Valid, s.Reasons = false, []string{"the generator lagged"}
			f.fill()
		}), `saturation: probe 3, configuration 3, is invalid, and the search went on`},
		{"nothing held, called valid", searched(searching{start: "90", e2e: ms, share: 80}).encode(), `saturation: it is called valid, but of 20 rates none or all held`},
		{"another first rate than the estimate", searched(searching{rates: []string{"20", "40"}, e2e: 60 * ms, share: 80}).encode(), `saturation: probe 2 of rate 20, but by those before it rate 24.5 comes next`},
		{"another number", same(func(f *file) { f.plan(3).Probe = 4 }), `plan 3: probe 4, want 3`},
		{"no number", same(func(f *file) { f.plan(3).Probe = 0 }), `plan 3: it stands in the search BenchmarkSaturation/threads=1/input=4, which isn't closed`},
		{"another SLO", same(func(f *file) { f.plan(3).Load.SLO[0].MostNS++ }), `plan 3: it differs from probe 2 in more than its rate and its seed`},
		{"no SLO", same(func(f *file) { f.plan(3).Load.SLO = nil }), `plan 3: a probe with rate "49", share "" and 0 bounds of an slo, want a rate, no share and at least one bound`},
		{"another length", same(func(f *file) { f.plan(3).OutputTokens++ }), `plan 3: it differs from probe 2 in more than its rate and its seed`},
		{"one of several generators", same(func(f *file) { f.plan(3).Load.Share = "1/2" }), `plan 3: a probe with rate "49", share "1/2" and 1 bounds of an slo, want a rate, no share and at least one bound`},
		{"a failure is no miss", same(func(f *file) { f.plan(3).MaxFailed-- }), `plan 3: max_failed 11 of a probe, want all of the 12 that are due: each is a miss`},
		{"an estimate of two clients", same(func(f *file) {
			p := f.plan(1)
			p.Load.Conc, p.Axes[2].Value, p.Name = 2, "2", strings.Replace(p.Name, "conc=1", "conc=2", 1)
		}), `plan 1: probe 1 is a closed loop with conc 2 and max_failed 0, want 1 and 0, and only the first to be one`},
		{"no axis of the rate", same(func(f *file) {
			p := f.plan(3)
			p.Axes, p.Name = p.Axes[:2], p.probeOf()
		}), `plan 3: a probe of a load "open" with the last axis input, want rate`},
		{"a configuration within the search", same(func(f *file) {
			p := *f.plan(3)
			p.Probe = 0
			f.insertAfter(f.configuration(2), &p)
		}), `plan 3: it stands in the search BenchmarkSaturation/threads=1/input=4, which isn't closed`},
		{"a server within the search", same(func(f *file) { s := *f.server(1); s.Server = 2; f.insertAfter(f.configuration(2), &s) }), `server 2: it stands in the search BenchmarkSaturation/threads=1/input=4, which isn't closed`},
		{"a search that isn't closed", same(func(f *file) { f.remove(f.saturation()) }), `server 2: it stands in the search BenchmarkSaturation/threads=1/input=4, which isn't closed`},
		{"closed within a probe", same(func(f *file) { s := *f.saturation(); f.insertAfter(f.plan(3), &s) }), `saturation: it stands within configuration 3`},
		{"closed twice", same(func(f *file) { s := *f.saturation(); f.insertAfter(f.saturation(), &s) }), `saturation: it stands after no probe`},
		{"not a record", []byte(strings.Replace(string(data), `"share":80`, `"share":"80"`, 1)), `saturation: field "share": string doesn't fit its type int`},
	} {
		t.Run(test.name, func(t *testing.T) {
			report := replayed(t, test.data)
			if report.Verdict != Inconsistent {
				t.Fatalf("verdict = %v, want inconsistent", report.Verdict)
			}
			p := report.Problems[0]
			got := p.Where + ": " + p.Err
			if want := strings.Replace(test.want, "saturation: ", saturation, 1); got != want {
				t.Errorf("problem:\n got %s\nwant %s", got, want)
			}
		})
	}
}

func TestSearchIsCutShort(t *testing.T) {
	f := searched(whole)
	f.remove(f.saturation())
	f.remove(f.server(2))
	data := f.encode()
	report := replayed(t, data[:strings.LastIndex(string(data), `{"kind":"trailer"`)])
	if want := "verify: incomplete: the run ended within the search BenchmarkSaturation/threads=1/input=4, after 6 probes"; report.Err() == nil || report.Err().Error() != want {
		t.Errorf("%v, want %s", report.Err(), want)
	}
}

// ofASearch are the fields of a search's evidence that can be changed
// unnoticed, beside those that can be in any.
var ofASearch = map[string]string{
	"server":               "the second, on which nothing is measured: the first is held against it",
	"server.intra_threads": "as server",
	"saturation.passes":    "held against the printed iterations: no probe has more than one",
	"saturation.share":     "held against the printed line slo-share, and only moved within the two probes' shares that it parts",
}

func TestEveryFieldOfASearchBears(t *testing.T) {
	used := everyFieldBears(t, linesOf(searched(searching{start: "20", e2e: 60 * ms, share: 80})), ofASearch)
	for path := range ofASearch {
		if !used[path] && stride == 1 {
			t.Errorf("%s is called informational, but every change of it was noticed", path)
		}
	}
}

// Searches are in a random order, their probes are not.
func TestOrderOfSearches(t *testing.T) {
	names := []string{"BenchmarkSaturation/input=1", "BenchmarkSaturation/input=2"}
	slices.SortFunc(names, func(a, b string) int { return CompareOrder(7, a, b) })
	p := &replay{report: &Report{Header: &Header{OrderSeed: 7}}}
	plan := func(name string, probe int) {
		p.planOrder("plan", &Plan{Name: name + "/rate=" + strconv.Itoa(probe), Probe: probe})
	}
	for _, name := range names {
		for probe := range 5 {
			plan(name, probe+1)
		}
	}
	if len(p.report.Problems) > 0 {
		t.Errorf("in order: %v", p.report.Problems[0])
	}
	plan(names[0], 1)
	if want := "verify: plan: " + names[0] + " comes after " + names[1] + ", but by order_seed 7 it goes before it"; len(p.report.Problems) != 1 || p.report.Problems[0].Error() != want {
		t.Errorf("out of order: %v, want %s", p.report.Problems, want)
	}
}

// A search has one line, its probes have none.
func TestPrintedSearch(t *testing.T) {
	f := searched(whole)
	s := f.saturation()
	line := s.Name + "-2\t1"
	for _, m := range s.Metrics {
		line += fmt.Sprintf("\t%s %s", printedText(m.Value), m.Unit)
	}
	const printed = "saturation, repetition 1 of BenchmarkSaturation/threads=1/input=4-2: "
	for _, test := range []struct{ name, text, want string }{
		{"as it is", "slo-share: 80\n" + line + "\n", ""},
		{"no line", "slo-share: 80\n", printed + "it is valid, but no line was printed for it"},
		{"another rate", strings.Replace(line, printedText(s.Metrics[3].Value), "99.00", 1), printed + "99.00 saturation-req/s, but " + s.Low + " prints as " + printedText(s.Metrics[3].Value)},
		{"more iterations", strings.Replace(line, "\t1\t", "\t2\t", 1), printed + "2 iterations, but passes 1"},
		{"another share", "slo-share: 90\n" + line, ": slo-share: 90, but the evidence has 80"},
		{"a worse direction", "Unit saturation-req/s better=lower\n" + line, ": unit saturation-req/s with better=lower, want higher"},
		{"a line for a probe", line + "\n" + f.plan(3).Name + "-2\t1\t5.000 tok/s", ": " + f.plan(3).Name + "-2 has no configuration in the evidence"},
		{"failed", "--- FAIL: " + s.Name + "-2\n", printed + "it is valid, but printed as failed"},
	} {
		t.Run(test.name, func(t *testing.T) {
			report := replayed(t, f.encode())
			lines, err := ParsePrinted("out.txt", strings.NewReader(test.text))
			if err != nil {
				t.Fatal(err)
			}
			report.CheckPrinted(lines)
			got := ""
			if len(report.Problems) > 0 {
				got = report.Problems[0].Where + ": " + report.Problems[0].Err
			}
			if got != test.want {
				t.Errorf("problem:\n got %s\nwant %s", got, test.want)
			}
		})
	}
}
