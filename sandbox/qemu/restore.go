package qemu

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/sandbox"
	"github.com/skete-dev/skete/sandbox/qemu/qmp"
)

// restore starts a machine from a snapshot. Whatever goes wrong, unless it is
// ctx that ends, is the snapshot's fault for the caller: it boots cold then.
func (p *Provider) restore(ctx context.Context, b sandbox.Boot, pl plan) (*machine, error) {
	m, err := p.load(ctx, b, pl)
	if err == nil {
		return m, nil
	}
	if ctx.Err() != nil {
		return nil, errors.Join(context.Cause(ctx), err)
	}
	return nil, notHere(err)
}

func (p *Provider) load(ctx context.Context, b sandbox.Boot, pl plan) (*machine, error) {
	snap, err := readSaved(b.From)
	if err != nil {
		return nil, err
	}
	if snap.Shape != pl.shape {
		return nil, fmt.Errorf("made of %+v, this is %+v", snap.Shape, pl.shape)
	}
	if err := p.copyLayer(b); err != nil {
		return nil, err
	}
	var files opened
	defer files.close()
	files.disks(b, p.layerPath(b.ID))
	mem := ownMemory
	if snap.MemoryBytes > 0 {
		image, err := p.images.Get(ctx, b.From, snap)
		if err != nil {
			return nil, err
		}
		mem, files.files = sharedMemory, append(files.files, image)
	}
	m, err := p.start(ctx, b, pl.shape, mem, "", &files)
	if err != nil {
		return nil, err
	}
	if err = m.wake(ctx, b.From, mem); err == nil {
		err = m.awaitGuest(ctx)
	}
	if err != nil {
		_ = m.Close()
		return nil, err
	}
	return m, nil
}

func (p *Provider) copyLayer(b sandbox.Boot) error {
	from, err := os.Open(filepath.Join(b.From, layerFile))
	if err != nil {
		return err
	}
	defer from.Close()
	to, err := os.OpenFile(p.layerPath(b.ID), os.O_CREATE|os.O_EXCL|os.O_RDWR, 0o600)
	if err != nil {
		return err
	}
	_, err = copyFile(to, from)
	return errors.Join(err, to.Close())
}

// wake gives a waiting QEMU its state and lets it run.
func (m *machine) wake(ctx context.Context, dir string, mem memoryKind) error {
	state, err := os.Open(filepath.Join(dir, stateFile))
	if err != nil {
		return err
	}
	defer state.Close()
	c, err := m.client(ctx)
	if err != nil {
		return err
	}
	if mem == sharedMemory {
		if err := memoryApart(ctx, c, true); err != nil {
			return err
		}
	}
	if err := c.PassFile(ctx, "state", state); err != nil {
		return err
	}
	if err := c.Execute(ctx, "migrate-incoming", map[string]string{"uri": "fd:state"}, nil); err != nil {
		return err
	}
	if err := awaitLoad(ctx, c); err != nil {
		return err
	}
	// It was stopped when it was written, so it is now.
	return c.Execute(ctx, "cont", nil, nil)
}

// awaitLoad waits until the state is read. A QEMU that cannot ends.
func awaitLoad(ctx context.Context, c *qmp.Client) error {
	tick := time.NewTicker(pollEvery)
	defer tick.Stop()
	for {
		now, err := status(ctx, c)
		if err != nil {
			return err
		}
		switch now {
		case "inmigrate":
		case "paused", "running":
			return nil
		default:
			return fmt.Errorf("QEMU is %.40q after loading", now)
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// notHere wraps what keeps a snapshot from loading.
func notHere(cause error) error {
	return errs.Wrap(errs.Unsupported, fmt.Errorf("%w: %w", sandbox.ErrSnapshot, cause), "the snapshot does not load on this host as it is now")
}
