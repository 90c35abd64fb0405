package verify

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// cell is one configuration from its plan to its closing record.
type cell struct {
	plan          Plan
	line          int // of the plan
	requests      []*Request
	lines         []int // of the requests
	served        []*Served
	servedLines   []int
	samples       int
	sampleNS      int64
	sampledPeak   int64
	configuration *Configuration
}

func (p *replay) plan(plan *Plan) {
	where := fmt.Sprintf("plan %d", plan.Config)
	if p.cell != nil {
		p.problem(where, "configuration %d isn't closed", p.cell.plan.Config)
		p.closeCell()
	}
	servers := len(p.report.Servers)
	if p.report.Corpus == nil || servers == 0 {
		p.problem(where, "it stands before the corpus or the server")
		p.broken = true
		return
	}
	p.cell = &cell{plan: *plan, line: p.line}
	if want := len(p.report.Results) + 1; plan.Config != want {
		p.problem(where, "configuration number %d, want %d", plan.Config, want)
	}
	if plan.Server != servers {
		p.problem(where, "server %d, want the last one, %d", plan.Server, servers)
	}
	parts := strings.Split(plan.Name, "/")
	axes := make([]Axis, 0, len(parts))
	for _, part := range parts[1:] {
		if key, value, found := strings.Cut(part, "="); found {
			axes = append(axes, Axis{key, value})
		}
	}
	if !slices.Equal(axes, plan.Axes) || !strings.HasPrefix(plan.Name, "Benchmark") {
		p.problem(where, "name %q gives the axes %v, want %v", plan.Name, axes, plan.Axes)
	}
	key := fmt.Sprintf("%s-%d", plan.Name, plan.GOMAXPROCS)
	p.repeats[key]++
	if plan.Repetition != p.repeats[key] {
		p.problem(where, "repetition %d of %s, want %d", plan.Repetition, plan.Name, p.repeats[key])
	}
	if plan.GOMAXPROCS < 1 || plan.OutputTokens < 1 {
		p.problem(where, "gomaxprocs %d and output_tokens %d, want at least 1 of each", plan.GOMAXPROCS, plan.OutputTokens)
	}
	if plan.Load.Kind != "closed" || plan.Load.Conc < 1 {
		p.problem(where, "load %q with conc %d, want \"closed\" with at least 1", plan.Load.Kind, plan.Load.Conc)
	}
	if plan.PlannedNS < p.lastNS {
		p.problem(where, "planned_ns %d lies before the end of the configuration before, %d", plan.PlannedNS, p.lastNS)
	}
	p.planAxes(where, plan)
	p.planPrompts(where, plan)
}

// planAxes holds the axes whose meaning is known here against the records
// that they are about.
func (p *replay) planAxes(where string, plan *Plan) {
	for _, axis := range plan.Axes {
		have := ""
		switch axis.Key {
		case "threads":
			have = strconv.Itoa(p.report.Servers[len(p.report.Servers)-1].IntraThreads)
		case "conc":
			have = strconv.Itoa(plan.Load.Conc)
		default:
			continue // input is held against each prompt
		}
		if have != axis.Value {
			p.problem(where, "axis %s=%s, but the record says %s", axis.Key, axis.Value, have)
		}
	}
}

func (p *replay) planPrompts(where string, plan *Plan) {
	if len(plan.Prompts) == 0 {
		p.problem(where, "no prompts")
	}
	seen := map[string]bool{}
	for i, id := range slices.Concat(plan.Prompts, plan.Warmups) {
		warmup := i >= len(plan.Prompts)
		prompt := p.prompts[id]
		switch {
		case prompt == nil:
			p.problem(where, "prompt %q isn't in the corpus", id)
			continue
		case seen[id]:
			p.problem(where, "prompt %q stands twice: a cache could answer it, or a warmup be measured", id)
		case prompt.Warmup != warmup:
			p.problem(where, "prompt %q is a warmup of the corpus: %t, want %t", id, prompt.Warmup, warmup)
		}
		seen[id] = true
		for _, axis := range plan.Axes {
			if axis.Key == "input" && axis.Value != strconv.Itoa(prompt.Input) {
				p.problem(where, "axis input=%s, but prompt %q has %d tokens", axis.Value, id, prompt.Input)
			}
		}
	}
}

func (p *replay) request(r *Request) {
	where := "request " + r.ID
	p.trailer.Requests++
	if r.Failure != nil {
		p.trailer.Failed++
	}
	n, _ := r.Tokens()
	p.trailer.Tokens += int64(n)
	if !p.inCell(where, r.Config) {
		return
	}
	if p.ids[r.ID] || r.ID == "" {
		p.problem(where, "its id isn't its own")
	}
	p.ids[r.ID] = true
	p.cell.requests = append(p.cell.requests, r)
	p.cell.lines = append(p.cell.lines, p.line)
}

func (p *replay) served(s *Served) {
	if p.inCell("served "+s.ID, s.Config) {
		p.cell.served = append(p.cell.served, s)
		p.cell.servedLines = append(p.cell.servedLines, p.line)
	}
}

