package verify

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// cell is one configuration from its plan to its closing record.
type cell struct {
	plan          Plan
	requests      []*Request
	lines         []int // of the requests
	served        []*Served
	servedLines   []int
	servedByID    map[string]*Served
	ids           map[string]bool // of the requests
	sampleNS      int64           // of the last sample of memory
	sum           Summary
	queueNS       int64
	strain        []string
	doubtful      bool // a record is wrong in itself: what it is compared with would only say so again
	configuration *Configuration
}

func (p *replay) plan(plan *Plan) {
	where := fmt.Sprintf("plan %d", plan.Config)
	servers := len(p.report.Servers)
	switch {
	case p.cell != nil:
		p.stop(where, "configuration %d isn't closed", p.cell.plan.Config)
		return
	case p.report.Corpus == nil || servers == 0:
		p.stop(where, "it stands before the corpus or the server")
		return
	}
	problems := len(p.report.Problems)
	if want := len(p.report.Results) + 1; plan.Config != want {
		p.problem(where, "configuration number %d, want %d", plan.Config, want)
	}
	if plan.Server != servers {
		p.problem(where, "server %d, want the last one, %d", plan.Server, servers)
	}
	if plan.GOMAXPROCS < 1 || plan.OutputTokens < 1 {
		p.problem(where, "gomaxprocs %d and output_tokens %d, want at least 1 of each", plan.GOMAXPROCS, plan.OutputTokens)
	}
	p.planLoad(where, plan)
	least := max(p.lastNS, p.report.Servers[servers-1].ReadyNS)
	if plan.PlannedNS < least || plan.PlannedNS > maxNS {
		p.problem(where, "planned_ns %d, want %d, where the server was ready and the configuration before had ended, to %d", plan.PlannedNS, least, int64(maxNS))
	}
	if p.report.Header.Target == nil && !plan.ExactOutput {
		p.problem(where, "exact_output is false, but this run's own server can always be held to it")
	}
	p.planName(where, plan)
	p.planOrder(where, plan)
	p.planProbe(where, plan)
	p.planAxes(where, plan)
	p.planPrompts(where, plan)
	p.planTarget(where, plan)
	p.cell = &cell{
		plan:       *plan,
		servedByID: map[string]*Served{},
		ids:        map[string]bool{},
		queueNS:    -1,
		doubtful:   len(p.report.Problems) > problems,
	}
	if p.report.Header.Target != nil {
		p.cell.sum.Foreign = &p.cell.plan
	}
	if plan.Load.Kind == LoadOpen {
		p.cell.sum.Open = &p.cell.plan
	}
}

// planTarget holds what only a plan for a target may say.
func (p *replay) planTarget(where string, plan *Plan) {
	if p.report.Header.Target == nil {
		if plan.PerPass != 0 || plan.MaxFailed != 0 && plan.Load.Kind != LoadOpen || plan.MaxCached != 0 {
			p.problem(where, "per_pass %d, max_failed %d, max_cached %d, want none of them: they are for targets", plan.PerPass, plan.MaxFailed, plan.MaxCached)
		}
		return
	}
	if plan.PerPass < 0 || plan.PerPass > len(plan.Prompts) {
		p.problem(where, "per_pass %d, want 0 to the plan's %d prompts", plan.PerPass, len(plan.Prompts))
	}
	if plan.MaxFailed < 0 || plan.MaxCached < 0 || plan.MaxCached > 100 {
		p.problem(where, "max_failed %d and max_cached %d, want 0 or more, and 0 to 100", plan.MaxFailed, plan.MaxCached)
	}
}

// pass returns the prompts of a pass, or of the warmup, -1.
func (plan *Plan) pass(pass int) []string {
	switch {
	case pass < 0:
		return plan.Warmups
	case plan.PerPass == 0:
		return plan.Prompts
	case pass >= len(plan.Prompts)/plan.PerPass:
		return nil
	}
	return plan.Prompts[pass*plan.PerPass : (pass+1)*plan.PerPass]
}

