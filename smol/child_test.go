package smol

import (
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
)

// What concerns a whole process is tested in one of its own: this binary,
// started again with childEnv naming what to do.
const childEnv = "SMOL_TEST_CHILD"

var children = map[string]func() error{
	"answer":  childAnswer,
	"silent":  childSilent,
	"threads": childThreads,
	"reopen":  childReopen,
}

func runChild(name string) int {
	if err := children[name](); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// child runs one of children and returns all that it printed.
func child(t testing.TB, name string, env ...string) string {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	c := exec.Command(exe)
	c.Env = append(os.Environ(), append([]string{childEnv + "=" + name, "SMOL_TEST_MODEL=" + tinyDir}, env...)...)
	out, err := c.CombinedOutput()
	if err != nil {
		t.Fatalf("child %s: %v\n%s", name, err, out)
	}
	return string(out)
}

func childLoad(o Options) (*Engine, error) {
	o.Library = library
	return Load(os.Getenv("SMOL_TEST_MODEL"), o)
}

// Errors that ONNX Runtime itself finds would be logged, too, if it could.
func childSilent() error {
	if _, err := Load(os.Getenv("SMOL_TEST_MODEL"), Options{Library: library, entries: [][2]string{{"session.load_model_format", "ORT"}}}); err == nil {
		return fmt.Errorf("an ONNX file loads in another format")
	}
	e, err := childLoad(Options{})
	if err != nil {
		return err
	}
	if err := overflow(e); err == nil {
		return fmt.Errorf("a step past the graph's positions gives no error")
	}
	return e.Close()
}

func TestLibraryPrintsNothing(t *testing.T) {
	if out := child(t, "silent"); out != "" {
		t.Errorf("the process printed %q, want nothing", out)
	}
}

// Only ONNX Runtime's own threads end with the engine: Go keeps its own.
func childThreads() error {
	threads, err := strconv.Atoi(os.Getenv("SMOL_TEST_THREADS"))
	if err != nil {
		return err
	}
	e, err := childLoad(Options{IntraThreads: threads})
	if err != nil {
		return err
	}
	if _, err := e.Prefill([]int32{1, 2, 3}); err != nil {
		return err
	}
	before, err := os.ReadDir("/proc/self/task")
	if err != nil {
		return err
	}
	if err := e.Close(); err != nil {
		return err
	}
	after, err := os.ReadDir("/proc/self/task")
	if err != nil {
		return err
	}
	fmt.Print(len(before) - len(after))
	return nil
}

// The caller's thread works too, so n threads are n-1 of the library's own.
func TestThreads(t *testing.T) {
	if _, err := os.Stat("/proc/self/task"); err != nil {
		t.Skip("counts threads in /proc/self/task, which isn't here")
	}
	eachThreads(t, func(t *testing.T, threads int) {
		var got string
		want := strconv.Itoa(threads - 1)
		for range 5 { // Go may start one of its own in between
			if got = child(t, "threads", "SMOL_TEST_THREADS="+strconv.Itoa(threads)); got == want {
				return
			}
		}
		t.Errorf("closing an engine of %d threads ends %s threads, want %s", threads, got, want)
	})
}

// The library is closed with the last engine and opened again with the next.
func childReopen() error {
	mapped := func() bool {
		maps, _ := os.ReadFile("/proc/self/maps")
		return strings.Contains(string(maps), "libonnxruntime.so")
	}
	for range 10 {
		e, err := childLoad(Options{})
		if err != nil {
			return err
		}
		if _, err := e.Prefill([]int32{1, 2, 3}); err != nil {
			return err
		}
		if _, err := os.Stat("/proc/self/maps"); err == nil && !mapped() {
			return fmt.Errorf("an engine is open and the library isn't mapped")
		}
		if err := e.Close(); err != nil {
			return err
		}
	}
	return nil
}

func TestReopen(t *testing.T) { child(t, "reopen") }
