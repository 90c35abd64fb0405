package verify

import (
	"maps"
	"slices"
	"testing"
)

// ofAnOpenLoop are the fields of an open loop's evidence that can be changed
// unnoticed, beside those that can be in any.
var ofAnOpenLoop = map[string]string{
	"plan.gomaxprocs":            "held against the suffix of the printed name; with a second repetition also against its number",
	"plan.max_failed":            "a bound that they keep; whether there is one shows on the line",
	"plan.warmups":               "of an invalid configuration, where requests may be missing",
	"plan.load.duration_ns":      "ends between the last request and the next one of the process",
	"plan.load.settle_ns":        "ends between two requests",
	"plan.load.max_lag_ns":       "a bound that they keep",
	"plan.load.max_inflight":     "of an invalid configuration in which none was let go after a wait",
	"plan.load.slo":              "in any order; a bound that those keep which keep the others",
	"plan.load.slo[].most_ns":    "a bound between two of its values",
	"failed served.prompt_ids[]": "of a request that no client saw answered",
}

func TestEveryFieldOfAnOpenLoopBears(t *testing.T) {
	used := everyFieldBears(t, linesOf(goodOpen()), ofAnOpenLoop)
	for _, path := range slices.Sorted(maps.Keys(ofAnOpenLoop)) {
		if !used[path] && stride == 1 {
			t.Errorf("%s is called informational, but every change of it was noticed", path)
		}
	}
}
