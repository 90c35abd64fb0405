package sse

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"servebench/verify"
)

// askedFrom is where a test process of its own finds the server.
const askedFrom = "SERVEBENCH_TEST_DESCRIPTORS"

// A process that may open 64 files asks 100 times at once: each request has
// its record, and those for which there was no descriptor say so. None
// vanishes, and no wave of successes stands for all.
func TestClientFewDescriptors(t *testing.T) {
	const conc = 100
	if base := os.Getenv(askedFrom); base != "" {
		c := Client{BaseURL: base, Clock: NewClock()}
		requests := make([]verify.Request, conc)
		var all sync.WaitGroup
		for i := range requests {
			all.Go(func() { c.Complete(t.Context(), Ask{Prompt: "p"}, &requests[i]) })
		}
		all.Wait()
		for _, r := range requests {
			switch {
			case r.Failure == nil && r.Text == "a":
				fmt.Println("served")
			case r.Failure == nil:
				fmt.Printf("text %q\n", r.Text)
			case r.Failure.Class == verify.FailConnect && strings.Contains(r.Failure.Message, "too many open files"):
				fmt.Println("refused")
			default:
				fmt.Printf("failure %+v\n", r.Failure)
			}
		}
		return
	}
	release := make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		io.Copy(io.Discard, r.Body)
		<-release // none ends before all have begun
		w.Header().Set("Content-Type", "text/event-stream")
		io.WriteString(w, "data: {\"choices\":[{\"index\":0,\"text\":\"a\",\"finish_reason\":\"stop\"}]}\n\n")
	}))
	defer server.Close()
	time.AfterFunc(500*time.Millisecond, func() { close(release) })
	child := exec.Command("sh", "-c", `ulimit -n 64 && exec "$0" -test.run '^TestClientFewDescriptors$'`, os.Args[0])
	child.Env = append(os.Environ(), askedFrom+"="+server.URL)
	out, err := child.CombinedOutput()
	served, refused := bytes.Count(out, []byte("served\n")), bytes.Count(out, []byte("refused\n"))
	if err != nil || served+refused != conc || served == 0 || refused == 0 {
		t.Errorf("%d served and %d refused (%v), want some of each and %d in all; it said\n%s", served, refused, err, conc, out)
	}
}
