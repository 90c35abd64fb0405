package verify

import (
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
)

// MLPerf Inference's own table of early stopping.
func TestPercentileFloor(t *testing.T) {
	for percent, want := range map[int]int{90: 64, 95: 130, 99: 662} {
		if got := PercentileFloor(percent); got != want {
			t.Errorf("PercentileFloor(%d) = %d, want %d", percent, got, want)
		}
	}
}

// Each number of the account that a closing record gives of its plan is held
// against the requests.
func TestTamperedOpenAccountIsRefused(t *testing.T) {
	data := goodOpen().encode()
	typ := reflect.TypeFor[Open]()
	for i := range typ.NumField() {
		name, _, _ := strings.Cut(typ.Field(i).Tag.Get("json"), ",")
		for config, line := range map[int]int{1: 44, 4: 103} { // the invalid one's too
			f := decodeFile(t, data)
			field := reflect.ValueOf(f.configuration(config).Open).Elem().Field(i)
			right := field.Int()
			field.SetInt(right + 1)
			want := fmt.Sprintf("verify: run.jsonl:%d: configuration %d: open.%s %d, but its records give %d", line, config, name, right+1, right)
			if err := replayed(t, f.encode()).Err(); err == nil || err.Error() != want {
				t.Errorf("%s: %v\nwant %s", name, err, want)
			}
		}
	}
}

func TestMissed(t *testing.T) {
	const second = int64(1e9)
	kept := Open{Due: 101, Sent: 101, Gaps: 100, DueSpanNS: 10 * second, StartSpanNS: 10 * second, LagP99NS: 10 * ms}
	for _, test := range []struct {
		name   string
		change func(o *Open, l *Load)
		want   string
	}{
		{"kept", func(*Open, *Load) {}, ""},
		{"lagged a little more", func(o *Open, _ *Load) { o.LagP99NS++ }, "the generator lagged: 99 % of its requests started within 10.000 ms of when they were due, the bound is 10.000 ms"},
		{"lagged, as it may", func(o *Open, l *Load) { o.LagP99NS = 20 * ms; l.MaxLagNS = 20 * ms }, ""},
		{"as slow as it may be", func(o *Open, _ *Load) { o.StartSpanNS = 10*second*100/95 + 10*ms }, ""},
		{"slower", func(o *Open, _ *Load) { o.StartSpanNS = 10*second*100/95 + 10*ms + 1 }, "the rate wasn't kept: 9.491 requests a second of 10 were sent, less than 95 %"},
		{"held back by the cap", func(o *Open, l *Load) { o.StartSpanNS = 100 * second; l.MaxInflight = 1 }, ""},
		{"held back by the cap, and lagged", func(o *Open, l *Load) { o.LagP99NS = second; l.MaxInflight = 1 }, "the generator lagged: 99 % of its requests started within 1000.000 ms of when they were due, the bound is 10.000 ms"},
		{"called off, before which the rate was kept", func(o *Open, _ *Load) { o.Sent, o.Unsent, o.StartSpanNS = 51, 50, 5*second }, "50 of 101 requests that were due were not sent"},
		{"nothing but settling", func(o *Open, _ *Load) { *o = Open{} }, "no request was due after the settling: none is measured"},
		{"one request", func(o *Open, _ *Load) { *o = Open{Due: 1, Sent: 1} }, ""},
		{"two at once, the second late as it may be", func(o *Open, _ *Load) { *o = Open{Due: 2, Sent: 2, Gaps: 1, StartSpanNS: 10 * ms} }, ""},
	} {
		o, l := kept, Load{Kind: LoadOpen, MaxLagNS: DefaultMaxLagNS}
		test.change(&o, &l)
		if got := o.Missed(&l); got != test.want {
			t.Errorf("%s: %q, want %q", test.name, got, test.want)
		}
	}
}

// Metrics may be asked for more than once, and say the same.
func TestMetricsTwice(t *testing.T) {
	f := goodOpen()
	sum := Summary{Open: f.plan(1)}
	each(f, func(r *Request) {
		if r.Config == 1 {
			sum.Add(r)
		}
	})
	first := sum.Metrics(0, 0)
	if second := sum.Metrics(0, 0); !slices.Equal(first, second) || len(first) == 0 {
		t.Errorf("%v, then %v", first, second)
	}
}

