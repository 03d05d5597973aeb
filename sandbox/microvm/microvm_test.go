package microvm

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/guest/stage/plan"
	"github.com/skete-dev/skete/guest/wire"
)

func equal(a, b []string) bool { return slices.Equal(a, b) }

func writeTar(t *testing.T, w io.Writer, entries []struct{ name, text string }) {
	t.Helper()
	tw := tar.NewWriter(w)
	for _, e := range entries {
		if err := tw.WriteHeader(&tar.Header{Name: e.name, Size: int64(len(e.text)), Mode: 0o644, Typeflag: tar.TypeReg}); err != nil {
			t.Fatal(err)
		}
		if _, err := tw.Write([]byte(e.text)); err != nil {
			t.Fatal(err)
		}
	}
	if err := tw.Close(); err != nil {
		t.Fatal(err)
	}
}

func testBoot() wire.Boot {
	return wire.Boot{
		Sandbox: "sbx_0123456789abcdef", Hostname: "sbx-0123456789abcdef", Channel: "virtio:skete.0", User: "user", UID: 1000, GID: 1000,
		Home: "/home/user", Workdir: "/workspace", Env: map[string]string{"TOKEN": "secret"}, ProcessesMax: 512, MemoryBytes: 1 << 30,
	}
}

func TestCommandLine(t *testing.T) {
	line, err := CommandLine(Line{VMM: QEMU, TSCKHz: 2596124, Emulated: true, Root: "vda", Layer: "vdb", Work: "vdc", Boot: testBoot()})
	if err != nil {
		t.Fatal(err)
	}
	const want = "panic=-1 cryptomgr.notests mitigations=off tsc=reliable quiet reboot=t console=ttyS0 tsc_early_khz=2596124 skete.root=vda skete.layer=vdb skete.work=vdc skete.boot="
	if !strings.HasPrefix(line, want) {
		t.Errorf("line %q, want it to begin with %q", line, want)
	}
	p, err := plan.ParseParams(line)
	if err != nil {
		t.Fatal(err)
	}
	boot := testBoot()
	boot.Env, boot.Mounts = nil, true
	if diff := cmp.Diff(plan.Params{Root: "vda", Layer: "vdb", Work: "vdc", Boot: boot}, p); diff != "" {
		t.Error(diff)
	}
	boot.Network = &wire.Network{Authority: strings.Repeat("x", 4000)}
	line, err = CommandLine(Line{VMM: QEMU, Root: "vda", Boot: boot})
	if err != nil {
		t.Fatal(err)
	}
	if p, err = plan.ParseParams(line); err != nil || p.Boot.Network == nil || p.Boot.Network.Authority != "" {
		t.Errorf("with a network: %+v, %v", p.Boot.Network, err)
	}
	boot.Network = nil
	fc, err := CommandLine(Line{VMM: Firecracker, TSCKHz: 1, Root: "vda", Boot: boot})
	if err != nil || !strings.Contains(fc, "clocksource=kvm-clock") || strings.Contains(fc, "tsc_early") || strings.Contains(fc, "nomodule") || strings.Contains(fc, "mitigations") {
		t.Errorf("%q, %v", fc, err)
	}
}

// The kernel cuts a longer line off without a word.
func TestCommandLine_isNeverLongerThanTheKernelReads(t *testing.T) {
	boot := testBoot()
	boot.Workdir = "/" + strings.Repeat("a", 4000)
	if _, err := CommandLine(Line{VMM: QEMU, Root: "vda", Boot: boot}); !errs.Is(err, errs.Limit) {
		t.Errorf("got %v", err)
	}
	if _, err := CommandLine(Line{VMM: QEMU, Root: "vda init=/bin/sh", Boot: testBoot()}); !errs.Is(err, errs.Invalid) {
		t.Errorf("a disk's name that is more: %v", err)
	}
}

