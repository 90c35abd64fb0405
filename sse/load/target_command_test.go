//go:build unix

package load

import (
	"bytes"
	"encoding/pem"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"servebench/verify"
)

// The command, as a user runs it, on servers that somebody else wrote.

// targetCell is a -bench pattern.
const targetCell = "Serve/input=(about)?64/conc=2"

// target starts a run on the server at url.
func (p *place) target(url string, args ...string) *attempt {
	p.t.Helper()
	return p.startAs(p.program, append([]string{
		"-test.run=^$", "-test.cpu=1", "-test.bench=" + targetCell, "-target", url, "-evidence", p.evidence, "-output-tokens", "4",
	}, args...))
}

// one is the only configuration of a run.
func (o *outcome) one(t *testing.T) *verify.Result {
	t.Helper()
	if o.report == nil || len(o.report.Results) != 1 || o.report.Results[0].Configuration == nil {
		t.Fatalf("no evidence of one configuration; exit code %d, stderr: %s", o.code, o.stderr)
	}
	return &o.report.Results[0]
}

// refused checks that a run on a target ended before its first request.
func (o *outcome) refused(t *testing.T, texts ...string) {
	t.Helper()
	if o.code == 0 || o.path != "" || o.lines > 0 {
		t.Errorf("exit code %d, evidence %q, %d lines, want a failure and nothing else", o.code, o.path, o.lines)
	}
	o.says(t, texts...)
}

// invalid checks that a run's only configuration is invalid, for these reasons.
func (o *outcome) invalid(t *testing.T, reasons ...string) {
	t.Helper()
	c := o.one(t).Configuration
	if o.code != 1 || c.Valid || o.lines > 0 || len(c.Metrics) > 0 {
		t.Errorf("exit code %d, valid %t with %d lines, want 1 and no numbers", o.code, c.Valid, o.lines)
	}
	all := strings.Join(c.Reasons, "\n")
	for _, reason := range reasons {
		if !strings.Contains(all, reason) {
			t.Errorf("no %q in the reasons:\n%s", reason, all)
		}
	}
	if len(reasons) > 0 {
		o.says(t, "Invalid: BenchmarkServe/")
	}
}

// sentBy are the requests of an evidence file, by their ids.
func (o *outcome) sentBy(t *testing.T) map[string]*verify.Request {
	t.Helper()
	data, err := os.ReadFile(o.path)
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]*verify.Request{}
	for line := range bytes.Lines(data) {
		r := new(verify.Request)
		if bytes.HasPrefix(line, []byte(`{"kind":"request"`)) && unmarshal(line, r) {
			out[r.ID] = r
		}
	}
	return out
}

func (o *outcome) metric(t *testing.T, unit string) (value float64, found bool) {
	t.Helper()
	for _, m := range o.one(t).Configuration.Metrics {
		if m.Unit == unit {
			return m.Value, true
		}
	}
	return 0, false
}

// fresh checks that no two requests had the same prompt, and that there were
// so many.
func (s *stranger) fresh(t *testing.T, want int) {
	t.Helper()
	before := map[string]string{}
	list := s.requests()
	for _, a := range list {
		if id := before[a.prompt]; id != "" {
			t.Errorf("%s and %s have the same prompt %.80s", id, a.id, a.prompt)
		}
		before[a.prompt] = a.id
	}
	if len(list) != want {
		t.Errorf("%d requests, want %d", len(list), want)
	}
}

func TestTargetRun(t *testing.T) {
	const all = "-test.bench=Serve"
	for _, test := range []struct {
		name     string
		server   *stranger
		args     []string
		prompts  string // how their length is known
		lines    int
		requests int
	}{
		{"ids", &stranger{added: 1}, []string{all}, verify.PromptsIDs, 4, 4 * 7},
		{"ids, counted and more passes", &stranger{}, []string{all, "-test.count=2", "-test.benchtime=2x"}, verify.PromptsIDs, 8, 8 * 13},
		{"ids of one token", &stranger{}, []string{all, "-input=1", "-test.count=5"}, verify.PromptsIDs, 10, 10 * 7},
		{"ids of two", &stranger{}, []string{all, "-input=2,16,511", "-conc=3"}, verify.PromptsIDs, 3, 3 * 7},
		{"ids, for a time", &stranger{}, []string{"-test.benchtime=50ms"}, verify.PromptsIDs, 1, 0},
		{"tokenize", &stranger{ids: "no", tokenize: "vllm", added: 1}, []string{all, "-test.count=2", "-test.benchtime=2x"}, verify.PromptsTokenize, 8, 8 * 13},
		{"tokenize, nothing but the salt", &stranger{ids: "no", tokenize: "vllm"}, []string{all, "-input=6,7", "-conc=1"}, verify.PromptsTokenize, 2, 2 * 7},
		{"tokenize, bytes", &stranger{ids: "no", tokenize: "llama", tokens: func(text string) int { return len(text) }, added: 2}, []string{all, "-conc=2"}, verify.PromptsTokenize, 2, 2 * 7},
		{"a chat, llama.cpp's", &stranger{tokenize: "llama", template: 30}, []string{all, "-api=chat"}, verify.PromptsTokenize, 4, 4 * 7},
		{"a chat, vLLM's", &stranger{tokenize: "vllm", template: 30}, []string{"-api=chat"}, verify.PromptsTokenize, 1, 7},
		{"inexact", &stranger{ids: "no"}, []string{"-inexact-input"}, verify.PromptsInexact, 1, 7},
		{"inexact, no usage", &stranger{ids: "no", noUsage: true}, []string{"-inexact-input", "-test.count=2"}, verify.PromptsInexact, 2, 2 * 7},
		{"more requests than prompts", &stranger{}, []string{all, "-requests=20", "-conc=16", "-input=64"}, verify.PromptsIDs, 1, 21},
		{"more clients than prompts", &stranger{}, []string{all, "-conc=16", "-input=64"}, verify.PromptsIDs, 1, 17},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			test.server.models = []string{"m"}
			s := test.server.start(t)
			o := newPlace(t).target(s.url, test.args...).wait()
			o.clean(t, test.lines)
			if o.report == nil || o.report.Header.Target == nil {
				t.Fatal("no evidence of a target")
			}
			about := o.report.Header.Target
			if about.Prompts != test.prompts || about.SaltSeed == 0 || about.Repeats || about.Proxied || about.Reuse || about.Insecure {
				t.Errorf("target %+v, want prompts %q with a salt", about, test.prompts)
			}
			for _, r := range o.report.Results {
				if strings.Contains(r.Plan.Name, "threads") {
					t.Errorf("name %s", r.Plan.Name)
				}
				if about := strings.Contains(r.Plan.Name, "/input=about64/"); about != (test.prompts == verify.PromptsInexact) {
					t.Errorf("name %s", r.Plan.Name)
				}
			}
			if test.requests == 0 {
				test.requests = len(s.requests())
			}
			s.fresh(t, test.requests)
			for id, r := range o.sentBy(t) {
				if r.Usage != nil && test.prompts != verify.PromptsInexact && r.Usage.PromptTokens != 64 && !slices.ContainsFunc(test.args, func(a string) bool { return strings.HasPrefix(a, "-input") || a == all }) {
					t.Errorf("request %s has %d tokens", id, r.Usage.PromptTokens)
				}
				if r.Reused {
					break
				}
			}
			// A connection for each request, and for each question before.
			if n, questions := s.accepted.Load(), s.asks.Load(); n < int64(test.requests)+questions || n > int64(test.requests)+2*questions+10 {
				t.Errorf("%d connections for %d requests and %d questions", n, test.requests, questions)
			}
		})
	}
}

