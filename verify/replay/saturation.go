package main

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"

	"servebench/verify"
)

// searches returns the probes of each search, in the order of the file.
func searches(r *verify.Report) (out [][]verify.Result) {
	open := false
	for _, c := range r.Results {
		if open = open && c.Plan.Probe > 1; !open && c.Plan.Probe > 0 {
			out, open = append(out, nil), true
		}
		if open {
			out[len(out)-1] = append(out[len(out)-1], c)
		}
	}
	return out
}

// closing returns the record that closes the search of a probe, nil if the
// file ends before it.
func closing(r *verify.Report, probe *verify.Result) *verify.Saturation {
	for i := range r.Saturations {
		if slices.Contains(r.Saturations[i].Probes, probe.Plan.Config) {
			return &r.Saturations[i]
		}
	}
	return nil
}

// showSearches prints a table of the probes of each search.
func showSearches(b *strings.Builder, r *verify.Report) {
	for _, probes := range searches(r) {
		s := closing(r, &probes[0])
		var slo []string
		for _, bound := range probes[len(probes)-1].Plan.Load.SLO {
			slo = append(slo, fmt.Sprintf("%s within %s", bound.Metric, duration(bound.MostNS)))
		}
		switch {
		case s == nil:
			name, _, _ := cutLast(probes[0].Plan.Name)
			fmt.Fprintf(b, "Search %s: unfinished\n", clean(name))
		case s.Valid:
			fmt.Fprintf(b, "Search %s, repetition %d: %s requests a second held and %s did not: at least %d %% of them with %s\n",
				clean(s.Name), s.Repetition, clean(s.Low), clean(s.High), s.Share, clean(strings.Join(slo, ", ")))
		default:
			fmt.Fprintf(b, "Search %s, repetition %d: INVALID\n", clean(s.Name), s.Repetition)
		}
		t := tabwriter.NewWriter(b, 0, 0, 2, ' ', tabwriter.AlignRight)
		fmt.Fprintln(t, "#\trate\tdue\tgood\tshare\tgoodput\tTTFT p50\tTTFT p95\tE2E p95\tin flight\tlag p99\t\t")
		for i := range probes {
			fmt.Fprintln(t, strings.Join(probeRow(&probes[i], s), "\t")+"\t")
		}
		t.Flush()
		fmt.Fprintln(b)
	}
}

// cutLast cuts a name around its last slash.
func cutLast(name string) (before, after string, found bool) {
	i := strings.LastIndexByte(name, '/')
	if i < 0 {
		return name, "", false
	}
	return name[:i], name[i+1:], true
}

var probeColumns = []column{
	{unit: verify.UnitGoodput, show: digits(3, "")}, {unit: verify.UnitTTFT50, show: digits(3, " s")}, {unit: verify.UnitTTFT95, show: digits(3, " s")},
	{unit: verify.UnitE2E95, show: digits(3, " s")},
}

func probeRow(probe *verify.Result, s *verify.Saturation) []string {
	plan, c := &probe.Plan, probe.Configuration
	rate := plan.Load.Rate
	if plan.Load.Kind == verify.LoadClosed {
		_, rate, _ = cutLast(plan.Name)
	}
	row := []string{strconv.Itoa(plan.Config), clean(rate)}
	if c == nil || c.Open == nil {
		verdict := "unfinished"
		if c != nil {
			verdict = map[bool]string{true: "estimate", false: "INVALID"}[c.Valid]
		}
		for range 9 {
			row = append(row, none)
		}
		return append(row, verdict)
	}
	o := c.Open
	row = append(row, strconv.Itoa(o.Due), strconv.Itoa(o.Good))
	if o.Due > 0 {
		row = append(row, digits(1, " %")(float64(o.Good*100)/float64(o.Due)))
	} else {
		row = append(row, none)
	}
	row = append(row, metricCells(probeColumns, c.Metrics)...)
	verdict := "INVALID"
	switch {
	case !c.Valid:
	case s == nil:
		verdict = "valid"
	case o.Holds(s.Share):
		verdict = "held"
	default:
		verdict = "missed"
	}
	return append(row, strconv.Itoa(o.MostInflight), duration(o.LagP99NS), verdict)
}
