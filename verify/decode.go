package verify

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
)

// decoder reads records strictly. A record is accepted only in the one form
// that encoding/json gives it, so that no field is unknown, double, spelled
// another way or hidden behind the end.
type decoder struct {
	again   bytes.Buffer
	encoder *json.Encoder // into again
}

func newDecoder() *decoder {
	d := &decoder{}
	d.encoder = json.NewEncoder(&d.again)
	return d
}

// decode fills v, a pointer to a record, from line, which has no newline.
func (d *decoder) decode(line []byte, v any) error {
	if err := json.Unmarshal(line, v); err != nil {
		return errors.New(describeJSON(line, err))
	}
	d.again.Reset()
	if err := d.encoder.Encode(v); err != nil {
		return err // of a value that was read a moment ago: there is none
	}
	again := d.again.Bytes()
	again = again[:len(again)-1]
	if bytes.Equal(again, line) {
		return nil
	}
	strict := json.NewDecoder(bytes.NewReader(line))
	strict.DisallowUnknownFields()
	if err := strict.Decode(v); err != nil {
		return errors.New(strings.TrimPrefix(err.Error(), "json: "))
	}
	at := 0
	for at < min(len(again), len(line)) && again[at] == line[at] {
		at++
	}
	return fmt.Errorf("not in canonical form at byte %d: have %s, want %s", at, excerpt(line, at), excerpt(again, at))
}

// recordKind returns the kind of a canonical record, which begins with it.
func recordKind(line []byte) (kind string, ok bool) {
	rest, ok := bytes.CutPrefix(line, []byte(`{"kind":"`))
	if !ok {
		return "", false
	}
	value, _, ok := bytes.Cut(rest[:min(len(rest), 40)], []byte(`"`))
	return string(value), ok
}

func excerpt(line []byte, at int) string {
	at = min(at, len(line))
	return fmt.Sprintf("%q", line[max(0, at-24):min(len(line), at+24)])
}

// recordAt names a record that can't be decoded, as well as its text allows.
func recordAt(line []byte) string {
	kind, _ := recordKind(line)
	switch kind {
	case KindRequest, KindServed:
		if _, rest, found := bytes.Cut(line, []byte(`"id":"`)); found {
			id, _, _ := bytes.Cut(rest[:min(len(rest), 100)], []byte(`"`))
			return kind + " " + string(id)
		}
	case KindSaturation:
		if _, rest, found := bytes.Cut(line, []byte(`"name":"`)); found {
			name, _, _ := bytes.Cut(rest[:min(len(rest), 200)], []byte(`"`))
			return kind + " " + string(name)
		}
	case KindPlan, KindConfiguration, KindMemory:
		if _, rest, found := bytes.Cut(line, []byte(`"config":`)); found {
			config, _, _ := bytes.Cut(rest[:min(len(rest), 20)], []byte(`,`))
			return kind + " " + string(config)
		}
	}
	return kind
}

// describeJSON adds to an error of encoding/json the field where it stands.
func describeJSON(line []byte, err error) string {
	var syntax *json.SyntaxError
	var typed *json.UnmarshalTypeError
	switch {
	case errors.As(err, &typed):
		return fmt.Sprintf("field %q: %s doesn't fit its type %s", typed.Field, typed.Value, typed.Type)
	case errors.As(err, &syntax):
	default:
		return err.Error()
	}
	at := min(int(syntax.Offset), len(line))
	field := ""
	if end := bytes.LastIndex(line[:at], []byte(`":`)); end >= 0 {
		if begin := bytes.LastIndexByte(line[:end], '"'); begin >= 0 {
			field = string(line[begin+1 : end])
		}
	}
	return fmt.Sprintf("field %q: %v at byte %d, near %s", field, err, syntax.Offset, excerpt(line, max(0, at-1)))
}
