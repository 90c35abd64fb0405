//go:build cgo

package smol

import (
	"errors"
	"sync"

	"github.com/daulet/tokenizers"
)

// encoderVersion is the version of the native tokenizer library, as far as it
// tells one: the binding refers to the symbol tokenizers_version_1_23_0, so a
// library of another version doesn't link.
const encoderVersion = "1.23.0"

// encoder is the native tokenizer. This is the only file that imports its
// binding.
type encoder struct {
	mu  sync.RWMutex // close waits for encodes under way
	tok *tokenizers.Tokenizer
}

// newEncoder makes an encoder from the contents of a tokenizer.json.
func newEncoder(config []byte) (*encoder, error) {
	if len(config) == 0 {
		return nil, errors.New("empty file")
	}
	tok, err := tokenizers.FromBytes(config)
	if err != nil {
		return nil, err
	}
	return &encoder{tok: tok}, nil
}

// encode returns the ids of text, which must be valid UTF-8 without NUL: the
// binding hands it over as a C string. It is safe for concurrent use.
func (e *encoder) encode(text string) ([]int32, error) {
	e.mu.RLock()
	defer e.mu.RUnlock()
	if e.tok == nil {
		return nil, ErrClosed
	}
	if text == "" {
		return nil, nil
	}
	enc := e.tok.EncodeWithOptions(text, false)
	ids := make([]int32, len(enc.IDs))
	for i, id := range enc.IDs {
		ids[i] = int32(id)
	}
	return ids, nil
}

func (e *encoder) close() {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.tok != nil {
		e.tok.Close()
		e.tok = nil
	}
}
