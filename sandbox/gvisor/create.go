package gvisor

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	specs "github.com/opencontainers/runtime-spec/specs-go"

	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/guest/channel"
	"github.com/skete-dev/skete/guest/wire"
	"github.com/skete-dev/skete/internal/cgroup"
	"github.com/skete-dev/skete/internal/hostproc"
	"github.com/skete-dev/skete/sandbox"
	"github.com/skete-dev/skete/sandbox/gvisor/runsc"
	shared "github.com/skete-dev/skete/sandbox/machine"
)

// Create implements sandbox.Provider.
func (p *Provider) Create(ctx context.Context, b sandbox.Boot) (sandbox.Machine, error) {
	return p.create(ctx, b, bootPlan{
		args:  []string{wire.GuestBinary, "init"},
		await: func(ctx context.Context, m *machine) error { return m.lifetime.AwaitGuest(ctx, m.guest) },
	})
}

// bootPlan is what the first process is and how it is known to answer.
type bootPlan struct {
	args  []string
	await func(context.Context, *machine) error
}

func (p *Provider) create(ctx context.Context, b sandbox.Boot, bp bootPlan) (sandbox.Machine, error) {
	if _, err := sandbox.ParseID(string(b.ID)); err != nil {
		return nil, err
	}
	m, err := p.machines.Create(ctx, b.ID, shared.Making[*machine]{
		Dir: p.dir(b.ID), Slots: p.slots, BootTimeout: bootTimeout, ClearTimeout: destroyTimeout,
		Boot:  func(ctx context.Context) (*machine, error) { return p.boot(ctx, b, bp) },
		Clear: func(ctx context.Context) error { return p.clear(ctx, b.ID) },
	})
	if err != nil {
		return nil, err
	}
	return m, nil
}

// boot makes the bundle, starts gVisor and waits for the guest.
func (p *Provider) boot(ctx context.Context, b sandbox.Boot, bp bootPlan) (*machine, error) {
	spec := p.plan(b, bp.args).Spec()
	loads, err := p.loads(ctx, b, spec)
	if err != nil {
		return nil, err
	}
	m, err := p.bootOn(ctx, b, bp, spec)
	if err != nil && loads && ctx.Err() == nil {
		return nil, fmt.Errorf("%w: %w", sandbox.ErrSnapshot, err)
	}
	return m, err
}

func (p *Provider) bootOn(ctx context.Context, b sandbox.Boot, bp bootPlan, spec *specs.Spec) (*machine, error) {
	host, err := p.prepare(b, spec)
	if err != nil {
		return nil, err
	}
	limits, group := limitsOf(spec.Linux.Resources), p.ownGroup(b.ID)
	if group != nil {
		err = group.Create(limits)
	}
	if err != nil {
		_ = host.Close()
		return nil, err
	}
	rec, err := p.start(ctx, b, group)
	if err != nil {
		_ = host.Close()
		return nil, err
	}
	m, err := p.follow(b.ID, rec, host)
	if err != nil {
		_ = host.Close()
		if errors.Is(err, hostproc.ErrGone) {
			err = errs.Wrap(errs.Unavailable, err, "the machine ended at once")
		}
		return nil, err
	}
	err = errors.Join(bp.await(ctx, m), p.shutDoor(b.ID))
	if err == nil && group != nil {
		// Not before: booting takes more than the share of a small machine, but
		// nothing of what has run until here is the user's.
		err = group.LimitCPU(limits)
	}
	if err != nil {
		_ = m.Close()
		return nil, err
	}
	return m, nil
}

// prepare fills the machine's directory and opens the channel.
func (p *Provider) prepare(b sandbox.Boot, spec *specs.Spec) (*channel.Host, error) {
	dir, bootDir := p.dir(b.ID), p.bootDir(b.ID)
	for _, d := range []string{bootDir, p.overlayDir(b.ID), p.spoolDir(b.ID)} {
		if err := os.Mkdir(d, 0o700); err != nil {
			return nil, err
		}
	}
	if err := place(guestOf(b), filepath.Join(bootDir, filepath.Base(wire.GuestBinary))); err != nil {
		return nil, fmt.Errorf("place the guest program: %w", err)
	}
	file := b.BootFile()
	file.Channel = "unix:" + wire.HostSocket
	if err := writeJSON(filepath.Join(bootDir, filepath.Base(wire.BootFile)), file); err != nil {
		return nil, err
	}
	if err := p.adoptWorkspace(b.Workspace); err != nil {
		return nil, fmt.Errorf("give the workspace to the sandbox's user: %w", err)
	}
	if err := writeJSON(filepath.Join(dir, runsc.SpecName), spec); err != nil {
		return nil, err
	}
	return p.listen(b.ID)
}

func (p *Provider) plan(b sandbox.Boot, args []string) bundlePlan {
	pl := bundlePlan{Boot: b, BootDir: p.bootDir(b.ID), SpoolDir: p.spoolDir(b.ID), Args: args}
	if p.rootless() {
		pl.HostUID, pl.HostGID = os.Geteuid(), os.Getegid()
	}
	if p.cgroups != nil {
		pl.GroupPath, pl.LimitSwap = p.groupPath(b.ID), p.cgroups.LimitsSwap()
	}
	return pl
}

// ownGroups: with control groups of version 1 we make the machine's and start
// runsc in it; gVisor would move itself in and out, at twenty times the price
// (see cgroup.Group.Run). With version 2 it does as well as we could.
func (p *Provider) ownGroups() bool { return p.cgroups != nil && !p.cgroups.V2 }

