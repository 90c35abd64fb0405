//go:build !linux

package smol

import "errors"

const hugePagesDefault = false

type mapping struct{}

func mappings() ([]mapping, error)     { return nil, nil }
func loadedLibrary(path string) string { return path }
func smallPages([]byte)                {}
func allowedCPUs() int                 { return fallbackCPUs() }
func hugePages([]mapping) (string, error) {
	return "", errors.New("smol: huge pages: only Linux has them")
}
