package load

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"servebench/sse"
	"servebench/verify"
)

// What the long forms of the tests set, see .ci/long.
var (
	ordealKills = flag.Int("kills", 0, "kill `N` runs at random moments; 0 means a few")
	ordealSeed  = flag.Uint64("seed", 1, "of the random moments")
	ordealServe = flag.String("serve", "", "measure the server at `PATH` instead of the one in testdata")
)

func TestMain(m *testing.M) {
	flag.Parse()
	flag.Set("test.benchtime", "1x") // of testing.Benchmark within the tests
	parallel := false
	flag.Visit(func(f *flag.Flag) { parallel = parallel || f.Name == "test.parallel" })
	if !parallel && *ordealServe == "" {
		flag.Set("test.parallel", "6") // they wait more than they compute
	}
	code := m.Run()
	os.RemoveAll(fakeDir)
	os.Exit(code)
}

var fakeDir string // removed by TestMain

var buildFake = sync.OnceValues(func() (program string, err error) {
	if fakeDir, err = os.MkdirTemp("", "servebench-load-"); err != nil {
		return "", err
	}
	program = filepath.Join(fakeDir, "fakeserve")
	if out, err := exec.Command("go", "build", "-o", program, "./testdata/fakeserve").CombinedOutput(); err != nil {
		return "", fmt.Errorf("%w\n%s", err, out)
	}
	return program, nil
})

// fake returns options for the server in testdata.
func fake(t testing.TB, args ...string) ServerOptions {
	t.Helper()
	program, err := buildFake()
	if err != nil {
		t.Fatal(err)
	}
	return ServerOptions{Path: program, Dir: t.TempDir(), Name: "fake", Args: append([]string{"-corpus", writeCorpus(t)}, args...)}
}

// corpus is four prompts of three ids, one of them a warmup.
func corpus() []verify.Prompt {
	var out []verify.Prompt
	for i := range 4 {
		text := fmt.Sprintf("prompt %d", i)
		out = append(out, verify.Prompt{ID: fmt.Sprint(i), Input: 3, Warmup: i == 3, Text: text, IDs: []int32{int32(i), 5, 6}, SHA256: sum(text)})
	}
	return out
}

func writeCorpus(t testing.TB) string {
	t.Helper()
	var data []byte
	for _, p := range corpus() {
		line, err := json.Marshal(&p)
		if err != nil {
			t.Fatal(err)
		}
		data = append(append(data, line...), '\n')
	}
	path := filepath.Join(t.TempDir(), "corpus.jsonl")
	if err := os.WriteFile(path, data, 0o666); err != nil {
		t.Fatal(err)
	}
	return path
}

func newRun(t testing.TB) *Run {
	t.Helper()
	data, err := os.ReadFile(writeCorpus(t))
	if err != nil {
		t.Fatal(err)
	}
	c, err := verify.ReadCorpus("corpus.jsonl", data)
	if err != nil {
		t.Fatal(err)
	}
	run, err := NewRun(Options{Dir: t.TempDir(), Source: ".", Flags: []verify.Flag{}, Corpus: c})
	if err != nil {
		t.Fatal(err)
	}
	return run
}

var cellOfTests = Cell{Conc: 2, Prompts: []string{"0", "1", "2"}, Warmups: []string{"3"}, OutputTokens: 5, ExactOutput: true}

func TestRun(t *testing.T) {
	run := newRun(t)
	server, err := StartServer(t.Context(), fake(t))
	if err != nil {
		t.Fatal(err)
	}
	defer server.Stop()
	if err := run.AddServer(server); err != nil {
		t.Fatal(err)
	}
	result := testing.Benchmark(func(b *testing.B) { run.Benchmark(b, cellOfTests) })
	end, err := run.Close()
	if end == nil || end.Report == nil || len(end.Report.Results) != 1 {
		t.Fatalf("Close() = %+v, %v", end, err)
	}
	// testing.Benchmark gives its function no name, which the plan must have.
	if want := `name ""`; err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("Close() gives %v, want the missing name as the only problem", err)
	}
	if n := len(end.Report.Problems); n != 1 {
		t.Errorf("%d problems, want 1: %v", n, end.Report.Problems)
	}
	for _, m := range end.Report.Results[0].Configuration.Metrics {
		if result.Extra[m.Unit] != m.Value {
			t.Errorf("%s: reported %v, recorded %v", m.Unit, result.Extra[m.Unit], m.Value)
		}
	}
	if n := end.Report.Trailer.Tokens; n != 4*5 {
		t.Errorf("%d tokens, want 20", n)
	}
}

