package verify

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// The checks of records that stand outside a configuration, and the order of
// all of them.

func (p *replay) header(h *Header) {
	p.report.Header = h
	if _, err := time.Parse(time.RFC3339Nano, h.Started); err != nil {
		p.problem("header", "started %q is no time of RFC 3339", h.Started)
	}
	if h.Run == "" {
		p.problem("header", "run is empty")
	}
	if h.Energy != Unmeasured {
		p.problem("header", "energy %q, want %q: nothing here measures it", h.Energy, Unmeasured)
	}
	if h.HourlyUSD < 0 {
		p.problem("header", "hourly_usd %v is negative", h.HourlyUSD)
	}
	if h.Clock.Name == "process" != (h.Clock.BaseNS == 0) || h.Clock.ErrorNS < 0 {
		p.problem("header", "clock %q with base %d and error %d ns", h.Clock.Name, h.Clock.BaseNS, h.Clock.ErrorNS)
	}
	if h.Clock.ErrorNS > maxClockErrorNS {
		p.problem("header", "clock known to within %d ns only, want at most %d", h.Clock.ErrorNS, maxClockErrorNS)
	}
}

// maxClockErrorNS bounds the tolerance that a file may claim for itself when
// its two witnesses are held against each other.
const maxClockErrorNS = 1_000_000