// ownGroup is the machine's control group where it is ours to make, else nil.
func (p *Provider) ownGroup(id sandbox.ID) *cgroup.Group {
	if !p.ownGroups() {
		return nil
	}
	g := p.group(id)
	return &g
}

// limitsOf translates what a bundle asks for.
func limitsOf(r *specs.LinuxResources) cgroup.Limits {
	var l cgroup.Limits
	if r == nil {
		return l
	}
	if r.Pids != nil {
		l.Tasks = r.Pids.Limit
	}
	if r.Memory != nil && r.Memory.Limit != nil {
		l.MemoryBytes, l.SwapToo = *r.Memory.Limit, r.Memory.Swap != nil
	}
	if r.CPU != nil {
		l.CPUPeriodUS, l.CPUQuotaUS = *r.CPU.Period, *r.CPU.Quota
	}
	return l
}

// listen opens the channel at the place where the guest looks for it.
func (p *Provider) listen(id sandbox.ID) (*channel.Host, error) {
	return channel.Listen(filepath.Join(p.bootDir(id), filepath.Base(wire.HostSocket)), p.c.Serve.For(id))
}

// The boot directory's door. Without root the directory looks like the
// sandbox user's own from inside. So it is shut to its owner, before the first
// command runs, and only the guest, whom modes do not stop, gets in. It must
// be open while gVisor starts and while a later server puts its socket there;
// a command that slips in then could talk to us in its own sandbox's name,
// no more.

func (p *Provider) openDoor(id sandbox.ID) error { return p.door(id, 0o700) }
func (p *Provider) shutDoor(id sandbox.ID) error { return p.door(id, 0) }

func (p *Provider) door(id sandbox.ID, mode os.FileMode) error {
	if !p.rootless() {
		return nil
	}
	return os.Chmod(p.bootDir(id), mode)
}

func (p *Provider) overlayDir(id sandbox.ID) string { return filepath.Join(p.dir(id), "overlay") }
func (p *Provider) spoolDir(id sandbox.ID) string   { return filepath.Join(p.dir(id), "spool") }

// adoptWorkspace gives the top directory away; what is in it keeps its owners.
// Without root the files of all users look alike from inside, so the mode must
// do.
func (p *Provider) adoptWorkspace(dir string) error {
	if p.rootless() {
		return os.Chmod(dir, 0o777)
	}
	return os.Chown(dir, sandbox.UserID, sandbox.UserID)
}

// start runs the sentry, detached: it lives on when we die.
func (p *Provider) start(ctx context.Context, b sandbox.Boot, group *cgroup.Group) (record, error) {
	program, _ := p.Program()
	rec := record{Program: program, Rootfs: b.Rootfs.Hash, DiskMB: b.Spec.DiskMB, RawSockets: b.Spec.HasNetwork()}
	return p.run(ctx, b.ID, rec, group, p.runArgs(b)...)
}

// notStarted is what runsc says when its sandbox has died before it did anything.
const notStarted = "waiting for sandbox to start"

// run is start by the program and with the writable layer of the record, which
// it completes. A sandbox that dies before it has begun, which was seen on busy
// hosts, is started once more: nothing has run in it, and of a snapshot nothing was
// read.
func (p *Provider) run(ctx context.Context, id sandbox.ID, rec record, group *cgroup.Group, args ...string) (record, error) {
	overlay := "--overlay2=root:dir=" + p.overlayDir(id)
	if rec.DiskMB > 0 {
		overlay += ",size=" + strconv.Itoa(rec.DiskMB) + "m"
	}
	flags := []string{overlay}
	if rec.RawSockets {
		flags = append(flags, "--net-raw")
	}
	err := p.runscIn(ctx, rec.Program, id, group, flags, args...)
	if err != nil && strings.Contains(err.Error(), notStarted) && p.sweepSentry(ctx, id) == nil {
		p.c.Log.Warn("gVisor: a machine died at its start; once more", "id", id, "error", err)
		err = p.runscIn(ctx, rec.Program, id, group, flags, args...)
	}
	if err != nil {
		return record{}, err
	}
	found, err := p.locate(id, p.pidFile(id))
	if err != nil {
		return record{}, err
	}
	rec.Sentry, rec.Gofer = found.Sentry, found.Gofer
	return rec, writeRecord(p.dir(id), rec)
}

// locate reads which processes the machine is made of.
func (p *Provider) locate(id sandbox.ID, pidFile string) (record, error) {
	data, err := os.ReadFile(pidFile)
	if err != nil {
		return record{}, err
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(data)))
	if err != nil {
		return record{}, errs.Wrap(errs.Internal, err, "gVisor left no process number")
	}
	var rec record
	if rec.Sentry, err = hostproc.Of(pid); err != nil {
		return record{}, errs.Wrap(errs.Unavailable, err, "the machine ended at once")
	}
	var state struct {
		GoferPID int `json:"goferPid"`
	}
	if data, err = os.ReadFile(p.stateFile(id)); err == nil {
		if err = json.Unmarshal(data, &state); err == nil {
			rec.Gofer, _ = hostproc.Of(state.GoferPID)
		}
	}
	return rec, err
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

func writeJSON(path string, v any) error {
	data, err := json.Marshal(v)
	if err != nil {
		return err
	}
	return os.WriteFile(path, data, 0o600)
}
