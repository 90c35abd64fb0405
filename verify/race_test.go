//go:build race

package verify

// stride thins out tests that try thousands of files: the race detector makes
// each ten times as slow, and there is one goroutine.
const stride = 11
