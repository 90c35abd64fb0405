package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"servebench/smol/graph"
)

// step is one thing that set-up puts in place.
type step struct {
	name    string
	recipe  string            // how it's made; what another recipe made is made again
	outputs []string          // files and directories in the cache directory that belong to it
	links   map[string]string // name of a link beside them to its target
	sources []source          // in order of preference
}

// source is one way to take a step.
type source struct {
	name string
	// make puts the step's outputs into dir, which is empty and on the file
	// system of the cache. Whatever else it leaves there is removed.
	make func(ctx context.Context, dir string, out *reporter) error
}

// cache is the directory that all of it goes to.
type cache struct {
	dir string
	out *reporter
}

// recordFile tells what is in place.
const recordFile = "setup.json"

// record is the content of recordFile.
type record struct {
	Format int                  `json:"format"`
	Steps  map[string]installed `json:"steps"`
}

const recordFormat = 1

// installed is a step that is in place.
type installed struct {
	Recipe string  `json:"recipe"`
	Source string  `json:"source"`
	Files  []entry `json:"files"`
}

// entry is a file as it was put in place. Name is relative to the cache
// directory, with slashes.
type entry struct {
	Name   string `json:"name"`
	Bytes  int64  `json:"bytes"`
	MTime  int64  `json:"mtime_ns"` // ns since 1970, as the file system gives it
	SHA256 string `json:"sha256"`
}

// install takes every step that isn't in place and returns how many it took.
// One set-up works at a time; another waits, and then finds the work done.
func (c *cache) install(ctx context.Context, steps []step, o options) (int, error) {
	todo, err := c.missing(ctx, steps, o)
	if err != nil {
		return 0, err
	}
	if len(todo) == 0 {
		return 0, nil
	}
	if o.offline {
		var faults []error
		for _, t := range todo {
			faults = append(faults, fmt.Errorf("-offline: %s: %s", t.step.name, t.why))
		}
		return 0, fmt.Errorf("%w; run  go run ./smol/setup  with a network", errors.Join(faults...))
	}
	if err := os.MkdirAll(c.dir, 0o755); err != nil {
		return 0, err
	}
	unlock, err := lock(ctx, filepath.Join(c.dir, "lock"), func() {
		c.out.line("another set-up is at work; waiting for it")
	})
	if err != nil {
		return 0, err
	}
	defer unlock()
	c.sweep()
	todo, err = c.missing(ctx, steps, o)
	if err != nil {
		return 0, err
	}
	for i, t := range todo {
		if t.why != "" {
			c.out.line("%s: %s", t.step.name, t.why)
		}
		if err := c.take(ctx, t.step); err != nil {
			return i, fmt.Errorf("%s: %w", t.step.name, err)
		}
	}
	return len(todo), nil
}

// open is a step to be taken, and why.
type open struct {
	step step
	why  string
}

// missing lists the steps that are not in place, and mends links of those
// that are.
func (c *cache) missing(ctx context.Context, steps []step, o options) ([]open, error) {
	rec, err := c.readRecord()
	if err != nil {
		return nil, err
	}
	var todo []open
	for _, s := range steps {
		got, ok := rec.Steps[s.name]
		switch {
		case !ok:
			todo = append(todo, open{s, "not in the cache"})
			continue
		case got.Recipe != s.recipe:
			todo = append(todo, open{s, "the cache has it from another version of this program"})
			continue
		case !slices.ContainsFunc(s.sources, func(src source) bool { return src.name == got.Source }):
			todo = append(todo, open{s, fmt.Sprintf("the cache has it from %s", got.Source)})
			continue
		}
		changed, err := c.check(ctx, s.name, got, o.verify)
		if err != nil {
			return nil, err
		}
		if changed != "" {
			todo = append(todo, open{s, changed})
			continue
		}
		if err := c.link(s); err != nil {
			return nil, err
		}
	}
	return todo, nil
}

// check says what is wrong with a step that was in place, "" if nothing is.
// A file of the recorded size and time is taken as it is, unless verify asks
// for its hash; one with another time is hashed.
func (c *cache) check(ctx context.Context, name string, got installed, verify bool) (string, error) {
	var total int64
	var read []entry
	for _, e := range got.Files {
		info, err := os.Lstat(filepath.Join(c.dir, filepath.FromSlash(e.Name)))
		switch {
		case errors.Is(err, fs.ErrNotExist):
			return e.Name + " is missing", nil
		case err != nil:
			return "", err
		case !info.Mode().IsRegular():
			return e.Name + " is no regular file", nil
		case info.Size() != e.Bytes:
			return fmt.Sprintf("%s has %d bytes, %d were installed", e.Name, info.Size(), e.Bytes), nil
		}
		if verify || info.ModTime().UnixNano() != e.MTime {
			read = append(read, e)
			total += e.Bytes
		}
	}
	if len(read) == 0 {
		return "", nil
	}
	bar := c.out.bytes(name+": checking", total)
	defer bar.done()
	for _, e := range read {
		f, err := graph.HashFile(ctx, filepath.Join(c.dir, filepath.FromSlash(e.Name)), bar.add)
		if err != nil {
			return "", err
		}
		if f.SHA256 != e.SHA256 {
			return fmt.Sprintf("%s has sha256 %s, %s was installed", e.Name, f.SHA256, e.SHA256), nil
		}
	}
	return "", nil
}

