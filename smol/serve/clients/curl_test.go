package clients

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// curl's exit codes.
const (
	curlOK         = 0
	curlHTTPError  = 22 // with --fail-with-body
	curlWriteError = 23 // who reads its output is gone
	curlTimedOut   = 28
)

// curl is the program.
type curl struct {
	path    string
	version string // the first word after its name
	http2   bool   // it is built with HTTP/2
	url     string // the server's
	dir     string
}

func newCurl(t *testing.T, url string) curl {
	t.Helper()
	path, err := exec.LookPath("curl")
	if err != nil {
		skip(t, "curl", "it isn't in PATH: install the package curl with the system's package manager")
	}
	out, err := exec.Command(path, "-q", "--version").Output()
	words := strings.Fields(string(out))
	if err != nil || len(words) < 2 {
		t.Fatalf("%s --version: %q, %v", path, out, err)
	}
	return curl{path, words[1], strings.Contains(string(out), " HTTP2 "), url, t.TempDir()}
}

// reply is what curl gives.
type reply struct {
	exit   int
	proto  string // of the last response
	status int
	head   string // all heads, those of 1xx responses too
	body   []byte
	stderr string
}

// run posts body to path, with args before the URL. watch, if set, is given
// curl's output instead of the reply.
func (c curl) run(ctx context.Context, path string, body io.Reader, watch func(io.Reader) error, args ...string) (r reply, err error) {
	head := filepath.Join(c.dir, newID())
	// -q: a user's .curlrc isn't asked. NO_PROXY is set, --noproxy makes sure.
	all := []string{"-q", "-s", "-S", "-N", "--noproxy", "*", "-D", head}
	if body != nil {
		all = append(all, "-H", "Content-Type: application/json", "--data-binary", "@-")
	}
	cmd := exec.CommandContext(ctx, c.path, append(append(all, args...), c.url+path)...)
	cmd.Stdin = body
	var stdout, stderr bytes.Buffer
	cmd.Stderr = &stderr
	if watch == nil {
		cmd.Stdout = &stdout
		err = cmd.Run()
	} else {
		var pipe io.ReadCloser
		if pipe, err = cmd.StdoutPipe(); err != nil {
			return r, err
		}
		if err = cmd.Start(); err != nil {
			return r, err
		}
		watched := watch(pipe)
		pipe.Close()
		if err = cmd.Wait(); err == nil {
			err = watched
		}
	}
	if e := new(exec.ExitError); errors.As(err, &e) && e.Exited() {
		r.exit = e.ExitCode()
	} else if err != nil {
		return r, fmt.Errorf("curl: %w: %s", err, stderr.Bytes())
	}
	r.body, r.stderr = stdout.Bytes(), stderr.String()
	if content, err := os.ReadFile(head); err == nil {
		r.head = string(content)
	}
	for line := range strings.Lines(r.head) {
		if strings.HasPrefix(line, "HTTP/") {
			if _, err := fmt.Sscanf(line, "%s %d", &r.proto, &r.status); err != nil {
				return r, fmt.Errorf("curl: status line %q: %w", line, err)
			}
		}
	}
	return r, nil
}

func (c curl) ask(ctx context.Context, q question) (answer, error) {
	body, err := json.Marshal(q.body)
	if err != nil {
		return answer{}, err
	}
	var output bytes.Buffer
	watch := func(r io.Reader) error {
		if q.first != nil {
			if err := firstEvent(io.TeeReader(r, &output)); err != nil {
				return err
			}
			q.first()
		}
		_, err := io.Copy(&output, r)
		return err
	}
	r, err := c.run(ctx, q.path(), bytes.NewReader(body), watch, "-H", "X-Request-Id: "+q.id)
	if err != nil {
		return answer{}, err
	}
	if r.exit != curlOK {
		return answer{}, fmt.Errorf("curl exits with %d: %s", r.exit, r.stderr)
	}
	return readAnswer(r.status, output.Bytes(), q.stream())
}

// firstEvent reads a stream up to the end of its first event's line, and no
// more than comes with it.
func firstEvent(r io.Reader) error {
	line, err := bufio.NewReaderSize(r, 16).ReadString('\n')
	if err != nil || !strings.HasPrefix(line, "data: {") {
		return fmt.Errorf("curl: the stream begins %q (%w), want data: {…}", line, err)
	}
	return nil
}

