package load

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"servebench/sse"
	"servebench/verify"
)

const streamHead = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n"

const oneToken = "data: {\"choices\":[{\"index\":0,\"text\":\"a\",\"finish_reason\":\"length\"}]}\n\ndata: [DONE]\n\n"

// scripted is a server at the other end of pipes, for fake time. answer gets
// each request when it is read, and the connection, which is closed after it.
type scripted struct {
	all    sync.WaitGroup
	mu     sync.Mutex
	now    int // requests under way
	most   int // at once
	order  []string
	answer func(conn net.Conn)
}

func (s *scripted) dial(context.Context, string, string) (net.Conn, error) {
	client, server := net.Pipe()
	s.all.Go(func() {
		defer server.Close()
		request, err := http.ReadRequest(bufio.NewReader(server))
		if err != nil {
			return
		}
		io.Copy(io.Discard, request.Body)
		s.mu.Lock()
		s.order = append(s.order, request.Header.Get("X-Request-Id"))
		s.now++
		s.most = max(s.most, s.now)
		s.mu.Unlock()
		s.answer(server)
		s.mu.Lock()
		s.now--
		s.mu.Unlock()
	})
	return client, nil
}

// takes answers with one token after d.
func takes(d time.Duration) func(net.Conn) {
	return func(conn net.Conn) {
		time.Sleep(d)
		io.WriteString(conn, streamHead+oneToken)
	}
}

// played is what a loop has left behind.
type played struct {
	requests []*verify.Request // by place
	begin    int64             // stamp of the beginning
	took     time.Duration
	sum      verify.Summary
	open     verify.Open
	metrics  map[string]float64
}

// play runs a load on a server in the bubble of the caller, one pass.
func play(t *testing.T, ctx context.Context, load verify.Load, requests int, server *scripted, idle time.Duration) *played {
	t.Helper()
	plan := &verify.Plan{Config: 1, OutputTokens: 1, Load: load, PlannedNS: 1}
	p := &played{metrics: map[string]float64{}}
	var mu sync.Mutex
	s := &sender{
		client: &sse.Client{BaseURL: "http://server", Clock: sse.NewClock(), Dial: server.dial, Idle: idle}, plan: plan,
		done: func(r *verify.Request) {
			mu.Lock()
			defer mu.Unlock()
			p.requests = append(p.requests, r)
		},
	}
	prompts := slices.Repeat([]outgoing{{prompt: &verify.Prompt{ID: "p", Text: "p", Input: 1}}}, requests)
	begin := time.Now()
	p.begin = s.client.Clock.Stamp(begin)
	if load.Kind == verify.LoadClosed {
		closedLoop{s}.run(ctx, verify.PhaseMeasured, 0, prompts)
	} else {
		due, err := load.PassSchedule(0)
		if err != nil || len(due) != requests {
			t.Fatalf("%d requests, %v, want %d", len(due), err, requests)
		}
		p.sum.Open = plan
		(&openLoop{sender: s, pacer: newTimerPacer()}).run(ctx, 0, due, prompts)
	}
	p.took = time.Since(begin)
	server.all.Wait()
	place := func(r *verify.Request) (n int) {
		fmt.Sscan(r.ID[strings.LastIndexByte(r.ID, '.')+1:], &n)
		return n
	}
	slices.SortFunc(p.requests, func(a, b *verify.Request) int { return place(a) - place(b) })
	for i, r := range p.requests {
		if want := verify.RequestID(1, r.Phase, 0, i); r.ID != want {
			t.Fatalf("request %d is %s, want %s: one is lost or there twice", i, r.ID, want)
		}
		p.sum.Add(r)
	}
	if len(p.requests) != requests {
		t.Fatalf("%d requests are recorded, want %d", len(p.requests), requests)
	}
	if p.sum.Open != nil {
		var c verify.Configuration
		p.sum.Fill(plan, &c)
		p.open = *c.Open
		if p.open.Due != p.open.Sent+p.open.Unsent {
			t.Errorf("%d due, but %d sent and %d not", p.open.Due, p.open.Sent, p.open.Unsent)
		}
	}
	for _, m := range p.sum.Metrics(0, 0) {
		p.metrics[m.Unit] = m.Value
	}
	return p
}

