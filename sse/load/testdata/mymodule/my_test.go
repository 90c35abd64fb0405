// Package mymodule is what somebody writes who has a server of their own and
// wants to know how long its users wait.
package mymodule

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"servebench/sse/load"
)

func BenchmarkMyServer(b *testing.B) {
	server := httptest.NewServer(http.HandlerFunc(mine))
	defer server.Close()
	run, err := load.NewRun(load.Options{Dir: "runs", Target: &load.Target{URL: server.URL, API: "chat"}})
	if err != nil {
		b.Fatal(err)
	}
	defer run.Finish(b)
	for _, conc := range []int{1, 4} {
		b.Run(fmt.Sprintf("input=64/conc=%d", conc), func(b *testing.B) { run.Benchmark(b, load.Cell{Conc: conc}) })
	}
}

// mine is the server: a word is a token, and it says the first of them again.
func mine(w http.ResponseWriter, r *http.Request) {
	var ask struct {
		Model     string
		Messages  []struct{ Content string }
		MaxTokens int `json:"max_tokens"`
	}
	json.NewDecoder(r.Body).Decode(&ask)
	words := []string{}
	for _, m := range ask.Messages {
		words = append(words, strings.Fields(m.Content)...)
	}
	switch r.URL.Path {
	case "/v1/models":
		fmt.Fprintln(w, `{"data":[{"id":"echo"}]}`)
	case "/tokenize":
		fmt.Fprintf(w, `{"count":%d}`, len(words))
	case "/v1/chat/completions":
		w.Header().Set("Content-Type", "text/event-stream")
		for range ask.MaxTokens {
			time.Sleep(time.Millisecond)
			fmt.Fprintf(w, "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":%q}}]}\n\n", words[0])
			w.(http.Flusher).Flush()
		}
		fmt.Fprintf(w, "data: {\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":\"length\"}],\"usage\":{\"prompt_tokens\":%d,\"completion_tokens\":%d}}\n\ndata: [DONE]\n\n", len(words), ask.MaxTokens)
	default:
		http.NotFound(w, r)
	}
}
