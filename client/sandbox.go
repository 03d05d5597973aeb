package client

import (
	"context"
	"crypto/rand"
	"iter"
	"net/http"
	"net/url"
	"strconv"

	"github.com/skete-dev/skete/api"
	"github.com/skete-dev/skete/client/transport"
)

// Sandbox names one sandbox; it holds no state of it.
type Sandbox struct {
	ID string
	c  *Client

	unrevised bool
}

// Sandbox returns a handle; it does not ask the server.
func (c *Client) Sandbox(id string) *Sandbox { return &Sandbox{ID: id, c: c} }

// WithoutRevisions returns a handle whose calls make no revision of the files
// before and after them: what they change becomes one with all else, once it is
// quiet.
func (s *Sandbox) WithoutRevisions() *Sandbox {
	u := *s
	u.unrevised = true
	return &u
}

// changing completes the query of a call that may change files.
func (s *Sandbox) changing(q url.Values) url.Values {
	if !s.unrevised {
		return q
	}
	if q == nil {
		q = url.Values{}
	}
	q.Set("no_revision", "true")
	return q
}

// History returns a handle on the revisions of the sandbox's workspace.
func (s *Sandbox) History() *History { return newHistory(s.c.t, s.path("/history")) }

// Info describes the server.
func (c *Client) Info(ctx context.Context) (api.Info, error) {
	return transport.Fetch[api.Info](ctx, c.t, transport.Get("/v1/info", nil))
}

// Ping returns nil when the server answers at all.
func (c *Client) Ping(ctx context.Context) error {
	return c.t.Send(ctx, transport.Call{Method: http.MethodGet, Path: "/healthz"})
}

// Ready returns nil when the server takes requests.
func (c *Client) Ready(ctx context.Context) error {
	return c.t.Send(ctx, transport.Call{Method: http.MethodGet, Path: "/readyz"})
}

// CreateSandbox makes a sandbox and returns when its guest answers. A repeated
// attempt after a broken connection never makes a second one.
func (c *Client) CreateSandbox(ctx context.Context, spec api.CreateSandbox) (api.Sandbox, error) {
	k := transport.Call{
		Method: http.MethodPost, Path: "/v1/sandboxes", Repeatable: true,
		Header: http.Header{"Idempotency-Key": {rand.Text()}},
	}
	return transport.Fetch[api.Sandbox](ctx, c.t, k.WithJSON(spec))
}

// SandboxFilter selects sandboxes; the zero value selects all.
type SandboxFilter struct {
	State    string
	Metadata map[string]string
	PageSize int
}

func (f SandboxFilter) query() url.Values {
	q := url.Values{}
	if f.State != "" {
		q.Set("state", f.State)
	}
	for k, v := range f.Metadata {
		q.Add("metadata", k+"="+v)
	}
	if f.PageSize > 0 {
		q.Set("page_size", strconv.Itoa(f.PageSize))
	}
	return q
}

// Sandboxes goes through all sandboxes that the filter selects, newest first.
// It ends after the first error.
func (c *Client) Sandboxes(ctx context.Context, f SandboxFilter) iter.Seq2[api.Sandbox, error] {
	return pages(ctx, f.query(), func(q url.Values) ([]api.Sandbox, string, error) {
		p, err := transport.Fetch[api.SandboxPage](ctx, c.t, transport.Get("/v1/sandboxes", q))
		return p.Items, p.NextPageToken, err
	})
}

// SandboxEvents reports changes of state as they happen. lastSeq 0 = from now;
// n = all after event n. The stream comes back by itself after a disconnect
// and ends with ctx or with an error that will not go away.
func (c *Client) SandboxEvents(ctx context.Context, lastSeq uint64) iter.Seq2[api.SandboxEvent, error] {
	last := ""
	if lastSeq > 0 {
		last = strconv.FormatUint(lastSeq, 10)
	}
	return transport.Events[api.SandboxEvent](ctx, c.t, "/v1/sandboxes/events", nil, last)
}

func (s *Sandbox) path(rest string) string { return "/v1/sandboxes/" + url.PathEscape(s.ID) + rest }

// Get returns the sandbox as it is now.
func (s *Sandbox) Get(ctx context.Context) (api.Sandbox, error) {
	return transport.Fetch[api.Sandbox](ctx, s.c.t, transport.Get(s.path(""), nil))
}

// Update changes what may change in a live sandbox.
func (s *Sandbox) Update(ctx context.Context, u api.UpdateSandbox) (api.Sandbox, error) {
	k := transport.Call{Method: http.MethodPatch, Path: s.path(""), Repeatable: true}
	return transport.Fetch[api.Sandbox](ctx, s.c.t, k.WithJSON(u))
}

