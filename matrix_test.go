// Package servebench measures what a user of an LLM server waits for, token
// by token, as an ordinary Go benchmark:
//
//	go test -run '^$' -bench . -count 1
//
// This file plans the configurations, starts the server, drives the load and
// prints. What was measured is saved as evidence while it runs; package verify
// computes every number again from it.
//
// Nothing is printed while a benchmark runs, and nothing by this file that
// benchstat would take for a result or, but for lines that stay the same
// between runs worth comparing, for configuration.
package servebench

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"maps"
	"math"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/perf/benchfmt"

	"servebench/sse"
	"servebench/sse/load"
	"servebench/verify"
)

// ints is a flag whose value is a list such as 1,2.
type ints []int

func (l *ints) String() string {
	parts := make([]string, len(*l))
	for i, n := range *l {
		parts[i] = strconv.Itoa(n)
	}
	return strings.Join(parts, ",")
}

func (l *ints) Set(value string) error {
	return setList(l, value, func(part string, list ints) (int, error) {
		n, err := strconv.Atoi(part)
		if err != nil || n < 1 {
			return 0, fmt.Errorf("want whole numbers from 1 on, separated by commas")
		}
		if slices.Contains(list, n) {
			return 0, fmt.Errorf("%d stands twice", n)
		}
		return n, nil
	})
}

// setList sets a flag whose value is a list with commas. item reads one part of
// it, and is given those before.
func setList[L ~[]T, T any](l *L, value string, item func(part string, list L) (T, error)) error {
	list := L{}
	for part := range strings.SplitSeq(value, ",") {
		next, err := item(strings.TrimSpace(part), list)
		if err != nil {
			return err
		}
		list = append(list, next)
	}
	*l = list
	return nil
}

// axis makes a flag of a list of numbers.
func axis(name, usage string, values ...int) *ints {
	list := ints(values)
	flag.Var(&list, name, usage)
	return &list
}

// The axes of the matrix and what else a user can say. The package comes
// first on the command line, these flags last.
var (
	threadsAxis = axis("threads", "measure servers with these `numbers` of threads", 1, 2)
	inputAxis   = axis("input", "measure prompts of these `lengths` in tokens; the corpus has 64 and 256", 64, 256)
	concAxis    = axis("conc", "measure with these `numbers` of closed-loop clients", 1, 2)

	evidenceDir  = flag.String("evidence", filepath.Join("testdata", "runs"), "save evidence in `DIR`")
	serverPath   = flag.String("server", "", "start the server at `PATH` instead of building smol/serve")
	outputTokens = flag.Int("output-tokens", 24, "ask for `N` tokens a request")
	idleLimit    = flag.Duration("idle", sse.DefaultIdle, "give up on a server that is silent for `DURATION`; what lives is never cut")
	orderSeed    = flag.Int64("order", 0, "measure configurations in a random order from `SEED`, which the evidence has; a server is started wherever threads change. 0 keeps the order of the axes")
	hourlyUSD    = flag.Float64("hourly-usd", 0, "assume that the machine costs `USD` an hour, and report usd/Mtok; 0 assumes nothing")
)

// headers is a flag that can be given again and again. What it holds may be
// secret, so it shows names alone.
type headers http.Header

func (h headers) String() string { return strings.Join(slices.Sorted(maps.Keys(h)), ",") }

func (h headers) Set(text string) error {
	name, value, found := strings.Cut(text, ":")
	if name = http.CanonicalHeaderKey(strings.TrimSpace(name)); !found || strings.ContainsAny(name, " \t") {
		// Package flag would print it. See checkTargetFlags.
		name, value = "", ""
	}
	http.Header(h).Add(name, strings.TrimSpace(value))
	return nil
}

// fields is a flag of members for the body of every request.
type fields map[string]json.RawMessage

func (f fields) String() string {
	var out []string
	for _, name := range slices.Sorted(maps.Keys(f)) {
		out = append(out, name+"="+string(f[name]))
	}
	return strings.Join(out, " ")
}

func (f fields) Set(text string) error {
	name, value, found := strings.Cut(text, "=")
	if !found || name == "" {
		return errors.New("want name=JSON, top_k=1 say")
	}
	if !json.Valid([]byte(value)) {
		return fmt.Errorf("%s is no JSON: a text is quoted, as in '%s=%q', and null leaves the field out", value, name, value)
	}
	if f[name] != nil {
		return fmt.Errorf("%s stands twice", name)
	}
	f[name] = json.RawMessage(value)
	return nil
}

// Of a server that somebody else started.
var (
	targetURL    = flag.String("target", "", "measure the OpenAI-compatible server at `URL` instead of smol/serve")
	api          = flag.String("api", "completions", "ask the target's `ENDPOINT`, completions or chat")
	model        = flag.String("model", "", "ask the target for `NAME`; the default is the only one that it serves")
	keyEnv       = flag.String("key-env", "", "send the API key that the environment variable `NAME` holds; it is never recorded")
	promptsFile  = flag.String("prompts", "", "send the prompts of `FILE`, a JSON object a line with text, input and ids")
	inexactInput = flag.Bool("inexact-input", false, "measure though the length of prompts can't be proven; the axis is then input=about64")
	exactOutput  = flag.Bool("exact-output", false, "an answer of another length than -output-tokens has failed; smol/serve is always held to it")
	unsalted     = flag.Bool("unsalted", false, "send prompts as they stand, and again and again")
	seed         = flag.Int64("seed", 0, "salt prompts from `SEED`; 0 takes a random one, which the evidence has")
	requests     = flag.Int("requests", 0, "send `N` requests a pass; 0 means 6, or -conc if that is more")
	connections  = flag.String("connections", "new", "`POLICY`: new for each request, or reuse")
	insecure     = flag.Bool("insecure", false, "accept any certificate of the target")
	maxFailed    = flag.Int("max-failed", 0, "a configuration with up to `N` failed requests is valid; the number stands on its line")
	maxCached    = flag.Int("max-cached", 5, "a configuration is valid if a cache answered up to `PERCENT` of its prompts' tokens")

	extraHeaders = headers{}
	extraFields  = fields{}
)

// decimals is a flag whose value is a list such as 0.5,1,2, each in its
// shortest form, for it names an axis.
type decimals []string

func (l *decimals) String() string { return strings.Join(*l, ",") }

func (l *decimals) Set(value string) error {
	return setList(l, value, func(part string, list decimals) (string, error) {
		v, err := strconv.ParseFloat(part, 64)
		if err != nil || !(v >= 1e-6 && v <= 1e6) {
			return "", errors.New("want numbers of requests a second, 0.000001 to 1000000, separated by commas")
		}
		text := strconv.FormatFloat(v, 'f', -1, 64)
		if slices.Contains(list, text) {
			return "", fmt.Errorf("%s stands twice", text)
		}
		return text, nil
	})
}

// steps is a flag such as 0.5:30s,1:30s.
type steps []verify.Step

func (l *steps) String() string {
	parts := make([]string, len(*l))
	for i, step := range *l {
		parts[i] = step.Rate + ":" + time.Duration(step.DurationNS).String()
	}
	return strings.Join(parts, ",")
}

func (l *steps) Set(value string) error {
	return setList(l, value, func(part string, _ steps) (verify.Step, error) {
		rate, length, found := strings.Cut(part, ":")
		var one decimals
		d, err := time.ParseDuration(length)
		if !found || err != nil || d <= 0 || one.Set(rate) != nil {
			return verify.Step{}, errors.New("want RATE:DURATION, separated by commas, as in 0.5:30s,1:30s")
		}
		return verify.Step{Rate: one[0], DurationNS: int64(d)}, nil
	})
}

// slo is a flag such as ttft=500ms,tpot=50ms,e2e=3s.
type slo []verify.Bound

func (l *slo) String() string {
	parts := make([]string, len(*l))
	for i, bound := range *l {
		parts[i] = bound.Metric + "=" + time.Duration(bound.MostNS).String()
	}
	return strings.Join(parts, ",")
}

func (l *slo) Set(value string) error {
	return setList(l, value, func(part string, list slo) (verify.Bound, error) {
		metric, most, found := strings.Cut(part, "=")
		d, err := time.ParseDuration(most)
		if !found || err != nil || d <= 0 || !slices.Contains([]string{"ttft", "tpot", "e2e"}, metric) {
			return verify.Bound{}, errors.New("want ttft=500ms,tpot=50ms,e2e=3s, or some of them")
		}
		if slices.ContainsFunc(list, func(b verify.Bound) bool { return b.Metric == metric }) {
			return verify.Bound{}, fmt.Errorf("%s stands twice", metric)
		}
		return verify.Bound{Metric: metric, MostNS: int64(d)}, nil
	})
}

// Of an open loop.
var (
	rateAxis   decimals
	rateSteps  steps
	sloBounds  slo
	arrival    = flag.String("arrival", verify.ArrivalPoisson, "open loop: `PROCESS` by which requests are due, poisson, constant or gamma")
	burstiness = flag.Float64("burstiness", 1, "open loop: `SHAPE` of gamma distributed gaps, below 1 burstier than poisson")
	duration   = flag.Duration("duration", 0, "open loop: requests are due for `DURATION`; the default is a minute, unless -requests says how many")
	settle     = flag.Duration("settle", -1, "open loop: requests due in the first `DURATION` are kept and excluded; the default is a tenth of -duration")
	inflight   = flag.Int("max-inflight", 0, "open loop: at most `N` requests are under way, others wait in the client; 0 means no limit")
	maxLag     = flag.Duration("max-lag", verify.DefaultMaxLagNS, "open loop: a configuration is invalid if 1 % of its requests start later than `DURATION` after they were due")
	tracePath  = flag.String("trace-file", "", "open loop: send requests when those of `FILE` came and as long as they were; CSV as the public Azure LLM inference traces")
	traceScale = flag.Float64("trace-scale", 1, "open loop: multiply the times of -trace-file by `FACTOR`: 0.5 is twice as fast")
	share      = flag.String("share", "", "open loop: be the generator `K/N` of several, each with its part of the rate and a -seed of its own")
)

// roofline is a flag that says when the client is tried against a null server:
// unless it is given, before open loops.
type roofline struct{ load.Roofline }

func (r *roofline) String() string {
	return [...]string{load.RooflineOpen: "open loops", load.RooflineAlways: "true", load.RooflineNever: "false"}[r.Roofline]
}

func (r *roofline) Set(value string) error {
	wanted, err := strconv.ParseBool(value)
	if err != nil {
		return errors.New("want true or false")
	}
	if r.Roofline = load.RooflineNever; wanted {
		r.Roofline = load.RooflineAlways
	}
	return nil
}

func (r *roofline) IsBoolFlag() bool { return true }

var clientProof roofline

func init() {
	flag.Var(&clientProof, "roofline", "first try for a second what this client can do, against a server that does nothing; the default is to do so for open loops")
	flag.Var(&rateAxis, "rate", "open loop: measure with these `numbers` of requests a second, in place of -conc; BenchmarkSaturation starts at the least")
	flag.Var(&rateSteps, "steps", "open loop: measure with rates one after the other, as in `0.5:30s,1:30s`")
	flag.Var(&sloBounds, "slo", "open loop: a request is good if it keeps `BOUNDS`, as in ttft=500ms,tpot=50ms,e2e=3s, from when it was due; BenchmarkSaturation needs them")
}

// openLoop tells whether requests are sent by a schedule.
func openLoop() bool { return len(rateAxis) > 0 || len(rateSteps) > 0 || *tracePath != "" }

// trace is what -trace-file names, once checkFlags has read it, else nil.
var trace *verify.Trace

// openLoad returns what all rates of an open loop have in common.
func openLoad() verify.Load {
	l := verify.Load{
		Kind: verify.LoadOpen, Arrival: *arrival, Seed: *seed, DurationNS: int64(*duration), Requests: *requests,
		MaxInflight: *inflight, SLO: sloBounds, MaxLagNS: int64(*maxLag), Share: *share,
	}
	if l.Arrival == verify.ArrivalGamma {
		l.Burstiness = strconv.FormatFloat(*burstiness, 'f', -1, 64)
	}
	if l.DurationNS == 0 && l.Requests == 0 {
		l.DurationNS = int64(time.Minute)
	}
	l.SettleNS = int64(*settle)
	if *settle < 0 {
		l.SettleNS = l.DurationNS / 10
	}
	return l
}

// arrivals returns the loads of the last axis, by the axis's name and value.
func arrivals() (names []string, loads []*verify.Load) {
	if !openLoop() {
		for _, conc := range *concAxis {
			names, loads = append(names, fmt.Sprintf("conc=%d", conc)), append(loads, &verify.Load{Kind: verify.LoadClosed, Conc: conc})
		}
		return names, loads
	}
	l := openLoad()
	if trace != nil {
		l := load.TraceLoad(trace, strconv.FormatFloat(*traceScale, 'f', -1, 64))
		l.MaxInflight, l.SLO, l.MaxLagNS, l.SettleNS = *inflight, sloBounds, int64(*maxLag), max(0, int64(*settle))
		l.Kind = verify.LoadOpen
		return []string{"trace=" + about() + l.TraceAxis()}, []*verify.Load{l}
	}
	add := func(l verify.Load) {
		names, loads = append(names, "rate="+l.RateAxis()), append(loads, &l)
	}
	if len(rateSteps) > 0 {
		l.Steps, l.DurationNS, l.SettleNS = rateSteps, 0, max(0, int64(*settle))
		add(l)
	}
	for _, rate := range rateAxis {
		l.Rate = rate
		add(l)
	}
	return names, loads
}

