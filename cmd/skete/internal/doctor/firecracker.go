package doctor

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// What the provider firecracker wants.
const (
	mountsMax     = 500 // a jail is made ten times slower beyond
	timerMicros   = 200 // least of kvm's min_timer_period_us
	kvmAPIVersion = 12
)

var (
	firecrackerMin = [3]int{1, 16, 1} // 1.16.0 breaks vsock after every restore
	firecrackerELF = [3]int{1, 17, 0} // takes a bzImage from here on
	kernelMin      = [3]int{5, 10, 0}
	kernelNX       = [3]int{6, 1, 0}
	kernelsTested  = [][2]int{{5, 10}, {6, 1}, {6, 18}}
)

// ioctls of /dev/kvm.
const (
	kvmGetAPIVersion  = 0xAE00
	kvmCheckExtension = 0xAE03
)

// kvmCap is a capability of KVM.
type kvmCap struct {
	name   string
	number uintptr
}

// kvmCaps are the capabilities that firecracker asks for at its start.
var kvmCaps = map[string][]kvmCap{
	"amd64": {
		{"IRQCHIP", 0},
		{"USER_MEMORY", 3},
		{"SET_TSS_ADDR", 4},
		{"EXT_CPUID", 7},
		{"MP_STATE", 14},
		{"IRQFD", 32},
		{"PIT2", 33},
		{"PIT_STATE2", 35},
		{"IOEVENTFD", 36},
		{"ADJUST_CLOCK", 39},
		{"VCPU_EVENTS", 41},
		{"DEBUGREGS", 50},
		{"XSAVE", 55},
		{"XCRS", 56},
	},
	"arm64": {{"USER_MEMORY", 3}, {"IRQFD", 32}, {"IOEVENTFD", 36}, {"ARM_PSCI_0_2", 102}},
}

func (h Host) firecracker(ctx context.Context) []Check {
	checks := h.kvmDevice()
	checks = append(checks, h.kvmWorks(ctx))
	program, found := h.vmm(ctx)
	checks = append(checks, program...)
	return append(checks,
		h.hostKernel(), h.controllers(), h.swap(), h.threads(), h.samePages(), h.vulnerabilities(), h.hugePages(),
		h.timer(), h.owners(), h.chroots(), h.uids(), h.nested(), h.mountCount(), h.snapshotSpace(), h.cards(ctx),
		h.quiet(), h.guestClock(), h.guestKernel(ctx, found))
}

const kvmHint = "a machine with hardware virtualisation (in a cloud: bare metal, or nested virtualisation) has it"

// kvmDevice looks at the device, which proves nothing yet, and at what it says
// that it can do.
func (h Host) kvmDevice() []Check {
	const name, caps = "kvm", "kvm capabilities"
	f, err := os.OpenFile(h.at("/dev/kvm"), os.O_RDWR, 0)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		c := fail(name, kvmHint, "there is no /dev/kvm").loadable(h.kvmModule())
		return []Check{c, fail(caps, "", "not known without /dev/kvm")}
	case errors.Is(err, fs.ErrPermission):
		return []Check{fail(name, "add the user to the group kvm", "/dev/kvm is there, but not for this user"), fail(caps, "", "not known")}
	case err != nil:
		return []Check{fail(name, kvmHint, "/dev/kvm cannot be opened: %v", err), fail(caps, "", "not known")}
	}
	defer f.Close()
	v, err := unix.IoctlRetInt(int(f.Fd()), kvmGetAPIVersion)
	if err != nil || v != kvmAPIVersion {
		return []Check{
			fail(name, kvmHint, "/dev/kvm opens, but does not answer as KVM does (version %d, %v)", v, err),
			fail(caps, "", "not known"),
		}
	}
	var missing []string
	needed := kvmCaps[runtime.GOARCH]
	for _, c := range needed {
		if n, _, errno := unix.Syscall(unix.SYS_IOCTL, f.Fd(), kvmCheckExtension, c.number); errno != 0 || n == 0 {
			missing = append(missing, c.name)
		}
	}
	first := ok(name, "/dev/kvm answers; whether a kernel runs on it is the next item")
	if missing != nil {
		return []Check{first, fail(caps, "another host kernel, or another hypervisor below it", "missing: %s", strings.Join(missing, ", "))}
	}
	return []Check{first, ok(caps, "all %d that are needed", len(needed))}
}

