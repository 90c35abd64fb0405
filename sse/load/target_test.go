package load

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"path/filepath"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"servebench/sse"
	"servebench/verify"
)

func unmarshal(data []byte, to any) bool { return json.Unmarshal(data, to) == nil }

// fieldsOf reads name=JSON, separated by spaces.
func fieldsOf(text string) map[string]json.RawMessage {
	out := map[string]json.RawMessage{}
	for _, part := range strings.Fields(text) {
		name, value, _ := strings.Cut(part, "=")
		out[name] = json.RawMessage(value)
	}
	return out
}

// runOn is NewRun for a target, with what is left behind by one that fails.
func runOn(t *testing.T, target Target, idle time.Duration) (files []string, err error) {
	t.Helper()
	dir := t.TempDir()
	run, err := NewRun(Options{Dir: filepath.Join(dir, "evidence"), Source: ".", Flags: []verify.Flag{}, Corpus: matrixCorpus(t), Target: &target, Idle: idle})
	if err == nil {
		run.Discard()
	}
	files, globErr := filepath.Glob(filepath.Join(dir, "*"))
	if globErr != nil {
		t.Fatal(globErr)
	}
	return files, err
}

// A target that gives no answer ends the run before it has begun, with one
// error that says what to do.
func TestTargetRefused(t *testing.T) {
	status := func(code int, header, value string) func(http.ResponseWriter, *http.Request) bool {
		return func(w http.ResponseWriter, r *http.Request) bool {
			if header != "" {
				w.Header().Set(header, value)
			}
			refuseWith(w, code, "so it is")
			return true
		}
	}
	html := func(w http.ResponseWriter, r *http.Request) bool {
		w.Header().Set("Content-Type", "text/html")
		fmt.Fprint(w, "<!doctype html><title>Sign in</title>")
		return true
	}
	onlyAnswers := func(f func(http.ResponseWriter, *http.Request) bool) func(http.ResponseWriter, *http.Request) bool {
		return func(w http.ResponseWriter, r *http.Request) bool { return r.Method == http.MethodPost && f(w, r) }
	}
	const (
		key   = "it wants a key, in the environment variable that -key-env (Target.KeyFrom) names, or another -header"
		busy  = "it is busy or not ready yet: try again"
		moved = "-target (Target.URL) must name the place itself"
		model = "-model (Target.Model) names it, for the server doesn't"
		api   = `is "m" its model, and does it have this endpoint? -api chat`
		up    = "is it up, and is -target (Target.URL) right?"
	)
	for _, test := range []struct {
		name   string
		before func(http.ResponseWriter, *http.Request) bool
		list   string // what the error has where the list of models fails, too
		answer string // and where it is only the answer
	}{
		{"400", status(400, "", ""), model, "400 Bad Request: so it is"},
		{"401", status(401, "", ""), key, key},
		{"403", status(403, "", ""), key, key},
		{"404", status(404, "", ""), model, api},
		{"405", status(405, "", ""), model, api},
		{"429", status(429, "Retry-After", "1"), busy, busy},
		{"500", status(500, "", ""), model, "500 Internal Server Error: so it is"},
		{"503", status(503, "", ""), busy, busy},
		{"301", status(301, "Location", "https://elsewhere.example/v1"), moved, moved},
		{"307", status(307, "Location", "/v2"), moved, moved},
		{"HTML", html, model, `content type "text/html", want text/event-stream`},
		{"it hangs up", func(w http.ResponseWriter, _ *http.Request) bool {
			conn, _, err := w.(http.Hijacker).Hijack()
			if err == nil {
				conn.Close()
			}
			return true
		}, up, up},
	} {
		for _, only := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/answers only %t", test.name, only), func(t *testing.T) {
				t.Parallel()
				before, want := test.before, test.list
				if only {
					before, want = onlyAnswers(before), test.answer
				}
				s := (&stranger{models: []string{"m"}, before: before}).start(t)
				files, err := runOn(t, Target{URL: s.url}, time.Minute)
				if err == nil || !strings.Contains(err.Error(), want) || !strings.HasPrefix(err.Error(), "load: ") {
					t.Errorf("error %v, want %q", err, want)
				}
				if err != nil && strings.Contains(err.Error(), "\n") {
					t.Errorf("an error of several lines: %v", err)
				}
				if len(files) > 0 {
					t.Errorf("%q is left of a run that never was", files)
				}
				if n := s.accepted.Load(); n > 20 {
					t.Errorf("%d requests to a server that refuses", n)
				}
			})
		}
	}
}