func checkOpenFlags() (errs []error) {
	wrong := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	set := map[string]bool{}
	flag.Visit(func(f *flag.Flag) { set[f.Name] = true })
	if set["slo-share"] && len(sloBounds) == 0 {
		wrong("-slo-share is for BenchmarkSaturation, with -slo")
	}
	if *sloShare < 1 || *sloShare > 100 {
		wrong("-slo-share %d, want 1 to 100", *sloShare)
	}
	if err := notGoTests(); err != nil {
		return []error{err}
	}
	if !openLoop() && !saturating() {
		for _, name := range []string{"arrival", "burstiness", "duration", "settle", "max-inflight", "max-lag", "share", "slo"} {
			if set[name] {
				wrong("-%s is for an open loop, with -rate, -steps or -trace-file, or for BenchmarkSaturation, with -slo; -conc is a closed one", name)
			}
		}
		if set["trace-scale"] {
			wrong("-trace-scale is for -trace-file")
		}
		return errs
	}
	if set["conc"] && openLoop() {
		wrong("-conc is for a closed loop, -rate, -steps and -trace-file are for an open one: choose")
	}
	if *tracePath != "" {
		if err := readTrace(); err != nil {
			errs = append(errs, err)
		}
		for _, name := range []string{"rate", "steps", "arrival", "burstiness", "duration", "requests", "input", "output-tokens", "share", "prompts"} {
			if set[name] {
				wrong("-%s and -trace-file don't go together: %s", name, besideTrace[name])
			}
		}
	} else if set["trace-scale"] {
		wrong("-trace-scale is for -trace-file")
	}
	if set["burstiness"] && *arrival != verify.ArrivalGamma {
		wrong("-burstiness is for -arrival gamma")
	}
	if len(rateSteps) > 0 && (len(rateAxis) > 0 || set["duration"] || *requests > 0) {
		wrong("-steps has rates and durations of its own: leave out -rate, -duration and -requests")
	}
	if *duration < 0 || *inflight < 0 || *requests < 0 || set["settle"] && *settle < 0 {
		wrong("-duration %v, -max-inflight %d, -requests %d, -settle %v, want none below 0", *duration, *inflight, *requests, *settle)
	}
	if *share != "" && *targetURL == "" {
		wrong("-share is for a -target: each generator would start a smol/serve of its own")
	} else if *share != "" && !set["seed"] {
		wrong("-share %s needs a -seed, another for each of the generators", *share)
	}
	if *maxLag < time.Microsecond || *maxLag > time.Second {
		wrong("-max-lag %v, want 1µs to 1s", *maxLag)
	}
	if len(errs) > 0 {
		return errs
	}
	if saturating() {
		l := openLoad()
		l.Rate, l.DurationNS, l.Requests = "1", 0, 1 // any, for what all probes have in common
		if _, err := l.Schedule(); err != nil {
			wrong("%v", err)
		}
	}
	if !openLoop() {
		return errs
	}
	names, loads := arrivals()
	for i, l := range loads {
		if due, err := l.Schedule(); err != nil {
			wrong("%s: %v", names[i], err)
		} else if l.SettleNS >= due[len(due)-1] && len(due) > 1 {
			wrong("%s: -settle %v excludes every request", names[i], time.Duration(l.SettleNS))
		}
	}
	return errs
}

// besideTrace says why a flag can't stand beside -trace-file.
var besideTrace = map[string]string{
	"rate":          "the trace has its own times, which -trace-scale multiplies",
	"steps":         "the trace has its own times, which -trace-scale multiplies",
	"arrival":       "the trace has its own times",
	"burstiness":    "the trace has its own times",
	"duration":      "the trace ends when it ends; take its first lines for a shorter one",
	"requests":      "the trace has its own; take its first lines for fewer",
	"input":         "the trace has the length of each prompt",
	"output-tokens": "the trace has the length of each answer",
	"share":         "split the file instead",
	"prompts":       "a file of prompts has none for most lengths of a trace; without it they are made",
}

// notGoTests refuses a recorded load as go test's own -trace, to which an
// execution trace would be written in its place.
func notGoTests() error {
	path := flag.Lookup("test.trace").Value.String()
	if dir := flag.Lookup("test.outputdir").Value.String(); dir != "" && !filepath.IsAbs(path) {
		path = filepath.Join(dir, path)
	}
	if data, err := os.ReadFile(path); err == nil && bytes.HasPrefix(bytes.TrimPrefix(data, []byte("\ufeff")), []byte("TIMESTAMP,")) {
		return fmt.Errorf("-trace is go test's own, and would overwrite %s with an execution trace: a recorded load is given with -trace-file", path)
	}
	return nil
}

func readTrace() error {
	data, err := os.ReadFile(*tracePath)
	if err != nil {
		return fmt.Errorf("-trace-file: %w", err)
	}
	if trace, err = verify.ReadTrace(*tracePath, data); err != nil {
		return fmt.Errorf("-trace-file: %w", err)
	}
	if *targetURL == "" {
		if err := trace.Within(contextLimit); err != nil {
			return fmt.Errorf("-trace-file: %w", err)
		}
	}
	return nil
}

// about stands before the value of an axis that isn't exact.
func about() string {
	if *inexactInput {
		return verify.About
	}
	return ""
}

func init() {
	flag.Var(extraHeaders, "header", "send `'NAME: VALUE'` to the target, too; only the name is recorded. Can be given again")
	flag.Var(extraFields, "field", "put `NAME=JSON` into every request's body, null to leave NAME out. Can be given again")
}

// run is what TestMain opened for the benchmarks; nil if none will run.
var run *session

func TestMain(m *testing.M) {
	flag.Parse()
	if flag.NArg() > 0 {
		fail(2, "%q is left over: flags of the benchmark come after the package, and take their value with a space or =", flag.Args())
	}
	if err := checkFlags(); err != nil {
		fail(2, "%v", err)
	}
	if !benchmarks() {
		if why := unmeasuredSaturation(); why != "" && measuring() {
			fmt.Fprintf(os.Stderr, "Note: %s\n", why)
		}
		code := m.Run()
		os.RemoveAll(fakeDir)
		os.Exit(code)
	}
	benchtime := false
	flag.Visit(func(f *flag.Flag) { benchtime = benchtime || f.Name == "test.benchtime" })
	if !benchtime {
		flag.Set("test.benchtime", "1x") // one pass is a whole measurement
	}
	var err error
	if run, err = open(); err != nil {
		fail(1, "%v", err)
	}
	run.announce()
	code := max(m.Run(), run.close())
	os.RemoveAll(fakeDir)
	os.Exit(code)
}

func fail(code int, format string, args ...any) {
	fmt.Fprintf(os.Stderr, "Error: "+format+"\n", args...)
	os.Exit(code)
}

// benchmarks tells whether anything will be measured.
func benchmarks() bool { return measuring() && (selected("BenchmarkServe") || saturating()) }

// measuring tells whether testing runs benchmarks at all: it makes a first call
// even with -count 0.
func measuring() bool {
	return flag.Lookup("test.list").Value.String() == "" && flag.Lookup("test.count").Value.String() != "0"
}

// selected tells whether -bench selects a benchmark.
func selected(benchmark string) bool {
	for _, first := range firstParts(flag.Lookup("test.bench").Value.String()) {
		// One that doesn't compile is testing's to report.
		if matched, err := regexp.MatchString(first, benchmark); first != "" && (err != nil || matched) {
			return true
		}
	}
	return false
}

// firstParts returns what each alternative of a pattern says of a benchmark's
// own name. As testing does, it cuts at | and / outside brackets.
func firstParts(pattern string) (parts []string) {
	begin, slash, round, square := 0, -1, 0, 0
	for i := 0; i <= len(pattern); i++ {
		outside := round == 0 && square == 0
		switch {
		case i == len(pattern) || outside && pattern[i] == '|':
			end := i
			if slash >= 0 {
				end = slash
			}
			parts = append(parts, pattern[begin:end])
			begin, slash = i+1, -1
		case pattern[i] == '\\' && i+1 < len(pattern):
			i++
		case pattern[i] == '[':
			square++
		case pattern[i] == ']':
			square = max(0, square-1)
		case pattern[i] == '(' && square == 0:
			round++
		case pattern[i] == ')' && square == 0:
			round = max(0, round-1)
		case outside && pattern[i] == '/' && slash < 0:
			slash = i
		}
	}
	return parts
}

const (
	contextLimit  = 8192 // of SmolLM2
	serverContext = 2048 // smol.DefaultContext: what the server holds unless told
	mostThreads   = 256
)

func checkFlags() error {
	var errs []error
	// Whoever says -target "$URL" doesn't mean smol/serve where URL isn't set.
	flag.Visit(func(f *flag.Flag) {
		if slices.Contains([]string{"target", "model", "key-env", "prompts"}, f.Name) && f.Value.String() == "" {
			errs = append(errs, fmt.Errorf("-%s is empty: is a variable unset? Leave it out for the default", f.Name))
		}
	})
	if len(errs) > 0 {
		return errors.Join(errs...)
	}
	if *targetURL != "" {
		return checkTargetFlags()
	}
	flag.Visit(func(f *flag.Flag) {
		if slices.Contains(targetFlags, f.Name) || !openLoop() && !saturating() && slices.Contains(targetOrOpenFlags, f.Name) || f.Name == "seed" && *tracePath != "" {
			errs = append(errs, fmt.Errorf("-%s is for a server that -target names; smol/serve has no use for it", f.Name))
		}
	})
	corpus, err := readCorpus()
	if err != nil {
		return err
	}
	for _, n := range *threadsAxis {
		if n > mostThreads {
			errs = append(errs, fmt.Errorf("-threads %d, want 1 to %d", n, mostThreads))
		}
	}
	longest := 0
	for _, n := range *inputAxis {
		longest = max(longest, n)
		if prompts, _ := load.PromptsOf(corpus, n); len(prompts) == 0 {
			errs = append(errs, fmt.Errorf("-input %d: the corpus has no prompt of %d tokens, only of 64 and 256", n, n))
		}
	}
	for _, n := range *concAxis {
		if prompts, _ := load.PromptsOf(corpus, (*inputAxis)[0]); len(prompts) > 0 && n > len(prompts) {
			errs = append(errs, fmt.Errorf("-conc %d: a pass has %d prompts, so at most that many clients have one", n, len(prompts)))
		}
	}
	if *outputTokens < 1 || *outputTokens > contextLimit-longest {
		errs = append(errs, fmt.Errorf("-output-tokens %d, want 1 to %d", *outputTokens, contextLimit-longest))
	}
	return errors.Join(append(errs, checkCommonFlags()...)...)
}

// checkCommonFlags checks what is said of any server.
func checkCommonFlags() (errs []error) {
	if (openLoop() && *tracePath == "" || saturating()) && *seed == 0 {
		*seed = load.RandomSeed()
	}
	errs = append(errs, checkOpenFlags()...)
	if *idleLimit < time.Millisecond {
		errs = append(errs, fmt.Errorf("-idle %v, want 1ms or more, and more than a prefill takes", *idleLimit))
	}
	if !(*hourlyUSD >= 0 && *hourlyUSD < 1e6) {
		errs = append(errs, fmt.Errorf("-hourly-usd %v, want 0 or more, below a million", *hourlyUSD))
	}
	if *orderSeed < 0 {
		errs = append(errs, fmt.Errorf("-order %d, want a seed from 1 on, or 0 for the order of the axes", *orderSeed))
	}
	if *evidenceDir == "" {
		errs = append(errs, errors.New("-evidence is empty, want a directory"))
	}
	return errs
}

// targetFlags are those that mean nothing to smol/serve, and ownFlags those
// that mean nothing to a target.
var (
	targetFlags = []string{
		"api", "model", "key-env", "prompts", "inexact-input", "exact-output", "unsalted", "connections",
		"insecure", "max-cached", "header", "field",
	}
	targetOrOpenFlags = []string{"seed", "requests", "max-failed"}
	ownFlags          = []string{"threads", "server"}
)

