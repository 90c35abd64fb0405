package smol

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"servebench/smol/graph"
)

const library = "native/v1/libonnxruntime.so"

// tinyDir holds the model that most tests run, written once.
var tinyDir string

func TestMain(m *testing.M) {
	keep := flag.String("tiny", "", "write the tiny model to this new `directory` and keep it there")
	flag.Parse()
	if flag.NArg() > 0 {
		fmt.Fprintf(os.Stderr, "smol: argument %q, want flags only, after the package\n", flag.Arg(0))
		os.Exit(2)
	}
	if child := os.Getenv(childEnv); child != "" {
		os.Exit(runChild(child))
	}
	os.Exit(withTiny(*keep, m.Run))
}

func withTiny(dir string, run func() int) int {
	if dir == "" {
		temp, err := os.MkdirTemp("", "smol-tiny-")
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 2
		}
		defer os.RemoveAll(temp)
		dir = temp
	}
	if _, err := graph.WriteTiny(dir, graph.Options{}); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 2
	}
	tinyDir = dir
	return run()
}

// load opens the model in dir for the length of the test.
func load(t testing.TB, dir string, o Options) *Engine {
	t.Helper()
	if o.Library == "" {
		o.Library = library
	}
	e, err := Load(dir, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := e.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
	})
	return e
}

// answer is n greedy tokens after prompt.
func answer(t testing.TB, e *Engine, prompt []int32, n int) []int32 {
	t.Helper()
	id, err := e.Prefill(prompt)
	if err != nil {
		t.Fatal(err)
	}
	ids := []int32{id}
	for len(ids) < n {
		if id, err = e.Step(id); err != nil {
			t.Fatal(err)
		}
		ids = append(ids, id)
	}
	return ids
}

// eachThreads runs f for 1 and 2 threads, the latter only where two CPUs are.
func eachThreads(t *testing.T, f func(t *testing.T, threads int)) {
	for _, threads := range []int{1, 2} {
		t.Run(fmt.Sprintf("threads=%d", threads), func(t *testing.T) {
			if cpus := allowedCPUs(); threads > cpus {
				t.Skipf("needs %d CPUs, this process may use %d", threads, cpus)
			}
			f(t, threads)
		})
	}
}

// tinyGoldens is testdata/tiny.json; tiny.py makes it, without this package.
type tinyGoldens struct {
	DataSHA256      string `json:"data_sha256"`
	TokenizerSHA256 string `json:"tokenizer_sha256"`
	Answers         []struct {
		Prompt []int32
		IDs    []int32
	}
	Texts []struct {
		Text string
		IDs  []int32
	}
}

func readTinyGoldens(t *testing.T) *tinyGoldens {
	t.Helper()
	data, err := os.ReadFile("testdata/tiny.json")
	if err != nil {
		t.Fatal(err)
	}
	var g tinyGoldens
	if err := json.Unmarshal(data, &g); err != nil {
		t.Fatal(err)
	}
	m, err := graph.ReadManifest(tinyDir)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range m.Files {
		for name, want := range map[string]string{graph.DataFile: g.DataSHA256, graph.TokenizerFile: g.TokenizerSHA256} {
			if f.Name == name && f.SHA256 != want {
				t.Fatalf("testdata/tiny.json is for a %s with sha256 %s, WriteTiny makes %s: see tiny.py", name, want, f.SHA256)
			}
		}
	}
	if len(g.Answers) == 0 || len(g.Texts) == 0 {
		t.Fatal("testdata/tiny.json is empty")
	}
	return &g
}

func TestTinyAnswers(t *testing.T) {
	g := readTinyGoldens(t)
	eachThreads(t, func(t *testing.T, threads int) {
		e := load(t, tinyDir, Options{IntraThreads: threads})
		for round := range 2 { // the second one after other requests
			for _, a := range g.Answers {
				got := answer(t, e, a.Prompt, len(a.IDs))
				if !slices.Equal(got, a.IDs) {
					t.Errorf("round %d: after %d ids: %v, want %v", round, len(a.Prompt), got, a.IDs)
				}
			}
		}
		for _, a := range g.Answers {
			for k, want := range a.IDs {
				got, err := e.Prefill(slices.Concat(a.Prompt, a.IDs[:k]))
				if got != want || err != nil {
					t.Errorf("recomputed after %d+%d ids: %d, %v, want %d", len(a.Prompt), k, got, err, want)
				}
			}
		}
	})
}

