package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"servebench/smol/graph"
	"servebench/sse"
	"servebench/verify"
)

// The program is tested as a process: this binary, started again with
// childEnv set, is it.
const childEnv = "SERVE_TEST_CHILD"

func TestMain(m *testing.M) {
	if os.Getenv(childEnv) != "" {
		main()
	}
	os.Exit(m.Run())
}

// limit is how long a test waits for what should come at once.
const limit = time.Minute

// process is the program, started.
type process struct {
	t       *testing.T
	command *exec.Cmd
	stdin   io.WriteCloser
	ready   *bufio.Reader // what it writes to -ready-fd
	output  bytes.Buffer  // standard output and error; read it after wait
	log     string        // path
	url     string        // once it is ready
	ended   chan error
}

// tinyModel writes the model of the tests and returns its directory.
func tinyModel(t *testing.T) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "model")
	if _, err := graph.WriteTiny(dir, graph.Options{}); err != nil {
		t.Fatal(err)
	}
	return dir
}

// start starts the program with what a benchmark gives it, and args.
func start(t *testing.T, args ...string) *process {
	t.Helper()
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	library, err := filepath.Abs("../native/v1/libonnxruntime.so")
	if err != nil {
		t.Fatal(err)
	}
	p := &process{t: t, ended: make(chan error, 1), log: filepath.Join(t.TempDir(), "served.jsonl")}
	args = append([]string{"-library", library, "-ready-fd", "3", "-log", p.log, "-exit-with-stdin", "-threads", "1"}, args...)
	p.command = exec.Command(program, args...)
	p.command.Env = append(os.Environ(), childEnv+"=1")
	p.command.Stdout, p.command.Stderr = &p.output, &p.output
	p.command.WaitDelay = limit
	read, write, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	p.command.ExtraFiles = []*os.File{write}
	if p.stdin, err = p.command.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	if err := p.command.Start(); err != nil {
		t.Fatal(err)
	}
	write.Close()
	p.ready = bufio.NewReader(read)
	go func() { p.ended <- p.command.Wait() }()
	t.Cleanup(func() { p.command.Process.Kill(); read.Close() })
	return p
}

// wait returns the exit status and what the program printed.
func (p *process) wait() (status int, output string) {
	p.t.Helper()
	select {
	case <-p.ended:
		return p.command.ProcessState.ExitCode(), p.output.String()
	case <-time.After(limit):
		p.t.Fatalf("the program still runs after %v", limit)
		return 0, ""
	}
}

// readReady returns the program's ready line.
func (p *process) readReady() sse.Ready {
	p.t.Helper()
	line, err := p.ready.ReadBytes('\n')
	if err != nil {
		_, output := p.wait()
		p.t.Fatalf("no ready line (%v); it printed %q", err, output)
	}
	var r sse.Ready
	if err := json.Unmarshal(line, &r); err != nil {
		p.t.Fatalf("ready line %q: %v", line, err)
	}
	if rest, err := io.ReadAll(p.ready); err != nil || len(rest) > 0 {
		p.t.Errorf("after the ready line: %q, %v; want the end", rest, err)
	}
	p.url = "http://" + r.Addr
	return r
}

// post asks for an answer, on a connection of its own.
func (p *process) post(id, body string) *http.Response {
	p.t.Helper()
	req, err := http.NewRequest("POST", p.url+"/v1/completions", strings.NewReader(body))
	if err != nil {
		p.t.Fatal(err)
	}
	req.Header.Set("X-Request-Id", id)
	resp, err := (&http.Transport{DisableKeepAlives: true, Proxy: nil}).RoundTrip(req)
	if err != nil {
		p.t.Fatal(err)
	}
	return resp
}

// served reads the log.
func (p *process) served() (all []verify.Served) {
	p.t.Helper()
	content, err := os.ReadFile(p.log)
	if err != nil {
		p.t.Fatal(err)
	}
	for line := range bytes.Lines(content) {
		var s verify.Served
		if err := json.Unmarshal(line, &s); err != nil || !bytes.HasSuffix(line, []byte("\n")) {
			p.t.Fatalf("line %q of the log: %v", line, err)
		}
		all = append(all, s)
	}
	return all
}