// leave closes the pipe that curl writes to, as head does.
func (c curl) leave(q question) error {
	body, err := json.Marshal(q.body)
	if err != nil {
		return err
	}
	r, err := c.run(context.Background(), q.path(), bytes.NewReader(body), firstEvent, "-H", "X-Request-Id: "+q.id)
	if err == nil && r.exit != curlWriteError && r.exit != curlOK {
		err = fmt.Errorf("curl exits with %d: %s", r.exit, r.stderr)
	}
	return err
}

func TestCurl(t *testing.T) {
	t.Logf("curl %s", newCurl(t, "").version)
	testClient(t, func(t *testing.T, url string) client { return newCurl(t, url) })
}

// However curl is told to speak, it gets the same answer.
func TestCurlWays(t *testing.T) {
	s := sharedServer(t)
	c := newCurl(t, s.url)
	const (
		chunked = "Transfer-Encoding: chunked"
		length  = "Content-Length: "
		goesOn  = "100 Continue"
		tokens  = 5
	)
	tests := []struct {
		name  string
		args  []string
		pad   int // bytes of white space around the body
		proto string
		heads []string // in a stream's heads
		none  []string // and not
	}{
		{"as it is", nil, 0, "HTTP/1.1", []string{chunked}, []string{goesOn, length}},
		{"HTTP/1.0", []string{"--http1.0"}, 0, "HTTP/1.0", nil, []string{chunked, length}},
		{"HTTP/2 is offered", []string{"--http2"}, 0, "HTTP/1.1", []string{chunked}, nil},
		{"gzip is welcome", []string{"--compressed"}, 0, "HTTP/1.1", []string{chunked}, []string{"Content-Encoding"}},
		{"a chunked body", []string{"-H", chunked}, 0, "HTTP/1.1", []string{chunked}, nil},
		{"a large chunked body", []string{"-H", chunked}, 1_000_000, "HTTP/1.1", []string{chunked}, nil},
		{"a large body", nil, 1_000_000, "HTTP/1.1", []string{chunked}, nil},
		{"a large body that waits", []string{"-H", "Expect: 100-continue", "--expect100-timeout", "60"}, 1_000_000, "HTTP/1.1", []string{goesOn, chunked}, nil},
		{"a connection of its own", []string{"-H", "Connection: close"}, 0, "HTTP/1.1", []string{"Connection: close"}, nil},
		{"no content type", []string{"-H", "Content-Type:"}, 0, "HTTP/1.1", []string{chunked}, nil},
		{"a key", []string{"-H", "Authorization: Bearer none"}, 0, "HTTP/1.1", []string{chunked}, nil},
	}
	for _, q := range []question{completion(s.model, letters, tokens), conversation(s.model, letters, tokens)} {
		q := q.with(map[string]any{"ignore_eos": true})
		want, err := s.reference(q)
		if err != nil {
			t.Fatal(err)
		}
		for _, test := range tests {
			t.Run(q.path()+"/"+test.name, func(t *testing.T) {
				if !c.http2 && strings.Contains(test.name, "HTTP/2") {
					skip(t, "curl", "it is built without HTTP/2")
				}
				for _, stream := range []bool{false, true} {
					q := q.with(map[string]any{"stream": stream})
					want := want
					heads, none := []string{length, "Content-Type: application/json"}, []string{chunked}
					if stream {
						want.PromptTokens, want.AnswerTokens, want.Events = 0, 0, tokens
						heads, none = append(test.heads, "Content-Type: text/event-stream; charset=utf-8"), test.none
					}
					body, err := json.Marshal(q.body)
					if err != nil {
						t.Fatal(err)
					}
					body = append(body, bytes.Repeat([]byte(" "), test.pad)...)
					begin := time.Now()
					r, err := c.run(t.Context(), q.path(), bytes.NewReader(body), nil, append(test.args, "-H", "X-Request-Id: "+q.id)...)
					if err != nil {
						t.Fatal(err)
					}
					if r.exit != curlOK || r.status != http.StatusOK || r.proto != test.proto || r.stderr != "" {
						t.Fatalf("stream %v: exit %d, %s %d, %q; want 0, %s 200 and no word", stream, r.exit, r.proto, r.status, r.stderr, test.proto)
					}
					for _, h := range append(heads, "X-Request-Id: "+q.id) {
						if !strings.Contains(r.head, h) {
							t.Errorf("stream %v: the head lacks %q: %q", stream, h, r.head)
						}
					}
					for _, h := range none {
						if strings.Contains(r.head, h) {
							t.Errorf("stream %v: the head has %q: %q", stream, h, r.head)
						}
					}
					got, err := readAnswer(r.status, r.body, stream)
					if err != nil || got != want {
						t.Errorf("stream %v: %+v, %v; want %+v", stream, got, err, want)
					}
					if took := time.Since(begin); took > limit/4 {
						t.Errorf("stream %v: it took %v: somebody waits", stream, took)
					}
				}
			})
		}
	}
}

