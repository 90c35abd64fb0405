package load

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"servebench/sse"
	"servebench/verify"
)

// sampleEvery is the distance of two samples of a server's resident set.
const sampleEvery = 50 * time.Millisecond

// memory watches the resident set of one process during a configuration.
// Where the system doesn't tell it (only Linux does here), there is no sample
// and the peak is unmeasured.
type memory struct {
	pid    int
	clock  *sse.Clock
	record func(*verify.Memory)
	stop   chan struct{}
	done   chan struct{}
	peak   int64 // largest sample
}

// watchMemory makes the kernel forget the process's earlier peak and begins
// to sample. record is called from another goroutine, now and then with what
// has come together.
func watchMemory(pid, config int, clock *sse.Clock, record func(*verify.Memory)) *memory {
	m := &memory{pid: pid, clock: clock, record: record, stop: make(chan struct{}), done: make(chan struct{})}
	// 5 resets VmHWM, see proc_pid_clear_refs(5); without the right to, the
	// peak is that of the process's whole life, which is no smaller.
	os.WriteFile(fmt.Sprintf("/proc/%d/clear_refs", pid), []byte("5\n"), 0)
	go m.sample(config)
	return m
}

func (m *memory) sample(config int) {
	defer close(m.done)
	ticker := time.NewTicker(sampleEvery)
	defer ticker.Stop()
	batch := &verify.Memory{Kind: verify.KindMemory, Config: config}
	flush := func() {
		if len(batch.TimeNS) > 0 {
			m.record(batch)
			batch = &verify.Memory{Kind: verify.KindMemory, Config: config}
		}
	}
	defer flush()
	take := func() bool {
		size, ok := residentBytes(m.pid)
		if ok {
			batch.TimeNS = append(batch.TimeNS, m.clock.Now())
			batch.RSSBytes = append(batch.RSSBytes, size)
			m.peak = max(m.peak, size)
		}
		return ok
	}
	for take() {
		if len(batch.TimeNS) == 100 {
			flush()
		}
		select {
		case <-m.stop:
			take()
			return
		case <-ticker.C:
		}
	}
}

// end stops sampling and returns the peak since watchMemory.
func (m *memory) end() (bytes int64, source string) {
	close(m.stop)
	<-m.done
	peak, ok := peakBytes(m.pid)
	if !ok || m.peak == 0 { // a peak without a sample is held against nothing
		return 0, verify.Unmeasured
	}
	// The kernel sums its counters without a lock, so a sample may be a few
	// pages above the mark that it keeps.
	return max(peak, m.peak), "VmHWM"
}

func residentBytes(pid int) (int64, bool) {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", pid))
	if err != nil {
		return 0, false
	}
	fields := strings.Fields(string(data))
	if len(fields) < 2 {
		return 0, false
	}
	pages, err := strconv.ParseInt(fields[1], 10, 64)
	return pages * int64(os.Getpagesize()), err == nil && pages > 0
}

// peakBytes reads VmHWM.
func peakBytes(pid int) (int64, bool) {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, false
	}
	for line := range bytes.Lines(data) {
		rest, found := bytes.CutPrefix(line, []byte("VmHWM:"))
		if !found {
			continue
		}
		fields := strings.Fields(string(rest))
		if len(fields) != 2 || fields[1] != "kB" {
			return 0, false
		}
		kib, err := strconv.ParseInt(fields[0], 10, 64)
		return kib * 1024, err == nil && kib > 0
	}
	return 0, false
}
