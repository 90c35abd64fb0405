package load

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/bits"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"

	"servebench/sse"
	"servebench/verify"
)

// Target is a server that somebody else started: anything that streams in
// OpenAI's dialect. Its zero value but for URL is ready.
type Target struct {
	URL   string // http://host:port, with or without a slash, /v1 or a path before it
	API   string // "completions", which "" means, or "chat"
	Model string // "" means the only one that it serves

	KeyFrom  string                     // environment variable with an API key, sent as Authorization: Bearer; "" for none
	Header   http.Header                // sent with each request; only the names are recorded
	Fields   map[string]json.RawMessage // of each request's body; null leaves one out
	Insecure bool                       // accept any certificate
	Reuse    bool                       // keep connections for later requests
	Proxy    func(*http.Request) (*url.URL, error)

	InexactInput bool  // measure though the prompts' length can't be proven; the axis must say so
	Unsalted     bool  // send prompts as they stand, and again and again
	Seed         int64 // of the salts; 0 means a random one
	OwnPrompts   bool  // Options.Corpus is the user's own, whose texts must not be changed

	key       string
	client    *sse.Client
	dialect   *dialect
	tokenizer *sse.Tokenizer
	evidence  *verify.Target
	pool      []int32
	trace     []verify.Due // that will be replayed, nil for none
	used      map[int]int  // prompts of each length that were sent, where each is sent once
	warmed    map[int]int  // the same of warmups
	sent      map[[sha256.Size]byte]bool
}

// APIs that a target may have.
const (
	apiCompletions = "completions"
	apiChat        = "chat"
)

// open finds out how t is asked and which prompts it can have, and returns the
// corpus. inputs are the lengths that will be wanted, base the prompts to make
// them from or, with OwnPrompts, to take.
func (t *Target) open(ctx context.Context, clock *sse.Clock, idle time.Duration, inputs []int, base *verify.Corpus) (*verify.Corpus, error) {
	if t.API == "" {
		t.API = apiCompletions
	}
	if t.API != apiCompletions && t.API != apiChat {
		return nil, fmt.Errorf("load: target: API %q, want %q or %q", t.API, apiCompletions, apiChat)
	}
	if u, err := url.Parse(t.URL); err == nil && u.User != nil {
		return nil, errors.New("load: target: the URL has a user's name or password, which would be recorded: put them into a header, or a key into an environment variable (-key-env, Target.KeyFrom)")
	}
	endpoint, err := sse.Endpoint(t.URL, "models")
	if err != nil {
		return nil, fmt.Errorf("load: target: %w", err)
	}
	if err := t.checkFields(); err != nil {
		return nil, err
	}
	header, err := t.headers()
	if err != nil {
		return nil, err
	}
	t.Proxy = abroad(t.Proxy)
	t.client = &sse.Client{
		BaseURL: t.URL, Model: t.Model, Clock: clock, Idle: idle, Chat: t.API == apiChat,
		Header: header, Fields: t.Fields, Proxy: t.Proxy, Insecure: t.Insecure,
	}
	t.evidence = &verify.Target{
		URL: t.URL, API: t.API, Reuse: t.Reuse, Insecure: t.Insecure, KeyFrom: t.KeyFrom,
		Headers: slices.Sorted(maps.Keys(t.Header)), Repeats: t.Unsalted,
	}
	for _, name := range slices.Sorted(maps.Keys(t.Fields)) {
		t.evidence.Fields = append(t.evidence.Fields, verify.Field{Name: name, Value: string(t.Fields[name])})
	}
	if t.Proxy != nil {
		request, err := http.NewRequest(http.MethodPost, endpoint, nil)
		if err == nil {
			var proxy *url.URL
			proxy, err = t.Proxy(request)
			t.evidence.Proxied = proxy != nil
		}
		if err != nil {
			return nil, fmt.Errorf("load: target: proxy: %s", userInfo.ReplaceAllString(err.Error(), "://[not recorded]@"))
		}
	}
	if err := t.findModel(ctx); err != nil {
		return nil, t.hide(err)
	}
	if t.dialect, err = learn(ctx, t.client, probeIDs(base)); err != nil {
		return nil, t.hide(err)
	}
	t.evidence.Optional = t.dialect.fields
	corpus, err := t.choosePrompts(ctx, inputs, base)
	if err != nil {
		return nil, t.hide(err)
	}
	if !t.Unsalted && t.evidence.Prompts != verify.PromptsFile {
		if t.Seed == 0 {
			t.Seed = RandomSeed()
		}
		t.evidence.SaltSeed = t.Seed
	}
	t.pool = corpus.Pool()
	t.used, t.warmed, t.sent = map[int]int{}, map[int]int{}, map[[sha256.Size]byte]bool{}
	return corpus, nil
}