// A time limit of curl's own ends it midway, and the server with it.
func TestCurlMaxTime(t *testing.T) {
	s := sharedServer(t)
	c := newCurl(t, s.url)
	seconds := "0.5"
	if !s.real {
		seconds = "0.03"
	}
	testLeaving(t, s, func(q question) error {
		body, err := json.Marshal(q.body)
		if err != nil {
			return err
		}
		r, err := c.run(t.Context(), q.path(), bytes.NewReader(body), nil, "-H", "X-Request-Id: "+q.id, "--max-time", seconds)
		if err == nil && r.exit != curlTimedOut && (s.real || r.exit != curlOK) {
			err = fmt.Errorf("curl exits with %d: %s", r.exit, r.stderr)
		}
		return err
	})
}

// Errors have their status, on the outside of the protocol too.
func TestCurlErrors(t *testing.T) {
	s := sharedServer(t)
	c := newCurl(t, s.url)
	const text, talk, tokens = "/v1/completions", "/v1/chat/completions", "/tokenize"
	tests := []struct {
		name, path, body string // without a body it is a GET
		args             []string
		status           int
		code, param      string
	}{
		{"nothing there", "/v1/embeddings", `{}`, nil, 404, "not_found", ""},
		{"the root", "/", "", nil, 404, "not_found", ""},
		{"a method", text, "", nil, 405, "method_not_allowed", ""},
		{"a method of a chat", talk, "", nil, 405, "method_not_allowed", ""},
		{"a method of the models", "/v1/models", `{}`, nil, 405, "method_not_allowed", ""},
		{"another model", "/v1/models/no-such-model", "", nil, 404, "model_not_found", "model"},
		{"no JSON", text, `{"prompt":`, nil, 400, "invalid_json", ""},
		{"no JSON for a chat", talk, `{"messages":`, nil, 400, "invalid_json", ""},
		{"no prompt", text, `{}`, nil, 400, "missing_required_parameter", "prompt"},
		{"no messages", talk, `{}`, nil, 400, "missing_required_parameter", "messages"},
		{"a form", text, `prompt=Hi&max_tokens=2`, []string{"-H", "Content-Type: application/x-www-form-urlencoded"}, 400, "invalid_json", ""},
		{"a large body", text, `{"prompt":"` + strings.Repeat("x", 3<<20) + `"}`, nil, 413, "body_too_large", ""},
		{"a large chunked body", talk, strings.Repeat(" ", 3<<20), []string{"-H", "Transfer-Encoding: chunked"}, 413, "body_too_large", ""},
		{"a large body over HTTP/1.0", text, strings.Repeat(" ", 3<<20), []string{"--http1.0"}, 413, "body_too_large", ""},
		{"a packed body", text, "\x1f\x8b", []string{"-H", "Content-Encoding: gzip"}, 415, "unsupported_encoding", ""},
		{"a long prompt", text, `{"prompt":[` + strings.Repeat("5,", s.context) + `5]}`, nil, 400, "context_length_exceeded", "prompt"},
		{"a long chat", talk, `{"messages":[{"role":"user","content":"` + strings.Repeat("one two ", s.context) + `"}]}`, nil, 400, "context_length_exceeded", "messages"},
		{"tokens of nothing", tokens, `{}`, nil, 400, "missing_required_parameter", "prompt"},
		{"tokens with a special one", tokens, `{"prompt":"Hi","add_special_tokens":true}`, nil, 400, "unsupported_value", "add_special_tokens"},
		{"tokens with their texts", tokens, `{"prompt":"Hi","return_token_strs":true}`, nil, 400, "unsupported_value", "return_token_strs"},
		{"tokens in another way", tokens, `{"prompt":"Hi","truncate":5}`, nil, 400, "unknown_parameter", "truncate"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			var body io.Reader
			if test.body != "" {
				body = strings.NewReader(test.body)
			}
			r, err := c.run(t.Context(), test.path, body, nil, append(test.args, "--fail-with-body")...)
			if err != nil {
				t.Fatal(err)
			}
			f := new(failure)
			if err := readFailure(r.status, r.body); r.exit != curlHTTPError || !errors.As(err, &f) ||
				*f != (failure{test.status, "invalid_request_error", test.code, test.param, f.Message}) || f.Message == "" {
				t.Errorf("exit %d, %s, %v; want %d, and %d %s (%s)", r.exit, r.stderr, err, curlHTTPError, test.status, test.code, test.param)
			}
		})
	}
}

