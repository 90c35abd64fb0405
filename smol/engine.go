// Package smol is the measured engine: a small Llama-like model, SmolLM2-135M,
// over ONNX Runtime on CPU, with its tokenizer. Decoding is greedy, for one
// sequence at a time, in FP32.
//
// It is not an inference server: no batching, no sampling, no chat template,
// no prefix kept from one prompt to the next. Which model it runs is set-up's
// choice; package smol/graph has the format and smol/setup puts it in place.
// Only here is cgo, in encoder.go, native.go and session.go.
//
// The way of an answer:
//
//  1. Load holds every file of the model against the manifest, opens ONNX
//     Runtime, binds the graph's inputs and outputs to memory of the engine's
//     own and has the weights packed once.
//  2. Encode turns a text into ids.
//  3. Prefill looks up the prompt's embeddings in the model's file, runs them
//     all at once and writes their keys and values into the cache; the graph
//     takes the most likely next id itself.
//  4. Step runs one id against the cache, and again. Nothing is allocated in
//     Go for a token, and only the next id leaves the graph.
//  5. Piece turns each id into its bytes.
package smol

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime/debug"

	"servebench/smol/graph"
	"servebench/sse"
	"servebench/verify"
)

// Errors that callers tell apart; those returned add place, value and bound.
var (
	ErrEmpty      = errors.New("empty prompt")
	ErrContext    = errors.New("context is full")
	ErrVocabulary = errors.New("id outside the vocabulary")
	ErrNoPrompt   = errors.New("no prompt has been read")
	ErrChanged    = errors.New("the model was changed under the engine")
	ErrClosed     = errors.New("smol: engine is closed")
)

// Engine is a loaded model with one generation state. Encode and Piece are
// safe for concurrent use; the other methods belong to one goroutine at a
// time. Several engines can be open in one process.
type Engine struct {
	tok     *tokenizer
	embeds  *embedding
	session *session
	buffers *buffers
	limits  sse.Limits
	info    verify.Server
	length  int // tokens in the cache, 0 for no prompt
}

var _ sse.Generator = (*Engine)(nil)

// Load opens the model in dir, which holds what setup or graph.WriteTiny
// wrote there. Every file is checked against the manifest's size and SHA-256
// first. The engine must be closed.
func Load(dir string, opts Options) (_ *Engine, err error) {
	was, err := os.Stat(filepath.Join(dir, graph.DataFile))
	m, modelErr := readModel(dir)
	if err := cmp.Or(modelErr, err); err != nil { // the first says more
		return nil, err
	}
	opts, err = opts.resolve(m.Context)
	if err != nil {
		return nil, err
	}
	if opts.Library == "" {
		opts.Library = filepath.Join(dir, "..", libraryName())
	}
	if opts.Library, err = filepath.Abs(opts.Library); err != nil {
		return nil, fmt.Errorf("smol: Library: %w", err)
	}
	if opts.Library, err = filepath.EvalSymlinks(opts.Library); err != nil {
		return nil, fmt.Errorf("smol: ONNX Runtime: %w: run  go run ./smol/setup", err)
	}
	e := &Engine{limits: sse.Limits{Context: opts.Context, Vocabulary: m.Vocabulary, EOS: m.EOS}}
	defer func() {
		if err != nil {
			err = errors.Join(err, e.Close())
		}
	}()
	settleC()
	config, err := os.ReadFile(filepath.Join(dir, graph.TokenizerFile))
	if err != nil {
		return nil, fmt.Errorf("smol: %w", err)
	}
	if e.tok, err = newTokenizer(config, m.Vocabulary); err != nil {
		return nil, fmt.Errorf("smol: %s: %w", filepath.Join(dir, graph.TokenizerFile), err)
	}
	giveBack()
	if e.embeds, err = openEmbedding(filepath.Join(dir, graph.DataFile), was, m.EmbeddingOffset, m.Hidden); err != nil {
		return nil, fmt.Errorf("smol: %w", err)
	}
	if e.buffers, err = newBuffers(m.Config(), opts.Context); err != nil {
		return nil, err
	}
	before, err := mappings()
	if err != nil {
		return nil, err
	}
	if e.session, err = newSession(sessionConfig{
		library:  opts.Library,
		graph:    filepath.Join(dir, graph.GraphFile),
		kvHeads:  m.KVHeads,
		headDim:  m.HeadDim,
		context:  opts.Context,
		threads:  opts.IntraThreads,
		spinning: opts.Spinning.or(true),
		entries:  opts.entries,
	}, e.buffers); err != nil {
		return nil, err
	}
	e.info = verify.Server{
		IntraThreads: opts.IntraThreads,
		InterThreads: interThreads,
		Spinning:     e.session.spinning(),
		Slots:        1,
		ContextLimit: opts.Context,
		Model:        modelRecord(m),
	}
	if opts.HugePages.or(hugePagesDefault) {
		e.info.HugePages, err = hugePages(before)
		if opts.HugePages == On && (err != nil || e.info.HugePages == "") {
			return nil, errors.Join(err, errors.New("smol: HugePages is On, and the kernel gave none: leave it at Default"))
		}
	}
	runtime, err := graph.HashFile(context.Background(), loadedLibrary(opts.Library), nil)
	if err != nil {
		return nil, fmt.Errorf("smol: ONNX Runtime: %w", err)
	}
	e.info.Libraries = []verify.Library{
		{Name: "onnxruntime", Version: e.session.version(), File: verify.File(runtime)},
		{Name: "tokenizers", Version: encoderVersion}, // linked in: it has no file but the program's
	}
	giveBack()
	return e, nil
}

