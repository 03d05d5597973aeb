package server

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"

	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/server/gate"
	"github.com/skete-dev/skete/server/key"
	"github.com/skete-dev/skete/server/problem"
)

// public marks routes that need no key.
const public key.Scope = "public"

// jsonBytesMax bounds the body of a JSON request.
const jsonBytesMax = 1 << 20

// bodyReadTimeout is how long a client may send nothing of a body.
const bodyReadTimeout = 60 * time.Second

// Route is one method and pattern with the right that it needs.
type Route struct {
	Method, Path string
	// Scope is empty for a route that needs no key.
	Scope key.Scope
	// Local: only through the unix socket.
	Local bool
}

// Routes lists everything that is served; documentation and tests read it.
func (s *Server) Routes() []Route { return s.routes }

// newAPI makes the JSON layer: OpenAPI 3.1, only JSON, no links in answers.
func (s *Server) newAPI() huma.API {
	format := huma.Format{Marshal: huma.DefaultJSONFormat.Marshal, Unmarshal: unmarshal}
	config := huma.Config{
		OpenAPI: &huma.OpenAPI{
			OpenAPI: "3.1.0",
			Info: &huma.Info{Title: "skete", Version: s.version, Description: apiDescription,
				License: &huma.License{Name: "Apache-2.0"}},
			Components: &huma.Components{
				Schemas: huma.NewMapRegistry("#/components/schemas/", huma.DefaultSchemaNamer),
				SecuritySchemes: map[string]*huma.SecurityScheme{
					"bearer": {Type: "http", Scheme: "bearer", Description: "an API key"},
					"header": {Type: "apiKey", In: "header", Name: "X-API-Key"},
				},
			},
		},
		Formats:       map[string]huma.Format{"application/json": format, "json": format},
		DefaultFormat: "application/json",
	}
	return huma.NewAPI(config, adapter{s})
}

const apiDescription = "Sandboxes for agents: each an isolated machine of its own. " +
	"Errors are problems (RFC 9457) with a `class` that says who must act. " +
	"Streams are server-sent events that resume by `Last-Event-ID`, or WebSockets."

// unmarshal refuses text that is not UTF-8, which encoding/json would change silently.
func unmarshal(data []byte, v any) error {
	if !utf8.Valid(data) {
		return errors.New("the text is not UTF-8")
	}
	return json.Unmarshal(data, v)
}

// adapter puts huma's operations on the server's mux, behind its gate.
type adapter struct{ s *Server }

func (a adapter) ServeHTTP(w http.ResponseWriter, r *http.Request) { a.s.mux.ServeHTTP(w, r) }

func (a adapter) Handle(op *huma.Operation, handler func(huma.Context)) {
	scope, ok := op.Metadata["scope"].(key.Scope)
	if !ok {
		panic("route " + op.Method + " " + op.Path + " has no scope")
	}
	a.s.mount(op.Method, op.Path, scope, queryNames(op), func(w http.ResponseWriter, r *http.Request) {
		handler(humago.NewContext(op, r, w))
	})
}

// queryNames lists the query parameters of an operation; true = may be repeated.
func queryNames(op *huma.Operation) map[string]bool {
	names := map[string]bool{}
	for _, p := range op.Parameters {
		if p.In == "query" {
			names[p.Name] = p.Schema != nil && p.Schema.Type == huma.TypeArray
		}
	}
	return names
}

// mount registers a handler behind the gate. query nil = anything goes.
func (s *Server) mount(method, path string, scope key.Scope, query map[string]bool, h http.HandlerFunc) {
	route := Route{Method: method, Path: path, Scope: scope}
	if scope == public {
		route.Scope = ""
	}
	s.routes = append(s.routes, route)
	s.mux.HandleFunc(method+" "+path, func(w http.ResponseWriter, r *http.Request) {
		if scope != public {
			id, err := s.gate.Admit(r, scope)
			if err != nil {
				s.refuse(w, r, err)
				return
			}
			note(r).identity = id
			r = r.WithContext(gate.With(r.Context(), id))
		}
		if query != nil {
			if err := checkQuery(r.URL.RawQuery, query); err != nil {
				s.refuse(w, r, err)
				return
			}
		}
		r.Body = &patientBody{ReadCloser: r.Body, rc: http.NewResponseController(w)}
		h(w, r)
	})
}

// refuse answers with an error and notes it for the log.
func (s *Server) refuse(w http.ResponseWriter, r *http.Request, err error) {
	note(r).err = err
	var p *problem.Error
	if errors.As(err, &p) && p.Status == http.StatusUnauthorized {
		w.Header().Set("WWW-Authenticate", "Bearer")
	}
	problem.Write(w, err)
}

