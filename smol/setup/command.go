package main

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// command is a run of another program.
type command struct {
	path string
	args []string
	dir  string
	env  []string          // on top of this process's, without the names in unset
	drop []string          // names of variables that it must not see
	line func(line string) // told of every line of its standard error; may be nil
}

// run returns the standard output, also after an error. The error has the
// last lines of what the program wrote on standard error.
func (c command) run(ctx context.Context) ([]byte, error) {
	cmd := exec.CommandContext(ctx, c.path, c.args...)
	ownGroup(cmd)
	cmd.WaitDelay = 5 * time.Second
	cmd.Dir = c.dir
	cmd.Env = environment(c.env, c.drop)
	var stdout bytes.Buffer
	cmd.Stdout = &stdout
	r, w := io.Pipe()
	cmd.Stderr = w
	last := make(chan []string, 1)
	go func() {
		var lines []string
		s := bufio.NewScanner(r)
		for s.Scan() {
			if c.line != nil {
				c.line(s.Text())
			}
			lines = append(lines, s.Text())
			if len(lines) > 12 {
				lines = lines[1:]
			}
		}
		io.Copy(io.Discard, r) // after a line that is too long
		last <- lines
	}()
	err := cmd.Run()
	w.Close()
	lines := <-last
	if err == nil {
		return stdout.Bytes(), nil
	}
	if ctx.Err() != nil {
		return stdout.Bytes(), context.Cause(ctx)
	}
	said := strings.TrimSpace(strings.Join(lines, "\n"))
	if said == "" {
		return stdout.Bytes(), fmt.Errorf("%s: %w", c, err)
	}
	return stdout.Bytes(), fmt.Errorf("%s: %w: %s", c, err, said)
}

// String is the command as one would type it, the program by its base name.
func (c command) String() string {
	return strings.Join(append([]string{filepath.Base(c.path)}, c.args...), " ")
}

// environment is this process's, with set on top and the names in drop gone.
func environment(set, drop []string) []string {
	var env []string
	for _, kv := range os.Environ() {
		name, _, _ := strings.Cut(kv, "=")
		gone := false
		for _, d := range drop {
			gone = gone || d == name
		}
		if !gone {
			env = append(env, kv)
		}
	}
	return append(env, set...)
}

// everyOnPath returns all programs of these names on PATH, all of the first
// name before any of the second, each file once.
func everyOnPath(names ...string) []string {
	var found []string
	seen := map[string]bool{}
	for _, name := range names {
		for _, dir := range filepath.SplitList(os.Getenv("PATH")) {
			if !filepath.IsAbs(dir) {
				continue
			}
			path := filepath.Join(dir, name)
			info, err := os.Stat(path)
			if err != nil || info.IsDir() || info.Mode()&0o111 == 0 {
				continue
			}
			same := path
			if real, err := filepath.EvalSymlinks(path); err == nil {
				// A link to rustup or pyenv acts by its own name.
				same = filepath.Join(filepath.Dir(real), name)
			}
			if !seen[same] {
				seen[same] = true
				found = append(found, path)
			}
		}
	}
	return found
}
