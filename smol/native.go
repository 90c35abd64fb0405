//go:build cgo

package smol

/*
#cgo LDFLAGS: -L${SRCDIR}/native/v1
#if !__has_include("native/v1/libtokenizers.a")
#error "servebench is not set up: in the module's root run  go run ./smol/setup"
#endif

#include <stdlib.h>
#ifdef __GLIBC__
#include <malloc.h>
#endif

static void trim(void) {
#ifdef __GLIBC__
	malloc_trim(0);
#endif
}
*/
import "C"

// trimC has C's allocator return its free pages to the system, where it knows
// how to.
func trimC() { C.trim() }