// kvmModule is the part of KVM for this CPU; it brings the rest.
func (h Host) kvmModule() string {
	if vendor, _ := field(h.read("/proc/cpuinfo"), "vendor_id"); vendor == "AuthenticAMD" {
		return "kvm_amd"
	}
	return "kvm_intel"
}

// kvmWorks runs the instructions that hypervisors which only pretend get wrong.
func (h Host) kvmWorks(ctx context.Context) Check {
	const name = "kvm works"
	if h.KVM == nil {
		return info(name, "", "not tried")
	}
	began := time.Now()
	if err := h.KVM(ctx); err != nil {
		c := bad(name, err)
		if c.Hint == "" {
			c.Hint = kvmHint + "; skete works without, by gVisor or by emulation"
		}
		return c
	}
	return ok(name, "the instructions that a kernel starts with run (%d ms)", time.Since(began).Milliseconds())
}

// vmm looks at the programs firecracker and jailer.
func (h Host) vmm(ctx context.Context) ([]Check, [3]int) {
	const hint = "take both files of one release of firecracker, v1.16.1 or newer, into PATH, or name the first by SKETE_FIRECRACKER"
	at := func(path, name string) string {
		if path == "" {
			path = name
		}
		return h.program(path)
	}
	vmm, jail := at(h.Jail.Firecracker, "firecracker"), at(h.Jail.Jailer, "jailer")
	if vmm == "" {
		return []Check{fail("program", hint, "there is no firecracker"), jailerCheck(ctx, jail, [3]int{}, hint)}, [3]int{}
	}
	text, err := ask(ctx, vmm, "--version")
	v, found := version(text)
	switch {
	case err != nil || !found:
		return []Check{fail("program", hint, "firecracker does not say its version: %v", err), jailerCheck(ctx, jail, v, hint)}, v
	case older(v, firecrackerMin):
		return []Check{
			fail("program", hint, "firecracker %s is too old: %s and newer keep their connections over a restore", dotted(v), dotted(firecrackerMin)),
			jailerCheck(ctx, jail, v, hint),
		}, v
	}
	return []Check{ok("program", "firecracker %s", dotted(v)), jailerCheck(ctx, jail, v, hint)}, v
}

func jailerCheck(ctx context.Context, path string, want [3]int, hint string) Check {
	const name = "jailer"
	if path == "" {
		return fail(name, hint, "there is no jailer")
	}
	text, err := ask(ctx, path, "--version")
	v, found := version(text)
	if err != nil || !found {
		return fail(name, hint, "jailer does not say its version: %v", err)
	}
	if want != ([3]int{}) && v != want {
		return fail(name, hint, "jailer is %s and firecracker %s: they must be of one release", dotted(v), dotted(want))
	}
	return ok(name, "jailer %s", dotted(v))
}

// hostVersion is the kernel's. A host of another root says it in /proc.
func (h Host) hostVersion() ([3]int, bool) { return version(h.read("/proc/sys/kernel/osrelease")) }

func (h Host) hostKernel() Check {
	const name = "host kernel"
	v, found := h.hostVersion()
	switch {
	case !found:
		return warn(name, "", "its version cannot be read")
	case older(v, kernelMin):
		return fail(name, "a host kernel of 5.10 or newer", "%s is too old", dotted(v))
	case !slices.Contains(kernelsTested, [2]int{v[0], v[1]}):
		return warn(name, "", "%s: firecracker is tested on 5.10, 6.1 and 6.18", dotted(v))
	}
	return ok(name, "%s", dotted(v))
}

// controllers: the jailer is used with control groups of version 2 only.
func (h Host) controllers() Check {
	const name = "cgroup v2"
	const hint = "boot the host with systemd.unified_cgroup_hierarchy=1"
	have := strings.Fields(h.read("/sys/fs/cgroup/cgroup.controllers"))
	if len(have) == 0 {
		return fail(name, hint, "control groups of version 2 are not mounted, or have no controllers")
	}
	var missing []string
	for _, c := range []string{"cpu", "memory", "pids"} {
		if !slices.Contains(have, c) {
			missing = append(missing, c)
		}
	}
	switch {
	case missing != nil:
		return fail(name, hint, "controllers are missing: %s", strings.Join(missing, ", "))
	case !slices.Contains(have, "io"):
		return warn(name, "", "the controller io is missing: disk rates are limited by firecracker alone")
	}
	return ok(name, "cpu, memory, pids and io")
}

