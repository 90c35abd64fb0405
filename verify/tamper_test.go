package verify

import (
	"math"
	"slices"
	"strings"
	"testing"
)

// Every check has evidence that it alone refuses: a good file with one thing
// changed, hashes and counts made right again, as anybody could. The whole
// text of the first problem is compared.
var tampered = []struct {
	name   string
	change func(f *file)
	want   string
}{
	// The header.
	{"no time", func(f *file) { f.header().Started = "yesterday" }, `verify: run.jsonl:1: header: started "yesterday" is no time of RFC 3339`},
	{"run is a path", func(f *file) { f.header().Run = "../run" }, `verify: run.jsonl:1: header: run "../run", want the file's name without its ending`},
	{"energy claimed", func(f *file) { f.header().Energy = "12 J" }, `verify: run.jsonl:1: header: energy "12 J", want "unmeasured": nothing here measures it`},
	{"negative price", func(f *file) { f.header().HourlyUSD = -1 }, `verify: run.jsonl:1: header: hourly_usd -1 is negative`},
	{"revision is a branch", func(f *file) { f.header().Revision = "main" }, `verify: run.jsonl:1: header: revision "main" is no git commit`},
	{"clean without a revision", func(f *file) { f.header().Revision = "" }, `verify: run.jsonl:1: header: clean_tree without a revision`},
	{"no architecture", func(f *file) { f.header().Host.Arch = "" }, `verify: run.jsonl:1: header: go "go1.26.8", os "linux", arch "": none of them may be empty`},
	{"flag twice", func(f *file) { f.header().Flags[1].Name = "test.count" }, `verify: run.jsonl:1: header: flag "test.count" stands twice or has no name`},
	{"module without a path", func(f *file) { f.header().Modules[0].Path = "" }, `verify: run.jsonl:1: header: module "" stands twice or has no path`},
	{"negative CPUs", func(f *file) { f.header().Host.CPUs = -2 }, `verify: run.jsonl:1: header: host: a negative number`},
	{"more free than total memory", func(f *file) { f.header().Host.MemFreeBytes = 9 << 30 }, `verify: run.jsonl:1: header: host: mem_free_bytes 9663676416 of mem_total_bytes 8589934592`},
	{"clock without a base", func(f *file) { f.header().Clock.BaseNS = 0 }, `verify: run.jsonl:1: header: clock CLOCK_MONOTONIC with base_ns 0, want above 0`},
	{"unknown clock", func(f *file) { f.header().Clock.Name = "wall" }, `verify: run.jsonl:1: header: clock "wall" is unknown`},
	{"own server on a private clock", func(f *file) { f.header().Clock = Clock{Name: "process"} }, `verify: run.jsonl:1: header: clock process, but the server's own log needs a clock that both can read`},
	{"private clock with a base", func(f *file) { f.header().Clock.Name = "process" }, `verify: run.jsonl:1: header: clock process with base_ns 86400000000001 and error_ns 150, want 0: no other process reads it`},
	{"coarse clock", func(f *file) { f.header().Clock.ErrorNS = 1_000_001 }, `verify: run.jsonl:1: header: clock known to within 1000001 ns, want 0 to 1000000`},
	{"target without url", func(f *file) { f.header().Target = &Target{} }, `verify: run.jsonl:1: header: target: url "" and api "", want a URL and "completions" or "chat"`},
	{"other schema", func(f *file) { f.header().Schema = "servebench/2" }, `verify: run.jsonl:1: header: schema "servebench/2", want "servebench/1"`},
	{"second header", func(f *file) { f.insertAfter(f.corpus(), f.header()) }, `verify: run.jsonl:3: a second header`},
	{"no header", func(f *file) { f.remove(f.header()) }, `verify: run.jsonl:1: not evidence: the first line is no header record`},
	{"unknown kind", func(f *file) { f.corpus().Kind = "prompts" }, `verify: run.jsonl:2: kind "prompts" is unknown to servebench/1`},

	// The corpus.
	{"no prompts", func(f *file) { f.corpus().Prompts = nil; seal(f.corpus()) }, `verify: run.jsonl:2: corpus: no prompts`},
	{"corpus by path", func(f *file) { f.corpus().Name = "a/b" }, `verify: run.jsonl:2: corpus: name "a/b", want a base name`},
	{"second corpus", func(f *file) { f.insertAfter(f.corpus(), f.corpus()) }, `verify: run.jsonl:3: corpus: a second corpus`},
	{"corpus after a server", func(f *file) { c := f.corpus(); f.remove(c); f.insertAfter(f.server(1), c) }, `verify: run.jsonl:3: corpus: it stands after a server`},
	{"no corpus", func(f *file) { f.remove(f.corpus()) }, `verify: run.jsonl:3: plan 1: it stands before the corpus or the server`},
	{"prompt without id", func(f *file) { f.corpus().Prompts[0].ID = ""; seal(f.corpus()) }, `verify: run.jsonl:2: corpus: prompt "": its id is empty`},
	{"prompt twice", func(f *file) { f.corpus().Prompts[1] = f.corpus().Prompts[2]; seal(f.corpus()) }, `verify: run.jsonl:2: corpus: prompt "4-b" stands twice`},
	{"prompt of no tokens", func(f *file) { f.corpus().Prompts[1].Input = 0; seal(f.corpus()) }, `verify: run.jsonl:2: corpus: prompt "4-a": input 0, want at least 1`},
	{"text changed", func(f *file) { f.corpus().Prompts[1].Text += "!" }, `verify: run.jsonl:2: corpus: prompt "4-a": sha256 "4fda60c624c30903d7b42c3fea08a1df1371aad0e8e3447bcf39c9497d5dea3e", but its text has "997e3aebfac26244edf45588f630bea2a2bcfcd2723a76720c955ede2038f6db"`},
	{"prompt of 3 ids for 4", func(f *file) { p := &f.corpus().Prompts[1]; p.IDs = p.IDs[:3]; seal(f.corpus()) }, `verify: run.jsonl:2: corpus: prompt "4-a": 3 ids, want input 4`},
	{"corpus hash", func(f *file) { f.corpus().SHA256 = digest }, `verify: run.jsonl:2: corpus: bytes 648 and sha256 "4355a46b19d348dc2f57c046f8ef63d4538ebb936000f3c9ee954a27460dd865", but its prompts have 648 and "3d78f49c80990a8becc3b0e8fffe1640a92c2c7b6891186bf6d21a8d8700574e"`},
	{"corpus size", func(f *file) { f.corpus().Bytes++ }, `verify: run.jsonl:2: corpus: bytes 649 and sha256 "3d78f49c80990a8becc3b0e8fffe1640a92c2c7b6891186bf6d21a8d8700574e", but its prompts have 648 and "3d78f49c80990a8becc3b0e8fffe1640a92c2c7b6891186bf6d21a8d8700574e"`},

	// The servers.
	{"server number", func(f *file) { f.server(2).Server = 3 }, `verify: run.jsonl:50: server 3: server number 3, want 2`},
	{"server within a configuration", func(f *file) { s := f.server(2); f.remove(s); f.insertAfter(f.plan(2), s) }, `verify: run.jsonl:28: server 2: it stands within configuration 2`},
	{"never ready", func(f *file) { f.server(1).ReadyNS = 0 }, `verify: run.jsonl:3: server 1: ready_ns 0, want 1 to 36028797018963968`},
	{"two slots", func(f *file) { f.server(1).Slots = 2 }, `verify: run.jsonl:3: server 1: slots 2, want 1`},
	{"no process", func(f *file) { f.server(1).PID = 0 }, `verify: run.jsonl:3: server 1: pid 0, go "go1.26.8", context_limit 8192: each must be there`},
	{"loaded before the run", func(f *file) { s := f.server(1); s.LoadNS = s.ReadyNS + 1 }, `verify: run.jsonl:3: server 1: load_ns 340000001, want 1 to ready_ns 340000000: it was started within the run`},
	{"loaded in no time", func(f *file) { f.server(1).LoadNS = 0 }, `verify: run.jsonl:3: server 1: load_ns 0, want 1 to ready_ns 340000000: it was started within the run`},
	{"coarse server clock", func(f *file) { f.server(1).ClockErrorNS = 1_000_001 }, `verify: run.jsonl:3: server 1: clock known to within 1000001 ns, want 0 to 1000000`},
	{"inter-op threads", func(f *file) { f.server(1).InterThreads = 2 }, `verify: run.jsonl:3: server 1: intra_threads 1 and inter_threads 2, want at least 1 and 1`},
	{"binary by path", func(f *file) { f.server(1).Binary.Name = "/bin/serve" }, `verify: run.jsonl:3: server 1: binary: file name "/bin/serve", want a base name`},
	{"empty library", func(f *file) { f.server(1).Libraries[0].File.Bytes = 0 }, `verify: run.jsonl:3: server 1: library onnxruntime: file libonnxruntime.so.1: bytes 0, want at least 1`},
	{"library without version", func(f *file) { f.server(1).Libraries[1].Version = "" }, `verify: run.jsonl:3: server 1: library "tokenizers" of version "": neither may be empty`},
	{"hash in capitals", func(f *file) { f.server(1).Model.Files[0].SHA256 = strings.ToUpper(digest) }, `verify: run.jsonl:3: server 1: model: file model.onnx: sha256 "4355A46B19D348DC2F57C046F8EF63D4538EBB936000F3C9EE954A27460DD865", want 64 hexadecimal digits in lower case`},
	{"placeholder for a hash", func(f *file) { f.server(1).Model.Files[0].SHA256 = strings.Repeat("0", 64) }, `verify: run.jsonl:3: server 1: model: file model.onnx: sha256 "0000000000000000000000000000000000000000000000000000000000000000" is a placeholder`},
	{"model without source", func(f *file) { f.server(1).Model.Source = "" }, `verify: run.jsonl:3: server 1: model: id "tiny", source "", precision "fp32": none of them may be empty`},
	{"model without parameters", func(f *file) { f.server(1).Model.Parameters = 0 }, `verify: run.jsonl:3: server 1: model: 0 parameters and a vocabulary of 50, want at least 1 of each`},
	{"pointer for weights, fp32", func(f *file) { f.server(1).Model.Files = []File{{"model.onnx", 134, digest}} }, `verify: run.jsonl:3: server 1: model: files of 134 bytes, want at least 4000 for 1000 parameters in precision "fp32": a pointer or a part was hashed in place of the weights`},
	{"pointer for weights, 4 bits", func(f *file) {
		m := &f.server(1).Model
		m.Precision, m.Parameters, m.Files = "q4_1", 135_000_000, []File{{"model.gguf", 134, digest}}
	}, `verify: run.jsonl:3: server 1: model: files of 134 bytes, want at least 16875000 for 135000000 parameters in precision "q4_1": a pointer or a part was hashed in place of the weights`},
	{"other binary", func(f *file) { f.server(2).Binary.Bytes++ }, `verify: run.jsonl:50: server 2: it differs from server 1 in binary: one run measures one thing`},
	{"other Go", func(f *file) { f.server(2).Go = "go1.26.7" }, `verify: run.jsonl:50: server 2: it differs from server 1 in go: one run measures one thing`},
	{"other library", func(f *file) { f.server(2).Libraries[0].Version = "1.24.2" }, `verify: run.jsonl:50: server 2: it differs from server 1 in libraries: one run measures one thing`},
	{"other context", func(f *file) { f.server(2).ContextLimit = 4096 }, `verify: run.jsonl:50: server 2: it differs from server 1 in context_limit: one run measures one thing`},
	{"other weights", func(f *file) { f.server(2).Model.Files[1].Bytes++ }, `verify: run.jsonl:50: server 2: it differs from server 1 in model.files: one run measures one thing`},
	{"other vocabulary", func(f *file) { f.server(2).Model.Vocabulary++ }, `verify: run.jsonl:50: server 2: it differs from server 1 in model: one run measures one thing`},

	// The plan.
	{"plan within a configuration", func(f *file) { f.insertAfter(f.plan(1), f.plan(2)) }, `verify: run.jsonl:5: plan 2: configuration 1 isn't closed`},
	{"plan before a server", func(f *file) { f.remove(f.server(1)) }, `verify: run.jsonl:3: plan 1: it stands before the corpus or the server`},
	{"configuration number", func(f *file) { f.plan(2).Config = 3 }, `verify: run.jsonl:27: plan 3: configuration number 3, want 2`},
	{"plan of another server", func(f *file) { f.plan(2).Server = 2 }, `verify: run.jsonl:27: plan 2: server 2, want the last one, 1`},
	{"no GOMAXPROCS", func(f *file) { f.plan(2).GOMAXPROCS = 0 }, `verify: run.jsonl:27: plan 2: gomaxprocs 0 and output_tokens 5, want at least 1 of each`},
	{"open loop", func(f *file) { f.plan(2).Load.Kind = "open" }, `verify: run.jsonl:27: plan 2: load "open" with conc 1, want "closed" with at least 1, or "open" with 0`},
	{"planned before the end of the last", func(f *file) { f.plan(2).PlannedNS = f.plan(1).PlannedNS }, `verify: run.jsonl:27: plan 2: planned_ns 345000000, want 557197133, where the server was ready and the configuration before had ended, to 36028797018963968`},
	{"planned before the server was ready", func(f *file) { f.server(1).ReadyNS += 10 * ms }, `verify: run.jsonl:4: plan 1: planned_ns 345000000, want 350000000, where the server was ready and the configuration before had ended, to 36028797018963968`},
	{"inexact output", func(f *file) { f.plan(2).ExactOutput = false }, `verify: run.jsonl:27: plan 2: exact_output is false, but this run's own server can always be held to it`},
	{"axis twice", func(f *file) { f.plan(1).Name += "/conc=1"; f.plan(1).Axes = append(f.plan(1).Axes, Axis{"conc", "1"}) }, `verify: run.jsonl:4: plan 1: name "BenchmarkServe/threads=1/input=4/conc=1/conc=1" has the axis conc twice`},
	{"axes of another name", func(f *file) { f.plan(1).Axes[1].Value = "8" }, `verify: run.jsonl:4: plan 1: axes [{threads 1} {input 8} {conc 1}], but name "BenchmarkServe/threads=1/input=4/conc=1" gives [{threads 1} {input 4} {conc 1}]`},
	{"no benchmark", func(f *file) { f.plan(1).Name = "Serve/threads=1/input=4/conc=1" }, `verify: run.jsonl:4: plan 1: name "Serve/threads=1/input=4/conc=1" isn't a benchmark's`},
	{"name with a suffix", func(f *file) { f.plan(1).Name += "/x-2" }, `verify: run.jsonl:4: plan 1: name "BenchmarkServe/threads=1/input=4/conc=1/x-2" ends like a GOMAXPROCS suffix, which it must not have`},
	{"repetition", func(f *file) { f.plan(2).Repetition = 3 }, `verify: run.jsonl:27: plan 2: repetition 3 of BenchmarkServe/threads=1/input=4/conc=1-2, want 2`},
	{"repetition of another GOMAXPROCS", func(f *file) { f.plan(2).GOMAXPROCS = 1 }, `verify: run.jsonl:27: plan 2: repetition 2 of BenchmarkServe/threads=1/input=4/conc=1, want 1`},
	{"threads axis", func(f *file) { f.server(1).IntraThreads = 2 }, `verify: run.jsonl:4: plan 1: axis threads=1, but the record says 2`},
	{"conc axis", func(f *file) { f.plan(1).Load.Conc = 2 }, `verify: run.jsonl:4: plan 1: axis conc=1, but the record says 2`},
	{"input axis", func(f *file) {
		f.plan(1).Name, f.plan(1).Axes[1].Value = "BenchmarkServe/threads=1/input=8/conc=1", "8"
	}, `verify: run.jsonl:4: plan 1: axis input=8, but prompt "4-a" has 4 tokens`},
	{"plan without prompts", func(f *file) { f.plan(1).Prompts = nil }, `verify: run.jsonl:4: plan 1: no prompts`},
	{"plan with an unknown prompt", func(f *file) { f.plan(1).Prompts[0] = "4-z" }, `verify: run.jsonl:4: plan 1: prompt "4-z" isn't in the corpus`},
	{"plan with a prompt twice", func(f *file) { f.plan(1).Prompts[1] = "4-a" }, `verify: run.jsonl:4: plan 1: prompt "4-a" stands twice: a cache could answer it`},
	{"plan with the warmup measured", func(f *file) { f.plan(1).Prompts[0], f.plan(1).Warmups[0] = "4-warmup", "4-a" }, `verify: run.jsonl:4: plan 1: prompt "4-warmup" is planned as warmup=false, but the corpus has warmup=true`},
	{"plan beyond the context", func(f *file) { f.server(1).ContextLimit = 8; f.server(2).ContextLimit = 8 }, `verify: run.jsonl:4: plan 1: prompt "4-a" of 4 tokens and 5 of output, but the server's context_limit is 8`},
	{"prompt without ids", func(f *file) { f.corpus().Prompts[1].IDs = nil; seal(f.corpus()) }, `verify: run.jsonl:4: plan 1: prompt "4-a" has no ids in the corpus, but this run's own server can be held to them`},
	{"prompt id outside the vocabulary", func(f *file) { f.corpus().Prompts[3].IDs[0] = 50; seal(f.corpus()) }, `verify: run.jsonl:4: plan 1: prompt "4-c": ids[0] = 50, want 0 to 49`},

	// A request by itself.
	{"request outside a configuration", func(f *file) { r := f.request("1.w.0"); f.remove(r); f.insertAfter(f.server(1), r) }, `verify: run.jsonl:4: request 1.w.0: it stands outside a configuration`},
	{"request of another configuration", func(f *file) { f.request("1.0.1").Config = 2 }, `verify: run.jsonl:7: request 1.0.1: config 2, want 1`},
	{"id used twice", func(f *file) { f.request("1.0.1").ID = "1.0.0" }, `verify: run.jsonl:7: request 1.0.0: an earlier one has its id`},
	{"no id", func(f *file) { f.request("1.0.1").ID = "" }, `verify: run.jsonl:7: request : its id is empty`},
	{"phase", func(f *file) { f.request("1.0.1").Phase = "rehearsal" }, `verify: run.jsonl:7: request 1.0.1: phase "rehearsal", want "warmup" or "measured"`},
	{"warmup measured", func(f *file) { f.request("1.w.0").Phase = PhaseMeasured }, `verify: run.jsonl:5: request 1.w.0: prompt "4-warmup" is not in the plan`},
	{"measured called a warmup", func(f *file) { f.request("1.0.1").Phase = PhaseWarmup }, `verify: run.jsonl:7: request 1.0.1: prompt "4-b" is no warmup of the plan`},
	{"client beyond conc", func(f *file) { f.request("1.0.1").Client = 1 }, `verify: run.jsonl:7: request 1.0.1: client 1, want 0 to 0`},
	{"negative pass", func(f *file) { f.request("1.0.1").Pass = -1 }, `verify: run.jsonl:7: request 1.0.1: pass -1 in phase "measured"`},
	{"asked for less", func(f *file) { f.request("1.0.1").OutputTokens = 4 }, `verify: run.jsonl:7: request 1.0.1: output_tokens 4, want 5`},
	{"event without a kind", func(f *file) { f.request("1.0.1").EventKinds = "cccccd" }, `verify: run.jsonl:7: request 1.0.1: 6 event_kinds for 7 event_ns`},
	{"event without ids", func(f *file) { r := f.request("1.0.1"); r.EventIDs = r.EventIDs[1:] }, `verify: run.jsonl:7: request 1.0.1: 6 event_ids for 7 event_ns`},
	{"ids without events' share", func(f *file) { f.request("1.0.1").EventIDs = nil }, `verify: run.jsonl:7: request 1.0.1: token_ids without event_ids`},
	{"ids in an event of no token", func(f *file) { f.request("1.0.1").EventIDs[5] = 1 }, `verify: run.jsonl:7: request 1.0.1: event 5 of kind 'o' carries 1 ids`},
	{"fewer ids than events say", func(f *file) { r := f.request("1.0.1"); r.TokenIDs = r.TokenIDs[:4] }, `verify: run.jsonl:7: request 1.0.1: event_ids add up to 5, want the 4 token_ids`},
	{"more ids than events say", func(f *file) { r := f.request("1.0.1"); r.TokenIDs = append(slices.Clone(r.TokenIDs), 1) }, `verify: run.jsonl:7: request 1.0.1: event_ids add up to 5, want the 6 token_ids`},
	{"negative usage", func(f *file) { f.request("1.0.1").Usage.CompletionTokens = -5 }, `verify: run.jsonl:7: request 1.0.1: usage has a negative number`},
	{"unknown kind of event", func(f *file) { f.request("1.0.1").EventKinds = "cccccxd" }, `verify: run.jsonl:7: request 1.0.1: event 5 has the unknown kind 'x'`},
	{"due before the plan", func(f *file) { f.request("1.w.0").ScheduledNS = f.plan(1).PlannedNS - 1 }, `verify: run.jsonl:5: request 1.w.0: scheduled_ns 344999999 to end_ns 367446125, want them from the plan's 345000000 to 36028797018963968`},
	{"no start", func(f *file) { f.request("1.0.1").StartNS = 0 }, `verify: run.jsonl:7: request 1.0.1: start_ns 0, want above 0`},
	{"start before due", func(f *file) { r := f.request("1.0.1"); r.StartNS = r.ScheduledNS - 1 }, `verify: run.jsonl:7: request 1.0.1: start_ns 389824561 lies before scheduled_ns 389824562`},
	{"connected before the start", func(f *file) { r := f.request("1.0.1"); r.ConnectedNS = r.StartNS - 1 }, `verify: run.jsonl:7: request 1.0.1: connected_ns 389826476 lies before start_ns 389826477`},
	{"sent before connected", func(f *file) { r := f.request("1.0.1"); r.SentNS = r.ConnectedNS - 1 }, `verify: run.jsonl:7: request 1.0.1: sent_ns 389876846, want connected_ns 389876847 to end_ns 410350209`},
	{"sent after the end", func(f *file) { r := f.request("1.0.1"); r.SentNS = r.EndNS + 1 }, `verify: run.jsonl:7: request 1.0.1: sent_ns 410350210, want connected_ns 389876847 to end_ns 410350209`},
	{"answer before connected", func(f *file) { r := f.request("1.0.1"); r.HeadersNS = r.ConnectedNS - 1 }, `verify: run.jsonl:7: request 1.0.1: headers_ns 389876846 lies before connected_ns 389876847`},
	{"events without headers", func(f *file) { f.request("1.0.1").HeadersNS = 0 }, `verify: run.jsonl:7: request 1.0.1: 7 events without headers_ns`},
	{"arrivals go backward", func(f *file) { r := f.request("1.0.1"); r.EventNS[2], r.EventNS[3] = r.EventNS[3], r.EventNS[2] }, `verify: run.jsonl:7: request 1.0.1: event_ns[3] 406154323 lies before 408216227, the one before it or headers_ns`},
	{"first token before the start", func(f *file) { r := f.request("1.0.1"); r.EventNS[0] = r.StartNS - 5 }, `verify: run.jsonl:7: request 1.0.1: event_ns[0] 389826472 lies before 389942701, the one before it or headers_ns`},
	{"end before the last event", func(f *file) { r := f.request("1.0.1"); r.EndNS = r.EventNS[6] - 1 }, `verify: run.jsonl:7: request 1.0.1: end_ns 410324634 lies before the last event 410324635`},
	{"success without connection", func(f *file) { f.request("1.0.1").ConnectedNS = 0 }, `verify: run.jsonl:7: request 1.0.1: no failure, yet connected_ns 0, sent_ns 389886578, headers_ns 389942701`},
	{"success with status 500", func(f *file) { f.request("1.0.1").Status = 500 }, `verify: run.jsonl:7: request 1.0.1: no failure, yet status 500`},
	{"success with an error in the stream", func(f *file) { f.request("1.0.1").EventKinds = "ccccced"; f.request("1.0.1").EventIDs[5] = 0 }, `verify: run.jsonl:7: request 1.0.1: no failure, yet event 5 is an error`},
	{"success with events after the end", func(f *file) { f.request("1.0.1").EventKinds = "cccccdo" }, `verify: run.jsonl:7: request 1.0.1: no failure, yet event 6 comes after the end`},
	{"success with neither finish nor end", func(f *file) { f.request("1.0.1").EventKinds, f.request("1.0.1").Finish = "cccccoo", "" }, `verify: run.jsonl:7: request 1.0.1: no failure, yet neither a finish reason nor an end`},
	{"success without a token", func(f *file) {
		r := f.request("1.0.1")
		r.EventKinds, r.EventIDs, r.TokenIDs = "oooooood"[1:], []int{0, 0, 0, 0, 0, 0, 0}, nil
	}, `verify: run.jsonl:7: request 1.0.1: no failure, yet no token`},
	{"usage against ids", func(f *file) { f.request("1.0.1").Usage.CompletionTokens = 6 }, `verify: run.jsonl:7: request 1.0.1: usage.completion_tokens 6, but 5 token_ids`},
	{"other prompt ids", func(f *file) { f.request("1.0.1").PromptIDs = []int32{5, 9, 2, 6} }, `verify: run.jsonl:7: request 1.0.1: prompt_ids aren't those of prompt "4-b": [1] = 9, want 3`},
	{"63 prompt tokens for 64", func(f *file) { f.request("1.0.1").Usage.PromptTokens = 3 }, `verify: run.jsonl:7: request 1.0.1: usage.prompt_tokens 3, want 4`},
	{"short answer", func(f *file) { shorten(f.request("1.0.1"), f.served("1.0.1"), 4) }, `verify: run.jsonl:7: request 1.0.1: no failure, yet 4 tokens (known: true) with finish "length", want 5 with "length"`},
	{"stopped by itself", func(f *file) { f.request("1.0.1").Finish = "stop" }, `verify: run.jsonl:7: request 1.0.1: no failure, yet 5 tokens (known: true) with finish "stop", want 5 with "length"`},
	{"no usage", func(f *file) { f.request("1.0.1").Usage = nil }, `verify: run.jsonl:7: request 1.0.1: prompt_ids, event_ids or usage are missing`},
	{"used connection", func(f *file) { f.request("1.0.1").Reused = true }, `verify: run.jsonl:7: request 1.0.1: reused is true, want a new connection for each request`},
	{"cached prompt", func(f *file) { n := 3; f.request("1.0.1").Usage.CachedTokens = &n }, `verify: run.jsonl:7: request 1.0.1: usage.cached_tokens 3 from a server that has no cache`},
	{"reasoning", func(f *file) { f.request("1.0.1").Reasoning = "hm" }, `verify: run.jsonl:7: request 1.0.1: reasoning "hm" from a server that has none`},
	{"two ids in one event", func(f *file) { f.request("1.0.1").EventIDs = []int{2, 0, 1, 1, 1, 0, 0} }, `verify: run.jsonl:7: request 1.0.1: event 0 of kind 'c' carries 2 ids, want 1`},
	{"content called reasoning", func(f *file) {
		f.request("1.0.1").EventKinds = "crcccod"
		f.request("1.0.1").EventIDs = []int{2, 0, 1, 1, 1, 0, 0}
	}, `verify: run.jsonl:7: request 1.0.1: event 0 of kind 'c' carries 2 ids, want 1`},
	{"no end from the own server", func(f *file) { f.request("1.0.1").EventKinds = "cccccoo" }, `verify: run.jsonl:7: request 1.0.1: event_kinds "cccccoo", want 5 of "c", then "od"`},
	{"id outside the vocabulary", func(f *file) { f.request("1.0.1").TokenIDs = []int32{35, 46, 7, 50, 29} }, `verify: run.jsonl:7: request 1.0.1: token_ids[3] = 50, want 0 to 49`},
	{"one prompt, two answers", func(f *file) {
		r, s := f.request("2.1.1"), f.served("2.1.1")
		r.TokenIDs, s.TokenIDs = slices.Clone(r.TokenIDs), slices.Clone(s.TokenIDs)
		r.TokenIDs[3]++
		s.TokenIDs[3]++
	}, `verify: run.jsonl:33: request 2.1.1: token_ids[3] = 19, but request 1.0.1 got 18 for the same prompt`},
	{"one prompt, two answers, one of them failed", func(f *file) {
		r, s := f.request("2.1.1"), f.served("2.1.1")
		s.TokenIDs = slices.Clone(s.TokenIDs)
		s.TokenIDs[4]++
		shorten(r, nil, 4)
		r.EventKinds = "ccccod"
		fail(f, "2.1.1", FailStream, "reset")
		f.invalidate(2, "a request failed")
	}, `verify: run.jsonl:33: request 2.1.1: token_ids[4] = 30, but request 1.0.1 got 29 for the same prompt`},
	{"one answer, two texts", func(f *file) { f.request("2.1.1").Text = "an insult" }, `verify: run.jsonl:33: request 2.1.1: its text is not that of request 1.0.1, though its ids are`},

	// A failed request.
	{"unknown failure", func(f *file) { fail(f, "1.0.1", "bad luck", "x") }, `verify: run.jsonl:7: request 1.0.1: failure.class "bad luck" is unknown`},
	{"failure without a message", func(f *file) { fail(f, "1.0.1", FailStall, "") }, `verify: run.jsonl:7: request 1.0.1: failure.message is empty`},
	{"no connection, yet connected", func(f *file) { fail(f, "1.0.1", FailConnect, "x") }, `verify: run.jsonl:7: request 1.0.1: failure.class "connect", but connected_ns is 389876847, status 200, event_kinds "cccccod"`},
	{"status failure with 200", func(f *file) { fail(f, "1.0.1", FailStatus, "x") }, `verify: run.jsonl:7: request 1.0.1: failure.class "status", but connected_ns is 389876847, status 200, event_kinds "cccccod"`},
	{"server failure without an error", func(f *file) { fail(f, "1.0.1", FailServer, "x") }, `verify: run.jsonl:7: request 1.0.1: failure.class "server", but connected_ns is 389876847, status 200, event_kinds "cccccod"`},
	{"empty, yet with tokens", func(f *file) { fail(f, "1.0.1", FailEmpty, "x") }, `verify: run.jsonl:7: request 1.0.1: failure.class "empty", but connected_ns is 389876847, status 200, event_kinds "cccccod"`},

	// The server's log by itself.
	{"served outside a configuration", func(f *file) { s := f.served("1.w.0"); f.remove(s); f.insertAfter(f.server(1), s) }, `verify: run.jsonl:4: served 1.w.0: it stands outside a configuration`},
	{"served in another configuration", func(f *file) { f.served("1.0.1").Config = 2 }, `verify: run.jsonl:17: served 1.0.1: config 2, want 1`},
	{"served without id", func(f *file) { f.served("1.0.1").ID = "" }, `verify: run.jsonl:17: served : its id is empty`},
	{"served twice", func(f *file) { f.insertAfter(f.served("1.0.1"), f.served("1.0.1")) }, `verify: run.jsonl:18: served 1.0.1: logged twice`},
	{"never arrived", func(f *file) { f.served("1.0.1").ArrivalNS = 0 }, `verify: run.jsonl:17: served 1.0.1: arrival_ns 0, queued_ns 389912553, release_ns 410294635, want stamps from 1 to 36028797018963968`},
	{"id without a stamp", func(f *file) { s := f.served("1.0.1"); s.TokenNS = s.TokenNS[1:] }, `verify: run.jsonl:17: served 1.0.1: 5 token_ids and 4 token_ns, want as many of each`},
	{"slot never released", func(f *file) { f.served("1.0.1").ReleaseNS = 0 }, `verify: run.jsonl:17: served 1.0.1: slot_ns 389912653 and release_ns 0, want both or neither`},
	{"tokens without the slot", func(f *file) { f.served("1.0.1").SlotNS, f.served("1.0.1").ReleaseNS = 0, 0 }, `verify: run.jsonl:17: served 1.0.1: 5 tokens and 5 steps without the slot`},
	{"slot without the queue", func(f *file) { f.served("1.0.1").QueuedNS = 0 }, `verify: run.jsonl:17: served 1.0.1: slot_ns 389912653 without queued_ns`},
	{"queued without a prompt", func(f *file) { f.served("1.0.1").PromptIDs = nil }, `verify: run.jsonl:17: served 1.0.1: queued_ns 389912553 without prompt_ids`},
	{"no slot and no error", func(f *file) {
		s := f.served("1.0.1")
		s.SlotNS, s.ReleaseNS, s.TokenIDs, s.TokenNS, s.Steps = 0, 0, nil, nil, 0
	}, `verify: run.jsonl:17: served 1.0.1: no error, yet it never had the slot`},
	{"a step too many", func(f *file) { f.served("1.0.1").Steps = 6 }, `verify: run.jsonl:17: served 1.0.1: 6 steps for 5 tokens, want as many`},
	{"two steps too many", func(f *file) { f.served("1.0.1").Steps, f.served("1.0.1").Error = 7, "x" }, `verify: run.jsonl:17: served 1.0.1: 7 steps for 5 tokens, want as many or one more`},
	{"token at no time", func(f *file) { f.served("1.0.1").TokenNS[2] = 0 }, `verify: run.jsonl:17: served 1.0.1: token_ns[2] = 0`},
	{"queued before arrival", func(f *file) { s := f.served("1.0.1"); s.QueuedNS = s.ArrivalNS - 1 }, `verify: run.jsonl:17: served 1.0.1: queued_ns 389892382 lies before arrival_ns 389892383`},
	{"tokens go backward", func(f *file) { s := f.served("1.0.1"); s.TokenNS[2], s.TokenNS[3] = s.TokenNS[3], s.TokenNS[2] }, `verify: run.jsonl:17: served 1.0.1: token_ns[3] 406125221 lies before token_ns 408190801`},
	{"released before the last token", func(f *file) { s := f.served("1.0.1"); s.ReleaseNS = s.TokenNS[4] - 1 }, `verify: run.jsonl:17: served 1.0.1: release_ns 410254634 lies before token_ns 410254635`},

	// The two witnesses.
	{"request that nobody served", func(f *file) { f.remove(f.served("1.0.1")) }, `verify: run.jsonl:7: request 1.0.1: the server has no record of it`},
	{"served without a client", func(f *file) {
		s := *f.served("1.0.1")
		s.ID = "ghost"
		s.SlotNS, s.ReleaseNS, s.TokenIDs, s.TokenNS, s.Steps, s.Error = 0, 0, nil, nil, 0, "left in the queue"
		f.insertAfter(f.served("1.0.1"), &s)
	}, `verify: run.jsonl:18: served ghost: no client sent it`},
	{"arrived before it was sent", func(f *file) { s := f.served("1.0.1"); s.ArrivalNS = f.request("1.0.1").ConnectedNS - 271 }, `verify: run.jsonl:7: request 1.0.1: the server had it at 389876576, before its client was connected at 389876847`},
	{"answered before it arrived", func(f *file) {
		r, s := f.request("1.0.1"), f.served("1.0.1")
		r.HeadersNS = s.ArrivalNS - 271
	}, `verify: run.jsonl:7: request 1.0.1: headers_ns 389892112 lies before the server had the request, 389892383`},
	{"id that the server didn't make", func(f *file) {
		s := f.served("1.0.1")
		s.TokenIDs = slices.Clone(s.TokenIDs)
		s.TokenIDs[1]++
	}, `verify: run.jsonl:7: request 1.0.1: token_ids[1] = 46, the server made 47`},
	{"more tokens than the server made", func(f *file) {
		s := f.served("1.0.1")
		s.TokenIDs, s.TokenNS, s.Steps = s.TokenIDs[:4], s.TokenNS[:4], 4
	}, `verify: run.jsonl:7: request 1.0.1: it has 5 tokens, the server made 4`},
	{"fewer tokens than the server made", func(f *file) {
		s := f.served("1.0.1")
		s.TokenIDs, s.TokenNS, s.Steps = append(slices.Clone(s.TokenIDs), 1), append(s.TokenNS, s.ReleaseNS), 6
	}, `verify: run.jsonl:7: request 1.0.1: it has 5 tokens, the server made 6`},
	{"token arrived before it was made", func(f *file) { r := f.request("1.0.1"); r.EventNS[1] = f.served("1.0.1").TokenNS[1] - 271 }, `verify: run.jsonl:7: request 1.0.1: token 1 arrived at 404028094, before the server made it at 404028365`},
	{"server read another prompt", func(f *file) { f.served("1.0.1").PromptIDs = []int32{5, 9, 2, 6} }, `verify: run.jsonl:7: request 1.0.1: prompt_ids aren't those that the server logged: [1] = 3, want 9`},
	{"server logged an error", func(f *file) { f.served("1.0.1").Error = "generation failed" }, `verify: run.jsonl:7: request 1.0.1: no failure, yet the server logged the error "generation failed"`},
	{"ended before the slot was free", func(f *file) { s := f.served("1.2.2"); s.ReleaseNS = f.request("1.2.2").EndNS + 271 }, `verify: run.jsonl:14: request 1.2.2: it ended at 557197133, before the server released the slot at 557197404`},

	// The slot.
	{"two in the slot", func(f *file) { s := f.served("3.0.1"); s.SlotNS = f.served("3.0.0").ReleaseNS - 1 }, `verify: run.jsonl:64: served 3.0.1: slot_ns 1126353768 lies before release_ns 1126353769 of 3.0.0, and the slot is one`},
	{"out of order", func(f *file) { // it waited, and should have been first
		f.served("3.0.1").QueuedNS = f.served("3.0.0").QueuedNS - 1
	}, `verify: run.jsonl:64: served 3.0.1: queued_ns 1106058947 lies before that of 3.0.0, 1106058948, which got the slot before it`},
	{"two in the slot, across configurations", func(f *file) {
		s := *f.served("1.2.2") // a client that left; its request went on
		s.ID, s.Error, s.Steps = "left", "the client left", 6
		s.QueuedNS = s.ReleaseNS + 100
		s.SlotNS = s.QueuedNS
		s.TokenNS = slices.Clone(s.TokenNS)
		for i := range s.TokenNS {
			s.TokenNS[i] = s.SlotNS
		}
		s.ReleaseNS = f.served("2.w.0").SlotNS + 1
		f.insertAfter(f.served("1.2.2"), &s)
		f.invalidate(1, "a client left")
	}, `verify: run.jsonl:39: served 2.w.0: slot_ns 565288617 lies before release_ns 565288618 of left, and the slot is one`},

	// The load.
	{"a client's requests overlap", func(f *file) { f.request("3.0.1").Client = 0 }, `verify: run.jsonl:54: request 3.0.1: scheduled_ns 1105981056 lies before the end of its client's request 3.0.0, 1126409109`},
	{"pass before its time", func(f *file) {
		f.request("1.0.2").Pass, f.request("1.1.2").Pass = 1, 0
	}, `verify: run.jsonl:26: configuration 1: pass 1 starts at 410354998, before pass 0 ends at 493821142`},
	{"warmup among the measured", func(f *file) {
		for _, r := range []any{f.request("1.w.0"), f.served("1.w.0")} {
			f.remove(r)
			f.insertAfter(f.request("1.0.0"), r)
		}
		r, s := f.request("1.w.0"), f.served("1.w.0")
		shift := f.request("1.2.2").EndNS + ms - r.ScheduledNS
		move(r, s, shift)
		f.plan(2).PlannedNS += 50 * ms
	}, `verify: run.jsonl:26: configuration 1: pass 0 starts at 369450299, before the warmup ends at 578643258`},

	{"prompts out of turn", func(f *file) { p := f.plan(1).Prompts; p[1], p[2] = p[2], p[1] }, `verify: run.jsonl:7: request 1.0.1: start_ns 389826477 lies before prompt "4-c", which is ahead of "4-b" in the plan, was due, 410353209`},

	// Conservation.
	{"request dropped", func(f *file) { f.remove(f.request("1.1.1")) }, `verify: run.jsonl:25: configuration 1: prompt "4-b" was not sent in pass 1`},
	{"warmup dropped", func(f *file) { f.remove(f.request("1.w.0")) }, `verify: run.jsonl:25: configuration 1: prompt "4-warmup" was not sent in the warmup`},
	{"request and its log dropped", func(f *file) { f.remove(f.request("1.1.1")); f.remove(f.served("1.1.1")) }, `verify: run.jsonl:24: configuration 1: prompt "4-b" was not sent in pass 1`},
	{"prompt twice in a pass", func(f *file) { f.request("1.2.1").Pass = 1 }, `verify: run.jsonl:13: request 1.2.1: prompt "4-b" was sent before in pass 1`},
	{"passes", func(f *file) { f.configuration(1).Passes = 2 }, `verify: run.jsonl:12: request 1.2.0: pass 2, want below the 2 of its configuration`},
	{"no pass", func(f *file) { f.configuration(1).Passes = 0 }, `verify: run.jsonl:26: configuration 1: passes 0, want at least 1`},
	{"a pass more", func(f *file) { f.configuration(1).Passes = 4 }, `verify: run.jsonl:26: configuration 1: prompt "4-a" was not sent in pass 3`},

	// Memory.
	{"memory outside a configuration", func(f *file) { m := f.memory(1); f.remove(m); f.insertAfter(f.server(1), m) }, `verify: run.jsonl:4: memory 1: it stands outside a configuration`},
	{"sizes without times", func(f *file) { m := f.memory(1); m.TimeNS = m.TimeNS[1:] }, `verify: run.jsonl:25: memory 1: 21 time_ns and 22 rss_bytes, want as many of each and at least 1`},
	{"no samples", func(f *file) { m := f.memory(1); m.TimeNS, m.RSSBytes = nil, nil }, `verify: run.jsonl:25: memory 1: 0 time_ns and 0 rss_bytes, want as many of each and at least 1`},
	{"sample before the plan", func(f *file) { f.memory(1).TimeNS[0] = f.plan(1).PlannedNS - 1 }, `verify: run.jsonl:25: memory 1: time_ns[0] = 344999999, want 345000000 to 36028797018963968`},
	{"samples go backward", func(f *file) { m := f.memory(1); m.TimeNS[3] = m.TimeNS[2] }, `verify: run.jsonl:25: memory 1: time_ns[3] = 366000000, want 366000001 to 36028797018963968`},
	{"sample of nothing", func(f *file) { f.memory(1).RSSBytes[3] = 0 }, `verify: run.jsonl:25: memory 1: rss_bytes[3] = 0, want 1 to 2^50`},
	{"sample above the peak", func(f *file) { f.memory(1).RSSBytes[3] = 5_600_000; f.recompute(1) }, `verify: run.jsonl:26: configuration 1: peak_bytes 5500928, but a sample has 5600000`},
	{"peak without samples", func(f *file) { f.remove(f.memory(1)); f.recompute(1) }, `verify: run.jsonl:25: configuration 1: peak_bytes 5500928 without a sample of memory`},
	{"peak without a source", func(f *file) { f.configuration(1).PeakSource = "" }, `verify: run.jsonl:26: configuration 1: peak_source "" is unknown`},
	{"peak of 0", func(f *file) { f.configuration(1).PeakBytes = 0 }, `verify: run.jsonl:26: configuration 1: peak_bytes 0 with peak_source "VmHWM", want a size with its source or 0 with "unmeasured"`},
	{"unmeasured peak", func(f *file) { f.configuration(1).PeakSource = Unmeasured }, `verify: run.jsonl:26: configuration 1: peak_bytes 5500928 with peak_source "unmeasured", want a size with its source or 0 with "unmeasured"`},

	// The closing record.
	{"closing of another configuration", func(f *file) { f.configuration(1).Config = 2 }, `verify: run.jsonl:26: configuration 2: config 2, want 1`},
	{"closed twice", func(f *file) { f.insertAfter(f.configuration(1), f.configuration(1)) }, `verify: run.jsonl:27: configuration 1: it stands outside a configuration`},
	{"measured", func(f *file) { f.configuration(1).Measured-- }, `verify: run.jsonl:26: configuration 1: measured 8, but its records give 9`},
	{"failed", func(f *file) { f.configuration(1).Failed++ }, `verify: run.jsonl:26: configuration 1: failed 1, but its records give 0`},
	{"warmup_failed", func(f *file) { f.configuration(1).WarmupFailed++ }, `verify: run.jsonl:26: configuration 1: warmup_failed 1, but its records give 0`},
	{"tokens", func(f *file) { f.configuration(1).Tokens++ }, `verify: run.jsonl:26: configuration 1: tokens 46, but its records give 45`},
	{"begin_ns", func(f *file) { f.configuration(1).BeginNS-- }, `verify: run.jsonl:26: configuration 1: begin_ns 369450298, but its records give 369450299`},
	{"end_ns", func(f *file) { f.configuration(1).EndNS++ }, `verify: run.jsonl:26: configuration 1: end_ns 557197134, but its records give 557197133`},
	{"lead_ns", func(f *file) { f.configuration(1).LeadNS++ }, `verify: run.jsonl:26: configuration 1: lead_ns 24450300, but its records give 24450299`},
	{"spans", func(f *file) { f.configuration(1).Spans.QueueNS-- }, `verify: run.jsonl:26: configuration 1: spans.queue_ns 899, but its records give 900`},
	{"excluded", func(f *file) { f.configuration(1).Excluded.Requests++ }, `verify: run.jsonl:26: configuration 1: excluded.requests 2, but its records give 1`},
	{"samples", func(f *file) { f.configuration(1).Sampled.Samples++ }, `verify: run.jsonl:26: configuration 1: sampled.samples 23, but its records give 22`},
	{"sampled maximum", func(f *file) { f.configuration(1).Sampled.MaxBytes++ }, `verify: run.jsonl:26: configuration 1: sampled.max_bytes 5401409, but its records give 5401408`},
	{"sampled sum", func(f *file) { f.configuration(1).Sampled.SumBytes++ }, `verify: run.jsonl:26: configuration 1: sampled.sum_bytes 114812801, but its records give 114812800`},
	{"sampled gap", func(f *file) { f.configuration(1).Sampled.GapNS++ }, `verify: run.jsonl:26: configuration 1: sampled.gap_ns 10000001, but its records give 10000000`},
	{"stamp in the middle of a stream", func(f *file) { f.request("1.0.1").EventNS[2]++ }, `verify: run.jsonl:26: configuration 1: spans.events_ns 1098726355, but its records give 1098726356`},
	{"stamp in the middle of the log", func(f *file) { f.served("1.0.1").TokenNS[2]-- }, `verify: run.jsonl:26: configuration 1: spans.delivery_ns 1243150, but its records give 1243151`},
	{"valid with a reason against it", func(f *file) { f.configuration(1).Reasons = []string{"busy machine"} }, `verify: run.jsonl:26: configuration 1: valid is true with the reasons ["busy machine"], want none or at least one that says why`},
	{"invalid without a reason", func(f *file) { f.configuration(1).Valid = false }, `verify: run.jsonl:26: configuration 1: valid is false with the reasons [], want none or at least one that says why`},
	{"empty reason", func(f *file) { f.invalidate(1, "") }, `verify: run.jsonl:26: configuration 1: valid is false with the reasons [""], want none or at least one that says why`},
	{"invalid with metrics", func(f *file) {
		c := f.configuration(1)
		c.Valid, c.Reasons = false, []string{"busy machine"}
	}, `verify: run.jsonl:26: configuration 1: it is invalid and has 6 metrics, want none`},
	{"valid with a failed request", func(f *file) { fail(f, "1.0.1", FailStall, "nothing for 5m0s"); f.recompute(1) }, `verify: run.jsonl:26: configuration 1: it is called valid, but 1 of 9 measured requests and 0 warmups failed`},
	{"valid with a failed warmup", func(f *file) { fail(f, "1.w.0", FailStall, "nothing for 5m0s"); f.recompute(1) }, `verify: run.jsonl:26: configuration 1: it is called valid, but 0 of 9 measured requests and 1 warmups failed`},
	{"metric in its last bit", func(f *file) { m := f.configuration(1).Metrics; m[3].Value = math.Nextafter(m[3].Value, 1e9) }, `verify: run.jsonl:26: configuration 1: metric tpot-p50-ms = 2.0391852500000005, but its records give tpot-p50-ms = 2.03918525`},
	{"metric left out", func(f *file) { c := f.configuration(1); c.Metrics = c.Metrics[:5] }, `verify: run.jsonl:26: configuration 1: metric usd/Mtok is missing, its records give 0.28973276851851854`},
	{"metric made up", func(f *file) { c := f.configuration(1); c.Metrics = append(c.Metrics, Metric{"J/tok", 1.5}) }, `verify: run.jsonl:26: configuration 1: metric J/tok = 1.5, but its records don't define it`},
	{"metrics in another order", func(f *file) { m := f.configuration(1).Metrics; m[0], m[1] = m[1], m[0] }, `verify: run.jsonl:26: configuration 1: metric rss-peak-B = 5.500928e+06, but its records give p95-s = 0.020468727`},
	{"price", func(f *file) { f.header().HourlyUSD = 0.5 }, `verify: run.jsonl:26: configuration 1: metric usd/Mtok = 0.28973276851851854, but its records give usd/Mtok = 0.5794655370370371`},
	{"peak", func(f *file) { f.configuration(1).PeakBytes++ }, `verify: run.jsonl:26: configuration 1: metric rss-peak-B = 5.500928e+06, but its records give rss-peak-B = 5.500929e+06`},

	// The trailer.
	{"trailer within a configuration", func(f *file) { f.remove(f.configuration(4)) }, `verify: run.jsonl:96: trailer: it stands within configuration 4`},
	{"trailer's end", func(f *file) { f.trailer.EndNS = 0 }, `verify: run.jsonl:97: trailer: end_ns 0, want 1510309682, the end of the last configuration, to 36028797018963968`},
	{"trailer's time", func(f *file) { f.trailer.Ended = "later" }, `verify: run.jsonl:97: trailer: ended "later" is no time of RFC 3339`},
	{"trailer's records", func(f *file) { f.trailer.Records = 1 }, `verify: run.jsonl:97: trailer: records 97, but the file has 96`},
	{"trailer's configurations", func(f *file) { f.trailer.Configurations = -1 }, `verify: run.jsonl:97: trailer: configurations 3, but the file has 4`},
	{"trailer's invalid", func(f *file) { f.trailer.Invalid = 1 }, `verify: run.jsonl:97: trailer: invalid 1, but the file has 0`},
	{"trailer's requests", func(f *file) { f.trailer.Requests = 1 }, `verify: run.jsonl:97: trailer: requests 41, but the file has 40`},
	{"trailer's failed", func(f *file) { f.trailer.Failed = 1 }, `verify: run.jsonl:97: trailer: failed 1, but the file has 0`},
	{"trailer's tokens", func(f *file) { f.trailer.Tokens = 1 }, `verify: run.jsonl:97: trailer: tokens 201, but the file has 200`},

	// A server that somebody else started.
	{"log of a target", func(f *file) {
		targeted(f)
		f.insertAfter(f.request("1.0.1"), &Served{Kind: KindServed, Config: 1, ID: "1.0.1"})
	}, `verify: run.jsonl:8: served 1.0.1: a log of a server that this run didn't start`},
	{"memory of a target", func(f *file) {
		targeted(f)
		f.insertAfter(f.request("1.0.1"), &Memory{Kind: KindMemory, Config: 1, TimeNS: []int64{f.plan(1).PlannedNS}, RSSBytes: []int64{1}})
	}, `verify: run.jsonl:8: memory 1: memory of a server that this run didn't start`},
	{"peak of a target", func(f *file) { targeted(f); c := f.configuration(1); c.PeakBytes, c.PeakSource = 5_500_928, "VmHWM" }, `verify: run.jsonl:15: configuration 1: peak_bytes 5500928 of a server that this run didn't start`},
}

