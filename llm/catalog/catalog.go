package catalog

import (
	"context"
	"io"
	"iter"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/llm"
	"github.com/skete-dev/skete/llm/anthropic"
	"github.com/skete-dev/skete/llm/compat"
	"github.com/skete-dev/skete/llm/fault"
	"github.com/skete-dev/skete/llm/openai"
)

// The models of vendors whose key is in the environment, if no model is named.
const (
	anthropicDefault = "claude-sonnet-5-5"
	openaiDefault    = "gpt-5.5"
	googleDefault    = "gemini-2.5-pro"
)

// keyBytesMax bounds a file that holds a key.
const keyBytesMax = 64 << 10

// Options are what a catalogue needs of the world.
type Options struct {
	// Getenv reads the environment; nil = there is none.
	Getenv func(string) string
	// Local are the servers to look for on this machine; nil = Locals().
	Local []Server
	// Plugins serve models too; nil = there are none.
	Plugins Plugins
}

// Catalog finds models.
type Catalog struct {
	config    Config
	getenv    func(string) string
	plugins   Plugins
	facts     factTable
	transport *http.Transport
	client    *http.Client // follows no redirects
	scout     *scout
	windows   windows
	scripts   shelf
}

// New returns a catalogue. It opens nothing. Invalid: the configuration is wrong.
func New(config Config, o Options) (*Catalog, error) {
	if err := config.Validate(); err != nil {
		return nil, err
	}
	facts, err := readFacts()
	if err != nil {
		return nil, err
	}
	if o.Getenv == nil {
		o.Getenv = func(string) string { return "" }
	}
	if o.Local == nil {
		o.Local = locals()
	}
	c := &Catalog{config: config, getenv: o.Getenv, plugins: o.Plugins, facts: facts, transport: transport(), client: fault.HTTPClient()}
	c.client.Transport = c.transport
	c.windows.found = map[string]heard{}
	c.scout = &scout{servers: o.Local, client: c.client}
	return c, nil
}

// idlePerHost is how many connections to one vendor wait for the next step.
const idlePerHost = 32

// transport is shared by all models, so that their connections are.
func transport() *http.Transport {
	t, ok := http.DefaultTransport.(*http.Transport)
	if !ok {
		return &http.Transport{Proxy: http.ProxyFromEnvironment, ForceAttemptHTTP2: true}
	}
	t = t.Clone()
	t.MaxIdleConnsPerHost = idlePerHost
	return t
}

// Close closes connections that are not in use. Models stay usable.
func (c *Catalog) Close() { c.transport.CloseIdleConnections() }

// Open implements supervisor.Models.
func (c *Catalog) Open(ctx context.Context, name string) (llm.Model, error) {
	e, err := c.find(ctx, name)
	if err != nil {
		return nil, err
	}
	if e.Vendor == Compat && e.source == sourceConfig {
		c.correct(ctx, &e)
	}
	m, err := c.open(ctx, e)
	if err != nil {
		return nil, err
	}
	if e.Effort != "" {
		m = withEffort{m, e.Effort}
	}
	return m, nil
}

// entry is an Entry with what a server said about the model.
type entry struct {
	Entry
	info   llm.Info
	source string
}

// Where a model comes from.
const (
	sourceConfig = "configuration"
	sourceEnv    = "environment"
	sourceName   = "name" // vendor/id, as the caller wrote it
	sourceLocal  = "local server"
	// sourceExample is the model that plays the example.
	sourceExample = "example"
)

// from says who wrote vendor/id if it was not the caller.
func (e entry) from(source string) entry {
	if e.source == sourceName {
		e.source = source
	}
	return e
}

func (c *Catalog) find(ctx context.Context, name string) (entry, error) {
	if name == "" {
		return c.choose(ctx)
	}
	if e, ok := c.configured(name); ok {
		return e, nil
	}
	if e, ok := c.ofPlugin(name); ok {
		return e, nil
	}
	if name == example {
		return c.example(), nil
	}
	vendor, id, err := split(name)
	if err != nil {
		return entry{}, c.notFound(name)
	}
	return c.named(ctx, vendor, id)
}

