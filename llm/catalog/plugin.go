package catalog

import (
	"context"

	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/llm"
)

// This file has models that plug-ins serve: echo-model/parrot is the model parrot of the plug-in
// echo-model. An entry of the configuration can give one another name, price or effort.

// Plugin is their vendor; an entry's id is PLUGIN/MODEL.
const Plugin = "plugin"

const sourcePlugin = "plug-in"

// Plugins are the plug-ins of a server. plugin.Host is one.
type Plugins interface {
	// Models lists their models. It starts nothing.
	Models() []llm.Info
	// Model returns one by PLUGIN/MODEL, for a tenant. NotFound.
	Model(tenant, name string) (llm.Model, error)
}

// plugged finds a model of a plug-in.
func (c *Catalog) plugged(name string) (llm.Info, bool) {
	if c.plugins == nil {
		return llm.Info{}, false
	}
	for _, i := range c.plugins.Models() {
		if i.Name == name {
			return i, true
		}
	}
	return llm.Info{}, false
}

// ofPlugin is the entry of a model by its own name.
func (c *Catalog) ofPlugin(name string) (entry, bool) {
	if _, ok := c.plugged(name); !ok {
		return entry{}, false
	}
	return c.complete(Entry{Name: name, Vendor: Plugin, ID: name}, sourcePlugin), true
}

// pluginInfo is what the plug-in says of a model, but for what the entry does. Without the
// plug-in it is the guess.
func (c *Catalog) pluginInfo(e Entry, guess llm.Info) llm.Info {
	i, ok := c.plugged(e.ID)
	if !ok {
		return guess
	}
	i.Name = e.Name
	i.WindowTokens = first(e.WindowTokens, i.WindowTokens)
	i.OutputTokensMax = min(first(e.OutputTokensMax, i.OutputTokensMax), i.WindowTokens)
	i.Calling, i.Price = first(e.Calling, i.Calling), first(e.Price, i.Price)
	if e.Media != nil {
		i.Media = *e.Media
	}
	return i
}

// openPlugin opens a model for the tenant that the context names.
func (c *Catalog) openPlugin(ctx context.Context, e entry) (llm.Model, error) {
	if c.plugins == nil {
		return nil, errs.New(errs.Unsupported, "model %s is a plug-in's, and there are none here", e.Name)
	}
	m, err := c.plugins.Model(llm.TenantOf(ctx), e.ID)
	if errs.Is(err, errs.NotFound) {
		return nil, errs.Wrap(errs.Unsupported, err, "model %s: no plug-in has a model %.80q", e.Name, e.ID).
			WithHint("`skete plugin list` shows those of the server's folder")
	}
	if err != nil {
		return nil, err
	}
	return withInfo{m, e.info}, nil
}

// withInfo says of a model what the configuration does.
type withInfo struct {
	llm.Model
	info llm.Info
}

// Info implements llm.Model.
func (m withInfo) Info() llm.Info { return m.info }
