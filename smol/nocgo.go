//go:build !cgo

package smol

import "errors"

// errNoCgo is what everything native answers in a build without cgo. The
// package still compiles then, so that its tests fail with the reason instead
// of vanishing behind a build constraint.
var errNoCgo = errors.New("smol: built without cgo, and both native libraries need it: set CGO_ENABLED=1 and install a C compiler (gcc or clang)")

type session struct{}

func newSession(sessionConfig, *buffers) (*session, error) { return nil, errNoCgo }
func (*session) prefill(int) error                         { return errNoCgo }
func (*session) step() error                               { return errNoCgo }
func (*session) spinning() bool                            { return false }
func (*session) version() string                           { return "" }
func (*session) close() error                              { return nil }

const encoderVersion = ""

type encoder struct{}

func newEncoder([]byte) (*encoder, error)       { return nil, errNoCgo }
func (*encoder) encode(string) ([]int32, error) { return nil, errNoCgo }
func (*encoder) close()                         {}

func trimC()   {}
func settleC() {}