// giveBack returns to the system what loading has freed, in Go and in C: it
// would count into the peak for no use.
func giveBack() {
	debug.FreeOSMemory()
	trimC()
}

// Close frees the model. It waits for Encode calls under way, and must not be
// called during Prefill or Step. A second Close does nothing.
func (e *Engine) Close() error {
	var errs []error
	if e.tok != nil {
		e.tok.close()
	}
	if e.session != nil {
		errs = append(errs, e.session.close())
		e.session = nil
	}
	if e.embeds != nil {
		errs = append(errs, e.embeds.close())
		e.embeds = nil
	}
	if e.buffers != nil {
		errs = append(errs, e.buffers.close())
		e.buffers = nil
	}
	e.length = 0
	return errors.Join(errs...)
}

// Limits returns the fixed numbers of the engine.
func (e *Engine) Limits() sse.Limits { return e.limits }

// Info returns what the engine knows of a server's record: libraries, threads,
// spinning, huge pages, slots, context limit and model.
func (e *Engine) Info() verify.Server { return e.info }

// Encode returns the token ids of text; see [sse.Generator]. Special tokens
// named in the text become their ids. Errors wrap ErrText.
func (e *Engine) Encode(text string) ([]int32, error) { return e.tok.Encode(text) }

// Piece returns the bytes that id stands for in an answer's text, none for a
// special token or an id outside the vocabulary. Not to be modified.
func (e *Engine) Piece(id int32) []byte { return e.tok.Piece(id) }

// Prefill forgets what came before, reads prompt and returns the most likely
// next token. Errors wrap ErrEmpty, ErrContext, ErrVocabulary or ErrChanged, or
// are ONNX Runtime's; after any there is no prompt to step from.
func (e *Engine) Prefill(prompt []int32) (int32, error) {
	if e.session == nil {
		return 0, ErrClosed
	}
	e.length = 0
	if len(prompt) == 0 {
		return 0, fmt.Errorf("smol: %w: give at least one id", ErrEmpty)
	}
	if len(prompt) > e.limits.Context-1 {
		return 0, fmt.Errorf("smol: %w: prompt of %d tokens, want at most %d: a context of %d less one for the answer", ErrContext, len(prompt), e.limits.Context-1, e.limits.Context)
	}
	if err := e.embeds.unchanged(); err != nil {
		return 0, err
	}
	for i, id := range prompt {
		if id < 0 || int(id) >= e.limits.Vocabulary {
			return 0, fmt.Errorf("smol: prompt[%d]: %w: %d, want 0 to %d", i, ErrVocabulary, id, e.limits.Vocabulary-1)
		}
		if err := e.embeds.row(id, e.buffers.prompt[i*e.embeds.width:]); err != nil {
			return 0, err
		}
	}
	e.extent(len(prompt))
	if err := e.session.prefill(len(prompt)); err != nil {
		return 0, fmt.Errorf("smol: prefill of %d tokens: %w", len(prompt), err)
	}
	return e.answer(len(prompt))
}

// Step appends id, usually the last result, and returns the most likely next
// token. Errors wrap ErrNoPrompt, ErrContext or ErrVocabulary and leave the
// state as it was, or are ONNX Runtime's, and then there is no prompt to step
// from any more.
func (e *Engine) Step(id int32) (int32, error) {
	if e.session == nil {
		return 0, ErrClosed
	}
	if e.length == 0 {
		return 0, fmt.Errorf("smol: step: %w: call Prefill first", ErrNoPrompt)
	}
	if e.length+1 >= e.limits.Context {
		return 0, fmt.Errorf("smol: step: %w: %d tokens and an answer to the last, want at most %d together", ErrContext, e.length+1, e.limits.Context)
	}
	if id < 0 || int(id) >= e.limits.Vocabulary {
		return 0, fmt.Errorf("smol: step: %w: %d, want 0 to %d", ErrVocabulary, id, e.limits.Vocabulary-1)
	}
	length := e.length + 1
	e.length = 0
	if err := e.embeds.row(id, e.buffers.last); err != nil {
		return 0, err
	}
	e.extent(length)
	if err := e.session.step(); err != nil {
		return 0, fmt.Errorf("smol: step to %d tokens: %w", length, err)
	}
	return e.answer(length)
}

// extent tells the graph how long the sequence is with what it is given now.
func (e *Engine) extent(length int) {
	e.buffers.seqlens[0] = int32(length - 1)
	e.buffers.total[0] = int32(length)
}

func (e *Engine) answer(length int) (int32, error) {
	id := e.buffers.next[0]
	if id < 0 || id >= int64(e.limits.Vocabulary) {
		return 0, fmt.Errorf("smol: the model answered with id %d, want 0 to %d", id, e.limits.Vocabulary-1)
	}
	e.length = length
	return int32(id), nil
}
