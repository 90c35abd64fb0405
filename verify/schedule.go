package verify

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"strconv"
	"strings"
)

// An open loop sends requests when they are due, whatever became of those
// before them. When that is follows from the plan alone: the arrival process,
// its rate and its seed. So whoever has the file draws the times again.
//
// The processes are true ones: a gap is drawn for each request, and nothing is
// stretched afterwards to end on time or to have the wanted mean. Every
// machine gets the same ns: PCG is defined to the bit, integers are exact,
// logarithm and exponential are computed here, and each product is rounded by
// itself (float64(a*b)), for arm64 would fuse it with a sum.

// The arrival processes of an open loop.
const (
	ArrivalPoisson  = "poisson"  // gaps are exponential
	ArrivalConstant = "constant" // request i is due i/rate after the first
	ArrivalGamma    = "gamma"    // gaps are gamma distributed with shape Burstiness: below 1 burstier than Poisson, above 1 more regular
	ArrivalTrace    = "trace"    // at the times of a recorded trace, multiplied by TraceScale
)

// maxSchedule bounds the requests of one configuration.
const maxSchedule = 10_000_000

// Schedule returns when each request of an open loop is due, in ns from its
// beginning, never falling. It errs on a load that isn't open or that names no
// process.
func (l *Load) Schedule() ([]int64, error) {
	switch {
	case l.Kind != LoadOpen:
		return nil, fmt.Errorf("load %q has no schedule", l.Kind)
	case l.Arrival == ArrivalTrace:
		return l.traceSchedule()
	case len(l.Trace) > 0:
		return nil, fmt.Errorf("arrival %q with a trace", l.Arrival)
	}
	steps := l.Steps
	if len(steps) == 0 {
		steps = []Step{{Rate: l.Rate, DurationNS: l.DurationNS}}
	} else if l.Rate != "" || l.DurationNS != 0 {
		return nil, errors.New("steps beside a rate or a duration")
	}
	shape := 1.0
	if l.Arrival == ArrivalGamma {
		var err error
		if shape, err = decimal("burstiness", l.Burstiness, 1e-3, 1e6); err != nil {
			return nil, err
		}
	} else if l.Burstiness != "" {
		return nil, fmt.Errorf("arrival %q with a burstiness", l.Arrival)
	}
	// One of N generators has every N-th request of a constant process, the
	// K-th of them from the K-th on: together they are that process. Of any
	// other it has a stream of its own, with gaps N times as long: together
	// Poisson processes are a Poisson process.
	part, parts, err := l.share()
	if err != nil {
		return nil, err
	}
	stream := uint64(0x73657276656e6368) // of schedules
	if parts > 1 {
		stream += uint64(part)
	}
	requests := (l.Requests + parts - part) / parts
	if l.Requests > 0 && requests == 0 {
		return nil, fmt.Errorf("share %s of %d requests has none of them", l.Share, l.Requests)
	}
	rng := rand.New(rand.NewPCG(uint64(l.Seed), stream))
	var due []int64
	begin := int64(0)
	for i, step := range steps {
		rate, err := decimal("rate", step.Rate, 1e-6, 1e6)
		if err != nil {
			return nil, err
		}
		if step.DurationNS < 0 || step.DurationNS > maxNS || step.DurationNS == 0 && (l.Requests < 1 || len(steps) > 1) {
			return nil, fmt.Errorf("step %d lasts %d ns, want a duration, or a number of requests for the only one", i, step.DurationNS)
		}
		mean := 1e9 / rate                      // ns, of all generators together
		every := float64(mean * float64(parts)) // of this one
		at := begin
		for n := 0; ; n++ {
			switch l.Arrival {
			case ArrivalConstant:
				at = begin + int64(float64(float64(n*parts+part-1)*mean))
			case ArrivalPoisson:
				at += gap(float64(exponential(rng) * every))
			case ArrivalGamma:
				at += gap(float64(float64(gamma(rng, shape)/shape) * every))
			default:
				return nil, fmt.Errorf("arrival %q, want %q, %q, %q or %q", l.Arrival, ArrivalPoisson, ArrivalConstant, ArrivalGamma, ArrivalTrace)
			}
			if step.DurationNS > 0 && at-begin >= step.DurationNS || l.Requests > 0 && len(due) == requests {
				break
			}
			if len(due) == maxSchedule || at > maxNS {
				return nil, fmt.Errorf("more than %d requests or 2^55 ns", maxSchedule)
			}
			due = append(due, at)
		}
		if begin += step.DurationNS; begin > maxNS {
			return nil, fmt.Errorf("steps of more than 2^55 ns together")
		}
	}
	if len(due) == 0 {
		return nil, errors.New("no request is due within the duration")
	}
	return due, nil
}

