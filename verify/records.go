package verify

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"
)

// The checks of the records that stand outside a configuration.

const (
	// maxClockErrorNS bounds the tolerance that a file may claim for itself
	// when its two witnesses are held against each other.
	maxClockErrorNS = 1_000_000
	// maxNS bounds a stamp. 2^55 ns are 417 days: sums of durations and 100
	// times a percentile stay far below 2^63.
	maxNS = 1 << 55
)

func (p *replay) header(h *Header) {
	p.report.Header = h
	problem := func(format string, args ...any) { p.problem("header", format, args...) }
	if _, err := time.Parse(time.RFC3339Nano, h.Started); err != nil {
		problem("started %q is no time of RFC 3339", h.Started)
	}
	if !isBaseName(h.Run) {
		problem("run %q, want the file's name without its ending", h.Run)
	}
	if h.Energy != Unmeasured {
		problem("energy %q, want %q: nothing here measures it", h.Energy, Unmeasured)
	}
	if h.HourlyUSD < 0 {
		problem("hourly_usd %v is negative", h.HourlyUSD)
	}
	if h.Revision != "" && !isHex(h.Revision, 20) && !isHex(h.Revision, 32) {
		problem("revision %q is no git commit", h.Revision)
	}
	if h.CleanTree && h.Revision == "" {
		problem("clean_tree without a revision")
	}
	if h.Go == "" || h.Host.OS == "" || h.Host.Arch == "" {
		problem("go %q, os %q, arch %q: none of them may be empty", h.Go, h.Host.OS, h.Host.Arch)
	}
	seen := map[string]bool{}
	for _, f := range h.Flags {
		if seen[f.Name] || f.Name == "" {
			problem("flag %q stands twice or has no name", f.Name)
		}
		seen[f.Name] = true
		if f.Name == "order" && f.Value != strconv.FormatInt(h.OrderSeed, 10) {
			problem("order_seed %d, but the flag order has %s", h.OrderSeed, f.Value)
		}
	}
	if h.OrderSeed < 0 {
		problem("order_seed %d is negative", h.OrderSeed)
	}
	for _, m := range h.Modules {
		if seen["module "+m.Path] || m.Path == "" {
			problem("module %q stands twice or has no path", m.Path)
		}
		seen["module "+m.Path] = true
	}
	m := &h.Host
	if m.CPUs < 0 || m.AllowedCPUs < 0 || m.CgroupMemBytes < 0 || m.MemTotalBytes < 0 || m.MemFreeBytes < 0 || slices.ContainsFunc(m.Load, func(l float64) bool { return l < 0 }) {
		problem("host: a negative number")
	}
	if m.MemFreeBytes > m.MemTotalBytes {
		problem("host: mem_free_bytes %d of mem_total_bytes %d", m.MemFreeBytes, m.MemTotalBytes)
	}
	p.headerClock(h)
}

func (p *replay) headerClock(h *Header) {
	c := h.Clock
	switch c.Name {
	case "CLOCK_MONOTONIC", "CLOCK_UPTIME_RAW":
		if c.BaseNS < 1 {
			p.problem("header", "clock %s with base_ns %d, want above 0", c.Name, c.BaseNS)
		}
	case "process":
		if c.BaseNS != 0 || c.ErrorNS != 0 {
			p.problem("header", "clock process with base_ns %d and error_ns %d, want 0: no other process reads it", c.BaseNS, c.ErrorNS)
		}
		if h.Target == nil {
			p.problem("header", "clock process, but the server's own log needs a clock that both can read")
		}
	default:
		p.problem("header", "clock %q is unknown", c.Name)
	}
	if c.ErrorNS < 0 || c.ErrorNS > maxClockErrorNS {
		p.problem("header", "clock known to within %d ns, want 0 to %d", c.ErrorNS, maxClockErrorNS)
	}
	if h.Target != nil {
		p.target(h.Target)
	}
}

func (p *replay) corpus(c *Corpus) {
	switch {
	case p.report.Corpus != nil:
		p.stop("corpus", "a second corpus")
		return
	case len(p.report.Servers) > 0:
		p.problem("corpus", "it stands after a server")
	}
	p.report.Corpus = c
	if err := c.check(); err != nil {
		p.problem("corpus", "%v", err)
	}
	for i := range c.Prompts {
		p.prompts[c.Prompts[i].ID] = &c.Prompts[i]
	}
}

