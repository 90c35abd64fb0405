package verify

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
)

// informational are the fields that can be changed, each by itself, without
// anything else in the file contradicting it, and why that is so: no number
// follows from them. A name that ends in * stands for all that begin with it.
// TestEveryFieldBears proves that the list is complete, and that each of its
// entries has to be there.
var informational = map[string]string{
	"header.run":            "a name; the file's own",
	"header.revision":       "where the code came from is a claim; a build that says otherwise has another binary hash",
	"header.clean_tree":     "as header.revision",
	"header.go":             "of the client, whose stamps and not whose speed are recorded",
	"header.modules*":       "as header.go",
	"header.flags*":         "what a flag did is recorded where it bears: axes, output_tokens, hourly_usd",
	"header.order_seed":     "half of all seeds give two configurations the order that they have; more have fewer such seeds",
	"header.host.*":         "what the machine was is a claim; os and arch are held against printed lines",
	"header.warnings*":      "doubts in words",
	"header.clock.base_ns":  "ties stamps to the machine's uptime; both witnesses are on one scale already",
	"header.clock.error_ns": "a tolerance, at most 1 ms: within it, any smaller one is as good",
	"corpus.name":           "a name; the hash tells corpora apart",
	"corpus.prompts":        "their order in the corpus's file; the plan has its own",
	"corpus.prompts[].text": "what it means in ids is the tokenizer's to say; the reference is held against the committed corpus",
	"server.pid":            "a name",
	"server.ready_ns":       "before the plan is all that matters of it",
	"server.load_ns":        "not a metric; at most ready_ns",
	"server.clock_error_ns": "as header.clock.error_ns",
	"server.huge_pages":     "what the kernel gave; another server's that differ are warned of",
	"server.spinning":       "a setting, which follows from the number of threads and so may differ between servers",
	"memory.time_ns[]":      "each between its neighbours: no number is taken over time",
	"memory.rss_bytes":      "which sample came first: maximum and sum are the same",
	"request order":         "records of one configuration are written as they come",
	"request and served":    "as request order",
	"served order":          "as request order",
	"served and memory":     "as request order",
	"trailer.end_ns":        "after the last configuration is all that matters of it; a gap to the wall clock is warned of",

	// A failed request makes its configuration invalid, which then has no
	// numbers. Its stamps, ids and counts are held together all the same.
	"failed request.finish":            "what was last heard",
	"failed request.prompt_ids":        "as far as it got",
	"failed request.reasoning":         "as far as it got",
	"failed request.reused":            "how it was connected",
	"failed request.status":            "any code but 200 is that failure",
	"failed request.text":              "as far as it got",
	"failed request.usage":             "as far as it got",
	"failed request.failure.message":   "words",
	"failed served.error":              "words",
	"failed served.prompt_ids":         "a request that was refused before it was read to its end",
	"failed served.token_ns[]":         "of tokens that no client got",
	"invalid configuration.passes":     "a pass that was begun",
	"invalid configuration.peak_bytes": "not a metric of it",
	"invalid configuration.reasons*":   "words",
}

// ofTheReference are those that the reference run has besides.
var ofTheReference = map[string]string{
	"memory and request": "records of one configuration are written as they come",
	"request and memory": "as memory and request",
	"plan.gomaxprocs":    "held against the suffix of the printed name; with a second repetition also against its number",
	"plan.prompts":       "which of the first conc prompts came first: they start together",
}

func informs(path string) (entry string) {
	if informational[path] != "" {
		return path
	}
	for entry := range informational {
		if prefix, wild := strings.CutSuffix(entry, "*"); wild && strings.HasPrefix(path, prefix) {
			return entry
		}
	}
	return ""
}

// A mutation changes one thing in a record; undo puts it back.
type mutation struct {
	path string // with [] for any index
	what string
	do   func()
	undo func()
}

