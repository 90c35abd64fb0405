package verify

import (
	"crypto/sha256"
	"encoding/hex"
	"io"
	"os"
	"path/filepath"
)

// HashFile reads a file and returns its base name, size and hash.
func HashFile(path string) (File, error) {
	file, err := os.Open(path)
	if err != nil {
		return File{}, err
	}
	defer file.Close()
	sum := sha256.New()
	size, err := io.Copy(sum, file)
	if err != nil {
		return File{}, err
	}
	return File{Name: filepath.Base(path), Bytes: size, SHA256: hex.EncodeToString(sum.Sum(nil))}, nil
}
