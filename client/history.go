package client

import (
	"context"
	"io"
	"iter"
	"net/http"
	"net/url"
	"strconv"

	"github.com/skete-dev/skete/api"
	"github.com/skete-dev/skete/client/transport"
)

// This file reaches the revisions of a sandbox's workspace, and the ways
// back, through the API.
//
// Paths are relative to the workspace, and may hold any bytes but NUL. A
// History is safe for concurrent use.

// History is that of one sandbox; it holds no state of it.
type History struct {
	t    *transport.Client
	base string
}

// newHistory returns a handle on the history at a path of the API.
func newHistory(t *transport.Client, base string) *History { return &History{t, base} }

func (h *History) path(rest string) string { return h.base + rest }

// Page returns one page of revisions, newest first, and where undo and redo
// would go; size 0 = the server's default.
func (h *History) Page(ctx context.Context, size int, token string) (api.RevisionPage, error) {
	q := url.Values{}
	if size > 0 {
		q.Set("page_size", strconv.Itoa(size))
	}
	if token != "" {
		q.Set("page_token", token)
	}
	return transport.Fetch[api.RevisionPage](ctx, h.t, transport.Get(h.path(""), q))
}

// RevisionFilter selects revisions; the zero value selects all.
type RevisionFilter struct {
	Thread, Run string
	PageSize    int
}

// Revisions goes through the revisions that the filter selects, newest first.
// It ends after the first error.
func (h *History) Revisions(ctx context.Context, f RevisionFilter) iter.Seq2[api.Revision, error] {
	q := url.Values{}
	for name, v := range map[string]string{"thread": f.Thread, "run": f.Run} {
		if v != "" {
			q.Set(name, v)
		}
	}
	if f.PageSize > 0 {
		q.Set("page_size", strconv.Itoa(f.PageSize))
	}
	return func(yield func(api.Revision, error) bool) {
		for {
			p, err := transport.Fetch[api.RevisionPage](ctx, h.t, transport.Get(h.path(""), q))
			if err != nil {
				yield(api.Revision{}, err)
				return
			}
			for _, r := range p.Items {
				if !yield(r, nil) {
					return
				}
			}
			if p.NextPageToken == "" {
				return
			}
			q.Set("page_token", p.NextPageToken)
		}
	}
}

// Snapshot makes a revision of what is on disk now. If nothing changed it
// returns the last one.
func (h *History) Snapshot(ctx context.Context, label string) (api.Revision, error) {
	k := transport.Call{Method: http.MethodPost, Path: h.path(""), Repeatable: true} // the second finds nothing new
	return transport.Fetch[api.Revision](ctx, h.t, k.WithJSON(api.MakeRevision{Label: label}))
}

// Move gives this sandbox, which has no history yet, that of another one, and
// its files.
func (h *History) Move(ctx context.Context, m api.MoveHistory) (api.Revision, error) {
	return transport.Fetch[api.Revision](ctx, h.t, transport.Call{Method: http.MethodPost, Path: h.path("/move")}.WithJSON(m))
}

// Get returns a revision and what it changed against the one before it.
func (h *History) Get(ctx context.Context, n uint64) (api.RevisionChanges, error) {
	return transport.Fetch[api.RevisionChanges](ctx, h.t, transport.Get(h.path("/"+strconv.FormatUint(n, 10)), nil))
}

// DiffOptions choose a part of a diff and how much of it.
type DiffOptions struct {
	Path    string // and what is beneath it; "" = all
	Hunks   bool   // the changed lines of texts too
	Context int    // lines around a change; 0 = 3
}

// Diff compares two revisions; from 0 is the empty tree, to 0 the files
// as they are now.
func (h *History) Diff(ctx context.Context, from, to uint64, o DiffOptions) (api.Diff, error) {
	q := url.Values{"from": {strconv.FormatUint(from, 10)}, "to": {strconv.FormatUint(to, 10)}}
	if o.Path != "" {
		q.Set("path", o.Path)
	}
	if o.Hunks {
		q.Set("hunks", "true")
	}
	if o.Context > 0 {
		q.Set("context", strconv.Itoa(o.Context))
	}
	return transport.Fetch[api.Diff](ctx, h.t, transport.Get(h.path("/diff"), q))
}

// Of returns the revisions that changed a path, newest first.
func (h *History) Of(ctx context.Context, path string) (api.PathRevisions, error) {
	return transport.Fetch[api.PathRevisions](ctx, h.t, transport.Get(h.path("/path"), url.Values{"path": {path}}))
}

// List returns what was in a directory of revision n, "" = the workspace, by name.
// token asks for the page after one.
func (h *History) List(ctx context.Context, n uint64, dir, token string) (api.TreePage, error) {
	q := url.Values{"path": {dir}, "page_token": {token}}
	return transport.Fetch[api.TreePage](ctx, h.t, transport.Get(h.path("/"+strconv.FormatUint(n, 10)+"/list"), q))
}

// Open streams a file as it was in a revision. The caller closes it.
func (h *History) Open(ctx context.Context, n uint64, path string) (io.ReadCloser, error) {
	return h.stream(ctx, "/"+strconv.FormatUint(n, 10)+"/file", url.Values{"path": {path}})
}

// Archive reads a directory as it was in revision n, "" = all, as a tar with names
// beneath it. The caller closes it.
func (h *History) Archive(ctx context.Context, n uint64, path string) (io.ReadCloser, error) {
	return h.stream(ctx, "/"+strconv.FormatUint(n, 10)+"/archive", url.Values{"path": {path}})
}

// DownloadDir copies a directory as it was in revision n to one of this machine.
func (h *History) DownloadDir(ctx context.Context, n uint64, remote, local string) (TreeStat, error) {
	r, err := h.Archive(ctx, n, remote)
	if err != nil {
		return TreeStat{}, err
	}
	defer r.Close()
	return unpackTree(r, local)
}

// Export streams the history for `git fast-import`. The caller closes it.
func (h *History) Export(ctx context.Context) (io.ReadCloser, error) {
	return h.stream(ctx, "/export", nil)
}

func (h *History) stream(ctx context.Context, rest string, q url.Values) (io.ReadCloser, error) {
	res, err := h.t.Do(ctx, transport.Get(h.path(rest), q))
	if err != nil {
		return nil, err
	}
	return res.Body, nil
}

// Plan says what a way back would do; nothing is done.
func (h *History) Plan(ctx context.Context, p api.PlanChange) (api.ChangePlan, error) {
	k := transport.Call{Method: http.MethodPost, Path: h.path("/plan"), Repeatable: true}
	return transport.Fetch[api.ChangePlan](ctx, h.t, k.WithJSON(p))
}

// Apply does what was planned. Conflict: the files changed since; plan again.
// A repeated attempt after a broken connection does nothing twice.
func (h *History) Apply(ctx context.Context, plan string) (api.Applied, error) {
	k := transport.Call{Method: http.MethodPost, Path: h.path("/apply"), Repeatable: true}
	return transport.Fetch[api.Applied](ctx, h.t, k.WithJSON(api.ApplyPlan{Plan: plan}))
}

// Delete removes what is kept of a destroyed sandbox, for ever. Conflict: the
// sandbox is there.
func (h *History) Delete(ctx context.Context) error {
	return h.t.Send(ctx, transport.Call{Method: http.MethodDelete, Path: h.path(""), Repeatable: true})
}

// ChangedPath returns the exact path of a change, also when it is not UTF-8.
func ChangedPath(c api.PathChange) string {
	if c.PathBytes != nil {
		return string(c.PathBytes)
	}
	return c.Path
}
