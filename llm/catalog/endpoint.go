package catalog

import (
	"context"
	"net/url"
	"strings"

	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/llm"
	"github.com/skete-dev/skete/llm/anthropic"
	"github.com/skete-dev/skete/llm/openai"
)

// Endpoint is where a model is, for callers that speak to it themselves.
type Endpoint struct {
	llm.Info
	URL     string // its server's, with or without a version
	Key     llm.Key
	Headers map[string]llm.Key
}

// Endpoint returns where a model is. Unsupported: it is a script, or its key is missing.
func (c *Catalog) Endpoint(ctx context.Context, name string) (Endpoint, error) {
	e, err := c.find(ctx, name)
	if err != nil {
		return Endpoint{}, err
	}
	if e.Vendor == Script {
		return Endpoint{}, errs.New(errs.Unsupported, "model %s is a script, which no program can call", e.Name)
	}
	if e.Vendor == Plugin {
		return Endpoint{}, errs.New(errs.Unsupported, "model %s is a plug-in's, which agents can use and programs in sandboxes cannot", e.Name)
	}
	key, err := c.key(e.Entry)
	if err != nil {
		return Endpoint{}, err
	}
	info := e.info
	info.Name, info.Vendor, info.ID = e.Name, e.Vendor, first(e.ID, info.ID)
	out := Endpoint{Info: info, URL: e.URL, Key: key, Headers: map[string]llm.Key{}}
	switch e.Vendor {
	case Anthropic:
		out.URL = first(out.URL, anthropic.URL)
	case OpenAI:
		out.URL = first(out.URL, openai.URL)
	case Google:
		out.URL = first(out.URL, googleURL)
	}
	for k, v := range e.Headers {
		out.Headers[k] = llm.NewKey(v)
	}
	return out, nil
}

// At is the address of a call of the server's API, messages or chat/completions for one. A
// call that begins with its version, as those of Google's API do, has that one and not the
// URL's. Invalid: the URL.
func (e Endpoint) At(call string) (string, error) {
	u, err := url.Parse(e.URL)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" || u.User != nil {
		return "", errs.New(errs.Invalid, "the URL of the model %s cannot be used", e.Name)
	}
	base, whole := strings.CutSuffix(strings.TrimRight(u.Path, "/"), "/chat/completions")
	if strings.HasPrefix(call, "v1/") || strings.HasPrefix(call, "v1beta/") {
		base = strings.TrimSuffix(strings.TrimSuffix(base, "/v1"), "/v1beta")
	} else if e.Vendor == Compat && base == "" && !whole || e.Vendor == Anthropic && !strings.HasSuffix(base, "/v1") {
		base += "/v1"
	}
	u.Path, u.RawPath, u.Fragment = base+"/"+call, "", ""
	return u.String(), nil
}
