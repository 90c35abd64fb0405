package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"runtime"
	"runtime/pprof"
	"sync"
	"sync/atomic"

	"servebench/sse"
	"servebench/verify"
)

// ownOptions are what the own client is told.
type ownOptions struct {
	url      string
	streams  int
	requests int
	tokens   int
	reuse    bool
	pending  int // bytes that may wait for their reading until the end
	profile  string
}

// clientReport is what a client's process tells about one cell. Stamps are
// CLOCK_MONOTONIC in ns.
type clientReport struct {
	Reported  figures         `json:"reported"`
	Failed    int             `json:"failed"`
	DoneNS    int64           `json:"done_ns"` // all is read and parsed; 0 where only the process's end tells
	Requests  []clientRequest `json:"requests"`
	ConnectNS []int64         `json:"connect_ns"` // start to connected, of each request
}

// clientRequest is one request by its client, found in the server's log by
// the text of its first token.
type clientRequest struct {
	Name    string  `json:"name"`
	TokenNS []int64 `json:"token_ns"` // arrivals; those of a client without stamps are not there
	GapNS   []int64 `json:"gap_ns"`
}

// ownClient keeps o.streams streams going, one goroutine for each as a
// benchmark's closed loop does, and writes its report to out.
func ownClient(ctx context.Context, o ownOptions, out io.Writer) error {
	if o.profile != "" {
		file, err := os.Create(o.profile)
		if err != nil {
			return fmt.Errorf("accuracy: %w", err)
		}
		defer file.Close()
		if err := pprof.StartCPUProfile(file); err != nil {
			return fmt.Errorf("accuracy: %w", err)
		}
		defer pprof.StopCPUProfile()
	}
	clock := sse.NewClock()
	client := &sse.Client{BaseURL: o.url, Model: modelName, Clock: clock, Reuse: o.reuse}
	defer client.Close()
	requests := make([]verify.Request, o.requests)
	replies := make([]*sse.Reply, o.requests)
	var next, pending atomic.Int64
	var streams sync.WaitGroup
	for range o.streams {
		streams.Go(func() {
			for {
				i := int(next.Add(1)) - 1
				if i >= len(requests) {
					return
				}
				ask := sse.Ask{ID: fmt.Sprintf("1.0.%d", i), Prompt: "w1 w2 w3 w4 w5 w6 w7 w8", OutputTokens: o.tokens, IgnoreEOS: true}
				reply := client.Exchange(ctx, ask, &requests[i])
				if pending.Add(int64(reply.Size())) < int64(o.pending) {
					replies[i] = reply
				} else {
					pending.Add(-int64(reply.Size()))
					reply.Read()
				}
			}
		})
	}
	streams.Wait()
	next.Store(0)
	for range runtime.GOMAXPROCS(0) {
		streams.Go(func() {
			for i := int(next.Add(1)) - 1; i < len(replies); i = int(next.Add(1)) - 1 {
				if replies[i] != nil {
					replies[i].Read()
				}
			}
		})
	}
	streams.Wait()
	report := clientReport{DoneNS: clock.Absolute(clock.Now())}
	var ttfts, gaps []int64
	for i := range requests {
		r := &requests[i]
		if r.Failure != nil {
			if report.Failed++; report.Failed == 1 {
				fmt.Fprintf(os.Stderr, "accuracy: request %d failed: %s: %s\n", i, r.Failure.Class, r.Failure.Message)
			}
			continue
		}
		ttft, _ := r.TTFT()
		ttfts = append(ttfts, ttft)
		report.ConnectNS = append(report.ConnectNS, r.ConnectedNS-r.StartNS)
		told := clientRequest{Name: firstToken(r.Text)}
		previous := int64(0)
		for j, ns := range r.EventNS {
			if r.EventKinds[j] != verify.EventContent {
				continue
			}
			told.TokenNS = append(told.TokenNS, clock.Absolute(ns))
			if previous > 0 {
				gaps = append(gaps, ns-previous)
				told.GapNS = append(told.GapNS, ns-previous)
			}
			previous = ns
		}
		report.Requests = append(report.Requests, told)
	}
	report.Reported = summarize(ttfts, gaps)
	return json.NewEncoder(out).Encode(&report)
}
