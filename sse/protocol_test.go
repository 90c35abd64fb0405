package sse

import (
	"bytes"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

var update = flag.Bool("update", false, "rewrite the golden parts of the documentation")

// The page's examples are what the handler gives: each ```http block holds a
// request and the response to it.
func TestProtocolExamples(t *testing.T) {
	page, err := os.ReadFile("PROTOCOL.md")
	if err != nil {
		t.Fatal(err)
	}
	const open, end = "```http\n", "```\n"
	var out bytes.Buffer
	examples := 0
	rest := string(page)
	for {
		before, block, found := strings.Cut(rest, open)
		out.WriteString(before)
		if !found {
			break
		}
		block, rest, _ = strings.Cut(block, end)
		request, _, found := strings.Cut(block, "\nHTTP/1.1 ")
		if !found {
			t.Fatalf("example without a response:\n%s", block)
		}
		examples++
		want := request + "\n" + exchange(t, request)
		if want != block && !*update {
			t.Errorf("the page has\n%s\nwant\n%s\n(go test -run Protocol ./sse -update rewrites it)", block, want)
		}
		out.WriteString(open + want + end)
	}
	if examples < 8 {
		t.Errorf("%d examples on the page, want at least 8", examples)
	}
	if *update {
		if err := os.WriteFile("PROTOCOL.md", out.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// exchange sends one of the page's requests to a new handler over a model of
// bytes and returns the response, with the headers that the page shows.
func exchange(t *testing.T, request string) (response string) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, &byteModel{script: []byte("Oké."), prefill: 50 * time.Millisecond, step: 10 * time.Millisecond}, Options{Model: "bytes", Chat: plainChat}, nil)
		r.clock.baseNS = 81_000_000_000_000
		head, body, _ := strings.Cut(strings.TrimSuffix(request, "\n"), "\n\n")
		lines := strings.Split(strings.TrimSuffix(head, "\n"), "\n")
		method, path, _ := strings.Cut(lines[0], " ")
		id := ""
		if len(lines) > 1 {
			id = strings.TrimPrefix(lines[1], "X-Request-Id: ")
		}
		resp, conn := r.send(method, path, id, body)
		defer conn.Close()
		b, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		response = fmt.Sprintf("HTTP/1.1 %d %s\nContent-Type: %s\n\n%s\n", resp.StatusCode, http.StatusText(resp.StatusCode), resp.Header.Get("Content-Type"), strings.TrimRight(string(b), "\n"))
	})
	return response
}