// What doesn't agree with what was said.
func TestTargetInvalid(t *testing.T) {
	third := func(answer func(s *stranger, w http.ResponseWriter)) *stranger {
		s := &stranger{}
		s.answer = func(_ int, id string, w http.ResponseWriter, _ *http.Request) bool {
			if id != "1.0.2" {
				return false
			}
			answer(s, w)
			return true
		}
		return s
	}
	two := func(answer func(s *stranger, w http.ResponseWriter, r *http.Request)) *stranger {
		s := &stranger{}
		s.answer = func(_ int, id string, w http.ResponseWriter, r *http.Request) bool {
			if id != "1.0.2" && id != "1.0.4" {
				return false
			}
			answer(s, w, r)
			return true
		}
		return s
	}
	busy := func(_ *stranger, w http.ResponseWriter, _ *http.Request) { refuseWith(w, 429, "too many") }
	stall := func(_ *stranger, w http.ResponseWriter, r *http.Request) {
		io.Copy(io.Discard, r.Body)
		w.Header().Set("Content-Type", "text/event-stream")
		fmt.Fprint(w, "data: {\"choices\":[{\"index\":0,\"text\":\" w\",\"finish_reason\":null}]}\n\n")
		w.(http.Flusher).Flush()
		select {
		case <-r.Context().Done():
		case <-time.After(20 * time.Second):
		}
	}
	for _, test := range []struct {
		name   string
		server *stranger
		args   []string
		valid  bool
		failed int
		says   []string // reasons
	}{
		{"another count", third(func(s *stranger, w http.ResponseWriter) { s.stream(w, false, 4, "length", 65, true) }), nil, false, 1,
			[]string{"request 1.0.2 (measured, prompt 64-", "failed: prompt: the server counted 65 prompt tokens, want 64"}},
		{"another count, inexact", third(func(s *stranger, w http.ResponseWriter) { s.stream(w, false, 4, "length", 65, true) }), []string{"-inexact-input"}, true, 0, nil},
		{"no usage", third(func(s *stranger, w http.ResponseWriter) { s.stream(w, false, 4, "length", 64, false) }), nil, false, 1,
			[]string{"failed: usage: the server sent no usage, so the length of its prompt isn't proven"}},
		{"no usage in a warmup", &stranger{answer: func(_ int, id string, w http.ResponseWriter, _ *http.Request) bool {
			if id != "1.w.0" {
				return false
			}
			refuseWith(w, 500, "cold")
			return true
		}}, []string{"-max-failed=3"}, false, 0, []string{"request 1.w.0 (warmup, prompt 64-warmup) failed: status: 500 Internal Server Error: cold"}},
		{"cached a little", &stranger{cached: func(int) int { return 3 }}, nil, true, 0, nil},
		{"cached too much", &stranger{cached: func(int) int { return 4 }}, nil, false, 0, []string{"a cache answered 6.2 % of the prompts' tokens, more than the limit of 5 %: turn it off in the server, or raise"}},
		{"cached, which is allowed", &stranger{cached: func(int) int { return 48 }}, []string{"-max-cached=80"}, true, 0, nil},
		{"cached, where none may", &stranger{cached: func(int) int { return 1 }}, []string{"-max-cached=0"}, false, 0, []string{"a cache answered 1.6 % of the prompts' tokens, more than the limit of 0 %"}},
		{"shorter", &stranger{refuses: []string{"ignore_eos"}, eos: 3}, nil, true, 0, nil},
		{"shorter, but exact", &stranger{refuses: []string{"ignore_eos"}, eos: 3}, []string{"-exact-output"}, false, 6, []string{`failed: short: 3 tokens with finish reason "stop", want 4`}},
		{"as long as asked for, exact", &stranger{eos: 3}, []string{"-exact-output"}, true, 0, nil},
		{"unknown, but exact", &stranger{noUsage: true}, []string{"-exact-output", "-inexact-input"}, false, 6, []string{"failed: usage: the server sent neither usage nor ids, so the length of its answer isn't known"}},
		{"two refused", two(busy), nil, false, 2, []string{"request 1.0.2 ", "request 1.0.4 ", "failed: status: 429 Too Many Requests: too many"}},
		{"two refused, which is allowed", two(busy), []string{"-max-failed=2"}, true, 2, nil},
		{"two refused of one allowed", two(busy), []string{"-max-failed=1"}, false, 2, []string{"request 1.0.4 "}},
		{"two stalls", two(stall), []string{"-idle=1500ms"}, false, 0, []string{"failed: stall: nothing came for 1.5s: "}},
		{"two stalls, which are allowed", two(stall), []string{"-idle=1500ms", "-max-failed=2"}, true, 2, nil},
		{"all may fail, and do", &stranger{answer: func(_ int, id string, w http.ResponseWriter, _ *http.Request) bool {
			if !strings.HasPrefix(id, "1.0") {
				return false
			}
			refuseWith(w, 500, "no")
			return true
		}}, []string{"-max-failed=6"}, false, 6, []string{"failed: status: 500 Internal Server Error: no"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			test.server.models = []string{"m"}
			s := test.server.start(t)
			o := newPlace(t).target(s.url, test.args...).wait()
			c := o.one(t).Configuration
			if test.failed > 0 && c.Failed != test.failed {
				t.Errorf("%d failed, want %d", c.Failed, test.failed)
			}
			if !test.valid {
				o.invalid(t, test.says...)
				return
			}
			o.clean(t, 1)
			failed, shown := o.metric(t, verify.UnitFailed)
			if mayFail := slices.ContainsFunc(test.args, func(a string) bool { return strings.HasPrefix(a, "-max-failed") }); shown != mayFail || failed != float64(test.failed) {
				t.Errorf("%v failed, shown: %t, want %d", failed, shown, test.failed)
			}
			if _, counted := o.metric(t, verify.UnitThroughput); !counted {
				t.Errorf("no tok/s")
			}
		})
	}
}

