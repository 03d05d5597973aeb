package envd

import (
	"context"
	"encoding/json"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/guest/wire"
	"github.com/skete-dev/skete/internal/keylock"
	"github.com/skete-dev/skete/kv"
	"github.com/skete-dev/skete/sandbox"
	"github.com/skete-dev/skete/server/auth"
	"github.com/skete-dev/skete/server/problem"
	"github.com/skete-dev/skete/server/route"
	"github.com/skete-dev/skete/server/stream"
)

// Where the surface is.
const (
	prefix      = "/e2b"
	filesPath   = "/files" // SDKs drop the prefix from signed addresses
	envdPort    = 49983
	idHeader    = "E2b-Sandbox-Id"
	portHeader  = "E2b-Sandbox-Port"
	tokenHeader = "X-Access-Token"
	// trafficHeader has the token that is for ports of a sandbox alone.
	trafficHeader = "E2b-Traffic-Access-Token"
	// version of envd that we are: what came later, metadata of files, is refused.
	version = "0.5.7"
)

// Sandboxes is what is needed of *manager.Manager.
type Sandboxes interface {
	Create(ctx context.Context, tenant string, r sandbox.CreateRequest) (sandbox.Info, error)
	Get(ctx context.Context, tenant string, id sandbox.ID) (sandbox.Info, error)
	List(ctx context.Context, tenant string, f sandbox.Filter) (sandbox.Page, error)
	Update(ctx context.Context, tenant string, id sandbox.ID, u sandbox.UpdateRequest) (sandbox.Info, error)
	Start(ctx context.Context, tenant string, id sandbox.ID) (sandbox.Info, error)
	Stop(ctx context.Context, tenant string, id sandbox.ID) (sandbox.Info, error)
	Pause(ctx context.Context, tenant string, id sandbox.ID) (sandbox.Info, error)
	Resume(ctx context.Context, tenant string, id sandbox.ID) (sandbox.Info, error)
	Destroy(ctx context.Context, tenant string, id sandbox.ID) error
	Guest(ctx context.Context, tenant string, id sandbox.ID) (c *wire.Client, release func(), err error)
	Dial(ctx context.Context, tenant string, id sandbox.ID, port uint32) (net.Conn, error)
	Fork(ctx context.Context, tenant string, id sandbox.ID, r sandbox.ForkRequest) ([]sandbox.Info, error)
	Snapshot(ctx context.Context, tenant string, id sandbox.ID, r sandbox.SnapshotRequest) (sandbox.Snapshot, error)
	ListSnapshots(ctx context.Context, tenant string) []sandbox.Snapshot
	DeleteSnapshot(ctx context.Context, tenant string, id sandbox.SnapshotID) error
	Limits() sandbox.Limits
}

// Config of a Bridge.
type Config struct {
	Sandboxes Sandboxes
	// Templates are the names of all; base is one beside them.
	Templates func(ctx context.Context) ([]string, error)
	// Records keeps which sandboxes have an access token, and what their clients
	// asked for. It is for this package alone.
	Records kv.Store
	Gate    *auth.Authenticator
	// Secrets of all tenants; nil = there are none.
	Secrets Secrets
	// Owner says whether a key or login is still good; nil = all are.
	Owner func(ctx context.Context, owner string) error
	Hub   *stream.Hub
	// Domain is beneath what ports of sandboxes are shown, with its port; "" = they are not.
	Domain string
	// UploadBytesMax bounds the body of an upload.
	UploadBytesMax int64
	// Started is told of every command that is asked for.
	Started func()
	Log     *slog.Logger
}

// Bridge serves the SDKs.
type Bridge struct {
	Config
	table    *route.Table
	rest     *http.ServeMux
	envd     *http.ServeMux
	records  records
	watchers watchers
	inputs   keylock.Locks[string] // of commands, by sandbox and key
}

// New returns a Bridge.
func New(c Config) *Bridge {
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	b := &Bridge{Config: c, records: newRecords(c.Records)}
	b.rest, b.envd = http.NewServeMux(), http.NewServeMux()
	b.routeREST()
	b.routeEnvd()
	return b
}

// Register adds the surface to the table.
func (b *Bridge) Register(t *route.Table) {
	b.table = t
	t.Foreign(prefix+"/", http.StripPrefix(prefix, http.HandlerFunc(b.serve)))
	t.Foreign(filesPath, http.HandlerFunc(b.serve))
}

