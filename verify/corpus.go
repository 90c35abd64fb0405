package verify

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
)

// ReadCorpus reads a corpus file, one prompt a line, each in the form that
// encoding/json gives it. name is its base name; it stands in errors and in
// the result, which is ready to be recorded.
func ReadCorpus(name string, data []byte) (*Corpus, error) {
	sum := sha256.Sum256(data)
	c := &Corpus{Kind: KindCorpus, Name: name, Bytes: int64(len(data)), SHA256: hex.EncodeToString(sum[:])}
	d := newDecoder()
	for n := 1; len(data) > 0; n++ {
		line, rest, found := bytes.Cut(data, []byte("\n"))
		if !found {
			return nil, fmt.Errorf("verify: %s:%d: the last line has no newline", name, n)
		}
		data = rest
		var prompt Prompt
		if err := d.decode(line, &prompt); err != nil {
			return nil, fmt.Errorf("verify: %s:%d: %w", name, n, err)
		}
		c.Prompts = append(c.Prompts, prompt)
	}
	if err := c.check(); err != nil {
		return nil, fmt.Errorf("verify: %s: %w", name, err)
	}
	return c, nil
}

// check holds a corpus against its own hashes.
func (c *Corpus) check() error {
	if len(c.Prompts) == 0 {
		return fmt.Errorf("no prompts")
	}
	if !isBaseName(c.Name) {
		return fmt.Errorf("name %q, want a base name", c.Name)
	}
	sum := sha256.New()
	var size int64
	seen := map[string]bool{}
	for i := range c.Prompts {
		prompt := &c.Prompts[i]
		if err := prompt.check(); err != nil {
			return fmt.Errorf("prompt %q: %w", prompt.ID, err)
		}
		if seen[prompt.ID] {
			return fmt.Errorf("prompt %q stands twice", prompt.ID)
		}
		seen[prompt.ID] = true
		line, _ := json.Marshal(prompt) // of strings and integers it can't fail
		line = append(line, '\n')
		size += int64(len(line))
		sum.Write(line)
	}
	if got := hex.EncodeToString(sum.Sum(nil)); got != c.SHA256 || size != c.Bytes {
		return fmt.Errorf("bytes %d and sha256 %q, but its prompts have %d and %q", c.Bytes, c.SHA256, size, got)
	}
	return nil
}

func (p *Prompt) check() error {
	sum := sha256.Sum256([]byte(p.Text))
	switch got := hex.EncodeToString(sum[:]); {
	case p.ID == "":
		return fmt.Errorf("its id is empty")
	case p.Input < 1:
		return fmt.Errorf("input %d, want at least 1", p.Input)
	case got != p.SHA256:
		return fmt.Errorf("sha256 %q, but its text has %q", p.SHA256, got)
	case p.IDs != nil && len(p.IDs) != p.Input:
		return fmt.Errorf("%d ids, want input %d", len(p.IDs), p.Input)
	}
	return nil
}
