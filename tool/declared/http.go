package declared

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/skete-dev/skete/egress/outbound"
	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/internal/clip"
	"github.com/skete-dev/skete/internal/pattern"
	"github.com/skete-dev/skete/tool"
)

// This file makes requests of manifests and arguments. An argument fills a place that the
// manifest leaves in a segment of the path, in the value of a parameter or in the body; what
// it is can change nothing else of the request.

// Bounds of requests.
const (
	urlMax           = 2048
	headerMax        = 4096
	bodyBytesMax     = 1 << 20
	segmentMax       = 1024 // of the path, as it is sent
	queryBytesMax    = 64 << 10
	httpTimeoutUsual = 30 * time.Second
	httpTimeoutMax   = 10 * time.Minute
	depthMax         = 32
)

// HTTP is a request that the host makes.
type HTTP struct {
	Method string `yaml:"method" json:"method,omitempty"` // "" = GET
	// URL may have {name} in its path, which stands for an argument.
	URL     string            `yaml:"url" json:"url"`
	Headers map[string]string `yaml:"headers" json:"headers,omitempty"` // as they are
	// Secrets of the tenant that are sent, as their grants say.
	Secrets []string `yaml:"secrets" json:"secrets,omitempty"`
	// Query are parameters, in whose values {name} stands for an argument. One that is only
	// {name} is left out with the argument.
	Query map[string]string `yaml:"query" json:"query,omitempty"`
	// Body is sent as JSON. A text that is only {name} stands for the argument as it is, {*}
	// for all of them.
	Body    any           `yaml:"body" json:"body,omitempty"`
	Timeout time.Duration `yaml:"timeout" json:"timeout,omitempty"` // 0 = 30 s
}

// whole stands for all arguments, in a body.
const whole = "{*}"

var (
	argument = pattern.Lazy(`\{([A-Za-z_][A-Za-z0-9_.-]*)\}`)
	header   = pattern.Lazy("^[A-Za-z0-9!#$%&'*+.^_`|~-]{1,128}$")
)

var methods = []string{http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete}

// refusedHeaders are about the connection, or hold what belongs into a secret.
var refusedHeaders = map[string]string{
	"Host": "it is that of the URL", "Content-Length": "it is counted", "Connection": "it is of the connection", "Transfer-Encoding": "it is of the connection",
	"Upgrade": "it is of the connection", "Te": "it is of the connection", "Trailer": "it is of the connection", "Accept-Encoding": "it is of the connection",
	"Authorization": secretly, "Proxy-Authorization": secretly, "Cookie": secretly, "X-Api-Key": secretly,
	idempotencyKey: "say `effect: keyed`",
}

const (
	secretly       = "a run keeps the manifest; set a secret of the tenant with a grant for this host, and name it in http.secrets"
	idempotencyKey = "Idempotency-Key"
)

func (h *HTTP) method() string { return cmp.Or(h.Method, http.MethodGet) }

// reads reports whether the method only reads, as the standard says.
func (h *HTTP) reads() bool { return h.method() == http.MethodGet || h.method() == http.MethodHead }

func (h *HTTP) timeout() time.Duration { return cmp.Or(h.Timeout, httpTimeoutUsual) }

// split is a template of a URL: its origin, and its path.
func (h *HTTP) split() (base, rest string) {
	_, after, _ := strings.Cut(h.URL, "://")
	n := len(h.URL) - len(after)
	if i := strings.IndexByte(after, '/'); i >= 0 {
		return h.URL[:n+i], h.URL[n+i:]
	}
	return h.URL, "/"
}

// http refuses what is no request.
func (c checker) http() {
	h := c.m.HTTP
	if h == nil {
		return
	}
	c.oneOf("http.method", h.Method, methods...)
	c.url()
	c.headers()
	for _, name := range slices.Sorted(maps.Keys(h.Query)) {
		c.places("http.query."+name, h.Query[name], false)
	}
	if len(h.Query) > listMax || len(h.Secrets) > listMax {
		c.fail("http", "at most %d parameters and %d secrets", listMax, listMax)
	}
	if h.Body != nil && h.reads() {
		c.fail("http.body", "%s has none", h.method())
	}
	if data, err := json.Marshal(h.Body); err != nil || len(data) > bodyBytesMax {
		c.fail("http.body", "at most %d bytes", bodyBytesMax)
	}
	c.body(h.Body, depthMax)
	if h.Timeout < 0 || h.Timeout > httpTimeoutMax {
		c.fail("http.timeout", "a time up to %v", httpTimeoutMax)
	}
	c.noSandbox()
}

// noSandbox refuses what only a command can have.
func (c checker) noSandbox() {
	if r := c.m.RequiresSandbox; r != nil && *r {
		c.fail("requires_sandbox", "the host makes the request itself and runs nothing; leave it out, or declare a command with `sandbox: {scope: …, network: …}`")
	}
	if s := c.m.Sandbox; s.Scope != "" || s.Timeout != 0 || s.Keep != 0 || s.ownKeys() {
		c.fail("sandbox", "the host makes the request: there is no sandbox; its time limit is http.timeout")
	}
	if len(c.m.Files)+len(c.m.Artifacts) > 0 {
		c.fail("http", "files and artifacts are for commands")
	}
}

