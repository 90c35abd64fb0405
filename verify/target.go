package verify

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
)

// The checks of a run on a server that somebody else started: there is no
// second witness, so what its answers say of themselves is all that there is.

// target checks how a target was asked.
func (p *replay) target(t *Target) {
	problem := func(format string, args ...any) { p.problem("header", "target: "+format, args...) }
	if t.URL == "" || t.API != "completions" && t.API != "chat" {
		problem("url %q and api %q, want a URL and \"completions\" or \"chat\"", t.URL, t.API)
	}
	if strings.Contains(t.URL, "@") {
		problem("url %q may hold a password", t.URL)
	}
	switch t.Prompts {
	case PromptsIDs:
		if t.API == "chat" {
			problem("prompts %q in a chat, which has texts only", t.Prompts)
		}
	case PromptsTokenize, PromptsFile, PromptsInexact:
	default:
		problem("prompts %q, want %q, %q, %q or %q", t.Prompts, PromptsIDs, PromptsTokenize, PromptsFile, PromptsInexact)
	}
	if t.Prompts == PromptsFile && t.SaltSeed != 0 {
		problem("salt_seed %d, but a salt changes the length of a prompt from a file", t.SaltSeed)
	}
	if t.Prompts != PromptsFile && t.SaltSeed == 0 && !t.Repeats {
		problem("no salt_seed, and prompts may not be sent again: then only a file has enough of them")
	}
	if t.SaltSeed != 0 && t.Repeats {
		problem("salt_seed %d, yet prompts may be sent again", t.SaltSeed)
	}
	if t.SaltSeed < 0 {
		problem("salt_seed %d is negative", t.SaltSeed)
	}
	if !ascending(t.Headers) || slices.ContainsFunc(t.Headers, func(h string) bool { return strings.ContainsAny(h, ": ") }) {
		problem("headers %q, want their names, sorted, each once", t.Headers)
	}
	names := map[string]bool{}
	for _, f := range t.Fields {
		if names[f.Name] || f.Name == "" || !json.Valid([]byte(f.Value)) {
			problem("field %q stands twice, has no name, or isn't JSON: %s", f.Name, f.Value)
		}
		names[f.Name] = true
	}
	if !ascending(t.Optional) {
		problem("optional %q, want the names of fields, sorted, each once", t.Optional)
	}
	if strings.Contains(t.KeyFrom, "=") {
		problem("key_from %q, want the name of an environment variable", t.KeyFrom)
	}
}

// ascending reports whether names are sorted, none empty and none twice.
func ascending(names []string) bool {
	last := ""
	for _, name := range names {
		if name <= last {
			return false
		}
		last = name
	}
	return true
}

// checkSent holds the prompt as it was sent against the seed and the corpus,
// and sees that it was never sent before.
func (p *replay) checkSent(r *Request, prompt *Prompt) error {
	t := p.report.Header.Target
	if id := RequestID(r.Config, r.Phase, r.Pass, p.indexOf(r)); r.ID != id {
		return fmt.Errorf("its id isn't that of prompt %q in its pass", r.Prompt)
	}
	drawn := func(is func(draw string) bool) bool {
		for n := range Draws {
			if is(Draw(r.ID, n)) {
				return true
			}
		}
		return false
	}
	switch {
	case t.SaltSeed == 0:
		if r.SentIDs != nil || r.SentText != "" {
			return fmt.Errorf("sent_ids or sent_text without a salt_seed")
		}
	case t.Prompts == PromptsIDs:
		if p.pool == nil {
			p.pool = p.report.Corpus.Pool()
		}
		if len(p.pool) == 0 || r.SentText != "" || !drawn(func(draw string) bool {
			return slices.Equal(r.SentIDs, SaltedIDs(t.SaltSeed, draw, prompt.IDs, p.pool))
		}) {
			return fmt.Errorf("sent_ids aren't those of prompt %q with the salt of seed %d", r.Prompt, t.SaltSeed)
		}
	case t.Prompts == PromptsInexact:
		if r.SentIDs != nil || !drawn(func(draw string) bool { return r.SentText == SaltedText(t.SaltSeed, draw, prompt.Text) }) {
			return fmt.Errorf("sent_text isn't that of prompt %q with the salt of seed %d", r.Prompt, t.SaltSeed)
		}
	default:
		// Its words have one length, so that none is the beginning of another.
		if r.SentIDs != nil || !drawn(func(draw string) bool { return strings.HasPrefix(r.SentText, SaltText(t.SaltSeed, draw)) }) {
			return fmt.Errorf("sent_text doesn't begin with the salt of seed %d, %q", t.SaltSeed, SaltText(t.SaltSeed, r.ID))
		}
	}
	if t.Repeats {
		return nil
	}
	sent := SentSum(prompt, r.SentText, r.SentIDs)
	if before, found := p.sent[sent]; found {
		return fmt.Errorf("its prompt was sent before, by request %s: a cache could answer it", before)
	}
	p.sent[sent] = r.ID
	return nil
}

// indexOf returns the place that a request's id claims, if the plan has its
// prompt there, else -1.
func (p *replay) indexOf(r *Request) int {
	pass := r.Pass
	if r.Phase == PhaseWarmup {
		pass = -1
	}
	i := r.place()
	if p.cell.plan.Load.Kind == LoadOpen && pass >= 0 {
		if i >= 0 && p.cell.plan.promptAt(pass, i) != r.Prompt {
			i = -1
		}
		return i
	}
	if ids := p.cell.plan.pass(pass); i < 0 || i >= len(ids) || ids[i] != r.Prompt {
		return -1
	}
	return i
}

// checkForeign: what a target says of an answer that counts.
func (p *replay) checkForeign(r *Request, prompt *Prompt) error {
	t, plan := p.report.Header.Target, &p.cell.plan
	if r.Reused && !t.Reuse {
		return fmt.Errorf("reused is true, want a new connection for each request")
	}
	if f := plan.Judge(t, r, prompt); f != nil {
		return fmt.Errorf("no failure, yet %s: %s", f.Class, f.Message)
	}
	return nil
}

// Judge says why a proper answer of a target isn't what its configuration is
// about, or nil.
func (plan *Plan) Judge(t *Target, r *Request, prompt *Prompt) *Failure {
	fail := func(class, format string, args ...any) *Failure {
		return &Failure{class, fmt.Sprintf(format, args...)}
	}
	n, known := r.Tokens()
	sent := r.SentIDs
	if t.SaltSeed == 0 && t.Prompts == PromptsIDs {
		sent = prompt.IDs
	}
	switch {
	case t.Prompts != PromptsInexact && r.Usage == nil:
		return fail(FailUsage, "the server sent no usage, so the length of its prompt isn't proven")
	case t.Prompts != PromptsInexact && r.Usage.PromptTokens != prompt.Input:
		return fail(FailPrompt, "the server counted %d prompt tokens, want %d", r.Usage.PromptTokens, prompt.Input)
	case t.Prompts == PromptsIDs && r.PromptIDs != nil && !slices.Equal(r.PromptIDs, sent):
		return fail(FailPrompt, "the server's ids of the prompt are not those that were sent")
	case plan.ExactOutput && !known:
		return fail(FailUsage, "the server sent neither usage nor ids, so the length of its answer isn't known")
	case plan.ExactOutput && n != r.OutputTokens:
		return fail(FailShort, "%d tokens with finish reason %q, want %d", n, r.Finish, r.OutputTokens)
	}
	return nil
}
