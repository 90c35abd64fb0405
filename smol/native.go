//go:build cgo

package smol

/*
#cgo LDFLAGS: -L${SRCDIR}/native/v1
#if !__has_include("native/v1/libtokenizers.a")
#error "servebench is not set up: in the module's root run  go run ./smol/setup"
#endif
*/
import "C"
