//go:build !linux

package load

import "runtime"

func allowedCPUs() int { return runtime.NumCPU() }

func firstCPU() int { return 0 }
