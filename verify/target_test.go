package verify

import (
	"slices"
	"testing"
)

func targetFile(change func(f *file)) []byte {
	f := good()
	targeted(f)
	change(f)
	return f.encode()
}

// What a run on somebody else's server may look like.
func TestTargetEvidence(t *testing.T) {
	for _, test := range []struct {
		name   string
		change func(f *file)
		units  []string // of configuration 1
	}{
		{"salted ids", func(*file) {}, []string{UnitGap50, UnitE2E95, UnitThroughput, UnitTPOT50, UnitTTFT50, UnitCost}},
		{"as they stand, again and again", unsalt, []string{UnitGap50, UnitE2E95, UnitThroughput, UnitTPOT50, UnitTTFT50, UnitCost}},
		{"texts", func(f *file) {
			f.header().Target.Prompts = PromptsTokenize
			each(f, func(r *Request) {
				r.SentIDs, r.PromptIDs = nil, nil
				r.SentText = SaltText(42, r.ID) + " and so on"
			})
		}, []string{UnitGap50, UnitE2E95, UnitThroughput, UnitTPOT50, UnitTTFT50, UnitCost}},
		{"no count of anything", func(f *file) {
			f.header().Target.Prompts = PromptsInexact
			each(f, func(p *Plan) {
				p.ExactOutput = false
				p.Name = "BenchmarkServe/input=about4/conc=" + p.Axes[1].Value
				p.Axes[0].Value = "about4"
			})
			each(f, func(r *Request) {
				r.SentIDs, r.PromptIDs, r.TokenIDs, r.EventIDs, r.Usage = nil, nil, nil, nil, nil
				r.SentText = SaltedText(42, r.ID, f.prompt(r.Prompt).Text)
			})
			each(f, func(c *Configuration) { f.recompute(c.Config) })
		}, []string{UnitGap50, UnitE2E95, UnitTTFT50}},
		{"reasoning before the answer", func(f *file) {
			each(f, func(r *Request) { r.EventKinds = "rrcccod" })
			f.recompute(1)
			f.recompute(2)
			f.recompute(3)
			f.recompute(4)
		}, []string{UnitAnswer50, UnitGap50, UnitE2E95, UnitThroughput, UnitTPOT50, UnitTTFT50, UnitCost}},
		{"one may fail, and does", func(f *file) {
			each(f, func(p *Plan) { p.MaxFailed = 1 })
			fail(f, "1.0.1", FailStatus, "429 Too Many Requests")
			f.request("1.0.1").Status = 429
			each(f, func(c *Configuration) { f.recompute(c.Config) })
		}, []string{UnitFailed, UnitGap50, UnitE2E95, UnitThroughput, UnitTPOT50, UnitTTFT50, UnitCost}},
		{"a cache has a little", func(f *file) {
			each(f, func(p *Plan) { p.MaxCached = 25 })
			cached := 1
			f.request("1.0.1").Usage.CachedTokens = &cached
			f.recompute(1)
		}, []string{UnitGap50, UnitE2E95, UnitThroughput, UnitTPOT50, UnitTTFT50, UnitCost}},
		{"an end token that only the count has", func(f *file) {
			r := f.request("1.0.1")
			r.Finish, r.Usage.CompletionTokens = "stop", 6
			f.recompute(1)
		}, []string{UnitGap50, UnitE2E95, UnitThroughput, UnitTPOT50, UnitTTFT50, UnitCost}},
		{"connections are kept", func(f *file) {
			f.header().Target.Reuse = true
			f.request("1.0.1").Reused = true
		}, []string{UnitGap50, UnitE2E95, UnitThroughput, UnitTPOT50, UnitTTFT50, UnitCost}},
		{"drawn again, for the first draw was sent before", func(f *file) {
			r := f.request("1.0.1")
			r.SentIDs = SaltedIDs(42, Draw(r.ID, 3), f.prompt(r.Prompt).IDs, f.corpus().Pool())
			r.PromptIDs = r.SentIDs
		}, []string{UnitGap50, UnitE2E95, UnitThroughput, UnitTPOT50, UnitTTFT50, UnitCost}},
		{"nothing but the salt", func(f *file) {
			f.header().Target.Prompts = PromptsTokenize
			each(f, func(r *Request) { r.SentIDs, r.PromptIDs, r.SentText = nil, nil, SaltText(42, r.ID) })
		}, []string{UnitGap50, UnitE2E95, UnitThroughput, UnitTPOT50, UnitTTFT50, UnitCost}},
	} {
		t.Run(test.name, func(t *testing.T) {
			report := replayed(t, targetFile(test.change))
			if report.Verdict != Consistent || report.Valid() != 4 {
				t.Fatalf("%v, %d valid: %v", report.Verdict, report.Valid(), report.Err())
			}
			var units []string
			for _, m := range report.Results[0].Configuration.Metrics {
				units = append(units, m.Unit)
			}
			if !slices.Equal(units, test.units) {
				t.Errorf("metrics %q, want %q", units, test.units)
			}
		})
	}
}

