// Package history serves the revisions of a sandbox's workspace and the ways
// back: lists, diffs, contents, plans, and what applies them.
//
//	history.Register(table, history.Config{Histories: histories, Hub: hub})
//
// A way back is two requests: a plan, which shows what would be touched and
// does nothing, and its apply, which does exactly that or answers 409 because
// the files moved since. The same apply may be sent again after a broken
// connection: it is answered with what the first one did.
//
// Paths are any bytes, relative to the workspace; whatever a sandbox wrote is
// bounded, made valid UTF-8, and never shown by a browser as a page of this
// server. All handlers are safe for concurrent use.
package history

import (
	"context"
	"net/http"
	"path"
	"strings"

	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/internal/keylock"
	"github.com/skete-dev/skete/sandbox"
	"github.com/skete-dev/skete/server/auth"
	"github.com/skete-dev/skete/server/key"
	"github.com/skete-dev/skete/server/route"
	"github.com/skete-dev/skete/server/stream"
	"github.com/skete-dev/skete/workspace"
)

// Histories opens the history of a sandbox.
type Histories interface {
	// Open returns the history of a tenant's sandbox; release must be called.
	// NotFound: the tenant has no such sandbox. Conflict: what is asked for
	// needs a running one.
	Open(ctx context.Context, tenant string, id sandbox.ID) (h workspace.History, release func(), err error)
	// Kept lists what is kept of a tenant's destroyed sandboxes.
	Kept(ctx context.Context, tenant string) ([]sandbox.KeptHistory, error)
	// Delete removes what is kept of one, for ever. Conflict: the sandbox is there.
	// NotFound: nothing is kept of it.
	Delete(ctx context.Context, tenant string, id sandbox.ID) error
}

// Durable is a workspace.History that knows which of its revisions survive the
// loss of the sandbox. Without it all do.
type Durable interface {
	// Durable returns the newest revision of which this is so.
	Durable(ctx context.Context) (n uint64, err error)
}

// Config of the routes.
type Config struct {
	Histories Histories // nil = this server keeps no history; its routes say so
	Hub       *stream.Hub
}

type service struct {
	histories Histories
	hub       *stream.Hub
	sandboxOf func(ctx context.Context, name string) (id string, err error)
	applied   memory
	applying  keylock.Locks[applyKey]
}

// Register adds the routes to the table.
func Register(t *route.Table, c Config) {
	s := &service{histories: c.Histories, hub: c.Hub, sandboxOf: t.SandboxOf}
	const tag, base = "history", "/v1/sandboxes/{id}/history"
	get := func(path, id, summary string) route.Operation {
		return route.Operation{Method: http.MethodGet, Path: base + path, Scope: key.Read, ID: id, Tag: tag, Summary: summary}
	}
	post := func(path, id, summary string) route.Operation {
		return route.Operation{Method: http.MethodPost, Path: base + path, Scope: key.Write, ID: id, Tag: tag, Summary: summary, Step: route.NoStep()}
	}
	raw := func(o route.Operation, sends route.Content) route.Operation {
		o.Sends = sends
		return o
	}
	route.JSON(t, get("", "list-revisions", "List the revisions of the workspace, newest first, and where undo and redo would go"), s.list)
	route.JSON(t, post("", "make-revision", "Make a revision of what is on disk now; if nothing changed, the last one is the answer"), s.snapshot)
	route.JSON(t, get("/{n}", "get-revision", "Get a revision and what it changed against the one before it"), s.get)
	route.JSON(t, get("/diff", "diff-revisions", "Compare two revisions, or a path in them"), s.diff)
	route.JSON(t, get("/path", "list-path-revisions", "List the revisions that changed a path, newest first"), s.pathHistory)
	route.JSON(t, get("/{n}/list", "list-revision-directory", "List a directory as it was in a revision, by name"), s.directory)
	route.Raw(t, raw(get("/{n}/file", "read-revision-file", "Read a file as it was in a revision"), route.Bytes("application/octet-stream", "The content")), s.content)
	route.Raw(t, raw(get("/{n}/archive", "read-revision-directory", "Read a directory as it was in a revision, as a tar"), route.Bytes("application/x-tar", "The tar; names are beneath the directory")), s.archive)
	route.Raw(t, raw(get("/export", "export-history", "Download the history as a stream for git fast-import"), route.Bytes("application/x-git-fast-import", "The stream")), s.export)
	route.JSON(t, post("/plan", "plan-change", "Say what an undo, a redo, a restore or a revert would do, path by path"), s.plan)
	route.JSON(t, post("/apply", "apply-plan", "Do what was planned; 409 if the files changed since"), s.apply)
	route.JSON(t, post("/move", "move-history", "Give a sandbox without a history that of another one, which may be gone, and its files"), s.move)
	route.JSON(t, route.Operation{
		Method: http.MethodGet, Path: "/v1/histories", Scope: key.Read, ID: "list-kept-histories", Tag: tag,
		Summary: "List what is kept of destroyed sandboxes, the largest first",
	}, s.kept)
	route.JSON(t, route.Operation{
		Method: http.MethodDelete, Path: base, Scope: key.Write, ID: "delete-history", Tag: tag, Step: route.NoStep(),
		Summary: "Delete what is kept of a destroyed sandbox, for ever", Status: http.StatusNoContent,
	}, s.remove)
}

