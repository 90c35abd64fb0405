package main

import (
	"archive/zip"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"servebench/smol/graph"
)

func demanded(name string, data []byte) fetched {
	sum := sha256.Sum256(data)
	return fetched{name, int64(len(data)), hex.EncodeToString(sum[:])}
}

func quiet() *reporter { return newReporter(&bytes.Buffer{}) }

// zipped is an archive of files, in this order.
func zipped(t *testing.T, files ...[2]string) []byte {
	t.Helper()
	var b bytes.Buffer
	z := zip.NewWriter(&b)
	for _, f := range files {
		w, err := z.Create(f[0])
		if err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write([]byte(f[1])); err != nil {
			t.Fatal(err)
		}
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func TestUnzip(t *testing.T) {
	want := demanded("lib.so.1", []byte("the library"))
	for _, tt := range []struct {
		name  string
		files [][2]string
		err   string
	}{
		{"there", [][2]string{{"pkg/__init__.py", ""}, {"pkg/capi/lib.so.1", "the library"}}, ""},
		{"not there", [][2]string{{"pkg/capi/lib.so.2", "the library"}}, "a.whl holds no lib.so.1"},
		{"twice", [][2]string{{"a/lib.so.1", "the library"}, {"b/lib.so.1", "the library"}}, "a.whl holds lib.so.1 twice"},
		{"another", [][2]string{{"a/lib.so.1", "the likrary"}}, "out has 11 bytes, sha256 " + demanded("", []byte("the likrary")).sha256 + ", want 11, " + want.sha256 + "; it was not used"},
		{"a bomb", [][2]string{{"a/lib.so.1", strings.Repeat("x", 1<<20)}}, "out has 12 bytes, sha256 " + demanded("", []byte("xxxxxxxxxxxx")).sha256 + ", want 11, " + want.sha256 + "; it was not used"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			dir := tree(t, map[string]string{"a.whl": string(zipped(t, tt.files...))})
			err := unzip(t.Context(), filepath.Join(dir, "a.whl"), want, filepath.Join(dir, "out"))
			if tt.err == "" && err != nil || tt.err != "" && (err == nil || err.Error() != tt.err) {
				t.Errorf("unzip: %v\nwant %s", err, tt.err)
			}
		})
	}
	dir := tree(t, map[string]string{"a.whl": "PK, but no more"})
	if err := unzip(t.Context(), filepath.Join(dir, "a.whl"), want, filepath.Join(dir, "out")); !errors.Is(err, zip.ErrFormat) {
		t.Errorf("unzip of half a file: %v, want ErrFormat", err)
	}
}

// onPath makes programs of shell scripts the only ones on PATH but for the
// shell's own directories.
func onPath(t *testing.T, scripts map[string]string) string {
	t.Helper()
	if runtime.GOOS == "windows" {
		t.Skip("the scripts are a Unix shell's")
	}
	files := map[string]string{}
	for name, text := range scripts {
		files[name] = "#!/bin/sh\n" + text
	}
	dir := tree(t, files)
	t.Setenv("PATH", dir)
	return dir
}

// fakePip is a Python whose pip copies $WHEEL, as pip would, and insists on
// what the call must say.
const fakePip = `
case "$*" in
"-m pip --version") echo "pip 99"; exit 0;;
"-m pip download "*"--no-deps --only-binary=:all: --python-version 3.12 --platform TAG --dest "*" thing==1.0") ;;
*) echo "unexpected: $*" >&2; exit 2;;
esac
[ -d "$TMPDIR" ] || exit 3
while [ $# -gt 2 ]; do shift; done
/bin/cp "$WHEEL" "$1/thing-1.0-py3-none-any.whl"
`

func TestFetchWheel(t *testing.T) {
	data := zipped(t, [2]string{"x", "y"})
	dir := tree(t, map[string]string{"the.whl": string(data)})
	t.Setenv("WHEEL", filepath.Join(dir, "the.whl"))
	w := wheel{project: "thing==1.0", platform: "TAG", fetched: demanded("", data)}

	onPath(t, map[string]string{"python3": fakePip})
	got, err := fetchWheel(t.Context(), "thing", w, t.TempDir(), quiet())
	if err != nil {
		t.Fatal(err)
	}
	if read, err := os.ReadFile(got); err != nil || !bytes.Equal(read, data) {
		t.Errorf("fetchWheel: another file, %v", err)
	}

	// The first pip is broken in one way or another; the second isn't.
	for _, broken := range []string{"echo no module named pip >&2; exit 1", `case "$*" in *--version) exit 0;; esac; exit 1`} {
		onPath(t, map[string]string{"python3": broken, "python": fakePip})
		if _, err := fetchWheel(t.Context(), "thing", w, t.TempDir(), quiet()); err != nil {
			t.Errorf("fetchWheel with a broken pip before a sound one: %v", err)
		}
	}

	onPath(t, map[string]string{"python3": fakePip})
	w.sha256 = strings.Repeat("0", 64)
	_, err = fetchWheel(t.Context(), "thing", w, t.TempDir(), quiet())
	if want := "; it was not used"; err == nil || !strings.HasSuffix(err.Error(), want) {
		t.Errorf("fetchWheel of another wheel: %v, want %q at the end", err, want)
	}
}

func TestFetchWheelWithoutPip(t *testing.T) {
	onPath(t, nil)
	_, err := fetchWheel(t.Context(), "thing", wheel{}, t.TempDir(), quiet())
	if !errors.Is(err, errNoPip) || !strings.HasPrefix(err.Error(), "neither python3 nor pip is on PATH: ") {
		t.Errorf("fetchWheel without Python: %v", err)
	}
	dir := onPath(t, map[string]string{"python3": "echo No module named pip >&2; exit 1"})
	_, err = fetchWheel(t.Context(), "thing", wheel{}, t.TempDir(), quiet())
	want := fmt.Sprintf("%v; tried:\n  %s/python3: python3 -m pip --version: exit status 1: No module named pip", errNoPip, dir)
	if !errors.Is(err, errNoPip) || err.Error() != want {
		t.Errorf("fetchWheel without pip: %v\nwant %s", err, want)
	}
	if !strings.Contains(err.Error(), "apt-get install python3-pip") {
		t.Errorf("%v doesn't say what to install", err)
	}
}

// fakeProxy behaves like rustup's proxy: it wants a toolchain under
// RUSTUP_HOME, or else under HOME.
const fakeProxy = `
[ -d "${RUSTUP_HOME:-$HOME/.rustup}/toolchains/stable" ] || { echo "error: rustup could not choose a version of cargo to run" >&2; exit 1; }
echo "cargo 1.99 $CARGO_HOME"
`

func TestFindCargo(t *testing.T) {
	home := tree(t, map[string]string{
		".cargo/bin/cargo": "#!/bin/sh\n" + fakeProxy,
		".rustup/toolchains/stable/bin/cargo": "#!/bin/sh\n" +
			`[ "$RUSTC" = "${0%cargo}rustc" ] && echo "cargo 1.99, direct"`,
	})
	empty := tree(t, nil)
	proxy := filepath.Join(home, ".cargo", "bin", "cargo")
	t.Setenv("CARGO_HOME", "")
	os.Unsetenv("CARGO_HOME")
	t.Setenv("RUSTUP_HOME", "")
	os.Unsetenv("RUSTUP_HOME")

	t.Run("at home", func(t *testing.T) {
		t.Setenv("HOME", home)
		t.Setenv("PATH", filepath.Dir(proxy))
		c, err := findCargo(t.Context())
		if err != nil || c.path != proxy || len(c.env) != 0 {
			t.Errorf("findCargo = %v %v, %v, want %s as it is", c.env, c.path, err, proxy)
		}
	})
	t.Run("at home, but not on PATH", func(t *testing.T) {
		t.Setenv("HOME", home)
		t.Setenv("PATH", empty)
		if c, err := findCargo(t.Context()); err != nil || c.path != proxy {
			t.Errorf("findCargo = %v, %v, want %s", c.path, err, proxy)
		}
	})
	t.Run("under another home", func(t *testing.T) {
		t.Setenv("HOME", empty)
		t.Setenv("PATH", filepath.Dir(proxy))
		c, err := findCargo(t.Context())
		want := []string{"RUSTUP_HOME=" + home + "/.rustup", "CARGO_HOME=" + home + "/.cargo"}
		if err != nil || c.path != proxy || !slices.Equal(c.env, want) {
			t.Errorf("findCargo = %v %v, %v, want %v %s", c.env, c.path, err, want, proxy)
		}
	})
	t.Run("without a default toolchain", func(t *testing.T) {
		if err := os.WriteFile(proxy, []byte("#!/bin/sh\necho 'error: no default is configured' >&2; exit 1"), 0o755); err != nil {
			t.Fatal(err)
		}
		t.Setenv("HOME", empty)
		t.Setenv("PATH", filepath.Dir(proxy))
		direct := filepath.Join(home, ".rustup", "toolchains", "stable", "bin", "cargo")
		if c, err := findCargo(t.Context()); err != nil || c.path != direct {
			t.Errorf("findCargo = %v, %v, want %s", c.path, err, direct)
		}
	})
	t.Run("none", func(t *testing.T) {
		if isExecutable("/usr/local/cargo/bin/cargo") {
			t.Skip("this machine has one that's always found")
		}
		t.Setenv("HOME", empty)
		t.Setenv("PATH", empty)
		_, err := findCargo(t.Context())
		if !errors.Is(err, errNoCargo) || !strings.HasPrefix(err.Error(), "cargo is not on PATH: ") {
			t.Errorf("findCargo: %v", err)
		}
	})
	t.Run("a proxy without toolchains", func(t *testing.T) {
		if isExecutable("/usr/local/cargo/bin/cargo") {
			t.Skip("this machine has one that's always found")
		}
		dir := onPath(t, map[string]string{"cargo": fakeProxy})
		t.Setenv("HOME", empty)
		_, err := findCargo(t.Context())
		want := fmt.Sprintf("%v; tried:\n  %s/cargo: cargo --version: exit status 1: error: rustup could not choose a version of cargo to run", errNoCargo, dir)
		if err == nil || err.Error() != want {
			t.Errorf("findCargo: %v\nwant %s", err, want)
		}
		for _, say := range []string{"RUSTUP_HOME", "CARGO_HOME", "apt-get install cargo"} {
			if !strings.Contains(want, say) {
				t.Errorf("%q doesn't mention %s", want, say)
			}
		}
	})
}

func TestBuildTokenizers(t *testing.T) {
	src := tree(t, map[string]string{"src/lib.rs": ""})
	module := fmt.Sprintf(`{"Path":%q,"Version":%q,"Dir":%q}`, tokenizersModule, tokenizersVersion, src)
	cargo := `
[ "$1" = --version ] && exit 0
[ "$1 $2 $3 $4" = "build --release --locked --target-dir" ] || { echo "unexpected: $*" >&2; exit 2; }
[ -z "$CARGO_BUILD_TARGET" ] && [ -f Cargo.lock ] || exit 3
echo "   Compiling libc v0.2.177" >&2
while read -r line; do case "$line" in path*) path="$line";; esac; done < Cargo.toml
/bin/mkdir -p "$5/release"
echo "$path" > "$5/release/libtokenizers.a"
`
	t.Setenv("CARGO_BUILD_TARGET", "wasm32-wasip1")
	build := func(scripts map[string]string) (string, error) {
		onPath(t, scripts)
		work := t.TempDir()
		made := filepath.Join(work, "made")
		if err := os.Mkdir(made, 0o755); err != nil {
			t.Fatal(err)
		}
		err := buildTokenizers(t.Context(), src, made, quiet())
		lib, _ := os.ReadFile(filepath.Join(made, tokenizersLib))
		return string(lib), err
	}
	echo := func(s string) string { return "echo '" + s + "'" }
	lib, err := build(map[string]string{"go": echo(module), "cargo": cargo})
	if want := fmt.Sprintf("path = %q\n", filepath.Join(src, "src", "lib.rs")); err != nil || lib != want {
		t.Errorf("buildTokenizers: %q, %v, want the library of %q", lib, err, want)
	}
	for name, tt := range map[string]struct {
		scripts map[string]string
		want    string
	}{
		"no go": {map[string]string{"cargo": cargo}, `go is not on PATH: exec: "go": executable file not found in $PATH`},
		"another version": {map[string]string{"cargo": cargo, "go": echo(strings.Replace(module, tokenizersVersion, "v1.99.0", 1))},
			"go.mod requires github.com/daulet/tokenizers v1.99.0, want v1.24.0; the lock file in smol/setup belongs to that one"},
		"no network": {map[string]string{"cargo": cargo, "go": echo(`{"Error":"dial tcp: no route"}`) + "; exit 1"},
			"github.com/daulet/tokenizers: dial tcp: no route"},
		"a build that fails": {map[string]string{"go": echo(module), "cargo": `[ "$1" = --version ] && exit 0; echo "error: linker cc not found" >&2; exit 101`},
			"exit status 101: error: linker cc not found"},
		"a build of nothing": {map[string]string{"go": echo(module), "cargo": "exit 0"}, "cargo left no libtokenizers.a"},
	} {
		if _, err := build(tt.scripts); err == nil || !strings.HasSuffix(err.Error(), tt.want) {
			t.Errorf("%s: %v\nwant %s", name, err, tt.want)
		}
	}
}

func TestDownload(t *testing.T) {
	good := []byte("good content")
	mux := http.NewServeMux()
	mux.HandleFunc("/good", func(w http.ResponseWriter, _ *http.Request) { w.Write(good) })
	mux.HandleFunc("/other", func(w http.ResponseWriter, _ *http.Request) { w.Write([]byte("evil content")) })
	mux.HandleFunc("/endless", func(w http.ResponseWriter, _ *http.Request) {
		for w.(http.Flusher).Flush(); ; {
			if _, err := w.Write(make([]byte, 1<<16)); err != nil {
				return
			}
		}
	})
	mux.HandleFunc("/cut", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", "12")
		w.Write(good[:5])
	})
	mux.HandleFunc("/silent", func(w http.ResponseWriter, r *http.Request) {
		w.Write(good[:5])
		w.(http.Flusher).Flush()
		<-r.Context().Done()
	})
	server := httptest.NewServer(mux)
	defer server.Close()
	host := strings.TrimPrefix(server.URL, "http://")
	want := demanded("file", good)
	d := newDownloader(time.Second, 100*time.Millisecond)
	for _, tt := range []struct{ path, err string }{
		{"/good", ""},
		{"/none", host + ": file: 404 Not Found, want 200 OK"},
		{"/other", "file has 12 bytes, sha256 " + demanded("", []byte("evil content")).sha256 + ", want 12, " + want.sha256 + "; it was not used"},
		{"/endless", "file has 13 bytes, sha256 " + demanded("", make([]byte, 13)).sha256 + ", want 12, " + want.sha256 + "; it was not used"},
		{"/cut", "file: unexpected EOF"},
		{"/silent", "file: nothing came for 100ms"},
	} {
		t.Run(tt.path, func(t *testing.T) {
			err := d.get(t.Context(), "thing", server.URL+tt.path, want, filepath.Join(t.TempDir(), "file"), quiet())
			if tt.err == "" && err != nil || tt.err != "" && (err == nil || err.Error() != tt.err) {
				t.Errorf("get: %v\nwant %s", err, tt.err)
			}
		})
	}

	// A port that nobody listens on.
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l.Close()
	err = d.get(t.Context(), "thing", "http://"+l.Addr().String()+"/", want, filepath.Join(t.TempDir(), "file"), quiet())
	if err == nil || !strings.HasPrefix(err.Error(), l.Addr().String()+": dial tcp") {
		t.Errorf("get from nowhere: %v, want an error that begins with the host", err)
	}
}

