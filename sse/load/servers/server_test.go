//go:build unix

package servers

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"
	"time"

	"servebench/sse"
)

// weightsVariable names the directory that weights.py wrote.
const weightsVariable = "SERVEBENCH_SERVERS_WEIGHTS"

// modelName is what both servers call the model.
const modelName = "SmolLM2-135M-Instruct"

// kind is a server that others wrote.
type kind struct {
	name      string // as serve.py knows it
	variable  string // names its interpreter
	takesIDs  bool   // a completion's prompt may be ids
	ignoreEOS bool   // it goes on past the end

	shared *server // of all tests that don't end theirs
}

var kinds = []*kind{
	{name: "llamaserver", variable: "SERVEBENCH_LLAMASERVER_PYTHON", takesIDs: true, ignoreEOS: true},
	{name: "transformers", variable: "SERVEBENCH_TRANSFORMERS_PYTHON"},
}

// each runs a test against every kind.
func each(t *testing.T, test func(t *testing.T, k *kind)) {
	for _, k := range kinds {
		t.Run(k.name, func(t *testing.T) {
			defer k.explain(t)
			test(t, k)
		})
	}
}

// explain says what became of the shared server in a test that failed, and
// lets the next test have a new one if it is gone.
func (k *kind) explain(t *testing.T) {
	if k.shared == nil || !t.Failed() {
		return
	}
	select {
	case <-k.shared.ended:
		t.Logf("%s has ended: %v:\n%s", k.name, k.shared.command.ProcessState, k.shared.said())
		k.shared.stop()
		k.shared = nil
	default:
	}
}

// server is one that runs.
type server struct {
	kind    *kind
	url     string // without a path
	command *exec.Cmd
	stdin   io.Closer
	output  string // a file with all it printed
	ended   chan struct{}
}

// limit bounds what should take seconds, on a busy machine.
const limit = 3 * time.Minute

// get returns the kind's shared server.
func (k *kind) get(t *testing.T) *server {
	t.Helper()
	if k.shared == nil {
		k.shared = k.start(t)
	}
	return k.shared
}

// start starts a server of its own and waits until it is ready. Whoever calls
// it stops it.
func (k *kind) start(t *testing.T) *server {
	t.Helper()
	const how = "see go doc servebench/sse/load/servers"
	python, weights := os.Getenv(k.variable), os.Getenv(weightsVariable)
	switch {
	case python == "":
		k.skip(t, "%s is not set to a Python that has its packages: %s", k.variable, how)
	case weights == "":
		k.skip(t, "%s is not set to the directory that weights.py wrote: %s", weightsVariable, how)
	}
	if _, err := os.Stat(filepath.Join(weights, "complete")); err != nil {
		t.Fatalf("%s=%s has no weights (%v): run weights.py again; %s", weightsVariable, weights, err, how)
	}
	port, err := freePort()
	if err != nil {
		t.Fatal(err)
	}
	s := &server{kind: k, url: "http://127.0.0.1:" + strconv.Itoa(port), ended: make(chan struct{})}
	output, err := os.CreateTemp("", "servers-"+k.name+"-")
	if err != nil {
		t.Fatal(err)
	}
	defer output.Close()
	s.output = output.Name()
	s.command = exec.Command(python, "serve.py", k.name, weights, strconv.Itoa(port))
	s.command.Stdout, s.command.Stderr = output, output
	s.command.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // to see whether one of it is left
	if s.stdin, err = s.command.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	begin := time.Now()
	if err := s.command.Start(); err != nil {
		t.Fatalf("%s=%s: %v", k.variable, python, err)
	}
	go func() {
		s.command.Wait()
		close(s.ended)
	}()
	if err := s.awaitReady(); err != nil {
		s.stop()
		t.Fatal(err)
	}
	t.Logf("%s is ready after %.1f s", k.name, time.Since(begin).Seconds())
	return s
}

// freePort returns a port of the loopback that nobody listens on.
func freePort() (int, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port, nil
}

// awaitReady returns when /health says that the server is ready.
func (s *server) awaitReady() error {
	for begin := time.Now(); ; {
		response, err := plain.Get(s.url + "/health")
		if err == nil {
			io.Copy(io.Discard, response.Body)
			response.Body.Close()
			if response.StatusCode == http.StatusOK {
				return nil
			}
			err = fmt.Errorf("/health answers %s", response.Status)
		}
		select {
		case <-s.ended:
			return fmt.Errorf("servers: %s ended (%v) before it was ready:\n%s", s.kind.name, s.command.ProcessState, s.said())
		case <-time.After(50 * time.Millisecond):
		}
		if time.Since(begin) > limit {
			return fmt.Errorf("servers: %s isn't ready after %v: %w:\n%s", s.kind.name, limit, err, s.said())
		}
	}
}

// said returns the end of what the server printed.
func (s *server) said() string {
	data, _ := os.ReadFile(s.output)
	return string(data[max(0, len(data)-4000):])
}

// stop ends the server as its starter's end would, and errs if it doesn't
// end or leaves a process behind.
func (s *server) stop() error {
	s.stdin.Close()
	var err error
	select {
	case <-s.ended:
	case <-time.After(20 * time.Second):
		err = fmt.Errorf("servers: %s goes on although its input has ended", s.kind.name)
	}
	return errors.Join(err, s.gone())
}

// kill ends the server from one moment to the next.
func (s *server) kill() error {
	s.command.Process.Kill()
	<-s.ended
	return s.gone()
}

// gone makes sure that no process of the server is left, and errs if one was.
func (s *server) gone() error {
	os.Remove(s.output)
	if syscall.Kill(-s.command.Process.Pid, syscall.SIGKILL) == nil {
		<-s.ended
		return fmt.Errorf("servers: %s left a process behind", s.kind.name)
	}
	return nil
}

// plain is net/http without a proxy.
var plain = &http.Client{Transport: &http.Transport{Proxy: nil}, Timeout: limit}

// whole is an answer in one piece.
type whole struct {
	text, finish       string
	prompt, completion int // tokens, by the server's count
}

// ask returns the answer in one piece to a body, without the client that is
// tested.
func (s *server) ask(t *testing.T, path string, body map[string]any) whole {
	t.Helper()
	data, err := json.Marshal(body)
	if err != nil {
		t.Fatal(err)
	}
	response, err := plain.Post(s.url+"/v1/"+path, "application/json", bytes.NewReader(data))
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	data, err = io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	var answer struct {
		Choices []struct {
			Text    string
			Message struct{ Content string }
			Finish  string `json:"finish_reason"`
		}
		Usage struct {
			Prompt     int `json:"prompt_tokens"`
			Completion int `json:"completion_tokens"`
		}
	}
	if err := json.Unmarshal(data, &answer); err != nil || response.StatusCode != http.StatusOK || len(answer.Choices) != 1 {
		t.Fatalf("%s %s: %s %s (%v), want 200 with one choice", s.kind.name, path, response.Status, data, err)
	}
	c := answer.Choices[0]
	return whole{c.Text + c.Message.Content, c.Finish, answer.Usage.Prompt, answer.Usage.Completion}
}

// client returns the client that is tested.
func (s *server) client(chat bool) *sse.Client {
	return &sse.Client{BaseURL: s.url, Model: modelName, Clock: sse.NewClock(), Chat: chat, Idle: limit}
}
