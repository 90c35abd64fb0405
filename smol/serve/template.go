package main

import (
	"crypto/sha256"
	"fmt"
	"strings"

	"servebench/sse"
)

// chatML is a chat template of the ChatML family: each message between
// <|im_start|> with its role and <|im_end|>, then the assistant's opening.
type chatML struct {
	system string // comes first where a conversation doesn't begin with a system message; "" for none
}

// templates are the chat templates that this program knows, by the SHA-256 of
// their Jinja text in the model's manifest: a program for Jinja itself would
// be far larger than what two templates do, and a template that is only
// nearly one of these is not used. testdata/chat.json holds what Jinja makes
// of them.
var templates = map[string]chatML{
	// SmolLM2-135M-Instruct.
	"872be49dbb638044ad01b60388f48d469ff2980e5f0dccdc22ec907db54d0788": {system: "You are a helpful AI assistant named SmolLM, trained by Hugging Face"},
	// The tests' tiny model.
	"153280e3ff55d19da1398bdb3914ee2a51b80429bfaedde11d7d216c39db80f3": {},
}

// chatTemplate returns what renders conversations by the template jinja, or
// nil if it isn't known.
func chatTemplate(jinja string) func([]sse.Message) (string, error) {
	t, ok := templates[fmt.Sprintf("%x", sha256.Sum256([]byte(jinja)))]
	if !ok {
		return nil
	}
	return t.render
}

// render returns the prompt of a conversation. A content with the name of a
// special token in it is rendered as it is, as Jinja would, and so can end
// its own turn.
func (t chatML) render(messages []sse.Message) (string, error) {
	var b strings.Builder
	turn := func(role, content string) {
		b.WriteString("<|im_start|>")
		b.WriteString(role)
		b.WriteByte('\n')
		b.WriteString(content)
		b.WriteString("<|im_end|>\n")
	}
	if t.system != "" && messages[0].Role != "system" {
		turn("system", t.system)
	}
	for _, m := range messages {
		turn(m.Role, m.Content)
	}
	b.WriteString("<|im_start|>assistant\n")
	return b.String(), nil
}
