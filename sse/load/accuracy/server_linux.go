package main

import (
	"bytes"
	"container/heap"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"runtime"
	"strconv"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"
)

// server is one thread with one epoll instance. There is no runtime between
// the schedule and the socket: no goroutine is woken for a token, no timer is
// set for it, and a client's own scheduling is all that its figures contain.
type server struct {
	schedule Schedule
	listener int
	epoll    int
	conns    map[int]*conn
	due      streams
	log      []served
	requests int
}

// conn is one connection, with the request that it is about.
type conn struct {
	fd      int
	accept  int64
	arrival int64 // of what came last
	in      []byte
	out     []byte // not yet taken by the socket
	writing bool   // EPOLLOUT is asked for
	stream  *stream
	close   bool // once out is empty
}

// stream is an answer under way.
type stream struct {
	served
	conn  *conn
	chat  bool
	usage bool
	sent  int
	due   int64
	index int
}

// streams is a heap by the next token's due time.
type streams []*stream

func (s streams) Len() int           { return len(s) }
func (s streams) Less(i, j int) bool { return s[i].due < s[j].due }
func (s streams) Swap(i, j int)      { s[i], s[j] = s[j], s[i]; s[i].index, s[j].index = i, j }
func (s *streams) Push(x any)        { x.(*stream).index = len(*s); *s = append(*s, x.(*stream)) }
func (s *streams) Pop() any {
	last := len(*s) - 1
	x := (*s)[last]
	(*s)[last] = nil
	*s = (*s)[:last]
	x.index = -1
	return x
}

// serve answers on a free port of 127.0.0.1, which it prints to out as one
// line, until it is killed or its epoll fails.
func serve(schedule Schedule, out io.Writer) error {
	runtime.LockOSThread()
	unix.Prctl(unix.PR_SET_TIMERSLACK, 1, 0, 0, 0) // the default of 50 µs is a schedule's error
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("accuracy: socket: %w", err)
	}
	// The kernel says when a request came in, on a connection not yet accepted
	// too: how long the server took to look is no client's doing.
	if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_TIMESTAMPNS, 1); err != nil {
		return fmt.Errorf("accuracy: setsockopt: %w", err)
	}
	if err := unix.Bind(fd, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		return fmt.Errorf("accuracy: bind: %w", err)
	}
	if err := unix.Listen(fd, 4096); err != nil {
		return fmt.Errorf("accuracy: listen: %w", err)
	}
	name, err := unix.Getsockname(fd)
	if err != nil {
		return fmt.Errorf("accuracy: getsockname: %w", err)
	}
	s := &server{schedule: schedule, listener: fd, conns: map[int]*conn{}}
	if s.epoll, err = unix.EpollCreate1(unix.EPOLL_CLOEXEC); err != nil {
		return fmt.Errorf("accuracy: epoll: %w", err)
	}
	if err := unix.EpollCtl(s.epoll, unix.EPOLL_CTL_ADD, fd, &unix.EpollEvent{Events: unix.EPOLLIN, Fd: int32(fd)}); err != nil {
		return fmt.Errorf("accuracy: epoll: %w", err)
	}
	fmt.Fprintf(out, "%s\n", net.JoinHostPort("127.0.0.1", strconv.Itoa(name.(*unix.SockaddrInet4).Port)))
	return s.run()
}

// run never waits longer than until the next token is due, and looks at the
// sockets after every batch of tokens.
func (s *server) run() error {
	var events [256]unix.EpollEvent
	for {
		wait := unix.Timespec{Sec: 3600}
		if len(s.due) > 0 {
			wait = unix.NsecToTimespec(max(0, s.due[0].due-monotonic()))
		}
		n, err := epollWait(s.epoll, events[:], &wait)
		if err != nil && !errors.Is(err, unix.EINTR) {
			return fmt.Errorf("accuracy: epoll: %w", err)
		}
		for _, event := range events[:max(n, 0)] {
			if int(event.Fd) == s.listener {
				s.accept()
				continue
			}
			c := s.conns[int(event.Fd)]
			if c == nil {
				continue
			}
			if event.Events&unix.EPOLLOUT != 0 {
				s.flush(c)
			}
			if event.Events&(unix.EPOLLIN|unix.EPOLLHUP|unix.EPOLLERR) != 0 && s.conns[c.fd] == c {
				s.read(c)
			}
		}
		const batch = 64
		for range batch {
			if len(s.due) == 0 || s.due[0].due > monotonic() {
				break
			}
			s.step(s.due[0])
		}
	}
}

func (s *server) accept() {
	for range 16 { // then the tokens that are due
		fd, _, err := unix.Accept4(s.listener, unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC)
		if err != nil {
			return // EAGAIN, or a client that has gone
		}
		c := &conn{fd: fd, accept: monotonic()}
		unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_NODELAY, 1)
		if unix.EpollCtl(s.epoll, unix.EPOLL_CTL_ADD, fd, &unix.EpollEvent{Events: unix.EPOLLIN, Fd: int32(fd)}) != nil {
			unix.Close(fd)
			continue
		}
		s.conns[fd] = c
		s.read(c) // most have sent their request by now
	}
}

