package runs

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/coder/websocket"

	"github.com/skete-dev/skete/api"
	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/server/auth"
	"github.com/skete-dev/skete/server/key"
	"github.com/skete-dev/skete/server/problem"
	"github.com/skete-dev/skete/server/stream"
	"github.com/skete-dev/skete/server/transcript"
	"github.com/skete-dev/skete/thread"
)

// Bounds of one socket.
const (
	topicsMax  = 64
	outMax     = 64 // messages that wait to be written
	threadsMax = followThreadsMax
)

// socket is one WebSocket with topics. Each topic is read by a goroutine of
// its own that waits when the client takes its time: the log keeps what it has
// not read yet. One goroutine writes.
type socket struct {
	s   *service
	ws  *websocket.Conn
	ctx context.Context // ends with the client, the key or the server
	out chan api.FollowMessage

	mu     sync.Mutex // guards topics
	topics map[string]*subscription
	wg     sync.WaitGroup
}

// subscription is an open topic.
type subscription struct{ cancel context.CancelFunc }

func (s *service) follow(w http.ResponseWriter, r *http.Request, _ *struct{}) error {
	if _, _, err := s.supervisor(r.Context()); err != nil && s.events == nil {
		return err // no topic could be opened
	}
	ctx, release, err := s.hub.Admit(w, r, auth.From(r.Context()).Owner)
	if err != nil {
		return err
	}
	defer release()
	ws, err := stream.Accept(w, r)
	if err != nil {
		return err
	}
	defer func() { _ = ws.CloseNow() }()
	ws.SetReadLimit(api.FollowRequestBytesMax)
	return (&socket{s: s, ws: ws, out: make(chan api.FollowMessage, outMax), topics: map[string]*subscription{}}).serve(ctx)
}

// errVanished is the client's end: it cannot be told anything.
var errVanished = errors.New("the client is gone")

func (c *socket) serve(ctx context.Context) error {
	ctx, cancel := context.WithCancelCause(ctx)
	c.ctx = ctx
	// The reader's own context: its end would break the WebSocket before the
	// client learns why.
	readCtx, stopReading := context.WithCancel(context.WithoutCancel(ctx))
	c.wg.Go(func() { cancel(c.read(readCtx)) })
	c.wg.Go(func() { stream.Ping(ctx, c.ws, func() { cancel(errVanished) }) })
	cancel(c.write())
	err := context.Cause(ctx)
	c.farewell(err)
	stopReading()
	_ = c.ws.CloseNow()
	c.wg.Wait()
	if errors.Is(err, errVanished) || errors.Is(err, context.Canceled) {
		return nil
	}
	return err
}

// farewell tells the client why the socket ends, if it is there.
func (c *socket) farewell(err error) {
	if errors.Is(err, errVanished) || errors.Is(err, context.Canceled) {
		return
	}
	p := problem.Of(err)
	_ = c.send(api.FollowMessage{Problem: &p.Problem})
	code := websocket.StatusPolicyViolation
	if p.Status >= 500 {
		code = websocket.StatusGoingAway
	}
	_ = c.ws.Close(code, p.Title)
}

func (c *socket) send(m api.FollowMessage) error {
	data, err := json.Marshal(m)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(c.ctx), stream.WriteTimeout)
	defer cancel()
	if err := c.ws.Write(ctx, websocket.MessageText, data); err != nil {
		return errVanished
	}
	return nil
}

// write sends what topics say, and heartbeats.
func (c *socket) write() error {
	beat := time.NewTicker(c.s.pulse)
	defer beat.Stop()
	for {
		m := api.FollowMessage{}
		select {
		case m = <-c.out:
		case now := <-beat.C:
			now = now.UTC()
			m.Heartbeat = &now
		case <-c.ctx.Done():
			return nil // its cause is told
		}
		if err := c.send(m); err != nil {
			return err
		}
	}
}

// say queues a message; false: the topic or the socket is over.
func (c *socket) say(ctx context.Context, m api.FollowMessage) bool {
	if ctx.Err() != nil {
		return false
	}
	select {
	case c.out <- m:
		return true
	case <-ctx.Done():
		return false
	}
}

func (c *socket) read(ctx context.Context) error {
	for {
		typ, data, err := c.ws.Read(ctx)
		if err != nil {
			if websocket.CloseStatus(err) == websocket.StatusMessageTooBig {
				return errs.New(errs.Invalid, "a message has at most %d bytes", api.FollowRequestBytesMax)
			}
			return errVanished
		}
		req, err := parseRequest(typ == websocket.MessageText, data)
		if err != nil {
			return err
		}
		c.handle(req)
	}
}

// parseRequest reads one message of a client.
func parseRequest(text bool, data []byte) (api.FollowRequest, error) {
	var req api.FollowRequest
	if !text {
		return req, errs.New(errs.Invalid, "messages are JSON, as text")
	}
	d := json.NewDecoder(bytes.NewReader(data))
	d.DisallowUnknownFields()
	if err := d.Decode(&req); err != nil {
		return req, errs.New(errs.Invalid, "the message is not what it must be: %s", err)
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return req, errs.New(errs.Invalid, "the message has data behind its end")
	}
	ways := 0
	for _, set := range []bool{req.Subscribe != "", req.Unsubscribe != "", req.Ping != 0} {
		if set {
			ways++
		}
	}
	if ways != 1 {
		return req, errs.New(errs.Invalid, "one of subscribe, unsubscribe and ping is needed, and only one")
	}
	if len(req.Threads) > threadsMax {
		return req, errs.New(errs.Limit, "at most %d threads", threadsMax)
	}
	return req, nil
}

