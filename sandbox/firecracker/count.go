package firecracker

import (
	"context"
	"errors"
	"io"
	"os"
	"time"

	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/sandbox"
	"github.com/skete-dev/skete/sandbox/firecracker/jail"
)

// countTimeout bounds the wait for a line that Firecracker said it has written.
const countTimeout = 2 * time.Second

// drainMetrics is for reading what is there already.
const drainMetrics = 5 * time.Millisecond

var _ sandbox.Counter = (*machine)(nil)

// Counts implements sandbox.Counter. Firecracker writes a line a minute, and
// one when it is asked to, each with what came since the one before; the pipe
// keeps about ten, so sums are too low if Counts is not called for longer.
func (m *machine) Counts(ctx context.Context) (sandbox.Counts, error) {
	m.countMu.Lock()
	defer m.countMu.Unlock()
	if m.lifetime.Ended() {
		return sandbox.Counts{}, m.notRunning()
	}
	pipe, err := m.jail.OpenPipe(jail.Metrics)
	if err != nil {
		return sandbox.Counts{}, err
	}
	defer pipe.Close()
	ctx, stop := m.whileAlive(ctx)
	defer stop()
	if err := m.drain(pipe, drainMetrics, false); err != nil { // makes room for the line to come
		return sandbox.Counts{}, err
	}
	before := m.counts.Lines
	if err := m.api.FlushMetrics(ctx); err != nil {
		return sandbox.Counts{}, err
	}
	if err := m.drain(pipe, countTimeout, true); err != nil {
		return sandbox.Counts{}, err
	}
	if m.counts.Lines == before {
		return sandbox.Counts{}, errs.New(errs.Unavailable, "Firecracker has not written its metrics")
	}
	c := m.counts
	return sandbox.Counts{
		DiskReadBytes: c.DiskReadBytes, DiskWrittenBytes: c.DiskWrittenBytes, DiskReads: c.DiskReads, DiskWrites: c.DiskWrites,
		DiskThrottled: c.DiskThrottled, ChannelInBytes: c.ChannelInBytes, ChannelOutBytes: c.ChannelOutBytes, Denied: c.Denied,
	}, nil
}

// drain adds the lines that come within a time; it ends with the first if one
// will do.
//
// Preconditions: m.countMu is held.
func (m *machine) drain(pipe *os.File, within time.Duration, oneWillDo bool) error {
	if err := pipe.SetReadDeadline(time.Now().Add(within)); err != nil {
		return err
	}
	buf := make([]byte, 16<<10)
	for {
		n, err := pipe.Read(buf)
		lines := m.counts.Lines
		if n > 0 {
			m.uncounted = append(m.uncounted, buf[:n]...)
			used, rerr := m.counts.Read(m.uncounted)
			m.uncounted = append([]byte(nil), m.uncounted[used:]...)
			if rerr != nil {
				m.uncounted = nil // begins anew with the next line
				return errs.Wrap(errs.Unavailable, rerr, "Firecracker's metrics cannot be read")
			}
		}
		switch {
		case errors.Is(err, io.EOF), errors.Is(err, os.ErrDeadlineExceeded): // no writer; nothing there
			return nil
		case err != nil:
			return err
		case oneWillDo && m.counts.Lines > lines && len(m.uncounted) == 0:
			return nil
		}
	}
}
