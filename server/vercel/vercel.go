package vercel

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/guest/wire"
	"github.com/skete-dev/skete/sandbox"
	"github.com/skete-dev/skete/server/auth"
	"github.com/skete-dev/skete/server/key"
	"github.com/skete-dev/skete/server/problem"
	"github.com/skete-dev/skete/server/route"
	"github.com/skete-dev/skete/server/stream"
)

// prefix is where the surface is.
const prefix = "/vercel"

// bodyBytesMax bounds a JSON body.
const bodyBytesMax = 1 << 20

// Sandboxes is what is needed of *manager.Manager.
type Sandboxes interface {
	Create(ctx context.Context, tenant string, r sandbox.CreateRequest) (sandbox.Info, error)
	Get(ctx context.Context, tenant string, id sandbox.ID) (sandbox.Info, error)
	Find(ctx context.Context, tenant, name string) (sandbox.ID, error)
	List(ctx context.Context, tenant string, f sandbox.Filter) (sandbox.Page, error)
	Update(ctx context.Context, tenant string, id sandbox.ID, u sandbox.UpdateRequest) (sandbox.Info, error)
	Start(ctx context.Context, tenant string, id sandbox.ID) (sandbox.Info, error)
	Stop(ctx context.Context, tenant string, id sandbox.ID) (sandbox.Info, error)
	Resume(ctx context.Context, tenant string, id sandbox.ID) (sandbox.Info, error)
	Destroy(ctx context.Context, tenant string, id sandbox.ID) error
	Guest(ctx context.Context, tenant string, id sandbox.ID) (c *wire.Client, release func(), err error)
	Fork(ctx context.Context, tenant string, id sandbox.ID, r sandbox.ForkRequest) ([]sandbox.Info, error)
	Snapshot(ctx context.Context, tenant string, id sandbox.ID, r sandbox.SnapshotRequest) (sandbox.Snapshot, error)
	GetSnapshot(ctx context.Context, tenant string, id sandbox.SnapshotID) (sandbox.Snapshot, error)
	ListSnapshots(ctx context.Context, tenant string) []sandbox.Snapshot
	DeleteSnapshot(ctx context.Context, tenant string, id sandbox.SnapshotID) error
	Limits() sandbox.Limits
}

// Config of a Bridge.
type Config struct {
	Sandboxes Sandboxes
	Gate      *auth.Authenticator
	Hub       *stream.Hub
	// Address is where a port of a sandbox is shown; nil = none is.
	Address func(id sandbox.ID, port int) string
	// UploadBytesMax bounds an upload of files, packed and unpacked.
	UploadBytesMax int64
	// Started is told of every command that is asked for; nil = nothing is.
	Started func()
	Log     *slog.Logger
}

// Bridge serves the SDK.
type Bridge struct {
	Config
	table *route.Table
	mux   *http.ServeMux
}

// New returns a Bridge.
func New(c Config) *Bridge {
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	if c.Started == nil {
		c.Started = func() {}
	}
	b := &Bridge{Config: c, mux: http.NewServeMux()}
	b.routes()
	return b
}

// Register adds the surface to the table.
func (b *Bridge) Register(t *route.Table) {
	b.table = t
	t.Foreign(prefix+"/", http.StripPrefix(prefix, b.mux))
}

// operation is what a path does.
type operation struct {
	scope key.Scope
	name  string // for the audit log
	query string // names of parameters that it reads
	h     handler
}

// handler answers a call of a caller who is admitted. An error is answered if nothing
// was written.
type handler func(w http.ResponseWriter, r *http.Request) error