func checkTargetFlags() error {
	errs := checkCommonFlags()
	wrong := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	flag.Visit(func(f *flag.Flag) {
		if slices.Contains(ownFlags, f.Name) {
			wrong("-%s is for smol/serve; what a target runs with is its own affair", f.Name)
		}
	})
	if _, err := sse.Endpoint(*targetURL, "models"); err != nil {
		wrong("-target: %v", err)
	}
	if _, bad := extraHeaders[""]; bad {
		wrong("-header wants 'Name: value'; what was given may be secret and isn't shown")
	}
	if *api != "completions" && *api != "chat" {
		wrong("-api %q, want completions or chat", *api)
	}
	if *connections != "new" && *connections != "reuse" {
		wrong("-connections %q, want new or reuse", *connections)
	}
	if *outputTokens < 1 {
		wrong("-output-tokens %d, want at least 1", *outputTokens)
	}
	if *requests < 0 {
		wrong("-requests %d, want 1 or more, or 0 for the default", *requests)
	}
	for _, n := range *concAxis {
		if *requests > 0 && n > *requests && !openLoop() {
			wrong("-conc %d: with -requests %d at most that many clients have one", n, *requests)
		}
	}
	if *maxFailed < 0 {
		wrong("-max-failed %d, want 0 or more", *maxFailed)
	}
	if *maxCached < 0 || *maxCached > 100 {
		wrong("-max-cached %d, want 0 to 100", *maxCached)
	}
	if *seed < 0 {
		wrong("-seed %d, want 1 or more, or 0 for a random one", *seed)
	}
	if *seed != 0 && *unsalted && (!openLoop() && !saturating() || *tracePath != "") {
		wrong("-seed %d is of a salt, and -unsalted wants none", *seed)
	}
	return errors.Join(errs...)
}

// target describes the server that -target names.
func target() *load.Target {
	return &load.Target{
		URL: *targetURL, API: *api, Model: *model, KeyFrom: *keyEnv, Header: http.Header(extraHeaders), Fields: extraFields,
		Insecure: *insecure, Reuse: *connections == "reuse", Proxy: http.ProxyFromEnvironment,
		InexactInput: *inexactInput, Unsalted: *unsalted, Seed: *seed, OwnPrompts: *promptsFile != "",
	}
}

// targetCorpus returns the user's prompts, or those of the matrix. An -input
// that the user didn't give is whatever the file has.
func targetCorpus() (*verify.Corpus, error) {
	if *promptsFile == "" {
		return readCorpus()
	}
	data, err := os.ReadFile(*promptsFile)
	if err != nil {
		return nil, fmt.Errorf("-prompts: %w", err)
	}
	given, about := false, 0
	flag.Visit(func(f *flag.Flag) { given = given || f.Name == "input" })
	if *inexactInput && given && len(*inputAxis) == 1 {
		about = (*inputAxis)[0]
	}
	corpus, err := load.ReadPrompts(*promptsFile, data, about)
	if err != nil || given {
		return corpus, err
	}
	*inputAxis = nil
	for _, p := range corpus.Prompts {
		if !slices.Contains(*inputAxis, p.Input) {
			*inputAxis = append(*inputAxis, p.Input)
		}
	}
	slices.Sort(*inputAxis)
	return corpus, nil
}

const corpusName = "corpus.jsonl"

func readCorpus() (*verify.Corpus, error) {
	data, err := os.ReadFile(filepath.Join("testdata", corpusName))
	if err != nil {
		return nil, fmt.Errorf("corpus: %w", err)
	}
	return verify.ReadCorpus(corpusName, data)
}

// session is the run of one test process: its evidence, and its one server at
// a time.
type session struct {
	*load.Run
	corpus  *verify.Corpus
	dir     string // temporary, for the server's program, output and log
	remove  func() // of dir
	program string
	server  *load.Process
	threads int           // of server
	started int           // servers so far
	failed  map[int]error // of the servers that didn't start, by threads
}

func open() (*session, error) {
	s := &session{failed: map[int]error{}}
	var err error
	if *targetURL != "" {
		s.remove = func() {}
		if s.corpus, err = targetCorpus(); err != nil {
			return nil, err
		}
		s.Run, err = load.NewRun(load.Options{
			Dir: *evidenceDir, Source: ".", Flags: flags(), HourlyUSD: *hourlyUSD, Corpus: s.corpus, Inputs: *inputAxis, Trace: traced(), OrderSeed: *orderSeed, Idle: *idleLimit,
			Roofline: clientProof.Roofline,
			Target:   target(),
		})
		return s, err
	}
	if s.corpus, err = readCorpus(); err != nil {
		return nil, err
	}
	if s.dir, s.remove, err = load.Scratch(); err != nil {
		return nil, fmt.Errorf("a directory for the server: %w", err)
	}
	defer func() {
		if err != nil {
			s.remove()
		}
	}()
	if s.program = *serverPath; s.program == "" {
		if s.program, err = buildServer(s.dir); err != nil {
			return nil, err
		}
	}
	if s.Run, err = load.NewRun(load.Options{
		Dir: *evidenceDir, Source: ".", Flags: flags(), HourlyUSD: *hourlyUSD, Corpus: s.corpus, Trace: traced(), OrderSeed: *orderSeed, Idle: *idleLimit,
		Roofline: clientProof.Roofline,
	}); err != nil {
		return nil, err
	}
	if err = s.serve(configurations()[0].threads); err != nil {
		s.Discard()
		return nil, err
	}
	return s, nil
}

// traced returns the requests of -trace-file, nil if there are none.
func traced() []verify.Due {
	if trace == nil {
		return nil
	}
	return trace.Requests
}

// buildServer compiles smol/serve. Building takes the same build flags as
// this test only through GOFLAGS.
func buildServer(dir string) (string, error) {
	program := filepath.Join(dir, "serve")
	// The same sources give the same bytes, in whichever directory.
	build := exec.Command("go", "build", "-trimpath", "-ldflags=-buildid=", "-o", program, "./smol/serve")
	if out, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("building the server: %w (outside the module, name one with -server PATH)\n%s", err, strings.TrimSpace(string(out)))
	}
	return program, nil
}

func flags() []verify.Flag {
	set := map[string]bool{}
	flag.Visit(func(f *flag.Flag) { set[f.Name] = true })
	out := []verify.Flag{}
	flag.VisitAll(func(f *flag.Flag) {
		out = append(out, verify.Flag{Name: f.Name, Value: f.Value.String(), Set: set[f.Name]})
	})
	return out
}

// serve makes the session's server one with so many threads, if it isn't. What
// didn't start once isn't tried again: it would fail, or time out, as often
// as there are configurations.
func (s *session) serve(threads int) (err error) {
	if err := s.failed[threads]; err != nil {
		return err
	}
	defer func() {
		if err != nil {
			s.failed[threads] = err
		}
	}()
	if s.server != nil {
		if s.threads == threads && s.server.Err() == nil {
			return nil
		}
		s.server.Stop()
		s.server = nil
	}
	s.started++
	args := []string{"-threads", strconv.Itoa(threads), "-model", filepath.Join("smol", "native", "v1", "model")}
	needed := slices.Max(*inputAxis) + *outputTokens
	if trace != nil {
		needed = trace.Longest()
	}
	if needed > serverContext {
		args = append(args, "-context", strconv.Itoa(needed))
	}
	p, err := load.StartServer(context.Background(), load.ServerOptions{
		Path: s.program, Dir: s.dir, Name: fmt.Sprintf("server-%d", s.started), Args: args,
	})
	if err != nil {
		return err
	}
	s.server, s.threads = p, threads
	return s.AddServer(p)
}

// announce prints what goes before the benchmarks: on stdout lines for
// benchstat, on stderr lines for people, which begin with a capital.
func (s *session) announce() {
	units := verify.Units()
	if s.Header.Target != nil {
		units = verify.TargetUnits()
	}
	if openLoop() {
		units = append(units, verify.OpenUnits()...)
	}
	if saturating() {
		units = append(units, verify.SaturationUnits()...)
	}
	slices.Sort(units)
	units = slices.Compact(units)
	for _, unit := range units {
		better := "lower"
		if verify.HigherIsBetter(unit) {
			better = "higher"
		}
		if unit != verify.UnitCost || *hourlyUSD > 0 {
			fmt.Printf("Unit %s better=%s\n", unit, better)
		}
	}
	if t := s.Header.Target; t != nil {
		fmt.Printf("model: %s\napi: %s\n", t.Model, t.API)
	} else {
		fmt.Printf("model: %s\n", s.server.Ready.Server.Model.Describe())
	}
	if trace != nil {
		fmt.Printf("trace: %s\ntrace-scale: %v\n", trace.Describe(), *traceScale)
	} else {
		fmt.Printf("output-tokens: %d\n", *outputTokens)
	}
	if openLoop() || saturating() {
		if trace == nil {
			fmt.Printf("arrival: %s\n", *arrival)
		}
		if *share != "" {
			fmt.Printf("share: %s\n", *share)
		}
		if len(sloBounds) > 0 {
			fmt.Printf("slo: %s\n", &sloBounds)
		}
	}
	if saturating() {
		fmt.Printf("slo-share: %d\n", *sloShare)
	} else if why := unmeasuredSaturation(); why != "" && len(sloBounds) > 0 {
		fmt.Fprintf(os.Stderr, "Note: %s\n", why)
	}
	if *hourlyUSD > 0 {
		fmt.Printf("assumed-usd-per-hour: %v\n", *hourlyUSD)
	}
	for _, warning := range s.Header.Warnings {
		fmt.Fprintf(os.Stderr, "Warning: %s\n", warning)
	}
	if t := s.Header.Target; t != nil {
		fmt.Fprintf(os.Stderr, "Note: %s takes %s; the length of prompts is known %s\n", t.URL, strings.Join(t.Optional, ", "), knownBy[t.Prompts])
		return
	}
	lines, expected := s.expect()
	if starts := serverStarts(); *orderSeed > 0 && starts > len(*threadsAxis) {
		fmt.Fprintf(os.Stderr, "Note: in the order of seed %d servers are started up to %d times, not %d\n", *orderSeed, starts, len(*threadsAxis))
	}
	fmt.Fprintf(os.Stderr, "Note: up to %d configurations, about %v on the README's machine; nothing is printed while one runs\n", lines, expected.Round(10*time.Second))
}

// serverStarts is how often another server is needed than the one before.
func serverStarts() (n int) {
	threads := 0
	for _, c := range configurations() {
		if c.threads != threads {
			n++
		}
		threads = c.threads
	}
	return n
}

// knownBy says how the length of a target's prompts is known.
var knownBy = map[string]string{
	verify.PromptsIDs:      "because they are sent as ids",
	verify.PromptsTokenize: "by its /tokenize",
	verify.PromptsFile:     "by their file",
	verify.PromptsInexact:  "about",
}

// usualProbes is how many rates a search tries that starts within a factor of
// four of its end.
const usualProbes = 7

// takes is how long a request takes there.
func takes(threads, input, output int) time.Duration {
	prefill, step := 2200*time.Microsecond, 26*time.Millisecond // a token
	if threads > 1 {
		prefill, step = 1250*time.Microsecond, 19*time.Millisecond
	}
	return time.Duration(input)*prefill + time.Duration(output)*step
}

// expect estimates how long a run takes, from the figures of the README's
// reference machine.
func (s *session) expect() (lines int, d time.Duration) {
	list := configurations()
	if !selected("BenchmarkServe") {
		list = nil
	}
	for _, c := range list {
		each := takes(c.threads, c.input, *outputTokens)
		prompts, warmups := load.PromptsOf(s.corpus, c.input)
		d += time.Duration(len(warmups)) * each
		pass := time.Duration(len(prompts)) * each
		if due, err := c.load.Schedule(); err == nil { // of an open loop
			pass = 0
			for i := range due {
				if trace != nil {
					each = takes(c.threads, trace.Requests[i].Input, trace.Requests[i].Output)
				}
				pass += each
			}
			pass = max(pass, time.Duration(due[len(due)-1]))
		}
		d += time.Duration(passes()) * pass
		lines++
	}
	for _, c := range searches() {
		each := takes(c.threads, c.input, *outputTokens)
		_, warmups := load.PromptsOf(s.corpus, c.input)
		pass := time.Duration(c.load.Requests) * each // at the rate that is searched for
		if most := time.Duration(c.load.DurationNS); most > 0 && (pass == 0 || pass > most) {
			pass = most
		}
		d += usualProbes * (pass + time.Duration(len(warmups))*each)
		lines++
	}
	repeat := repetitions() * len(cpuList())
	return lines * repeat, d * time.Duration(repeat)
}

// failFast tells whether a failure shall be the last. testing itself heeds
// the flag for tests alone.
func failFast() bool { return flag.Lookup("test.failfast").Value.String() == "true" }

// passes returns the passes of -benchtime, 1 if it is a time.
func passes() int {
	if n, known := load.CountedPasses(); known {
		return n
	}
	return 1
}

func repetitions() int {
	n, err := strconv.Atoi(flag.Lookup("test.count").Value.String())
	if err != nil || n < 1 {
		return 1
	}
	return n
}

// cpuList returns the values of -cpu, or GOMAXPROCS.
func cpuList() (list []int) {
	for part := range strings.SplitSeq(flag.Lookup("test.cpu").Value.String(), ",") {
		if n, err := strconv.Atoi(strings.TrimSpace(part)); err == nil && n > 0 {
			list = append(list, n)
		}
	}
	if len(list) == 0 {
		list = []int{runtime.GOMAXPROCS(0)}
	}
	return list
}

