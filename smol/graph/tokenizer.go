package graph

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"unicode/utf8"
)

// The tokens' types in a GGUF that have a meaning here.
const (
	ggufNormal  = 1
	ggufControl = 3
)

// GGUFTokenizer makes the tokenizer.json of g's own vocabulary and merges: a
// byte-level BPE whose digits stand alone. It errs on a vocabulary of another
// kind, since the rules that split a text before BPE are known by name only.
func GGUFTokenizer(g *GGUF) ([]byte, error) {
	for _, f := range []struct{ key, want string }{
		{"tokenizer.ggml.model", "gpt2"},
		{"tokenizer.ggml.pre", "smollm"},
	} {
		got, err := metaValue[string](g, f.key)
		if err != nil {
			return nil, err
		}
		if got != f.want {
			return nil, fmt.Errorf("graph: gguf: %s %q, want %q", f.key, got, f.want)
		}
	}
	for _, key := range []string{"tokenizer.ggml.add_bos_token", "tokenizer.ggml.add_space_prefix"} {
		if v, ok := g.meta[key]; ok && v != false {
			return nil, fmt.Errorf("graph: gguf: %s %v, want false", key, v)
		}
	}
	tokens, err := metaValue[[]string](g, "tokenizer.ggml.tokens")
	if err != nil {
		return nil, err
	}
	types, err := metaValue[[]int32](g, "tokenizer.ggml.token_type")
	if err != nil {
		return nil, err
	}
	merges, err := metaValue[[]string](g, "tokenizer.ggml.merges")
	if err != nil {
		return nil, err
	}
	if len(types) != len(tokens) {
		return nil, fmt.Errorf("graph: gguf: %d token types for %d tokens", len(types), len(tokens))
	}
	special := map[int]bool{}
	for id, t := range types {
		switch t {
		case ggufNormal:
		case ggufControl:
			special[id] = true
		default:
			return nil, fmt.Errorf("graph: gguf: token %d is of type %d, want %d or %d", id, t, ggufNormal, ggufControl)
		}
	}
	return tokenizerJSON(tokens, special, merges)
}

// GGUFChatTemplate is the Jinja template of g, "" if it has none.
func GGUFChatTemplate(g *GGUF) string {
	s, _ := g.meta["tokenizer.chat_template"].(string)
	return s
}

// tokenizerJSON writes a byte-level BPE in the form of Hugging Face's
// tokenizers: tokens by id, the ids that are special, and the merges in order
// of rank, each two tokens with a space between them.
func tokenizerJSON(tokens []string, special map[int]bool, merges []string) ([]byte, error) {
	ids := make(map[string]int, len(tokens))
	for id, t := range tokens {
		if t == "" || !utf8.ValidString(t) {
			return nil, fmt.Errorf("graph: tokenizer: token %d is %q, want UTF-8 that isn't empty", id, t)
		}
		if twin, twice := ids[t]; twice {
			return nil, fmt.Errorf("graph: tokenizer: tokens %d and %d are both %q", twin, id, t)
		}
		ids[t] = id
	}
	pairs := make([][2]string, len(merges))
	for i, m := range merges {
		a, b, ok := strings.Cut(m, " ")
		if !ok || strings.Contains(b, " ") {
			return nil, fmt.Errorf("graph: tokenizer: merge %d is %q, want two tokens with a space between them", i, m)
		}
		for _, t := range []string{a, b, a + b} {
			if _, ok := ids[t]; !ok {
				return nil, fmt.Errorf("graph: tokenizer: merge %d, %q: no token %q", i, m, t)
			}
		}
		pairs[i] = [2]string{a, b}
	}
	type added struct {
		ID         int    `json:"id"`
		Content    string `json:"content"`
		SingleWord bool   `json:"single_word"`
		LStrip     bool   `json:"lstrip"`
		RStrip     bool   `json:"rstrip"`
		Normalized bool   `json:"normalized"`
		Special    bool   `json:"special"`
	}
	var extra []added
	for id, t := range tokens {
		if special[id] {
			extra = append(extra, added{ID: id, Content: t, Special: true})
		}
	}
	type byteLevel struct {
		Type           string `json:"type"`
		AddPrefixSpace bool   `json:"add_prefix_space"`
		TrimOffsets    bool   `json:"trim_offsets"`
		UseRegex       bool   `json:"use_regex"`
	}
	type digits struct {
		Type       string `json:"type"`
		Individual bool   `json:"individual_digits"`
	}
	type sequence struct {
		Type  string `json:"type"`
		Parts []any  `json:"pretokenizers"`
	}
	type bpe struct {
		Type         string      `json:"type"`
		Dropout      any         `json:"dropout"`
		Unknown      any         `json:"unk_token"`
		Prefix       any         `json:"continuing_subword_prefix"`
		Suffix       any         `json:"end_of_word_suffix"`
		FuseUnknown  bool        `json:"fuse_unk"`
		ByteFallback bool        `json:"byte_fallback"`
		IgnoreMerges bool        `json:"ignore_merges"`
		Vocab        orderedIDs  `json:"vocab"`
		Merges       [][2]string `json:"merges"`
	}
	doc := struct {
		Version       string    `json:"version"`
		Truncation    any       `json:"truncation"`
		Padding       any       `json:"padding"`
		Added         []added   `json:"added_tokens"`
		Normalizer    any       `json:"normalizer"`
		PreTokenizer  sequence  `json:"pre_tokenizer"`
		PostProcessor any       `json:"post_processor"`
		Decoder       byteLevel `json:"decoder"`
		Model         bpe       `json:"model"`
	}{
		Version: "1.0",
		Added:   extra,
		PreTokenizer: sequence{"Sequence", []any{
			digits{"Digits", true},
			byteLevel{"ByteLevel", false, true, true},
		}},
		Decoder: byteLevel{"ByteLevel", true, true, true},
		Model:   bpe{Type: "BPE", Vocab: tokens, Merges: pairs},
	}
	return marshal(doc, "")
}

// orderedIDs marshals to an object from each token to its index, in order.
type orderedIDs []string

func (o orderedIDs) MarshalJSON() ([]byte, error) {
	var b bytes.Buffer
	b.WriteByte('{')
	for id, t := range o {
		if id > 0 {
			b.WriteByte(',')
		}
		key, err := marshal(t, "")
		if err != nil {
			return nil, err
		}
		fmt.Fprintf(&b, "%s:%d", bytes.TrimSuffix(key, []byte("\n")), id)
	}
	b.WriteByte('}')
	return b.Bytes(), nil
}

// marshal is json.Marshal with <, > and & as they are and a newline at the
// end.
func marshal(v any, indent string) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	e.SetIndent("", indent)
	if err := e.Encode(v); err != nil {
		return nil, err
	}
	return b.Bytes(), nil
}

// hfChatTemplate is the template in a tokenizer_config.json, "" if it has
// none.
func hfChatTemplate(data []byte) (string, error) {
	var j struct {
		Template string `json:"chat_template"`
	}
	if err := json.Unmarshal(data, &j); err != nil {
		return "", fmt.Errorf("graph: tokenizer_config.json: %w", err)
	}
	return j.Template, nil
}