func TestEnginesSideBySide(t *testing.T) {
	g := readTinyGoldens(t)
	a, b := load(t, tinyDir, Options{IntraThreads: 1}), load(t, tinyDir, Options{IntraThreads: 1, Context: 512})
	p, q := g.Answers[1], g.Answers[3]
	x, err1 := a.Prefill(p.Prompt)
	y, err2 := b.Prefill(q.Prompt)
	for i := range p.IDs {
		if x != p.IDs[i] || y != q.IDs[i] || err1 != nil || err2 != nil {
			t.Fatalf("token %d: %d, %v and %d, %v, want %d and %d", i, x, err1, y, err2, p.IDs[i], q.IDs[i])
		}
		x, err1 = a.Step(x)
		y, err2 = b.Step(y)
	}
}

func TestInfo(t *testing.T) {
	e := load(t, tinyDir, Options{IntraThreads: 1, Context: 100, Spinning: Off})
	info := e.Info()
	if info.IntraThreads != 1 || info.InterThreads != 1 || info.Spinning || info.Slots != 1 || info.ContextLimit != 100 {
		t.Errorf("Info() = %+v, want 1 intra-op, 1 inter-op thread, no spinning, 1 slot, context 100", info)
	}
	if got := load(t, tinyDir, Options{Spinning: On}).Info(); !got.Spinning || got.IntraThreads != allowedCPUs() || got.ContextLimit != 512 {
		t.Errorf("Info() = %+v, want spinning, %d threads, context 512", got, allowedCPUs())
	}
	if n := len(info.Libraries); n != 2 {
		t.Fatalf("Info() has %d libraries, want 2", n)
	}
	ort := info.Libraries[0]
	want, err := graph.HashFile(t.Context(), library, nil)
	if err != nil {
		t.Fatal(err)
	}
	if ort.Name != "onnxruntime" || !strings.HasPrefix(ort.Version, "1.") || ort.File.SHA256 != want.SHA256 {
		t.Errorf("library %+v, want onnxruntime 1.x with sha256 %s", ort, want.SHA256)
	}
	if tok := info.Libraries[1]; tok.Name != "tokenizers" || tok.Version == "" {
		t.Errorf("library %+v, want tokenizers with a version", tok)
	}
	if m := info.Model; m.ID != "tiny" || m.Precision != "fp32" || m.Vocabulary != 512 || m.Parameters < 1 || len(m.Files) != 3 {
		t.Errorf("model %+v, want tiny, fp32, 512 ids and 3 files", m)
	}
	if got := e.Limits(); got.Context != 100 || got.Vocabulary != 512 || got.EOS != 2 {
		t.Errorf("Limits() = %+v, want context 100, 512 ids, EOS 2", got)
	}
}

func TestPrefillAndStepErrors(t *testing.T) {
	e := load(t, tinyDir, Options{IntraThreads: 1, Context: 8})
	if _, err := e.Step(3); !errors.Is(err, ErrNoPrompt) {
		t.Errorf("Step before Prefill: %v, want ErrNoPrompt", err)
	}
	for _, test := range []struct {
		name   string
		prompt []int32
		is     error
		want   string
	}{
		{"empty", nil, ErrEmpty, "smol: empty prompt: give at least one id"},
		{"as long as the context", make([]int32, 8), ErrContext, "smol: context is full: prompt of 8 tokens, want at most 7: a context of 8 less one for the answer"},
		{"negative id", []int32{1, -1}, ErrVocabulary, "smol: prompt[1]: id outside the vocabulary: -1, want 0 to 511"},
		{"id too large", []int32{512}, ErrVocabulary, "smol: prompt[0]: id outside the vocabulary: 512, want 0 to 511"},
	} {
		t.Run(test.name, func(t *testing.T) {
			if _, err := e.Prefill([]int32{5}); err != nil {
				t.Fatal(err)
			}
			_, err := e.Prefill(test.prompt)
			if !errors.Is(err, test.is) || err.Error() != test.want {
				t.Errorf("Prefill(%v): %v, want %s", test.prompt, err, test.want)
			}
			if _, err := e.Step(5); !errors.Is(err, ErrNoPrompt) {
				t.Errorf("Step after a refused prompt: %v, want ErrNoPrompt", err)
			}
		})
	}
	t.Run("step", func(t *testing.T) {
		id, err := e.Prefill([]int32{5, 6, 7, 8, 9})
		if err != nil {
			t.Fatal(err)
		}
		want := "smol: step: id outside the vocabulary: 512, want 0 to 511"
		if _, err := e.Step(512); !errors.Is(err, ErrVocabulary) || err.Error() != want {
			t.Errorf("Step(512): %v, want %s", err, want)
		}
		for i := range 2 { // a prompt of 5 and an answer of 3 fill 8
			if id, err = e.Step(id); err != nil {
				t.Fatalf("Step %d: %v", i, err)
			}
		}
		want = "smol: step: context is full: 8 tokens and an answer to the last, want at most 8 together"
		for range 2 {
			if _, err := e.Step(id); !errors.Is(err, ErrContext) || err.Error() != want {
				t.Errorf("Step in a full context: %v, want %s", err, want)
			}
		}
		if _, err := e.Prefill([]int32{5, 6, 7, 8, 9, 10, 11}); err != nil {
			t.Errorf("Prefill after a full context: %v", err)
		}
	})
}