// Every process: each request starts in the very ns in which it is due,
// however long the answers take, and waiting takes no real time.
func TestOpenLoopStartsWhenDue(t *testing.T) {
	var trace []verify.Due
	for i := range 50 {
		trace = append(trace, verify.Due{DueNS: int64(i*i) * 1_000_003, Input: 1, Output: 1 + i%7})
	}
	for name, load := range map[string]verify.Load{
		"constant":      {Arrival: verify.ArrivalConstant, Rate: "3", Requests: 500},
		"poisson":       {Arrival: verify.ArrivalPoisson, Rate: "7.5", Seed: 11, Requests: 500},
		"bursty":        {Arrival: verify.ArrivalGamma, Burstiness: "0.1", Rate: "50", Seed: 5, Requests: 500},
		"regular":       {Arrival: verify.ArrivalGamma, Burstiness: "9", Rate: "0.2", Seed: 5, Requests: 500},
		"for a time":    {Arrival: verify.ArrivalPoisson, Rate: "10", Seed: 3, DurationNS: 60e9},
		"steps":         {Arrival: verify.ArrivalPoisson, Seed: 2, Steps: []verify.Step{{Rate: "1", DurationNS: 30e9}, {Rate: "20", DurationNS: 10e9}, {Rate: "1", DurationNS: 30e9}}},
		"trace":         {Arrival: verify.ArrivalTrace, Trace: trace, TraceScale: "1"},
		"after a while": {Arrival: verify.ArrivalConstant, Rate: "10", DurationNS: 30e9, SettleNS: 12_345_678_901},
	} {
		t.Run(name, func(t *testing.T) {
			load.Kind = verify.LoadOpen
			due, err := load.Schedule()
			if err != nil {
				t.Fatal(err)
			}
			real := time.Now()
			synctest.Test(t, func(t *testing.T) {
				const answer = 4321 * time.Millisecond
				p := play(t, t.Context(), load, len(due), &scripted{answer: takes(answer)}, 0)
				for i, r := range p.requests {
					phase := verify.PhaseMeasured
					if due[i] < load.SettleNS {
						phase = verify.PhaseSettle
					}
					if r.ScheduledNS != p.begin+due[i] || r.StartNS != r.ScheduledNS || r.AdmittedNS != 0 || r.Phase != phase || r.Failure != nil {
						t.Fatalf("request %d: phase %s, scheduled_ns %d, start_ns %d, admitted_ns %d, failure %v, want %s, both %d, none, none", i, r.Phase, r.ScheduledNS, r.StartNS, r.AdmittedNS, r.Failure, phase, p.begin+due[i])
					}
					if load.Arrival == verify.ArrivalTrace && r.OutputTokens != trace[i].Output {
						t.Errorf("request %d asks for %d tokens, want the trace's %d", i, r.OutputTokens, trace[i].Output)
					}
				}
				if want := time.Duration(due[len(due)-1]) + answer; p.took != want {
					t.Errorf("it took %v, want %v", p.took, want)
				}
				settled := slices.IndexFunc(due, func(ns int64) bool { return ns >= load.SettleNS })
				if o := p.open; o.Due != len(due)-settled || o.Sent != o.Due || o.LagMaxNS != 0 || o.FirstDueNS != p.begin+due[settled] || o.LastStartNS != p.begin+due[len(due)-1] {
					t.Errorf("%+v, want the %d after the %d of the settling, without lag", o, len(due)-settled, settled)
				}
				if offered, achieved := p.metrics[verify.UnitOffered], p.metrics[verify.UnitAchieved]; offered != achieved || offered == 0 {
					t.Errorf("offered %v, achieved %v requests a second, want the same", offered, achieved)
				}
			})
			if took := time.Since(real); took > 20*time.Second {
				t.Errorf("it took %v of real time", took)
			}
		})
	}
}