func (c *Catalog) configured(name string) (entry, bool) {
	for _, e := range c.config.Models {
		if e.Name == name {
			return c.complete(e, sourceConfig), true
		}
	}
	return entry{}, false
}

// complete fills in where keys and servers are if the entry does not say.
func (c *Catalog) complete(e Entry, source string) entry {
	info := c.facts.info(e)
	switch e.Vendor {
	case Anthropic:
		e.KeyEnv = e.keyEnvOr("ANTHROPIC_API_KEY")
		e.URL = first(e.URL, c.getenv("ANTHROPIC_BASE_URL"))
	case OpenAI:
		e.KeyEnv = e.keyEnvOr("OPENAI_API_KEY")
		e.URL = first(e.URL, c.getenv("OPENAI_BASE_URL"))
	case Google:
		e.KeyEnv = e.keyEnvOr(c.googleKey())
		e.URL = first(e.URL, c.getenv("GOOGLE_GEMINI_BASE_URL"))
		info.Programs = true
	case Script:
		info.ID = first(e.ID, filepath.Base(e.Script)) // never its folder: users see it
	case Plugin:
		info = c.pluginInfo(e, info)
	}
	return entry{Entry: e, info: info, source: source}
}

func (e Entry) keyEnvOr(name string) string {
	if e.KeyFile != "" {
		return ""
	}
	return first(e.KeyEnv, name)
}

// named is vendor/id.
func (c *Catalog) named(ctx context.Context, vendor, id string) (entry, error) {
	e := Entry{Name: vendor + "/" + id, Vendor: vendor, ID: id}
	switch vendor {
	case Anthropic, OpenAI, Google, Plugin:
		return c.complete(e, sourceName), nil
	case Script:
		e.ID, e.Script = "", id
		found := c.complete(e, sourceName)
		found.info.Name = Script + "/" + filepath.Base(id)
		return found, nil
	}
	// compat/ID is any local server's; ollama/ID is that one's.
	for _, s := range c.scout.look(ctx) {
		if s.id == id && (vendor == Compat || s.server.Name == vendor) {
			return c.local(s), nil
		}
	}
	if i := slices.IndexFunc(c.scout.servers, func(s Server) bool { return s.Name == vendor }); i >= 0 {
		return entry{}, errs.New(errs.Unsupported, "%s does not answer, or has no model %s", c.scout.servers[i].Title, id).
			WithHint("is it running at %s? `curl %s/v1/models` lists what it has", c.scout.servers[i].URL, c.scout.servers[i].URL)
	}
	return entry{}, errs.New(errs.Unsupported, "no server on this machine has a model %s", id).
		WithHint("a server elsewhere needs an entry under models: in the configuration, with its url; `skete help models` says how")
}

func (c *Catalog) local(s served) entry {
	e := Entry{Name: s.server.Name + "/" + s.id, Vendor: Compat, ID: s.id, URL: s.server.URL, WindowTokens: s.window}
	return c.complete(e, sourceLocal)
}

// choose is what "" means.
func (c *Catalog) choose(ctx context.Context) (entry, error) {
	if c.config.Model != "" {
		e, err := c.find(ctx, c.config.Model)
		return e.from(sourceConfig), err
	}
	wanted := c.getenv("SKETE_MODEL")
	if wanted != "" {
		if e, ok := c.configured(wanted); ok {
			return e, nil
		}
		if vendor, id, err := split(wanted); err == nil {
			e, err := c.named(ctx, vendor, id)
			return e.from(sourceEnv), err
		}
	}
	for _, v := range []struct{ vendor, env, id string }{
		{Anthropic, "ANTHROPIC_API_KEY", anthropicDefault},
		{OpenAI, "OPENAI_API_KEY", openaiDefault},
	} {
		if c.getenv(v.env) != "" {
			id := first(wanted, v.id)
			return c.complete(Entry{Name: v.vendor + "/" + id, Vendor: v.vendor, ID: id}, sourceEnv), nil
		}
	}
	for _, s := range c.scout.look(ctx) {
		if wanted == "" || wanted == s.id {
			return c.local(s), nil
		}
	}
	if wanted != "" {
		return entry{}, c.notFound(wanted)
	}
	if e := c.google(); c.getenv(e.KeyEnv) != "" { // after the local ones: an agent cannot use it, a program can
		return e, nil
	}
	return entry{}, errs.New(errs.Unsupported, "there is no model to ask: none is configured, no key is in the environment, and no local server answers").
		WithHint("set ANTHROPIC_API_KEY or OPENAI_API_KEY, or start a local server (`ollama serve`), or try a scripted model (--model example, --model script/FILE); `skete help models` says how")
}

