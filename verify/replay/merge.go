package main

import (
	"fmt"
	"io"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"servebench/verify"
)

// replayAll judges the files of several generators together.
func replayAll(paths []string, stdout, stderr io.Writer) int {
	var parts []verify.Part
	for _, path := range paths {
		report, err := replay(path, "")
		if err != nil {
			fmt.Fprintf(stderr, "Error: %v\n", err)
			return exitUsage
		}
		parts = append(parts, verify.Part{Name: path, Report: report})
	}
	m := verify.Merge(parts...)
	if err := showMerged(stdout, parts, m); err != nil {
		fmt.Fprintf(stderr, "Error: %v\n", err)
		return exitUsage
	}
	return exitCode(m.Verdict)
}

// showMerged writes for people what several generators come to.
func showMerged(w io.Writer, parts []verify.Part, m *verify.Merged) error {
	var b strings.Builder
	for _, part := range parts {
		fmt.Fprintf(&b, "%s\nsha256 %s\n", clean(part.Name), part.Report.SHA256)
	}
	fmt.Fprintln(&b)
	if len(m.Results) > 0 {
		fmt.Fprintf(&b, "Of itself %s says:\n\n", clean(parts[0].Name))
		showSetting(&b, parts[0].Report)
	}
	for i := range m.Results {
		showGenerators(&b, i, &m.Results[i])
	}
	for _, part := range parts {
		if h := part.Report.Header; h != nil {
			for _, warning := range h.Warnings {
				fmt.Fprintf(&b, "Warning: %s: %s\n", clean(part.Name), clean(warning))
			}
		}
	}
	for _, warning := range m.Warnings {
		fmt.Fprintf(&b, "Warning: %s\n", clean(warning))
	}
	for i := range m.Results {
		r := &m.Results[i]
		for _, reason := range r.Reasons {
			fmt.Fprintf(&b, "INVALID: configuration %d, %s, generator %s\n", r.Plan.Config, clean(r.Plan.Name), clean(reason))
		}
	}
	for _, problem := range m.Problems {
		fmt.Fprintf(&b, "PROBLEM: %s\n", clean(problem.Error()))
	}
	counts := fmt.Sprintf("%s, %s, %d valid", plural(len(parts), "generator"), plural(len(m.Results), "configuration"), m.Valid())
	showVerdict(&b, m.Verdict, "one load, and every number follows from what was recorded", len(m.Problems), m.Missing, counts)
	_, err := io.WriteString(w, b.String())
	return err
}

// generatorColumns are in the order of a request's way; latencies are from due.
var generatorColumns = []column{
	{verify.UnitOffered, "offered/s", digits(3, ""), always},
	{verify.UnitAchieved, "achieved/s", digits(3, ""), always},
	{verify.UnitLag99, "lag p99", digits(3, " ms"), always},
	{verify.UnitTTFT50, "TTFT p50", digits(3, " s"), always},
	{verify.UnitTTFT95, "TTFT p95", digits(3, " s"), always},
	{verify.UnitTTFTSent95, "sent p95", digits(3, " s"), always},
	{verify.UnitE2E95, "E2E p95", digits(3, " s"), always},
	{verify.UnitThroughput, "tok/s", digits(2, ""), always},
	{verify.UnitGoodput, "good/s", digits(3, ""), always},
	{verify.UnitSLOShare, "SLO", func(v float64) string { return strconv.FormatFloat(v*100, 'f', 1, 64) + " %" }, always},
}

// showGenerators writes a table of one configuration: a row for each generator,
// and one for all.
func showGenerators(b *strings.Builder, i int, r *verify.MergedResult) {
	fmt.Fprintf(b, "%d  %s\n", i+1, clean(strings.TrimPrefix(r.Plan.Name, "Benchmark")))
	fmt.Fprintf(b, "all at work for %v of %v, by their wall clocks\n", time.Duration(r.OverlapNS).Round(time.Millisecond), time.Duration(r.LongestNS).Round(time.Millisecond))
	t := tabwriter.NewWriter(b, 0, 0, 2, ' ', tabwriter.AlignRight)
	cells := []string{"share", "seed", "begins"}
	for _, c := range generatorColumns {
		cells = append(cells, c.title)
	}
	fmt.Fprintln(t, strings.Join(append(cells, "in flight", "requests", "failed", ""), "\t")+"\t")
	row := func(first []string, metrics []verify.Metric, last ...string) {
		first = append(first, metricCells(generatorColumns, metrics)...)
		fmt.Fprintln(t, strings.Join(append(first, last...), "\t")+"\t")
	}
	verdict := func(valid bool) string {
		if valid {
			return "valid"
		}
		return "INVALID"
	}
	for _, g := range r.Generators {
		c := g.Configuration
		offset := strconv.FormatFloat(float64(g.OffsetNS)/1e9, 'f', 3, 64) + " s"
		if g.OffsetNS >= 0 {
			offset = "+" + offset
		}
		row([]string{clean(g.Share), strconv.FormatInt(g.Seed, 10), offset}, c.Metrics,
			strconv.Itoa(c.Open.MostInflight), strconv.Itoa(c.Measured), strconv.Itoa(c.Failed), verdict(c.Valid))
	}
	row([]string{"all", "", ""}, r.Metrics, none, strconv.Itoa(r.Measured), strconv.Itoa(r.Failed), verdict(len(r.Reasons) == 0))
	t.Flush()
	fmt.Fprintln(b)
}