// The second repetition fails, and the run with it; the first has its line.
func TestTargetLaterRepetition(t *testing.T) {
	t.Parallel()
	s := (&stranger{models: []string{"m"}, answer: func(_ int, id string, w http.ResponseWriter, _ *http.Request) bool {
		if id != "2.0.1" {
			return false
		}
		refuseWith(w, 503, "enough")
		return true
	}}).start(t)
	o := newPlace(t).target(s.url, "-test.count=3").wait()
	if o.code != 1 || o.lines != 2 || o.report.Valid() != 2 || len(o.report.Invalid()) != 1 {
		t.Errorf("exit code %d with %d lines, %d valid, want 1 with two of three", o.code, o.lines, o.report.Valid())
	}
	o.says(t, "Invalid: BenchmarkServe/input=64/conc=2 (repetition 2): request 2.0.1 ")
	s.fresh(t, 21)
}

// Reasoning and tool calls are tokens, and the answer after them has a number
// of its own.
func TestTargetReasoning(t *testing.T) {
	t.Parallel()
	s := &stranger{models: []string{"m"}, tokenize: "vllm", template: 30}
	s.answer = func(_ int, id string, w http.ResponseWriter, r *http.Request) bool {
		w.Header().Set("Content-Type", "text/event-stream")
		for i, delta := range []string{
			`{"role":"assistant","content":""}`, `{"reasoning_content":"Hm"}`, `{"reasoning_content":", well"}`, `{"content":"Yes"}`,
			`{"tool_calls":[{"index":0,"function":{"name":"f","arguments":"{}"}}]}`,
		} {
			if i > 0 {
				time.Sleep(20 * time.Millisecond)
			}
			fmt.Fprintf(w, "data: {\"choices\":[{\"index\":0,\"delta\":%s,\"finish_reason\":null}]}\n\n", delta)
			w.(http.Flusher).Flush()
		}
		s.mu.Lock()
		body := s.asked[len(s.asked)-1]
		for _, a := range s.asked {
			if a.id == id {
				body = a
			}
		}
		s.mu.Unlock()
		var messages []struct{ Content string }
		unmarshal(body.fields["messages"], &messages)
		n := 30
		if len(messages) == 1 {
			n += s.count(messages[0].Content)
		}
		fmt.Fprintf(w, "data: {\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":\"stop\"}],\"usage\":{\"prompt_tokens\":%d,\"completion_tokens\":8}}\n\ndata: [DONE]\n\n", n)
		return true
	}
	s.start(t)
	o := newPlace(t).target(s.url, "-api=chat").wait()
	o.clean(t, 1)
	value := func(unit string) float64 {
		v, found := o.metric(t, unit)
		if !found {
			t.Errorf("no %s", unit)
		}
		return v
	}
	ttft, answer, gap, tpot := value(verify.UnitTTFT50), value(verify.UnitAnswer50), value(verify.UnitGap50), value(verify.UnitTPOT50)
	// Two gaps of 20 ms from the first thought to the answer; eight tokens in
	// four events.
	if d := answer - ttft; d < 0.035 || d > 2 {
		t.Errorf("answer %v s after ttft %v s, want 0.04 s between them", answer, ttft)
	}
	if gap < 19 || tpot > gap*4/5 {
		t.Errorf("gap %v ms and tpot %v ms, want 20 and 3/7 of it", gap, tpot)
	}
	for id, r := range o.sentBy(t) {
		if r.EventKinds != "orrctood" && r.EventKinds != "orrctod" || r.Reasoning != "Hm, well" || r.Text != "Yes" {
			t.Errorf("request %s: events %s, reasoning %q, text %q", id, r.EventKinds, r.Reasoning, r.Text)
		}
	}
}

