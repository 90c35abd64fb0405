package sse

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"runtime"
	"slices"
	"sync"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// poller reads the responses of all of a client's plain connections in one
// goroutine, with an epoll instance of its own: a token costs one read, and
// that read's stamp waits for no other goroutine. The goroutines that ask
// sleep until their response is whole.
//
// Note: with a Read of a net.Conn in each of them, every token costs a second
// read that finds nothing, and the wakening of a goroutine and often of a
// thread. The runtime's own epoll is edge-triggered and doesn't tell whether
// an end came with the data, so the second read can't be left out there.
//
// It runs while there are streams, and a little longer.
type poller struct {
	clock *Clock
	idle  time.Duration

	mu      sync.Mutex
	running bool
	epoll   int
	file    *os.File // of epoll
	flows   []*flow  // by descriptor
	count   int

	finished []*flow // the poller's own
}

// flow is one request on a socket. From add to done it is the poller's.
type flow struct {
	in         intake
	fd         int
	connecting bool
	out        []byte // of the request, not yet written
	writeErr   error
	last       int64 // stamp of the last that came or went
	interest   uint32
	done       chan struct{}

	connected, sent, end int64 // stamps
	err                  error
}

// polls reports whether request goes over a socket that the poller can read.
func (c *Client) polls(request *http.Request) bool {
	return c.Dial == nil && request.URL.Scheme == "http"
}

// exchangePolled carries request, which is sent as message, to its target.
func (c *Client) exchangePolled(ctx context.Context, request *http.Request, message []byte, expected int, reply *Reply) {
	r := reply.request
	key := c.wireKey(request)
	f := &flow{in: intake{clock: c.Clock, idle: c.idle(), buffer: newBuffer(expected)}, out: message, done: make(chan struct{})}
	reply.kept = f.in.buffer
	r.StartNS = c.Clock.Now()
	w := c.kept(key)
	if w != nil {
		f.fd, r.Reused = w.fd, true
	} else {
		var err error
		if f.fd, f.connecting, err = c.socket(ctx, key.address); err != nil {
			reply.err = err
			return
		}
		w = &wire{fd: f.fd, key: key}
	}
	if !f.connecting {
		f.connected = c.Clock.Now()
		f.write()
	}
	canceled := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		unix.Shutdown(f.fd, unix.SHUT_RDWR) // which the poller sees
		close(canceled)
	})
	if err := c.polling(f.fd).add(f); err != nil {
		f.err, f.end = err, c.Clock.Now()
	} else {
		<-f.done
	}
	whole := stop()
	if !whole {
		<-canceled // the descriptor may be another's once it is closed
	}
	if f.err != nil && f.writeErr != nil {
		f.err = f.writeErr
	}
	r.ConnectedNS, r.SentNS, r.EndNS = f.connected, f.sent, f.end
	reply.err = f.err
	reply.raw, reply.reads = f.in.buffer.raw, f.in.buffer.reads
	if len(reply.reads) > 0 {
		r.HeadersNS = reply.reads[0].ns
	}
	if whole && f.err == nil && f.sent > 0 && c.Reuse && f.in.again {
		c.keep(w)
	} else {
		w.close()
	}
}

// polling returns the poller of a descriptor. There is one for two of the
// threads that Go may use; the other is for who measures, and the server.
func (c *Client) polling(fd int) *poller {
	c.mu.Lock()
	defer c.mu.Unlock()
	for len(c.pollers) < max(1, runtime.GOMAXPROCS(0)/2) {
		c.pollers = append(c.pollers, &poller{clock: c.Clock, idle: c.idle()})
	}
	return c.pollers[fd%len(c.pollers)]
}

// socket returns a connection to address that only the poller reads, or one
// that is still being made. What is no plain IP address is left to the net
// package, with its resolver and its choice among several addresses.
func (c *Client) socket(ctx context.Context, address string) (fd int, connecting bool, err error) {
	target, err := netip.ParseAddrPort(address)
	if err != nil || target.Addr().Zone() != "" || target.Addr().IsUnspecified() {
		fd, err := c.dialed(ctx, address)
		return fd, false, err
	}
	if err := ctx.Err(); err != nil {
		return -1, false, err
	}
	fail := func(call string, err error) (int, bool, error) {
		if fd >= 0 {
			unix.Close(fd)
		}
		return -1, false, &net.OpError{Op: "dial", Net: "tcp", Addr: net.TCPAddrFromAddrPort(target), Err: os.NewSyscallError(call, err)}
	}
	family, to := addressOf(target)
	if fd, err = unix.Socket(family, unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0); err != nil {
		return fail("socket", err)
	}
	unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_NODELAY, 1)
	unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_KEEPALIVE, 1) // a silent stream shall outlive a router's memory
	unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_KEEPIDLE, keepAlive)
	unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_KEEPINTVL, keepAlive)
	// On the loopback a connection is there when the first call returns,
	// though it says that it is under way; the second one knows.
	for range 2 {
		switch err := unix.Connect(fd, to); err {
		case nil, unix.EISCONN:
			return fd, false, nil
		case unix.EINPROGRESS, unix.EALREADY, unix.EINTR:
		default:
			return fail("connect", err)
		}
	}
	return fd, true, nil
}