func (s *server) drop(c *conn) {
	if c.stream != nil && c.stream.index >= 0 {
		heap.Remove(&s.due, c.stream.index)
	}
	delete(s.conns, c.fd)
	unix.Close(c.fd)
}

func (s *server) read(c *conn) {
	var buffer [64 << 10]byte
	var control [128]byte
	for {
		n, controls, _, _, err := unix.Recvmsg(c.fd, buffer[:], control[:], 0)
		switch {
		case errors.Is(err, unix.EAGAIN):
			return
		case err != nil || n == 0:
			s.drop(c)
			return
		}
		c.in = append(c.in, buffer[:n]...)
		c.arrival = arrivalOf(control[:controls])
		if c.stream == nil && !s.take(c) {
			return
		}
		if n < len(buffer) {
			return
		}
	}
}

// arrivalOf returns when the last bytes of a read came in, which the kernel
// tells as wall time, on CLOCK_MONOTONIC.
func arrivalOf(control []byte) int64 {
	now := monotonic()
	messages, err := unix.ParseSocketControlMessage(control)
	if err != nil {
		return now
	}
	for _, m := range messages {
		if m.Header.Level != unix.SOL_SOCKET || m.Header.Type != unix.SO_TIMESTAMPNS || len(m.Data) < int(unsafe.Sizeof(unix.Timespec{})) {
			continue
		}
		var wall unix.Timespec
		unix.ClockGettime(unix.CLOCK_REALTIME, &wall) // never fails for this clock
		stamp := *(*unix.Timespec)(unsafe.Pointer(&m.Data[0]))
		return min(now, now-(wall.Nano()-stamp.Nano()))
	}
	return now
}

// take looks for a whole request in what has come. It reports whether the
// connection still lives.
func (s *server) take(c *conn) bool {
	head, rest, found := bytes.Cut(c.in, []byte("\r\n\r\n"))
	if !found {
		return true
	}
	line, fields, _ := strings.Cut(string(head), "\r\n")
	length, id, expects := 0, "", false
	for field := range strings.SplitSeq(fields, "\r\n") {
		name, value, _ := strings.Cut(field, ":")
		value = strings.TrimSpace(value)
		switch strings.ToLower(name) {
		case "content-length":
			length, _ = strconv.Atoi(value)
		case "x-request-id":
			id = value
		case "connection":
			c.close = strings.EqualFold(value, "close")
		case "expect":
			expects = true
		}
	}
	if len(rest) < length {
		if expects && len(rest) == 0 {
			unix.Write(c.fd, []byte("HTTP/1.1 100 Continue\r\n\r\n"))
		}
		return true
	}
	body := rest[:length]
	method, path, _ := strings.Cut(line, " ")
	path, _, _ = strings.Cut(path, " ")
	arrival := c.arrival
	c.in = append([]byte(nil), rest[length:]...)
	switch {
	case method == "POST" && (path == "/v1/completions" || path == "/v1/chat/completions"):
		return s.begin(c, strings.Contains(path, "chat"), body, id, arrival)
	case path == "/log":
		var out bytes.Buffer
		encoder := json.NewEncoder(&out)
		for i := range s.log {
			encoder.Encode(&s.log[i])
		}
		s.log = nil
		return s.reply(c, "200 OK", out.Bytes())
	case strings.HasPrefix(path, "/v1/models"):
		return s.reply(c, "200 OK", []byte(`{"object":"list","data":[{"id":"`+modelName+`","object":"model","created":0,"owned_by":"accuracy"}]}`))
	case method == "GET":
		return s.reply(c, "200 OK", []byte("{}"))
	}
	return s.reply(c, "404 Not Found", []byte("{}"))
}

func (s *server) reply(c *conn, status string, body []byte) bool {
	c.out = fmt.Appendf(c.out, "HTTP/1.1 %s\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", status, len(body), body)
	return s.flush(c)
}

// begin sends the head, as servers do while a request waits, and plans the
// tokens.
func (s *server) begin(c *conn, chat bool, body []byte, id string, arrival int64) bool {
	var asked struct {
		MaxTokens  int `json:"max_tokens"`
		Completion int `json:"max_completion_tokens"`
		Options    struct {
			Usage bool `json:"include_usage"`
		} `json:"stream_options"`
	}
	if err := json.Unmarshal(body, &asked); err != nil || asked.MaxTokens+asked.Completion == 0 {
		return s.reply(c, "400 Bad Request", []byte(`{"error":{"message":"max_tokens is missing"}}`))
	}
	s.requests++
	c.stream = &stream{
		served: served{Name: fmt.Sprintf("r%d", s.requests), ID: id, AcceptNS: c.accept, ArrivalNS: arrival, Tokens: max(asked.MaxTokens, asked.Completion)},
		conn:   c, chat: chat, usage: asked.Options.Usage, due: arrival + int64(s.schedule.TTFT), index: -1,
	}
	connection := ""
	if c.close {
		connection = "Connection: close\r\n"
	}
	c.out = append(c.out, "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream; charset=utf-8\r\n"+connection+"Transfer-Encoding: chunked\r\n\r\n"...)
	if !s.flush(c) {
		return false
	}
	if s.schedule.Gap > 0 {
		c.stream.FlushNS = make([]int64, 0, c.stream.Tokens)
	}
	heap.Push(&s.due, c.stream)
	return true
}