func (p *replay) inCell(where string, config int) bool {
	switch {
	case p.cell == nil:
		p.problem(where, "it stands outside a configuration")
		p.broken = true
		return false
	case config != p.cell.plan.Config:
		p.problem(where, "config %d, want %d", config, p.cell.plan.Config)
		return false
	}
	return true
}

func (p *replay) memory(m *Memory) {
	where := fmt.Sprintf("memory of configuration %d", m.Config)
	if !p.inCell(where, m.Config) {
		return
	}
	if len(m.TimeNS) != len(m.RSSBytes) || len(m.TimeNS) == 0 {
		p.problem(where, "%d times and %d sizes", len(m.TimeNS), len(m.RSSBytes))
		return
	}
	for i, ns := range m.TimeNS {
		if ns < p.cell.plan.PlannedNS || ns <= p.cell.sampleNS {
			p.problem(where, "time_ns[%d] = %d isn't later than the plan and the sample before", i, ns)
		}
		if m.RSSBytes[i] < 1 {
			p.problem(where, "rss_bytes[%d] = %d", i, m.RSSBytes[i])
		}
		p.cell.sampleNS = ns
		p.cell.samples++
		p.cell.sampledPeak = max(p.cell.sampledPeak, m.RSSBytes[i])
	}
}

func (p *replay) configuration(c *Configuration) {
	where := fmt.Sprintf("configuration %d", c.Config)
	p.trailer.Configurations++
	if !c.Valid {
		p.trailer.Invalid++
	}
	if !p.inCell(where, c.Config) {
		return
	}
	p.cell.configuration = c
	p.judge(where, c)
	p.lastNS = max(p.lastNS, p.cell.sampleNS)
	for _, r := range p.cell.requests {
		p.lastNS = max(p.lastNS, r.EndNS)
	}
	p.closeCell()
}

// judge checks a closed configuration.
func (p *replay) judge(where string, c *Configuration) {
	var sum Summary
	for i, r := range p.cell.requests {
		if err := p.checkRequest(r); err != nil {
			p.problemAt(p.cell.lines[i], "request "+r.ID, "%v", err)
		}
		sum.Add(r)
	}
	p.checkWitnesses(c.Valid)
	p.checkSlot()
	p.checkLoad()
	p.checkPhases()
	if c.Valid {
		p.checkPasses(where, c)
	}

	have := [...]int64{int64(c.Measured), int64(c.Failed), int64(c.WarmupFailed), c.Tokens, c.BeginNS, c.EndNS}
	want := [...]int64{int64(sum.Measured), int64(sum.Failed), int64(sum.WarmupFailed), sum.Tokens, sum.BeginNS, sum.EndNS}
	if have != want {
		p.problem(where, "measured, failed, warmup_failed, tokens, begin_ns, end_ns are %v, its requests give %v", have, want)
	}
	p.checkPeak(where, c)
	p.checkValidity(where, c, &sum)
}

func (p *replay) checkPeak(where string, c *Configuration) {
	switch {
	case c.PeakBytes < 0 || (c.PeakBytes == 0) != (c.PeakSource == Unmeasured):
		p.problem(where, "peak_bytes %d with source %q", c.PeakBytes, c.PeakSource)
	case c.PeakBytes > 0 && c.PeakBytes < p.cell.sampledPeak:
		p.problem(where, "peak_bytes %d, but a sample has %d", c.PeakBytes, p.cell.sampledPeak)
	case c.Valid && c.PeakBytes > 0 && p.cell.samples == 0:
		p.problem(where, "peak_bytes %d without a sample of memory", c.PeakBytes)
	}
}

func (p *replay) checkValidity(where string, c *Configuration, sum *Summary) {
	if c.Valid != (len(c.Reasons) == 0) {
		p.problem(where, "valid is %t with %d reasons against it", c.Valid, len(c.Reasons))
	}
	if !c.Valid {
		if len(c.Metrics) > 0 {
			p.problem(where, "it is invalid and has %d metrics, want none", len(c.Metrics))
		}
		return
	}
	if sum.Failed > 0 || sum.WarmupFailed > 0 || sum.Measured == 0 {
		p.problem(where, "it is called valid with %d measured requests, %d of them failed, %d warmups failed", sum.Measured, sum.Failed, sum.WarmupFailed)
	}
	want := sum.Metrics(c.PeakBytes, p.report.Header.HourlyUSD)
	if slices.Equal(c.Metrics, want) {
		return
	}
	for i := range max(len(want), len(c.Metrics)) {
		switch {
		case i >= len(c.Metrics):
			p.problem(where, "metric %s is missing, want %v", want[i].Unit, want[i].Value)
		case i >= len(want):
			p.problem(where, "metric %s = %v is not defined by the requests", c.Metrics[i].Unit, c.Metrics[i].Value)
		case c.Metrics[i] != want[i]:
			p.problem(where, "metric %s = %v, want %s = %v", c.Metrics[i].Unit, c.Metrics[i].Value, want[i].Unit, want[i].Value)
		}
	}
}

