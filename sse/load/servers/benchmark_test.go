//go:build unix

package servers

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"servebench/verify"
)

// The template of the model, as it stands around a message.
const (
	chatPrefix = "<|im_start|>system\nYou are a helpful AI assistant named SmolLM, trained by Hugging Face<|im_end|>\n<|im_start|>user\n"
	chatSuffix = "<|im_end|>\n<|im_start|>assistant\n"
)

// makePrompts runs smol/prompts for the model, and returns the file's path.
func makePrompts(t *testing.T, args ...string) string {
	t.Helper()
	if _, err := os.Stat(filepath.Join(root, "smol", "native", "v1", "libtokenizers.a")); err != nil {
		t.Skip("the tokenizer library isn't there: go run ./smol/setup puts it in place")
	}
	tokenizer := filepath.Join(os.Getenv(weightsVariable), modelName, "tokenizer.json")
	make := exec.Command("go", append([]string{"run", "./smol/prompts", "-tokenizer", tokenizer}, args...)...)
	make.Dir = root
	var said bytes.Buffer
	make.Stderr = &said
	data, err := make.Output()
	if err != nil {
		t.Fatalf("smol/prompts %q: %v: %s", args, err, &said)
	}
	path := filepath.Join(t.TempDir(), "prompts.jsonl")
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// benchmark is one run of the benchmark, as a user starts it.
type benchmark struct {
	output string   // standard output and error
	lines  []string // of results: name, iterations, and value and unit of each metric
	path   string   // of the evidence
	err    error    // of the command
}

// runBenchmark runs the module's benchmark against a server.
func runBenchmark(t *testing.T, s *server, during func(evidence string), args ...string) benchmark {
	t.Helper()
	dir := t.TempDir()
	all := []string{"test", "-run", "^$", "-bench", ".", "-count", "1", "-args", "-target", s.url, "-evidence", dir}
	command := exec.Command("go", append(all, args...)...)
	command.Dir = root
	var output bytes.Buffer
	command.Stdout, command.Stderr = &output, &output
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	if during != nil {
		during(dir)
	}
	b := benchmark{err: command.Wait(), output: output.String()}
	for line := range strings.Lines(b.output) {
		if strings.HasPrefix(line, "BenchmarkServe/") {
			b.lines = append(b.lines, strings.TrimSpace(line))
		}
		if at, ok := strings.CutPrefix(line, "Evidence: "); ok {
			b.path, _, _ = strings.Cut(at, " sha256 ")
		}
	}
	return b
}

// replay has the evidence checked against what was printed, and returns its
// last line.
func (b *benchmark) replay(t *testing.T) string {
	t.Helper()
	printed := filepath.Join(t.TempDir(), "printed.txt")
	if err := os.WriteFile(printed, []byte(b.output), 0o600); err != nil {
		t.Fatal(err)
	}
	command := exec.Command("go", "run", "./verify/replay", "-printed", printed, b.path)
	command.Dir = root
	out, err := command.CombinedOutput()
	lines := strings.Split(strings.TrimSpace(string(out)), "\n")
	if last := lines[len(lines)-1]; err == nil {
		return last
	}
	t.Fatalf("replay: %v\n%s\nof\n%s", err, out, b.output)
	return ""
}

// evidenceRows returns the corpus's prompts and the measured requests of an
// evidence file, read without what wrote it.
func evidenceRows(t *testing.T, path string) (prompts map[string]verify.Prompt, requests []verify.Request) {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	prompts = map[string]verify.Prompt{}
	for line := range bytes.Lines(data) {
		var row struct{ Kind, Phase string }
		if err := json.Unmarshal(line, &row); err != nil {
			t.Fatalf("%s: %v", path, err)
		}
		switch {
		case row.Kind == verify.KindCorpus:
			var c verify.Corpus
			if err := json.Unmarshal(line, &c); err != nil {
				t.Fatal(err)
			}
			for _, p := range c.Prompts {
				prompts[p.ID] = p
			}
		case row.Phase == verify.PhaseMeasured:
			var r verify.Request
			if err := json.Unmarshal(line, &r); err != nil {
				t.Fatal(err)
			}
			requests = append(requests, r)
		}
	}
	return prompts, requests
}

// resultLine is a line with all that a target's has, in its order.
var resultLine = regexp.MustCompile(`^(BenchmarkServe/input=\w+/conc=\d)(?:-\d+)?\s+1\s+[\d.]+ gap-p50-ms\s+[\d.]+ p95-s\s+[\d.]+ tok/s\s+[\d.]+ tpot-p50-ms\s+[\d.]+ ttft-p50-s$`)

// The whole benchmark, from outside: its lines have all metrics, its evidence
// replays, and in it are the answers that the server gives when it is asked
// otherwise.
func TestBenchmark(t *testing.T) {
	const tokens = 8
	alone := []string{"-output-tokens", "8", "-input", "64", "-requests", "2"}
	fill := []string{"-n", "2", "-passes", "2", "-input", "64"}
	tests := []struct {
		name  string
		chat  bool
		kinds string   // that can do so
		made  []string // flags of smol/prompts; nil for prompts that the benchmark makes
		args  []string
		input string // the axis
		known string // how the length of prompts is, by the note
	}{
		{"ids", false, "llamaserver", nil, []string{"-exact-output"}, "64", "because they are sent as ids"},
		{"tokenize", true, "llamaserver", nil, []string{"-api", "chat"}, "64", "by its /tokenize"},
		{"file with ids", false, "llamaserver", fill, nil, "64", "because they are sent as ids"},
		{"file", false, "transformers", fill, []string{"-connections", "reuse"}, "64", "by their file"},
		{"file of a chat", true, "llamaserver transformers", append([]string{"-chat-prefix", chatPrefix, "-chat-suffix", chatSuffix}, fill...), []string{"-api", "chat"}, "64", "by their file"},
		{"about", true, "transformers", nil, []string{"-api", "chat", "-inexact-input"}, "about64", "about"},
	}
	each(t, func(t *testing.T, k *kind) {
		s := k.get(t)
		for _, test := range tests {
			if !strings.Contains(test.kinds, k.name) {
				continue
			}
			t.Run(test.name, func(t *testing.T) {
				args := append(slices.Clone(alone), test.args...)
				if test.made != nil {
					args = append(args, "-prompts", makePrompts(t, test.made...))
				}
				b := runBenchmark(t, s, nil, args...)
				if b.err != nil {
					t.Fatalf("%v\n%s", b.err, b.output)
				}
				var names []string
				for _, line := range b.lines {
					m := resultLine.FindStringSubmatch(line)
					if m == nil {
						t.Fatalf("line %q, want all metrics\n%s", line, b.output)
					}
					names = append(names, m[1])
				}
				if want := []string{"BenchmarkServe/input=" + test.input + "/conc=1", "BenchmarkServe/input=" + test.input + "/conc=2"}; !slices.Equal(names, want) {
					t.Errorf("lines of %q, want %q\n%s", names, want, b.output)
				}
				if want := "the length of prompts is known " + test.known + "\n"; !strings.Contains(b.output, want) {
					t.Errorf("no %q in\n%s", want, b.output)
				}
				if last := b.replay(t); !strings.HasPrefix(last, "CONSISTENT: ") || !strings.HasSuffix(last, "2 configurations, 2 valid, 0 invalid") {
					t.Errorf("the replay ends with %q", last)
				}
				prompts, requests := evidenceRows(t, b.path)
				if len(requests) != 4 {
					t.Fatalf("%d measured requests, want 4", len(requests))
				}
				asked := map[string]bool{}
				for _, r := range requests {
					p := prompts[r.Prompt]
					if r.SentText != "" || r.SentIDs != nil {
						p.Text, p.IDs = r.SentText, r.SentIDs
					}
					path, body := "completions", map[string]any{"model": modelName, "max_tokens": tokens, "temperature": 0}
					if k.ignoreEOS {
						body["ignore_eos"] = true
						body["cache_prompt"] = false // as the benchmark asks
					}
					switch {
					case test.chat:
						path = "chat/completions"
						body["messages"] = []any{map[string]any{"role": "user", "content": p.Text}}
					case p.Text == "":
						body["prompt"] = p.IDs
					default:
						body["prompt"] = p.Text
					}
					key, _ := json.Marshal(body)
					if asked[string(key)] {
						t.Errorf("%s: its prompt was sent before", r.ID)
					}
					asked[string(key)] = true
					want := s.ask(t, path, body)
					if r.Usage == nil {
						t.Errorf("%s: no usage", r.ID)
						continue
					}
					if strings.HasPrefix(r.ID, "2.") {
						// Two answers at once are computed as one batch, whose
						// sums come out another way: of two words that are
						// almost as likely the other one may win.
						want.text = r.Text
					}
					if got := (whole{r.Text, r.Finish, r.Usage.PromptTokens, r.Usage.CompletionTokens}); got != want {
						t.Errorf("%s: %+v\nwant %+v", r.ID, got, want)
					}
					if r.Usage.PromptTokens != 64 && test.input == "64" {
						t.Errorf("%s: %d tokens in the prompt, want 64", r.ID, r.Usage.PromptTokens)
					}
				}
			})
		}
	})
}

// What can't be proven is refused, with what would help.
func TestBenchmarkRefuses(t *testing.T) {
	k := kinds[1] // transformers reads no ids and has no /tokenize
	b := runBenchmark(t, k.get(t), nil, "-input", "64", "-requests", "2")
	if b.err == nil || len(b.lines) > 0 || !strings.Contains(b.output, "-inexact-input") || !strings.Contains(b.output, "smol/prompts") {
		t.Errorf("%v, want an error that names -inexact-input and smol/prompts, and no lines\n%s", b.err, b.output)
	}
}

// A server that dies midway fails the run, and the evidence says why.
func TestBenchmarkKilled(t *testing.T) {
	k := kinds[0]
	s := k.start(t)
	b := runBenchmark(t, s, func(evidence string) {
		for begin := time.Now(); time.Since(begin) < limit; time.Sleep(10 * time.Millisecond) {
			files, _ := filepath.Glob(filepath.Join(evidence, "*"))
			for _, file := range files {
				if data, _ := os.ReadFile(file); bytes.Contains(data, []byte(`"phase":"measured"`)) {
					if err := s.kill(); err != nil {
						t.Error(err)
					}
					return
				}
			}
		}
		s.kill()
	}, "-input", "64", "-output-tokens", "64")
	if b.err == nil || len(b.lines) > 0 || b.path == "" {
		t.Fatalf("%v, want a failed run without result lines, but with evidence\n%s", b.err, b.output)
	}
	_, requests := evidenceRows(t, b.path)
	classes := map[string]int{}
	for _, r := range requests {
		if r.Failure == nil {
			classes["none"]++
			continue
		}
		classes[r.Failure.Class]++
		if r.Failure.Message == "" {
			t.Errorf("%s failed without a reason", r.ID)
		}
	}
	if classes["none"] == 0 || classes[verify.FailStream] == 0 || classes[verify.FailConnect] == 0 {
		t.Errorf("failures %v, want some requests without, one whose stream broke off, and no connection for the others", classes)
	}
}
