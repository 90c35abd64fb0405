package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	_ "embed"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
)

const (
	tokenizersModule  = "github.com/daulet/tokenizers"
	tokenizersVersion = "v1.24.0" // as in go.mod
	tokenizersLib     = "libtokenizers.a"
)

//go:embed rust/Cargo.toml.tmpl
var cargoToml []byte

//go:embed rust/Cargo.lock
var cargoLock []byte

// tokenizersStep builds libtokenizers from the Rust source that comes with
// the Go module, which go.sum vouches for; the lock file does for the crates.
// What a compiler makes of them differs between machines, so the library's
// hash isn't known before, only recorded after.
func tokenizersStep(root string) step {
	made := sha256.New()
	made.Write(cargoToml)
	made.Write(cargoLock)
	return step{
		name:    "libtokenizers",
		recipe:  tokenizersVersion + " " + hex.EncodeToString(made.Sum(nil)),
		outputs: []string{tokenizersLib},
		sources: []source{{
			// The module's prebuilt releases are left out: nobody has
			// published a hash of them.
			name: "cargo, " + tokenizersModule + " " + tokenizersVersion,
			make: func(ctx context.Context, dir string, out *reporter) error {
				return buildTokenizers(ctx, root, dir, out)
			},
		}},
	}
}

func buildTokenizers(ctx context.Context, root, dir string, out *reporter) error {
	cargo, err := findCargo(ctx)
	if err != nil {
		return err
	}
	src, err := moduleSource(ctx, root, tokenizersModule, tokenizersVersion)
	if err != nil {
		return err
	}
	work := filepath.Dir(dir)
	lib := filepath.Join(src, "src", "lib.rs")
	toml := bytes.Replace(cargoToml, []byte("path = @SRC@"), []byte("path = "+strconv.Quote(lib)), 1)
	if err := os.WriteFile(filepath.Join(work, "Cargo.toml"), toml, 0o644); err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(work, "Cargo.lock"), cargoLock, 0o644); err != nil {
		return err
	}
	crates := int64(bytes.Count(cargoLock, []byte("[[package]]")))
	out.line("libtokenizers: building %d crates with cargo, about two minutes on two cores", crates)
	bar := out.items("libtokenizers: cargo", crates)
	target := filepath.Join(work, "target")
	cargo.dir = work
	cargo.args = []string{"build", "--release", "--locked", "--target-dir", target}
	cargo.drop = []string{"CARGO_BUILD_TARGET", "CARGO_TARGET_DIR", "CARGO_TERM_QUIET"}
	cargo.env = append(cargo.env, "CARGO_TERM_COLOR=never", "CARGO_TERM_PROGRESS_WHEN=never")
	var built int64
	cargo.line = func(line string) {
		line = strings.TrimSpace(line)
		if !strings.HasPrefix(line, "Compiling ") {
			return
		}
		built++
		bar.set(built)
		if strings.HasPrefix(line, "Compiling libtokenizers ") {
			bar.describe("libtokenizers: cargo, optimizing the whole")
		}
	}
	_, err = cargo.run(ctx)
	bar.done()
	if err != nil {
		return err
	}
	// With a build target in cargo's configuration there is one more directory.
	for _, pattern := range []string{"release", "*/release"} {
		made, _ := filepath.Glob(filepath.Join(target, pattern, tokenizersLib))
		if len(made) == 1 {
			return os.Rename(made[0], filepath.Join(dir, tokenizersLib))
		}
	}
	return fmt.Errorf("cargo left no %s", tokenizersLib)
}

// moduleSource returns the directory of a Go module that go.mod in root
// requires at version, and downloads it if it must.
func moduleSource(ctx context.Context, root, module, version string) (string, error) {
	gotool, err := exec.LookPath("go")
	if err != nil {
		return "", fmt.Errorf("go is not on PATH: %w", err)
	}
	c := command{path: gotool, args: []string{"mod", "download", "-json", module}, dir: root}
	data, err := c.run(ctx)
	var m struct{ Version, Dir, Error string }
	if json.Unmarshal(data, &m) == nil && m.Error != "" {
		err = errors.New(m.Error)
	}
	switch {
	case err != nil:
		return "", fmt.Errorf("%s: %w", module, err)
	case m.Version != version:
		return "", fmt.Errorf("go.mod requires %s %s, want %s; the lock file in smol/setup belongs to that one", module, m.Version, version)
	case m.Dir == "":
		return "", fmt.Errorf("%s %s: go names no directory", module, version)
	}
	return m.Dir, nil
}