// mutations lists what can be changed in v, which is settable, and below it.
func mutations(path string, v reflect.Value, list *[]mutation) {
	add := func(what string, changed reflect.Value) {
		saved := reflect.New(v.Type()).Elem()
		saved.Set(v)
		*list = append(*list, mutation{path, what, func() { v.Set(changed) }, func() { v.Set(saved) }})
	}
	of := func(x any) reflect.Value { return reflect.ValueOf(x).Convert(v.Type()) }
	switch v.Kind() {
	case reflect.Int, reflect.Int32, reflect.Int64:
		n := v.Int()
		for what, to := range map[string]int64{"+1": n + 1, "-1": n - 1, "*2": n * 2, "negated": -n, "0": 0} {
			if to != n {
				add(what, of(to))
			}
		}
	case reflect.Float64:
		x := v.Float()
		for what, to := range map[string]float64{"next": math.Nextafter(x, math.Inf(1)), "+1": x + 1, "*2": x * 2, "negated": -x, "0": 0} {
			if to != x {
				add(what, of(to))
			}
		}
	case reflect.Bool:
		add("flipped", of(!v.Bool()))
	case reflect.String:
		s := v.String()
		add("appended to", of(s+"x"))
		if s != "" {
			add("emptied", of(""))
			add("cut", of(s[:len(s)-1]))
			add("first letter changed", of(string(rune('a'+(s[0]-'a'+1)%26))+s[1:]))
		}
	case reflect.Pointer:
		if v.IsNil() {
			add("made", reflect.New(v.Type().Elem()))
			return
		}
		add("dropped", reflect.Zero(v.Type()))
		mutations(path, v.Elem(), list)
	case reflect.Slice:
		n := v.Len()
		part := func(from, to int) reflect.Value { return v.Slice(from, to) }
		join := func(parts ...reflect.Value) reflect.Value {
			out := reflect.MakeSlice(v.Type(), 0, n+1)
			for _, p := range parts {
				out = reflect.AppendSlice(out, p)
			}
			return out
		}
		zero := reflect.MakeSlice(v.Type(), 1, 1)
		add("with one inserted", join(part(0, n/2), zero, part(n/2, n)))
		if n == 0 {
			return
		}
		add("emptied", reflect.Zero(v.Type()))
		for _, i := range ends(n) {
			add(fmt.Sprintf("without [%d]", i), join(part(0, i), part(i+1, n)))
			add(fmt.Sprintf("with [%d] twice", i), join(part(0, i+1), part(i, n)))
			if i+1 < n {
				add(fmt.Sprintf("with [%d] and [%d] swapped", i, i+1), join(part(0, i), part(i+1, i+2), part(i, i+1), part(i+2, n)))
			}
			mutations(path+"[]", v.Index(i), list)
		}
	case reflect.Struct:
		for i := range v.NumField() {
			name, _, _ := strings.Cut(v.Type().Field(i).Tag.Get("json"), ",")
			mutations(path+"."+name, v.Field(i), list)
		}
	default:
		panic("no mutation for " + v.Kind().String())
	}
}

// ends returns the first, a middle and the last index.
func ends(n int) []int { return slices.Compact([]int{0, n / 2, n - 1}) }

// lines is a file as its encoded records, so that one can be replaced.
type lines struct {
	records []any
	encoded [][]byte
	trailer Trailer
}

func linesOf(f *file) *lines {
	l := &lines{records: f.records, trailer: f.trailer}
	for _, r := range f.records {
		l.encoded = append(l.encoded, line(r))
	}
	return l
}

// join gives the bytes of the file, its records in an order, with a trailer
// that fits.
func (l *lines) join(order []int) []byte {
	trailer := l.trailer
	var out bytes.Buffer
	for _, i := range order {
		out.Write(l.encoded[i])
		trailer.Records++
		switch r := l.records[i].(type) {
		case *Request:
			trailer.Requests++
			if r.Failure != nil {
				trailer.Failed++
			}
			n, _ := r.Tokens()
			trailer.Tokens += int64(n)
		case *Configuration:
			trailer.Configurations++
			if !r.Valid {
				trailer.Invalid++
			}
		}
	}
	sum := sha256.Sum256(out.Bytes())
	trailer.SHA256 = hex.EncodeToString(sum[:])
	out.Write(line(&trailer))
	return out.Bytes()
}

// TestEveryFieldBears changes every field of every kind of record, one at a
// time, with all hashes and counts made right again, and expects the file to
// be refused unless the field is informational. Then it deletes, doubles and
// swaps whole records.
func TestEveryFieldBears(t *testing.T) {
	used := everyFieldBears(t, linesOf(goodAndBad()), nil)
	for _, path := range slices.Sorted(maps.Keys(informational)) {
		if !used[path] && stride == 1 {
			t.Errorf("%s is called informational, but every change of it was noticed", path)
		}
	}
}

// TestEveryFieldOfTheReferenceBears does the same to the committed reference
// run.
func TestEveryFieldOfTheReferenceBears(t *testing.T) {
	if testing.Short() {
		t.Skip("thousands of replays of a whole run")
	}
	paths, err := filepath.Glob(filepath.Join("..", "testdata", "reference", "*.jsonl"))
	if err != nil || len(paths) == 0 {
		t.Fatalf("no reference run: %v", err)
	}
	data, err := os.ReadFile(paths[0])
	if err != nil {
		t.Fatal(err)
	}
	l := &lines{}
	for text := range bytes.Lines(data) {
		record := newRecord(t, text)
		if trailer, ok := record.(*Trailer); ok {
			l.trailer = Trailer{Kind: trailer.Kind, Ended: trailer.Ended, EndNS: trailer.EndNS}
			break
		}
		l.records = append(l.records, record)
		l.encoded = append(l.encoded, bytes.Clone(text))
	}
	more := maps.Clone(ofTheReference)
	maps.Copy(more, claims) // of a client
	everyFieldBears(t, l, more)
}

