//go:build !race

package sse

// slowness is 1: every case is tried.
const slowness = 1
