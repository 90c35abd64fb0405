package verify

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

var evidencePath = flag.String("evidence", "", "replay `FILE`, relative to this package or to the module")

func TestMain(m *testing.M) {
	flag.Parse()
	if flag.NArg() > 0 {
		// go test -evidence FILE ./verify would test another package and
		// never say so.
		fmt.Fprintf(os.Stderr, "Error: %q is left over: flags come after the package, as in  go test ./verify -evidence FILE\n", flag.Args())
		os.Exit(2)
	}
	os.Exit(m.Run())
}

// replayPath replays a file of the disk.
func replayPath(t *testing.T, path string) *Report {
	t.Helper()
	file, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	report, err := Replay(filepath.ToSlash(path), file)
	if err != nil {
		t.Fatal(err)
	}
	return report
}

// inModule resolves a path that may be relative to the module's root, for a
// test runs in the directory of its package.
func inModule(path string) string {
	if _, err := os.Stat(path); err != nil && !filepath.IsAbs(path) {
		if above := filepath.Join("..", path); exists(above) {
			return above
		}
	}
	return path
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// TestEvidence replays the file that -evidence names.
func TestEvidence(t *testing.T) {
	if *evidencePath == "" {
		t.Skip("no -evidence FILE")
	}
	report := replayPath(t, inModule(*evidencePath))
	logReport(t, report)
	if report.Verdict != Consistent {
		t.Errorf("%v: %v", report.Verdict, report.Err())
	}
}

func logReport(t *testing.T, report *Report) {
	for _, p := range report.Problems {
		t.Log(p)
	}
	for _, c := range report.Invalid() {
		t.Logf("invalid: configuration %d, %s, repetition %d: %s", c.Plan.Config, c.Plan.Name, c.Plan.Repetition, strings.Join(c.Configuration.Reasons, "; "))
	}
	t.Logf("%v, %d valid configurations, sha256 %s", report.Verdict, report.Valid(), report.SHA256)
}

// TestReference replays the runs that are committed. They must be consistent,
// valid throughout, made from a clean tree and about the committed corpus; and
// agree with what they printed, where that stands beside them.
func TestReference(t *testing.T) {
	dir := filepath.Join("..", "testdata", "reference")
	paths, err := filepath.Glob(filepath.Join(dir, "*.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	if len(paths) == 0 {
		t.Fatalf("%s has no evidence", dir)
	}
	data, err := os.ReadFile(filepath.Join("..", "testdata", "corpus.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	corpus, err := ReadCorpus("corpus.jsonl", data)
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range paths {
		t.Run(filepath.Base(path), func(t *testing.T) {
			report := replayPath(t, path)
			printed := strings.TrimSuffix(path, ".jsonl") + ".txt"
			if exists(printed) {
				checkPrintedFile(t, report, printed)
			}
			logReport(t, report)
			if report.Verdict != Consistent {
				t.Fatalf("%v: %v", report.Verdict, report.Err())
			}
			if report.Valid() == 0 || len(report.Invalid()) > 0 {
				t.Errorf("%d valid and %d invalid configurations, want some and none", report.Valid(), len(report.Invalid()))
			}
			for _, warning := range report.Warnings {
				t.Errorf("warning: %s", warning)
			}
			if !report.Header.CleanTree {
				t.Errorf("revision %q with changes, want a clean tree", report.Header.Revision)
			}
			if report.Corpus.SHA256 != corpus.SHA256 {
				t.Errorf("its corpus has sha256 %s, the committed one %s", report.Corpus.SHA256, corpus.SHA256)
			}
			checkGoldens(t, report)
		})
	}
}

func checkPrintedFile(t *testing.T, report *Report, path string) {
	t.Helper()
	file, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	printed, err := ParsePrinted(filepath.ToSlash(path), file)
	if err != nil {
		t.Fatal(err)
	}
	report.CheckPrinted(printed)
}

// checkGoldens holds the answers of a run against those that an independent
// implementation gave to the same prompts with the same weights.
func checkGoldens(t *testing.T, report *Report) {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("..", "testdata", "goldens.json"))
	if err != nil {
		t.Fatal(err)
	}
	var goldens struct {
		CorpusSHA256 string `json:"corpus_sha256"`
		Models       map[string]struct {
			Answers map[string]struct {
				IDs []int32 `json:"ids"`
			} `json:"answers"`
		} `json:"models"`
	}
	if err := json.Unmarshal(data, &goldens); err != nil {
		t.Fatal(err)
	}
	inputs := report.Servers[0].Model.Inputs
	for input, model := range goldens.Models {
		made := slices.ContainsFunc(inputs, func(f File) bool { return f.SHA256 == input })
		if !made || goldens.CorpusSHA256 != report.Corpus.SHA256 {
			continue
		}
		for prompt, answer := range report.answers {
			want := model.Answers[prompt].IDs
			n := min(len(want), len(answer.ids))
			if n == 0 || !slices.Equal(answer.ids[:n], want[:n]) {
				t.Errorf("prompt %s was answered with %v, golden is %v", prompt, answer.ids, want)
			}
		}
		return
	}
	t.Errorf("goldens.json has nothing for corpus %s and a model made from %v", report.Corpus.SHA256, inputs)
}

// TestLocalRuns replays what benchmarks on this machine have saved. A run that
// was cut short or calls itself invalid is named and skipped; one that
// contradicts itself fails.
func TestLocalRuns(t *testing.T) {
	paths, err := filepath.Glob(filepath.Join("..", "testdata", "runs", "*.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range paths {
		t.Run(filepath.Base(path), func(t *testing.T) {
			report := replayPath(t, path)
			logReport(t, report)
			switch {
			case report.Verdict == Inconsistent:
				t.Error(report.Err())
			case report.Verdict == Incomplete:
				t.Skip(report.Err())
			case len(report.Invalid()) > 0 || report.Valid() == 0:
				t.Skipf("%d of %d configurations are invalid", len(report.Invalid()), len(report.Results))
			}
		})
	}
}
