package verify

import (
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"testing"
)

func TestPercentileByHand(t *testing.T) {
	for _, test := range []struct {
		sorted     []int64
		percent    int
		hundredths int64
		ok         bool
	}{
		{nil, 50, 0, false}, // nothing has no percentile, not 0
		{[]int64{10}, 95, 1000, true},
		{[]int64{10, 20}, 50, 1500, true}, // rank 0.5
		{[]int64{10, 20}, 95, 1950, true}, // rank 0.95
		{[]int64{10, 20}, 99, 1990, true}, //
		{[]int64{10, 20, 30}, 50, 2000, true},
		{[]int64{10, 20, 30}, 95, 2900, true}, // rank 1.9
		{[]int64{10, 20, 30}, 99, 2980, true}, // rank 1.98
		{[]int64{10, 20, 30}, 0, 1000, true},
		{[]int64{10, 20, 30}, 100, 3000, true},
		{[]int64{1, 2}, 1, 101, true}, // rank 0.01: what hundredths are for
	} {
		got, ok := Percentile(test.sorted, test.percent)
		if got != test.hundredths || ok != test.ok {
			t.Errorf("Percentile(%v, %d) = %d, %t, want %d, %t", test.sorted, test.percent, got, ok, test.hundredths, test.ok)
		}
		floats := make([]float64, len(test.sorted))
		for i, v := range test.sorted {
			floats[i] = float64(v)
		}
		float, ok := PercentileFloat(floats, test.percent)
		if math.Abs(float-float64(test.hundredths)/100) > 1e-12 || ok != test.ok {
			t.Errorf("PercentileFloat(%v, %d) = %v, %t, want %v, %t", floats, test.percent, float, ok, float64(test.hundredths)/100, test.ok)
		}
	}
}

// The vectors are numpy's; testdata/percentiles.py makes them.
func TestPercentileAgreesWithNumpy(t *testing.T) {
	data, err := os.ReadFile(filepath.Join("testdata", "percentiles.json"))
	if err != nil {
		t.Fatal(err)
	}
	var vectors []struct {
		Values      []int64            `json:"values"`
		Percentiles map[string]float64 `json:"percentiles"`
	}
	if err := json.Unmarshal(data, &vectors); err != nil {
		t.Fatal(err)
	}
	compared := 0
	for _, v := range vectors {
		sorted := slices.Sorted(slices.Values(v.Values))
		floats := make([]float64, len(sorted))
		for i, n := range sorted {
			floats[i] = float64(n)
		}
		for key, want := range v.Percentiles {
			percent, err := strconv.Atoi(key)
			if err != nil {
				t.Fatal(err)
			}
			hundredths, _ := Percentile(sorted, percent)
			float, _ := PercentileFloat(floats, percent)
			for name, got := range map[string]float64{"Percentile": float64(hundredths) / 100, "PercentileFloat": float} {
				if math.Abs(got-want) > 1e-12*max(1, want) {
					t.Errorf("%s of %d values at %d = %v, numpy has %v", name, len(sorted), percent, got, want)
				}
				compared++
			}
		}
	}
	if compared < 1000 {
		t.Errorf("%d comparisons, want at least 1000", compared)
	}
}

// stream makes a request with the stamps that the metrics look at, in ms.
func stream(phase string, start, end int64, tokens ...int64) *Request {
	r := &Request{Phase: phase, StartNS: start * ms, EndNS: end * ms}
	for i, ns := range tokens {
		r.EventNS = append(r.EventNS, ns*ms)
		r.EventKinds += string(EventContent)
		r.EventIDs = append(r.EventIDs, 1)
		r.TokenIDs = append(r.TokenIDs, int32(i))
	}
	return r
}