func (p *replay) planName(where string, plan *Plan) {
	parts := strings.Split(plan.Name, "/")
	axes := make([]Axis, 0, len(parts))
	seen := map[string]bool{}
	for _, part := range parts[1:] {
		key, value, found := strings.Cut(part, "=")
		if !found {
			continue
		}
		if seen[key] {
			p.problem(where, "name %q has the axis %s twice", plan.Name, key)
		}
		seen[key] = true
		axes = append(axes, Axis{key, value})
	}
	if !slices.Equal(axes, plan.Axes) {
		p.problem(where, "axes %v, but name %q gives %v", plan.Axes, plan.Name, axes)
	}
	if !strings.HasPrefix(plan.Name, "Benchmark") || strings.ContainsAny(plan.Name, " \t\n") {
		p.problem(where, "name %q isn't a benchmark's", plan.Name)
	}
	if dash := strings.LastIndexByte(plan.Name, '-'); dash >= 0 {
		if _, err := strconv.Atoi(plan.Name[dash+1:]); err == nil {
			p.problem(where, "name %q ends like a GOMAXPROCS suffix, which it must not have", plan.Name)
		}
	}
	key := plan.printedName()
	p.repeats[key]++
	if plan.Repetition != p.repeats[key] {
		p.problem(where, "repetition %d of %s, want %d", plan.Repetition, key, p.repeats[key])
	}
}

// printedName is the name as package testing prints it.
func (plan *Plan) printedName() string {
	if plan.GOMAXPROCS == 1 {
		return plan.Name
	}
	return plan.Name + "-" + strconv.Itoa(plan.GOMAXPROCS)
}

