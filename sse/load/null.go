package load

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"time"

	"servebench/sse"
)

// nullServer is a server that does nothing but answer: it generates no token,
// reads no prompt and knows one answer, whose bytes are made beforehand. What
// a client can't do against it, it can do against no server.
//
// One goroutine writes to all streams in turn, an event each. So the events of
// a stream lie as far apart as they can, and each costs the client a read. A
// goroutine a stream writes an answer's events back to back, the client finds
// them all in one read, and a rate of events measured so is many times what it
// can take from a server that generates.
type nullServer struct {
	clock    *sse.Clock
	head     []byte
	events   [][]byte // one write each; the last has all that follows the last token
	listener net.Listener
	all      sync.WaitGroup

	mu      sync.Mutex
	work    sync.Cond // something is in waiting, or closed
	waiting []*nullStream
	conns   map[net.Conn]bool
	closed  bool
	ask     nullAsk
	written map[string][]int64 // by request id, the moments just before each event was written
}

// nullAsk is how answers shall be written from now on.
type nullAsk struct {
	Gap   time.Duration `json:"gap"`   // from one write to the next, whichever their streams; 0 for full speed
	Stall bool          `json:"stall"` // the last event of an answer never comes
}

// nullStream is an answer under way.
type nullStream struct {
	conn   net.Conn
	id     string
	stamps []int64
	done   chan bool // false if the client has left
}

// nullPrompt is what the null server's answers claim to be about.
var nullPrompt = func() []int32 {
	ids := make([]int32, 64)
	for i := range ids {
		ids[i] = int32(100 + i)
	}
	return ids
}()

// newNullServer serves answers of so many tokens on the loopback interface,
// in the form of smol/serve's.
func newNullServer(clock *sse.Clock, tokens int) (*nullServer, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("load: null server: %w", err)
	}
	s := &nullServer{
		clock: clock, listener: listener, conns: map[net.Conn]bool{}, written: map[string][]int64{},
		head: []byte("HTTP/1.1 200 OK\r\nContent-Type: text/event-stream; charset=utf-8\r\nTransfer-Encoding: chunked\r\n\r\n"),
	}
	s.work.L = &s.mu
	const open = `data: {"id":"cmpl-null","object":"text_completion","created":1,"model":"null","choices":[`
	for i := range tokens {
		ids, finish := "", "null"
		if i == 0 {
			ids = `,"prompt_token_ids":` + strings.Join(strings.Fields(fmt.Sprint(nullPrompt)), ",")
		}
		if i == tokens-1 {
			finish = `"length"`
		}
		event := fmt.Sprintf(`%s{"index":0,"text":" word","logprobs":null,"finish_reason":%s%s,"token_ids":[%d]}]}`+"\n\n", open, finish, ids, 200+i%100)
		s.events = append(s.events, chunkOf(event))
	}
	usage := fmt.Sprintf(`%s],"usage":{"prompt_tokens":%d,"completion_tokens":%d,"total_tokens":%d}}`+"\n\n", open, len(nullPrompt), tokens, len(nullPrompt)+tokens)
	last := &s.events[tokens-1]
	*last = append(*last, chunkOf(usage+"data: [DONE]\n\n")...)
	*last = append(*last, "0\r\n\r\n"...)
	s.all.Go(s.accept)
	s.all.Go(s.write)
	return s, nil
}

func chunkOf(data string) []byte { return fmt.Appendf(nil, "%x\r\n%s\r\n", len(data), data) }

func (s *nullServer) url() string { return "http://" + s.listener.Addr().String() }

// close ends all connections and waits until nothing is under way.
func (s *nullServer) close() {
	s.listener.Close()
	s.mu.Lock()
	s.closed = true
	for conn := range s.conns {
		conn.Close()
	}
	s.work.Signal()
	s.mu.Unlock()
	s.all.Wait()
}

