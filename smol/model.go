package smol

import (
	"context"
	"fmt"

	"servebench/smol/graph"
	"servebench/verify"
)

// The graph's inputs and outputs, as package graph writes them.
const (
	inputIDs     = "input_ids"             // int64 [1, sequence]
	inputSeqlens = "seqlens_k"             // int32 [1]: the total less one
	inputTotal   = "total_sequence_length" // int32 [1]
	outputNext   = "next_id"               // int64 [1, 1]
)

// cacheNames returns the past input and the present output that share cache
// number i: key and value of layer 0, of layer 1, …; float32, of shape
// [1, KV heads, context, head dimension].
func cacheNames(i int) (past, present string) {
	kind := [2]string{"key", "value"}[i%2]
	return fmt.Sprintf("past_%s.%d", kind, i/2), fmt.Sprintf("present_%s.%d", kind, i/2)
}

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
	return r
}