func (c checker) url() {
	h := c.m.HTTP
	if len(h.URL) > urlMax || strings.ContainsFunc(h.URL, func(r rune) bool { return r <= ' ' || r == 0x7f }) {
		c.fail("http.url", "at most %d bytes, without blanks", urlMax)
		return
	}
	base, rest := h.split()
	if strings.ContainsAny(base, "{}") {
		c.fail("http.url", "an argument cannot choose the host")
		return
	}
	if strings.ContainsAny(rest, "?#") {
		c.fail("http.url", "parameters stand in http.query")
		return
	}
	if err := outbound.CheckURL(base + argument().ReplaceAllString(rest, "x")); err != nil {
		c.fail("http.url", "%s", errs.Public(err))
		return
	}
	if strings.ContainsAny(argument().ReplaceAllString(rest, "x"), "{}") {
		c.fail("http.url", "{name} stands for an argument; a brace itself is %%7B or %%7D")
	}
	for segment := range strings.SplitSeq(rest, "/") {
		if plain, err := url.PathUnescape(segment); err != nil || plain == "." || plain == ".." {
			c.fail("http.url", "%.80q is no part of a path", segment)
		}
	}
	c.places("http.url", rest, true)
	if len(h.Secrets) > 0 && !strings.HasPrefix(h.URL, "https://") {
		c.fail("http.secrets", "they are sent over https alone")
	}
}

// places refuses names that are none of an argument; needed: that may be missing.
func (c checker) places(key, text string, needed bool) {
	properties, _ := c.m.Input["properties"].(map[string]any)
	required, _ := c.m.Input["required"].([]any)
	for _, name := range named(text) {
		if _, ok := properties[name]; !ok {
			c.fail(key, "{%.80s} is none of the properties of `input`", name)
		} else if needed && !slices.Contains(required, any(name)) {
			c.fail(key, "{%.80s} has to be `required` in `input`: without it there is no path", name)
		}
	}
}

// named are the arguments that a text has places for.
func named(text string) (names []string) {
	for _, m := range argument().FindAllStringSubmatch(text, -1) {
		names = append(names, m[1])
	}
	return names
}

func (c checker) headers() {
	if len(c.m.HTTP.Headers) > listMax {
		c.fail("http.headers", "at most %d", listMax)
	}
	for _, name := range slices.Sorted(maps.Keys(c.m.HTTP.Headers)) {
		value, key := c.m.HTTP.Headers[name], "http.headers."+name
		why, refused := refusedHeaders[http.CanonicalHeaderKey(name)]
		switch {
		case !header().MatchString(name):
			c.fail(key, "%.80q is no header", name)
		case refused:
			c.fail(key, "%s", why)
		case len(value) > headerMax || strings.ContainsFunc(value, func(r rune) bool { return r < ' ' || r == 0x7f }):
			c.fail(key, "at most %d bytes on one line", headerMax)
		case argument().MatchString(value):
			c.fail(key, "an argument cannot stand in a header")
		}
	}
}

func (c checker) body(v any, depth int) {
	if depth == 0 {
		c.fail("http.body", "it is deeper than %d", depthMax)
		return
	}
	switch v := v.(type) {
	case string:
		c.places("http.body", v, false)
	case []any:
		for _, e := range v {
			c.body(e, depth-1)
		}
	case map[string]any:
		for _, k := range slices.Sorted(maps.Keys(v)) {
			c.body(v[k], depth-1)
		}
	}
}

// badArgument is an argument that cannot be sent.
type badArgument struct{ name, why string }

// Error implements error.
func (b badArgument) Error() string { return b.name + ": " + b.why }

// fill makes the request of a call.
func (h *HTTP) fill(args map[string]any) (*http.Request, error) {
	base, rest := h.split()
	at, err := fillPath(rest, args)
	if err != nil {
		return nil, err
	}
	query, err := h.fillQuery(args)
	if err != nil {
		return nil, err
	}
	var body []byte
	if h.Body != nil {
		if body, err = json.Marshal(fillBody(h.Body, args)); err != nil {
			return nil, err
		}
		if len(body) > bodyBytesMax {
			return nil, errs.New(errs.Invalid, "the request would have %d bytes, at most %d are possible", len(body), bodyBytesMax)
		}
	}
	r, err := http.NewRequest(h.method(), base+at, bytes.NewReader(body)) //nolint:noctx // the caller adds one
	if err != nil {
		return nil, err
	}
	if body == nil {
		r.Body, r.GetBody = http.NoBody, nil
	} else {
		r.Header.Set("Content-Type", "application/json")
	}
	r.URL.RawQuery = query
	r.Header.Set("User-Agent", "skete")
	for k, v := range h.Headers {
		r.Header.Set(k, v)
	}
	return r, nil
}