func (s *nullServer) accept() {
	for {
		conn, err := s.listener.Accept()
		if err != nil {
			return // closed
		}
		s.mu.Lock()
		if s.closed {
			conn.Close()
		} else {
			s.conns[conn] = true
			s.all.Go(func() { s.serve(conn) })
		}
		s.mu.Unlock()
	}
}

// serve hands one request after the other on conn to write.
func (s *nullServer) serve(conn net.Conn) {
	defer func() {
		conn.Close()
		s.mu.Lock()
		delete(s.conns, conn)
		s.mu.Unlock()
	}()
	buffer := make([]byte, 0, 4<<10)
	for {
		id, grown, err := readNull(conn, buffer[:0])
		if err != nil {
			return
		}
		buffer = grown
		if _, err := conn.Write(s.head); err != nil {
			return
		}
		stream := &nullStream{conn: conn, id: id, stamps: make([]int64, 0, len(s.events)), done: make(chan bool, 1)}
		s.mu.Lock()
		s.waiting = append(s.waiting, stream)
		s.work.Signal()
		s.mu.Unlock()
		if !<-stream.done {
			return
		}
	}
}

// write writes to all streams in turn until the server is closed.
func (s *nullServer) write() {
	var streams []*nullStream
	defer func() {
		for _, stream := range append(streams, s.waiting...) {
			stream.done <- false
		}
	}()
	due := time.Now()
	for {
		s.mu.Lock()
		for len(streams)+len(s.waiting) == 0 && !s.closed {
			s.work.Wait()
			due = time.Now()
		}
		streams, s.waiting = append(streams, s.waiting...), s.waiting[:0]
		ask, closed := s.ask, s.closed
		s.mu.Unlock()
		if closed {
			return
		}
		under := streams[:0]
		for _, stream := range streams {
			if ask.Gap > 0 {
				due = due.Add(ask.Gap)
				if wait := time.Until(due); wait > 0 {
					nap(wait)
				}
			}
			if !s.next(stream, ask.Stall) {
				under = append(under, stream)
			}
		}
		streams = under
	}
}

// next writes one event and tells whether the answer is over.
func (s *nullServer) next(stream *nullStream, stall bool) (over bool) {
	event := s.events[len(stream.stamps)]
	last := len(stream.stamps) == len(s.events)-1
	if last && stall {
		time.Sleep(time.Millisecond) // nobody is in a hurry
		return false
	}
	stream.stamps = append(stream.stamps, s.clock.Now())
	if last { // before the client can know that the answer is whole
		s.mu.Lock()
		s.written[stream.id] = stream.stamps
		s.mu.Unlock()
	}
	_, err := stream.conn.Write(event)
	if over = last || err != nil; over {
		stream.done <- err == nil
	}
	return over
}

// readNull reads one request and returns its X-Request-Id.
func readNull(conn net.Conn, buffer []byte) (id string, grown []byte, err error) {
	for {
		if len(buffer) == cap(buffer) {
			buffer = append(buffer, 0)[:len(buffer)]
		}
		n, err := conn.Read(buffer[len(buffer):cap(buffer)])
		buffer = buffer[:len(buffer)+n]
		if head, body, found := bytes.Cut(buffer, []byte("\r\n\r\n")); found {
			length, _ := strconv.Atoi(headerValue(head, "Content-Length: "))
			if len(body) >= length {
				return headerValue(head, "X-Request-Id: "), buffer, nil
			}
		}
		if err != nil {
			return "", buffer, err
		}
	}
}

// headerValue finds a header in the form in which this project's client
// writes it.
func headerValue(head []byte, name string) string {
	_, rest, _ := bytes.Cut(head, []byte(name))
	value, _, _ := bytes.Cut(rest, []byte("\r\n"))
	return string(value)
}

// The null server is a process of its own, this program started once more, so
// that its work is no part of the client's: a write to a loopback socket costs
// as much as all that a client does with the event. A test binary is anybody's
// and may have no TestMain, so init looks for the variable that says what this
// process is to be.
const nullVariable = "SERVEBENCH_NULL_SERVER"