// Worked out by hand, in ms:
//
//	request  start first last tokens   TTFT   E2E  TPOT
//	warmup       0   900 1040      8      -     -     -
//	a         2000  2100 2160      4    100   160    60/3 = 20
//	b         2200  2350 2440      4    150   240    90/3 = 30
//	c         2500  2700 2700      1    200   200    none, it has one token
//	d         2800  2850 2975      6     50   175   125/5 = 25
//
// TTFT 50 100 150 200: median at rank 1.5, 125. TPOT 20 25 30: median 25.
// E2E 160 175 200 240: p95 at rank 2.85, 200 + 0.85 × 40 = 234.
// 15 tokens from 2000 to 3000, where d ends: 15 tok/s. At 0.54 USD an hour
// that second costs 0.00015 USD, 10 USD for a million tokens.
func handmade() []*Request {
	return []*Request{
		stream(PhaseWarmup, 0, 1041, 900, 920, 940, 960, 980, 1000, 1020, 1040),
		stream(PhaseMeasured, 2500, 2701, 2700),
		stream(PhaseMeasured, 2000, 2161, 2100, 2120, 2140, 2160),
		stream(PhaseMeasured, 2800, 3000, 2850, 2875, 2900, 2925, 2950, 2975),
		stream(PhaseMeasured, 2200, 2441, 2350, 2380, 2410, 2440),
	}
}

func TestMetricsByHand(t *testing.T) {
	var sum Summary
	for _, r := range handmade() {
		sum.Add(r)
	}
	want := []Metric{
		{"p95-s", 0.234}, {"rss-peak-B", 123456789}, {"tok/s", 15}, {"tpot-p50-ms", 25}, {"ttft-p50-s", 0.125}, {"usd/Mtok", 10},
	}
	for range 2 { // asking changes nothing
		got := sum.Metrics(123456789, 0.54)
		if len(got) != len(want) {
			t.Fatalf("Metrics = %v, want %v", got, want)
		}
		for i := range want {
			if got[i].Unit != want[i].Unit || math.Abs(got[i].Value-want[i].Value) > 1e-15*want[i].Value {
				t.Errorf("Metrics[%d] = %v, want %v", i, got[i], want[i])
			}
		}
	}
	if sum.Measured != 4 || sum.Failed != 0 || sum.Tokens != 15 || sum.BeginNS != 2000*ms || sum.EndNS != 3000*ms {
		t.Errorf("Summary = %d measured, %d failed, %d tokens, %d to %d, want 4, 0, 15, 2 s to 3 s", sum.Measured, sum.Failed, sum.Tokens, sum.BeginNS, sum.EndNS)
	}
	units := []string{}
	for _, m := range want {
		units = append(units, m.Unit)
	}
	if !slices.Equal(units, Units()) || !slices.IsSorted(Units()) {
		t.Errorf("Units() = %v, want %v, sorted", Units(), units)
	}
	if !HigherIsBetter("tok/s") || HigherIsBetter("p95-s") {
		t.Error("HigherIsBetter: tok/s alone gets better as it rises")
	}
}

func units(metrics []Metric) (out []string) {
	for _, m := range metrics {
		out = append(out, m.Unit)
	}
	return out
}

// What isn't defined isn't there: never 0, NaN or infinite.
func TestUndefinedMetricsAreAbsent(t *testing.T) {
	one := stream(PhaseMeasured, 2000, 2161, 2100)
	failed := stream(PhaseMeasured, 2000, 2161, 2100, 2120)
	failed.Failure = &Failure{FailStall, "nothing for 5m0s"}
	uncounted := stream(PhaseMeasured, 2000, 2161, 2100, 2120)
	uncounted.EventIDs, uncounted.TokenIDs = nil, nil
	counted := stream(PhaseMeasured, 2000, 2161, 2100, 2120)
	counted.EventIDs, counted.TokenIDs, counted.Usage = nil, nil, &Usage{CompletionTokens: 5}
	instant := stream(PhaseMeasured, 2000, 2000, 2000, 2000)
	for _, test := range []struct {
		name     string
		requests []*Request
		peak     int64
		usd      float64
		want     []string
	}{
		{"no requests", nil, 1, 1, []string{"rss-peak-B"}},
		{"warmups only", handmade()[:1], 0, 1, nil},
		{"one token", []*Request{one}, 0, 0, []string{"p95-s", "tok/s", "ttft-p50-s"}},
		{"failed", []*Request{failed}, 0, 1, nil},
		{"unknown number of tokens", []*Request{uncounted, one}, 0, 1, []string{"p95-s", "ttft-p50-s"}},
		{"counted by the server", []*Request{counted}, 0, 1, []string{"p95-s", "tok/s", "tpot-p50-ms", "ttft-p50-s", "usd/Mtok"}},
		{"no time at all", []*Request{instant}, 0, 1, []string{"p95-s", "tpot-p50-ms", "ttft-p50-s"}},
		{"no token", []*Request{stream(PhaseMeasured, 1, 2)}, 0, 1, nil},
	} {
		var sum Summary
		for _, r := range test.requests {
			sum.Add(r)
		}
		if got := units(sum.Metrics(test.peak, test.usd)); !slices.Equal(got, test.want) {
			t.Errorf("%s: metrics %v, want %v", test.name, got, test.want)
		}
	}
	silent := &Request{Usage: &Usage{CompletionTokens: 5}} // no event had a token
	if ns, ok := silent.TPOT(); ok {
		t.Errorf("TPOT without a token's arrival = %v, want none", ns)
	}
	// 20 ms over 5 - 1 tokens by the server's count.
	if ns, ok := counted.TPOT(); ns != float64(5*ms) || !ok {
		t.Errorf("TPOT by usage = %v, %t, want 5 ms", ns, ok)
	}
}

