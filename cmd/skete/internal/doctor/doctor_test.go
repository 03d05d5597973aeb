package doctor

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/skete-dev/skete/errs"
)

// program is a script that says something for each argument.
func program(answers map[string]string) string {
	var b strings.Builder
	b.WriteString("#!/bin/sh\ncase \"$*\" in\n")
	for args, text := range answers {
		fmt.Fprintf(&b, "%q) printf '%%b\\n' %q;;\n", args, text)
	}
	b.WriteString("*) exit 1;;\nesac\n")
	return b.String()
}

// healthyFiles are those of a host on which everything works, KVM's device excepted.
func healthyFiles() map[string]string {
	return map[string]string{
		"/proc/sys/kernel/osrelease":                            "6.1.0-21-amd64\n",
		"/proc/swaps":                                           "Filename\t\t\t\tType\t\tSize\n",
		"/proc/meminfo":                                         "MemTotal:       16384000 kB\nMemAvailable:   12000000 kB\n",
		"/proc/cpuinfo":                                         "processor\t: 0\nvendor_id\t: AuthenticAMD\nflags\t\t: fpu svm npt\n",
		"/proc/cmdline":                                         "root=/dev/sda1 quiet\n",
		"/proc/self/mountinfo":                                  "22 1 8:1 / / rw,relatime - ext4 /dev/sda1 rw\n30 22 0:26 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw,nsdelegate,favordynmods\n",
		"/sys/fs/cgroup/cgroup.controllers":                     "cpuset cpu io memory hugetlb pids rdma misc\n",
		"/sys/devices/system/cpu/smt/active":                    "0\n",
		"/sys/kernel/mm/ksm/run":                                "0\n",
		"/sys/devices/system/cpu/vulnerabilities/meltdown":      "Not affected\n",
		"/sys/devices/system/cpu/vulnerabilities/retbleed":      "Mitigation: untrained return thunk\n",
		"/sys/module/kvm/parameters/nx_huge_pages":              "Y\n",
		"/sys/module/kvm/parameters/min_timer_period_us":        "200\n",
		"/etc/passwd":                                           "root:x:0:0:root:/root:/bin/sh\nuser:x:1000:1000::/home/user:/bin/sh\n",
		"/etc/subuid":                                           "user:100000:65536\n",
		"/usr/share/qemu/bios-microvm.bin":                      "bios",
		"/usr/bin/skete":                                        staticELF,
		"/boot/vmlinux":                                         "\x7fELF" + strings.Repeat("x", 1000),
		"/dev/vhost-vsock":                                      "",
		"/dev/net/tun":                                          "",
		"/proc/sys/net/ipv4/ip_forward":                         "1\n",
		"/usr/bin/firecracker":                                  program(map[string]string{"--version": "Firecracker v1.16.1"}),
		"/usr/bin/jailer":                                       program(map[string]string{"--version": "Jailer v1.16.1"}),
		"/usr/bin/nft":                                          program(map[string]string{"list ruleset": `iifname "tap*" ip daddr 169.254.169.254 drop`}),
		"/usr/bin/mkfs.ext4":                                    program(nil),
		"/usr/bin/mmdebstrap":                                   program(nil),
		"/usr/bin/apt-get":                                      program(nil),
		"/usr/bin/mkfs.erofs":                                   program(map[string]string{"-V": "mkfs.erofs 1.8.6"}),
		"/usr/bin/qemu-system-x86_64":                           qemuSays("QEMU emulator version 7.2.22 (Debian 1:7.2+dfsg-7)", "microvm              microvm (i386)", "tcg\nkvm"),
		"/sys/devices/system/cpu/vulnerabilities/itlb_multihit": "Not affected\n",
	}
}

// staticELF is the header of a program that needs no loader.
var staticELF = "\x7fELF\x02\x01\x01" + strings.Repeat("\x00", 9) + "\x02\x00\x3e\x00\x01" + strings.Repeat("\x00", 31) + "\x40\x00\x38\x00\x00\x00\x40" + strings.Repeat("\x00", 5)

