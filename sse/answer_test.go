package sse

import (
	"bufio"
	"bytes"
	"cmp"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"servebench/verify"
)

// soundness returns what is wrong with the record of a request, whatever was
// answered: what the evidence's checks ask of it.
func soundness(r *verify.Request) string {
	token := func(kind byte) bool { return strings.IndexByte("crt", kind) >= 0 }
	switch {
	case len(r.EventKinds) != len(r.EventNS):
		return "kinds and stamps of events differ in number"
	case r.EventIDs != nil && len(r.EventIDs) != len(r.EventNS):
		return "id counts and stamps of events differ in number"
	case r.EventIDs == nil && r.TokenIDs != nil:
		return "ids without events"
	case strings.Trim(r.EventKinds, "crtoed") != "":
		return "an unknown kind"
	}
	sum := 0
	for i, n := range r.EventIDs {
		if sum += n; n < 0 || n > 0 && !token(r.EventKinds[i]) {
			return "an event of no token has ids"
		}
	}
	if sum != len(r.TokenIDs) {
		return "the events' ids don't add up"
	}
	for _, id := range append(slices.Clone(r.TokenIDs), r.PromptIDs...) {
		if id < 0 {
			return "an id below 0"
		}
	}
	if u := r.Usage; u != nil && (u.PromptTokens < 0 || u.CompletionTokens < 0 || u.CachedTokens != nil && *u.CachedTokens < 0) {
		return "a count below 0"
	}
	stamps := slices.Concat([]int64{r.StartNS}, []int64{cmp.Or(r.ConnectedNS, r.StartNS)})
	if r.HeadersNS > 0 {
		stamps = append(stamps, r.HeadersNS)
	} else if len(r.EventNS) > 0 {
		return "events without a head"
	}
	if stamps = append(append(stamps, r.EventNS...), r.EndNS); !slices.IsSorted(stamps) {
		return "stamps run backwards"
	}
	if !utf8.ValidString(r.Text + r.Reasoning + r.Finish) {
		return "a text that is no UTF-8"
	}
	_, some := r.FirstTokenNS()
	if f := r.Failure; f != nil {
		switch {
		case f.Message == "" || !utf8.ValidString(f.Message) || len(f.Message) > 1100:
			return "a failure without words, or with too many"
		case f.Class == verify.FailStatus && (r.Status == 200 || r.Status == 0),
			f.Class == verify.FailServer && !strings.ContainsRune(r.EventKinds, verify.EventError),
			f.Class == verify.FailEmpty && some,
			f.Class == verify.FailConnect && r.ConnectedNS != 0:
			return "a class that doesn't fit"
		}
		return ""
	}
	done := strings.IndexByte(r.EventKinds, verify.EventDone)
	switch {
	case r.Status != 200, r.ConnectedNS == 0, r.SentNS < r.ConnectedNS, r.SentNS > r.EndNS, r.HeadersNS == 0, !some:
		return "a success without status, connection, request, head or token"
	case strings.ContainsRune(r.EventKinds, verify.EventError):
		return "a success with an error"
	case done >= 0 && done != len(r.EventKinds)-1:
		return "a success that goes on after its end"
	case done < 0 && r.Finish == "":
		return "a success without an end"
	case r.Usage != nil && r.EventIDs == nil && len(r.EventKinds)-strings.Count(r.EventKinds, "o")-strings.Count(r.EventKinds, "d") > r.Usage.CompletionTokens+1,
		r.Usage != nil && r.Usage.CompletionTokens == 0:
		return "a success with fewer tokens counted than sent"
	}
	return ""
}

// bodyOf returns the body of a whole response with status 200, by net/http.
func bodyOf(answer []byte) ([]byte, error) {
	reader := bufio.NewReader(bytes.NewReader(answer))
	for {
		response, err := http.ReadResponse(reader, nil)
		if err != nil {
			return nil, err
		}
		if response.StatusCode == 200 {
			return io.ReadAll(response.Body)
		}
		if response.StatusCode/100 != 1 || response.StatusCode == 101 {
			return nil, fmt.Errorf("status %d", response.StatusCode)
		}
	}
}

