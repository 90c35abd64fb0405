package clients

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"testing"
	"time"
)

// pythonVariable names the interpreter that has the package openai.
const pythonVariable = "SERVEBENCH_PYTHON"

// python is the official Python package in a process of its own,
// testdata/client.py.
type python struct {
	url     string // the server's
	command *exec.Cmd
	stdin   io.WriteCloser
	stdout  *bufio.Reader
	stderr  *os.File
}

// order is what client.py is told.
type order struct {
	Do    string           `json:"do"`
	ID    string           `json:"id"`
	Chat  bool             `json:"chat"`
	Body  map[string]any   `json:"body"`
	First bool             `json:"first"`
	Model string           `json:"model"`
	All   []map[string]any `json:"all"`
}

// result is what client.py says.
type result struct {
	OpenAI, Python string
	First          bool
	Answer         answer
	RequestID      string
	Answers        []answer
	Kinds          []string
	Models         []string
	Model          string
	Parameters     []string
	Failure        *struct {
		failure
		Class string // of the exception
	}
}

// sharedPython are the processes for the shared server, by style.
var sharedPython = map[string]*python{}

// newPython returns client.py in one of its styles, sync or async.
func newPython(t *testing.T, url, style string) *python {
	t.Helper()
	if p := sharedPython[style]; p != nil && p.url == url {
		return p
	}
	p := startPython(t, url, style)
	if url == sharedServer(t).url {
		sharedPython[style] = p
		return p
	}
	t.Cleanup(func() {
		if err := p.stop(); err != nil {
			t.Error(err)
		}
	})
	return p
}

func startPython(t *testing.T, url, style string) *python {
	t.Helper()
	const get = "pip install -r smol/serve/clients/requirements.txt in a virtual environment, and set " + pythonVariable + " to its python"
	program := os.Getenv(pythonVariable)
	asked := program != ""
	if !asked {
		var err error
		if program, err = exec.LookPath("python3"); err != nil {
			skip(t, "python", "python3 isn't in PATH: install it; then %s", get)
		}
	}
	if out, err := exec.Command(program, "-c", "import openai").CombinedOutput(); err != nil {
		if asked {
			t.Fatalf("%s=%s has no package openai: %s\n%v: %s", pythonVariable, program, get, err, out)
		}
		skip(t, "python", "%s has no package openai: %s", program, get)
	}
	p := &python{url: url, command: exec.Command(program, "testdata/client.py", url+"/v1", style)}
	var err error
	if p.stderr, err = os.CreateTemp(scratch, "python-"); err != nil {
		t.Fatal(err)
	}
	p.command.Stderr = p.stderr
	if p.stdin, err = p.command.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	stdout, err := p.command.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	p.stdout = bufio.NewReader(stdout)
	if err := p.command.Start(); err != nil {
		t.Fatal(err)
	}
	ready, err := p.read()
	if err != nil {
		p.stop()
		t.Fatal(err)
	}
	t.Logf("openai %s, Python %s, %s", ready.OpenAI, ready.Python, style)
	return p
}

// stop ends the program, which ends with its input.
func (p *python) stop() error {
	p.stdin.Close()
	timer := time.AfterFunc(limit, func() { p.command.Process.Kill() })
	defer timer.Stop()
	err := p.command.Wait()
	if err != nil {
		err = fmt.Errorf("client.py: %w: %s", err, p.said())
	}
	p.stderr.Close()
	return err
}

// said returns what the program wrote to standard error.
func (p *python) said() string {
	content, _ := os.ReadFile(p.stderr.Name())
	return string(content)
}

// read returns the program's next line.
func (p *python) read() (r result, err error) {
	timer := time.AfterFunc(limit, func() { p.command.Process.Kill() })
	defer timer.Stop()
	line, err := p.stdout.ReadBytes('\n')
	if err != nil {
		return r, fmt.Errorf("client.py says %q (%w) and %s", line, err, p.said())
	}
	if err := json.Unmarshal(line, &r); err != nil {
		return r, fmt.Errorf("client.py says %q: %w", line, err)
	}
	return r, nil
}

// do gives an order and returns what comes of it; a *failure is the server's
// error.
func (p *python) do(o order, first func()) (r result, err error) {
	line, err := json.Marshal(o)
	if err != nil {
		return r, err
	}
	if _, err := p.stdin.Write(append(line, '\n')); err != nil {
		return r, fmt.Errorf("client.py: %w: %s", err, p.said())
	}
	if r, err = p.read(); err == nil && r.First {
		first()
		r, err = p.read()
	}
	if err == nil && r.Failure != nil {
		if r.Failure.Code == "" {
			return r, fmt.Errorf("client.py: %s: %s", r.Failure.Class, r.Failure.Message)
		}
		err = &r.Failure.failure
	}
	return r, err
}