// routes has all of the API.
func (b *Bridge) routes() {
	const all, one, session = "/v2/sandboxes", "/v2/sandboxes/{name}", "/v2/sandboxes/sessions/{session}"
	const snapshots, command = "/v2/sandboxes/snapshots", session + "/cmd/{command}"
	const paged = "limit cursor sortOrder"
	for pattern, o := range map[string]operation{
		"POST " + all:                         {key.Write, "create-sandbox", "", b.create},
		"POST /v3/sandboxes":                  {key.Write, "create-sandbox", "", b.create},
		"GET " + all:                          {key.Read, "list-sandboxes", paged + " sortBy namePrefix tags", b.list},
		"GET " + one:                          {key.Read, "get-sandbox", "resume", b.get},
		"PATCH " + one:                        {key.Write, "update-sandbox", "", b.update},
		"DELETE " + one:                       {key.Write, "destroy-sandbox", "deleteOrphanSnapshots", b.remove},
		"POST " + one + "/fork":               {key.Write, "fork-sandbox", "", b.fork},
		"GET /v2/sandboxes/sessions":          {key.Read, "list-sandboxes", paged + " name", b.sessions},
		"GET " + session:                      {key.Read, "get-sandbox", "", b.session},
		"POST " + session + "/stop":           {key.Write, "stop-sandbox", "", b.stop},
		"POST " + session + "/extend-timeout": {key.Write, "update-sandbox", "", b.extend},
		"POST " + session + "/network-policy": {key.Write, "update-sandbox", "", b.updateNetwork},
		"POST " + session + "/snapshot":       {key.Write, "create-snapshot", "", b.snapshot},
		"POST " + session + "/cmd":            {key.Write, "run-command", "", b.run},
		"GET " + command:                      {key.Read, "get-process", "wait", b.command},
		"GET " + command + "/logs":            {key.Read, "stream-output", "", b.logs},
		"POST " + command + "/kill":           {key.Write, "signal-process", "", b.kill},
		"POST " + session + "/fs/mkdir":       {key.Write, "make-directory", "", b.makeDir},
		"POST " + session + "/fs/read":        {key.Read, "read-file", "", b.readFile},
		"POST " + session + "/fs/write":       {key.Write, "upload-tree", "", b.writeFiles},
		"POST " + session + "/interactive":    {key.Write, "exec", "", refused("openInteractive")},
		"GET " + snapshots:                    {key.Read, "list-snapshots", paged + " name", b.snapshots},
		"GET " + snapshots + "/tree":          {key.Read, "list-snapshots", paged + " snapshotId", refused("the tree of snapshots")},
		"GET " + snapshots + "/{snapshot}":    {key.Read, "get-snapshot", "", b.getSnapshot},
		"DELETE " + snapshots + "/{snapshot}": {key.Write, "delete-snapshot", "", b.deleteSnapshot},
		"GET /v2/sandboxes/drives":            {key.Read, "list-sandboxes", paged + " sortBy namePrefix", refused("a drive")},
	} {
		b.mux.HandleFunc(pattern, b.api(o))
	}
	b.mux.HandleFunc("/", b.unknown)
}

// refused is a handler of what is not supported.
func refused(what string) handler {
	return func(http.ResponseWriter, *http.Request) error { return notSupported(what) }
}

// always are parameters of every request. They say whose a sandbox is, which here the
// key does.
const always = "teamId slug projectId project"

// api puts the check of the caller around a handler.
func (b *Bridge) api(o operation) http.HandlerFunc {
	known := strings.Fields(o.query + " " + always)
	return func(w http.ResponseWriter, r *http.Request) {
		scope, name := o.scope, o.name
		if r.URL.Query().Get("resume") == "true" { // that starts it
			scope, name = key.Write, "start-sandbox"
		}
		who, err := b.Gate.Admit(r, scope)
		if err != nil {
			route.Refused(r)
			refuse(w, r, err)
			return
		}
		id, found := b.find(r, who.Tenant)
		r = b.table.Admitted(r, route.Admission{Identity: who, Operation: name, Sandbox: string(id), Changes: scope == key.Write})
		switch err = checkQuery(r, known); {
		case err != nil:
		case found != nil:
			err = found
		default:
			err = o.h(w, r.WithContext(context.WithValue(r.Context(), sandboxKey{}, id)))
		}
		if err == nil {
			return
		}
		route.Note(r, err)
		if !route.Wrote(r) {
			refuse(w, r, err)
		}
	}
}

type sandboxKey struct{}

// sandboxOf is the sandbox that a request's path names.
func sandboxOf(r *http.Request) sandbox.ID { return r.Context().Value(sandboxKey{}).(sandbox.ID) }

// find reads which sandbox a path names: by the id of its session, by its name, or by
// its id where it has no name. "" = none.
func (b *Bridge) find(r *http.Request, tenant string) (sandbox.ID, error) {
	name := r.PathValue("session")
	if name == "" {
		name = r.PathValue("name")
	}
	if name == "" {
		return "", nil
	}
	return b.named(r.Context(), tenant, name)
}

// named finds a sandbox by its whole id or its name: the beginning of an id is not
// enough, since clients make those that they do not find.
func (b *Bridge) named(ctx context.Context, tenant, name string) (sandbox.ID, error) {
	if id, err := sandbox.ParseID(name); err == nil {
		return id, nil
	}
	id, err := b.Sandboxes.Find(ctx, tenant, name)
	if err == nil {
		var info sandbox.Info
		if info, err = b.Sandboxes.Get(ctx, tenant, id); err == nil && info.Spec.Name == name {
			return id, nil
		}
	}
	if err != nil && !errs.Is(err, errs.NotFound) && !errs.Is(err, errs.Invalid) {
		return "", err
	}
	return "", errs.New(errs.NotFound, "there is no sandbox %.80q", name)
}

