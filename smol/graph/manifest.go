package graph

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
)

// The files of a model directory.
const (
	ManifestFile  = "model.json"
	GraphFile     = "model.onnx"
	DataFile      = "model.onnx.data"
	TokenizerFile = "tokenizer.json"
)

// Format is the number of the model directory's layout and of the graph in
// it. A change to either that a reader could notice gets a new number.
const Format = 3

// Manifest says what a model directory holds and where it came from.
type Manifest struct {
	Format       int     `json:"format"`
	ID           string  `json:"id"`
	Source       string  `json:"source"`    // a public name: a model page, a package and version
	Revision     string  `json:"revision"`  // the source's own, "" if it has none
	Precision    string  `json:"precision"` // such as "fp32, dequantized from Q4_1"
	Parameters   int64   `json:"parameters"`
	Vocabulary   int     `json:"vocabulary"`
	Layers       int     `json:"layers"`
	Hidden       int     `json:"hidden"`
	Intermediate int     `json:"intermediate"`
	Heads        int     `json:"heads"`
	KVHeads      int     `json:"kv_heads"`
	HeadDim      int     `json:"head_dim"`
	Context      int     `json:"context"` // tokens, prompt and answer together
	RopeTheta    float64 `json:"rope_theta"`
	NormEps      float64 `json:"norm_eps"`
	BOS          int32   `json:"bos"`
	EOS          int32   `json:"eos"`
	ChatTemplate string  `json:"chat_template"`

	// EmbeddingOffset is where in the data file the embedding begins: float32,
	// little-endian, [vocabulary, hidden]. The graph takes rows of it.
	EmbeddingOffset int64 `json:"embedding_offset"`

	Files  []File `json:"files"`  // beside the manifest: graph, data, tokenizer
	Inputs []File `json:"inputs"` // what they were made from
}

// File is a file by content. Name is a base name, never a path.
type File struct {
	Name   string `json:"name"`
	Bytes  int64  `json:"bytes"`
	SHA256 string `json:"sha256"` // 64 hexadecimal digits, lower case
}

// Config is the shape of the model.
func (m *Manifest) Config() Config {
	return Config{
		Layers: m.Layers, Hidden: m.Hidden, Intermediate: m.Intermediate,
		Heads: m.Heads, KVHeads: m.KVHeads, HeadDim: m.HeadDim,
		Vocabulary: m.Vocabulary, Context: m.Context,
		RopeTheta: m.RopeTheta, NormEps: m.NormEps, BOS: m.BOS, EOS: m.EOS,
	}
}

// setConfig is the inverse of Config.
func (m *Manifest) setConfig(c Config) {
	m.Parameters = c.Parameters()
	m.Layers, m.Hidden, m.Intermediate = c.Layers, c.Hidden, c.Intermediate
	m.Heads, m.KVHeads, m.HeadDim = c.Heads, c.KVHeads, c.HeadDim
	m.Vocabulary, m.Context = c.Vocabulary, c.Context
	m.RopeTheta, m.NormEps, m.BOS, m.EOS = c.RopeTheta, c.NormEps, c.BOS, c.EOS
}

// maxManifest bounds what ReadManifest reads, in bytes.
const maxManifest = 1 << 20

// ReadManifest reads the manifest of the model directory dir and checks that
// every file it lists is there, of its size, and no Git LFS pointer. The error
// names the file and how to get it; ErrLFSPointer and fs.ErrNotExist are in
// its chain where they apply. It reads no weights: Verify does.
func ReadManifest(dir string) (*Manifest, error) {
	data, err := readManifestFile(filepath.Join(dir, ManifestFile))
	if err != nil {
		return nil, fmt.Errorf("graph: model %s: %w", dir, err)
	}
	var m Manifest
	if err := json.Unmarshal(data, &m); err != nil {
		return nil, fmt.Errorf("graph: model %s: %s: %w; run  go run ./smol/setup", dir, ManifestFile, err)
	}
	if m.Format != Format {
		return nil, fmt.Errorf("graph: model %s: %s: format %d, want %d; run  go run ./smol/setup", dir, ManifestFile, m.Format, Format)
	}
	if err := m.check(); err != nil {
		return nil, fmt.Errorf("graph: model %s: %s: %w", dir, ManifestFile, err)
	}
	for _, f := range m.Files {
		if err := checkFile(dir, f); err != nil {
			return nil, fmt.Errorf("graph: model %s: %w", dir, err)
		}
	}
	return &m, nil
}

