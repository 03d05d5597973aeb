package stream

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"connectrpc.com/connect"

	"github.com/skete-dev/skete/api"
	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/guest/wire"
)

// OutputEvents sends a command's output as events until its end. begin is
// called when the guest knows the command: errors before it are errors of the
// request. It returns the stream to write to.
func OutputEvents(ctx context.Context, out *Output, begin func() (*SSE, error)) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer out.Close()
	next := func(ctx context.Context) (outputItem, error) {
		ev, err := out.Next(ctx)
		if err == nil && ev == nil {
			err = ErrEnd
		}
		stdout, stderr := out.At()
		return outputItem{ev, outputID(stdout, stderr)}, err
	}
	first, err := next(ctx)
	if err != nil && !errors.Is(err, ErrEnd) {
		return why(ctx, err)
	}
	s, berr := begin()
	if berr != nil {
		return nil // the client is gone
	}
	if err == nil {
		err = sendOutput(s, first)
	}
	if err != nil {
		return s.end(ctx, err)
	}
	return Pump(ctx, cancel, s, next, func(it outputItem) error { return sendOutput(s, it) })
}

type outputItem struct {
	ev *wire.AttachEvent
	id string
}

func sendOutput(s *SSE, it outputItem) error {
	switch e := it.ev.GetEvent().(type) {
	case *wire.AttachEvent_Started:
		p := ProcessView(e.Started)
		return s.Event(it.id, "started", api.OutputEvent{Process: &p})
	case *wire.AttachEvent_Output:
		name := streamName(e.Output.GetStream())
		return s.Event(it.id, name, api.OutputEvent{Stream: name, Offset: e.Output.GetOffset(), Data: e.Output.GetData()})
	case *wire.AttachEvent_Gap:
		return s.Event(it.id, "gap", gapEvent(e.Gap))
	case *wire.AttachEvent_Exited:
		p := ProcessView(e.Exited)
		if err := s.Event(it.id, "exited", api.OutputEvent{Process: &p}); err != nil {
			return err
		}
		return ErrEnd
	}
	return s.Keepalive()
}

// outputID is the SSE id behind an output event.
func outputID(stdout, stderr int64) string {
	return strconv.FormatInt(stdout, 10) + ":" + strconv.FormatInt(stderr, 10)
}

// ParseOutputID is the inverse of OutputID.
func ParseOutputID(id string) (stdout, stderr int64, err error) {
	a, b, ok := strings.Cut(id, ":")
	stdout, err1 := strconv.ParseInt(a, 10, 64)
	stderr, err2 := strconv.ParseInt(b, 10, 64)
	if !ok || err1 != nil || err2 != nil || stdout < 0 || stderr < 0 || outputID(stdout, stderr) != id {
		return 0, 0, badID(id)
	}
	return stdout, stderr, nil
}

func badID(id string) error {
	return errs.New(errs.Invalid, "Last-Event-ID %.40q is none of this stream", id)
}

// Watch asks for changes in a tree.
type Watch struct {
	Path      []byte
	User      string
	Recursive bool
	// LastID is the id of the last event that the client has; "" = from now.
	LastID string
}

// watchIDMax bounds the guest's name of a watch.
const watchIDMax = 128

// parseWatchID splits "<watch id>:<seq>".
func parseWatchID(id string) (watch string, seq uint64, err error) {
	i := strings.LastIndexByte(id, ':')
	if i <= 0 || i > watchIDMax || !watchIDOK(id[:i]) {
		return "", 0, badID(id)
	}
	seq, err = strconv.ParseUint(id[i+1:], 10, 64)
	if err != nil || strconv.FormatUint(seq, 10) != id[i+1:] {
		return "", 0, badID(id)
	}
	return id[:i], seq, nil
}