func qemuSays(version, machine, accel string) string {
	return program(map[string]string{
		"--version": version, "-M help": "Supported machines are:\n" + machine + "\nnone                 empty machine",
		"-accel help": "Accelerators supported in QEMU binary:\n" + accel,
	})
}

func put(t *testing.T, root string, files map[string]string) {
	t.Helper()
	for name, content := range files {
		path := filepath.Join(root, name)
		mode := fs.FileMode(0o644)
		if strings.HasPrefix(content, "#!") {
			mode = 0o755
		}
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		_ = os.Remove(path)
		if err := os.WriteFile(path, []byte(content), mode); err != nil {
			t.Fatal(err)
		}
	}
}

func boots(isolation string, err error, notes ...string) func(context.Context) (string, []string, error) {
	return func(context.Context) (string, []string, error) { return isolation, notes, err }
}

// healthy is a host on which all that can be told apart here works.
func healthy(t *testing.T) Host {
	t.Helper()
	root := t.TempDir()
	put(t, root, healthyFiles())
	home := filepath.Join(root, "home")
	if err := os.Mkdir(home, 0o700); err != nil {
		t.Fatal(err)
	}
	return Host{
		Home: home, Answers: true, Root: root, Path: []string{filepath.Join(root, "usr/bin")},
		Program:  filepath.Join(root, "usr/bin/skete"),
		Guest:    func() (string, error) { return os.Executable() },
		Language: func(context.Context, string) error { return nil },
		Probes: []Probe{
			{Firecracker, boots("microvm", nil)},
			{QEMU, boots("microvm", nil)},
			{GVisor, boots("user-kernel", nil)},
			{Docker, boots("container", nil)},
		},
		Volume: func(context.Context) (string, bool, error) { return "image", true, nil },
		KVM:    func(context.Context) error { return nil },
		TSC:    func() (uint64, error) { return 2596124, nil },
		Kernel: func(context.Context) (Kernel, error) {
			return Kernel{Path: filepath.Join(root, "boot/vmlinux"), Version: "6.1.0-56", Modules: "6.1.0-56"}, nil
		},
		Jail: Jail{UIDFirst: 900000, UIDLast: 909999}, NICs: true, MachinesMB: 1,
	}
}

func (h *Host) probe(provider string, boot func(context.Context) (string, []string, error)) {
	i := slices.IndexFunc(h.Probes, func(p Probe) bool { return p.Provider == provider })
	h.Probes = slices.Clone(h.Probes)
	h.Probes[i].Boot = boot
}

func find(t *testing.T, r Report, group, name string) Check {
	t.Helper()
	i := slices.IndexFunc(r.Checks, func(c Check) bool { return c.Group == group && c.Name == name })
	if i < 0 {
		t.Fatalf("there is no check %s/%s", group, name)
	}
	return r.Checks[i]
}