const keepAlive = 15 // s, as in the net package

func addressOf(target netip.AddrPort) (family int, to unix.Sockaddr) {
	if ip := target.Addr().Unmap(); ip.Is4() {
		return unix.AF_INET, &unix.SockaddrInet4{Port: int(target.Port()), Addr: ip.As4()}
	}
	return unix.AF_INET6, &unix.SockaddrInet6{Port: int(target.Port()), Addr: target.Addr().As16()}
}

// dialed takes a connection of the net package away from the runtime's epoll,
// which would wake for each of its tokens, too.
func (c *Client) dialed(ctx context.Context, address string) (int, error) {
	conn, err := c.dial(ctx, "tcp", address)
	if err != nil {
		return -1, err
	}
	defer conn.Close()
	raw, err := conn.(syscall.Conn).SyscallConn()
	if err != nil {
		return -1, err
	}
	fd, dupErr := -1, error(nil)
	err = raw.Control(func(theirs uintptr) {
		fd, dupErr = unix.FcntlInt(theirs, unix.F_DUPFD_CLOEXEC, 0)
	})
	if err = errors.Join(err, dupErr); err != nil {
		return -1, &net.OpError{Op: "dial", Net: "tcp", Addr: conn.RemoteAddr(), Err: err}
	}
	return fd, nil
}

const interestRead = unix.EPOLLIN | unix.EPOLLRDHUP

// add has the poller carry f to its end.
func (p *poller) add(f *flow) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.running {
		if err := p.open(); err != nil {
			return err
		}
		p.running = true
		go p.run()
	}
	for len(p.flows) <= f.fd {
		p.flows = append(p.flows, make([]*flow, f.fd+64)...)
	}
	f.last = p.clock.Now()
	f.interest = f.wanted()
	p.flows[f.fd] = f
	p.count++
	if err := unix.EpollCtl(p.epoll, unix.EPOLL_CTL_ADD, f.fd, &unix.EpollEvent{Events: f.interest, Fd: int32(f.fd)}); err != nil {
		p.flows[f.fd] = nil
		p.count--
		return os.NewSyscallError("epoll_ctl", err)
	}
	return nil
}

// open makes the epoll instance, and has the runtime's own tell when it has
// something: a goroutine that waits in the system call itself would have the
// runtime's monitor look after it all the time.
func (p *poller) open() error {
	epoll, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return os.NewSyscallError("epoll_create1", err)
	}
	if err := unix.SetNonblock(epoll, true); err != nil {
		unix.Close(epoll)
		return os.NewSyscallError("fcntl", err)
	}
	p.epoll = epoll
	p.file = os.NewFile(uintptr(epoll), "epoll")
	return nil
}

// linger is how long a poller without streams waits for the next, at most
// twice that.
const linger = time.Second

func (p *poller) run() {
	file, epoll := p.file, p.epoll
	ready, err := file.SyscallConn()
	sweep := p.clock.Now() + int64(p.idle) // no stream's limit is before it
	idle := false
	for err == nil {
		wait := linger
		if p.idle > 0 {
			wait = max(0, min(wait, time.Duration(sweep-p.clock.Now())))
		}
		if err = file.SetReadDeadline(time.Now().Add(wait)); err != nil {
			break
		}
		var failed error
		err = ready.Read(func(uintptr) bool {
			failed = p.drain(epoll)
			return failed != nil
		})
		if err == nil {
			err = failed
		}
		if !errors.Is(err, os.ErrDeadlineExceeded) {
			break
		}
		err = nil
		if p.idle > 0 && p.clock.Now() >= sweep {
			sweep = p.sweep(epoll)
		}
		p.mu.Lock()
		if idle = p.count == 0; idle {
			p.running = false
			file.Close()
		}
		p.mu.Unlock()
		if idle {
			return
		}
	}
	p.fail(file, os.NewSyscallError("epoll_wait", err))
}

// Streams that have ended are woken when nothing is to be read, wakeAtOnce
// between two looks at the sockets, and whatever is to be read once they have
// waited for wakeAfter. Their goroutines close, connect and write: a thousand
// at once would stand before the poller in the runtime's queue, and the stamps
// of all other streams would wait for them.
const (
	wakeAtOnce = 4
	wakeAfter  = time.Millisecond
)

// drain serves what is ready until nothing is.
func (p *poller) drain(epoll int) error {
	var events [64]unix.EpollEvent
	var flows [len(events)]*flow
	for {
		n, _, errno := unix.RawSyscall6(unix.SYS_EPOLL_PWAIT, uintptr(epoll), uintptr(unsafe.Pointer(&events[0])), uintptr(len(events)), 0, 0, 0)
		switch {
		case errno == unix.EINTR:
			continue
		case errno != 0:
			p.release(len(p.finished))
			return errno
		}
		p.mu.Lock()
		for i := range n {
			flows[i] = p.flows[events[i].Fd]
		}
		p.mu.Unlock()
		for i := range n {
			if f := flows[i]; f != nil {
				p.serve(epoll, f, events[i].Events)
			}
		}
		switch {
		case len(p.finished) == 0 && n == 0:
			return nil
		case len(p.finished) > 0 && (n == 0 || p.clock.Now()-p.finished[0].end > int64(wakeAfter)):
			p.release(wakeAtOnce)
			runtime.Gosched()
		}
	}
}