func TestTargetUnreachable(t *testing.T) {
	gone, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	gone.Close()
	silent, err := net.Listen("tcp", "127.0.0.1:0") // accepts, and that is all
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { silent.Close() })
	secure := (&stranger{models: []string{"m"}}).startTLS(t)
	plain := (&stranger{models: []string{"m"}}).start(t)
	for _, test := range []struct{ name, url, want string }{
		{"nobody listens", "http://" + gone.Addr().String(), "connection refused: is it up, and is -target (Target.URL) right?"},
		{"it says nothing", "http://" + silent.Addr().String(), "is it up? -idle (Options.Idle) bounds its silence"},
		{"unknown certificate", secure.url, "-insecure (Target.Insecure) accepts any certificate"},
		{"http to https", strings.Replace(secure.url, "https:", "http:", 1), "400 Bad Request"},
		{"https to http", strings.Replace(plain.url, "http:", "https:", 1), "it speaks http, not https"},
		{"no such host", "http://no-such-host.invalid", "is it up, and is -target (Target.URL) right?"},
	} {
		for _, model := range []string{"", "m"} {
			t.Run(test.name+" "+model, func(t *testing.T) {
				t.Parallel()
				idle := time.Minute
				if test.name == "it says nothing" {
					idle = 400 * time.Millisecond
				}
				files, err := runOn(t, Target{URL: test.url, Model: model}, idle)
				if err == nil || !strings.Contains(err.Error(), test.want) || strings.Contains(err.Error(), "\n") {
					t.Errorf("error %v, want one line with %q", err, test.want)
				}
				if len(files) > 0 {
					t.Errorf("%q is left of a run that never was", files)
				}
			})
		}
	}
	t.Run("any certificate", func(t *testing.T) {
		if _, err := runOn(t, Target{URL: secure.url, Insecure: true}, time.Minute); err != nil {
			t.Error(err)
		}
	})
}

// What a Target says itself can be wrong, too.
func TestTargetOptions(t *testing.T) {
	t.Setenv("SERVEBENCH_TEST_EMPTY", "")
	t.Setenv("SERVEBENCH_TEST_BROKEN", "sk-one\nsk-two")
	t.Setenv("SERVEBENCH_TEST_KEY", " sk-one\n")
	s := (&stranger{models: []string{"a-model"}}).start(t)
	for _, test := range []struct {
		name   string
		target Target
		want   string
		hidden string
	}{
		{"api", Target{API: "responses"}, `API "responses", want "completions" or "chat"`, ""},
		{"password", Target{URL: "http://me:hunter2@127.0.0.1:1"}, "the URL has a user's name or password", "hunter2"},
		{"scheme", Target{URL: "ftp://127.0.0.1:1"}, "want http://HOST:PORT or https://HOST", ""},
		{"no scheme", Target{URL: "127.0.0.1:8000"}, "base URL", ""},
		{"no key", Target{KeyFrom: "SERVEBENCH_TEST_EMPTY"}, "the environment variable SERVEBENCH_TEST_EMPTY, which should hold the API key, is empty", ""},
		{"no variable", Target{KeyFrom: "SERVEBENCH_TEST_UNSET"}, "the environment variable SERVEBENCH_TEST_UNSET, which should hold the API key, is empty", ""},
		{"the key itself", Target{KeyFrom: "sk-proj-1234"}, "isn't one; if it is the key itself, put it into a variable", "1234"},
		{"key of two lines", Target{KeyFrom: "SERVEBENCH_TEST_BROKEN"}, "SERVEBENCH_TEST_BROKEN has a control character", "sk-"},
		{"key twice", Target{KeyFrom: "SERVEBENCH_TEST_KEY", Header: http.Header{"Authorization": {"Basic abcd"}}}, "leave one out", "abcd"},
		{"header of two lines", Target{Header: http.Header{"X-Team": {"secret\r\nX-More: 1"}}}, "header X-Team has a control character", "secret"},
		{"host", Target{Header: http.Header{"Host": {"a"}}}, "header Host is set by the client itself", ""},
		{"compression", Target{Header: http.Header{"Accept-Encoding": {"gzip"}}}, "header Accept-Encoding is set by the client itself", ""},
		{"model twice", Target{Fields: fieldsOf(`model="x"`)}, "field model is the benchmark's own: what says it is -model", ""},
		{"no stream", Target{Fields: fieldsOf(`stream=false`)}, "field stream is the benchmark's own", ""},
		{"two answers", Target{Fields: fieldsOf(`n=2`)}, "field n is the benchmark's own", ""},
		{"tokens twice", Target{Fields: fieldsOf(`max_tokens=7`)}, "field max_tokens is the benchmark's own: what says it is -output-tokens (Cell.OutputTokens); null leaves it out", ""},
		{"model like a header", Target{Header: http.Header{"X-Route": {"a-model"}}}, "the only model that it lists has the API key or a header's value in its name, which would be recorded: -model (Target.Model) names it all the same", ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			if test.target.URL == "" {
				test.target.URL = s.url
			}
			files, err := runOn(t, test.target, time.Minute)
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Fatalf("error %v, want %q", err, test.want)
			}
			if test.hidden != "" && strings.Contains(err.Error(), test.hidden) {
				t.Errorf("error %v tells %q", err, test.hidden)
			}
			if len(files) > 0 {
				t.Errorf("%q is left of a run that never was", files)
			}
		})
	}
	if _, err := runOn(t, Target{URL: s.url, KeyFrom: "SERVEBENCH_TEST_KEY"}, time.Minute); err != nil {
		t.Fatal(err)
	}
	if got := s.seen()[len(s.seen())-1].header.Get("Authorization"); got != "Bearer sk-one" {
		t.Errorf("Authorization %q, want the key without the blanks around it", got)
	}
}