// everyFieldBears tries the mutations of one file and returns the entries of
// the list that let one pass. What is in more may pass, too.
func everyFieldBears(t *testing.T, l *lines, more map[string]string) (used map[string]bool) {
	all := make([]int, len(l.records))
	for i := range all {
		all[i] = i
	}
	if report := replayed(t, l.join(all)); report.Verdict != Consistent {
		t.Fatalf("unchanged: %v, %v", report.Verdict, report.Err())
	}
	survived := map[string][]string{}
	tried := 0
	try := func(path, what string, data []byte) {
		if tried++; tried%stride != 0 {
			return
		}
		if report := replayed(t, data); report.Verdict == Consistent {
			if len(survived[path]) < 4 {
				survived[path] = append(survived[path], what)
			}
		}
	}
	chosen := chosenRecords(l.records)
	for _, i := range chosen {
		record := l.records[i]
		kept := l.encoded[i]
		kind, _ := recordKind(kept)
		var list []mutation
		mutations(kind, reflect.ValueOf(record).Elem(), &list)
		for _, m := range list {
			m.do()
			undo := sealed(record, m.path)
			l.encoded[i] = line(record)
			if !bytes.Equal(l.encoded[i], kept) {
				try(label(record, m.path), m.what, l.join(all))
			}
			l.encoded[i] = kept
			undo()
			m.undo()
		}
	}
	data := l.join(all)
	cut := bytes.LastIndex(data, []byte(`{"kind":"trailer"`))
	trailer := newRecord(t, data[cut:]).(*Trailer)
	var list []mutation
	mutations(KindTrailer, reflect.ValueOf(trailer).Elem(), &list)
	for _, m := range list {
		m.do()
		try(m.path, m.what, append(bytes.Clone(data[:cut]), line(trailer)...))
		m.undo()
	}
	for i := range all {
		kind, _ := recordKind(l.encoded[i])
		kind = label(l.records[i], kind)
		try(kind, "deleted", l.join(slices.Delete(slices.Clone(all), i, i+1)))
		try(kind, "doubled", l.join(slices.Insert(slices.Clone(all), i, i)))
		if i+1 < len(all) {
			order := slices.Clone(all)
			order[i], order[i+1] = order[i+1], order[i]
			a, _ := recordKind(l.encoded[i])
			b, _ := recordKind(l.encoded[i+1])
			if a == b {
				a += " order"
			} else {
				a += " and " + b
			}
			try(a, "swapped", l.join(order))
		}
	}
	used = map[string]bool{}
	for _, path := range slices.Sorted(maps.Keys(survived)) {
		entry := informs(path)
		if entry == "" {
			entry = path
		}
		if used[entry] = true; entry == path && informational[path] == "" && more[path] == "" {
			t.Errorf("%s can be changed unnoticed: %s", path, strings.Join(survived[path], ", "))
		}
	}
	t.Logf("%d mutations, %d informational fields", tried, len(informational))
	return used
}

// sealed makes the hashes within a corpus right again after a change of
// anything else in it, and returns what puts the old ones back.
func sealed(record any, path string) (undo func()) {
	c, ok := record.(*Corpus)
	if !ok || strings.HasSuffix(path, "sha256") || strings.HasSuffix(path, "bytes") {
		return func() {}
	}
	prompts := slices.Clone(c.Prompts)
	before := *c
	seal(c)
	return func() {
		copy(before.Prompts, prompts)
		*c = before
	}
}

// label tells the records of failed requests and invalid configurations apart:
// no number rests on them.
func label(record any, path string) string {
	switch r := record.(type) {
	case *Request:
		if r.Failure != nil {
			return "failed " + path
		}
	case *Served:
		if slices.Contains([]string{"4.1.0", "4.1.2", "3.0.4", "3.0.5", "4.0.3"}, r.ID) {
			return "failed " + path
		}
	case *Configuration:
		if !r.Valid {
			return "invalid " + path
		}
	}
	return path
}

// chosenIDs are requests that differ from each other; those with a place above
// 2 are of open loops.
var chosenIDs = []string{"1.w.0", "1.0.0", "3.1.1", "4.1.0", "4.1.2", "1.1.4", "1.1.8", "3.0.4", "4.0.3", "4.0.7"}

// chosenRecords picks records of every kind; of those of one kind that only
// repeat each other, some.
func chosenRecords(records []any) (chosen []int) {
	for i, record := range records {
		take := true
		switch r := record.(type) {
		case *Request:
			take = slices.Contains(chosenIDs, r.ID)
		case *Served:
			take = slices.Contains(chosenIDs, r.ID)
		case *Memory:
			take = r.Config == 1
		case *Plan:
			take = r.Config != 2
		case *Configuration:
			take = r.Config != 2
		}
		if take {
			chosen = append(chosen, i)
		}
	}
	return chosen
}
