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

func ExamplePercentile() {
	hundredths, _ := verify.Percentile([]int64{10, 20, 30}, 95)
	fmt.Println(float64(hundredths) / 100)
	// Output: 29
}