func (p *replay) server(s *Server) {
	where := fmt.Sprintf("server %d", s.Server)
	if p.cell != nil {
		p.stop(where, "it stands within configuration %d", p.cell.plan.Config)
		return
	}
	if len(p.probes) > 0 {
		p.stop(where, "it stands in the search %s, which isn't closed", p.probes[0].Plan.probeOf())
		return
	}
	if want := len(p.report.Servers) + 1; s.Server != want {
		p.problem(where, "server number %d, want %d", s.Server, want)
	}
	p.report.Servers = append(p.report.Servers, *s)
	p.slot = nil
	if s.ReadyNS < 1 || s.ReadyNS > maxNS {
		p.problem(where, "ready_ns %d, want 1 to %d", s.ReadyNS, int64(maxNS))
	}
	if t := p.report.Header.Target; t != nil {
		if want := (&Server{Kind: s.Kind, Server: s.Server, ReadyNS: s.ReadyNS, Model: Model{ID: t.Model}}); !reflect.DeepEqual(s, want) {
			p.problem(where, "it says more than its number, ready_ns and the target's model %q, but nobody here knows that server", t.Model)
		}
		return
	}
	for _, fault := range s.faults() {
		p.problem(where, "%s", fault)
	}
	if field := s.differs(&p.report.Servers[0]); field != "" {
		p.problem(where, "it differs from server 1 in %s: one run measures one thing", field)
	}
	if first := &p.report.Servers[0]; s.HugePages != first.HugePages {
		p.warn("server %d has huge pages %q, server 1 has %q: they are the kernel's to give", s.Server, s.HugePages, first.HugePages)
	}
	if allowed := p.report.Header.Host.AllowedCPUs; allowed > 0 && s.IntraThreads > allowed {
		p.warn("server %d has %d threads on %d CPUs", s.Server, s.IntraThreads, allowed)
	}
}

// faults returns what is wrong with the record of a server of this project's.
func (s *Server) faults() (out []string) {
	fault := func(format string, args ...any) { out = append(out, fmt.Sprintf(format, args...)) }
	if s.Slots != 1 {
		fault("slots %d, want 1", s.Slots)
	}
	if s.PID < 1 || s.Go == "" || s.ContextLimit < 2 {
		fault("pid %d, go %q, context_limit %d: each must be there", s.PID, s.Go, s.ContextLimit)
	}
	if s.LoadNS < 1 || s.LoadNS > s.ReadyNS {
		fault("load_ns %d, want 1 to ready_ns %d: it was started within the run", s.LoadNS, s.ReadyNS)
	}
	if s.ClockErrorNS < 0 || s.ClockErrorNS > maxClockErrorNS {
		fault("clock known to within %d ns, want 0 to %d", s.ClockErrorNS, maxClockErrorNS)
	}
	if s.IntraThreads < 1 || s.InterThreads != 1 {
		fault("intra_threads %d and inter_threads %d, want at least 1 and 1", s.IntraThreads, s.InterThreads)
	}
	if err := s.Binary.check(); err != nil {
		fault("binary: %v", err)
	}
	for _, l := range s.Libraries {
		if l.Name == "" || l.Version == "" {
			fault("library %q of version %q: neither may be empty", l.Name, l.Version)
		}
		if err := l.File.check(); l.File != (File{}) && err != nil {
			fault("library %s: %v", l.Name, err)
		}
	}
	return append(out, s.Model.faults()...)
}

func (m *Model) faults() (out []string) {
	fault := func(format string, args ...any) { out = append(out, "model: "+fmt.Sprintf(format, args...)) }
	var size int64
	for _, f := range m.Files {
		if err := f.check(); err != nil {
			fault("%v", err)
		}
		size += f.Bytes
	}
	for _, f := range m.Inputs {
		if err := f.check(); err != nil {
			fault("inputs: %v", err)
		}
	}
	if m.ID == "" || m.Source == "" || m.Precision == "" {
		fault("id %q, source %q, precision %q: none of them may be empty", m.ID, m.Source, m.Precision)
	}
	if m.Parameters < 1 || m.Vocabulary < 1 {
		fault("%d parameters and a vocabulary of %d, want at least 1 of each", m.Parameters, m.Vocabulary)
	}
	// No format in use has less than a bit a parameter.
	least := m.Parameters / 8
	if strings.HasPrefix(m.Precision, "fp32") {
		least = 4 * m.Parameters
	}
	if size < least {
		fault("files of %d bytes, want at least %d for %d parameters in precision %q: a pointer or a part was hashed in place of the weights", size, least, m.Parameters, m.Precision)
	}
	return out
}

