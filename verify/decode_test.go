package verify

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/iotest"
)

// What hides in a line, or is no record at all. The file's hash is right.
func TestOnlyCanonicalRecords(t *testing.T) {
	const request = `"id":"1.0.1"`
	data := good().encode()
	end := bytes.LastIndexByte(data[:len(data)-1], '\n') + 1 // of the last record before the trailer
	insert := func(at int, line string) []byte {
		return reseal(t, bytes.Join([][]byte{data[:at], data[at:]}, []byte(line)))
	}
	for _, test := range []struct {
		name string
		data []byte
		want string
	}{
		{"unknown field", reseal(t, replaceIn(t, data, request, `"pass":0`, `"pass":0,"retries":2`)),
			`verify: run.jsonl:7: request 1.0.1: unknown field "retries"`},
		{"field twice", reseal(t, replaceIn(t, data, request, `"status":200`, `"status":500,"status":200`)),
			`verify: run.jsonl:7: request 1.0.1: not in canonical form at byte 486: have "_ns\":410350209,\"status\":500,\"status\":200,\"finish", want "_ns\":410350209,\"status\":200,\"finish\":\"length\",\"u"`},
		{"field in capitals", reseal(t, replaceIn(t, data, request, `"status":200`, `"Status":200`)),
			`verify: run.jsonl:7: request 1.0.1: not in canonical form at byte 478: have "\x80\x82\",\"end_ns\":410350209,\"Status\":200,\"finish\":\"le", want "\x80\x82\",\"end_ns\":410350209,\"status\":200,\"finish\":\"le"`},
		{"space", reseal(t, replaceIn(t, data, request, `"pass":0`, `"pass": 0`)),
			`verify: run.jsonl:7: request 1.0.1: not in canonical form at byte 68: have "hase\":\"measured\",\"pass\": 0,\"client\":0,\"prompt\":\"", want "hase\":\"measured\",\"pass\":0,\"client\":0,\"prompt\":\"4"`},
		{"null for a list", reseal(t, replaceIn(t, data, request, `"prompt_ids":[5,3,5,8]`, `"prompt_ids":null`)),
			`verify: run.jsonl:7: request 1.0.1: not in canonical form at byte 364: have "t_ids\":[1,1,1,1,1,0,0],\"prompt_ids\":null,\"token_", want "t_ids\":[1,1,1,1,1,0,0],\"token_ids\":[35,46,7,18,2"`},
		{"number as a string", reseal(t, replaceIn(t, data, request, `"pass":0`, `"pass":"0"`)),
			`verify: run.jsonl:7: request 1.0.1: field "pass": string doesn't fit its type int`},
		{"fraction for a stamp", reseal(t, replaceIn(t, data, request, `"end_ns":`, `"end_ns":0.5,"x":`)),
			`verify: run.jsonl:7: request 1.0.1: field "end_ns": number 0.5 doesn't fit its type int64`},
		{"two records in a line", reseal(t, replaceIn(t, data, request, `{"kind":"request"`, `{"kind":"request"} {"kind":"request"`)),
			`verify: run.jsonl:7: request 1.0.1: field "kind": invalid character '{' after top-level value at byte 20, near "{\"kind\":\"request\"} {\"kind\":\"request\",\"confi"`},
		{"kind not first", reseal(t, replaceIn(t, data, request, `{"kind":"request","config":1`, `{"config":1,"kind":"request"`)),
			`verify: run.jsonl:7: no record: "{\"config\":1,\"kind\":\"requ", want {"kind":…`},
		{"carriage return", reseal(t, replaceIn(t, data, request, `"completion_tokens":5}}`, `"completion_tokens":5}}`+"\r")),
			`verify: run.jsonl:7: request 1.0.1: not in canonical form at byte 558: have ",\"completion_tokens\":5}}\r", want ",\"completion_tokens\":5}}"`},
		{"empty line", insert(end, "\n"), `verify: run.jsonl:97: no record: "", want {"kind":…`},
		{"prose", insert(end, "all is well\n"), `verify: run.jsonl:97: no record: "all is well", want {"kind":…`},
		{"broken memory", reseal(t, replaceIn(t, data, `"kind":"memory","config":2`, `"time_ns":[`, `"time_ns":[-`)),
			`verify: run.jsonl:48: memory 2: time_ns[0] = -564200133, want 563200133 to 36028797018963968`},
		{"broken plan", reseal(t, replaceIn(t, data, `"kind":"plan","config":2`, `"config":2`, `"config":2x`)),
			`verify: run.jsonl:27: plan 2x: field "config": invalid character 'x' after object key:value pair at byte 26, near "\"kind\":\"plan\",\"config\":2x,\"server\":1,\"name\":\"Ben"`},
		{"broken corpus", reseal(t, replaceIn(t, data, `"kind":"corpus"`, `"name"`, `name`)),
			`verify: run.jsonl:2: corpus: field "kind": invalid character 'n' looking for beginning of object key string at byte 18, near "{\"kind\":\"corpus\",name:\"small.jsonl\",\"byte"`},
		{"broken header", reseal(t, replaceIn(t, data, `"kind":"header"`, `"run"`, `run`)),
			`verify: run.jsonl:1: header: field "schema": invalid character 'r' looking for beginning of object key string at byte 42, near "\"schema\":\"servebench/1\",run:\"20261130T200000Z-00"`},
		{"header of a wrong type", reseal(t, replaceIn(t, data, `"kind":"header"`, `"schema":"servebench/1"`, `"schema":1`)),
			`verify: run.jsonl:1: header: field "schema": number doesn't fit its type string`},
		{"after the trailer", append(bytes.Clone(data), "{\"kind\":\"memory\"}\n"...), `verify: run.jsonl:98: a "memory" record after the trailer`},
		{"half a line after the trailer", append(bytes.Clone(data), "x"...), `verify: run.jsonl:98: 1 bytes after the trailer`},
		{"hash", bytes.Replace(data, []byte(`"sha256":"`+trailerSum(t, data)), []byte(`"sha256":"`+digest), 1), `verify: run.jsonl:97: trailer: sha256 "` + digest + `", but the bytes before it have "` + trailerSum(t, data) + `"`},
		{"another file", []byte("PASS\nok\n"), `verify: run.jsonl:1: not evidence: the first line is no header record`},
		{"another file's half a line", []byte("PASS"), `verify: run.jsonl:1: not evidence: the first line is no header record`},
	} {
		t.Run(test.name, func(t *testing.T) {
			report := replayed(t, test.data)
			if report.Verdict != Inconsistent || report.Err() == nil || report.Err().Error() != test.want {
				t.Errorf("%v:\n got %v\nwant %s", report.Verdict, report.Err(), test.want)
			}
		})
	}
}