// An open loop's requests are as much their own as a closed one's.
func TestTargetOpenLoop(t *testing.T) {
	for _, test := range []struct {
		name   string
		server *stranger
		args   []string
	}{
		{"ids", &stranger{}, []string{"-rate=100", "-requests=20"}},
		{"ids of two", &stranger{}, []string{"-rate=100", "-requests=20", "-input=2"}},
		{"tokenize", &stranger{ids: "no", tokenize: "llama", added: 1}, []string{"-rate=100", "-requests=20", "-test.count=2"}},
		{"steps", &stranger{}, []string{"-steps=50:200ms,100:200ms", "-arrival=constant"}},
		{"slo", &stranger{}, []string{"-rate=100", "-requests=20", "-slo=ttft=1s", "-connections=reuse"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			test.server.models = []string{"m"}
			s := test.server.start(t)
			o := newPlace(t).target(s.url, append([]string{"-test.bench=Serve", "-input=64", "-max-lag=1s", "-max-inflight=100"}, test.args...)...).wait()
			o.clean(t, max(1, len(o.report.Results)))
			s.fresh(t, len(o.sentBy(t)))
		})
	}
}

// A key, a header's value: neither is anywhere, whoever repeats it.
func TestTargetSecrets(t *testing.T) {
	const key, token = "sk-live-0123456789", "tok-abcdefghij"
	leak := func(w http.ResponseWriter, r *http.Request, status int) {
		w.Header().Set("Server", "gate/"+r.Header.Get("X-Auth"))
		refuseWith(w, status, "Incorrect API key provided: "+r.Header.Get("Authorization")+", "+r.Header.Get("X-Auth"))
	}
	for _, test := range []struct {
		name    string
		before  func(w http.ResponseWriter, r *http.Request) bool
		answer  func(n int, id string, w http.ResponseWriter, r *http.Request) bool
		refused bool
	}{
		{"the list of models", func(w http.ResponseWriter, r *http.Request) bool { leak(w, r, 401); return true }, nil, true},
		{"the list of models, and the rest works", func(w http.ResponseWriter, r *http.Request) bool {
			if r.Method == http.MethodGet {
				leak(w, r, 404)
				return true
			}
			return false
		}, nil, true},
		{"a model's name that is the header's value", func(w http.ResponseWriter, r *http.Request) bool {
			if r.Method == http.MethodGet {
				fmt.Fprintf(w, `{"data":[{"id":"m-%s"}]}`, r.Header.Get("X-Auth"))
				return true
			}
			return false
		}, nil, true},
		{"a probe", nil, func(n int, _ string, w http.ResponseWriter, r *http.Request) bool { leak(w, r, 403); return true }, true},
		{"a redirect", nil, func(n int, _ string, w http.ResponseWriter, r *http.Request) bool {
			w.Header().Set("Location", "/login?was="+r.Header.Get("X-Auth"))
			w.WriteHeader(302)
			return true
		}, true},
		{"a measured request", nil, func(_ int, id string, w http.ResponseWriter, r *http.Request) bool {
			if id != "1.0.1" {
				return false
			}
			leak(w, r, 500)
			return true
		}, false},
		{"an error within a stream", nil, func(_ int, id string, w http.ResponseWriter, r *http.Request) bool {
			if id != "1.0.1" {
				return false
			}
			w.Header().Set("Content-Type", "text/event-stream")
			fmt.Fprintf(w, "data: {\"error\":{\"message\":\"%s %s\"}}\n\n", r.Header.Get("Authorization"), r.Header.Get("X-Auth"))
			return true
		}, false},
		{"a long error, cut within the key", nil, func(_ int, id string, w http.ResponseWriter, r *http.Request) bool {
			if id != "1.0.1" {
				return false
			}
			refuseWith(w, 500, strings.Repeat("x", 960)+r.Header.Get("X-Auth"))
			return true
		}, false},
		{"an answer, and its reason to stop", nil, func(_ int, id string, w http.ResponseWriter, r *http.Request) bool {
			if id != "1.0.1" {
				return false
			}
			w.Header().Set("Content-Type", "text/event-stream")
			fmt.Fprintf(w, "data: {\"choices\":[{\"index\":0,\"text\":\"%s %s\",\"finish_reason\":\"%[2]s\"}],\"usage\":{\"prompt_tokens\":64,\"completion_tokens\":4}}\n\ndata: [DONE]\n\n", r.Header.Get("Authorization"), r.Header.Get("X-Auth"))
			return true
		}, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			s := (&stranger{models: []string{"m"}, before: test.before, answer: test.answer}).start(t)
			p := newPlace(t)
			p.env = append(p.env, "STRANGERS_KEY="+key)
			o := p.target(s.url, "-key-env=STRANGERS_KEY", "-header=X-Auth: "+token, "-header", "X-Auth2: Token "+token+"-2").wait()
			if test.refused {
				o.refused(t, "Error: load: ")
			} else if o.report == nil || o.report.Header.Target == nil {
				t.Fatal("no evidence")
			} else if about := o.report.Header.Target; about.KeyFrom != "STRANGERS_KEY" || !slices.Equal(about.Headers, []string{"X-Auth", "X-Auth2"}) {
				t.Errorf("target %+v", about)
			}
			texts := map[string]string{"stdout": o.stdout, "stderr": o.stderr}
			if o.path != "" {
				texts["the evidence"] = string(must(t, o.path))
			}
			for name, text := range texts {
				for _, secret := range []string{key[:12], token[:8]} {
					if i := strings.Index(text, secret); i >= 0 {
						t.Errorf("%s has %q: …%.80q", name, secret, text[max(0, i-40):])
					}
				}
			}
			for _, a := range s.requests() {
				if a.header.Get("Authorization") != "Bearer "+key || a.header.Get("X-Auth") != token {
					t.Errorf("request %s hasn't the key or the header", a.id)
				}
			}
		})
	}
}

