package load

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"
	"time"

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
	used      map[int]int // prompts of each length that were sent, where each is sent once
	warmed    map[int]int // the same of warmups
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
	header := t.Header.Clone()
	if t.KeyFrom != "" {
		if t.key = os.Getenv(t.KeyFrom); t.key == "" {
			return nil, fmt.Errorf("load: target: the environment variable %s, which should hold the API key, is empty", t.KeyFrom)
		}
		if header == nil {
			header = http.Header{}
		}
		header.Set("Authorization", "Bearer "+t.key)
	}
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
			return nil, fmt.Errorf("load: target: proxy: %w", err)
		}
	}
	if err := t.findModel(ctx); err != nil {
		return nil, t.hide(err)
	}
	ids, _ := idPrompt(base, 8, 0)
	if t.dialect, err = learn(ctx, t.client, ids); err != nil {
		return nil, t.hide(err)
	}
	t.evidence.Optional = t.dialect.fields
	corpus, err := t.choosePrompts(ctx, inputs, base)
	if err != nil {
		return nil, t.hide(err)
	}
	if !t.Unsalted && t.evidence.Prompts != verify.PromptsFile {
		if t.Seed == 0 {
			t.Seed = randomSeed()
		}
		t.evidence.SaltSeed = t.Seed
	}
	t.pool = corpus.Pool()
	t.used, t.warmed = map[int]int{}, map[int]int{}
	return corpus, nil
}

func randomSeed() int64 {
	var b [8]byte
	rand.Read(b[:])
	return int64(binary.LittleEndian.Uint64(b[:])>>12) + 1 // exact in a float64, too
}

// findModel asks for the models. Not every server has a list of them.
func (t *Target) findModel(ctx context.Context) error {
	models, software, err := t.client.Models(ctx)
	t.evidence.Software = software
	if t.Model == "" {
		switch {
		case err != nil:
			return fmt.Errorf("load: target: which model? -model (Target.Model) names it, for the server doesn't: %w", err)
		case len(models) > 1:
			return fmt.Errorf("load: target: which model? -model (Target.Model) names one of the %d that it serves: %s", len(models), strings.Join(models[:min(len(models), 20)], ", "))
		}
		t.Model = models[0]
		t.client.Model = t.Model
	}
	t.evidence.Model = t.Model
	return nil
}

// hide takes secrets out of an error's text, where a server repeats them.
func (t *Target) hide(err error) error {
	if text := t.hideIn(err.Error()); text != err.Error() {
		return errors.New(text)
	}
	return err
}

func (t *Target) hideIn(text string) string {
	const shortest = 4 // of what could be a secret
	hide := func(secret string) {
		if len(secret) >= shortest {
			text = strings.ReplaceAll(text, secret, "[not recorded]")
		}
	}
	hide(t.key)
	for _, values := range t.Header {
		for _, value := range values {
			hide(value)
			if _, token, found := strings.Cut(value, " "); found {
				hide(token)
			}
		}
	}
	return text
}

// choosePrompts settles how the length of prompts is known, the best way
// first.
func (t *Target) choosePrompts(ctx context.Context, inputs []int, base *verify.Corpus) (*verify.Corpus, error) {
	var noTokenizer error
	switch {
	case t.InexactInput:
		t.evidence.Prompts = verify.PromptsInexact
		if t.OwnPrompts {
			return base, nil
		}
		return textCorpus(base, inputs), nil
	case t.dialect.ids && (!t.OwnPrompts || hasIDs(base, inputs)):
		t.evidence.Prompts = verify.PromptsIDs
		if t.OwnPrompts {
			return base, nil
		}
		return idCorpus(base, inputs)
	case t.OwnPrompts:
		t.evidence.Prompts = verify.PromptsFile
		return base, nil
	}
	if t.tokenizer, noTokenizer = t.client.Tokenizer(ctx); noTokenizer == nil {
		t.evidence.Prompts = verify.PromptsTokenize
		corpus := textCorpus(base, inputs)
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
	return nil, fmt.Errorf("load: the length of a prompt can't be proven, for the target neither takes ids nor counts tokens (%w). Make prompts for its tokenizer with go run ./smol/prompts and name them with -prompts, or measure with -inexact-input (Target.InexactInput)", noTokenizer)
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

// salt makes what request sends of prompt. It may ask the server.
func (t *Target) salt(ctx context.Context, request string, prompt *verify.Prompt) (out outgoing, err error) {
	out.prompt = prompt
	seed := t.evidence.SaltSeed
	switch {
	case seed == 0:
	case t.evidence.Prompts == verify.PromptsIDs:
		out.ids = verify.SaltedIDs(seed, request, prompt.IDs, t.pool)
	case t.evidence.Prompts == verify.PromptsInexact:
		out.text = verify.SaltedText(seed, request, prompt.Text)
	default:
		if out.text, err = fit(ctx, t.tokenizer, verify.SaltText(seed, request), prompt.Text, prompt.Input); err != nil {
			return out, t.hide(fmt.Errorf("load: prompt %s: %w", prompt.ID, err))
		}
	}
	return out, nil
}

// counted says whether all passes have to be prepared before the first: a
// pause between two of them would count as the server's.
func (t *Target) counted() bool {
	return t.evidence.Prompts == verify.PromptsFile && !t.Unsalted || t.evidence.Prompts == verify.PromptsTokenize && !t.Unsalted
}
