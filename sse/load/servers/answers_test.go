//go:build unix

package servers

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"servebench/sse"
	"servebench/verify"
)

const root = "../../.." // of the module

// complete is one request of the client's, which must succeed.
func complete(t *testing.T, c *sse.Client, ask sse.Ask) *verify.Request {
	t.Helper()
	r := new(verify.Request)
	c.Complete(t.Context(), ask, r)
	if r.Failure != nil {
		t.Fatalf("%q: %s: %s", ask.Prompt, r.Failure.Class, r.Failure.Message)
	}
	return r
}

// corpus returns the built-in prompts.
func corpus(t *testing.T) []verify.Prompt {
	t.Helper()
	return readPrompts(t, filepath.Join(root, "testdata", "corpus.jsonl"))
}

func readPrompts(t *testing.T, path string) []verify.Prompt {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	c, err := verify.ReadCorpus(filepath.Base(path), data)
	if err != nil {
		t.Fatal(err)
	}
	return c.Prompts
}

// goldens returns the text of each prompt's greedy answer, by the prompt's
// id, and its number of tokens.
func goldens(t *testing.T) (texts map[string]string, tokens int) {
	t.Helper()
	var file struct {
		Steps  int
		Models map[string]struct {
			Answers map[string]struct{ IDs []int }
		}
	}
	readJSON(t, filepath.Join(root, "testdata", "goldens.json"), &file)
	weights := os.Getenv(weightsVariable)
	input, err := os.ReadFile(filepath.Join(weights, "complete"))
	if err != nil {
		t.Fatal(err)
	}
	model, ok := file.Models[strings.TrimSpace(string(input))]
	if !ok {
		t.Fatalf("goldens.json has no answers of the model with weights of %s", input)
	}
	pieces := vocabulary(t, filepath.Join(weights, modelName, "tokenizer.json"))
	texts = map[string]string{}
	for id, answer := range model.Answers {
		var b strings.Builder
		for _, token := range answer.IDs {
			b.WriteString(pieces[token])
		}
		texts[id] = b.String()
	}
	return texts, file.Steps
}

func readJSON(t *testing.T, path string, to any) {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(data, to); err != nil {
		t.Fatalf("%s: %v", path, err)
	}
}

// vocabulary returns the bytes of each id in a tokenizer.json with a
// byte-level vocabulary: a printable byte of Latin-1 stands for itself, the
// others are the runes from U+0100 on, in order.
func vocabulary(t *testing.T, path string) map[int]string {
	t.Helper()
	var file struct {
		Model struct{ Vocab map[string]int }
	}
	readJSON(t, path, &file)
	bytes, other := map[rune]byte{}, rune(0x100)
	for b := range 256 {
		if b > ' ' && b < 0x7f || b > 0xa0 && b != 0xad {
			bytes[rune(b)] = byte(b)
		} else {
			bytes[other] = byte(b)
			other++
		}
	}
	pieces := map[int]string{}
	for token, id := range file.Model.Vocab {
		var b strings.Builder
		for _, r := range token {
			b.WriteByte(bytes[r])
		}
		pieces[id] = b.String()
	}
	return pieces
}

// sameText reports whether a server's text is the wanted one. The last rune
// of an answer that is cut by tokens may be half; servers leave it out or
// write a replacement character.
func sameText(got, want string) bool {
	valid := strings.ToValidUTF8(want, "")
	if valid == want {
		return got == want
	}
	return strings.TrimRight(got, "\ufffd") == strings.TrimRight(valid, "\ufffd")
}

// With the same weights, the greedy answers are the known ones, whether the
// prompt is sent as text or as ids.
func TestGoldens(t *testing.T) {
	each(t, func(t *testing.T, k *kind) {
		s := k.get(t)
		texts, tokens := goldens(t)
		c := s.client(false)
		for i, p := range corpus(t) {
			asks := map[string]sse.Ask{"text": {Prompt: p.Text, OutputTokens: tokens}}
			if k.takesIDs && i%4 == 0 {
				asks["ids"] = sse.Ask{PromptIDs: p.IDs, OutputTokens: tokens}
			}
			for form, ask := range asks {
				r := complete(t, c, ask)
				if !sameText(r.Text, texts[p.ID]) {
					t.Errorf("%s as %s: the answer is %q\nwant %q", p.ID, form, r.Text, texts[p.ID])
				}
				if r.Usage == nil || r.Usage.PromptTokens != p.Input || r.Usage.CompletionTokens != tokens {
					t.Errorf("%s as %s: usage %+v, want %d and %d tokens", p.ID, form, r.Usage, p.Input, tokens)
				}
			}
		}
	})
}

// questions are asked in chats and as prompts; answers end by themselves or
// at the bound, and some hold runes of several tokens.
var questions = []string{
	"What is the capital of France? Answer in one sentence.",
	"Repeat: é, ß, 漢字, 😀, naïve café.",
	"Write a limerick about the number 7.",
}

