//go:build !linux

package smol

import "errors"

const hugePagesDefault = false

type mapping struct{}

func mappings() ([]mapping, error)     { return nil, nil }
func loadedLibrary(path string) string { return path }
func smallPages([]byte)                {}
func allowedCPUs() int                 { return fallbackCPUs() }
func hugePages([]mapping) (int, error) {
	return 0, errors.New("smol: huge pages are implemented for Linux only: leave Options.HugePages alone")
}