func TestRun_saysWhatIsWrong(t *testing.T) {
	busy, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer busy.Close()
	unsupported := errs.New(errs.Unsupported, "no ptrace").WithHint("allow it")
	without := func(name string) func(*Host) {
		return func(h *Host) { _ = os.Remove(h.at(name)) }
	}
	with := func(name, content string) func(*Host) {
		return func(h *Host) { put(t, h.Root, map[string]string{name: content}) }
	}
	// Only makes the provider needed, so that nothing is forgiven.
	tests := []struct {
		name         string
		spoil        func(*Host)
		group, check string
		status       Status
		text         string
	}{
		{"microVMs", func(*Host) {}, General, "microvm", OK, "gives machines of firecracker"},
		{"limits are weaker", func(h *Host) { h.probe(GVisor, boots("user-kernel", nil, "no limits")) }, GVisor, "boot", Warn, "no limits"},
		{"no guest", func(h *Host) { h.Guest = func() (string, error) { return "", unsupported } }, General, "guest", Error, "no ptrace"},
		{"no language", func(h *Host) {
			h.Language = func(_ context.Context, l string) error {
				return errs.New(errs.Unsupported, "no %s", l).WithHint("get it")
			}
		}, Templates, "language ruby", Warn, "no ruby"},
		{"no quota", func(h *Host) {
			h.Volume = func(context.Context) (string, bool, error) { return "watched", false, nil }
		}, General, "disk quota", Warn, "watched"},
		{"volume fails", func(h *Host) {
			h.Volume = func(context.Context) (string, bool, error) { return "", false, errors.New("broken disk") }
		}, General, "disk quota", Error, "broken disk"},
		{"a dead workspace", func(h *Host) {
			h.ReadOnly = func() ([]string, error) { return []string{"sbx_b", "sbx_a"}, nil }
		}, General, "workspaces", Error, "sbx_a, sbx_b"},
		{"port taken", func(h *Host) { h.Answers, h.Listen = false, busy.Addr().String() }, General, "server", Error, busy.Addr().String()},
		{"open data directory", func(h *Host) { _ = os.Chmod(h.Home, 0o777) }, General, "data directory", Error, "others may write"},
		{"no data directory yet", func(h *Host) { h.Home += "/not/yet" }, General, "data directory", OK, "will be made"},
		{"little memory", with("/proc/meminfo", "MemAvailable: 500000 kB\n"), General, "memory", Warn, "488 MB"},
		{"no mmdebstrap", without("/usr/bin/mmdebstrap"), Templates, "mmdebstrap", Info, "missing"},
		{"old erofs", with("/usr/bin/mkfs.erofs", program(map[string]string{"-V": "mkfs.erofs 1.5"})), Templates, "mkfs.erofs", Info, "before 1.7"},

		{"QEMU is fine", func(*Host) {}, QEMU, "program", OK, "7.2.22"},
		{"no QEMU", without("/usr/bin/qemu-system-x86_64"), QEMU, "program", Error, "there is no"},
		{"old QEMU", with("/usr/bin/qemu-system-x86_64", qemuSays("QEMU emulator version 5.2.0", "microvm x", "tcg")), QEMU, "program", Error, "too old"},
		{"QEMU that says nothing", with("/usr/bin/qemu-system-x86_64", program(nil)), QEMU, "program", Error, "does not say"},
		{"no microvm", with("/usr/bin/qemu-system-x86_64", qemuSays("QEMU emulator version 8.0.0", "pc x", "tcg")), QEMU, "machine type", Error, "microvm"},
		{"KVM works", func(*Host) {}, QEMU, "accelerator", OK, "kvm"},
		{"KVM is broken", func(h *Host) { h.KVM = func(context.Context) error { return errors.New("xgetbv: internal error") } }, QEMU, "accelerator", Warn, "tcg"},
		{"QEMU without KVM", with("/usr/bin/qemu-system-x86_64", qemuSays("QEMU emulator version 8.0.0", "microvm x", "tcg")), QEMU, "accelerator", Warn, "tcg"},
		{"nothing to run by", func(h *Host) {
			put(t, h.Root, map[string]string{"/usr/bin/qemu-system-x86_64": qemuSays("QEMU emulator version 8.0.0", "microvm x", "kvm")})
			h.KVM = func(context.Context) error { return errors.New("no") }
		}, QEMU, "accelerator", Error, "neither"},
		{"no firmware", without("/usr/share/qemu/bios-microvm.bin"), QEMU, "firmware", Error, "missing"},
		{"no TSC", func(h *Host) { h.TSC = func() (uint64, error) { return 0, nil } }, QEMU, "time stamp counter", Error, "not known"},
		{"TSC", func(*Host) {}, QEMU, "time stamp counter", OK, "2596.124 MHz"},
		{"long paths", func(h *Host) { h.Home = h.Home + "/" + strings.Repeat("x", 80) }, QEMU, "socket paths", Warn, "detours"},
		{"no vsock", without("/dev/vhost-vsock"), QEMU, "vsock", Info, "virtio"},
		{"no mkfs", without("/usr/bin/mkfs.ext4"), QEMU, "mkfs.ext4", Warn, "missing"},
		{"no kernel", func(h *Host) {
			h.Kernel = func(context.Context) (Kernel, error) { return Kernel{}, errs.New(errs.NotFound, "no guest kernel") }
		}, QEMU, "guest kernel", Error, "no guest kernel"},

		{"no KVM", func(*Host) {}, Firecracker, "kvm", Error, "there is no /dev/kvm"},
		{"what only looks like KVM", with("/dev/kvm", ""), Firecracker, "kvm", Error, "does not answer as KVM"},
		{"KVM that fails", func(h *Host) { h.KVM = func(context.Context) error { return errors.New("xgetbv: internal error") } }, Firecracker, "kvm works", Error, "xgetbv"},
		{"KVM that works", func(*Host) {}, Firecracker, "kvm works", OK, "instructions"},
		{"no firecracker", without("/usr/bin/firecracker"), Firecracker, "program", Error, "there is no firecracker"},
		{"the version with the broken vsock", with("/usr/bin/firecracker", program(map[string]string{"--version": "Firecracker v1.16.0"})), Firecracker, "program", Error, "too old"},
		{"no jailer", without("/usr/bin/jailer"), Firecracker, "jailer", Error, "no jailer"},
		{"another jailer", with("/usr/bin/jailer", program(map[string]string{"--version": "Jailer v1.17.0"})), Firecracker, "jailer", Error, "one release"},
		{"old host", with("/proc/sys/kernel/osrelease", "4.19.0-1"), Firecracker, "host kernel", Error, "too old"},
		{"untested host", with("/proc/sys/kernel/osrelease", "6.5.0-1"), Firecracker, "host kernel", Warn, "tested on"},
		{"version 1 groups", without("/sys/fs/cgroup/cgroup.controllers"), Firecracker, "cgroup v2", Error, "not mounted"},
		{"no pids", with("/sys/fs/cgroup/cgroup.controllers", "cpu memory io"), Firecracker, "cgroup v2", Error, "pids"},
		{"no io", with("/sys/fs/cgroup/cgroup.controllers", "cpu memory pids"), Firecracker, "cgroup v2", Warn, "io"},
		{"swap", with("/proc/swaps", "Filename Type\n/dev/sda2 partition\n"), Firecracker, "swap", Warn, "1 places"},
		{"hyper-threads", with("/sys/devices/system/cpu/smt/active", "1"), Firecracker, "hyper-threads", Warn, "share a core"},
		{"ksm", with("/sys/kernel/mm/ksm/run", "1"), Firecracker, "page merging", Warn, "ksm"},
		{"vulnerable", with("/sys/devices/system/cpu/vulnerabilities/mds", "Vulnerable: no microcode"), Firecracker, "vulnerabilities", Warn, "mds"},
		{"huge pages", with("/proc/self/mountinfo", "22 1 8:1 / / rw - ext4 /dev/sda1 rw\n"), Firecracker, "boot latency", Warn, "waits"},
		{"huge pages off", with("/sys/module/kvm/parameters/nx_huge_pages", "never"), Firecracker, "boot latency", OK, "does not split"},
		{"short timers", with("/sys/module/kvm/parameters/min_timer_period_us", "100"), Firecracker, "guest timers", Warn, "100"},
		{"others write where root executes", func(h *Host) {
			h.Jail.Base = filepath.Join(h.Root, "srv/open")
			_ = os.MkdirAll(h.Jail.Base, 0o755)
			_ = os.Chmod(h.Jail.Base, 0o777)
		}, Firecracker, "owners", Error, "others may write"},
		{"nodev", func(h *Host) {
			put(t, h.Root, map[string]string{"/proc/self/mountinfo": "22 1 8:1 / / rw,nodev - ext4 /dev/sda1 rw\n"})
		}, Firecracker, "chroots", Error, "nodev"},
		{"another file system", func(h *Host) { h.Jail.Base = "/proc" }, Firecracker, "chroots", Error, "hard link"},
		{"user ids", with("/etc/subuid", "user:905000:10\n"), Firecracker, "user ids", Error, "905000 to 905009"},
		{"user", with("/etc/passwd", "x:x:900000:1::/:/bin/sh\n"), Firecracker, "user ids", Error, "taken"},
		{"free user ids", func(*Host) {}, Firecracker, "user ids", OK, "free"},
		{"nested", with("/proc/cpuinfo", "flags : fpu hypervisor\n"), Firecracker, "nested", Warn, "virtual machine"},
		{"mounts", with("/proc/self/mountinfo", strings.Repeat("22 1 8:1 / / rw - ext4 /dev/sda1 rw\n", 500)), Firecracker, "mounts", Warn, "500"},
		{"no space for snapshots", func(h *Host) { h.MachinesMB = 1 << 40 }, Firecracker, "snapshot space", Warn, "would take"},
		{"no network cards", func(h *Host) { h.NICs = false }, Firecracker, "network cards", OK, "none"},
		{"no tun", without("/dev/net/tun"), Firecracker, "network cards", Error, "tun"},
		{"no forwarding", with("/proc/sys/net/ipv4/ip_forward", "0"), Firecracker, "network cards", Error, "forwards no"},
		{"open metadata", with("/usr/bin/nft", program(map[string]string{"list ruleset": "table inet filter {}"})), Firecracker, "network cards", Error, "metadata"},
		{"guarded metadata", func(*Host) {}, Firecracker, "network cards", OK, "rule"},
		{"loud console", with("/proc/cmdline", "root=/dev/sda1"), Firecracker, "host console", Warn, "slow"},
		{"bzImage", func(h *Host) {
			put(t, h.Root, map[string]string{"/boot/vmlinux": strings.Repeat("\x00", bzMagicAt) + "HdrS...."})
		}, Firecracker, "guest kernel", Error, "bzImage"},
		{"no kernel at all", with("/boot/vmlinux", "hello"), Firecracker, "guest kernel", Error, "neither"},
		{"modules of another kernel", func(h *Host) {
			k := h.Kernel
			h.Kernel = func(ctx context.Context) (Kernel, error) {
				found, err := k(ctx)
				found.Modules = "6.1.0-1"
				return found, err
			}
		}, Firecracker, "guest kernel", Error, "modules are for 6.1.0-1"},
		{"no engine", func(h *Host) { t.Setenv("DOCKER_HOST", "") }, Docker, "engine", Error, "no container engine"},
		{"engine without a socket", with("/usr/bin/podman", program(nil)), Docker, "engine", Error, "none has a socket"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if os.Geteuid() != 0 && tt.check == "owners" {
				t.Skip("needs root: the files of this host would be ours, not root's")
			}
			h := healthy(t)
			tt.spoil(&h)
			if _, is := (&Report{Providers: []Provider{{Name: Firecracker}, {Name: QEMU}, {Name: GVisor}, {Name: Docker}}}).provider(tt.group); is {
				h.Only = tt.group
			}
			r := Run(t.Context(), h)
			c := find(t, r, tt.group, tt.check)
			if c.Status != tt.status || !strings.Contains(c.Detail, tt.text) {
				t.Errorf("%+v", c)
			}
			if c.Status == Error && r.Status != Error {
				t.Errorf("the report is %s", r.Status)
			}
		})
	}
}

