package main

import (
	"archive/zip"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"servebench/smol/graph"
)

// wheel is a package to be fetched by pip, for a platform that need not be
// this one.
type wheel struct {
	project  string // name==version
	platform string // pip's tag, "" for a wheel that fits every platform
	fetched         // its size and hash; the name is left to pip
}

// errNoPip says what to do where there is no pip.
var errNoPip = errors.New("no pip that works; install one (Debian and Ubuntu: apt-get install python3-pip; elsewhere: python3 -m ensurepip --user) or put a Python that has it on PATH")

// fetchWheel downloads w below dir and returns the path of the file, whose
// size and hash are those that w demands. If the first pip that works fails,
// the next has its try: it may be newer, or have the right certificates.
func fetchWheel(ctx context.Context, step string, w wheel, dir string, out *reporter) (string, error) {
	pips, err := workingPips(ctx)
	if err != nil {
		return "", err
	}
	var tried []error
	for _, p := range pips {
		file, err := fetchWheelWith(ctx, p, step, w, dir, out)
		if err == nil || ctx.Err() != nil {
			return file, err
		}
		tried = append(tried, fmt.Errorf("%s: %w", p.path, err))
	}
	return "", errors.Join(tried...)
}

// workingPips are the first two pips on PATH that can at least tell their
// version. The error lists those that can't.
func workingPips(ctx context.Context) ([]command, error) {
	var pips []command
	var broken []string
	for _, p := range pipCommands() {
		version := p
		version.args = append(slices.Clone(p.args), "--version")
		if _, err := version.run(ctx); err != nil {
			if ctx.Err() != nil {
				return nil, err
			}
			broken = append(broken, fmt.Sprintf("%s: %s", p.path, oneLine(err.Error())))
			continue
		}
		if pips = append(pips, p); len(pips) == 2 {
			break
		}
	}
	switch {
	case len(pips) > 0:
		return pips, nil
	case len(broken) > 0:
		return nil, fmt.Errorf("%w; tried:\n  %s", errNoPip, strings.Join(broken, "\n  "))
	}
	return nil, fmt.Errorf("neither python3 nor pip is on PATH: %w", errNoPip)
}

// pipCommands are the ways to call pip here, the likeliest first.
func pipCommands() []command {
	var pips []command
	for _, python := range everyOnPath("python3", "python") {
		pips = append(pips, command{path: python, args: []string{"-m", "pip"}})
	}
	for _, pip := range everyOnPath("pip3", "pip") {
		pips = append(pips, command{path: pip})
	}
	return pips
}

func fetchWheelWith(ctx context.Context, pip command, step string, w wheel, dir string, out *reporter) (string, error) {
	work, err := os.MkdirTemp(dir, "pip-")
	if err != nil {
		return "", err
	}
	to := filepath.Join(work, "wheel")
	tmp := filepath.Join(work, "tmp") // pip writes the file here first
	for _, d := range []string{to, tmp} {
		if err := os.Mkdir(d, 0o755); err != nil {
			return "", err
		}
	}
	out.line("%s: fetching %s with pip, %s", step, w.project, megabytes(w.bytes))
	bar := out.bytes(step+": pip", w.bytes)
	stop := watch(work, bar)
	pip.dir = work
	pip.env = []string{"TMPDIR=" + tmp}
	pip.args = append(slices.Clone(pip.args),
		"download", "--quiet", "--no-input", "--disable-pip-version-check", "--progress-bar", "off",
		"--retries", "2", "--no-deps", "--only-binary=:all:")
	if w.platform != "" {
		pip.args = append(pip.args, "--python-version", "3.12", "--platform", w.platform)
	}
	pip.args = append(pip.args, "--dest", to, w.project)
	_, err = pip.run(ctx)
	stop()
	bar.done()
	if err != nil {
		return "", err
	}
	files, err := filepath.Glob(filepath.Join(to, "*.whl"))
	if err != nil || len(files) != 1 {
		return "", fmt.Errorf("pip left the wheels %q, want 1", files)
	}
	return files[0], demand(ctx, files[0], w.fetched)
}

// watch moves the bar along with the bytes below dir until stop is called.
func watch(dir string, b *bar) (stop func()) {
	if b.b == nil {
		return func() {}
	}
	quit, over := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(over)
		tick := time.NewTicker(200 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-quit:
				return
			case <-tick.C:
			}
			var largest int64 // the wheel, or the part of it that's there
			filepath.WalkDir(dir, func(_ string, d fs.DirEntry, err error) error {
				if err == nil && !d.IsDir() {
					if info, err := d.Info(); err == nil {
						largest = max(largest, info.Size())
					}
				}
				return nil
			})
			b.set(largest)
		}
	}()
	return func() { close(quit); <-over }
}

// demand errs unless the file at path has the size and hash of want.
func demand(ctx context.Context, path string, want fetched) error {
	got, err := graph.HashFile(ctx, path, nil)
	if err != nil {
		return err
	}
	if got.Bytes != want.bytes || got.SHA256 != want.sha256 {
		return fmt.Errorf("%s has %d bytes, sha256 %s, want %d, %s; it was not used", filepath.Base(path), got.Bytes, got.SHA256, want.bytes, want.sha256)
	}
	return nil
}

// unzip takes the one file whose base name is want.name out of the archive
// and writes it to dst. It errs unless size and hash are those of want.
func unzip(ctx context.Context, archive string, want fetched, dst string) error {
	z, err := zip.OpenReader(archive)
	if err != nil {
		return fmt.Errorf("%s: %w", filepath.Base(archive), err)
	}
	defer z.Close()
	var found *zip.File
	for _, f := range z.File {
		if path.Base(f.Name) == want.name {
			if found != nil {
				return fmt.Errorf("%s holds %s twice", filepath.Base(archive), want.name)
			}
			found = f
		}
	}
	if found == nil {
		return fmt.Errorf("%s holds no %s", filepath.Base(archive), want.name)
	}
	r, err := found.Open()
	if err != nil {
		return err
	}
	defer r.Close()
	w, err := os.OpenFile(dst, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if err != nil {
		return err
	}
	defer w.Close()
	if _, err := io.Copy(w, io.LimitReader(r, want.bytes+1)); err != nil {
		return fmt.Errorf("%s in %s: %w", want.name, filepath.Base(archive), err)
	}
	if err := w.Close(); err != nil {
		return err
	}
	return demand(ctx, dst, want)
}
