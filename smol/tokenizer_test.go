package smol

import (
	"bytes"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
)

func TestTinyTexts(t *testing.T) {
	e := load(t, tinyDir, Options{IntraThreads: 1})
	for _, g := range readTinyGoldens(t).Texts {
		ids, err := e.Encode(g.Text)
		if err != nil || !slices.Equal(ids, g.IDs) {
			t.Errorf("Encode(%q) = %v, %v, want %v", g.Text, ids, err, g.IDs)
		}
		var back []byte
		for _, id := range ids {
			back = append(back, e.Piece(id)...)
		}
		want := strings.NewReplacer("<|im_start|>", "", "<|im_end|>", "").Replace(g.Text)
		if string(back) != want {
			t.Errorf("pieces of %q are %q, want %q", g.Text, back, want)
		}
	}
}

func TestEncodeRefuses(t *testing.T) {
	e := load(t, tinyDir, Options{IntraThreads: 1})
	for _, test := range []struct{ text, want string }{
		{"ab\x00cd", "smol: text can't be tokenized without loss: NUL at byte 2: remove it"},
		{"ab\xffcd", "smol: text can't be tokenized without loss: byte 2 (0xff) begins no valid UTF-8"},
		{"é\xc3", "smol: text can't be tokenized without loss: byte 2 (0xc3) begins no valid UTF-8"},
		{"the\x04the", "smol: text can't be tokenized without loss: near byte 3 (U+0004) the vocabulary has no symbol for a byte"},
		{"the\x04", "smol: text can't be tokenized without loss: near byte 3 (U+0004) the vocabulary has no symbol for a byte"},
		{"\x04", "smol: text can't be tokenized without loss: near byte 0 (U+0004) the vocabulary has no symbol for a byte"},
	} {
		ids, err := e.Encode(test.text)
		if !errors.Is(err, ErrText) || err.Error() != test.want {
			t.Errorf("Encode(%q) = %v, %v, want %s", test.text, ids, err, test.want)
		}
	}
	if ids, err := e.Encode(""); len(ids) != 0 || err != nil {
		t.Errorf("Encode of nothing = %v, %v, want no ids", ids, err)
	}
}

func TestPiece(t *testing.T) {
	e := load(t, tinyDir, Options{IntraThreads: 1})
	ids, err := e.Encode("é ")
	if err != nil || len(ids) != 3 {
		t.Fatalf("Encode(é ) = %v, %v, want 3 ids", ids, err)
	}
	for i, want := range []string{"\xc3", "\xa9", " "} {
		if got := e.Piece(ids[i]); string(got) != want {
			t.Errorf("Piece(%d) = %q, want %q", ids[i], got, want)
		}
	}
	for _, id := range []int32{0, 1, 16, -1, 512, 1 << 30} {
		if got := e.Piece(id); len(got) != 0 {
			t.Errorf("Piece(%d) = %q, want none: it is special or no id", id, got)
		}
	}
}

func TestEncodeConcurrently(t *testing.T) {
	e := load(t, tinyDir, Options{IntraThreads: 1})
	g := readTinyGoldens(t)
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 50 {
				for _, g := range g.Texts {
					if ids, err := e.Encode(g.Text); err != nil || !slices.Equal(ids, g.IDs) {
						t.Errorf("Encode(%q) = %v, %v, want %v", g.Text, ids, err, g.IDs)
						return
					}
				}
			}
		})
	}
	wg.Wait()
}

func TestByteLevel(t *testing.T) {
	m := byteLevel()
	for r, want := range map[rune]byte{'a': 'a', 'Ġ': ' ', 'Ċ': '\n', 'ĉ': '\t', 'Ā': 0, 'ġ': 0x7f, 'ł': 0xa0, 'Ń': 0xad, 'ÿ': 0xff} {
		if got, ok := m[r]; !ok || got != want {
			t.Errorf("byteLevel()[%q] = 0x%02x, %v, want 0x%02x", r, got, ok, want)
		}
	}
	seen := map[byte]bool{}
	for _, b := range m {
		seen[b] = true
	}
	if len(m) != 256 || len(seen) != 256 {
		t.Errorf("byteLevel has %d runes for %d bytes, want 256 each", len(m), len(seen))
	}
}

func TestReadPieces(t *testing.T) {
	pieces, err := readPieces([]byte(`{"added_tokens":[{"id":0,"content":"<s>","special":true},{"id":3,"content":"<né>","special":false}],
		"model":{"type":"BPE","vocab":{"<s>":0,"ĠĊ":1,"Ã":2}}}`), 4)
	if err != nil {
		t.Fatal(err)
	}
	for id, want := range []piece{{[]byte("<s>"), true}, {[]byte(" \n"), false}, {[]byte{0xc3}, false}, {[]byte("<né>"), false}} {
		if got := pieces[id]; !bytes.Equal(got.source, want.source) || got.special != want.special {
			t.Errorf("piece %d = %q, %v, want %q, %v", id, got.source, got.special, want.source, want.special)
		}
	}
	for _, test := range []struct{ config, want string }{
		{`{"model":{"type":"BPE","vocab":{"a b":0}}}`, `token "a b" holds U+0020, which stands for no byte: not a byte-level vocabulary`},
		{`{"model":{"type":"BPE","vocab":{"a":1.5}}}`, `token "a" has id 1.5, want 0 to 0`},
		{`{"model":{"type":"BPE","vocab":{"a":"0"}}}`, `token "a" has id "0", want 0 to 0`},
		{`{"model":{"type":"BPE"}}`, `no token has id 0, want one for each of 0 to 0`},
		{`{"added_tokens":[{"content":"a"}],"model":{"type":"BPE"}}`, `token "a" has id , want 0 to 0`},
		{``, `not JSON`},
	} {
		if _, err := readPieces([]byte(test.config), 1); err == nil || err.Error() != test.want {
			t.Errorf("readPieces(%s): %v, want %s", test.config, err, test.want)
		}
	}
}
