// Command engine puts the engine beside other runtimes: it loads a model and
// then does one run for each line on its standard input. compare.py drives it.
//
// A line is JSON, {"prompt":[ids],"tokens":n}. The answer is one line too:
//
//	{"prefill_ns":…,"decode_ns":…,"ids":[…],"peak_bytes":…}
//
// where ids are the n tokens of the answer, prefill_ns is the time to the
// first of them and decode_ns the time of the n-1 others. The first line that
// it writes, {"load_ns":…}, says that it is ready.
package main

import (
	"bufio"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"servebench/smol"
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "engine:", err)
		os.Exit(1)
	}
}

func run() error {
	var opts smol.Options
	model := flag.String("model", "smol/native/v1/model", "`directory` of the model")
	flag.IntVar(&opts.IntraThreads, "threads", 0, "intra-op threads; 0 for one for each CPU")
	flag.IntVar(&opts.Context, "context", 0, "tokens of prompt and answer together; 0 for the engine's default")
	flag.TextVar(&opts.Spinning, "spinning", smol.Default, "`default`, on or off")
	flag.TextVar(&opts.HugePages, "hugepages", smol.Default, "`default`, on or off")
	flag.StringVar(&opts.Library, "library", "", "ONNX Runtime's shared library; empty for the one beside the model")
	flag.Parse()
	if flag.NArg() > 0 {
		return fmt.Errorf("argument %q, want flags only", flag.Arg(0))
	}

	start := time.Now()
	e, err := smol.Load(*model, opts)
	if err != nil {
		return err
	}
	defer e.Close()
	out := json.NewEncoder(os.Stdout)
	if err := out.Encode(map[string]any{"load_ns": time.Since(start).Nanoseconds()}); err != nil {
		return err
	}
	in := json.NewDecoder(bufio.NewReader(os.Stdin))
	for in.More() {
		var job struct {
			Prompt []int32
			Tokens int
		}
		if err := in.Decode(&job); err != nil {
			return err
		}
		if job.Tokens < 2 {
			return fmt.Errorf("tokens %d, want at least 2", job.Tokens)
		}
		ids := make([]int32, 1, job.Tokens)
		begin := time.Now()
		if ids[0], err = e.Prefill(job.Prompt); err != nil {
			return err
		}
		first := time.Now()
		for len(ids) < job.Tokens {
			id, err := e.Step(ids[len(ids)-1])
			if err != nil {
				return err
			}
			ids = append(ids, id)
		}
		end := time.Now()
		peak, err := peakBytes()
		if err != nil {
			return err
		}
		if err := out.Encode(map[string]any{
			"prefill_ns": first.Sub(begin).Nanoseconds(),
			"decode_ns":  end.Sub(first).Nanoseconds(),
			"ids":        ids,
			"peak_bytes": peak,
		}); err != nil {
			return err
		}
	}
	return nil
}

// peakBytes is the largest resident set that the process has had.
func peakBytes() (int64, error) {
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(status)) {
		if rest, ok := strings.CutPrefix(line, "VmHWM:"); ok {
			kb, err := strconv.ParseInt(strings.TrimSpace(strings.TrimSuffix(strings.TrimSpace(rest), "kB")), 10, 64)
			return kb << 10, err
		}
	}
	return 0, fmt.Errorf("/proc/self/status has no VmHWM")
}