func TestServe(t *testing.T) {
	dir := tinyModel(t)
	manifest, err := graph.ReadManifest(dir)
	if err != nil {
		t.Fatal(err)
	}
	clock := sse.NewClock()
	before := clock.Absolute(clock.Now())
	p := start(t, "-model", dir, "-context", "200", "-spin", "off")
	r := p.readReady()
	s := r.Server
	if s.PID != p.command.Process.Pid || s.Go != runtime.Version() || s.IntraThreads != 1 || s.InterThreads != 1 || s.Spinning ||
		s.Slots != 1 || s.ContextLimit != 200 || s.LoadNS <= 0 || s.LoadNS > int64(limit) {
		t.Errorf("ready: %+v, want this process with 1 thread, no spinning, 1 slot and a context of 200", s)
	}
	if s.ClockErrorNS < 1 || s.ClockErrorNS > 1_000_000 {
		t.Errorf("ready: clock_error_ns %d, want what its clock is known to within, 1 to 1000000", s.ClockErrorNS)
	}
	if s.Model.ID != manifest.ID || len(s.Model.Files) != len(manifest.Files) || len(s.Libraries) == 0 {
		t.Errorf("ready: model %+v and libraries %+v, want what the manifest says and what was loaded", s.Model, s.Libraries)
	}

	resp := p.post("first", `{"prompt":[5,6,7],"max_tokens":20,"ignore_eos":true,"stream":true,"return_token_ids":true,"return_stamps":true}`)
	stream, err := io.ReadAll(resp.Body)
	resp.Body.Close()
	after := clock.Absolute(clock.Now())
	if err != nil || resp.StatusCode != 200 || !bytes.HasSuffix(stream, []byte("data: [DONE]\n\n")) {
		t.Fatalf("stream: %d %q, %v; want one that ends with [DONE]", resp.StatusCode, stream, err)
	}
	var ids []int32
	var stamps []int64
	for line := range strings.Lines(string(stream)) {
		var event struct {
			Choices []struct {
				TokenIDs []int32 `json:"token_ids"`
				StampNS  int64   `json:"stamp_ns"`
			}
		}
		if data, ok := strings.CutPrefix(line, "data: {"); ok {
			if err := json.Unmarshal([]byte("{"+data), &event); err != nil {
				t.Fatal(err)
			}
			ids = append(ids, event.Choices[0].TokenIDs...)
			stamps = append(stamps, event.Choices[0].StampNS)
		}
	}
	refused := p.post("second", `{"prompt":[512]}`)
	refused.Body.Close()

	// The stream has ended, so the log has it, though the server still runs.
	log := p.served()
	if len(log) != 2 {
		t.Fatalf("log = %+v, want 2 requests", log)
	}
	got := log[0]
	if got.ID != "first" || got.Error != "" || got.Steps != 20 || !reflect.DeepEqual(got.TokenIDs, ids) || !reflect.DeepEqual(got.TokenNS, stamps) || !reflect.DeepEqual(got.PromptIDs, []int32{5, 6, 7}) {
		t.Errorf("log = %+v, want ids %v with stamps %v", got, ids, stamps)
	}
	// Its stamps are on the clock of this process, in order.
	order := append([]int64{before, got.ArrivalNS, got.QueuedNS, got.SlotNS}, got.TokenNS...)
	order = append(order, got.ReleaseNS, after)
	slack := clock.Evidence().ErrorNS + int64(time.Millisecond)
	for i := 1; i < len(order); i++ {
		if order[i] < order[i-1]-slack {
			t.Errorf("stamps %v: place %d is before the one before it", order, i)
		}
	}
	if log[1].ID != "second" || log[1].Error != "400 token 0 of prompt is 512, want an id from 0 to 511" {
		t.Errorf("log = %+v, want the refused request", log[1])
	}

	if err := p.command.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if status, output := p.wait(); status != 0 || output != "" {
		t.Errorf("after SIGTERM: status %d, output %q; want 0 and none", status, output)
	}
}

