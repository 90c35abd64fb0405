//go:build cgo

package smol

import (
	"errors"
	"fmt"
	"sync"

	ort "github.com/yalue/onnxruntime_go"

	"servebench/smol/graph"
)

// environment counts the sessions that use ONNX Runtime's environment, of
// which the binding keeps one for the process: the first session opens the
// library and the last one closes it.
var environment struct {
	mu      sync.Mutex
	users   int
	library string
}

func acquireEnvironment(library string) error {
	environment.mu.Lock()
	defer environment.mu.Unlock()
	if environment.users > 0 {
		if library != environment.library {
			return fmt.Errorf("smol: library %s: this process already uses %s: close its engines first", library, environment.library)
		}
		environment.users++
		return nil
	}
	ort.SetSharedLibraryPath(library)
	// The library logs to stderr, where a line would break a benchmark's
	// output. Everything it has to say also comes back as an error.
	if err := ort.InitializeEnvironment(ort.WithLogLevelFatal()); err != nil {
		return fmt.Errorf("smol: ONNX Runtime: %w", err)
	}
	environment.users = 1
	environment.library = library
	return nil
}

func releaseEnvironment() error {
	environment.mu.Lock()
	defer environment.mu.Unlock()
	environment.users--
	if environment.users > 0 {
		return nil
	}
	return ort.DestroyEnvironment()
}

// session is the model in ONNX Runtime with everything bound to the engine's
// buffers. This is the only file that imports the binding.
type session struct {
	s        *ort.DynamicAdvancedSession
	prompt   *ort.IoBinding // inputs_embeds is bound anew for each prompt
	single   *ort.IoBinding // inputs_embeds is one row
	tensors  []ort.Value    // owned, bound above
	embeds   []float32      // the prompt's
	width    int64          // of a row of it
	spins    bool
	acquired bool
}

// newSession loads the graph and binds it to b, which must outlive it.
func newSession(c sessionConfig, b *buffers) (_ *session, err error) {
	s := &session{embeds: b.prompt, width: int64(len(b.last))}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.close())
		}
	}()
	if err := acquireEnvironment(c.library); err != nil {
		return nil, err
	}
	s.acquired = true
	if err := s.open(c); err != nil {
		return nil, fmt.Errorf("smol: %s: %w", c.graph, err)
	}
	if err := s.bind(c, b); err != nil {
		return nil, fmt.Errorf("smol: %s: %w", c.graph, err)
	}
	return s, nil
}

func (s *session) open(c sessionConfig) error {
	o, err := ort.NewSessionOptions()
	if err != nil {
		return err
	}
	defer o.Destroy()
	entries := [][2]string{
		{"session.intra_op.allow_spinning", zeroOrOne(c.spinning)},
		{"session.inter_op.allow_spinning", "0"}, // there is no second thread to wait for
		// Packed weights outside the arena, whose blocks grow by doubling.
		{"session.use_device_allocator_for_initializers", "1"},
	}
	entries = append(entries, c.entries...)
	err = errors.Join(
		o.SetIntraOpNumThreads(c.threads),
		o.SetInterOpNumThreads(interThreads),
		o.SetExecutionMode(ort.ExecutionModeSequential),
		o.SetGraphOptimizationLevel(ort.GraphOptimizationLevelEnableAll),
		o.SetMemPattern(false), // else each new prompt length plans, and keeps, a block of its own
		o.SetLogSeverityLevel(ort.LoggingLevelFatal),
	)
	for _, e := range entries {
		err = errors.Join(err, o.AddSessionConfigEntry(e[0], e[1]))
	}
	if err != nil {
		return err
	}
	spins, err := o.GetSessionConfigEntry(entries[0][0])
	if err != nil {
		return err
	}
	s.spins = spins == "1"
	s.s, err = ort.NewDynamicAdvancedSession(c.graph, nil, nil, o)
	return err
}

// bind gives every input and output of the graph its place in b. The keys and
// values of the past and those of the present are the same memory: attention
// then writes a token's row in place and copies nothing.
func (s *session) bind(c sessionConfig, b *buffers) error {
	var err error
	if s.prompt, err = s.s.CreateIoBinding(); err != nil {
		return err
	}
	if s.single, err = s.s.CreateIoBinding(); err != nil {
		return err
	}
	last, err := tensor(s, ort.NewShape(1, 1, s.width), b.last)
	if err != nil {
		return err
	}
	if err := s.single.BindInput(graph.InputEmbeds, last); err != nil {
		return err
	}
	lengths, err := tensor(s, ort.NewShape(1), b.seqlens)
	if err != nil {
		return err
	}
	total, err := tensor(s, ort.NewShape(1), b.total)
	if err != nil {
		return err
	}
	next, err := tensor(s, ort.NewShape(1, 1), b.next)
	if err != nil {
		return err
	}
	for _, binding := range []*ort.IoBinding{s.prompt, s.single} {
		err = errors.Join(err,
			binding.BindInput(graph.InputSeqLen, lengths),
			binding.BindInput(graph.InputTotal, total),
			binding.BindOutput(graph.OutputNext, next))
	}
	if err != nil {
		return err
	}
	shape := ort.NewShape(1, int64(c.kvHeads), int64(c.context), int64(c.headDim))
	for i, cache := range b.caches {
		kv, err := tensor(s, shape, cache)
		if err != nil {
			return err
		}
		past, present := graph.PastKey(i/2), graph.PresentKey(i/2)
		if i%2 == 1 {
			past, present = graph.PastValue(i/2), graph.PresentValue(i/2)
		}
		for _, binding := range []*ort.IoBinding{s.prompt, s.single} {
			if err := errors.Join(binding.BindInput(past, kv), binding.BindOutput(present, kv)); err != nil {
				return err
			}
		}
	}
	return nil
}

// tensor wraps data, which lies outside Go's heap, and leaves it to s to
// destroy the wrapper.
func tensor[T ort.TensorData](s *session, shape ort.Shape, data []T) (ort.Value, error) {
	t, err := ort.NewTensor(shape, data)
	if err != nil {
		return nil, err
	}
	s.tensors = append(s.tensors, t)
	return t, nil
}

// prefill runs the first n rows of the prompt buffer.
func (s *session) prefill(n int) error {
	embeds, err := ort.NewTensor(ort.NewShape(1, int64(n), s.width), s.embeds)
	if err != nil {
		return err
	}
	defer embeds.Destroy()
	// The binding holds a reference of its own to the value, until the next
	// prompt's takes its place; the memory is the engine's.
	if err := s.prompt.BindInput(graph.InputEmbeds, embeds); err != nil {
		return err
	}
	return s.s.RunWithBinding(s.prompt)
}

// step runs the one row of the last buffer. It allocates nothing in Go.
func (s *session) step() error { return s.s.RunWithBinding(s.single) }

// spinning tells whether idle threads wait in a loop, as the session's
// options say when read back.
func (s *session) spinning() bool { return s.spins }

// version is ONNX Runtime's own.
func (s *session) version() string { return ort.GetVersion() }

// close frees everything, also of a session that didn't get ready.
func (s *session) close() error {
	var err error
	for _, binding := range []*ort.IoBinding{s.prompt, s.single} {
		if binding != nil {
			err = errors.Join(err, binding.Destroy())
		}
	}
	for _, t := range s.tensors {
		err = errors.Join(err, t.Destroy())
	}
	if s.s != nil {
		err = errors.Join(err, s.s.Destroy())
	}
	if s.acquired {
		err = errors.Join(err, releaseEnvironment())
	}
	*s = session{}
	return err
}

func zeroOrOne(on bool) string {
	if on {
		return "1"
	}
	return "0"
}
