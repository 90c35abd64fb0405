package main

import (
	"context"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
)

// warnCompiler says so if the engine won't build for lack of a C compiler or
// of the C++ library that libtokenizers wants. Set-up itself needs neither.
func warnCompiler(ctx context.Context, out *reporter) {
	cc := "cc"
	if data, err := (command{path: "go", args: []string{"env", "CC"}}).run(ctx); err == nil {
		if fields := strings.Fields(string(data)); len(fields) > 0 {
			cc = fields[0]
		}
	}
	if _, err := exec.LookPath(cc); err != nil {
		out.line("warning: no C compiler %q; the engine needs one (Debian and Ubuntu: apt-get install g++)", cc)
		return
	}
	if runtime.GOOS != "linux" {
		return
	}
	// A compiler that doesn't have the file answers with the bare name.
	c := command{path: cc, args: []string{"-print-file-name=libstdc++.so"}}
	if data, err := c.run(ctx); err == nil && !filepath.IsAbs(strings.TrimSpace(string(data))) {
		out.line("warning: %s has no libstdc++; the engine is linked with it (Debian and Ubuntu: apt-get install g++)", cc)
	}
}
