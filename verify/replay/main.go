// Command replay checks evidence and shows what it says:
//
//	go run ./verify/replay [-printed old.txt] [-trace TRACE] [-inflight] FILE
//
// It prints what was measured on what, a row for each configuration, doubts,
// what the run calls invalid, and every contradiction. With -printed, the
// output of go test -bench in old.txt is held against the evidence too; with
// -trace, the file that was replayed. With -inflight it shows how many requests
// were under way over time.
//
// The exit code is 0 for consistent, 1 for inconsistent, 2 for incomplete
// evidence, and 64 for wrong usage or a file that can't be read. go run itself
// says "exit status 2" for the second of them and exits 1; for the code, build
// it first: go build -o replay ./verify/replay.
package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"unicode/utf8"

	"servebench/verify"
)

// Exit codes.
const (
	exitConsistent   = 0
	exitInconsistent = 1
	exitIncomplete   = 2
	exitUsage        = 64 // EX_USAGE of sysexits.h
)

func main() {
	os.Exit(run(os.Args[1:], os.Stdout, os.Stderr))
}

func run(args []string, stdout, stderr io.Writer) int {
	flags := flag.NewFlagSet("replay", flag.ContinueOnError)
	flags.SetOutput(stderr)
	printed := flags.String("printed", "", "hold the benchmark output in `OUTPUT` against the evidence")
	trace := flags.String("trace", "", "hold `TRACE`, the file that a run replayed, against the evidence")
	inflight := flags.Bool("inflight", false, "also show how many requests were under way over time")
	flags.Usage = func() {
		fmt.Fprintf(stderr, "usage: replay [-printed OUTPUT] [-trace TRACE] [-inflight] FILE\n       replay FILE FILE…\n\nreplay checks the evidence in FILE and shows what it says, or of the files of\nall generators of one load what they say together.\n\n")
		flags.PrintDefaults()
		fmt.Fprintf(stderr, "\nexit code: %d consistent, %d inconsistent, %d incomplete, %d wrong usage or not readable\n",
			exitConsistent, exitInconsistent, exitIncomplete, exitUsage)
	}
	switch err := flags.Parse(args); {
	case errors.Is(err, flag.ErrHelp):
		return 0
	case err != nil:
		return exitUsage
	case flags.NArg() == 0:
		fmt.Fprintln(stderr, "Error: no FILE; -h tells the usage")
		return exitUsage
	case flags.NArg() > 1 && (*printed != "" || *trace != "" || *inflight):
		fmt.Fprintln(stderr, "Error: -printed, -trace and -inflight are for one FILE")
		return exitUsage
	case flags.NArg() > 1:
		if i := slices.IndexFunc(flags.Args(), func(arg string) bool { return strings.HasPrefix(arg, "-") }); i >= 0 {
			fmt.Fprintf(stderr, "Error: %q is left over: flags come first, then FILE\n", flags.Args()[i:])
			return exitUsage
		}
		return replayAll(flags.Args(), stdout, stderr)
	}
	report, err := replay(flags.Arg(0), *printed)
	if err == nil && *trace != "" {
		err = checkTrace(report, *trace)
	}
	if err != nil {
		fmt.Fprintf(stderr, "Error: %v\n", err)
		return exitUsage
	}
	if err := show(stdout, flags.Arg(0), report, *inflight); err != nil {
		fmt.Fprintf(stderr, "Error: %v\n", err)
		return exitUsage
	}
	return exitCode(report.Verdict)
}

func exitCode(v verify.Verdict) int {
	switch v {
	case verify.Inconsistent:
		return exitInconsistent
	case verify.Incomplete:
		return exitIncomplete
	}
	return exitConsistent
}

// replay reads both files. Benchmark output that is broken is a contradiction,
// one that can't be read an error.
func replay(path, printed string) (*verify.Report, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	report, err := verify.Replay(path, file)
	if err != nil || printed == "" {
		return report, err
	}
	output, err := os.Open(printed)
	if err != nil {
		return nil, err
	}
	defer output.Close()
	lines, err := verify.ParsePrinted(printed, output)
	if problem := new(verify.Problem); errors.As(err, &problem) {
		report.Problems = append(report.Problems, problem)
		report.Verdict = verify.Inconsistent
		return report, nil
	}
	if err != nil {
		return nil, err
	}
	report.CheckPrinted(lines)
	return report, nil
}

func checkTrace(report *verify.Report, path string) error {
	data, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	trace, err := verify.ReadTrace(path, data)
	if err == nil {
		report.CheckTrace(trace)
	}
	return err
}

