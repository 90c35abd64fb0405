// Command serve is the measured server: the model of package smol behind the
// handler of package sse, in a process of its own, so that its memory is the
// server's alone. What it takes and gives over HTTP is sse/PROTOCOL.md.
//
// Its life, as a benchmark uses it:
//
//  1. It loads the model, listens, and says so in one line of JSON, an
//     sse.Ready, on the descriptor of -ready-fd, which it then closes.
//  2. It serves, and writes a line of JSON, a verify.Served, for each request
//     to the file of -log: its own testimony, apart from the client's.
//  3. It ends when it is told to by a signal, or, with -exit-with-stdin, when
//     its standard input does, as that of a child does even when its parent
//     was killed.
//
// It prints nothing but the reason of a failure, on its last line of output,
// and with -v what happens. Exit status: 0 if it was told to end, 1 for a
// failure, 2 for wrong flags.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"sync"
	"syscall"
	"time"

	"servebench/smol"
	"servebench/smol/graph"
	"servebench/sse"
)

// began is as near to the process's start as Go code comes.
var began = time.Now()

func main() { os.Exit(run(os.Args[1:], os.Stdin, os.Stdout, os.Stderr)) }

// Why a server ends without a failure. Requests under way are told.
var (
	errSignal = errors.New("the server was told to stop")
	errStdin  = errors.New("the server's parent is gone")
)

// settings are the flags.
type settings struct {
	model   string
	engine  smol.Options
	listen  string
	public  bool
	readyFD int
	log     string
	stdin   bool
	grace   time.Duration
	verbose bool
}

// parse reads the flags; its error is flag.ErrHelp or was printed to stderr.
func parse(args []string, stderr io.Writer) (settings, error) {
	var s settings
	f := flag.NewFlagSet("serve", flag.ContinueOnError)
	f.SetOutput(io.Discard)
	f.StringVar(&s.model, "model", "", "load the model in `DIR`; by default the one that setup put into the user's cache directory")
	f.StringVar(&s.engine.Library, "library", "", "load ONNX Runtime from `FILE`; by default libonnxruntime.so (.dylib on macOS) beside the model's directory")
	f.IntVar(&s.engine.IntraThreads, "threads", 0, "share each operator between `N` threads; 0 means all CPUs that the process may use")
	f.IntVar(&s.engine.Context, "context", 0, fmt.Sprintf("hold `N` tokens of prompt and answer together; 0 means %d or the model's limit", smol.DefaultContext))
	f.TextVar(&s.engine.Spinning, "spin", smol.Default, "let threads wait in a loop instead of sleeping: `on, off or default`")
	f.TextVar(&s.engine.HugePages, "huge-pages", smol.Default, "ask for huge pages behind the weights: `on, off or default`")
	f.StringVar(&s.listen, "listen", "127.0.0.1:0", "listen at `HOST:PORT`; port 0 takes a free one")
	f.BoolVar(&s.public, "public", false, "allow -listen with an address that other machines reach; there is no access control")
	f.IntVar(&s.readyFD, "ready-fd", -1, "write a line of JSON to descriptor `N` once ready, and close it; by default the address is printed")
	f.StringVar(&s.log, "log", "", "append a line of JSON for each request to `FILE`")
	f.BoolVar(&s.stdin, "exit-with-stdin", false, "end when standard input ends")
	f.DurationVar(&s.grace, "grace", 10*time.Second, "let requests run on for so long after a signal")
	f.BoolVar(&s.verbose, "v", false, "print what happens")
	var errs []error
	if err := f.Parse(args); errors.Is(err, flag.ErrHelp) {
		fmt.Fprint(stderr, "Usage: serve [flags]\n\nServes a model in OpenAI's completions dialect; see sse/PROTOCOL.md.\n\n")
		f.SetOutput(stderr)
		f.PrintDefaults()
		return s, err
	} else if err != nil {
		fmt.Fprintf(stderr, "serve: %v (-h lists the flags)\n", err)
		return s, err
	}
	if s.model == "" {
		cache, err := os.UserCacheDir()
		if err != nil {
			errs = append(errs, fmt.Errorf("-model is needed: %w", err))
		}
		s.model = filepath.Join(cache, "servebench", "v1", "model")
	}
	if f.NArg() > 0 {
		errs = append(errs, fmt.Errorf("argument %q isn't a flag", f.Arg(0)))
	}
	if s.readyFD >= 0 && s.readyFD <= 2 {
		errs = append(errs, fmt.Errorf("-ready-fd %d, want one above 2, which are standard input and output", s.readyFD))
	}
	if s.engine.IntraThreads < 0 {
		errs = append(errs, fmt.Errorf("-threads %d, want 0 or more", s.engine.IntraThreads))
	}
	if s.engine.Context < 0 {
		errs = append(errs, fmt.Errorf("-context %d, want 0 or more", s.engine.Context))
	}
	if s.grace < 0 {
		errs = append(errs, fmt.Errorf("-grace %v, want 0 or more", s.grace))
	}
	if err := checkAddress(s.listen, s.public); err != nil {
		errs = append(errs, err)
	}
	for _, err := range errs {
		fmt.Fprintf(stderr, "serve: %v\n", err)
	}
	return s, errors.Join(errs...)
}

