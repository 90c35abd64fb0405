//go:build linux && amd64

package load

import (
	"bytes"
	"debug/elf"
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"
)

// The wall clock is set in the middle of a run: forward by an hour and, in
// another, back. No stamp notices; only the two wall times in the evidence do.
//
// To set the machine's clock would disturb the machine. Instead the process
// is given a clock_gettime of its own: the kernel maps that function, the
// vDSO's, into each process, and whoever may debug a process may write there.
func TestClockStep(t *testing.T) {
	for _, step := range []time.Duration{time.Hour, -time.Hour} {
		t.Run(step.String(), func(t *testing.T) {
			t.Parallel()
			p := newPlace(t)
			a := p.start("-test.bench", oneCell, "-test.benchtime", p.passes())
			a.midway(3)
			begin := time.Now()
			if err := stepClock(a.command.Process.Pid, step); err != nil {
				t.Skip(err)
			}
			o := a.wait()
			rest := time.Since(begin)
			o.clean(t, 1)
			started, err1 := time.Parse(time.RFC3339Nano, o.report.Header.Started)
			ended, err2 := time.Parse(time.RFC3339Nano, o.report.Trailer.Ended)
			if err1 != nil || err2 != nil {
				t.Fatal(err1, err2)
			}
			if wall := ended.Sub(started); wall < step || wall > step+time.Minute {
				t.Errorf("the run took %v by the wall clock, want a little over %v", wall, step)
			}
			if end := time.Duration(o.report.Trailer.EndNS); end < 0 || end > o.took {
				t.Errorf("the last stamp is %v of a run that took %v", end, o.took)
			}
			for _, m := range o.report.Results[0].Configuration.Metrics {
				if m.Unit == "p95-s" && (m.Value <= 0 || m.Value > rest.Seconds()) {
					t.Errorf("%v %s in %v", m.Value, m.Unit, rest)
				}
			}
			if warnings := strings.Join(o.report.Warnings, "\n"); !strings.Contains(warnings, "the wall clock went on by") {
				t.Errorf("warnings %q, want the clock", warnings)
			}
		})
	}
}

// stepClock adds step to what CLOCK_REALTIME gives to a process from now on.
func stepClock(pid int, step time.Duration) error {
	begin, size, err := mapping(pid, "[vdso]")
	if err != nil {
		return err
	}
	memory, err := os.OpenFile(fmt.Sprintf("/proc/%d/mem", pid), os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer memory.Close()
	image := make([]byte, size)
	if _, err := memory.ReadAt(image, begin); err != nil {
		return err
	}
	file, err := elf.NewFile(bytes.NewReader(image))
	if err != nil {
		return err
	}
	symbols, err := file.DynamicSymbols()
	if err != nil {
		return err
	}
	code := []byte{
		0xb8, 228, 0, 0, 0, // mov eax, SYS_clock_gettime
		0x0f, 0x05, // syscall
		0x85, 0xff, // test edi, edi: the clock, 0 for CLOCK_REALTIME
		0x75, 0x07, // jnz past the next
		0x48, 0x81, 0x06, 0, 0, 0, 0, // add qword [rsi], step: the seconds
		0xc3, // ret
	}
	seconds := uint32(int32(step / time.Second))
	for i := range 4 {
		code[14+i] = byte(seconds >> (8 * i))
	}
	for _, s := range symbols {
		if s.Name != "__vdso_clock_gettime" {
			continue
		}
		// Nobody shall be within the function when it changes.
		if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
			return err
		}
		defer syscall.Kill(pid, syscall.SIGCONT)
		for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(time.Millisecond) {
			status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
			if err != nil {
				return err
			}
			if bytes.Contains(status, []byte("\nState:\tT")) {
				break
			}
			if time.Now().After(deadline) {
				return fmt.Errorf("process %d doesn't stop", pid)
			}
		}
		_, err := memory.WriteAt(code, begin+int64(s.Value))
		return err
	}
	return fmt.Errorf("no clock_gettime in the vDSO")
}

// mapping returns where a process has something mapped.
func mapping(pid int, name string) (begin, size int64, err error) {
	maps, err := os.ReadFile(fmt.Sprintf("/proc/%d/maps", pid))
	if err != nil {
		return 0, 0, err
	}
	for line := range strings.Lines(string(maps)) {
		if !strings.HasSuffix(strings.TrimSpace(line), name) {
			continue
		}
		var end int64
		if _, err := fmt.Sscanf(line, "%x-%x", &begin, &end); err != nil {
			return 0, 0, err
		}
		return begin, end - begin, nil
	}
	return 0, 0, fmt.Errorf("process %d has no %s", pid, name)
}