func must(t *testing.T, path string) []byte {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func TestTargetSalts(t *testing.T) {
	for _, test := range []struct {
		name   string
		server func() *stranger
	}{
		{"ids", func() *stranger { return &stranger{models: []string{"m"}} }},
		{"tokenize", func() *stranger { return &stranger{models: []string{"m"}, ids: "no", tokenize: "vllm", added: 1} }},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			prompts := func(args ...string) []string {
				s := test.server().start(t)
				newPlace(t).target(s.url, append(args, "-test.count=2")...).wait().clean(t, 2)
				return s.prompts()
			}
			first, second := prompts("-seed=7"), prompts("-seed=7")
			if !slices.Equal(first, second) {
				t.Errorf("two runs of one seed send\n%q and\n%q", first, second)
			}
			if other := prompts("-seed=8"); slices.Equal(first, other) {
				t.Error("two seeds, the same prompts")
			}
			if a, b := prompts(), prompts(); slices.Equal(a, b) {
				t.Error("two runs without a seed, the same prompts")
			}
			plain := prompts("-unsalted")
			half := len(plain) / 2
			for i, prompt := range plain[:half] {
				_, one, _ := strings.Cut(prompt, " ")
				_, other, _ := strings.Cut(plain[half+i], " ")
				if one != other {
					t.Errorf("-unsalted sends %.60s, then %.60s", one, other)
				}
			}
		})
	}
}

func TestTargetPromptsFile(t *testing.T) {
	lines := func(n int, format string) string {
		var out strings.Builder
		for i := range n {
			fmt.Fprintf(&out, format+"\n", i)
		}
		return out.String()
	}
	const four = `{"text":"prompt number %d is","input":4}`
	bench := "-test.bench=Serve"
	for _, test := range []struct {
		name    string
		file    string // content, or a path after @
		server  *stranger
		args    []string
		lines   int    // 0 for a refusal before the run, -1 for one of a configuration
		says    string //
		prompts string
		fresh   int // requests
	}{
		{"two configurations", lines(14, four), &stranger{}, []string{bench}, 2, "", verify.PromptsFile, 14},
		{"CRLF and blank lines", "\r\n" + strings.ReplaceAll(lines(7, four), "\n", "\r\n\r\n"), &stranger{}, nil, 1, "", verify.PromptsFile, 7},
		{"they run out", lines(7, four), &stranger{}, []string{bench}, -1, "the prompts of 4 tokens run out: this configuration wants 6 and a warmup that no request had, but 6 of 6 and 1 of 1 warmups were sent before", verify.PromptsFile, 7},
		{"they run out by passes", lines(14, four), &stranger{}, []string{"-test.benchtime=3x"}, -1, "run out", verify.PromptsFile, 0},
		{"marked warmups", `{"text":"warm up my friend","input":4,"warmup":true}` + "\n" + lines(6, four), &stranger{}, nil, 1, "", verify.PromptsFile, 7},
		{"again and again", lines(3, four), &stranger{}, []string{bench, "-unsalted", "-test.benchtime=2x", "-test.count=2"}, 4, "", verify.PromptsFile, 0},
		{"too few for the clients", lines(3, four), &stranger{}, []string{bench, "-unsalted", "-conc=4"}, -1, "6 requests a pass by 4 clients, but there are 2 prompts of 4 tokens", verify.PromptsFile, 0},
		{"for a time", lines(14, four), &stranger{}, []string{"-test.benchtime=1s"}, -1, "passes have to be counted here", verify.PromptsFile, 0},
		{"wrong by one", lines(7, four), &stranger{added: 1}, nil, -1, "failed: prompt: the server counted 5 prompt tokens, want 4", verify.PromptsFile, 7},
		{"ids", lines(7, `{"ids":[%d,5,6,7]}`), &stranger{}, nil, 1, "", verify.PromptsIDs, 7},
		{"ids that aren't taken", lines(7, `{"ids":[%d,5,6,7]}`), &stranger{ids: "no"}, nil, 0, "prompt line-1 has ids and no text, but the target is sent texts", "", 0},
		{"ids in a chat", lines(7, `{"ids":[%d,5,6,7]}`), &stranger{}, []string{"-api=chat"}, 0, "has ids and no text", "", 0},
		{"ids, about", lines(7, `{"ids":[%d,5,6,7]}`), &stranger{}, []string{"-inexact-input"}, 0, "has ids and no text", "", 0},
		{"ids or texts", lines(7, `{"text":"prompt number %d is","ids":[1,5,6,7]}`), &stranger{ids: "no"}, nil, 1, "", verify.PromptsFile, 7},
		{"a chat", lines(7, `{"text":"prompt number %d is","input":34}`), &stranger{template: 30}, []string{"-api=chat"}, 1, "", verify.PromptsFile, 7},
		{"no input", lines(7, `{"text":"prompt %d"}`), &stranger{}, nil, 0, "p.jsonl:1: no input, the number of tokens", "", 0},
		{"no input, about", lines(7, `{"text":"prompt %d"}`), &stranger{}, []string{"-inexact-input", "-input=9"}, 1, "", verify.PromptsInexact, 7},
		{"another input", lines(7, four), &stranger{}, []string{"-input=64"}, -1, "no prompt of 64 tokens", "", 0},
		{"twice the same", lines(7, `{"text":"prompt number x is","input":4}`+"\n"+`{"text":"prompt number %d is","input":4}`), &stranger{}, nil, -1, "is the same as one before it, which a cache could answer", "", 0},
		{"broken", lines(3, four) + `{"text":"a`, &stranger{}, nil, 0, "p.jsonl:4: unexpected EOF", "", 0},
		{"unknown field", `{"prompt":"a","input":1}`, &stranger{}, nil, 0, `p.jsonl:1: json: unknown field "prompt"`, "", 0},
		{"empty", "", &stranger{}, nil, 0, "p.jsonl has no prompts", "", 0},
		{"missing", "@no/such.jsonl", &stranger{}, nil, 0, "no/such.jsonl: no such file or directory", "", 0},
		{"directory", "@.", &stranger{}, nil, 0, "is a directory", "", 0},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			test.server.models = []string{"m"}
			s := test.server.start(t)
			path, given := strings.CutPrefix(test.file, "@")
			if !given {
				path = filepath.Join(t.TempDir(), "p.jsonl")
				if err := os.WriteFile(path, []byte(test.file), 0o666); err != nil {
					t.Fatal(err)
				}
			}
			args := []string{"-test.bench=Serve/.*/conc=2", "-prompts", path}
			o := newPlace(t).target(s.url, append(args, test.args...)...).wait()
			switch test.lines {
			case 0:
				o.refused(t, test.says)
			case -1:
				if o.code != 1 || !strings.Contains(o.stdout+o.stderr, test.says) {
					t.Errorf("exit code %d, want 1 and %q\n%s%s", o.code, test.says, o.stdout, o.stderr)
				}
			default:
				o.clean(t, test.lines)
			}
			if test.prompts != "" && o.report != nil {
				if got := o.report.Header.Target.Prompts; got != test.prompts {
					t.Errorf("prompts %q, want %q", got, test.prompts)
				}
			}
			if test.fresh > 0 {
				s.fresh(t, test.fresh)
			}
		})
	}
}