func TestRunUnknownPrompt(t *testing.T) {
	server, err := StartServer(t.Context(), fake(t))
	if err != nil {
		t.Fatal(err)
	}
	defer server.Stop()
	run := newRun(t)
	defer run.Close()
	if err := run.AddServer(server); err != nil {
		t.Fatal(err)
	}
	cell := cellOfTests
	cell.Prompts = []string{"0", "nine"}
	if result := testing.Benchmark(func(b *testing.B) { run.Benchmark(b, cell) }); result.N != 0 {
		t.Errorf("%d iterations of a configuration with an unknown prompt", result.N)
	}
}

// A server that goes silent ends the run by the idle limit, not by luck; one
// that dies ends it at once.
func TestServerDies(t *testing.T) {
	run := newRun(t)
	server, err := StartServer(t.Context(), fake(t, "-ill", "half", "-after", "0"))
	if err != nil {
		t.Fatal(err)
	}
	if err := run.AddServer(server); err != nil {
		t.Fatal(err)
	}
	time.AfterFunc(200*time.Millisecond, func() { server.command.Process.Kill() })
	begin := time.Now()
	testing.Benchmark(func(b *testing.B) { run.Benchmark(b, cellOfTests) })
	if d := time.Since(begin); d > time.Minute {
		t.Errorf("it took %v to notice a dead server", d)
	}
	end, _ := run.Close()
	if len(end.Invalid) != 1 || end.Report.Results[0].Configuration.Valid {
		t.Fatalf("invalid: %q, want the configuration", end.Invalid)
	}
	if reasons := strings.Join(end.Report.Results[0].Configuration.Reasons, "\n"); !strings.Contains(reasons, "signal: killed") {
		t.Errorf("reasons %q, want the signal", reasons)
	}
}

// Answers that the server has no record of have one witness: they give no
// numbers.
func TestServerForgets(t *testing.T) {
	t.Parallel() // it waits for the records
	run := newRun(t)
	server, err := StartServer(t.Context(), fake(t, "-ill", "forget"))
	if err != nil {
		t.Fatal(err)
	}
	defer server.Stop()
	if err := run.AddServer(server); err != nil {
		t.Fatal(err)
	}
	if result := testing.Benchmark(func(b *testing.B) { run.Benchmark(b, cellOfTests) }); len(result.Extra) > 0 {
		t.Errorf("metrics %v with one witness", result.Extra)
	}
	end, _ := run.Close()
	if reasons := end.Report.Results[0].Configuration.Reasons; len(reasons) != 1 || reasons[0] != "load: the server logged 0 of 4 requests, 5s after the last had ended" {
		t.Errorf("reasons %q, want the missing records", reasons)
	}
}

func TestStartServerFails(t *testing.T) {
	for _, test := range []struct{ ill, want string }{
		{"dead", "it ended before it was ready (exit status 1)\n"},
		{"deaf", "not ready after 300ms"},
	} {
		o := fake(t, "-ill", test.ill)
		o.Timeout = 300 * time.Millisecond
		if test.ill == "dead" {
			o.Timeout = 0
		}
		p, err := StartServer(t.Context(), o)
		if err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("StartServer(%s) = %v, %v, want %q", test.ill, p, err, test.want)
		}
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(errors.New("no more"))
	if _, err := StartServer(ctx, fake(t, "-ill", "deaf")); err == nil || !strings.Contains(err.Error(), "no more") {
		t.Errorf("StartServer with an ended context gives %v", err)
	}
}

// orphanage, run as a process of its own, starts a server and waits.
func TestOrphanage(t *testing.T) {
	if os.Getenv("SERVEBENCH_ORPHANAGE") == "" {
		t.Skip("only for TestNoOrphan")
	}
	server, err := StartServer(t.Context(), fake(t))
	if err != nil {
		t.Fatal(err)
	}
	fmt.Printf("server %d\n", server.Ready.Server.PID)
	select {}
}

func TestNoOrphan(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("no kill -9")
	}
	parent := exec.Command(os.Args[0], "-test.run=^TestOrphanage$", "-test.v")
	parent.Env = append(os.Environ(), "SERVEBENCH_ORPHANAGE=1", "TMPDIR="+t.TempDir())
	out, err := parent.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := parent.Start(); err != nil {
		t.Fatal(err)
	}
	var pid int
	for line := make([]byte, 0, 1000); pid == 0; {
		buf := make([]byte, 100)
		n, err := out.Read(buf)
		line = append(line, buf[:n]...)
		if _, rest, found := bytes.Cut(line, []byte("server ")); found && bytes.IndexByte(rest, '\n') > 0 {
			fmt.Sscan(string(rest), &pid)
		}
		if err != nil {
			t.Fatalf("%v after %q", err, line)
		}
	}
	parent.Process.Signal(syscall.SIGKILL)
	parent.Wait()
	for begin := time.Now(); syscall.Kill(pid, 0) == nil; time.Sleep(10 * time.Millisecond) {
		if time.Since(begin) > 20*time.Second {
			syscall.Kill(pid, syscall.SIGKILL)
			t.Fatalf("the server (pid %d) outlives its parent", pid)
		}
	}
}