// serve tells what is for a sandbox from what is for the REST API.
func (b *Bridge) serve(w http.ResponseWriter, r *http.Request) {
	switch {
	case r.Header.Get(idHeader) != "":
		b.serveSandbox(w, r)
	case r.URL.Path == filesPath && r.URL.Query().Get("signature") != "":
		b.serveSigned(w, r)
	default:
		b.rest.ServeHTTP(w, r)
	}
}

// serveSandbox serves what is for a port of a sandbox.
func (b *Bridge) serveSandbox(w http.ResponseWriter, r *http.Request) {
	port, err := strconv.ParseUint(r.Header.Get(portHeader), 10, 16)
	if err != nil || port == 0 {
		refuse(w, r, errs.New(errs.Invalid, "the header %s names no port", portHeader))
		return
	}
	id, err := parseID(r.Header.Get(idHeader))
	if err != nil {
		notFound(w, r, err)
		return
	}
	rec, err := b.records.get(r.Context(), id)
	if err != nil {
		notFound(w, r, err)
		return
	}
	if port == envdPort {
		b.serveEnvd(w, r, rec)
		return
	}
	b.servePort(w, r, rec, uint16(port))
}

// parseID reads a sandbox's id as clients write it: without our prefix, or with it;
// behind a dash stands what old clients add.
func parseID(text string) (sandbox.ID, error) {
	text, _, _ = strings.Cut(text, "-")
	if !strings.HasPrefix(text, idPrefix) {
		text = idPrefix + text
	}
	return sandbox.ParseID(text)
}

const idPrefix = "sbx_"

// clientID is how clients know a sandbox: host names have no underscore.
func clientID(id sandbox.ID) string { return strings.TrimPrefix(string(id), idPrefix) }

// refusal is the shape of an error. Clients look at code, not at the status.
type refusal struct {
	Code    int    `json:"code"`
	Message string `json:"message"`
	Sandbox string `json:"sandboxId,omitempty"`
	Port    int    `json:"port,omitempty"`
}

// refuse answers with an error, in the client's shape.
func refuse(w http.ResponseWriter, r *http.Request, err error) {
	p := problem.Of(err)
	message := p.Detail
	if p.Hint != "" {
		message += ". Hint: " + p.Hint
	}
	maps.Copy(w.Header(), p.GetHeaders())
	answerError(w, r, refusal{Code: p.Status, Message: message}, err)
}

// notFound answers what is for a sandbox that does not run: clients know that by
// the status.
func notFound(w http.ResponseWriter, r *http.Request, err error) {
	answerError(w, r, refusal{Code: http.StatusBadGateway, Message: "The sandbox was not found", Sandbox: clip(r.Header.Get(idHeader))}, err)
}

func clip(s string) string { return s[:min(len(s), 64)] }

func answerError(w http.ResponseWriter, r *http.Request, body refusal, err error) {
	route.Note(r, err)
	w.Header().Set("Cache-Control", "no-store")
	writeJSON(w, body.Code, body)
}

func writeJSON(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(v)
}

// missing are parts of the API that are not supported.
var missing = []string{"/volumes", "/volumecontent", "/v2/templates", "/v3/templates", "/templates", "/teams", "/v2/sandboxes/"}

// unknown answers what this surface does not have. It is logged loudly: SDKs move.
func (b *Bridge) unknown(w http.ResponseWriter, r *http.Request) {
	b.Log.Warn("a client of the E2B API asked for what is not here", "method", clip(r.Method), "path", clip(r.URL.Path),
		"client", clip(r.UserAgent()))
	for _, name := range missing {
		if strings.HasPrefix(r.URL.Path, name) {
			refuse(w, r, notSupported(r.URL.Path))
			return
		}
	}
	refuse(w, r, errs.New(errs.NotFound, "there is no %s %.200q here", clip(r.Method), r.URL.Path).
		WithHint("`skete help bridges` lists what works; a newer SDK may ask for more"))
}

// Sweep forgets the sandboxes that are gone.
func (b *Bridge) Sweep(ctx context.Context) error {
	return b.records.sweep(ctx, func(tenant string, id sandbox.ID) bool {
		info, err := b.Sandboxes.Get(ctx, tenant, id)
		return errs.Is(err, errs.NotFound) || err == nil && info.State == sandbox.Destroyed
	}, func(rec record) error { return b.revokeRules(ctx, rec) })
}

// now is a variable of tests.
var now = time.Now
