package sse

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"reflect"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"servebench/verify"
)

// byteModel is a generator whose tokens are bytes: id 65 is "A". It answers
// with its script, whatever the prompt, and takes its time from time.Sleep,
// which a bubble makes exact. 256 ends a text.
type byteModel struct {
	script  []byte        // what is generated, then again from its start
	endAt   int           // the end-of-text token comes in this place; 0 for never
	prefill time.Duration // of the whole prompt
	step    time.Duration
	limits  Limits // Context 64 if zero
	fault   func(step int) error

	mu      sync.Mutex
	busy    bool
	prompts [][]int32 // in the order of their prefills
	steps   int       // runs of the model: prefills and steps
	at      int
}

const (
	byteEOS        = 256
	byteVocabulary = 257
)

func (m *byteModel) Limits() Limits {
	if m.limits == (Limits{}) {
		return Limits{Context: 64, Vocabulary: byteVocabulary, EOS: byteEOS}
	}
	return m.limits
}

func (m *byteModel) Encode(text string) ([]int32, error) {
	if strings.Contains(text, "\x00") {
		return nil, errors.New("text holds a NUL")
	}
	var ids []int32
	for _, b := range []byte(text) {
		ids = append(ids, int32(b))
	}
	return ids, nil
}

func (m *byteModel) Piece(id int32) []byte {
	if id == byteEOS {
		return nil
	}
	return []byte{byte(id)}
}

func (m *byteModel) Prefill(prompt []int32) (int32, error) {
	return m.run(m.prefill, func() { m.prompts = append(m.prompts, prompt); m.at = 0 })
}

func (m *byteModel) Step(int32) (int32, error) { return m.run(m.step, func() {}) }

func (m *byteModel) run(d time.Duration, begin func()) (int32, error) {
	m.mu.Lock()
	if m.busy {
		panic("two requests have the generator at once")
	}
	m.busy = true
	m.steps++
	begin()
	m.mu.Unlock()
	defer func() { m.mu.Lock(); m.busy = false; m.mu.Unlock() }()
	time.Sleep(d)
	if m.fault != nil {
		if err := m.fault(m.at + 1); err != nil {
			return 0, err
		}
	}
	m.at++
	if m.at == m.endAt {
		return byteEOS, nil
	}
	return int32(m.script[(m.at-1)%len(m.script)]), nil
}

// pipeListener is a network without sockets: a bubble's time can go on while
// its ends wait.
type pipeListener struct {
	conns chan net.Conn
	done  chan struct{}
	once  sync.Once
}

func newPipeListener() *pipeListener {
	return &pipeListener{conns: make(chan net.Conn), done: make(chan struct{})}
}

func (l *pipeListener) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.done:
		return nil, net.ErrClosed
	}
}

func (l *pipeListener) Close() error   { l.once.Do(func() { close(l.done) }); return nil }
func (l *pipeListener) Addr() net.Addr { return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 1} }

func (l *pipeListener) dial() (net.Conn, error) {
	client, server := net.Pipe()
	select {
	case l.conns <- server:
		return client, nil
	case <-l.done:
		return nil, net.ErrClosed
	}
}

// rig is a handler in a server, within a bubble, with its log.
type rig struct {
	t        *testing.T
	clock    *Clock
	handler  *Handler
	listener *pipeListener
	stop     context.CancelCauseFunc

	mu  sync.Mutex
	log []verify.Served
}

// newRig serves model until the bubble ends. wrap may be nil.
func newRig(t *testing.T, model Generator, o Options, wrap func(http.Handler) http.Handler) *rig {
	t.Helper()
	r := &rig{t: t, clock: NewClock(), listener: newPipeListener()}
	o.Clock = r.clock
	o.Served = func(s verify.Served) { r.mu.Lock(); r.log = append(r.log, s); r.mu.Unlock() }
	r.handler = NewHandler(model, o)
	var h http.Handler = r.handler
	if wrap != nil {
		h = wrap(h)
	}
	ctx, stop := context.WithCancelCause(context.Background())
	r.stop = stop
	server := &http.Server{Handler: h, BaseContext: func(net.Listener) context.Context { return ctx }}
	ended := make(chan struct{})
	go func() { defer close(ended); server.Serve(r.listener) }()
	t.Cleanup(func() {
		stop(nil)
		server.Close()
		<-ended
		time.Sleep(time.Second) // net/http lingers half of it after a refused body
	})
	return r
}

// served waits until the bubble is idle and returns the log.
func (r *rig) served() []verify.Served {
	synctest.Wait()
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]verify.Served(nil), r.log...)
}

// stamp turns an absolute stamp into ns since the bubble's begin.
func (r *rig) stamp(absolute int64) int64 { return absolute - r.clock.Absolute(1) }

// post sends a request on a connection of its own and returns its response,
// whose body is still to be read.
func (r *rig) post(path, id, body string) (*http.Response, net.Conn) {
	return r.send("POST", path, id, body)
}

func (r *rig) send(method, path, id, body string) (*http.Response, net.Conn) {
	r.t.Helper()
	conn, err := r.listener.dial()
	if err != nil {
		r.t.Fatal(err)
	}
	req, err := http.NewRequest(method, "http://server"+path, strings.NewReader(body))
	if err != nil {
		r.t.Fatal(err)
	}
	req.Close = true
	if id != "" {
		req.Header.Set("X-Request-Id", id)
	}
	if err := req.Write(conn); err != nil {
		r.t.Fatal(err)
	}
	resp, err := http.ReadResponse(bufio.NewReader(conn), req)
	if err != nil {
		r.t.Fatalf("%s %s: no response: %v", method, path, err)
	}
	return resp, conn
}