// A provider elsewhere is shown where it is configured; it says nothing of this host, and
// that it does not work is more than information.
func TestRemote(t *testing.T) {
	for name, tt := range map[string]struct {
		boot   func(context.Context) (string, []string, error)
		status Status
	}{
		"works": {boots("remote", nil), OK}, "does not": {boots("", errs.New(errs.Unavailable, "the service does not answer")), Warn},
	} {
		for _, provider := range Elsewhere {
			h := healthy(t)
			if p, is := (&Report{Providers: Run(t.Context(), h).Providers}).provider(provider); is {
				t.Errorf("%s: not configured, and shown: %+v", name, p)
			}
			h.Probes = append(h.Probes, Probe{Provider: provider, Boot: tt.boot})
			if c := find(t, Run(t.Context(), h), provider, "boot"); c.Status != tt.status {
				t.Errorf("%s: %s: %+v", provider, name, c)
			}
		}
	}
}

// brokenKVM is a host like many clouds': /dev/kvm is there, opens, and no
// kernel runs on it.
func brokenKVM(t *testing.T) Host {
	h := healthy(t)
	put(t, h.Root, map[string]string{"/dev/kvm": "", "/proc/cpuinfo": "flags : fpu hypervisor\n"})
	h.KVM = func(context.Context) error { return errs.New(errs.Unsupported, "KVM does not run xgetbv") }
	h.probe(Firecracker, boots("", errs.New(errs.Unsupported, "KVM does not run xgetbv")))
	h.probe(QEMU, boots("microvm-emulated", nil))
	h.probe(Docker, boots("", errs.New(errs.Unsupported, "no engine")))
	return h
}