func trailerSum(t *testing.T, data []byte) string {
	t.Helper()
	var trailer Trailer
	if err := json.Unmarshal(data[bytes.LastIndex(data, []byte(`{"kind":"trailer"`)):], &trailer); err != nil {
		t.Fatal(err)
	}
	return trailer.SHA256
}

// A line longer than the reader's buffer is read whole, up to a limit.
func TestLongLines(t *testing.T) {
	f := good()
	long := strings.Repeat("wörd ", 50_000) // 300 kB
	each(f, func(r *Request) {
		if r.Prompt == "4-b" {
			r.Text = long
		}
	})
	data := f.encode()
	if report := replayed(t, data); report.Verdict != Consistent {
		t.Errorf("%v, %v, want consistent", report.Verdict, report.Err())
	}
	report, err := replayFile("run.jsonl", bytes.NewReader(data), 200_000)
	if err != nil {
		t.Fatal(err)
	}
	if want := `verify: run.jsonl:7: request 1.0.1: a line of over 200000 bytes`; report.Err() == nil || report.Err().Error() != want {
		t.Errorf("beyond the limit: %v, want %s", report.Err(), want)
	}
	if whole := replayed(t, data); report.SHA256 != whole.SHA256 {
		t.Errorf("SHA256 = %s, want that of the whole file, %s", report.SHA256, whole.SHA256)
	}
}