// fakeModule is an object file with a module's description, made by the
// assembler's own format writer: a minimal ELF.
func fakeModule(depends string) []byte {
	info := []byte("license=GPL\x00depends=" + depends + "\x00name=x\x00")
	names := []byte("\x00.modinfo\x00.shstrtab\x00")
	const head, entry = 64, 64
	var b bytes.Buffer
	h := fakeELF(head * 4)[:head]
	clear(h[16:])
	put := func(at, n int, v uint64) {
		for i := range n {
			h[at+i] = byte(v >> (8 * i))
		}
	}
	put(16, 2, 1)  // relocatable
	put(18, 2, 62) // x86-64
	put(20, 4, 1)
	put(40, 8, uint64(head+len(info)+len(names)))
	put(52, 2, head)
	put(58, 2, entry)
	put(60, 2, 3)
	put(62, 2, 2)
	b.Write(h)
	b.Write(info)
	b.Write(names)
	section := func(name, kind uint32, at, size int) {
		var s [entry]byte
		le := func(at, n int, v uint64) {
			for i := range n {
				s[at+i] = byte(v >> (8 * i))
			}
		}
		le(0, 4, uint64(name))
		le(4, 4, uint64(kind))
		le(24, 8, uint64(at))
		le(32, 8, uint64(size))
		le(48, 8, 1)
		b.Write(s[:])
	}
	section(0, 0, 0, 0)
	section(1, 1, head, len(info))
	section(10, 3, head+len(info), len(names))
	return b.Bytes()
}

