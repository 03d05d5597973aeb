package qemu

import (
	"context"
	"errors"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/sandbox/qemu/qmp"
)

// redialAfter is how long a broken control connection stays broken.
const redialAfter = 50 * time.Millisecond

// attend holds the one control connection, and learns from it that the guest
// has ended: QEMU waits then, so that we can read the console.
func (m *machine) attend() {
	for !m.lifetime.Ended() {
		ctx, cancel := context.WithTimeout(m.ctx, commandTimeout)
		c, err := qmp.Dial(ctx, filepath.Join(m.p.dir(m.id), controlName))
		cancel()
		if err == nil {
			m.serveControl(c)
			_ = c.Close()
		}
		select {
		case <-time.After(redialAfter):
		case <-m.lifetime.Gone():
		case <-m.ctx.Done():
		}
	}
}

// serveControl lets others use c and reads its events until it breaks.
func (m *machine) serveControl(c *qmp.Client) {
	m.mu.Lock()
	m.control = c
	close(m.dialled)
	m.mu.Unlock()
	defer func() {
		m.mu.Lock()
		m.control, m.dialled = nil, make(chan struct{})
		m.mu.Unlock()
	}()
	if s, err := status(m.ctx, c); err == nil && exitOver(s) { // it was before we came
		m.conclude(c, s)
	}
	for {
		select {
		case e, ok := <-c.Events():
			if !ok {
				return
			}
			if how, yes := exitOf(e); yes {
				m.conclude(c, how)
			}
		case <-m.ctx.Done():
			return
		}
	}
}

// status of QEMU: "running", "paused", "inmigrate", …
func status(ctx context.Context, c *qmp.Client) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, commandTimeout)
	defer cancel()
	var s struct {
		Status string `json:"status"`
	}
	err := c.Execute(ctx, "query-status", nil, &s)
	return s.Status, err
}

// conclude finds out how the guest ended and ends QEMU.
func (m *machine) conclude(c *qmp.Client, how string) {
	cause := explainExit(how, m.console(c))
	m.mu.Lock()
	if m.cause == nil {
		m.cause = &cause
	}
	m.mu.Unlock()
	_ = m.rec.QEMU.Signal(unix.SIGKILL) // nothing moves in it that could be asked to end
}

// consoleBytesMax is what is read of the console, which holds more.
const consoleBytesMax = 16 << 10

// console returns the last that the guest's kernel said.
func (m *machine) console(c *qmp.Client) string {
	ctx, cancel := context.WithTimeout(m.ctx, 2*time.Second)
	defer cancel()
	var text string
	_ = c.Execute(ctx, "ringbuf-read", map[string]any{"device": "console", "size": 64 << 10}, &text)
	return text[max(0, len(text)-consoleBytesMax):]
}

// logConsole tells the operator what a guest said that does not answer.
func (m *machine) logConsole() {
	m.mu.Lock()
	c, words := m.control, m.words.String()
	m.mu.Unlock()
	text := ""
	if c != nil {
		text = m.console(c)
	}
	m.p.c.Log.Warn("qemu: the guest does not answer", "id", m.id, "console", text[max(0, len(text)-2<<10):], "qemu", words)
}

// client waits for the control connection.
func (m *machine) client(ctx context.Context) (*qmp.Client, error) {
	for {
		m.mu.Lock()
		c, dialled := m.control, m.dialled
		m.mu.Unlock()
		if c != nil {
			return c, nil
		}
		select {
		case <-dialled:
		case <-m.lifetime.Gone():
			return nil, errs.New(errs.Unavailable, "sandbox %s does not run", m.id)
		case <-m.ctx.Done():
			return nil, errs.New(errs.Unavailable, "the server let go of sandbox %s", m.id)
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// command runs one of QEMU's commands that take no time.
func (m *machine) command(ctx context.Context, name string, args, result any) error {
	ctx, cancel := context.WithTimeout(ctx, commandTimeout)
	defer cancel()
	c, err := m.client(ctx)
	if err != nil {
		return err
	}
	return c.Execute(ctx, name, args, result)
}

// goOn lets a stopped QEMU run, whatever stopped it. One that cannot has ended.
func (m *machine) goOn(ctx context.Context) error {
	_ = m.command(ctx, "migrate_cancel", nil, nil) // there may be none
	err := m.command(ctx, "cont", nil, nil)
	if err != nil && !m.lifetime.Ended() {
		_ = m.rec.QEMU.Signal(unix.SIGKILL)
	}
	return err
}

// revive lets a machine run that an earlier server stopped for a snapshot and
// then died. NotFound: that server was still loading it.
func (m *machine) revive(ctx context.Context) error {
	c, err := m.client(ctx)
	if err != nil {
		return err
	}
	now, err := status(ctx, c)
	switch {
	case err != nil:
		return err
	case now == "running" || exitOver(now):
		return nil
	case now == "inmigrate":
		return errs.New(errs.NotFound, "the machine of %s was never made whole", m.id)
	}
	return m.goOn(ctx)
}

// refused reports whether QEMU said no, rather than nothing.
func refused(err error) bool {
	var no *qmp.Error
	return errors.As(err, &no)
}
