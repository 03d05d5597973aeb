package runs

import (
	"context"
	"encoding/json"
	"errors"
	"iter"
	"sync"

	"github.com/skete-dev/skete/api"
	"github.com/skete-dev/skete/thread"
)

// This file merges what happened in a run, and what is happening, into
// one stream for one reader: the events of its thread's log, those of the
// sub-agents beneath it, and live news on their way into the log.
//
// Promises. No event is left out or repeated, and those of a thread come in
// order; nothing is polled. A slow reader holds up no writer and no other reader:
// its events wait in the log, live news are merged, and beyond a bound the oldest
// are dropped and counted (followItem.Lost). News about an answer never come before
// the events that they rest on, nor after the one that has all of it. A reader that comes in
// the middle first gets what is on its way already (api.Live.Again).
//
// Next is for one goroutine; Close may be called from any and waits for all
// that openFollow started.

// followThreadsMax bounds how many sub-agents one tree shows.
const followThreadsMax = 256

// errFollowEnd says that there is no more to tell.
var errFollowEnd = errors.New("end of the run")

// followTopic says what to follow.
type followTopic struct {
	Log thread.Log
	// Watch subscribes to live news, as supervisor.Wire does; nil = none are wanted.
	Watch  func(root thread.ID, visit func(data []byte, lost int)) (cancel func(), err error)
	Thread thread.ID
	Run    thread.RunID
	First  uint64 // of the run's events
	From   uint64 // the first that is wanted; 0 = First
	// Tree: the events of the sub-agents beneath the run too.
	Tree bool
	// Threads are the first wanted events of sub-agents; 0 = 1.
	Threads map[thread.ID]uint64
	// Once: only what is there now.
	Once bool
	// Settle waits for what else tells of the run's end, before End is told.
	Settle func(context.Context)
}

// followItem is one piece of a stream; exactly one of Event, Live, Lost and End is set.
type followItem struct {
	Thread thread.ID
	Event  *thread.Event
	Live   *api.Live
	Lost   int // live news that were dropped
	End    *api.StreamEnd
}

// followSource is an open stream.
type followSource struct {
	t        followTopic
	ctx      context.Context
	cancel   context.CancelFunc
	unlisten func()
	wg       sync.WaitGroup
	events   chan logged
	news     *news

	// Of the goroutine that calls Next.
	cursors  map[thread.ID]uint64 // the last event that was taken of each watched thread
	answered map[thread.ID]uint64 // its last answer of a model
	wasLive  bool
	state    string               // of the run's end, "" = it goes on
	endSeq   uint64               // of the run's last event
	awaiting map[thread.ID]uint64 // heads to reach before the end is told
	ended    bool
}

// logged is what a watcher found.
type logged struct {
	thread thread.ID
	event  thread.Event
	err    error
}

// openFollow starts to follow; ctx bounds the whole stream.
func openFollow(ctx context.Context, t followTopic) (*followSource, error) {
	ctx, cancel := context.WithCancel(ctx)
	s := &followSource{
		t: t, ctx: ctx, cancel: cancel, events: make(chan logged, 16), news: newNews(), cursors: map[thread.ID]uint64{}, answered: map[thread.ID]uint64{},
	}
	if t.Watch != nil {
		// Before the log is read: so nothing falls between the two.
		unlisten, err := t.Watch(t.Thread, s.listen)
		if err != nil {
			cancel()
			return nil, err
		}
		s.unlisten = unlisten
	}
	s.watch(t.Thread, s.start())
	return s, nil
}

// start is the first event to read: that before the first wanted one, since it
// may be the run's end; all of a tree's root, since sub-agents begin there.
func (s *followSource) start() uint64 {
	first := max(s.t.First, 1)
	if s.t.Tree || s.t.From <= first {
		return first
	}
	return s.t.From - 1
}

// Close ends the stream and waits for its parts.
func (s *followSource) Close() {
	s.cancel()
	if s.unlisten != nil {
		s.unlisten()
	}
	s.wg.Wait()
}

// listen takes live news; the topic's Watch calls it, and it never blocks.
func (s *followSource) listen(data []byte, lost int) {
	var l api.Live
	if lost > 0 {
		s.news.drop(lost)
	}
	if len(data) == 0 || json.Unmarshal(data, &l) != nil {
		return
	}
	if !s.t.Tree && (l.Thread != string(s.t.Thread) || l.Run != string(s.t.Run)) {
		return
	}
	s.news.add(l)
}

// watch begins to read a thread.
func (s *followSource) watch(id thread.ID, from uint64) {
	if _, known := s.cursors[id]; known || len(s.cursors) > followThreadsMax {
		return
	}
	s.cursors[id] = from - 1
	events := s.t.Log.Watch
	if s.t.Once {
		events = s.t.Log.Load
	}
	s.wg.Go(func() { s.read(id, events(s.ctx, id, from)) })
}