func init() {
	if tokens, err := strconv.Atoi(os.Getenv(nullVariable)); err == nil && tokens > 0 {
		if err := serveNull(tokens, os.Stdin, os.Stdout); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
}

// nullReady is the first thing that the process says.
type nullReady struct {
	URL     string `json:"url"`
	Clock   string `json:"clock"`    // its name
	ErrorNS int64  `json:"error_ns"` // as known to within this
}

// serveNull is the process. It says where it is; for each nullAsk that it
// reads it answers with the stamps since the last one, on the absolute clock,
// by request id. It ends with its input, so also with the process that
// started it.
func serveNull(tokens int, in io.Reader, out io.Writer) error {
	clock := sse.NewClock()
	s, err := newNullServer(clock, tokens)
	if err != nil {
		return err
	}
	defer s.close()
	say := json.NewEncoder(out)
	about := clock.Evidence()
	if err := say.Encode(nullReady{s.url(), about.Name, about.ErrorNS}); err != nil {
		return err
	}
	for input := json.NewDecoder(in); ; {
		var ask nullAsk
		if err := input.Decode(&ask); err == io.EOF {
			return nil
		} else if err != nil {
			return fmt.Errorf("load: null server: %w", err)
		}
		s.mu.Lock()
		s.ask = ask
		written := s.written
		s.written = map[string][]int64{}
		s.mu.Unlock()
		for _, stamps := range written {
			for i := range stamps {
				stamps[i] = clock.Absolute(stamps[i])
			}
		}
		if err := say.Encode(written); err != nil {
			return err
		}
	}
}

// nullProcess is the null server as its client has it.
type nullProcess struct {
	nullReady
	in   io.Closer
	say  *json.Encoder
	hear *json.Decoder
	kill func()
	wait func()
}

// startNull starts a null server and waits until it is ready.
func startNull(tokens int) (*nullProcess, error) {
	program, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("load: null server: %w", err)
	}
	command := exec.Command(program)
	command.Env = append(os.Environ(), fmt.Sprintf("%s=%d", nullVariable, tokens))
	var stderr bytes.Buffer
	command.Stderr = &stderr
	in, err := command.StdinPipe()
	if err != nil {
		return nil, fmt.Errorf("load: null server: %w", err)
	}
	out, err := command.StdoutPipe()
	if err == nil {
		err = command.Start()
	}
	if err != nil {
		in.Close()
		return nil, fmt.Errorf("load: null server: %w", err)
	}
	p := &nullProcess{
		in: in, say: json.NewEncoder(in), hear: json.NewDecoder(out),
		kill: func() { command.Process.Kill() },
		wait: func() { command.Wait() },
	}
	limit := time.AfterFunc(nullLimit, p.kill)
	defer limit.Stop()
	if err := p.hear.Decode(&p.nullReady); err != nil {
		p.stop()
		return nil, fmt.Errorf("load: null server %s wasn't ready within %v: %w %s", program, nullLimit, err, bytes.TrimSpace(stderr.Bytes()))
	}
	return p, nil
}

// nullLimit is how long the null server may take to be ready, to hand out
// its stamps, and to end.
const nullLimit = 5 * time.Second

// next says how to write from now on, and returns the stamps until now.
func (p *nullProcess) next(ask nullAsk) (written map[string][]int64, err error) {
	limit := time.AfterFunc(nullLimit, p.kill)
	defer limit.Stop()
	if err = p.say.Encode(ask); err == nil {
		err = p.hear.Decode(&written)
	}
	if err != nil {
		return nil, fmt.Errorf("load: null server: %w", err)
	}
	return written, nil
}

// stop ends the process and waits for it.
func (p *nullProcess) stop() {
	p.in.Close()
	limit := time.AfterFunc(nullLimit, p.kill)
	defer limit.Stop()
	p.wait()
}