// overflow steps e, of the tiny model with all of its context, past the last
// position that the graph has angles for, which ONNX Runtime notices.
func overflow(e *Engine) error {
	context := e.limits.Context
	e.limits.Context += 2
	defer func() { e.limits.Context = context }()
	id, err := e.Prefill(make([]int32, context-1))
	for range 2 {
		if err != nil {
			return err
		}
		id, err = e.Step(id)
	}
	return err
}

// A failure within the library must come back as an error, leave no state to
// step from, and not spoil the next prompt.
func TestRunError(t *testing.T) {
	g := readTinyGoldens(t)
	e := load(t, tinyDir, Options{IntraThreads: 1})
	if err := overflow(e); err == nil || !strings.HasPrefix(err.Error(), "smol: step to 513 tokens: ") || !strings.Contains(err.Error(), "GroupQueryAttention") {
		t.Errorf("step past the graph's positions: %v, want ONNX Runtime's error", err)
	}
	if _, err := e.Step(3); !errors.Is(err, ErrNoPrompt) {
		t.Errorf("Step after a failed step: %v, want ErrNoPrompt", err)
	}
	e.embeds.f.Close()
	if _, err := e.Prefill([]int32{3}); err == nil || !strings.HasPrefix(err.Error(), "smol: embedding: stat ") {
		t.Errorf("Prefill without the file: %v, want its error", err)
	}
	if _, err := e.Step(3); !errors.Is(err, ErrNoPrompt) {
		t.Errorf("Step after a failed prefill: %v, want ErrNoPrompt", err)
	}
	var err error
	if e.embeds.f, err = os.Open(filepath.Join(tinyDir, graph.DataFile)); err != nil {
		t.Fatal(err)
	}
	a := g.Answers[2]
	if got := answer(t, e, a.Prompt, len(a.IDs)); !slices.Equal(got, a.IDs) {
		t.Errorf("after errors: %v, want %v", got, a.IDs)
	}
}

func TestClose(t *testing.T) {
	e := load(t, tinyDir, Options{IntraThreads: 1})
	if _, err := e.Prefill([]int32{1}); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := e.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
	}
	if _, err := e.Prefill([]int32{1}); !errors.Is(err, ErrClosed) {
		t.Errorf("Prefill after Close: %v, want ErrClosed", err)
	}
	if _, err := e.Step(1); !errors.Is(err, ErrClosed) {
		t.Errorf("Step after Close: %v, want ErrClosed", err)
	}
	if _, err := e.Encode("x"); !errors.Is(err, ErrClosed) {
		t.Errorf("Encode after Close: %v, want ErrClosed", err)
	}
}

func TestStepAllocatesNothing(t *testing.T) {
	eachThreads(t, func(t *testing.T, threads int) {
		e := load(t, tinyDir, Options{IntraThreads: threads})
		id, err := e.Prefill([]int32{1, 2, 3})
		if err != nil {
			t.Fatal(err)
		}
		if n := testing.AllocsPerRun(200, func() {
			if id, err = e.Step(id); err != nil {
				t.Fatal(err)
			}
			e.Piece(id)
		}); n != 0 {
			t.Errorf("Step and Piece allocate %v times a token, want 0", n)
		}
	})
}