// got is one event of a stream as a test reads it.
type got struct {
	at   time.Duration // since the bubble's begin
	data string
}

// events reads a stream to its end.
func (r *rig) events(body io.Reader) []got {
	r.t.Helper()
	var all []got
	s := bufio.NewScanner(body)
	for s.Scan() {
		if data, ok := strings.CutPrefix(s.Text(), "data: "); ok {
			all = append(all, got{time.Duration(r.clock.Now() - 1), data})
		} else if s.Text() != "" {
			r.t.Errorf("line %q in the stream, want data: or an empty one", s.Text())
		}
	}
	if err := s.Err(); err != nil {
		r.t.Errorf("stream ended with %v", err)
	}
	return all
}

// whole sends a request and reads all of its response.
func (r *rig) whole(method, path, body string) (int, http.Header, string) {
	r.t.Helper()
	resp, conn := r.send(method, path, "", body)
	defer conn.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		r.t.Fatalf("%s %s: body: %v", method, path, err)
	}
	return resp.StatusCode, resp.Header, string(b)
}

func TestStreamIsExact(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		model := &byteModel{script: []byte("Hello"), prefill: 70 * time.Millisecond, step: 20 * time.Millisecond}
		r := newRig(t, model, Options{Model: "m"}, nil)
		resp, conn := r.post("/v1/completions", "req-1", `{"model":"m","prompt":"abc","max_tokens":3,"stream":true,
			"stream_options":{"include_usage":true},"return_token_ids":true,"return_stamps":true,"temperature":0}`)
		defer conn.Close()
		if at := r.clock.Now() - 1; at != 0 {
			t.Errorf("the head came after %d ns, want it before the prefill, at 0", at)
		}
		for name, want := range map[string]string{
			"Content-Type": "text/event-stream; charset=utf-8", "Cache-Control": "no-cache",
			"X-Accel-Buffering": "no", "X-Request-Id": "req-1",
		} {
			if got := resp.Header.Get(name); got != want {
				t.Errorf("header %s = %q, want %q", name, got, want)
			}
		}
		base := r.clock.Absolute(1)
		unix := time.Now().Unix()
		head := fmt.Sprintf(`{"id":"cmpl-req-1","object":"text_completion","created":%d,"model":"m","choices":`, unix)
		ms := func(n int64) int64 { return base + n*int64(time.Millisecond) }
		want := []got{
			{70 * time.Millisecond, fmt.Sprintf(`%s[{"index":0,"text":"H","logprobs":null,"finish_reason":null,"prompt_token_ids":[97,98,99],"token_ids":[72],"stamp_ns":%d}]}`, head, ms(70))},
			{90 * time.Millisecond, fmt.Sprintf(`%s[{"index":0,"text":"e","logprobs":null,"finish_reason":null,"token_ids":[101],"stamp_ns":%d}]}`, head, ms(90))},
			{110 * time.Millisecond, fmt.Sprintf(`%s[{"index":0,"text":"l","logprobs":null,"finish_reason":"length","token_ids":[108],"stamp_ns":%d}]}`, head, ms(110))},
			{110 * time.Millisecond, head + `[],"usage":{"prompt_tokens":3,"completion_tokens":3,"total_tokens":6}}`},
			{110 * time.Millisecond, "[DONE]"},
		}
		if got := r.events(resp.Body); !reflect.DeepEqual(got, want) {
			t.Errorf("events:\n%v\nwant:\n%v", got, want)
		}
		log := r.served()
		wantLog := []verify.Served{{
			Kind: verify.KindServed, ID: "req-1",
			ArrivalNS: base, QueuedNS: base, SlotNS: base, ReleaseNS: ms(110),
			PromptIDs: []int32{97, 98, 99}, TokenIDs: []int32{72, 101, 108}, TokenNS: []int64{ms(70), ms(90), ms(110)},
			Steps: 3,
		}}
		if !reflect.DeepEqual(log, wantLog) {
			t.Errorf("log:\n%+v\nwant:\n%+v", log, wantLog)
		}
		if model.steps != 3 {
			t.Errorf("the model ran %d times for 3 tokens, want 3", model.steps)
		}
	})
}

// texts returns the text, the finish reason and the ids of each event.
func texts(t *testing.T, events []got) (pieces []string, finish string, ids []int32) {
	t.Helper()
	for _, e := range events {
		if e.data == "[DONE]" {
			continue
		}
		var v struct {
			Choices []struct {
				Text         *string
				FinishReason *string `json:"finish_reason"`
				TokenIDs     []int32 `json:"token_ids"`
			}
		}
		if err := json.Unmarshal([]byte(e.data), &v); err != nil {
			t.Fatalf("event %s: %v", e.data, err)
		}
		for _, c := range v.Choices {
			pieces = append(pieces, *c.Text)
			ids = append(ids, c.TokenIDs...)
			if c.FinishReason != nil {
				finish += *c.FinishReason
			}
		}
	}
	return pieces, finish, ids
}

