package verify

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// frozenTarget is evidence of a server that somebody else started, see frozen:
// targetAndBad, as it was when such evidence came to the schema.
const frozenTarget = "servebench-1-target"

func TestFrozenTarget(t *testing.T) {
	path := filepath.Join("testdata", frozenTarget)
	if *update {
		f := targetAndBad()
		data := f.encode()
		for name, content := range map[string]string{path + ".jsonl": string(data), path + ".txt": f.printed(replayed(t, data).SHA256)} {
			if err := os.WriteFile(name, []byte(content), 0o666); err != nil {
				t.Fatal(err)
			}
		}
	}
	report := replayPath(t, path+".jsonl")
	checkPrintedFile(t, report, path+".txt")
	if report.Verdict != Consistent || report.Valid() != 3 || len(report.Invalid()) != 1 {
		t.Errorf("%v, %v, %d valid, want consistent with 3 valid and 1 invalid", report.Verdict, report.Err(), report.Valid())
	}
	if want := "f7b73e656848cad7522c9a7f77a6b45926ed7adeeef62db93a8a044a310d0c00"; report.SHA256 != want {
		t.Errorf("%s.jsonl has sha256 %s, want %s: frozen evidence never changes", path, report.SHA256, want)
	}
	for _, changed := range []string{"model: n", "api: chat"} {
		report := replayPath(t, path+".jsonl")
		key, _, _ := strings.Cut(changed, ":")
		text := regexp.MustCompile("(?m)^"+key+": .*$").ReplaceAllString(string(readFile(t, path+".txt")), changed)
		printed, err := ParsePrinted("out.txt", strings.NewReader(text))
		if err != nil {
			t.Fatal(err)
		}
		if report.CheckPrinted(printed); report.Verdict != Inconsistent {
			t.Errorf("%q is taken for what this run printed", changed)
		}
	}
	for config, want := range map[int]string{
		1: "[{answer-p50-s 0.01215876} {gap-p50-ms 2.0459225} {p95-s 0.020468727} {tok/s 239.68446786165245} {tpot-p50-ms 2.03918525} {ttft-p50-s 0.01215876} {usd/Mtok 0.28973276851851854}]",
		2: "[{gap-p50-ms 2.0533475} {p95-s 0.0204765862} {tok/s 228.8159554408704} {tpot-p50-ms 2.044767} {ttft-p50-s 0.012156382} {usd/Mtok 0.3034947642118863}]",
		3: "[{failed 1} {gap-p50-ms 2.051835} {p95-s 0.04064190375} {tok/s 214.0538660453368} {tpot-p50-ms 2.0553425} {ttft-p50-s 0.0322826205} {usd/Mtok 0.3244250885416667}]",
	} {
		if got := fmt.Sprint(report.Results[config-1].Configuration.Metrics); got != want {
			t.Errorf("metrics %d: %s, want %s", config, got, want)
		}
	}
}

func readFile(t *testing.T, path string) []byte {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return data
}