func (h Host) swap() Check {
	const name = "swap"
	lines := strings.Count(h.read("/proc/swaps"), "\n") // the heading has none after it
	if lines > 0 {
		return warn(name, "swapoff -a, or swap on an encrypted disk: what guests hold in memory may end up there", "%d places are swapped to", lines)
	}
	return ok(name, "none")
}

func (h Host) threads() Check {
	const name = "hyper-threads"
	switch h.read("/sys/devices/system/cpu/smt/active") {
	case "0":
		return ok(name, "off")
	case "1":
		return warn(name, "for tenants that do not trust each other: echo off > /sys/devices/system/cpu/smt/control, or boot with nosmt",
			"two machines may share a core, and with it side channels")
	}
	return ok(name, "the CPU has none, or the kernel does not say")
}

func (h Host) samePages() Check {
	const name = "page merging"
	if v := h.read("/sys/kernel/mm/ksm/run"); v != "" && v != "0" {
		return warn(name, "echo 0 > /sys/kernel/mm/ksm/run", "ksm is on: a machine can learn what pages others hold")
	}
	return ok(name, "off")
}

func (h Host) vulnerabilities() Check {
	const name, dir = "vulnerabilities", "/sys/devices/system/cpu/vulnerabilities"
	entries, err := os.ReadDir(h.at(dir))
	if err != nil {
		return warn(name, "", "the kernel does not say what the CPU is vulnerable to")
	}
	var open []string
	for _, e := range entries {
		if strings.HasPrefix(h.read(filepath.Join(dir, e.Name())), "Vulnerable") {
			open = append(open, e.Name())
		}
	}
	if open != nil {
		return warn(name, "newer microcode and host kernel, and no mitigations=off", "the CPU is open to %s", strings.Join(open, ", "))
	}
	return ok(name, "all %d known ones are mitigated, or not of this CPU", len(entries))
}

// hugePages: from 6.1 on, starting a machine waits for a grace period, unless
// huge pages need no splitting or the groups favour dynamic changes.
func (h Host) hugePages() Check {
	const name = "boot latency"
	if v, found := h.hostVersion(); !found || older(v, kernelNX) {
		return ok(name, "this host kernel has no such wait")
	}
	if h.read("/sys/module/kvm/parameters/nx_huge_pages") == "never" {
		return ok(name, "kvm does not split huge pages")
	}
	for _, m := range mounts(h.read("/proc/self/mountinfo")) {
		if m.kind == "cgroup2" && slices.Contains(m.options, "favordynmods") {
			return ok(name, "control groups are mounted with favordynmods")
		}
	}
	if h.read("/sys/devices/system/cpu/vulnerabilities/itlb_multihit") == "Not affected" {
		return warn(name, "options kvm nx_huge_pages=never in /etc/modprobe.d, since this CPU does not need it; or mount -o remount,favordynmods /sys/fs/cgroup",
			"each machine's start waits for the kernel, up to some tens of milliseconds")
	}
	return warn(name, "mount -o remount,favordynmods /sys/fs/cgroup", "each machine's start waits for the kernel, up to some tens of milliseconds")
}

func (h Host) timer() Check {
	const name = "guest timers"
	v, err := strconv.Atoi(h.read("/sys/module/kvm/parameters/min_timer_period_us"))
	switch {
	case err != nil:
		return info(name, "", "kvm does not say its shortest timer")
	case v < timerMicros:
		return warn(name, fmt.Sprintf("echo %d > /sys/module/kvm/parameters/min_timer_period_us", timerMicros),
			"a guest may set timers of %d µs, and load the host by them", v)
	}
	return ok(name, "no shorter than %d µs", v)
}

// jailBase is where chroots go.
func (h Host) jailBase() string {
	if h.Jail.Base != "" {
		return h.Jail.Base
	}
	return h.Home
}