func TestEveryTokenIsAnEvent(t *testing.T) {
	tests := []struct {
		name   string
		model  *byteModel
		ask    string
		want   []string // the text of each event
		finish string
	}{
		{"a rune over three tokens", &byteModel{script: []byte("a€b")}, `"max_tokens":5`, []string{"a", "", "", "€", "b"}, "length"},
		{"half a rune at the end", &byteModel{script: []byte("a€b")}, `"max_tokens":3`, []string{"a", "", "\uFFFD"}, "length"},
		{"an emoji cut after one byte", &byteModel{script: []byte("😀")}, `"max_tokens":1`, []string{"\uFFFD"}, "length"},
		{"a stray continuation", &byteModel{script: []byte("x\x80y")}, `"max_tokens":3`, []string{"x", "\uFFFD", "y"}, "length"},
		{"a rune broken off by another", &byteModel{script: []byte("\xf0\x9f!")}, `"max_tokens":3`, []string{"", "", "\uFFFD!"}, "length"},
		{"characters that JSON escapes", &byteModel{script: []byte("\"\\\n\x01<")}, `"max_tokens":5`, []string{"\"", "\\", "\n", "\x01", "<"}, "length"},
		{"the end of the text", &byteModel{script: []byte("ab"), endAt: 3}, `"max_tokens":9`, []string{"a", "b", ""}, "stop"},
		{"the end of the text within a rune", &byteModel{script: []byte("a\xe2"), endAt: 3}, `"max_tokens":9`, []string{"a", "", "\uFFFD"}, "stop"},
		{"the end of the text ignored", &byteModel{script: []byte("ab"), endAt: 2}, `"max_tokens":4,"ignore_eos":true`, []string{"a", "", "a", "b"}, "length"},
		{"the end of the text as the last token", &byteModel{script: []byte("ab"), endAt: 2}, `"max_tokens":2`, []string{"a", ""}, "stop"},
		{"max_tokens left out", &byteModel{script: []byte("z")}, `"ignore_eos":true`, strings.Split(strings.Repeat("z", 16), ""), "length"},
		{"an answer that fills the context", &byteModel{script: []byte("z"), limits: Limits{Context: 6, Vocabulary: byteVocabulary, EOS: byteEOS}}, `"max_tokens":4`, []string{"z", "z", "z", "z"}, "length"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				model := test.model
				r := newRig(t, model, Options{}, nil)
				resp, conn := r.post("/v1/completions", "", `{"prompt":[1,2],"stream":true,"return_token_ids":true,`+test.ask+`}`)
				defer conn.Close()
				pieces, finish, ids := texts(t, r.events(resp.Body))
				if !reflect.DeepEqual(pieces, test.want) || finish != test.finish {
					t.Errorf("events hold %q and finish %q, want %q and %q", pieces, finish, test.want, test.finish)
				}
				log := r.served()
				if len(log) != 1 || log[0].Error != "" || !reflect.DeepEqual(log[0].TokenIDs, ids) || log[0].Steps != len(test.want) {
					t.Errorf("log = %+v, want one request without error, ids %v and %d steps", log, ids, len(test.want))
				}

				// In one piece it is the same text.
				status, _, body := r.whole("POST", "/v1/completions", `{"prompt":[1,2],"return_token_ids":true,`+test.ask+`}`)
				var whole struct {
					Choices []struct {
						Text         string
						FinishReason string  `json:"finish_reason"`
						TokenIDs     []int32 `json:"token_ids"`
						PromptIDs    []int32 `json:"prompt_token_ids"`
					}
					Usage struct {
						PromptTokens     int `json:"prompt_tokens"`
						CompletionTokens int `json:"completion_tokens"`
						TotalTokens      int `json:"total_tokens"`
					}
				}
				if err := json.Unmarshal([]byte(body), &whole); err != nil || status != 200 || len(whole.Choices) != 1 {
					t.Fatalf("in one piece: %d %s (%v), want 200 and one choice", status, body, err)
				}
				c := whole.Choices[0]
				if c.Text != strings.Join(pieces, "") || c.FinishReason != finish || !reflect.DeepEqual(c.TokenIDs, ids) || !reflect.DeepEqual(c.PromptIDs, []int32{1, 2}) {
					t.Errorf("in one piece: %+v, want text %q, finish %q, ids %v after [1 2]", c, strings.Join(pieces, ""), finish, ids)
				}
				if u := whole.Usage; u.PromptTokens != 2 || u.CompletionTokens != len(ids) || u.TotalTokens != 2+len(ids) {
					t.Errorf("usage = %+v, want 2 + %d", u, len(ids))
				}
			})
		})
	}
}

// The prompt is what the client sent, as text or as ids, with nothing added.
func TestPromptForms(t *testing.T) {
	for _, prompt := range []string{`"Az"`, `[65,122]`, `["Az"]`, `[[65,122]]`, ` [ [ 65 , 122 ] ] `} {
		synctest.Test(t, func(t *testing.T) {
			model := &byteModel{script: []byte("x")}
			r := newRig(t, model, Options{}, nil)
			status, _, body := r.whole("POST", "/v1/completions", `{"max_tokens":1,"prompt":`+prompt+`}`)
			if want := [][]int32{{65, 122}}; status != 200 || !reflect.DeepEqual(model.prompts, want) {
				t.Errorf("prompt %s: status %d (%s), the model read %v, want %v", prompt, status, body, model.prompts, want)
			}
		})
	}
}

