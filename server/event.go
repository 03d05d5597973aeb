package server

import (
	"context"
	"encoding/json"
	"net/http"
	"strconv"

	"github.com/skete-dev/skete/agent/runs"
	"github.com/skete-dev/skete/api"
	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/event"
	"github.com/skete-dev/skete/gateway"
	"github.com/skete-dev/skete/sandbox"
	"github.com/skete-dev/skete/sandbox/network"
	"github.com/skete-dev/skete/server/auth"
	"github.com/skete-dev/skete/server/history"
	"github.com/skete-dev/skete/server/key"
	"github.com/skete-dev/skete/server/route"
	runroutes "github.com/skete-dev/skete/server/runs"
	"github.com/skete-dev/skete/server/stream"
	"github.com/skete-dev/skete/workspace"
)

func (s *Server) registerEvents(t *route.Table) {
	route.Raw(t, route.Operation{
		Method: http.MethodGet, Path: "/v1/events", Scope: key.Read, ID: "follow-events", Tag: "events",
		Summary: "Follow what happens to sandboxes, their workspaces and networks, and runs as server-sent events, from any that is kept on", Sends: route.Events[api.Event](),
	}, s.followEvents)
}

type followEventsIn struct {
	From        uint64 `query:"from" doc:"first number to read: 1 = all that are kept, which is a week's; without it from now on"`
	Kind        string `query:"kind" enum:"sandbox,run,workspace,network,models" doc:"only those of sandboxes, of runs, of workspaces, of what networks allowed and refused, or of calls to models"`
	LastEventID string `header:"Last-Event-ID" doc:"goes on behind this event"`
}

// lastEvent reads a Last-Event-ID: the number to go on with; 0 = there is none.
func lastEvent(id string) (next uint64, err error) {
	if id == "" {
		return 0, nil
	}
	last, err := strconv.ParseUint(id, 10, 63)
	if err != nil {
		return 0, errs.New(errs.Invalid, "Last-Event-ID %.40q is none of this stream", id)
	}
	return last + 1, nil
}

func (s *Server) followEvents(w http.ResponseWriter, r *http.Request, in *followEventsIn) error {
	q := event.Query{From: in.From, Kind: in.Kind}
	next, err := lastEvent(in.LastEventID)
	if err != nil {
		return err
	}
	if next > 0 {
		q.From = next
	}
	if s.events == nil {
		return errs.New(errs.Unsupported, "this server tells of no events")
	}
	ctx, release, err := s.hub.Admit(w, r, auth.From(r.Context()).Owner)
	if err != nil {
		return err
	}
	defer release()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	if q.From, err = s.eventsFrom(ctx, q.From); err != nil {
		return err
	}
	sse, err := stream.NewSSE(w)
	if err != nil {
		return nil
	}
	read := event.NewReader(ctx, s.events, auth.From(r.Context()).Tenant, q)
	return stream.Pump(ctx, cancel, sse, read.Next, func(e event.Event) error {
		view, ok := s.showEvent(e)
		if !ok {
			return sse.ID(strconv.FormatUint(e.Seq, 10))
		}
		name := view.Type
		if e.Resync {
			name = "resync"
		}
		return sse.Event(strconv.FormatUint(e.Seq, 10), name, view)
	})
}

// eventsFrom turns "from now on", which is 0, into a number. It is asked for before the
// answer: then the client knows that it misses nothing.
func (s *Server) eventsFrom(ctx context.Context, from uint64) (uint64, error) {
	if from > 0 {
		return from, nil
	}
	return s.events.Next(ctx)
}

// openEvents opens a tenant's events for the topic of a WebSocket; see runs.Config.
func (s *Server) openEvents(ctx context.Context, tenant string, from uint64) (runroutes.Events, error) {
	from, err := s.eventsFrom(ctx, from)
	if err != nil {
		return runroutes.Events{}, err
	}
	read := event.NewReader(ctx, s.events, tenant, event.Query{From: from})
	next := func(ctx context.Context) (seq uint64, shown *api.Event, err error) {
		e, err := read.Next(ctx)
		if err != nil {
			return 0, nil, err
		}
		view, ok := s.showEvent(e)
		if !ok {
			return e.Seq, nil, nil
		}
		return e.Seq, &view, nil
	}
	return runroutes.Events{From: from, Next: next}, nil
}

// showEvent is eventView; an event that cannot be shown is left out, which is logged.
func (s *Server) showEvent(e event.Event) (view api.Event, ok bool) {
	view, err := eventView(e)
	if err != nil {
		s.log.Error("an event is left out", "seq", e.Seq, "error", err)
	}
	return view, err == nil
}

// eventView shows an event to callers.
func eventView(e event.Event) (api.Event, error) {
	v := api.Event{Seq: e.Seq, Time: e.Time.UTC(), Resync: e.Resync}
	if e.Resync {
		return v, nil
	}
	v.Type, v.ID = e.Type(), e.ID
	if len(e.Data) == 0 { // it was too large
		return v, nil
	}
	switch e.Kind {
	case event.Sandbox:
		var i sandbox.Info
		if err := json.Unmarshal(e.Data, &i); err != nil {
			return v, err
		}
		view := sandboxView(i)
		v.Sandbox = &view
	case event.Run:
		var run runs.Run
		if err := json.Unmarshal(e.Data, &run); err != nil {
			return v, err
		}
		view := runroutes.View(run)
		v.Run = &view
	case event.Workspace:
		var rev workspace.Stored
		if err := json.Unmarshal(e.Data, &rev); err != nil {
			return v, err
		}
		view := history.View(rev)
		v.Workspace = &view
	case event.Network:
		var d network.Decision
		if err := json.Unmarshal(e.Data, &d); err != nil {
			return v, err
		}
		view := decisionView(d)
		v.Network = &view
	case event.Models:
		var u gateway.Use
		if err := json.Unmarshal(e.Data, &u); err != nil {
			return v, err
		}
		view := modelCallView(u)
		v.Models = &view
	}
	return v, nil
}
