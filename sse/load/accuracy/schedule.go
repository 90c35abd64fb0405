package main

import "time"

// Schedule says when a stream's tokens are due: the first TTFT after the
// kernel had the request, each other Gap after the one before it. A Gap
// of 0 has no schedule but the socket's: a stream is written as fast as it is
// taken, many events to a write.
type Schedule struct {
	TTFT time.Duration
	Gap  time.Duration
}

// served is one request in the server's log; stamps are CLOCK_MONOTONIC in
// ns. Flush has one entry for each token, the moment at which the write that
// carried it had returned; it is empty with a Gap of 0.
type served struct {
	Name      string  `json:"name"` // the text of the first token, unique
	ID        string  `json:"id"`   // the client's X-Request-Id
	AcceptNS  int64   `json:"accept_ns"`
	ArrivalNS int64   `json:"arrival_ns"` // the kernel had the request
	Tokens    int     `json:"tokens"`
	FlushNS   []int64 `json:"flush_ns"`
	EndNS     int64   `json:"end_ns"` // the end of the body is written
}

// modelName is what the server calls its model.
const modelName = "scripted"