// Requests have the slot one after another, as they came, and each waits
// exactly as long as those before it take.
func TestFirstComeFirstServed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const requests = 9
		model := &byteModel{script: []byte("xy"), prefill: 5 * time.Millisecond, step: 3 * time.Millisecond}
		r := newRig(t, model, Options{}, nil)
		var all sync.WaitGroup
		for i := range requests {
			time.Sleep(time.Nanosecond)
			all.Go(func() {
				resp, conn := r.post("/v1/completions", fmt.Sprint("r", i), fmt.Sprintf(`{"prompt":[%d],"max_tokens":3,"stream":true}`, i))
				defer conn.Close()
				r.events(resp.Body)
			})
			synctest.Wait()
		}
		all.Wait()
		for i, p := range model.prompts {
			if len(p) != 1 || int(p[0]) != i {
				t.Errorf("prefill %d read the prompt of request %v, want %d", i, p, i)
			}
		}
		log := r.served()
		if len(log) != requests {
			t.Fatalf("%d requests in the log, want %d", len(log), requests)
		}
		const each = int64(11 * time.Millisecond)
		for i, s := range log {
			wantSlot := 1 + int64(i)*each
			if s.ID != fmt.Sprint("r", i) || r.stamp(s.QueuedNS) != int64(i)+1 || r.stamp(s.SlotNS) != wantSlot || r.stamp(s.ReleaseNS) != wantSlot+each {
				t.Errorf("place %d: %s queued %d, slot %d to %d; want r%d, %d, %d to %d", i,
					s.ID, r.stamp(s.QueuedNS), r.stamp(s.SlotNS), r.stamp(s.ReleaseNS), i, i+1, wantSlot, wantSlot+each)
			}
		}
	})
}

// A client that goes away costs at most the run of the model that is under
// way, and nobody else a thing. Runs are counted, not timed.
func TestLeaving(t *testing.T) {
	const ms = time.Millisecond
	tests := []struct {
		name   string
		leave  time.Duration // the client's leaving; prefill is 0–50 ms, then a token each 10 ms
		stream bool
		steps  int // of the request
		error  string
		freed  time.Duration
	}{
		{"in prefill, stream", 20 * ms, true, 1, "the client left in prefill", 50 * ms},
		{"in prefill", 20 * ms, false, 1, "the client left in prefill", 50 * ms},
		{"midway, stream", 75 * ms, true, 4, "the client left at token 4", 80 * ms},
		{"midway", 75 * ms, false, 4, "the client left at token 4", 80 * ms},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				model := &byteModel{script: []byte("x"), prefill: 50 * ms, step: 10 * ms}
				r := newRig(t, model, Options{}, nil)
				conn, err := r.listener.dial()
				if err != nil {
					t.Fatal(err)
				}
				body := fmt.Sprintf(`{"prompt":[1],"max_tokens":40,"stream":%v}`, test.stream)
				fmt.Fprintf(conn, "POST /v1/completions HTTP/1.1\r\nHost: s\r\nX-Request-Id: leaver\r\nContent-Length: %d\r\n\r\n%s", len(body), body)
				go io.Copy(io.Discard, conn)

				// Another waits; its answer must be whole.
				var after []got
				var other sync.WaitGroup
				other.Go(func() {
					time.Sleep(time.Millisecond)
					resp, conn := r.post("/v1/completions", "stayer", `{"prompt":[2],"max_tokens":2,"stream":true}`)
					defer conn.Close()
					after = r.events(resp.Body)
				})
				time.Sleep(test.leave)
				conn.Close()
				other.Wait()

				log := r.served()
				if len(log) != 2 {
					t.Fatalf("%d requests in the log, want 2", len(log))
				}
				left := log[0]
				if left.ID != "leaver" || left.Error != test.error || left.Steps != test.steps || len(left.TokenIDs) != test.steps {
					t.Errorf("log = %+v, want leaver with error %q after %d steps", left, test.error, test.steps)
				}
				if got := time.Duration(r.stamp(left.ReleaseNS)); got != test.freed {
					t.Errorf("the slot was freed at %v, want %v", got, test.freed)
				}
				if want := test.steps + 2; model.steps != want {
					t.Errorf("the model ran %d times, want %d: %d and 2 of the other request", model.steps, want, test.steps)
				}
				if len(after) != 3 || after[0].at != test.freed+50*ms || after[1].at != test.freed+60*ms || after[2].data != "[DONE]" {
					t.Errorf("the other's events = %v, want tokens at %v and %v and [DONE]", after, test.freed+50*ms, test.freed+60*ms)
				}
			})
		})
	}
}

func TestLeavingTheQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		model := &byteModel{script: []byte("x"), prefill: 50 * time.Millisecond, step: 10 * time.Millisecond}
		r := newRig(t, model, Options{}, nil)
		var all sync.WaitGroup
		ask := func(id int, leave time.Duration) {
			all.Go(func() {
				resp, conn := r.post("/v1/completions", fmt.Sprint("r", id), fmt.Sprintf(`{"prompt":[%d],"max_tokens":2,"stream":true}`, id))
				defer conn.Close()
				if leave > 0 {
					time.Sleep(leave)
					return
				}
				r.events(resp.Body)
			})
			synctest.Wait()
		}
		ask(0, 0)
		ask(1, 7*time.Millisecond)
		ask(2, 0)
		ask(3, 9*time.Millisecond)
		all.Wait()
		if want := [][]int32{{0}, {2}}; !reflect.DeepEqual(model.prompts, want) {
			t.Errorf("the model read the prompts %v, want %v", model.prompts, want)
		}
		if model.steps != 4 {
			t.Errorf("the model ran %d times, want 4", model.steps)
		}
		var left []string
		for _, s := range r.served() {
			if s.Error == "" {
				continue
			}
			left = append(left, s.ID)
			if s.Error != "the client left in the queue" || s.Steps != 0 || s.SlotNS != 0 || s.ReleaseNS != 0 || s.QueuedNS == 0 || s.TokenIDs != nil {
				t.Errorf("log = %+v, want a request that left the queue and never had the slot", s)
			}
		}
		if !reflect.DeepEqual(left, []string{"r1", "r3"}) {
			t.Errorf("left: %v, want r1 and r3", left)
		}
	})
}

