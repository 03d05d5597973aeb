package runs

import (
	"context"
	"errors"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/skete-dev/skete/api"
	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/server/auth"
	"github.com/skete-dev/skete/server/key"
	"github.com/skete-dev/skete/server/route"
	"github.com/skete-dev/skete/server/stream"
	"github.com/skete-dev/skete/server/transcript"
	"github.com/skete-dev/skete/thread"
)

// HeartbeatEvery is how often a stream says that it lives, by an event that a
// browser can see too.
const HeartbeatEvery = 15 * time.Second

// SocketHeartbeatEvery is the same for the WebSocket of a page, which counts on it to
// say within seconds that it does not know any more how a run is.
const SocketHeartbeatEvery = 5 * time.Second

func (s *service) registerStreams(t *route.Table) {
	const tag = "runs"
	route.Raw(t, route.Operation{
		Method: http.MethodGet, Path: "/v1/runs/{id}/events", Scope: key.RunsRead, ID: "stream-run-events", Tag: tag,
		Summary: "Stream a run's events, and live news, as server-sent events; or read a page of events as JSON",
		Sends:   route.Events[api.RunStreamItem](),
	}, s.runEvents)
	route.Raw(t, route.Operation{
		Method: http.MethodGet, Path: "/v1/follow", Scope: key.RunsRead, ID: "follow", Tag: tag,
		Summary: "Follow any number of runs, and what happens to sandboxes, workspaces, networks and runs, over one WebSocket",
		Sends:   route.Messages[api.FollowRequest, api.FollowMessage]("Text messages: FollowRequest from the client, FollowMessage from the server; see package api"),
	}, s.follow)
}

type runEventsIn struct {
	RunPath
	From        uint64 `query:"from" doc:"the first event that is wanted; default the run's first"`
	Follow      bool   `query:"follow" default:"true" doc:"go on as events come, until the run is over"`
	Live        bool   `query:"live" doc:"live news too, as events without an id"`
	Last        int    `query:"last" minimum:"0" maximum:"1000" doc:"of a page: so many events; default 100"`
	Before      uint64 `query:"before" doc:"of a page: that stand before this one"`
	LastEventID string `header:"Last-Event-ID" doc:"goes on behind this event"`
	Accept      string `header:"Accept" doc:"application/json asks for a page"`
}

func (s *service) runEvents(w http.ResponseWriter, r *http.Request, in *runEventsIn) error {
	f, err := s.find(r.Context(), in.ID)
	if err != nil {
		return err
	}
	if strings.Contains(in.Accept, "application/json") && !strings.Contains(in.Accept, "text/event-stream") {
		page, err := f.page(r.Context(), in.Last, in.Before)
		if err != nil {
			return err
		}
		return route.WriteJSON(w, http.StatusOK, page)
	}
	if in.Last > 0 || in.Before > 0 {
		return errs.New(errs.Invalid, "last and before are of pages").WithHint("ask with the header Accept: application/json")
	}
	if in.LastEventID != "" {
		last, err := strconv.ParseUint(in.LastEventID, 10, 63)
		if err != nil {
			return errs.New(errs.Invalid, "Last-Event-ID %.40q is none of this stream", in.LastEventID)
		}
		in.From = last + 1
	}
	ctx, release, err := s.hub.Admit(w, r, auth.From(r.Context()).Owner)
	if err != nil {
		return err
	}
	defer release()
	return s.stream(ctx, f, w, in)
}

// topic is the run as something to follow.
func (f found) topic(ctx context.Context, live bool) (followTopic, error) {
	log, err := f.Log(ctx, f.tenant)
	t := followTopic{Log: log, Thread: f.run.Thread, Run: f.run.ID, First: f.run.First, Settle: f.settle}
	if live {
		t.Watch = func(root thread.ID, visit func([]byte, int)) (func(), error) { return f.Watch(f.tenant, root, visit) }
	}
	return t, err
}