// close ends the server and the evidence and returns an exit code: testing's
// own says nothing of a failure in a second or later repetition.
func (s *session) close() (code int) {
	defer s.remove()
	if s.server != nil {
		s.server.Stop()
	}
	if s.Configurations() == 0 && !s.Failed() {
		s.Discard()
		fmt.Fprintf(os.Stderr, "Note: -bench %q selects no configuration: nothing is measured or saved\n", flag.Lookup("test.bench").Value)
		return 0
	}
	end, err := s.Close()
	if err != nil {
		fmt.Fprintf(os.Stderr, "Error: %v\n", err)
		code = 1
	}
	if err := s.Unproven(); err != nil {
		fmt.Fprintf(os.Stderr, "Warning: %v\n", err)
	}
	if end.Report != nil {
		doubted := map[string]int{} // configurations, by a doubt about their client
		for _, c := range end.Report.Results {
			for _, doubt := range c.Strain {
				if doubted[doubt]++; doubted[doubt] == 1 {
					fmt.Fprintf(os.Stderr, "Warning: %s (repetition %d): %s\n", c.Plan.Name, c.Plan.Repetition, doubt)
				}
			}
		}
		for _, doubt := range slices.Sorted(maps.Keys(doubted)) {
			if more := doubted[doubt] - 1; more > 0 {
				fmt.Fprintf(os.Stderr, "Warning: the same of %d more: %s\n", more, doubt)
			}
		}
	}
	for _, reason := range end.Invalid {
		fmt.Fprintf(os.Stderr, "Invalid: %s\n", reason)
		code = 1
	}
	if end.SHA256 == "" {
		fmt.Fprintf(os.Stderr, "Incomplete: %s\n", end.Path)
	} else {
		fmt.Printf("Evidence: %s sha256 %s\n", end.Path, end.SHA256)
	}
	return code
}

// configuration is one of those that the flags ask for.
type configuration struct {
	name    string // behind the benchmark's own
	threads int    // 0 for a target
	input   int    // 0 for a trace, which has many
	load    *verify.Load
}

// configurations returns those of BenchmarkServe in the order in which they
// are measured: that of the axes, or the random one of -order.
func configurations() []configuration {
	names, loads := arrivals()
	return alongAxes("BenchmarkServe", names, loads)
}

// alongAxes crosses the axes of a benchmark with loads, the innermost.
func alongAxes(benchmark string, names []string, loads []*verify.Load) (list []configuration) {
	threads, inputs := *threadsAxis, *inputAxis
	if *targetURL != "" {
		threads = ints{0}
	}
	if trace != nil {
		inputs = ints{0}
	}
	for _, t := range threads {
		for _, input := range inputs {
			for i, name := range names {
				if input > 0 {
					name = fmt.Sprintf("input=%s%d/%s", about(), input, name)
				}
				if t > 0 {
					name = fmt.Sprintf("threads=%d/%s", t, name)
				}
				list = append(list, configuration{strings.TrimSuffix(name, "/"), t, input, loads[i]})
			}
		}
	}
	if *orderSeed > 0 {
		slices.SortFunc(list, func(a, b configuration) int {
			return verify.CompareOrder(*orderSeed, benchmark+"/"+a.name, benchmark+"/"+b.name)
		})
	}
	return list
}

// BenchmarkServe measures the matrix. In a closed loop an iteration is one pass
// of the six prompts by conc clients, in an open one a pass of the schedule,
// after a warmup.
//
// A configuration is one call of b.Run with its whole name: -bench selects by
// the parts between slashes all the same.
func BenchmarkServe(b *testing.B) {
	if run == nil {
		b.Skip("TestMain opened no run")
	}
	measureEach(b, configurations(), func(b *testing.B, c configuration) {
		run.Benchmark(b, cellOf(c.load, run.cell(b, c)))
	})
}

// measureEach measures all of a list, as often as testing asks for it.
func measureEach(b *testing.B, list []configuration, measure func(*testing.B, configuration)) {
	cpus, repeat := cpuList(), repetitions()
	for _, c := range list {
		calls := 0
		b.Run(c.name, func(b *testing.B) {
			// testing makes the first call before it sets GOMAXPROCS to what
			// it prints for it.
			runtime.GOMAXPROCS(cpus[min(calls/repeat, len(cpus)-1)])
			calls++
			if failFast() && run.Failed() {
				run.Unmeasured(b, errors.New("-failfast, and one before it failed"))
			}
			measure(b, c)
		})
	}
}

// cell has the server of a configuration, and returns all but its load.
func (s *session) cell(b *testing.B, c configuration) load.Cell {
	cell := load.Cell{OutputTokens: *outputTokens, ExactOutput: true}
	if s.Header.Target != nil {
		cell.Input, cell.Requests = c.input, *requests
		cell.ExactOutput, cell.MaxCached = *exactOutput, cmp.Or(*maxCached, -1)
	} else {
		if err := s.serve(c.threads); err != nil {
			s.Unmeasured(b, err)
		}
		cell.Prompts, cell.Warmups = load.PromptsOf(s.corpus, c.input)
	}
	return cell
}

// cellOf adds a load to a cell. With an SLO every failure is a miss, and no
// reason to call a configuration invalid.
func cellOf(arrivals *verify.Load, cell load.Cell) load.Cell {
	cell.MaxFailed = *maxFailed
	if arrivals.Kind == verify.LoadClosed {
		cell.Conc = arrivals.Conc
		return cell
	}
	cell.Open = arrivals
	given := false
	flag.Visit(func(f *flag.Flag) { given = given || f.Name == "max-failed" })
	if due, err := arrivals.Schedule(); err == nil && len(arrivals.SLO) > 0 && !given {
		cell.MaxFailed = len(due) * passes()
	}
	return cell
}

var sloShare = flag.Int("slo-share", load.DefaultSLOShare, "BenchmarkSaturation: a rate holds if `PERCENT` of its requests keep -slo")

// saturating tells whether BenchmarkSaturation measures something: it is
// selected, and there is an SLO and a rate to search for.
func saturating() bool {
	return len(sloBounds) > 0 && selected("BenchmarkSaturation") && unsearchable() == ""
}

// unsearchable names a flag with which there is no rate to search for, or "".
func unsearchable() string {
	switch {
	case len(rateSteps) > 0:
		return "steps"
	case *tracePath != "":
		return "trace-file"
	case *share != "":
		return "share"
	}
	return ""
}

// searchLoad is what BenchmarkSaturation's probes have in common; its rate, if
// there is one, is the first.
func searchLoad() *verify.Load {
	l := openLoad()
	least := math.Inf(1)
	for _, rate := range rateAxis {
		if v, err := strconv.ParseFloat(rate, 64); err == nil && v < least {
			l.Rate, least = rate, v
		}
	}
	return &l
}

// unmeasuredSaturation says why BenchmarkSaturation, though selected, measures
// nothing; "" if it does, or isn't selected.
func unmeasuredSaturation() string {
	switch name := unsearchable(); {
	case !selected("BenchmarkSaturation"):
	case len(sloBounds) == 0:
		return "BenchmarkSaturation is skipped: it needs -slo, as in -slo ttft=500ms,tpot=50ms"
	case name != "":
		return fmt.Sprintf("BenchmarkSaturation is skipped: with -%s there is no rate to search for", name)
	}
	return ""
}

// searches returns those of BenchmarkSaturation, whose load has no axis.
func searches() []configuration {
	if !saturating() {
		return nil
	}
	return alongAxes("BenchmarkSaturation", []string{""}, []*verify.Load{searchLoad()})
}

// BenchmarkSaturation searches for the highest rate that holds -slo, from the
// least -rate, or from what one client gets. Without -slo it does nothing. A
// search is one line, and one iteration: what -benchtime adds does nothing.
func BenchmarkSaturation(b *testing.B) {
	if run == nil || !saturating() {
		b.Skip("there is no -slo to hold, or no rate to search for")
	}
	measureEach(b, searches(), func(b *testing.B, c configuration) {
		cell := run.cell(b, c)
		cell.Open = c.load
		run.Saturation(b, cell, *sloShare)
	})
}

// slack makes a search on a busy machine come to its end: whatever the rate is
// that it finds.
var slack = []string{"-settle", "0", "-max-lag", "1s", "-max-inflight", "1000", "-roofline=false"}

// saturated runs a search and checks its evidence against what it printed.
func saturated(t *testing.T, a again) *verify.Report {
	t.Helper()
	if a.code != 0 {
		t.Fatalf("exit code %d, stdout: %s, stderr: %s", a.code, a.stdout, a.stderr)
	}
	report := a.report(t)
	printed, err := verify.ParsePrinted("stdout", strings.NewReader(a.stdout))
	if err != nil {
		t.Fatal(err)
	}
	report.CheckPrinted(printed)
	if err := report.Err(); err != nil {
		t.Fatal(err)
	}
	for _, unit := range verify.SaturationUnits() {
		if !strings.Contains(a.stdout, "Unit "+unit+" better=") || strings.Count(a.stdout, " "+unit) < len(report.Saturations) {
			t.Errorf("no line of unit %s, or fewer numbers of it than searches, in\n%s", unit, a.stdout)
		}
	}
	for _, s := range report.Saturations {
		low, _ := strconv.ParseFloat(s.Low, 64)
		high, _ := strconv.ParseFloat(s.High, 64)
		if !s.Valid || !(low > 0 && high > low && (high <= 1.1*low || len(s.Probes) > 20)) {
			t.Errorf("search %+v, want a bracket of a tenth", s)
		}
	}
	return report
}

// names returns the printed ones.
func (a *again) names() (out []string) {
	for line := range strings.Lines(a.stdout) {
		if name, _, found := strings.Cut(line, " "); found && strings.HasPrefix(name, "Benchmark") {
			out = append(out, strings.TrimSpace(strings.TrimPrefix(name, "Benchmark")))
		}
	}
	return out
}

// inOrder returns names as -order has them.
func inOrder(seed int64, names ...string) []string {
	slices.SortFunc(names, func(a, b string) int { return verify.CompareOrder(seed, "Benchmark"+a, "Benchmark"+b) })
	return names
}

// slowly is a model that takes 20 ms for an answer.
type slowly struct{ letters }

func (g *slowly) Prefill(prompt []int32) (int32, error) {
	time.Sleep(20 * time.Millisecond)
	return g.letters.Prefill(prompt)
}

var samplePath = filepath.Join("testdata", "sample.csv")

func sampleTrace(t *testing.T) *verify.Trace {
	t.Helper()
	data, err := os.ReadFile(samplePath)
	if err != nil {
		t.Fatal(err)
	}
	trace, err := verify.ReadTrace(samplePath, data)
	if err != nil {
		t.Fatal(err)
	}
	return trace
}

// What follows tests the benchmark itself, as a user starts it: this test's
// own program, run again, against a server without a model.

var fakeDir string // removed by TestMain

// fakeServer builds sse/load/testdata/fakeserve once.
var fakeServer = sync.OnceValues(func() (program string, err error) {
	if fakeDir, err = os.MkdirTemp("", "servebench-fake-"); err != nil {
		return "", err
	}
	program = filepath.Join(fakeDir, "fakeserve")
	if out, err := exec.Command("go", "build", "-o", program, "./sse/load/testdata/fakeserve").CombinedOutput(); err != nil {
		return "", fmt.Errorf("%w\n%s", err, out)
	}
	return program, nil
})

// again is one more run of this program.
type again struct {
	code   int
	stdout string
	stderr string
	files  []string // evidence, by name
}

// runAgain runs this program with args on the fake server. A server in args
// or an evidence directory of "" is left as it is.
func runAgain(t *testing.T, ill string, args ...string) again {
	t.Helper()
	server, err := fakeServer()
	if err != nil {
		t.Fatal(err)
	}
	corpus, err := filepath.Abs(filepath.Join("testdata", corpusName))
	if err != nil {
		t.Fatal(err)
	}
	return runWith(t, []string{"FAKESERVE_CORPUS=" + corpus, "FAKESERVE_ILL=" + ill}, append([]string{"-server", server}, args...)...)
}