func TestOptions(t *testing.T) {
	cpus := allowedCPUs()
	for _, test := range []struct {
		opts Options
		want string
	}{
		{Options{IntraThreads: -1}, fmt.Sprintf("smol: IntraThreads -1, want 1 to %d, the CPUs that this process may use", cpus)},
		{Options{IntraThreads: cpus + 1}, fmt.Sprintf("smol: IntraThreads %d, want 1 to %d, the CPUs that this process may use", cpus+1, cpus)},
		{Options{Context: 1}, "smol: Context 1, want 2 to 512, the model's own limit"},
		{Options{Context: 513}, "smol: Context 513, want 2 to 512, the model's own limit"},
		{Options{IntraThreads: -2, Context: -3}, fmt.Sprintf("smol: IntraThreads -2, want 1 to %d, the CPUs that this process may use\nsmol: Context -3, want 2 to 512, the model's own limit", cpus)},
	} {
		test.opts.Library = library
		e, err := Load(tinyDir, test.opts)
		if err == nil {
			e.Close()
		}
		if err == nil || err.Error() != test.want {
			t.Errorf("Load(%+v): %v, want %s", test.opts, err, test.want)
		}
	}
	for _, toggle := range []Toggle{Default, On, Off} {
		text, err := toggle.MarshalText()
		var back Toggle
		if err := errors.Join(err, back.UnmarshalText(text)); err != nil || back != toggle {
			t.Errorf("%d becomes %q and then %d, %v", toggle, text, back, err)
		}
	}
	if err := new(Toggle).UnmarshalText([]byte("yes")); err == nil || err.Error() != `smol: "yes", want default, on or off` {
		t.Errorf("UnmarshalText(yes): %v", err)
	}
}

// copyTiny copies the tiny model to a directory of its own, to be spoiled.
func copyTiny(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	if err := os.CopyFS(dir, os.DirFS(tinyDir)); err != nil {
		t.Fatal(err)
	}
	return dir
}

