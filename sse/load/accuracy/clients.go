package main

import (
	"bytes"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// cell is what every client is asked to do.
type cell struct {
	name     string // number of streams, or "flat"
	streams  int
	requests int
	tokens   int
}

// clientKind knows how a client is started and what it leaves.
type clientKind struct {
	name    string
	python  bool
	offline string // of HF_HUB_OFFLINE: with 1 guidellm takes no tokenizer from a folder, without it sglang asks the hub
	// argv returns the command for c; dir is empty and the client's own.
	argv func(o *measureOptions, c cell, url, dir string) []string
	// report reads what the command left in dir or printed.
	report func(dir string, printed []byte) (*clientReport, error)
}

// clients are those that can be measured: this module's with a connection for
// each request, as the matrix has it, and with kept ones, as the others have
// it, and three published ones.
var clients = []clientKind{
	{name: "own", argv: ownCommand(false), report: ownReport},
	{name: "own-reuse", argv: ownCommand(true), report: ownReport},
	{name: "sglang-bench", python: true, argv: sglangCommand("rust"), report: sglangReport},
	{name: "sglang-serving", python: true, offline: "1", argv: sglangCommand("python"), report: sglangReport},
	{name: "guidellm", python: true, argv: guidellmCommand, report: guidellmReport},
}

func clientNames() (names []string) {
	for i := range clients {
		names = append(names, clients[i].name)
	}
	return names
}

func ownCommand(reuse bool) func(*measureOptions, cell, string, string) []string {
	return func(o *measureOptions, c cell, url, dir string) []string {
		return []string{
			o.self, "client", "-url", url, "-streams", strconv.Itoa(c.streams), "-requests", strconv.Itoa(c.requests),
			"-tokens", strconv.Itoa(c.tokens), "-reuse=" + strconv.FormatBool(reuse),
		}
	}
}

func ownReport(_ string, printed []byte) (*clientReport, error) {
	r := &clientReport{}
	return r, json.Unmarshal(printed, r)
}

// sglangStart runs either client of the sglang package. The compiled one is
// loaded from its file, without the package around it, which takes seconds to
// import.
//
//go:embed start_sglang.py
var sglangStart string

func sglangCommand(which string) func(*measureOptions, cell, string, string) []string {
	return func(o *measureOptions, c cell, url, dir string) []string {
		argv := []string{
			o.python, "-c", sglangStart, which, "--backend", "vllm", "--base-url", url, "--dataset-name", "random-ids",
			"--model", modelName, "--tokenizer", o.tokenizer, "--num-prompts", strconv.Itoa(c.requests), "--random-input-len", "8",
			"--random-output-len", strconv.Itoa(c.tokens), "--random-range-ratio", "1", "--max-concurrency", strconv.Itoa(c.streams),
			"--warmup-requests", "0", "--output-file", filepath.Join(dir, "result.jsonl"), "--output-details", "--disable-tqdm",
		}
		if which == "rust" {
			argv = append(argv, "--disable-retokenize")
		}
		return argv
	}
}

func sglangReport(dir string, _ []byte) (*clientReport, error) {
	data, err := os.ReadFile(filepath.Join(dir, "result.jsonl"))
	if err != nil {
		return nil, err
	}
	var told struct {
		TTFT50    float64     `json:"median_ttft_ms"`
		TTFT99    float64     `json:"p99_ttft_ms"`
		Gap50     float64     `json:"median_itl_ms"`
		Gap99     float64     `json:"p99_itl_ms"`
		Completed int         `json:"completed"`
		Gaps      [][]float64 `json:"itls"` // s
		Texts     []string    `json:"generated_texts"`
		Errors    []string    `json:"errors"`
	}
	data = bytes.ReplaceAll(data, []byte(": Infinity"), []byte(": null")) // the request rate, as Python writes it
	if err := json.Unmarshal(data, &told); err != nil {
		return nil, err
	}
	r := &clientReport{Reported: figures{rounded(told.TTFT50), rounded(told.TTFT99), rounded(told.Gap50), rounded(told.Gap99)}}
	for _, text := range told.Errors {
		if text != "" {
			r.Failed++
		}
	}
	for i, text := range told.Texts {
		request := clientRequest{Name: firstToken(text)}
		for _, gap := range told.Gaps[i] {
			request.GapNS = append(request.GapNS, int64(gap*1e9))
		}
		r.Requests = append(r.Requests, request)
	}
	return r, nil
}

func guidellmCommand(o *measureOptions, c cell, url, dir string) []string {
	return []string{
		filepath.Join(filepath.Dir(o.python), "guidellm"), "run",
		"--backend", "kind=openai_http,target=" + url + ",model=" + modelName + ",request_format=/v1/completions",
		"--profile", fmt.Sprintf("kind=concurrent,streams=%d", c.streams), "--constraint", fmt.Sprintf("kind=max_requests,count=%d", c.requests),
		"--data", "kind=json_file,path=" + o.prompts(c), "--tokenizer", "kind=hf_auto,model=" + o.tokenizer,
		"--output", "kind=json,path=" + filepath.Join(dir, "result.json"), "--disable-console",
	}
}

func guidellmReport(dir string, _ []byte) (*clientReport, error) {
	data, err := os.ReadFile(filepath.Join(dir, "result.json"))
	if err != nil {
		return nil, err
	}
	type spread struct {
		Successful struct {
			Percentiles struct {
				P50 float64 `json:"p50"`
				P99 float64 `json:"p99"`
			} `json:"percentiles"`
		} `json:"successful"`
	}
	var told struct {
		Benchmarks []struct {
			Metrics struct {
				Totals struct {
					Errored    int `json:"errored"`
					Incomplete int `json:"incomplete"`
				} `json:"request_totals"`
				TTFT spread `json:"time_to_first_token_ms"`
				Gap  spread `json:"inter_token_latency_ms"`
			} `json:"metrics"`
		} `json:"benchmarks"`
	}
	if err := json.Unmarshal(data, &told); err != nil {
		return nil, err
	}
	if len(told.Benchmarks) != 1 {
		return nil, fmt.Errorf("%d benchmarks in its result, want 1", len(told.Benchmarks))
	}
	m := told.Benchmarks[0].Metrics
	ttft, gap := m.TTFT.Successful.Percentiles, m.Gap.Successful.Percentiles
	return &clientReport{
		Reported: figures{rounded(ttft.P50), rounded(ttft.P99), rounded(gap.P50), rounded(gap.P99)},
		Failed:   m.Totals.Errored + m.Totals.Incomplete,
	}, nil
}

// findClients returns the kinds named in list.
func findClients(list string) ([]*clientKind, error) {
	var out []*clientKind
	for name := range strings.SplitSeq(list, ",") {
		found := false
		for i := range clients {
			if clients[i].name == name {
				out, found = append(out, &clients[i]), true
			}
		}
		if !found {
			return nil, fmt.Errorf("accuracy: client %q, want one of %s", name, strings.Join(clientNames(), ", "))
		}
	}
	return out, nil
}

// writeInputs lays down what published clients want to read: a tokenizer of
// a thousand words, and prompts.
func (o *measureOptions) writeInputs() error {
	vocabulary := map[string]int{"[UNK]": 0}
	for i := 1; i < 1000; i++ {
		vocabulary[fmt.Sprintf("w%d", i)] = i
	}
	tokenizer := map[string]any{
		"version": "1.0", "truncation": nil, "padding": nil, "added_tokens": []any{}, "normalizer": nil,
		"pre_tokenizer": map[string]string{"type": "WhitespaceSplit"}, "post_processor": nil, "decoder": nil,
		"model": map[string]any{"type": "WordLevel", "vocab": vocabulary, "unk_token": "[UNK]"},
	}
	o.tokenizer = filepath.Join(o.dir, "tokenizer")
	if err := os.Mkdir(o.tokenizer, 0o777); err != nil {
		return err
	}
	data, err := json.Marshal(tokenizer)
	if err != nil {
		return err
	}
	settings := []byte(`{"tokenizer_class":"PreTrainedTokenizerFast","unk_token":"[UNK]","model_max_length":100000}`)
	return errors.Join(
		os.WriteFile(filepath.Join(o.tokenizer, "tokenizer.json"), data, 0o666),
		os.WriteFile(filepath.Join(o.tokenizer, "tokenizer_config.json"), settings, 0o666),
		os.WriteFile(filepath.Join(o.tokenizer, "config.json"), []byte(`{"model_type":"llama"}`), 0o666),
	)
}

// prompts returns the name of a file with a prompt for each request of c.
func (o *measureOptions) prompts(c cell) string {
	path := filepath.Join(o.dir, "prompts-"+c.name+".json")
	type prompt struct {
		Prompt string `json:"prompt"`
		Output int    `json:"output_tokens_count"`
	}
	list := make([]prompt, c.requests)
	for i := range list {
		list[i] = prompt{fmt.Sprintf("w1 w2 w3 w4 w5 w6 w%d w%d", i/999+1, i%999+1), c.tokens}
	}
	data, err := json.Marshal(list)
	if err == nil {
		os.WriteFile(path, data, 0o666) // its absence is the client's own error
	}
	return path
}
