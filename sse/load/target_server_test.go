package load

import (
	"encoding/json"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"servebench/sse"
)

// stranger is a server that somebody else wrote, for tests: what it takes, what
// it counts and what goes wrong is scripted. Set its fields before start.
type stranger struct {
	models   []string              // ids that it lists, nil for no list
	tokens   func(text string) int // of a text; nil counts words
	added    int                   // tokens before a prompt of a completion, BOS say
	template int                   // tokens that a chat's template has
	ids      string                // prompts of ids: "" counts them right, "added" with those added, "no" refuses them
	tokenize string                // its /tokenize: "" for none, "vllm", "llama", "tgi", or "wrong", which counts one too many
	refuses  []string              // fields that it refuses
	status   int                   // with which; 0 means 400
	wants    string                // a field that it must have
	eos      int                   // tokens after which an answer ends, unless told to go on; 0 for never
	cached   func(prompt int) int  // cached_tokens, nil for none
	noUsage  bool
	step     time.Duration // between two tokens

	// answer may answer the n-th request for an answer, from 1 and with the
	// probes, in place of the script, and then returns true.
	answer func(n int, id string, w http.ResponseWriter, r *http.Request) bool
	// before may do the same with any request.
	before func(w http.ResponseWriter, r *http.Request) bool

	*httptest.Server
	url      string
	accepted atomic.Int64 // connections
	asks     atomic.Int64 // of /tokenize
	mu       sync.Mutex
	asked    []askedFor
}

// askedFor is one request for an answer.
type askedFor struct {
	id     string
	path   string
	header http.Header
	fields map[string]json.RawMessage
	prompt string // JSON of the prompt, or the message
}

func (s *stranger) start(t testing.TB) *stranger {
	t.Helper()
	s.prepare()
	s.Server.Start()
	t.Cleanup(s.stop)
	s.url = s.URL
	return s
}

func (s *stranger) startTLS(t testing.TB) *stranger {
	t.Helper()
	s.prepare()
	s.Server.StartTLS()
	t.Cleanup(s.stop)
	s.url = s.URL
	return s
}

func (s *stranger) stop() {
	s.CloseClientConnections()
	s.Close()
}

func (s *stranger) prepare() {
	s.Server = httptest.NewUnstartedServer(s)
	s.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		if state == http.StateNew {
			s.accepted.Add(1)
		}
	}
	s.Config.ErrorLog = log.New(io.Discard, "", 0)
}

func (s *stranger) count(text string) int {
	if s.tokens == nil {
		return len(strings.Fields(text))
	}
	return s.tokens(text)
}

func (s *stranger) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if s.before != nil && s.before(w, r) {
		return
	}
	path := r.URL.Path
	switch {
	case strings.HasSuffix(path, "/v1/models") && s.models != nil:
		var list []map[string]string
		for _, id := range s.models {
			list = append(list, map[string]string{"id": id})
		}
		w.Header().Set("Server", "stranger/1")
		json.NewEncoder(w).Encode(map[string]any{"object": "list", "data": list})
	case strings.HasSuffix(path, "/v1/completions"), strings.HasSuffix(path, "/v1/chat/completions"):
		s.generate(w, r)
	case strings.HasSuffix(path, "/tokenize") && s.tokenize != "":
		s.asks.Add(1)
		s.serveTokenize(w, r)
	case strings.HasSuffix(path, "/apply-template") && s.tokenize == "llama":
		var q struct{ Messages []struct{ Content string } }
		if json.NewDecoder(r.Body).Decode(&q) != nil || len(q.Messages) != 1 {
			refuseWith(w, 400, "messages")
			return
		}
		json.NewEncoder(w).Encode(map[string]string{"prompt": strings.Repeat("<|t|> ", s.template) + q.Messages[0].Content})
	default:
		refuseWith(w, http.StatusNotFound, "no such place")
	}
}

func refuseWith(w http.ResponseWriter, status int, message string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	json.NewEncoder(w).Encode(map[string]any{"error": map[string]any{"message": message, "type": "invalid_request_error"}})
}

func (s *stranger) serveTokenize(w http.ResponseWriter, r *http.Request) {
	q := map[string]json.RawMessage{}
	if err := json.NewDecoder(r.Body).Decode(&q); err != nil {
		refuseWith(w, 400, err.Error())
		return
	}
	field := map[string]string{"vllm": "prompt", "wrong": "prompt", "llama": "content", "tgi": "inputs"}[s.tokenize]
	extra := s.added
	var text string
	if q[field] == nil && (s.tokenize == "vllm" || s.tokenize == "wrong") && q["messages"] != nil {
		var messages []struct{ Content string }
		json.Unmarshal(q["messages"], &messages)
		text, extra = messages[0].Content, s.template
	} else if q[field] == nil {
		refuseWith(w, 422, field+" is missing")
		return
	} else if err := json.Unmarshal(q[field], &text); err != nil {
		refuseWith(w, 400, err.Error())
		return
	}
	if s.tokenize == "tgi" && len(q) > 1 {
		refuseWith(w, 422, "unknown field")
		return
	}
	if s.tokenize == "llama" && string(q["add_special"]) != "true" {
		extra = 0
	}
	if strings.HasPrefix(text, "<|t|> ") {
		extra = 0 // the template has it
	}
	n := s.count(text) + extra
	if s.tokenize == "wrong" {
		n++
	}
	list := make([]int, n)
	switch s.tokenize {
	case "vllm", "wrong":
		json.NewEncoder(w).Encode(map[string]any{"count": n, "tokens": list, "max_model_len": 1 << 20})
	case "llama":
		json.NewEncoder(w).Encode(map[string]any{"tokens": list})
	case "tgi":
		objects := make([]map[string]any, n)
		for i := range objects {
			objects[i] = map[string]any{"id": i, "text": "x", "start": 0, "stop": 1}
		}
		json.NewEncoder(w).Encode(objects)
	}
}