// A client that stops reading holds the slot for the write limit and no more.
func TestClientThatStopsReading(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		model := &byteModel{script: []byte("x"), step: time.Millisecond}
		r := newRig(t, model, Options{}, nil)
		resp, conn := r.post("/v1/completions", "sleeper", `{"prompt":[1],"max_tokens":40,"stream":true}`)
		defer conn.Close()
		_ = resp // its body is never read; a pipe has no buffer
		_, _, body := r.whole("POST", "/v1/completions", `{"prompt":[2],"max_tokens":1}`)
		if !strings.Contains(body, `"text":"x"`) {
			t.Errorf("the request after it got %s, want its answer", body)
		}
		if now := time.Duration(r.clock.Now() - 1); now > writeLimit+time.Second {
			t.Errorf("it took %v, want about the write limit of %v", now, writeLimit)
		}
		if log := r.served(); log[0].ID != "sleeper" || !strings.HasPrefix(log[0].Error, "the client left at token ") {
			t.Errorf("log = %+v, want the sleeper counted as gone", log[0])
		}
	})
}

// So it is with an answer in one piece that nobody fetches, but without the
// slot: the connection is closed.
func TestClientThatNeverReads(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, &byteModel{script: []byte("x")}, Options{}, nil)
		conn, err := r.listener.dial()
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		const body = `{"prompt":[1],"max_tokens":3}`
		fmt.Fprintf(conn, "POST /v1/completions HTTP/1.1\r\nHost: s\r\nContent-Length: %d\r\n\r\n%s", len(body), body)
		log := r.served()
		if len(log) != 1 || log[0].Error != "" || log[0].ReleaseNS != log[0].ArrivalNS {
			t.Errorf("log = %+v, want the request, done at once", log)
		}
		time.Sleep(writeLimit + time.Second)
		if got, err := io.ReadAll(conn); err != nil || len(got) != 0 {
			t.Errorf("after %v: %q, %v; want a closed connection", writeLimit+time.Second, got, err)
		}
	})
}

// A connection that has served a stream isn't bound by its limits afterwards.
func TestConnectionServesOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, &byteModel{script: []byte("x"), step: time.Second}, Options{}, nil)
		conn, err := r.listener.dial()
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		reader := bufio.NewReader(conn)
		for i, body := range []string{`{"prompt":[1],"max_tokens":50,"stream":true}`, "", `{"prompt":[1],"max_tokens":50}`, "", `{"prompt":[1],"n":2}`, `{"prompt":[1],"max_tokens":50,"stream":true}`, ""} {
			ask := "GET /healthz"
			if body != "" {
				ask = "POST /v1/completions"
			}
			fmt.Fprintf(conn, "%s HTTP/1.1\r\nHost: s\r\nContent-Length: %d\r\n\r\n%s", ask, len(body), body)
			resp, err := http.ReadResponse(reader, nil)
			if err != nil {
				t.Fatalf("request %d: %v", i, err)
			}
			if _, err := io.ReadAll(resp.Body); err != nil {
				t.Fatalf("request %d: %v", i, err)
			}
			time.Sleep(10 * time.Minute)
		}
		for _, s := range r.served() {
			if strings.Contains(s.Error, "left") {
				t.Errorf("log = %+v, want nobody to have left", s)
			}
		}
	})
}

// A panic in what wraps the ResponseWriter frees the slot and is on record.
func TestWriterThatPanics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		first := true
		wrap := func(next http.Handler) http.Handler {
			return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if first {
					first = false
					w = panicWriter{w}
				}
				next.ServeHTTP(w, r)
			})
		}
		r := newRig(t, &byteModel{script: []byte("x")}, Options{}, wrap)
		resp, conn := r.post("/v1/completions", "hurt", `{"prompt":[1],"max_tokens":3,"stream":true}`)
		if _, err := io.ReadAll(resp.Body); err == nil {
			t.Error("the response that was aborted ends properly")
		}
		conn.Close()
		if status, _, body := r.whole("POST", "/v1/completions", `{"prompt":[1],"max_tokens":1}`); status != 200 {
			t.Errorf("the request after it: %d %s, want 200", status, body)
		}
		if log := r.served(); len(log) != 2 || log[0].ID != "hurt" || log[0].Error != "the response was aborted" || log[0].ReleaseNS == 0 {
			t.Errorf("log = %+v, want the aborted request and another", log)
		}
	})
}

type panicWriter struct{ http.ResponseWriter }

func (p panicWriter) Write([]byte) (int, error)   { panic(http.ErrAbortHandler) }
func (p panicWriter) Unwrap() http.ResponseWriter { return p.ResponseWriter }

