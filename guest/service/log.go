package service

import (
	"context"
	"sync"
	"time"

	"connectrpc.com/connect"

	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/guest/process/spool"
	"github.com/skete-dev/skete/guest/wire"
)

// Logs implements wire.ServiceHandler.
func (m *Manager) Logs(ctx context.Context, r *connect.Request[wire.LogsRequest], st *connect.ServerStream[wire.LogsResponse]) error {
	u, err := m.find(r.Msg.Name)
	if err != nil {
		return wire.ToConnect(err)
	}
	t, err := u.tail(r.Msg.From)
	if err != nil {
		return wire.ToConnect(err)
	}
	defer t.close()
	return wire.ToConnect(t.send(ctx, !r.Msg.NoFollow, st.Send))
}

// tail reads a service's log from an offset on. One goroutine uses it.
type tail struct {
	u      *unit
	off    int64
	out    *spool.Reader // of the run that holds off
	number uint64        // of that run, when out is not nil
}

var chunks = sync.Pool{New: func() any { b := make([]byte, wire.ChunkBytes); return &b }}

// tail begins at from; negative ones count from the end, -1 is the end.
func (u *unit) tail(from int64) (*tail, error) {
	i := u.info()
	if from < 0 {
		from = max(i.LogSize+1+max(from, -1<<40), i.LogStart)
	}
	if from > i.LogSize {
		return nil, errs.New(errs.Invalid, "offset %d is beyond the %d bytes that there are", from, i.LogSize)
	}
	return &tail{u: u, off: from}, nil
}

func (t *tail) close() {
	if t.out != nil {
		t.out.Close()
		t.out = nil
	}
}

// piece is what comes next: bytes, a gap, or nothing until one of the
// channels is closed.
type piece struct {
	n    int
	gap  int64 // bytes from the offset to here were dropped
	news <-chan struct{}
	more <-chan struct{}
	over bool // the service is no more
}

func (t *tail) send(ctx context.Context, follow bool, send func(*wire.LogsResponse) error) error {
	buf := chunks.Get().(*[]byte)
	defer chunks.Put(buf)
	alive := time.NewTicker(keepaliveEvery)
	defer alive.Stop()
	for {
		from := t.off
		p, err := t.next(*buf)
		switch {
		case err != nil:
			return errs.Wrap(errs.Internal, err, "the log cannot be read")
		case p.gap > 0:
			err = send(&wire.LogsResponse{Event: &wire.LogsResponse_Gap{Gap: &wire.Gap{Stream: wire.Stream_STREAM_STDOUT, From: from, To: p.gap}}})
		case p.n > 0:
			err = send(&wire.LogsResponse{Event: &wire.LogsResponse_Output{Output: &wire.Output{Stream: wire.Stream_STREAM_STDOUT, Offset: from, Data: (*buf)[:p.n]}}})
		case !follow || p.over:
			return nil
		default:
			err = t.wait(ctx, p, alive.C, send)
		}
		if err != nil {
			return err
		}
	}
}

func (t *tail) wait(ctx context.Context, p piece, alive <-chan time.Time, send func(*wire.LogsResponse) error) error {
	select {
	case <-p.news:
	case <-p.more:
	case <-alive:
		return send(&wire.LogsResponse{Event: &wire.LogsResponse_Keepalive{Keepalive: &wire.Keepalive{}}})
	case <-ctx.Done():
		return ctx.Err()
	case <-t.u.m.ctx.Done():
		return errs.New(errs.Unavailable, "the supervisor is going down; read on from your offset")
	}
	return nil
}

// next reads what follows the offset and moves it.
func (t *tail) next(buf []byte) (piece, error) {
	at, start, news, removed := t.place()
	p := piece{news: news, over: removed && at == nil}
	switch {
	case t.off < start:
		p.gap, t.off = start, start
		return p, nil
	case at == nil:
		return p, nil
	}
	if t.out == nil || t.number != at.Number {
		t.close()
		run, err := t.u.m.core.Run(t.u.rec.key(t.u.name, at.Number))
		if errs.Is(err, errs.NotFound) {
			return t.unknown(p, at), nil
		}
		if err != nil {
			return p, err
		}
		t.out, t.number = run.Output(t.off-at.Base), at.Number
	}
	p.more = t.out.Change() // before the look, so that nothing is missed
	if at.Size >= 0 {
		buf = buf[:min(int64(len(buf)), at.Base+at.Size-t.off)]
	}
	n, gap, err := t.out.Next(buf)
	switch {
	case err != nil:
		return p, err
	case gap > 0:
		t.off = at.Base + gap
		if at.Size >= 0 {
			t.off = min(t.off, at.Base+at.Size)
		}
		p.gap = t.off
	case n == 0 && at.Size >= 0: // it was forgotten meanwhile
		return t.unknown(p, at), nil
	}
	t.off += int64(n)
	p.n = n
	return p, nil
}

// unknown is a run of which nothing is kept: a gap, if it is over; else it is
// just being started.
func (t *tail) unknown(p piece, at *span) piece {
	if at.Size >= 0 {
		t.off = at.Base + at.Size
		p.gap = t.off
	}
	return p
}

// place finds the run that holds the offset, and where the log begins.
func (t *tail) place() (at *span, start int64, news <-chan struct{}, removed bool) {
	u := t.u
	u.mu.Lock()
	defer u.mu.Unlock()
	if len(u.rec.Runs) > 0 {
		start = u.rec.Runs[0].Base
	}
	for _, s := range u.rec.Runs {
		if t.off >= s.Base && (s.Size < 0 || t.off < s.Base+s.Size) {
			at = &s
			break
		}
	}
	return at, start, u.news, u.removed
}