func (s *stranger) generate(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	q := map[string]json.RawMessage{}
	if err := json.Unmarshal(body, &q); err != nil {
		refuseWith(w, 400, err.Error())
		return
	}
	chat := strings.HasSuffix(r.URL.Path, "/chat/completions")
	what := askedFor{id: r.Header.Get("X-Request-Id"), path: r.URL.Path, header: r.Header.Clone(), fields: q, prompt: string(q["prompt"])}
	if chat {
		what.prompt = string(q["messages"])
	}
	s.mu.Lock()
	s.asked = append(s.asked, what)
	n := len(s.asked)
	s.mu.Unlock()
	if s.answer != nil && s.answer(n, what.id, w, r) {
		return
	}
	status := s.status
	if status == 0 {
		status = http.StatusBadRequest
	}
	for _, field := range s.refuses {
		if q[field] != nil {
			refuseWith(w, status, "Unsupported parameter: "+field)
			return
		}
	}
	if s.wants != "" && q[s.wants] == nil {
		refuseWith(w, status, "Missing parameter: "+s.wants)
		return
	}
	prompt := 0
	var text string
	var ids []int32
	var messages []struct{ Content string }
	switch {
	case chat && json.Unmarshal(q["messages"], &messages) == nil && len(messages) == 1:
		prompt = s.count(messages[0].Content) + s.template
	case !chat && json.Unmarshal(q["prompt"], &text) == nil:
		prompt = s.count(text) + s.added
	case !chat && json.Unmarshal(q["prompt"], &ids) == nil && s.ids != "no":
		prompt = len(ids)
		if s.ids == "added" {
			prompt += s.added
		}
	default:
		refuseWith(w, status, "prompt: want a text")
		return
	}
	most := 16
	for _, field := range []string{fieldMaxTokens, fieldMaxCompletion} {
		if q[field] != nil {
			json.Unmarshal(q[field], &most)
		}
	}
	finish := "length"
	if s.eos > 0 && s.eos < most && string(q[fieldIgnoreEOS]) != "true" {
		most, finish = s.eos, "stop"
	}
	s.stream(w, chat, most, finish, prompt, q[fieldStreamOptions] != nil && !s.noUsage)
}

func (s *stranger) stream(w http.ResponseWriter, chat bool, tokens int, finish string, prompt int, usage bool) {
	w.Header().Set("Content-Type", "text/event-stream")
	flush := w.(http.Flusher).Flush
	for i := range tokens {
		if s.step > 0 && i > 0 {
			time.Sleep(s.step)
		}
		if chat {
			fmt.Fprintf(w, "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\" w%d\"},\"finish_reason\":null}]}\n\n", i)
		} else {
			fmt.Fprintf(w, "data: {\"choices\":[{\"index\":0,\"text\":\" w%d\",\"finish_reason\":null}]}\n\n", i)
		}
		flush()
	}
	if chat {
		fmt.Fprintf(w, "data: {\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":%q}]}\n\n", finish)
	} else {
		fmt.Fprintf(w, "data: {\"choices\":[{\"index\":0,\"text\":\"\",\"finish_reason\":%q}]}\n\n", finish)
	}
	if usage {
		cached := ""
		if s.cached != nil {
			cached = fmt.Sprintf(`,"prompt_tokens_details":{"cached_tokens":%d}`, s.cached(prompt))
		}
		fmt.Fprintf(w, "data: {\"choices\":[],\"usage\":{\"prompt_tokens\":%d,\"completion_tokens\":%d,\"total_tokens\":%d%s}}\n\n", prompt, tokens, prompt+tokens, cached)
	}
	fmt.Fprint(w, "data: [DONE]\n\n")
}

// seen returns all that it was asked so far.
func (s *stranger) seen() []askedFor {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.asked)
}

// requests returns what was asked for in configurations, without the probes.
func (s *stranger) requests() (out []askedFor) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, a := range s.asked {
		if !strings.HasPrefix(a.id, "probe.") {
			out = append(out, a)
		}
	}
	return out
}

// prompts are those of requests, in the order of their ids.
func (s *stranger) prompts() (out []string) {
	list := s.requests()
	slices.SortFunc(list, func(a, b askedFor) int { return strings.Compare(a.id, b.id) })
	for _, a := range list {
		out = append(out, a.id+" "+a.prompt)
	}
	return out
}

// keys are the names of a body's members, sorted.
func (a *askedFor) keys() (names []string) {
	for name := range a.fields {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// opened opens t on the server.
func (s *stranger) opened(t testing.TB, target Target, inputs ...int) (*Target, error) {
	t.Helper()
	target.URL = s.url
	if inputs == nil {
		inputs = []int{64}
	}
	base := matrixCorpus(t)
	_, err := target.open(t.Context(), sse.NewClock(), time.Minute, inputs, base)
	return &target, err
}