// show writes a report for people.
func show(w io.Writer, path string, r *verify.Report, inflight bool) error {
	var b strings.Builder
	fmt.Fprintf(&b, "%s\nsha256 %s\n\n", clean(path), r.SHA256)
	showSetting(&b, r)
	showTable(&b, r)
	showSearches(&b, r)
	if inflight {
		showInflight(&b, r)
	}
	if r.Header != nil {
		for _, warning := range r.Header.Warnings {
			fmt.Fprintf(&b, "Warning: %s\n", clean(warning))
		}
	}
	for _, warning := range r.Warnings {
		fmt.Fprintf(&b, "Warning: %s\n", clean(warning))
	}
	for _, c := range r.Invalid() {
		if c.Plan.Probe > 0 && closing(r, &c) != nil {
			continue // its search says so
		}
		for _, reason := range c.Configuration.Reasons {
			fmt.Fprintf(&b, "INVALID: configuration %d, %s, repetition %d: %s\n", c.Plan.Config, clean(c.Plan.Name), c.Plan.Repetition, clean(reason))
		}
	}
	for _, s := range r.Saturations {
		for _, reason := range s.Reasons {
			fmt.Fprintf(&b, "INVALID: search %s, repetition %d: %s\n", clean(s.Name), s.Repetition, clean(reason))
		}
	}
	for _, problem := range r.Problems {
		fmt.Fprintf(&b, "PROBLEM: %s\n", clean(problem.Error()))
	}
	showVerdict(&b, r.Verdict, "every number follows from what was recorded", len(r.Problems), r.Missing, counts(r))
	_, err := io.WriteString(w, b.String())
	return err
}

// showVerdict ends a report: what consistent comes to, or what it lacks.
func showVerdict(b *strings.Builder, v verify.Verdict, consistent string, problems int, missing, counts string) {
	switch v {
	case verify.Consistent:
		fmt.Fprintf(b, "CONSISTENT: %s; %s\n", consistent, counts)
	case verify.Inconsistent:
		fmt.Fprintf(b, "INCONSISTENT: %s; %s\n", plural(problems, "problem"), counts)
	case verify.Incomplete:
		fmt.Fprintf(b, "INCOMPLETE: %s; %s\n", clean(missing), counts)
	}
}

func counts(r *verify.Report) string {
	text := fmt.Sprintf("%s, %d valid, %d invalid", plural(len(r.Results), "configuration"), r.Valid(), len(r.Invalid()))
	probes := 0
	for _, list := range searches(r) {
		probes += len(list)
	}
	switch n := len(searches(r)); {
	case n == 1:
		text += fmt.Sprintf("; %d of them are probes of 1 search", probes)
	case n > 1:
		text += fmt.Sprintf("; %d of them are probes of %d searches", probes, n)
	}
	return text
}

