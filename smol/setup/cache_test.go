package main

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// fake makes a library "lib" and a directory "dir" with two files, and counts.
type fake struct {
	made int
	err  error // instead of the files
	text string
}

func (f *fake) make(_ context.Context, dir string, _ *reporter) error {
	f.made++
	if err := os.WriteFile(filepath.Join(dir, "lib"), []byte("half"), 0o644); err != nil {
		return err
	}
	if f.err != nil {
		return f.err
	}
	if err := os.WriteFile(filepath.Join(dir, "lib"), []byte("library "+f.text), 0o644); err != nil {
		return err
	}
	if err := os.Mkdir(filepath.Join(dir, "dir"), 0o755); err != nil {
		return err
	}
	for _, name := range []string{"dir/a", "dir/b"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(name), 0o644); err != nil {
			return err
		}
	}
	return os.WriteFile(filepath.Join(dir, "waste"), []byte("not an output"), 0o644)
}

func (f *fake) step(others ...source) step {
	return step{
		name: "thing", recipe: "r1", outputs: []string{"lib", "dir"}, links: map[string]string{"link": "lib"},
		sources: append([]source{{"first", f.make}}, others...),
	}
}

// newCache is a cache in a directory of the test's, with what it says.
func newCache(t *testing.T) (*cache, *bytes.Buffer) {
	t.Helper()
	var said bytes.Buffer
	return &cache{dir: filepath.Join(t.TempDir(), "servebench", version), out: newReporter(&said)}, &said
}

// install takes the steps and checks how many there were to take.
func install(t *testing.T, c *cache, want int, o options, steps ...step) {
	t.Helper()
	got, err := c.install(t.Context(), steps, o)
	if err != nil {
		t.Fatal(err)
	}
	if got != want {
		t.Fatalf("install took %d steps, want %d", got, want)
	}
}

// inPlace checks that the step's files are all there, and nothing else is.
func inPlace(t *testing.T, c *cache) {
	t.Helper()
	for name, want := range map[string]string{"lib": "library ", "link": "library ", "dir/a": "dir/a", "dir/b": "dir/b"} {
		if got, err := os.ReadFile(filepath.Join(c.dir, name)); err != nil || string(got) != want {
			t.Errorf("%s is %q, %v, want %q", name, got, err, want)
		}
	}
	names, err := os.ReadDir(c.dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range names {
		switch n.Name() {
		case "lib", "link", "dir", "lock", recordFile:
		default:
			t.Errorf("%s was left", n.Name())
		}
	}
}

func TestInstall(t *testing.T) {
	c, said := newCache(t)
	f := &fake{}
	install(t, c, 1, options{}, f.step())
	inPlace(t, c)
	if got := said.String(); !strings.HasPrefix(got, "setup: thing: not in the cache\nsetup: thing: from first in ") {
		t.Errorf("it said %q", got)
	}
	said.Reset()
	install(t, c, 0, options{}, f.step())
	install(t, c, 0, options{verify: true}, f.step())
	install(t, c, 0, options{offline: true}, f.step())
	if f.made != 1 || said.String() != "" {
		t.Errorf("made %d times, want once; the later runs said %q", f.made, said)
	}
}

// TestInstallAgain changes the cache in every way that a step is done again
// for, and in some that it isn't.
func TestInstallAgain(t *testing.T) {
	write := func(name, text string) func(t *testing.T, dir string) {
		return func(t *testing.T, dir string) {
			if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
				t.Fatal(err)
			}
		}
	}
	remove := func(name string) func(t *testing.T, dir string) {
		return func(t *testing.T, dir string) {
			if err := os.RemoveAll(filepath.Join(dir, name)); err != nil {
				t.Fatal(err)
			}
		}
	}
	// As by a failing disk: another content, all else the same.
	rot := func(t *testing.T, dir string) {
		path := filepath.Join(dir, "dir", "b")
		info, err := os.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		write("dir/b", "dIr/b")(t, dir)
		if err := os.Chtimes(path, info.ModTime(), info.ModTime()); err != nil {
			t.Fatal(err)
		}
	}
	for _, tt := range []struct {
		name   string
		change func(t *testing.T, dir string)
		o      options
		edit   func(s *step)
		why    string // "" for a step that stays as it is
	}{
		{"a file cut short", write("dir/b", "di"), options{}, nil, "dir/b has 2 bytes, 5 were installed"},
		{"a file gone", remove("dir/a"), options{}, nil, "dir/a is missing"},
		{"a directory gone", remove("dir"), options{}, nil, "dir/a is missing"},
		{"a directory for a file", func(t *testing.T, dir string) {
			remove("lib")(t, dir)
			if err := os.Mkdir(filepath.Join(dir, "lib"), 0o755); err != nil {
				t.Fatal(err)
			}
		}, options{}, nil, "lib is no regular file"},
		{"another content at another time", func(t *testing.T, dir string) {
			rot(t, dir)
			then := time.Now().Add(-time.Hour)
			if err := os.Chtimes(filepath.Join(dir, "dir", "b"), then, then); err != nil {
				t.Fatal(err)
			}
		}, options{}, nil, "dir/b has sha256 "},
		{"the same content at another time", func(t *testing.T, dir string) {
			then := time.Now().Add(-time.Hour)
			if err := os.Chtimes(filepath.Join(dir, "lib"), then, then); err != nil {
				t.Fatal(err)
			}
		}, options{}, nil, ""},
		{"another content, read", rot, options{verify: true}, nil, "dir/b has sha256 "},
		{"the record gone", remove(recordFile), options{}, nil, "not in the cache"},
		{"the record cut short", write(recordFile, `{"format":1,"st`), options{}, nil, "not in the cache"},
		{"the record of a later program", write(recordFile, `{"format":2,"steps":{}}`), options{}, nil, "not in the cache"},
		{"the link gone", remove("link"), options{}, nil, ""},
		{"another recipe", nil, options{}, func(s *step) { s.recipe = "r2" }, "the cache has it from another version of this program"},
		{"another source", nil, options{}, func(s *step) { s.sources[0].name = "second" }, "the cache has it from first"},
		{"left over by a killed run", func(t *testing.T, dir string) {
			if err := os.MkdirAll(filepath.Join(dir, tmpPrefix+"123", "made"), 0o755); err != nil {
				t.Fatal(err)
			}
			remove("lib")(t, dir)
		}, options{}, nil, "lib is missing"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c, said := newCache(t)
			f := &fake{}
			s := f.step()
			install(t, c, 1, options{}, s)
			if tt.change != nil {
				tt.change(t, c.dir)
			}
			if tt.edit != nil {
				tt.edit(&s)
			}
			said.Reset()
			want := 0
			if tt.why != "" {
				want = 1
			}
			install(t, c, want, tt.o, s)
			if tt.why != "" && !strings.HasPrefix(said.String(), "setup: thing: "+tt.why) {
				t.Errorf("it said %q, want %q", said, tt.why)
			}
			inPlace(t, c)
			install(t, c, 0, options{verify: true}, s)
		})
	}
}