func (p *replay) corpus(c *Corpus) {
	switch {
	case p.report.Corpus != nil:
		p.problem("corpus", "a second corpus")
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

// check holds a corpus against its own hashes.
func (c *Corpus) check() error {
	sum := sha256.New()
	var size int64
	seen := map[string]bool{}
	for i := range c.Prompts {
		prompt := &c.Prompts[i]
		line, err := json.Marshal(prompt)
		if err != nil {
			return err
		}
		line = append(line, '\n')
		size += int64(len(line))
		sum.Write(line)
		if err := prompt.check(); err != nil {
			return fmt.Errorf("prompt %q: %w", prompt.ID, err)
		}
		if seen[prompt.ID] {
			return fmt.Errorf("prompt %q stands twice", prompt.ID)
		}
		seen[prompt.ID] = true
	}
	if got := hex.EncodeToString(sum.Sum(nil)); got != c.SHA256 || size != c.Bytes {
		return fmt.Errorf("its prompts have %d bytes and sha256 %s, want %d and %s", size, got, c.Bytes, c.SHA256)
	}
	return nil
}

func (p *Prompt) check() error {
	sum := sha256.Sum256([]byte(p.Text))
	switch got := hex.EncodeToString(sum[:]); {
	case p.ID == "":
		return fmt.Errorf("its id is empty")
	case got != p.SHA256:
		return fmt.Errorf("its text has sha256 %s, want %s", got, p.SHA256)
	case p.IDs != nil && len(p.IDs) != p.Input:
		return fmt.Errorf("%d ids, want input %d", len(p.IDs), p.Input)
	}
	return nil
}

// ReadCorpus reads a corpus file: one canonical prompt a line.
func ReadCorpus(name string, data []byte) (*Corpus, error) {
	sum := sha256.Sum256(data)
	c := &Corpus{Kind: KindCorpus, Name: name, Bytes: int64(len(data)), SHA256: hex.EncodeToString(sum[:])}
	for n := 1; len(data) > 0; n++ {
		line, rest, found := bytes.Cut(data, []byte("\n"))
		data = rest
		if !found {
			return nil, fmt.Errorf("verify: %s:%d: the last line has no newline", name, n)
		}
		dec := json.NewDecoder(bytes.NewReader(line))
		dec.DisallowUnknownFields()
		var prompt Prompt
		if err := dec.Decode(&prompt); err != nil {
			return nil, fmt.Errorf("verify: %s:%d: %w", name, n, err)
		}
		c.Prompts = append(c.Prompts, prompt)
	}
	if err := c.check(); err != nil {
		return nil, fmt.Errorf("verify: %s: %w", name, err)
	}
	return c, nil
}

func (p *replay) server(s *Server) {
	where := fmt.Sprintf("server %d", s.Server)
	if p.cell != nil {
		p.problem(where, "it stands within configuration %d", p.cell.plan.Config)
		p.closeCell()
	}
	if want := len(p.report.Servers) + 1; s.Server != want {
		p.problem(where, "server number %d, want %d", s.Server, want)
	}
	p.report.Servers = append(p.report.Servers, *s)
	if p.report.Header.Target != nil {
		return
	}
	if s.Slots != 1 {
		p.problem(where, "slots %d, want 1", s.Slots)
	}
	if s.ClockErrorNS < 0 || s.ClockErrorNS > maxClockErrorNS {
		p.problem(where, "clock known to within %d ns, want 0 to %d", s.ClockErrorNS, maxClockErrorNS)
	}
	if s.IntraThreads < 1 || s.InterThreads != 1 {
		p.problem(where, "intra_threads %d and inter_threads %d, want at least 1 and 1", s.IntraThreads, s.InterThreads)
	}
	if err := s.Binary.check(); err != nil {
		p.problem(where, "binary: %v", err)
	}
	for _, l := range s.Libraries {
		if l.Version == "" {
			p.problem(where, "library %s: no version", l.Name)
		}
		if err := l.File.check(); l.File != (File{}) && err != nil {
			p.problem(where, "library %s: %v", l.Name, err)
		}
	}
	m := &s.Model
	var size int64
	for _, f := range m.Files {
		if err := f.check(); err != nil {
			p.problem(where, "model: %v", err)
		}
		size += f.Bytes
	}
	if m.ID == "" || m.Source == "" || m.Precision == "" {
		p.problem(where, "model %q from %q in precision %q: none of them may be empty", m.ID, m.Source, m.Precision)
	}
	if m.Parameters < 1 || m.Vocabulary < 1 {
		p.problem(where, "model of %d parameters and %d ids, want at least 1 of each", m.Parameters, m.Vocabulary)
	}
	if strings.HasPrefix(m.Precision, "fp32") && size < 4*m.Parameters {
		p.problem(where, "model files of %d bytes can't hold %d parameters in fp32: a pointer or a part was hashed instead of the weights", size, m.Parameters)
	}
}

func (f *File) check() error {
	raw, err := hex.DecodeString(f.SHA256)
	switch {
	case f.Name == "" || strings.ContainsAny(f.Name, `/\`):
		return fmt.Errorf("file name %q, want a base name", f.Name)
	case f.Bytes < 1:
		return fmt.Errorf("file %s: %d bytes", f.Name, f.Bytes)
	case err != nil || len(raw) != sha256.Size || strings.ToLower(f.SHA256) != f.SHA256:
		return fmt.Errorf("file %s: sha256 %q, want 64 hexadecimal digits in lower case", f.Name, f.SHA256)
	case slices.Max(raw) == slices.Min(raw):
		return fmt.Errorf("file %s: sha256 %q is a placeholder", f.Name, f.SHA256)
	}
	return nil
}

func (p *replay) end0(t *Trailer) {
	if p.cell != nil {
		p.problem("trailer", "it stands within configuration %d", p.cell.plan.Config)
		p.closeCell()
	}
	p.report.Trailer = t
	want := p.trailer
	want.Kind, want.Ended, want.EndNS, want.SHA256 = t.Kind, t.Ended, t.EndNS, hex.EncodeToString(p.hash.Sum(nil))
	if t.SHA256 != want.SHA256 {
		p.problem("trailer", "sha256 %s, want %s of the bytes before it", t.SHA256, want.SHA256)
	}
	have := *t
	have.SHA256 = want.SHA256
	if have != want {
		p.problem("trailer", "counts %d records, %d configurations, %d invalid, %d requests, %d failed, %d tokens; the file has %d, %d, %d, %d, %d, %d",
			t.Records, t.Configurations, t.Invalid, t.Requests, t.Failed, t.Tokens,
			want.Records, want.Configurations, want.Invalid, want.Requests, want.Failed, want.Tokens)
	}
	started, err1 := time.Parse(time.RFC3339Nano, p.report.Header.Started)
	_, err2 := time.Parse(time.RFC3339Nano, t.Ended)
	if err1 == nil && err2 != nil {
		p.problem("trailer", "ended %q is no time of RFC 3339 (started %v)", t.Ended, started)
	}
	if t.EndNS < p.lastNS {
		p.problem("trailer", "end_ns %d lies before the last configuration's end, %d", t.EndNS, p.lastNS)
	}
}

// HashFile reads a file and returns its base name, size and hash.
func HashFile(path string) (File, error) {
	file, err := os.Open(path)
	if err != nil {
		return File{}, err
	}
	defer file.Close()
	sum := sha256.New()
	size, err := io.Copy(sum, file)
	if err != nil {
		return File{}, err
	}
	return File{Name: filepath.Base(path), Bytes: size, SHA256: hex.EncodeToString(sum.Sum(nil))}, nil
}