func TestTargetConnections(t *testing.T) {
	run := func(t *testing.T, s *stranger, args ...string) (*outcome, int64, int) {
		t.Helper()
		s.models = []string{"m"}
		s.start(t)
		o := newPlace(t).target(s.url, append(args, "-test.benchtime=3x")...).wait()
		reused := 0
		for _, r := range o.sentBy(t) {
			if r.Reused {
				reused++
			}
			if r.Failure == nil && !r.Reused && r.ConnectedNS <= r.StartNS {
				t.Errorf("request %s was connected at %d, having started at %d", r.ID, r.ConnectedNS, r.StartNS)
			}
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		probes := int64(1 + len(s.asked) - 19) // of the list, and of the dialect
		return o, s.accepted.Load() - probes, reused
	}
	t.Run("new", func(t *testing.T) {
		t.Parallel()
		o, accepted, reused := run(t, &stranger{})
		o.clean(t, 1)
		if accepted != 19 || reused != 0 || o.report.Header.Target.Reuse {
			t.Errorf("%d connections for 19 requests, %d recorded as kept, want 19 and 0", accepted, reused)
		}
	})
	t.Run("reuse", func(t *testing.T) {
		t.Parallel()
		o, accepted, reused := run(t, &stranger{}, "-connections=reuse")
		o.clean(t, 1)
		if accepted > 2 || int64(reused) != 19-accepted || !o.report.Header.Target.Reuse {
			t.Errorf("%d connections for 19 requests of two clients, %d recorded as kept, want 2 and 17", accepted, reused)
		}
	})
	t.Run("it closes each after its answer", func(t *testing.T) {
		t.Parallel()
		s := &stranger{before: func(w http.ResponseWriter, _ *http.Request) bool { w.Header().Set("Connection", "close"); return false }}
		o, accepted, reused := run(t, s, "-connections=reuse")
		o.clean(t, 1)
		if accepted != 19 || reused != 0 {
			t.Errorf("%d connections for 19 requests, %d recorded as kept, want 19 and 0", accepted, reused)
		}
	})
	for _, proxied := range []bool{false, true} {
		t.Run(fmt.Sprintf("it closes without a word, later; through a proxy: %t", proxied), func(t *testing.T) {
			t.Parallel()
			s := &stranger{models: []string{"m"}}
			var mu sync.Mutex
			seen := map[string]bool{} // connections
			got := map[string]int{}   // requests, by their ids
			hangUp := func(w http.ResponseWriter, r *http.Request) bool {
				if r.Method != http.MethodPost {
					return false
				}
				mu.Lock()
				again := seen[r.RemoteAddr]
				seen[r.RemoteAddr] = true
				got[r.Header.Get("X-Request-Id")]++
				mu.Unlock()
				if !again {
					return false
				}
				// The second request on a connection: it is read, and there
				// is nothing but the end.
				io.Copy(io.Discard, r.Body)
				if conn, _, err := w.(http.Hijacker).Hijack(); err == nil {
					conn.Close()
				}
				return true
			}
			p := newPlace(t)
			var url string
			if proxied {
				s.start(t)
				through := &throughProxy{to: s.Listener.Addr().String()}
				server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					if !hangUp(w, r) {
						through.ServeHTTP(w, r)
					}
				}))
				t.Cleanup(server.Close)
				p.env = append(p.env, "HTTP_PROXY="+server.URL, "http_proxy=", "NO_PROXY=", "no_proxy=")
				url = "http://llm.example"
			} else {
				s.before = hangUp
				s.start(t)
				url = s.url
			}
			o := p.target(url, "-connections=reuse", "-test.benchtime=3x").wait()
			o.invalid(t, "failed: stream: ")
			mu.Lock()
			defer mu.Unlock()
			failed := 0
			for id, r := range o.sentBy(t) {
				if got[id] != 1 {
					t.Errorf("request %s was sent %d times", id, got[id])
				}
				// net/http may have made a connection before it was wanted,
				// and calls it reused.
				if r.Failure != nil != r.Reused && !(proxied && r.Reused) {
					t.Errorf("request %s: reused %t, failure %v", id, r.Reused, r.Failure)
				}
				if r.Reused {
					failed++
				}
			}
			if failed == 0 {
				t.Error("no connection was used again")
			}
		})
	}
}