// FuzzAnswer lets the client ask a server that answers with anything, as a
// whole response or as the body of one, in one read and in several: nothing
// panics, the record is sound, how the bytes were cut bears on nothing but the
// stamps, and a success has the body that net/http finds, if it finds one.
func FuzzAnswer(f *testing.F) {
	for _, s := range scripts(f) {
		var body []byte
		for i := range s.Steps {
			body = append(body, s.step(f, i)...)
		}
		if len(body) < 4096 {
			f.Add(body, byte(len(body)), uint64(len(body)))
		}
	}
	for _, list := range recordings(f) {
		for _, rec := range list {
			if len(rec.Raw) < 3000 {
				f.Add([]byte(rec.Raw), byte(3), uint64(len(rec.Raw)))
			}
		}
	}
	f.Fuzz(func(t *testing.T, data []byte, form byte, seed uint64) {
		if len(data) > 1<<16 {
			return
		}
		var answer []byte
		switch form % 4 {
		case 0:
			answer = append([]byte(streamHead), data...)
		case 1:
			answer = append(answer, "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"...)
			random := rand.New(rand.NewPCG(seed, 1))
			for rest := data; len(rest) > 0; {
				n := 1 + random.IntN(len(rest))
				answer = append(answer, strconv.FormatInt(int64(n), 16)+"\r\n"...)
				answer = append(append(answer, rest[:n]...), "\r\n"...)
				rest = rest[n:]
			}
			answer = append(answer, "0\r\n\r\n"...)
		case 2:
			answer = append([]byte("HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nContent-Length: "+strconv.Itoa(len(data))+"\r\n\r\n"), data...)
		case 3:
			answer = data
		}
		get := func(answer []byte, pieces int) *verify.Request {
			random := rand.New(rand.NewPCG(seed, 2))
			c := Client{BaseURL: "http://server", Clock: NewClock(), Idle: 10 * time.Second, Dial: pipe(func(conn net.Conn) {
				defer conn.Close()
				http.ReadRequest(bufio.NewReader(conn))
				for rest := answer; len(rest) > 0; pieces-- {
					n := len(rest)
					if pieces > 1 {
						n = 1 + random.IntN(len(rest))
					}
					if _, err := conn.Write(rest[:n]); err != nil {
						break
					}
					rest = rest[n:]
				}
				// What the client leaves is read, so that it isn't kept from leaving.
				go io.Copy(io.Discard, conn)
			})}
			r := &verify.Request{}
			c.Complete(t.Context(), ask(), r)
			if wrong := soundness(r); wrong != "" {
				t.Fatalf("%s: %+v, usage %+v, failure %+v", wrong, r, r.Usage, r.Failure)
			}
			return r
		}
		one, many := get(answer, 1), get(answer, 8)
		if one.Status != many.Status || (one.Failure == nil) != (many.Failure == nil) || one.Failure != nil && one.Failure.Class != many.Failure.Class {
			t.Fatalf("in one read %+v, failure %+v; in several %+v, failure %+v", one, one.Failure, many, many.Failure)
		}
		// Where HTTP itself is broken, how much was there when that was found
		// is a matter of the reads.
		if (form%4 != 3 || one.Failure == nil) && (one.EventKinds != many.EventKinds || one.Text != many.Text || one.Reasoning != many.Reasoning ||
			!slices.Equal(one.TokenIDs, many.TokenIDs) || one.Finish != many.Finish) {
			t.Fatalf("in one read %+v, failure %+v; in several %+v, failure %+v", one, one.Failure, many, many.Failure)
		}
		if one.Failure != nil {
			return
		}
		body, err := bodyOf(answer)
		if err != nil {
			return // it is stricter in what it takes for a head and a chunk's length
		}
		if plain := get(append([]byte(streamHead), body...), 1); plain.Text != one.Text || plain.EventKinds != one.EventKinds {
			t.Fatalf("%+v, but of the body as net/http has it %+v, failure %+v", one, plain, plain.Failure)
		}
	})
}