// userInfo is a user's name and password within a URL.
var userInfo = regexp.MustCompile(`://[^/\s"]*@`)

// ownFields are members of a request's body that the benchmark itself sets,
// each with how to say what it is.
var ownFields = map[string]string{
	"model":            "-model (Target.Model)",
	"prompt":           "-prompts (Options.Corpus)",
	"messages":         "-prompts (Options.Corpus)",
	"stream":           "nothing: only a stream can be measured",
	"n":                "-conc (Cell.Conc): a request has one answer",
	"best_of":          "-conc (Cell.Conc): a request has one answer",
	fieldMaxTokens:     "-output-tokens (Cell.OutputTokens); null leaves it out",
	fieldMaxCompletion: "-output-tokens (Cell.OutputTokens); null leaves it out",
}

// checkFields refuses fields that would make the record untrue.
func (t *Target) checkFields() error {
	for _, name := range slices.Sorted(maps.Keys(t.Fields)) {
		bounds := name == fieldMaxTokens || name == fieldMaxCompletion
		if way, own := ownFields[name]; own && !(bounds && isNull(t.Fields[name])) {
			return fmt.Errorf("load: target: field %s is the benchmark's own: what says it is %s", name, way)
		}
	}
	return nil
}

// ownHeaders are the transport's, which would send its own in place of them.
var ownHeaders = []string{"Host", "Content-Length", "Transfer-Encoding", "Connection", "Trailer", "Accept-Encoding", "X-Request-Id"}

// headers returns what is sent with each request: the user's and the key.
func (t *Target) headers() (http.Header, error) {
	header := http.Header{}
	for _, name := range slices.Sorted(maps.Keys(t.Header)) {
		if slices.Contains(ownHeaders, http.CanonicalHeaderKey(name)) {
			return nil, fmt.Errorf("load: target: header %s is set by the client itself, leave it out", name)
		}
		for _, value := range t.Header[name] {
			if strings.ContainsFunc(value, unicode.IsControl) {
				return nil, fmt.Errorf("load: target: header %s has a control character, a line break say", name)
			}
			header.Add(name, value)
		}
	}
	if t.KeyFrom == "" {
		return header, nil
	}
	if !environmentName.MatchString(t.KeyFrom) {
		return nil, errors.New("load: target: what should be the name of an environment variable (-key-env, Target.KeyFrom) isn't one; if it is the key itself, put it into a variable: the name is recorded, the key never")
	}
	t.key = strings.TrimSpace(os.Getenv(t.KeyFrom))
	switch {
	case t.key == "":
		return nil, fmt.Errorf("load: target: the environment variable %s, which should hold the API key, is empty", t.KeyFrom)
	case strings.ContainsFunc(t.key, unicode.IsControl):
		return nil, fmt.Errorf("load: target: the API key in the environment variable %s has a control character, a line break say", t.KeyFrom)
	case header["Authorization"] != nil:
		return nil, errors.New("load: target: both a key (-key-env, Target.KeyFrom) and a header Authorization: leave one out")
	}
	header.Set("Authorization", "Bearer "+t.key)
	return header, nil
}

var environmentName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)

func isNull(value json.RawMessage) bool { return strings.TrimSpace(string(value)) == "null" }

// abroad keeps requests to this machine from any proxy, however the machine
// is written: what a proxy calls localhost is another one.
func abroad(proxy func(*http.Request) (*url.URL, error)) func(*http.Request) (*url.URL, error) {
	if proxy == nil {
		return nil
	}
	return func(request *http.Request) (*url.URL, error) {
		host := strings.ToLower(strings.TrimSuffix(request.URL.Hostname(), "."))
		ip, err := netip.ParseAddr(host)
		if host == "localhost" || strings.HasSuffix(host, ".localhost") || err == nil && (ip.Unmap().IsLoopback() || ip.IsUnspecified()) {
			return nil, nil
		}
		return proxy(request)
	}
}

// RandomSeed draws a seed above 0 that a float64 holds exactly.
func RandomSeed() int64 {
	var b [8]byte
	rand.Read(b[:])
	return int64(binary.LittleEndian.Uint64(b[:])>>12) + 1
}

