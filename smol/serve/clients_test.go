package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
)

// clientResult is what a client got, for the same questions to each.
type clientResult struct {
	Models     []string `json:"models"`
	Text       string   `json:"text"`
	Stream     []string `json:"stream"` // the text of each event
	Chat       string   `json:"chat"`
	ChatFinish string   `json:"chat_finish"`
	ChatStream string   `json:"chat_stream"`
	Usage      []int    `json:"usage"`
	Refused    []any    `json:"refused"` // status, code, param
}

// The clients that people have work against the server as against OpenAI's.
// Those that this machine lacks are named and skipped; nothing is fetched.
func TestClients(t *testing.T) {
	p := start(t, "-model", tinyModel(t))
	p.readReady()
	want := askWithHTTP(t, p.url)
	if len(want.Stream) != 8 || want.Text == "" || want.Chat == "" || strings.Join(want.Stream, "") != want.Text || want.ChatStream != want.Chat {
		t.Fatalf("the answers to compare with are %+v, want text, the same as streamed", want)
	}
	check := func(t *testing.T, command *exec.Cmd) {
		var stderr bytes.Buffer
		command.Stderr = &stderr
		out, err := command.Output()
		if err != nil {
			t.Fatalf("%v: %s", err, stderr.String())
		}
		var got clientResult
		if err := json.Unmarshal(out, &got); err != nil {
			t.Fatalf("%s: %v", out, err)
		}
		if !reflect.DeepEqual(got, want) {
			t.Errorf("got  %+v\nwant %+v", got, want)
		}
	}

	t.Run("openai-go", func(t *testing.T) {
		program := filepath.Join(t.TempDir(), "client")
		build := exec.Command("go", "build", "-o", program, ".")
		build.Dir = filepath.Join("testdata", "openai-go")
		build.Env = append(os.Environ(), "GOFLAGS=-mod=readonly", "GOPROXY=off", "GOWORK=off")
		if out, err := build.CombinedOutput(); err != nil {
			if bytes.Contains(out, []byte("module lookup disabled")) {
				t.Skip("openai-go isn't in the module cache: run  go mod download  in smol/serve/testdata/openai-go")
			}
			t.Fatalf("%v: %s", err, out)
		}
		check(t, exec.Command(program, p.url+"/v1", "tiny"))
	})
	t.Run("openai-python", func(t *testing.T) {
		if out, err := exec.Command("python3", "-c", "import openai").CombinedOutput(); err != nil {
			t.Skipf("python3 has no openai (%v): run  python3 -m pip install openai\n%s", err, out)
		}
		check(t, exec.Command("python3", filepath.Join("testdata", "openai-python", "main.py"), p.url+"/v1", "tiny"))
	})
	t.Run("curl", func(t *testing.T) {
		curl, err := exec.LookPath("curl")
		if err != nil {
			t.Skip("this machine has no curl")
		}
		got := clientResult{}
		ask := func(path, body string) string {
			args := []string{"-sSN", "--noproxy", "*", p.url + path}
			if body != "" {
				args = append(args, "-d", body)
			}
			out, err := exec.Command(curl, args...).Output()
			if err != nil {
				t.Fatalf("curl %q: %v", args, err)
			}
			return string(out)
		}
		fill(t, &got, ask)
		if !reflect.DeepEqual(got, want) {
			t.Errorf("got  %+v\nwant %+v", got, want)
		}
	})
}

// askWithHTTP asks with nothing but net/http.
func askWithHTTP(t *testing.T, url string) (r clientResult) {
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	fill(t, &r, func(path, body string) string {
		var resp *http.Response
		var err error
		if body == "" {
			resp, err = client.Get(url + path)
		} else {
			resp, err = client.Post(url+path, "application/json", strings.NewReader(body))
		}
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		b, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	})
	return r
}

// fill asks all questions and takes the answers apart.
func fill(t *testing.T, r *clientResult, ask func(path, body string) string) {
	t.Helper()
	type choice struct {
		Text           string
		Message, Delta struct{ Content string }
		FinishReason   string `json:"finish_reason"`
	}
	type reply struct {
		Data    []struct{ ID string }
		Choices []choice
		Usage   *struct {
			P int `json:"prompt_tokens"`
			C int `json:"completion_tokens"`
			T int `json:"total_tokens"`
		}
		Error *struct{ Code, Param string }
	}
	one := func(text string) (v reply) {
		if err := json.Unmarshal([]byte(text), &v); err != nil {
			t.Fatalf("%s: %v", text, err)
		}
		return v
	}
	stream := func(text string, each func(reply)) {
		text, whole := strings.CutSuffix(text, "data: [DONE]\n\n")
		if !whole {
			t.Errorf("stream %q, want [DONE] at its end", text)
		}
		for event := range strings.SplitSeq(strings.TrimSuffix(text, "\n\n"), "\n\n") {
			each(one(strings.TrimPrefix(event, "data: ")))
		}
	}
	for _, m := range one(ask("/v1/models", "")).Data {
		r.Models = append(r.Models, m.ID)
	}
	r.Text = one(ask("/v1/completions", `{"model":"tiny","prompt":"Hi","max_tokens":8}`)).Choices[0].Text
	stream(ask("/v1/completions", `{"model":"tiny","prompt":"Hi","max_tokens":8,"stream":true,"stream_options":{"include_usage":true}}`), func(v reply) {
		for _, c := range v.Choices {
			r.Stream = append(r.Stream, c.Text)
		}
		if u := v.Usage; u != nil {
			r.Usage = []int{u.P, u.C, u.T}
		}
	})
	const talk = `"model":"tiny","messages":[{"role":"user","content":"Hi"}],"max_completion_tokens":8`
	chat := one(ask("/v1/chat/completions", `{`+talk+`}`)).Choices[0]
	r.Chat, r.ChatFinish = chat.Message.Content, chat.FinishReason
	stream(ask("/v1/chat/completions", `{`+talk+`,"stream":true}`), func(v reply) { r.ChatStream += v.Choices[0].Delta.Content })
	if e := one(ask("/v1/completions", `{"model":"tiny","prompt":"Hi","temperature":0.5}`)).Error; e != nil {
		r.Refused = []any{400.0, e.Code, e.Param} // the status stands in other tests
	}
	if fmt.Sprint(r.Refused) != "[400 unsupported_value temperature]" {
		t.Errorf("temperature 0.5: %v, want it refused by name", r.Refused)
	}
}
