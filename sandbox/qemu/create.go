package qemu

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/internal/cgroup"
	"github.com/skete-dev/skete/internal/ext4"
	"github.com/skete-dev/skete/internal/hostproc"
	"github.com/skete-dev/skete/sandbox"
	shared "github.com/skete-dev/skete/sandbox/machine"
	"github.com/skete-dev/skete/sandbox/microvm"
)

// Create implements sandbox.Provider.
func (p *Provider) Create(ctx context.Context, b sandbox.Boot) (sandbox.Machine, error) {
	if _, err := sandbox.ParseID(string(b.ID)); err != nil {
		return nil, err
	}
	m, err := p.machines.Create(ctx, b.ID, shared.Making[*machine]{
		Dir: p.dir(b.ID), Slots: p.slots, BootTimeout: bootTimeout, ClearTimeout: destroyTimeout,
		Boot:  func(ctx context.Context) (*machine, error) { return p.boot(ctx, b) },
		Clear: func(ctx context.Context) error { return p.clear(ctx, b.ID) },
	})
	if err != nil {
		return nil, err
	}
	return m, nil
}

// boot boots cold, or from a snapshot.
func (p *Provider) boot(ctx context.Context, b sandbox.Boot) (*machine, error) {
	pl, err := p.plan(ctx, b)
	if err != nil {
		return nil, err
	}
	var m *machine
	if b.From == "" {
		m, err = p.bootCold(ctx, b, pl)
	} else {
		m, err = p.restore(ctx, b, pl)
	}
	if err != nil {
		return nil, err
	}
	if p.cgroups != nil {
		// Not before: booting takes more than the share of a small machine, but
		// nothing of what has run until here is the user's.
		err = p.group(b.ID).LimitCPU(limits(b.Spec, pl.shape))
	}
	if err != nil {
		_ = m.Close()
		return nil, err
	}
	return m, nil
}

// plan is what a machine is made of.
type plan struct {
	shape  commandShape
	kernel microvm.Kernel
	initrd string
	line   string // the kernel's
}

func (p *Provider) plan(ctx context.Context, b sandbox.Boot) (plan, error) {
	if b.Rootfs.Image == "" {
		return plan{}, errs.New(errs.Unsupported, "template %q is no image that a machine with its own kernel can boot", b.Rootfs.Name)
	}
	var pl plan
	var err error
	if pl.kernel, err = microvm.FindKernel(ctx, p.kernelConfig()); err != nil {
		return plan{}, err
	}
	var initramfs string
	if pl.initrd, initramfs, err = microvm.Initramfs(ctx, p.c.Cache, pl.kernel, b.Guest); err != nil {
		return plan{}, err
	}
	file := b.BootFile()
	file.Channel = "virtio:" + portName
	// In memory, or a full disk would leave commands without their output: the
	// layer has nothing that is the guest's alone.
	file.StateDir, file.OutputBytesMax = "/run/skete-guest", outputBytes(b.Spec)
	l := microvm.Line{VMM: microvm.QEMU, TSCKHz: microvm.TSCKHz(), Emulated: p.accel == accelTCG, Root: "vda", Layer: "vdb", Boot: file}
	work, err := diskBytes(b.Disk)
	if err != nil {
		return plan{}, fmt.Errorf("workspace disk: %w", err)
	}
	if work > 0 {
		l.Work = "vdc"
	}
	if pl.line, err = microvm.CommandLine(l); err != nil {
		return plan{}, err
	}
	// What a clone's owner may choose anew (see Control.Adopt) is no part of the shape.
	file.Sandbox, file.Hostname, file.Workdir = "", "", ""
	told, err := json.Marshal(microvm.Shape(file))
	if err != nil {
		return plan{}, err
	}
	pl.shape = commandShape{
		QEMU: p.program.Version, Accel: p.accel, CPU: hostCPU(p.accel),
		Kernel: pl.kernel.Hash, Initramfs: initramfs, Root: b.Rootfs.Hash,
		MemoryMB: memoryMB(b.Spec), CPUs: cpus(b.Spec), LayerMB: b.Spec.DiskMB, WorkBytes: work,
		DiskMBps: b.Spec.DiskMBps, DiskIOPS: b.Spec.DiskIOPS,
		Boot: hash(told),
	}
	return pl, nil
}

// outputBytes is how much output of commands is kept.
func outputBytes(s sandbox.Spec) int64 { return min(256, max(8, int64(s.MemoryMB)/8)) << 20 }

func (p *Provider) kernelConfig() microvm.KernelConfig {
	return microvm.KernelConfig{Dir: p.c.Cache, Vmlinux: p.c.Vmlinux, Modules: p.c.Modules}
}

func hash(data []byte) string {
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:])
}

func diskBytes(path string) (int64, error) {
	if path == "" {
		return 0, nil
	}
	info, err := os.Stat(path)
	if err != nil {
		return 0, err
	}
	if !info.Mode().IsRegular() || info.Size() == 0 {
		return 0, errs.New(errs.Invalid, "the workspace disk is no file with a file system in it")
	}
	return info.Size(), nil
}