// A body that never comes ends by itself too.
func TestClientThatStopsSending(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, &byteModel{script: []byte("x")}, Options{}, nil)
		conn, err := r.listener.dial()
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		fmt.Fprint(conn, "POST /v1/completions HTTP/1.1\r\nHost: s\r\nContent-Length: 100\r\n\r\n{")
		answer, _ := io.ReadAll(conn)
		if now := time.Duration(r.clock.Now() - 1); now < bodyLimit || now > bodyLimit+10*time.Second {
			t.Errorf("the connection ended after %v, want about %v", now, bodyLimit)
		}
		if !bytes.Contains(answer, []byte(`"code":"body_unreadable"`)) {
			t.Errorf("answer = %q, want the error body_unreadable", answer)
		}
		if log := r.served(); len(log) != 1 || !strings.HasPrefix(log[0].Error, "400 the body can't be read") {
			t.Errorf("log = %+v, want the request with its error", log)
		}
	})
}

func TestFullQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		model := &byteModel{script: []byte("x"), prefill: time.Second}
		r := newRig(t, model, Options{Queue: 1}, nil)
		var all sync.WaitGroup
		for range 2 {
			all.Go(func() { r.whole("POST", "/v1/completions", `{"prompt":[1],"max_tokens":1}`) })
			synctest.Wait()
		}
		status, header, body := r.whole("POST", "/v1/completions", `{"prompt":[1],"max_tokens":1,"stream":true}`)
		want := `{"error":{"message":"1 requests wait already: try again later","type":"server_error","param":null,"code":"queue_full"}}`
		if status != 503 || body != want || header.Get("Retry-After") == "" || header.Get("Content-Type") != "application/json" {
			t.Errorf("third request: %d %v %s, want 503, Retry-After and %s", status, header, body, want)
		}
		all.Wait()
		if len(model.prompts) != 2 {
			t.Errorf("%d prefills, want 2", len(model.prompts))
		}
	})
}

// The log has a request before its client can see the end of its answer.
func TestLogComesBeforeTheEnd(t *testing.T) {
	for _, stream := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			ended := false
			logged := make(chan bool, 1)
			model := &byteModel{script: []byte("x")}
			listener := newPipeListener()
			h := NewHandler(model, Options{Served: func(verify.Served) {
				time.Sleep(time.Second) // a slow disk
				logged <- !ended
			}})
			server := &http.Server{Handler: h}
			go server.Serve(listener)
			defer server.Close()
			r := &rig{t: t, clock: NewClock(), listener: listener}
			resp, conn := r.post("/v1/completions", "", fmt.Sprintf(`{"prompt":[1],"max_tokens":1,"stream":%v}`, stream))
			defer conn.Close()
			b, _ := io.ReadAll(resp.Body)
			ended = true
			if !<-logged {
				t.Errorf("stream %v: the client saw the end %q before the log had the request", stream, b)
			}
		})
	}
}

func TestFailures(t *testing.T) {
	boom := func(at int, f func() error) func(int) error {
		return func(step int) error {
			if step == at {
				return f()
			}
			return nil
		}
	}
	fail := func() error { return errors.New("smol: out of luck") }
	crash := func() error { panic("index out of range") }
	const failed = `{"error":{"message":"smol: out of luck","type":"server_error","param":null,"code":"generation_failed"}}`
	const crashed = `{"error":{"message":"the generator panicked in decoding: index out of range","type":"server_error","param":null,"code":"generator_panicked"}}`
	const crashedFirst = `{"error":{"message":"the generator panicked in prefill: index out of range","type":"server_error","param":null,"code":"generator_panicked"}}`
	tests := []struct {
		name   string
		fault  func(int) error
		stream bool
		status int
		want   []string // the data of each event, or the body
		error  string
		broken bool
	}{
		{"prefill fails", boom(1, fail), false, 500, []string{failed}, "smol: out of luck", false},
		{"prefill fails, stream", boom(1, fail), true, 200, []string{failed}, "smol: out of luck", false},
		{"a step fails, stream", boom(2, fail), true, 200, []string{"x", failed}, "smol: out of luck", false},
		{"prefill panics", boom(1, crash), false, 500, []string{crashedFirst}, "500 the generator panicked in prefill: index out of range", true},
		{"a step panics, stream", boom(3, crash), true, 200, []string{"x", "x", crashed}, "500 the generator panicked in decoding: index out of range", true},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, &byteModel{script: []byte("x"), fault: test.fault}, Options{}, nil)
				resp, conn := r.post("/v1/completions", "", fmt.Sprintf(`{"prompt":[1],"max_tokens":4,"stream":%v}`, test.stream))
				defer conn.Close()
				var got []string
				if resp.StatusCode != test.status {
					t.Errorf("status = %d, want %d", resp.StatusCode, test.status)
				}
				if test.stream {
					for _, e := range r.events(resp.Body) {
						if strings.Contains(e.data, `"text":"x"`) {
							e.data = "x"
						}
						got = append(got, e.data)
					}
				} else {
					b, _ := io.ReadAll(resp.Body)
					got = []string{string(b)}
				}
				if !reflect.DeepEqual(got, test.want) {
					t.Errorf("got %q, want %q (and no [DONE])", got, test.want)
				}
				if log := r.served(); len(log) != 1 || log[0].Error != test.error || log[0].ReleaseNS == 0 {
					t.Errorf("log = %+v, want the error %q and a free slot", log, test.error)
				}
				status, _, body := r.whole("GET", "/healthz", "")
				if broken := status != 200; broken != test.broken {
					t.Errorf("/healthz afterwards: %d %s, want broken %v", status, body, test.broken)
				}
				status, _, body = r.whole("POST", "/v1/completions", `{"prompt":[1],"max_tokens":1}`)
				if test.broken && (status != 500 || !strings.Contains(body, "generator_panicked")) {
					t.Errorf("request after a panic: %d %s, want it refused", status, body)
				}
			})
		})
	}
}

