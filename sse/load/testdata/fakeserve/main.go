// Command fakeserve is a server for tests: sse's own handler over a generator
// that makes up ids, without a model. It takes the flags that StartServer
// gives, and -ill to misbehave.
package main

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"strconv"
	"sync"
	"time"

	"servebench/sse"
	"servebench/verify"
)

var (
	corpusPath = flag.String("corpus", "", "")
	threads    = flag.Int("threads", 1, "")
	_          = flag.String("model", "", "")
	hold       = flag.Int("context", 2048, "")
	listen     = flag.String("listen", "127.0.0.1:0", "")
	readyFD    = flag.Int("ready-fd", 0, "")
	logPath    = flag.String("log", "", "")
	_          = flag.Bool("exit-with-stdin", false, "")
	step       = flag.Duration("step", 200*time.Microsecond, "")
	ill        = flag.String("ill", "", "what goes wrong: dead, deaf, threads, die, error, drift, prompt, half, forget")
	after      = flag.Int("after", 3, "requests before it goes wrong")
)

func main() {
	flag.Parse()
	if value := os.Getenv("FAKESERVE_ILL"); value != "" {
		*ill = value
	}
	if value := os.Getenv("FAKESERVE_AFTER"); value != "" {
		*after, _ = strconv.Atoi(value)
	}
	if value := os.Getenv("FAKESERVE_STEP"); value != "" {
		*step, _ = time.ParseDuration(value)
	}
	if value := os.Getenv("FAKESERVE_CORPUS"); value != "" {
		*corpusPath = value
	}
	switch *ill {
	case "dead":
		log.Fatal("fakeserve: no model here")
	case "threads":
		if *threads > 1 {
			log.Fatal("fakeserve: no more threads")
		}
	case "deaf":
		io.Copy(io.Discard, os.Stdin)
		return
	}
	data, err := os.ReadFile(*corpusPath)
	if err != nil {
		log.Fatal(err)
	}
	corpus, err := verify.ReadCorpus("corpus.jsonl", data)
	if err != nil {
		log.Fatal(err)
	}
	g := &generator{prompts: map[string][]int32{}}
	for _, p := range corpus.Prompts {
		g.prompts[p.Text] = p.IDs
	}
	logFile, err := os.OpenFile(*logPath, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o666)
	if err != nil {
		log.Fatal(err)
	}
	clock := sse.NewClock()
	var mu sync.Mutex
	handler := sse.NewHandler(g, sse.Options{Model: "fake", Clock: clock, Served: func(s verify.Served) {
		mu.Lock()
		defer mu.Unlock()
		if *ill == "forget" {
			return
		}
		line, err := json.Marshal(&s)
		if err != nil {
			log.Fatal(err)
		}
		if _, err := logFile.Write(append(line, '\n')); err != nil {
			log.Fatalf("fakeserve: -log: request %s can't be recorded: %v", s.ID, err) // as smol/serve
		}
	}})
	listener, err := net.Listen("tcp", *listen)
	if err != nil {
		log.Fatalf("fakeserve: -listen %s: %v", *listen, err)
	}
	self, err := os.Executable()
	if err != nil {
		log.Fatal(err)
	}
	file, err := verify.HashFile(self)
	if err != nil {
		log.Fatal(err)
	}
	ready, err := json.Marshal(sse.Ready{Addr: listener.Addr().String(), Server: verify.Server{
		Go: "go", Libraries: []verify.Library{}, IntraThreads: *threads, InterThreads: 1, Slots: 1,
		ContextLimit: g.Limits().Context, ClockErrorNS: clock.Evidence().ErrorNS,
		Model: verify.Model{ID: "fake", Source: "fakeserve", Precision: "none", Parameters: 1, Vocabulary: g.Limits().Vocabulary, Files: []verify.File{file}},
	}})
	if err != nil {
		log.Fatal(err)
	}
	pipe := os.NewFile(uintptr(*readyFD), "ready")
	fmt.Fprintf(pipe, "%s\n", ready)
	pipe.Close()
	go http.Serve(listener, handler)
	io.Copy(io.Discard, os.Stdin)
}

type generator struct {
	mu      sync.Mutex
	prompts map[string][]int32
	state   int32
	served  int
}

func (g *generator) bad(kind string) bool { return *ill == kind && g.served > *after }

func (g *generator) Encode(text string) ([]int32, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	ids, known := g.prompts[text]
	if !known {
		return nil, errors.New("fakeserve: not a prompt of the corpus")
	}
	if g.bad("prompt") {
		ids = append([]int32{1}, ids[1:]...)
	}
	return ids, nil
}

func (g *generator) Piece(id int32) []byte { return []byte(fmt.Sprintf(" %d", id)) }

func (g *generator) Prefill(prompt []int32) (int32, error) {
	g.mu.Lock()
	g.served++
	g.mu.Unlock()
	g.state = 7
	for _, id := range prompt {
		g.state = (g.state*31 + id) % 49000
	}
	if g.bad("drift") {
		g.state++
	}
	return g.Step(g.state)
}

func (g *generator) Step(id int32) (int32, error) {
	time.Sleep(*step)
	switch {
	case g.bad("die"):
		os.Exit(3)
	case g.bad("error"):
		return 0, errors.New("fakeserve: out of luck")
	case g.bad("half"):
		select {} // goes silent
	}
	g.state = (g.state*31+id)%49000 + 3
	return g.state, nil
}

func (g *generator) Limits() sse.Limits {
	return sse.Limits{Context: *hold, Vocabulary: 49152, EOS: 2}
}
