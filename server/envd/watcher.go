package envd

import (
	"context"
	"crypto/rand"
	"sync"
	"time"

	"connectrpc.com/connect"

	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/sandbox"
	"github.com/skete-dev/skete/server/auth"
	"github.com/skete-dev/skete/server/envd/protocol"
)

// Bounds of watchers whose events are fetched.
const (
	watchersMax      = 64 // of a sandbox
	watcherEventsMax = 10000
	watcherIdle      = 10 * time.Minute // after so long without a fetch it ends
)

// watchers are those of all sandboxes. The zero value is ready. They end with the
// server: a client is told that there is no such watcher, and makes another.
type watchers struct {
	mu  sync.Mutex
	all map[string]*watcher
}

// watcher collects events until they are fetched.
type watcher struct {
	id      string
	sandbox sandbox.ID
	stop    context.CancelFunc
	idle    *time.Timer

	mu     sync.Mutex
	events []*protocol.FilesystemEvent
	err    error // why it has ended
}

func (w *watchers) add(one *watcher) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	n := 0
	for _, other := range w.all {
		if other.sandbox == one.sandbox {
			n++
		}
	}
	if n >= watchersMax {
		return errs.New(errs.Limit, "the sandbox has %d watchers, the most that it may", n).WithHint("remove some")
	}
	if w.all == nil {
		w.all = map[string]*watcher{}
	}
	w.all[one.id] = one
	return nil
}

// get returns a watcher of a sandbox.
func (w *watchers) get(of sandbox.ID, id string) (*watcher, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if one := w.all[id]; one != nil && one.sandbox == of {
		return one, nil
	}
	return nil, errs.New(errs.NotFound, "there is no watcher %.40q", id)
}

func (w *watchers) remove(one *watcher) {
	w.mu.Lock()
	delete(w.all, one.id)
	w.mu.Unlock()
	one.stop()
	one.idle.Stop()
}

// put keeps an event.
func (w *watcher) put(ev *protocol.FilesystemEvent) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.events) >= watcherEventsMax {
		return errs.New(errs.Limit, "more than %d events were not fetched", watcherEventsMax).WithHint("list the directory, and watch again")
	}
	w.events = append(w.events, ev)
	return nil
}

func (w *watcher) end(err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.err = err
}

// take returns what has come since the last time, and then why there is no more.
func (w *watcher) take() ([]*protocol.FilesystemEvent, error) {
	w.idle.Reset(watcherIdle)
	w.mu.Lock()
	defer w.mu.Unlock()
	events := w.events
	w.events = nil
	if len(events) > 0 {
		return events, nil
	}
	return nil, w.err
}

// CreateWatcher implements protocol.FilesystemHandler.
func (s filesystemService) CreateWatcher(ctx context.Context, req *connect.Request[protocol.CreateWatcherRequest]) (*connect.Response[protocol.CreateWatcherResponse], error) {
	c, m := callOf(ctx), req.Msg
	watching, release, err := s.Hub.Open(context.WithoutCancel(ctx), auth.From(ctx).Owner)
	if err != nil {
		return nil, refusedBy(ctx, err)
	}
	watching, stop := context.WithCancel(watching)
	w := &watcher{id: rand.Text(), sandbox: c.Sandbox, stop: stop}
	w.idle = time.AfterFunc(watcherIdle, func() { s.watchers.remove(w) })
	guest, done, err := s.Sandboxes.Guest(ctx, c.Tenant, c.Sandbox) // for as long as it watches
	if err == nil {
		if err = s.watchers.add(w); err != nil {
			done()
		}
	}
	if err != nil {
		release()
		s.watchers.remove(w)
		return nil, refusedBy(ctx, err)
	}
	c.guest = guest
	began := make(chan error, 1)
	go func() {
		defer release()
		defer done()
		err := c.watch(watching, &protocol.WatchDirRequest{Path: m.GetPath(), Recursive: m.GetRecursive(), IncludeEntry: m.GetIncludeEntry()}, func(ev *protocol.WatchDirResponse) error {
			switch {
			case ev.GetStart() != nil:
				began <- nil
			case ev.GetFilesystem() != nil:
				return w.put(ev.GetFilesystem())
			}
			return nil
		})
		w.end(err)
		select {
		case began <- err:
		default:
		}
	}()
	if err := <-began; err != nil {
		s.watchers.remove(w)
		return nil, refusedBy(ctx, err)
	}
	return connect.NewResponse(&protocol.CreateWatcherResponse{WatcherId: w.id}), nil
}

// GetWatcherEvents implements protocol.FilesystemHandler.
func (s filesystemService) GetWatcherEvents(ctx context.Context, req *connect.Request[protocol.GetWatcherEventsRequest]) (*connect.Response[protocol.GetWatcherEventsResponse], error) {
	w, err := s.watchers.get(callOf(ctx).Sandbox, req.Msg.GetWatcherId())
	if err != nil {
		return nil, refusedBy(ctx, err)
	}
	events, err := w.take()
	if err != nil {
		s.watchers.remove(w)
		return nil, refusedBy(ctx, err)
	}
	return connect.NewResponse(&protocol.GetWatcherEventsResponse{Events: events}), nil
}

// RemoveWatcher implements protocol.FilesystemHandler.
func (s filesystemService) RemoveWatcher(ctx context.Context, req *connect.Request[protocol.RemoveWatcherRequest]) (*connect.Response[protocol.RemoveWatcherResponse], error) {
	w, err := s.watchers.get(callOf(ctx).Sandbox, req.Msg.GetWatcherId())
	if err != nil {
		return nil, refusedBy(ctx, err)
	}
	s.watchers.remove(w)
	return connect.NewResponse(&protocol.RemoveWatcherResponse{}), nil
}