func TestReplayReturnsReadErrors(t *testing.T) {
	data := good().encode()
	for _, source := range []io.Reader{
		iotest.ErrReader(io.ErrClosedPipe),
		io.MultiReader(bytes.NewReader(data[:20_000]), iotest.ErrReader(io.ErrClosedPipe)),
		io.MultiReader(strings.NewReader("x\n"), iotest.ErrReader(io.ErrClosedPipe)), // refused, then hashed
	} {
		if report, err := Replay("run.jsonl", source); !errors.Is(err, io.ErrClosedPipe) || report != nil || !strings.HasPrefix(err.Error(), "verify: run.jsonl: ") {
			t.Errorf("Replay = %v, %v, want the reader's error", report, err)
		}
	}
	for name, source := range map[string]io.Reader{"a byte a read": iotest.OneByteReader(bytes.NewReader(data)), "data with its EOF": iotest.DataErrReader(bytes.NewReader(data))} {
		if report, err := Replay("run.jsonl", source); err != nil || report.Verdict != Consistent {
			t.Errorf("%s: %v, %v, want consistent", name, report, err)
		}
	}
}

// A report is bounded however much is wrong, and the rest still hashed.
func TestProblemsAreBounded(t *testing.T) {
	f := good()
	first := f.configuration(1)
	for range 300 {
		m := *f.memory(1)
		m.RSSBytes = make([]int64, len(m.TimeNS))
		f.insertAfter(f.memory(1), &m)
	}
	first.Passes = 1 << 40
	data := f.encode()
	report := replayed(t, data)
	if len(report.Problems) != maxProblems || report.Verdict != Inconsistent || len(report.SHA256) != 64 {
		t.Errorf("%d problems, %v, want %d", len(report.Problems), report.Verdict, maxProblems)
	}
	f = good()
	f.configuration(1).Passes = 1 << 40
	if report := replayed(t, f.encode()); len(report.Problems) != maxProblems {
		t.Errorf("2^40 passes: %d problems, want %d", len(report.Problems), maxProblems)
	}
}

func TestProblemNamesItsPlace(t *testing.T) {
	for want, p := range map[string]Problem{
		"verify: a.jsonl:3: request 1.0.1: e": {"a.jsonl", 3, "request 1.0.1", "e"},
		"verify: a.jsonl: e":                  {"a.jsonl", 0, "", "e"},
		"verify: line 3: e":                   {"", 3, "", "e"},
		"verify: trailer: e":                  {"", 0, "trailer", "e"},
	} {
		if got := p.Error(); got != want {
			t.Errorf("%#v.Error() = %s, want %s", p, got, want)
		}
	}
	for v, want := range []string{"consistent", "inconsistent", "incomplete"} {
		if got := Verdict(v).String(); got != want {
			t.Errorf("Verdict(%d) = %s, want %s", v, got, want)
		}
	}
}