func plural(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

// showSetting says what was measured, on what and by what.
func showSetting(b *strings.Builder, r *verify.Report) {
	h := r.Header
	if h == nil {
		return
	}
	t := tabwriter.NewWriter(b, 0, 0, 2, ' ', 0)
	row := func(key, format string, args ...any) {
		fmt.Fprintf(t, "%s\t%s\n", key, clean(fmt.Sprintf(format, args...)))
	}
	row("Run", "%s, started %s", h.Run, h.Started)
	revision := "no revision"
	if h.Revision != "" {
		revision = "revision " + short(h.Revision)
		if h.CleanTree {
			revision += ", clean tree"
		} else {
			revision += " with changes"
		}
	}
	row("Code", "%s, %s", revision, h.Go)
	host := fmt.Sprintf("%s, %d of %d CPUs, %s, %s/%s", h.Host.CPU, h.Host.AllowedCPUs, h.Host.CPUs, bytesText(h.Host.MemTotalBytes), h.Host.OS, h.Host.Arch)
	if h.Host.Kernel != "" {
		host += " " + h.Host.Kernel
	}
	if h.Host.Governor != "" {
		host += ", governor " + h.Host.Governor
	}
	if len(h.Host.Load) > 0 {
		host += fmt.Sprintf(", load %v at the start", h.Host.Load[0])
	}
	row("Host", "%s", host)
	if h.Target != nil {
		showTarget(row, h.Target)
	}
	for i, s := range r.Servers {
		if h.Target != nil {
			break
		}
		if i == 0 {
			row("Model", "%s, %s, from %s", s.Model.ID, s.Model.Precision, s.Model.Source)
			for _, f := range s.Model.Files {
				row("", "%s, %s, sha256 %s", f.Name, bytesText(f.Bytes), short(f.SHA256))
			}
			for _, l := range s.Libraries {
				row("Library", "%s %s", l.Name, l.Version)
			}
		}
		row(fmt.Sprintf("Server %d", s.Server), "%s, sha256 %s, %s, %s, spinning %t", s.Binary.Name, short(s.Binary.SHA256), s.Go, plural(s.IntraThreads, "thread"), s.Spinning)
	}
	showClients(row, r.Clients)
	if c := r.Corpus; c != nil {
		row("Corpus", "%s, %s, sha256 %s", c.Name, plural(len(c.Prompts), "prompt"), short(c.SHA256))
	}
	if h.OrderSeed > 0 {
		row("Order", "random, from seed %d", h.OrderSeed)
	}
	row("Energy", "%s", h.Energy)
	if h.HourlyUSD > 0 {
		row("Price", "%v USD an hour, an assumption", h.HourlyUSD)
	}
	t.Flush()
	fmt.Fprintln(b)
}

// showTarget says how a server was asked that the run didn't start.
func showTarget(row func(key, format string, args ...any), t *verify.Target) {
	text := fmt.Sprintf("%s, %s, model %s", t.URL, t.API, t.Model)
	if t.Software != "" {
		text += ", calls itself " + t.Software
	}
	row("Target", "%s", text)
	text = "new for each request"
	if t.Reuse {
		text = "kept for later requests"
	}
	if t.Proxied {
		text += ", through a proxy"
	}
	if t.Insecure {
		text += ", certificates not checked"
	}
	row("Connections", "%s", text)
	text = strings.Join(t.Optional, ", ")
	for _, f := range t.Fields {
		text += fmt.Sprintf(", %s=%s", f.Name, f.Value)
	}
	if len(t.Headers) > 0 {
		text += ", headers " + strings.Join(t.Headers, ", ")
	}
	if t.KeyFrom != "" {
		text += ", a key from " + t.KeyFrom
	}
	row("Asked with", "%s", strings.TrimPrefix(text, ", "))
	text = map[string]string{
		verify.PromptsIDs:      "sent as ids",
		verify.PromptsTokenize: "made to measure with the server's /tokenize",
		verify.PromptsFile:     "from a file that says how long they are",
		verify.PromptsInexact:  "of about the length that the axis says",
	}[t.Prompts]
	if t.API == "chat" && t.Prompts != verify.PromptsInexact {
		text += ", what the template adds included"
	}
	if t.SaltSeed != 0 {
		text += fmt.Sprintf(", salted from seed %d", t.SaltSeed)
	}
	if t.Repeats {
		text += ", sent again and again"
	}
	row("Prompts", "%s", text)
}

// column is one metric of the table. A server that this run started has those
// that are for both and for own ones, a target those for both and for targets.
type column struct {
	unit, title string
	show        func(float64) string
	in          func(h *verify.Header) bool
}

func digits(n int, unit string) func(float64) string {
	return func(v float64) string { return strconv.FormatFloat(v, 'f', n, 64) + unit }
}

// columns are in the order in which a request goes through them.
var columns = []column{
	{verify.UnitTTFT50, "TTFT p50", digits(3, " s"), always},
	{verify.UnitAnswer50, "answer p50", digits(3, " s"), aTarget},
	{verify.UnitTPOT50, "TPOT p50", digits(2, " ms"), always},
	{verify.UnitGap50, "gap p50", digits(2, " ms"), aTarget},
	{verify.UnitE2E95, "E2E p95", digits(3, " s"), always},
	{verify.UnitThroughput, "tok/s", digits(2, ""), always},
	{verify.UnitPeak, "peak RSS", func(v float64) string { return bytesText(int64(v)) }, func(h *verify.Header) bool { return !aTarget(h) }},
	{verify.UnitCost, "USD/Mtok", digits(2, ""), func(h *verify.Header) bool { return h != nil && h.HourlyUSD > 0 }},
}

func always(*verify.Header) bool { return true }

func aTarget(h *verify.Header) bool { return h != nil && h.Target != nil }

// metricCells shows metrics in columns, with none for those that aren't there.
func metricCells(list []column, metrics []verify.Metric) []string {
	cells := make([]string, len(list))
	for i, c := range list {
		cells[i] = none
		for _, m := range metrics {
			if m.Unit == c.unit {
				cells[i] = c.show(m.Value)
			}
		}
	}
	return cells
}

// none stands where a metric is not defined or was not measured.
const none = "-"

// showTable prints a row for each configuration that is no probe.
func showTable(b *strings.Builder, r *verify.Report) {
	var results []verify.Result
	for _, c := range r.Results {
		if c.Plan.Probe == 0 {
			results = append(results, c)
		}
	}
	if len(results) == 0 {
		return
	}
	var shown []column
	for _, c := range columns {
		if c.in(r.Header) {
			shown = append(shown, c)
		}
	}
	t := tabwriter.NewWriter(b, 0, 0, 2, ' ', tabwriter.AlignRight)
	names := []string{"configuration"}
	for _, c := range results {
		name := strings.TrimPrefix(c.Plan.Name, "Benchmark")
		if c.Plan.GOMAXPROCS != 1 {
			name += "-" + strconv.Itoa(c.Plan.GOMAXPROCS)
		}
		names = append(names, clean(name))
	}
	alignLeft(names)
	cells := []string{"#", names[0], "rep"}
	for _, column := range shown {
		cells = append(cells, column.title)
	}
	if aTarget(r.Header) {
		cells = append(cells, "connect", "first byte", "prompt", "cached", "requests", "failed", "")
	} else {
		cells = append(cells, "queue p50", "token lag", "requests", "failed", "")
	}
	fmt.Fprintln(t, strings.Join(cells, "\t")+"\t")
	for i, c := range results {
		cells := []string{strconv.Itoa(c.Plan.Config), names[i+1], strconv.Itoa(c.Plan.Repetition)}
		requests, failed, verdict := c.Requests, none, "unfinished"
		var about verify.Configuration
		if closing := c.Configuration; closing != nil {
			about = *closing
			requests, failed, verdict = closing.Measured, strconv.Itoa(closing.Failed), "valid"
			if !closing.Valid {
				verdict = "INVALID"
			}
		}
		cells = append(cells, metricCells(shown, about.Metrics)...)
		mean := func(sum int64, n int64) string {
			if n == 0 {
				return none
			}
			return duration(sum / n)
		}
		spans := &about.Spans
		if aTarget(r.Header) {
			prompt, cached := none, none
			if n := int64(spans.Requests); n > 0 && about.PromptTokens > 0 {
				prompt = strconv.FormatFloat(float64(about.PromptTokens)/float64(n), 'f', -1, 64)
				prompt = prompt[:min(len(prompt), 6)]
			}
			if about.CachedTokens > 0 {
				cached = strconv.FormatFloat(float64(about.CachedTokens*100)/float64(about.PromptTokens), 'f', 1, 64) + " %"
			}
			cells = append(cells, mean(spans.ConnectNS, int64(spans.Requests)), mean(spans.HeadersNS, int64(spans.Requests)), prompt, cached)
		} else {
			queue := none
			if c.QueueP50NS >= 0 {
				queue = duration(c.QueueP50NS)
			}
			cells = append(cells, queue, mean(spans.DeliveryNS, spans.Tokens))
		}
		cells = append(cells, strconv.Itoa(requests), failed, verdict)
		fmt.Fprintln(t, strings.Join(cells, "\t")+"\t")
	}
	t.Flush()
	fmt.Fprintln(b)
}

// alignLeft pads strings to the length of the longest, since all columns of a
// tabwriter are aligned to one side.
func alignLeft(column []string) {
	width := 0
	for _, s := range column {
		width = max(width, utf8.RuneCountInString(s))
	}
	for i, s := range column {
		column[i] += strings.Repeat(" ", width-utf8.RuneCountInString(s))
	}
}

// duration shows ns with three or four digits.
func duration(ns int64) string {
	switch {
	case ns < 0:
		return "-" + duration(-ns)
	case ns < 10_000_000:
		return strconv.FormatFloat(float64(ns)/1e3, 'f', 0, 64) + " µs"
	case ns < 1_000_000_000:
		return strconv.FormatFloat(float64(ns)/1e6, 'f', 1, 64) + " ms"
	}
	return strconv.FormatFloat(float64(ns)/1e9, 'f', 3, 64) + " s"
}

func bytesText(n int64) string {
	switch {
	case n < 1<<10:
		return strconv.FormatInt(n, 10) + " B"
	case n < 1<<20:
		return strconv.FormatFloat(float64(n)/(1<<10), 'f', 1, 64) + " KiB"
	case n < 10<<30:
		return strconv.FormatFloat(float64(n)/(1<<20), 'f', 1, 64) + " MiB"
	}
	return strconv.FormatFloat(float64(n)/(1<<30), 'f', 1, 64) + " GiB"
}

// short is the beginning of a hash, long enough to tell two apart.
func short(hash string) string { return hash[:min(16, len(hash))] }

// clean makes text from a file safe to show: what isn't printable, such as
// what would steer a terminal, is shown as an escape.
func clean(s string) string {
	quoted := strconv.Quote(s)
	return strings.NewReplacer(`\"`, `"`, `\\`, `\`).Replace(quoted[1 : len(quoted)-1])
}
