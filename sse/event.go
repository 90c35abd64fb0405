package sse

import (
	"bytes"
	"iter"
)

// Event is one dispatched event of a stream.
type Event struct {
	Type string // of the event field, "" for a message
	Data []byte // the data fields, joined with \n
	End  int    // the stream's length when the event was complete
}

// Events parses a whole stream to the WHATWG rules for event streams: lines
// end in CR, LF or CRLF; one space after a colon is dropped; comments, ids and
// retry times are no events; a block without a data field dispatches nothing;
// what stands after the last blank line is not dispatched either. It takes
// linear time, has no limit on a line, and doesn't copy data of one line.
//
// An event is complete with the first byte that ends its blank line: the LF
// that may follow a CR isn't waited for. End tells when that was, so a caller
// who knows when each byte arrived knows when the event did.
func Events(stream []byte) iter.Seq[Event] {
	return func(yield func(Event) bool) {
		var event Event
		var hasData, joined bool
		pos := 0
		if bytes.HasPrefix(stream, []byte("\xef\xbb\xbf")) {
			pos = 3
		}
		nextLF, nextCR := -1, -1 // positions of the next of each, len(stream) for none
		for pos < len(stream) {
			if nextLF < pos {
				nextLF = indexFrom(stream, pos, '\n')
			}
			if nextCR < pos {
				nextCR = indexFrom(stream, pos, '\r')
			}
			end := min(nextLF, nextCR)
			if end == len(stream) {
				return // half a line
			}
			line := stream[pos:end]
			pos = end + 1
			complete := pos
			if stream[end] == '\r' && pos < len(stream) && stream[pos] == '\n' {
				pos++
			}
			if len(line) == 0 {
				if hasData {
					event.End = complete
					if !yield(event) {
						return
					}
				}
				event, hasData, joined = Event{}, false, false
				continue
			}
			field, value, found := bytes.Cut(line, []byte(":"))
			if found && len(value) > 0 && value[0] == ' ' {
				value = value[1:]
			}
			switch {
			case len(field) == 0: // a comment
			case string(field) == "data":
				switch {
				case !hasData:
					event.Data, hasData = value, true
				case !joined:
					event.Data, joined = bytes.Join([][]byte{event.Data, value}, []byte("\n")), true
				default:
					event.Data = append(append(event.Data, '\n'), value...)
				}
			case string(field) == "event":
				event.Type = string(value)
			}
		}
	}
}

func indexFrom(s []byte, from int, c byte) int {
	if i := bytes.IndexByte(s[from:], c); i >= 0 {
		return from + i
	}
	return len(s)
}
