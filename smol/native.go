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

static void settle(void) {
#ifdef __GLIBC__
	mallopt(M_MMAP_THRESHOLD, 32 << 20);
	mallopt(M_ARENA_MAX, 1);
#endif
}

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

// settleC makes C's allocator keep each large block, such as a packed weight,
// in a mapping of its own, and small ones in one place whichever thread asks.
// Otherwise where things land, and how much of it can be given back, depends
// on the thread that happens to load and on what was freed before. It holds
// for the process.
func settleC() { C.settle() }