// Destroy ends the sandbox and removes all of it but its history, which keeps what
// was written last; legal from every state. On a handle WithoutRevisions no last
// revision is made: that is for a sandbox that was needed for a moment.
func (s *Sandbox) Destroy(ctx context.Context) error {
	return s.c.t.Send(ctx, transport.Call{Method: http.MethodDelete, Path: s.path(""), Query: s.changing(nil), Repeatable: true})
}

// Start boots a stopped or failed sandbox again, with its workspace.
func (s *Sandbox) Start(ctx context.Context) (api.Sandbox, error) { return s.verb(ctx, "start") }

// Stop ends the machine and keeps the workspace.
func (s *Sandbox) Stop(ctx context.Context) (api.Sandbox, error) { return s.verb(ctx, "stop") }

// Pause freezes the machine.
func (s *Sandbox) Pause(ctx context.Context) (api.Sandbox, error) { return s.verb(ctx, "pause") }

// Resume lets a paused machine go on.
func (s *Sandbox) Resume(ctx context.Context) (api.Sandbox, error) { return s.verb(ctx, "resume") }

func (s *Sandbox) verb(ctx context.Context, verb string) (api.Sandbox, error) {
	return transport.Fetch[api.Sandbox](ctx, s.c.t, transport.Call{Method: http.MethodPost, Path: s.path("/" + verb), Repeatable: true})
}

// Metrics returns what the guest measures of itself.
func (s *Sandbox) Metrics(ctx context.Context) (api.Metrics, error) {
	return transport.Fetch[api.Metrics](ctx, s.c.t, transport.Get(s.path("/metrics"), nil))
}

// pages goes through a paged list.
func pages[T any](ctx context.Context, q url.Values, page func(url.Values) ([]T, string, error)) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		for {
			items, next, err := page(q)
			if err != nil {
				var zero T
				yield(zero, err)
				return
			}
			for _, it := range items {
				if !yield(it, nil) {
					return
				}
			}
			if next == "" || ctx.Err() != nil {
				return
			}
			q.Set("page_token", next)
		}
	}
}

// All collects a list of this package into a slice.
func All[T any](seq iter.Seq2[T, error]) ([]T, error) {
	items := []T{}
	for it, err := range seq {
		if err != nil {
			return items, err
		}
		items = append(items, it)
	}
	return items, nil
}

// KeptHistories lists what is kept of destroyed sandboxes, the largest first.
// Sandbox(id).History() reads and deletes it.
func (c *Client) KeptHistories(ctx context.Context) ([]api.KeptHistory, error) {
	out, err := transport.Fetch[api.KeptHistories](ctx, c.t, transport.Get("/v1/histories", nil))
	return out.Items, err
}

// Network returns what may leave the sandbox.
func (s *Sandbox) Network(ctx context.Context) (api.NetworkPolicy, error) {
	return transport.Fetch[api.NetworkPolicy](ctx, s.c.t, transport.Get(s.path("/network"), nil))
}

// SetNetwork sets it, from the next request on.
func (s *Sandbox) SetNetwork(ctx context.Context, p api.NetworkPolicy) (api.NetworkPolicy, error) {
	k := transport.Call{Method: http.MethodPut, Path: s.path("/network"), Repeatable: true}
	return transport.Fetch[api.NetworkPolicy](ctx, s.c.t, k.WithJSON(p))
}

// Models returns which models the programs of the sandbox may use, and what they have used.
func (s *Sandbox) Models(ctx context.Context) (api.SandboxModels, error) {
	return transport.Fetch[api.SandboxModels](ctx, s.c.t, transport.Get(s.path("/models"), nil))
}

// SetModels sets which they may use, from the next call on.
func (s *Sandbox) SetModels(ctx context.Context, m api.SetSandboxModels) (api.SandboxModels, error) {
	k := transport.Call{Method: http.MethodPut, Path: s.path("/models"), Repeatable: true}
	return transport.Fetch[api.SandboxModels](ctx, s.c.t, k.WithJSON(m))
}

// NetworkLog returns the last decisions about what the sandbox sent, from the one with
// this number on, the oldest first.
func (s *Sandbox) NetworkLog(ctx context.Context, from uint64) ([]api.NetworkDecision, error) {
	out, err := transport.Fetch[api.NetworkLog](ctx, s.c.t, transport.Get(s.path("/network/log"), url.Values{"from": {strconv.FormatUint(from, 10)}}))
	return out.Items, err
}
