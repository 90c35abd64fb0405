package main

import (
	"bytes"
	"errors"
	"flag"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

func TestParse(t *testing.T) {
	for _, tt := range []struct {
		args []string
		want options
		err  string
	}{
		{nil, options{weights: "any"}, ""},
		{[]string{"-offline", "-verify", "-weights", "pip"}, options{true, true, "pip"}, ""},
		{[]string{"all"}, options{}, `arguments ["all"], want none; see -h`},
		{[]string{"-offline", "false"}, options{}, `arguments ["false"], want none; see -h`},
		{[]string{"-weights", "q8"}, options{}, `-weights "q8", want any, huggingface or pip`},
	} {
		got, err := parse(tt.args, &bytes.Buffer{})
		switch {
		case tt.err == "" && (err != nil || got != tt.want):
			t.Errorf("parse(%q) = %+v, %v, want %+v", tt.args, got, err, tt.want)
		case tt.err != "" && (err == nil || err.Error() != tt.err):
			t.Errorf("parse(%q): %v, want %s", tt.args, err, tt.err)
		}
	}
	var help bytes.Buffer
	if _, err := parse([]string{"-h"}, &help); !errors.Is(err, flag.ErrHelp) {
		t.Errorf("parse -h: %v, want ErrHelp", err)
	}
	for _, want := range []string{"RUSTUP_HOME", "-offline", "-verify", "-weights source", "smol/native"} {
		if !strings.Contains(help.String(), want) {
			t.Errorf("the help doesn't mention %s:\n%s", want, &help)
		}
	}
	if _, err := parse([]string{"-quick"}, &bytes.Buffer{}); !errors.Is(err, errUsage) {
		t.Errorf("parse -quick: %v, want errUsage", err)
	}
}

func TestPlatformOf(t *testing.T) {
	for _, name := range []string{"linux/amd64", "linux/arm64", "darwin/arm64"} {
		goos, goarch, _ := strings.Cut(name, "/")
		p, err := platformOf(goos, goarch)
		if err != nil || p.untested != (name != "linux/amd64") {
			t.Errorf("platformOf(%s) = %+v, %v, want only linux/amd64 tested", name, p, err)
		}
		for _, f := range []fetched{p.wheel, p.library} {
			if !regexp.MustCompile(`^[0-9a-f]{64}$`).MatchString(f.sha256) || f.bytes <= 0 {
				t.Errorf("%s: %+v, want a size and a hash", name, f)
			}
		}
	}
	_, err := platformOf("windows", "amd64")
	if want := "windows/amd64 is not supported; linux/amd64 is, and linux/arm64 and darwin/arm64 untested"; err == nil || err.Error() != want {
		t.Errorf("platformOf(windows, amd64): %v, want %s", err, want)
	}
}

// tree writes files into a new directory and returns its real path.
func tree(t *testing.T, files map[string]string) string {
	t.Helper()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range files {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func TestModuleRoot(t *testing.T) {
	dir := tree(t, map[string]string{
		"go.mod":                "// servebench\nmodule servebench\n\ngo 1.26.0\n",
		"smol/setup/main.go":    "",
		"other/go.mod":          "module servebench/other\n",
		"other/deep/down/x.txt": "",
	})
	for _, from := range []string{".", "smol/setup", "other", "other/deep/down"} {
		if got, err := moduleRoot(filepath.Join(dir, from)); err != nil || got != dir {
			t.Errorf("moduleRoot(%s) = %q, %v, want %q", from, got, err, dir)
		}
	}
	elsewhere := tree(t, map[string]string{"go.mod": "module example.com/servebench\n"})
	if _, err := moduleRoot(elsewhere); err == nil || err.Error() != elsewhere+" is not inside the module servebench; run it in a clone" {
		t.Errorf("moduleRoot elsewhere: %v", err)
	}
}

func TestLinkNative(t *testing.T) {
	root := tree(t, map[string]string{"smol/x.go": ""})
	link := filepath.Join(root, "smol", "native")
	for _, to := range []string{"/somewhere", "/somewhere", "/else where"} {
		if err := linkNative(root, to); err != nil {
			t.Fatal(err)
		}
		if got, err := os.Readlink(link); err != nil || got != to {
			t.Errorf("native points to %q, %v, want %q", got, err, to)
		}
	}
	os.Remove(link)
	if err := os.Mkdir(link, 0o755); err != nil {
		t.Fatal(err)
	}
	want := link + " is no link; move it away, set-up puts a link to /somewhere there"
	if err := linkNative(root, "/somewhere"); err == nil || err.Error() != want {
		t.Errorf("linkNative over a directory: %v, want %s", err, want)
	}
	names, _ := os.ReadDir(filepath.Join(root, "smol"))
	if len(names) != 2 {
		t.Errorf("smol holds %v, want x.go and native", names)
	}
}

// TestVersionsAgree holds what is written in two places against each other.
func TestVersionsAgree(t *testing.T) {
	mod, err := os.ReadFile("../../go.mod")
	if err != nil {
		t.Fatal(err)
	}
	if want := tokenizersModule + " " + tokenizersVersion; !strings.Contains(string(mod), want) {
		t.Errorf("go.mod doesn't require %s", want)
	}
	if !strings.Contains(string(cargoToml), `version = "`+strings.TrimPrefix(tokenizersVersion, "v")+`"`) {
		t.Errorf("Cargo.toml.tmpl isn't of version %s", tokenizersVersion)
	}
	for _, m := range regexp.MustCompile(`(?m)^source = "(.*)"$`).FindAllStringSubmatch(string(cargoLock), -1) {
		if m[1] != "registry+https://github.com/rust-lang/crates.io-index" {
			t.Errorf("Cargo.lock has a crate from %s, want all from crates.io", m[1])
		}
	}
	files, err := filepath.Glob("../*.go")
	if err != nil {
		t.Fatal(err)
	}
	linked, named := false, map[string]bool{}
	for _, f := range files {
		text, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		linked = linked || strings.Contains(string(text), "-L${SRCDIR}/native/"+version+"\n") || strings.Contains(string(text), "-L${SRCDIR}/native/"+version+" ")
		for _, p := range platforms {
			named[p.link] = named[p.link] || strings.Contains(string(text), `return "`+p.link+`"`)
		}
	}
	for _, p := range platforms {
		if !named[p.link] {
			t.Errorf("package smol doesn't look for %s, the library of %s", p.link, p.name)
		}
	}
	if !linked {
		t.Errorf("no file of package smol links against native/%s", version)
	}
}