func TestRun_takesEmulationWhereKVMIsBroken(t *testing.T) { // T8
	r := Run(t.Context(), brokenKVM(t))
	if c := find(t, r, QEMU, "accelerator"); c.Status != Warn || !strings.HasPrefix(c.Detail, "tcg") || !strings.Contains(c.Detail, "xgetbv") {
		t.Errorf("%+v", c)
	}
	if c := find(t, r, General, "microvm"); c.Status != Info || !strings.Contains(c.Detail, "microvm-emulated") {
		t.Errorf("%+v", c)
	}
	for _, c := range r.Checks {
		if c.Group == Firecracker && c.Status.rank() > Info.rank() {
			t.Errorf("a provider that is not needed is complained about: %+v", c)
		}
	}
	if r.Status == Error {
		t.Error("a host with gVisor and QEMU counts as broken")
	}
}

func TestRun_countsOnlyWhatIsNeeded(t *testing.T) {
	no := errs.New(errs.Unsupported, "no")
	h := brokenKVM(t)
	if r := Run(t.Context(), h); r.Status == Error {
		t.Error("an unusable provider is an error though others work")
	}
	h.Only = Firecracker
	r := Run(t.Context(), h)
	if r.Status != Error || find(t, r, Firecracker, "boot").Status != Error {
		t.Error("the provider that was asked for does not work, and that is no error")
	}
	for _, c := range r.Checks {
		if c.Group != General && c.Group != Firecracker {
			t.Errorf("%s/%s was not asked for", c.Group, c.Name)
		}
	}
	h.Only = ""
	for _, p := range Providers {
		h.probe(p, boots("", no))
	}
	if r := Run(t.Context(), h); r.Status != Error {
		t.Error("nothing works, and that is no error")
	}
	h.Probes = nil
	h.Only = QEMU
	if r := Run(t.Context(), h); r.Status != Error {
		t.Error("the provider that was asked for is not part of this skete, and that is no error")
	}
}