// shorten cuts an answer to n tokens, in both witnesses.
func shorten(r *Request, s *Served, n int) {
	cut := len(r.TokenIDs) - n
	r.TokenIDs, r.EventIDs, r.EventNS, r.EventKinds = r.TokenIDs[:n], r.EventIDs[cut:], r.EventNS[cut:], r.EventKinds[cut:]
	r.Usage.CompletionTokens = n
	if s != nil {
		s.TokenIDs, s.TokenNS, s.Steps = s.TokenIDs[:n], s.TokenNS[:n], n
	}
}

func fail(f *file, id, class, message string) {
	f.request(id).Failure = &Failure{class, message}
}

// move shifts both records of a request in time.
func move(r *Request, s *Served, by int64) {
	for _, ns := range []*int64{&r.ScheduledNS, &r.StartNS, &r.ConnectedNS, &r.SentNS, &r.HeadersNS, &r.EndNS, &s.ArrivalNS, &s.QueuedNS, &s.SlotNS, &s.ReleaseNS} {
		*ns += by
	}
	for i := range r.EventNS {
		r.EventNS[i] += by
	}
	for i := range s.TokenNS {
		s.TokenNS[i] += by
	}
}

// targeted turns a file into one about a server that the run didn't start,
// whose prompts of ids are salted.
func targeted(f *file) {
	t := &Target{
		URL: "http://127.0.0.1:8000/v1", API: "completions", Model: "m", Software: "uvicorn", Headers: []string{"X-Team"},
		Fields: []Field{{"top_k", "1"}}, Optional: []string{"ignore_eos"}, KeyFrom: "API_KEY", Prompts: PromptsIDs, SaltSeed: 42,
	}
	f.header().Target = t
	pool := f.corpus().Pool()
	each(f, func(s *Served) { f.remove(s) })
	each(f, func(m *Memory) { f.remove(m) })
	each(f, func(s *Server) {
		*s = Server{Kind: KindServer, Server: s.Server, ReadyNS: s.ReadyNS, Model: Model{ID: t.Model}}
	})
	each(f, func(p *Plan) {
		_, rest, _ := strings.Cut(p.Name, "/input")
		p.Name, p.Axes, p.MaxCached = "BenchmarkServe/input"+rest, p.Axes[1:], 5
	})
	each(f, func(r *Request) {
		r.SentIDs = SaltedIDs(t.SaltSeed, r.ID, f.prompt(r.Prompt).IDs, pool)
		r.PromptIDs = r.SentIDs
	})
	each(f, func(c *Configuration) {
		c.PeakBytes, c.PeakSource = 0, Unmeasured
		f.recompute(c.Config)
	})
}