// runWith runs this program with args, and with env besides its own.
func runWith(t *testing.T, env []string, args ...string) again {
	t.Helper()
	dir := t.TempDir()
	command := exec.Command(os.Args[0], append([]string{"-test.run=^$", "-evidence", dir}, args...)...)
	command.Env = append(os.Environ(), env...)
	var stdout, stderr bytes.Buffer
	command.Stdout, command.Stderr = &stdout, &stderr
	err := command.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	files, err := filepath.Glob(filepath.Join(dir, "*.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	return again{command.ProcessState.ExitCode(), stdout.String(), stderr.String(), files}
}

// report replays the run's only evidence file.
func (a *again) report(t *testing.T) *verify.Report {
	t.Helper()
	if len(a.files) != 1 {
		t.Fatalf("%d evidence files %q, want 1; stderr: %s", len(a.files), a.files, a.stderr)
	}
	file, err := os.Open(a.files[0])
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	report, err := verify.Replay(a.files[0], file)
	if err != nil {
		t.Fatal(err)
	}
	return report
}

// lines returns the result lines as x/perf reads them, and fails on what it
// can't read.
func (a *again) lines(t *testing.T) (names []string, config map[string]string) {
	t.Helper()
	config = map[string]string{}
	reader := benchfmt.NewReader(strings.NewReader(a.stdout), "stdout")
	for reader.Scan() {
		switch record := reader.Result().(type) {
		case *benchfmt.SyntaxError:
			t.Errorf("benchstat can't read %v", record)
		case *benchfmt.Result:
			names = append(names, string(record.Name))
			for _, c := range record.Config {
				config[c.Key] = string(c.Value)
			}
			for _, unit := range []string{verify.UnitTTFT50, verify.UnitE2E95, verify.UnitThroughput, verify.UnitTPOT50} {
				if _, ok := record.Value(unit); !ok {
					t.Errorf("%s has no %s", record.Name, unit)
				}
			}
		}
	}
	return names, config
}

// repeated returns how often each of a list of names follows itself.
func repeated(names []string, n int) (out []string) {
	for _, name := range names {
		out = append(out, slices.Repeat([]string{name}, n)...)
	}
	return out
}

var matrixNames = []string{
	"Serve/threads=1/input=64/conc=1", "Serve/threads=1/input=64/conc=2",
	"Serve/threads=1/input=256/conc=1", "Serve/threads=1/input=256/conc=2",
	"Serve/threads=2/input=64/conc=1", "Serve/threads=2/input=64/conc=2",
	"Serve/threads=2/input=256/conc=1", "Serve/threads=2/input=256/conc=2",
}

func TestMatrix(t *testing.T) {
	one := []string{"Serve/threads=1/input=64/conc=2"}
	const pattern = "Serve/threads=1/input=64/conc=2"
	tests := []struct {
		name   string
		args   []string
		want   []string
		passes int
	}{
		{"whole", []string{"-test.bench", ".", "-test.cpu", "1"}, matrixNames, 1},
		{"count", []string{"-test.bench", ".", "-test.cpu", "1", "-test.count", "3"}, repeated(matrixNames, 3), 1},
		{"passes", []string{"-test.bench", pattern, "-test.cpu", "1", "-test.benchtime", "3x"}, one, 3},
		{"cpus", []string{"-test.bench", pattern, "-test.cpu", "1,2", "-test.count", "2"}, []string{one[0], one[0], one[0] + "-2", one[0] + "-2"}, 1},
		{"shuffle", []string{"-test.bench", pattern, "-test.cpu", "1", "-test.shuffle", "7"}, one, 1},
		{"either", []string{"-test.bench", "Other/x|" + pattern, "-test.cpu", "1"}, one, 1},
		{"failfast", []string{"-test.bench", pattern, "-test.cpu", "1", "-test.failfast"}, one, 1},
		{"verbose", []string{"-test.bench", pattern, "-test.cpu", "1", "-test.v"}, one, 1},
		{"axes", []string{"-test.bench", ".", "-test.cpu", "1", "-threads", "3", "-input", "256", "-conc", "6,1"}, []string{"Serve/threads=3/input=256/conc=6", "Serve/threads=3/input=256/conc=1"}, 1},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			a := runAgain(t, "", test.args...)
			if a.code != 0 {
				t.Fatalf("exit code %d, stderr: %s", a.code, a.stderr)
			}
			names, config := a.lines(t)
			if !slices.Equal(names, test.want) {
				t.Errorf("lines %q, want %q", names, test.want)
			}
			if config["model"] == "" || config["output-tokens"] != "24" {
				t.Errorf("configuration lines %q, want a model and 24 output-tokens", config)
			}
			report := a.report(t)
			if err := report.Err(); err != nil {
				t.Error(err)
			}
			if len(report.Results) != len(test.want) {
				t.Fatalf("%d configurations are recorded, want %d", len(report.Results), len(test.want))
			}
			for i, r := range report.Results {
				printed := strings.TrimPrefix(r.Plan.Name, "Benchmark")
				if r.Plan.GOMAXPROCS != 1 {
					printed += fmt.Sprintf("-%d", r.Plan.GOMAXPROCS)
				}
				if printed != test.want[i] || r.Configuration.Passes != test.passes || r.Configuration.Measured != 6*test.passes || r.Requests != 6*test.passes+1 {
					t.Errorf("configuration %d: %s with %d passes, %d measured of %d requests", i, printed, r.Configuration.Passes, r.Configuration.Measured, r.Requests)
				}
			}
		})
	}
}

func TestMatrixCost(t *testing.T) {
	a := runAgain(t, "", "-test.bench", "Serve/threads=1/input=64/conc=1", "-hourly-usd", "0.10")
	if _, config := a.lines(t); config["assumed-usd-per-hour"] != "0.1" {
		t.Errorf("configuration lines %q, want the assumed price", config)
	}
	metrics := a.report(t).Results[0].Configuration.Metrics
	value := func(unit string) float64 {
		for _, m := range metrics {
			if m.Unit == unit {
				return m.Value
			}
		}
		t.Fatalf("no %s in %v", unit, metrics)
		return 0
	}
	if got, want := value(verify.UnitCost), 0.10/3600/value(verify.UnitThroughput)*1e6; got < want*0.999999 || got > want*1.000001 {
		t.Errorf("%v %s, want %v", got, verify.UnitCost, want)
	}
}

// Whatever is wrong with a server: no metrics, a non-zero exit at every
// -count, and evidence that says so itself.
func TestMatrixInvalid(t *testing.T) {
	tests := []struct{ ill, reason string }{
		{"die", "ended: exit status 3"},
		{"error", "failed: server: fakeserve: out of luck"},
		{"prompt", "failed: prompt: the server's ids of the prompt are not those of the corpus"},
	}
	for _, test := range tests {
		t.Run(test.ill, func(t *testing.T) {
			t.Parallel()
			a := runAgain(t, test.ill, "-test.bench", "Serve/threads=1/input=64", "-test.count", "2")
			if a.code != 1 {
				t.Errorf("exit code %d, want 1", a.code)
			}
			if names, _ := a.lines(t); len(names) > 0 {
				t.Errorf("lines %q, want none", names)
			}
			if !strings.Contains(a.stdout+a.stderr, test.reason) {
				t.Errorf("no %q in the output:\n%s%s", test.reason, a.stdout, a.stderr)
			}
			report := a.report(t)
			if report.Verdict != verify.Consistent {
				t.Errorf("verdict %v: %v", report.Verdict, report.Err())
			}
			if len(report.Invalid()) == 0 {
				t.Error("the evidence has no invalid configuration")
			}
		})
	}
}

// The second repetition fails: testing alone would exit with 0.
func TestMatrixLaterRepetition(t *testing.T) {
	t.Setenv("FAKESERVE_AFTER", "9")
	a := runAgain(t, "error", "-test.bench", "Serve/threads=1/input=64/conc=1", "-test.count", "3")
	if a.code != 1 {
		t.Errorf("exit code %d, want 1", a.code)
	}
	if got := len(a.report(t).Invalid()); got != 2 {
		t.Errorf("%d invalid configurations, want 2", got)
	}
}

// Two answers to one prompt: the run notices at its end.
func TestMatrixInconsistent(t *testing.T) {
	a := runAgain(t, "drift", "-test.bench", "Serve/threads=1/input=64/conc=1", "-test.count", "2")
	if a.code != 1 || !strings.Contains(a.stderr, "for the same prompt") {
		t.Errorf("exit code %d, stderr %s", a.code, a.stderr)
	}
}

func TestMatrixNoServer(t *testing.T) {
	tests := []struct {
		name string
		ill  string
		args []string
		want string
	}{
		{"dies at once", "dead", nil, "it ended before it was ready (exit status 1)"},
		{"isn't there", "", []string{"-server", "no/such/server"}, "no/such/server"},
		{"isn't a program", "", []string{"-server", "go.mod"}, "permission denied"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			a := runAgain(t, test.ill, append(test.args, "-test.bench", ".")...)
			if a.code != 1 || !strings.Contains(a.stderr, test.want) {
				t.Errorf("exit code %d, stderr %s, want 1 and %q", a.code, a.stderr, test.want)
			}
			if strings.Contains(a.stdout, "Benchmark") || len(a.files) > 0 {
				t.Errorf("a result %q or evidence %q of nothing", a.stdout, a.files)
			}
		})
	}
}

func TestFlags(t *testing.T) {
	tests := []struct {
		args []string
		want string
	}{
		{[]string{"left", "over"}, `["left" "over"] is left over`},
		{[]string{"-threads", "0"}, "want whole numbers from 1 on"},
		{[]string{"-threads", "1,1"}, "1 stands twice"},
		{[]string{"-threads", "1000"}, "-threads 1000, want 1 to 256"},
		{[]string{"-input", "65"}, "-input 65: the corpus has no prompt of 65 tokens, only of 64 and 256"},
		{[]string{"-conc", "7"}, "-conc 7: a pass has 6 prompts"},
		{[]string{"-conc", "x"}, "want whole numbers from 1 on"},
		{[]string{"-output-tokens", "0"}, "-output-tokens 0, want 1 to 7936"},
		{[]string{"-output-tokens", "8000"}, "-output-tokens 8000, want 1 to 7936"},
		{[]string{"-idle", "0"}, "-idle 0s, want 1ms or more"},
		{[]string{"-idle", "5"}, `invalid value "5" for flag -idle`},
		{[]string{"-hourly-usd", "-1"}, "-hourly-usd -1, want 0 or more"},
		{[]string{"-hourly-usd", "NaN"}, "-hourly-usd NaN, want 0 or more"},
		{[]string{"-evidence", ""}, "-evidence is empty"},
		{[]string{"-nonsense"}, "flag provided but not defined"},
	}
	for _, test := range tests {
		t.Run(strings.Join(test.args, " "), func(t *testing.T) {
			t.Parallel()
			a := runAgain(t, "", append([]string{"-test.bench", "."}, test.args...)...)
			if a.code != 2 || !strings.Contains(a.stderr, test.want) {
				t.Errorf("exit code %d, stderr %s, want 2 and %q", a.code, a.stderr, test.want)
			}
			if len(a.files) > 0 {
				t.Errorf("evidence %q of a run that never was", a.files)
			}
		})
	}
}

// letters is a model that says the alphabet. A letter of a text is a token.
type letters struct{}

func (g *letters) Encode(text string) (ids []int32, err error) {
	for _, b := range []byte(text) {
		ids = append(ids, int32(b))
	}
	return ids, nil
}

func (g *letters) Piece(id int32) []byte                 { return []byte{byte('a' + id%26)} }
func (g *letters) Prefill(prompt []int32) (int32, error) { return prompt[len(prompt)-1] % 26, nil }
func (g *letters) Step(id int32) (int32, error)          { return (id + 1) % 26, nil }
func (g *letters) Limits() sse.Limits {
	return sse.Limits{Context: contextLimit, Vocabulary: 49152, EOS: 49151}
}

// stranger starts a server that the benchmark doesn't start, and returns its
// URL.
func stranger(t *testing.T) string {
	t.Helper()
	return serveLetters(t, &letters{})
}

func serveLetters(t *testing.T, model sse.Generator) string {
	t.Helper()
	server := httptest.NewServer(sse.NewHandler(model, sse.Options{Model: "abc", Chat: func(messages []sse.Message) (string, error) {
		return "<" + messages[len(messages)-1].Content + ">", nil
	}}))
	t.Cleanup(server.Close)
	return server.URL
}

