package smol

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"
)

// Benchmarks of the engine alone, without a server. For figures beside other
// runtimes, which need interleaved runs, see bench/compare.py.

// benchPrompt is the first measured prompt of that many ids.
func benchPrompt(b *testing.B, input int) []int32 {
	for _, p := range readCorpus(b) {
		if p.Input == input && !p.Warmup {
			return p.IDs
		}
	}
	b.Fatalf("the corpus has no prompt of %d ids", input)
	return nil
}

// eachCell runs f for 1 and 2 threads and prompts of 64 and 256 ids, with one
// engine for each number of threads.
func eachCell(b *testing.B, f func(b *testing.B, e *Engine, prompt []int32)) {
	for _, threads := range []int{1, 2} {
		if cpus := allowedCPUs(); threads > cpus {
			b.Logf("without threads=%d: this process may use %d CPUs", threads, cpus)
			continue
		}
		b.Run(fmt.Sprintf("threads=%d", threads), func(b *testing.B) {
			e := load(b, realDir, Options{IntraThreads: threads})
			for _, input := range []int{64, 256} {
				prompt := benchPrompt(b, input)
				b.Run(fmt.Sprintf("input=%d", input), func(b *testing.B) { f(b, e, prompt) })
			}
		})
	}
}

func BenchmarkPrefill(b *testing.B) {
	eachCell(b, func(b *testing.B, e *Engine, prompt []int32) {
		if _, err := e.Prefill(prompt); err != nil {
			b.Fatal(err)
		}
		for b.Loop() {
			if _, err := e.Prefill(prompt); err != nil {
				b.Fatal(err)
			}
		}
		b.ReportMetric(b.Elapsed().Seconds()*1e3/float64(b.N), "ms")
		b.ReportMetric(0, "ns/op")
	})
}

// One iteration is an answer of 24 tokens; only the steps count.
func BenchmarkDecode(b *testing.B) {
	const tokens = 24
	eachCell(b, func(b *testing.B, e *Engine, prompt []int32) {
		var steps time.Duration
		for b.Loop() {
			id, err := e.Prefill(prompt)
			if err != nil {
				b.Fatal(err)
			}
			begin := time.Now()
			for range tokens - 1 {
				if id, err = e.Step(id); err != nil {
					b.Fatal(err)
				}
			}
			steps += time.Since(begin)
		}
		b.ReportMetric(steps.Seconds()*1e3/float64(b.N*(tokens-1)), "ms/token")
		b.ReportMetric(0, "ns/op")
	})
}

// One iteration is a whole process: it loads the model, hashes included, and
// answers a prompt of 256 ids.
func BenchmarkProcess(b *testing.B) {
	for _, threads := range []int{1, 2} {
		if threads > allowedCPUs() {
			continue
		}
		b.Run(fmt.Sprintf("threads=%d", threads), func(b *testing.B) {
			var load, peak float64
			for b.Loop() {
				out := child(b, "answer", "SMOL_TEST_THREADS="+strconv.Itoa(threads), "SMOL_TEST_MODEL="+realDir)
				var ns, bytes float64
				if _, err := fmt.Sscan(out, &ns, &bytes); err != nil {
					b.Fatalf("child printed %q: %v", out, err)
				}
				load += ns / 1e9
				peak = max(peak, bytes)
			}
			b.ReportMetric(load/float64(b.N), "load-s")
			b.ReportMetric(peak, "rss-peak-B")
			b.ReportMetric(0, "ns/op")
		})
	}
}

func childAnswer() error {
	threads, err := strconv.Atoi(os.Getenv("SMOL_TEST_THREADS"))
	if err != nil {
		return err
	}
	begin := time.Now()
	e, err := childLoad(Options{IntraThreads: threads})
	if err != nil {
		return err
	}
	defer e.Close()
	took := time.Since(begin)
	prompt := make([]int32, 256)
	id, err := e.Prefill(prompt)
	for range 23 {
		if err != nil {
			return err
		}
		id, err = e.Step(id)
	}
	if err != nil {
		return err
	}
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return err
	}
	_, rest, _ := strings.Cut(string(status), "VmHWM:")
	kb, err := strconv.ParseInt(strings.Fields(rest)[0], 10, 64)
	if err != nil {
		return err
	}
	fmt.Println(took.Nanoseconds(), kb<<10)
	return nil
}