// differs names the first field in which two servers of one run differ though
// they may not. What belongs to a process, or follows from its number of
// threads, may.
func (s *Server) differs(first *Server) string {
	switch {
	case s.Binary != first.Binary:
		return "binary"
	case s.Go != first.Go:
		return "go"
	case !slices.Equal(s.Libraries, first.Libraries):
		return "libraries"
	case s.ContextLimit != first.ContextLimit:
		return "context_limit"
	}
	a, b := s.Model, first.Model
	if !slices.Equal(a.Files, b.Files) {
		return "model.files"
	}
	if !slices.Equal(a.Inputs, b.Inputs) {
		return "model.inputs"
	}
	if a.ID != b.ID || a.Source != b.Source || a.Revision != b.Revision || a.Precision != b.Precision || a.Parameters != b.Parameters || a.Vocabulary != b.Vocabulary {
		return "model"
	}
	return ""
}

func (f *File) check() error {
	raw, err := hex.DecodeString(f.SHA256)
	switch {
	case !isBaseName(f.Name):
		return fmt.Errorf("file name %q, want a base name", f.Name)
	case f.Bytes < 1:
		return fmt.Errorf("file %s: bytes %d, want at least 1", f.Name, f.Bytes)
	case err != nil || !isHex(f.SHA256, sha256.Size):
		return fmt.Errorf("file %s: sha256 %q, want 64 hexadecimal digits in lower case", f.Name, f.SHA256)
	case slices.Max(raw) == slices.Min(raw):
		return fmt.Errorf("file %s: sha256 %q is a placeholder", f.Name, f.SHA256)
	}
	return nil
}

func isBaseName(s string) bool {
	return s != "" && s != "." && s != ".." && !strings.ContainsAny(s, `/\`)
}

func isHex(s string, size int) bool {
	_, err := hex.DecodeString(s)
	return err == nil && len(s) == 2*size && strings.ToLower(s) == s
}

// close checks the trailer.
func (p *replay) close(t *Trailer) {
	if p.cell != nil {
		p.stop("trailer", "it stands within configuration %d", p.cell.plan.Config)
		return
	}
	if len(p.probes) > 0 {
		p.stop("trailer", "it stands in the search %s, which isn't closed", p.probes[0].Plan.probeOf())
		return
	}
	p.report.Trailer = t
	p.warnMissing()
	if want := hex.EncodeToString(p.hash.Sum(nil)); t.SHA256 != want {
		p.problem("trailer", "sha256 %q, but the bytes before it have %q", t.SHA256, want)
	}
	for _, count := range []struct {
		name       string
		have, want int64
	}{
		{"records", int64(t.Records), int64(p.trailer.Records)},
		{"configurations", int64(t.Configurations), int64(p.trailer.Configurations)},
		{"invalid", int64(t.Invalid), int64(p.trailer.Invalid)},
		{"requests", int64(t.Requests), int64(p.trailer.Requests)},
		{"failed", int64(t.Failed), int64(p.trailer.Failed)},
		{"tokens", t.Tokens, p.trailer.Tokens},
	} {
		if count.have != count.want {
			p.problem("trailer", "%s %d, but the file has %d", count.name, count.have, count.want)
		}
	}
	if t.EndNS < p.lastNS || t.EndNS > maxNS {
		p.problem("trailer", "end_ns %d, want %d, the end of the last configuration, to %d", t.EndNS, p.lastNS, int64(maxNS))
	}
	started, err1 := time.Parse(time.RFC3339Nano, p.report.Header.Started)
	ended, err2 := time.Parse(time.RFC3339Nano, t.Ended)
	switch wall := ended.Sub(started); {
	case err2 != nil:
		p.problem("trailer", "ended %q is no time of RFC 3339", t.Ended)
	case err1 == nil && (wall-time.Duration(t.EndNS)).Abs() > wallSlack:
		p.warn("the wall clock went on by %v while %v passed: it was set, or the machine slept", wall, time.Duration(t.EndNS))
	}
}

// wallSlack is how far wall time and monotonic time may differ over a run
// before it is worth a word. The wall clock may be set at any moment, so it
// proves nothing.
const wallSlack = 2 * time.Second
