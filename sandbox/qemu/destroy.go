package qemu

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
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

// clear ends the machine and removes all that has the ID in its name. It may
// find anything from nothing to a running machine, and may be repeated.
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
	if p.cgroups != nil {
		if err := p.group(id).Remove(ctx); err != nil {
			return err
		}
	}
	return os.RemoveAll(p.dir(id))
}

// kill ends every process of the machine and returns when none is left.
func (p *Provider) kill(ctx context.Context, id sandbox.ID) error {
	for wait := time.Millisecond; ; wait = min(2*wait, 20*time.Millisecond) {
		refs, err := p.processes(id)
		if err != nil {
			return err
		}
		refs = slices.DeleteFunc(refs, func(r hostproc.Ref) bool {
			gone := errors.Is(r.Signal(unix.SIGKILL), hostproc.ErrGone)
			_, _ = unix.Wait4(r.PID, nil, unix.WNOHANG, nil) // if it is our child
			return gone
		})
		if p.cgroups != nil {
			if err := p.group(id).Kill(ctx); err != nil {
				return err
			}
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

// processes lists what is known to belong to the machine besides the members
// of its control group: what is on record. Where record or group is missing,
// command lines must do: a server that died in a create left no record.
func (p *Provider) processes(id sandbox.ID) ([]hostproc.Ref, error) {
	rec, err := readRecord(p.dir(id))
	if err == nil && p.cgroups != nil {
		return []hostproc.Ref{rec.QEMU}, nil
	}
	ps, err := hostproc.List()
	if err != nil {
		return nil, err
	}
	var refs []hostproc.Ref
	for _, proc := range ps {
		if isQEMU(proc.Args, id) {
			refs = append(refs, proc.Ref)
		}
	}
	return refs, nil
}

// isQEMU tells the machine's QEMU by its command line.
func isQEMU(args []string, id sandbox.ID) bool {
	return len(args) > 2 && strings.HasPrefix(filepath.Base(args[0]), "qemu") && args[1] == "-name" && args[2] == string(id)
}
