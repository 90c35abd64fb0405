package smol

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/tidwall/gjson"
)

// ErrText is wrapped by Encode's errors about text without a lossless
// representation.
var ErrText = errors.New("text can't be tokenized without loss")

// tokenizer turns text into ids with the native library and ids into bytes
// with a table of its own: the library decodes to a string, in which half a
// rune is already lost.
type tokenizer struct {
	enc    *encoder
	pieces []piece // by id
}

// piece is what one id stands for.
type piece struct {
	source  []byte // the bytes of a text that the id covers
	special bool   // marks structure; no part of an answer's text
}

// newTokenizer reads the contents of a byte-level BPE tokenizer.json that has
// vocabulary ids, each once.
func newTokenizer(config []byte, vocabulary int) (*tokenizer, error) {
	pieces, err := readPieces(config, vocabulary)
	if err != nil {
		return nil, err
	}
	enc, err := newEncoder(config)
	if err != nil {
		return nil, err
	}
	return &tokenizer{enc: enc, pieces: pieces}, nil
}

// Encode returns the ids of text; nothing is added, and the empty text has
// none. The name of a special token in the text ("<|im_end|>") becomes that
// token's id, as it does by default in Hugging Face's tokenizers. It errs,
// wrapping ErrText, on NUL (where the native library would stop reading), on
// invalid UTF-8, and on a byte for which the vocabulary has no symbol (which
// the native library would drop). It is safe for concurrent use.
func (t *tokenizer) Encode(text string) ([]int32, error) {
	if i := strings.IndexByte(text, 0); i >= 0 {
		return nil, fmt.Errorf("smol: %w: NUL at byte %d: remove it", ErrText, i)
	}
	if !utf8.ValidString(text) {
		i := invalidUTF8(text)
		return nil, fmt.Errorf("smol: %w: byte %d (0x%02x) begins no valid UTF-8", ErrText, i, text[i])
	}
	ids, err := t.enc.encode(text)
	if err != nil {
		return nil, err
	}
	at := 0
	for _, id := range ids {
		if id < 0 || int(id) >= len(t.pieces) {
			return nil, fmt.Errorf("smol: the tokenizer gave id %d, want 0 to %d", id, len(t.pieces)-1)
		}
		source := t.pieces[id].source
		if !strings.HasPrefix(text[at:], string(source)) {
			break
		}
		at += len(source)
	}
	if at != len(text) {
		// The ids stand for the text only up to here: a byte was dropped.
		for at < len(text)-1 && !utf8.RuneStart(text[at]) {
			at--
		}
		r, _ := utf8.DecodeRuneInString(text[at:])
		return nil, fmt.Errorf("smol: %w: near byte %d (%U) the vocabulary has no symbol for a byte", ErrText, at, r)
	}
	return ids, nil
}

// Piece returns the bytes that id stands for in an answer's text, which may
// be half a rune; none for a special token or an id outside the vocabulary.
// The caller must not modify them.
func (t *tokenizer) Piece(id int32) []byte {
	if id < 0 || int(id) >= len(t.pieces) || t.pieces[id].special {
		return nil
	}
	return t.pieces[id].source
}

func (t *tokenizer) close() { t.enc.close() }

func invalidUTF8(text string) int {
	for i, r := range text {
		if r == utf8.RuneError {
			if _, size := utf8.DecodeRuneInString(text[i:]); size == 1 {
				return i
			}
		}
	}
	return len(text)
}

// readPieces builds the table of pieces from model.vocab, where each byte of
// a token is written as one printable rune, and from added_tokens, which are
// written as they are.
func readPieces(config []byte, vocabulary int) ([]piece, error) {
	if !gjson.ValidBytes(config) {
		return nil, errors.New("not JSON")
	}
	root := gjson.ParseBytes(config)
	if kind := root.Get("model.type").String(); kind != "BPE" {
		return nil, fmt.Errorf("model.type %q, want \"BPE\"", kind)
	}
	pieces := make([]piece, vocabulary)
	var err error
	place := func(id gjson.Result, p piece) bool {
		if id.Type != gjson.Number || id.Num != float64(id.Int()) || id.Int() < 0 || id.Int() >= int64(vocabulary) {
			err = fmt.Errorf("token %q has id %s, want 0 to %d", p.source, id.Raw, vocabulary-1)
			return false
		}
		p.source = slices.Clip(p.source)
		pieces[id.Int()] = p
		return true
	}
	var added []piece
	var addedIDs []gjson.Result
	names := map[string]bool{}
	root.Get("added_tokens").ForEach(func(_, t gjson.Result) bool {
		content := t.Get("content").String()
		names[content] = true
		added = append(added, piece{source: []byte(content), special: t.Get("special").Bool()})
		addedIDs = append(addedIDs, t.Get("id"))
		return true
	})
	byteOf := byteLevel()
	root.Get("model.vocab").ForEach(func(token, id gjson.Result) bool {
		name := token.String()
		if names[name] {
			return true
		}
		source := make([]byte, 0, len(name))
		for _, r := range name {
			b, ok := byteOf[r]
			if !ok {
				err = fmt.Errorf("token %q holds %U, which stands for no byte: not a byte-level vocabulary", name, r)
				return false
			}
			source = append(source, b)
		}
		return place(id, piece{source: source})
	})
	if err != nil {
		return nil, err
	}
	for i, p := range added {
		if !place(addedIDs[i], p) {
			return nil, err
		}
	}
	for id, p := range pieces {
		if len(p.source) == 0 {
			return nil, fmt.Errorf("no token has id %d, want one for each of 0 to %d", id, vocabulary-1)
		}
	}
	return pieces, nil
}

// byteLevel returns the byte behind each rune of GPT-2's byte alphabet: the
// printable bytes of Latin-1 stand for themselves, and the 68 others, in
// order, for the runes from U+0100 on.
func byteLevel() map[rune]byte {
	m := make(map[rune]byte, 256)
	next := rune(0x100)
	for b := range 256 {
		r := rune(b)
		printable := '!' <= r && r <= '~' || '¡' <= r && r <= '¬' || '®' <= r && r <= 'ÿ'
		if !printable {
			r = next
			next++
		}
		m[r] = byte(b)
	}
	return m
}