// planAxes holds the axes whose meaning is known here against the records
// that they are about. The input axis is held against each prompt.
func (p *replay) planAxes(where string, plan *Plan) {
	server := &p.report.Servers[len(p.report.Servers)-1]
	for _, axis := range plan.Axes {
		have := axis.Value
		switch axis.Key {
		case "threads":
			have = strconv.Itoa(server.IntraThreads)
			if p.report.Header.Target != nil {
				have = "nothing of a target's threads"
			}
		case "conc":
			have = strconv.Itoa(plan.Load.Conc)
		case "rate":
			have = plan.Load.RateAxis()
		case "trace":
			have = plan.Load.TraceAxis()
			if t := p.report.Header.Target; t != nil && t.Prompts == PromptsInexact {
				have = About + have
			}
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
	if len(plan.Warmups) == 0 {
		p.warn("%s, %s: no warmup", where, plan.Name)
	}
	server := &p.report.Servers[len(p.report.Servers)-1]
	target := p.report.Header.Target
	own := target == nil
	about := ""
	if !own && target.Prompts == PromptsInexact {
		about = About
	}
	salted := !own && target.SaltSeed != 0
	seen := map[string]bool{}
	for i, id := range slices.Concat(plan.Prompts, plan.Warmups) {
		warmup := i >= len(plan.Prompts)
		prompt := p.prompts[id]
		if prompt == nil {
			p.problem(where, "prompt %q isn't in the corpus", id)
			continue
		}
		if seen[id] && !salted && plan.Load.Kind != LoadOpen {
			p.problem(where, "prompt %q stands twice: a cache could answer it", id)
		}
		seen[id] = true
		if prompt.Warmup != warmup {
			p.problem(where, "prompt %q is planned as warmup=%t, but the corpus has warmup=%t", id, warmup, prompt.Warmup)
		}
		for _, axis := range plan.Axes {
			if axis.Key == "input" && axis.Value != about+strconv.Itoa(prompt.Input) {
				p.problem(where, "axis input=%s, but prompt %q has %s%d tokens", axis.Value, id, strings.Replace(about, About, About+" ", 1), prompt.Input)
			}
		}
		if !own {
			continue
		}
		output := plan.OutputTokens
		if i < len(plan.Load.Trace) {
			output = plan.Load.Trace[i].Output
		}
		if prompt.Input+output > server.ContextLimit {
			p.problem(where, "prompt %q of %d tokens and %d of output, but the server's context_limit is %d", id, prompt.Input, output, server.ContextLimit)
		}
		if prompt.IDs == nil {
			p.problem(where, "prompt %q has no ids in the corpus, but this run's own server can be held to them", id)
		}
		if i := outside(prompt.IDs, server.Model.Vocabulary); i >= 0 {
			p.problem(where, "prompt %q: ids[%d] = %d, want 0 to %d", id, i, prompt.IDs[i], server.Model.Vocabulary-1)
		}
	}
}

// outside returns the index of the first id outside a vocabulary, or -1.
func outside(ids []int32, vocabulary int) int {
	return slices.IndexFunc(ids, func(id int32) bool { return id < 0 || int(id) >= vocabulary })
}

// inCell says whether a record stands in its configuration.
func (p *replay) inCell(where string, config int) bool {
	switch {
	case p.cell == nil:
		p.stop(where, "it stands outside a configuration")
		return false
	case config != p.cell.plan.Config:
		p.stop(where, "config %d, want %d", config, p.cell.plan.Config)
		return false
	}
	return true
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
	c := p.cell
	err := p.checkRequest(r)
	switch {
	case r.ID == "":
		err = fmt.Errorf("its id is empty")
	case c.ids[r.ID]:
		err = fmt.Errorf("an earlier one has its id")
	}
	if err != nil {
		p.problem(where, "%v", err)
		c.doubtful = true
	}
	c.ids[r.ID] = true
	c.requests = append(c.requests, r)
	c.lines = append(c.lines, p.line)
	p.lastNS = max(p.lastNS, r.EndNS)
}

func (p *replay) served(s *Served) {
	where := "served " + s.ID
	if !p.inCell(where, s.Config) {
		return
	}
	c := p.cell
	err := s.check()
	switch {
	case p.report.Header.Target != nil:
		err = fmt.Errorf("a log of a server that this run didn't start")
	case c.servedByID[s.ID] != nil:
		err = fmt.Errorf("logged twice")
	}
	if err != nil {
		p.problem(where, "%v", err)
		c.doubtful = true
	}
	c.servedByID[s.ID] = s
	c.served = append(c.served, s)
	c.servedLines = append(c.servedLines, p.line)
}

func (p *replay) memory(m *Memory) {
	where := fmt.Sprintf("memory %d", m.Config)
	if !p.inCell(where, m.Config) {
		return
	}
	c := p.cell
	problems := len(p.report.Problems)
	switch {
	case p.report.Header.Target != nil:
		p.problem(where, "memory of a server that this run didn't start")
	case len(m.TimeNS) != len(m.RSSBytes) || len(m.TimeNS) == 0:
		p.problem(where, "%d time_ns and %d rss_bytes, want as many of each and at least 1", len(m.TimeNS), len(m.RSSBytes))
	}
	for i, ns := range m.TimeNS[:min(len(m.TimeNS), len(m.RSSBytes))] {
		if least := max(c.plan.PlannedNS, c.sampleNS+1); ns < least || ns > maxNS {
			p.problem(where, "time_ns[%d] = %d, want %d to %d", i, ns, least, int64(maxNS))
		}
		if size := m.RSSBytes[i]; size < 1 || size > 1<<50 {
			p.problem(where, "rss_bytes[%d] = %d, want 1 to 2^50", i, size)
		}
		c.sampleNS = ns
	}
	p.lastNS = max(p.lastNS, c.sampleNS)
	c.doubtful = c.doubtful || len(p.report.Problems) > problems
	c.sum.AddMemory(m)
}

func (p *replay) configuration(closing *Configuration) {
	where := fmt.Sprintf("configuration %d", closing.Config)
	p.trailer.Configurations++
	if !closing.Valid {
		p.trailer.Invalid++
	}
	if !p.inCell(where, closing.Config) {
		return
	}
	p.cell.configuration = closing
	p.judge(where, closing)
	p.closeCell()
}

// judge checks a closed configuration, from what its records say of each
// other to what the closing record says of them. It ends at the first kind of
// check that finds something, for what follows would only say it again.
func (p *replay) judge(where string, closing *Configuration) {
	if p.cell.doubtful {
		return
	}
	for _, check := range []func(string, *Configuration){
		p.checkConserved, p.checkSchedule, p.checkWitnesses, p.checkSlot, p.checkLoad, p.checkPhases, p.checkTurns, p.checkTotals, p.checkClient, p.checkInflight, p.checkPeak, p.checkValidity,
	} {
		problems := len(p.report.Problems)
		if check(where, closing); len(p.report.Problems) > problems {
			return
		}
	}
}

// checkConserved: the plan's warmups were sent once and its prompts once in
// each pass; where the run calls itself invalid, some may be missing.
func (p *replay) checkConserved(where string, closing *Configuration) {
	if closing.Passes < 0 || closing.Valid && closing.Passes == 0 {
		p.problem(where, "passes %d, want at least 1", closing.Passes)
		return
	}
	open := p.cell.plan.Load.Kind == LoadOpen // then checkSchedule looks at all but the warmup
	type turn struct {
		pass   int // -1 for the warmup
		prompt string
	}
	// How often a pass has a prompt. Only those are counted that are asked
	// for: a wrong number of passes may be any.
	counts := map[int]map[string]int{}
	want := func(t turn) int {
		if p.cell.plan.PerPass == 0 {
			t.pass = min(t.pass, 0)
		}
		if counts[t.pass] == nil {
			counts[t.pass] = map[string]int{}
			for _, id := range p.cell.plan.pass(t.pass) {
				counts[t.pass][id]++
			}
		}
		return counts[t.pass][t.prompt]
	}
	sent := map[turn]int{}
	for i, r := range p.cell.requests {
		t := turn{r.Pass, r.Prompt}
		if r.Phase == PhaseWarmup {
			t.pass = -1
		} else if r.Pass >= closing.Passes {
			p.problemAt(p.cell.lines[i], "request "+r.ID, "pass %d, want below the %d of its configuration", r.Pass, closing.Passes)
		}
		if open && t.pass >= 0 {
			continue
		}
		if sent[t]++; sent[t] == max(want(t), 1)+1 {
			p.problemAt(p.cell.lines[i], "request "+r.ID, "prompt %q was sent before in %s", r.Prompt, passName(t.pass))
		}
	}
	if !closing.Valid {
		return
	}
	passes := closing.Passes
	if open {
		passes = 0
	}
	for pass := -1; pass < passes; pass++ {
		prompts := p.cell.plan.pass(pass)
		if len(prompts) == 0 && pass >= 0 {
			p.problem(where, "the plan has no prompts for %s", passName(pass))
			return
		}
		for _, id := range prompts {
			if t := (turn{pass, id}); sent[t] < want(t) {
				p.problem(where, "prompt %q was not sent in %s", id, passName(pass))
			}
		}
		if len(p.report.Problems) >= maxProblems {
			return
		}
	}
}

func passName(pass int) string {
	if pass < 0 {
		return "the warmup"
	}
	return fmt.Sprintf("pass %d", pass)
}

// checkSlot: one request holds the slot at a time, in the order of the queue.
func (p *replay) checkSlot(string, *Configuration) {
	type holder struct {
		*Served
		line int
	}
	var held []holder
	if p.slot != nil {
		held = append(held, holder{p.slot, 0})
	}
	for i, s := range p.cell.served {
		if s.SlotNS > 0 {
			held = append(held, holder{s, p.cell.servedLines[i]})
		}
	}
	// One whose client had left gives the slot on at once, on a coarse clock
	// within one tick, and the log has both in any order.
	slices.SortStableFunc(held, func(a, b holder) int {
		return cmp.Or(cmp.Compare(a.SlotNS, b.SlotNS), cmp.Compare(a.ReleaseNS, b.ReleaseNS), cmp.Compare(a.QueuedNS, b.QueuedNS))
	})
	for i := 1; i < len(held); i++ {
		before, after := held[i-1], held[i]
		where := "served " + after.ID
		if after.SlotNS < before.ReleaseNS {
			p.problemAt(after.line, where, "slot_ns %d lies before release_ns %d of %s, and the slot is one", after.SlotNS, before.ReleaseNS, before.ID)
		}
		if after.QueuedNS < before.QueuedNS {
			p.problemAt(after.line, where, "queued_ns %d lies before that of %s, %d, which got the slot before it", after.QueuedNS, before.ID, before.QueuedNS)
		}
	}
	if len(held) > 0 {
		p.slot = held[len(held)-1].Served
	}
}

// checkLoad: in a closed loop a client's request is due when its last one has
// ended. As many clients as the plan has are then all that can be under way.
func (p *replay) checkLoad(where string, _ *Configuration) {
	if p.cell.plan.Load.Kind == LoadOpen {
		return
	}
	order := make([]int, len(p.cell.requests))
	for i := range order {
		order[i] = i
	}
	requests := p.cell.requests
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(requests[a].StartNS, requests[b].StartNS) })
	last := map[int]*Request{} // by client
	for _, i := range order {
		r := requests[i]
		if before := last[r.Client]; before != nil && r.ScheduledNS < before.EndNS {
			p.problemAt(p.cell.lines[i], "request "+r.ID, "scheduled_ns %d lies before the end of its client's request %s, %d", r.ScheduledNS, before.ID, before.EndNS)
		}
		last[r.Client] = r
	}
	if conc := p.cell.plan.Load.Conc; conc <= len(p.cell.plan.pass(0)) && p.cell.configuration.Valid {
		if most := inFlight(requests); most < conc {
			p.warn("%s, %s: at most %d requests were under way at once, though conc is %d", where, p.cell.plan.Name, most, conc)
		}
	}
}

