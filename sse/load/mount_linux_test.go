package load

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
)

// isolated returns what gives a child mounts of its own: as root, or where
// the system lets anybody be root in a user namespace.
func isolated() *syscall.SysProcAttr {
	attr := &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNS}
	if os.Getuid() != 0 {
		attr.Cloneflags |= syscall.CLONE_NEWUSER
		attr.UidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getuid(), Size: 1}}
		attr.GidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getgid(), Size: 1}}
	}
	return attr
}

var canMount = sync.OnceValue(func() error {
	probe := exec.Command("/bin/sh", "-c", "mount --make-rprivate / && mount -t tmpfs none /mnt")
	probe.SysProcAttr = isolated()
	if out, err := probe.CombinedOutput(); err != nil {
		return fmt.Errorf("no mounts of one's own here: %w %s", err, out)
	}
	return nil
})

// mounted runs the benchmark in a mount namespace of its own, after the shell
// commands in before. What it left in its evidence directory, which may be a
// mount that vanishes with it, is copied to another first: the outcome is of
// the copy.
func (p *place) mounted(before string, args ...string) *outcome {
	p.t.Helper()
	if err := canMount(); err != nil {
		p.t.Skip(err)
	}
	saved := filepath.Join(p.t.TempDir(), "saved")
	script := "set -e; mount --make-rprivate /; mkdir -p " + p.evidence + "; " + before +
		`; set +e; "$0" "$@"; code=$?; cp -r ` + p.evidence + " " + saved + "; exit $code"
	a := p.prepare("/bin/sh", append([]string{"-c", script, p.program}, p.arguments(args)...))
	a.command.SysProcAttr = isolated()
	p.evidence = saved
	a.run()
	return a.wait()
}

const readOnly = "mount -t tmpfs -o ro none EVIDENCE"

func TestReadOnlyDirectory(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	o := p.mounted(strings.ReplaceAll(readOnly, "EVIDENCE", p.evidence), "-test.bench", oneCell)
	o.documented(t, "The evidence can't be written", 0)
	if o.code != 1 || o.lines > 0 || o.path != "" {
		t.Errorf("exit code %d with %d results and %q, want 1 and nothing", o.code, o.lines, o.path)
	}
}

// A small disk of its own, for the evidence.
func TestFullDisk(t *testing.T) {
	t.Parallel()
	_, second, _ := newPlace(t).sizes()
	for _, test := range []struct {
		name string
		size int
	}{{"at once", 4096}, {"midway", second + 1024}} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			p := newPlace(t)
			// The size is rounded up to pages.
			o := p.mounted(fmt.Sprintf("mount -t tmpfs -o size=%d none %s", test.size, p.evidence), "-test.bench", twoCells)
			if test.size == 4096 {
				o.says(t, "Error: ", "no space left on device")
				if o.code != 1 || o.lines > 0 || o.path != "" {
					t.Errorf("exit code %d with %d results and %q, want 1 and nothing", o.code, o.lines, o.path)
				}
				return
			}
			o.incomplete(t)
			o.documented(t, "The disk is full", 0)
		})
	}
}

// The temporary directory is where the server's program, output and log are.
func TestFullTemporaryDirectory(t *testing.T) {
	t.Parallel()
	t.Run("at once", func(t *testing.T) {
		t.Parallel()
		p := newPlace(t)
		o := p.mounted("mount -t tmpfs -o nr_inodes=1 none "+p.tmp, "-test.bench", twoCells)
		o.documented(t, "The temporary directory is full", 0)
		if o.code != 1 || o.lines > 0 || o.path != "" {
			t.Errorf("exit code %d with %d results and %q, want 1 and nothing", o.code, o.lines, o.path)
		}
	})
	// Room for the log of one configuration, not for that of two: the server
	// ends, and finds no room to say why.
	t.Run("midway", func(t *testing.T) {
		t.Parallel()
		p := newPlace(t)
		o := p.mounted("mount -t tmpfs -o size=12k none "+p.tmp, "-test.bench", twoCells, "-test.benchtime", "2x")
		o.documented(t, "The temporary directory is full", 1)
		if o.code != 1 || o.report == nil || o.report.Err() != nil || len(o.report.Invalid()) == 0 {
			t.Errorf("exit code %d and evidence %q, want 1 and consistent evidence with an invalid configuration; stderr: %s", o.code, o.path, o.stderr)
		}
	})
}
