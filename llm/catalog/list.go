package catalog

import (
	"context"
	"os"
	"sync"
	"time"

	"github.com/skete-dev/skete/llm"
)

// State says whether a model can be asked, as far as one can see without
// asking it.
type State string

// States.
const (
	Ready State = "ready"  // its server answers, or its script is there
	Keyed State = "key"    // its key is there; the vendor was not asked
	NoKey State = "no_key" // its key is missing
	Down  State = "down"   // its server does not answer, or its script is not there
)

// Model is one line of a list.
type Model struct {
	Info    llm.Info `json:"info"`
	URL     string   `json:"url,omitempty"`
	Source  string   `json:"source"`
	State   State    `json:"state"`
	Default bool     `json:"default,omitempty"` // it is the choice for ""
}

// listTimeout bounds how long configured servers may take to answer.
const listTimeout = 2 * time.Second

// List returns what there is: models of the configuration in its order, of the
// environment's keys, of local servers, and the example. Vendors are not asked.
func (c *Catalog) List(ctx context.Context) []Model {
	var entries []entry
	seen := map[string]bool{}
	add := func(e entry) {
		if !seen[e.Name] {
			seen[e.Name] = true
			entries = append(entries, e)
		}
	}
	for _, m := range c.config.Models {
		add(c.complete(m, sourceConfig))
	}
	if c.plugins != nil {
		for _, i := range c.plugins.Models() {
			add(c.complete(Entry{Name: i.Name, Vendor: Plugin, ID: i.Name}, sourcePlugin))
		}
	}
	chosen, err := c.choose(ctx)
	if err == nil {
		add(chosen)
	}
	if c.getenv("ANTHROPIC_API_KEY") != "" {
		add(c.complete(Entry{Name: Anthropic + "/" + anthropicDefault, Vendor: Anthropic, ID: anthropicDefault}, sourceEnv))
	}
	if c.getenv("OPENAI_API_KEY") != "" {
		add(c.complete(Entry{Name: OpenAI + "/" + openaiDefault, Vendor: OpenAI, ID: openaiDefault}, sourceEnv))
	}
	if e := c.google(); c.getenv(e.KeyEnv) != "" {
		add(e)
	}
	for _, s := range c.scout.look(ctx) {
		add(c.local(s))
	}
	add(c.example()) // last: it is no help with any other work
	list := make([]Model, len(entries))
	ctx, cancel := context.WithTimeout(ctx, listTimeout)
	defer cancel()
	var wg sync.WaitGroup
	for i, e := range entries {
		wg.Go(func() {
			list[i] = Model{Info: e.info, URL: e.URL, Source: e.source, State: c.state(ctx, e), Default: err == nil && e.Name == chosen.Name}
		})
	}
	wg.Wait()
	return list
}

func (c *Catalog) state(ctx context.Context, e entry) State {
	switch {
	case e.source == sourceLocal, e.source == sourceExample:
		return Ready
	case e.Vendor == Script:
		if _, err := os.Stat(e.Script); err != nil {
			return Down
		}
		return Ready
	case e.Vendor == Plugin:
		if _, ok := c.plugged(e.ID); !ok {
			return Down
		}
		return Ready
	}
	header, err := c.header(e.Entry)
	switch {
	case err != nil:
		return NoKey
	case e.Vendor != Compat:
		return Keyed
	case len(ask(ctx, c.client, Server{URL: e.URL}, header)) == 0:
		return Down
	}
	return Ready
}