// findModel asks for the models. Not every server has a list of them.
func (t *Target) findModel(ctx context.Context) error {
	models, software, err := t.client.Models(ctx)
	t.evidence.Software = t.hideIn(legible(software))
	if t.Model == "" {
		switch {
		case err != nil:
			return whichModel(err)
		case len(models) > 1:
			return fmt.Errorf("load: target: which model? -model (Target.Model) names one of the %d that it serves: %s", len(models), strings.Join(models[:min(len(models), 20)], ", "))
		}
		t.Model = models[0]
		t.client.Model = t.Model
		if t.Model != t.hideIn(t.Model) {
			return errors.New("load: target: the only model that it lists has the API key or a header's value in its name, which would be recorded: -model (Target.Model) names it all the same")
		}
	}
	if strings.ContainsFunc(t.Model, unicode.IsControl) || t.Model != strings.TrimSpace(t.Model) {
		return fmt.Errorf("load: target: model %q has a control character or a blank at an end, which no benchmark line can show", t.Model)
	}
	t.evidence.Model = t.Model
	return nil
}

// legible bounds what a server calls itself and takes out what isn't text.
func legible(text string) string {
	const most = 200
	text = strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return -1
		}
		return r
	}, strings.ToValidUTF8(text, "�"))
	return strings.ToValidUTF8(text[:min(len(text), most)], "")
}

// whichModel says what to do where no list of models is to be had.
func whichModel(err error) error {
	status := new(sse.StatusError)
	switch {
	case !errors.As(err, &status) && !errors.Is(err, sse.ErrNoModels):
		return noAnswer(err.Error(), remedy(0, err.Error()))
	case status.Status != 0 && remedy(status.Status, "") != "":
		return noAnswer(err.Error(), remedy(status.Status, ""))
	}
	return fmt.Errorf("load: target: which model? -model (Target.Model) names it, for the server doesn't: %w", err)
}

// hide takes secrets out of an error's text, where a server repeats them.
func (t *Target) hide(err error) error {
	if text := t.hideIn(err.Error()); text != err.Error() {
		return errors.New(text)
	}
	return err
}

// shortest is how long a key is at least, in bytes, and shortestValue the value
// of a header that could be a secret: "true" is none, and answers have it.
const (
	shortest      = 4
	shortestValue = 6
)

// secrets are the key and the values of the user's headers, and of those that
// have a scheme before it, the rest.
func (t *Target) secrets() (list []string) {
	if len(t.key) >= shortest {
		list = append(list, t.key)
	}
	add := func(secret string) {
		if len(secret) >= shortestValue {
			list = append(list, secret)
		}
	}
	for _, values := range t.Header {
		for _, value := range values {
			value = strings.TrimSpace(value)
			add(value)
			if _, token, found := strings.Cut(value, " "); found {
				add(strings.TrimSpace(token))
			}
		}
	}
	slices.SortFunc(list, func(a, b string) int { return len(b) - len(a) }) // one may be part of another
	return list
}

const notRecorded = "[not recorded]"

// hideIn takes secrets out of what a server says, as they are or as JSON, a
// URL or Go would write them. Text that was cut off may end within one.
func (t *Target) hideIn(text string) string {
	for _, secret := range t.secrets() {
		quoted, _ := json.Marshal(secret) // of a string it can't fail
		for _, form := range []string{secret, strings.Trim(string(quoted), `"`), strings.Trim(strconv.Quote(secret), `"`), url.QueryEscape(secret), url.PathEscape(secret)} {
			text = strings.ReplaceAll(text, form, notRecorded)
			if cut, is := strings.CutSuffix(text, "…"); is {
				for n := len(form) - 1; n >= shortest; n-- {
					if rest, ends := strings.CutSuffix(cut, form[:n]); ends {
						text = rest + notRecorded + "…"
						break
					}
				}
			}
		}
	}
	return text
}

// hideAll takes secrets out of all that a server said in a request.
func (t *Target) hideAll(r *verify.Request) {
	r.Text, r.Reasoning, r.Finish = t.hideIn(r.Text), t.hideIn(r.Reasoning), t.hideIn(r.Finish)
	if r.Failure != nil {
		r.Failure.Message = t.hideIn(r.Failure.Message)
	}
}