// gap is a time between two requests in whole ns. One that no schedule can
// have stays in the range of the type, where its conversion is the same on
// every machine.
func gap(ns float64) int64 { return int64(min(ns, 2*maxNS)) }

// decimal reads a positive decimal number as people write it, 0.5 say, and
// wants it in its shortest form, for it names an axis.
func decimal(name, text string, least, most float64) (float64, error) {
	v, err := strconv.ParseFloat(text, 64)
	if err != nil || !(v >= least && v <= most) || strings.ContainsAny(text, "eExX_+") {
		return 0, fmt.Errorf("%s %q, want a decimal number from %v to %v", name, text, least, most)
	}
	if short := strconv.FormatFloat(v, 'f', -1, 64); short != text {
		return 0, fmt.Errorf("%s %q, want it as %s", name, text, short)
	}
	return v, nil
}

// uniform is in (0, 1), never at its ends.
func uniform(rng *rand.Rand) float64 {
	return (float64(rng.Uint64()>>12) + 0.5) / (1 << 52)
}

// exponential has the mean 1.
func exponential(rng *rand.Rand) float64 { return -logarithm(uniform(rng)) }

// gamma has the given shape and scale 1: Marsaglia and Tsang, A simple method
// for generating gamma variables, 2000.
func gamma(rng *rand.Rand, shape float64) float64 {
	boost := 1.0
	if shape < 1 {
		boost = exponent(logarithm(uniform(rng)) / shape)
		shape++
	}
	d := shape - 1.0/3
	c := 1 / math.Sqrt(float64(9*d))
	for {
		x := normal(rng)
		v := 1 + float64(c*x)
		if v <= 0 {
			continue
		}
		v = float64(float64(v*v) * v)
		u := uniform(rng)
		if logarithm(u) < float64(float64(0.5*x)*x)+float64(d*(1-v+logarithm(v))) {
			return float64(float64(d*v) * boost)
		}
	}
}

// normal has mean 0 and variance 1: Marsaglia's polar method, one of the two
// values.
func normal(rng *rand.Rand) float64 {
	for {
		x, y := 2*uniform(rng)-1, 2*uniform(rng)-1
		s := float64(x*x) + float64(y*y)
		if s > 0 && s < 1 {
			return float64(x * math.Sqrt(-2*logarithm(s)/s))
		}
	}
}

const ln2 = 0.693147180559945309417232121458176568

// logarithm is the natural one, of x above 0, to about a unit in the last
// place: x = m·2^e with m near 1, and ln m = 2 atanh((m-1)/(m+1)).
func logarithm(x float64) float64 {
	m, e := math.Frexp(x) // exact
	if m < math.Sqrt2/2 {
		m, e = 2*m, e-1
	}
	s := (m - 1) / (m + 1)
	square := float64(s * s)
	sum := 0.0
	for k := 25; k >= 1; k -= 2 {
		sum = float64(sum*square) + 1/float64(k)
	}
	return float64(float64(e)*ln2) + float64(2*float64(s*sum))
}

// exponent is e^x, for x up to 0.
func exponent(x float64) float64 {
	if x < -700 {
		return 0
	}
	n := math.Floor(float64(x/ln2) + 0.5)
	r := x - float64(n*ln2)
	sum := 1.0
	for k := 18; k >= 1; k-- {
		sum = 1 + float64(float64(r*sum)/float64(k))
	}
	return math.Ldexp(sum, int(n)) // exact
}
