package verify

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

// writeAll sends a file's records through a Writer.
func writeAll(t *testing.T, dir string, f *file) *Writer {
	t.Helper()
	w, err := Create(dir, *f.header())
	if err != nil {
		t.Fatal(err)
	}
	for _, record := range f.records[1:] {
		if err := w.Append(record); err != nil {
			t.Fatal(err)
		}
	}
	return w
}

func TestWriterWritesWhatReplayReads(t *testing.T) {
	f := good()
	fail(f, "1.0.1", FailStall, "nothing for 5m0s")
	f.invalidate(1, "a request failed")
	dir := filepath.Join(t.TempDir(), "new", "runs")
	w := writeAll(t, dir, f)
	if want := filepath.Join(dir, f.header().Run+".jsonl"); w.Path() != want {
		t.Errorf("Path() = %s, want %s", w.Path(), want)
	}
	sum, err := w.Close(f.trailer.EndNS)
	if err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(w.Path())
	if err != nil {
		t.Fatal(err)
	}
	if have := sha256.Sum256(data); sum != hex.EncodeToString(have[:]) {
		t.Errorf("Close returned %s, the file has %s", sum, hex.EncodeToString(have[:]))
	}
	report := replayed(t, data)
	if report.Verdict != Consistent || len(report.Invalid()) != 1 || report.SHA256 != sum {
		t.Errorf("replay: %v, %v, %d invalid, want consistent with 1", report.Verdict, report.Err(), len(report.Invalid()))
	}
	// All but the trailer's time is what the builder made.
	if want := f.encode(); !bytes.Equal(data[:bytes.LastIndex(data, []byte(`{"kind":"trailer"`))], want[:bytes.LastIndex(want, []byte(`{"kind":"trailer"`))]) {
		t.Error("the writer's bytes are not those of encoding/json")
	}
	if err := w.Append(f.corpus()); err == nil || err.Error() != "verify: the evidence is closed" {
		t.Errorf("Append after Close: %v", err)
	}
	if _, err := w.Close(1); err == nil || err.Error() != "verify: the evidence is closed" {
		t.Errorf("second Close: %v", err)
	}
	w.Abandon() // too late to matter
}

func TestWriterNeverOverwrites(t *testing.T) {
	dir := t.TempDir()
	w := writeAll(t, dir, good())
	if _, err := w.Close(1 << 40); err != nil {
		t.Fatal(err)
	}
	before, err := os.ReadFile(w.Path())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Create(dir, *good().header()); !errors.Is(err, os.ErrExist) {
		t.Errorf("Create over a run: %v, want that it exists", err)
	}
	if after, _ := os.ReadFile(w.Path()); !bytes.Equal(before, after) {
		t.Error("Create changed the run that was there")
	}
}

func TestCreateErrors(t *testing.T) {
	dir := t.TempDir()
	inTheWay := filepath.Join(dir, "file")
	if err := os.WriteFile(inTheWay, nil, 0o666); err != nil {
		t.Fatal(err)
	}
	if _, err := Create(inTheWay, *good().header()); err == nil || !strings.HasPrefix(err.Error(), "verify: evidence directory: ") {
		t.Errorf("Create below a file: %v", err)
	}
	header := *good().header()
	header.Run = "../elsewhere"
	if _, err := Create(dir, header); err == nil || err.Error() != `verify: run "../elsewhere", want a base name: it names the file` {
		t.Errorf("Create with a path for a run: %v", err)
	}
	header = *good().header()
	header.HourlyUSD = math.NaN()
	if _, err := Create(dir, header); err == nil || !strings.Contains(err.Error(), "unsupported value: NaN") {
		t.Errorf("Create with NaN: %v", err)
	}
	if left, _ := filepath.Glob(filepath.Join(dir, "*.jsonl")); len(left) > 0 {
		t.Errorf("Create left %v behind", left)
	}
}

// What can't be written is refused and nothing else is lost.
func TestAppendOfNaN(t *testing.T) {
	f := good()
	w := writeAll(t, t.TempDir(), f)
	if err := w.Append(&Configuration{Metrics: []Metric{{"tok/s", math.NaN()}}}); err == nil || err.Error() != "verify: *verify.Configuration: json: unsupported value: NaN" {
		t.Errorf("Append of NaN: %v", err)
	}
	if _, err := w.Close(f.trailer.EndNS); err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(w.Path())
	if err != nil {
		t.Fatal(err)
	}
	if report := replayed(t, data); report.Verdict != Consistent {
		t.Errorf("replay: %v, %v", report.Verdict, report.Err())
	}
}

// A run that was abandoned, or whose disk failed, reads as incomplete.
func TestWriterAfterTrouble(t *testing.T) {
	for _, test := range []struct {
		name  string
		spoil func(w *Writer)
		want  string
	}{
		{"abandoned", (*Writer).Abandon, "verify: the evidence was abandoned"},
		{"disk", func(w *Writer) { w.file.Close() }, "verify: evidence is incomplete, nothing more is recorded: "},
	} {
		f := good()
		w := writeAll(t, t.TempDir(), f)
		test.spoil(w)
		for range 2 { // the error stays
			if err := w.Append(f.corpus()); err == nil || !strings.HasPrefix(err.Error(), test.want) {
				t.Errorf("%s: Append: %v, want %s", test.name, err, test.want)
			}
		}
		if _, err := w.Close(1); err == nil || !strings.HasPrefix(err.Error(), test.want) {
			t.Errorf("%s: Close: %v, want %s", test.name, err, test.want)
		}
		w.Abandon()
		data, err := os.ReadFile(w.Path())
		if err != nil {
			t.Fatal(err)
		}
		if report := replayed(t, data); report.Verdict != Incomplete || report.Err().Error() != "verify: incomplete: no trailer: the run ended after 4 configurations" {
			t.Errorf("%s: replay: %v, %v", test.name, report.Verdict, report.Err())
		}
	}
}

// Records that many goroutines append at once are whole lines.
func TestWriterIsSafeForConcurrentUse(t *testing.T) {
	f := good()
	w, err := Create(t.TempDir(), *f.header())
	if err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	for i := range 8 {
		all.Go(func() {
			for j := range 50 {
				r := *f.request("1.0.1")
				r.ID = fmt.Sprintf("%d.%d", i, j)
				if err := w.Append(&r); err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
	if _, err := w.Close(1); err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(w.Path())
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	for l := range bytes.Lines(data) {
		if r, ok := newRecord(t, l).(*Request); ok {
			seen[r.ID] = true
		}
	}
	if len(seen) != 400 {
		t.Errorf("%d requests in the file, want 400", len(seen))
	}
}

// A name that is no UTF-8, of a directory say, is no contradiction. U+FFFD
// itself and its escape as text stay what they are.
func TestWriterOfTextThatIsNoUTF8(t *testing.T) {
	f := good()
	f.header().Flags[0].Value = "runs/caf\xe9 \ufffd \\ufffd"
	w := writeAll(t, t.TempDir(), f)
	if _, err := w.Close(f.trailer.EndNS); err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(w.Path())
	if err != nil {
		t.Fatal(err)
	}
	report := replayed(t, data)
	if report.Verdict != Consistent {
		t.Fatalf("%v: %v", report.Verdict, report.Err())
	}
	if got, want := report.Header.Flags[0].Value, "runs/caf\ufffd \ufffd \\ufffd"; got != want {
		t.Errorf("the flag reads back as %q, want %q", got, want)
	}
}