// owners: what root will execute, and the directories above it, must be
// root's alone; else another user could put another file there.
func (h Host) owners() Check {
	const name = "owners"
	paths := []string{h.jailBase(), h.at("/var/run/netns")}
	for _, p := range []string{h.Jail.Firecracker, h.Jail.Jailer} {
		if p = h.program(p); p != "" {
			paths = append(paths, p)
		}
	}
	for _, p := range paths {
		if reason := h.openTo(nearest(p)); reason != "" {
			return fail(name, "chown root and chmod go-w it, or use another directory", "%s", reason)
		}
	}
	return ok(name, "what runs as root is root's alone")
}

// openTo says who could replace what is at a path; "" = root alone.
func (h Host) openTo(path string) string {
	path, err := filepath.EvalSymlinks(path)
	if err != nil {
		return err.Error()
	}
	top := filepath.Clean("/" + h.Root)
	for dir := path; ; dir = filepath.Dir(dir) {
		info, err := os.Stat(dir)
		if err != nil {
			return err.Error()
		}
		st, is := info.Sys().(*syscall.Stat_t)
		switch {
		case is && st.Uid != 0:
			return fmt.Sprintf("%s belongs to user %d", dir, st.Uid)
		case info.Mode().Perm()&0o022 != 0 && (info.Mode()&fs.ModeSticky == 0 || dir == path):
			return fmt.Sprintf("others may write into %s", dir)
		}
		if dir == top || dir == "/" {
			return ""
		}
	}
}

// chroots: read-only files come into a jail as hard links, devices as nodes,
// and the program is executed there.
func (h Host) chroots() Check {
	const name = "chroots"
	base := nearest(h.jailBase())
	if m, found := holding(mounts(h.read("/proc/self/mountinfo")), base); found {
		for _, o := range []string{"nodev", "noexec"} {
			if slices.Contains(m.options, o) {
				return fail(name, "mount it without "+o+", or set SKETE_HOME to another disk", "%s is mounted with %s", m.point, o)
			}
		}
	}
	if err := tryLink(nearest(h.Home), base); err != nil {
		return fail(name, "keep the chroots and the data directory on one file system", "no hard link can be made from the data directory: %v", err)
	}
	return ok(name, "hard links, devices and programs work there")
}

// tryLink makes a file in one directory and links it into another.
func tryLink(from, to string) error {
	f, err := os.CreateTemp(from, ".doctor-*")
	if err != nil {
		return err
	}
	defer os.Remove(f.Name())
	_ = f.Close()
	link := filepath.Join(to, filepath.Base(f.Name())+".link")
	if err := os.Link(f.Name(), link); err != nil {
		return err
	}
	return os.Remove(link)
}

func (h Host) uids() Check {
	const name = "user ids"
	if h.Jail.UIDFirst == 0 {
		return info(name, "", "no range is set")
	}
	want := span{h.Jail.UIDFirst, h.Jail.UIDLast}
	for _, t := range taken(h.read("/etc/passwd"), h.read("/etc/subuid")) {
		if t.meets(want) {
			return fail(name, "choose another range", "%d to %d is for machines, and %d to %d is taken by /etc/passwd or /etc/subuid", want.first, want.last, t.first, t.last)
		}
	}
	return ok(name, "%d to %d are free for machines", want.first, want.last)
}

func (h Host) nested() Check {
	const name = "nested"
	cpuinfo := h.read("/proc/cpuinfo")
	flags, found := field(cpuinfo, "flags")
	switch {
	case !found:
		return info(name, "", "the kernel does not say")
	case slices.Contains(strings.Fields(flags), "hypervisor"):
		return warn(name, "bare metal", "this host is a virtual machine itself: KVM in it is slow, if it works, and not what firecracker is supported on")
	}
	return ok(name, "this host is no virtual machine")
}

func (h Host) mountCount() Check {
	const name = "mounts"
	n := len(mounts(h.read("/proc/self/mountinfo")))
	if n >= mountsMax {
		return warn(name, "unmount what is not needed, or run skete in a mount namespace of its own", "%d mounts: a jail takes ten times as long to make", n)
	}
	return ok(name, "%d", n)
}