// checkQuery refuses what nobody would read: unknown and repeated parameters,
// broken escapes.
func checkQuery(raw string, known map[string]bool) error {
	if raw == "" {
		return nil
	}
	values, err := url.ParseQuery(raw)
	if err != nil {
		return errs.New(errs.Invalid, "the query cannot be read: a broken %%-escape or a semicolon")
	}
	for name, vs := range values {
		many, ok := known[name]
		if !ok {
			return errs.New(errs.Invalid, "unknown query parameter %.40q", name)
		}
		if len(vs) > 1 && !many {
			return errs.New(errs.Invalid, "query parameter %.40q is given %d times", name, len(vs))
		}
	}
	return nil
}

// patientBody bounds the silence of a client that sends a body. The deadline
// is taken back after each read: left in place it would end a handler that
// works for longer.
type patientBody struct {
	io.ReadCloser
	rc *http.ResponseController
}

func (b *patientBody) Read(p []byte) (int, error) {
	_ = b.rc.SetReadDeadline(time.Now().Add(bodyReadTimeout))
	n, err := b.ReadCloser.Read(p)
	_ = b.rc.SetReadDeadline(time.Time{})
	return n, err
}

// operation describes a route to register.
type operation struct {
	method, path string
	scope        key.Scope
	id, summary  string
	tag          string
	status       int // of success; 0 = 200, or 204 without a body
	change       func(*huma.Operation)
}

func (o operation) huma() huma.Operation {
	op := huma.Operation{
		OperationID: o.id, Method: o.method, Path: o.path, Summary: o.summary, Tags: []string{o.tag},
		DefaultStatus: o.status, MaxBodyBytes: jsonBytesMax,
		BodyReadTimeout: -1, // patientBody
		Metadata:        map[string]any{"scope": o.scope},
	}
	if o.scope != public {
		op.Security = []map[string][]string{{"bearer": {}}, {"header": {}}}
		op.Description = "Needs the scope `" + string(o.scope) + "`."
	}
	if o.change != nil {
		o.change(&op)
	}
	return op
}

// handle registers a JSON route.
func handle[I, O any](s *Server, o operation, fn func(context.Context, *I) (*O, error)) {
	huma.Register(s.api, o.huma(), func(ctx context.Context, in *I) (*O, error) {
		out, err := fn(ctx, in)
		if err != nil {
			noteOf(ctx).err = err
			return nil, problem.Of(err)
		}
		return out, nil
	})
}

// handleRaw registers a route that answers by itself. An error that it returns
// is answered here if nothing was written yet, and is logged in any case.
func handleRaw[I any](s *Server, o operation, fn func(http.ResponseWriter, *http.Request, *I) error) {
	huma.Register(s.api, o.huma(), func(_ context.Context, in *I) (*huma.StreamResponse, error) {
		return &huma.StreamResponse{Body: func(ctx huma.Context) {
			r, w := humago.Unwrap(ctx)
			err := fn(w, r, in)
			if err == nil {
				return
			}
			note(r).err = err
			if !note(r).wrote {
				problem.Write(w, err)
			}
		}}, nil
	})
}

// answers describes what a raw route sends.
func answers(op *huma.Operation, status, description, contentType string, schema *huma.Schema) {
	if op.Responses == nil {
		op.Responses = map[string]*huma.Response{}
	}
	res := &huma.Response{Description: description}
	if contentType != "" {
		res.Content = map[string]*huma.MediaType{contentType: {Schema: schema}}
	}
	op.Responses[status] = res
}

// takes describes the body that a raw route reads.
func takes(op *huma.Operation, contentType string) {
	op.RequestBody = &huma.RequestBody{Required: true, Content: map[string]*huma.MediaType{
		contentType: {Schema: &huma.Schema{Type: huma.TypeString, Format: "binary"}},
	}}
}

// notFound answers what no route matches: 404, or 405 when another method would.
func (s *Server) notFound(w http.ResponseWriter, r *http.Request) {
	var allow []string
	for _, m := range []string{http.MethodGet, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete} {
		probe := &http.Request{Method: m, URL: r.URL, Host: r.Host}
		if _, pattern := s.mux.Handler(probe); pattern != "/" && pattern != "" {
			allow = append(allow, m)
		}
	}
	if len(allow) == 0 {
		s.refuse(w, r, errs.New(errs.NotFound, "there is no %.200q here", r.URL.Path).WithHint("/docs lists all routes"))
		return
	}
	w.Header().Set("Allow", strings.Join(allow, ", "))
	s.refuse(w, r, problem.At(http.StatusMethodNotAllowed,
		errs.New(errs.Invalid, "%.20q is not done to this; it takes %s", r.Method, strings.Join(allow, ", "))))
}