// checkAddress refuses an address that other machines reach, unless it is
// meant.
func checkAddress(address string, public bool) error {
	a, err := net.ResolveTCPAddr("tcp", address)
	if err != nil {
		return fmt.Errorf("-listen %q: %v", address, err)
	}
	if !public && !a.IP.IsLoopback() {
		return fmt.Errorf("-listen %q isn't a loopback address such as 127.0.0.1:0: other machines could use the server; if they shall, add -public", address)
	}
	return nil
}

// run is the program; it returns the exit status.
func run(args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	s, err := parse(args, stderr)
	if errors.Is(err, flag.ErrHelp) {
		return 0
	}
	if err != nil {
		return 2
	}
	if err := serve(s, stdin, stdout, stderr); err != nil {
		fmt.Fprintf(stderr, "serve: %v\n", err)
		return 1
	}
	return 0
}

// serve loads, listens, and serves until it is told to end.
func serve(s settings, stdin io.Reader, stdout, stderr io.Writer) (err error) {
	tell := func(format string, args ...any) {
		if s.verbose {
			fmt.Fprintf(stderr, "serve: "+format+"\n", args...)
		}
	}
	var ready *os.File
	if s.readyFD > 2 {
		if ready, err = readyFile(s.readyFD); err != nil {
			return err
		}
		defer ready.Close()
	}

	ctx, stop := context.WithCancelCause(context.Background())
	defer stop(nil)
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	defer signal.Stop(signals)
	if s.stdin {
		go func() {
			io.Copy(io.Discard, stdin)
			stop(errStdin)
		}()
	}

	// Loading can't be called off: a program that shall end then just ends.
	type result struct {
		engine *smol.Engine
		err    error
	}
	loading := make(chan result, 1)
	go func() {
		engine, err := smol.Load(s.model, s.engine)
		loading <- result{engine, err}
	}()
	var loaded result
	select {
	case loaded = <-loading:
	case <-ctx.Done():
		return nil
	case <-signals:
		return nil
	}
	if loaded.err != nil {
		return loaded.err
	}
	engine := loaded.engine
	defer func() { err = errors.Join(err, engine.Close()) }()

	var log *servedLog
	if s.log != "" {
		if log, err = openLog(s.log, stop); err != nil {
			return err
		}
		defer func() { err = errors.Join(err, log.close()) }()
	}

	listener, err := net.Listen("tcp", s.listen)
	if err != nil {
		return fmt.Errorf("-listen %s: %w: name another port, or 0 for a free one", s.listen, err)
	}
	info := engine.Info()
	info.PID = os.Getpid()
	info.Go = runtime.Version()
	manifest, err := graph.ReadManifest(s.model)
	if err != nil {
		return err
	}
	clock := sse.NewClock()
	info.ClockErrorNS = clock.Evidence().ErrorNS
	options := sse.Options{Model: info.Model.ID, Chat: chatTemplate(manifest.ChatTemplate), Clock: clock}
	if log != nil {
		options.Served = log.write
	}
	server := &http.Server{
		Handler:           sse.NewHandler(engine, options),
		BaseContext:       func(net.Listener) context.Context { return ctx },
		ReadHeaderTimeout: 10 * time.Second,
		IdleTimeout:       2 * time.Minute,
		MaxHeaderBytes:    16 << 10,
		ErrorLog:          quiet(s.verbose, stderr),
	}
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()

	info.LoadNS = int64(time.Since(began))
	if ready != nil {
		if err := announce(ready, sse.Ready{Addr: listener.Addr().String(), Server: info}); err != nil {
			server.Close()
			return err
		}
	} else {
		fmt.Fprintf(stdout, "http://%s\n", listener.Addr())
	}
	if options.Chat == nil {
		tell("the model's chat template isn't known: no chat completions")
	}
	tell("%s at %s, %d threads, context %d", info.Model.ID, listener.Addr(), info.IntraThreads, info.ContextLimit)

	select {
	case err := <-served:
		return fmt.Errorf("serving: %w", err)
	case <-ctx.Done():
	case got := <-signals:
		tell("%v: requests under way have %v", got, s.grace)
		// What runs may end, a second signal or the end of grace ends it.
		timer := time.NewTimer(s.grace)
		defer timer.Stop()
		var wait sync.WaitGroup
		idle := make(chan struct{})
		wait.Go(func() {
			if server.Shutdown(ctx) == nil {
				close(idle)
			}
		})
		select {
		case <-idle:
		case <-timer.C:
		case <-signals:
		case <-ctx.Done():
		}
		stop(errSignal)
		wait.Wait()
	}
	// Handlers see the context within one step of the model.
	tell("%v", context.Cause(ctx))
	last, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	if err := server.Shutdown(last); err != nil {
		server.Close()
		return fmt.Errorf("stopping: requests didn't end: %w", err)
	}
	if cause := context.Cause(ctx); cause != errStdin && cause != errSignal {
		return cause
	}
	return nil
}
