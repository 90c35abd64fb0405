package load

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// What is measured comes from the monotonic clock. These are all places that
// look at the wall clock, by file and method, and what for: of the module, but
// for its tests and what prepares the model, where nothing is measured.
var wallClock = map[string]string{
	"sse/load/run.go: UTC":  "the run's name and when it started, for people",
	"verify/writer.go: UTC": "when it ended, for people",
	"sse/handler.go: Unix":  `"created" of an answer, as the dialect has it`,
}

// wallMethods give or make a time without a monotonic reading.
var wallMethods = map[string]bool{
	"Unix": true, "UnixNano": true, "UnixMilli": true, "UnixMicro": true, "UTC": true, "Local": true, "In": true, "AddDate": true,
	"ParseInLocation": true, "MarshalJSON": true, "GobEncode": true,
}

func TestWallClock(t *testing.T) {
	found := map[string]bool{}
	err := filepath.WalkDir(module, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name := entry.Name()
		if entry.IsDir() {
			if name != ".." && (strings.HasPrefix(name, ".") || slices.Contains([]string{"testdata", "native", "setup", "graph"}, name)) {
				return filepath.SkipDir
			}
			return nil
		}
		if !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go") && name != "matrix_test.go" {
			return nil
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
		if err != nil {
			return err
		}
		timed := false
		for _, spec := range file.Imports {
			timed = timed || spec.Path.Value == `"time"`
		}
		if !timed {
			return nil
		}
		within, err := filepath.Rel(module, path)
		if err != nil {
			return err
		}
		ast.Inspect(file, func(node ast.Node) bool {
			call, ok := node.(*ast.CallExpr)
			if !ok {
				return true
			}
			selector, ok := call.Fun.(*ast.SelectorExpr)
			if !ok {
				return true
			}
			strips := false // Round(0) and Truncate(0) take the monotonic reading away
			if (selector.Sel.Name == "Round" || selector.Sel.Name == "Truncate") && len(call.Args) == 1 {
				literal, ok := call.Args[0].(*ast.BasicLit)
				strips = ok && literal.Value == "0"
			}
			if wallMethods[selector.Sel.Name] || strips {
				found[fmt.Sprintf("%s: %s", filepath.ToSlash(within), selector.Sel.Name)] = true
			}
			return true
		})
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	got, want := slices.Sorted(maps.Keys(found)), slices.Sorted(maps.Keys(wallClock))
	if !slices.Equal(got, want) {
		t.Errorf("the wall clock is read at %q, want %q: a stamp must not come from it", got, want)
	}
}
