package verify

import (
	"maps"
	"slices"
	"testing"
)

// targetAndBad is a run on somebody else's server with all that a record of
// one may have: kept connections, a cache that answers a little, reasoning, a
// failure that is borne, and a configuration that failed.
func targetAndBad() *file {
	f := goodAndBad()
	targeted(f)
	f.header().Target.Reuse = true
	f.request("1.0.1").Reused = true
	cached := 1
	f.request("1.0.0").Usage.CachedTokens = &cached
	f.request("1.0.0").EventKinds, f.request("1.0.0").Reasoning = "rrcccod", "Let me think."
	f.plan(1).MaxCached = 25
	f.plan(2).ExactOutput = false
	shorten(f.request("2.0.1"), nil, 3)
	f.request("2.0.1").Finish = "stop"
	f.plan(3).MaxFailed = 1
	fail(f, "3.1.1", FailStatus, "429 Too Many Requests: later")
	f.request("3.1.1").Status = 429
	for _, id := range []string{"4.1.0", "4.1.2"} {
		f.request(id).PromptIDs = nil
	}
	each(f, func(c *Configuration) { f.recompute(c.Config) })
	return f
}

// ofATarget are the fields of a target's evidence that can be changed
// unnoticed, beside those that can be in any.
//
// Nobody here knows that server: what its answers say beyond what can be
// counted has no second witness.
var ofATarget = map[string]string{
	"header.target.url":           "where it was is a claim; that it is a URL without a password is checked",
	"header.target.proxied":       "how it was reached is a claim, for stamps are of whatever answered",
	"header.target.software":      "its own word",
	"header.target.insecure":      "as header.target.proxied",
	"header.target.key_from":      "a name",
	"header.target.headers":       "what was sent besides is a claim; only that these are names is checked",
	"header.target.headers[]":     "as header.target.headers",
	"header.target.fields":        "as header.target.headers",
	"header.target.fields[].name": "as header.target.headers",
	"header.target.optional":      "as header.target.headers",
	"header.target.optional[]":    "as header.target.headers",
	"plan.exact_output":           "a bound that its answers keep, or that none was set where they are all as long",
	"plan.max_cached":             "a bound that its answers keep",
	"plan.max_failed":             "a bound that its answers keep; whether there is one shows on the line",
	"plan.prompts":                "of an invalid configuration, where requests may be missing",
	"plan.warmups":                "as plan.prompts",
	"corpus.prompts[].ids":        "of the shortest prompts, all of whose ids a salt replaces; the pool that it is drawn from stays the same",
	"corpus.prompts[].ids[]":      "as corpus.prompts[].ids, of an id that another prompt has",
	"request.finish":              "its own word; an exact length is counted",
	"request.text":                "its own word: what tokens it has is its tokenizer's to say",
	"request.reasoning":           "as request.text; which events were reasoning is recorded apart from it",
	"request.token_ids":           "its own word, of which the number counts",
	"request.token_ids[]":         "as request.token_ids",
	"request.prompt_ids":          "it need not return them; if it does they are those that were sent",
	"request.reused":              "how it was connected; without reuse none may be",
	"request.usage.cached_tokens": "none is the same as not told",

	"failed request.token_ids":               "as far as it got",
	"failed request.token_ids[]":             "as far as it got",
	"failed request.usage.prompt_tokens":     "as far as it got",
	"failed request.usage.completion_tokens": "as far as it got",
	"failed request.usage.cached_tokens":     "as far as it got",
}

func TestEveryFieldOfATargetBears(t *testing.T) {
	used := everyFieldBears(t, linesOf(targetAndBad()), ofATarget)
	for _, path := range slices.Sorted(maps.Keys(ofATarget)) {
		if !used[path] && stride == 1 {
			t.Errorf("%s is called informational, but every change of it was noticed", path)
		}
	}
}
