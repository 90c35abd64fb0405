package verify

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"slices"
	"strings"
	"testing"
)

// reseal makes the trailer's hash right again after bytes were changed.
func reseal(t *testing.T, data []byte) []byte {
	t.Helper()
	cut := bytes.LastIndex(data, []byte(`{"kind":"trailer"`))
	var trailer Trailer
	if err := json.Unmarshal(data[cut:], &trailer); err != nil {
		t.Fatal(err)
	}
	sum := sha256.Sum256(data[:cut])
	trailer.SHA256 = hex.EncodeToString(sum[:])
	return append(slices.Clone(data[:cut]), line(&trailer)...)
}

// replaceIn replaces a part of the first line that contains where.
func replaceIn(t *testing.T, data []byte, where, old, new string) []byte {
	t.Helper()
	begin := bytes.Index(data, []byte(where))
	if begin < 0 {
		t.Fatalf("no line has %s", where)
	}
	begin = bytes.LastIndexByte(data[:begin], '\n') + 1
	end := begin + bytes.IndexByte(data[begin:], '\n')
	changed := bytes.Replace(data[begin:end], []byte(old), []byte(new), 1)
	if bytes.Equal(changed, data[begin:end]) {
		t.Fatalf("%s isn't in %s", old, data[begin:end])
	}
	return slices.Concat(data[:begin], changed, data[end:])
}

