package life

import (
	"context"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/guest/wire"
	"github.com/skete-dev/skete/sandbox"
)

// Guest returns the client of a running sandbox; a paused one is woken first, but for a
// context of sandbox.LetSleep.
// Until release is called (it may be repeated) the sandbox counts as used. The
// client is shared: do not close it.
//
// Conflict: the sandbox does not run; the hint says how to get there.
func (k *Sandbox) Guest(ctx context.Context) (c *wire.Client, release func(), err error) {
	if err := k.attached(ctx); err != nil {
		return nil, nil, err
	}
	for {
		if err := k.awake(ctx); err != nil {
			return nil, nil, err
		}
		c, err := k.use(ctx)
		switch {
		case err != nil:
			return nil, nil, err
		case c != nil:
			return c, sync.OnceFunc(k.unuse), nil
		case ctx.Err() != nil:
			return nil, nil, ctx.Err()
		}
	}
}

// use counts a use of the guest; nil: it fell asleep again meanwhile.
func (k *Sandbox) use(ctx context.Context) (*wire.Client, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	kind := k.work.Kind()
	switch {
	case k.gone:
		return nil, errDestroyed(k.id)
	case kind == kindHalt && k.dying != "":
		return nil, ErrDied(k.id, k.dying)
	case kind == kindHalt || kind == kindDestroy:
		return nil, errs.New(errs.Conflict, "sandbox %s is %s", k.id, kind)
	case kind == kindFreeze || kind == kindThaw, k.rec.Plan == planSnapshot && kind != "",
		k.rec.Info.State == sandbox.Paused && k.rec.Plan == planNone && kind == "" && !k.sleeps(ctx):
		return nil, nil
	}
	if err := k.usable(); err != nil {
		return nil, err
	}
	k.uses++
	k.written = true
	return k.client, nil
}

// sleeps reports whether a call is refused where it would wake the sandbox. Preconditions: mu is held.
func (k *Sandbox) sleeps(ctx context.Context) bool {
	return k.rec.Info.Spec.NoWake || sandbox.LetsSleep(ctx)
}

func (k *Sandbox) unuse() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.uses--
	k.used = time.Now()
	if k.uses == 0 {
		k.arm()
	}
}

// Dial opens a TCP port (1..65535) inside a sandbox, loopback included; a
// paused one is woken first. Until the connection is closed the sandbox counts as used. The
// guest's own ports cannot be reached this way.
func (k *Sandbox) Dial(ctx context.Context, port uint32) (net.Conn, error) {
	c, release, err := k.Guest(ctx)
	if err != nil {
		return nil, err
	}
	conn, err := c.DialTCP(ctx, port)
	if err != nil {
		release()
		return nil, err
	}
	return &borrowedConn{Conn: conn, GiveBack: release}, nil
}

// Enter notes that a run of an agent works in the sandbox; own: it is of the thread that the
// sandbox was made for. Nothing is noted of a sandbox that is for no run.
func (k *Sandbox) Enter(run, agent string, own bool) error {
	return k.tie(func(f sandbox.ForRun) sandbox.ForRun { return f.Entered(run, agent, own) })
}

// Leave notes that a run is over, and what is to become of the sandbox then. It
// may be repeated.
func (k *Sandbox) Leave(run string, then sandbox.Then, wait time.Duration) error {
	return k.tie(func(f sandbox.ForRun) sandbox.ForRun { return f.Left(run, then, wait) })
}

// Keep changes after what time without use a sandbox for no run is removed.
func (k *Sandbox) Keep(wait time.Duration) error {
	return k.tie(func(f sandbox.ForRun) sandbox.ForRun {
		if f.Run != "" {
			return f
		}
		return sandbox.Kept(wait)
	})
}

func (k *Sandbox) tie(change func(sandbox.ForRun) sandbox.ForRun) error {
	k.mu.Lock()
	was, ended := k.rec.Info.ForRun, k.gone || k.rec.Info.State == sandbox.Destroyed
	k.mu.Unlock()
	if now := change(was); ended || now.Run == was.Run && now.Then == was.Then && now.Wait == was.Wait && slices.Equal(now.Active, was.Active) {
		return nil
	}
	if err := k.commit(func(r *registryRecord) { r.Info.ForRun = change(r.Info.ForRun) }); err != nil {
		return err
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.used = time.Now()
	k.arm()
	return nil
}