// Each module comes after those that it needs: in the wrong order the kernel
// finds no disks. Names are the same with '-' and '_'.
func TestModules_standInTheOrderOfLoading(t *testing.T) {
	dir := t.TempDir()
	for name, depends := range map[string]string{
		"drivers/virtio/virtio_mmio.ko":          "virtio,virtio_ring",
		"drivers/virtio/virtio.ko":               "virtio_ring",
		"drivers/virtio/virtio_ring.ko":          "",
		"drivers/block/virtio_blk.ko":            "virtio_ring,virtio",
		"drivers/char/virtio_console.ko":         "virtio,virtio-ring",
		"drivers/char/hw_random/virtio-rng.ko":   "virtio",
		"fs/overlayfs/overlay.ko":                "",
		"fs/erofs/erofs.ko.gz":                   "libcrc32c",
		"lib/libcrc32c.ko":                       "",
		"net/something/else_that_nobody_asks.ko": "virtio",
	} {
		data := fakeModule(depends)
		if strings.HasSuffix(name, ".gz") {
			data = pack(t, "gzip", data)
		}
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, data, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	list, err := collectModules(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, m := range list {
		got = append(got, plan.EncodeModules([]plan.Module{m.Module}))
	}
	want := []string{
		"virtio_ring.ko always,virtio\n", "virtio.ko always,virtio\n", "virtio_mmio.ko always\n", "virtio_blk.ko always\n", "overlay.ko always\n",
		"virtio-rng.ko always\n", "virtio_console.ko virtio\n", "libcrc32c.ko erofs\n", "erofs.ko erofs\n",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestModules_refusesCirclesAndJunk(t *testing.T) {
	for name, data := range map[string][]byte{
		"a circle":  fakeModule("virtio_blk"),
		"no module": []byte("text"),
		"an ELF":    fakeELF(4096),
	} {
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, "virtio_blk.ko"), data, 0o644); err != nil {
			t.Fatal(err)
		}
		if _, err := collectModules(t.Context(), dir); !errs.Is(err, errs.Invalid) {
			t.Errorf("%s: %v, want invalid", name, err)
		}
	}
}

// The archive is what the kernel's own tools read, and the same each time.
func TestInitramfs_isAnArchiveAndTheSameEachTime(t *testing.T) {
	modules := []module{{plan.Module{File: "a.ko", Uses: []plan.Use{plan.Always}}, []byte("odd")}}
	dir := t.TempDir()
	first, sum, err := keepInitramfs(dir, []byte("guest program"), modules)
	if err != nil {
		t.Fatal(err)
	}
	second, again, err := keepInitramfs(t.TempDir(), []byte("guest program"), modules)
	if err != nil || sum != again || filepath.Base(first) != filepath.Base(second) {
		t.Errorf("%s %s, %s %s, %v", first, sum, second, again, err)
	}
	if other, _, err := keepInitramfs(dir, []byte("another program"), modules); err != nil || other == first {
		t.Errorf("another guest, the same file: %v", err)
	}
	cpio, err := exec.LookPath("cpio")
	if err != nil {
		if cpio, err = exec.LookPath("busybox"); err != nil {
			t.Skip("neither cpio nor busybox is installed")
		}
	}
	args := []string{"-t", "--quiet"}
	if strings.HasSuffix(cpio, "busybox") {
		args = []string{"cpio", "-t"}
	}
	cmd := exec.Command(cpio, args...)
	in, err := os.Open(first)
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	cmd.Stdin = in
	out, err := cmd.Output()
	want := "dev\nproc\nsys\nnew\nmod\ndisk\n.skete\n.skete/guest\ninit\ndev/console\ndev/null\nmod/a.ko\nmodules.list\n"
	if err != nil || string(out) != want {
		t.Errorf("%q, want %q (%v)", out, want, err)
	}
}

// The second call reads next to nothing; another guest at the same path, or a
// lost file, is noticed.
func TestInitramfs_isMadeAgainWhenItMust(t *testing.T) {
	dir, modules := t.TempDir(), t.TempDir()
	if err := os.WriteFile(filepath.Join(modules, "virtio.ko"), fakeModule(""), 0o644); err != nil {
		t.Fatal(err)
	}
	guest := filepath.Join(t.TempDir(), "guest")
	build := func(program string) (string, string) {
		t.Helper()
		if program != "" {
			if err := os.WriteFile(guest, []byte(program), 0o755); err != nil {
				t.Fatal(err)
			}
		}
		path, sum, err := Initramfs(t.Context(), dir, Kernel{Modules: modules, Hash: "h", Release: "r"}, guest)
		if err != nil {
			t.Fatal(err)
		}
		if data, err := os.ReadFile(path); err != nil || fmt.Sprintf("%x", sha256.Sum256(data)) != sum {
			t.Errorf("%s is not what its hash says (%v)", path, err)
		}
		return path, sum
	}
	path, sum := build("first")
	if again, _ := build(""); again != path {
		t.Errorf("%s, then %s", path, again)
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if _, again := build(""); again != sum {
		t.Errorf("%s, then %s", sum, again)
	}
	if _, other := build("second program"); other == sum {
		t.Error("another guest makes the same initramfs")
	}
}

func TestFindKernel_withoutOneSaysHowToGetIt(t *testing.T) {
	_, err := FindKernel(t.Context(), KernelConfig{Dir: t.TempDir()})
	if !errs.Is(err, errs.NotFound) || errs.Hint(err) == "" {
		t.Errorf("%v, hint %q", err, errs.Hint(err))
	}
}

// The operator's own kernel is taken, unpacked if need be, and found again.
func TestFindKernel_takesTheOperatorsOwn(t *testing.T) {
	dir, modules := t.TempDir(), filepath.Join(t.TempDir(), "5.15.7-own")
	if err := os.Mkdir(modules, 0o755); err != nil {
		t.Fatal(err)
	}
	kernel := fakeELF(5000)
	for name, data := range map[string][]byte{"vmlinux": kernel, "vmlinuz": append([]byte("boot code"), pack(t, "gzip", kernel)...)} {
		own := filepath.Join(dir, name)
		if err := os.WriteFile(own, data, 0o644); err != nil {
			t.Fatal(err)
		}
		for range 2 {
			k, err := FindKernel(t.Context(), KernelConfig{Dir: dir, Vmlinux: own, Modules: modules})
			if err != nil {
				t.Fatal(err)
			}
			got, err := os.ReadFile(k.Path)
			if err != nil || !bytes.Equal(got, kernel) || k.Release != "5.15.7-own" || k.Modules != modules {
				t.Errorf("%s: %+v, %d bytes, %v", name, k, len(got), err)
			}
		}
	}
	if _, err := FindKernel(t.Context(), KernelConfig{Dir: dir, Vmlinux: "/nowhere/vmlinux", Modules: modules}); !errs.Is(err, errs.NotFound) {
		t.Errorf("a file that is not there: %v", err)
	}
}

func TestDependedImage(t *testing.T) {
	for _, c := range [][2]string{
		{"linux-image-cloud-amd64\n  Depends: linux-image-6.1.0-56-cloud-amd64\n", "linux-image-6.1.0-56-cloud-amd64"},
		{"linux-image-virtual\n  Depends: linux-image-5.15.0-1-generic\n  Depends: linux-base\n", "linux-image-5.15.0-1-generic"},
		{"x\n  Depends: linux-base\n  Depends: linux-image-unsigned-6.8.0-9-kvm\n", "linux-image-unsigned-6.8.0-9-kvm"},
		{"x\n  Depends: linux-image-6.1.0; rm -rf /\n", ""},
		{"x\n  Depends: --option\n", ""},
		{"", ""},
	} {
		out, want := c[0], c[1]
		if got := dependedImage(out); got != want {
			t.Errorf("%q: %q, want %q", out, got, want)
		}
	}
}
