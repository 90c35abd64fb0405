//go:build !cgo

package main

import "errors"

// errNoCgo is what everything native answers in a build without cgo.
var errNoCgo = errors.New("built without cgo, which the tokenizer library needs: set CGO_ENABLED=1 and install a C compiler (gcc or clang)")

// library stands in for the native one, so that such a build says why nothing
// works instead of having no such package.
type library struct{}

func newLibrary([]byte) (*library, error)    { return nil, errNoCgo }
func (*library) encode(string, bool) []int32 { return nil }
func (*library) close()                      {}