func TestRun_namesAreUniqueInTheirGroup(t *testing.T) {
	seen := map[string]bool{}
	for _, c := range Run(t.Context(), healthy(t)).Checks {
		key := c.Group + "/" + c.Name
		if seen[key] || c.Group == "" || c.Detail == "" || c.Status.rank() < 0 {
			t.Errorf("%+v", c)
		}
		seen[key] = true
	}
	if len(seen) < 23+10+12 {
		t.Errorf("%d items", len(seen))
	}
}

func TestRun_leavesNothing(t *testing.T) {
	h := healthy(t)
	Run(t.Context(), h)
	entries, err := os.ReadDir(h.Home)
	if err != nil || len(entries) > 0 {
		t.Errorf("%v, %v", entries, err)
	}
}

// commands records what a Fixer runs.
func commands(f *Fixer) *[]string {
	var all []string
	f.run = func(_ context.Context, _ io.Writer, name string, args ...string) error {
		all = append(all, name+" "+strings.Join(args, " "))
		return nil
	}
	return &all
}

func TestFix_installsLoadsAndFetches(t *testing.T) {
	h := healthy(t)
	for _, name := range []string{"qemu-system-x86_64", "mkfs.ext4", "mmdebstrap"} {
		_ = os.Remove(h.at("/usr/bin/" + name))
	}
	_ = os.Remove(h.at("/dev/vhost-vsock"))
	put(t, h.Root, map[string]string{"/sys/kernel/mm/ksm/run": "1"})
	h.Kernel = func(context.Context) (Kernel, error) { return Kernel{}, errs.New(errs.NotFound, "no guest kernel") }
	ensured := 0
	h.EnsureKernel = func(context.Context) error { ensured++; return nil }
	h.Volume = func(context.Context) (string, bool, error) { return "image", true, nil }

	var out bytes.Buffer
	f := Fixer{Out: &out, root: true, Agree: func(string) bool { return true }}
	ran := commands(&f)
	if err := f.fix(t.Context(), Run(t.Context(), h)); err != nil {
		t.Fatal(err)
	}
	want := []string{
		"apt-get install -y --no-install-recommends e2fsprogs mmdebstrap qemu-system-x86",
		"modprobe kvm_amd", "modprobe vhost_vsock",
	}
	if diff := cmp.Diff(want, *ran); diff != "" {
		t.Error(diff)
	}
	if ensured == 0 {
		t.Error("the guest kernel was not fetched")
	}
	if !strings.Contains(out.String(), "not changed: firecracker/page merging: echo 0 > /sys/kernel/mm/ksm/run") {
		t.Errorf("a setting of the kernel was not printed: %s", out.String())
	}
}

