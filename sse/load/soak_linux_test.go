package load

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"servebench/sse"
	"servebench/verify"
)

var soakRequests = flag.Int("requests", 0, "send `N` requests in the soak test; 0 means 10000, or 2000 with -short")

// Ten thousand requests, of which one in twenty is given up at a random
// moment, leave nothing behind in the process that sends them, nor in the
// server's: memory, goroutines and descriptors are what they were after the
// first hundred.
func TestSoak(t *testing.T) {
	const clients, leaving, first = 4, 20, 100
	requests := *soakRequests
	if requests == 0 {
		requests = 10_000
		if testing.Short() {
			requests = 2000
		}
	}
	server, err := StartServer(t.Context(), fake(t, "-step", "20us"))
	if err != nil {
		t.Fatal(err)
	}
	defer server.Stop()
	client := &sse.Client{BaseURL: "http://" + server.Ready.Addr, Clock: sse.NewClock()}
	prompts := corpus()
	var done, left, failed atomic.Int64
	send := func(from, to int) {
		var next atomic.Int64
		next.Store(int64(from))
		var all sync.WaitGroup
		for c := range clients {
			random := rand.New(rand.NewPCG(uint64(from), uint64(c)))
			all.Go(func() {
				for {
					n := int(next.Add(1)) - 1
					if n >= to {
						return
					}
					ctx, cancel := t.Context(), context.CancelFunc(func() {})
					if random.IntN(leaving) == 0 {
						// Anywhere from before the connection to after the end.
						ctx, cancel = context.WithTimeout(ctx, time.Duration(random.Int64N(int64(4*time.Millisecond))))
					}
					r := &verify.Request{}
					client.Complete(ctx, sse.Ask{ID: fmt.Sprint(n), Prompt: prompts[n%len(prompts)].Text, OutputTokens: 1 + n%8, IgnoreEOS: true, TokenIDs: true}, r)
					cancel()
					switch {
					case r.Failure == nil && len(r.TokenIDs) == 1+n%8:
						done.Add(1)
					case r.Failure != nil && r.Failure.Class == verify.FailCanceled:
						left.Add(1)
					default:
						failed.Add(1)
						t.Errorf("request %d: %d ids, failure %+v", n, len(r.TokenIDs), r.Failure)
					}
				}
			})
		}
		all.Wait()
	}
	type usage struct {
		rssKB, descriptors, goroutines int
		server                         int // its descriptors
		serverKB                       int
	}
	use := func() (u usage) {
		// What closes, closes in a moment.
		for range 100 {
			debug.FreeOSMemory()
			u = usage{rss(t, os.Getpid()), descriptors(t, os.Getpid()), runtime.NumGoroutine(), descriptors(t, server.Ready.Server.PID), rss(t, server.Ready.Server.PID)}
			time.Sleep(10 * time.Millisecond)
			if u.goroutines == runtime.NumGoroutine() && u.server == descriptors(t, server.Ready.Server.PID) {
				break
			}
		}
		return u
	}
	send(0, first)
	before := use()
	send(first, requests/2)
	half := use()
	send(requests/2, requests)
	after := use()
	t.Logf("after %d requests %+v, after %d %+v, after %d %+v; %d answered, %d given up", first, before, requests/2, half, requests, after, done.Load(), left.Load())
	const slackKB = 8 << 10 // what the collectors of two processes leave lying about
	if after.rssKB > half.rssKB+slackKB/2 || after.serverKB > half.serverKB+slackKB/2 {
		t.Errorf("the second half took the client from %d kB to %d and the server from %d to %d, want no more than %d more", half.rssKB, after.rssKB, half.serverKB, after.serverKB, slackKB/2)
	}
	if after.rssKB > before.rssKB+slackKB || after.serverKB > before.serverKB+slackKB {
		t.Errorf("the client has %d kB and the server %d, want no more than %d above %d and %d", after.rssKB, after.serverKB, slackKB, before.rssKB, before.serverKB)
	}
	if after.descriptors > before.descriptors || after.server > before.server || after.goroutines > before.goroutines {
		t.Errorf("%d descriptors, %d of the server, %d goroutines; want %d, %d, %d", after.descriptors, after.server, after.goroutines, before.descriptors, before.server, before.goroutines)
	}
	if n := int(left.Load()); n < requests/leaving/4 {
		t.Errorf("%d of %d requests were given up, want about %d", n, requests, requests/leaving)
	}
	if total := int(done.Load() + left.Load()); total != requests {
		t.Errorf("%d requests ended, want %d", total, requests)
	}
}

func descriptors(t *testing.T, pid int) int {
	t.Helper()
	list, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid))
	if err != nil {
		t.Fatal(err)
	}
	return len(list)
}

// rss returns the resident set of a process in kB.
func rss(t *testing.T, pid int) int {
	t.Helper()
	status := procField(fmt.Sprintf("/proc/%d/status", pid), "VmRSS")
	kb, err := strconv.Atoi(strings.TrimSuffix(status, " kB"))
	if err != nil {
		t.Fatal(err)
	}
	return kb
}
