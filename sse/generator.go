package sse

// Generator is a model with one generation state, as the handler needs it.
// Encode and Piece are safe for concurrent use; Prefill and Step are called
// by one goroutine at a time, the holder of the slot.
type Generator interface {
	// Encode returns the token ids of text; nothing is added. It errs on text
	// that the tokenizer can't represent without loss.
	Encode(text string) ([]int32, error)
	// Piece returns the bytes that id stands for in an answer's text, which
	// may be half a rune, or none for a special token. Not to be modified.
	Piece(id int32) []byte
	// Prefill forgets what came before, reads prompt and returns the most
	// likely next token. It errs on an empty prompt, an id outside the
	// vocabulary and a prompt longer than Limits.Context-1.
	Prefill(prompt []int32) (int32, error)
	// Step appends id, usually the last result, and returns the most likely
	// next token. It errs when the context is full.
	Step(id int32) (int32, error)
	// Limits doesn't change.
	Limits() Limits
}

// Limits are the fixed numbers of a Generator.
type Limits struct {
	Context    int   // tokens of prompt and answer together
	Vocabulary int   // ids are 0 to Vocabulary-1
	EOS        int32 // ends an answer unless the request ignores it
}