// Kinds of evidence that tools in the field were seen to produce and to
// accept, each by its number in the collection of public bug reports that
// this table is made from.
func TestEvidenceRows(t *testing.T) {
	const in = `"id":"1.0.1"`
	bytesOf := func(change func(f *file)) []byte {
		f := good()
		change(f)
		return f.encode()
	}
	// An external server, so that an answer may be shorter than asked for.
	inexact := func(change func(f *file)) []byte {
		f := good()
		targeted(f)
		each(f, func(p *Plan) { p.ExactOutput = false })
		change(f)
		return f.encode()
	}
	for _, test := range []struct {
		name    string
		data    []byte
		verdict Verdict
		valid   int
		want    string
	}{
		{"E00 good", good().encode(), Consistent, 4, ""},
		{"E01 NaN in a request", reseal(t, replaceIn(t, good().encode(), in, `"end_ns":`, `"end_ns":NaN,"x":`)), Inconsistent, 0,
			`verify: run.jsonl:7: request 1.0.1: field "end_ns": invalid character 'N' looking for beginning of value at byte 468, near "\xa3ている。\",\"end_ns\":NaN,\"x\":410350209,\"statu"`},
		{"E01 NaN in an arrival", reseal(t, replaceIn(t, good().encode(), in, `"event_ns":[`, `"event_ns":[NaN,`)), Inconsistent, 0,
			`verify: run.jsonl:7: request 1.0.1: field "event_ns": invalid character 'N' looking for beginning of value at byte 241, near "\":389942701,\"event_ns\":[NaN,401957899,404053504,"`},
		{"E01 NaN as a metric", reseal(t, replaceIn(t, good().encode(), `"kind":"configuration"`, `"unit":"p95-s","value":`, `"unit":"p95-s","value":NaN,"x":`)), Inconsistent, 0,
			`verify: run.jsonl:26: configuration 1: field "value": invalid character 'N' looking for beginning of value at byte 825, near "{\"unit\":\"p95-s\",\"value\":NaN,\"x\":0.020468727},{\"u"`},
		{"E02 Infinity as a metric", reseal(t, replaceIn(t, good().encode(), `"kind":"configuration"`, `"unit":"tok/s","value":`, `"unit":"tok/s","value":Infinity,"x":`)), Inconsistent, 0,
			`verify: run.jsonl:26: configuration 1: field "value": invalid character 'I' looking for beginning of value at byte 900, near "{\"unit\":\"tok/s\",\"value\":Infinity,\"x\":239.6844678"`},
		{"E02 negative Infinity in a request", reseal(t, replaceIn(t, good().encode(), in, `"start_ns":`, `"start_ns":-Infinity,"x":`)), Inconsistent, 0,
			`verify: run.jsonl:7: request 1.0.1: field "start_ns": invalid character 'I' in numeric literal at byte 152, near "\":389824562,\"start_ns\":-Infinity,\"x\":389826477,\""`},
		{"E03 1e400 as a metric", reseal(t, replaceIn(t, good().encode(), `"kind":"configuration"`, `"unit":"p95-s","value":`, `"unit":"p95-s","value":1e400,"x":`)), Inconsistent, 0,
			`verify: run.jsonl:26: configuration 1: field "metrics.value": number 1e400 doesn't fit its type float64`},
		{"E03 1e400 in a request", reseal(t, replaceIn(t, good().encode(), in, `"start_ns":`, `"start_ns":1e400,"x":`)), Inconsistent, 0,
			`verify: run.jsonl:7: request 1.0.1: field "start_ns": number 1e400 doesn't fit its type int64`},
		{"E03 1e400 in an arrival", reseal(t, replaceIn(t, good().encode(), in, `"event_ns":[`, `"event_ns":[1e400,`)), Inconsistent, 0,
			`verify: run.jsonl:7: request 1.0.1: field "event_ns": number 1e400 doesn't fit its type int64`},
		{"E07 truncated", good().encode()[:20_000], Incomplete, 1,
			`verify: incomplete: the run ended within configuration 2, BenchmarkServe/threads=1/input=4/conc=1, after 10 requests`},
		{"E09 arrivals go backward", bytesOf(func(f *file) {
			r := f.request("1.0.1")
			r.EventNS[1], r.EventNS[2] = r.EventNS[2], r.EventNS[1]
			f.recompute(1)
		}), Inconsistent, 4,
			`verify: run.jsonl:7: request 1.0.1: event_ns[2] 404053504 lies before 406154323, the one before it or headers_ns`},
		{"E10 first token before the start", bytesOf(func(f *file) {
			r := f.request("1.0.1")
			r.StartNS = r.EventNS[0] + 5
			f.recompute(1)
		}), Inconsistent, 4,
			`verify: run.jsonl:7: request 1.0.1: connected_ns 389876847 lies before start_ns 401957904`},
		{"E11 equal arrivals", bytesOf(func(f *file) { // events that share a read
			r := f.request("1.0.1")
			r.EventNS[0], r.EventNS[1] = r.EventNS[2], r.EventNS[2]
			f.recompute(1)
		}), Consistent, 4, ""},
		{"E16a warmup inside p95", bytesOf(func(f *file) {
			var sum Summary
			each(f, func(r *Request) {
				if r.Config == 1 {
					all := *r
					all.Phase = PhaseMeasured
					sum.Add(&all)
				}
			})
			f.configuration(1).Metrics[0] = sum.Metrics(1, 0)[0]
		}), Inconsistent, 4,
			`verify: run.jsonl:26: configuration 1: metric p95-s = 0.0204675185, but its records give p95-s = 0.020468727`},
		{"E17 one token of five, exact", bytesOf(func(f *file) {
			r := f.request("1.0.1")
			shorten(r, f.served("1.0.1"), 1)
			r.Finish = "stop"
			f.recompute(1)
		}), Inconsistent, 4,
			`verify: run.jsonl:7: request 1.0.1: no failure, yet 1 tokens (known: true) with finish "stop", want 5 with "length"`},
		{"E17 one token of five, failed", bytesOf(func(f *file) {
			r := f.request("1.0.1")
			shorten(r, f.served("1.0.1"), 1)
			r.Finish = "stop"
			fail(f, "1.0.1", FailShort, `1 tokens with finish reason "stop", want 5 with "length"`)
			f.invalidate(1, "request 1.0.1 failed")
		}), Consistent, 3, ""},
		{"E17 one token of five, inexact", inexact(func(f *file) {
			r := f.request("1.0.1")
			shorten(r, nil, 1)
			r.Finish = "stop"
			f.recompute(1)
		}), Consistent, 4, ""},
		{"E19 no requests, called valid", bytesOf(func(f *file) {
			drop(f, 1)
			f.recompute(1)
		}), Inconsistent, 4,
			`verify: run.jsonl:6: configuration 1: prompt "4-warmup" was not sent in the warmup`},
		{"E19 no requests, called invalid", bytesOf(func(f *file) {
			drop(f, 1)
			f.configuration(1).Passes = 0
			f.invalidate(1, "no pass was made")
		}), Consistent, 3, ""},
		{"E20 all failed, metrics of zero", bytesOf(func(f *file) {
			failAll(f, 1)
			f.recompute(1)
			f.configuration(1).Metrics = []Metric{{"p95-s", 0}, {"tok/s", 0}, {"tpot-p50-ms", 0}, {"ttft-p50-s", 0}}
		}), Inconsistent, 4,
			`verify: run.jsonl:16: configuration 1: it is called valid, but 9 of 9 measured requests and 1 warmups failed`},
		{"E20 all failed, called invalid with metrics of zero", bytesOf(func(f *file) {
			failAll(f, 1)
			f.invalidate(1, "all requests failed")
			f.configuration(1).Metrics = []Metric{{"p95-s", 0}}
		}), Inconsistent, 3,
			`verify: run.jsonl:16: configuration 1: it is invalid and has 1 metrics, want none`},
		{"E20 all failed, called invalid", bytesOf(func(f *file) {
			failAll(f, 1)
			f.invalidate(1, "all requests failed")
		}), Consistent, 3, ""},
		{"E21 3 prompt tokens of 4, by usage", bytesOf(func(f *file) { f.request("1.0.1").Usage.PromptTokens = 3 }), Inconsistent, 4,
			`verify: run.jsonl:7: request 1.0.1: usage.prompt_tokens 3, want 4`},
		{"E21 3 prompt tokens of 4, by ids", bytesOf(func(f *file) {
			r, s := f.request("1.0.1"), f.served("1.0.1")
			r.PromptIDs, s.PromptIDs = r.PromptIDs[:3], s.PromptIDs[:3]
		}), Inconsistent, 4,
			`verify: run.jsonl:7: request 1.0.1: prompt_ids aren't those of prompt "4-b": 3 ids, want 4`},
		{"E22 a pointer file for the model", bytesOf(func(f *file) {
			each(f, func(s *Server) { s.Model.Files = []File{{"model.onnx", 134, digest}} })
		}), Inconsistent, 4,
			`verify: run.jsonl:3: server 1: model: files of 134 bytes, want at least 4000 for 1000 parameters in precision "fp32": a pointer or a part was hashed in place of the weights`},
		{"E22 a placeholder for its hash", bytesOf(func(f *file) {
			each(f, func(s *Server) { s.Model.Files[1].SHA256 = strings.Repeat("1", 64) })
		}), Inconsistent, 4,
			`verify: run.jsonl:3: server 1: model: file model.data: sha256 "1111111111111111111111111111111111111111111111111111111111111111" is a placeholder`},
	} {
		t.Run(test.name, func(t *testing.T) {
			report := replayed(t, test.data)
			got := ""
			if err := report.Err(); err != nil {
				got = err.Error()
			}
			if report.Verdict != test.verdict || got != test.want {
				t.Errorf("%v:\n got %s\nwant %s", report.Verdict, got, test.want)
			}
			if valid := report.Valid(); valid != test.valid && test.verdict != Inconsistent {
				t.Errorf("%d valid configurations, want %d", valid, test.valid)
			}
		})
	}
	// One token has no TPOT, so the median is that of the others; the same
	// request with none left over leaves it undefined.
	report := replayed(t, inexact(func(f *file) {
		each(f, func(r *Request) {
			if r.Config == 1 && r.Phase == PhaseMeasured {
				shorten(r, nil, 1)
				r.Finish = "stop"
			}
		})
		f.recompute(1)
	}))
	if got := units(report.Results[0].Configuration.Metrics); report.Err() != nil || !slices.Equal(got, []string{UnitE2E95, UnitThroughput, UnitTTFT50, UnitCost}) {
		t.Errorf("one token a request: %v with %v, want no %s", report.Err(), got, UnitTPOT50)
	}
}

// drop removes all requests of a configuration with their log.
func drop(f *file, config int) {
	each(f, func(r *Request) {
		if r.Config == config {
			f.remove(r)
		}
	})
	each(f, func(s *Served) {
		if s.Config == config {
			f.remove(s)
		}
	})
}

// failAll makes every request of a configuration one that found no server.
func failAll(f *file, config int) {
	each(f, func(r *Request) {
		if r.Config == config {
			*r = Request{Kind: r.Kind, Config: r.Config, ID: r.ID, Phase: r.Phase, Pass: r.Pass, Client: r.Client, Prompt: r.Prompt, OutputTokens: r.OutputTokens,
				ScheduledNS: r.ScheduledNS, StartNS: r.StartNS, EndNS: r.EndNS, Failure: &Failure{FailConnect, "connection refused"}}
		}
	})
	each(f, func(s *Served) {
		if s.Config == config {
			f.remove(s)
		}
	})
}