func readManifestFile(path string) ([]byte, error) {
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%s is missing; run  go run ./smol/setup: %w", ManifestFile, fs.ErrNotExist)
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if err := checkLFS(f); err != nil {
		return nil, fmt.Errorf("%s: %w", ManifestFile, err)
	}
	data, err := io.ReadAll(io.LimitReader(f, maxManifest+1))
	if err != nil {
		return nil, err
	}
	if len(data) > maxManifest {
		return nil, fmt.Errorf("%s: more than %d bytes", ManifestFile, maxManifest)
	}
	return data, nil
}

// check errs on a manifest that contradicts itself.
func (m *Manifest) check() error {
	c := m.Config()
	if err := c.Validate(); err != nil {
		return err
	}
	if n := c.Parameters(); m.Parameters != n {
		return fmt.Errorf("parameters %d, want %d for its shape", m.Parameters, n)
	}
	missing := map[string]bool{GraphFile: true, DataFile: true, TokenizerFile: true}
	for _, f := range m.Files {
		if !missing[f.Name] {
			return fmt.Errorf("files: %q, want %s, %s and %s, each once", f.Name, GraphFile, DataFile, TokenizerFile)
		}
		delete(missing, f.Name)
		if sum, err := hex.DecodeString(f.SHA256); err != nil || len(sum) != sha256.Size || f.Bytes <= 0 {
			return fmt.Errorf("files: %s: %d bytes, sha256 %q, want a size above 0 and 64 hexadecimal digits", f.Name, f.Bytes, f.SHA256)
		}
	}
	for _, f := range m.Files {
		if most := f.Bytes - 4*int64(m.Vocabulary)*int64(m.Hidden); f.Name == DataFile && (m.EmbeddingOffset < 0 || m.EmbeddingOffset > most) {
			return fmt.Errorf("embedding_offset %d, want 0 to %d", m.EmbeddingOffset, most)
		}
	}
	for name := range missing {
		return fmt.Errorf("files: no %s", name)
	}
	return nil
}

func checkFile(dir string, want File) error {
	f, err := os.Open(filepath.Join(dir, want.Name))
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%s is missing; run  go run ./smol/setup: %w", want.Name, fs.ErrNotExist)
	}
	if err != nil {
		return err
	}
	defer f.Close()
	if err := checkLFS(f); err != nil {
		return fmt.Errorf("%s: %w", want.Name, err)
	}
	info, err := f.Stat()
	if err != nil {
		return err
	}
	if info.Size() != want.Bytes {
		return fmt.Errorf("%s has %d bytes, want %d; run  go run ./smol/setup", want.Name, info.Size(), want.Bytes)
	}
	return nil
}

// Verify reads every file of the directory and holds its SHA-256 against the
// manifest. progress may be nil; otherwise it's told of each chunk's bytes.
func (m *Manifest) Verify(ctx context.Context, dir string, progress func(bytes int64)) error {
	for _, want := range m.Files {
		got, err := HashFile(ctx, filepath.Join(dir, want.Name), progress)
		if err != nil {
			return err
		}
		if got != want {
			return fmt.Errorf("graph: model %s: %s has %d bytes, sha256 %s, want %d, %s; run  go run ./smol/setup", dir, want.Name, got.Bytes, got.SHA256, want.Bytes, want.SHA256)
		}
	}
	return nil
}

// HashFile reads the file at path and returns it by content. progress may be
// nil; otherwise it's told of each chunk's bytes.
func HashFile(ctx context.Context, path string, progress func(bytes int64)) (File, error) {
	f, err := os.Open(path)
	if err != nil {
		return File{}, fmt.Errorf("graph: %w", err)
	}
	defer f.Close()
	h := sha256.New()
	buf := make([]byte, 1<<20)
	var size int64
	for {
		if err := ctx.Err(); err != nil {
			return File{}, err
		}
		n, err := f.Read(buf)
		h.Write(buf[:n])
		size += int64(n)
		if progress != nil && n > 0 {
			progress(int64(n))
		}
		if err == io.EOF {
			break
		}
		if err != nil {
			return File{}, fmt.Errorf("graph: %w", err)
		}
	}
	return File{filepath.Base(path), size, hex.EncodeToString(h.Sum(nil))}, nil
}