func TestTarget(t *testing.T) {
	all := []string{"Serve/input=64/conc=1", "Serve/input=64/conc=2", "Serve/input=256/conc=1", "Serve/input=256/conc=2"}
	const pattern = "Serve/input=64/conc=2"
	one := []string{pattern}
	tests := []struct {
		name   string
		args   []string
		want   []string
		passes int
	}{
		{"whole", []string{"-test.bench", ".", "-test.cpu", "1"}, all, 1},
		{"count", []string{"-test.bench", ".", "-test.cpu", "1", "-test.count", "3"}, repeated(all, 3), 1},
		{"passes", []string{"-test.bench", pattern, "-test.cpu", "1", "-test.benchtime", "3x"}, one, 3},
		{"cpus", []string{"-test.bench", pattern, "-test.cpu", "1,2", "-test.count", "2"}, []string{pattern, pattern, pattern + "-2", pattern + "-2"}, 1},
		{"verbose, with memory", []string{"-test.bench", pattern, "-test.cpu", "1", "-test.v", "-test.benchmem"}, one, 1},
		{"axes", []string{"-test.bench", ".", "-test.cpu", "1", "-input", "100,64", "-conc", "6,1"}, []string{"Serve/input=100/conc=6", "Serve/input=100/conc=1", "Serve/input=64/conc=6", "Serve/input=64/conc=1"}, 1},
		{"chat", []string{"-test.bench", ".", "-test.cpu", "1", "-api", "chat"}, all, 1},
		{"about", []string{"-test.bench", "Serve/input=about64", "-test.cpu", "1", "-inexact-input"}, []string{"Serve/input=about64/conc=1", "Serve/input=about64/conc=2"}, 1},
		{"unsalted, exact, kept connections", []string{"-test.bench", pattern, "-test.cpu", "1", "-unsalted", "-exact-output", "-connections", "reuse", "-test.count", "2"}, repeated(one, 2), 1},
		{"what else can be said", []string{"-test.bench", pattern, "-test.cpu", "1", "-model", "abc", "-header", "X-Team: a: b", "-header", "X-Team: c", "-seed", "3", "-max-failed", "1", "-max-cached", "0"}, one, 1},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			a := runWith(t, nil, append([]string{"-target", stranger(t)}, test.args...)...)
			if a.code != 0 {
				t.Fatalf("exit code %d, stdout: %s, stderr: %s", a.code, a.stdout, a.stderr)
			}
			names, config := a.lines(t)
			if !slices.Equal(names, test.want) {
				t.Errorf("lines %q, want %q", names, test.want)
			}
			api := "completions"
			if test.name == "chat" {
				api = "chat"
			}
			if config["model"] != "abc" || config["api"] != api || config["output-tokens"] != "24" {
				t.Errorf("configuration lines %q, want the model, %s and 24 output-tokens", config, api)
			}
			for _, unit := range verify.TargetUnits() {
				if has := strings.Contains(a.stdout, "Unit "+unit+" better="); has != (unit != verify.UnitCost) {
					t.Errorf("a line of unit %s: %t", unit, has)
				}
			}
			if strings.Contains(a.stdout, verify.UnitPeak) || strings.Contains(a.stdout, "threads=") {
				t.Errorf("memory or threads of a server that nobody here knows:\n%s", a.stdout)
			}
			report := a.report(t)
			printed, err := verify.ParsePrinted("stdout", strings.NewReader(a.stdout))
			if err != nil {
				t.Fatal(err)
			}
			report.CheckPrinted(printed)
			if err := report.Err(); err != nil {
				t.Error(err)
			}
			if len(report.Results) != len(test.want) {
				t.Fatalf("%d configurations are recorded, want %d", len(report.Results), len(test.want))
			}
			for i, r := range report.Results {
				if r.Configuration.Passes != test.passes || r.Configuration.Measured != 6*test.passes || r.Requests != 6*test.passes+1 {
					t.Errorf("configuration %d: %d passes, %d measured of %d requests", i, r.Configuration.Passes, r.Configuration.Measured, r.Requests)
				}
			}
		})
	}
}

// The price of an hour is an assumption about any machine.
func TestTargetCost(t *testing.T) {
	a := runWith(t, nil, "-target", stranger(t), "-test.bench", "Serve/input=64/conc=1", "-hourly-usd", "0.10")
	if a.code != 0 || !strings.Contains(a.stdout, "Unit usd/Mtok better=lower") || !strings.Contains(a.stdout, " usd/Mtok\n") {
		t.Errorf("exit code %d, stdout:\n%s", a.code, a.stdout)
	}
}

// A pattern that selects nothing leaves nothing, and so does a target that
// isn't there.
func TestTargetNothing(t *testing.T) {
	for _, test := range []struct {
		args []string
		code int
		want string
	}{
		{[]string{"-target", stranger(t), "-test.bench", "Serve/threads=1"}, 0, `Note: -bench "Serve/threads=1" selects no configuration`},
		{[]string{"-target", "http://127.0.0.1:1", "-test.bench", "."}, 1, "Error: load: the target doesn't answer: "},
		{[]string{"-target", stranger(t), "-test.bench", ".", "-key-env", "SERVEBENCH_NO_SUCH_KEY"}, 1, "the environment variable SERVEBENCH_NO_SUCH_KEY, which should hold the API key, is empty"},
		{[]string{"-target", stranger(t), "-test.bench", ".", "-prompts", "no/such/file"}, 1, "no/such/file: no such file"},
	} {
		a := runWith(t, nil, test.args...)
		if a.code != test.code || !strings.Contains(a.stderr, test.want) || len(a.files) > 0 || strings.Contains(a.stdout, "\nBenchmark") {
			t.Errorf("%q: exit code %d, evidence %q, stderr %s, want %d and %q", test.args, a.code, a.files, a.stderr, test.code, test.want)
		}
	}
}

func TestTargetFlags(t *testing.T) {
	const url = "http://127.0.0.1:1" // nobody is asked
	on := func(args ...string) []string { return append([]string{"-target", url}, args...) }
	tests := []struct {
		args []string
		want string
	}{
		{on("-threads", "1"), "-threads is for smol/serve"},
		{on("-server", "x"), "-server is for smol/serve"},
		{[]string{"-api", "chat"}, "-api is for a server that -target names"},
		{[]string{"-model", "x"}, "-model is for a server that -target names"},
		{[]string{"-key-env", "X"}, "-key-env is for a server that -target names"},
		{[]string{"-prompts", "x"}, "-prompts is for a server that -target names"},
		{[]string{"-inexact-input"}, "-inexact-input is for a server that -target names"},
		{[]string{"-exact-output"}, "-exact-output is for a server that -target names"},
		{[]string{"-unsalted"}, "-unsalted is for a server that -target names"},
		{[]string{"-seed", "1"}, "-seed is for a server that -target names"},
		{[]string{"-requests", "1"}, "-requests is for a server that -target names"},
		{[]string{"-connections", "reuse"}, "-connections is for a server that -target names"},
		{[]string{"-insecure"}, "-insecure is for a server that -target names"},
		{[]string{"-max-failed", "1"}, "-max-failed is for a server that -target names"},
		{[]string{"-max-cached", "1"}, "-max-cached is for a server that -target names"},
		{[]string{"-header", "X-Y: z"}, "-header is for a server that -target names"},
		{[]string{"-field", "x=1"}, "-field is for a server that -target names"},
		{[]string{"-target", ""}, "-target is empty: is a variable unset?"},
		{on("-model", ""), "-model is empty"},
		{on("-key-env", ""), "-key-env is empty"},
		{on("-prompts", ""), "-prompts is empty"},
		{[]string{"-target", "127.0.0.1:8000"}, "-target: sse: base URL"},
		{[]string{"-target", "localhost:8000"}, `want http://HOST:PORT or https://HOST`},
		{[]string{"-target", "ftp://host"}, `want http://HOST:PORT or https://HOST`},
		{[]string{"-target", "http://host/v1?key=sesame"}, `base URL "http://host/v1" has a query or a fragment, want none`},
		{on("-api", "responses"), `-api "responses", want completions or chat`},
		{on("-connections", "some"), `-connections "some", want new or reuse`},
		{on("-output-tokens", "0"), "-output-tokens 0, want at least 1"},
		{on("-requests", "-1"), "-requests -1, want 1 or more"},
		{on("-requests", "3", "-conc", "4"), "-conc 4: with -requests 3 at most that many clients have one"},
		{on("-max-failed", "-1"), "-max-failed -1, want 0 or more"},
		{on("-max-cached", "101"), "-max-cached 101, want 0 to 100"},
		{on("-max-cached", "-1"), "-max-cached -1, want 0 to 100"},
		{on("-seed", "-1"), "-seed -1, want 1 or more"},
		{on("-seed", "1", "-unsalted"), "-seed 1 is of a salt, and -unsalted wants none"},
		{on("-idle", "0"), "-idle 0s, want 1ms or more"},
		{on("-input", "0"), "want whole numbers from 1 on"},
		{on("-header", "sesame"), "-header wants 'Name: value'"},
		{on("-header", "X Y: sesame"), "-header wants 'Name: value'"},
		{on("-header", ": sesame"), "-header wants 'Name: value'"},
		{on("-field", "top_k"), "want name=JSON, top_k=1 say"},
		{on("-field", "=1"), "want name=JSON"},
		{on("-field", "stop=end"), `end is no JSON: a text is quoted, as in 'stop="end"'`},
		{on("-field", "a=1", "-field", "a=2"), "a stands twice"},
	}
	for _, test := range tests {
		t.Run(strings.Join(test.args, " "), func(t *testing.T) {
			t.Parallel()
			a := runWith(t, nil, append([]string{"-test.bench", "."}, test.args...)...)
			if a.code != 2 || !strings.Contains(a.stderr, test.want) {
				t.Errorf("exit code %d, stderr %s, want 2 and %q", a.code, a.stderr, test.want)
			}
			if len(a.files) > 0 || strings.Contains(a.stdout, "Benchmark") {
				t.Errorf("evidence %q or output %q of a run that never was", a.files, a.stdout)
			}
			if strings.Contains(a.stderr, "sesame") {
				t.Errorf("a secret is told: %s", a.stderr)
			}
		})
	}
}

// Nothing is built or started where no benchmark runs.
func TestNoBenchmark(t *testing.T) {
	for _, args := range [][]string{{"-test.list", "."}, {"-test.bench", "Other"}, {"-test.bench", "Other/x|More"}, {"-test.bench", "(Other|More)/x"}, {"-test.bench", ".", "-test.count", "0"}, {"-test.bench", ".", "-test.list", "."}, {}} {
		a := runAgain(t, "dead", args...)
		if a.code != 0 || len(a.files) > 0 {
			t.Errorf("%q: exit code %d, evidence %q, stderr %s", args, a.code, a.files, a.stderr)
		}
	}
}

// The corpus is what the matrix promises: for each length one warmup and six
// prompts, all different from their first token on.
func TestCorpus(t *testing.T) {
	corpus, err := readCorpus()
	if err != nil {
		t.Fatal(err)
	}
	first := map[int32]string{}
	for _, p := range corpus.Prompts {
		if other := first[p.IDs[0]]; other != "" {
			t.Errorf("%s and %s begin with the same token", other, p.ID)
		}
		first[p.IDs[0]] = p.ID
	}
	for _, input := range []int{64, 256} {
		prompts, warmups := load.PromptsOf(corpus, input)
		if len(prompts) != 6 || len(warmups) != 1 {
			t.Errorf("input %d: %d prompts and %d warmups, want 6 and 1", input, len(prompts), len(warmups))
		}
	}
}

// published is what the matrix gave on other hardware and other software:
// Xeon W-3223, PyTorch 2.2.2. TTFT p50 s, TPOT p50 ms, p95 s, tok/s.
var published = map[string]string{
	"1/64/1":  "0.196 | 62.92 | 1.704 | 14.49",
	"1/64/2":  "1.871 | 63.74 | 3.355 | 14.35",
	"1/256/1": "0.654 | 72.02 | 2.415 | 10.28",
	"1/256/2": "3.002 | 72.84 | 4.691 | 10.24",
	"2/64/1":  "0.128 | 42.89 | 1.143 | 21.50",
	"2/64/2":  "1.256 | 43.24 | 2.460 | 20.80",
	"2/256/1": "0.414 | 48.94 | 1.601 | 15.51",
	"2/256/2": "2.041 | 50.61 | 3.234 | 14.93",
}

// table gives the README's table of a run beside the published one.
func table(report *verify.Report) string {
	var out strings.Builder
	fmt.Fprintln(&out, "| threads/input/conc | TTFT p50 s | TPOT p50 ms | p95 s | tok/s | peak MB | there: TTFT p50 s | TPOT p50 ms | p95 s | tok/s |")
	fmt.Fprintln(&out, "|---|---|---|---|---|---|---|---|---|---|")
	for _, r := range report.Results {
		value := map[string]float64{}
		for _, m := range r.Configuration.Metrics {
			value[m.Unit] = m.Value
		}
		var axes []string
		for _, a := range r.Plan.Axes {
			axes = append(axes, a.Value)
		}
		name := strings.Join(axes, "/")
		fmt.Fprintf(&out, "| %s | %.3f | %.2f | %.3f | %.2f | %.0f | %s |\n", name, value[verify.UnitTTFT50], value[verify.UnitTPOT50],
			value[verify.UnitE2E95], value[verify.UnitThroughput], value[verify.UnitPeak]/1e6, published[name])
	}
	return out.String()
}

// The README's figures are those of the committed reference run, and its
// output is what that run printed.
func TestSweeps(t *testing.T) {
	for _, test := range []struct{ evidence, page string }{
		{"smol-serve", "README.md"},
		{"llamaserver", filepath.Join("sse", "load", "OPENLOOP.md")},
		{"saturation", filepath.Join("sse", "load", "OPENLOOP.md")},
		{"closed", "README.md"},
	} {
		t.Run(test.evidence, func(t *testing.T) {
			page, err := os.ReadFile(test.page)
			if err != nil {
				t.Fatal(err)
			}
			paths, err := filepath.Glob(filepath.Join("testdata", "sweeps", test.evidence, "*.jsonl"))
			if err != nil || len(paths) != 1 {
				t.Fatalf("evidence %q (%v), want one file", paths, err)
			}
			path := paths[0]
			file, err := os.Open(path)
			if err != nil {
				t.Fatal(err)
			}
			defer file.Close()
			report, err := verify.Replay(path, file)
			if err != nil {
				t.Fatal(err)
			}
			output := strings.TrimSuffix(path, ".jsonl") + ".txt"
			text, err := os.ReadFile(output)
			if err != nil {
				t.Fatal(err)
			}
			printed, err := verify.ParsePrinted(output, bytes.NewReader(text))
			if err != nil {
				t.Fatal(err)
			}
			report.CheckPrinted(printed)
			if err := report.Err(); err != nil || len(report.Invalid()) > 0 {
				t.Fatalf("%d invalid configurations: %v", len(report.Invalid()), err)
			}
			if !report.Header.CleanTree {
				t.Error("it was not made at a clean commit")
			}
			if report.Results[len(report.Results)-1].Plan.Load.Kind == verify.LoadClosed {
				if !bytes.Contains(page, text) {
					t.Errorf("%s doesn't show what %s has", test.page, output)
				}
			} else if want := curve(report); !bytes.Contains(page, []byte(want)) {
				t.Errorf("%s doesn't have the curve of %s:\n%s", test.page, path, want)
			}
		})
	}
}