// unsalt has a targeted file's prompts sent as they stand, again and again.
func unsalt(f *file) {
	t := f.header().Target
	t.SaltSeed, t.Repeats = 0, true
	each(f, func(r *Request) { r.SentIDs, r.PromptIDs = nil, f.prompt(r.Prompt).IDs })
}

func TestTamperedEvidenceIsRefused(t *testing.T) {
	data := good().encode()
	for _, test := range tampered {
		t.Run(test.name, func(t *testing.T) {
			f := decodeFile(t, data)
			test.change(f)
			report := replayed(t, f.encode())
			if report.Verdict != Inconsistent {
				t.Fatalf("verdict = %v, want inconsistent", report.Verdict)
			}
			if got := report.Err().Error(); got != test.want {
				t.Errorf("problem:\n got %s\nwant %s", got, test.want)
			}
		})
	}
}

// On a coarse clock a request whose client had left has the slot and gives it
// on within one tick. That is no overlap, in whichever order they are logged.
func TestSlotWithinOneTick(t *testing.T) {
	left := &Served{ID: "left", QueuedNS: 10, SlotNS: 20, ReleaseNS: 20, Error: "the client left in the queue"}
	next := &Served{ID: "next", QueuedNS: 11, SlotNS: 20, ReleaseNS: 90}
	for _, served := range [][]*Served{{left, next}, {next, left}} {
		p := &replay{report: &Report{}, cell: &cell{served: served, servedLines: []int{1, 2}}}
		if p.checkSlot("", nil); len(p.report.Problems) > 0 {
			t.Errorf("%s before %s in the log: %v", served[0].ID, served[1].ID, p.report.Problems[0])
		}
		if p.slot != next {
			t.Errorf("the last holder is %s, want next", p.slot.ID)
		}
	}
}