// settleTimeout bounds how long the end of a run is held back for its record.
const settleTimeout = 2 * time.Second

// settle waits until the run's record says that it is over. The record follows the
// log; a client that hears of the end and asks for the run is to see it ended.
func (f found) settle(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, settleTimeout)
	defer cancel()
	for wait := time.Millisecond; ; wait = min(2*wait, 100*time.Millisecond) {
		run, err := f.Get(ctx, f.tenant, f.run.ID)
		if err != nil || run.State.Final() {
			return
		}
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			return
		}
	}
}

func (s *service) stream(ctx context.Context, f found, w http.ResponseWriter, in *runEventsIn) error {
	t, err := f.topic(ctx, in.Live)
	if err != nil {
		return err
	}
	t.From, t.Once = in.From, !in.Follow
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	src, err := openFollow(ctx, t)
	if err != nil {
		return err
	}
	defer src.Close()
	sse, err := stream.NewSSE(w)
	if err != nil {
		return nil // the client is gone
	}
	next := func(ctx context.Context) (followItem, error) {
		it, err := src.Next(ctx)
		if errors.Is(err, errFollowEnd) {
			err = stream.ErrEnd
		}
		return it, err
	}
	beat := func() error {
		return sse.Event("", "heartbeat", struct {
			Time time.Time `json:"time"`
		}{time.Now().UTC()})
	}
	return stream.PumpBeating(ctx, cancel, sse, s.beat, beat, next, func(it followItem) error { return sendItem(sse, it) })
}

func sendItem(sse *stream.SSE, it followItem) error {
	switch {
	case it.Event != nil:
		e := transcript.Public(*it.Event)
		return sse.Event(strconv.FormatUint(e.Seq, 10), "event", &e)
	case it.Live != nil:
		return sse.Event("", "live", it.Live)
	case it.Lost > 0:
		return sse.Event("", "gap", api.LiveGap{Lost: it.Lost})
	case it.End != nil:
		return sse.Event("", "end", it.End)
	}
	return nil
}

const pageLast = 100

// page reads events backwards from the run's end, or from before an event.
func (f found) page(ctx context.Context, last int, before uint64) (api.RunEventPage, error) {
	page := api.RunEventPage{Items: []api.RunEvent{}}
	log, err := f.Log(ctx, f.tenant)
	if err != nil {
		return page, err
	}
	head, err := log.Head(ctx, f.run.Thread)
	if err != nil {
		return page, err
	}
	if last == 0 {
		last = pageLast
	}
	end := head // the last event that may be shown
	if f.run.State.Final() && f.run.Last > 0 {
		if end, err = f.ends(ctx, log, head); err != nil {
			return page, err
		}
	}
	if before > 0 {
		end = min(end, before-1)
	}
	first := max(f.run.First, 1)
	from := first
	if end >= first+uint64(last) {
		from = end - uint64(last) + 1
	}
	if from > first {
		page.Before = from
	}
	for e, err := range log.Load(ctx, f.run.Thread, from) {
		if err != nil {
			return page, err
		}
		if e.Seq > end {
			break
		}
		if e.Run != f.run.ID && e.Run != "" {
			continue // of another run on the thread
		}
		v, err := transcript.Event(e)
		if err != nil {
			return page, err
		}
		page.Items = append(page.Items, *v)
	}
	return page, nil
}

// ends is the last event of a run that is over. The record follows the log: what was
// appended a moment ago, such as that the conversation was taken back, it may not know.
func (f found) ends(ctx context.Context, log thread.Log, head uint64) (uint64, error) {
	end := min(f.run.Last, head)
	if end == head {
		return end, nil
	}
	for e, err := range log.Load(ctx, f.run.Thread, end+1) {
		if err != nil {
			return 0, err
		}
		if e.Run != f.run.ID && e.Run != "" {
			break // the runs of a thread follow each other
		}
		end = e.Seq
	}
	return end, nil
}
