package graph

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
)

// Model is a published model, ready to be written as a model directory.
type Model struct {
	ID        string // such as "SmolLM2-135M-Instruct"
	Source    string // a public name: a model page, a package and version
	Revision  string // the source's own, "" if it has none
	Precision string // where the float32 values come from
	Weights   Weights

	Tokenizer    []byte // the bytes of tokenizer.json
	ChatTemplate string // Jinja, "" if there is none
	Inputs       []File // what the model was read from
}

// FromGGUF takes weights, tokenizer, chat template and precision from g,
// which must stay open until the model is written.
func FromGGUF(g *GGUF) (Model, error) {
	w, err := GGUFWeights(g)
	if err != nil {
		return Model{}, err
	}
	tokenizer, err := GGUFTokenizer(g)
	if err != nil {
		return Model{}, err
	}
	if tokens, err := metaValue[[]string](g, "tokenizer.ggml.tokens"); err != nil || len(tokens) != w.Config().Vocabulary {
		return Model{}, fmt.Errorf("graph: gguf: %d tokens, want llama.vocab_size, %d", len(tokens), w.Config().Vocabulary)
	}
	return Model{
		Precision: precision(g), Weights: w,
		Tokenizer: tokenizer, ChatTemplate: GGUFChatTemplate(g),
	}, nil
}

// FromSafetensors takes weights and precision from s, which must stay open
// until the model is written; the other arguments are the bytes of the files
// beside it.
func FromSafetensors(s *Safetensors, configJSON, tokenizerJSON, tokenizerConfigJSON []byte) (Model, error) {
	w, err := SafetensorsWeights(s, configJSON)
	if err != nil {
		return Model{}, err
	}
	template, err := hfChatTemplate(tokenizerConfigJSON)
	if err != nil {
		return Model{}, err
	}
	return Model{Precision: precision(s), Weights: w, Tokenizer: tokenizerJSON, ChatTemplate: template}, nil
}

// Options are the choices that Write leaves open.
type Options struct {
	// Logits adds the output OutputLogits, for tests. By default the graph
	// keeps them to itself.
	Logits bool
	// Progress, if not nil, is told of bytes as they're written. DataBytes is
	// what they come to.
	Progress func(bytes int64)
}

// DataBytes is the size of the data file that Write makes of c.
func DataBytes(c Config) int64 {
	var n int64
	add := func(elements int64) {
		n = (n+dataAlign-1)/dataAlign*dataAlign + 4*elements
	}
	add(int64(c.Context) * int64(c.HeadDim/2))
	add(int64(c.Context) * int64(c.HeadDim/2))
	for _, s := range c.Shapes() {
		if len(s.Dims) > 1 {
			add(s.Elements())
		}
	}
	return n
}

// Write makes the model directory dir, which must not exist or be empty, and
// returns its manifest. Files are durable when it returns; the manifest is
// the last of them. After an error dir holds no manifest and is the caller's
// to remove.
func Write(ctx context.Context, dir string, m Model, o Options) (*Manifest, error) {
	c := m.Weights.Config()
	if err := c.Validate(); err != nil {
		return nil, err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, fmt.Errorf("graph: %w", err)
	}
	data, err := createFile(filepath.Join(dir, DataFile), o.Progress)
	if err != nil {
		return nil, fmt.Errorf("graph: %w", err)
	}
	defer data.f.Close() // after finish it has no effect
	b := &builder{ctx: ctx, config: c, weights: m.Weights, data: data}
	proto, err := b.build(o.Logits)
	if err != nil {
		return nil, err
	}
	dataFile, err := data.finish()
	if err != nil {
		return nil, fmt.Errorf("graph: %w", err)
	}
	graphFile, err := writeFile(filepath.Join(dir, GraphFile), proto)
	if err != nil {
		return nil, err
	}
	tokenizerFile, err := writeFile(filepath.Join(dir, TokenizerFile), m.Tokenizer)
	if err != nil {
		return nil, err
	}
	manifest := &Manifest{
		Format: Format, ID: m.ID, Source: m.Source, Revision: m.Revision, Precision: m.Precision,
		ChatTemplate: m.ChatTemplate,
		Files:        []File{graphFile, dataFile, tokenizerFile},
		Inputs:       m.Inputs,
	}
	if manifest.Inputs == nil {
		manifest.Inputs = []File{}
	}
	manifest.setConfig(c)
	manifest.EmbeddingOffset = b.embedding.offset
	text, err := marshal(manifest, "  ")
	if err != nil {
		return nil, fmt.Errorf("graph: %w", err)
	}
	if _, err := writeFile(filepath.Join(dir, ManifestFile), text); err != nil {
		return nil, err
	}
	return manifest, syncDir(dir)
}

// syncDir makes the names in dir durable.
func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return fmt.Errorf("graph: %w", err)
	}
	defer d.Close()
	if err := d.Sync(); err != nil {
		return fmt.Errorf("graph: %w", err)
	}
	return nil
}
