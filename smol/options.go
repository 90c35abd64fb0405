package smol

import (
	"errors"
	"fmt"
	"runtime"
	"slices"
)

// interThreads is how many operators run at once: the graph is one chain.
const interThreads = 1

// libraryName is what setup calls ONNX Runtime's library.
func libraryName() string {
	if runtime.GOOS == "darwin" {
		return "libonnxruntime.dylib"
	}
	return "libonnxruntime.so"
}

// DefaultContext is the context of an engine whose Options give none.
const DefaultContext = 2048

// Options of Load. The zero value works.
type Options struct {
	// IntraThreads is the number of threads that share one operator, the
	// caller's included; 1 to the number of CPUs that the process may use,
	// which is also the default. More is an error and not a warning: threads
	// that wait for each other in a loop on too few CPUs measure the
	// scheduler.
	IntraThreads int
	// Context is the number of tokens of prompt and answer together; 2 to the
	// model's own limit, by default DefaultContext or the model's limit if
	// that is smaller.
	Context int
	// Spinning lets threads wait for work in a loop instead of sleeping:
	// faster, and busy for a moment after each run. Default on; SPEED.md has
	// what it gives.
	Spinning Toggle
	// HugePages has the kernel back the packed weights with huge pages, once
	// they are loaded. Linux 6.1 and later. By default they are used where the
	// kernel gives them; On makes it an error if it doesn't.
	HugePages Toggle
	// Library is ONNX Runtime's shared library, by default libonnxruntime.so
	// (.dylib on macOS) in the parent of the model's directory, where setup
	// puts it. Engines that are open at the same time use one library.
	Library string

	entries [][2]string // further session configuration, for experiments
}

// Toggle is a setting with a default of its own.
type Toggle uint8

const (
	Default Toggle = iota
	On
	Off
)

func (t Toggle) or(standard bool) bool {
	switch t {
	case On:
		return true
	case Off:
		return false
	}
	return standard
}

// resolve checks o against the model's limit and the machine, and fills in
// the defaults.
func (o Options) resolve(modelContext int) (Options, error) {
	var errs []error
	cpus := allowedCPUs()
	if o.IntraThreads == 0 {
		o.IntraThreads = cpus
	}
	if o.IntraThreads < 1 || o.IntraThreads > cpus {
		errs = append(errs, fmt.Errorf("smol: IntraThreads %d, want 1 to %d, the CPUs that this process may use", o.IntraThreads, cpus))
	}
	if o.Context == 0 {
		o.Context = min(DefaultContext, modelContext)
	}
	if o.Context < 2 || o.Context > modelContext {
		errs = append(errs, fmt.Errorf("smol: Context %d, want 2 to %d, the model's own limit", o.Context, modelContext))
	}
	return o, errors.Join(errs...)
}

func fallbackCPUs() int { return runtime.NumCPU() }

var toggleNames = [...]string{Default: "default", On: "on", Off: "off"}

// MarshalText writes "default", "on" or "off".
func (t Toggle) MarshalText() ([]byte, error) {
	if int(t) >= len(toggleNames) {
		return nil, fmt.Errorf("smol: Toggle %d, want %d to %d", t, Default, Off)
	}
	return []byte(toggleNames[t]), nil
}

// UnmarshalText reads what MarshalText writes, so that a Toggle can be a
// command's flag.
func (t *Toggle) UnmarshalText(text []byte) error {
	i := slices.Index(toggleNames[:], string(text))
	if i < 0 {
		return fmt.Errorf("smol: %q, want default, on or off", text)
	}
	*t = Toggle(i)
	return nil
}