func (p *python) ask(_ context.Context, q question) (answer, error) {
	r, err := p.do(order{Do: "ask", ID: q.id, Chat: q.chat, Body: q.body, First: q.first != nil}, q.first)
	return r.Answer, err
}

func (p *python) leave(q question) error {
	_, err := p.do(order{Do: "leave", ID: q.id, Chat: q.chat, Body: q.body}, nil)
	return err
}

// The package has two ways to be used.
var styles = []string{"sync", "async"}

func TestPython(t *testing.T) {
	for _, style := range styles {
		t.Run(style, func(t *testing.T) {
			testClient(t, func(t *testing.T, url string) client { return newPython(t, url, style) })
		})
	}
}

func TestPythonModels(t *testing.T) {
	s := sharedServer(t)
	for _, style := range styles {
		t.Run(style, func(t *testing.T) {
			r, err := newPython(t, s.url, style).do(order{Do: "models", Model: s.model}, nil)
			if err != nil || !slices.Equal(r.Models, []string{s.model}) || r.Model != s.model {
				t.Errorf("models.list gives %q, models.retrieve %q, %v; want %s", r.Models, r.Model, err, s.model)
			}
		})
	}
}

// Errors are the exceptions that the package's users catch, and answers have
// the request's id.
func TestPythonClasses(t *testing.T) {
	s := sharedServer(t)
	tests := []struct {
		name, class string
		question
	}{
		{"refused", "BadRequestError", completion(s.model, "Hi", 2).with(map[string]any{"temperature": 0.7})},
		{"refused before a stream", "BadRequestError", conversation(s.model, "Hi", 2).with(map[string]any{"n": 2, "stream": true})},
		{"another model", "NotFoundError", conversation("no-such-model", "Hi", 2)},
	}
	for _, style := range styles {
		t.Run(style, func(t *testing.T) {
			p := newPython(t, s.url, style)
			for _, test := range tests {
				r, err := p.do(order{Do: "ask", ID: test.id, Chat: test.chat, Body: test.body}, nil)
				if r.Failure == nil || r.Failure.Class != test.class {
					t.Errorf("%s: %+v, %v; want %s", test.name, r.Failure, err, test.class)
				}
			}
			q := completion(s.model, "Hi", 2)
			if r, err := p.do(order{Do: "ask", ID: q.id, Body: q.body}, nil); err != nil || r.RequestID != q.id {
				t.Errorf("_request_id is %q, %v; want %q", r.RequestID, err, q.id)
			}
		})
	}
}

// The package's own reading of a chat's stream comes to the answer in one
// piece.
func TestPythonStreamHelper(t *testing.T) {
	s := sharedServer(t)
	q := conversation(s.model, capital, 8)
	want, err := s.reference(q)
	if err != nil {
		t.Fatal(err)
	}
	for _, style := range styles {
		t.Run(style, func(t *testing.T) {
			r, err := newPython(t, s.url, style).do(order{Do: "helper", ID: q.id, Chat: true, Body: q.body}, nil)
			if want.FinishReason == "length" { // as the tiny model's answers end
				const class = "LengthFinishReasonError"
				if r.Failure == nil || r.Failure.Class != class {
					t.Errorf("%+v, %v; want a %s, as the package has it for a cut answer", r, err, class)
				}
				return
			}
			if err != nil || r.Answer.Text != want.Text || r.Answer.FinishReason != want.FinishReason {
				t.Errorf("%+v, %v; want %+v", r.Answer, err, want)
			}
			for _, kind := range []string{"chunk", "content.delta", "content.done"} {
				if !slices.Contains(r.Kinds, kind) {
					t.Errorf("events %q, want a %s among them", r.Kinds, kind)
				}
			}
		})
	}
}

// Requests of one event loop at the same time each get their own answer.
func TestPythonTogether(t *testing.T) {
	s := sharedServer(t)
	p := newPython(t, s.url, "async")
	var all []map[string]any
	var want []string
	for _, prompt := range []string{"One", "Two and two", "Three, four, five", "Six"} {
		for _, stream := range []bool{false, true} {
			q := completion(s.model, prompt, 8).with(map[string]any{"ignore_eos": true})
			a, err := s.reference(q)
			if err != nil {
				t.Fatal(err)
			}
			want = append(want, a.Text)
			all = append(all, map[string]any{"id": newID(), "body": q.with(map[string]any{"stream": stream}).body})
		}
	}
	r, err := p.do(order{Do: "together", All: all}, nil)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, a := range r.Answers {
		got = append(got, a.Text)
	}
	if !slices.Equal(got, want) {
		t.Errorf("together: %q\nwant %q", got, want)
	}
}
