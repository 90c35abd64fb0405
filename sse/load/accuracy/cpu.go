package main

import "time"

// cpuSeries is the CPU time of a process and all below it over time.
type cpuSeries struct {
	at   []int64 // CLOCK_MONOTONIC, ns
	used []int64 // ns

	stop, done chan struct{}
}

// watchCPU samples until end is called. A sample is one system call for each
// process.
func watchCPU(pid int) *cpuSeries {
	w := &cpuSeries{stop: make(chan struct{}), done: make(chan struct{})}
	go func() {
		defer close(w.done)
		tick := time.NewTicker(10 * time.Millisecond)
		defer tick.Stop()
		pids := []int{pid}
		last := map[int]int64{} // of those that have ended, too
		for i := 0; ; i++ {
			if i%25 == 0 {
				pids = descendants(pid)
			}
			at := monotonic()
			for _, p := range pids {
				if used, ok := processCPU(p); ok {
					last[p] = used
				}
			}
			sum := int64(0)
			for _, used := range last {
				sum += used
			}
			w.at, w.used = append(w.at, at), append(w.used, sum)
			select {
			case <-tick.C:
			case <-w.stop:
				return
			}
		}
	}()
	return w
}

func (w *cpuSeries) end() *cpuSeries {
	close(w.stop)
	<-w.done
	return w
}

// between returns the ns used from one moment to another, interpolated.
func (w *cpuSeries) between(from, to int64) float64 { return w.until(to) - w.until(from) }

func (w *cpuSeries) until(ns int64) float64 {
	for i := range w.at {
		if w.at[i] < ns {
			continue
		}
		if i == 0 {
			return float64(w.used[0])
		}
		part := float64(ns-w.at[i-1]) / float64(w.at[i]-w.at[i-1])
		return float64(w.used[i-1]) + part*float64(w.used[i]-w.used[i-1])
	}
	if len(w.used) == 0 {
		return 0
	}
	return float64(w.used[len(w.used)-1])
}