func limits(spec sandbox.Spec, s commandShape) cgroup.Limits {
	const period = 100_000
	l := cgroup.Limits{MemoryBytes: s.HostBytes(), CPUPeriodUS: period, CPUQuotaUS: int64(spec.CPUs * period)}
	return l
}

func (p *Provider) layerPath(id sandbox.ID) string { return filepath.Join(p.dir(id), "layer.img") }

// bootCold starts a machine's kernel and waits for the guest.
func (p *Provider) bootCold(ctx context.Context, b sandbox.Boot, pl plan) (*machine, error) {
	if err := ext4.Blank(ctx, p.layerPath(b.ID), int64(b.Spec.DiskMB)<<20); err != nil {
		return nil, fmt.Errorf("make the root's layer: %w", err)
	}
	var files opened
	defer files.close()
	files.disks(b, p.layerPath(b.ID))
	files.open(pl.kernel.Path, os.O_RDONLY)
	files.open(pl.initrd, os.O_RDONLY)
	m, err := p.start(ctx, b, pl.shape, ownMemory, pl.line, &files)
	if err != nil {
		return nil, err
	}
	if err = m.awaitGuest(ctx); err == nil {
		if err = microvm.Introduce(ctx, m.guest, b.BootFile()); err != nil {
			err = errs.Wrap(errs.Unavailable, err, "the guest does not answer as it should")
		}
	}
	if err == nil {
		_ = m.guest.AlignClock(ctx, time.Now) // Introduce has set it, but for the time that took
	}
	if err != nil {
		_ = m.Close()
		return nil, err
	}
	return m, nil
}

// opened collects the files that QEMU inherits, in the order of their numbers.
type opened struct {
	files []*os.File
	err   error
}

func (o *opened) open(path string, flags int) {
	f, err := os.OpenFile(path, flags, 0)
	o.err = errors.Join(o.err, err)
	o.files = append(o.files, f)
}

func (o *opened) disks(b sandbox.Boot, layer string) {
	o.open(b.Rootfs.Image, os.O_RDONLY)
	o.open(layer, os.O_RDWR)
	if b.Disk == "" {
		o.open(os.DevNull, os.O_RDONLY)
		return
	}
	o.open(b.Disk, os.O_RDWR)
}

func (o *opened) close() {
	for _, f := range o.files {
		_ = f.Close() // nil is an error, no panic
	}
}

// start starts QEMU, detached: it lives on when we die.
func (p *Provider) start(ctx context.Context, b sandbox.Boot, s commandShape, mem memoryKind, line string, files *opened) (*machine, error) {
	if files.err != nil {
		return nil, files.err
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	var inherited []*os.File
	defer func() { closeAll(inherited) }()
	for _, name := range []string{controlName, channelName} {
		ln, err := privdropListen(filepath.Join(p.dir(b.ID), name))
		if err != nil {
			return nil, fmt.Errorf("make a socket: %w", err)
		}
		inherited = append(inherited, ln)
	}
	words, wordsIn, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer wordsIn.Close()
	cmd := exec.Command(p.program.Path, s.Arguments(b.ID, mem, line)...)
	cmd.Dir, cmd.Env = "/", []string{"LANG=C"}
	cmd.Stdout, cmd.Stderr = wordsIn, wordsIn
	cmd.ExtraFiles = append(append(cmd.ExtraFiles, inherited...), files.files...)
	cmd.SysProcAttr = privdropAttributes(string(b.ID), p.hidden, p.accel == accelKVM)
	rec := record{Shape: s, Shared: mem == sharedMemory}
	if rec.QEMU, err = p.launch(b, s, cmd); err == nil {
		err = writeRecord(p.dir(b.ID), rec)
	}
	if err != nil {
		_ = words.Close()
		return nil, err
	}
	m, err := p.follow(b.ID, rec)
	if err != nil {
		_ = words.Close()
		if errors.Is(err, hostproc.ErrGone) {
			err = errs.Wrap(errs.Unavailable, err, "QEMU ended at once")
		}
		return nil, err
	}
	m.hear(words)
	return m, nil
}

// launch starts the process in its control group.
func (p *Provider) launch(b sandbox.Boot, s commandShape, cmd *exec.Cmd) (hostproc.Ref, error) {
	var err error
	if p.cgroups == nil {
		err = cmd.Start()
	} else {
		g := p.group(b.ID)
		if err = g.Create(limits(b.Spec, s)); err == nil {
			err = g.Start(cmd)
		}
	}
	if err != nil {
		return hostproc.Ref{}, fmt.Errorf("start QEMU: %w", err)
	}
	defer func() { _ = cmd.Process.Release() }() // who follows it waits for it
	ref, err := hostproc.Of(cmd.Process.Pid)
	if err != nil { // it has ended and waits for us
		_, _ = unix.Wait4(cmd.Process.Pid, nil, unix.WNOHANG, nil)
		return ref, errs.Wrap(errs.Unavailable, err, "QEMU ended at once")
	}
	return ref, nil
}

// Names in a machine's directory.
const (
	controlName = "control.sock"
	channelName = "channel.sock"
)

func closeAll(files []*os.File) {
	for _, f := range files {
		_ = f.Close()
	}
}
