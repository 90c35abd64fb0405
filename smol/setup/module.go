package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
)

// moduleLine is how this module's go.mod begins.
var moduleLine = regexp.MustCompile(`(?m)^module\s+servebench\s*(//.*)?$`)

// moduleRoot is the directory of this module's go.mod, at dir or above it.
func moduleRoot(dir string) (string, error) {
	start := dir
	for {
		data, err := os.ReadFile(filepath.Join(dir, "go.mod"))
		if err == nil && moduleLine.Match(data) {
			return dir, nil
		}
		if err != nil && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, fs.ErrPermission) {
			return "", err
		}
		parent := filepath.Dir(dir)
		if parent == dir {
			return "", fmt.Errorf("%s is not inside the module servebench; run it in a clone", start)
		}
		dir = parent
	}
}

// linkNative makes smol/native under root a link to dir. It replaces a link,
// but nothing else.
func linkNative(root, dir string) error {
	link := filepath.Join(root, "smol", "native")
	info, err := os.Lstat(link)
	switch {
	case err == nil && info.Mode()&fs.ModeSymlink == 0:
		return fmt.Errorf("%s is no link; move it away, set-up puts a link to %s there", link, dir)
	case err == nil:
		if to, err := os.Readlink(link); err == nil && to == dir {
			return nil
		}
	case !errors.Is(err, fs.ErrNotExist):
		return err
	}
	return symlink(dir, link)
}

// symlink makes name point to target, in one move, also where name is a link
// already.
func symlink(target, name string) error {
	tmp := fmt.Sprintf("%s.%d", name, os.Getpid())
	if err := os.Symlink(target, tmp); err != nil {
		return err
	}
	if err := os.Rename(tmp, name); err != nil {
		os.Remove(tmp)
		return err
	}
	return nil
}