// fillPath puts arguments into the segments of a path. None can add one, or go up.
func fillPath(template string, args map[string]any) (string, error) {
	segments := strings.Split(template, "/")
	for i, segment := range segments {
		names := named(segment)
		if len(names) == 0 {
			continue
		}
		filled, err := fillSegment(segment, args)
		if err != nil {
			return "", err
		}
		switch plain, err := url.PathUnescape(filled); {
		case err != nil || plain == "" || plain == "." || plain == "..":
			return "", badArgument{names[0], "it stands in a path and cannot be empty, . or .."}
		case len(filled) > segmentMax:
			return "", badArgument{names[0], "it is too long to stand in a path"}
		}
		segments[i] = filled
	}
	return strings.Join(segments, "/"), nil
}

// fillSegment refuses what some servers take for the end of a segment though it is escaped.
func fillSegment(template string, args map[string]any) (string, error) {
	var bad error
	text := argument().ReplaceAllStringFunc(template, func(place string) string {
		name := strings.Trim(place, "{}")
		v, err := textOf(name, args[name])
		if strings.ContainsFunc(v, func(r rune) bool { return r < ' ' || r == 0x7f || r == '/' || r == '\\' }) {
			err = badArgument{name, "it stands in a path and cannot have / or \\ or control characters"}
		}
		bad = cmp.Or(bad, err)
		return url.PathEscape(v)
	})
	return text, bad
}

// textOf is an argument as a text.
func textOf(name string, v any) (string, error) {
	switch v := v.(type) {
	case string:
		return v, nil
	case json.Number:
		return v.String(), nil
	case bool:
		return fmt.Sprint(v), nil
	case nil:
		return "", nil
	}
	return "", badArgument{name, "it has to be a text, a number or true or false here"}
}

// fillQuery puts arguments into the values of parameters.
func (h *HTTP) fillQuery(args map[string]any) (string, error) {
	query := url.Values{}
	for name, template := range h.Query {
		names := named(template)
		if len(names) == 1 && template == "{"+names[0]+"}" {
			list, ok := args[names[0]].([]any)
			if !ok && args[names[0]] != nil {
				list = []any{args[names[0]]}
			}
			for _, v := range list {
				text, err := textOf(names[0], v)
				if err != nil {
					return "", err
				}
				query.Add(name, text)
			}
			continue
		}
		text, err := fillText(template, args)
		if err != nil {
			return "", err
		}
		query.Add(name, text)
	}
	encoded := query.Encode()
	if len(encoded) > queryBytesMax {
		return "", errs.New(errs.Invalid, "the parameters would have %d bytes, at most %d are possible", len(encoded), queryBytesMax)
	}
	return encoded, nil
}

// fillText puts arguments into a text, each once: what one says is no place for another.
func fillText(template string, args map[string]any) (string, error) {
	var bad error
	text := argument().ReplaceAllStringFunc(template, func(place string) string {
		name := strings.Trim(place, "{}")
		v, err := textOf(name, args[name])
		if err != nil && bad == nil {
			bad = err
		}
		return v
	})
	return text, bad
}

// fillBody puts arguments into a value.
func fillBody(v any, args map[string]any) any {
	switch v := v.(type) {
	case string:
		return fillBodyText(v, args)
	case []any:
		list := make([]any, len(v))
		for i := range v {
			list[i] = fillBody(v[i], args)
		}
		return list
	case map[string]any:
		m := map[string]any{}
		for k, e := range v {
			if name, only := onlyArgument(e); only {
				if _, given := args[name]; !given {
					continue // what is optional is left out
				}
			}
			m[k] = fillBody(e, args)
		}
		return m
	}
	return v
}

func onlyArgument(v any) (name string, only bool) {
	s, _ := v.(string)
	names := named(s)
	if len(names) == 1 && s == "{"+names[0]+"}" {
		return names[0], true
	}
	return "", false
}

func fillBodyText(s string, args map[string]any) any {
	if s == whole {
		return args
	}
	if name, only := onlyArgument(s); only {
		return args[name]
	}
	return argument().ReplaceAllStringFunc(s, func(place string) string {
		v := args[strings.Trim(place, "{}")]
		if text, err := textOf("", v); err == nil {
			return text
		}
		data, err := json.Marshal(v)
		if err != nil {
			return ""
		}
		return string(data)
	})
}

// arguments reads those of a call.
func arguments(data json.RawMessage) (map[string]any, error) {
	args := map[string]any{}
	if len(data) == 0 {
		return args, nil
	}
	d := json.NewDecoder(bytes.NewReader(data))
	d.UseNumber() // a large number stays as it is
	if err := d.Decode(&args); err != nil {
		return nil, errs.New(errs.Invalid, "the arguments are no object")
	}
	return args, nil
}

// unsendable tells the model of an argument that cannot be sent.
func unsendable(err error) tool.Result {
	return tool.Fail(tool.CodeArgs, "Error: "+clip.Line(err.Error(), misfitMax))
}
