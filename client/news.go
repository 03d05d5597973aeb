package client

import (
	"context"
	"encoding/json"
	"iter"
	"net/url"
	"strconv"
	"time"

	"github.com/coder/websocket"

	"github.com/skete-dev/skete/api"
	"github.com/skete-dev/skete/client/transport"
	"github.com/skete-dev/skete/errs"
)

// This file reads the streams of runs: events, and live news on their way.
// Streams come back after a disconnect at the event behind the last one seen.

// News is one piece of a run's stream; exactly one of Event, Live, Lost and
// End is set.
type News struct {
	// Thread is the sub-agent's that it is of; "" = the run's own.
	Thread string
	Event  *api.RunEvent
	Live   *api.Live
	// Lost counts live news that were dropped; the events have all of it.
	Lost int
	End  *api.StreamEnd
}

// silenceMax is how long a stream may say nothing, not even that it lives.
const silenceMax = 50 * time.Second

// streamNews goes through what a run's stream of server-sent events brings. path
// is the run's, without an end; q are its options.
func streamNews(ctx context.Context, t *transport.Client, path string, q url.Values, from uint64) iter.Seq2[News, error] {
	if from > 0 {
		q.Set("from", strconv.FormatUint(from, 10))
	}
	f := &transport.Follower{Client: t, Path: path + "/events", Query: q, Silence: silenceMax, Finite: q.Has("follow")}
	return func(yield func(News, error) bool) {
		for n, err := range transport.Follow(ctx, f, func(ev transport.Event, n *sseNews) bool { return n.read(ev) }) {
			if err == nil && n.err != nil {
				err = errs.Wrap(errs.Internal, n.err, "an event of the server is not what was agreed")
			}
			if err != nil {
				yield(News{}, err)
				return
			}
			if n.News == (News{}) {
				continue // a heartbeat
			}
			if !yield(n.News, nil) {
				return
			}
		}
	}
}

// newsEvents leaves everything but events out.
func newsEvents(news iter.Seq2[News, error]) iter.Seq2[api.RunEvent, error] {
	return func(yield func(api.RunEvent, error) bool) {
		for n, err := range news {
			switch {
			case err != nil:
				yield(api.RunEvent{}, err)
				return
			case n.Event != nil:
				if !yield(*n.Event, nil) {
					return
				}
			}
		}
	}
}

// sseNews is an Item as a server-sent event; its name says what the data is.
type sseNews struct {
	News
	err error
}

// UnmarshalJSON leaves it to read, which knows the event's name.
func (*sseNews) UnmarshalJSON([]byte) error { return nil }

// read fills in; false: it is the last.
func (n *sseNews) read(ev transport.Event) bool {
	switch ev.Name {
	case "event":
		n.Event = new(api.RunEvent)
		n.err = json.Unmarshal(ev.Data, n.Event)
	case "live":
		n.News.Live = new(api.Live)
		n.err = json.Unmarshal(ev.Data, n.News.Live)
	case "gap":
		var g api.LiveGap
		n.err = json.Unmarshal(ev.Data, &g)
		n.Lost = g.Lost
	case "end":
		n.End = new(api.StreamEnd)
		n.err = json.Unmarshal(ev.Data, n.End)
	}
	return n.End == nil && n.err == nil
}

// followTree goes through what happens in a run and its sub-agents, over a WebSocket.
func followTree(ctx context.Context, c *transport.Client, run string, from uint64) iter.Seq2[News, error] {
	return func(yield func(News, error) bool) {
		t := &treeTopic{topic: "tree:" + run, from: from, threads: map[string]uint64{}}
		f := &transport.Follower{Client: c}
		for {
			more, err := t.once(ctx, c, f, yield)
			if !more {
				return
			}
			if err = f.Pause(ctx, err); err != nil {
				yield(News{}, err)
				return
			}
		}
	}
}

// treeTopic is what must be remembered over several connections.
type treeTopic struct {
	topic   string
	from    uint64            // the next event of the run's own thread
	threads map[string]uint64 // the same of sub-agents'
}

// once follows one connection. more false: the reader has enough, or all was told.
func (t *treeTopic) once(ctx context.Context, c *transport.Client, f *transport.Follower, yield func(News, error) bool) (more bool, err error) {
	ws, err := c.DialWS(ctx, transport.Get("/v1/follow", nil))
	if err != nil {
		return true, err
	}
	defer func() { _ = ws.CloseNow() }()
	ws.SetReadLimit(api.FollowMessageBytesMax)
	req, err := json.Marshal(api.FollowRequest{Subscribe: t.topic, From: t.from, Threads: t.threads, Live: true})
	if err != nil {
		return true, err
	}
	if err := ws.Write(ctx, websocket.MessageText, req); err != nil {
		return true, transport.Broken(ctx, err)
	}
	for {
		m, err := readMessage(ctx, ws)
		if err != nil {
			return true, err
		}
		f.Alive()
		n, err := t.news(m)
		if err != nil {
			return true, err
		}
		if n == (News{}) {
			continue
		}
		if !yield(n, nil) || n.End != nil {
			return false, nil
		}
	}
}

func readMessage(ctx context.Context, ws *websocket.Conn) (m api.FollowMessage, err error) {
	once, cancel := context.WithTimeout(ctx, silenceMax)
	defer cancel()
	_, data, err := ws.Read(once)
	if err != nil {
		return m, transport.Broken(ctx, err)
	}
	if err := json.Unmarshal(data, &m); err != nil {
		return m, errs.Wrap(errs.Internal, err, "a message of the server is not what was agreed")
	}
	return m, nil
}

func (t *treeTopic) news(m api.FollowMessage) (News, error) {
	switch {
	case m.Problem != nil:
		return News{}, &transport.Error{Problem: *m.Problem}
	case m.Event != nil:
		return t.event(m), nil
	case m.Live != nil:
		return News{Thread: m.Thread, Live: m.Live}, nil
	case m.Gap != nil:
		return News{Lost: m.Gap.Lost}, nil
	}
	return News{End: m.End}, nil
}

func (t *treeTopic) event(m api.FollowMessage) News {
	if m.Thread == "" {
		t.from = m.Event.Seq + 1
	} else {
		t.threads[m.Thread] = m.Event.Seq + 1
	}
	return News{Thread: m.Thread, Event: m.Event}
}
