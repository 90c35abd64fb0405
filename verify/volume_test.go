package verify

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"runtime"
	"testing"
)

// volume writes evidence of configurations × 10 requests × tokens, each
// configuration when the one before has been taken, so that a reader that
// keeps nothing can be seen to.
func volume(w io.Writer, configurations, tokens int, closed func(config int)) error {
	f := good()
	corpus := f.corpus()
	plan := *f.plan(1)
	plan.Warmups, plan.OutputTokens = nil, tokens
	plan.Prompts = plan.Prompts[:0]
	for i := range 10 {
		prompt := goodPrompt(fmt.Sprint("v-", i), false, fmt.Sprint("prompt ", i), 1, 2, 3, int32(i))
		corpus.Prompts = append(corpus.Prompts, prompt)
		plan.Prompts = append(plan.Prompts, prompt.ID)
	}
	seal(corpus)
	f.server(1).ContextLimit = tokens + 4
	sum := sha256.New()
	trailer := f.trailer
	write := func(record any) error {
		l := line(record)
		sum.Write(l)
		trailer.Records++
		_, err := w.Write(l)
		return err
	}
	for _, record := range []any{f.header(), corpus, f.server(1)} {
		if err := write(record); err != nil {
			return err
		}
	}
	now := clock{seed: 1}
	t := plan.PlannedNS
	for config := 1; config <= configurations; config++ {
		plan.Config, plan.Repetition, plan.PlannedNS = config, config, t
		if err := write(&plan); err != nil {
			return err
		}
		var total Summary
		slotFree := t
		for i, id := range plan.Prompts {
			r, s := exchange(&now, t+ms, &slotFree, f.prompt(id), tokens)
			r.Config, s.Config, r.Phase, r.ID = config, config, PhaseMeasured, fmt.Sprint(config, ".0.", i)
			s.ID = r.ID
			t = r.EndNS
			total.Add(r)
			total.AddServed(r, s)
			trailer.Requests++
			trailer.Tokens += int64(tokens)
			if err := write(r); err != nil {
				return err
			}
			if err := write(s); err != nil {
				return err
			}
		}
		c := Configuration{Kind: KindConfiguration, Config: config, Passes: 1, PeakSource: Unmeasured, Valid: true}
		total.Fill(&plan, &c)
		c.Metrics = total.Metrics(0, f.header().HourlyUSD)
		if err := write(&c); err != nil {
			return err
		}
		trailer.Configurations++
		closed(config)
	}
	trailer.EndNS, trailer.SHA256 = t, hex.EncodeToString(sum.Sum(nil))
	_, err := w.Write(line(&trailer))
	return err
}

// Over a million tokens leave no more behind than the configuration that is open:
// all of them would be over 35 MB of ids and stamps.
func TestMemoryIsBoundedByTheLargestConfiguration(t *testing.T) {
	const configurations, tokens, bound = 110 / stride, 1000, 4 << 20
	live := func() int64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc)
	}
	before, most := live(), int64(0)
	reader, writer := io.Pipe()
	go func() {
		writer.CloseWithError(volume(writer, configurations, tokens, func(config int) {
			if config%10 == 0 {
				most = max(most, live()-before)
			}
		}))
	}()
	report, err := Replay("run.jsonl", reader)
	if err != nil {
		t.Fatal(err)
	}
	if report.Verdict != Consistent || report.Trailer.Tokens != 10*configurations*tokens {
		t.Fatalf("%v, %v, want a consistent run of %d tokens", report.Verdict, report.Err(), 10*configurations*tokens)
	}
	if most > bound {
		t.Errorf("%d bytes were live at most, want at most %d", most, bound)
	}
	t.Logf("at most %d bytes live", most)
}

// BenchmarkReplay reads a million tokens: 100 configurations of 10 requests of
// 1000 tokens.
func BenchmarkReplay(b *testing.B) {
	var data bytes.Buffer
	const configurations, tokens = 100, 1000
	if err := volume(&data, configurations, tokens, func(int) {}); err != nil {
		b.Fatal(err)
	}
	b.SetBytes(int64(data.Len()))
	b.ReportAllocs()
	for b.Loop() {
		report, err := Replay("run.jsonl", bytes.NewReader(data.Bytes()))
		if err != nil || report.Verdict != Consistent {
			b.Fatal(err, report.Err())
		}
	}
	b.ReportMetric(float64(10*configurations*tokens)*float64(b.N)/b.Elapsed().Seconds(), "tok/s")
}