// Nor do those that wait get numbers from a generator in doubt.
func TestPanicWithOthersInTheQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		model := &byteModel{script: []byte("x"), step: time.Second, fault: func(step int) error {
			if step == 2 {
				panic("index out of range")
			}
			return nil
		}}
		r := newRig(t, model, Options{}, nil)
		var all sync.WaitGroup
		for i := range 3 {
			all.Go(func() { r.whole("POST", "/v1/completions", fmt.Sprintf(`{"prompt":[%d],"max_tokens":5}`, i)) })
			synctest.Wait()
		}
		all.Wait()
		if model.steps != 2 || len(model.prompts) != 1 {
			t.Errorf("the model ran %d times for %d prompts, want twice for the first", model.steps, len(model.prompts))
		}
		for _, s := range r.served() {
			if !strings.HasPrefix(s.Error, "500 the generator panicked in decoding") {
				t.Errorf("log = %+v, want the panic in all three", s)
			}
		}
	})
}

// A server that stops says so in the streams that it ends.
func TestStopping(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, &byteModel{script: []byte("x"), step: time.Second}, Options{}, nil)
		resp, conn := r.post("/v1/completions", "", `{"prompt":[1],"max_tokens":40,"stream":true}`)
		defer conn.Close()
		time.AfterFunc(1500*time.Millisecond, func() { r.stop(errors.New("the server is stopping")) })
		events := r.events(resp.Body)
		want := `{"error":{"message":"the server is stopping at token 3","type":"server_error","param":null,"code":"server_stopping"}}`
		if n := len(events); n != 3 || events[2].data != want {
			t.Errorf("events = %v, want two tokens and %s", events, want)
		}
		if log := r.served(); log[0].Error != "503 the server is stopping at token 3" || log[0].Steps != 3 {
			t.Errorf("log = %+v, want it ended by the server at token 3", log[0])
		}
	})
}

// statusLogger hides the ResponseWriter, as logging middleware does.
type statusLogger struct {
	http.ResponseWriter
	status int
}

func (l *statusLogger) WriteHeader(status int) {
	l.status = status
	l.ResponseWriter.WriteHeader(status)
}
func (l *statusLogger) Unwrap() http.ResponseWriter {
	return l.ResponseWriter
}

// onlyWriter hides all that a ResponseWriter need not have.
type onlyWriter struct {
	header http.Header
	write  func([]byte) (int, error)
	status func(int)
}

func (o onlyWriter) Header() http.Header         { return o.header }
func (o onlyWriter) Write(b []byte) (int, error) { return o.write(b) }
func (o onlyWriter) WriteHeader(status int)      { o.status(status) }

func TestStreamThroughMiddleware(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		wrap := func(next http.Handler) http.Handler {
			return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				next.ServeHTTP(&statusLogger{ResponseWriter: w}, r)
			})
		}
		r := newRig(t, &byteModel{script: []byte("x"), step: time.Second}, Options{}, wrap)
		resp, conn := r.post("/v1/completions", "", `{"prompt":[1],"max_tokens":3,"stream":true}`)
		defer conn.Close()
		events := r.events(resp.Body)
		for i, e := range events[:3] {
			if want := time.Duration(i) * time.Second; e.at != want {
				t.Errorf("token %d came at %v, want %v", i, e.at, want)
			}
		}
	})
}

func TestStreamWithoutFlush(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		wrap := func(next http.Handler) http.Handler {
			return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				next.ServeHTTP(onlyWriter{w.Header(), w.Write, w.WriteHeader}, r)
			})
		}
		model := &byteModel{script: []byte("x")}
		r := newRig(t, model, Options{}, wrap)
		status, _, body := r.whole("POST", "/v1/completions", `{"prompt":[1],"max_tokens":3,"stream":true}`)
		if status != 500 || !strings.Contains(body, `"code":"stream_unsupported"`) || model.steps != 0 {
			t.Errorf("%d %s after %d runs of the model, want 500 stream_unsupported and none", status, body, model.steps)
		}
		if status, _, body := r.whole("POST", "/v1/completions", `{"prompt":[1],"max_tokens":1}`); status != 200 {
			t.Errorf("in one piece: %d %s, want 200", status, body)
		}
	})
}