// inFlight returns how many measured requests were under way at once at most.
func inFlight(requests []*Request) (most int) {
	type edge struct {
		ns    int64
		delta int
	}
	var edges []edge
	for _, r := range requests {
		if r.Phase == PhaseMeasured {
			edges = append(edges, edge{r.StartNS, 1}, edge{r.EndNS, -1})
		}
	}
	slices.SortFunc(edges, func(a, b edge) int { return cmp.Or(cmp.Compare(a.ns, b.ns), a.delta-b.delta) })
	now := 0
	for _, e := range edges {
		now += e.delta
		most = max(most, now)
	}
	return most
}

// checkPhases: the warmup is over before the first pass starts, and each pass
// before the next.
func (p *replay) checkPhases(where string, _ *Configuration) {
	type span struct {
		pass        int
		first, last int64
	}
	var spans []span
	at := map[int]int{} // pass to index
	for _, r := range p.cell.requests {
		pass := r.Pass
		if r.Phase == PhaseWarmup {
			pass = -1
		}
		i, found := at[pass]
		if !found {
			i = len(spans)
			at[pass] = i
			spans = append(spans, span{pass, r.StartNS, r.EndNS})
		}
		spans[i].first = min(spans[i].first, r.StartNS)
		spans[i].last = max(spans[i].last, r.EndNS)
	}
	slices.SortFunc(spans, func(a, b span) int { return a.pass - b.pass })
	for i := 1; i < len(spans); i++ {
		if before, after := spans[i-1], spans[i]; after.first < before.last {
			p.problem(where, "%s starts at %d, before %s ends at %d", passName(after.pass), after.first, passName(before.pass), before.last)
		}
	}
}

