package supervisor

import (
	"cmp"
	"context"
	"errors"
	"sync"
	"time"

	"github.com/skete-dev/skete/agent"
	"github.com/skete-dev/skete/agent/runs"
	"github.com/skete-dev/skete/thread"
	"github.com/skete-dev/skete/tool"
)

// opening is the time in which a driver makes the machine of its thread usable.
// There is no runner yet that would see a cancel, or that the time is up.
type opening struct {
	d      *driver
	ctx    context.Context // ends with tool.ErrCancelled or tool.ErrTimeUp
	cancel context.CancelCauseFunc
	timer  *time.Timer // nil: no limit
	over   chan struct{}
	wg     sync.WaitGroup
}

// opening begins the opening of a run's machine. Call done at its end; what was
// opened may keep the context, so that cancel is for the end of the drive.
func (d *driver) opening(ctx context.Context, log thread.Log, s *runs.State) *opening {
	o := &opening{d: d, over: make(chan struct{})}
	o.ctx, o.cancel = context.WithCancelCause(ctx)
	now := d.k.c.Now()
	// A run that only lacks its end, such as one that has its answer, gets that one.
	next := s.Next(now)
	if left, bounded := s.TimeLeft(now); bounded && (next.Kind != runs.End || next.Reason == runs.ReasonWall) {
		o.timer = time.AfterFunc(max(left, 0), func() { o.cancel(tool.ErrTimeUp) })
	}
	news := make(chan struct{}, 1)
	news <- struct{}{} // what came in since the log was read
	d.news.Store(&news)
	seq := s.Seq
	o.wg.Go(func() {
		for {
			select {
			case <-news:
			case <-o.over:
				return
			}
			if cancelAsked(o.ctx, log, d.key.id, seq) {
				o.cancel(tool.ErrCancelled)
				return
			}
		}
	})
	return o
}

// done reports whether the opening was cut short.
func (o *opening) done() bool {
	if o.timer != nil {
		o.timer.Stop()
	}
	o.d.news.Store(nil)
	close(o.over)
	o.wg.Wait()
	cause := context.Cause(o.ctx)
	return errors.Is(cause, tool.ErrTimeUp) || errors.Is(cause, tool.ErrCancelled)
}

// cancelAsked reports whether a cancel stands behind an event of a log.
func cancelAsked(ctx context.Context, log thread.Log, id thread.ID, seq uint64) bool {
	for e, err := range log.Load(ctx, id, seq+1) {
		if err != nil {
			return false // the runner will see it
		}
		if _, is := e.Body.(thread.CancelAsked); is {
			return true
		}
	}
	return false
}

// cutShort ends a run whose machine was not opened, unless it was given more time
// meanwhile: then it is driven again.
func (d *driver) cutShort(ctx context.Context, log thread.Log, s *runs.State) error {
	if err := agent.CatchUp(ctx, log, d.key.id, s, s.Apply); err != nil {
		return err
	}
	d.dirty.Store(true)
	next := s.Next(d.k.c.Now())
	if next.Kind != runs.End {
		return nil
	}
	ended := thread.RunEnded{State: next.State, Reason: next.Reason, Text: "The time was up before its machine could be used."}
	if next.Reason == runs.ReasonCancelled {
		ended.Text = cmp.Or(s.Run.Cancel.Reason, "It was cancelled.")
	}
	return d.end(ctx, log, s, ended)
}