func watchIDOK(s string) bool {
	return s != "" && len(s) <= watchIDMax &&
		strings.Trim(s, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._:-") == ""
}

// watcher keeps the place in a watch.
type watcher struct{ req *wire.WatchRequest }

// FileEvents sends changes in a tree until the client goes. begin is called
// when the guest has accepted the watch: errors before it are errors of the
// request. It returns the stream to write to. still is as in Output.
func FileEvents(ctx context.Context, guest *wire.Client, still func(context.Context) bool, wch Watch, begin func() (*SSE, error)) error {
	w := &watcher{&wire.WatchRequest{Path: wch.Path, User: wch.User, Recursive: wch.Recursive}}
	if wch.LastID != "" {
		watch, seq, err := parseWatchID(wch.LastID)
		if err != nil {
			return err
		}
		w.req.WatchId, w.req.FromSeq = watch, seq+1
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	src := &Source[wire.WatchResponse]{Still: still, Note: w.note, End: errWatchEnded, Open: func(ctx context.Context) (*connect.ServerStreamForClient[wire.WatchResponse], error) {
		return guest.File.Watch(ctx, connect.NewRequest(w.req))
	}}
	defer src.Close()
	first, err := src.Once(ctx)
	if err != nil {
		return why(ctx, err)
	}
	s, err := begin()
	if err != nil {
		return nil // the client is gone
	}
	if err := w.send(s, first); err != nil {
		return nil
	}
	return Pump(ctx, cancel, s, src.Next, func(r *wire.WatchResponse) error { return w.send(s, r) })
}

var errWatchEnded = errs.New(errs.Unavailable, "the guest ended the watch")

// note keeps the place for the next connection.
func (w *watcher) note(r *wire.WatchResponse) error {
	switch e := r.GetEvent().(type) {
	case *wire.WatchResponse_Started:
		if !watchIDOK(e.Started.GetWatchId()) {
			return errs.New(errs.Unavailable, "the guest named its watch in a way that cannot be")
		}
		w.req.WatchId = e.Started.GetWatchId()
		if w.req.FromSeq == 0 {
			w.req.FromSeq = max(e.Started.GetNextSeq(), 1)
		}
	case *wire.WatchResponse_File:
		w.req.FromSeq = e.File.GetSeq() + 1
	case *wire.WatchResponse_Overflow:
		w.req.FromSeq = max(e.Overflow.GetSeq(), e.Overflow.GetLostTo()) + 1
	}
	return nil
}

func (w *watcher) send(s *SSE, r *wire.WatchResponse) error {
	switch e := r.GetEvent().(type) {
	case *wire.WatchResponse_File:
		v := fileEventView(e.File)
		return s.Event(w.id(v.Seq), v.Type, v)
	case *wire.WatchResponse_Overflow:
		v := overflowView(e.Overflow)
		return s.Event(w.id(max(v.Seq, v.LostTo)), v.Type, v)
	case *wire.WatchResponse_Started:
		// An id without data: a client that loses the connection before the
		// first event misses nothing either.
		return s.ID(w.id(w.req.FromSeq - 1))
	}
	return s.Keepalive()
}

func (w *watcher) id(seq uint64) string { return w.idOf(w.req.WatchId, seq) }

func (*watcher) idOf(watch string, seq uint64) string { return fmt.Sprintf("%s:%d", watch, seq) }

// PortEvents sends ports that open and close, the open ones first. still is as
// in Output.
func PortEvents(ctx context.Context, s *SSE, guest *wire.Client, still func(context.Context) bool) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	src := &Source[wire.WatchPortsResponse]{Still: still, End: errWatchEnded, Open: func(ctx context.Context) (*connect.ServerStreamForClient[wire.WatchPortsResponse], error) {
		return guest.Port.Watch(ctx, connect.NewRequest(&wire.WatchPortsRequest{}))
	}}
	defer src.Close()
	return Pump(ctx, cancel, s, src.Once, func(r *wire.WatchPortsResponse) error { return sendPort(s, r) })
}

func sendPort(s *SSE, r *wire.WatchPortsResponse) error {
	switch e := r.GetEvent().(type) {
	case *wire.WatchPortsResponse_Opened:
		return s.Event("", "opened", api.PortEvent{Type: "opened", Port: PortView(e.Opened)})
	case *wire.WatchPortsResponse_Closed:
		return s.Event("", "closed", api.PortEvent{Type: "closed", Port: PortView(e.Closed)})
	}
	return s.Keepalive()
}
