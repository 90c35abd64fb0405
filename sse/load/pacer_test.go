package load

import (
	"context"
	"fmt"
	"io"
	"net"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	"servebench/sse"
	"servebench/verify"
)

// spinPacer is what must not be: exact, at the price of a core.
type spinPacer struct{}

func (spinPacer) until(_ context.Context, t time.Time) {
	for time.Until(t) > 0 {
	}
}

func (spinPacer) close() {}

// sleepPacer is what comes to mind first.
type sleepPacer struct{}

func (sleepPacer) until(_ context.Context, t time.Time) { time.Sleep(time.Until(t)) }

func (sleepPacer) close() {}

// A pacer returns when it should, at once if that is past or the context is
// done, and as soon as the context is.
func TestPacers(t *testing.T) {
	for name, p := range map[string]pacer{"the system's": newPacer(), "timer": newTimerPacer()} {
		t.Run(name, func(t *testing.T) {
			defer p.close()
			for _, wait := range []time.Duration{-time.Hour, 0, 1, 300 * time.Microsecond, 20 * time.Millisecond} {
				at := time.Now().Add(wait)
				p.until(t.Context(), at)
				if early := time.Until(at); early > 0 {
					t.Errorf("%v: %v too early", wait, early)
				}
			}
			over, cancel := context.WithCancel(t.Context())
			time.AfterFunc(10*time.Millisecond, cancel)
			begin := time.Now()
			p.until(over, begin.Add(time.Hour))
			p.until(over, begin.Add(time.Hour))
			if over.Err() == nil || time.Since(begin) > time.Minute {
				t.Errorf("it took %v, context %v", time.Since(begin), over.Err())
			}
			// The next run is none the worse for that.
			at := time.Now().Add(5 * time.Millisecond)
			if p.until(t.Context(), at); time.Until(at) > 0 {
				t.Error("too early after a run that was called off")
			}
		})
	}
}

// instantServer answers each request at once with one token, over loopback.
func instantServer(b *testing.B) (url string) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { listener.Close() })
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go func() {
				defer conn.Close()
				conn.Read(make([]byte, 4096)) // a small request comes in one piece
				io.WriteString(conn, streamHead+oneToken)
			}()
		}
	}()
	return "http://" + listener.Addr().String()
}

// BenchmarkPacing measures how late an open loop starts its requests, on a
// server in the same process that answers at once; and what CPU time a request
// takes, where spinning shows. See OPENLOOP.md.
func BenchmarkPacing(b *testing.B) {
	for _, rate := range []int{100, 1000} {
		for _, kind := range []struct {
			name string
			make func() pacer
		}{
			{"system", newPacer},
			{"timer", func() pacer { return newTimerPacer() }},
			{"sleep", func() pacer { return sleepPacer{} }},
			{"spin", func() pacer { return spinPacer{} }},
		} {
			b.Run(fmt.Sprintf("rate=%d/pacer=%s", rate, kind.name), func(b *testing.B) {
				var mu sync.Mutex
				var lags []int64
				plan := &verify.Plan{Config: 1, OutputTokens: 1, Load: verify.Load{
					Kind: verify.LoadOpen, Arrival: verify.ArrivalPoisson, Rate: fmt.Sprint(rate), Seed: 1, Requests: 2 * rate,
				}}
				o := &openLoop{pacer: kind.make(), sender: &sender{
					client: &sse.Client{BaseURL: instantServer(b), Clock: sse.NewClock()}, plan: plan,
					done: func(r *verify.Request) {
						mu.Lock()
						defer mu.Unlock()
						if r.Failure != nil {
							b.Error(r.Failure)
						}
						lags = append(lags, r.StartNS-r.ScheduledNS)
					},
				}}
				defer o.pacer.close()
				used := usedCPU()
				begin := time.Now()
				for pass := range b.N {
					due, err := plan.Load.PassSchedule(pass)
					if err != nil {
						b.Fatal(err)
					}
					o.run(b.Context(), pass, due, slices.Repeat([]outgoing{{prompt: &verify.Prompt{ID: "p", Text: "p", Input: 1}}}, len(due)))
				}
				busy := float64(usedCPU()-used) / float64(time.Since(begin))
				slices.Sort(lags)
				for _, p := range []struct {
					percent int
					unit    string
				}{{50, "lag-p50-µs"}, {99, "lag-p99-µs"}, {100, "lag-max-µs"}} {
					h, _ := verify.Percentile(lags, p.percent)
					b.ReportMetric(float64(h)/1e5, p.unit)
				}
				b.ReportMetric(busy, "cpus")
				b.ReportMetric(0, "ns/op")
			})
		}
	}
}

// usedCPU is what this process has used so far.
func usedCPU() time.Duration {
	var u syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &u) != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
