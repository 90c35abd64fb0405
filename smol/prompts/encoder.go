package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"unicode/utf8"
)

// encoder turns text into ids as the model's server does.
type encoder struct {
	name    string // of the file, for errors
	lib     *library
	unknown int32 // what a word outside the vocabulary becomes; -1 if there is no such token
}

// openEncoder reads a Hugging Face tokenizer.json. Truncation and padding that
// the file asks for are left out, as servers leave them out: a sentence
// encoder's file cuts each text at 128 tokens and fills each up to them.
func openEncoder(path string) (*encoder, error) {
	name := filepath.Base(path)
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("prompts: -tokenizer: %w: name the model's tokenizer.json; go run ./smol/setup leaves one in smol/native/v1/model", err)
	}
	var file map[string]json.RawMessage
	if err := json.Unmarshal(data, &file); err != nil {
		return nil, fmt.Errorf("prompts: %s isn't a JSON object (%w): want a tokenizer.json, not a tokenizer.model or a Git LFS pointer", name, err)
	}
	var model struct {
		Unknown string          `json:"unk_token"`
		UnkID   *int32          `json:"unk_id"` // Unigram
		Vocab   json.RawMessage `json:"vocab"`
	}
	if err := json.Unmarshal(file["model"], &model); err != nil {
		return nil, fmt.Errorf("prompts: %s has no model (%w): want a tokenizer.json, not a tokenizer_config.json or a config.json", name, err)
	}
	delete(file, "truncation")
	delete(file, "padding")
	if data, err = json.Marshal(file); err != nil {
		return nil, fmt.Errorf("prompts: %s: %w", name, err)
	}
	e := &encoder{name: name, unknown: -1}
	if model.UnkID != nil {
		e.unknown = *model.UnkID
	} else if model.Unknown != "" {
		var vocab map[string]int32
		if json.Unmarshal(model.Vocab, &vocab) == nil {
			if id, ok := vocab[model.Unknown]; ok {
				e.unknown = id
			}
		}
	}
	if e.lib, err = newLibrary(data); err != nil {
		return nil, fmt.Errorf("prompts: %s: %w", name, err)
	}
	return e, nil
}

// encode returns the ids of text. Names of special tokens in it become those
// tokens; addSpecial has the post-processor add its own. It errs on what the
// native library would read otherwise than a server: it stops at NUL, and
// takes half a rune for a replacement character.
func (e *encoder) encode(text string, addSpecial bool) ([]int32, error) {
	if i := strings.IndexByte(text, 0); i >= 0 {
		return nil, fmt.Errorf("prompts: NUL at byte %d of the text %.40q…: remove it", i, text)
	}
	if !utf8.ValidString(text) {
		return nil, fmt.Errorf("prompts: the text %.40q… isn't valid UTF-8", text)
	}
	ids := e.lib.encode(text, addSpecial)
	if len(ids) == 0 && text != "" {
		return nil, fmt.Errorf("prompts: %s gives no ids for the text %.40q…", e.name, text)
	}
	return ids, nil
}

func (e *encoder) close() { e.lib.close() }