// throughProxy is an HTTP proxy that leads everywhere to one server.
type throughProxy struct {
	to        string // host:port
	forwarded atomic.Int64
	tunnels   atomic.Int64
}

func (p *throughProxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method == http.MethodConnect {
		p.tunnels.Add(1)
		to, err := net.Dial("tcp", p.to)
		if err != nil {
			w.WriteHeader(http.StatusBadGateway)
			return
		}
		defer to.Close()
		from, _, err := w.(http.Hijacker).Hijack()
		if err != nil {
			return
		}
		defer from.Close()
		io.WriteString(from, "HTTP/1.1 200 OK\r\n\r\n")
		done := make(chan struct{}, 2)
		go func() { io.Copy(to, from); done <- struct{}{} }()
		go func() { io.Copy(from, to); done <- struct{}{} }()
		<-done
		return
	}
	p.forwarded.Add(1)
	r.URL.Host, r.URL.Scheme, r.RequestURI = p.to, "http", ""
	response, err := http.DefaultTransport.RoundTrip(r)
	if err != nil {
		w.WriteHeader(http.StatusBadGateway)
		return
	}
	defer response.Body.Close()
	for name, values := range response.Header {
		w.Header()[name] = values
	}
	w.WriteHeader(response.StatusCode)
	buffer := make([]byte, 1<<12)
	for {
		n, err := response.Body.Read(buffer)
		w.Write(buffer[:n])
		w.(http.Flusher).Flush()
		if err != nil {
			return
		}
	}
}

func TestTargetThroughProxy(t *testing.T) {
	start := func(t *testing.T, secure bool) (*stranger, *throughProxy, string) {
		s := &stranger{models: []string{"m"}}
		if secure {
			s.startTLS(t)
		} else {
			s.start(t)
		}
		p := &throughProxy{to: s.Listener.Addr().String()}
		server := httptest.NewServer(p)
		t.Cleanup(server.Close)
		return s, p, server.URL
	}
	t.Run("http", func(t *testing.T) {
		t.Parallel()
		s, proxy, url := start(t, false)
		p := newPlace(t)
		p.env = append(p.env, "HTTP_PROXY="+url, "http_proxy=", "NO_PROXY=", "no_proxy=")
		o := p.target("http://llm.example").wait()
		o.clean(t, 1)
		if !o.report.Header.Target.Proxied || proxy.forwarded.Load() < 9 || len(s.requests()) != 7 {
			t.Errorf("proxied %t, %d forwarded of %d requests", o.report.Header.Target.Proxied, proxy.forwarded.Load(), len(s.requests()))
		}
	})
	t.Run("https", func(t *testing.T) {
		t.Parallel()
		_, proxy, url := start(t, true)
		p := newPlace(t)
		p.env = append(p.env, "HTTPS_PROXY="+url, "https_proxy=", "NO_PROXY=", "no_proxy=")
		p.target("https://llm.example").wait().refused(t, "certificate", "-insecure (Target.Insecure) accepts any certificate")
		o := p.target("https://llm.example", "-insecure").wait()
		o.clean(t, 1)
		if about := o.report.Header.Target; !about.Proxied || !about.Insecure || proxy.tunnels.Load() < 9 {
			t.Errorf("target %+v, %d tunnels", about, proxy.tunnels.Load())
		}
		o = p.target("https://llm.example", "-insecure", "-connections=reuse", "-test.benchtime=3x").wait()
		o.clean(t, 1)
		reused := 0
		for _, r := range o.sentBy(t) {
			if r.Reused {
				reused++
			}
		}
		if reused < 17 {
			t.Errorf("%d of 19 requests had a kept connection", reused)
		}
	})
	t.Run("never to this machine", func(t *testing.T) {
		t.Parallel()
		s, proxy, url := start(t, false)
		_, port, _ := net.SplitHostPort(s.Listener.Addr().String())
		p := newPlace(t)
		p.env = append(p.env, "HTTP_PROXY="+url, "http_proxy=", "NO_PROXY=", "no_proxy=")
		for _, host := range []string{"127.0.0.1", "LOCALHOST", "0.0.0.0"} {
			o := p.target("http://" + host + ":" + port).wait()
			o.clean(t, 1)
			if o.report.Header.Target.Proxied || proxy.forwarded.Load() > 0 {
				t.Errorf("%s: proxied %t, %d forwarded", host, o.report.Header.Target.Proxied, proxy.forwarded.Load())
			}
		}
	})
	t.Run("a dead proxy", func(t *testing.T) {
		t.Parallel()
		p := newPlace(t)
		p.env = append(p.env, "HTTP_PROXY=http://me:hunter2@127.0.0.1:9", "http_proxy=", "NO_PROXY=", "no_proxy=")
		o := p.target("http://llm.example").wait()
		o.refused(t, "proxyconnect")
		if strings.Contains(o.stderr, "hunter2") {
			t.Error("the proxy's password is told")
		}
	})
}

// A certificate of its own is accepted where the user says so, and only there.
func TestTargetTLS(t *testing.T) {
	t.Parallel()
	s := (&stranger{models: []string{"m"}}).startTLS(t)
	p := newPlace(t)
	p.target(s.url).wait().refused(t, "-insecure (Target.Insecure) accepts any certificate")
	if n := len(s.seen()); n > 0 {
		t.Errorf("%d requests over a connection that isn't trusted", n)
	}
	o := p.target(s.url, "-insecure", "-connections=reuse").wait()
	o.clean(t, 1)
	if !o.report.Header.Target.Insecure {
		t.Error("-insecure isn't recorded")
	}
}