func TestWarnings(t *testing.T) {
	for _, test := range []struct {
		name   string
		change func(f *file)
		want   string
	}{
		{"wall clock set", func(f *file) { f.trailer.Ended = "2026-11-30T21:00:01.6Z" }, "the wall clock went on by 1h0m1.476543211s while 1.531312682s passed: it was set, or the machine slept"},
		{"a configuration left out", func(f *file) { // with its numbers made right again
			f.records = f.records[:f.index(f.plan(4))]
		}, "the flags ask for more than was measured: of 2 configurations too few repetitions of threads=2 (1 of 2)"},
		{"a whole server left out", func(f *file) {
			f.records = f.records[:f.index(f.server(2))]
		}, "the flags ask for more than was measured: of 2 configurations too few repetitions of threads=2 (0 of 2)"},
		{"another input not measured", func(f *file) {
			f.header().Flags = append(f.header().Flags, Flag{"input", "4,8", true}, Flag{"conc", "one", true})
		}, "the flags ask for more than was measured: of 4 configurations too few repetitions of threads=1/input=8 (0 of 2), threads=2/input=8 (0 of 2)"},
		{"no warmup", func(f *file) {
			f.plan(4).Warmups = nil
			f.remove(f.request("4.w.0"))
			f.remove(f.served("4.w.0"))
			f.recompute(4)
		}, "plan 4, BenchmarkServe/threads=2/input=4/conc=2: no warmup"},
		{"more threads than CPUs", func(f *file) { f.header().Host.AllowedCPUs = 1 }, "server 2 has 2 threads on 1 CPUs"},
		{"other pages", func(f *file) { f.server(2).HugePages = "" }, `server 2 has huge pages "", server 1 has "collapse": they are the kernel's to give`},
		{"load not reached", func(f *file) {
			f.header().Flags = nil
			p := f.plan(1)
			p.Name, p.Axes[2].Value, p.Load.Conc = "BenchmarkServe/threads=1/input=4/conc=2", "2", 2
			p = f.plan(2)
			p.Repetition = 1
		}, "configuration 1, BenchmarkServe/threads=1/input=4/conc=2: at most 1 requests were under way at once, though conc is 2"},
	} {
		f := good()
		test.change(f)
		report := replayed(t, f.encode())
		if report.Verdict != Consistent || len(report.Warnings) != 1 || report.Warnings[0] != test.want {
			t.Errorf("%s: %v, %v, warnings %q, want %q", test.name, report.Verdict, report.Err(), report.Warnings, test.want)
		}
	}
}

// The corpus of the benchmark, as it is committed.
func TestReadCorpus(t *testing.T) {
	data, err := os.ReadFile(filepath.Join("..", "testdata", "corpus.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	c, err := ReadCorpus("corpus.jsonl", data)
	if err != nil {
		t.Fatal(err)
	}
	counts := map[int][2]int{}
	for _, p := range c.Prompts {
		n := counts[p.Input]
		n[map[bool]int{true: 1}[p.Warmup]]++
		counts[p.Input] = n
	}
	if len(c.Prompts) != 14 || counts[64] != [2]int{6, 1} || counts[256] != [2]int{6, 1} || c.Kind != KindCorpus || c.Bytes != int64(len(data)) {
		t.Errorf("corpus of %d prompts, %v by length, %d bytes, want 14, 6 and a warmup of 64 and of 256, %d", len(c.Prompts), counts, c.Bytes, len(data))
	}
	first, _, _ := bytes.Cut(data, []byte("\n"))
	for _, test := range []struct {
		name, data, want string
	}{
		{"empty", "", "verify: c.jsonl: no prompts"},
		{"cut off", string(data[:len(data)-1]), "verify: c.jsonl:14: the last line has no newline"},
		{"no JSON", "x\n", `verify: c.jsonl:1: field "": invalid character 'x' looking for beginning of value at byte 1, near "x"`},
		{"unknown field", `{"id":"a","note":"b"}` + "\n", `verify: c.jsonl:1: unknown field "note"`},
		{"field left out", `{"id":"a"}` + "\n", `verify: c.jsonl:1: not in canonical form at byte 9: have "{\"id\":\"a\"}", want "{\"id\":\"a\",\"input\":0,\"warmup\":fals"`},
		{"twice", string(first) + "\n" + string(first) + "\n", `verify: c.jsonl: prompt "64-warmup" stands twice`},
	} {
		if _, err := ReadCorpus("c.jsonl", []byte(test.data)); err == nil || err.Error() != test.want {
			t.Errorf("%s: %v, want %s", test.name, err, test.want)
		}
	}
}
