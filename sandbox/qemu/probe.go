package qemu

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/internal/ext4"
	"github.com/skete-dev/skete/sandbox"
	"github.com/skete-dev/skete/template"
)

// Probe implements sandbox.Provider. It needs no template: the guest is alone
// in an empty root.
func (p *Provider) Probe(ctx context.Context) error {
	err := p.tryOut(ctx)
	if err == nil || errs.Hint(err) != "" {
		return err
	}
	return errs.Wrap(errs.Unsupported, err, "machines in QEMU do not boot on this host").
		WithHint("the server's log has QEMU's words and the last of the machine's console")
}

// tryOut boots a machine and ends it.
func (p *Provider) tryOut(ctx context.Context) error {
	if p.c.Guest == "" {
		return errs.New(errs.Unsupported, "no guest program is configured")
	}
	dir, err := os.MkdirTemp(p.c.Dir, "probe-*")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	root := filepath.Join(dir, "root.img")
	if err := ext4.Blank(ctx, root, 16<<20); err != nil {
		return err
	}
	m, err := p.Create(ctx, sandbox.Boot{
		ID: sandbox.NewID(), Guest: p.c.Guest, Rootfs: template.Rootfs{Name: "probe", Image: root},
		Spec: sandbox.Spec{MemoryMB: 128, DiskMB: 16, CPUs: 1, PidsMax: 64},
	})
	if err != nil {
		return err
	}
	if err := m.Destroy(ctx); err != nil {
		return fmt.Errorf("end the probe: %w", err)
	}
	return nil
}