// /tokenize counts what a completion reads, and its ids ask for the same.
func TestCurlTokenize(t *testing.T) {
	s := sharedServer(t)
	c := newCurl(t, s.url)
	post := func(path string, body any, into any) {
		t.Helper()
		b, err := json.Marshal(body)
		if err != nil {
			t.Fatal(err)
		}
		r, err := c.run(t.Context(), path, bytes.NewReader(b), nil)
		if err != nil {
			t.Fatal(err)
		}
		if r.exit != curlOK || r.status != http.StatusOK {
			t.Fatalf("POST %s %s: exit %d, %d %s", path, b, r.exit, r.status, r.body)
		}
		if err := json.Unmarshal(r.body, into); err != nil {
			t.Fatal(err)
		}
	}
	type tokens struct {
		Count   int
		Context int `json:"max_model_len"`
		Tokens  []int
	}
	for _, text := range []string{"Hi", letters, "<|im_start|>user\n", " leading", "\n\n\n", "trailing "} {
		var byPrompt, byContent tokens
		post("/tokenize", map[string]any{"model": s.model, "prompt": text}, &byPrompt)
		post("/tokenize", map[string]any{"content": text}, &byContent)
		if byPrompt.Count == 0 || byPrompt.Count != len(byPrompt.Tokens) || byPrompt.Context != s.context || !jsonEqual(byPrompt, byContent) {
			t.Errorf("%q: %+v as prompt and %+v as content; want the same, counted, and context %d", text, byPrompt, byContent, s.context)
		}
		want, err := s.reference(completion(s.model, text, 4))
		if err != nil {
			t.Fatal(err)
		}
		got, err := s.ask(completion(s.model, byPrompt.Tokens, 4))
		if err != nil || got != want || got.PromptTokens != byPrompt.Count {
			t.Errorf("%q: its ids %v give %+v, %v; the text gives %+v", text, byPrompt.Tokens, got, err, want)
		}
	}
	talk := conversation(s.model, capital, 4)
	var byMessages tokens
	post("/tokenize", map[string]any{"messages": talk.body["messages"]}, &byMessages)
	want, err := s.reference(talk)
	if err != nil {
		t.Fatal(err)
	}
	got, err := s.ask(completion(s.model, byMessages.Tokens, 4))
	if err != nil || got.Text != want.Text || got.PromptTokens != want.PromptTokens || want.PromptTokens != byMessages.Count {
		t.Errorf("messages: their %d ids give %+v, %v; the chat gives %+v", byMessages.Count, got, err, want)
	}
	var empty tokens
	post("/tokenize", map[string]any{"prompt": ""}, &empty)
	if empty.Count != 0 || empty.Tokens == nil || len(empty.Tokens) > 0 {
		t.Errorf("the empty text: %+v, want no tokens", empty)
	}
}

// GET works as it does everywhere.
func TestCurlModels(t *testing.T) {
	s := sharedServer(t)
	c := newCurl(t, s.url)
	for _, path := range []string{"/v1/models", "/v1/models/" + s.model, "/healthz"} {
		r, err := c.run(t.Context(), path, nil, nil)
		if err != nil {
			t.Fatal(err)
		}
		if r.exit != curlOK || r.status != http.StatusOK || !json.Valid(r.body) || !strings.Contains(string(r.body), `"`+s.model+`"`) {
			t.Errorf("GET %s: exit %d, %d %s; want JSON with %q", path, r.exit, r.status, r.body, s.model)
		}
		h, err := c.run(t.Context(), path, nil, nil, "--head")
		if err != nil {
			t.Fatal(err)
		}
		if want := fmt.Sprintf("Content-Length: %d\r\n", len(r.body)); h.exit != curlOK || h.status != http.StatusOK || !strings.Contains(h.head, want) {
			t.Errorf("HEAD %s: exit %d, %d %q; want 200 and %q", path, h.exit, h.status, h.head, want)
		}
	}
}