// checkPasses: each pass has every prompt of the plan once.
func (p *replay) checkPasses(where string, c *Configuration) {
	seen := map[string]int{}
	for _, r := range p.cell.requests {
		if r.Phase != PhaseMeasured {
			seen["warmup/"+r.Prompt]++
			continue
		}
		if r.Pass < 0 || r.Pass >= c.Passes {
			p.problem(where, "request %s is of pass %d, want below %d", r.ID, r.Pass, c.Passes)
		}
		seen[fmt.Sprintf("%d/%s", r.Pass, r.Prompt)]++
	}
	if c.Passes < 1 {
		p.problem(where, "passes %d, want at least 1", c.Passes)
	}
	once := func(key, what string) {
		if n := seen[key]; n != 1 {
			p.problem(where, "%s was sent %d times, want once", what, n)
		}
		delete(seen, key)
	}
	for pass := range c.Passes {
		for _, id := range p.cell.plan.Prompts {
			once(fmt.Sprintf("%d/%s", pass, id), fmt.Sprintf("prompt %q of pass %d", id, pass))
		}
		if len(p.report.Problems) >= maxProblems {
			return
		}
	}
	for _, id := range p.cell.plan.Warmups {
		once("warmup/"+id, fmt.Sprintf("warmup %q", id))
	}
	for key, n := range seen {
		p.problem(where, "%d requests of %q are not in the plan", n, key)
	}
}

// checkPhases: warmups are over before the first measured request starts, a
// pass before the next.
func (p *replay) checkPhases() {
	type span struct{ first, last int64 }
	spans := map[int]span{} // by pass, -1 for the warmup
	for _, r := range p.cell.requests {
		pass := r.Pass
		if r.Phase == PhaseWarmup {
			pass = -1
		}
		s, found := spans[pass]
		if !found || r.StartNS < s.first {
			s.first = r.StartNS
		}
		s.last = max(s.last, r.EndNS)
		spans[pass] = s
	}
	passes := make([]int, 0, len(spans))
	for pass := range spans {
		passes = append(passes, pass)
	}
	slices.Sort(passes)
	name := func(pass int) string {
		if pass < 0 {
			return "the warmup"
		}
		return fmt.Sprintf("pass %d", pass)
	}
	for i := 1; i < len(passes); i++ {
		if before, after := spans[passes[i-1]], spans[passes[i]]; after.first < before.last {
			p.problem(fmt.Sprintf("configuration %d", p.cell.plan.Config), "%s starts at %d, before %s ends at %d",
				name(passes[i]), after.first, name(passes[i-1]), before.last)
		}
	}
}

// checkLoad: no more requests under way than the load allows, and none
// overlaps another of its own client.
func (p *replay) checkLoad() {
	type edge struct {
		ns    int64
		delta int
	}
	where := fmt.Sprintf("configuration %d", p.cell.plan.Config)
	var edges []edge
	byClient := map[int][]*Request{}
	for _, r := range p.cell.requests {
		edges = append(edges, edge{r.StartNS, 1}, edge{r.EndNS, -1})
		byClient[r.Client] = append(byClient[r.Client], r)
	}
	slices.SortFunc(edges, func(a, b edge) int {
		if a.ns != b.ns {
			return compare(a.ns, b.ns)
		}
		return a.delta - b.delta
	})
	inFlight, most := 0, 0
	for _, e := range edges {
		inFlight += e.delta
		most = max(most, inFlight)
	}
	if conc := p.cell.plan.Load.Conc; most > conc {
		p.problem(where, "%d requests were under way at once, want at most %d", most, conc)
	}
	for client, list := range byClient {
		slices.SortFunc(list, func(a, b *Request) int { return compare(a.StartNS, b.StartNS) })
		for i, r := range list {
			if i > 0 && r.StartNS < list[i-1].EndNS {
				p.problem(where, "requests %s and %s of client %d overlap", list[i-1].ID, r.ID, client)
			}
		}
	}
}

func compare(a, b int64) int {
	switch {
	case a < b:
		return -1
	case a > b:
		return 1
	}
	return 0
}

// checkSlot: one request holds the slot at a time, in the order of the queue.
func (p *replay) checkSlot() {
	var held []*Served
	for _, s := range p.cell.served {
		if s.SlotNS > 0 {
			held = append(held, s)
		}
	}
	slices.SortFunc(held, func(a, b *Served) int { return compare(a.SlotNS, b.SlotNS) })
	for i := 1; i < len(held); i++ {
		before, after := held[i-1], held[i]
		where := "served " + after.ID
		if after.SlotNS < before.ReleaseNS {
			p.problem(where, "slot_ns %d lies before release_ns %d of %s: the slot is one", after.SlotNS, before.ReleaseNS, before.ID)
		}
		if after.QueuedNS < before.QueuedNS {
			p.problem(where, "it queued at %d, before %s at %d, and got the slot after it", after.QueuedNS, before.ID, before.QueuedNS)
		}
	}
}
