package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"servebench/smol/graph"
	"servebench/sse"
)

// Conversations are rendered as Jinja renders them by the model's template.
func TestTemplates(t *testing.T) {
	content, err := os.ReadFile(filepath.Join("testdata", "chat.json"))
	if err != nil {
		t.Fatal(err)
	}
	var golden []struct {
		Model    string
		Template string
		Cases    []struct {
			Messages []sse.Message
			Text     string
		}
	}
	if err := json.Unmarshal(content, &golden); err != nil {
		t.Fatal(err)
	}
	if len(golden) != len(templates) {
		t.Errorf("testdata/chat.json has %d templates, want the %d that are known", len(golden), len(templates))
	}
	for _, g := range golden {
		render := chatTemplate(g.Template)
		if render == nil {
			t.Errorf("the template of %s isn't known", g.Model)
			continue
		}
		if len(g.Cases) < 5 {
			t.Errorf("%s has %d cases, want at least 5", g.Model, len(g.Cases))
		}
		for _, c := range g.Cases {
			if got, err := render(c.Messages); got != c.Text || err != nil {
				t.Errorf("%s: render(%+v) = %q, %v; want %q", g.Model, c.Messages, got, err, c.Text)
			}
		}
		if chatTemplate(g.Template+" ") != nil {
			t.Errorf("a template that isn't quite that of %s is taken for it", g.Model)
		}
	}
}

// The model that set-up put in place has a known template.
func TestTemplateOfTheModel(t *testing.T) {
	m, err := graph.ReadManifest(filepath.Join("..", "native", "v1", "model"))
	if err != nil {
		t.Skipf("no model: %v", err)
	}
	if chatTemplate(m.ChatTemplate) == nil {
		t.Errorf("the chat template of %s from %s isn't known:\n%s", m.ID, m.Source, m.ChatTemplate)
	}
}
