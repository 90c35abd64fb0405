package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"
)

// measureOptions are what the driver is told, and what it has made of it.
type measureOptions struct {
	rounds  int
	first   int
	clients string
	cells   string
	python  string
	out     string

	self      string // this program
	dir       string // for what clients read and leave
	tokenizer string
}

// The schedule of all cells but "flat".
var paced = Schedule{TTFT: 200 * time.Millisecond, Gap: 20 * time.Millisecond}

const (
	pacedTokens = 64
	flatTokens  = 1000
)

// cellOf returns the cell of a name. Each takes a few seconds of a client
// that keeps up.
func cellOf(name string) (cell, error) {
	if name == "flat" {
		return cell{name, 64, 512, flatTokens}, nil
	}
	streams, err := strconv.Atoi(name)
	if err != nil || streams < 1 || streams > 4096 {
		return cell{}, fmt.Errorf("accuracy: cell %q, want flat or a number of streams from 1 to 4096", name)
	}
	waves := 3
	switch {
	case streams == 1:
		waves = 4
	case streams < 64:
		waves = 5
	}
	return cell{name, streams, streams * waves, pacedTokens}, nil
}

// measure runs the rounds. A client that can't be measured in a cell ends the
// run: a table with holes compares nothing.
func measure(ctx context.Context, o measureOptions) (err error) {
	kinds, err := findClients(o.clients)
	if err != nil {
		return err
	}
	var cells []cell
	for name := range strings.SplitSeq(o.cells, ",") {
		c, err := cellOf(name)
		if err != nil {
			return err
		}
		cells = append(cells, c)
	}
	if o.self, err = os.Executable(); err != nil {
		return fmt.Errorf("accuracy: %w", err)
	}
	if slices.ContainsFunc(kinds, func(k *clientKind) bool { return k.python }) && o.python == "" {
		return errors.New("accuracy: -python is missing: the published clients need a Python that has them, see requirements.txt")
	}
	if o.python != "" {
		if o.python, err = filepath.Abs(o.python); err != nil {
			return fmt.Errorf("accuracy: %w", err)
		}
	}
	if o.dir, err = os.MkdirTemp("", "accuracy"); err != nil {
		return fmt.Errorf("accuracy: %w", err)
	}
	defer os.RemoveAll(o.dir)
	if err := o.writeInputs(); err != nil {
		return fmt.Errorf("accuracy: %w", err)
	}
	var out io.Writer = os.Stdout
	if o.out != "" {
		file, err := os.OpenFile(o.out, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o666)
		if err != nil {
			return fmt.Errorf("accuracy: %w", err)
		}
		defer func() { err = errors.Join(err, file.Close()) }()
		out = io.MultiWriter(out, file)
	}
	records := json.NewEncoder(out)
	if o.first == 1 {
		if err := records.Encode(describeRun(&o)); err != nil {
			return err
		}
	}
	for round := o.first; round < o.first+o.rounds; round++ {
		for _, c := range cells {
			for i := range kinds {
				kind := kinds[(i+round)%len(kinds)] // each is first in turn
				m, err := measureCell(ctx, &o, kind, c)
				if err != nil {
					return fmt.Errorf("accuracy: round %d, %s with %s: %w", round, kind.name, c.name, err)
				}
				m.Kind, m.Round = "measurement", round
				if err := records.Encode(m); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

func describeRun(o *measureOptions) *runRecord {
	r := &runRecord{
		Kind: "run", Date: time.Now().Format(time.DateOnly), Go: runtime.Version(), Versions: map[string]string{},
		TTFTMS: paced.TTFT.Seconds() * 1e3, GapMS: paced.Gap.Seconds() * 1e3, Tokens: pacedTokens, Flat: flatTokens,
	}
	cpu, _ := os.ReadFile("/proc/cpuinfo")
	model := "processor"
	for line := range strings.Lines(string(cpu)) {
		if name, value, found := strings.Cut(line, ":"); found && strings.TrimSpace(name) == "model name" {
			model = strings.TrimSpace(value)
			break
		}
	}
	r.Machine = fmt.Sprintf("%d virtual cores of an %s", runtime.NumCPU(), model)
	kernel, _ := os.ReadFile("/proc/sys/kernel/osrelease")
	number, _, _ := strings.Cut(strings.TrimSpace(string(kernel)), "-")
	r.Kernel = "Linux " + number
	if o.python != "" {
		const script = "import importlib.metadata as m\nfor n in ('sglang', 'guidellm'):\n  try: print(n, m.version(n))\n  except m.PackageNotFoundError: pass"
		list, _ := exec.Command(o.python, "-c", script).Output()
		for line := range strings.Lines(string(list)) {
			name, version, _ := strings.Cut(strings.TrimSpace(line), " ")
			r.Versions[name] = version
		}
	}
	return r
}

// measureCell starts a server and a client, and holds what one says against
// what the other has logged.
func measureCell(ctx context.Context, o *measureOptions, kind *clientKind, c cell) (*measurement, error) {
	schedule := paced
	if c.name == "flat" {
		schedule = Schedule{}
	}
	server := exec.CommandContext(ctx, o.self, "serve", "-ttft", schedule.TTFT.String(), "-gap", schedule.Gap.String())
	server.Stderr = os.Stderr
	if _, err := server.StdinPipe(); err != nil { // the server's life
		return nil, err
	}
	stdout, err := server.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := server.Start(); err != nil {
		return nil, err
	}
	defer func() {
		server.Process.Kill()
		server.Wait()
	}()
	address, err := bufio.NewReader(stdout).ReadString('\n')
	if err != nil {
		return nil, fmt.Errorf("the server has no address: %w", err)
	}
	url := "http://" + strings.TrimSpace(address)

	dir, err := os.MkdirTemp(o.dir, kind.name)
	if err != nil {
		return nil, err
	}
	argv := kind.argv(o, c, url, dir)
	limited, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	command := exec.CommandContext(limited, argv[0], argv[1:]...)
	command.Dir = dir
	command.Env = append(os.Environ(), "NO_PROXY=*", "no_proxy=*", "HF_HUB_OFFLINE="+kind.offline, "TRANSFORMERS_VERBOSITY=error")
	var printed, complaints bytes.Buffer
	command.Stdout, command.Stderr = &printed, &complaints
	if err := command.Start(); err != nil {
		return nil, err
	}
	watch := watchCPU(command.Process.Pid)
	err = command.Wait()
	usage := watch.end()
	if err != nil {
		text := append(complaints.Bytes(), printed.Bytes()...)
		return nil, fmt.Errorf("%w: %s", err, text[max(0, len(text)-2000):])
	}
	report, err := kind.report(dir, printed.Bytes())
	if err != nil {
		return nil, fmt.Errorf("its result: %w", err)
	}
	log, err := fetchLog(ctx, url)
	if err != nil {
		return nil, err
	}
	m, err := compare(kind, c, report, log, usage)
	if err != nil {
		text := complaints.Bytes()
		return nil, fmt.Errorf("%w: %s", err, text[max(0, len(text)-2000):])
	}
	return m, nil
}

func fetchLog(ctx context.Context, url string) ([]served, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url+"/log", nil)
	if err != nil {
		return nil, err
	}
	transport := &http.Transport{}
	defer transport.CloseIdleConnections()
	response, err := transport.RoundTrip(request)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	var out []served
	lines := json.NewDecoder(response.Body)
	for {
		var s served
		switch err := lines.Decode(&s); {
		case err == io.EOF:
			return out, nil
		case err != nil:
			return nil, fmt.Errorf("the server's log: %w", err)
		}
		out = append(out, s)
	}
}

func compare(kind *clientKind, c cell, report *clientReport, log []served, usage *cpuSeries) (*measurement, error) {
	m := &measurement{Client: kind.name, Cell: c.name, Streams: c.streams, Requests: len(log), Failed: report.Failed}
	if len(log) != c.requests || report.Failed > 0 {
		return nil, fmt.Errorf("the server answered %d requests and %d failed, want %d and 0", len(log), report.Failed, c.requests)
	}
	byName := map[string]*served{}
	first, last := log[0].ArrivalNS, int64(0)
	var ttfts, gaps []int64
	for i := range log {
		s := &log[i]
		byName[s.Name] = s
		m.Tokens += s.Tokens
		first, last = min(first, s.ArrivalNS), max(last, s.EndNS)
		for j, ns := range s.FlushNS {
			if j == 0 {
				ttfts = append(ttfts, ns-s.ArrivalNS)
			} else {
				gaps = append(gaps, ns-s.FlushNS[j-1])
			}
		}
	}
	end := max(last, report.DoneNS)
	m.CPUMicros = rounded(usage.between(first, end) / 1e3 / float64(m.Tokens))
	m.EventsPerSecond = rounded(float64(m.Tokens) / (float64(end-first) / 1e9))
	if c.name == "flat" {
		return m, nil
	}
	logged := summarize(ttfts, gaps)
	m.Reported, m.Logged = &report.Reported, &logged
	var off, lags []int64
	for _, r := range report.Requests {
		s := byName[r.Name]
		if s == nil || len(r.GapNS)+1 != len(s.FlushNS) && len(r.GapNS) > 0 {
			return nil, fmt.Errorf("request %q has %d gaps, which the server's log has not", r.Name, len(r.GapNS))
		}
		for i, gap := range r.GapNS {
			off = append(off, abs(gap-(s.FlushNS[i+1]-s.FlushNS[i])))
		}
		for i, ns := range r.TokenNS {
			lags = append(lags, ns-s.FlushNS[i])
		}
	}
	if len(off) > 0 {
		slices.Sort(off)
		m.Matched = &matched{rounded(percentile(off, 50) / ms), rounded(percentile(off, 99) / ms)}
	}
	if len(lags) > 0 {
		slices.Sort(lags)
		m.Lag = &lag{rounded(percentile(lags, 50) / ms), rounded(percentile(lags, 99) / ms), rounded(float64(lags[len(lags)-1]) / ms)}
	}
	return m, nil
}

func abs(x int64) int64 { return max(x, -x) }