// SandboxPath names a sandbox. It is exported because the JSON layer looks
// only into exported embedded fields.
type SandboxPath struct {
	ID string `path:"id" doc:"of the sandbox, sbx_…, the beginning of it, or its name"`
}

// RevisionPath names a revision of a sandbox.
type RevisionPath struct {
	SandboxPath
	N uint64 `path:"n" minimum:"1" doc:"number of the revision"`
}

// opened is the history of a caller's sandbox. release must be called.
type opened struct {
	workspace.History
	tenant  string
	id      sandbox.ID
	release func()
}

var errNone = errs.New(errs.Unsupported, "this server keeps no history of workspaces")

func (s *service) open(ctx context.Context, text string) (opened, error) {
	id, err := sandbox.ParseID(text)
	if err != nil {
		return opened{}, err
	}
	if s.histories == nil {
		return opened{}, errNone
	}
	tenant := auth.From(ctx).Tenant
	h, release, err := s.histories.Open(ctx, tenant, id)
	if err != nil {
		return opened{}, err
	}
	return opened{h, tenant, id, release}, nil
}

// pathBytesMax is what Linux takes, and more than a tree can hold.
const pathBytesMax = 4096

// place cleans a path that a caller named: relative to the workspace, or
// absolute and in it. "" is all of it. Invalid: it leads out of the workspace.
func place(p string) (string, error) {
	if len(p) > pathBytesMax || strings.ContainsRune(p, 0) {
		return "", errs.New(errs.Invalid, "%.80q is no path: too long, or with a NUL in it", p)
	}
	if rest, ok := strings.CutPrefix(p, workspaceDir); ok && (rest == "" || rest[0] == '/') {
		p = strings.TrimLeft(rest, "/")
	}
	if p == "" {
		return "", nil
	}
	clean := path.Clean(p)
	switch {
	case clean == ".":
		return "", nil
	case clean[0] == '/' || clean == ".." || strings.HasPrefix(clean, "../"):
		return "", errs.New(errs.Invalid, "%.200q is not in the workspace", p).WithHint("paths of the history are relative to %s", workspaceDir)
	}
	return clean, nil
}

// workspaceDir is where a sandbox has its workspace.
const workspaceDir = "/workspace"

// exact is a path from a request: bytes count instead of text.
func exact(text string, bytes []byte) string {
	if len(bytes) > 0 {
		return string(bytes)
	}
	return text
}
