package sse

import (
	"encoding/json"
	"strings"
	"testing"
	"unicode/utf8"
)

// The cut texts of U+FFFD are those of the Unicode standard's table 3-8
// (section 3.9, maximal subparts), which the tokenizers of others follow.
func TestBrokenBytes(t *testing.T) {
	const r = "\uFFFD"
	tests := []struct{ in, want string }{
		{"\x61\xF1\x80\x80\xE1\x80\xC2\x62\x80\x63\x80\xBF\x64", "a" + r + r + r + "b" + r + "c" + r + r + "d"},
		{"\xC0\xAF\xE0\x80\xBF\xF0\x81\x82\x41", r + r + r + r + r + r + r + r + "A"},
		{"\xED\xA0\x80\xED\xBF\xBF\xED\xAF\x41", r + r + r + r + r + r + r + r + "A"},
		{"\xF4\x91\x92\x93\xFF\x41\x80\xBF\x42", r + r + r + r + r + "A" + r + r + "B"},
		{"\xE1\x80\xE2\xF0\x91\x92\xF1\xBF\x41", r + r + r + r + "A"},
	}
	for _, test := range tests {
		for cut := 0; cut <= len(test.in); cut++ {
			var h runes
			out := h.appendText(nil, []byte(test.in[:cut]), false)
			if !utf8.Valid(out) {
				t.Errorf("%q cut at %d: first part %q isn't UTF-8", test.in, cut, out)
			}
			out = h.appendText(out, []byte(test.in[cut:]), true)
			if string(out) != test.want {
				t.Errorf("%q cut at %d = %q, want %q", test.in, cut, out, test.want)
			}
		}
	}
}

// However a text is cut into tokens, every part is valid, complete as early as
// it can be, and all parts together are the text.
func FuzzText(f *testing.F) {
	f.Add([]byte("a€😀\"\\\n\x00\x1f\x7f\u2028"), []byte{1, 2, 1, 3})
	f.Add([]byte("\xf0\x9f\x98"), []byte{1, 1})
	f.Add([]byte("\xed\xa0\x80\xff"), []byte{2})
	f.Fuzz(func(t *testing.T, text, cuts []byte) {
		var h, whole runes
		var all strings.Builder
		rest := text
		for i := 0; ; i++ {
			n := len(rest)
			if i < len(cuts) {
				n = min(n, int(cuts[i]%5))
			}
			last := n == len(rest) && i >= len(cuts)-1
			var s string
			part := h.appendText(nil, rest[:n], last)
			if err := json.Unmarshal([]byte(`"`+string(part)+`"`), &s); err != nil || !utf8.Valid(part) {
				t.Fatalf("part %q isn't the inside of a JSON string: %v", part, err)
			}
			if held := h.held; len(held) > 0 && (last || utf8.FullRune(held)) {
				t.Fatalf("held %q back, though it is complete (last %v)", held, last)
			}
			all.WriteString(s)
			rest = rest[n:]
			if last {
				break
			}
		}
		var want string
		if err := json.Unmarshal([]byte(`"`+string(whole.appendText(nil, text, true))+`"`), &want); err != nil {
			t.Fatal(err)
		}
		if all.String() != want {
			t.Fatalf("parts give %q, the whole gives %q", all.String(), want)
		}
		if utf8.Valid(text) && want != string(text) {
			t.Fatalf("%q became %q", text, want)
		}
	})
}