func TestFix_asksAndTellsTheCommandToWhoIsNotRoot(t *testing.T) {
	h := healthy(t)
	_ = os.Remove(h.at("/usr/bin/mmdebstrap"))
	_ = os.Remove(h.at("/dev/vhost-vsock"))
	put(t, h.Root, map[string]string{"/dev/kvm": ""})
	r := Run(t.Context(), h)

	var out bytes.Buffer
	f := Fixer{Out: &out, root: true, Agree: func(string) bool { return false }}
	ran := commands(&f)
	if err := f.fix(t.Context(), r); err != nil || slices.ContainsFunc(*ran, func(c string) bool { return strings.HasPrefix(c, "apt-get") }) {
		t.Errorf("%v was run although nobody agreed, %v", *ran, err)
	}

	out.Reset()
	f = Fixer{Out: &out}
	ran = commands(&f)
	if err := f.fix(t.Context(), r); err != nil || len(*ran) > 0 {
		t.Errorf("%v was run without root, %v", *ran, err)
	}
	for _, want := range []string{"sudo apt-get install --no-install-recommends mmdebstrap", "sudo modprobe vhost_vsock"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("%q is not in %q", want, out.String())
		}
	}
}

func TestFix_triesFreshLists(t *testing.T) {
	h := healthy(t)
	_ = os.Remove(h.at("/usr/bin/mmdebstrap"))
	var out bytes.Buffer
	var ran []string
	updated := false
	f := Fixer{Out: &out, root: true, run: func(_ context.Context, _ io.Writer, name string, args ...string) error {
		ran = append(ran, name+" "+args[0])
		updated = updated || args[0] == "update"
		if args[0] == "install" && !updated {
			return errors.New("unable to locate package")
		}
		return nil
	}}
	put(t, h.Root, map[string]string{"/dev/kvm": ""})
	if err := f.fix(t.Context(), Run(t.Context(), h)); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"apt-get install", "apt-get update", "apt-get install"}, ran); diff != "" {
		t.Error(diff)
	}
}

