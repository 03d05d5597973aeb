package firecracker

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"

	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/internal/cgroup"
	"github.com/skete-dev/skete/internal/ext4"
	"github.com/skete-dev/skete/internal/hostproc"
	"github.com/skete-dev/skete/sandbox"
	"github.com/skete-dev/skete/sandbox/firecracker/api"
	"github.com/skete-dev/skete/sandbox/firecracker/jail"
	shared "github.com/skete-dev/skete/sandbox/machine"
	"github.com/skete-dev/skete/sandbox/microvm"
)

// Sizes.
const (
	overheadBytes = 96 << 20 // of Firecracker itself, beyond the guest's memory
	tasksMax      = 96       // threads: one each for the API and the devices, one a virtual cpu
	vcpusMax      = 32
	defaultCPUs   = 1
	defaultMemory = 512 // MiB
	defaultDisk   = 1024
	guestCID      = 3 // the same in all: the socket tells them apart
)

// record is what a later process must know; it is written before anything
// else of the machine exists, and again when it runs.
type record struct {
	Process hostproc.Ref `json:"process"`
	UID     int          `json:"uid"`
	Exec    string       `json:"exec"`
	CPUs    float64      `json:"cpus"`
	Shape   savedShape   `json:"shape"`
	Paused  bool         `json:"paused,omitempty"`
}

const recordName = "machine.json"

func readRecord(dir string) (record, error) {
	var r record
	data, err := os.ReadFile(filepath.Join(dir, recordName))
	if err != nil {
		return r, err
	}
	return r, json.Unmarshal(data, &r)
}

// writeRecord replaces the file in one step.
func writeRecord(dir string, r record) error {
	data, err := json.Marshal(r)
	if err != nil {
		return err
	}
	tmp := filepath.Join(dir, "."+recordName)
	if err := os.WriteFile(tmp, data, 0o600); err != nil {
		return err
	}
	return os.Rename(tmp, filepath.Join(dir, recordName))
}

// Create implements sandbox.Provider.
func (p *Provider) Create(ctx context.Context, b sandbox.Boot) (sandbox.Machine, error) {
	if _, err := sandbox.ParseID(string(b.ID)); err != nil {
		return nil, err
	}
	shape, err := p.shape(b)
	if err != nil {
		return nil, err
	}
	if b.From != "" { // before anything is made
		if err := checkSaved(b.From, shape); err != nil {
			return nil, fmt.Errorf("create %s: %w", b.ID, notLoadable(err))
		}
	}
	m, err := p.machines.Create(ctx, b.ID, shared.Making[*machine]{
		Dir: p.dir(b.ID), Slots: p.slots, BootTimeout: bootTimeout, ClearTimeout: destroyTimeout,
		Boot:  func(ctx context.Context) (*machine, error) { return p.boot(ctx, b, shape) },
		Clear: func(ctx context.Context) error { return p.clear(ctx, b.ID) },
	})
	if err != nil {
		return nil, err
	}
	return m, nil
}

func notLoadable(cause error) error {
	return errors.Join(sandbox.ErrSnapshot, cause)
}

// shape says what kind of machine b asks for.
func (p *Provider) shape(b sandbox.Boot) (savedShape, error) {
	if b.Rootfs.Image == "" || b.Disk == "" {
		return savedShape{}, errs.New(errs.Invalid, "a machine with a kernel of its own needs a root image and a workspace disk")
	}
	s := savedShape{
		Provider: Name, Firecracker: p.version.String(), CPU: p.cpu, HostKernel: p.host, Root: b.Rootfs.Hash,
		VCPUs: vcpus(b.Spec.CPUs), MemoryMiB: b.Spec.MemoryMB, LayerBytes: int64(b.Spec.DiskMB) << 20,
		DiskMBps: b.Spec.DiskMBps, DiskIOPS: b.Spec.DiskIOPS,
	}
	told := microvm.Shape(b.BootFile()) // but for what an adoption changes
	told.Sandbox, told.Hostname, told.Workdir = "", "", ""
	data, err := json.Marshal(told)
	if err != nil {
		return s, err
	}
	sum := sha256.Sum256(data)
	s.Boot = hex.EncodeToString(sum[:8])
	if s.MemoryMiB <= 0 {
		s.MemoryMiB = defaultMemory
	}
	if s.LayerBytes <= 0 {
		s.LayerBytes = defaultDisk << 20
	}
	return s, nil
}

// vcpus: Firecracker takes one, or an even number. The share of them that the
// machine may use is the control group's.
func vcpus(cpus float64) int {
	n := max(defaultCPUs, int(math.Ceil(cpus)))
	if n > 1 {
		n += n % 2
	}
	return min(n, vcpusMax)
}

