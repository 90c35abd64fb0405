package main

import (
	"bytes"
	"math"
	"os"
	"testing"
)

const (
	evidence = "../../../testdata/accuracy/rounds.jsonl"
	page     = "README.md"
)

// The tables of the page are what the recorded rounds give.
func TestPage(t *testing.T) {
	list, err := readMeasurements(evidence)
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	if want := tables(list); !bytes.Contains(text, []byte(want)) {
		t.Errorf("%s lacks what `go run ./sse/load/accuracy table %s` prints:\n%s", page, "testdata/accuracy/rounds.jsonl", want)
	}
}

func TestMedianAndRatio(t *testing.T) {
	made := func(client string, round int, reported, logged, cpu float64) measurement {
		return measurement{
			Client: client, Cell: "16", Round: round, CPUMicros: cpu,
			Reported: &figures{TTFT50: reported}, Logged: &figures{TTFT50: logged},
		}
	}
	list := &recordings{measurements: []measurement{
		made("own", 1, 201, 200, 10), made(reference, 1, 202, 200, 20),
		made("own", 2, 199, 200, 30), made(reference, 2, 200, 200, 10),
		made("own", 3, 200, 200, 20), made(reference, 3, 204, 200, 20),
	}}
	ttft, cpu := &quantities[0], &quantities[len(quantities)-1]
	for _, test := range []struct {
		name      string
		got, want float64
	}{
		{"median of 1, -1, 0", first(list.median("own", "16", ttft)), 0},
		{"median of 10, 30, 20", first(list.median("own", "16", cpu)), 20},
		{"ratio of 1/2, 1/0.02, 0.02/4", first(list.ratio("own", "16", ttft)), 0.5},
		{"ratio of 1/2, 3/1, 1/1", first(list.ratio("own", "16", cpu)), 1},
	} {
		if math.Abs(test.got-test.want) > 1e-12 {
			t.Errorf("%s = %v, want %v", test.name, test.got, test.want)
		}
	}
	if _, ok := list.median("own", "64", cpu); ok {
		t.Error("a median of nothing, want none")
	}
}

func first(x float64, _ bool) float64 { return x }

// The vectors are numpy's: numpy.percentile([1, 2, 4, 8], p).
func TestPercentile(t *testing.T) {
	for p, want := range map[float64]float64{0: 1, 50: 3, 99: 7.88, 100: 8} {
		if got := percentile([]int64{1, 2, 4, 8}, p); math.Abs(got-want) > 1e-9 {
			t.Errorf("percentile %v = %v, want %v", p, got, want)
		}
	}
}