func (s *followSource) read(id thread.ID, events iter.Seq2[thread.Event, error]) {
	send := func(l logged) bool {
		select {
		case s.events <- l:
			return true
		case <-s.ctx.Done():
			return false
		}
	}
	for e, err := range events {
		if !send(logged{id, e, err}) || err != nil {
			return
		}
	}
	if s.t.Once {
		send(logged{id, thread.Event{}, errFollowEnd})
	}
}

// Next returns the next item; ErrEnd when there is none any more.
func (s *followSource) Next(ctx context.Context) (followItem, error) {
	for {
		if s.ended {
			return followItem{}, errFollowEnd
		}
		if it, ok := s.over(); ok {
			s.t.Settle(ctx)
			return it, nil
		}
		if it, ok := s.nextLive(); ok {
			return it, nil
		}
		select {
		case l := <-s.events:
			if it, ok, err := s.take(ctx, l); err != nil || ok {
				return it, err
			}
		case <-s.news.wake:
		case <-ctx.Done():
			return followItem{}, context.Cause(ctx)
		}
	}
}

// nextLive returns live news if there are some that may be told now. After
// one the log comes first, so that a flood of news never hides an event.
func (s *followSource) nextLive() (followItem, bool) {
	if s.wasLive && len(s.events) > 0 {
		s.wasLive = false
		return followItem{}, false
	}
	for {
		l, lost, ok := s.news.take(func(l *api.Live) bool {
			at, known := s.cursors[thread.ID(l.Thread)]
			return known && l.After <= at || !known && len(s.cursors) > followThreadsMax
		}, s.discover)
		s.wasLive = ok || lost > 0
		if lost > 0 {
			return followItem{Lost: lost}, true
		}
		if !ok {
			return followItem{}, false
		}
		if l.Kind != "output" && l.After < s.answered[thread.ID(l.Thread)] {
			continue // the log has all of that answer
		}
		return followItem{Thread: thread.ID(l.Thread), Live: &l}, true
	}
}

// discover begins to watch a sub-agent that made itself heard.
func (s *followSource) discover(l *api.Live) {
	id, err := thread.ParseID(l.Thread)
	if err == nil && id.Root() == s.t.Thread.Root() && s.t.Tree {
		s.watchSub(id)
	}
}

func (s *followSource) watchSub(id thread.ID) {
	s.watch(id, max(s.t.Threads[id], 1))
}

// take looks at an event; ok: it is to be told.
func (s *followSource) take(ctx context.Context, l logged) (it followItem, ok bool, err error) {
	s.wasLive = false
	if errors.Is(l.err, errFollowEnd) {
		return s.readWhole(l.thread)
	}
	if l.err != nil {
		return followItem{}, false, l.err
	}
	e := l.event
	s.cursors[l.thread] = e.Seq
	if _, is := e.Body.(thread.ModelCompleted); is {
		s.answered[l.thread] = e.Seq
	}
	root := l.thread == s.t.Thread
	if root && e.Run != s.t.Run && e.Run != "" {
		return followItem{}, false, s.noteEnd(ctx, e, false)
	}
	if b, is := e.Body.(thread.ToolStarted); is && s.t.Tree && b.Tool == taskTool {
		s.watchSub(l.thread.Sub(b.Call))
	}
	if err := s.noteEnd(ctx, e, root); err != nil {
		return followItem{}, false, err
	}
	if root && e.Seq < s.t.From {
		return followItem{}, false, nil
	}
	return followItem{Thread: l.thread, Event: &e}, true, nil
}

// taskTool starts sub-agents.
const taskTool = "task"

// readWhole: a thread that is read once was read to its end.
func (s *followSource) readWhole(id thread.ID) (followItem, bool, error) {
	delete(s.cursors, id)
	if len(s.cursors) > 0 {
		return followItem{}, false, nil
	}
	s.ended = true
	if s.state == "" {
		return followItem{}, false, nil
	}
	return followItem{End: &api.StreamEnd{Seq: s.endSeq, State: s.state}}, true, nil
}

// noteEnd looks for the run's end: its run.ended, if nothing of the run follows.
func (s *followSource) noteEnd(ctx context.Context, e thread.Event, own bool) error {
	if own {
		s.state, s.awaiting = "", nil
		if b, is := e.Body.(thread.RunEnded); is {
			s.state, s.endSeq = string(b.State), e.Seq
		}
	}
	if s.state == "" || s.t.Once || s.awaiting != nil {
		return nil
	}
	heads := map[thread.ID]uint64{}
	for id := range s.cursors {
		head, err := s.t.Log.Head(ctx, id)
		if err != nil {
			return err
		}
		heads[id] = head
	}
	s.awaiting = heads
	return nil
}

// over tells the end when every thread was read as far as it went at the run's end.
func (s *followSource) over() (followItem, bool) {
	if s.awaiting == nil {
		return followItem{}, false
	}
	for id, head := range s.awaiting {
		if s.cursors[id] < head {
			return followItem{}, false
		}
	}
	s.ended = true
	return followItem{End: &api.StreamEnd{Seq: s.endSeq, State: s.state}}, true
}
