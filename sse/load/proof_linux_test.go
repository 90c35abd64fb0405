package load

import (
	"os"
	"os/exec"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// A process that may open few files can't try its client, says so, and
// measures all the same what it can.
func TestProofWithFewFiles(t *testing.T) {
	const variable = "LOAD_TEST_FEW_FILES"
	if os.Getenv(variable) == "" {
		command := exec.Command(os.Args[0], "-test.run", "^TestProofWithFewFiles$")
		command.Env = append(os.Environ(), variable+"=1")
		if out, err := command.CombinedOutput(); err != nil {
			t.Errorf("%v\n%s", err, out)
		}
		return
	}
	used, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	most := uint64(len(used) + 12) // less than proofStreams, and enough to start a process
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: most, Max: most}); err != nil {
		t.Fatal(err)
	}
	if c, err := prover1(8).prove(t.Context()); err == nil || !strings.Contains(err.Error(), "too many open files") {
		t.Errorf("prove = %v, %v, want too many open files", c, err)
	}
}
