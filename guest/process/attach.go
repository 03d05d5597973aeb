package process

import (
	"context"
	"sync"
	"time"

	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/guest/process/spool"
	"github.com/skete-dev/skete/guest/wire"
)

const keepaliveEvery = 10 * time.Second

var chunks = sync.Pool{New: func() any { b := make([]byte, wire.ChunkBytes); return &b }}

// cursor is one stream of an attachment.
type cursor struct {
	stream wire.Stream
	*spool.Reader
}

// attachment streams a process to one client.
type attachment struct {
	p       *proc
	send    func(*wire.AttachEvent) error
	cursors []cursor
	buf     []byte
}

// attach sends started, output from the offsets on, and exited.
func (c *Core) attach(ctx context.Context, p *proc, req *wire.AttachRequest, send func(*wire.AttachEvent) error) error {
	buf := chunks.Get().(*[]byte)
	defer chunks.Put(buf)
	a := &attachment{p: p, send: send, buf: *buf}
	if err := a.open(req.StdoutFrom, req.StderrFrom); err != nil {
		return err
	}
	defer func() {
		for _, c := range a.cursors {
			c.Close()
		}
	}()
	if err := send(&wire.AttachEvent{Event: &wire.AttachEvent_Started{Started: p.info()}}); err != nil {
		return err
	}
	if p.stop == nil || req.NoFollow { // nothing will change, or the caller does not wait for it
		if err := a.drain(); err != nil {
			return err
		}
		return a.finish()
	}
	return a.follow(ctx)
}

func (a *attachment) open(outFrom, errFrom int64) error {
	for _, x := range []struct {
		stream wire.Stream
		s      *spool.Spool
		from   int64
	}{{wire.Stream_STREAM_STDOUT, a.p.out, outFrom}, {wire.Stream_STREAM_STDERR, a.p.err, errFrom}} {
		if x.s == nil {
			continue
		}
		if _, _, size, _ := x.s.Extent(); x.from < -1 || x.from > size {
			return errs.New(errs.Invalid, "offset %d is beyond the %d bytes that there are", x.from, size)
		}
		a.cursors = append(a.cursors, cursor{x.stream, x.s.NewReader(x.from)})
	}
	return nil
}

// follow sends what comes until the process has ended and its output is whole.
func (a *attachment) follow(ctx context.Context) error {
	alive := time.NewTicker(keepaliveEvery)
	defer alive.Stop()
	for {
		// In this order: what changes after the look is seen by the next drain.
		over := isClosed(a.p.settled)
		changes := [2]<-chan struct{}{}
		for i, c := range a.cursors {
			changes[i] = c.Change()
		}
		if err := a.drain(); err != nil {
			return err
		}
		if over {
			return a.finish()
		}
		select {
		case <-changes[0]:
		case <-changes[1]:
		case <-a.p.settled:
		case <-alive.C:
			if err := a.send(&wire.AttachEvent{Event: &wire.AttachEvent_Keepalive{Keepalive: &wire.Keepalive{}}}); err != nil {
				return err
			}
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// drain sends what there is now, one chunk of each stream in turn.
func (a *attachment) drain() error {
	for more := true; more; {
		more = false
		for _, c := range a.cursors {
			sent, err := a.step(c)
			if err != nil {
				return err
			}
			more = more || sent
		}
	}
	return nil
}

func (a *attachment) step(c cursor) (bool, error) {
	from := c.Off
	n, gap, err := c.Next(a.buf)
	switch {
	case err != nil:
		return false, errs.Wrap(errs.Internal, err, "the output cannot be read")
	case gap > 0:
		return true, a.send(&wire.AttachEvent{Event: &wire.AttachEvent_Gap{Gap: &wire.Gap{Stream: c.stream, From: from, To: gap}}})
	case n == 0:
		return false, nil
	}
	return true, a.send(&wire.AttachEvent{Event: &wire.AttachEvent_Output{Output: &wire.Output{Stream: c.stream, Offset: from, Data: a.buf[:n]}}})
}

// finish sends the last event. A process that runs on (no_follow) has none.
func (a *attachment) finish() error {
	info := a.p.info()
	if info.State == wire.ProcessState_PROCESS_STATE_RUNNING {
		if isClosed(a.p.settled) {
			return errs.New(errs.Unavailable, "the supervisor is going down; attach again")
		}
		return nil
	}
	return a.send(&wire.AttachEvent{Event: &wire.AttachEvent_Exited{Exited: info}})
}

func isClosed(ch <-chan struct{}) bool {
	select {
	case <-ch:
		return true
	default:
		return false
	}
}