// take makes a step from the first source that delivers and renames it into
// place. The error lists what was tried.
func (c *cache) take(ctx context.Context, s step) error {
	var tried []error
	for i, src := range s.sources {
		start := time.Now()
		err := c.takeFrom(ctx, s, src)
		if err == nil {
			c.out.line("%s: from %s in %s", s.name, src.name, seconds(time.Since(start)))
			return nil
		}
		if ctx.Err() != nil {
			return fmt.Errorf("interrupted; nothing half done was kept: %w", context.Cause(ctx))
		}
		tried = append(tried, fmt.Errorf("%s: %w", src.name, err))
		if i+1 < len(s.sources) {
			c.out.line("%s: %s: %s; trying %s", s.name, src.name, oneLine(err.Error()), s.sources[i+1].name)
		}
	}
	return errors.Join(tried...)
}

func (c *cache) takeFrom(ctx context.Context, s step, src source) error {
	tmp, err := os.MkdirTemp(c.dir, tmpPrefix)
	if err != nil {
		return err
	}
	defer os.RemoveAll(tmp)
	made := filepath.Join(tmp, "made")
	if err := os.Mkdir(made, 0o755); err != nil {
		return err
	}
	if err := src.make(ctx, made, c.out); err != nil {
		return err
	}
	got := installed{Recipe: s.recipe, Source: src.name}
	for _, name := range s.outputs {
		files, err := settle(ctx, made, name)
		if err != nil {
			return err
		}
		got.Files = append(got.Files, files...)
	}

	// From here on the step is first not in place, then in place.
	rec, err := c.readRecord()
	if err != nil {
		return err
	}
	if _, was := rec.Steps[s.name]; was {
		delete(rec.Steps, s.name)
		if err := c.writeRecord(rec); err != nil {
			return err
		}
	}
	for _, name := range s.outputs {
		to := filepath.Join(c.dir, name)
		if err := os.Rename(to, filepath.Join(tmp, "old-"+name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		if err := os.Rename(filepath.Join(made, name), to); err != nil {
			return err
		}
	}
	if err := c.link(s); err != nil {
		return err
	}
	if err := syncPath(c.dir); err != nil {
		return err
	}
	rec.Steps[s.name] = got
	return c.writeRecord(rec)
}

// settle makes name, a file or directory in dir, durable and returns the
// files of it as entries.
func settle(ctx context.Context, dir, name string) ([]entry, error) {
	var entries []entry
	err := filepath.WalkDir(filepath.Join(dir, name), func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if err := syncPath(path); err != nil {
			return err
		}
		if d.IsDir() {
			return nil
		}
		f, err := graph.HashFile(ctx, path, nil)
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(dir, path)
		if err != nil {
			return err
		}
		entries = append(entries, entry{filepath.ToSlash(rel), f.Bytes, info.ModTime().UnixNano(), f.SHA256})
		return nil
	})
	return entries, err
}

// link mends the step's links.
func (c *cache) link(s step) error {
	for name, target := range s.links {
		path := filepath.Join(c.dir, name)
		if to, err := os.Readlink(path); err == nil && to == target {
			continue
		}
		if err := symlink(target, path); err != nil {
			return err
		}
	}
	return nil
}

// tmpPrefix begins the names of the directories in which steps are made.
const tmpPrefix = "tmp-"

// sweep removes what an interrupted run left. The caller holds the lock. What
// can't be removed does no harm but take room, so it's only said.
func (c *cache) sweep() {
	left, _ := filepath.Glob(filepath.Join(c.dir, tmpPrefix+"*")) // the pattern is sound
	for _, path := range left {
		if err := os.RemoveAll(path); err != nil {
			c.out.line("left over from an interrupted run: %v", err)
		}
	}
}

// readRecord returns an empty record where there is none, or none that this
// program understands: then every step is taken again.
func (c *cache) readRecord() (record, error) {
	empty := record{Format: recordFormat, Steps: map[string]installed{}}
	data, err := os.ReadFile(filepath.Join(c.dir, recordFile))
	if errors.Is(err, fs.ErrNotExist) {
		return empty, nil
	}
	if err != nil {
		return record{}, err
	}
	var rec record
	if json.Unmarshal(data, &rec) != nil || rec.Format != recordFormat || rec.Steps == nil {
		return empty, nil
	}
	return rec, nil
}

func (c *cache) writeRecord(rec record) error {
	data, err := json.MarshalIndent(rec, "", "  ")
	if err != nil {
		return err
	}
	path := filepath.Join(c.dir, recordFile)
	tmp := filepath.Join(c.dir, tmpPrefix+recordFile)
	if err := os.WriteFile(tmp, append(data, '\n'), 0o644); err != nil {
		return err
	}
	if err := syncPath(tmp); err != nil {
		return err
	}
	if err := os.Rename(tmp, path); err != nil {
		return err
	}
	return syncPath(c.dir)
}

// syncPath makes a file's content, or a directory's names, durable.
func syncPath(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	return f.Sync()
}
