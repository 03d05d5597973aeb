package gvisor

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"

	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/guest/channel"
	"github.com/skete-dev/skete/guest/wire"
	"github.com/skete-dev/skete/sandbox"
	"github.com/skete-dev/skete/template"
)

// probeVerb asks our program to be the guest of a probe.
const probeVerb = "__probe"

// probePort is not in use by any guest; the probe's guest grants it.
const probePort = wire.ControlPort + 1

// Probe implements sandbox.Provider. It needs neither a template nor the
// guest program: our own program, static as it is, plays the guest in an empty
// root. Where only the program for gVisor alone is kept from running (by a
// profile that knows skete's path, say), ours plays that too from then on, if it can.
func (p *Provider) Probe(ctx context.Context) error {
	err := p.tryOut(ctx)
	if _, own := p.Program(); err == nil || !own || !p.fallsBack || ctx.Err() != nil {
		return err
	}
	p.use(p.c.Exe)
	if p.tryOut(ctx) != nil {
		p.use(p.c.Runsc)
		return err // nothing to do with the program
	}
	p.c.Log.Warn("gvisor: skete-runsc does not run here; skete plays its part, and machines start more slowly", "error", err)
	return nil
}

func (p *Provider) use(program string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.program = program
}

func (p *Provider) tryOut(ctx context.Context) error {
	p.sweepProbes()
	dir, err := os.MkdirTemp(p.c.Dir, probePrefix+"*")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	b, err := p.probeBoot(dir)
	if err != nil {
		return err
	}
	if err := p.probe(ctx, b); err != nil {
		return errs.Wrap(errs.Unsupported, err, "gVisor does not start on this host").WithHint("%s", p.probeHint())
	}
	return nil
}

func (p *Provider) probeBoot(dir string) (sandbox.Boot, error) {
	root, work := filepath.Join(dir, "root"), filepath.Join(dir, "workspace")
	for _, d := range []string{"proc", "sys", "dev", "tmp", "run", "workspace", "home/user", wire.BootDir} {
		if err := os.MkdirAll(filepath.Join(root, d), 0o755); err != nil {
			return sandbox.Boot{}, err
		}
	}
	return sandbox.Boot{
		ID: sandbox.NewID(), Guest: p.c.Exe, Workspace: work, Rootfs: template.Rootfs{Dir: root},
		Spec: sandbox.Spec{MemoryMB: 256, DiskMB: 16, CPUs: 1, PidsMax: 16},
	}, os.Mkdir(work, 0o755)
}

func (p *Provider) probe(ctx context.Context, b sandbox.Boot) error {
	await := func(ctx context.Context, m *machine) error {
		conn, err := m.Dial(ctx, probePort)
		if err != nil {
			return err
		}
		return conn.Close()
	}
	m, err := p.create(ctx, b, bootPlan{args: []string{wire.GuestBinary, probeVerb}, await: await})
	if err != nil {
		return err
	}
	if err := m.Destroy(ctx); err != nil {
		return fmt.Errorf("end the probe: %w", err)
	}
	return nil
}

func (p *Provider) probeHint() string {
	if p.rootless() {
		return "without root, gVisor needs unprivileged user namespaces: see the sysctls user.max_user_namespaces, kernel.unprivileged_userns_clone and kernel.apparmor_restrict_unprivileged_userns"
	}
	return "run as root with CAP_SYS_ADMIN and CAP_SYS_PTRACE and without a seccomp filter that forbids namespaces; the server's log has gVisor's words"
}

// probeGuest runs inside: it grants every stream and ends with the machine.
func probeGuest() {
	dial := func(ctx context.Context) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, "unix", wire.HostSocket)
	}
	ctx, cancel := context.WithTimeoutCause(context.Background(), bootTimeout, errors.New("not asked for"))
	defer cancel()
	channel.Park(ctx, dial, func(conn net.Conn, port uint32) {
		_ = wire.Grant(conn, port)
		_ = conn.Close()
	})
	os.Exit(0)
}