// A 99th percentile needs 662 requests; the rates leave the time between
// passes out. Ten requests a second, each of which takes 10 ms to its only
// token and 1 ms more to its end, in two passes with a minute between them.
func TestOpenMetrics(t *testing.T) {
	for _, n := range []int{330, 331} {
		plan := &Plan{Load: Load{Kind: LoadOpen, Arrival: ArrivalConstant, Rate: "10", Requests: n, SLO: []Bound{{"ttft", 10 * ms}}}}
		sum := Summary{Open: plan}
		at := int64(0)
		for pass := range 2 {
			at += 60_000 * ms
			for range n {
				sum.Add(&Request{
					Phase: PhaseMeasured, Pass: pass, ScheduledNS: at, StartNS: at, ConnectedNS: at, SentNS: at, HeadersNS: at + 10*ms,
					EventNS: []int64{at + 10*ms, at + 11*ms}, EventKinds: "cd", EventIDs: []int{1, 0}, TokenIDs: []int32{1}, EndNS: at + 11*ms,
				})
				at += 100 * ms
			}
		}
		got := map[string]float64{}
		for _, m := range sum.Metrics(0, 0) {
			got[m.Unit] = m.Value
		}
		whole := float64(60_000+200*n-89) / 1000 // s, first due to last end
		want := map[string]float64{
			UnitTTFT50: 0.01, UnitTTFT95: 0.01, UnitTTFTSent50: 0.01, UnitTTFTSent95: 0.01, UnitE2E95: 0.01, UnitE2ESent95: 0.01,
			UnitOffered: 10, UnitAchieved: 10, UnitLag99: 0, UnitInflight: 1, UnitSLOShare: 1,
			UnitGoodput: float64(2*n) / whole, UnitThroughput: float64(2*n) / whole,
		}
		if 2*n >= 662 {
			want[UnitTTFT99], want[UnitE2E99] = 0.01, 0.01
		}
		if !reflect.DeepEqual(got, want) {
			t.Errorf("%d requests:\n got %v\nwant %v", 2*n, got, want)
		}
	}
}

// An open loop on somebody else's server is held to all but the server's log.
func TestOpenTarget(t *testing.T) {
	open := func(change func(f *file)) *Report {
		f := goodOpen()
		targeted(f)
		each(f, func(r *Request) {
			if r.Failure != nil {
				r.PromptIDs = nil
			}
		})
		change(f)
		return replayed(t, f.encode())
	}
	if report := open(func(*file) {}); report.Verdict != Consistent || report.Valid() != 3 {
		t.Fatalf("%v, %d valid: %v", report.Verdict, report.Valid(), report.Err())
	}
	for _, test := range []struct {
		name   string
		change func(f *file)
		want   string
	}{
		{"warmup that is missing", func(f *file) { f.remove(f.request("2.w.0")); f.recompute(2) }, `verify: run.jsonl:31: configuration 2: prompt "4-warmup" was not sent in the warmup`},
		{"due request that is missing", func(f *file) { f.remove(f.request("2.0.3")); f.recompute(2) }, `verify: run.jsonl:31: configuration 2: request 2.0.3 was due, and no record says what became of it`},
		{"salt of another place", func(f *file) { f.request("2.0.3").ID = "2.0.5" }, `verify: run.jsonl:30: request 2.0.5: its id isn't that of prompt "4-a" in its pass`},
	} {
		if err := open(test.change).Err(); err == nil || err.Error() != test.want {
			t.Errorf("%s: %v\nwant %s", test.name, err, test.want)
		}
	}
}

// frozenOpen is evidence of open loops, see frozen: goodOpen, as it was when
// such evidence came to the schema.
const frozenOpen = "servebench-1-open"

