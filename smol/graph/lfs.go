package graph

import (
	"bytes"
	"errors"
	"fmt"
	"io"
)

// ErrLFSPointer is in the chain of an error about a file that holds a Git LFS
// pointer where the content itself should be.
var ErrLFSPointer = errors.New("a Git LFS pointer, not the file itself; fetch it with git lfs pull, or run  go run ./smol/setup")

// lfsPrefix is how every pointer file begins.
var lfsPrefix = []byte("version https://git-lfs.github.com/spec/v1")

// checkLFS errs with ErrLFSPointer if r begins like a pointer file.
func checkLFS(r io.ReaderAt) error {
	head := make([]byte, len(lfsPrefix))
	n, err := r.ReadAt(head, 0)
	if err != nil && err != io.EOF {
		return fmt.Errorf("first bytes: %w", err)
	}
	if bytes.Equal(head[:n], lfsPrefix) {
		return ErrLFSPointer
	}
	return nil
}