func TestTamperedTargetEvidence(t *testing.T) {
	const header = "verify: run.jsonl:1: header: target: "
	for _, test := range []struct {
		name   string
		change func(f *file)
		want   string
	}{
		{"unknown api", func(f *file) { f.header().Target.API = "responses" }, header + `url "http://127.0.0.1:8000/v1" and api "responses", want a URL and "completions" or "chat"`},
		{"password in the URL", func(f *file) { f.header().Target.URL = "http://me:secret@host" }, header + `url "http://me:secret@host" may hold a password`},
		{"chat of ids", func(f *file) { f.header().Target.API = "chat" }, header + `prompts "ids" in a chat, which has texts only`},
		{"length by magic", func(f *file) { f.header().Target.Prompts = "magic" }, header + `prompts "magic", want "ids", "tokenize", "file" or "inexact"`},
		{"salted file", func(f *file) { f.header().Target.Prompts = PromptsFile }, header + `salt_seed 42, but a salt changes the length of a prompt from a file`},
		{"no salt", func(f *file) { f.header().Target.SaltSeed = 0 }, header + `no salt_seed, and prompts may not be sent again: then only a file has enough of them`},
		{"negative seed", func(f *file) { f.header().Target.SaltSeed = -1 }, header + `salt_seed -1 is negative`},
		{"header with its value", func(f *file) { f.header().Target.Headers = []string{"X-Key: 1"} }, header + `headers ["X-Key: 1"], want their names, sorted, each once`},
		{"field twice", func(f *file) { t := f.header().Target; t.Fields = append(t.Fields, t.Fields[0]) }, header + `field "top_k" stands twice, has no name, or isn't JSON: 1`},
		{"field without JSON", func(f *file) { f.header().Target.Fields[0].Value = "greedy" }, header + `field "top_k" stands twice, has no name, or isn't JSON: greedy`},
		{"optional fields in any order", func(f *file) { f.header().Target.Optional = []string{"min_tokens", "ignore_eos"} }, header + `optional ["min_tokens" "ignore_eos"], want the names of fields, sorted, each once`},
		{"optional field twice", func(f *file) { f.header().Target.Optional = []string{"ignore_eos", "ignore_eos"} }, header + `optional ["ignore_eos" "ignore_eos"], want the names of fields, sorted, each once`},
		{"salted, yet again", func(f *file) { f.header().Target.Repeats = true }, header + `salt_seed 42, yet prompts may be sent again`},
		{"only failures", func(f *file) {
			each(f, func(p *Plan) { p.MaxFailed = 99 })
			each(f, func(r *Request) {
				if r.Config == 1 && r.Phase == PhaseMeasured {
					r.Failure = &Failure{FailStall, "nothing came"}
				}
			})
			f.recompute(1)
		}, `verify: run.jsonl:15: configuration 1: it is called valid, but 9 of 9 measured requests and 0 warmups failed`},
		{"key in place of its name", func(f *file) { f.header().Target.KeyFrom = "KEY=sk-1" }, header + `key_from "KEY=sk-1", want the name of an environment variable`},
		{"server that is known", func(f *file) { f.server(1).PID = 7 }, `verify: run.jsonl:3: server 1: it says more than its number, ready_ns and the target's model "m", but nobody here knows that server`},
		{"other model", func(f *file) { f.server(1).Model.ID = "n" }, `verify: run.jsonl:3: server 1: it says more than its number, ready_ns and the target's model "m", but nobody here knows that server`},
		{"threads", func(f *file) {
			p := f.plan(1)
			p.Name, p.Axes = "BenchmarkServe/threads=1/input=4/conc=1", []Axis{{"threads", "1"}, {"input", "4"}, {"conc", "1"}}
		}, `verify: run.jsonl:4: plan 1: axis threads=1, but the record says nothing of a target's threads`},
		{"exact though inexact", func(f *file) {
			f.header().Target.Prompts = PromptsInexact
		}, `verify: run.jsonl:4: plan 1: axis input=4, but prompt "4-a" has about 4 tokens`},
		{"pass of too many", func(f *file) { f.plan(1).PerPass = 4 }, `verify: run.jsonl:4: plan 1: per_pass 4, want 0 to the plan's 3 prompts`},
		{"negative limit", func(f *file) { f.plan(1).MaxFailed = -1 }, `verify: run.jsonl:4: plan 1: max_failed -1 and max_cached 5, want 0 or more, and 0 to 100`},
		{"more than all cached", func(f *file) { f.plan(1).MaxCached = 101 }, `verify: run.jsonl:4: plan 1: max_failed 0 and max_cached 101, want 0 or more, and 0 to 100`},
		{"prompts run out", func(f *file) { f.plan(1).PerPass = 3 }, `verify: run.jsonl:9: request 1.1.0: its id isn't that of prompt "4-a" in its pass`},
		{"prompt twice, unsalted", func(f *file) { unsalt(f); f.plan(1).Prompts[1] = "4-a" }, `verify: run.jsonl:4: plan 1: prompt "4-a" stands twice: a cache could answer it`},
		{"other salt", func(f *file) { f.request("1.0.1").SentIDs[0]++ }, `verify: run.jsonl:7: request 1.0.1: sent_ids aren't those of prompt "4-b" with the salt of seed 42`},
		{"no salt in one", func(f *file) { f.request("1.0.1").SentIDs = nil }, `verify: run.jsonl:7: request 1.0.1: sent_ids aren't those of prompt "4-b" with the salt of seed 42`},
		{"text beside ids", func(f *file) { f.request("1.0.1").SentText = "Hi" }, `verify: run.jsonl:7: request 1.0.1: sent_ids aren't those of prompt "4-b" with the salt of seed 42`},
		{"text without its salt", func(f *file) {
			f.header().Target.Prompts = PromptsTokenize
			each(f, func(r *Request) { r.SentIDs, r.SentText = nil, SaltText(43, r.ID)+" and so on" })
		}, `verify: run.jsonl:5: request 1.w.0: sent_text doesn't begin with the salt of seed 42, "` + SaltText(42, "1.w.0") + `"`},
		{"inexact text of another prompt", func(f *file) {
			f.header().Target.Prompts = PromptsInexact
			p := f.plan(1)
			p.Name, p.Axes[0].Value = "BenchmarkServe/input=about4/conc=1", "about4"
			f.request("1.w.0").SentIDs, f.request("1.w.0").SentText = nil, SaltText(42, "1.w.0")+" and so on"
		}, `verify: run.jsonl:5: request 1.w.0: sent_text isn't that of prompt "4-warmup" with the salt of seed 42`},
		{"salt where none is", func(f *file) { unsalt(f); f.request("1.0.1").SentText = "Hi" }, `verify: run.jsonl:7: request 1.0.1: sent_ids or sent_text without a salt_seed`},
		{"prompts again", func(f *file) {
			unsalt(f)
			f.header().Target.Prompts, f.header().Target.Repeats = PromptsFile, false
		}, `verify: run.jsonl:9: request 1.1.0: its prompt was sent before, by request 1.0.0: a cache could answer it`},
		{"id of another place", func(f *file) { f.request("1.0.1").ID = "1.0.2" }, `verify: run.jsonl:7: request 1.0.2: its id isn't that of prompt "4-b" in its pass`},
		{"kept connection", func(f *file) { f.request("1.0.1").Reused = true }, `verify: run.jsonl:7: request 1.0.1: reused is true, want a new connection for each request`},
		{"no usage", func(f *file) { f.request("1.0.1").Usage = nil }, `verify: run.jsonl:7: request 1.0.1: no failure, yet usage: the server sent no usage, so the length of its prompt isn't proven`},
		{"longer prompt", func(f *file) { f.request("1.0.1").Usage.PromptTokens++ }, `verify: run.jsonl:7: request 1.0.1: no failure, yet prompt: the server counted 5 prompt tokens, want 4`},
		{"other prompt", func(f *file) { f.request("1.0.1").PromptIDs = []int32{1, 2, 3, 4} }, `verify: run.jsonl:7: request 1.0.1: no failure, yet prompt: the server's ids of the prompt are not those that were sent`},
		{"no token by its count", func(f *file) {
			r := f.request("1.0.1")
			r.EventIDs, r.TokenIDs, r.Usage.CompletionTokens = nil, nil, 0
		}, `verify: run.jsonl:7: request 1.0.1: usage.completion_tokens 0, but 5 events carry tokens`},
		{"more events than tokens and one", func(f *file) {
			r := f.request("1.0.1")
			r.EventIDs, r.TokenIDs, r.Usage.CompletionTokens = nil, nil, 3
		}, `verify: run.jsonl:7: request 1.0.1: usage.completion_tokens 3, but 5 events carry tokens`},
		{"counts apart, though not by the end token", func(f *file) {
			f.request("1.0.1").Usage.CompletionTokens = 4
		}, `verify: run.jsonl:7: request 1.0.1: usage.completion_tokens 4, but 5 token_ids`},
		{"counts further apart than the end token", func(f *file) {
			r := f.request("1.0.1")
			r.Finish, r.Usage.CompletionTokens = "stop", 3
		}, `verify: run.jsonl:7: request 1.0.1: usage.completion_tokens 3, but 5 token_ids`},
		{"exact, but shorter", func(f *file) {
			r := f.request("1.0.1")
			shorten(r, nil, 3)
		}, `verify: run.jsonl:7: request 1.0.1: no failure, yet short: 3 tokens with finish reason "length", want 5`},
		{"exact, but unknown", func(f *file) {
			f.header().Target.Prompts = PromptsInexact
			p, r := f.plan(1), f.request("1.w.0")
			p.Name, p.Axes[0].Value = "BenchmarkServe/input=about4/conc=1", "about4"
			r.SentIDs, r.SentText = nil, SaltedText(42, "1.w.0", f.prompt("4-warmup").Text)
			r.EventIDs, r.TokenIDs, r.PromptIDs, r.Usage = nil, nil, nil, nil
		}, `verify: run.jsonl:5: request 1.w.0: no failure, yet usage: the server sent neither usage nor ids, so the length of its answer isn't known`},
		{"cached beyond the limit", func(f *file) {
			cached := 3
			f.request("1.0.1").Usage.CachedTokens = &cached
			f.recompute(1)
		}, `verify: run.jsonl:15: configuration 1: it is called valid, but a cache answered 8.3 % of its prompts, more than max_cached 5`},
		{"prompt tokens", func(f *file) { f.configuration(1).PromptTokens++ }, `verify: run.jsonl:15: configuration 1: prompt_tokens 37, but its records give 36`},
		{"cached tokens", func(f *file) { f.configuration(1).CachedTokens++ }, `verify: run.jsonl:15: configuration 1: cached_tokens 1, but its records give 0`},
		{"failed beyond the limit", func(f *file) {
			each(f, func(p *Plan) { p.MaxFailed = 1 })
			fail(f, "1.0.1", FailStall, "nothing came")
			fail(f, "1.0.2", FailStall, "nothing came")
			f.recompute(1)
		}, `verify: run.jsonl:15: configuration 1: it is called valid, but 2 of 9 measured requests and 0 warmups failed`},
		{"limits of an own server", func(f *file) { *f = *good(); f.plan(1).MaxFailed = 1 }, `verify: run.jsonl:4: plan 1: per_pass 0, max_failed 1, max_cached 0, want none of them: they are for targets`},
		{"sent to an own server", func(f *file) { *f = *good(); f.request("1.0.1").SentText = "Hi" }, `verify: run.jsonl:7: request 1.0.1: sent_ids or sent_text, but this run's own server reads the corpus's prompts as they are`},
	} {
		t.Run(test.name, func(t *testing.T) {
			report := replayed(t, targetFile(test.change))
			if report.Verdict != Inconsistent {
				t.Fatalf("verdict = %v, want inconsistent", report.Verdict)
			}
			if got := report.Err().Error(); got != test.want {
				t.Errorf("problem:\n got %s\nwant %s", got, test.want)
			}
		})
	}
}

