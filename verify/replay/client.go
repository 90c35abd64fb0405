package main

import (
	"fmt"
	"strconv"
	"strings"
	"text/tabwriter"

	"servebench/verify"
)

// showClients says what the measuring process itself could do.
func showClients(row func(key, format string, args ...any), clients []verify.Client) {
	for i := range clients {
		c := &clients[i]
		row("Client", "GOMAXPROCS %d: %.0f events/s of a null server; at %.0f, stamps late by %s p50 and %s p99, starts by %s and %s, %.1f µs of CPU an event",
			c.GOMAXPROCS, c.Fast.EventsPerS, c.Paced.EventsPerS, duration(c.Paced.StampP50NS), duration(c.Paced.StampP99NS),
			duration(c.Paced.LagP50NS), duration(c.Paced.LagP99NS), c.Paced.CPUPerEventNS/1e3)
	}
}

// inflightSlots is into how many parts the time of a configuration is cut.
const inflightSlots = 20

// showInflight prints how many requests were under way over time, mean and
// most in each part of a configuration. A file with problems may have any.
func showInflight(b *strings.Builder, r *verify.Report) {
	for _, c := range r.Results {
		fmt.Fprintf(b, "In flight, configuration %d, %s, repetition %d:\n", c.Plan.Config, clean(c.Plan.Name), c.Plan.Repetition)
		t := tabwriter.NewWriter(b, 0, 0, 2, ' ', tabwriter.AlignRight)
		fmt.Fprintln(t, "from\tto\tmean\tmost\t")
		for _, slot := range inflightParts(c.Inflight, inflightSlots) {
			fmt.Fprintf(t, "%s\t%s\t%s\t%d\t %s\n", duration(slot.from), duration(slot.to), strconv.FormatFloat(slot.mean, 'f', 2, 64), slot.most, strings.Repeat("#", max(0, min(int(slot.mean+0.5), 60))))
		}
		t.Flush()
		fmt.Fprintln(b)
	}
}

type inflightPart struct {
	from, to int64 // ns since the first request was due
	mean     float64
	most     int
}

// inflightParts cuts the time from the first request to the last end into so
// many parts of equal length.
func inflightParts(list []verify.Inflight, parts int) (out []inflightPart) {
	if len(list) == 0 {
		return nil
	}
	end := list[len(list)-1].NS
	i, now := 0, 0
	for part := range int64(parts) {
		p := inflightPart{from: end * part / int64(parts), to: end * (part + 1) / int64(parts), most: now}
		if p.to == p.from {
			continue
		}
		area, at := 0.0, p.from
		for ; i < len(list) && list[i].NS < p.to; i++ {
			area += float64(now) * float64(list[i].NS-at)
			at, now = list[i].NS, list[i].Requests
			p.most = max(p.most, now)
		}
		area += float64(now) * float64(p.to-at)
		p.mean = area / float64(p.to-p.from)
		out = append(out, p)
	}
	return out
}