// A failed request is counted, and in no metric.
func TestFailedRequestsAreKeptOut(t *testing.T) {
	var with, without Summary
	for _, r := range handmade() {
		with.Add(r)
		without.Add(r)
	}
	failed := stream(PhaseMeasured, 2900, 2950, 2910, 2911)
	failed.Failure = &Failure{FailStream, "reset"}
	with.Add(failed)
	if !slices.Equal(with.Metrics(1, 1), without.Metrics(1, 1)) {
		t.Errorf("metrics with a failed request = %v, want %v", with.Metrics(1, 1), without.Metrics(1, 1))
	}
	if with.Measured != 5 || with.Failed != 1 || with.Tokens != 15 {
		t.Errorf("%d measured, %d failed, %d tokens, want 5, 1, 15", with.Measured, with.Failed, with.Tokens)
	}
	warmup := stream(PhaseWarmup, 1, 2)
	warmup.Failure = &Failure{FailStream, "reset"}
	with.Add(warmup)
	if with.WarmupFailed != 1 || with.Failed != 1 {
		t.Errorf("%d warmups and %d measured failed, want 1 and 1", with.WarmupFailed, with.Failed)
	}
}

// Whoever asks for a percentile finds the records as they were.
func TestSummaryLeavesRequestsAlone(t *testing.T) {
	requests, again := handmade(), handmade()
	var forward, backward Summary
	for i, r := range requests {
		forward.Add(r)
		backward.Add(requests[len(requests)-1-i])
	}
	if a, b := forward.Metrics(1, 1), backward.Metrics(1, 1); !slices.Equal(a, b) {
		t.Errorf("metrics depend on the order of requests: %v and %v", a, b)
	}
	if !reflect.DeepEqual(requests, again) {
		t.Error("Add or Metrics changed a request")
	}
}