// TestHub takes a model from a page like the real one to a model directory.
func TestHub(t *testing.T) {
	tiny := graph.Tiny()
	c := tiny.Weights.Config()
	header := map[string]any{}
	var data []byte
	for _, s := range c.Shapes() {
		w := make([]float32, s.Elements())
		if err := tiny.Weights.Load(s.Name, w); err != nil {
			t.Fatal(err)
		}
		start := len(data)
		for _, v := range w {
			data = binary.LittleEndian.AppendUint16(data, uint16(math.Float32bits(v)>>16)) // BF16, cut off
		}
		header[s.Name] = map[string]any{"dtype": "BF16", "shape": s.Dims, "data_offsets": []int{start, len(data)}}
	}
	head, err := json.Marshal(header)
	if err != nil {
		t.Fatal(err)
	}
	files := map[string][]byte{
		"model.safetensors":     append(append(binary.LittleEndian.AppendUint64(nil, uint64(len(head))), head...), data...),
		"tokenizer.json":        tiny.Tokenizer,
		"tokenizer_config.json": []byte(`{"chat_template":"{{ x }}"}`),
		"config.json": fmt.Appendf(nil, `{"model_type":"llama","hidden_act":"silu","tie_word_embeddings":true,"rope_scaling":null,
			"rope_interleaved":false,"torch_dtype":"bfloat16","num_hidden_layers":%d,"hidden_size":%d,"intermediate_size":%d,
			"num_attention_heads":%d,"num_key_value_heads":%d,"vocab_size":%d,"max_position_embeddings":%d,
			"rope_theta":%v,"rms_norm_eps":%v,"bos_token_id":%d,"eos_token_id":%d}`,
			c.Layers, c.Hidden, c.Intermediate, c.Heads, c.KVHeads, c.Vocabulary, c.Context, c.RopeTheta, c.NormEps, c.BOS, c.EOS),
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		name, ok := strings.CutPrefix(r.URL.Path, "/org/model/resolve/abc123/")
		if !ok || files[name] == nil {
			http.NotFound(w, r)
			return
		}
		w.Write(files[name])
	}))
	defer server.Close()
	h := hub{
		http: newDownloader(time.Second, time.Second),
		base: server.URL + "/org/model/resolve/", project: "org/model on a page", revision: "abc123",
		config:          demanded("config.json", files["config.json"]),
		tokenizerConfig: demanded("tokenizer_config.json", files["tokenizer_config.json"]),
		tokenizer:       demanded("tokenizer.json", files["tokenizer.json"]),
		weights:         demanded("model.safetensors", files["model.safetensors"]),
	}
	cache, _ := newCache(t)
	s := modelStep(weightsHuggingFace)
	s.sources[0].make = h.make
	install(t, cache, 1, options{}, s)
	m, err := graph.ReadManifest(filepath.Join(cache.dir, modelDir))
	if err != nil {
		t.Fatal(err)
	}
	if m.ID != modelID || m.Source != h.project || m.Revision != "abc123" || m.Precision != "fp32, widened from bf16" || m.ChatTemplate != "{{ x }}" {
		t.Errorf("manifest %+v", m)
	}
	if m.Config() != c {
		t.Errorf("config %+v, want %+v", m.Config(), c)
	}
	wantInputs := []graph.File{h.config.file(), h.tokenizerConfig.file(), h.tokenizer.file(), h.weights.file()}
	if !slices.Equal(m.Inputs, wantInputs) {
		t.Errorf("inputs %v, want %v", m.Inputs, wantInputs)
	}
	if got := describeModel(cache.dir); got != "SmolLM2-135M-Instruct (fp32, widened from bf16; org/model on a page)" {
		t.Errorf("describeModel = %q", got)
	}

	h.weights.sha256 = strings.Repeat("0", 64)
	s.sources[0].make = h.make
	other, _ := newCache(t)
	if _, err := other.install(t.Context(), []step{s}, options{}); err == nil || !strings.HasSuffix(err.Error(), "; it was not used") {
		t.Errorf("with other weights: %v", err)
	}
}

