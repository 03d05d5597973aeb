// Package route is the table of all routes: each with the right that it needs,
// its documentation and its handler. It puts around every handler what must
// never be forgotten: an id, the check of its caller, a strict query, a log entry, an answer
// to a panic.
//
//	t := route.New(route.Config{Gate: g, Log: log, Version: v})
//	route.JSON(t, route.Operation{Method: "GET", Path: "/v1/info", Scope: key.Read, ID: "get-info"}, s.info)
//	route.Raw(t, route.Operation{…, Sends: route.Events[api.PortEvent]()}, s.watchPorts)
//	http.Serve(ln, t.Handler())
//
// Promises: a route without a scope cannot be registered (it panics at start);
// an unknown path or method, an unknown parameter, an oversized body and a
// panic are all answered as problems; only texts for users leave the server.
//
// A Table is filled by one goroutine and then serves any number.
package route

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"reflect"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"

	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/server/auth"
	"github.com/skete-dev/skete/server/key"
	"github.com/skete-dev/skete/server/problem"
)

// Public is the scope of routes that need no key.
const Public key.Scope = "public"

// Own is the scope of foreign surfaces, which admit their callers by themselves.
const Own key.Scope = "own"

// jsonBytesMax bounds the body of a JSON request.
const jsonBytesMax = 1 << 20

// bodyReadTimeout is how long a client may send nothing of a body.
const bodyReadTimeout = 60 * time.Second

// Route is one method and pattern with the right that it needs.
type Route struct {
	Method, Path string
	Scope        key.Scope
	// Local: only through the unix socket.
	Local bool
}

// Config of a Table.
type Config struct {
	Gate    *auth.Authenticator
	Log     *slog.Logger
	Version string
	// Steps makes steps of calls that may change files; nil = none are made.
	Steps Steps
	// Observe is told of every request when it has ended.
	Observe func(pattern string, status int, took time.Duration)
	// Audit is told of each call that may change something or was refused, when it has
	// ended; nil = nothing is.
	Audit func(Call)
	// Sandbox returns the id of the caller's sandbox for an id, the beginning of
	// one or a name, as stands in paths and bodies; nil = there are ids only.
	Sandbox func(ctx context.Context, name string) (id string, err error)
}

// Call is one that has ended.
type Call struct {
	Operation string // the ID of the route's; "" = it is no part of the API
	Method    string
	Path      string // with what stands in it
	On        string // the first thing that the path names; a sandbox by its id
	What      string // was asked for, of what becomes a step: a command line, a path
	From      string // the address of the caller; "" = it came through the unix socket
	Request   string // its id
	Identity  auth.Identity
	Status    int
	Refused   bool // its caller was not admitted
}

// sandboxPath begins the paths of one sandbox.
const sandboxPath = "/v1/sandboxes/{id}"

// Table holds all routes.
type Table struct {
	gate    *auth.Authenticator
	log     *slog.Logger
	steps   Steps
	observe func(string, int, time.Duration)
	audit   func(Call)
	sandbox func(context.Context, string) (string, error)
	mux     *http.ServeMux
	api     huma.API
	routes  []Route
}

