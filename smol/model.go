package smol

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"servebench/verify"
)

// The files of a model's directory.
const (
	graphFile     = "model.onnx"
	tokenizerFile = "tokenizer.json"
)

// The graph's inputs and outputs.
const (
	inputIDs     = "input_ids"             // int64 [1, sequence]
	inputSeqlens = "seqlens_k"             // int32 [1]: the total less one
	inputTotal   = "total_sequence_length" // int32 [1]
	outputNext   = "next_id"               // int64 [1, 1]
)

// cacheNames returns the past input and the present output that share cache
// number i: key and value of layer 0, of layer 1, …; float32, of shape
// [1, KV heads, context, head dimension].
func cacheNames(i int) (past, present string) {
	kind := [2]string{"key", "value"}[i%2]
	return fmt.Sprintf("past_%s.%d", kind, i/2), fmt.Sprintf("present_%s.%d", kind, i/2)
}

// shape holds the numbers of a model that its caches depend on.
type shape struct {
	layers, kvHeads, headDim int
	context                  int // positions that the graph has angles for
}

// sessionConfig is what a session is opened with.
type sessionConfig struct {
	shape
	library, graph string
	context        int // of the caches, in tokens
	threads        int
	spinning       bool
	entries        [][2]string
}

// model is a model's directory, read and held against its manifest.
type model struct {
	shape     shape
	eos       int32
	model     verify.Model
	tokenizer []byte // contents of tokenizer.json
}

func readModel(dir string) (*model, error) {
	m := &model{shape: shape{30, 3, 64, 8192}, eos: 2, model: verify.Model{Vocabulary: 49152}}
	for _, n := range []string{graphFile, "model.onnx.data", tokenizerFile} {
		f, err := hashFile(filepath.Join(dir, n))
		if err != nil {
			return nil, err
		}
		m.model.Files = append(m.model.Files, f)
	}
	var err error
	m.tokenizer, err = os.ReadFile(filepath.Join(dir, tokenizerFile))
	return m, err
}

// checkFile holds the file at path against want, whose cause of a difference
// it names: sizes first, since a hash alone doesn't tell a pointer from a
// damaged file.
func checkFile(path string, want verify.File) error {
	info, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("smol: %s is missing: run  go run ./smol/setup", path)
	}
	if err != nil {
		return fmt.Errorf("smol: %w", err)
	}
	if info.Size() != want.Bytes {
		head := make([]byte, 64)
		if f, err := os.Open(path); err == nil {
			n, _ := io.ReadFull(f, head)
			head = head[:n]
			f.Close()
		}
		if bytes.HasPrefix(head, []byte("version https://git-lfs")) {
			return fmt.Errorf("smol: %s is a Git LFS pointer and not the file itself: run  git lfs pull  where it came from, or  go run ./smol/setup", path)
		}
		return fmt.Errorf("smol: %s has %d bytes, want %d: remove it and run  go run ./smol/setup", path, info.Size(), want.Bytes)
	}
	got, err := hashFile(path)
	if err != nil {
		return fmt.Errorf("smol: %w", err)
	}
	if got.SHA256 != want.SHA256 {
		return fmt.Errorf("smol: %s has sha256 %s, want %s: remove it and run  go run ./smol/setup", path, got.SHA256, want.SHA256)
	}
	return nil
}

// hashFile returns the file at path by content.
func hashFile(path string) (verify.File, error) {
	f, err := os.Open(path)
	if err != nil {
		return verify.File{}, err
	}
	defer f.Close()
	h := sha256.New()
	n, err := io.CopyBuffer(struct{ io.Writer }{h}, struct{ io.Reader }{f}, make([]byte, 1<<20))
	if err != nil {
		return verify.File{}, err
	}
	return verify.File{Name: filepath.Base(path), Bytes: n, SHA256: hex.EncodeToString(h.Sum(nil))}, nil
}