// Whatever fills 16 MiB is read in time that grows with it: a second or so.
// Anything quadratic in it takes hours; the test's own deadline is the bound.
func TestAnswerInLinearTime(t *testing.T) {
	const size = 16 << 20
	fill := func(piece string) string { return strings.Repeat(piece, size/len(piece)) }
	tests := []struct {
		name string
		body string
		text int    // bytes of
		fail string // what the failure begins with
	}{
		{"one token", `data: {"choices":[{"index":0,"text":"` + fill("x") + `","finish_reason":"stop"}]}` + "\n\n", size, ""},
		{"many tokens", fill("data: {\"choices\":[{\"text\":\"x\"}]}\n\n") + "data: [DONE]\n\n", size / len("data: {\"choices\":[{\"text\":\"x\"}]}\n\n"), ""},
		{"an event of many lines", "data: {\"choices\":[{\"text\":\"x\"}]" + fill("\ndata: ") + "}\n\ndata: [DONE]\n\n", 1, ""},
		{"many choices", "data: {\"choices\":[{\"text\":\"x\"}" + fill(",{\"text\":\"x\"}") + "]}\n\ndata: [DONE]\n\n", 1 + size/len(",{\"text\":\"x\"}"), ""},
		{"many parts", "data: {\"choices\":[{\"delta\":{\"content\":[{\"text\":\"x\"}" + fill(",{\"text\":\"x\"}") + "]}}]}\n\ndata: [DONE]\n\n", 1 + size/len(",{\"text\":\"x\"}"), ""},
		{"many ids", "data: {\"choices\":[{\"text\":\"x\",\"token_ids\":[1" + fill(",1") + "]}]}\n\ndata: [DONE]\n\n", 1, ""},
		{"a member of many members", "data: {\"pad\":{\"a\":0" + fill(",\"a\":0") + "},\"choices\":[{\"text\":\"x\"}]}\n\ndata: [DONE]\n\n", 1, ""},
		{"comments", fill(": x\n") + "data: {\"choices\":[{\"text\":\"x\"}]}\n\ndata: [DONE]\n\n", 1, ""},
		{"line ends of both kinds", "data: {\"choices\":[{\"text\":\"x\"}]}\n\n" + fill("\r") + fill("\n") + "data: [DONE]\n\n", 1, ""},
		{"a line without an end", "data: " + fill("x"), 0, "the stream ended without a finish reason or [DONE]"},
		{"lines like errors", fill("{\n"), 0, "the stream ended without a finish reason or [DONE]"},
		{"nesting", "data: " + fill("[") + "\n\n", 0, "event 0 is no JSON: [[["},
		{"nesting on a line of its own", fill("{"), 0, "the stream ended without a finish reason or [DONE]"},
		{"nesting in an error", "event: error\ndata: " + fill("{\"error\":") + "\n\n", 0, `{"error":{"error":`},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			if slowness > 1 || testing.Short() && !strings.HasPrefix(test.name, "nesting") {
				t.Skip("16 MiB are read where nothing else slows it")
			}
			begin := time.Now()
			r := complete(pipe(func(conn net.Conn) {
				defer conn.Close()
				http.ReadRequest(bufio.NewReader(conn))
				io.WriteString(conn, streamHead+test.body)
			}), NewClock())
			t.Logf("%v", time.Since(begin))
			if len(r.Text) != test.text || (r.Failure != nil) != (test.fail != "") {
				t.Fatalf("%d bytes of text, failure %.200v, want %d and %q", len(r.Text), r.Failure, test.text, test.fail)
			}
			if r.Failure != nil && !strings.HasPrefix(r.Failure.Message, test.fail) {
				t.Errorf("failure %.200q, want %q", r.Failure.Message, test.fail)
			}
		})
	}
}
