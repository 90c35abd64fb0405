//go:build race

package sse

// slowness thins out tests that cut everywhere: the race detector makes them
// ten times as slow, and finds no more.
const slowness = 11
