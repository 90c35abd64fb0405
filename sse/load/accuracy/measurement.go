package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"slices"
	"strings"
)

// measurement is one cell of one client in one round: a line of the file.
// Times are ms where nothing else is said.
type measurement struct {
	Kind     string `json:"kind"` // "measurement"
	Round    int    `json:"round"`
	Client   string `json:"client"`
	Cell     string `json:"cell"` // number of streams, or "flat"
	Streams  int    `json:"streams"`
	Requests int    `json:"requests"`
	Tokens   int    `json:"tokens"` // that the server has sent
	Failed   int    `json:"failed"` // by the client's word

	Reported *figures `json:"reported,omitempty"` // by the client
	Logged   *figures `json:"logged,omitempty"`   // by the server: arrival to first flush, flush to flush
	Matched  *matched `json:"matched,omitempty"`  // gap by gap, where the client tells each
	Lag      *lag     `json:"lag,omitempty"`      // of a client with stamps

	CPUMicros       float64 `json:"cpu_us_per_token"` // of the client, from the server's first arrival to the end
	EventsPerSecond float64 `json:"events_per_second"`
}

// figures are percentiles as clients report them, numpy's linear ones.
type figures struct {
	TTFT50 float64 `json:"ttft_p50"`
	TTFT99 float64 `json:"ttft_p99"`
	Gap50  float64 `json:"gap_p50"`
	Gap99  float64 `json:"gap_p99"`
}

// matched are percentiles of how far the client's gap is from the log's, gap
// by gap, without its sign.
type matched struct {
	Gap50 float64 `json:"gap_p50"`
	Gap99 float64 `json:"gap_p99"`
}

// lag is read minus flush, on one clock.
type lag struct {
	P50 float64 `json:"p50"`
	P99 float64 `json:"p99"`
	Max float64 `json:"max"`
}

// run describes a run of rounds: the first line of a file.
type runRecord struct {
	Kind     string            `json:"kind"` // "run"
	Date     string            `json:"date"`
	Machine  string            `json:"machine"`
	Kernel   string            `json:"kernel"`
	Go       string            `json:"go"`
	Versions map[string]string `json:"versions"` // of the published clients
	TTFTMS   float64           `json:"ttft_ms"`
	GapMS    float64           `json:"gap_ms"`
	Tokens   int               `json:"tokens"`      // of a request
	Flat     int               `json:"flat_tokens"` // of a request in the cell without gaps
}

// recordings is a file's content.
type recordings struct {
	run          runRecord
	measurements []measurement
}

func readMeasurements(path string) (*recordings, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("accuracy: %w", err)
	}
	out := &recordings{}
	lines := bufio.NewScanner(bytes.NewReader(data))
	lines.Buffer(nil, 1<<20)
	for n := 1; lines.Scan(); n++ {
		var kind struct {
			Kind string `json:"kind"`
		}
		err := json.Unmarshal(lines.Bytes(), &kind)
		switch {
		case err == nil && kind.Kind == "run":
			err = json.Unmarshal(lines.Bytes(), &out.run)
		case err == nil && kind.Kind == "measurement":
			var m measurement
			if err = json.Unmarshal(lines.Bytes(), &m); err == nil {
				out.measurements = append(out.measurements, m)
			}
		case err == nil:
			err = fmt.Errorf("kind %q, want run or measurement", kind.Kind)
		}
		if err != nil {
			return nil, fmt.Errorf("accuracy: %s:%d: %w", path, n, err)
		}
	}
	if err := lines.Err(); err != nil && !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("accuracy: %s: %w", path, err)
	}
	return out, nil
}

// percentile interpolates linearly between closest ranks, numpy's default;
// NaN of nothing. xs must be sorted.
func percentile(xs []int64, p float64) float64 {
	if len(xs) == 0 {
		return math.NaN()
	}
	rank := p / 100 * float64(len(xs)-1)
	i := int(rank)
	if i+1 == len(xs) {
		return float64(xs[i])
	}
	return float64(xs[i]) + (rank-float64(i))*float64(xs[i+1]-xs[i])
}

const ms = 1e6 // ns

func summarize(ttfts, gaps []int64) figures {
	slices.Sort(ttfts)
	slices.Sort(gaps)
	return figures{
		TTFT50: rounded(percentile(ttfts, 50) / ms), TTFT99: rounded(percentile(ttfts, 99) / ms),
		Gap50: rounded(percentile(gaps, 50) / ms), Gap99: rounded(percentile(gaps, 99) / ms),
	}
}

// rounded rounds to 0.1 µs and makes 0 of NaN, which JSON doesn't know.
func rounded(x float64) float64 {
	if math.IsNaN(x) {
		return 0
	}
	return math.Round(x*1e4) / 1e4
}

// firstToken returns the name that the server gave a request in the text of
// its first token.
func firstToken(text string) string {
	name, _, _ := strings.Cut(strings.TrimSpace(text), " ")
	return name
}
