package verify

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// What a run set out to measure, by its flags, against what is in the file.
// Less may have its reasons, -bench with a pattern say; so what is missing is
// a doubt, and no contradiction.

// measured is one line of a benchmark: what its axes are, and which repetition.
type measured struct {
	axes       []Axis
	repetition int
}

// warnMissing names combinations of the axes, and repetitions, that the flags
// ask for and the file doesn't have.
func (p *replay) warnMissing() {
	if p.report.Header.Target != nil {
		return
	}
	var configurations, searches []measured
	for _, c := range p.report.Results {
		if c.Plan.Probe == 0 {
			configurations = append(configurations, measured{c.Plan.Axes, c.Plan.Repetition})
		}
	}
	for _, s := range p.report.Saturations {
		searches = append(searches, measured{s.Axes, s.Repetition})
	}
	p.warnFewer("configurations", configurations)
	p.warnFewer("searches", searches)
}

// warnFewer does so for one benchmark; one that wasn't run at all isn't missed.
func (p *replay) warnFewer(noun string, list []measured) {
	if len(list) == 0 {
		return
	}
	flags := map[string]string{}
	for _, f := range p.report.Header.Flags {
		flags[f.Name] = f.Value
	}
	// Every axis that has a flag of its name with a list of numbers.
	wanted := []string{""}
	var keys []string
	for _, axis := range list[0].axes {
		values, ok := numbers(flags[axis.Key])
		if !ok {
			continue
		}
		keys = append(keys, axis.Key)
		var longer []string
		for _, before := range wanted {
			for _, value := range values {
				longer = append(longer, strings.TrimPrefix(before+"/"+axis.Key+"="+value, "/"))
			}
		}
		wanted = longer
	}
	repetitions := map[string]int{}
	for _, m := range list {
		var parts []string
		for _, axis := range m.axes {
			if slices.Contains(keys, axis.Key) {
				parts = append(parts, axis.Key+"="+axis.Value)
			}
		}
		name := strings.Join(parts, "/")
		repetitions[name] = max(repetitions[name], m.repetition)
	}
	count, err := strconv.Atoi(flags["test.count"])
	if err != nil || count < 1 {
		count = 1
	}
	var missing []string
	for _, name := range wanted {
		if have := repetitions[name]; have < count {
			missing = append(missing, fmt.Sprintf("%s (%d of %d)", strings.TrimPrefix(name, "/"), have, count))
		}
	}
	if len(missing) > 0 {
		p.warn("the flags ask for more than was measured: of %d %s too few repetitions of %s", len(wanted), noun, strings.Join(missing, ", "))
	}
}

// numbers splits a flag's value such as 1,2.
func numbers(list string) (values []string, ok bool) {
	values = strings.Split(list, ",")
	for _, v := range values {
		if _, err := strconv.ParseFloat(v, 64); err != nil {
			return nil, false
		}
	}
	return values, true
}