// Worked out by hand, in ns: two measured requests, the second served late,
// and a warmup.
//
//	request scheduled start connected sent headers events     end
//	m1            100   110       130  140     160 200 230    250
//	m2            300   301       305  309     320 400 401    420
//	w              10    12        20   22      25 30          40
//
//	served  arrival queued slot tokens    release
//	m1          135    137  138 190 220       240
//	m2          307    310  350 390 399       410
//	w            21     22   22 29             35
func TestSpansByHand(t *testing.T) {
	requests := []*Request{
		{Phase: PhaseMeasured, ScheduledNS: 100, StartNS: 110, ConnectedNS: 130, SentNS: 140, HeadersNS: 160, EventNS: []int64{200, 230}, EventKinds: "cc", EventIDs: []int{1, 1}, EndNS: 250},
		{Phase: PhaseMeasured, ScheduledNS: 300, StartNS: 301, ConnectedNS: 305, SentNS: 309, HeadersNS: 320, EventNS: []int64{400, 401}, EventKinds: "cc", EventIDs: []int{1, 1}, EndNS: 420},
		{Phase: PhaseWarmup, ScheduledNS: 10, StartNS: 12, ConnectedNS: 20, SentNS: 22, HeadersNS: 25, EventNS: []int64{30}, EventKinds: "c", EventIDs: []int{1}, EndNS: 40},
	}
	served := []*Served{
		{ArrivalNS: 135, QueuedNS: 137, SlotNS: 138, TokenNS: []int64{190, 220}, ReleaseNS: 240},
		{ArrivalNS: 307, QueuedNS: 310, SlotNS: 350, TokenNS: []int64{390, 399}, ReleaseNS: 410},
		{ArrivalNS: 21, QueuedNS: 22, SlotNS: 22, TokenNS: []int64{29}, ReleaseNS: 35},
	}
	var sum Summary
	for i, r := range requests {
		sum.Add(r)
		sum.AddServed(r, served[i])
	}
	sum.AddMemory(&Memory{TimeNS: []int64{8, 100, 160}, RSSBytes: []int64{5, 9, 7}})
	sum.AddMemory(&Memory{TimeNS: []int64{300}, RSSBytes: []int64{8}})
	got := Configuration{Passes: 3, PeakBytes: 10}
	sum.Fill(&Plan{PlannedNS: 5}, &got)
	want := Configuration{
		Passes: 3, PeakBytes: 10,
		Measured: 2, Tokens: 0, BeginNS: 110, EndNS: 420, LeadNS: 105,
		Spans: Spans{
			Requests: 2, DelayNS: 10 + 1, ConnectNS: 20 + 4, SendNS: 10 + 4, HeadersNS: 50 + 19, EventsNS: 90 + 120 + 99 + 100, EndNS: 140 + 119,
			Served: 2, ArriveNS: 25 + 6, ReadNS: 2 + 3, QueueNS: 1 + 40, SlotNS: 102 + 60, Tokens: 4, DeliveryNS: 10 + 10 + 10 + 2,
		},
		Excluded: Spans{
			Requests: 1, DelayNS: 2, ConnectNS: 8, SendNS: 2, HeadersNS: 13, EventsNS: 18, EndNS: 28,
			Served: 1, ArriveNS: 9, ReadNS: 1, QueueNS: 0, SlotNS: 13, Tokens: 1, DeliveryNS: 1,
		},
		Sampled: Sampled{Samples: 4, MaxBytes: 9, SumBytes: 29, GapNS: 140}, // 160 to 300; 300 to the end is 120
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("Fill gave\n%+v, want\n%+v", got, want)
	}
	if ns, ok := sum.QueueP50NS(); ns != 20 || !ok { // of 1 and 40, rounded down
		t.Errorf("QueueP50NS() = %d, %t, want 20", ns, ok)
	}
}

// A request that never got far has fewer spans, not negative ones.
func TestSpansOfAFailedRequest(t *testing.T) {
	r := &Request{Phase: PhaseMeasured, ScheduledNS: 100, StartNS: 110, EndNS: 150, Failure: &Failure{FailConnect, "refused"}}
	var sum Summary
	sum.Add(r)
	sum.AddServed(r, &Served{ArrivalNS: 130, Error: "queue full"})
	var got Configuration
	sum.Fill(&Plan{PlannedNS: 5}, &got)
	if want := (Spans{Requests: 1, DelayNS: 10, EndNS: 40, Served: 1, ArriveNS: 20}); got.Excluded != want || got.Spans != (Spans{}) {
		t.Errorf("Fill gave %+v and %+v, want nothing and %+v", got.Spans, got.Excluded, want)
	}
	if _, ok := sum.QueueP50NS(); ok {
		t.Error("QueueP50NS is defined without a measured request in the slot")
	}
	// The server made a token more than the client got.
	r = stream(PhaseMeasured, 1, 9, 2, 3)
	r.Failure = &Failure{FailStream, "reset"}
	sum = Summary{}
	sum.AddServed(r, &Served{ArrivalNS: 1, QueuedNS: 1, SlotNS: 1, TokenNS: []int64{1 * ms, 2 * ms, 4 * ms}, ReleaseNS: 5 * ms})
	sum.Fill(&Plan{}, &got)
	if got.Excluded.Tokens != 2 || got.Excluded.DeliveryNS != 2*ms {
		t.Errorf("delivery of %d tokens in %d ns, want 2 in 2 ms", got.Excluded.Tokens, got.Excluded.DeliveryNS)
	}
	// And fewer.
	sum = Summary{}
	sum.AddServed(r, &Served{ArrivalNS: 1, TokenNS: []int64{1 * ms}})
	sum.Fill(&Plan{}, &got)
	if got.Excluded.Tokens != 1 {
		t.Errorf("delivery of %d tokens, want 1", got.Excluded.Tokens)
	}
}