// checkQuery refuses parameters that are not known.
func checkQuery(r *http.Request, known []string) error {
	for name, values := range r.URL.Query() {
		if !slices.Contains(known, name) || len(values) > 1 {
			return errs.New(errs.Invalid, "the parameter %.60q is not known here, or is given twice", name).WithHint(seeHelp)
		}
	}
	return nil
}

const seeHelp = "`skete help bridges` lists what works"

// decode reads a JSON body into v. A field that v does not have is refused: it may be a
// restriction. An empty body is none.
func decode(w http.ResponseWriter, r *http.Request, v any) error {
	body, err := route.Body(w, r, bodyBytesMax)
	if err != nil {
		return err
	}
	data, err := io.ReadAll(body)
	if err != nil {
		return route.BodyError(err)
	}
	if len(bytes.TrimSpace(data)) == 0 {
		return nil
	}
	return unmarshal(data, v)
}

// unmarshal parses one JSON object, and nothing behind it.
func unmarshal(data []byte, v any) error {
	d := json.NewDecoder(bytes.NewReader(data))
	d.DisallowUnknownFields()
	if err := d.Decode(v); err != nil {
		return bodyError(err)
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return errs.New(errs.Invalid, "something stands behind the JSON object")
	}
	return nil
}

// bodyError says what is wrong with a JSON body.
func bodyError(err error) error {
	if own, ok := errors.AsType[*errs.Error](err); ok {
		return own
	}
	if kind, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
		return errs.New(errs.Invalid, "%.60s is of the wrong kind: %.40s", kind.Field, kind.Value)
	}
	if _, field, ok := strings.Cut(err.Error(), "unknown field "); ok {
		return errs.New(errs.Invalid, "the option %.60s is not known here", field).WithHint(seeHelp)
	}
	return errs.Wrap(errs.Invalid, err, "the body is no JSON object")
}

func notSupported(what string) error {
	return errs.New(errs.Invalid, "%.80s is not supported here", what).WithHint(seeHelp)
}

// refusal is the shape of an error.
type refusal struct {
	Error refusalText `json:"error"`
}

type refusalText struct {
	Code    string `json:"code"`
	Message string `json:"message"`
}

// codes are what clients call the reasons of a status.
var codes = map[int]string{
	http.StatusUnauthorized: "unauthorized", http.StatusForbidden: "forbidden", http.StatusNotFound: "not_found", http.StatusConflict: "conflict",
	http.StatusGone: "sandbox_stopped", http.StatusRequestEntityTooLarge: "payload_too_large", http.StatusTooManyRequests: "rate_limited",
	http.StatusServiceUnavailable: "unavailable", http.StatusGatewayTimeout: "timeout",
}

// refusalOf is an error in the client's shape.
func refusalOf(err error) (status int, r refusalText, header http.Header) {
	p := problem.Of(err)
	status = p.Status
	if status == http.StatusNotImplemented { // another try does not help
		status = http.StatusBadRequest
	}
	r.Message = p.Detail
	if p.Hint != "" {
		r.Message += ". Hint: " + p.Hint
	}
	r.Code = codes[status]
	switch {
	case r.Code != "":
	case status >= http.StatusInternalServerError:
		r.Code = "internal_server_error"
	default:
		r.Code = "bad_request"
	}
	return status, r, p.GetHeaders()
}

// refuse answers with an error.
func refuse(w http.ResponseWriter, r *http.Request, err error) {
	route.Note(r, err)
	status, text, header := refusalOf(err)
	maps.Copy(w.Header(), header)
	w.Header().Set("Cache-Control", "no-store")
	_ = writeJSON(w, status, refusal{text})
}

func writeJSON(w http.ResponseWriter, status int, v any) error {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(v) // an error is that of a client that is gone
	return nil
}

// unknown answers what this surface does not have. It is logged loudly: SDKs move.
func (b *Bridge) unknown(w http.ResponseWriter, r *http.Request) {
	b.Log.Warn("a client of the Vercel Sandbox API asked for what is not here", "method", clip(r.Method), "path", clip(r.URL.Path), "client", clip(r.UserAgent()))
	if strings.HasPrefix(r.URL.Path, "/v2/sandboxes/drives") {
		refuse(w, r, notSupported("a drive"))
		return
	}
	refuse(w, r, errs.New(errs.NotFound, "there is no %s %.200q here", clip(r.Method), r.URL.Path).
		WithHint(seeHelp+"; a newer SDK may ask for more"))
}

func clip(s string) string { return s[:min(len(s), 64)] }

// now is a variable of tests.
var now = time.Now
