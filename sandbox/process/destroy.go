package process

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/skete-dev/skete/internal/hostproc"
	"github.com/skete-dev/skete/sandbox"
)

// Destroy implements sandbox.Provider.
func (p *Provider) Destroy(ctx context.Context, id sandbox.ID) error {
	if _, err := sandbox.ParseID(string(id)); err != nil {
		return err
	}
	return p.machines.Destroy(ctx, id, destroyTimeout, func(ctx context.Context) error { return p.clear(ctx, id) })
}

// clear ends the machine's processes and removes its directory.
func (p *Provider) clear(ctx context.Context, id sandbox.ID) error {
	m := p.machines.Known(id)
	if m != nil {
		m.lifetime.Doom(true)
	}
	if err := p.kill(ctx, id); err != nil {
		return err
	}
	if m != nil {
		m.lifetime.Settle(ctx)
		_ = m.Close()
	}
	return os.RemoveAll(p.dir(id))
}

// kill repeats until no process of the machine is found: what forks
// meanwhile is found in the next round.
func (p *Provider) kill(ctx context.Context, id sandbox.ID) error {
	for wait := time.Millisecond; ; wait = min(2*wait, 20*time.Millisecond) {
		refs, err := p.search(id)
		if err != nil {
			return err
		}
		for _, ref := range refs {
			if err := ref.Signal(unix.SIGKILL); err != nil && !errors.Is(err, hostproc.ErrGone) {
				return err
			}
			_, _ = unix.Wait4(ref.PID, nil, unix.WNOHANG, nil) // orphans, where we are their reaper
		}
		if len(refs) == 0 {
			return nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(wait):
		}
	}
}

// search finds the machine's processes: the tree below the first one, and all
// that carry its mark.
func (p *Provider) search(id sandbox.ID) ([]hostproc.Ref, error) {
	ps, err := hostproc.List()
	if err != nil {
		return nil, err
	}
	roots := map[int]bool{}
	if ref, err := p.record(id); err == nil && ref.Alive() {
		roots[ref.PID] = true
	}
	entry := []byte(mark + "=" + p.mark(id))
	for _, proc := range ps {
		if env, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", proc.PID)); err == nil && hasEntry(env, entry) {
			roots[proc.PID] = true
		}
	}
	seen := map[int]bool{os.Getpid(): true}
	var refs []hostproc.Ref
	for root := range roots {
		for _, ref := range hostproc.Tree(ps, root) {
			if !seen[ref.PID] {
				seen[ref.PID] = true
				refs = append(refs, ref)
			}
		}
	}
	return refs, nil
}

func hasEntry(environ, entry []byte) bool {
	for e := range bytes.SplitSeq(environ, []byte{0}) {
		if bytes.Equal(e, entry) {
			return true
		}
	}
	return false
}