// New returns an empty table.
func New(c Config) *Table {
	problem.Install()
	t := &Table{gate: c.Gate, log: c.Log, steps: c.Steps, observe: c.Observe, audit: c.Audit, sandbox: c.Sandbox, mux: http.NewServeMux()}
	format := huma.Format{Marshal: huma.DefaultJSONFormat.Marshal, Unmarshal: unmarshal}
	t.api = huma.NewAPI(huma.Config{
		OpenAPI: &huma.OpenAPI{
			OpenAPI: "3.1.0",
			Info: &huma.Info{
				Title: "skete", Version: c.Version, Description: apiDescription,
				License: &huma.License{Name: "Apache-2.0"},
			},
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
	}, adapter{t})
	t.mux.HandleFunc("/", t.notFound)
	return t
}

// SandboxOf returns the id of the caller's sandbox that a body names, as a path
// would.
func (t *Table) SandboxOf(ctx context.Context, name string) (id string, err error) {
	if t.sandbox == nil {
		return name, nil
	}
	return t.sandbox(ctx, name)
}

// Routes lists everything that is served; documentation and tests read it.
func (t *Table) Routes() []Route { return t.routes }

// Document returns the OpenAPI 3.1 document, as JSON or YAML.
func (t *Table) Document(yaml bool) ([]byte, error) {
	if yaml {
		return t.api.OpenAPI().YAML()
	}
	return json.MarshalIndent(t.api.OpenAPI(), "", " ")
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
type adapter struct{ t *Table }

func (a adapter) ServeHTTP(w http.ResponseWriter, r *http.Request) { a.t.mux.ServeHTTP(w, r) }

func (a adapter) Handle(op *huma.Operation, handler func(huma.Context)) {
	scope, ok := op.Metadata["scope"].(key.Scope)
	if !ok {
		panic("route " + op.Method + " " + op.Path + " has no scope")
	}
	a.t.mount(op.Method, op.Path, op.OperationID, scope, queryNames(op), func(w http.ResponseWriter, r *http.Request) {
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

// mount registers a handler behind that check. query nil = anything goes.
func (t *Table) mount(method, path, operation string, scope key.Scope, query map[string]bool, h http.HandlerFunc) {
	t.routes = append(t.routes, Route{Method: method, Path: path, Scope: scope})
	changes := method != http.MethodGet && method != http.MethodHead || scope == key.Write || scope == key.RunsWrite
	t.mux.HandleFunc(method+" "+path, func(w http.ResponseWriter, r *http.Request) {
		note(r).operation, note(r).changes = operation, changes
		if scope != Public {
			id, err := t.gate.Admit(r, scope)
			note(r).identity = id // also of one that is known and may not
			if err != nil {
				note(r).refused = true
				t.Refuse(w, r, err)
				return
			}
			r = r.WithContext(auth.With(r.Context(), id))
		}
		if query != nil {
			if err := checkQuery(r.URL.RawQuery, query); err != nil {
				t.Refuse(w, r, err)
				return
			}
		}
		if t.sandbox != nil && scope != Public && strings.HasPrefix(path, sandboxPath) {
			id, err := t.sandbox(r.Context(), r.PathValue("id"))
			if err != nil {
				t.Refuse(w, r, err)
				return
			}
			r.SetPathValue("id", id)
		}
		note(r).on = firstIn(r, path)
		note(r).caller = t.callerOf(r)
		r.Body = &patientBody{ReadCloser: r.Body, rc: http.NewResponseController(w)}
		h(w, r)
	})
}

// firstIn is the first thing that a path names.
func firstIn(r *http.Request, pattern string) string {
	_, rest, _ := strings.Cut(pattern, "{")
	name, _, _ := strings.Cut(rest, "}")
	return r.PathValue(strings.TrimSuffix(name, "..."))
}

// Refuse answers with an error and notes it for the log.
func (t *Table) Refuse(w http.ResponseWriter, r *http.Request, err error) {
	note(r).err = err
	var p *problem.Error
	if errors.As(err, &p) && p.Status == http.StatusUnauthorized {
		w.Header().Set("WWW-Authenticate", "Bearer")
	}
	problem.Write(w, err)
}

// checkQuery refuses what would not be read: unknown and repeated parameters,
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

// Local mounts a plain handler that is shown only through the unix socket, to
// admins; anybody else finds nothing there.
func (t *Table) Local(path string, h http.HandlerFunc) {
	t.mount(http.MethodGet, path, "", key.Admin, nil, func(w http.ResponseWriter, r *http.Request) {
		if !auth.Local(r) {
			t.Refuse(w, r, nothingHere(r))
			return
		}
		h(w, r)
	})
	t.routes[len(t.routes)-1].Local = true
}

// Plain mounts a handler that is no part of the API's document. query names
// the parameters that it reads; nil = it looks after them itself.
func (t *Table) Plain(path string, scope key.Scope, query map[string]bool, h http.HandlerFunc) {
	t.mount(http.MethodGet, path, "", scope, query, h)
}

// Foreign mounts a surface of another vocabulary than the API's on all paths that
// begin with a prefix: its keys, its errors and its routes are its own business.
// What is around every route is around it too. It says who a request is of by
// Admitted, or Refused; a request of which it says neither was anyone's.
func (t *Table) Foreign(prefix string, h http.Handler) {
	t.routes = append(t.routes, Route{Method: "*", Path: prefix, Scope: Own})
	t.mux.HandleFunc(prefix, func(w http.ResponseWriter, r *http.Request) {
		r.Body = &patientBody{ReadCloser: r.Body, rc: http.NewResponseController(w)}
		h.ServeHTTP(w, r)
	})
}

// Operation describes a route of the API.
type Operation struct {
	Method, Path string
	Scope        key.Scope
	ID, Summary  string
	Tag          string
	Status       int // of success; 0 = 200, or 204 without a body
	// BodyBytesMax bounds the JSON body; 0 = 1 MiB.
	BodyBytesMax int64
	// Takes is the content type of the body that a raw route reads.
	Takes string
	// Sends is what a raw route answers.
	Sends Content
	// Step says how a route beneath a sandbox with the scope Write becomes a step
	// of its history; by itself it is one that is named by its ID.
	Step Naming
	// Private: the body holds secrets, and what is wrong with it is told without what
	// stands there.
	Private bool
}

// Content describes what a raw route answers.
type Content struct {
	status, description, contentType string
	of                               reflect.Type   // nil = bytes
	messages                         []reflect.Type // of a WebSocket
}

// Object is one JSON object.
func Object[T any](description string) Content {
	return Content{"200", description, "application/json", reflect.TypeFor[T](), nil}
}

// Events is a stream of server-sent events.
func Events[T any]() Content {
	return Content{"200", "Server-sent events; the data of each is an object of this schema", "text/event-stream", reflect.TypeFor[T](), nil}
}

// Bytes is content of any kind.
func Bytes(contentType, description string) Content {
	return Content{"200", description, contentType, nil, nil}
}

// Socket is a WebSocket.
func Socket(description string) Content {
	return Content{"101", description, "", nil, nil}
}

// Messages is a WebSocket of JSON as text: Q from the client, M from the server. OpenAPI
// has no place for them but the schemas.
func Messages[Q, M any](description string) Content {
	return Content{"101", description, "", nil, []reflect.Type{reflect.TypeFor[Q](), reflect.TypeFor[M]()}}
}

func (o Operation) huma(t *Table) huma.Operation {
	op := huma.Operation{
		OperationID: o.ID, Method: o.Method, Path: o.Path, Summary: o.Summary, Tags: []string{o.Tag},
		DefaultStatus: o.Status, MaxBodyBytes: cmp.Or(o.BodyBytesMax, jsonBytesMax),
		BodyReadTimeout: -1, // patientBody
		Metadata:        map[string]any{"scope": o.Scope, problem.Private: o.Private},
		Description:     "Needs the scope `" + string(o.Scope) + "`.",
		Security:        []map[string][]string{{"bearer": {}}, {"header": {}}},
	}
	if o.Takes != "" {
		op.RequestBody = &huma.RequestBody{Required: true, Content: map[string]*huma.MediaType{o.Takes: {Schema: binary()}}}
	}
	if o.Sends.status == "101" {
		op.DefaultStatus = http.StatusSwitchingProtocols
	}
	if o.Sends.status != "" {
		op.Responses = map[string]*huma.Response{o.status(): o.Sends.response(t)}
	}
	o.declareStep(&op)
	return op
}

func (o Operation) status() string {
	if o.Status != 0 {
		return strconv.Itoa(o.Status)
	}
	return o.Sends.status
}

func (c Content) response(t *Table) *huma.Response {
	res := &huma.Response{Description: c.description}
	schema := binary()
	if c.of != nil {
		schema = t.api.OpenAPI().Components.Schemas.Schema(c.of, true, c.of.Name())
	}
	for _, m := range c.messages {
		t.api.OpenAPI().Components.Schemas.Schema(m, true, m.Name())
	}
	if c.contentType != "" {
		res.Content = map[string]*huma.MediaType{c.contentType: {Schema: schema}}
	}
	return res
}

func binary() *huma.Schema { return &huma.Schema{Type: huma.TypeString, Format: "binary"} }

// JSON registers a route that takes and answers JSON.
func JSON[I, O any](t *Table, o Operation, fn func(context.Context, *I) (*O, error)) {
	checkStep[I](o)
	huma.Register(t.api, o.huma(t), func(ctx context.Context, in *I) (*O, error) {
		end := begin(ctx, o, in)
		defer end()
		out, err := fn(ctx, in)
		if err != nil {
			noteOf(ctx).err = err
			return nil, problem.Of(err)
		}
		return out, nil
	})
}

// Raw registers a route that answers by itself. An error that it returns is
// answered here if nothing was written yet, and is logged in any case.
func Raw[I any](t *Table, o Operation, fn func(http.ResponseWriter, *http.Request, *I) error) {
	checkStep[I](o)
	huma.Register(t.api, o.huma(t), func(_ context.Context, in *I) (*huma.StreamResponse, error) {
		return &huma.StreamResponse{Body: func(ctx huma.Context) {
			r, w := humago.Unwrap(ctx)
			end := begin(r.Context(), o, in)
			defer end()
			note(r).answering = end // who has the answer may count on the revision
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

// WriteJSON answers a raw route.
func WriteJSON(w http.ResponseWriter, status int, v any) error {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	return json.NewEncoder(w).Encode(v)
}

// Body returns a request's body that holds at most limit bytes; more is found
// out before the first byte is read if the client says how much it sends.
func Body(w http.ResponseWriter, r *http.Request, limit int64) (io.Reader, error) {
	if r.ContentLength > limit {
		return nil, BodyError(&http.MaxBytesError{Limit: limit})
	}
	return http.MaxBytesReader(w, r.Body, limit), nil
}

// BodyError says why a body could not be read.
func BodyError(err error) error {
	if large, ok := errors.AsType[*http.MaxBytesError](err); ok {
		return problem.At(http.StatusRequestEntityTooLarge, errs.New(errs.Invalid, "the body is larger than %d bytes", large.Limit))
	}
	return errs.Wrap(errs.Invalid, err, "the body ended before it was whole")
}

func nothingHere(r *http.Request) error {
	return errs.New(errs.NotFound, "there is no %.200q here", r.URL.Path).WithHint("/docs lists all routes")
}

// notFound answers what no route matches: 404, or 405 when another method would.
func (t *Table) notFound(w http.ResponseWriter, r *http.Request) {
	var allow []string
	for _, m := range []string{http.MethodGet, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete} {
		probe := &http.Request{Method: m, URL: r.URL, Host: r.Host}
		if _, pattern := t.mux.Handler(probe); pattern != "/" && pattern != "" {
			allow = append(allow, m)
		}
	}
	if len(allow) == 0 {
		t.Refuse(w, r, nothingHere(r))
		return
	}
	w.Header().Set("Allow", strings.Join(allow, ", "))
	t.Refuse(w, r, problem.At(http.StatusMethodNotAllowed,
		errs.New(errs.Invalid, "%.20q is not done to this; it takes %s", r.Method, strings.Join(allow, ", "))))
}