// curve gives the table of a sweep.
func curve(report *verify.Report) string {
	var out strings.Builder
	fmt.Fprintln(&out, "| rate | achieved | TTFT p50 s from due | from send | TTFT p95 s from due | from send | TPOT p50 ms | goodput req/s | within the SLO | in flight, most |")
	fmt.Fprintln(&out, "|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|")
	for _, r := range report.Results {
		if r.Plan.Load.Kind != verify.LoadOpen {
			continue // the estimate of a search
		}
		value := map[string]float64{}
		for _, m := range r.Configuration.Metrics {
			value[m.Unit] = m.Value
		}
		fmt.Fprintf(&out, "| %s | %.2f | %.3f | %.3f | %.3f | %.3f | %.1f | %.2f | %.0f %% | %.0f |\n", r.Plan.Load.Rate, value[verify.UnitAchieved],
			value[verify.UnitTTFT50], value[verify.UnitTTFTSent50], value[verify.UnitTTFT95], value[verify.UnitTTFTSent95],
			value[verify.UnitTPOT50], value[verify.UnitGoodput], 100*value[verify.UnitSLOShare], value[verify.UnitInflight])
	}
	return out.String()
}

func TestReadme(t *testing.T) {
	readme, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	paths, err := filepath.Glob(filepath.Join("testdata", "reference", "*.jsonl"))
	if err != nil || len(paths) != 1 {
		t.Fatalf("%d reference runs %q (%v), want 1", len(paths), paths, err)
	}
	file, err := os.Open(paths[0])
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	report, err := verify.Replay(paths[0], file)
	if err != nil {
		t.Fatal(err)
	}
	output := strings.TrimSuffix(paths[0], ".jsonl") + ".txt"
	text, err := os.ReadFile(output)
	if err != nil {
		t.Fatal(err)
	}
	printed, err := verify.ParsePrinted(output, bytes.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	report.CheckPrinted(printed)
	if err := report.Err(); err != nil || report.Valid() != len(matrixNames) {
		t.Fatalf("the reference has %d valid configurations: %v", report.Valid(), err)
	}
	if !report.Header.CleanTree {
		t.Error("the reference was not made at a clean commit")
	}
	if !bytes.Contains(readme, text) {
		t.Errorf("README.md doesn't show what the reference printed, %s", output)
	}
	if want := table(report); !bytes.Contains(readme, []byte(want)) {
		t.Errorf("README.md doesn't have the reference's table:\n%s", want)
	}
}

// Spinning is on because of these twelve runs: each is consistent and printed
// what stands beside it, and benchstat reads both sides without a word.
func TestSpinning(t *testing.T) {
	dir := filepath.Join("testdata", "spinning")
	sides := map[bool]string{true: filepath.Join(dir, "on.txt"), false: filepath.Join(dir, "off.txt")}
	lines := map[string]int{}
	paths, err := filepath.Glob(filepath.Join(dir, "*.jsonl"))
	if err != nil || len(paths) != 12 {
		t.Fatalf("%d runs (%v), want 12", len(paths), err)
	}
	for _, path := range paths {
		file, err := os.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		report, err := verify.Replay(path, file)
		file.Close()
		if err != nil {
			t.Fatal(err)
		}
		side := sides[report.Servers[0].Spinning]
		text, err := os.ReadFile(side)
		if err != nil {
			t.Fatal(err)
		}
		printed, err := verify.ParsePrinted(side, bytes.NewReader(text))
		if err != nil {
			t.Fatal(err)
		}
		report.CheckPrinted(printed)
		if err := report.Err(); err != nil {
			t.Error(err)
		}
		lines[side] += report.Valid()
	}
	for _, side := range sides {
		if lines[side] != 6*len(matrixNames) {
			t.Errorf("%s has %d lines, want six of each configuration", side, lines[side])
		}
		a := again{stdout: string(must(os.ReadFile(side)))}
		if names, _ := a.lines(t); len(names) != lines[side] {
			t.Errorf("%s: benchstat sees %d lines, want %d", side, len(names), lines[side])
		}
	}
}

func must(data []byte, err error) []byte {
	if err != nil {
		panic(err)
	}
	return data
}

// A random order has the same names, -bench selects from it as from any other,
// and the verifier holds it against its seed.
func TestMatrixOrder(t *testing.T) {
	inOrder := func(seed int64, names []string) []string {
		names = slices.Clone(names)
		slices.SortFunc(names, func(a, b string) int { return verify.CompareOrder(seed, "Benchmark"+a, "Benchmark"+b) })
		return names
	}
	for _, test := range []struct {
		seed    int64
		pattern string
		count   int
		from    []string
		starts  bool // more servers than threads, and a note that says so
	}{
		{7, ".", 1, matrixNames, true},
		{8, "Serve", 2, matrixNames, true},
		{7, "Serve/threads=2", 1, matrixNames[4:], true},
		{7, "Serve/./input=64/conc=1", 1, []string{matrixNames[0], matrixNames[4]}, true},
		{7, "Serve/threads=1/input=256/conc=2|Other", 1, matrixNames[3:4], true},
		{0, ".", 1, matrixNames, false},
	} {
		t.Run(fmt.Sprintf("%d %s", test.seed, test.pattern), func(t *testing.T) {
			t.Parallel()
			a := runAgain(t, "", "-test.bench", test.pattern, "-test.cpu", "1", "-test.count", fmt.Sprint(test.count), "-order", fmt.Sprint(test.seed))
			if a.code != 0 {
				t.Fatalf("exit code %d, stderr: %s", a.code, a.stderr)
			}
			want := test.from
			if test.seed > 0 {
				want = inOrder(test.seed, want)
			}
			if names, _ := a.lines(t); !slices.Equal(names, repeated(want, test.count)) {
				t.Errorf("lines %q, want %q", names, repeated(want, test.count))
			}
			report := a.report(t)
			if report.Err() != nil || report.Header.OrderSeed != test.seed {
				t.Errorf("order_seed %d, %v", report.Header.OrderSeed, report.Err())
			}
			if note := strings.Contains(a.stderr, "servers are started up to"); note != test.starts {
				t.Errorf("stderr: %s", a.stderr)
			}
		})
	}
	a := runAgain(t, "", "-test.bench", ".", "-order", "-3")
	if want := "-order -3, want a seed from 1 on"; a.code != 2 || !strings.Contains(a.stderr, want) {
		t.Errorf("exit code %d, stderr %s, want 2 and %q", a.code, a.stderr, want)
	}
}

// The client is tried before open loops, once for each GOMAXPROCS, and before
// closed ones if that is asked for. What it asks of a benchmark's output is
// nothing.
func TestMatrixRoofline(t *testing.T) {
	open := []string{"-rate", "100", "-requests", "20", "-max-lag", "1s"}
	for _, test := range []struct {
		name    string
		args    []string
		tried   []int // GOMAXPROCS
		untried int   // configurations whose client is called into question for that
	}{
		{"open loop", open, []int{1}, 0},
		{"open loop, never", slices.Concat(open, []string{"-roofline=false"}), nil, 1},
		{"open loop, two numbers of CPUs", slices.Concat(open, []string{"-test.cpu", "1,2"}), []int{1, 2}, 0},
		{"closed loop", nil, nil, 0},
		{"closed loop, wanted", []string{"-roofline"}, []int{1}, 0},
	} {
		t.Run(test.name, func(t *testing.T) {
			args := []string{"-test.bench", "Serve/threads=1/input=64", "-test.cpu", "1", "-threads", "1", "-input", "64"}
			if test.args == nil || test.args[0] == "-roofline" {
				args = append(args, "-conc", "1")
			}
			a := runAgain(t, "", append(args, test.args...)...)
			if a.code != 0 {
				t.Fatalf("exit code %d, stderr: %s", a.code, a.stderr)
			}
			report := a.report(t)
			if err := report.Err(); err != nil {
				t.Error(err)
			}
			var tried []int
			for _, c := range report.Clients {
				tried = append(tried, c.GOMAXPROCS)
			}
			if !slices.Equal(tried, test.tried) {
				t.Errorf("tried with GOMAXPROCS %v, want %v", tried, test.tried)
			}
			if got := strings.Count(a.stderr, "no roofline of its client is recorded"); got != test.untried {
				t.Errorf("stderr has %d configurations without a roofline, want %d: %s", got, test.untried, a.stderr)
			}
			for _, c := range report.Results {
				if c.Configuration.Client == nil {
					t.Errorf("configuration %d says nothing of its client", c.Plan.Config)
				}
			}
			if info, err := os.Stat(a.files[0]); err != nil || info.Size() > 4<<20 {
				t.Errorf("evidence %v (%v)", info, err)
			}
		})
	}
	a := runAgain(t, "", "-test.bench", ".", "-roofline=often")
	if want := `invalid boolean value "often" for -roofline: want true or false`; a.code != 2 || !strings.Contains(a.stderr, want) {
		t.Errorf("exit code %d, stderr %s, want 2 and %s", a.code, a.stderr, want)
	}
	if got, want := fmt.Sprint(&clientProof), "open loops"; got != want {
		t.Errorf("-roofline is %q unless it is given, want %q", got, want)
	}
}

func TestSaturation(t *testing.T) {
	const cell = "/threads=1/input=64"
	for _, test := range []struct {
		name   string
		args   []string
		want   []string // lines
		passes int
		closed bool // it begins with an estimate
	}{
		{"alone", []string{"-test.bench", "Saturation" + cell}, []string{"Saturation" + cell}, 1, true},
		{"count and cpus", []string{"-test.bench", "Saturation" + cell, "-rate", "20", "-test.count", "2", "-test.cpu", "1,2"},
			[]string{"Saturation" + cell, "Saturation" + cell, "Saturation" + cell + "-2", "Saturation" + cell + "-2"}, 1, false},
		{"passes", []string{"-test.bench", "Saturation" + cell, "-test.benchtime", "3x", "-rate", "20"}, []string{"Saturation" + cell}, 3, false},
		{"beside rates", []string{"-test.bench", "(Serve|Saturation)" + cell, "-rate", "40,20"}, []string{"Serve" + cell + "/rate=40", "Serve" + cell + "/rate=20", "Saturation" + cell}, 1, false},
		{"beside clients", []string{"-test.bench", ".", "-threads", "1", "-input", "64", "-conc", "2"}, []string{"Serve" + cell + "/conc=2", "Saturation" + cell}, 1, true},
		{"in an order", []string{"-test.bench", "Saturation", "-threads", "1", "-order", "7"},
			inOrder(7, "Saturation/threads=1/input=64", "Saturation/threads=1/input=256"), 1, true},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			args := slices.Concat([]string{"-test.cpu", "1", "-slo", "e2e=150ms", "-requests", "10", "-arrival", "constant"}, slack, test.args)
			a := runAgain(t, "", args...)
			report := saturated(t, a)
			if got := a.names(); !slices.Equal(got, test.want) {
				t.Errorf("lines %q, want %q", got, test.want)
			}
			if !strings.Contains(a.stdout, "\nslo: e2e=150ms\nslo-share: 90\n") {
				t.Errorf("no configuration lines of the SLO in\n%s", a.stdout)
			}
			for _, s := range report.Saturations {
				first := report.Results[s.Probes[0]-1].Plan
				if s.Passes != test.passes || (first.Load.Kind == verify.LoadClosed) != test.closed || !test.closed && first.Load.Rate != "20" {
					t.Errorf("%d passes, first probe %+v", s.Passes, first.Load)
				}
			}
		})
	}
}

// A server that takes at most 50 a second isn't found to take more.
func TestSaturationOfTarget(t *testing.T) {
	t.Parallel()
	url := serveLetters(t, &slowly{})
	a := runWith(t, nil, slices.Concat([]string{"-target", url, "-test.bench", "Saturation/input=64", "-test.cpu", "1", "-slo", "e2e=100ms", "-slo-share", "80",
		"-requests", "20", "-arrival", "constant", "-rate", "10"}, slack)...)
	report := saturated(t, a)
	if got, want := a.names(), []string{"Saturation/input=64"}; !slices.Equal(got, want) {
		t.Fatalf("lines %q, want %q", got, want)
	}
	s := report.Saturations[0]
	if low, _ := strconv.ParseFloat(s.Low, 64); s.Share != 80 || low > 75 {
		t.Errorf("%s requests a second at %d %%: 20 of them wait for each other", s.Low, s.Share)
	}
}

