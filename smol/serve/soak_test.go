package main

import (
	"bufio"
	"cmp"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"servebench/verify"
)

// Many requests, some of whose clients leave at any moment, leave nothing
// behind: the process has no more memory, descriptors or threads at the end
// than soon after the start, and every request is in the log.
func TestManyRequests(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("reads /proc")
	}
	requests := 10_000
	if testing.Short() {
		requests = 1000
	}
	const clients, leaving = 4, 20 // one in 20 leaves
	p := start(t, "-model", tinyModel(t), "-spin", "off")
	addr := p.readReady().Addr

	var mu sync.Mutex
	sent, done, left := 0, 0, 0
	take := func(upTo int) (int, bool) {
		mu.Lock()
		defer mu.Unlock()
		if sent == upTo {
			return 0, false
		}
		sent++
		return sent, true
	}
	load := func(upTo int) {
		var all sync.WaitGroup
		for client := range clients {
			random := rand.New(rand.NewPCG(uint64(client), uint64(upTo)))
			all.Go(func() {
				for {
					n, ok := take(upTo)
					if !ok {
						return
					}
					leave := -1
					if random.IntN(leaving) == 0 {
						leave = random.IntN(2500) // bytes after which it does
					}
					err := oneRequest(addr, n, 1+random.IntN(8), leave)
					mu.Lock()
					if err != nil {
						t.Errorf("request %d: %v", n, err)
					} else if leave >= 0 {
						left++
					} else {
						done++
					}
					mu.Unlock()
				}
			})
		}
		all.Wait()
	}

	const early = 500 // by then Go's heap has its size and its threads
	load(early)
	before := p.usage()
	load(requests)
	after := p.usage()
	t.Logf("after %d requests: %+v; after %d: %+v; %d left", early, before, requests, after, left)
	if grown := after.rssKB - before.rssKB; grown > before.rssKB/10 && !raceDetector {
		t.Errorf("resident set grew by %d kB, want at most %d, a tenth", grown, before.rssKB/10)
	}
	if after.descriptors > before.descriptors || after.threads > before.threads+4 {
		t.Errorf("%d descriptors and %d threads, want as before: %d and %d", after.descriptors, after.threads, before.descriptors, before.threads)
	}
	if left < requests/leaving/2 || done+left != requests {
		t.Errorf("%d answers and %d that left, want %d together and at least %d that left", done, left, requests, requests/leaving/2)
	}
	if err := p.command.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if status, output := p.wait(); status != 0 || output != "" {
		t.Errorf("status %d, output %q; want 0 and none", status, output)
	}
	log := p.served()
	if len(log) != requests {
		t.Errorf("%d requests in the log, want %d", len(log), requests)
	}
	// One slot: no two overlap, and nobody's steps are anybody else's.
	slices.SortFunc(log, func(a, b verify.Served) int { return cmp.Compare(a.SlotNS, b.SlotNS) }) // lines come as handlers end
	released := int64(0)
	for _, s := range log {
		if s.SlotNS == 0 {
			continue
		}
		if s.Error == "" && s.Steps != len(s.TokenIDs) {
			t.Errorf("%s: %d steps for %d tokens", s.ID, s.Steps, len(s.TokenIDs))
		}
		if s.SlotNS < released {
			t.Errorf("%s has the slot at %d, before it was free at %d", s.ID, s.SlotNS, released)
		}
		released = s.ReleaseNS
	}
}

// oneRequest asks for tokens tokens on a connection of its own and reads the
// answer, or leaves after so many bytes of it if leave isn't negative.
func oneRequest(addr string, n, tokens, leave int) error {
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		return err
	}
	defer conn.Close()
	conn.SetDeadline(time.Now().Add(limit))
	body := fmt.Sprintf(`{"prompt":[%d,3,4,5],"max_tokens":%d,"ignore_eos":true,"stream":true}`, n%500, tokens)
	if _, err := fmt.Fprintf(conn, "POST /v1/completions HTTP/1.1\r\nHost: s\r\nConnection: close\r\nX-Request-Id: r%d\r\nContent-Length: %d\r\n\r\n%s", n, len(body), body); err != nil {
		return err
	}
	if leave >= 0 {
		_, err := io.CopyN(io.Discard, conn, int64(leave))
		if err == io.EOF { // the answer was shorter
			err = nil
		}
		return err
	}
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		return err
	}
	answer, err := io.ReadAll(resp.Body)
	if err != nil {
		return err
	}
	if got := strings.Count(string(answer), `"text":`); got != tokens || !strings.HasSuffix(string(answer), "data: [DONE]\n\n") {
		return fmt.Errorf("%d tokens, want %d and [DONE]: %q", got, tokens, answer)
	}
	return nil
}

// usage is what the kernel says that the process has.
type usage struct{ rssKB, descriptors, threads int }

// usage reads it once connections that are closing have closed.
func (p *process) usage() (u usage) {
	p.t.Helper()
	proc := filepath.Join("/proc", strconv.Itoa(p.command.Process.Pid))
	for range 50 {
		fds, err := os.ReadDir(filepath.Join(proc, "fd"))
		if err != nil {
			p.t.Fatal(err)
		}
		if u.descriptors == len(fds) {
			break
		}
		u.descriptors = len(fds)
		time.Sleep(100 * time.Millisecond)
	}
	status, err := os.ReadFile(filepath.Join(proc, "status"))
	if err != nil {
		p.t.Fatal(err)
	}
	for line := range strings.Lines(string(status)) {
		name, value, _ := strings.Cut(line, ":")
		n, _ := strconv.Atoi(strings.TrimSuffix(strings.TrimSpace(value), " kB"))
		switch name {
		case "VmRSS":
			u.rssKB = n
		case "Threads":
			u.threads = n
		}
	}
	return u
}
