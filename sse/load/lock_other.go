//go:build !unix

package load

import (
	"errors"
	"os"
)

func lockMachine() (*os.File, error) { return nil, errors.ErrUnsupported }

func lockFile(*os.File) error { return errors.ErrUnsupported }
