package verify

import (
	"crypto/sha256"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Printed is the output of a benchmark run, as far as it bears on evidence.
type Printed struct {
	Name    string // of the file; stands in problems
	Config  []PrintedConfig
	Units   []PrintedUnit
	Results []PrintedResult
	Runs    []PrintedRun
}

// PrintedConfig is a "key: value" line.
type PrintedConfig struct {
	Line       int
	Key, Value string
}

// PrintedUnit is one setting of a "Unit" line, say tok/s better=higher.
type PrintedUnit struct {
	Line             int
	Unit, Key, Value string
}

// PrintedResult is one result line, or the note that there is none because
// the benchmark failed.
type PrintedResult struct {
	Line       int
	Name       string // as printed, so with a suffix -N where GOMAXPROCS wasn't 1
	Iterations int64
	Values     []PrintedValue // in the order of the line
	Failed     bool
}

// PrintedValue is a number, as it was printed, and its unit.
type PrintedValue struct {
	Text, Unit string
}

// PrintedRun is the line "Evidence: PATH sha256 SUM" that ends a run.
type PrintedRun struct {
	Line         int
	Path, SHA256 string
}

// ParsePrinted reads the output of go test -bench: results, and around them
// configuration and units. Every other line is ignored, but for what looks
// like a part of a result: other output has broken it, and a table made of
// the rest would be short of a row without a word. The error is a *Problem,
// or that of reading.
func ParsePrinted(name string, source io.Reader) (*Printed, error) {
	data, err := io.ReadAll(source)
	if err != nil {
		return nil, fmt.Errorf("verify: %s: %w", name, err)
	}
	p := printedParser{Printed: &Printed{Name: name}}
	number := 0
	for line := range strings.Lines(string(data)) {
		number++
		line = strings.TrimSuffix(strings.TrimSuffix(line, "\n"), "\r")
		if fault := p.line(number, line); fault != "" {
			return nil, &Problem{name, number, "", fault + ": " + strconv.Quote(line)}
		}
	}
	return p.Printed, nil
}

// printedParser knows what testing says twice. Of a repetition that fails after the
// first it says "--- FAIL: NAME" without the suffix of GOMAXPROCS, behind the
// name that it has printed or with -v on a line of its own, and then once more
// with the suffix. Of a first one, after which there are no others, it says so
// once.
type printedParser struct {
	*Printed
	again string // the last failure's name, as far as it may be said again
	whole bool   // with its suffix
}

// failed takes a line "--- FAIL: NAME" that has nothing before it.
func (p *printedParser) failed(number int, name string) {
	said, whole := p.again, p.whole
	p.again = ""
	switch {
	case said == name && whole:
	case said != "" && !whole && (said == name || said == bare(name)):
		p.Results[len(p.Results)-1].Name = name
	default:
		p.Results = append(p.Results, PrintedResult{Line: number, Name: name, Failed: true})
		p.again, p.whole = name, false
	}
}

// bare is a name without the suffix of GOMAXPROCS.
func bare(name string) string {
	if dash := strings.LastIndexByte(name, '-'); dash >= 0 && isCount(name[dash+1:]) {
		return name[:dash]
	}
	return name
}

func (p *printedParser) line(number int, line string) (fault string) {
	fields := strings.Fields(line)
	switch {
	case len(fields) == 0:
	case isBenchmarkName(fields[0]) && strings.HasPrefix(line, fields[0]):
		return p.result(number, line, fields)
	case len(fields) == 3 && fields[0] == "---" && fields[1] == "FAIL:" && isBenchmarkName(fields[2]):
		p.failed(number, fields[2])
	case fields[0] == "Unit" && len(fields) > 2:
		for _, setting := range fields[2:] {
			key, value, found := strings.Cut(setting, "=")
			if !found {
				return "a Unit line with a setting that isn't key=value"
			}
			p.Units = append(p.Units, PrintedUnit{number, fields[1], key, value})
		}
	case fields[0] == "Evidence:":
		rest, sum, found := strings.Cut(strings.TrimPrefix(line, "Evidence: "), " sha256 ")
		if !found || !isHex(sum, sha256.Size) {
			return "an evidence line without PATH sha256 SUM"
		}
		p.Runs = append(p.Runs, PrintedRun{number, rest, sum})
	case len(fields) > 2 && isCount(fields[0]) && strings.Contains(line, "\t"):
		if _, fault := parseValues(fields[1:]); fault == "" {
			return "the numbers of a result without its name: other output has broken the line"
		}
	default:
		if key, value, ok := cutConfig(line); ok {
			p.Config = append(p.Config, PrintedConfig{number, key, value})
		}
	}
	return ""
}

func (p *printedParser) result(number int, line string, fields []string) (fault string) {
	const broken = "a broken result line"
	name := fields[0]
	p.again = ""
	switch {
	case line == name:
		return "" // go test -v says so what it begins
	case len(fields) == 1:
		return broken + ", its numbers are missing"
	case fields[1] == "---":
		if len(fields) != 4 || fields[2] != "FAIL:" || fields[3] != name && fields[3] != bare(name) {
			return broken
		}
		p.again, p.whole = name, true
		p.Results = append(p.Results, PrintedResult{Line: number, Name: name, Failed: true})
		return ""
	case !isCount(fields[1]):
		return broken + fmt.Sprintf(", %q is no number of iterations", fields[1])
	}
	iterations, err := strconv.ParseInt(fields[1], 10, 64)
	if err != nil {
		return broken + fmt.Sprintf(", %q is no number of iterations", fields[1])
	}
	values, fault := parseValues(fields[2:])
	if fault != "" {
		return broken + ", " + fault
	}
	p.Results = append(p.Results, PrintedResult{Line: number, Name: name, Iterations: iterations, Values: values})
	return ""
}

func parseValues(fields []string) (values []PrintedValue, fault string) {
	if len(fields)%2 != 0 {
		return nil, fmt.Sprintf("%q has no unit", fields[len(fields)-1])
	}
	seen := map[string]bool{}
	for i := 0; i < len(fields); i += 2 {
		text, unit := fields[i], fields[i+1]
		value, err := strconv.ParseFloat(text, 64)
		if err != nil || math.IsInf(value, 0) || math.IsNaN(value) {
			return nil, fmt.Sprintf("%q is no number", text)
		}
		if seen[unit] {
			return nil, fmt.Sprintf("unit %s stands twice", unit)
		}
		seen[unit] = true
		values = append(values, PrintedValue{text, unit})
	}
	return values, ""
}

func isCount(s string) bool {
	return s != "" && strings.Trim(s, "0123456789") == "" && s[0] != '0'
}

// isBenchmarkName: as for package testing, what follows Benchmark isn't a
// lower-case letter.
func isBenchmarkName(s string) bool {
	rest, ok := strings.CutPrefix(s, "Benchmark")
	first, _ := utf8.DecodeRuneInString(rest)
	return ok && (rest == "" || !unicode.IsLower(first))
}

func cutConfig(line string) (key, value string, ok bool) {
	key, value, ok = strings.Cut(line, ":")
	if !ok || key == "" || strings.ContainsFunc(key, func(r rune) bool { return unicode.IsUpper(r) || unicode.IsSpace(r) }) {
		return "", "", false
	}
	first, _ := utf8.DecodeRuneInString(key)
	if !unicode.IsLower(first) || value != "" && value[0] != ' ' && value[0] != '\t' {
		return "", "", false
	}
	return key, strings.TrimSpace(value), true
}

// printedText is x as package testing prints it: four significant digits,
// none after the point from 999.95 on, and seven places below 0.001.
func printedText(x float64) string {
	// The places after the point are those with which the digits before
	// rounding reach four.
	places := 0
	if x != 0 {
		for _, least := range [...]float64{999.95, 99.995, 9.9995, 0.99995, 0.099995, 0.0099995, 0.00099995} {
			if math.Abs(x) >= least {
				break
			}
			places++
		}
	}
	return strconv.FormatFloat(x, 'f', places, 64)
}

// CheckPrinted holds printed lines against the configurations and saturations
// of r and adds what contradicts to r's problems. The k-th result of a name is
// that of its repetition k; a valid configuration that is no probe has one,
// and so has a valid saturation, with its passes as iterations and its metrics
// as testing rounds them, and no other result is there. ns/op
// and what -benchmem adds are testing's own and not looked at. Where lines
// "Evidence: PATH sha256 SUM" tell the runs of the output apart, that with this
// file's hash is the one.
func (r *Report) CheckPrinted(p *Printed) {
	before := len(r.Problems)
	r.checkPrinted(p)
	if len(r.Problems) > before {
		r.Verdict = Inconsistent
	}
}

func (r *Report) checkPrinted(p *Printed) {
	problem := func(line int, where, format string, args ...any) {
		r.Problems = append(r.Problems, &Problem{p.Name, line, where, fmt.Sprintf(format, args...)})
	}
	after, upTo := 0, math.MaxInt // the lines of this run
	for i, run := range p.Runs {
		if run.SHA256 == r.SHA256 {
			upTo = run.Line
			break
		}
		if after = run.Line; i == len(p.Runs)-1 {
			problem(run.Line, "", "evidence with sha256 %q, but the file has %q", run.SHA256, r.SHA256)
			return
		}
	}
	for _, c := range p.Config {
		if r.Header == nil || c.Line < after || c.Line > upTo {
			continue
		}
		if want := r.configValue(c.Key, c.Value); want != c.Value {
			problem(c.Line, "", "%s: %s, but the evidence has %s", c.Key, c.Value, want)
		}
	}
	for _, u := range p.Units {
		better := map[bool]string{true: "higher", false: "lower"}[HigherIsBetter(u.Unit)]
		known := slices.Concat(Units(), TargetUnits(), OpenUnits(), SaturationUnits())
		if slices.Contains(known, u.Unit) && u.Key == "better" && u.Value != better {
			problem(u.Line, "", "unit %s with better=%s, want %s", u.Unit, u.Value, better)
		}
	}
	results := map[string][]PrintedResult{} // by printed name
	for _, result := range p.Results {
		if result.Line > after && result.Line < upTo {
			results[result.Name] = append(results[result.Name], result)
		}
	}
	taken := map[int]bool{} // by line
	for _, c := range r.lines() {
		list := results[c.name]
		if c.repetition < 1 || c.repetition > len(list) {
			if c.valid {
				problem(0, c.where, "it is valid, but no line was printed for it")
			}
			continue
		}
		result := list[c.repetition-1]
		taken[result.Line] = true
		switch {
		case c.valid && result.Failed:
			problem(result.Line, c.where, "it is valid, but printed as failed")
		case !c.valid && !result.Failed:
			problem(result.Line, c.where, "a line was printed, but it isn't valid")
		case c.valid:
			for _, fault := range result.differs(c.passes, c.metrics) {
				problem(result.Line, c.where, "%s", fault)
			}
		}
	}
	for _, result := range p.Results {
		if result.Line > after && result.Line < upTo && !taken[result.Line] && !result.Failed {
			problem(result.Line, "", "%s has no configuration in the evidence", result.Name)
		}
	}
}

// resultLine is what has one result line, if it is valid.
type resultLine struct {
	name, where string
	repetition  int
	valid       bool
	passes      int
	metrics     []Metric
}

// lines returns what result lines there may be: one for each configuration
// that is no probe, and one for each search.
func (r *Report) lines() (out []resultLine) {
	for _, c := range r.Results {
		if c.Plan.Probe > 0 {
			continue
		}
		name := c.Plan.printedName()
		l := resultLine{name: name, repetition: c.Plan.Repetition, where: fmt.Sprintf("configuration %d, repetition %d of %s", c.Plan.Config, c.Plan.Repetition, name)}
		if c.Configuration != nil {
			l.valid, l.passes, l.metrics = c.Configuration.Valid, c.Configuration.Passes, c.Configuration.Metrics
		}
		out = append(out, l)
	}
	for _, s := range r.Saturations {
		name := s.printedName()
		out = append(out, resultLine{name, fmt.Sprintf("saturation, repetition %d of %s", s.Repetition, name), s.Repetition, s.Valid, s.Passes, s.Metrics})
	}
	return out
}

// configValue is what a configuration line must say by the evidence; have, if
// it doesn't know the key.
func (r *Report) configValue(key, have string) string {
	switch key {
	case "goos":
		return r.Header.Host.OS
	case "goarch":
		return r.Header.Host.Arch
	case "model":
		if r.Header.Target != nil {
			return r.Header.Target.Model
		}
		if len(r.Servers) > 0 {
			return r.Servers[0].Model.Describe()
		}
	case "api":
		if r.Header.Target != nil {
			return r.Header.Target.API
		}
	case "trace":
		for _, c := range r.Results {
			if file := c.Plan.Load.TraceFile; file != nil && file.describe() != have {
				return file.describe()
			}
		}
	case "slo-share":
		for _, s := range r.Saturations {
			if want := strconv.Itoa(s.Share); want != have {
				return want
			}
		}
	case "output-tokens":
		for _, c := range r.Results {
			if want := strconv.Itoa(c.Plan.OutputTokens); want != have {
				return want
			}
		}
	}
	return have
}

func (result *PrintedResult) differs(passes int, metrics []Metric) (faults []string) {
	if result.Iterations != int64(passes) {
		faults = append(faults, fmt.Sprintf("%d iterations, but passes %d", result.Iterations, passes))
	}
	left := map[string]string{}
	for _, v := range result.Values {
		left[v.Unit] = v.Text
	}
	for _, m := range metrics {
		switch text, found := left[m.Unit]; {
		case !found:
			faults = append(faults, fmt.Sprintf("%s is missing, want %s", m.Unit, printedText(m.Value)))
		case text != printedText(m.Value):
			faults = append(faults, fmt.Sprintf("%s %s, but %v prints as %s", text, m.Unit, m.Value, printedText(m.Value)))
		}
		delete(left, m.Unit)
	}
	for _, v := range result.Values {
		if _, extra := left[v.Unit]; extra && v.Unit != "ns/op" && v.Unit != "B/op" && v.Unit != "allocs/op" {
			faults = append(faults, fmt.Sprintf("%s %s is no metric of it", v.Text, v.Unit))
		}
	}
	return faults
}
