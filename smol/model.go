package smol

import (
	"context"
	"fmt"

	"servebench/smol/graph"
	"servebench/verify"
)

// sessionConfig is what a session is opened with.
type sessionConfig struct {
	library, graph   string // paths
	kvHeads, headDim int
	context          int // tokens that the caches hold
	threads          int
	spinning         bool
	entries          [][2]string
}

// readModel reads the manifest of the model in dir and holds every file
// against its size and SHA-256, so that what it says of them is what was
// loaded and not what should have been.
func readModel(dir string) (*graph.Manifest, error) {
	m, err := graph.ReadManifest(dir)
	if err != nil {
		return nil, fmt.Errorf("smol: %w", err)
	}
	for _, f := range m.Files {
		// The hash only says that the file is the one of the manifest.
		if want := graph.DataBytes(m.Config()); f.Name == graph.DataFile && f.Bytes != want {
			return nil, fmt.Errorf("smol: model %s: %s has %d bytes, want %d for the manifest's shape: run  go run ./smol/setup", dir, f.Name, f.Bytes, want)
		}
	}
	if err := m.Verify(context.Background(), dir, nil); err != nil {
		return nil, fmt.Errorf("smol: %w", err)
	}
	return m, nil
}

// modelRecord is m as a server tells it.
func modelRecord(m *graph.Manifest) verify.Model {
	r := verify.Model{
		ID:         m.ID,
		Source:     m.Source,
		Revision:   m.Revision,
		Precision:  m.Precision,
		Parameters: m.Parameters,
		Vocabulary: m.Vocabulary,
	}
	for _, f := range m.Files {
		r.Files = append(r.Files, verify.File(f))
	}
	for _, f := range m.Inputs {
		r.Inputs = append(r.Inputs, verify.File(f))
	}
	return r
}