func TestReadLog(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log")
	p := &Process{log: path}
	read := func(want ...string) {
		t.Helper()
		list, err := p.readLog()
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, s := range list {
			got = append(got, s.ID)
		}
		if strings.Join(got, " ") != strings.Join(want, " ") {
			t.Errorf("readLog() = %q, want %q", got, want)
		}
	}
	read()
	write := func(text string) {
		t.Helper()
		file, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o666)
		if err != nil {
			t.Fatal(err)
		}
		defer file.Close()
		if _, err := file.WriteString(text); err != nil {
			t.Fatal(err)
		}
	}
	write(`{"kind":"served","id":"a"}` + "\n" + `{"kind":"served",`)
	read("a")
	read()
	write(`"id":"b"}` + "\n")
	read("b")
	write("nonsense\n")
	if _, err := p.readLog(); err == nil || !strings.Contains(err.Error(), "server's log at byte 54") {
		t.Errorf("readLog() of nonsense gives %v", err)
	}
}

func TestMemory(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("only Linux tells")
	}
	clock := sse.NewClock()
	var records []*verify.Memory
	m := watchMemory(os.Getpid(), 7, clock, func(r *verify.Memory) { records = append(records, r) })
	ballast := make([]byte, 64<<20)
	for i := 0; i < len(ballast); i += 512 {
		ballast[i] = 1
	}
	time.Sleep(2 * sampleEvery)
	peak, source := m.end()
	runtime.KeepAlive(ballast)
	if peak < 64<<20 || source != "VmHWM" {
		t.Errorf("peak %d from %q, want at least the ballast, from VmHWM", peak, source)
	}
	if len(records) != 1 || records[0].Config != 7 || len(records[0].TimeNS) < 3 {
		t.Fatalf("records %+v, want one with 3 samples or more", records)
	}
	if _, source := watchMemory(1<<22+1, 7, clock, func(*verify.Memory) {}).end(); source != verify.Unmeasured {
		t.Errorf("the peak of no process is from %q", source)
	}
}

func TestCountList(t *testing.T) {
	for list, want := range map[string]int{"0": 1, "0-3": 4, "0-1,4,6-7": 5, "": 0, "x": 0} {
		if got := countList(list); got != want {
			t.Errorf("countList(%q) = %d, want %d", list, got, want)
		}
	}
}

func TestJudge(t *testing.T) {
	prompt := &verify.Prompt{Input: 2, IDs: []int32{1, 2}}
	good := func() *verify.Request {
		return &verify.Request{
			OutputTokens: 1, EventNS: []int64{5, 6, 6}, EventKinds: "cod", EventIDs: []int{1, 0, 0}, TokenIDs: []int32{9}, PromptIDs: []int32{1, 2},
			Usage: &verify.Usage{PromptTokens: 2, CompletionTokens: 1}, Finish: "length",
		}
	}
	for _, test := range []struct {
		name  string
		spoil func(*verify.Request)
		class string
	}{
		{"good", func(r *verify.Request) {}, ""},
		{"no usage", func(r *verify.Request) { r.Usage = nil }, verify.FailUsage},
		{"another count", func(r *verify.Request) { r.Usage.PromptTokens = 3 }, verify.FailPrompt},
		{"no ids", func(r *verify.Request) { r.EventIDs, r.TokenIDs = nil, nil }, verify.FailReply},
		{"no prompt ids", func(r *verify.Request) { r.PromptIDs = nil }, verify.FailReply},
		{"other prompt ids", func(r *verify.Request) { r.PromptIDs[1] = 3 }, verify.FailPrompt},
		{"too short", func(r *verify.Request) { r.OutputTokens = 2 }, verify.FailShort},
		{"stopped", func(r *verify.Request) { r.Finish = "stop" }, verify.FailShort},
		{"no end", func(r *verify.Request) { r.EventNS, r.EventKinds, r.EventIDs = r.EventNS[:2], "co", r.EventIDs[:2] }, verify.FailStream},
		{"two ids in one event", func(r *verify.Request) {
			r.OutputTokens, r.Usage.CompletionTokens, r.TokenIDs, r.EventIDs[0] = 2, 2, []int32{9, 8}, 2
		}, verify.FailStream},
		{"failed before", func(r *verify.Request) { r.Failure = &verify.Failure{Class: "x"}; r.Usage = nil }, "x"},
	} {
		r := good()
		test.spoil(r)
		judge(r, prompt, true)
		class := ""
		if r.Failure != nil {
			class = r.Failure.Class
		}
		if class != test.class {
			t.Errorf("%s: class %q, want %q", test.name, class, test.class)
		}
	}
}

func sum(text string) string {
	s := sha256.Sum256([]byte(text))
	return hex.EncodeToString(s[:])
}
