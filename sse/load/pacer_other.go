//go:build !linux

package load

func newPacer() pacer { return newTimerPacer() }
