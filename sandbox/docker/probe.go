package docker

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/guest/wire"
	"github.com/skete-dev/skete/sandbox"
	"github.com/skete-dev/skete/template"
)

// Probe implements sandbox.Provider. It needs no template: the guest program,
// static as it is, is all that there is in its root.
func (p *Provider) Probe(ctx context.Context) error {
	if err := p.engine.Ping(ctx); err != nil {
		return unsupported(err)
	}
	info, err := p.engine.Info(ctx)
	if err == nil {
		p.learn(info, nil)
		err = unfit(info)
	}
	if err != nil {
		return unsupported(err)
	}
	if p.c.Guest == "" {
		return errs.New(errs.Internal, "the probe of containers was given no guest program")
	}
	dir, err := os.MkdirTemp(p.c.Dir, "probe-*")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	b, err := p.probeBoot(dir)
	if err != nil {
		return err
	}
	m, err := p.Create(ctx, b)
	if err != nil {
		return unsupported(err)
	}
	if err := m.Destroy(ctx); err != nil {
		return fmt.Errorf("end the probe: %w", err)
	}
	return nil
}

// unsupported gives an error the probe's class and keeps its hint.
func unsupported(err error) error {
	e := errs.Wrap(errs.Unsupported, err, "containers do not start on this host")
	var cause *errs.Error
	if errors.As(err, &cause) && cause.Hint != "" {
		return e.WithHint("%s", cause.Hint)
	}
	return e.WithHint("the container engine must run on this host, see the same directories as the server and be able to start containers without a network; the server's log has its words")
}

func (p *Provider) probeBoot(dir string) (sandbox.Boot, error) {
	root, work := filepath.Join(dir, "root"), filepath.Join(dir, "workspace")
	for _, d := range []string{"proc", "sys", "dev", "tmp", "run", "workspace", "home/user", "var/tmp", wire.BootDir} {
		if err := os.MkdirAll(filepath.Join(root, d), 0o755); err != nil {
			return sandbox.Boot{}, err
		}
	}
	return sandbox.Boot{
		ID: sandbox.NewID(), Guest: p.c.Guest, Workspace: work,
		Rootfs: template.Rootfs{Name: "probe", Hash: "probe", Dir: root},
		Spec:   sandbox.Spec{MemoryMB: 256, DiskMB: 16, CPUs: 1, PidsMax: 64},
	}, os.Mkdir(work, 0o755)
}