func TestFix_mendsTheDataDirectory(t *testing.T) {
	h := healthy(t)
	put(t, h.Root, map[string]string{"/dev/kvm": ""})
	if err := os.Chmod(h.Home, 0o777); err != nil {
		t.Fatal(err)
	}
	f := Fixer{Out: io.Discard}
	commands(&f)
	if err := f.fix(t.Context(), Run(t.Context(), h)); err != nil {
		t.Fatal(err)
	}
	if c := find(t, Run(t.Context(), h), General, "data directory"); c.Status != OK {
		t.Errorf("%+v", c)
	}
}

func TestVersion(t *testing.T) {
	for text, want := range map[string][3]int{
		"Firecracker v1.16.1\n": {1, 16, 1}, "QEMU emulator version 7.2.22 (Debian 1:7.2+dfsg-7)": {7, 2, 22},
		"6.1.0-56-cloud-amd64": {6, 1, 0}, "mkfs.erofs 1.5": {1, 5, 0}, "x86 tool 2.3.": {2, 3, 0}, "1.2.3.4": {1, 2, 3},
	} {
		if v, found := version(text); !found || v != want {
			t.Errorf("%q: %v, %v", text, v, found)
		}
	}
	for _, text := range []string{"", "no", "7", "x.y", "99999999999999999999.1", "1..2x."} {
		if v, found := version(text); found {
			t.Errorf("%q: %v", text, v)
		}
	}
}

func FuzzParsers(f *testing.F) {
	for _, s := range healthyFiles() {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		version(s)
		if n, found := kilobytes(s, "MemAvailable"); found && n < 0 {
			t.Errorf("%d bytes", n)
		}
		for _, sp := range taken(s, s) {
			if sp.first < 0 || sp.last < sp.first {
				t.Errorf("%+v", sp)
			}
		}
		holding(mounts(s), "/a/b")
		lists(s, "microvm")
	})
}

// MCP servers that could not be used are told of, and are no error of the host.
func TestMCPServers(t *testing.T) {
	for _, c := range []struct {
		servers MCPServers
		err     error
		status  Status
		detail  string
	}{
		{MCPServers{}, nil, OK, "0"},
		{MCPServers{Count: 2}, nil, OK, "2 are named; how they are is known while a server runs"},
		{MCPServers{Count: 2, Asked: true}, nil, OK, "2"},
		{MCPServers{Count: 3, Asked: true, Problems: []string{"a: it ended", "b: no"}}, nil, Warn, "of 3, not all could be used: a: it ended (and 1 more)"},
		{MCPServers{}, errs.New(errs.NotFound, "no such path"), Info, "the server does not tell: no such path"},
	} {
		got := Host{MCP: func(context.Context) (MCPServers, error) { return c.servers, c.err }}.mcp(t.Context())
		if got.Status != c.status || got.Detail != c.detail {
			t.Errorf("%+v", got)
		}
	}
}

// Plug-ins that cannot be used are told of, and are no error of the host.
func TestPlugins(t *testing.T) {
	for _, c := range []struct {
		n        int
		problems []string
		err      error
		status   Status
		detail   string
	}{
		{0, nil, nil, OK, "0"},
		{2, nil, nil, OK, "2"},
		{1, []string{"bad/plugin.yaml:1:1: no", "x", "y"}, nil, Warn, "1 can be used; others cannot: bad/plugin.yaml:1:1: no (and 2 more)"},
		{0, nil, errs.New(errs.Invalid, "the folder cannot be read"), Error, "the folder cannot be read"},
	} {
		got := Host{Plugins: func() (int, []string, error) { return c.n, c.problems, c.err }}.plugins()
		if got.Status != c.status || got.Detail != c.detail {
			t.Errorf("%+v", got)
		}
	}
}
