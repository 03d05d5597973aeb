package file

import (
	"context"
	"strings"
	"time"

	"connectrpc.com/connect"

	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/guest/wire"
)

const (
	keepalive      = 10 * time.Second
	watchIDBytes   = 128
	watchIDLetters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._:-"
)

// Watch streams changes beneath a path. Lost events are one overflow message;
// a stream that ended can be taken up again within 60 s.
func (s *Service) Watch(ctx context.Context, req *connect.Request[wire.WatchRequest], out *connect.ServerStream[wire.WatchResponse]) error {
	return wire.ToConnect(s.watch(ctx, req.Msg, out))
}

func (s *Service) watch(ctx context.Context, m *wire.WatchRequest, out *connect.ServerStream[wire.WatchResponse]) error {
	name, run, err := s.begin(m.Path, m.User)
	if err != nil {
		return err
	}
	if len(m.WatchId) > watchIDBytes || strings.Trim(m.WatchId, watchIDLetters) != "" {
		return errs.New(errs.Invalid, "the watch id %.40q is not 1 to 128 of letters, digits and ._:-", m.WatchId)
	}
	if m.FromSeq > 1 && m.WatchId == "" {
		return errs.New(errs.Invalid, "going on from a number needs the watch's id")
	}
	w, err := s.findWatch(m, watchOptions{
		ID: m.WatchId, Path: name, Recursive: m.Recursive, Owner: orDefault(m.User, s.cfg.User),
		As: func(f func() error) error { return run.slow(context.Background(), f) },
	})
	if err != nil {
		return faultOf(err, name)
	}
	defer w.Release()
	next := w.Next()
	if m.FromSeq > next {
		return errs.New(errs.Invalid, "the watch %s has not come to number %d yet", w.ID(), m.FromSeq)
	}
	started := &wire.WatchStarted{WatchId: w.ID(), NextSeq: next}
	if err := out.Send(&wire.WatchResponse{Event: &wire.WatchResponse_Started{Started: started}}); err != nil {
		return err
	}
	if m.FromSeq > 0 {
		next = m.FromSeq
	}
	return s.follow(ctx, w, next, out)
}

func orDefault(user, otherwise string) string {
	if user == "" {
		return otherwise
	}
	return user
}

// findWatch starts a watch, or takes up a running one. A number above 1 can
// only mean a watch that runs already.
func (s *Service) findWatch(m *wire.WatchRequest, o watchOptions) (*watch, error) {
	if m.FromSeq > 1 {
		return s.watches.Find(o)
	}
	return s.watches.Start(o)
}

func (s *Service) follow(ctx context.Context, w *watch, next uint64, out *connect.ServerStream[wire.WatchResponse]) error {
	tick := time.NewTicker(keepalive)
	defer tick.Stop()
	for {
		events, more, alive := w.From(next)
		for _, e := range events {
			if err := out.Send(message(e)); err != nil {
				return err
			}
			next = e.Seq + 1
		}
		if len(events) > 0 {
			continue
		}
		if !alive {
			return errs.New(errs.Unavailable, "the watch ended")
		}
		select {
		case <-more:
		case <-tick.C:
			if err := out.Send(&wire.WatchResponse{Event: &wire.WatchResponse_Keepalive{Keepalive: &wire.Keepalive{}}}); err != nil {
				return err
			}
		case <-ctx.Done():
			return ctx.Err()
		case <-s.done:
			return errThreadsClosed
		}
	}
}

var kinds = map[watchKind]wire.FileEventType{
	watchCreate: wire.FileEventType_FILE_EVENT_TYPE_CREATE,
	watchWrite:  wire.FileEventType_FILE_EVENT_TYPE_WRITE,
	watchRemove: wire.FileEventType_FILE_EVENT_TYPE_REMOVE,
	watchRename: wire.FileEventType_FILE_EVENT_TYPE_RENAME,
	watchChmod:  wire.FileEventType_FILE_EVENT_TYPE_CHMOD,
}

func message(e watchEvent) *wire.WatchResponse {
	if e.Kind == watchOverflow {
		o := &wire.WatchOverflow{Seq: e.Seq, LostFrom: e.LostFrom, LostTo: e.LostTo}
		return &wire.WatchResponse{Event: &wire.WatchResponse_Overflow{Overflow: o}}
	}
	f := &wire.FileEvent{Seq: e.Seq, Type: kinds[e.Kind], Path: []byte(e.Path), Directory: e.Dir}
	return &wire.WatchResponse{Event: &wire.WatchResponse_File{File: f}}
}
