package smol

import (
	"bufio"
	"bytes"
	"encoding/json"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"servebench/smol/graph"
	"servebench/verify"
)

// realDir is where setup puts the model. That this package compiles means
// that setup was run, so a model that is missing or broken is a failure.
const realDir = "native/v1/model"

func needsReal(t testing.TB) {
	t.Helper()
	if testing.Short() {
		t.Skip("-short: needs the real model")
	}
}

func readCorpus(t testing.TB) []verify.Prompt {
	t.Helper()
	data, err := os.ReadFile("../testdata/corpus.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	var corpus []verify.Prompt
	for lines := bufio.NewScanner(bytes.NewReader(data)); lines.Scan(); {
		var p verify.Prompt
		if err := json.Unmarshal(lines.Bytes(), &p); err != nil {
			t.Fatal(err)
		}
		corpus = append(corpus, p)
	}
	if len(corpus) == 0 {
		t.Fatal("../testdata/corpus.jsonl is empty")
	}
	return corpus
}

// readGoldens returns the golden answers, by prompt, for the model in realDir;
// ../testdata/goldens.py makes them, without this module.
func readGoldens(t *testing.T) map[string][]int32 {
	t.Helper()
	data, err := os.ReadFile("../testdata/goldens.json")
	if err != nil {
		t.Fatal(err)
	}
	var g struct {
		Models map[string]struct { // by the hash of what the weights came from
			Answers map[string]struct{ IDs []int32 } // by prompt
		}
	}
	if err := json.Unmarshal(data, &g); err != nil {
		t.Fatal(err)
	}
	m, err := graph.ReadManifest(realDir)
	if err != nil {
		t.Fatal(err)
	}
	if len(m.Inputs) == 0 {
		t.Fatalf("the manifest of %s names no inputs, by which goldens are found", realDir)
	}
	for _, input := range m.Inputs {
		if model, ok := g.Models[input.SHA256]; ok {
			answers := map[string][]int32{}
			for id, a := range model.Answers {
				answers[id] = a.IDs
			}
			return answers
		}
	}
	t.Skipf("../testdata/goldens.json has no answers for a model made from %v: see goldens.py", m.Inputs)
	return nil
}

func TestCorpusIDs(t *testing.T) {
	needsReal(t)
	e := load(t, realDir, Options{IntraThreads: 1})
	for _, p := range readCorpus(t) {
		ids, err := e.Encode(p.Text)
		if err != nil || !slices.Equal(ids, p.IDs) {
			t.Errorf("%s: Encode = %v, %v, want %v", p.ID, ids, err, p.IDs)
		}
		var back []byte
		for _, id := range ids {
			back = append(back, e.Piece(id)...)
		}
		if string(back) != p.Text {
			t.Errorf("%s: pieces are %q, want %q", p.ID, back, p.Text)
		}
	}
	// Ids that others published for this tokenizer.
	for text, want := range map[string][]int32{
		"a\n\nb": {81, 198, 198, 82},
		"a  b":   {81, 216, 278},
		"x\n\n":  {104, 1116},
	} {
		if ids, err := e.Encode(text); err != nil || !slices.Equal(ids, want) {
			t.Errorf("Encode(%q) = %v, %v, want %v", text, ids, err, want)
		}
	}
	if ids, err := e.Encode("a\x04b"); err == nil {
		// One of the byte symbols that the vocabulary lacks.
		t.Errorf("Encode(a\\x04b) = %v, want an error: the byte would be lost", ids)
	}
}

// Every answer must be the golden one with a cache, for each number of
// threads, and when its last token is computed anew from the prompt and the
// answer so far, as all of them are for the first prompt; and some once more,
// after other requests.
func TestGoldenAnswers(t *testing.T) {
	needsReal(t)
	goldens, corpus := readGoldens(t), readCorpus(t)
	eachThreads(t, func(t *testing.T, threads int) {
		e := load(t, realDir, Options{IntraThreads: threads})
		check := func(p verify.Prompt, tokens int) {
			want := goldens[p.ID]
			if len(want) < 2 {
				t.Fatalf("%s: %d golden tokens, want at least 2", p.ID, len(want))
			}
			want = want[:min(tokens, len(want))]
			if got := answer(t, e, p.IDs, len(want)); !slices.Equal(got, want) {
				t.Errorf("%s: %v, want %v", p.ID, got, want)
			}
		}
		for i, p := range corpus {
			check(p, 1<<10)
			want := goldens[p.ID]
			first := len(want) - 1
			if i == 0 {
				first = 1
			}
			for k := first; k < len(want); k++ {
				if got, err := e.Prefill(slices.Concat(p.IDs, want[:k])); got != want[k] || err != nil {
					t.Errorf("%s: token %d recomputed: %d, %v, want %d", p.ID, k, got, err, want[k])
				}
			}
		}
		for i := len(corpus) - 1; i >= 0; i -= 4 {
			check(corpus[i], 4)
		}
	})
}

// A sense check that needs no golden: the chat template's way to ask.
func TestCapital(t *testing.T) {
	needsReal(t)
	e := load(t, realDir, Options{})
	ids, err := e.Encode("<|im_start|>user\nWhat is the capital of France?<|im_end|>\n<|im_start|>assistant\n")
	if err != nil {
		t.Fatal(err)
	}
	var text []byte
	got := answer(t, e, ids, 8)
	for _, id := range got {
		text = append(text, e.Piece(id)...)
	}
	if want := "The capital of France is Paris."; string(text) != want || got[7] != e.Limits().EOS {
		t.Errorf("answer %q, last id %d, want %q and the end", text, got[7], want)
	}
}

// What prompts of other lengths need must be found again and not added: after
// the first round of lengths the resident set stays where it is.
func TestResidentSetPlateau(t *testing.T) {
	needsReal(t)
	if _, err := os.Stat("/proc/self/status"); err != nil {
		t.Skip("reads /proc/self/status, which isn't here")
	}
	ids := readCorpus(t)[13].IDs
	if len(ids) != 256 {
		t.Fatalf("the last prompt has %d ids, want 256", len(ids))
	}
	e := load(t, realDir, Options{})
	var rss []int64
	for range 3 {
		for _, n := range []int{16, 64, 256, 17, 65} {
			answer(t, e, ids[:n], 8)
		}
		rss = append(rss, processStatus(t, "VmRSS"))
	}
	t.Logf("after each round %v MB", []int64{rss[0] >> 20, rss[1] >> 20, rss[2] >> 20})
	const slack = 2 << 20
	if rss[1] > rss[0]+slack || rss[2] > rss[0]+slack {
		t.Errorf("the resident set grows over rounds: %v bytes, want all within %d of the first", rss, slack)
	}
}

// processStatus is a number of bytes from /proc/self/status.
func processStatus(t testing.TB, key string) int64 {
	t.Helper()
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(status)) {
		if rest, ok := strings.CutPrefix(line, key+":"); ok {
			kb, err := strconv.ParseInt(strings.Fields(rest)[0], 10, 64)
			if err != nil {
				t.Fatal(err)
			}
			return kb << 10
		}
	}
	t.Fatalf("/proc/self/status has no %s", key)
	return 0
}