func TestFrozenOpen(t *testing.T) {
	path := filepath.Join("testdata", frozenOpen)
	if *update {
		f := goodOpen()
		data := f.encode()
		for name, content := range map[string]string{path + ".jsonl": string(data), path + ".txt": f.printed(replayed(t, data).SHA256)} {
			if err := os.WriteFile(name, []byte(content), 0o666); err != nil {
				t.Fatal(err)
			}
		}
	}
	report := replayPath(t, path+".jsonl")
	checkPrintedFile(t, report, path+".txt")
	if report.Verdict != Consistent || report.Valid() != 3 || len(report.Invalid()) != 1 {
		t.Errorf("%v, %v, %d valid, want consistent with 3 valid and 1 invalid", report.Verdict, report.Err(), report.Valid())
	}
	if want := "62f1067b70edd950386c2f4b0dbeb2d940040fc86edad058a10c48fb5d398cd0"; report.SHA256 != want {
		t.Errorf("%s.jsonl has sha256 %s, want %s: frozen evidence never changes", path, report.SHA256, want)
	}
	for config, want := range map[int]string{
		1: "[{achieved-req/s 50.17003514287817} {goodput-req/s 14.612734593717931} {inflight-max 2} {lag-p99-ms 0.001949} {offered-req/s 92.0514748165115} {p95-s 0.0948290696} {p95-sent-s 0.0406821696} {rss-peak-B 5.500928e+06} {slo-share 0.38461538461538464} {tok/s 189.9655497183331} {tpot-p50-ms 2.05463875} {ttft-p50-s 0.062712783} {ttft-p95-s 0.0866993334} {ttft-sent-p50-s 0.032300297} {ttft-sent-p95-s 0.0324231842} {usd/Mtok 0.365563358974359} {wait-mean-ms 28.396611}]",
		2: "[{achieved-req/s 19.99997890002226} {inflight-max 1} {lag-p99-ms 0.001587} {offered-req/s 20} {p95-s 0.0203940254} {p95-sent-s 0.0203929} {rss-peak-B 5.500928e+06} {tok/s 113.40619493859896} {tpot-p50-ms 2.0479975} {ttft-p50-s 0.012153875} {ttft-p95-s 0.0121919998} {ttft-sent-p50-s 0.012152588} {ttft-sent-p95-s 0.012190819} {usd/Mtok 0.6123514194444445}]",
		3: "[{achieved-req/s 53.223609972094174} {failed 2} {goodput-req/s 36.90957301634129} {inflight-max 5} {lag-p99-ms 0.001888} {offered-req/s 53.22343515136148} {p95-s 0.0679885335} {p95-sent-s 0.067987198} {rss-peak-B 5.500928e+06} {slo-share 0.75} {tok/s 184.54786508170645} {tpot-p50-ms 2.0537885} {ttft-p50-s 0.037157958} {ttft-p95-s 0.05984749925} {ttft-sent-p50-s 0.0371560755} {ttft-sent-p95-s 0.05984616375} {usd/Mtok 0.3762950300925926}]",
	} {
		if got := fmt.Sprint(report.Results[config-1].Configuration.Metrics); got != want {
			t.Errorf("metrics %d: %s, want %s", config, got, want)
		}
	}
}

// A TPOT that isn't known is neither kept nor missed.
func TestGoodputNeedsTokenCounts(t *testing.T) {
	for _, test := range []struct {
		metric string
		want   bool
	}{{"tpot", false}, {"ttft", true}} {
		plan := &Plan{Load: Load{Kind: LoadOpen, SLO: []Bound{{test.metric, 1e9}}}}
		sum := Summary{Open: plan, Foreign: plan}
		for i := range int64(3) {
			sum.Add(&Request{
				Phase: PhaseMeasured, ScheduledNS: 1e9 * (i + 1), StartNS: 1e9*(i+1) + 5, HeadersNS: 1e9*(i+1) + 6,
				EventKinds: "cc", EventNS: []int64{1e9*(i+1) + 7, 1e9*(i+1) + 9}, EndNS: 1e9*(i+1) + 10,
			})
		}
		have := false
		for _, m := range sum.Metrics(0, 0) {
			have = have || m.Unit == UnitGoodput || m.Unit == UnitSLOShare
		}
		if have != test.want {
			t.Errorf("an SLO of %s without token counts gives a goodput: %t, want %t", test.metric, have, test.want)
		}
	}
}
