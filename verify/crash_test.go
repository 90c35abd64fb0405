package verify

import (
	"strings"
	"testing"
)

// small is good with its first configuration only, and one pass of it.
func small() *file {
	f := good()
	f.records = f.records[:f.index(f.configuration(1))+1]
	each(f, func(r *Request) {
		if r.Pass > 0 {
			f.remove(f.served(r.ID))
			f.remove(r)
		}
	})
	f.memory(1).TimeNS, f.memory(1).RSSBytes = f.memory(1).TimeNS[:8], f.memory(1).RSSBytes[:8]
	f.configuration(1).Passes = 1
	f.recompute(1)
	return f
}

// A process can die after any byte. What it leaves is never taken for whole,
// and what was written before is never called wrong.
func TestEveryTruncationIsIncomplete(t *testing.T) {
	data := small().encode()
	if report := replayed(t, data); report.Verdict != Consistent {
		t.Fatalf("untruncated: %v, %v", report.Verdict, report.Err())
	}
	for n := 0; n < len(data); n += stride {
		report := replayed(t, data[:n])
		if report.Verdict != Incomplete || report.Missing == "" || len(report.Problems) > 0 {
			t.Fatalf("first %d bytes of %d: %v, missing %q, problems %v, want incomplete", n, len(data), report.Verdict, report.Missing, report.Problems)
		}
	}
}

func TestWhatIsMissing(t *testing.T) {
	data := string(small().encode())
	header := data[:strings.Index(data, "\n")+1]
	upTo := func(part string) string {
		at := strings.Index(data, part)
		return data[:strings.LastIndex(data[:at], "\n")+1]
	}
	for _, test := range []struct{ name, data, want string }{
		{"nothing", "", "no header: the file is empty or its first line is cut off"},
		{"half a header", header[:100], "no header: the file is empty or its first line is cut off"},
		{"three bytes", header[:3], "no header: the file is empty or its first line is cut off"},
		{"a header", header, "no trailer: the run ended after 0 configurations"},
		{"a header and half a line", header + `{"kind":"cor`, "no trailer: the run ended after 0 configurations"},
		{"up to the server", upTo(`"kind":"plan"`), "no trailer: the run ended after 0 configurations"},
		{"up to a request", upTo(`"id":"1.0.1"`), "the run ended within configuration 1, BenchmarkServe/threads=1/input=4/conc=1, after 2 requests"},
		{"up to the log", upTo(`"kind":"served"`), "the run ended within configuration 1, BenchmarkServe/threads=1/input=4/conc=1, after 4 requests"},
		{"up to the trailer", upTo(`"kind":"trailer"`), "no trailer: the run ended after 1 configurations"},
		{"up to the last newline", data[:len(data)-1], "no trailer: the run ended after 1 configurations"},
	} {
		report := replayed(t, []byte(test.data))
		if report.Verdict != Incomplete || report.Missing != test.want || report.Err().Error() != "verify: incomplete: "+test.want {
			t.Errorf("%s: %v, %v, want %s", test.name, report.Verdict, report.Err(), test.want)
		}
	}
	// What is there of an unfinished configuration is checked all the same.
	report := replayed(t, []byte(strings.Replace(upTo(`"kind":"served"`), `"status":200`, `"status":500`, 1)))
	if want := "verify: run.jsonl:5: request 1.w.0: no failure, yet status 500"; report.Verdict != Inconsistent || report.Err().Error() != want {
		t.Errorf("a contradiction before the cut: %v, %v, want %s", report.Verdict, report.Err(), want)
	}
	if len(report.Results) != 1 || report.Results[0].Configuration != nil || report.Results[0].Requests != 4 {
		t.Errorf("results %+v, want the unfinished configuration with 4 requests", report.Results)
	}
}
