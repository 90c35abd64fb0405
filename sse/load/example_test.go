package load_test

import (
	"fmt"
	"testing"

	"servebench/sse/load"
)

// A benchmark of a server of one's own, in a module of one's own:
//
//	go test -bench MyServer -benchtime 1x
//
// Each line has the metrics of one configuration, and runs/ what they were
// computed from.
func Example() {
	_ = func(b *testing.B) { // func BenchmarkMyServer(b *testing.B)
		run, err := load.NewRun(load.Options{Dir: "runs", Target: &load.Target{URL: "http://127.0.0.1:8000"}})
		if err != nil {
			b.Fatal(err)
		}
		defer run.Finish(b)
		for _, conc := range []int{1, 4} {
			b.Run(fmt.Sprintf("input=64/conc=%d", conc), func(b *testing.B) { run.Benchmark(b, load.Cell{Conc: conc}) })
		}
	}
}