// With a cap, requests wait their turn in the order of the schedule, and are
// admitted in the ns in which another ends. The times are those of a queue
// with so many servers.
func TestOpenLoopMaxInflight(t *testing.T) {
	const answer = 1_050_000_001 // ns
	for _, load := range []verify.Load{
		{Arrival: verify.ArrivalConstant, Rate: "10", Requests: 60, MaxInflight: 1},
		{Arrival: verify.ArrivalConstant, Rate: "10", Requests: 60, MaxInflight: 7},
		{Arrival: verify.ArrivalPoisson, Rate: "3", Seed: 4, Requests: 300, MaxInflight: 3},
		{Arrival: verify.ArrivalGamma, Burstiness: "0.2", Rate: "3", Seed: 4, Requests: 300, MaxInflight: 4},
		{Arrival: verify.ArrivalConstant, Rate: "10", Requests: 60, MaxInflight: 100},
	} {
		t.Run(fmt.Sprintf("%s-%d", load.Arrival, load.MaxInflight), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				load.Kind = verify.LoadOpen
				due, err := load.Schedule()
				if err != nil {
					t.Fatal(err)
				}
				server := &scripted{answer: takes(answer)}
				p := play(t, t.Context(), load, load.Requests, server, 0)
				free := make([]int64, load.MaxInflight)
				waited, wait := 0, int64(0)
				for i, r := range p.requests {
					place := slices.Index(free, slices.Min(free))
					start, admitted := due[i], int64(0)
					if free[place] > due[i] {
						start, admitted = free[place], p.begin+free[place]
						waited++
						wait += free[place] - due[i]
					}
					free[place] = start + answer
					if r.StartNS != p.begin+start || r.AdmittedNS != admitted || r.ScheduledNS != p.begin+due[i] || r.EndNS != r.StartNS+answer {
						t.Fatalf("request %d, due %d: scheduled_ns %d, admitted_ns %d, start_ns %d, end_ns %d, want %d, %d, %d, %d", i, due[i],
							r.ScheduledNS, r.AdmittedNS, r.StartNS, r.EndNS, p.begin+due[i], admitted, p.begin+start, p.begin+start+answer)
					}
				}
				if server.most > load.MaxInflight || p.open.MostInflight != server.most {
					t.Errorf("the server had %d at once, the records say %d, want no more than %d", server.most, p.open.MostInflight, load.MaxInflight)
				}
				for i, id := range server.order[:min(load.MaxInflight, len(server.order))] {
					if id != p.requests[i].ID {
						t.Errorf("the server's request %d was %s, want %s", i, id, p.requests[i].ID)
					}
				}
				if o := p.open; o.Waited != waited || o.WaitNS != wait || o.LagNS != 0 || (waited == 0) != (load.MaxInflight == 100) {
					t.Errorf("%+v, want %d that waited for %d ns in all, and no lag", o, waited, wait)
				}
				if got, want := p.metrics[verify.UnitWait], float64(wait)/float64(len(due))/1e6; math.Abs(got-want) > 1e-9*want {
					t.Errorf("mean wait %v ms, want %v", got, want)
				}
			})
		})
	}
}

// A run that is called off midway loses nothing: what is under way is
// canceled, what waits or isn't due yet is recorded as unsent.
func TestOpenLoopCalledOff(t *testing.T) {
	for _, most := range []int{0, 5} {
		t.Run(fmt.Sprint(most), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithCancel(t.Context())
				const after = 2_550_000_000
				time.AfterFunc(after, cancel)
				load := verify.Load{Kind: verify.LoadOpen, Arrival: verify.ArrivalConstant, Rate: "10", Requests: 100, MaxInflight: most}
				p := play(t, ctx, load, 100, &scripted{answer: takes(2 * time.Second)}, 0)
				// Due every 100 ms. Without a cap 26 were sent, 6 of them were
				// answered. With 5 at a time, those of 0.0 to 0.4 s were answered
				// and the next 5 had their places.
				sent, answered := 26, 6
				if most > 0 {
					sent, answered = 10, 5
				}
				for i, r := range p.requests {
					class := ""
					if r.Failure != nil {
						class = r.Failure.Class
					}
					want := ""
					switch {
					case i >= sent:
						want = verify.FailUnsent
					case i >= answered:
						want = verify.FailCanceled
					}
					if class != want || r.ScheduledNS != p.begin+int64(i)*1e8 {
						t.Errorf("request %d: failure %q, scheduled_ns %d, want %q and %d", i, class, r.ScheduledNS, want, p.begin+int64(i)*1e8)
					}
					if class == verify.FailUnsent && (r.StartNS != p.begin+after || r.EndNS != r.StartNS || r.AdmittedNS != 0 || r.ConnectedNS != 0) {
						t.Errorf("request %d was not sent: start_ns %d, end_ns %d, admitted_ns %d, connected_ns %d, want twice %d and none", i, r.StartNS, r.EndNS, r.AdmittedNS, r.ConnectedNS, p.begin+after)
					}
				}
				if p.took != after {
					t.Errorf("it took %v, want %v: nobody waits for what is not due yet", p.took, time.Duration(after))
				}
				if o := p.open; o.Due != 100 || o.Sent != sent || o.Unsent != 100-sent || p.sum.Failed != 100-answered {
					t.Errorf("%+v and %d failed, want 100 due, %d sent, %d unsent, %d failed", o, p.sum.Failed, sent, 100-sent, 100-answered)
				}
				if missed := p.open.Missed(&verify.Load{MaxLagNS: verify.DefaultMaxLagNS, MaxInflight: most}); missed == "" {
					t.Error("nothing speaks against a plan of which most was not sent")
				}
			})
		})
	}
}

