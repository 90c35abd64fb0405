package clients

import (
	"bufio"
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

var (
	modelFlag = flag.String("model", "", "serve the model in `DIR`, or tiny; by default the one of the set-up, or tiny where there is none")
	needFlag  = flag.String("need", "", "fail where one of these `clients`, separated by commas, would be skipped: curl, python")
)

const (
	root   = "../../.." // of the main module
	native = root + "/smol/native/v1"
	tiny   = "tiny"
)

// limit is how long a test waits for what should come at once, or in
// seconds on a slow machine.
const limit = 2 * time.Minute

// scratch is a directory for what outlives a single test.
var scratch string

func TestMain(m *testing.M) { os.Exit(testMain(m)) }

func testMain(m *testing.M) int {
	flag.Parse()
	if flag.NArg() > 0 {
		fmt.Fprintf(os.Stderr, "clients: argument %q, want flags only\n", flag.Arg(0))
		return 2
	}
	for name := range strings.SplitSeq(*needFlag, ",") {
		if !slices.Contains([]string{"", "curl", "python"}, name) {
			fmt.Fprintf(os.Stderr, "clients: -need %q, want curl or python; openai-go is always run\n", name)
			return 2
		}
	}
	// What the clients would take from the environment is not the server's.
	for _, v := range os.Environ() {
		if name, _, _ := strings.Cut(v, "="); strings.HasPrefix(name, "OPENAI_") {
			os.Unsetenv(name)
		}
	}
	os.Setenv("NO_PROXY", "127.0.0.1")
	os.Setenv("no_proxy", "127.0.0.1")

	var err error
	if scratch, err = os.MkdirTemp("", "clients-"); err != nil {
		fmt.Fprintln(os.Stderr, "clients:", err)
		return 1
	}
	defer os.RemoveAll(scratch)
	status := m.Run()
	for _, p := range sharedPython {
		if err := p.stop(); err != nil {
			fmt.Fprintln(os.Stderr, "clients:", err)
			status = 1
		}
	}
	if s := shared.server; s != nil {
		s.stop()
	}
	return status
}

// skip leaves a client out, or fails if -need names it.
func skip(t *testing.T, client, format string, args ...any) {
	t.Helper()
	if slices.Contains(strings.Split(*needFlag, ","), client) {
		t.Fatalf(client+" is needed: "+format, args...)
	}
	t.Skipf(client+" is skipped: "+format, args...)
}

// server is smol/serve, started.
type server struct {
	url     string // without a path
	model   string // the served model's id
	context int    // tokens of prompt and answer together
	real    bool   // the model can answer a question
	log     string // path

	command *exec.Cmd
	stdin   io.Closer
	ended   chan struct{}

	mu      sync.Mutex
	answers map[string]answer // by path and body
}

// shared is the server of all tests that don't stop theirs.
var shared struct {
	once   sync.Once
	server *server
	err    error
}

func sharedServer(t *testing.T) *server {
	t.Helper()
	shared.once.Do(func() { shared.server, shared.err = startServer() })
	if shared.err != nil {
		t.Fatal(shared.err)
	}
	return shared.server
}

// built is what a server is started from.
var built struct {
	once           sync.Once
	program, model string
	real           bool
	err            error
}

// build makes the program, and the tiny model if that is served.
func build() error {
	run := func(args ...string) error {
		c := exec.Command("go", args...)
		c.Dir = root
		c.Env = append(c.Environ(), "GOWORK=off")
		if out, err := c.CombinedOutput(); err != nil {
			return fmt.Errorf("clients: go %s in the main module: %w\n%s", strings.Join(args, " "), err, out)
		}
		return nil
	}
	built.program = filepath.Join(scratch, "serve")
	if err := run("build", "-buildvcs=false", "-o", built.program, "./smol/serve"); err != nil {
		return err
	}
	dir := *modelFlag
	if dir == "" {
		dir = native + "/model"
		if _, err := os.Stat(dir + "/model.json"); err != nil {
			dir = tiny
		}
	}
	if built.real = dir != tiny; !built.real {
		dir = filepath.Join(scratch, "model")
		if err := run("run", "smol/serve/clients/testdata/tinymodel/main.go", dir); err != nil {
			return err
		}
	}
	built.model = dir
	return nil
}

// startServer returns a server that is ready.
func startServer(args ...string) (*server, error) {
	built.once.Do(func() { built.err = build() })
	if built.err != nil {
		return nil, built.err
	}
	dir, err := os.MkdirTemp(scratch, "server-")
	if err != nil {
		return nil, err
	}
	s := &server{real: built.real, log: filepath.Join(dir, "served.jsonl"), ended: make(chan struct{})}
	args = append([]string{"-model", built.model, "-threads", "1", "-log", s.log, "-ready-fd", "3", "-exit-with-stdin"}, args...)
	if libraries, _ := filepath.Glob(native + "/libonnxruntime.*"); len(libraries) > 0 {
		args = append(args, "-library", libraries[0])
	}
	output, err := os.Create(filepath.Join(dir, "output"))
	if err != nil {
		return nil, err
	}
	defer output.Close()
	read, write, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer read.Close()
	s.command = exec.Command(built.program, args...)
	s.command.Stdout, s.command.Stderr = output, output
	s.command.ExtraFiles = []*os.File{write}
	if s.stdin, err = s.command.StdinPipe(); err != nil {
		return nil, err
	}
	err = s.command.Start()
	write.Close()
	if err != nil {
		return nil, err
	}
	go func() { s.command.Wait(); close(s.ended) }()
	line, err := bufio.NewReader(read).ReadBytes('\n')
	if err != nil {
		s.stop()
		said, _ := os.ReadFile(output.Name())
		return nil, fmt.Errorf("clients: serve %s isn't ready: %s", strings.Join(args, " "), said)
	}
	var ready struct{ Addr string }
	if err := json.Unmarshal(line, &ready); err != nil {
		s.stop()
		return nil, fmt.Errorf("clients: ready line %q: %w", line, err)
	}
	s.url = "http://" + ready.Addr
	var models struct {
		Data []struct {
			ID      string
			Context int `json:"max_model_len"`
		}
	}
	if err := s.get("/v1/models", &models); err != nil || len(models.Data) != 1 {
		s.stop()
		return nil, fmt.Errorf("clients: models %+v (%v), want one", models, err)
	}
	s.model, s.context = models.Data[0].ID, models.Data[0].Context
	return s, nil
}

// stop ends the server, whatever it does, and waits for its end.
func (s *server) stop() {
	s.stdin.Close()
	select {
	case <-s.ended:
	case <-time.After(limit):
		s.command.Process.Kill()
		<-s.ended
	}
}

// get reads a JSON answer with nothing but net/http.
func (s *server) get(path string, into any) error {
	resp, err := http.Get(s.url + path)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return err
	}
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("GET %s: %s: %s", path, resp.Status, body)
	}
	return json.Unmarshal(body, into)
}

