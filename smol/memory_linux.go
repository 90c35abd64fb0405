package smol

import (
	"bufio"
	"fmt"
	"os"
	"strconv"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"
)

const hugePagesDefault = true

// mapping is one line of /proc/self/maps.
type mapping struct {
	start, end uintptr
	private    bool
	writable   bool
	path       string // "" for anonymous memory
}

func mappings() ([]mapping, error) {
	f, err := os.Open("/proc/self/maps")
	if err != nil {
		return nil, err
	}
	defer f.Close()
	var all []mapping
	for lines := bufio.NewScanner(f); lines.Scan(); {
		// start-end rwxp offset device inode   path, which may hold spaces
		fields := strings.SplitN(lines.Text(), " ", 6)
		if len(fields) < 6 {
			fields = append(fields, "")
		}
		from, to, ok := strings.Cut(fields[0], "-")
		start, err1 := strconv.ParseUint(from, 16, 64)
		end, err2 := strconv.ParseUint(to, 16, 64)
		if !ok || err1 != nil || err2 != nil || len(fields[1]) != 4 {
			return nil, fmt.Errorf("/proc/self/maps: %q is no mapping", lines.Text())
		}
		all = append(all, mapping{
			start: uintptr(start), end: uintptr(end),
			private:  fields[1][3] == 'p',
			writable: fields[1][1] == 'w',
			path:     strings.TrimLeft(fields[5], " "),
		})
	}
	return all, nil
}

// loadedLibrary returns the file that was mapped for the library at path:
// the loader may have taken one that was there before under the same name.
func loadedLibrary(path string) string {
	all, err := mappings()
	if err != nil {
		return path
	}
	const name = "libonnxruntime.so"
	found := path
	for _, m := range all {
		if i := strings.LastIndexByte(m.path, '/'); i >= 0 && strings.HasPrefix(m.path[i+1:], name) {
			found = m.path
			if found == path {
				break
			}
		}
	}
	return found
}

// hugePages has the kernel collapse the large anonymous mappings that came or
// grew since before into huge pages. Go's own heap is left alone. It returns what
// was done: "" where the kernel can't (before Linux 6.1), or had no huge page
// left, or there was nothing large enough.
//
// Note: advising MADV_HUGEPAGE as well would serve older kernels, but the
// advice stays with the mapping, and whatever the allocator puts beside the
// weights later becomes resident in steps of 2 MB.
func hugePages(before []mapping) (string, error) {
	const least = 4 << 20
	now, err := mappings()
	if err != nil {
		return "", fmt.Errorf("smol: huge pages: %w", err)
	}
	old := make(map[uintptr]uintptr, len(before))
	for _, m := range before {
		old[m.start] = m.end
	}
	done := ""
	for _, m := range now {
		if m.path != "" && m.path != "[heap]" || !m.private || !m.writable || m.end-m.start < least || old[m.start] == m.end || goHeap(m) {
			continue
		}
		block := unsafe.Slice((*byte)(unsafe.Add(unsafe.Pointer(nil), m.start)), m.end-m.start)
		if unix.Madvise(block, unix.MADV_COLLAPSE) == nil {
			done = "collapse"
		}
	}
	return done, nil
}

// goHeap tells whether m lies in the terabyte of address space from which
// Go's allocator has taken an object; it begins at a random place.
func goHeap(m mapping) bool {
	return m.start>>40 == uintptr(unsafe.Pointer(new([64]byte)))>>40
}

// smallPages keeps block from being backed by huge pages, which would make
// all of it resident.
func smallPages(block []byte) { unix.Madvise(block, unix.MADV_NOHUGEPAGE) }

// allowedCPUs returns how many CPUs the process may run on.
func allowedCPUs() int {
	var set unix.CPUSet
	if err := unix.SchedGetaffinity(os.Getpid(), &set); err != nil {
		return fallbackCPUs()
	}
	return set.Count()
}
