package verify

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"fmt"
	"strings"
)

// Configurations that are measured one after the other disturb each other: a
// machine warms up, a disk's cache fills. In a random order that doesn't fall
// on the same ones in every run. The order follows from a seed and the names
// alone, and that of any two of them from those two: so a run that was
// filtered or cut short can be checked as far as it went.

// CompareOrder compares two configurations' places in the random order of a
// seed, by their names without the GOMAXPROCS suffix: by SHA-256 of "order SEED
// NAME". What belongs to one name, its repetitions say, isn't ordered by it.
func CompareOrder(seed int64, a, b string) int {
	x, y := orderKey(seed, a), orderKey(seed, b)
	return cmp.Or(bytes.Compare(x[:], y[:]), strings.Compare(a, b))
}

func orderKey(seed int64, name string) [sha256.Size]byte {
	return sha256.Sum256(fmt.Appendf(nil, "order %d %s", seed, name))
}

// planOrder holds a plan's place in the file against the header's seed. The
// configurations of one benchmark are ordered, and those of another are by
// themselves.
func (p *replay) planOrder(where string, plan *Plan) {
	seed := p.report.Header.OrderSeed
	if seed == 0 {
		return
	}
	if p.ordered == nil {
		p.ordered = map[string]string{}
	}
	name := plan.Name
	if plan.Probe > 0 { // searches are ordered; a probe follows from those before it
		name = plan.probeOf()
	}
	benchmark, _, _ := strings.Cut(name, "/")
	if last := p.ordered[benchmark]; last != "" && CompareOrder(seed, last, name) > 0 {
		p.problem(where, "%s comes after %s, but by order_seed %d it goes before it", name, last, seed)
	}
	p.ordered[benchmark] = name
}
