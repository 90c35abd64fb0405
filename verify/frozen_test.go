package verify

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write the frozen evidence of the current schema anew; only before its first release")

// frozen is one file of evidence for each version of the schema that was ever
// released, with the output that its run would have printed, and the hash of
// the file: what could be read once can be read for ever.
var frozen = []struct{ name, sha256 string }{
	{"servebench-1", "00cffdf10d9cf6f2022d1e43dc0edd13c2377cfd80dc1a861cd3167a1a588e6d"},
}

// goodAndBad is what is frozen: good, with the last configuration failed in
// some of the ways that a schema has words for.
func goodAndBad() *file {
	f := good()
	failed := f.request("4.1.0")
	failed.Status, failed.Failure = 503, &Failure{FailStatus, "503 Service Unavailable: the queue is full"}
	failed.EventNS, failed.EventKinds, failed.EventIDs, failed.TokenIDs, failed.PromptIDs, failed.Text, failed.Finish, failed.Usage = nil, "", nil, nil, nil, "", "", nil
	log := f.served("4.1.0")
	*log = Served{Kind: log.Kind, Config: log.Config, ID: log.ID, ArrivalNS: log.ArrivalNS, Error: "the queue is full"}
	left := f.request("4.1.2")
	left.Finish, left.Usage, left.Failure = "", nil, &Failure{FailStall, "nothing for 5m0s"}
	left.EventNS, left.EventKinds, left.EventIDs = left.EventNS[:3], "ccc", left.EventIDs[:3]
	left.TokenIDs = left.TokenIDs[:3]
	f.invalidate(4, "request 4.1.0 failed: status: 503 Service Unavailable: the queue is full")
	f.configuration(4).Reasons = append(f.configuration(4).Reasons, "request 4.1.2 failed: stall: nothing for 5m0s")
	f.header().Warnings = append(f.header().Warnings, "the machine is busy: 40 % of its CPU time was in use before the start")
	return f
}

func TestFrozenEvidence(t *testing.T) {
	if *update {
		f := goodAndBad()
		data := f.encode()
		path := filepath.Join("testdata", strings.ReplaceAll(Schema, "/", "-"))
		for name, content := range map[string]string{path + ".jsonl": string(data), path + ".txt": f.printed(replayed(t, data).SHA256)} {
			if err := os.WriteFile(name, []byte(content), 0o666); err != nil {
				t.Fatal(err)
			}
		}
	}
	for _, test := range frozen {
		t.Run(test.name, func(t *testing.T) {
			path := filepath.Join("testdata", test.name)
			report := replayPath(t, path+".jsonl")
			checkPrintedFile(t, report, path+".txt")
			logReport(t, report)
			if report.Verdict != Consistent || report.Valid() != 3 || len(report.Invalid()) != 1 {
				t.Errorf("%v, %v, %d valid, want consistent with 3 valid and 1 invalid", report.Verdict, report.Err(), report.Valid())
			}
			if report.SHA256 != test.sha256 {
				t.Errorf("%s.jsonl has sha256 %s, want %s: frozen evidence never changes", path, report.SHA256, test.sha256)
			}
			// The numbers by which everybody would know the run again.
			if got, want := fmt.Sprint(report.Results[2].Configuration.Metrics), "[{p95-s 0.0406686284} {rss-peak-B 5.500928e+06} {tok/s 240.8105993010039} {tpot-p50-ms 2.05472675} {ttft-p50-s 0.032297139} {usd/Mtok 0.28837785648148145}]"; got != want {
				t.Errorf("metrics %s, want %s", got, want)
			}
		})
	}
	if want := strings.ReplaceAll(Schema, "/", "-"); frozen[len(frozen)-1].name != want {
		t.Errorf("the last frozen evidence is %s, want one of %s", frozen[len(frozen)-1].name, want)
	}
}
