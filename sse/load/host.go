package load

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
	"time"

	"servebench/verify"
)

// describeHost reads what the system tells of itself. What it doesn't tell
// stays empty.
func describeHost() verify.Host {
	h := verify.Host{
		OS: runtime.GOOS, Arch: runtime.GOARCH, CPUs: runtime.NumCPU(), AllowedCPUs: allowedCPUs(), Load: []float64{},
		Kernel: oneLine("/proc/sys/kernel/osrelease"), CPU: procField("/proc/cpuinfo", "model name"),
		CgroupCPUMax: cgroupLimit("cpu.max"),
	}
	if online := oneLine("/sys/devices/system/cpu/online"); online != "" {
		h.CPUs = countList(online)
	}
	h.Governor = oneLine(fmt.Sprintf("/sys/devices/system/cpu/cpu%d/cpufreq/scaling_governor", firstCPU()))
	h.CgroupMemBytes, _ = strconv.ParseInt(cgroupLimit("memory.max"), 10, 64) // "max" is no number
	h.MemTotalBytes = kibField("/proc/meminfo", "MemTotal")
	h.MemFreeBytes = kibField("/proc/meminfo", "MemAvailable")
	if h.MemFreeBytes > h.MemTotalBytes { // the container's total and the machine's rest
		h.MemFreeBytes = 0
	}
	for _, field := range strings.Fields(oneLine("/proc/loadavg")) {
		if v, err := strconv.ParseFloat(field, 64); err == nil && len(h.Load) < 3 {
			h.Load = append(h.Load, v)
		}
	}
	if runtime.GOOS == "darwin" {
		h.Kernel = command("uname", "-r")
		h.CPU = command("sysctl", "-n", "machdep.cpu.brand_string")
		h.MemTotalBytes, _ = strconv.ParseInt(command("sysctl", "-n", "hw.memsize"), 10, 64)
	}
	return h
}

// cgroupLimit returns a limit of the process's own control group (v2), or of
// the nearest group above it that has one: "max" where none does, "" where
// there are no such groups.
func cgroupLimit(name string) string {
	_, group, found := strings.Cut(oneLine("/proc/self/cgroup"), "0::")
	if !found {
		group = "/"
	}
	limit := ""
	for group, _, _ = strings.Cut(group, "\n"); ; group = path.Dir(group) {
		have := oneLine("/sys/fs/cgroup" + path.Join(group, name))
		if have != "" && (limit == "" || strings.HasPrefix(limit, "max")) {
			limit = have
		}
		if group == "/" || group == "." {
			return limit
		}
	}
}

func oneLine(path string) string {
	data, err := os.ReadFile(path)
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(data))
}

// procField returns the value of the first "name : value" line of a file.
func procField(path, name string) string {
	data, err := os.ReadFile(path)
	if err != nil {
		return ""
	}
	for line := range bytes.Lines(data) {
		key, value, found := strings.Cut(string(line), ":")
		if found && strings.TrimSpace(key) == name {
			return strings.TrimSpace(value)
		}
	}
	return ""
}

func kibField(path, name string) int64 {
	kib, _ := strconv.ParseInt(strings.TrimSuffix(procField(path, name), " kB"), 10, 64)
	return kib * 1024
}

// countList counts the CPUs of a list such as 0-3,8.
func countList(list string) (n int) {
	for part := range strings.SplitSeq(list, ",") {
		first, last, isRange := strings.Cut(part, "-")
		if !isRange {
			last = first
		}
		a, err1 := strconv.Atoi(first)
		b, err2 := strconv.Atoi(last)
		if err1 == nil && err2 == nil && b >= a {
			n += b - a + 1
		}
	}
	return n
}

// busyShare returns the share of all CPUs' time that was in use during d, by
// anybody; ok is false where the system doesn't tell.
func busyShare(d time.Duration) (share float64, ok bool) {
	before, ok1 := cpuTimes()
	time.Sleep(d)
	after, ok2 := cpuTimes()
	total := after.total - before.total
	if !ok1 || !ok2 || total <= 0 {
		return 0, false
	}
	return 1 - float64(after.idle-before.idle)/float64(total), true
}

type cpuTime struct{ total, idle int64 }

func cpuTimes() (t cpuTime, ok bool) {
	first, _, _ := strings.Cut(oneLine("/proc/stat"), "\n")
	fields := strings.Fields(first)
	if len(fields) < 6 || fields[0] != "cpu" {
		return t, false
	}
	for i, field := range fields[1:] {
		if i >= 8 { // guest times are in user and nice already
			break
		}
		v, err := strconv.ParseInt(field, 10, 64)
		if err != nil {
			return t, false
		}
		t.total += v
		if i == 3 || i == 4 { // idle, iowait
			t.idle += v
		}
	}
	return t, true
}

// revision asks git for the commit of dir and whether its tree is clean.
// Both are empty outside a repository.
func revision(dir string) (commit string, clean bool) {
	commit = command("git", "-C", dir, "rev-parse", "HEAD")
	if commit == "" {
		return "", false
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	status, err := exec.CommandContext(ctx, "git", "-C", dir, "status", "--porcelain").Output()
	return commit, err == nil && len(bytes.TrimSpace(status)) == 0
}

func command(name string, args ...string) string {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	out, err := exec.CommandContext(ctx, name, args...).Output()
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(out))
}

// modules reads back what is linked into this process.
func modules() []verify.Module {
	out := []verify.Module{}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return out
	}
	for _, m := range info.Deps {
		for m.Replace != nil {
			m = m.Replace
		}
		out = append(out, verify.Module{Path: m.Path, Version: m.Version, Sum: m.Sum})
	}
	return out
}

// errLocked says that another process holds a lock.
var errLocked = errors.New("load: another process holds the lock")

// lockName is the file that one measuring process of a machine holds.
var lockName = filepath.Join(os.TempDir(), "servebench.lock")
