package load

import (
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"servebench/verify"
)

// Whoever is killed, and whenever: nothing stays behind but a file that says
// how far it got, and the next run knows nothing of it.
func TestKilled(t *testing.T) {
	const parallel = 4
	kills := *ordealKills
	if kills == 0 {
		kills = 8
		if testing.Short() {
			kills = 4
		}
	}
	for shard := range parallel {
		t.Run(fmt.Sprint(shard), func(t *testing.T) {
			t.Parallel()
			if *ordealServe != "" && shard > 0 {
				t.Skip("the real server has the machine to itself")
			}
			n := (kills + parallel - 1 - shard) / parallel
			if *ordealServe != "" {
				n = kills
			}
			random := rand.New(rand.NewPCG(*ordealSeed, uint64(shard)))
			p := newPlace(t)
			whole := p.start("-test.bench", twoCells).wait()
			whole.clean(t, 2)
			span := whole.took * 11 / 10
			seen := map[string]int{}
			for i := range n {
				victim := []string{"test", "server", "both", "stopped server's test", "interrupt"}[random.IntN(5)]
				// Every other one in the later half, where the measuring is.
				moment := time.Duration(random.Int64N(int64(span)))
				if i%2 == 1 {
					moment = (moment + span) / 2
				}
				a := p.start("-test.bench", twoCells)
				time.Sleep(moment - time.Since(a.begin))
				server := a.server()
				pid := a.command.Process.Pid
				switch victim {
				case "test":
					signal(t, pid, syscall.SIGKILL)
				case "interrupt":
					signal(t, pid, syscall.SIGINT)
				case "stopped server's test":
					if server != 0 {
						signal(t, server, syscall.SIGSTOP)
					}
					signal(t, pid, syscall.SIGKILL)
				case "server", "both":
					if server != 0 {
						signal(t, server, syscall.SIGKILL)
					}
					if victim == "both" {
						signal(t, pid, syscall.SIGKILL)
					}
				}
				o := a.wait()
				p.noOrphan()
				if o.code == 0 { // it was over: aim earlier
					span = min(span, o.took*11/10)
				}
				state := "no file"
				if o.report != nil {
					state = fmt.Sprintf("%v with %d invalid", o.report.Verdict, len(o.report.Invalid()))
				}
				seen[fmt.Sprintf("%s: exit code %d, %s", victim, o.code, state)]++
				if victim == "server" {
					// The run lives and says it.
					if o.report != nil && o.report.Verdict != verify.Consistent {
						t.Errorf("kill %d, the server after %v: the evidence is %v", i, moment, o.report.Verdict)
					}
					switch {
					case o.code != 0 && o.report != nil:
						o.documented(t, "The server is killed", 0)
					case o.code != 0:
						o.says(t, "Error: load: server ", "it ended before it was ready (signal: killed)")
					}
				}
				next := p.start("-test.bench", oneCell).wait()
				next.clean(t, 1)
				if left, _ := filepath.Glob(filepath.Join(p.tmp, "servebench-*", "*")); len(left) > 0 {
					t.Errorf("the next run left %q", left)
				}
				if t.Failed() {
					t.Fatalf("kill %d of seed %d: %s after %v of %v", i, *ordealSeed, victim, moment, span)
				}
			}
			for outcome, n := range seen {
				t.Logf("%d × %s", n, outcome)
			}
		})
	}
}
