package load

import (
	"encoding/json"
	"strings"
)

func unmarshal(data []byte, to any) bool { return json.Unmarshal(data, to) == nil }

// fieldsOf reads name=JSON, separated by spaces.
func fieldsOf(text string) map[string]json.RawMessage {
	out := map[string]json.RawMessage{}
	for _, part := range strings.Fields(text) {
		name, value, _ := strings.Cut(part, "=")
		out[name] = json.RawMessage(value)
	}
	return out
}
