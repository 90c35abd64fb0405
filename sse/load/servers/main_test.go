//go:build unix

package servers

import (
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
)

var needFlag = flag.String("need", "", "fail where one of these `servers`, separated by commas, would be skipped: llamaserver, transformers")

func TestMain(m *testing.M) { os.Exit(testMain(m)) }

func testMain(m *testing.M) int {
	flag.Parse()
	if flag.NArg() > 0 {
		fmt.Fprintf(os.Stderr, "servers: argument %q, want flags only\n", flag.Arg(0))
		return 2
	}
	for name := range strings.SplitSeq(*needFlag, ",") {
		if name != "" && !slices.ContainsFunc(kinds, func(k *kind) bool { return k.name == name }) {
			fmt.Fprintf(os.Stderr, "servers: -need %q, want llamaserver or transformers\n", name)
			return 2
		}
	}
	status := m.Run()
	for _, k := range kinds {
		if k.shared == nil {
			continue
		}
		if err := k.shared.stop(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			status = 1
		}
	}
	return status
}

// skip leaves a server out, or fails if -need names it.
func (k *kind) skip(t *testing.T, format string, args ...any) {
	t.Helper()
	if slices.Contains(strings.Split(*needFlag, ","), k.name) {
		t.Fatalf(k.name+" is needed: "+format, args...)
	}
	t.Skipf(k.name+" is skipped: "+format, args...)
}
