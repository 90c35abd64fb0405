//go:build !race

package verify

// stride is 1: every case is tried.
const stride = 1