func (c *socket) handle(req api.FollowRequest) {
	switch {
	case req.Ping != 0:
		c.say(c.ctx, api.FollowMessage{Pong: req.Ping})
	case req.Unsubscribe != "":
		c.mu.Lock()
		if sub := c.topics[req.Unsubscribe]; sub != nil {
			delete(c.topics, req.Unsubscribe)
			sub.cancel()
		}
		c.mu.Unlock()
	default:
		c.subscribe(req)
	}
}

func (c *socket) refuse(topic string, err error) {
	c.say(c.ctx, api.FollowMessage{Topic: topic, Problem: &problem.Of(err).Problem})
}

func (c *socket) subscribe(req api.FollowRequest) {
	ctx, cancel := context.WithCancel(c.ctx)
	sub := &subscription{cancel}
	c.mu.Lock()
	var err error
	switch {
	case c.topics[req.Subscribe] != nil:
		err = errs.New(errs.Exists, "this topic is open already on this connection")
	case len(c.topics) >= topicsMax:
		err = errs.New(errs.Limit, "a connection has at most %d topics", topicsMax)
	default:
		c.topics[req.Subscribe] = sub
	}
	c.mu.Unlock()
	if err != nil {
		cancel()
		c.refuse(req.Subscribe, err)
		return
	}
	c.wg.Go(func() {
		defer cancel()
		err := c.pump(ctx, req, sub)
		if c.forget(req.Subscribe, sub) && err != nil && ctx.Err() == nil {
			c.refuse(req.Subscribe, err)
		}
	})
}

// forget takes a topic off the list; false: it is not there any more, or
// another one of the same name is.
func (c *socket) forget(topic string, sub *subscription) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.topics[topic] != sub {
		return false
	}
	delete(c.topics, topic)
	return true
}

// pump tells one topic to its end.
func (c *socket) pump(ctx context.Context, req api.FollowRequest, sub *subscription) error {
	if req.Subscribe == api.TopicEvents {
		return c.pumpEvents(ctx, req)
	}
	kind, id, _ := strings.Cut(req.Subscribe, ":")
	if kind != "run" && kind != "tree" {
		return errs.New(errs.Invalid, "%.80q is not a topic", req.Subscribe).WithHint("run:RUN, tree:RUN and events are")
	}
	f, err := c.s.find(ctx, id)
	if err != nil {
		return err
	}
	t, err := f.topic(ctx, req.Live)
	if err != nil {
		return err
	}
	t.From, t.Tree, t.Threads = req.From, kind == "tree", map[thread.ID]uint64{}
	for name, from := range req.Threads {
		id, err := thread.ParseID(name)
		if err != nil {
			return err
		}
		t.Threads[id] = from
	}
	src, err := openFollow(ctx, t)
	if err != nil {
		return err
	}
	defer src.Close()
	for {
		it, err := src.Next(ctx)
		if errors.Is(err, errFollowEnd) {
			return nil
		}
		if err != nil {
			return err
		}
		m, err := messageOf(req.Subscribe, t, it)
		if err != nil {
			return err
		}
		if it.End != nil {
			c.forget(req.Subscribe, sub) // who hears of the end may subscribe again at once
		}
		if !c.say(ctx, m) {
			return nil
		}
	}
}

// pumpEvents tells what happens in the caller's tenant. Its first message has the number
// before the first event that can come: so the client knows that it misses nothing from
// there on, and where to go on when it has heard of no event yet.
func (c *socket) pumpEvents(ctx context.Context, req api.FollowRequest) error {
	who := auth.From(ctx)
	if !who.Scopes.Allow(key.Read) { // the socket's own scope is runs.read
		return errs.New(errs.Denied, "this key may not do that").WithHint("it needs the scope %s", string(key.Read))
	}
	if len(req.Threads) > 0 {
		return errs.New(errs.Invalid, "threads are of tree:RUN").WithHint("leave them out for events")
	}
	if c.s.events == nil {
		return errs.New(errs.Unsupported, "this server tells of no events")
	}
	src, err := c.s.events(ctx, who.Tenant, req.From)
	if err != nil {
		return err
	}
	m := api.FollowMessage{Topic: req.Subscribe, Seq: src.From - 1}
	for c.say(ctx, m) {
		if m.Seq, m.Domain, err = src.Next(ctx); err != nil {
			return err
		}
	}
	return nil
}

func messageOf(topic string, t followTopic, it followItem) (m api.FollowMessage, err error) {
	m = api.FollowMessage{Topic: topic, Live: it.Live, End: it.End}
	if it.Lost > 0 {
		m.Gap = &api.LiveGap{Lost: it.Lost}
	}
	if it.Thread != "" && it.Thread != t.Thread {
		m.Thread = string(it.Thread)
	}
	if it.Event != nil {
		m.Seq = it.Event.Seq
		m.Event, err = transcript.Event(*it.Event)
	}
	return m, err
}
