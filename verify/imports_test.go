package verify

import (
	"go/parser"
	"go/token"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// Whoever doubts a number needs these sources, Go and nothing else.
func TestImportsAreTheStandardLibrarys(t *testing.T) {
	const own = "servebench/verify" // by the command, and by examples
	for _, dir := range []string{".", "replay"} {
		paths, err := filepath.Glob(filepath.Join(dir, "*.go"))
		if err != nil || len(paths) == 0 {
			t.Fatalf("%s: %d files, %v", dir, len(paths), err)
		}
		for _, path := range paths {
			file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.ImportsOnly)
			if err != nil {
				t.Fatal(err)
			}
			for _, spec := range file.Imports {
				name, err := strconv.Unquote(spec.Path.Value)
				if err != nil {
					t.Fatal(err)
				}
				allowed := name == own && (dir != "." || strings.HasSuffix(path, "_test.go"))
				if !allowed && !isStandard(name) {
					t.Errorf("%s imports %q, want the standard library alone", path, name)
				}
			}
		}
	}
}

// isStandard: paths of the standard library have no dot in their first part,
// which every module that can be fetched has.
func isStandard(path string) bool {
	first, _, _ := strings.Cut(path, "/")
	return !strings.Contains(first, ".") && first != "servebench" && path != "C"
}

func TestIsStandard(t *testing.T) {
	for path, want := range map[string]bool{"encoding/json": true, "C": false, "servebench/sse": false, "golang.org/x/sys/unix": false, "github.com/a/b": false} {
		if isStandard(path) != want {
			t.Errorf("isStandard(%q) = %t", path, !want)
		}
	}
}