func TestInstallFallsThrough(t *testing.T) {
	c, said := newCache(t)
	bad, good := &fake{err: errors.New("no\nroute")}, &fake{}
	install(t, c, 1, options{}, bad.step(source{"second", good.make}))
	inPlace(t, c)
	if want := "setup: thing: first: no route; trying second\n"; !strings.Contains(said.String(), want) {
		t.Errorf("it said %q, want %q in it", said, want)
	}
}

func TestInstallFails(t *testing.T) {
	c, _ := newCache(t)
	a, b := &fake{err: errors.New("no route")}, &fake{err: errors.New("no pip")}
	s := a.step(source{"second", b.make})
	_, err := c.install(t.Context(), []step{s}, options{})
	if want := "thing: first: no route\nsecond: no pip"; err == nil || err.Error() != want {
		t.Errorf("install: %v, want %s", err, want)
	}
	for _, name := range []string{"lib", "dir", "link"} {
		if _, err := os.Lstat(filepath.Join(c.dir, name)); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s is there after a failure (%v)", name, err)
		}
	}
	a.err = nil
	install(t, c, 1, options{}, s)
	inPlace(t, c)
}

// TestInstallKeepsTheOld fails to replace a step: what was there stays.
func TestInstallKeepsTheOld(t *testing.T) {
	c, _ := newCache(t)
	f := &fake{}
	install(t, c, 1, options{}, f.step())
	f.err = errors.New("no route")
	again := f.step()
	again.recipe = "r2"
	if _, err := c.install(t.Context(), []step{again}, options{}); err == nil {
		t.Fatal("install: no error")
	}
	inPlace(t, c)
	install(t, c, 0, options{}, f.step())
}

func TestInstallInterrupted(t *testing.T) {
	c, _ := newCache(t)
	ctx, cancel := context.WithCancel(t.Context())
	f := &fake{}
	other := &fake{}
	s := f.step(source{"second", other.make})
	s.sources[0].make = func(ctx context.Context, dir string, out *reporter) error {
		cancel()
		f.err = ctx.Err()
		return f.make(ctx, dir, out)
	}
	_, err := c.install(ctx, []step{s}, options{})
	if want := "thing: interrupted; nothing half done was kept: context canceled"; err == nil || err.Error() != want || !errors.Is(err, context.Canceled) {
		t.Errorf("install: %v, want %s", err, want)
	}
	if other.made != 0 {
		t.Error("the next source was tried after an interrupt")
	}
	names, err := os.ReadDir(c.dir)
	if err != nil || len(names) != 1 || names[0].Name() != "lock" {
		t.Errorf("the cache holds %v, %v, want the lock file alone", names, err)
	}
}

func TestInstallOffline(t *testing.T) {
	c, _ := newCache(t)
	f := &fake{}
	other := f.step()
	other.name = "other"
	_, err := c.install(t.Context(), []step{f.step(), other}, options{offline: true})
	want := "-offline: thing: not in the cache\n-offline: other: not in the cache; run  go run ./smol/setup  with a network"
	if err == nil || err.Error() != want {
		t.Errorf("install: %v\nwant %s", err, want)
	}
	if f.made != 0 {
		t.Error("-offline made something")
	}
	if _, err := os.Stat(c.dir); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("-offline made the cache directory (%v)", err)
	}
}

// TestInstallTwoAtOnce runs two set-ups: the second waits and finds the work
// done.
func TestInstallTwoAtOnce(t *testing.T) {
	c, said := newCache(t)
	f := &fake{}
	s := f.step()
	begun, goOn := make(chan struct{}), make(chan struct{})
	s.sources[0].make = func(ctx context.Context, dir string, out *reporter) error {
		close(begun)
		<-goOn
		return f.make(ctx, dir, out)
	}
	first := make(chan error, 1)
	go func() {
		_, err := (&cache{dir: c.dir, out: newReporter(&bytes.Buffer{})}).install(t.Context(), []step{s}, options{})
		first <- err
	}()
	<-begun
	waits, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := c.install(waits, []step{s}, options{}); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("install beside another: %v, want it to wait", err)
	}
	if want := "setup: another set-up is at work; waiting for it\n"; said.String() != want {
		t.Errorf("it said %q, want %q", said, want)
	}
	close(goOn)
	install(t, c, 0, options{}, s)
	if err := <-first; err != nil || f.made != 1 {
		t.Errorf("the first: %v; made %d times, want once", err, f.made)
	}
}
