package main

import (
	"fmt"
	"math"
	"slices"
	"strings"
)

// reference is the client that the own ones are held against.
const reference = "sglang-bench"

// quantity is a figure of a measurement that is better the nearer it is to 0,
// or, with more set, the larger it is.
type quantity struct {
	name  string
	floor float64 // what can't be told from 0, in the quantity's unit
	more  bool
	of    func(*measurement) (float64, bool)
}

// errorOf returns how far a client's percentile is from the log's.
func errorOf(pick func(*figures) float64) func(*measurement) (float64, bool) {
	return func(m *measurement) (float64, bool) {
		if m.Reported == nil || m.Logged == nil {
			return 0, false
		}
		return pick(m.Reported) - pick(m.Logged), true
	}
}

// The floors are what the log's own stamps leave open: a client on the other
// core may have read a token before the write that carried it has returned.
var (
	quantities = []quantity{
		{"TTFT error p50, ms", 0.02, false, errorOf(func(f *figures) float64 { return f.TTFT50 })},
		{"TTFT error p99, ms", 0.02, false, errorOf(func(f *figures) float64 { return f.TTFT99 })},
		{"gap error p50, ms", 0.02, false, errorOf(func(f *figures) float64 { return f.Gap50 })},
		{"gap error p99, ms", 0.02, false, errorOf(func(f *figures) float64 { return f.Gap99 })},
		{"each gap's error p50, ms", 0.02, false, func(m *measurement) (float64, bool) {
			if m.Matched == nil {
				return 0, false
			}
			return m.Matched.Gap50, true
		}},
		{"each gap's error p99, ms", 0.02, false, func(m *measurement) (float64, bool) {
			if m.Matched == nil {
				return 0, false
			}
			return m.Matched.Gap99, true
		}},
		{"CPU, µs per token", 0, false, func(m *measurement) (float64, bool) { return m.CPUMicros, true }},
	}
	lagP50 = quantity{"lag p50, ms", 0, false, func(m *measurement) (float64, bool) {
		if m.Lag == nil {
			return 0, false
		}
		return m.Lag.P50, true
	}}
	lagP99 = quantity{"lag p99, ms", 0, false, func(m *measurement) (float64, bool) {
		if m.Lag == nil {
			return 0, false
		}
		return m.Lag.P99, true
	}}
	speed = quantity{"events/s", 0, true, func(m *measurement) (float64, bool) { return m.EventsPerSecond, true }}
)

// median returns the middle of what the rounds of one client and cell gave.
func (r *recordings) median(client, cell string, q *quantity) (float64, bool) {
	var xs []float64
	for i := range r.measurements {
		if m := &r.measurements[i]; m.Client == client && m.Cell == cell {
			if x, ok := q.of(m); ok {
				xs = append(xs, x)
			}
		}
	}
	if len(xs) == 0 {
		return 0, false
	}
	slices.Sort(xs)
	return (xs[(len(xs)-1)/2] + xs[len(xs)/2]) / 2, true
}

// ratio returns the median over the rounds of one client's figure to the
// reference's of the same round, each without its sign and not below the
// floor. Of a quantity that is better the larger it is, the inverse.
func (r *recordings) ratio(client, cell string, q *quantity) (float64, bool) {
	var xs []float64
	for i := range r.measurements {
		m := &r.measurements[i]
		if m.Client != client || m.Cell != cell {
			continue
		}
		for j := range r.measurements {
			other := &r.measurements[j]
			if other.Client != reference || other.Cell != cell || other.Round != m.Round {
				continue
			}
			a, ok := q.of(m)
			b, too := q.of(other)
			if !ok || !too {
				continue
			}
			a, b = max(math.Abs(a), q.floor), max(math.Abs(b), q.floor)
			if q.more {
				a, b = b, a
			}
			xs = append(xs, a/b)
		}
	}
	if len(xs) == 0 {
		return 0, false
	}
	slices.Sort(xs)
	return (xs[(len(xs)-1)/2] + xs[len(xs)/2]) / 2, true
}

// any reports whether some of cells have q of a client.
func (r *recordings) any(client string, cells []string, q *quantity) bool {
	return slices.ContainsFunc(cells, func(cell string) bool {
		_, ok := r.median(client, cell, q)
		return ok
	})
}

// present returns the clients and cells of a file, in their usual order.
func (r *recordings) present() (names, cells []string) {
	for _, name := range clientNames() {
		if slices.ContainsFunc(r.measurements, func(m measurement) bool { return m.Client == name }) {
			names = append(names, name)
		}
	}
	for i := range r.measurements {
		if cell := r.measurements[i].Cell; !slices.Contains(cells, cell) {
			cells = append(cells, cell)
		}
	}
	return names, cells
}