// The draws are pinned: evidence of today is replayed in years, on any
// machine.
func TestSalt(t *testing.T) {
	if got, want := SaltText(7, "1.0.0"), "edge hill data dark home body"; got != want {
		t.Errorf("SaltText(7, 1.0.0) = %q, want %q", got, want)
	}
	if got, want := SaltedText(7, "1.0.0", "one two three four five six seven eight"), "edge hill data dark home body seven eight"; got != want {
		t.Errorf("SaltedText = %q, want %q", got, want)
	}
	if got, want := SaltedIDs(7, "1.0.0", []int32{1, 2, 3, 4, 5, 6, 7, 8, 9, 10}, []int32{20, 21, 22, 23, 24}), []int32{21, 20, 24, 22, 20, 24, 20, 22, 9, 10}; !slices.Equal(got, want) {
		t.Errorf("SaltedIDs = %v, want %v", got, want)
	}
	if got := SaltedIDs(7, "1.0.0", []int32{1, 2}, []int32{20}); !slices.Equal(got, []int32{20, 20}) {
		t.Errorf("SaltedIDs of two = %v, want all replaced", got)
	}
	if got, want := []string{Draw("1.0.0", 0), Draw("1.0.0", 2), SaltText(7, Draw("1.0.0", 2))}, []string{"1.0.0", "1.0.0 redrawn 2", "boat life cook data girl lord"}; !slices.Equal(got, want) {
		t.Errorf("draws %q, want %q", got, want)
	}
	if len(saltVocabulary) != 64 {
		t.Errorf("%d words, want 64", len(saltVocabulary))
	}
	seen := map[string]bool{}
	for _, word := range saltVocabulary {
		if seen[word] || len(word) != len(saltVocabulary[0]) {
			t.Errorf("%q stands twice, or has another length than others", word)
		}
		seen[word] = true
	}
}