// boot makes the machine and returns when its guest has answered.
func (p *Provider) boot(ctx context.Context, b sandbox.Boot, shape savedShape) (*machine, error) {
	uid, err := p.takeUID(b.ID)
	if err != nil {
		return nil, err
	}
	rec := record{UID: uid, Exec: p.c.Binary, CPUs: b.Spec.CPUs, Shape: shape}
	if err := writeRecord(p.dir(b.ID), rec); err != nil {
		return nil, err
	}
	j := p.jailOf(b.ID, rec)
	j.Limits = jail.Limits{MemoryBytes: int64(shape.MemoryMiB)<<20 + overheadBytes, Tasks: tasksMax, FileBytes: p.fileBytes(b, shape), NoSwap: p.cgroups != nil && p.cgroups.LimitsSwap()}
	source, err := p.fillJail(ctx, b, j, shape)
	if err != nil {
		return nil, err
	}
	if rec.Process, err = j.Start(ctx); err != nil {
		return nil, err
	}
	if err := writeRecord(p.dir(b.ID), rec); err != nil {
		return nil, err
	}
	m, err := p.follow(b.ID, rec)
	if err != nil {
		if errors.Is(err, hostproc.ErrGone) {
			err = errs.Wrap(errs.Unavailable, err, "Firecracker ended at once")
		}
		return nil, err
	}
	err = p.bringUp(ctx, m, b, source)
	if err == nil {
		// Not before: booting takes more than the share of a small machine.
		err = p.limitCPU(b.ID, rec.CPUs)
	}
	if err != nil {
		err = m.explain(err)
		_ = m.Close()
		return nil, err
	}
	return m, nil
}

// fileBytes bounds what Firecracker may write to one file: its memory, the
// layer and the workspace are the largest.
func (p *Provider) fileBytes(b sandbox.Boot, s savedShape) int64 {
	n := max(int64(s.MemoryMiB)<<20, s.LayerBytes)
	if info, err := os.Stat(b.Disk); err == nil {
		n = max(n, info.Size())
	}
	return n + 1<<20
}

// fillJail puts everything into the jail that the machine needs.
func (p *Provider) fillJail(ctx context.Context, b sandbox.Boot, j jail.Jail, s savedShape) (api.BootSource, error) {
	var source api.BootSource
	if err := j.Make(); err != nil {
		return source, err
	}
	if err := j.Link(b.Rootfs.Image, jail.RootImage); err != nil {
		return source, fmt.Errorf("show the root image: %w", err)
	}
	if err := j.LinkOwn(b.Disk, jail.Work); err != nil {
		return source, fmt.Errorf("show the workspace: %w", err)
	}
	var err error
	if b.From == "" {
		source, err = p.fillJailCold(ctx, b, j, s)
	} else {
		err = fillJailFrom(b.From, j)
	}
	if err != nil {
		return source, err
	}
	if err := j.MakePipe(jail.Metrics); err != nil {
		return source, err
	}
	return source, j.Own(jail.Layer)
}

func (p *Provider) fillJailCold(ctx context.Context, b sandbox.Boot, j jail.Jail, s savedShape) (api.BootSource, error) {
	source := api.BootSource{Kernel: jail.Kernel, Initrd: jail.Initrd}
	kernel, err := p.findKernel(ctx)
	if err != nil {
		return source, err
	}
	initrd, _, err := microvm.Initramfs(ctx, p.c.Cache, kernel, b.Guest)
	if err != nil {
		return source, fmt.Errorf("make an initramfs: %w", err)
	}
	boot := b.BootFile()
	boot.Channel = fmt.Sprintf("vsock:%d", vsockPort)
	// Output is kept in the machine's memory: on the layer, a command that
	// fills the root would lose the words in which it says so.
	boot.StateDir, boot.OutputBytesMax = "/run/skete-guest", outputBytes(s.MemoryMiB)
	source.Args, err = microvm.CommandLine(microvm.Line{
		VMM: microvm.Firecracker, Root: "vda", Layer: "vdb", Work: "vdc", Boot: boot, Console: p.c.Console,
	})
	if err != nil {
		return source, err
	}
	for name, path := range map[string]string{jail.Kernel: kernel.Path, jail.Initrd: initrd} {
		if err := j.Link(path, name); err != nil {
			return source, err
		}
	}
	if err := ext4.Blank(ctx, j.Path(jail.Layer), s.LayerBytes); err != nil {
		return source, fmt.Errorf("make the root's layer: %w", err)
	}
	return source, nil
}

// fillJailFrom: memory and state are shared by all clones and stay root's; the
// layer is a copy.
func fillJailFrom(from string, j jail.Jail) error {
	for source, name := range map[string]string{savedState: jail.State, savedMemory: jail.Memory} {
		if err := j.Link(filepath.Join(from, source), name); err != nil {
			return err
		}
	}
	layer, err := os.Open(filepath.Join(from, savedLayer))
	if err != nil {
		return err
	}
	defer layer.Close()
	return copySaved(layer, j.Path(jail.Layer))
}