// tables returns the figures of a file and their ratios to the reference, in
// Markdown.
func tables(r *recordings) string {
	var out strings.Builder
	names, cells := r.present()
	rounds := map[string]int{}
	for i := range r.measurements {
		m := &r.measurements[i]
		rounds[m.Client] = max(rounds[m.Client], m.Round)
	}
	paced := slices.DeleteFunc(slices.Clone(cells), func(cell string) bool { return cell == "flat" })
	fmt.Fprintf(&out, "Medians of %d rounds on %s, shared by client and server, %s, %s, %s. ", rounds[reference], r.run.Machine, r.run.Kernel, r.run.Go, r.run.Date)
	for _, name := range names {
		if n := rounds[name]; n != rounds[reference] {
			fmt.Fprintf(&out, "Of %s there is %d only. ", name, n)
		}
	}
	fmt.Fprintf(&out, "Published clients: sglang %s (sglang-bench is its compiled client, sglang-serving the one in Python), guidellm %s.\n", r.run.Versions["sglang"], r.run.Versions["guidellm"])
	row := func(first string, cells []string, text func(cell string) string) {
		out.WriteString("| " + first)
		for _, cell := range cells {
			out.WriteString(" | " + text(cell))
		}
		out.WriteString(" |\n")
	}
	head := func(first string) {
		row(first, paced, func(cell string) string { return cell })
		out.WriteString("|---" + strings.Repeat("|--:", len(paced)) + "|\n")
	}
	for i := 0; i < len(quantities); i++ {
		q := &quantities[i]
		pair := q // p50 and p99 share a table
		title := q.name
		if i+1 < len(quantities) && strings.Contains(q.name, " p50") {
			i++
			pair = &quantities[i]
			title = strings.Replace(q.name, "p50", "p50 / p99", 1)
		}
		fmt.Fprintf(&out, "\n**%s, by streams**\n\n", title)
		head("client")
		for _, name := range names {
			if !r.any(name, paced, q) {
				continue
			}
			row(name, paced, func(cell string) string {
				x, ok := r.median(name, cell, q)
				text := number(x, ok)
				if ok && pair != q {
					text += " / " + number(r.median(name, cell, pair))
				}
				return text
			})
		}
	}
	fmt.Fprintf(&out, "\n**read minus flush, p50 / p99, ms, by streams**\n\n")
	head("client")
	for _, name := range names {
		if r.any(name, paced, &lagP50) {
			row(name, paced, func(cell string) string {
				return number(r.median(name, cell, &lagP50)) + " / " + number(r.median(name, cell, &lagP99))
			})
		}
	}
	fmt.Fprintf(&out, "\n**as fast as the server can: 64 streams, %d tokens each**\n\n| client | events/s | CPU, µs per token |\n|---|--:|--:|\n", r.run.Flat)
	for _, name := range names {
		events, ok := r.median(name, "flat", &speed)
		if !ok {
			continue
		}
		cpu, _ := r.median(name, "flat", &quantities[len(quantities)-1])
		fmt.Fprintf(&out, "| %s | %.0f | %s |\n", name, events, number(cpu, true))
	}
	for _, name := range names {
		if !strings.HasPrefix(name, "own") {
			continue
		}
		fmt.Fprintf(&out, "\n**%s, as a ratio to %s; 1 or less is as good or better**\n\n", name, reference)
		row("", cells, func(cell string) string { return cell })
		out.WriteString("|---" + strings.Repeat("|--:", len(cells)) + "|\n")
		for i := range append(slices.Clone(quantities), speed) {
			q := &speed
			if i < len(quantities) {
				q = &quantities[i]
			}
			first, _, _ := strings.Cut(q.name, ",")
			row(first, cells, func(cell string) string {
				if q == &speed && cell != "flat" {
					return "" // the schedule's
				}
				if x, ok := r.ratio(name, cell, q); ok {
					return fmt.Sprintf("%.2f", x)
				}
				return ""
			})
		}
	}
	return out.String()
}

// number writes x with as many digits as mean something.
func number(x float64, ok bool) string {
	switch {
	case !ok:
		return "–"
	case math.Abs(x) >= 100:
		return fmt.Sprintf("%.0f", x)
	case math.Abs(x) >= 10:
		return fmt.Sprintf("%.1f", x)
	}
	if text := fmt.Sprintf("%.2f", x); text != "-0.00" {
		return text
	}
	return "0.00"
}
