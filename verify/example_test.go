package verify_test

import (
	"fmt"
	"os"
	"strings"

	"servebench/verify"
)

// Reads a run, and what its benchmark printed.
func ExampleReplay() {
	file, err := os.Open("testdata/servebench-1.jsonl")
	if err != nil {
		panic(err)
	}
	defer file.Close()
	report, err := verify.Replay("run.jsonl", file)
	if err != nil {
		panic(err)
	}
	fmt.Println(report.Verdict, report.Valid(), "of", len(report.Results), "valid")
	for _, m := range report.Results[2].Configuration.Metrics {
		fmt.Println(m.Unit, m.Value)
	}

	printed, err := verify.ParsePrinted("old.txt", strings.NewReader("BenchmarkServe/threads=1/input=4/conc=1-2 \t3\t 99.00 tok/s\n"))
	if err != nil {
		panic(err)
	}
	report.CheckPrinted(printed)
	fmt.Println(report.Verdict)
	// Output:
	// consistent 3 of 4 valid
	// p95-s 0.0406686284
	// rss-peak-B 5.500928e+06
	// tok/s 240.8105993010039
	// tpot-p50-ms 2.05472675
	// ttft-p50-s 0.032297139
	// usd/Mtok 0.28837785648148145
	// inconsistent
}

// Computes what a configuration's closing record says, as the benchmark does
// before it prints and the replay before it compares.
func ExampleSummary() {
	request := &verify.Request{
		Phase: verify.PhaseMeasured, ScheduledNS: 100, StartNS: 1_000_000_000,
		EventNS: []int64{1_100_000_000, 1_120_000_000, 1_140_000_000, 1_141_000_000}, EventKinds: "cccd", EventIDs: []int{1, 1, 1, 0},
		TokenIDs: []int32{7, 8, 9}, EndNS: 1_150_000_000,
	}
	var sum verify.Summary
	sum.Add(request)
	for _, m := range sum.Metrics(0, 0) {
		fmt.Println(m.Unit, m.Value)
	}
	// Output:
	// p95-s 0.14
	// tok/s 20
	// tpot-p50-ms 20
	// ttft-p50-s 0.1
}

// Judges the files of four generators of one load together.
func ExampleMerge() {
	var parts []verify.Part
	for _, name := range []string{"1.jsonl", "2.jsonl", "3.jsonl", "4.jsonl"} {
		file, err := os.Open("testdata/generators/" + name)
		if err != nil {
			panic(err)
		}
		report, err := verify.Replay(name, file)
		file.Close()
		if err != nil {
			panic(err)
		}
		parts = append(parts, verify.Part{Name: name, Report: report})
	}
	merged := verify.Merge(parts...)
	fmt.Println(merged.Verdict, merged.Results[0].Measured, "requests of", len(merged.Results[0].Generators), "generators")
	fmt.Println(verify.Merge(parts[:3]...).Err())
	// Output:
	// consistent 40 requests of 4 generators
	// verify: configuration 1: share 4/4 is missing: all generators have to be named
}

func ExampleReadTrace() {
	const data = `TIMESTAMP,ContextTokens,GeneratedTokens
2023-11-16 18:15:46.6805900,374,44
2023-11-16 18:15:50.9951690,396,109
`
	trace, err := verify.ReadTrace("conv.csv", []byte(data))
	if err != nil {
		panic(err)
	}
	fmt.Println(trace.Requests)
	fmt.Println(trace.Within(500))
	// Output:
	// [{0 374 44} {4314579000 396 109}]
	// verify: conv.csv:3: ContextTokens 396 and GeneratedTokens 109 are more than the model's context of 500 tokens: take such lines out, or measure a model with a longer context
}

func ExamplePercentile() {
	hundredths, _ := verify.Percentile([]int64{10, 20, 30}, 95)
	fmt.Println(float64(hundredths) / 100)
	// Output: 29
}