// The tiny model's own chat template, from its manifest, makes the prompt.
func TestChat(t *testing.T) {
	p := start(t, "-model", tinyModel(t))
	p.readReady()
	ask := func(path, body string) (v struct {
		Tokens    []int32
		PromptIDs []int32 `json:"prompt_token_ids"`
		Choices   []struct {
			Message struct{ Role, Content string }
		}
	}) {
		resp, err := http.Post(p.url+path, "application/json", strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		b, _ := io.ReadAll(resp.Body)
		if err := json.Unmarshal(b, &v); err != nil || resp.StatusCode != 200 {
			t.Fatalf("POST %s %s: %d %s (%v)", path, body, resp.StatusCode, b, err)
		}
		return v
	}
	const conversation = `"messages":[{"role":"user","content":"Hi"}]`
	chat := ask("/v1/chat/completions", `{`+conversation+`,"max_tokens":3,"return_token_ids":true}`)
	text := ask("/tokenize", `{"prompt":"<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n"}`)
	same := ask("/tokenize", `{`+conversation+`}`)
	if len(chat.Choices) != 1 || chat.Choices[0].Message.Role != "assistant" {
		t.Errorf("choices = %+v, want one message of the assistant", chat.Choices)
	}
	if len(text.Tokens) == 0 || !reflect.DeepEqual(chat.PromptIDs, text.Tokens) || !reflect.DeepEqual(same.Tokens, text.Tokens) {
		t.Errorf("prompt ids %v, /tokenize of the messages %v, of their text %v; want the same", chat.PromptIDs, same.Tokens, text.Tokens)
	}
}

// The model reads the prompt that was sent, token for token: ids as they are,
// text as its tokens with nothing before it, not even where it names the
// token that begins a text.
func TestPromptIsExact(t *testing.T) {
	p := start(t, "-model", tinyModel(t))
	p.readReady()
	ask := func(prompt any) (ids []int32, count int) {
		body, err := json.Marshal(map[string]any{"prompt": prompt, "max_tokens": 1, "ignore_eos": true, "return_token_ids": true})
		if err != nil {
			t.Fatal(err)
		}
		resp := p.post("", string(body))
		defer resp.Body.Close()
		var v struct {
			Choices []struct {
				PromptIDs []int32 `json:"prompt_token_ids"`
			}
			Usage struct {
				PromptTokens int `json:"prompt_tokens"`
			}
		}
		b, _ := io.ReadAll(resp.Body)
		if err := json.Unmarshal(b, &v); err != nil || len(v.Choices) != 1 {
			t.Fatalf("%s: %s (%v), want an answer", body, b, err)
		}
		return v.Choices[0].PromptIDs, v.Usage.PromptTokens
	}
	for _, n := range []int{1, 2, 16, 64, 511} {
		want := make([]int32, n)
		for i := range want {
			want[i] = int32(3 + (i*7)%500)
		}
		if ids, count := ask(want); count != n || !reflect.DeepEqual(ids, want) {
			t.Errorf("%d ids: the server read %d, %v", n, count, ids)
		}
	}
	const bos = 1
	named, count := ask("<|im_start|>user\nHi")
	plain, _ := ask("user\nHi")
	if want := append([]int32{bos}, plain...); !reflect.DeepEqual(named, want) || count != len(want) {
		t.Errorf("a text that names the begin token is %v (%d), want %v", named, count, want)
	}
}

// A parent that is gone ends the server at once, an answer under way too.
func TestExitWithStdin(t *testing.T) {
	p := start(t, "-model", tinyModel(t))
	p.readReady()
	resp := p.post("cut", `{"prompt":[5,6,7],"max_tokens":500,"ignore_eos":true,"stream":true}`)
	defer resp.Body.Close()
	if _, err := resp.Body.Read(make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	p.stdin.Close()
	rest, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Errorf("the stream broke off: %v", err)
	}
	status, output := p.wait()
	if status != 0 || output != "" {
		t.Errorf("status %d, output %q; want 0 and none", status, output)
	}
	log := p.served()
	if len(log) != 1 {
		t.Fatalf("log = %+v, want the request", log)
	}
	// It may have been faster than the pipe.
	if whole := log[0].Error == ""; whole != bytes.HasSuffix(rest, []byte("data: [DONE]\n\n")) {
		t.Errorf("log says %q, the stream ends %q", log[0].Error, rest[max(0, len(rest)-200):])
	} else if !whole && !strings.HasPrefix(log[0].Error, "503 the server's parent is gone at token ") {
		t.Errorf("log says %q, want that the parent is gone", log[0].Error)
	}
}

func TestExitWithStdinWhileLoading(t *testing.T) {
	p := start(t, "-model", tinyModel(t))
	p.stdin.Close()
	if status, output := p.wait(); status != 0 || output != "" {
		t.Errorf("status %d, output %q; want 0 and none", status, output)
	}
}

// A signal lets requests under way finish and takes no new ones.
func TestSignalWaitsForAnswers(t *testing.T) {
	p := start(t, "-model", tinyModel(t))
	p.readReady()
	resp := p.post("last", `{"prompt":[5,6,7],"max_tokens":500,"ignore_eos":true,"stream":true}`)
	defer resp.Body.Close()
	if err := p.command.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	stream, err := io.ReadAll(resp.Body)
	if err != nil || !bytes.HasSuffix(stream, []byte("data: [DONE]\n\n")) {
		t.Errorf("the stream ends %q, %v; want it whole", stream[max(0, len(stream)-200):], err)
	}
	if status, output := p.wait(); status != 0 || output != "" {
		t.Errorf("status %d, output %q; want 0 and none", status, output)
	}
	if log := p.served(); len(log) != 1 || log[0].Error != "" || len(log[0].TokenIDs) != 500 {
		t.Errorf("log = %+v, want 500 tokens", log)
	}
}

// A log that can't be written ends the server: its answers have no witness.
func TestFullDisk(t *testing.T) {
	if _, err := os.Stat("/dev/full"); err != nil {
		t.Skip("no /dev/full on this system")
	}
	p := start(t, "-model", tinyModel(t), "-log", "/dev/full")
	p.readReady()
	resp := p.post("lost", `{"prompt":[5],"max_tokens":1}`)
	resp.Body.Close()
	status, output := p.wait()
	if want := "serve: -log: request lost can't be recorded: write /dev/full: no space left on device\n"; status != 1 || output != want {
		t.Errorf("status %d, output %q; want 1 and %q", status, output, want)
	}
}

// So does a limit on the size of files, and what was written is whole lines
// but for the last.
func TestFileSizeLimit(t *testing.T) {
	sh, err := exec.LookPath("sh")
	if err != nil {
		t.Skip("no sh on this system")
	}
	p := start(t, "-model", tinyModel(t))
	p.readReady()
	pid := p.command.Process.Pid
	if out, err := exec.Command(sh, "-c", fmt.Sprintf("prlimit --fsize=2000 --pid %d", pid)).CombinedOutput(); err != nil {
		t.Skipf("no prlimit on this system: %s", out)
	}
	for i := range 20 {
		req, err := http.NewRequest("POST", p.url+"/v1/completions", strings.NewReader(`{"prompt":[5],"max_tokens":4,"ignore_eos":true}`))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("X-Request-Id", fmt.Sprint("r", i))
		resp, err := (&http.Transport{DisableKeepAlives: true}).RoundTrip(req)
		if err != nil {
			break // it has ended
		}
		resp.Body.Close()
	}
	status, output := p.wait()
	if status != 1 || !strings.HasPrefix(output, "serve: -log: request r") || !strings.HasSuffix(output, ": file too large\n") {
		t.Errorf("status %d, output %q; want 1 and that a request can't be recorded", status, output)
	}
	content, err := os.ReadFile(p.log)
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.SplitAfter(string(content), "\n")
	for _, line := range lines[:len(lines)-1] {
		if !json.Valid([]byte(line)) {
			t.Errorf("line %q of the log isn't whole", line)
		}
	}
	if len(lines) < 3 {
		t.Errorf("log = %q, want some whole lines", content)
	}
}

// A head of more than the bound is refused without being read on.
func TestHeadLimit(t *testing.T) {
	p := start(t, "-model", tinyModel(t))
	p.readReady()
	req, err := http.NewRequest("GET", p.url+"/healthz", nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("X-Long", strings.Repeat("x", 64<<10))
	resp, err := (&http.Transport{DisableKeepAlives: true}).RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if resp.StatusCode != http.StatusRequestHeaderFieldsTooLarge {
		t.Errorf("status %d, want %d", resp.StatusCode, http.StatusRequestHeaderFieldsTooLarge)
	}
}

// What goes wrong before the server is ready: the reason is the last line of
// its output, and the ready descriptor is closed without a line.
func TestFailures(t *testing.T) {
	dir := tinyModel(t)
	busy, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer busy.Close()
	broken := tinyModel(t)
	if err := os.Truncate(filepath.Join(broken, graph.TokenizerFile), 10); err != nil {
		t.Fatal(err)
	}
	tests := []struct {
		name   string
		args   []string
		status int
		want   string // in the last line
	}{
		{"unknown flag", []string{"-nonsense"}, 2, "flag provided but not defined: -nonsense"},
		{"not a flag", []string{"-model", dir, "extra"}, 2, `argument "extra" isn't a flag`},
		{"threads below 0", []string{"-model", dir, "-threads", "-1"}, 2, "-threads -1, want 0 or more"},
		{"more threads than CPUs", []string{"-model", dir, "-threads", "100000"}, 1, "IntraThreads 100000"},
		{"context below 0", []string{"-model", dir, "-context", "-1"}, 2, "-context -1, want 0 or more"},
		{"context above the model's", []string{"-model", dir, "-context", "513"}, 1, "Context 513"},
		{"spin as a number", []string{"-model", dir, "-spin", "1"}, 2, `"1", want default, on or off`},
		{"all addresses", []string{"-model", dir, "-listen", ":0"}, 2, `-listen ":0" isn't a loopback address`},
		{"another address", []string{"-model", dir, "-listen", "192.0.2.1:0"}, 2, "other machines could use the server; if they shall, add -public"},
		{"no address", []string{"-model", dir, "-listen", "nonsense"}, 2, `-listen "nonsense": `},
		{"busy port", []string{"-model", dir, "-listen", busy.Addr().String()}, 1, "address already in use"},
		{"no such descriptor", []string{"-model", dir, "-ready-fd", "77"}, 1, "-ready-fd 77 isn't open"},
		{"standard output as descriptor", []string{"-model", dir, "-ready-fd", "1"}, 2, "-ready-fd 1, want one above 2"},
		{"no model", []string{"-model", filepath.Join(dir, "nothing")}, 1, "smol/setup"},
		{"truncated model", []string{"-model", broken}, 1, graph.TokenizerFile},
		{"no library", []string{"-model", dir, "-library", filepath.Join(dir, "lib.so")}, 1, "lib.so"},
		{"log in no directory", []string{"-model", dir, "-log", filepath.Join(dir, "no", "log")}, 1, "-log: open"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			p := start(t, test.args...)
			line, _ := p.ready.ReadString('\n')
			status, output := p.wait()
			last := output[strings.LastIndexByte(strings.TrimSuffix(output, "\n"), '\n')+1:]
			if status != test.status || !strings.HasPrefix(last, "serve: ") || !strings.Contains(last, test.want) || line != "" {
				t.Errorf("status %d, ready line %q, output %q; want %d, none, and a last line with %q", status, line, output, test.status, test.want)
			}
		})
	}
}

// Without -ready-fd a person starts it: the address is printed, nothing else.
func TestAddressIsPrinted(t *testing.T) {
	read, write := io.Pipe()
	library, err := filepath.Abs("../native/v1/libonnxruntime.so")
	if err != nil {
		t.Fatal(err)
	}
	stdin, closeStdin := io.Pipe()
	var stderr bytes.Buffer
	status := make(chan int)
	model := tinyModel(t)
	go func() {
		status <- run([]string{"-model", model, "-library", library, "-threads", "1", "-exit-with-stdin"}, stdin, write, &stderr)
	}()
	line, err := bufio.NewReader(read).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	url := strings.TrimSpace(line)
	resp, err := http.Get(url + "/healthz")
	if err != nil {
		t.Fatalf("printed %q: %v", line, err)
	}
	resp.Body.Close()
	if resp.StatusCode != 200 || !strings.HasPrefix(url, "http://127.0.0.1:") {
		t.Errorf("printed %q, which gives %d; want a loopback address with a healthy server", line, resp.StatusCode)
	}
	closeStdin.Close()
	if got := <-status; got != 0 || stderr.Len() > 0 {
		t.Errorf("status %d, stderr %q; want 0 and nothing", got, stderr.String())
	}
}

func TestHelp(t *testing.T) {
	var out bytes.Buffer
	if got := run([]string{"-h"}, nil, io.Discard, &out); got != 0 {
		t.Errorf("status %d, want 0", got)
	}
	for _, name := range []string{"model", "threads", "context", "listen", "ready-fd", "log", "exit-with-stdin"} {
		if !strings.Contains(out.String(), fmt.Sprintf("  -%s", name)) {
			t.Errorf("-h doesn't list -%s:\n%s", name, out.String())
		}
	}
}
