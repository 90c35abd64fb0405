package sse

import (
	"bytes"
	"fmt"
	"strconv"
	"strings"
)

// framing finds the end of an HTTP/1 response in bytes that come piece by
// piece. It looks at each head once it is whole and at each chunk's length,
// and at nothing else, for it works between two reads; all else that the
// bytes say is read when the stream has ended.
type framing struct {
	state  int
	next   int  // offset from which the state goes on
	closes bool // the connection serves no other request
}

// The states of a framing.
const (
	inHead      = iota // a head begins at next
	inBody             // the response ends at next
	inChunkLine        // a chunk's length begins at next
	inTrailer          // a line of the trailer begins at next
	untilClose         // the connection's end is the response's
)

const (
	maxHead = 1 << 20 // bytes of a response's head, and of its trailer
	maxLine = 4 << 10 // bytes of a chunk's length with its extensions
)

// ended reports whether raw, all that has come so far, holds the whole
// response.
func (f *framing) ended(raw []byte) (bool, error) {
	for {
		rest := raw[min(f.next, len(raw)):]
		switch f.state {
		case inHead:
			head, length := cutHead(rest)
			if length == 0 {
				const protocol = "HTTP/"
				if begin := rest[:min(len(rest), len(protocol))]; !strings.HasPrefix(protocol, string(begin)) || len(rest) > maxHead {
					return false, malformed(rest)
				}
				return false, nil
			}
			f.next += length
			if err := f.head(head); err != nil {
				return false, err
			}
		case inBody:
			return len(raw) >= f.next, nil
		case inChunkLine:
			end := bytes.IndexByte(rest, '\n')
			if end < 0 && len(rest) <= maxLine {
				return false, nil
			}
			if end < 0 || end > maxLine {
				return false, fmt.Errorf("a chunk's length takes more than %d bytes", maxLine)
			}
			size, err := chunkSize(rest[:end])
			if err != nil {
				return false, err
			}
			f.next += end + 1
			if size == 0 {
				f.state = inTrailer
			} else {
				f.next += size + len("\r\n")
			}
		case inTrailer:
			end := bytes.IndexByte(rest, '\n')
			if end < 0 {
				if len(rest) > maxHead {
					return false, fmt.Errorf("the trailer is longer than %d bytes", maxHead)
				}
				return false, nil
			}
			f.next += end + 1
			if len(bytes.TrimRight(rest[:end], "\r")) == 0 {
				f.state = inBody
			}
		case untilClose:
			return false, nil
		}
	}
}

func malformed(raw []byte) error {
	line, _, _ := bytes.Cut(raw[:min(len(raw), 100)], []byte("\n"))
	return fmt.Errorf("malformed HTTP response %q", bytes.TrimRight(line, "\r"))
}

// head takes the head of a response: how its body ends.
func (f *framing) head(head []byte) error {
	line, fields, _ := bytes.Cut(head, []byte("\n"))
	version, rest, _ := bytes.Cut(line, []byte(" "))
	code, _, _ := bytes.Cut(bytes.TrimSpace(rest), []byte(" "))
	status, err := strconv.Atoi(string(code))
	if !bytes.HasPrefix(version, []byte("HTTP/1.")) || err != nil || status < 100 || status > 999 {
		return malformed(line)
	}
	if status/100 == 1 && status != 101 {
		return nil // an interim response; the next head comes
	}
	f.closes = string(version) == "HTTP/1.0"
	chunked, length := false, -1
	for field := range bytes.Lines(fields) {
		name, value, _ := bytes.Cut(field, []byte(":"))
		value = bytes.TrimSpace(value)
		switch {
		case bytes.EqualFold(name, []byte("transfer-encoding")):
			if !bytes.EqualFold(value, []byte("chunked")) {
				return fmt.Errorf("unsupported transfer encoding %q", value)
			}
			chunked = true
		case bytes.EqualFold(name, []byte("content-length")):
			n, err := strconv.ParseUint(string(value), 10, 62)
			if err != nil || length >= 0 && length != int(n) {
				return fmt.Errorf("bad Content-Length %q", value)
			}
			length = int(n)
		case bytes.EqualFold(name, []byte("connection")):
			for option := range bytes.SplitSeq(value, []byte(",")) {
				if bytes.EqualFold(bytes.TrimSpace(option), []byte("close")) {
					f.closes = true
				}
			}
		}
	}
	switch {
	case status == 101 || status == 204 || status == 304:
		f.state = inBody // and it has none
	case chunked:
		f.state = inChunkLine
	case length >= 0:
		f.state, f.next = inBody, f.next+length
	default:
		f.state, f.closes = untilClose, true
	}
	return nil
}

// chunkSize reads the line before a chunk's data.
func chunkSize(line []byte) (int, error) {
	line, _, _ = bytes.Cut(line, []byte(";"))
	line = bytes.TrimSpace(line)
	size := 0
	for _, digit := range line {
		value := 0
		switch {
		case '0' <= digit && digit <= '9':
			value = int(digit - '0')
		case 'a' <= digit|0x20 && digit|0x20 <= 'f':
			value = int(digit|0x20-'a') + 10
		default:
			return 0, fmt.Errorf("chunk size %q", line)
		}
		if size >= 1<<26 {
			return 0, fmt.Errorf("chunk size %q", line)
		}
		size = size<<4 | value
	}
	if len(line) == 0 {
		return 0, fmt.Errorf("chunk size %q", line)
	}
	return size, nil
}
