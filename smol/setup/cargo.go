package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// errNoCargo says what to do where there is no cargo.
var errNoCargo = errors.New("no cargo that works; install Rust (https://rustup.rs; Debian and Ubuntu: apt-get install cargo), or, if a toolchain lies under another home directory, set RUSTUP_HOME=THAT_HOME/.rustup and CARGO_HOME=THAT_HOME/.cargo")

// findCargo returns a cargo that can build, as a command with the environment
// that it needs.
//
// A cargo that rustup installed is a proxy: it looks for its toolchains under
// $RUSTUP_HOME, or else $HOME/.rustup, and fails where HOME is another one
// than at its installation. Then the toolchains beside the proxy are tried,
// first through it and then without it.
func findCargo(ctx context.Context) (command, error) {
	var tried []string
	for _, c := range cargoCommands(everyOnPath("cargo"), os.Getenv("HOME"), os.Getenv("CARGO_HOME")) {
		probe := c
		probe.args = []string{"--version"}
		_, err := probe.run(ctx)
		if err == nil {
			return c, nil
		}
		if ctx.Err() != nil {
			return command{}, err
		}
		with := strings.Join(append(c.env, c.path), " ")
		tried = append(tried, fmt.Sprintf("%s: %s", with, oneLine(err.Error())))
	}
	if len(tried) == 0 {
		return command{}, fmt.Errorf("cargo is not on PATH: %w", errNoCargo)
	}
	return command{}, fmt.Errorf("%w; tried:\n  %s", errNoCargo, strings.Join(tried, "\n  "))
}

// cargoCommands lists the ways to call cargo, the most ordinary first: those
// on PATH as they are, those of the usual directories, and then with the
// toolchains beside them.
func cargoCommands(onPath []string, home, cargoHome string) []command {
	var commands []command
	paths := slices.Clone(onPath)
	for _, dir := range []string{cargoHome, join(home, ".cargo"), "/usr/local/cargo"} {
		if path := join(dir, "bin", "cargo"); path != "" && isExecutable(path) && !slices.Contains(paths, path) {
			paths = append(paths, path)
		}
	}
	for _, path := range paths {
		commands = append(commands, command{path: path})
	}
	for _, path := range paths {
		installed := filepath.Dir(filepath.Dir(path)) // the CARGO_HOME of its installation
		for _, name := range []string{".rustup", "rustup"} {
			rustup := filepath.Join(filepath.Dir(installed), name)
			if info, err := os.Stat(filepath.Join(rustup, "toolchains")); err != nil || !info.IsDir() {
				continue
			}
			env := []string{"RUSTUP_HOME=" + rustup}
			if cargoHome == "" && writable(installed) {
				env = append(env, "CARGO_HOME="+installed) // its configuration and its crates
			}
			commands = append(commands, command{path: path, env: env})
			direct, _ := filepath.Glob(filepath.Join(rustup, "toolchains", "*", "bin", "cargo"))
			for _, cargo := range direct {
				bin := filepath.Dir(cargo)
				commands = append(commands, command{path: cargo, env: append(slices.Clone(env[1:]),
					"RUSTC="+filepath.Join(bin, "rustc"),
					"PATH="+bin+string(filepath.ListSeparator)+os.Getenv("PATH"))})
			}
		}
	}
	return commands
}

// join is filepath.Join, but "" under an empty directory.
func join(dir string, elem ...string) string {
	if dir == "" {
		return ""
	}
	return filepath.Join(append([]string{dir}, elem...)...)
}

func isExecutable(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode().IsRegular() && info.Mode()&0o111 != 0
}