// choosePrompts settles how the length of prompts is known, the best way
// first.
func (t *Target) choosePrompts(ctx context.Context, inputs []int, base *verify.Corpus) (*verify.Corpus, error) {
	var noTokenizer error
	if t.trace != nil && t.OwnPrompts {
		return nil, errors.New("load: a file of prompts (-prompts, Target.OwnPrompts) can't serve a trace, which needs a prompt of each of its lengths: leave it out, and they are made")
	}
	switch {
	case t.InexactInput:
		t.evidence.Prompts = verify.PromptsInexact
		if t.OwnPrompts {
			return base, hasTexts(base, inputs)
		}
		return textCorpus(base, t.trace, inputs), nil
	case t.dialect.ids && (!t.OwnPrompts || hasIDs(base, inputs)):
		t.evidence.Prompts = verify.PromptsIDs
		if t.OwnPrompts {
			return base, nil
		}
		return idCorpus(base, t.trace, inputs)
	case t.OwnPrompts:
		t.evidence.Prompts = verify.PromptsFile
		return base, hasTexts(base, inputs)
	}
	if t.tokenizer, noTokenizer = t.client.Tokenizer(ctx); noTokenizer == nil {
		noTokenizer = t.agrees(ctx)
	}
	if noTokenizer != nil {
		return nil, fmt.Errorf("load: the length of a prompt can't be proven, for the target neither takes ids nor counts tokens (%w). Make prompts for its tokenizer with go run ./smol/prompts and name them with -prompts, or measure with -inexact-input (Target.InexactInput)", noTokenizer)
	}
	t.evidence.Prompts = verify.PromptsTokenize
	corpus := textCorpus(base, t.trace, inputs)
	if !t.Unsalted {
		return corpus, nil
	}
	for i := range corpus.Prompts { // then they are made to measure once
		p := &corpus.Prompts[i]
		text, err := fit(ctx, t.tokenizer, "", p.Text, p.Input)
		if err != nil {
			return nil, fmt.Errorf("load: prompt %s: %w", p.ID, err)
		}
		p.Text = text
	}
	return seal(corpus.Prompts), nil
}

// agrees holds the target's /tokenize against its usage of the same text.
func (t *Target) agrees(ctx context.Context) error {
	n, err := t.tokenizer.Count(ctx, probeText)
	if err == nil && n != t.dialect.counted {
		err = fmt.Errorf("its /tokenize counts %d tokens for %q, but its usage %d", n, probeText, t.dialect.counted)
		if t.dialect.counted == 0 {
			err = errors.New("its answers have no usage, which would confirm its /tokenize")
		}
	}
	return err
}

// outgoing is a prompt and what a request has of it.
type outgoing struct {
	prompt *verify.Prompt
	text   string  // SentText
	ids    []int32 // SentIDs
}

// ask returns what is sent.
func (t *Target) ask(o *outgoing, outputTokens int) sse.Ask {
	a := sse.Ask{Prompt: o.prompt.Text, OutputTokens: outputTokens}
	switch {
	case o.ids != nil:
		a.PromptIDs = o.ids
	case o.text != "":
		a.Prompt = o.text
	case t.evidence.Prompts == verify.PromptsIDs:
		a.PromptIDs = o.prompt.IDs
	}
	return t.dialect.ask(a)
}

// salt makes what request sends of prompt, which is what no request before it
// had. It may ask the server.
func (t *Target) salt(ctx context.Context, request string, prompt *verify.Prompt) (outgoing, error) {
	for draw := range verify.Draws {
		out, err := t.draw(ctx, verify.Draw(request, draw), prompt)
		if err != nil {
			return out, t.hide(fmt.Errorf("load: prompt %s: %w", prompt.ID, err))
		}
		if t.Unsalted || t.first(&out) {
			return out, nil
		}
	}
	return outgoing{}, fmt.Errorf("load: prompts of %d tokens run out, for each was sent before: measure longer ones (-input), or send them again and again (-unsalted, Target.Unsalted), if no cache can answer", prompt.Input)
}

// draw makes what is sent of prompt with the salt of one draw.
func (t *Target) draw(ctx context.Context, draw string, prompt *verify.Prompt) (out outgoing, err error) {
	out.prompt = prompt
	seed := t.evidence.SaltSeed
	switch {
	case seed == 0:
	case t.evidence.Prompts == verify.PromptsIDs:
		out.ids = verify.SaltedIDs(seed, draw, prompt.IDs, t.pool)
	case t.evidence.Prompts == verify.PromptsInexact:
		out.text = verify.SaltedText(seed, draw, prompt.Text)
	default:
		out.text, err = fit(ctx, t.tokenizer, verify.SaltText(seed, draw), prompt.Text, prompt.Input)
	}
	return out, err
}

// first notes what is sent, and reports whether it never was before.
func (t *Target) first(o *outgoing) bool {
	sum := verify.SentSum(o.prompt, o.text, o.ids)
	before := t.sent[sum]
	t.sent[sum] = true
	return !before
}

// ample is how many bits of salt make it certain enough that no request sends
// what another did.
const ample = 48

// counted says whether all passes have to be prepared before the first: asking
// the server between two of them would make a pause that counts as its own,
// and prompts of a file, or salts of few ids, may run out.
func (t *Target) counted(input int) bool {
	if t.Unsalted {
		return false
	}
	switch t.evidence.Prompts {
	case verify.PromptsFile, verify.PromptsTokenize:
		return true
	case verify.PromptsIDs:
		return min(input, verify.SaltIDs)*(bits.Len(uint(len(t.pool)))-1) < ample
	}
	return false
}