// A run that is over before it begins records every request all the same.
func TestOpenLoopCalledOffBefore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		load := verify.Load{Kind: verify.LoadOpen, Arrival: verify.ArrivalConstant, Rate: "0.001", Requests: 5, MaxInflight: 1}
		server := &scripted{answer: takes(0)}
		p := play(t, ctx, load, 5, server, 0)
		if p.open.Unsent != 5 || p.took != 0 || len(server.order) != 0 {
			t.Errorf("%+v after %v, the server had %q, want 5 unsent at once", p.open, p.took, server.order)
		}
	})
}

// A server that never answers doesn't slow the schedule down: each request
// stalls by itself.
func TestOpenLoopStall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		load := verify.Load{Kind: verify.LoadOpen, Arrival: verify.ArrivalPoisson, Rate: "10", Seed: 1, Requests: 200}
		const idle = 5 * time.Second
		p := play(t, t.Context(), load, 200, &scripted{answer: func(conn net.Conn) { conn.Read(make([]byte, 1)) }}, idle)
		for i, r := range p.requests {
			if r.StartNS != r.ScheduledNS || r.EndNS != r.StartNS+int64(idle) || r.Failure == nil || r.Failure.Class != verify.FailStall {
				t.Fatalf("request %d: scheduled_ns %d, start_ns %d, end_ns %d, failure %v, want a stall %v after it was due", i, r.ScheduledNS, r.StartNS, r.EndNS, r.Failure, idle)
			}
		}
		if o := p.open; o.Sent != 200 || o.Refused != 0 || o.Good != 0 || o.InflightNS != 200*int64(idle) {
			t.Errorf("%+v, want 200 sent, each under way for %v", o, idle)
		}
	})
}

// Refused requests are sent once, count as refused, and are no good.
func TestOpenLoopRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		load := verify.Load{
			Kind: verify.LoadOpen, Arrival: verify.ArrivalConstant, Rate: "10", Requests: 100,
			SLO: []verify.Bound{{Metric: "e2e", MostNS: 20e6}},
		}
		n := 0
		p := play(t, t.Context(), load, 100, &scripted{answer: func(conn net.Conn) {
			time.Sleep(20 * time.Millisecond)
			switch n++; {
			case n%10 == 0:
				io.WriteString(conn, "HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\nRetry-After: 1\r\nConnection: close\r\n\r\n")
			case n%10 == 5:
				io.WriteString(conn, "HTTP/1.1 429 Too Many Requests\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
			case n%10 == 7:
				io.WriteString(conn, "HTTP/1.1 500 Internal Server Error\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
			default:
				io.WriteString(conn, streamHead+oneToken)
			}
		}}, 0)
		if o := p.open; o.Sent != 100 || o.Refused != 20 || o.Good != 70 || p.sum.Failed != 30 || n != 100 {
			t.Errorf("%+v, %d failed, %d asked, want 100 sent, 20 refused, 70 good, 30 failed", o, p.sum.Failed, n)
		}
		// The 99 gaps of 100 ms and the last answer.
		if share, goodput := p.metrics[verify.UnitSLOShare], p.metrics[verify.UnitGoodput]; share != 0.7 || goodput != 70/9.92 {
			t.Errorf("share %v, goodput %v, want 0.7 and %v", share, goodput, 70/9.92)
		}
	})
}

