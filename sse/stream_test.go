package sse

import (
	"net/http"
	"testing"
)

// sink is a ResponseWriter that costs nothing.
type sink struct{ header http.Header }

func (s sink) Header() http.Header         { return s.header }
func (s sink) Write(b []byte) (int, error) { return len(b), nil }
func (s sink) WriteHeader(int)             {}
func (s sink) FlushError() error           { return nil }

func newTestStream(form shape) *stream {
	var w http.ResponseWriter = sink{http.Header{}}
	s := &stream{w: w, control: http.NewResponseController(w), clock: NewClock(), shape: form}
	s.chunk = append(appendHead(nil, form.event, "id", 1, "model"), `,"choices":`...)
	return s
}

// The engine allocates nothing for a token, and neither does its event.
func TestTokenAllocatesNothing(t *testing.T) {
	for _, form := range []shape{completionShape, chatShape} {
		s := newTestStream(form)
		q := &request{returnIDs: true, returnStamps: true}
		prompt := make([]int32, 256)
		next := token{id: 49151, piece: []byte("piec\xc3"), stampNS: 1 << 60}
		write := func() {
			if err := s.token(q, prompt, next); err != nil {
				t.Fatal(err)
			}
		}
		write()
		if n := testing.AllocsPerRun(100, write); n != 0 {
			t.Errorf("%s: %v allocations for an event, want 0", form.event, n)
		}
	}
}

// BenchmarkToken is what a token's event costs the slot's holder, without
// net/http and the system.
func BenchmarkToken(b *testing.B) {
	s := newTestStream(completionShape)
	q := &request{returnIDs: true, returnStamps: true}
	next := token{id: 49151, piece: []byte(" piece"), stampNS: 1 << 60}
	b.ReportAllocs()
	for b.Loop() {
		if err := s.token(q, nil, next); err != nil {
			b.Fatal(err)
		}
	}
}
