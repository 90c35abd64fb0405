package sse

import (
	"strings"
	"testing"

	"servebench/verify"
)

func BenchmarkTranscript(b *testing.B) {
	stream := []byte(strings.Repeat(`data: {"id":"cmpl-9c67ee2a405004b9","object":"text_completion","created":1796066822,"model":"m","choices":[{"index":0,"text":" word","logprobs":null,"finish_reason":null,"stop_reason":null,"prompt_token_ids":null,"token_ids":[1234]}]}`+"\n\n", 1000))
	b.SetBytes(int64(len(stream)))
	b.ReportAllocs()
	for b.Loop() {
		script := transcript{request: &verify.Request{}}
		for event := range Events(stream) {
			script.event(event, 1)
		}
		script.finish()
		if n := len(script.request.TokenIDs); n != 1000 {
			b.Fatal(n)
		}
	}
}
