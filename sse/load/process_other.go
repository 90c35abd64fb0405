//go:build !linux

package load

import "os/exec"

// dieWithParent has no counterpart here: a child that was stopped stays until
// it is continued, and then finds its standard input closed.
func dieWithParent(*exec.Cmd) {}