// What the user calls the model is no secret.
func TestTargetRoutedByModel(t *testing.T) {
	t.Parallel()
	s := (&stranger{models: []string{"a-model"}}).start(t)
	if _, err := runOn(t, Target{URL: s.url, Model: "a-model", Header: http.Header{"X-Route": {"a-model"}}}, time.Minute); err != nil {
		t.Error(err)
	}
}

func TestLegible(t *testing.T) {
	for text, want := range map[string]string{"uvicorn": "uvicorn", "a\x1b[2Jb\nc": "a[2Jbc", "a\xff": "a�", strings.Repeat("ä", 300): strings.Repeat("ä", 100)} {
		if got := legible(text); got != want {
			t.Errorf("legible(%q) = %q, want %q", text, got, want)
		}
	}
}

// A refused run leaves no goroutine and no connection.
func TestTargetLeavesNothing(t *testing.T) {
	s := (&stranger{ids: "no"}).start(t)
	target := func() error {
		t := Target{URL: s.url, Model: "m"}
		_, err := t.open(context.Background(), sse.NewClock(), time.Minute, []int{64}, nil)
		return err
	}
	if err := target(); err == nil {
		t.Fatal("a target that proves nothing is measured")
	}
	before := runtime.NumGoroutine()
	for range 20 {
		target()
	}
	for begin := time.Now(); runtime.NumGoroutine() > before+2; time.Sleep(10 * time.Millisecond) {
		if time.Since(begin) > 5*time.Second {
			buf := make([]byte, 1<<16)
			t.Fatalf("%d goroutines, %d before twenty refused runs:\n%s", runtime.NumGoroutine(), before, buf[:runtime.Stack(buf, true)])
		}
	}
}

// What a server repeats of a secret is hidden, in whatever form.
func TestTargetHides(t *testing.T) {
	target := Target{key: `sk-"one"/two+three`, Header: http.Header{"X-Auth": {"Token tok-4567890"}, "X-Short": {"no"}, "X-Long": {"Token tok-4567890-and-more"}}}
	for text, want := range map[string]string{
		`Incorrect API key provided: sk-"one"/two+three.`: `Incorrect API key provided: [not recorded].`,
		`{"key":"sk-\"one\"/two+three"}`:                  `{"key":"[not recorded]"}`,
		`/login?key=sk-%22one%22%2Ftwo%2Bthree`:           `/login?key=[not recorded]`,
		`tok-4567890`:                                     `[not recorded]`,
		`Token tok-4567890-and-more!`:                     `[not recorded]!`,
		`it ends with tok-4567…`:                          `it ends with [not recorded]…`,
		`it ends with sk-"on…`:                            `it ends with [not recorded]…`,
		`no key in here…`:                                 `no key in here…`,
	} {
		if got := target.hideIn(text); got != want {
			t.Errorf("hideIn(%s) = %s, want %s", text, got, want)
		}
	}
}

// Proxies are for what isn't on this machine.
func TestTargetProxy(t *testing.T) {
	var asked atomic.Int64
	proxy := func(*http.Request) (*url.URL, error) {
		asked.Add(1)
		return url.Parse("http://127.0.0.1:9")
	}
	for host, want := range map[string]bool{
		"127.0.0.1:80": false, "127.9.9.9": false, "localhost:8000": false, "LOCALHOST": false, "localhost.": false, "a.localhost": false,
		"0.0.0.0:8000": false, "[::1]:80": false, "[::]:80": false, "[::ffff:127.0.0.1]:80": false,
		"10.0.0.1": true, "example.com": true, "localhost.example.com": true, "[fe80::1]": true,
	} {
		request, err := http.NewRequest(http.MethodPost, "http://"+host+"/v1/completions", nil)
		if err != nil {
			t.Fatal(err)
		}
		got, err := abroad(proxy)(request)
		if err != nil || (got != nil) != want {
			t.Errorf("proxy of %s: %v, %v, want one: %t", host, got, err, want)
		}
	}
	if abroad(nil) != nil {
		t.Error("a proxy of nothing")
	}
	broken := Target{URL: "http://example.com", Proxy: func(*http.Request) (*url.URL, error) {
		return nil, fmt.Errorf(`invalid proxy address "http://me:hunter2@proxy:x"`)
	}}
	if _, err := runOn(t, broken, time.Second); err == nil || strings.Contains(err.Error(), "hunter2") || !strings.Contains(err.Error(), "load: target: proxy: ") {
		t.Errorf("error %v, want the proxy's without its password", err)
	}
}