// ask is the reference: net/http, and the answer read by its protocol.
func (s *server) ask(q question) (answer, error) {
	body, err := json.Marshal(q.body)
	if err != nil {
		return answer{}, err
	}
	req, err := http.NewRequest(http.MethodPost, s.url+q.path(), bytes.NewReader(body))
	if err != nil {
		return answer{}, err
	}
	req.Header.Set("X-Request-Id", q.id)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return answer{}, err
	}
	defer resp.Body.Close()
	content, err := io.ReadAll(resp.Body)
	if err != nil {
		return answer{}, err
	}
	return readAnswer(resp.StatusCode, content, q.stream())
}

// reference is ask for what a client is held against: the same question has
// the same answer, and isn't asked again.
func (s *server) reference(q question) (answer, error) {
	body, err := json.Marshal(q.body)
	if err != nil {
		return answer{}, err
	}
	key := q.path() + string(body)
	s.mu.Lock()
	defer s.mu.Unlock()
	if a, ok := s.answers[key]; ok {
		return a, nil
	}
	a, err := s.ask(q)
	if err == nil {
		if s.answers == nil {
			s.answers = map[string]answer{}
		}
		s.answers[key] = a
	}
	return a, err
}

// served is what the server's log says of a request.
type served struct {
	ID       string
	TokenIDs []int32 `json:"token_ids"`
	Steps    int
	Error    string
}

// find returns the log's entry for a request, if it is there yet.
func (s *server) find(id string) (served, bool, error) {
	content, err := os.ReadFile(s.log)
	if err != nil {
		return served{}, false, err
	}
	for line := range bytes.Lines(content) {
		var entry served
		if err := json.Unmarshal(line, &entry); err != nil {
			return served{}, false, fmt.Errorf("clients: %s: %q: %w", s.log, line, err)
		}
		if entry.ID == id {
			return entry, true, nil
		}
	}
	return served{}, false, nil
}

// await returns the log's entry for a request that has ended or soon will.
func (s *server) await(t *testing.T, id string) served {
	t.Helper()
	for begin := time.Now(); time.Since(begin) < limit; time.Sleep(5 * time.Millisecond) {
		entry, ok, err := s.find(id)
		if err != nil {
			t.Fatal(err)
		}
		if ok {
			return entry
		}
	}
	t.Fatalf("the log has no request %q after %v", id, limit)
	return served{}
}