// checkTurns: clients take prompts in the order of the plan, each after it has
// become free and before it starts. So no prompt starts before one that stands
// ahead of it was due.
func (p *replay) checkTurns(string, *Configuration) {
	if p.cell.plan.Load.Kind == LoadOpen {
		return
	}
	requests := p.cell.requests
	place := p.places()
	order := make([]int, len(requests))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int {
		x, y := requests[a], requests[b]
		return cmp.Or(cmp.Compare(x.Phase, y.Phase), cmp.Compare(x.Pass, y.Pass), cmp.Compare(place[a], place[b]))
	})
	var last *Request // of those so far in the pass, the one that was due last
	for _, i := range order {
		r := requests[i]
		if last != nil && (last.Phase != r.Phase || last.Pass != r.Pass) {
			last = nil
		}
		if last != nil && r.StartNS < last.ScheduledNS {
			p.problemAt(p.cell.lines[i], "request "+r.ID, "start_ns %d lies before prompt %q, which is ahead of %q in the plan, was due, %d", r.StartNS, last.Prompt, r.Prompt, last.ScheduledNS)
		}
		if last == nil || r.ScheduledNS > last.ScheduledNS {
			last = r
		}
	}
}

// places returns where in its pass each request stands. A target's plan may
// have a prompt twice, so there the request's own id tells.
func (p *replay) places() []int {
	place := map[string]int{}
	for i, id := range p.cell.plan.Prompts {
		place[id] = i
	}
	for i, id := range p.cell.plan.Warmups {
		place[id] = i
	}
	places := make([]int, len(p.cell.requests))
	for i, r := range p.cell.requests {
		places[i] = place[r.Prompt]
		if p.report.Header.Target != nil {
			places[i], _ = strconv.Atoi(r.ID[strings.LastIndexByte(r.ID, '.')+1:])
		}
	}
	return places
}

