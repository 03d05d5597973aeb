package firecracker

import (
	"context"
	"fmt"
	"os"

	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/sandbox"
	"github.com/skete-dev/skete/sandbox/firecracker/api"
	"github.com/skete-dev/skete/sandbox/firecracker/jail"
	"github.com/skete-dev/skete/sandbox/microvm"
)

// Probe implements sandbox.Provider: KVM is tried with real instructions, and
// then a kernel boots in a jail, as far as it comes without any disk.
func (p *Provider) Probe(ctx context.Context) error {
	if err := microvm.ProbeKVM(ctx); err != nil {
		return err
	}
	if err := p.tryOut(ctx); err != nil {
		return errs.Wrap(errs.Unsupported, err, "Firecracker does not boot a kernel on this host").
			WithHint("the server's log has Firecracker's words; see also `skete doctor`")
	}
	return nil
}

// tryOut boots a kernel that has no initramfs. It panics for want of a root,
// the machine resets, and Firecracker says goodbye: all that a host can lack
// has worked by then.
func (p *Provider) tryOut(ctx context.Context) error {
	id := sandbox.NewID()
	ctx, cancel := context.WithTimeout(ctx, bootTimeout)
	defer cancel()
	kernel, err := p.findKernel(ctx)
	if err != nil {
		return err
	}
	if err := os.Mkdir(p.dir(id), 0o700); err != nil {
		return err
	}
	err = p.tryKernel(ctx, id, kernel)
	cleanup, stop := context.WithTimeout(context.WithoutCancel(ctx), destroyTimeout)
	defer stop()
	if cerr := p.clear(cleanup, id); err == nil {
		err = cerr
	}
	return err
}

func (p *Provider) tryKernel(ctx context.Context, id sandbox.ID, kernel microvm.Kernel) error {
	uid, err := p.takeUID(id)
	if err != nil {
		return err
	}
	rec := record{UID: uid, Exec: p.c.Binary, Shape: savedShape{VCPUs: 1, MemoryMiB: 128}}
	if err := writeRecord(p.dir(id), rec); err != nil {
		return err
	}
	j := p.jailOf(id, rec)
	j.Limits = jail.Limits{MemoryBytes: 128<<20 + overheadBytes, Tasks: tasksMax, FileBytes: 1 << 20}
	if err := j.Make(); err != nil {
		return err
	}
	if err := j.Link(kernel.Path, jail.Kernel); err != nil {
		return err
	}
	if rec.Process, err = j.Start(ctx); err != nil {
		return err
	}
	if err := writeRecord(p.dir(id), rec); err != nil {
		return err
	}
	m, err := p.follow(id, rec)
	if err != nil {
		return err
	}
	defer m.Close()
	if err := m.bootKernel(ctx); err != nil {
		return m.explain(err)
	}
	return nil
}

// bootKernel starts the kernel and waits for its end.
func (m *machine) bootKernel(ctx context.Context) error {
	alive, stop := m.whileAlive(ctx)
	defer stop()
	if _, err := m.api.Await(alive); err != nil {
		return err
	}
	if err := m.api.PutMachineConfig(alive, api.MachineConfig{VCPUCount: 1, MemSizeMiB: m.rec.Shape.MemoryMiB}); err != nil {
		return err
	}
	if err := m.api.PutVsock(alive, api.Vsock{GuestCID: guestCID, Path: jail.VsockSocket}); err != nil {
		return err
	}
	line := "quiet panic=-1 reboot=k 8250.nr_uarts=0 i8042.noaux i8042.nomux i8042.dumbkbd"
	if err := m.api.PutBootSource(alive, api.BootSource{Kernel: jail.Kernel, Args: line}); err != nil {
		return err
	}
	if err := m.api.Start(alive); err != nil {
		return err
	}
	e, err := m.Wait(ctx)
	if err != nil {
		return fmt.Errorf("the kernel does not come to its end: %w", err)
	}
	if e.Reason != sandbox.ReasonExited || e.Detail != cleanEnd {
		return errs.New(errs.Unavailable, "the machine ended as it should not (%s)", e.Detail)
	}
	return nil
}
