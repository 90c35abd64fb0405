//go:build !unix

package main

import (
	"context"
	"errors"
)

// lock is never reached: platformOf refuses these systems.
func lock(context.Context, string, func()) (func(), error) {
	return nil, errors.ErrUnsupported
}
