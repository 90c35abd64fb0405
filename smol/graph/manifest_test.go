package graph

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func TestManifest(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "tiny")
	want, err := WriteTiny(dir, Options{})
	if err != nil {
		t.Fatal(err)
	}
	got, err := ReadManifest(dir)
	if err != nil {
		t.Fatal(err)
	}
	if got.Config() != tinyConfig || !slices.Equal(got.Files, want.Files) || got.ChatTemplate != Tiny().ChatTemplate || got.Precision != "fp32" {
		t.Errorf("ReadManifest = %+v\nwant %+v", got, want)
	}
	var read int64
	if err := got.Verify(t.Context(), dir, func(n int64) { read += n }); err != nil {
		t.Errorf("Verify: %v", err)
	}
	if size := got.Files[0].Bytes + got.Files[1].Bytes + got.Files[2].Bytes; read != size {
		t.Errorf("Verify told of %d bytes, want %d", read, size)
	}
}

func TestManifestRefuses(t *testing.T) {
	pointer := []byte("version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 540016640\n")
	replace := func(name, old, new string) func(t *testing.T, dir string) {
		return func(t *testing.T, dir string) {
			path := filepath.Join(dir, name)
			data, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			if !strings.Contains(string(data), old) {
				t.Fatalf("%s doesn't contain %q", name, old)
			}
			if err := os.WriteFile(path, []byte(strings.Replace(string(data), old, new, 1)), 0o644); err != nil {
				t.Fatal(err)
			}
		}
	}
	write := func(name string, data []byte) func(t *testing.T, dir string) {
		return func(t *testing.T, dir string) {
			if err := os.WriteFile(filepath.Join(dir, name), data, 0o644); err != nil {
				t.Fatal(err)
			}
		}
	}
	remove := func(name string) func(t *testing.T, dir string) {
		return func(t *testing.T, dir string) {
			if err := os.Remove(filepath.Join(dir, name)); err != nil {
				t.Fatal(err)
			}
		}
	}
	whole := filepath.Join(t.TempDir(), "tiny")
	if _, err := WriteTiny(whole, Options{}); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		name   string
		tamper func(t *testing.T, dir string)
		want   string // after "graph: model DIR: "
		is     error
	}{
		{"no manifest", remove(ManifestFile), "model.json is missing; run  go run ./smol/setup: file does not exist", fs.ErrNotExist},
		{"no data", remove(DataFile), "model.onnx.data is missing; run  go run ./smol/setup: file does not exist", fs.ErrNotExist},
		{"a pointer for the manifest", write(ManifestFile, pointer), "model.json: " + ErrLFSPointer.Error(), ErrLFSPointer},
		{"a pointer for the data", write(DataFile, pointer), "model.onnx.data: " + ErrLFSPointer.Error(), ErrLFSPointer},
		{"a pointer for the graph", write(GraphFile, pointer), "model.onnx: " + ErrLFSPointer.Error(), ErrLFSPointer},
		{"a cut graph", write(GraphFile, []byte("\x08\x0a")), "model.onnx has 2 bytes, want 6780; run  go run ./smol/setup", nil},
		{"an empty tokenizer", write(TokenizerFile, nil), "tokenizer.json has 0 bytes, want 10867; run  go run ./smol/setup", nil},
		{"no JSON", write(ManifestFile, []byte("{")), "model.json: unexpected end of JSON input; run  go run ./smol/setup", nil},
		{"another format", replace(ManifestFile, `"format": 3`, `"format": 7`), "model.json: format 7, want 3; run  go run ./smol/setup", nil},
		{"a path for a name", replace(ManifestFile, `"name": "model.onnx"`, `"name": "../model.onnx"`), `model.json: files: "../model.onnx", want model.onnx, model.onnx.data and tokenizer.json, each once`, nil},
		{"half a hash", replace(ManifestFile, `"sha256": "`, `"sha256": "zz`), "", nil},
		{"wrong parameters", replace(ManifestFile, `"parameters": `, `"parameters": 1`), "", nil},
		{"a wrong shape", replace(ManifestFile, `"kv_heads": 2`, `"kv_heads": 0`), "model.json: graph: config: kv heads 0, want 1 to 131072", nil},
		{"an embedding behind the end", replace(ManifestFile, `"embedding_offset": `, `"embedding_offset": 9`), "", nil},
		{"an embedding before the file", replace(ManifestFile, `"embedding_offset": `, `"embedding_offset": -`), "", nil},
		{"a manifest without end", write(ManifestFile, make([]byte, 1<<20+1)), "model.json: more than 1048576 bytes", nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "tiny")
			if err := os.CopyFS(dir, os.DirFS(whole)); err != nil {
				t.Fatal(err)
			}
			tt.tamper(t, dir)
			_, err := ReadManifest(dir)
			if err == nil {
				t.Fatal("ReadManifest: no error")
			}
			if want := "graph: model " + dir + ": " + tt.want; tt.want != "" && err.Error() != want {
				t.Errorf("ReadManifest: %v\nwant %s", err, want)
			}
			if tt.is != nil && !errors.Is(err, tt.is) {
				t.Errorf("ReadManifest: %v is not %v", err, tt.is)
			}
		})
	}
}

// TestVerify finds a byte that changed without changing a size.
func TestVerify(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "tiny")
	if _, err := WriteTiny(dir, Options{}); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, DataFile)
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	data[len(data)/2] ^= 1
	if err := os.WriteFile(path, data, 0o644); err != nil {
		t.Fatal(err)
	}
	m, err := ReadManifest(dir)
	if err != nil {
		t.Fatalf("ReadManifest reads no weights, and yet: %v", err)
	}
	if err := m.Verify(t.Context(), dir, nil); err == nil || !strings.Contains(err.Error(), "model.onnx.data has 1015808 bytes, sha256 ") {
		t.Errorf("Verify: %v, want an error about model.onnx.data", err)
	}
}
