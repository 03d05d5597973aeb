package client

import (
	"context"
	"iter"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/skete-dev/skete/api"
	"github.com/skete-dev/skete/client/transport"
)

// This part is the services of a sandbox:
//
//	s := sandbox.Services()
//	web, err := s.Declare(ctx, api.ServiceSpec{Name: "web", Command: "npm run dev", ReadyHTTP: 5173}, time.Minute)
//	for ev, err := range s.Logs(ctx, "web", 0, true) { … }
//
// Everything is safe for concurrent use.

// Services reaches the services of one sandbox.
type Services struct {
	t    *transport.Client
	path string
}

// newServices returns a handle on the services at a path; it does not ask the server.
func newServices(t *transport.Client, path string) *Services { return &Services{t, path} }

func (s *Services) named(name, rest string) string { return s.path + "/" + url.PathEscape(name) + rest }

func waitQuery(wait time.Duration) url.Values {
	q := url.Values{}
	if wait > 0 {
		q.Set("wait_ms", strconv.FormatInt(wait.Milliseconds(), 10))
	}
	return q
}

// List returns all services by name.
func (s *Services) List(ctx context.Context) ([]api.Service, error) {
	l, err := transport.Fetch[api.ServiceList](ctx, s.t, transport.Get(s.path, nil))
	return l.Items, err
}

// Get returns a service as it is now.
func (s *Services) Get(ctx context.Context, name string) (api.Service, error) {
	return transport.Fetch[api.Service](ctx, s.t, transport.Get(s.named(name, ""), nil))
}

// Declare makes a service known, or changes it, and starts it. It waits for at
// most so long until the service is ready or has failed; 0 = not at all.
func (s *Services) Declare(ctx context.Context, d api.ServiceSpec, wait time.Duration) (api.Service, error) {
	k := transport.Call{Method: http.MethodPost, Path: s.path, Query: waitQuery(wait), Repeatable: true}
	return transport.Fetch[api.Service](ctx, s.t, k.WithJSON(d))
}

// Load declares what skete.yaml of the workspace says; wait is as in Declare, for
// all that it names.
func (s *Services) Load(ctx context.Context, wait time.Duration) (api.ServicesLoaded, error) {
	k := transport.Call{Method: http.MethodPost, Path: s.path + "/load", Query: waitQuery(wait), Repeatable: true}
	return transport.Fetch[api.ServicesLoaded](ctx, s.t, k)
}

// Start starts a service that does not run; wait is as in Declare.
func (s *Services) Start(ctx context.Context, name string, wait time.Duration) (api.Service, error) {
	return s.act(ctx, name, "/start", wait, true)
}

// Stop stops a service; wait is as in Declare.
func (s *Services) Stop(ctx context.Context, name string, wait time.Duration) (api.Service, error) {
	return s.act(ctx, name, "/stop", wait, true)
}

// Restart stops a service and starts it; wait is as in Declare.
func (s *Services) Restart(ctx context.Context, name string, wait time.Duration) (api.Service, error) {
	return s.act(ctx, name, "/restart", wait, false)
}

func (s *Services) act(ctx context.Context, name, verb string, wait time.Duration, repeatable bool) (api.Service, error) {
	return transport.Fetch[api.Service](ctx, s.t, transport.Call{
		Method: http.MethodPost, Path: s.named(name, verb), Query: waitQuery(wait), Repeatable: repeatable,
	})
}

// Remove stops a service and forgets it and its log.
func (s *Services) Remove(ctx context.Context, name string) error {
	return s.t.Send(ctx, transport.Call{Method: http.MethodDelete, Path: s.named(name, "")})
}

// Logs returns a service's log from an offset on: -1 is the present end, -n
// are the last n-1 bytes. With follow it waits for more, and goes on where it
// was after a disconnect.
func (s *Services) Logs(ctx context.Context, name string, from int64, follow bool) iter.Seq2[api.ServiceLogEvent, error] {
	q := url.Values{"from": {strconv.FormatInt(from, 10)}, "follow": {strconv.FormatBool(follow)}}
	if !follow {
		return transport.Once[api.ServiceLogEvent](ctx, s.t, transport.Get(s.named(name, "/logs"), q))
	}
	return transport.Events[api.ServiceLogEvent](ctx, s.t, s.named(name, "/logs"), q, "")
}

// Services returns a handle on the sandbox's services; it does not ask the server.
func (s *Sandbox) Services() *Services { return newServices(s.c.t, s.path("/services")) }
