package clients

import (
	"bufio"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"testing"
)

// replay answers one request with the bytes of a file and closes the
// connection. It returns the server's URL and where the request's body will
// be.
func replay(t *testing.T, file string) (url string, body <-chan []byte) {
	t.Helper()
	response, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { listener.Close() })
	asked := make(chan []byte, 1)
	go func() {
		defer close(asked)
		conn, err := listener.Accept()
		if err != nil {
			return // the test is over
		}
		defer conn.Close()
		r, err := http.ReadRequest(bufio.NewReader(conn))
		if err != nil {
			t.Error(err)
			return
		}
		got, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
			return
		}
		asked <- got
		if _, err := conn.Write(response); err != nil {
			t.Error(err)
		}
	}()
	return "http://" + listener.Addr().String(), asked
}

// What openai-go understands of smol/serve's answers is what it understood of
// other servers', on the same weights and asked in the same words. Their
// bytes, as they were received, are in testdata/recorded.
func TestLikeOtherServers(t *testing.T) {
	s := sharedServer(t)
	if !s.real {
		t.Skip("the tiny model's answers are others: go run ./smol/setup puts the real one in place")
	}
	usage := map[string]any{"stream": true, "stream_options": map[string]any{"include_usage": true}}
	tests := []struct {
		name string // of the file, after the server's
		question
		want answer
	}{
		{"comp-nostream", completion(s.model, "The capital of France is", 8),
			answer{" Paris.\n\nThe answer is:", "length", 5, 8, 0, ""}},
		{"comp-text-usage", completion(s.model, "The capital of France is", 8).with(usage),
			answer{" Paris.\n\nThe answer is:", "length", 5, 8, 8, ""}},
		{"chat-nostream", conversation(s.model, capital, 8),
			answer{"The capital of France is Paris.", "stop", 42, 8, 0, "assistant"}},
		{"chat-usage", conversation(s.model, capital, 8).with(usage),
			answer{"The capital of France is Paris.", "stop", 42, 8, 8, "assistant"}},
	}
	for _, test := range tests {
		for _, other := range []string{"vllm", "llamaserver"} {
			t.Run(other+"/"+test.name, func(t *testing.T) {
				url, body := replay(t, "testdata/recorded/"+other+"-"+test.name+".http")
				theirs, err := newOpenAIGo(t, url).ask(t.Context(), test.with(nil))
				// How many events there are is each server's own.
				if theirs.Events > 0 {
					theirs.Events = test.want.Events
				}
				if err != nil || theirs != test.want {
					t.Errorf("%s gave %+v, %v; want %+v", other, theirs, err, test.want)
				}
				ours, err := newOpenAIGo(t, s.url).ask(t.Context(), test.with(nil))
				if err != nil || ours != test.want {
					t.Errorf("smol/serve gives %+v, %v; want %+v", ours, err, test.want)
				}
				if got := <-body; !jsonEqual(json.RawMessage(got), test.body) {
					t.Errorf("openai-go sent %s, want %v", got, test.body)
				}
			})
		}
	}
	t.Run("vllm/err-model", func(t *testing.T) {
		url, _ := replay(t, "testdata/recorded/vllm-err-model.http")
		q := completion("no-such-model", "The capital of France is", 8)
		for _, url := range []string{url, s.url} {
			_, err := newOpenAIGo(t, url).ask(t.Context(), q)
			if f := new(failure); !errors.As(err, &f) || f.Status != http.StatusNotFound || f.Param != "model" || f.Message == "" {
				t.Errorf("%s: %v, want 404 for the model", url, err)
			}
		}
	})
}