// A certificate that the system trusts needs no word.
func TestTargetTrusted(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("SSL_CERT_FILE names the system's roots on Linux")
	}
	t.Parallel()
	s := (&stranger{models: []string{"m"}}).startTLS(t)
	roots := filepath.Join(t.TempDir(), "roots.pem")
	if err := os.WriteFile(roots, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw}), 0o666); err != nil {
		t.Fatal(err)
	}
	p := newPlace(t)
	p.env = append(p.env, "SSL_CERT_FILE="+roots)
	o := p.target(s.url).wait()
	o.clean(t, 1)
	if o.report.Header.Target.Insecure {
		t.Error("recorded as insecure")
	}
	// The certificate is for 127.0.0.1 and example.com.
	p.target(strings.Replace(s.url, "127.0.0.1", "localhost", 1)).wait().refused(t, "certificate is valid for", "-insecure (Target.Insecure) accepts any certificate")
}

// What the user adds to every request is in every request, and recorded.
func TestTargetFieldsRecorded(t *testing.T) {
	t.Parallel()
	s := (&stranger{models: []string{"m"}}).start(t)
	o := newPlace(t).target(s.url, `-field=top_k=1`, `-field=stop=["never"]`, `-field=cache_prompt=null`, `-header=X-Team: red`).wait()
	o.clean(t, 1)
	about := o.report.Header.Target
	if want := []verify.Field{{Name: "cache_prompt", Value: "null"}, {Name: "stop", Value: `["never"]`}, {Name: "top_k", Value: "1"}}; !slices.Equal(about.Fields, want) {
		t.Errorf("fields %q, want %q", about.Fields, want)
	}
	if slices.Contains(about.Optional, "cache_prompt") {
		t.Errorf("optional %q has what the user left out", about.Optional)
	}
	for _, a := range s.requests() {
		if string(a.fields["top_k"]) != "1" || string(a.fields["stop"]) != `["never"]` || a.fields["cache_prompt"] != nil || a.header.Get("X-Team") != "red" {
			t.Errorf("request %s has %s", a.id, a.fields)
		}
	}
}

// A server that goes away while it is measured, or before.
func TestTargetGoes(t *testing.T) {
	t.Run("within a configuration", func(t *testing.T) {
		t.Parallel()
		s := &stranger{models: []string{"m"}}
		s.answer = func(_ int, id string, w http.ResponseWriter, _ *http.Request) bool {
			if id != "1.0.2" {
				return false
			}
			s.Listener.Close()
			go s.CloseClientConnections()
			time.Sleep(100 * time.Millisecond)
			return true
		}
		s.start(t)
		o := newPlace(t).target(s.url, "-test.count=3").wait()
		if o.code != 1 || o.lines > 0 || len(o.report.Invalid()) == 0 {
			t.Errorf("exit code %d with %d lines", o.code, o.lines)
		}
		o.says(t, "failed: connect: dial tcp ", "connection refused")
		for id, r := range o.sentBy(t) {
			if r.Failure != nil && r.Failure.Class == verify.FailConnect && r.ConnectedNS != 0 {
				t.Errorf("request %s: %v, but connected", id, r.Failure)
			}
		}
	})
	t.Run("its tokenizer, with the key in its last words", func(t *testing.T) {
		t.Parallel()
		s := &stranger{models: []string{"m"}, ids: "no", tokenize: "vllm"}
		s.before = func(w http.ResponseWriter, r *http.Request) bool {
			if !strings.HasSuffix(r.URL.Path, "/tokenize") || s.asks.Load() < 20 {
				return false
			}
			refuseWith(w, 500, "no more for "+r.Header.Get("Authorization"))
			return true
		}
		s.start(t)
		p := newPlace(t)
		p.env = append(p.env, "STRANGERS_KEY=sk-live-0123456789")
		o := p.target(s.url, "-key-env=STRANGERS_KEY").wait()
		if o.code != 1 || o.lines > 0 || len(s.requests()) > 0 {
			t.Errorf("exit code %d with %d lines and %d requests", o.code, o.lines, len(s.requests()))
		}
		o.says(t, "not measured, no metrics: load: prompt 64-", "500 Internal Server Error: no more for Bearer [not recorded]")
		if strings.Contains(o.stdout+o.stderr, "sk-live") {
			t.Error("the key is told")
		}
	})
	t.Run("no text of that length", func(t *testing.T) {
		t.Parallel()
		s := (&stranger{models: []string{"m"}, ids: "no", tokenize: "vllm", tokens: func(text string) int { return 2 * len(strings.Fields(text)) }}).start(t)
		o := newPlace(t).target(s.url, "-test.bench=Serve", "-input=64,65", "-conc=1").wait()
		if o.code != 1 || o.lines != 1 || o.report.Valid() != 1 {
			t.Errorf("exit code %d with %d lines, want 1 and the one of 64", o.code, o.lines)
		}
		o.says(t, "no text of exactly 65 tokens was found, only of 64")
	})
}

// What ends a run leaves evidence that says so.
func TestTargetKilled(t *testing.T) {
	for name, sig := range map[string]syscall.Signal{"kill": syscall.SIGKILL, "Ctrl-C": syscall.SIGINT} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := (&stranger{models: []string{"m"}, step: 5 * time.Millisecond}).start(t)
			p := newPlace(t)
			a := p.target(s.url, "-test.benchtime=1000x")
			a.midway(9)
			if err := a.command.Process.Signal(sig); err != nil {
				t.Fatal(err)
			}
			o := a.wait()
			o.incomplete(t)
			if o.lines > 0 {
				t.Error("a result of what wasn't ended")
			}
			p.target(s.url).wait().clean(t, 1)
		})
	}
}