// A server that goes wrong has no saturation, at no repetition.
func TestSaturationInvalid(t *testing.T) {
	for _, ill := range []string{"die", "error"} {
		t.Run(ill, func(t *testing.T) {
			t.Parallel()
			a := runAgain(t, ill, slices.Concat([]string{"-test.bench", "Saturation/threads=1/input=64", "-test.count", "2", "-slo", "e2e=150ms", "-requests", "10"}, slack)...)
			if a.code != 1 || !strings.Contains(a.stderr, "Invalid: BenchmarkSaturation/threads=1/input=64 (repetition 1): probe 1, conc=1: ") {
				t.Errorf("exit code %d, stderr %s", a.code, a.stderr)
			}
			if strings.Contains(a.stdout, " "+verify.UnitSaturation) != strings.Contains(a.stdout, "Unit "+verify.UnitSaturation) || strings.Contains(a.stdout, "\t") {
				t.Errorf("a line of a search without a number:\n%s", a.stdout)
			}
			report := a.report(t)
			if report.Verdict != verify.Consistent || len(report.Saturations) == 0 || report.Saturations[0].Valid {
				t.Errorf("verdict %v: %v, searches %+v", report.Verdict, report.Err(), report.Saturations)
			}
		})
	}
}

// Without an SLO, or without a rate to search for, there is a note and nothing
// else.
func TestSaturationSkipped(t *testing.T) {
	const none = "Note: BenchmarkSaturation is skipped: "
	for _, test := range []struct {
		args []string
		want string
		runs bool // BenchmarkServe does
	}{
		{[]string{"-test.bench", "Saturation"}, none + "it needs -slo, as in -slo ttft=500ms,tpot=50ms\n", false},
		{[]string{"-test.bench", "Saturation", "-test.v"}, none + "it needs -slo, as in -slo ttft=500ms,tpot=50ms\n", false},
		{[]string{"-test.bench", "Saturation", "-slo", "ttft=1s", "-steps", "20:300ms"}, none + "with -steps there is no rate to search for\n", false},
		{[]string{"-test.bench", "Saturation", "-slo", "ttft=1s", "-rate", "1", "-share", "1/2", "-seed", "1", "-target", "http://127.0.0.1:1"}, none + "with -share there is no rate to search for\n", false},
		{[]string{"-test.bench", "Saturation", "-slo", "ttft=1s", "-trace-file", samplePath}, none + "with -trace-file there is no rate to search for\n", false},
		{[]string{"-test.bench", "(Serve|Saturation)/threads=1/input=64", "-slo", "ttft=1s", "-steps", "20:300ms", "-max-lag", "1s", "-max-inflight", "100"}, none + "with -steps there is no rate to search for\n", true},
		{[]string{"-test.bench", "(Serve|Saturation)/threads=1/input=64/conc=1"}, "", true},
		{[]string{"-test.bench", "Saturation", "-slo", "ttft=1s", "-test.list", "."}, "", false},
		{[]string{"-test.bench", "Saturation", "-slo", "ttft=1s", "-test.count", "0"}, "", false},
	} {
		t.Run(strings.Join(test.args, " "), func(t *testing.T) {
			t.Parallel()
			run := func(t *testing.T, args ...string) again { return runAgain(t, "", args...) }
			if slices.Contains(test.args, "-target") {
				run = func(t *testing.T, args ...string) again { return runWith(t, nil, args...) }
			}
			a := run(t, test.args...)
			if a.code != 0 || !strings.Contains(a.stderr, test.want) || test.want == "" && strings.Contains(a.stderr, none) {
				t.Errorf("exit code %d, stderr %s, want %q", a.code, a.stderr, test.want)
			}
			if (len(a.files) > 0) != test.runs || strings.Contains(a.stdout, "BenchmarkSaturation/") || strings.Contains(a.stdout, verify.UnitSaturation) {
				t.Errorf("evidence %q, stdout:\n%s", a.files, a.stdout)
			}
		})
	}
}

func TestSaturationFlags(t *testing.T) {
	for _, test := range []struct {
		args []string
		want string
	}{
		{[]string{"-slo-share", "50"}, "-slo-share is for BenchmarkSaturation, with -slo"},
		{[]string{"-slo", "ttft=1s", "-slo-share", "0"}, "-slo-share 0, want 1 to 100"},
		{[]string{"-slo", "ttft=1s", "-slo-share", "101"}, "-slo-share 101, want 1 to 100"},
		{[]string{"-slo", "ttft=1s", "-arrival", "chaos"}, `arrival "chaos", want "poisson", "constant", "gamma"`},
		{[]string{"-slo", "ttft=1s", "-arrival", "gamma", "-burstiness", "0"}, `burstiness "0", want a decimal number`},
		{[]string{"-slo", "ttft=1s", "-requests", "-1"}, "-requests -1"},
		{[]string{"-slo", "ttft=1s", "-test.bench", "Serve"}, "-slo is for an open loop, with -rate, -steps or -trace-file, or for BenchmarkSaturation, with -slo"},
		{[]string{"-slo", "ttft"}, "want ttft=500ms,tpot=50ms,e2e=3s, or some of them"},
	} {
		t.Run(strings.Join(test.args, " "), func(t *testing.T) {
			t.Parallel()
			a := runAgain(t, "", append([]string{"-test.bench", "."}, test.args...)...)
			if a.code != 2 || !strings.Contains(a.stderr, test.want) || len(a.files) > 0 {
				t.Errorf("exit code %d, evidence %q, stderr %s, want 2 and %q", a.code, a.files, a.stderr, test.want)
			}
		})
	}
}

func TestFirstParts(t *testing.T) {
	for pattern, want := range map[string]string{
		"": "", ".": ".", "Serve": "Serve", "Serve/a/b": "Serve", "Serve/a|Other/b": "Serve Other", "(Serve|Saturation)/threads=(1|2)/x": "(Serve|Saturation)",
		"S[/|]x/y|Z": "S[/|]x Z", `A\|B/c`: `A\|B`, "A[(]|B": "A[(] B", "A)|B": "A) B", `A\`: `A\`,
	} {
		if got := strings.Join(firstParts(pattern), " "); got != want {
			t.Errorf("firstParts(%q) = %q, want %q", pattern, got, want)
		}
	}
}

// Every request of a trace is sent when it came, times the scale, as long as it
// was, and asks for as much.
func TestMatrixTrace(t *testing.T) {
	a := runAgain(t, "", "-test.bench", "Serve", "-test.cpu", "1", "-threads", "1", "-trace-file", samplePath, "-trace-scale", "0.05", "-max-lag", "1s", "-max-inflight", "100")
	if a.code != 0 {
		t.Fatalf("exit code %d, stderr: %s", a.code, a.stderr)
	}
	names, config := a.lines(t)
	if want := []string{"Serve/threads=1/trace=sample"}; !slices.Equal(names, want) {
		t.Errorf("lines %q, want %q", names, want)
	}
	trace := sampleTrace(t)
	if want := trace.Describe(); config["trace"] != want || config["trace-scale"] != "0.05" || config["output-tokens"] != "" {
		t.Errorf("configuration lines %q, want the trace %q at 0.05 and no output-tokens", config, want)
	}
	report := a.report(t)
	printed, err := verify.ParsePrinted("stdout", strings.NewReader(a.stdout))
	if err != nil {
		t.Fatal(err)
	}
	report.CheckPrinted(printed)
	report.CheckTrace(trace)
	if err := report.Err(); err != nil {
		t.Fatal(err)
	}
	r := report.Results[0]
	tokens := int64(0)
	for _, due := range trace.Requests {
		tokens += int64(due.Output)
	}
	if c := r.Configuration; c.Measured != len(trace.Requests) || c.Tokens != tokens {
		t.Errorf("%d requests with %d tokens, want the trace's %d with %d", c.Measured, c.Tokens, len(trace.Requests), tokens)
	}
	open := r.Configuration.Open
	last := trace.Requests[len(trace.Requests)-1].DueNS
	if got := open.LastDueNS - open.FirstDueNS; got != last/20 {
		t.Errorf("the last is due %v after the first, want %v", time.Duration(got), time.Duration(last/20))
	}
	// Another file is not what was replayed.
	trace.File.Bytes++
	if report.CheckTrace(trace); report.Err() == nil {
		t.Error("a trace of another size passes")
	}
}

// go test takes -trace for itself and would overwrite the file.
func TestTraceIsGoTests(t *testing.T) {
	path := filepath.Join(t.TempDir(), "mine.csv")
	data, err := os.ReadFile(samplePath)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, data, 0o666); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{{"-test.trace", path}, {"-test.trace", "mine.csv", "-test.outputdir", filepath.Dir(path)}} {
		a := runAgain(t, "", append([]string{"-test.bench", "."}, args...)...)
		if want := "-trace is go test's own, and would overwrite " + path + " with an execution trace: a recorded load is given with -trace-file"; a.code != 2 || !strings.Contains(a.stderr, want) {
			t.Errorf("exit code %d, stderr %s, want 2 and %q", a.code, a.stderr, want)
		}
	}
	if left, err := os.ReadFile(path); err != nil || !bytes.Equal(left, data) {
		t.Errorf("the file isn't what it was (%v)", err)
	}
	a := runAgain(t, "", "-test.bench", "Serve/threads=1/input=64/conc=1", "-test.trace", filepath.Join(t.TempDir(), "execution.trace"))
	if a.code != 0 {
		t.Errorf("an execution trace: exit code %d, stderr %s", a.code, a.stderr)
	}
}

func TestTraceFlags(t *testing.T) {
	write := func(name, text string) string {
		path := filepath.Join(t.TempDir(), name)
		if err := os.WriteFile(path, []byte(text), 0o666); err != nil {
			t.Fatal(err)
		}
		return path
	}
	const head = "TIMESTAMP,ContextTokens,GeneratedTokens\n"
	with := func(args ...string) []string { return append([]string{"-trace-file", samplePath}, args...) }
	for _, test := range []struct {
		args []string
		want string
	}{
		{with("-rate", "1"), "-rate and -trace-file don't go together: the trace has its own times, which -trace-scale multiplies"},
		{with("-steps", "1:1s"), "-steps and -trace-file don't go together"},
		{with("-input", "64"), "-input and -trace-file don't go together: the trace has the length of each prompt"},
		{with("-conc", "1"), "-conc is for a closed loop, -rate, -steps and -trace-file are for an open one: choose"},
		{with("-requests", "5"), "-requests and -trace-file don't go together: the trace has its own; take its first lines for fewer"},
		{with("-duration", "5s"), "-duration and -trace-file don't go together"},
		{with("-arrival", "gamma"), "-arrival and -trace-file don't go together"},
		{with("-burstiness", "2"), "-burstiness and -trace-file don't go together"},
		{with("-output-tokens", "5"), "-output-tokens and -trace-file don't go together: the trace has the length of each answer"},
		{with("-share", "1/2"), "-share and -trace-file don't go together: split the file instead"},
		{with("-seed", "5"), "-seed is for a server that -target names"},
		{with("-target", "http://127.0.0.1:9", "-prompts", "x.jsonl"), "-prompts and -trace-file don't go together: a file of prompts has none for most lengths of a trace; without it they are made"},
		{with("-trace-scale", "0"), `trace_scale "0", want a decimal number from 1e-06 to 1e+06`},
		{with("-trace-scale", "NaN"), `trace_scale "NaN", want a decimal number from 1e-06 to 1e+06`},
		{with("-settle", "1h"), "trace=sample: -settle 1h0m0s excludes every request"},
		{[]string{"-trace-scale", "2"}, "-trace-scale is for -trace-file"},
		{[]string{"-rate", "1", "-trace-scale", "2"}, "-trace-scale is for -trace-file"},
		{[]string{"-trace-file", "no/such.csv"}, "-trace-file: open no/such.csv"},
		{[]string{"-trace-file", write("a.csv", head+"2023-11-16 18:15:46.68,0,5\n")}, `-trace-file: verify: a.csv:2:24: ContextTokens "0", want a whole number from 1 to 10000000: take out what was no answer`},
		{[]string{"-trace-file", write("b.csv", head+"2023-11-16 18:15:46.68,7000,5\n2023-11-16 18:15:47,7000,2000\n")}, `-trace-file: verify: b.csv:3: ContextTokens 7000 and GeneratedTokens 2000 are more than the model's context of 8192 tokens: take such lines out, or measure a model with a longer context`},
	} {
		t.Run(strings.Join(test.args, " "), func(t *testing.T) {
			t.Parallel()
			a := runAgain(t, "", append([]string{"-test.bench", "."}, test.args...)...)
			if a.code != 2 || !strings.Contains(a.stderr, test.want) {
				t.Errorf("exit code %d, stderr %s, want 2 and %q", a.code, a.stderr, test.want)
			}
			if len(a.files) > 0 {
				t.Errorf("evidence %q of a run that never was", a.files)
			}
		})
	}
}
