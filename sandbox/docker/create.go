package docker

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/guest/channel"
	"github.com/skete-dev/skete/guest/wire"
	"github.com/skete-dev/skete/sandbox"
	shared "github.com/skete-dev/skete/sandbox/machine"
)

// Create implements sandbox.Provider.
func (p *Provider) Create(ctx context.Context, b sandbox.Boot) (sandbox.Machine, error) {
	if _, err := sandbox.ParseID(string(b.ID)); err != nil {
		return nil, err
	}
	if b.From != "" {
		return nil, fmt.Errorf("create %s: %w", b.ID, errors.Join(sandbox.ErrSnapshot, errNoSnapshot))
	}
	m, err := p.machines.Create(ctx, b.ID, shared.Making[*machine]{
		Dir: p.dir(b.ID), Slots: p.slots, BootTimeout: bootTimeout, ClearTimeout: clearTimeout,
		Boot:  func(ctx context.Context) (*machine, error) { return p.boot(ctx, b) },
		Clear: func(ctx context.Context) error { return p.clear(ctx, b.ID) },
	})
	if err != nil {
		return nil, err
	}
	return m, nil
}

// boot makes the container, starts it and waits for the guest.
func (p *Provider) boot(ctx context.Context, b sandbox.Boot) (*machine, error) {
	p.mu.Lock()
	unable := p.unable
	p.mu.Unlock()
	if errs.Is(unable, errs.Unsupported) {
		return nil, unable
	}
	host, err := p.prepare(b)
	if err != nil {
		return nil, err
	}
	container, err := p.launch(ctx, b)
	var m *machine
	if err == nil {
		m, err = p.follow(b.ID, container, host)
	}
	if err != nil {
		_ = host.Close()
		return nil, err
	}
	if err := m.lifetime.AwaitGuest(ctx, m.guest); err != nil {
		_ = m.Close()
		return nil, err
	}
	return m, nil
}

// prepare fills the machine's directory and opens the channel.
func (p *Provider) prepare(b sandbox.Boot) (*channel.Host, error) {
	bootDir := p.bootDir(b.ID)
	if err := os.Mkdir(bootDir, 0o700); err != nil {
		return nil, err
	}
	if err := place(b.Guest, filepath.Join(bootDir, filepath.Base(wire.GuestBinary))); err != nil {
		return nil, fmt.Errorf("place the guest program: %w", err)
	}
	file := b.BootFile()
	file.Channel = "unix:" + wire.HostSocket
	file.StateDir = stateDir
	file.Threads = guestThreads
	data, err := json.Marshal(file)
	if err != nil {
		return nil, err
	}
	if err := os.WriteFile(filepath.Join(bootDir, filepath.Base(wire.BootFile)), data, 0o600); err != nil {
		return nil, err
	}
	if err := adoptWorkspace(b.Workspace); err != nil {
		return nil, fmt.Errorf("give the workspace to the sandbox's user: %w", err)
	}
	return p.listen(b.ID)
}

// launch makes and starts the container. The two calls that change the engine
// are not cancelled with ctx, or not at once: engines go on when their caller
// hangs up, and a container that appears after we have cleared away would stay.
func (p *Provider) launch(ctx context.Context, b sandbox.Boot) (id string, err error) {
	sure, cancel := outlive(ctx, giveUp)
	defer cancel()
	for range 3 {
		var root root
		if root, err = p.roots.make(ctx, b); err != nil {
			return "", err
		}
		if err = ctx.Err(); err != nil {
			return "", err
		}
		spec := plan{boot: b, labels: p.labels(b.ID), bootDir: p.bootDir(b.ID), root: root, most: ownMost()}.spec()
		id, err = p.engine.Create(sure, p.container(b.ID), spec)
		switch {
		case errs.Is(err, errs.NotFound): // the image was removed: make it again
			p.roots.forget(root)
			continue
		case errs.Is(err, errs.Conflict): // the directory was free, so no machine owns what has the name
			if err := p.removeContainer(ctx, b.ID); err != nil {
				return "", err
			}
			continue
		}
		break
	}
	if err != nil {
		return "", err
	}
	if err := ctx.Err(); err != nil {
		return "", err
	}
	return id, p.engine.Start(sure, id)
}

// outlive returns a context that ends some time after ctx.
func outlive(ctx context.Context, by time.Duration) (context.Context, context.CancelFunc) {
	late, cancel := context.WithCancel(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, func() {
		select {
		case <-time.After(by):
		case <-late.Done():
		}
		cancel()
	})
	return late, func() {
		stop()
		cancel()
	}
}

// listen opens the channel at the place where the guest looks for it.
func (p *Provider) listen(id sandbox.ID) (*channel.Host, error) {
	return channel.Listen(filepath.Join(p.bootDir(id), filepath.Base(wire.HostSocket)), p.c.Serve.For(id))
}

// adoptWorkspace gives the top directory away; what is in it keeps its owners.
// A server that is not root cannot give, and opens it instead.
func adoptWorkspace(dir string) error {
	if os.Geteuid() != 0 && os.Geteuid() != sandbox.UserID {
		return os.Chmod(dir, 0o777)
	}
	return os.Chown(dir, sandbox.UserID, sandbox.UserID)
}

// place links the file, or copies it where links cannot reach.
func place(source, target string) error {
	if os.Link(source, target) == nil {
		return nil
	}
	in, err := os.Open(source)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.OpenFile(target, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o755)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	return errors.Join(err, out.Close())
}
