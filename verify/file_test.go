package verify

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
)

func TestHashFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "abc")
	if err := os.WriteFile(path, []byte("abc"), 0o666); err != nil {
		t.Fatal(err)
	}
	// The first test vector of FIPS 180-2.
	want := File{"abc", 3, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"}
	if got, err := HashFile(path); got != want || err != nil {
		t.Errorf("HashFile = %v, %v, want %v", got, err, want)
	}
	if _, err := HashFile(path + "d"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("HashFile of nothing: %v, want that it doesn't exist", err)
	}
	if _, err := HashFile(filepath.Dir(path)); err == nil {
		t.Error("HashFile of a directory: no error")
	}
}
