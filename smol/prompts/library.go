//go:build cgo

package main

/*
#cgo LDFLAGS: -L${SRCDIR}/../native/v1
#if !__has_include("../native/v1/libtokenizers.a")
#error "servebench is not set up: in the module's root run  go run ./smol/setup"
#endif
*/
import "C"

import "github.com/daulet/tokenizers"

// library is the native tokenizer. This is the only file here that imports its
// binding.
type library struct{ tok *tokenizers.Tokenizer }

// newLibrary makes a tokenizer from the contents of a tokenizer.json, which
// mustn't be empty.
func newLibrary(config []byte) (*library, error) {
	tok, err := tokenizers.FromBytes(config)
	if err != nil {
		return nil, err
	}
	return &library{tok}, nil
}

// encode returns the ids of text, which must be valid UTF-8 without NUL: the
// binding hands it over as a C string. None means that the library failed, or
// that there are none: it doesn't tell.
func (l *library) encode(text string, addSpecial bool) []int32 {
	enc := l.tok.EncodeWithOptions(text, addSpecial)
	ids := make([]int32, len(enc.IDs))
	for i, id := range enc.IDs {
		ids[i] = int32(id)
	}
	return ids
}

func (l *library) close() { l.tok.Close() }