// sweep ends the streams that have been silent for too long and returns the
// stamp at which the next one may have been.
func (p *poller) sweep(epoll int) int64 {
	now := p.clock.Now()
	next := now + int64(p.idle)
	var stalled []*flow
	p.mu.Lock()
	for _, f := range p.flows {
		if f == nil {
			continue
		}
		if limit := f.last + int64(p.idle); limit <= now {
			stalled = append(stalled, f)
		} else {
			next = min(next, limit)
		}
	}
	p.mu.Unlock()
	for _, f := range stalled {
		p.finish(epoll, f, &net.OpError{Op: "read", Net: "tcp", Err: os.ErrDeadlineExceeded})
	}
	p.release(len(p.finished))
	return next
}

// fail ends all streams.
func (p *poller) fail(file *os.File, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	file.Close()
	p.running = false
	for fd, f := range p.flows {
		if f != nil {
			p.flows[fd] = nil
			p.count--
			f.err, f.end = err, p.clock.Now()
			close(f.done)
		}
	}
}

// finish ends f. The goroutine that asks is woken by release.
func (p *poller) finish(epoll int, f *flow, err error) {
	f.end = p.clock.Now()
	f.err = err
	unix.EpollCtl(epoll, unix.EPOLL_CTL_DEL, f.fd, nil)
	p.mu.Lock()
	p.flows[f.fd] = nil
	p.count--
	p.mu.Unlock()
	p.finished = append(p.finished, f)
}

// release wakes the goroutines of up to most streams that have ended.
func (p *poller) release(most int) {
	n := min(most, len(p.finished))
	for _, f := range p.finished[:n] {
		close(f.done)
	}
	p.finished = slices.Delete(p.finished, 0, n)
}

// wanted returns the events that f waits for.
func (f *flow) wanted() uint32 {
	if f.connecting || len(f.out) > 0 {
		return interestRead | unix.EPOLLOUT
	}
	return interestRead
}

// serve does what events allow.
func (p *poller) serve(epoll int, f *flow, events uint32) {
	const over = unix.EPOLLERR | unix.EPOLLHUP
	if f.connecting {
		if events&(unix.EPOLLOUT|over) == 0 {
			return
		}
		errno, err := unix.GetsockoptInt(f.fd, unix.SOL_SOCKET, unix.SO_ERROR)
		if err == nil && errno != 0 {
			err = syscall.Errno(errno)
		}
		if err != nil {
			p.finish(epoll, f, &net.OpError{Op: "dial", Net: "tcp", Err: os.NewSyscallError("connect", err)})
			return
		}
		f.connecting = false
		f.connected = p.clock.Now()
		f.last = f.connected
	}
	if len(f.out) > 0 && events&(unix.EPOLLOUT|over) != 0 {
		f.write()
	}
	if events&(interestRead|over) != 0 && f.read(events&(unix.EPOLLRDHUP|over) != 0) {
		p.finish(epoll, f, f.err)
		return
	}
	if wanted := f.wanted(); wanted != f.interest {
		f.interest = wanted
		unix.EpollCtl(epoll, unix.EPOLL_CTL_MOD, f.fd, &unix.EpollEvent{Events: wanted, Fd: int32(f.fd)})
	}
}

// write writes what the socket takes. Who refuses a request need not have
// read it to its end: an answer counts for more than a write that failed, so
// the error waits for what is read.
func (f *flow) write() {
	for len(f.out) > 0 {
		n, err := writeSocket(f.fd, f.out)
		switch err {
		case nil:
			f.out = f.out[n:]
			f.last = f.in.clock.Now()
		case unix.EINTR:
		case unix.EAGAIN:
			return
		default:
			f.writeErr = &net.OpError{Op: "write", Net: "tcp", Err: os.NewSyscallError("write", err)}
			f.out = nil
			return
		}
	}
	f.sent = f.last
}

// read reads once, or, if the peer has sent its end, up to it. It reports
// whether f is over, and leaves the reason in f.err.
func (f *flow) read(toEnd bool) (over bool) {
	for {
		room := f.in.room()
		n, err := readSocket(f.fd, room)
		ns := f.in.clock.Now()
		switch {
		case err == unix.EINTR:
			continue
		case err == unix.EAGAIN:
			return false
		case err != nil:
			f.err = &net.OpError{Op: "read", Net: "tcp", Err: os.NewSyscallError("read", err)}
			return true
		case n == 0:
			f.err = f.in.closed(io.EOF)
			return true
		}
		f.last = ns
		if over, f.err = f.in.took(n, ns); over || !toEnd {
			return over
		}
	}
}
