package client

import (
	"context"
	"iter"
	"net/http"
	"net/url"
	"strconv"

	"github.com/skete-dev/skete/api"
	"github.com/skete-dev/skete/client/transport"
)

// CreateSchedule lets runs be started at times. A repeated attempt after a broken
// connection never makes a second one.
func (c *Client) CreateSchedule(ctx context.Context, s api.CreateSchedule) (api.Schedule, error) {
	return transport.Fetch[api.Schedule](ctx, c.t, keyed("/v1/schedules").WithJSON(s))
}

// Schedules goes through all schedules, by their names. It ends after the first error.
func (c *Client) Schedules(ctx context.Context) iter.Seq2[api.Schedule, error] {
	return pages(ctx, url.Values{"page_size": {strconv.Itoa(100)}}, func(q url.Values) ([]api.Schedule, string, error) {
		p, err := transport.Fetch[api.SchedulePage](ctx, c.t, transport.Get("/v1/schedules", q))
		return p.Items, p.NextPageToken, err
	})
}

// Schedule names one schedule; it holds no state of it.
type Schedule struct {
	ID string
	c  *Client
}

// Schedule returns a handle for an id or a name; it does not ask the server.
func (c *Client) Schedule(id string) *Schedule { return &Schedule{ID: id, c: c} }

func (s *Schedule) path(rest string) string { return "/v1/schedules/" + url.PathEscape(s.ID) + rest }

// Get returns the schedule as it is now.
func (s *Schedule) Get(ctx context.Context) (api.Schedule, error) {
	return transport.Fetch[api.Schedule](ctx, s.c.t, transport.Get(s.path(""), nil))
}

// Pause lets the schedule rest.
func (s *Schedule) Pause(ctx context.Context) (api.Schedule, error) { return s.update(ctx, true) }

// Resume lets it go on, with the next time from now.
func (s *Schedule) Resume(ctx context.Context) (api.Schedule, error) { return s.update(ctx, false) }

func (s *Schedule) update(ctx context.Context, paused bool) (api.Schedule, error) {
	k := transport.Call{Method: http.MethodPatch, Path: s.path(""), Repeatable: true}
	return transport.Fetch[api.Schedule](ctx, s.c.t, k.WithJSON(api.UpdateSchedule{Paused: paused}))
}

// Delete forgets the schedule; its runs stay.
func (s *Schedule) Delete(ctx context.Context) error {
	return s.c.t.Send(ctx, transport.Call{Method: http.MethodDelete, Path: s.path("")})
}

// Run starts a run of it now. A repeated attempt after a broken connection never
// starts a second one. Conflict: one is under way.
func (s *Schedule) Run(ctx context.Context) (api.Run, error) {
	return transport.Fetch[api.Run](ctx, s.c.t, keyed(s.path("/run")))
}
