package docker

import (
	"context"
	"net/http"
	"os"
	"time"

	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/sandbox"
	"github.com/skete-dev/skete/sandbox/docker/engine"
)

// Destroy implements sandbox.Provider. Unavailable: the engine does not
// answer; nothing is lost, and the same call works later.
func (p *Provider) Destroy(ctx context.Context, id sandbox.ID) error {
	if _, err := sandbox.ParseID(string(id)); err != nil {
		return err
	}
	return p.machines.Destroy(ctx, id, destroyTimeout, func(ctx context.Context) error { return p.clear(ctx, id) })
}

// clear ends the machine and removes all that has the ID in its name. It may
// find anything from nothing to a running machine, and may be repeated. The
// container goes first: what it has mounted cannot be taken from under it.
func (p *Provider) clear(ctx context.Context, id sandbox.ID) error {
	defer p.clearing.Lock(id)()
	m := p.machines.Known(id)
	if m != nil {
		m.lifetime.Doom(true)
	}
	if err := p.removeContainer(ctx, id); err != nil {
		if m != nil {
			m.lifetime.Doom(false)
		}
		return err
	}
	if m != nil {
		m.lifetime.Settle(ctx)
		_ = m.Close()
	}
	if err := p.roots.remove(ctx, id); err != nil {
		return err
	}
	return os.RemoveAll(p.dir(id))
}

// refusedTimeout is how long an engine may refuse a removal for reasons of its
// own. Podman does while it stops the container for another reason.
const refusedTimeout = 5 * time.Second

// removeContainer returns when the engine has no container of that name.
func (p *Provider) removeContainer(ctx context.Context, id sandbox.ID) error {
	began := time.Now()
	for wait := 2 * time.Millisecond; ; wait = min(2*wait, 100*time.Millisecond) {
		err := p.engine.Remove(ctx, p.container(id))
		if err == nil || errs.Is(err, errs.NotFound) {
			return nil
		}
		again := errs.Is(err, errs.Conflict) || // its removal is under way, or it is just being started
			engine.StatusOf(err) >= http.StatusInternalServerError && time.Since(began) < refusedTimeout
		if !again {
			return err
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(wait):
		}
	}
}