// checkTotals holds what the closing record says of its requests against them.
func (p *replay) checkTotals(where string, closing *Configuration) {
	c := p.cell
	for _, r := range c.requests {
		c.sum.Add(r)
		if s := c.servedByID[r.ID]; s != nil {
			c.sum.AddServed(r, s)
		}
	}
	if ns, ok := c.sum.QueueP50NS(); ok {
		c.queueNS = ns
	}
	want := *closing
	c.sum.Fill(&c.plan, &want)
	compare := func(name string, have, want int64) {
		if have != want {
			p.problem(where, "%s %d, but its records give %d", name, have, want)
		}
	}
	compare("measured", int64(closing.Measured), int64(want.Measured))
	compare("failed", int64(closing.Failed), int64(want.Failed))
	compare("warmup_failed", int64(closing.WarmupFailed), int64(want.WarmupFailed))
	compare("tokens", closing.Tokens, want.Tokens)
	compare("prompt_tokens", closing.PromptTokens, want.PromptTokens)
	compare("cached_tokens", closing.CachedTokens, want.CachedTokens)
	compare("begin_ns", closing.BeginNS, want.BeginNS)
	compare("end_ns", closing.EndNS, want.EndNS)
	compare("lead_ns", closing.LeadNS, want.LeadNS)
	for _, spans := range []struct {
		name       string
		have, want Spans
	}{{"spans.", closing.Spans, want.Spans}, {"excluded.", closing.Excluded, want.Excluded}} {
		have, want := spans.have.fields(), spans.want.fields()
		for i := range have {
			compare(spans.name+have[i].name, have[i].value, want[i].value)
		}
	}
	if (closing.Open == nil) != (want.Open == nil) {
		p.problem(where, "open is there: %t, want it for open loops and nothing else", closing.Open != nil)
	} else if want.Open != nil {
		if name, have, want := closing.Open.differs(want.Open); name != "" {
			compare("open."+name, have, want)
		}
	}
	compare("sampled.samples", int64(closing.Sampled.Samples), int64(want.Sampled.Samples))
	compare("sampled.max_bytes", closing.Sampled.MaxBytes, want.Sampled.MaxBytes)
	compare("sampled.sum_bytes", closing.Sampled.SumBytes, want.Sampled.SumBytes)
	compare("sampled.gap_ns", closing.Sampled.GapNS, want.Sampled.GapNS)
}

type spanField struct {
	name  string
	value int64
}

