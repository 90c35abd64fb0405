//go:build unix

package load

import (
	"os"
	"path/filepath"
	"testing"
)

func TestScratch(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	make := func() (string, func()) {
		t.Helper()
		dir, remove, err := Scratch()
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, "log"), []byte("x"), 0o666); err != nil {
			t.Fatal(err)
		}
		return dir, remove
	}
	exists := func(dir string) bool {
		_, err := os.Stat(filepath.Join(dir, "log"))
		return err == nil
	}
	// A killed process leaves its directory with a lock that nobody holds.
	dead := filepath.Join(os.TempDir(), "servebench-run-1")
	foreign := filepath.Join(os.TempDir(), "servebench-other-1")
	for _, dir := range []string{dead, foreign} {
		if err := os.Mkdir(dir, 0o777); err != nil {
			t.Fatal(err)
		}
		for _, name := range []string{scratchLock, "log"} {
			if err := os.WriteFile(filepath.Join(dir, name), nil, 0o666); err != nil {
				t.Fatal(err)
			}
		}
	}
	first, removeFirst := make()
	second, removeSecond := make()
	if exists(dead) || !exists(foreign) || !exists(first) || !exists(second) {
		t.Errorf("a dead process's directory is there: %t, want false; another's %t, the first's %t, the second's %t, want true", exists(dead), exists(foreign), exists(first), exists(second))
	}
	removeFirst()
	removeSecond()
	if exists(first) || exists(second) {
		t.Error("a directory is there after its end")
	}
}
