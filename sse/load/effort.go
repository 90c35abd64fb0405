package load

import (
	"math"
	"runtime/debug"
	"runtime/metrics"

	"servebench/sse"
	"servebench/verify"
)

// effort is what the process had done when a stretch of time began.
type effort struct {
	clock  *sse.Clock
	begun  verify.Effort
	counts []uint64
}

const schedLatencies = "/sched/latencies:seconds"

func beginEffort(clock *sse.Clock) *effort {
	e := &effort{clock: clock}
	e.counts = append(e.counts, readSched().Counts...)
	e.begun = effortSoFar()
	e.begun.BeginNS = clock.Now()
	return e
}

// end returns what was done since; its events aren't counted.
func (e *effort) end() verify.Effort {
	now := e.clock.Now()
	out := effortSoFar()
	out.BeginNS, out.EndNS = e.begun.BeginNS, max(now, e.begun.BeginNS+1)
	out.CPUNS -= e.begun.CPUNS
	out.GCCycles -= e.begun.GCCycles
	out.GCPauseNS = min(out.GCPauseNS-e.begun.GCPauseNS, out.EndNS-out.BeginNS)
	sched := readSched()
	for i, n := range sched.Counts {
		if i < len(e.counts) {
			n -= e.counts[i]
		}
		if n == 0 {
			continue
		}
		// The last bucket has no end; its begin says as much as is known.
		below := sched.Buckets[i+1]
		if math.IsInf(below, 1) {
			below = sched.Buckets[i]
		}
		bucket := verify.Bucket{BelowNS: max(1, int64(math.Ceil(below*1e9))), Count: int64(n)}
		if last := len(out.Sched) - 1; last >= 0 && out.Sched[last].BelowNS >= bucket.BelowNS {
			out.Sched[last].Count += bucket.Count
			continue
		}
		out.Sched = append(out.Sched, bucket)
	}
	out.Figure()
	return out
}

func readSched() *metrics.Float64Histogram {
	sample := []metrics.Sample{{Name: schedLatencies}}
	metrics.Read(sample)
	if sample[0].Value.Kind() != metrics.KindFloat64Histogram {
		return &metrics.Float64Histogram{} // a runtime that has it no more
	}
	return sample[0].Value.Float64Histogram()
}

func effortSoFar() verify.Effort {
	var gc debug.GCStats
	debug.ReadGCStats(&gc)
	return verify.Effort{CPUNS: ownCPUTime(), GCCycles: gc.NumGC, GCPauseNS: int64(gc.PauseTotal)}
}
