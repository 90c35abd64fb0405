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

// warnMissing names combinations of the axes, and repetitions, that the flags
// ask for and the file doesn't have.
func (p *replay) warnMissing() {
	r := p.report
	if len(r.Results) == 0 || r.Header.Target != nil {
		return
	}
	flags := map[string]string{}
	for _, f := range r.Header.Flags {
		flags[f.Name] = f.Value
	}
	// Every axis that has a flag of its name with a list of numbers.
	wanted := []string{""}
	var keys []string
	for _, axis := range r.Results[0].Plan.Axes {
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
	for _, c := range r.Results {
		var parts []string
		for _, axis := range c.Plan.Axes {
			if slices.Contains(keys, axis.Key) {
				parts = append(parts, axis.Key+"="+axis.Value)
			}
		}
		name := strings.Join(parts, "/")
		repetitions[name] = max(repetitions[name], c.Plan.Repetition)
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
		p.warn("the flags ask for more than was measured: of %d configurations too few repetitions of %s", len(wanted), strings.Join(missing, ", "))
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