// step writes what is due of a stream.
func (s *server) step(x *stream) {
	c := x.conn
	if s.schedule.Gap > 0 {
		x.token()
		x.sent++
		if x.sent == x.Tokens {
			x.end()
		}
		alive := s.flush(c)
		x.FlushNS = append(x.FlushNS, monotonic())
		if !alive {
			return
		}
		if x.sent == x.Tokens {
			s.done(x)
			return
		}
		x.due += int64(s.schedule.Gap)
		heap.Fix(&s.due, x.index)
		return
	}
	const write = 32 << 10
	for len(c.out) < write && x.sent < x.Tokens {
		x.token()
		x.sent++
	}
	if x.sent == x.Tokens {
		x.end()
	}
	if !s.flush(c) {
		return
	}
	switch {
	case x.sent == x.Tokens:
		s.done(x)
	case c.writing: // goes on when the socket takes more
		heap.Remove(&s.due, x.index)
	default:
		x.due = monotonic() // behind the others
		heap.Fix(&s.due, x.index)
	}
}

func (s *server) done(x *stream) {
	x.EndNS = monotonic()
	s.log = append(s.log, x.served)
	if x.index >= 0 {
		heap.Remove(&s.due, x.index)
	}
	x.conn.stream = nil
	if x.conn.close && len(x.conn.out) == 0 {
		s.drop(x.conn)
	}
}

// token appends the event of the next token, in the form of vLLM's, to what
// the connection sends.
func (x *stream) token() {
	text := " t" + strconv.Itoa(x.sent)
	if x.sent == 0 {
		text = x.Name
	}
	finish := "null"
	if x.sent == x.Tokens-1 {
		finish = `"length"`
	}
	if x.chat {
		x.event(`"object":"chat.completion.chunk","created":1764547200,"model":"` + modelName + `","choices":[{"index":0,"delta":{"content":"` + text + `"},"logprobs":null,"finish_reason":` + finish + `}]}`)
		return
	}
	x.event(`"object":"text_completion","created":1764547200,"model":"` + modelName + `","choices":[{"index":0,"text":"` + text + `","logprobs":null,"finish_reason":` + finish + `,"stop_reason":null}]}`)
}

func (x *stream) event(fields string) {
	x.chunk(`data: {"id":"cmpl-` + x.Name + `",` + fields + "\n\n")
}

func (x *stream) chunk(data string) {
	x.conn.out = strconv.AppendInt(x.conn.out, int64(len(data)), 16)
	x.conn.out = append(x.conn.out, "\r\n"...)
	x.conn.out = append(x.conn.out, data...)
	x.conn.out = append(x.conn.out, "\r\n"...)
}

// end appends the usage, [DONE] and the last chunk. They go with the last
// token, so that no write of theirs disturbs another stream's token.
func (x *stream) end() {
	if x.usage {
		usage := fmt.Sprintf(`"object":"text_completion","created":1764547200,"model":"%s","choices":[],"usage":{"prompt_tokens":1,"completion_tokens":%d,"total_tokens":%d}}`, modelName, x.Tokens, x.Tokens+1)
		if x.chat {
			usage = strings.Replace(usage, "text_completion", "chat.completion.chunk", 1)
		}
		x.event(usage)
	}
	x.chunk("data: [DONE]\n\n")
	x.conn.out = append(x.conn.out, "0\r\n\r\n"...)
}

// flush writes what the socket takes and has epoll tell when it takes the
// rest. It reports whether the connection still lives.
func (s *server) flush(c *conn) bool {
	for len(c.out) > 0 {
		n, err := unix.Write(c.fd, c.out)
		if errors.Is(err, unix.EAGAIN) {
			break
		}
		if err != nil {
			s.drop(c)
			return false
		}
		c.out = c.out[:copy(c.out, c.out[n:])]
	}
	if full := len(c.out) > 0; full != c.writing {
		c.writing = full
		event := unix.EpollEvent{Events: unix.EPOLLIN, Fd: int32(c.fd)}
		if full {
			event.Events |= unix.EPOLLOUT
		}
		unix.EpollCtl(s.epoll, unix.EPOLL_CTL_MOD, c.fd, &event)
		if !full && c.stream != nil && c.stream.index < 0 && c.stream.sent < c.stream.Tokens {
			c.stream.due = monotonic()
			heap.Push(&s.due, c.stream)
		}
	}
	if len(c.out) == 0 && c.close && c.stream == nil {
		s.drop(c)
		return false
	}
	return true
}
