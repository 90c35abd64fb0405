package load

import (
	"fmt"
	"slices"

	"servebench/verify"
)

// A trace says when requests came and how long they were, but not what they
// said. So a prompt of each of its lengths is made. Requests of one length have
// the same one, apart from a target's salts: then the verifier sees that they
// got the same answer.

// TraceLoad returns the load of a Cell that replays t with its times
// multiplied by scale, a decimal number such as 0.5. Options.Trace has to be
// t.Requests.
func TraceLoad(t *verify.Trace, scale string) *verify.Load {
	file := t.File
	return &verify.Load{Arrival: verify.ArrivalTrace, Trace: t.Requests, TraceFile: &file, TraceScale: scale}
}

// tracePrompts makes a prompt of every length, and one more of the first
// request's for the warmup.
func tracePrompts(trace []verify.Due, make func(n, which int) verify.Prompt) (prompts []verify.Prompt) {
	var lengths []int
	for _, due := range trace {
		lengths = append(lengths, due.Input)
	}
	slices.Sort(lengths)
	for i, n := range slices.Compact(lengths) {
		p := make(n, i)
		p.ID, p.Input = traceID(n), n
		prompts = append(prompts, p)
	}
	warmup := make(trace[0].Input, len(prompts))
	warmup.ID, warmup.Input, warmup.Warmup = traceWarmup, trace[0].Input, true
	return append(prompts, warmup)
}

func traceID(n int) string { return fmt.Sprintf("%d-trace", n) }

const traceWarmup = "trace-warmup"

// leastInput returns the length of a trace's shortest prompt.
func leastInput(trace []verify.Due) int {
	return slices.MinFunc(trace, func(a, b verify.Due) int { return a.Input - b.Input }).Input
}

// traced gives a cell the prompts of its trace. The warmup is as long as the
// first request.
func (r *Run) traced(cell *Cell) error {
	trace := cell.Open.Trace
	cell.Prompts, cell.Warmups = make([]string, len(trace)), []string{traceWarmup}
	cell.OutputTokens = trace[0].Output
	for i, due := range trace {
		cell.Prompts[i] = traceID(due.Input)
		if r.prompts[cell.Prompts[i]] == nil {
			return fmt.Errorf("load: no prompt of the %d tokens of the trace's request %d: the run was opened for another trace (Options.Trace)", due.Input, i)
		}
	}
	return nil
}