// Over a real socket, each event arrives by itself: N events in N-1 or more
// reads (usage and [DONE] may share one), whatever the buffers between would
// rather do. Each token is held back until the client has the one before it,
// so no delay of this machine can make two arrive as one.
func TestEventsArriveOneByOne(t *testing.T) {
	const tokens = 12
	arrived := make(chan struct{}, tokens+1)
	model := &byteModel{script: []byte("abc"), fault: func(step int) error {
		if step == 1 {
			return nil
		}
		select {
		case <-arrived:
			return nil
		case <-time.After(time.Minute):
			return fmt.Errorf("token %d didn't reach the client", step-1)
		}
	}}
	server := httptest.NewServer(NewHandler(model, Options{}))
	defer server.Close()
	conn, err := net.Dial("tcp", server.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	body := fmt.Sprintf(`{"prompt":"p","max_tokens":%d,"stream":true,"stream_options":{"include_usage":true}}`, tokens)
	fmt.Fprintf(conn, "POST /v1/completions HTTP/1.1\r\nHost: s\r\nConnection: close\r\nContent-Length: %d\r\n\r\n%s", len(body), body)
	var events, reads int
	buf := make([]byte, 64<<10)
	for {
		n, err := conn.Read(buf)
		found := bytes.Count(buf[:n], []byte("data: {"))
		events += found
		if found > 0 {
			reads++
			arrived <- struct{}{}
		}
		if err != nil {
			break
		}
	}
	if events != tokens+1 || reads < events-1 {
		t.Errorf("%d events in %d reads, want %d in at least %d", events, reads, tokens+1, tokens)
	}
}

func TestEndpoints(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, &byteModel{script: []byte("x")}, Options{Model: "org/tiny", BodyBytes: 100}, nil)
		created := r.handler.created
		model := fmt.Sprintf(`{"id":"org/tiny","object":"model","created":%d,"owned_by":"servebench","max_model_len":64}`, created)
		tests := []struct {
			method, path, body string
			status             int
			want               string
		}{
			{"GET", "/healthz", "", 200, `{"status":"ok","model":"org/tiny","context":64,"vocabulary":257,"slots":1}`},
			{"GET", "/v1/models", "", 200, `{"object":"list","data":[` + model + `]}`},
			{"GET", "/v1/models/org/tiny", "", 200, model},
			{"GET", "/v1/models/other", "", 404, `{"error":{"message":"model \"other\" isn't served, want \"org/tiny\"","type":"invalid_request_error","param":"model","code":"model_not_found"}}`},
			{"GET", "/v1/completions", "", 405, `{"error":{"message":"/v1/completions takes POST, not GET","type":"invalid_request_error","param":null,"code":"method_not_allowed"}}`},
			{"POST", "/healthz", "", 405, `{"error":{"message":"/healthz takes GET and HEAD, not POST","type":"invalid_request_error","param":null,"code":"method_not_allowed"}}`},
			{"GET", "/", "", 404, `{"error":{"message":"nothing is served at \"/\"","type":"invalid_request_error","param":null,"code":"not_found"}}`},
			{"POST", "/v1/completions/", "", 404, `{"error":{"message":"nothing is served at \"/v1/completions/\"","type":"invalid_request_error","param":null,"code":"not_found"}}`},
			{"POST", "/v1/completions", `{"prompt":[1],"model":"other"}`, 404, `{"error":{"message":"model \"other\" isn't served, want \"org/tiny\"","type":"invalid_request_error","param":"model","code":"model_not_found"}}`},
			{"POST", "/v1/completions", `{"prompt":"` + strings.Repeat("x", 100) + `"}`, 413, `{"error":{"message":"the body has more than 100 bytes","type":"invalid_request_error","param":null,"code":"body_too_large"}}`},
			{"POST", "/v1/completions", `{"prompt":"a\u0000b"}`, 400, `{"error":{"message":"prompt can't be tokenized: text holds a NUL","type":"invalid_request_error","param":"prompt","code":"invalid_value"}}`},
			{"POST", "/v1/completions", `{"prompt":"` + strings.Repeat("x", 64) + `"}`, 400, `{"error":{"message":"prompt has 64 tokens, want at most 63: the context holds 64 of prompt and answer together","type":"invalid_request_error","param":"prompt","code":"context_length_exceeded"}}`},
			{"POST", "/v1/completions", `{"prompt":"` + strings.Repeat("x", 60) + `","max_tokens":5}`, 400, `{"error":{"message":"prompt has 60 tokens and max_tokens is 5, want at most 64 together","type":"invalid_request_error","param":"max_tokens","code":"context_length_exceeded"}}`},
		}
		for _, test := range tests {
			status, header, body := r.whole(test.method, test.path, test.body)
			if status != test.status || body != test.want || header.Get("Content-Type") != "application/json" {
				t.Errorf("%s %s %s:\n%d %s %s\nwant\n%d %s", test.method, test.path, test.body, status, header.Get("Content-Type"), body, test.status, test.want)
			}
		}
	})
}

// Every request for an answer is in the log, refused ones with the reason.
func TestRefusedRequestIsLogged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, &byteModel{script: []byte("x")}, Options{}, nil)
		_, conn := r.post("/v1/completions", "bad-1", `{"prompt":"x","temperature":0.7}`)
		conn.Close()
		want := []verify.Served{{Kind: verify.KindServed, ID: "bad-1", ArrivalNS: r.clock.Absolute(1), Error: "400 temperature = 0.7 isn't supported: leave it out or send 0"}}
		if got := r.served(); !reflect.DeepEqual(got, want) {
			t.Errorf("log = %+v, want %+v", got, want)
		}
	})
}

func TestRequestID(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, &byteModel{script: []byte("x")}, Options{}, nil)
		for _, id := range []string{"", "a b", "é", `"`, strings.Repeat("x", 129)} {
			resp, conn := r.post("/v1/completions", id, `{"prompt":"x","max_tokens":1}`)
			conn.Close()
			if got := resp.Header.Get("X-Request-Id"); !strings.HasPrefix(got, r.handler.prefix) {
				t.Errorf("X-Request-Id for %q = %q, want one of the server's own", id, got)
			}
		}
		long := strings.Repeat("x", 128)
		resp, conn := r.post("/v1/completions", long, `{"prompt":"x","max_tokens":1}`)
		conn.Close()
		if got := resp.Header.Get("X-Request-Id"); got != long {
			t.Errorf("X-Request-Id = %q, want the client's", got)
		}
		seen := map[string]bool{}
		for _, s := range r.served() {
			if seen[s.ID] {
				t.Errorf("id %s is in the log twice", s.ID)
			}
			seen[s.ID] = true
		}
	})
}