// findKernel looks at what is there: `skete doctor --fix` gets one.
func (p *Provider) findKernel(ctx context.Context) (microvm.Kernel, error) {
	p.kernelMu.Lock()
	defer p.kernelMu.Unlock()
	if p.kernel.Path != "" {
		return p.kernel, nil
	}
	k, err := microvm.FindKernel(ctx, microvm.KernelConfig{Dir: p.c.Cache, Vmlinux: p.c.Kernel, Modules: p.c.Modules})
	if err != nil {
		return k, fmt.Errorf("find a kernel: %w", err)
	}
	p.kernel = k
	return k, nil
}

// bringUp configures Firecracker, starts the machine and waits for its guest.
func (p *Provider) bringUp(ctx context.Context, m *machine, b sandbox.Boot, source api.BootSource) error {
	ctx, stop := m.whileAlive(ctx)
	defer stop()
	if _, err := m.api.Await(ctx); err != nil {
		return err
	}
	if err := m.api.PutSerial(ctx, consoleTo(jail.Console)); err != nil {
		return err
	}
	if err := m.api.PutMetrics(ctx, api.Metrics{MetricsPath: jail.Metrics}); err != nil {
		return err
	}
	if b.From != "" {
		err := m.api.LoadSnapshot(ctx, api.LoadSnapshot{
			StatePath: jail.State, Memory: api.MemoryBackend{Type: "File", Path: jail.Memory}, Resume: true,
		})
		if err != nil {
			return notLoadable(err)
		}
		if err := m.awaitGuest(ctx); err != nil {
			return notLoadable(err)
		}
		return nil // the caller adopts it
	}
	if err := configure(ctx, m.api, m.rec.Shape, source); err != nil {
		return err
	}
	if err := m.api.Start(ctx); err != nil {
		return err
	}
	if err := m.awaitGuest(ctx); err != nil {
		return err
	}
	return microvm.Introduce(ctx, m.guest, b.BootFile())
}

// consoleTo bounds what a guest can make us write: a quarter of a megabyte at
// once, and two a day.
func consoleTo(path string) api.Serial {
	return api.Serial{OutPath: path, RateLimiter: &api.Bucket{Size: 64 << 10, OneTimeBurst: 256 << 10, RefillTimeMS: 3600_000}}
}

// configure says what the machine is made of; drives in the order of their
// names inside.
func configure(ctx context.Context, c *api.Client, s savedShape, source api.BootSource) error {
	if err := c.PutMachineConfig(ctx, api.MachineConfig{VCPUCount: s.VCPUs, MemSizeMiB: s.MemoryMiB}); err != nil {
		return err
	}
	if err := c.PutBootSource(ctx, source); err != nil {
		return err
	}
	for _, d := range []api.Drive{
		{ID: "root", Path: jail.RootImage, ReadOnly: true, Cache: api.Unsafe},
		{ID: "layer", Path: jail.Layer, Cache: api.Unsafe}, // gone with the machine: need not outlive the host
		{ID: "work", Path: jail.Work, Cache: api.Writeback},
	} {
		d.Engine, d.RateLimiter = "Sync", limiter(s)
		if err := c.PutDrive(ctx, d); err != nil {
			return err
		}
	}
	if err := c.PutVsock(ctx, api.Vsock{GuestCID: guestCID, Path: jail.VsockSocket}); err != nil {
		return err
	}
	return c.PutEntropy(ctx, api.Entropy{})
}

// limiter bounds one disk; nil = no bound. A bucket holds what a second may
// move, so that much may come at once.
func limiter(s savedShape) *api.RateLimiter {
	bucket := func(n int64) *api.Bucket {
		if n == 0 {
			return nil
		}
		return &api.Bucket{Size: n, RefillTimeMS: 1000}
	}
	l := api.RateLimiter{Bandwidth: bucket(int64(s.DiskMBps) * 1e6), Ops: bucket(int64(s.DiskIOPS))}
	if l == (api.RateLimiter{}) {
		return nil
	}
	return &l
}

// limitCPU bounds the machine's share of the host's cpus; the period is the
// kernel's default.
func (p *Provider) limitCPU(id sandbox.ID, cpus float64) error {
	if p.cgroups == nil || cpus <= 0 {
		return nil
	}
	const period = 100_000 // µs
	return p.cgroups.Group(p.group(id)).LimitCPU(cgroup.Limits{CPUPeriodUS: period, CPUQuotaUS: int64(cpus * period)})
}

// outputBytes is an eighth of the machine's memory, so that what commands
// say does not take what they work with.
func outputBytes(memoryMiB int) int64 {
	const least, most = 8 << 20, 256 << 20
	return min(max(int64(memoryMiB)<<20/8, least), most)
}
