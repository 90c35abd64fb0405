package load

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"servebench/verify"
)

// Somebody else's module, with a server and a benchmark of its own.
func TestSecondModule(t *testing.T) {
	dir := t.TempDir()
	if err := os.CopyFS(dir, os.DirFS(filepath.Join("testdata", "mymodule"))); err != nil {
		t.Fatal(err)
	}
	here, err := filepath.Abs(filepath.Join("..", ".."))
	if err != nil {
		t.Fatal(err)
	}
	command := func(args ...string) string {
		t.Helper()
		c := exec.Command("go", args...)
		c.Dir = dir
		c.Env = append(os.Environ(), "GOWORK=off")
		out, err := c.CombinedOutput()
		if err != nil {
			t.Fatalf("go %s: %v\n%s", strings.Join(args, " "), err, out)
		}
		return string(out)
	}
	command("mod", "edit", "-replace", "servebench="+here)
	out := command("test", "-bench", ".", "-benchtime", "2x", "-count", "1")
	lines, err := verify.ParsePrinted("output", strings.NewReader(out))
	if err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob(filepath.Join(dir, "runs", "*.jsonl"))
	if err != nil || len(files) != 1 {
		t.Fatalf("evidence %q, %v, want one file", files, err)
	}
	file, err := os.Open(files[0])
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	report, err := verify.Replay(files[0], file)
	if err != nil {
		t.Fatal(err)
	}
	report.CheckPrinted(lines)
	if err := report.Err(); err != nil || report.Valid() != 2 {
		t.Errorf("%d valid configurations, want 2: %v", report.Valid(), err)
	}
	for _, r := range report.Results {
		if c := r.Configuration; c.Passes != 2 || c.Tokens != 12*24 {
			t.Errorf("%s: %d passes and %d tokens, want 2 of 6 requests of 24 tokens", r.Plan.Name, c.Passes, c.Tokens)
		}
	}
}
