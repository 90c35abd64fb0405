package verify

import (
	"os"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// SCHEMA.md has a table for every type of schema.go, with its fields in their
// order and no others.
func TestSchemaPageIsComplete(t *testing.T) {
	data, err := os.ReadFile("SCHEMA.md")
	if err != nil {
		t.Fatal(err)
	}
	have := fieldTables(string(data))
	want := map[string][]string{}
	for kind, record := range map[string]any{
		KindHeader: Header{}, KindCorpus: Corpus{}, KindServer: Server{}, KindPlan: Plan{}, KindRequest: Request{},
		KindClient: Client{}, KindServed: Served{}, KindMemory: Memory{}, KindConfiguration: Configuration{}, KindSaturation: Saturation{},
		KindTrailer: Trailer{},
	} {
		collectFields(kind, reflect.TypeOf(record), want)
	}
	for name, fields := range want {
		if !slices.Equal(have[name], fields) {
			t.Errorf("section %s has the fields\n%q, schema.go has\n%q", name, have[name], fields)
		}
	}
	for name := range have {
		if want[name] == nil {
			t.Errorf("section %s is about no type of schema.go", name)
		}
	}
	for _, unit := range slices.Concat(Units(), TargetUnits(), OpenUnits(), SaturationUnits()) {
		if !strings.Contains(string(data), "| `"+unit+"` |") {
			t.Errorf("unit %s has no definition", unit)
		}
	}
	if !strings.Contains(string(data), "# Evidence: schema "+Schema+"\n") {
		t.Errorf("the page is not about %s", Schema)
	}
}

// collectFields adds the JSON names of a type and of those that it is made of,
// each under its name in lower case; records go by their kind.
func collectFields(name string, typ reflect.Type, into map[string][]string) {
	for i := range typ.NumField() {
		field := typ.Field(i)
		json, options, _ := strings.Cut(field.Tag.Get("json"), ",")
		if options != "" {
			json += " opt"
		}
		into[name] = append(into[name], json)
		inner := field.Type
		for inner.Kind() == reflect.Slice || inner.Kind() == reflect.Pointer {
			inner = inner.Elem()
		}
		if sub := strings.ToLower(inner.Name()); inner.Kind() == reflect.Struct && into[sub] == nil {
			collectFields(sub, inner, into)
		}
	}
}

var heading = regexp.MustCompile(`^##+ (\w+)$`)
var fieldRow = regexp.MustCompile("^\\| `(\\w+)` \\| ?(\\*opt\\*)?")

// fieldTables reads the tables that begin with "| field |".
func fieldTables(page string) map[string][]string {
	tables := map[string][]string{}
	section, inTable := "", false
	for line := range strings.Lines(page) {
		line = strings.TrimSuffix(line, "\n")
		if m := heading.FindStringSubmatch(line); m != nil {
			section = m[1]
		}
		if strings.HasPrefix(line, "| field |") {
			inTable = true
		}
		inTable = inTable && strings.HasPrefix(line, "|")
		if m := fieldRow.FindStringSubmatch(line); inTable && m != nil {
			name := m[1]
			if m[2] != "" {
				name += " opt"
			}
			tables[section] = append(tables[section], name)
		}
	}
	return tables
}