func TestLoadRefuses(t *testing.T) {
	write := func(name, content string) func(*testing.T, string) {
		return func(t *testing.T, dir string) {
			if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o644); err != nil {
				t.Fatal(err)
			}
		}
	}
	edit := func(name string, change func([]byte) []byte) func(*testing.T, string) {
		return func(t *testing.T, dir string) {
			data, err := os.ReadFile(filepath.Join(dir, name))
			if err != nil {
				t.Fatal(err)
			}
			write(name, string(change(data)))(t, dir)
		}
	}
	replace := func(old, new string) func(*testing.T, string) {
		return edit(graph.ManifestFile, func(b []byte) []byte {
			s := strings.Replace(string(b), old, new, 1)
			if s == string(b) {
				panic(fmt.Sprintf("the manifest has no %s", old))
			}
			return []byte(s)
		})
	}
	// reseal makes the manifest agree with the file as it now is.
	reseal := func(name string, spoil func(*testing.T, string)) func(*testing.T, string) {
		return func(t *testing.T, dir string) {
			m, err := graph.ReadManifest(dir)
			if err != nil {
				t.Fatal(err)
			}
			spoil(t, dir)
			for i, f := range m.Files {
				if f.Name == name {
					if m.Files[i], err = graph.HashFile(t.Context(), filepath.Join(dir, name), nil); err != nil {
						t.Fatal(err)
					}
				}
			}
			text, err := json.Marshal(m)
			if err != nil {
				t.Fatal(err)
			}
			write(graph.ManifestFile, string(text))(t, dir)
		}
	}
	const pointer = "version https://git-lfs.github.com/spec/v1\noid sha256:4d7a214614ab2935c943f9e0ff69d22eadbb8f32b1258daaa5e2ca24d17e2393\nsize 12345\n"
	for _, test := range []struct {
		name  string
		spoil func(t *testing.T, dir string)
		want  []string // parts of the error
	}{
		{"no model", func(t *testing.T, dir string) { os.RemoveAll(dir) }, []string{"model.json is missing", "go run ./smol/setup"}},
		{"no weights", func(t *testing.T, dir string) { os.Remove(filepath.Join(dir, graph.DataFile)) }, []string{"model.onnx.data is missing", "go run ./smol/setup"}},
		{"pointer for weights", write(graph.DataFile, pointer), []string{"model.onnx.data", "Git LFS pointer", "git lfs pull"}},
		{"pointer for graph", write(graph.GraphFile, pointer), []string{"model.onnx: ", "Git LFS pointer"}},
		{"pointer for tokenizer", write(graph.TokenizerFile, pointer), []string{"tokenizer.json", "Git LFS pointer"}},
		{"pointer for manifest", write(graph.ManifestFile, pointer), []string{"model.json", "Git LFS pointer"}},
		{"truncated weights", edit(graph.DataFile, func(b []byte) []byte { return b[:len(b)-1] }), []string{"model.onnx.data has ", " bytes, want ", "go run ./smol/setup"}},
		{"flipped bit", edit(graph.DataFile, func(b []byte) []byte { b[len(b)/2] ^= 1; return b }), []string{"model.onnx.data", "sha256", "go run ./smol/setup"}},
		{"manifest isn't JSON", write(graph.ManifestFile, "{"), []string{"model.json", "unexpected end of JSON input"}},
		{"other format", replace(`"format": 3`, `"format": 1`), []string{"format 1, want 3"}},
		{"manifest of another shape", replace(`"kv_heads": 2`, `"kv_heads": 1`), []string{"model.json: parameters"}},
		{"manifest of a longer context", replace(`"context": 512`, `"context": 1024`), []string{"model.onnx.data has ", "for the manifest's shape"}},
		{"graph isn't ONNX", reseal(graph.GraphFile, write(graph.GraphFile, "not a graph")), []string{"model.onnx: ", "rotobuf"}},
		{"graph lacks an input", reseal(graph.GraphFile, edit(graph.GraphFile, func(b []byte) []byte {
			return []byte(strings.ReplaceAll(string(b), "past_value.1", "lost_value.1"))
		})), []string{"model.onnx: ", "past_value.1"}},
		{"tokenizer isn't JSON", reseal(graph.TokenizerFile, write(graph.TokenizerFile, "{]")), []string{"tokenizer.json: not JSON"}},
		{"tokenizer isn't BPE", reseal(graph.TokenizerFile, write(graph.TokenizerFile, `{"model":{"type":"Unigram"}}`)), []string{`tokenizer.json: model.type "Unigram", want "BPE"`}},
		{"tokenizer lacks an id", reseal(graph.TokenizerFile, edit(graph.TokenizerFile, func(b []byte) []byte {
			return []byte(strings.Replace(string(b), `:511}`, `:510}`, 1))
		})), []string{"tokenizer.json: no token has id 511"}},
		{"tokenizer has an id too many", reseal(graph.TokenizerFile, edit(graph.TokenizerFile, func(b []byte) []byte {
			return []byte(strings.Replace(string(b), `:511}`, `:512}`, 1))
		})), []string{"tokenizer.json: token ", "has id 512, want 0 to 511"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			dir := copyTiny(t)
			test.spoil(t, dir)
			e, err := Load(dir, Options{Library: library, IntraThreads: 1})
			if err == nil {
				e.Close()
				t.Fatal("Load succeeds, want an error")
			}
			for _, part := range append(test.want, "smol: ") {
				if !strings.Contains(err.Error(), part) {
					t.Errorf("Load: %v\nwant it to hold %q", err, part)
				}
			}
		})
	}
	t.Run("no library", func(t *testing.T) {
		_, err := Load(tinyDir, Options{Library: filepath.Join(t.TempDir(), "libonnxruntime.so")})
		if err == nil || !strings.Contains(err.Error(), "smol: ONNX Runtime: ") || !strings.Contains(err.Error(), "go run ./smol/setup") {
			t.Errorf("Load: %v, want it to tell to run setup", err)
		}
	})
	t.Run("library isn't one", func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "libonnxruntime.so")
		if err := os.WriteFile(path, []byte(pointer), 0o644); err != nil {
			t.Fatal(err)
		}
		if _, err := Load(tinyDir, Options{Library: path}); err == nil || !strings.HasPrefix(err.Error(), "smol: ONNX Runtime: ") {
			t.Errorf("Load: %v, want ONNX Runtime's error", err)
		}
	})
	t.Run("another library", func(t *testing.T) {
		load(t, tinyDir, Options{IntraThreads: 1})
		path := filepath.Join(t.TempDir(), "libonnxruntime.so")
		if err := os.WriteFile(path, nil, 0o644); err != nil {
			t.Fatal(err)
		}
		if _, err := Load(tinyDir, Options{Library: path}); err == nil || !strings.Contains(err.Error(), "close its engines first") {
			t.Errorf("Load: %v, want it to refuse a second library", err)
		}
	})
	// After all these failures the library still opens.
	if got := answer(t, load(t, tinyDir, Options{}), []int32{1}, 2); len(got) != 2 {
		t.Errorf("answer %v, want 2 ids", got)
	}
}