func (c *Catalog) notFound(name string) error {
	e := errs.New(errs.NotFound, "there is no model %q", name)
	var names []string
	for _, m := range c.config.Models {
		names = append(names, m.Name)
	}
	if len(names) == 0 {
		return e.WithHint("write vendor/id, such as anthropic/%s, or configure it; `skete help models` says how", anthropicDefault)
	}
	return e.WithHint("configured are %s; or write vendor/id", strings.Join(names, ", "))
}

func (c *Catalog) open(ctx context.Context, e entry) (llm.Model, error) {
	switch e.Vendor {
	case Script:
		if e.source == sourceExample {
			return openExample(e)
		}
		return c.scripts.open(e)
	case Plugin:
		return c.openPlugin(ctx, e)
	}
	key, err := c.key(e.Entry)
	if err != nil {
		return nil, err
	}
	headers := map[string]llm.Key{}
	for name, value := range e.Headers {
		headers[name] = llm.NewKey(value)
	}
	switch e.Vendor {
	case Anthropic:
		return opened(anthropic.New(anthropic.Config{Info: e.info, Key: key, URL: e.URL, Headers: headers, HTTP: c.client}))
	case OpenAI:
		return opened(openai.New(openai.Config{Info: e.info, Key: key, URL: e.URL, Headers: headers, HTTP: c.client, Summary: e.Summary}))
	case Google:
		return forPrograms{e.info}, nil
	}
	return opened(compat.New(compat.Options{Info: e.info, Key: key, URL: e.URL, Headers: headers, Transport: c.transport}))
}

// opened keeps a nil pointer from becoming a model.
func opened[M llm.Model](m M, err error) (llm.Model, error) {
	if err != nil {
		return nil, err
	}
	return m, nil
}

// key reads the key of an entry. A vendor's own server needs one; another
// server, whose URL is given, may not.
func (c *Catalog) key(e Entry) (llm.Key, error) {
	if e.KeyFile != "" {
		return readKey(e)
	}
	if e.KeyEnv == "" {
		return llm.Key{}, nil
	}
	if v := strings.TrimSpace(c.getenv(e.KeyEnv)); v != "" {
		return llm.NewKey(v), nil
	}
	own := map[string]string{Anthropic: "ANTHROPIC_API_KEY", OpenAI: "OPENAI_API_KEY", Google: c.googleKey()}[e.Vendor]
	if e.URL != "" && e.KeyEnv == own {
		return llm.Key{}, nil
	}
	return llm.Key{}, errs.New(errs.Unsupported, "the key of model %s is not set", e.Name).
		WithHint("set %s where the server runs, or key_file in the configuration", e.KeyEnv)
}

func readKey(e Entry) (llm.Key, error) {
	unreadable := func(err error) error {
		return errs.Wrap(errs.Unsupported, err, "the key file of model %s cannot be read", e.Name).
			WithHint("look at key_file in the configuration: does the file exist, may the server read it, is it a key?")
	}
	f, err := os.Open(e.KeyFile)
	if err != nil {
		return llm.Key{}, unreadable(err)
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, keyBytesMax))
	if err != nil {
		return llm.Key{}, unreadable(err)
	}
	key := strings.TrimSpace(string(text))
	if key == "" || strings.ContainsAny(key, "\r\n\x00") {
		return llm.Key{}, unreadable(errs.New(errs.Invalid, "it does not hold one line"))
	}
	return llm.NewKey(key), nil
}

// withEffort asks for an effort where the caller asks for none.
type withEffort struct {
	llm.Model
	effort string
}

// Stream implements llm.Model.
func (m withEffort) Stream(ctx context.Context, req *llm.Request) iter.Seq2[llm.Delta, error] {
	if req.Effort == "" {
		with := *req
		with.Effort = m.effort
		req = &with
	}
	return m.Model.Stream(ctx, req)
}