// snapshotSpace: a snapshot of a machine holds all its memory.
func (h Host) snapshotSpace() Check {
	const name = "snapshot space"
	need := h.MachinesMB << 20
	if need == 0 {
		need, _ = kilobytes(h.read("/proc/meminfo"), "MemTotal")
	}
	var st unix.Statfs_t
	if err := unix.Statfs(nearest(h.Home), &st); err != nil {
		return bad(name, err)
	}
	free := int64(st.Bavail) * st.Bsize
	if free < need {
		return warn(name, "free some, or set SKETE_HOME to a larger disk", "%.1f GB are free, and a snapshot of every machine would take up to %.1f GB", float64(free)/1e9, float64(need)/1e9)
	}
	return ok(name, "%.1f GB are free for up to %.1f GB of memory", float64(free)/1e9, float64(need)/1e9)
}

// cards looks at what network cards need. Machines have none by default.
func (h Host) cards(ctx context.Context) Check {
	const name = "network cards"
	if !h.NICs {
		return ok(name, "machines have none")
	}
	if !h.exists("/dev/net/tun") {
		return fail(name, "modprobe tun", "there is no /dev/net/tun").loadable("tun")
	}
	if h.read("/proc/sys/net/ipv4/ip_forward") != "1" {
		return fail(name, "sysctl net.ipv4.ip_forward=1", "this host forwards no packets")
	}
	nft := h.program("nft")
	if nft == "" {
		return fail(name, "apt-get install nftables", "there is no nft").installable(h, "nftables")
	}
	rules, err := ask(ctx, nft, "list", "ruleset")
	if err != nil {
		return fail(name, "run it as root", "the packet filter cannot be read: %v", err)
	}
	for line := range strings.Lines(rules) {
		if strings.Contains(line, "169.254.169.254") && strings.Contains(line, "drop") {
			return ok(name, "tun, forwarding, and a rule that keeps machines from the cloud's metadata")
		}
	}
	return fail(name, `nft add rule inet filter forward iifname "tap*" ip daddr 169.254.169.254 drop`,
		"no rule keeps machines from the cloud's metadata service, which hands out keys")
}

func (h Host) quiet() Check {
	const name = "host console"
	for w := range strings.FieldsSeq(h.read("/proc/cmdline")) {
		if w == "quiet" || strings.HasPrefix(w, "loglevel=") {
			return ok(name, "the kernel is quiet")
		}
	}
	return warn(name, "boot the host with quiet or loglevel=1", "kernel messages to a slow console hold up machines")
}

// guestClock: machines get their time from this clock.
func (h Host) guestClock() Check {
	c := h.clock()
	c.Name = "host clock"
	return c
}

var elfMagic, bzMagic = []byte("\x7fELF"), []byte("HdrS")

const bzMagicAt = 0x202

// guestKernel: an ELF file, or a bzImage where the VMM takes one, and modules
// that were built for it. vmm is the version of firecracker; zero = of QEMU,
// which takes both.
func (h Host) guestKernel(ctx context.Context, vmm [3]int) Check {
	const name = "guest kernel"
	if h.Kernel == nil {
		return info(name, "", "not looked for")
	}
	k, err := h.Kernel(ctx)
	if err != nil {
		c := bad(name, err)
		if h.EnsureKernel != nil {
			c.Fixable, c.fix = true, h.EnsureKernel
		}
		return c
	}
	head := make([]byte, bzMagicAt+len(bzMagic))
	f, err := os.Open(k.Path)
	if err != nil {
		return bad(name, err)
	}
	defer f.Close()
	n, _ := f.ReadAt(head, 0)
	head = head[:n]
	isBz := len(head) > bzMagicAt && bytes.Equal(head[bzMagicAt:], bzMagic)
	switch {
	case !bytes.HasPrefix(head, elfMagic) && !isBz:
		return fail(name, "take the kernel away, and let `skete doctor --fix` get another", "%s is neither an ELF file nor a bzImage", filepath.Base(k.Path))
	case isBz && vmm != ([3]int{}) && older(vmm, firecrackerELF):
		return fail(name, "extract vmlinux from it", "it is a bzImage, which firecracker takes from %s on", dotted(firecrackerELF))
	case k.Modules != "" && k.Modules != k.Version:
		return fail(name, "take kernel and modules of one package", "it is %s, and the modules are for %s", k.Version, k.Modules)
	}
	return ok(name, "%s", k.Version)
}
