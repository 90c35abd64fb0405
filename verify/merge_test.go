package verify

import (
	"bytes"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// generator builds the file of the k-th of four generators: a constant and a
// Poisson process of 100 requests a second of all of them, on machines whose
// clocks are 5 ms apart.
func generator(k int) *file {
	f := good()
	f.records = f.records[:3]
	seed := int64(40 + k)
	f.header().Run = fmt.Sprintf("20261130T200000Z-%d-0011223%d", k, k)
	f.header().Target = &Target{URL: "http://127.0.0.1:8000/v1", API: "completions", Model: "m", Prompts: PromptsIDs, SaltSeed: seed}
	*f.server(1) = Server{Kind: KindServer, Server: 1, ReadyNS: 300 * ms, Model: Model{ID: "m"}}
	now := clock{seed: uint32(k)}
	pool := f.corpus().Pool()
	at := 400*ms + int64(k)*ms
	for config, arrival := range []string{ArrivalConstant, ArrivalPoisson} {
		config++
		plan := &Plan{
			Kind: KindPlan, Config: config, Server: 1, Name: "BenchmarkServe/input=4/rate=100", Axes: []Axis{{"input", "4"}, {"rate", "100"}},
			Repetition: config, GOMAXPROCS: 2, Prompts: []string{"4-a", "4-b", "4-c"}, Warmups: []string{"4-warmup"}, OutputTokens: 5, ExactOutput: true, PlannedNS: at,
			MaxCached: 5, MaxFailed: k,
			Load: Load{Kind: LoadOpen, Arrival: arrival, Rate: "100", DurationNS: 400 * ms, Seed: seed, MaxLagNS: DefaultMaxLagNS,
				SLO: []Bound{{"ttft", 15 * ms}}, Share: fmt.Sprintf("%d/4", k)},
		}
		f.records = append(f.records, plan)
		add := func(phase string, i int, prompt string, due int64) {
			free := due
			r, _ := exchange(&now, due, &free, f.prompt(prompt), 5)
			r.Config, r.Phase, r.ID = config, phase, RequestID(config, phase, 0, i)
			r.SentIDs = SaltedIDs(seed, r.ID, f.prompt(prompt).IDs, pool)
			r.PromptIDs = r.SentIDs
			f.records = append(f.records, r)
		}
		add(PhaseWarmup, 0, "4-warmup", at+ms)
		due, err := plan.Load.Schedule()
		if err != nil {
			panic(err)
		}
		for i, ns := range due {
			add(PhaseMeasured, i, plan.promptAt(0, i), at+50*ms+ns)
		}
		f.records = append(f.records, &Configuration{Kind: KindConfiguration, Config: config, Passes: 1, PeakSource: Unmeasured, Valid: true, Reasons: []string{}})
		f.recompute(config)
		at += 500 * ms
	}
	f.trailer.EndNS = 1500 * ms
	f.trailer.Ended = time.Date(2026, 11, 30, 20, 0, 1, 600_000_000+k*5_000_000, time.UTC).Format(time.RFC3339Nano)
	return f
}

// generators replays the files of four, each changed by change.
func generators(t *testing.T, change func(k int, f *file)) (parts []Part) {
	t.Helper()
	for k := 1; k <= 4; k++ {
		f := generator(k)
		if change != nil {
			change(k, f)
		}
		name := fmt.Sprintf("%d.jsonl", k)
		report, err := Replay(name, bytes.NewReader(f.encode()))
		if err != nil {
			t.Fatal(err)
		}
		parts = append(parts, Part{name, report})
	}
	return parts
}

func TestMerge(t *testing.T) {
	parts := generators(t, nil)
	slices.Reverse(parts) // in any order
	m := Merge(parts...)
	if err := m.Err(); err != nil || m.Verdict != Consistent || len(m.Results) != 2 || m.Valid() != 2 || len(m.Warnings) != 4 {
		t.Fatalf("%v, %v, %d configurations, warnings %q", m.Verdict, err, len(m.Results), m.Warnings)
	}
	if want := "configuration 1, BenchmarkServe/input=4/rate=100: 40 requests are too few for the 95th percentile, 90 more are needed: it is there for comparison, and says little"; m.Warnings[0] != want {
		t.Errorf("warnings %q, want %q first", m.Warnings, want)
	}
	for i, r := range m.Results {
		// By hand, from the files' requests.
		var ttft, e2e, sent, lags []int64
		offered, throughput, goodput, good := 0.0, 0.0, 0.0, 0
		n := 0
		for k := 1; k <= 4; k++ {
			f := generator(k)
			each(f, func(r *Request) {
				if r.Config != i+1 || r.Phase != PhaseMeasured {
					return
				}
				n++
				ttft = append(ttft, r.EventNS[0]-r.ScheduledNS)
				sent = append(sent, r.EventNS[0]-r.StartNS)
				e2e = append(e2e, r.EventNS[4]-r.ScheduledNS)
				lags = append(lags, r.StartNS-r.ScheduledNS)
				if r.EventNS[0]-r.ScheduledNS <= 15*ms {
					good++
				}
			})
			for _, metric := range f.configuration(i + 1).Metrics {
				switch metric.Unit {
				case UnitOffered:
					offered += metric.Value
				case UnitThroughput:
					throughput += metric.Value
				case UnitGoodput:
					goodput += metric.Value
				}
			}
			g := r.Generators[k-1]
			if g.Share != fmt.Sprintf("%d/4", k) || g.Seed != int64(40+k) || g.Name != fmt.Sprintf("%d.jsonl", k) || g.Configuration.Open.MostInflight < 1 {
				t.Errorf("generator %d: %+v", k, g)
			}
		}
		for _, list := range [][]int64{ttft, e2e, sent, lags} {
			slices.Sort(list)
		}
		percentile := func(list []int64, percent int, unit float64) float64 {
			h, _ := Percentile(list, percent)
			return float64(h) / 100 / unit
		}
		want := map[string]float64{
			UnitTTFT50: percentile(ttft, 50, 1e9), UnitTTFT95: percentile(ttft, 95, 1e9), UnitTTFTSent95: percentile(sent, 95, 1e9), UnitE2E95: percentile(e2e, 95, 1e9),
			UnitOffered: offered, UnitThroughput: throughput, UnitGoodput: goodput, UnitSLOShare: float64(good) / float64(n),
			UnitLag99: float64(int64(percentile(lags, 99, 1))) / 1e6, UnitFailed: 0,
		}
		have := map[string]float64{}
		for _, metric := range r.Metrics {
			have[metric.Unit] = metric.Value
		}
		for unit, value := range want {
			if got, ok := have[unit]; !ok || math.Abs(got-value) > 1e-12*math.Abs(value) {
				t.Errorf("configuration %d: %s = %v, want %v", i+1, unit, got, value)
			}
		}
		for _, unit := range []string{UnitInflight, UnitPeak, UnitCost, UnitTTFT99} {
			if v, ok := have[unit]; ok {
				t.Errorf("configuration %d: %s = %v, want none", i+1, unit, v)
			}
		}
		if r.Measured != n || r.Tokens != int64(5*n) || r.Plan.MaxFailed != 1+2+3+4 || r.Plan.Load.Share != "" || r.Plan.Load.Seed != 0 {
			t.Errorf("%d requests with %d tokens, plan %+v", r.Measured, r.Tokens, r.Plan)
		}
	}
	// A constant process of four is the whole one.
	if r := m.Results[0]; r.Measured != 40 || r.Generators[3].OffsetNS != 3*ms+15*ms {
		t.Errorf("%d requests, the last generator is %v off, want 40 and 18ms", r.Measured, time.Duration(r.Generators[3].OffsetNS))
	}
}

// The numbers stay what they are wherever the machines' clocks stand.
func TestMergeNeedsNoCommonClock(t *testing.T) {
	want := Merge(generators(t, nil)...)
	got := Merge(generators(t, func(k int, f *file) {
		f.header().Clock.BaseNS += int64(k) * 1e15
		ended, _ := time.Parse(time.RFC3339Nano, f.trailer.Ended)
		f.trailer.Ended = ended.Add(time.Duration(k%2) * 20 * time.Millisecond).Format(time.RFC3339Nano)
	})...)
	for i := range want.Results {
		if !slices.Equal(got.Results[i].Metrics, want.Results[i].Metrics) {
			t.Errorf("metrics %v, want %v", got.Results[i].Metrics, want.Results[i].Metrics)
		}
	}
	if got.Results[0].Generators[1].OffsetNS == want.Results[0].Generators[1].OffsetNS {
		t.Error("the offsets that the machines declare are the same")
	}
}

func TestMergeWarnings(t *testing.T) {
	m := Merge(generators(t, func(k int, f *file) {
		if k == 4 {
			f.header().Go = "go1.27"
			f.trailer.Ended = "2026-11-30T20:00:01.68Z"
		}
	})...)
	want := []string{
		`4.jsonl is of revision "0123456789abcdef0123456789abcdef01234567" with go1.27, 1.jsonl of "0123456789abcdef0123456789abcdef01234567" with go1.26.8`,
	}
	if m.Err() != nil || len(m.Warnings) != 7 || m.Warnings[0] != want[0] || !strings.HasPrefix(m.Warnings[1], "configuration 1, BenchmarkServe/input=4/rate=100: all generators were at work for ") {
		t.Errorf("%v, warnings %q, want %q, two of the time and four of the percentiles", m.Err(), m.Warnings, want)
	}
}

func TestMergeGamma(t *testing.T) {
	m := Merge(generators(t, func(k int, f *file) {
		renew(f, func(p *Plan) { p.Load.Arrival, p.Load.Burstiness = ArrivalGamma, "0.5" })
	})...)
	if want := "configuration 1, BenchmarkServe/input=4/rate=100: the arrivals of 4 generators together are nearer to a Poisson process than burstiness 0.5 says of each"; m.Err() != nil || !slices.Contains(m.Warnings, want) {
		t.Errorf("%v, warnings %q, want %q among them", m.Err(), m.Warnings, want)
	}
}

// A generator's configuration that is invalid has no numbers for all.
func TestMergeInvalid(t *testing.T) {
	m := Merge(generators(t, func(k int, f *file) {
		if k == 2 {
			f.invalidate(1, "a cat sat on it")
		}
	})...)
	if m.Err() != nil || m.Valid() != 1 || len(m.Results[0].Metrics) > 0 || !slices.Equal(m.Results[0].Reasons, []string{"2/4: a cat sat on it"}) {
		t.Errorf("%v, %d valid, %+v", m.Err(), m.Valid(), m.Results[0])
	}
}

func TestMergeRefuses(t *testing.T) {
	// of changes the k-th file.
	of := func(k int, change func(f *file)) func(int, *file) {
		return func(i int, f *file) {
			if i == k {
				change(f)
			}
		}
	}
	plans := func(k int, change func(p *Plan)) func(int, *file) {
		return of(k, func(f *file) { each(f, change) })
	}
	// again makes the k-th file one of another load.
	for _, test := range []struct {
		name   string
		change func(k int, f *file)
		pick   []int // files, nil for all
		want   string
	}{
		{"one alone", nil, []int{1}, "verify: 1.jsonl: one file alone: there is nothing to merge"},
		{"a file twice", nil, []int{1, 2, 3, 4, 2}, "verify: 2.jsonl: header: run 20261130T200000Z-2-00112232 is that of 2.jsonl, too"},
		{"a share missing", nil, []int{1, 2, 4}, "verify: configuration 1: share 3/4 is missing: all generators have to be named"},
		{"a share twice", of(3, func(f *file) { renew(f, func(p *Plan) { p.Load.Share = "2/4" }) }), nil, "verify: 3.jsonl: configuration 1: share 2/4 is that of 2.jsonl, too"},
		{"of another number", of(3, func(f *file) { renew(f, func(p *Plan) { p.Load.Share = "3/5" }) }), nil, "verify: 3.jsonl: configuration 1: share 3/5, but 1.jsonl has 1/4"},
		{"no share", of(3, func(f *file) { renew(f, func(p *Plan) { p.Load.Share = "" }) }), nil, "verify: 3.jsonl: configuration 1: BenchmarkServe/input=4/rate=100 has no share: it isn't of one of several generators"},
		{"a seed twice", of(3, func(f *file) { renew(f, func(p *Plan) { p.Load.Seed = 41 }) }), nil, "verify: 3.jsonl: configuration 1: seed 41 is that of 1.jsonl, too: generators with one seed aren't independent of each other"},
		{"another duration", of(3, func(f *file) { renew(f, func(p *Plan) { p.Load.DurationNS = 390 * ms }) }), nil, "verify: 3.jsonl: configuration 1: load: duration_ns 390000000, but 1.jsonl has 400000000"},
		{"another SLO", of(3, func(f *file) {
			renew(f, func(p *Plan) { p.Load.SLO = []Bound{{"ttft", 16 * ms}} })
		}), nil, "verify: 3.jsonl: configuration 1: load: slo isn't that of 1.jsonl"},
		{"another rate", of(3, func(f *file) {
			renew(f, func(p *Plan) {
				p.Load.Rate, p.Name, p.Axes = "50", "BenchmarkServe/input=4/rate=50", []Axis{{"input", "4"}, {"rate", "50"}}
			})
		}), nil, `verify: 3.jsonl: configuration 1: load: rate "50", but 1.jsonl has "100"`},
		{"another GOMAXPROCS", plans(3, func(p *Plan) { p.GOMAXPROCS = 1 }), nil, "verify: 3.jsonl: configuration 1: plan: gomaxprocs 1, but 1.jsonl has 2"},
		{"other prompts", of(3, func(f *file) { renew(f, func(p *Plan) { p.Prompts = []string{"4-b", "4-a", "4-c"} }) }), nil, "verify: 3.jsonl: configuration 1: plan: prompts aren't those of 1.jsonl"},
		{"another server", of(3, func(f *file) { f.header().Target.URL = "http://127.0.0.2:8000/v1" }), nil, `verify: 3.jsonl: header: target: url "http://127.0.0.2:8000/v1", but 1.jsonl has "http://127.0.0.1:8000/v1"`},
		{"another corpus", of(3, func(f *file) { f.corpus().Prompts[1].Text += "!"; seal(f.corpus()) }), nil, `verify: 3.jsonl: corpus: sha256 "63a13d188127000578688eddc1f4f8cab1f0c3fcdf342786f5a2d7d065ef380a" isn't that of 1.jsonl, "3d78f49c80990a8becc3b0e8fffe1640a92c2c7b6891186bf6d21a8d8700574e"`},
		{"fewer configurations", of(3, func(f *file) {
			f.records = f.records[:f.index(f.plan(2))]
		}), nil, "verify: 3.jsonl: 1 configurations, but 1.jsonl has 2"},
		{"one after the other", of(3, func(f *file) { f.trailer.Ended = "2026-11-30T20:00:09Z" }), nil, "verify: configuration 1: all generators were at work for 0s at the same time, by their wall clocks, and the longest for 410.309579ms: less than 50 % isn't one load. Start them together, and set the clocks of their machines"},
		{"one contradicts itself", of(3, func(f *file) { f.request("1.0.1").OutputTokens = 4 }), nil, "verify: 3.jsonl:7: request 1.0.1: output_tokens 4, want 5"},
		{"a server of its own", func(k int, f *file) {
			if k == 3 {
				*f = *good()
			}
		}, nil, "verify: 3.jsonl: header: no target: generators share a server that none of them started"},
	} {
		parts := generators(t, test.change)
		if test.pick != nil {
			var picked []Part
			for _, k := range test.pick {
				picked = append(picked, parts[k-1])
			}
			parts = picked
		}
		m := Merge(parts...)
		if m.Verdict != Inconsistent || m.Err() == nil || m.Err().Error() != test.want {
			t.Errorf("%s:\n got %v\nwant %s", test.name, m.Err(), test.want)
		}
	}
	// A search for a saturation, by name.
	parts := generators(t, nil)
	parts[2].Report.Saturations = []Saturation{{Name: "BenchmarkSaturation/input=4"}}
	if m, want := Merge(parts...), "verify: 3.jsonl: BenchmarkSaturation/input=4 can't be merged: each of its probes follows from those before it in the same process"; m.Err() == nil || m.Err().Error() != want {
		t.Errorf("%v, want %s", m.Err(), want)
	}
	// One that was cut short makes the whole incomplete.
	data := generator(2).encode()
	cut, err := Replay("2.jsonl", bytes.NewReader(data[:len(data)/3]))
	if err != nil {
		t.Fatal(err)
	}
	parts = generators(t, nil)
	parts[1].Report = cut
	if m := Merge(parts...); m.Verdict != Incomplete || len(m.Results) > 0 || !strings.HasPrefix(m.Err().Error(), "verify: incomplete: 2.jsonl: the run ended within configuration 1, ") {
		t.Errorf("%v, %v", m.Verdict, m.Err())
	}
}

// renew changes the plans of a generator's file, and makes its requests those
// of the new plans.
func renew(f *file, change func(p *Plan)) {
	seed := f.header().Target.SaltSeed
	pool := f.corpus().Pool()
	each(f, func(p *Plan) {
		change(p)
		begin := f.request(RequestID(p.Config, PhaseMeasured, 0, 0)).ScheduledNS
		each(f, func(r *Request) {
			if r.Config == p.Config && r.Phase == PhaseMeasured {
				f.remove(r)
			}
		})
		due, err := p.Load.Schedule()
		if err != nil {
			panic(err)
		}
		now := clock{seed: 99}
		for i, ns := range due {
			free := begin + ns
			prompt := f.prompt(p.promptAt(0, i))
			r, _ := exchange(&now, begin+ns, &free, prompt, 5)
			r.Config, r.Phase, r.ID = p.Config, PhaseMeasured, RequestID(p.Config, PhaseMeasured, 0, i)
			r.SentIDs = SaltedIDs(seed, r.ID, prompt.IDs, pool)
			r.PromptIDs = r.SentIDs
			f.records = slices.Insert(f.records, f.index(f.configuration(p.Config)), any(r))
		}
		f.recompute(p.Config)
	})
}

// The files that the command's test merges are these.
func TestGeneratorFiles(t *testing.T) {
	for k := 1; k <= 4; k++ {
		path := filepath.Join("testdata", "generators", fmt.Sprintf("%d.jsonl", k))
		want := generator(k).encode()
		if *update {
			if err := os.WriteFile(path, want, 0o666); err != nil {
				t.Fatal(err)
			}
		}
		if have, err := os.ReadFile(path); err != nil || !bytes.Equal(have, want) {
			t.Errorf("%s isn't what generator(%d) makes (%v): go test ./verify -run TestGeneratorFiles -update writes it", path, k, err)
		}
	}
}
