package sse

import "unicode/utf8"

// runes cuts the bytes of tokens into text that is valid UTF-8: a token may
// end within a rune, whose bytes are then held back until the rest comes.
// The zero value is ready.
type runes struct {
	held []byte // the begin of a rune, at most 3 bytes between calls
}

// appendText appends to dst what is complete of the held bytes and piece, as
// the inside of a JSON string. Bytes that can't be part of a rune become
// U+FFFD, one for each longest part of a rune that could have been one. With
// last, nothing is held back.
func (r *runes) appendText(dst, piece []byte, last bool) []byte {
	p := piece
	if len(r.held) > 0 {
		r.held = append(r.held, piece...)
		p = r.held
	}
	n := 0
	for n < len(p) {
		c := p[n]
		if c < utf8.RuneSelf {
			dst = appendJSONByte(dst, c)
			n++
			continue
		}
		if _, size := utf8.DecodeRune(p[n:]); size > 1 {
			dst = append(dst, p[n:n+size]...)
			n += size
			continue
		}
		if !last && !utf8.FullRune(p[n:]) {
			break
		}
		dst = append(dst, "\uFFFD"...)
		n += brokenRune(p[n:])
	}
	r.held = append(r.held[:0], p[n:]...)
	return dst
}

// brokenRune returns the length of the longest begin of a rune at the start
// of p, which doesn't start with a whole one; 1 if there is none.
func brokenRune(p []byte) int {
	n := 1
	for n < len(p) && n < utf8.UTFMax && !utf8.FullRune(p[:n+1]) {
		n++
	}
	return n
}

// appendJSONByte appends an ASCII character as a JSON string holds it.
func appendJSONByte(dst []byte, c byte) []byte {
	switch {
	case c == '"' || c == '\\':
		return append(dst, '\\', c)
	case c >= ' ':
		return append(dst, c)
	case c == '\n':
		return append(dst, '\\', 'n')
	case c == '\t':
		return append(dst, '\\', 't')
	case c == '\r':
		return append(dst, '\\', 'r')
	}
	const hex = "0123456789abcdef"
	return append(dst, '\\', 'u', '0', '0', hex[c>>4], hex[c&15])
}

// appendJSONString appends s as a JSON string with its quotes.
func appendJSONString(dst []byte, s string) []byte {
	var r runes
	dst = append(dst, '"')
	dst = r.appendText(dst, []byte(s), true)
	return append(dst, '"')
}
