// Command accuracy tells how accurately a load generator measures a stream of
// tokens: this module's client and published ones, in one run on one machine.
//
//  1. A scripted server, a process of its own, sends tokens on an absolute
//     schedule and keeps CLOCK_MONOTONIC after the write of each token.
//  2. A client, a process of its own, keeps a number of streams going and
//     reports percentiles of what it saw: TTFT and the gaps between tokens.
//  3. The driver holds what the client reports against the server's log, and
//     takes the CPU time that the client used while the server was in use.
//  4. Clients take turns within a round, and there are several rounds. What
//     each of them gave is a line of a JSON Lines file; the tables are made
//     from that file alone.
//
// See README.md for the tables, what they mean and how to run it.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"
)

func main() {
	if err := run(context.Background(), os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	if len(args) == 0 || strings.HasPrefix(args[0], "-") {
		args = append([]string{"measure"}, args...)
	}
	flags := flag.NewFlagSet("accuracy "+args[0], flag.ContinueOnError)
	switch args[0] {
	case "serve": // started by measure
		ttft := flags.Duration("ttft", 200*time.Millisecond, "from a request's arrival to its first token")
		gap := flags.Duration("gap", 20*time.Millisecond, "between two tokens; 0 for as fast as they are taken")
		if err := flags.Parse(args[1:]); err != nil {
			return err
		}
		go func() { // it ends with who started it, however that ends
			io.Copy(io.Discard, os.Stdin)
			os.Exit(0)
		}()
		return serve(Schedule{TTFT: *ttft, Gap: *gap}, os.Stdout)
	case "client": // started by measure
		var o ownOptions
		flags.StringVar(&o.url, "url", "", "base URL of the server")
		flags.IntVar(&o.streams, "streams", 1, "at a time")
		flags.IntVar(&o.requests, "requests", 1, "in all")
		flags.IntVar(&o.tokens, "tokens", 64, "of each request")
		flags.BoolVar(&o.reuse, "reuse", false, "keep connections")
		flags.IntVar(&o.pending, "pending", 64<<20, "bytes of responses that may be read after the last stream")
		flags.StringVar(&o.profile, "profile", "", "write a CPU profile to this file")
		if err := flags.Parse(args[1:]); err != nil {
			return err
		}
		return ownClient(ctx, o, os.Stdout)
	case "measure":
		var o measureOptions
		flags.IntVar(&o.rounds, "rounds", 5, "rounds; in each of them every client measures every cell")
		flags.IntVar(&o.first, "first-round", 1, "number of the first round, to add rounds to a file")
		flags.StringVar(&o.clients, "clients", "own,own-reuse,sglang-bench", "comma-separated: "+strings.Join(clientNames(), ", "))
		flags.StringVar(&o.cells, "cells", "1,16,64,256,1024,flat", "comma-separated: numbers of streams, and flat for the cell without gaps")
		flags.StringVar(&o.python, "python", "", "a Python that has the published clients (see requirements.txt)")
		flags.StringVar(&o.out, "o", "", "file to append the measurements to (default: standard output only)")
		if err := flags.Parse(args[1:]); err != nil {
			return err
		}
		ctx, stop := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM)
		defer stop()
		return measure(ctx, o)
	case "table":
		if err := flags.Parse(args[1:]); err != nil {
			return err
		}
		list, err := readMeasurements(flags.Arg(0))
		if err != nil {
			return err
		}
		_, err = os.Stdout.WriteString(tables(list))
		return err
	}
	return fmt.Errorf("accuracy: command %q, want measure, table, serve or client", args[0])
}