func TestCommand(t *testing.T) {
	dir := onPath(t, map[string]string{"tool": `echo "$A$B"; echo first >&2; echo second >&2; exit $C`})
	t.Setenv("B", "dropped")
	var lines []string
	c := command{path: filepath.Join(dir, "tool"), args: []string{"x"}, env: []string{"A=set", "C=0"}, drop: []string{"B"},
		line: func(l string) { lines = append(lines, l) }}
	if out, err := c.run(t.Context()); err != nil || string(out) != "set\n" || !slices.Equal(lines, []string{"first", "second"}) {
		t.Errorf("run = %q, %v, lines %q", out, err, lines)
	}
	c.env = []string{"C=7"}
	if _, err := c.run(t.Context()); err == nil || err.Error() != "tool x: exit status 7: first\nsecond" {
		t.Errorf("run: %v", err)
	}
}

// TestCommandEndsItsChildren interrupts a tool whose child would go on.
func TestCommandEndsItsChildren(t *testing.T) {
	dir := onPath(t, map[string]string{"tool": "/bin/sleep 60 & echo started >&2; wait"})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	c := command{path: filepath.Join(dir, "tool"), line: func(string) { cancel() }}
	start := time.Now()
	if _, err := c.run(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("run: %v, want Canceled", err)
	}
	// The child holds the pipe; only its end lets run return before WaitDelay.
	if took := time.Since(start); took > 4*time.Second {
		t.Errorf("run took %v after the interrupt", took)
	}
}