// Coordinated omission. The server answers in 10 ms, but for 10 s, from the
// first second on, it answers nothing: whoever comes then has to wait until it
// is over. Ten requests a second are due for 70 s, 700 in all.
//
// With a cap of 4 the client holds 99 of them back, and sends them when the
// server is well again: measured from the send, 99 % of all requests took
// 10 ms. So it is with 4 clients in a closed loop, which simply stop. From due,
// one in seven waited for up to 10 s.
func TestCoordinatedOmission(t *testing.T) {
	const service, stallFrom, stallTo = 10 * time.Millisecond, 1 * time.Second, 11 * time.Second
	server := func() *scripted {
		begin := time.Now()
		return &scripted{answer: func(conn net.Conn) {
			if at := time.Since(begin); at >= stallFrom && at < stallTo {
				time.Sleep(stallTo - at)
			}
			takes(service)(conn)
		}}
	}
	load := verify.Load{
		Kind: verify.LoadOpen, Arrival: verify.ArrivalConstant, Rate: "10", Requests: 700, MaxInflight: 4, MaxLagNS: 1,
		SLO: []verify.Bound{{Metric: "ttft", MostNS: 500e6}},
	}
	check := func(t *testing.T, p *played, want map[string]float64) {
		t.Helper()
		for unit, want := range want {
			if got, ok := p.metrics[unit]; !ok || math.Abs(got-want) > 1e-12*want {
				t.Errorf("%s = %v, want %v", unit, got, want)
			}
		}
	}
	// percentiles of all requests from the send, in ms
	fromSend := func(p *played) (p50, p95, p99, most float64) {
		var all []int64
		for _, r := range p.requests {
			ns, ok := r.E2E()
			if !ok || r.Failure != nil {
				t.Fatalf("%s failed: %v", r.ID, r.Failure)
			}
			all = append(all, ns)
		}
		slices.Sort(all)
		of := func(percent int) float64 {
			hundredths, _ := verify.Percentile(all, percent)
			return float64(hundredths) / 1e8
		}
		return of(50), of(95), of(99), of(100)
	}

	synctest.Test(t, func(t *testing.T) { // from send it looks fine, from due it doesn't
		p := play(t, t.Context(), load, 700, server(), 0)
		if p50, p95, p99, most := fromSend(p); p50 != 10 || p95 != 10 || p99 != 10 || most != 10010 {
			t.Errorf("from send: %v, %v, %v, at most %v ms, want 10, 10, 10 and the 10010 of one in the stall", p50, p95, p99, most)
		}
		check(t, p, map[string]float64{
			verify.UnitTTFTSent50: 0.01, verify.UnitTTFTSent95: 0.01, verify.UnitE2ESent95: 0.01,
			verify.UnitTTFT50: 0.01, verify.UnitTTFT95: 6.595, verify.UnitTTFT99: 9.321, verify.UnitE2E95: 6.595, verify.UnitE2E99: 9.321,
			verify.UnitWait: 478050. / 700, verify.UnitLag99: 0, verify.UnitInflight: 4,
			verify.UnitOffered: 10, verify.UnitAchieved: 10, verify.UnitSLOShare: 0.86, verify.UnitGoodput: 602 / 69.91,
		})
		if p.open.Waited != 99 || p.open.WaitNS != 478_050e6 {
			t.Errorf("%d waited for %d ns, want 99 for 478.05 s", p.open.Waited, p.open.WaitNS)
		}
		if missed := p.open.Missed(&load); missed != "" {
			t.Errorf("the plan was kept, yet %s", missed)
		}
	})
	synctest.Test(t, func(t *testing.T) { // without a cap both tell the same
		uncapped := load
		uncapped.MaxInflight = 0
		p := play(t, t.Context(), uncapped, 700, server(), 0)
		check(t, p, map[string]float64{
			verify.UnitTTFTSent50: 0.01, verify.UnitTTFTSent95: 6.515, verify.UnitE2ESent95: 6.515,
			verify.UnitTTFT50: 0.01, verify.UnitTTFT95: 6.515, verify.UnitTTFT99: 9.311, verify.UnitE2E95: 6.515, verify.UnitE2E99: 9.311,
			verify.UnitInflight: 101, verify.UnitSLOShare: 604. / 700,
		})
	})
	synctest.Test(t, func(t *testing.T) { // a closed loop hides it
		p := play(t, t.Context(), verify.Load{Kind: verify.LoadClosed, Conc: 4}, 700, server(), 0)
		if p50, p95, p99, most := fromSend(p); p50 != 10 || p95 != 10 || p99 != 10 || most != 10010 {
			t.Errorf("closed loop: %v, %v, %v, at most %v ms, want 10, 10, 10 and the 10010 of the four in the stall", p50, p95, p99, most)
		}
		check(t, p, map[string]float64{verify.UnitTTFT50: 0.01, verify.UnitE2E95: 0.01})
	})
}
