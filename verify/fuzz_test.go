package verify

import (
	"bytes"
	"encoding/json"
	"testing"
)

// FuzzReplay: no bytes make the reader panic, and what it finds no fault with
// is exactly what encoding the records again gives.
func FuzzReplay(f *testing.F) {
	data := small().encode()
	f.Add([]byte{})
	f.Add(data)
	f.Add(data[:len(data)/2])
	f.Add(data[:bytes.IndexByte(data, '\n')+1])
	lines := bytes.SplitAfter(data, []byte("\n"))
	f.Add(bytes.Join(lines[:4], nil)) // up to the plan
	f.Add(bytes.Join(lines[:5], nil)) // and a request
	target := small()
	targeted(target)
	f.Add(target.encode())
	f.Add(tried().encode())
	failed := small()
	failAll(failed, 1)
	failed.invalidate(1, "no server")
	f.Add(failed.encode())
	f.Add(goodOpen().encode())
	f.Fuzz(func(t *testing.T, data []byte) {
		report := replayed(t, data)
		again := replayed(t, data)
		if report.Verdict != again.Verdict || len(report.Problems) != len(again.Problems) {
			t.Fatalf("%v with %d problems, then %v with %d", report.Verdict, len(report.Problems), again.Verdict, len(again.Problems))
		}
		if len(report.Problems) > 0 {
			return
		}
		for l := range bytes.Lines(data) {
			if !bytes.HasSuffix(l, []byte("\n")) {
				break // cut off
			}
			if encoded, err := json.Marshal(newRecord(t, l)); err != nil || !bytes.Equal(append(encoded, '\n'), l) {
				t.Fatalf("accepted %s, which encodes as %s (%v)", l, encoded, err)
			}
		}
	})
}

// FuzzParsePrinted: no output makes the parser panic, and the check of what
// it read neither.
func FuzzParsePrinted(f *testing.F) {
	f.Add(good().printed(digest))
	f.Add("BenchmarkX-2 3 15 tok/s\n--- FAIL: BenchmarkX\nUnit a b=c\nEvidence: a sha256 " + digest)
	f.Fuzz(func(t *testing.T, text string) {
		printed, err := ParsePrinted("old.txt", bytes.NewReader([]byte(text)))
		if err != nil {
			return
		}
		measuredAs(Plan{Name: "BenchmarkX", Repetition: 1, GOMAXPROCS: 2}, Plan{Name: "BenchmarkX"}).CheckPrinted(printed)
	})
}
