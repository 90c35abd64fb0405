package main

import (
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"servebench/smol/graph"
)

// answer asks for a few tokens; failure is the error's message, if it is one.
func (p *process) answer() (ids []int32, failure string) {
	p.t.Helper()
	resp := p.post("", `{"prompt":[9,3,4,5],"max_tokens":6,"ignore_eos":true,"return_token_ids":true}`)
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		p.t.Fatal(err)
	}
	var v struct {
		Choices []struct {
			IDs []int32 `json:"token_ids"`
		}
		Error struct{ Message string }
	}
	if err := json.Unmarshal(b, &v); err != nil || len(v.Choices) != 1 && v.Error.Message == "" {
		p.t.Fatalf("answer %s (%v)", b, err)
	}
	if len(v.Choices) > 0 {
		ids = v.Choices[0].IDs
	}
	return ids, v.Error.Message
}

// A model that changes under a running server gives the answers that it gave,
// or an error that says so, and never others.
func TestModelChanges(t *testing.T) {
	each := func(t *testing.T, dir string, change func(path string) error) {
		t.Helper()
		names, err := filepath.Glob(filepath.Join(dir, "*"))
		if err != nil || len(names) == 0 {
			t.Fatal(names, err)
		}
		for _, name := range names {
			if err := change(name); err != nil {
				t.Fatal(err)
			}
		}
	}
	for _, test := range []struct {
		name   string
		change func(t *testing.T, dir string)
		fails  bool
	}{
		{"removed", func(t *testing.T, dir string) {
			if err := os.RemoveAll(dir); err != nil {
				t.Fatal(err)
			}
		}, false},
		{"replaced", func(t *testing.T, dir string) {
			each(t, dir, func(path string) error {
				if err := os.WriteFile(path+".new", []byte("another"), 0o666); err != nil {
					return err
				}
				return os.Rename(path+".new", path)
			})
		}, false},
		{"truncated", func(t *testing.T, dir string) {
			each(t, dir, func(path string) error { return os.Truncate(path, 100) })
		}, true},
		{"truncated to nothing", func(t *testing.T, dir string) {
			each(t, dir, func(path string) error { return os.Truncate(path, 0) })
		}, true},
		{"overwritten", func(t *testing.T, dir string) {
			each(t, dir, func(path string) error {
				f, err := os.OpenFile(path, os.O_WRONLY, 0)
				if err != nil {
					return err
				}
				defer f.Close()
				info, err := f.Stat()
				if err != nil {
					return err
				}
				_, err = f.Write(make([]byte, info.Size()))
				return err
			})
		}, true},
	} {
		t.Run(test.name, func(t *testing.T) {
			dir := tinyModel(t)
			p := start(t, "-model", dir, "-spin", "off")
			p.readReady()
			want, failure := p.answer()
			if len(want) != 6 || failure != "" {
				t.Fatalf("before: %v, %q", want, failure)
			}
			time.Sleep(20 * time.Millisecond) // a file's time has the grain of the kernel's tick
			test.change(t, dir)
			for range 2 {
				got, failure := p.answer()
				switch {
				case test.fails:
					if !strings.Contains(failure, graph.DataFile) || !strings.Contains(failure, "the model was changed under the engine") || !strings.Contains(failure, "go run ./smol/setup") {
						t.Errorf("%v, %q; want that the model was changed and what to do", got, failure)
					}
				case failure != "" || !slices.Equal(got, want):
					t.Errorf("%v, %q; want %v", got, failure, want)
				}
			}
			p.stdin.Close()
			if status, output := p.wait(); status != 0 || output != "" {
				t.Errorf("status %d, output %q; want 0 and none", status, output)
			}
		})
	}
}

// A model that is wrong from the start isn't served.
func TestModelIsBroken(t *testing.T) {
	for _, name := range []string{graph.DataFile, graph.GraphFile, graph.TokenizerFile, graph.ManifestFile} {
		for _, cut := range []string{"truncated", "swapped"} {
			if name == graph.ManifestFile && cut == "swapped" {
				continue // what the others are held against is held against nothing
			}
			t.Run(name+" "+cut, func(t *testing.T) {
				dir := tinyModel(t)
				path := filepath.Join(dir, name)
				data, err := os.ReadFile(path)
				if err != nil {
					t.Fatal(err)
				}
				if cut == "truncated" {
					data = data[:len(data)/2]
				} else {
					data[len(data)/2] ^= 1 // another file of the same size
				}
				if err := os.WriteFile(path, data, 0o666); err != nil {
					t.Fatal(err)
				}
				p := start(t, "-model", dir)
				if status, output := p.wait(); status != 1 || !strings.HasPrefix(output, "serve: smol: ") || !strings.Contains(output, name) || !strings.Contains(output, "go run ./smol/setup") {
					t.Errorf("status %d, output %q; want 1, the file and what to do", status, output)
				}
				if line, err := p.ready.ReadBytes('\n'); err == nil {
					t.Errorf("it was ready: %s", line)
				}
			})
		}
	}
}
