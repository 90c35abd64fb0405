//go:build unix

package load

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// The command replays a trace on a server that somebody else wrote, whichever
// way the length of its prompts is known.
func TestTraceOnATarget(t *testing.T) {
	lengths := []struct{ input, output int }{{12, 3}, {64, 9}, {12, 1}, {200, 5}, {64, 2}}
	var csv strings.Builder
	csv.WriteString("TIMESTAMP,ContextTokens,GeneratedTokens\n")
	for i, l := range lengths {
		fmt.Fprintf(&csv, "2026-02-03 09:30:00.%d00,%d,%d\n", i, l.input, l.output)
	}
	path := filepath.Join(t.TempDir(), "two days-3.csv")
	if err := os.WriteFile(path, []byte(csv.String()), 0o666); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		name string
		s    *stranger
		args []string
		want string // the configuration
	}{
		{"ids", &stranger{}, nil, "BenchmarkServe/trace=two_days_3"},
		{"tokenize", &stranger{ids: "no", tokenize: "vllm"}, nil, "BenchmarkServe/trace=two_days_3"},
		{"tokenize, unsalted", &stranger{ids: "no", tokenize: "llama", added: 1}, []string{"-unsalted"}, "BenchmarkServe/trace=two_days_3"},
		{"inexact", &stranger{ids: "no"}, []string{"-inexact-input"}, "BenchmarkServe/trace=abouttwo_days_3"},
		{"max_completion_tokens alone", &stranger{wants: fieldMaxCompletion, refuses: []string{fieldMaxTokens}}, nil, "BenchmarkServe/trace=two_days_3"},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			p := newPlace(t)
			test.s.models = []string{"m"}
			test.s.start(t)
			o := p.startAs(p.program, append([]string{
				"-test.run=^$", "-test.cpu=1", "-test.bench=Serve", "-target", test.s.url, "-evidence", p.evidence,
				"-trace-file", path, "-trace-scale", "0.5", "-exact-output", "-max-lag", "1s", "-max-inflight", "9",
			}, test.args...)).wait()
			o.clean(t, 1)
			r := o.one(t)
			if r.Plan.Name != test.want {
				t.Errorf("configuration %s, want %s", r.Plan.Name, test.want)
			}
			sent := o.sentBy(t)
			if len(sent) != len(lengths)+1 {
				t.Fatalf("%d requests, want the warmup and the trace's %d", len(sent), len(lengths))
			}
			begin := sent["1.0.0"].ScheduledNS
			for i, l := range lengths {
				got := sent[fmt.Sprintf("1.0.%d", i)]
				if due := got.ScheduledNS - begin; got.OutputTokens != l.output || got.Usage.CompletionTokens != l.output || due != int64(i)*50e6 {
					t.Errorf("request %d asked for %d tokens and got %d, due %d ns after the first, want %d after %d", i, got.OutputTokens, got.Usage.CompletionTokens, due, l.output, i*50e6)
				}
				if test.name != "inexact" && got.Usage.PromptTokens != l.input {
					t.Errorf("request %d has %d tokens, want %d", i, got.Usage.PromptTokens, l.input)
				}
			}
		})
	}
}
