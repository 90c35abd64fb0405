package verify

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
)

// The first gaps of every process are pinned: evidence of today is replayed
// in years, on any machine.
func TestSchedulePinned(t *testing.T) {
	for _, test := range []struct {
		load Load
		want []int64
	}{
		{Load{Kind: LoadOpen, Arrival: ArrivalConstant, Rate: "3", Requests: 5}, []int64{0, 333333333, 666666666, 1000000000, 1333333333}},
		{Load{Kind: LoadOpen, Arrival: ArrivalPoisson, Rate: "2", Seed: 7, Requests: 10}, []int64{45944372, 1988174443, 2904139830, 3586313180, 4368453685, 5331144625, 5474713264, 6865903927, 7470022221, 7491994706}},
		{Load{Kind: LoadOpen, Arrival: ArrivalGamma, Burstiness: "0.25", Rate: "2", Seed: 7, Requests: 10}, []int64{568575347, 963800991, 981723633, 1493708140, 2306620527, 3620693296, 3647496470, 3746600883, 3855690980, 3868406969}},
		{Load{Kind: LoadOpen, Arrival: ArrivalGamma, Burstiness: "4", Rate: "2", Seed: 7, Requests: 10}, []int64{313313064, 639517082, 1091016245, 1212073276, 1505885521, 1913003380, 2228366467, 3062968725, 3220126481, 4020730444}},
		{Load{Kind: LoadOpen, Arrival: ArrivalConstant, Steps: []Step{{"1", 2e9}, {"4", 1e9}}}, []int64{0, 1000000000, 2000000000, 2250000000, 2500000000, 2750000000}},
	} {
		got, err := test.load.Schedule()
		if err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(got, test.want) {
			t.Errorf("%+v: %#v, want %v", test.load, got, test.want)
		}
	}
}

// The processes are what their names say: mean and variance of a hundred
// thousand gaps, and nothing is stretched to fit.
func TestScheduleMoments(t *testing.T) {
	const n, rate = 100_000, 50.0
	for _, test := range []struct {
		arrival, burstiness string
		variance            float64 // of a gap over its squared mean: 1 / shape
	}{
		{ArrivalPoisson, "", 1}, {ArrivalGamma, "0.25", 4}, {ArrivalGamma, "1", 1}, {ArrivalGamma, "16", 1. / 16}, {ArrivalConstant, "", 0},
	} {
		due, err := (&Load{Kind: LoadOpen, Arrival: test.arrival, Burstiness: test.burstiness, Rate: "50", Seed: 3, Requests: n}).Schedule()
		if err != nil || len(due) != n {
			t.Fatalf("%d due, %v", len(due), err)
		}
		var sum, squares float64
		for i := 1; i < n; i++ {
			gap := float64(due[i]-due[i-1]) / 1e9 * rate
			sum += gap
			squares += gap * gap
		}
		mean := sum / (n - 1)
		variance := squares/(n-1) - mean*mean
		// Five standard errors of the mean; the variance, wider.
		if bound := 5 * math.Sqrt((test.variance+1e-12)/n); math.Abs(mean-1) > bound+1e-6 {
			t.Errorf("%s %s: mean gap %v of what the rate gives, want 1 ± %v", test.arrival, test.burstiness, mean, bound)
		}
		if math.Abs(variance-test.variance) > 0.1*test.variance+1e-6 {
			t.Errorf("%s %s: variance %v, want %v", test.arrival, test.burstiness, variance, test.variance)
		}
		if mean == 1 && test.arrival != ArrivalConstant {
			t.Errorf("%s %s: the mean is 1 to the bit, as if it had been normalised", test.arrival, test.burstiness)
		}
	}
}

func TestScheduleRefuses(t *testing.T) {
	for _, test := range []struct {
		load Load
		want string
	}{
		{Load{Kind: LoadClosed, Conc: 1}, `load "closed" has no schedule`},
		{Load{Kind: LoadOpen, Arrival: "uniform", Rate: "1", Requests: 1}, `arrival "uniform", want "poisson", "constant", "gamma" or "trace"`},
		{Load{Kind: LoadOpen, Arrival: ArrivalPoisson, Rate: "0", Requests: 1}, `rate "0", want a decimal number from 1e-06 to 1e+06`},
		{Load{Kind: LoadOpen, Arrival: ArrivalPoisson, Rate: "NaN", Requests: 1}, `rate "NaN", want a decimal number from 1e-06 to 1e+06`},
		{Load{Kind: LoadOpen, Arrival: ArrivalPoisson, Rate: "0.50", Requests: 1}, `rate "0.50", want it as 0.5`},
		{Load{Kind: LoadOpen, Arrival: ArrivalPoisson, Rate: "1"}, `step 0 lasts 0 ns, want a duration, or a number of requests for the only one`},
		{Load{Kind: LoadOpen, Arrival: ArrivalGamma, Rate: "1", Requests: 1}, `burstiness "", want a decimal number from 0.001 to 1e+06`},
		{Load{Kind: LoadOpen, Arrival: ArrivalPoisson, Burstiness: "1", Rate: "1", Requests: 1}, `arrival "poisson" with a burstiness`},
		{Load{Kind: LoadOpen, Arrival: ArrivalPoisson, Rate: "0.001", Seed: 1, DurationNS: 1}, `no request is due within the duration`},
		{Load{Kind: LoadOpen, Arrival: ArrivalPoisson, Rate: "1", Requests: maxSchedule + 1}, `more than 10000000 requests or 2^55 ns`},
		{Load{Kind: LoadOpen, Arrival: ArrivalGamma, Burstiness: "0.001", Rate: "0.000001", Seed: 1, Requests: 1000}, `more than 10000000 requests or 2^55 ns`},
		{Load{Kind: LoadOpen, Arrival: ArrivalPoisson, Seed: 1, Steps: []Step{{"0.000001", maxNS}, {"0.000001", 1}}}, `steps of more than 2^55 ns together`},
		{Load{Kind: LoadOpen, Arrival: ArrivalTrace}, `a trace of no requests`},
		{Load{Kind: LoadOpen, Arrival: ArrivalTrace, Trace: []Due{{2, 1, 1}, {1, 1, 1}}}, `trace[1] is due at 1 ns, want them to rise from 0 on`},
		{Load{Kind: LoadOpen, Arrival: ArrivalPoisson, Rate: "1", Requests: 1, Trace: []Due{{0, 1, 1}}}, `arrival "poisson" with a trace`},
		{Load{Kind: LoadOpen, Arrival: ArrivalPoisson, Rate: "1", Steps: []Step{{"1", 1e9}}}, `steps beside a rate or a duration`},
	} {
		if _, err := test.load.Schedule(); err == nil || err.Error() != test.want {
			t.Errorf("%+v: %v, want %s", test.load, err, test.want)
		}
	}
}

// Logarithm and exponential agree with math's to a few units in the last
// place, over what they are used for.
func TestElementaryFunctions(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for range 200_000 {
		x := uniform(rng)
		for _, x := range []float64{x, x * x * x, x / (1 << 40), 1 + x, 1 - x/1024} {
			if got, want := logarithm(x), math.Log(x); math.Abs(got-want) > 4e-16*math.Max(math.Abs(want), 0.5) {
				t.Fatalf("logarithm(%v) = %v, want %v", x, got, want)
			}
		}
		y := -700 * x * x
		if got, want := exponent(y), math.Exp(y); math.Abs(got-want) > 3e-13*want {
			t.Fatalf("exponent(%v) = %v, want %v", y, got, want)
		}
	}
}