func (s *Spans) fields() []spanField {
	return []spanField{
		{"requests", int64(s.Requests)},
		{"delay_ns", s.DelayNS},
		{"connect_ns", s.ConnectNS},
		{"send_ns", s.SendNS},
		{"headers_ns", s.HeadersNS},
		{"events_ns", s.EventsNS},
		{"end_ns", s.EndNS},
		{"served", int64(s.Served)},
		{"arrive_ns", s.ArriveNS},
		{"read_ns", s.ReadNS},
		{"queue_ns", s.QueueNS},
		{"slot_ns", s.SlotNS},
		{"tokens", s.Tokens},
		{"delivery_ns", s.DeliveryNS},
		{"wait_ns", s.WaitNS},
	}
}

// checkPeak: the peak is no less than any sample. Kernels count a process's
// pages on each CPU and add up now and then, so that a sample can be ahead of
// the kernel's own mark by a little; then the sample is the peak.
func (p *replay) checkPeak(where string, closing *Configuration) {
	sampled := closing.Sampled
	switch {
	case closing.PeakSource != PeakVmHWM && closing.PeakSource != PeakMaxRSS && closing.PeakSource != Unmeasured:
		p.problem(where, "peak_source %q is unknown", closing.PeakSource)
	case closing.PeakBytes < 0 || (closing.PeakBytes == 0) != (closing.PeakSource == Unmeasured):
		p.problem(where, "peak_bytes %d with peak_source %q, want a size with its source or 0 with %q", closing.PeakBytes, closing.PeakSource, Unmeasured)
	case closing.PeakBytes > 0 && p.report.Header.Target != nil:
		p.problem(where, "peak_bytes %d of a server that this run didn't start", closing.PeakBytes)
	case closing.PeakBytes > 0 && closing.PeakBytes < sampled.MaxBytes:
		p.problem(where, "peak_bytes %d, but a sample has %d", closing.PeakBytes, sampled.MaxBytes)
	case closing.Valid && closing.PeakBytes > 0 && sampled.Samples == 0:
		p.problem(where, "peak_bytes %d without a sample of memory", closing.PeakBytes)
	}
}

func (p *replay) checkValidity(where string, closing *Configuration) {
	sum := &p.cell.sum
	if closing.Valid != (len(closing.Reasons) == 0) || slices.Contains(closing.Reasons, "") {
		p.problem(where, "valid is %t with the reasons %q, want none or at least one that says why", closing.Valid, closing.Reasons)
		return
	}
	if !closing.Valid {
		if len(closing.Metrics) > 0 {
			p.problem(where, "it is invalid and has %d metrics, want none", len(closing.Metrics))
		}
		return
	}
	plan := &p.cell.plan
	if closing.Open != nil {
		if missed := closing.Open.Missed(&plan.Load); missed != "" {
			p.problem(where, "it is called valid, but %s", missed)
			return
		}
		if plan.Probe == 0 {
			p.warnFloor(where, closing.Measured-closing.Failed)
		}
	}
	if cached := sum.CachedPercent(); cached > float64(plan.MaxCached) {
		p.problem(where, "it is called valid, but a cache answered %.1f %% of its prompts, more than max_cached %d", cached, plan.MaxCached)
		return
	}
	if sum.Failed > plan.MaxFailed || sum.WarmupFailed > 0 || sum.Failed > 0 && sum.Failed == sum.Measured {
		p.problem(where, "it is called valid, but %d of %d measured requests and %d warmups failed", sum.Failed, sum.Measured, sum.WarmupFailed)
		return
	}
	want := sum.Metrics(closing.PeakBytes, p.report.Header.HourlyUSD)
	for i := range max(len(want), len(closing.Metrics)) {
		switch {
		case i >= len(closing.Metrics):
			p.problem(where, "metric %s is missing, its records give %v", want[i].Unit, want[i].Value)
		case i >= len(want):
			p.problem(where, "metric %s = %v, but its records don't define it", closing.Metrics[i].Unit, closing.Metrics[i].Value)
		case closing.Metrics[i] != want[i]:
			p.problem(where, "metric %s = %v, but its records give %s = %v", closing.Metrics[i].Unit, closing.Metrics[i].Value, want[i].Unit, want[i].Value)
		}
	}
}
