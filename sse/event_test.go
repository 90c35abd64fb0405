package sse

import (
	"bytes"
	"slices"
	"strings"
	"testing"
)

func TestEvents(t *testing.T) {
	long := strings.Repeat("x", 1<<24)
	tests := []struct{ name, stream, want string }{
		{"nothing", "", ""},
		{"half a line", "data: a", ""},
		{"no blank line", "data: a\n", ""},
		{"LF", "data: a\n\ndata: b\n\n", "a|b"},
		{"CR", "data: a\r\rdata: b\r\r", "a|b"},
		{"CRLF", "data: a\r\n\r\ndata: b\r\n\r\n", "a|b"},
		{"mixed ends", "data: a\r\ndata: b\n\rdata: c\r\r\n", "a\nb|c"},
		{"a mark", "\xef\xbb\xbfdata: a\n\n", "a"},
		{"a second mark is a name", "\xef\xbb\xbf\xef\xbb\xbfdata: a\n\n", ""},
		{"no space", "data:a\n\n", "a"},
		{"two spaces", "data:  a\n\n", " a"},
		{"no colon", "data\n\n", ""},
		{"empty data", "data:\n\n", ""},
		{"two empty data", "data\ndata\n\n", "\n"},
		{"comments", ": ping\n\n:\n\ndata: a\n: between\ndata: b\n\n", "a\nb"},
		{"other fields", "id: 1\nretry: 5\nevent: x\n\ndata: a\nid: 2\n\n", "a"},
		{"unknown field", "dataa: x\nDATA: y\n\ndata: a\n\n", "a"},
		{"three lines", "data: a\ndata: b\ndata: c\n\n", "a\nb\nc"},
		{"16 MiB in a line", "data: " + long + "\n\n", long},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			var got []string
			for event := range Events([]byte(test.stream)) {
				got = append(got, string(event.Data))
			}
			if joined := strings.Join(got, "|"); joined != test.want {
				t.Errorf("Events(%.80q) = %.80q, want %.80q", test.stream, joined, test.want)
			}
		})
	}
}

func TestEventsType(t *testing.T) {
	var got []string
	for event := range Events([]byte("event: error\ndata: a\n\ndata: b\n\n")) {
		got = append(got, event.Type)
	}
	if want := []string{"error", ""}; !slices.Equal(got, want) {
		t.Errorf("types %q, want %q", got, want)
	}
}

// slowEvents is a second reading of the standard, one byte after the other
// and with no thought of speed.
func slowEvents(stream []byte) (out []Event) {
	at := 0
	if bytes.HasPrefix(stream, []byte("\xef\xbb\xbf")) {
		at = 3
	}
	line, data, kind, has := "", "", "", false
	process := func(end int) {
		defer func() { line = "" }()
		if line == "" {
			if has {
				out = append(out, Event{kind, []byte(strings.TrimSuffix(data, "\n")), end})
			}
			data, kind, has = "", "", false
			return
		}
		name, value, _ := strings.Cut(line, ":")
		value = strings.TrimPrefix(value, " ")
		if name == "data" {
			data += value + "\n"
			has = true
		}
		if name == "event" {
			kind = value
		}
	}
	for afterCR := false; at < len(stream); at++ {
		c := stream[at]
		if afterCR && c == '\n' {
			afterCR = false
			continue
		}
		afterCR = c == '\r'
		if c == '\r' || c == '\n' {
			process(at + 1)
			continue
		}
		line += string([]byte{c})
	}
	return out
}

func FuzzEvents(f *testing.F) {
	for _, s := range scripts(f) {
		var body []byte
		for i := range s.Steps {
			body = append(body, s.step(f, i)...)
		}
		if len(body) < 4096 {
			f.Add(body, uint16(len(body)/2))
		}
	}
	f.Add([]byte("data: a\r\ndata\r\r\n:x\n\xef\xbb\xbf"), uint16(3))
	f.Fuzz(func(t *testing.T, stream []byte, cut uint16) {
		same := func(got, want []Event) {
			if !slices.EqualFunc(got, want, func(a, b Event) bool {
				return a.Type == b.Type && a.End == b.End && bytes.Equal(a.Data, b.Data)
			}) {
				t.Fatalf("Events(%q) = %+v, want %+v", stream, got, want)
			}
		}
		whole := slices.Collect(Events(stream))
		same(whole, slowEvents(stream))
		// What is complete in the first bytes is what the whole has there.
		k := min(int(cut), len(stream))
		var before []Event
		for _, event := range whole {
			if event.End <= k {
				before = append(before, event)
			}
		}
		same(slices.Collect(Events(stream[:k])), before)
	})
}

func BenchmarkEvents(b *testing.B) {
	stream := []byte(strings.Repeat(`data: {"id":"c","choices":[{"index":0,"text":" word","token_ids":[1234],"finish_reason":null}]}`+"\n\n", 1000))
	b.SetBytes(int64(len(stream)))
	b.ReportAllocs()
	for b.Loop() {
		n := 0
		for range Events(stream) {
			n++
		}
		if n != 1000 {
			b.Fatal(n)
		}
	}
}