// What is streamed is what the same server says in one piece: text, reason,
// and both counts.
func TestStreamIsTheWhole(t *testing.T) {
	each(t, func(t *testing.T, k *kind) {
		s := k.get(t)
		for _, chat := range []bool{false, true} {
			for _, question := range questions {
				for _, tokens := range []int{1, 24} {
					name := fmt.Sprintf("chat %v, %d tokens, %q", chat, tokens, question)
					body := map[string]any{"model": modelName, "max_tokens": tokens, "temperature": 0}
					path := "completions"
					if chat {
						path = "chat/completions"
						body["messages"] = []any{map[string]any{"role": "user", "content": question}}
					} else {
						body["prompt"] = question
					}
					want := s.ask(t, path, body)
					r := new(verify.Request)
					s.client(chat).Complete(t.Context(), sse.Ask{Prompt: question, OutputTokens: tokens}, r)
					if want.text == "" {
						// An end at once, or half a rune.
						if r.Failure == nil || r.Failure.Class != verify.FailEmpty {
							t.Errorf("%s: the whole has no text (%+v), but the stream %q and %+v", name, want, r.Text, r.Failure)
						}
						continue
					}
					if r.Failure != nil {
						t.Errorf("%s: %s: %s; want %+v", name, r.Failure.Class, r.Failure.Message, want)
						continue
					}
					if r.Usage == nil {
						t.Errorf("%s: no usage, want %+v", name, want)
						continue
					}
					if got := (whole{r.Text, r.Finish, r.Usage.PromptTokens, r.Usage.CompletionTokens}); got != want {
						t.Errorf("%s: the stream is %+v\nwant %+v", name, got, want)
					}
					if n := strings.Count(r.EventKinds, string(verify.EventContent)); n < 1 || n > r.Usage.CompletionTokens {
						t.Errorf("%s: %d events with tokens, want 1 to %d", name, n, r.Usage.CompletionTokens)
					}
				}
			}
		}
	})
}

// Both servers, with nothing in common but the weights, say the same.
func TestServersAgree(t *testing.T) {
	said := map[string]string{}
	for _, k := range kinds {
		t.Run(k.name, func(t *testing.T) {
			s := k.get(t)
			for _, question := range questions {
				r := complete(t, s.client(true), sse.Ask{Prompt: question, OutputTokens: 16})
				if other, ok := said[question]; ok && other != r.Text {
					t.Errorf("%q: %q, but the other server says %q", question, r.Text, other)
				}
				said[question] = r.Text
			}
		})
	}
}

// Prompts that were made exact beforehand are so for these servers, alone and
// in a chat.
func TestExactPrompts(t *testing.T) {
	each(t, func(t *testing.T, k *kind) {
		s := k.get(t)
		for _, chat := range []bool{false, true} {
			args := []string{"-n", "2", "-warmups", "0"}
			if chat {
				args = append(args, "-input", "37,64,256", "-chat-prefix", chatPrefix, "-chat-suffix", chatSuffix)
			} else {
				args = append(args, "-input", "1,2,16,64,511")
			}
			for _, p := range readPrompts(t, makePrompts(t, args...)) {
				r := new(verify.Request)
				s.client(chat).Complete(t.Context(), sse.Ask{Prompt: p.Text, OutputTokens: 1}, r)
				if r.Usage == nil || r.Usage.PromptTokens != p.Input {
					t.Errorf("chat %v, %s: usage %+v (%+v), want %d tokens", chat, p.ID, r.Usage, r.Failure, p.Input)
				}
			}
		}
	})
}

// started tells when a connection has carried so many bytes of an answer.
type started struct {
	net.Conn
	left  int
	ready chan struct{}
}

func (s *started) Read(p []byte) (int, error) {
	n, err := s.Conn.Read(p)
	if s.left > 0 && s.left <= n {
		close(s.ready)
	}
	s.left -= n
	return n, err
}

// A server that dies midway: the request fails with the cause, and what came
// before is kept.
func TestKilled(t *testing.T) {
	each(t, func(t *testing.T, k *kind) {
		s := k.start(t)
		ready := make(chan struct{})
		c := s.client(false)
		c.Dial = func(ctx context.Context, network, address string) (net.Conn, error) {
			conn, err := new(net.Dialer).DialContext(ctx, network, address)
			return &started{conn, 2000, ready}, err
		}
		killed := make(chan error, 1)
		go func() {
			<-ready
			killed <- s.kill()
		}()
		r := new(verify.Request)
		c.Complete(t.Context(), sse.Ask{Prompt: "Once upon a time", OutputTokens: 2000, IgnoreEOS: k.ignoreEOS}, r)
		select {
		case <-ready:
			if err := <-killed; err != nil {
				t.Error(err)
			}
		default:
			s.stop()
			t.Fatalf("the request is over before 2000 bytes: %+v, %q", r.Failure, r.Text)
		}
		if r.Failure == nil || r.Failure.Class != verify.FailStream || r.Status != 200 || r.Text == "" || r.Finish != "" {
			t.Errorf("failure %+v, status %d, text %q, finish %q; want a broken stream and its text so far", r.Failure, r.Status, r.Text, r.Finish)
		} else {
			t.Log(r.Failure.Message)
		}
		again := new(verify.Request)
		s.client(false).Complete(t.Context(), sse.Ask{Prompt: "Hi", OutputTokens: 1}, again)
		if again.Failure == nil || again.Failure.Class != verify.FailConnect {
			t.Errorf("the next request: %+v, want no connection", again.Failure)
		}
	})
}
