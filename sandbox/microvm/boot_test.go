package microvm_test

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"
	"go.uber.org/goleak"

	"github.com/skete-dev/skete/guest/channel/mux"
	"github.com/skete-dev/skete/guest/wire"
	"github.com/skete-dev/skete/internal/ext4"
	"github.com/skete-dev/skete/internal/guesttest"
	"github.com/skete-dev/skete/internal/patience"
	"github.com/skete-dev/skete/sandbox/microvm"
	"github.com/skete-dev/skete/sandbox/microvm/microvmtest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// bootTimeout is generous: it is 1.5 s on a quiet machine.
const bootTimeout = 60 * time.Second

// machine is a real virtual machine under QEMU's emulation, which needs no
// rights and no KVM.
type machine struct {
	t      testing.TB
	dir    string
	line   *mux.Line
	client *wire.Client
	cmd    *exec.Cmd
	ended  chan struct{}
	boot   wire.Boot
}

// options of a test machine.
type options struct {
	change func(*wire.Boot)
	dir    string // of an earlier machine, whose disks are used again
	memMB  int
}

func startVM(t *testing.T, o options) *machine {
	t.Helper()
	if testing.Short() {
		t.Skip("boots a virtual machine: not in a short run")
	}
	qemu, err := exec.LookPath("qemu-system-x86_64")
	if err != nil {
		t.Skip("qemu-system-x86_64 is not installed")
	}
	if o.memMB == 0 {
		o.memMB = 256
	}
	kernel := microvmtest.Kernel(t)
	initrd := microvmtest.Initramfs(t, kernel, guesttest.Binary(t))
	m := &machine{t: t, dir: o.dir, ended: make(chan struct{}), boot: wire.Boot{
		Sandbox: "sbx_test", Hostname: "sbx-test", Channel: "virtio:skete.0", User: "user", UID: 1000, GID: 1000,
		Home: "/home/user", Workdir: "/workspace", ProcessesMax: 256, MemoryBytes: int64(o.memMB) << 20,
	}}
	if o.change != nil {
		o.change(&m.boot)
	}
	if m.dir == "" {
		m.dir = t.TempDir()
		makeDisks(t, m.dir)
	}
	line, err := microvm.CommandLine(microvm.Line{
		VMM: microvm.QEMU, TSCKHz: microvm.TSCKHz(), Emulated: true, Root: "vda", Layer: "vdb", Work: "vdc", Boot: m.boot,
	})
	if err != nil {
		t.Fatal(err)
	}
	m.cmd = exec.Command(qemu, "-M", "microvm,rtc=on,pic=off,pit=off,isa-serial=on,acpi=on", "-accel", "tcg,thread=single,tb-size=64", "-cpu", "max",
		"-smp", "1", "-m", fmt.Sprint(o.memMB), "-nodefaults", "-no-user-config", "-display", "none", "-serial", "file:console.log", "-no-reboot",
		"-kernel", kernel.Path, "-initrd", initrd, "-append", line,
		"-drive", "id=r,file=root.img,format=raw,if=none,readonly=on", "-device", "virtio-blk-device,drive=r",
		"-drive", "id=l,file=layer.img,format=raw,if=none,cache=unsafe,discard=unmap", "-device", "virtio-blk-device,drive=l",
		"-drive", "id=w,file=work.img,format=raw,if=none,cache=writeback,discard=unmap", "-device", "virtio-blk-device,drive=w",
		"-device", "virtio-serial-device", "-chardev", "socket,id=c0,path=c.sock,server=on,wait=off", "-device", "virtserialport,chardev=c0,name=skete.0",
		"-device", "virtio-rng-device")
	m.cmd.Dir = m.dir
	var monitor bytes.Buffer
	m.cmd.Stderr = &monitor
	if err := m.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	m.line = mux.Open(m.dial, nil)
	m.client = wire.NewClient(m.line.Dial)
	go func() {
		_ = m.cmd.Wait()
		close(m.ended)
	}()
	t.Cleanup(func() {
		m.stop()
		if t.Failed() {
			t.Logf("console:\n%s\nmonitor:\n%s", m.console(), &monitor)
		}
	})
	return m
}

// dial connects to the monitor's socket, which may not be there yet.
func (m *machine) dial(ctx context.Context) (net.Conn, error) {
	var d net.Dialer
	for {
		conn, err := d.DialContext(ctx, "unix", filepath.Join(m.dir, "c.sock"))
		if err == nil {
			return conn, nil
		}
		select {
		case <-m.ended:
			return nil, err
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(5 * time.Millisecond):
		}
	}
}

func (m *machine) console() string {
	data, _ := os.ReadFile(filepath.Join(m.dir, "console.log"))
	return string(data)
}

// stop ends the machine as a power cut would.
func (m *machine) stop() {
	m.client.Close()
	m.line.Close()
	_ = m.cmd.Process.Kill()
	<-m.ended
}

// makeDisks makes a root with busybox in it, a layer and a workspace.
func makeDisks(t *testing.T, dir string) {
	t.Helper()
	busybox, err := exec.LookPath("busybox")
	if err != nil {
		t.Skip("busybox (busybox-static) is not installed")
	}
	mkfs, err := exec.LookPath("mkfs.ext4")
	if err != nil {
		t.Skip("mkfs.ext4 is not installed")
	}
	tree := t.TempDir()
	for _, d := range []string{"bin", "etc", "home/user", "proc", "sys", "dev", "tmp", "run", "workspace", "var/lib", "root"} {
		if err := os.MkdirAll(filepath.Join(tree, d), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	data, err := os.ReadFile(busybox)
	if err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(tree, "bin/busybox"), data, 0o755)
	applets, err := exec.Command(busybox, "--list").Output()
	if err != nil {
		t.Fatal(err)
	}
	for name := range strings.FieldsSeq(string(applets)) {
		if name != "busybox" {
			if err := os.Symlink("busybox", filepath.Join(tree, "bin", name)); err != nil {
				t.Fatal(err)
			}
		}
	}
	write(t, filepath.Join(tree, "etc/passwd"), []byte("root:x:0:0::/root:/bin/sh\nuser:x:1000:1000::/home/user:/bin/sh\n"), 0o644)
	write(t, filepath.Join(tree, "etc/group"), []byte("root:x:0:\nuser:x:1000:\n"), 0o644)
	write(t, filepath.Join(tree, "etc/machine-id"), []byte("00000000000000000000000000000000\n"), 0o444)
	out, err := exec.Command(mkfs, "-q", "-F", "-d", tree, "-O", "^has_journal", "-E", "root_owner=0:0", filepath.Join(dir, "root.img"), "32M").CombinedOutput()
	if err != nil {
		t.Fatalf("mkfs.ext4: %v: %s", err, out)
	}
	for _, name := range []string{"layer.img", "work.img"} {
		if err := ext4.Blank(t.Context(), filepath.Join(dir, name), 128<<20); err != nil {
			t.Fatal(err)
		}
	}
}

func write(t *testing.T, path string, data []byte, mode os.FileMode) {
	t.Helper()
	if err := os.WriteFile(path, data, mode); err != nil {
		t.Fatal(err)
	}
}

func (m *machine) hello() *wire.HelloResponse {
	m.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), bootTimeout)
	defer cancel()
	h, err := m.client.Hello(ctx)
	if err != nil {
		m.t.Fatalf("hello: %v", err)
	}
	return h
}

// sh runs a script as the sandbox's user, or as root, and returns what it said.
func (m *machine) sh(user, script string) (out string, code int32) {
	m.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), bootTimeout)
	defer cancel()
	st, err := m.client.Process.Exec(ctx, connect.NewRequest(&wire.StartRequest{
		Argv: [][]byte{[]byte("/bin/sh"), []byte("-c"), []byte(script)}, User: user,
	}))
	if err != nil {
		m.t.Fatalf("%s: %v", script, err)
	}
	defer st.Close()
	var b strings.Builder
	code = -1
	for st.Receive() {
		switch e := st.Msg().Event.(type) {
		case *wire.AttachEvent_Output:
			b.Write(e.Output.Data)
		case *wire.AttachEvent_Exited:
			code = e.Exited.GetExit().GetCode()
		}
	}
	if err := st.Err(); err != nil {
		m.t.Fatalf("%s: %v", script, err)
	}
	return b.String(), code
}

// T1 of the facts: a boot to an answering guest, then reconnects.
func TestBoot_answersAndSurvivesReconnects(t *testing.T) {
	begin := time.Now()
	m := startVM(t, options{})
	h := m.hello()
	t.Logf("boot to the first answer: %s", time.Since(begin))
	if h.Kernel == "" || h.SuperviseStarts != 1 || h.User != "user" {
		t.Errorf("hello: %v", h)
	}
	if out, code := m.sh("", "uname -r; pwd; id -u"); code != 0 || out != h.Kernel+"\n/workspace\n1000\n" {
		t.Errorf("got %q, %d", out, code)
	}
	begin = time.Now()
	for range 20 {
		m.client.Close()
		m.line.Hangup()
		if again := m.hello(); again.BootId != h.BootId || again.SuperviseStarts != 1 {
			t.Fatalf("after a reconnect: %v, before: %v", again, h)
		}
	}
	t.Logf("a reconnect and a call: %s", time.Since(begin)/20)
}

func TestBoot_isAPlainMachineForItsUser(t *testing.T) {
	m := startVM(t, options{change: func(b *wire.Boot) { b.Root = true }})
	m.hello()
	m.introduce()
	for _, c := range []struct{ what, user, script, want string }{
		{"its names", "", "hostname; cat /etc/hostname; wc -c < /etc/machine-id; grep -c '[1-9a-f]' /etc/machine-id", "sbx-test\nsbx-test\n33\n1\n"},
		{"the workspace is the user's", "", "touch /workspace/f && stat -c %U /workspace /workspace/f", "user\nuser\n"},
		{"the root can be written by root", "root", "echo x > /etc/x && cat /etc/x", "x\n"},
		{"and not by the user", "", "echo x 2>/dev/null > /etc/y || echo no", "no\n"},
		{"the raw disks are root's", "", "for d in /dev/vda /dev/vdb /dev/vdc; do head -c1 $d 2>/dev/null && echo open $d; done; echo end", "end\n"},
		{"the line to the host is root's", "", "ls /dev/vport* | wc -l; for p in /dev/vport*; do head -c1 $p 2>/dev/null && echo open; done; echo end", "1\nend\n"},
		{"the root disk is read-only for root too", "root", "dd if=/dev/zero of=/dev/vda count=1 2>/dev/null || echo no", "no\n"},
		{"the guest's directory is not shown", "", "ls /.skete 2>/dev/null; cat /.skete/boot.json 2>/dev/null; echo end", "end\n"},
		{"nor is it root's to write", "root", "echo x 2>/dev/null > /.skete/x || echo no", "no\n"},
		{"the guest's state is not shown", "", "ls /var/lib/skete-guest 2>/dev/null; echo end", "end\n"},
		{"the loopback is up", "", "ping -c1 -W5 127.0.0.1 >/dev/null 2>&1; ifconfig lo | grep -c UP", "1\n"},
		{"shared memory and scratch space", "", "echo a > /dev/shm/a && echo b > /tmp/b && cat /dev/shm/a /tmp/b", "a\nb\n"},
		{"descriptors by name", "", "echo a | cat /dev/stdin; echo b > /dev/stdout; ls -d /dev/fd", "a\nb\n/dev/fd\n"},
		{"kernel messages are root's", "", "dmesg >/dev/null 2>&1 || echo no", "no\n"},
		{"the environment was told", "", "echo $GREETING", "hello\n"},
		{"its own processes only", "", "cat /proc/1/comm", "guest\n"},
	} {
		if out, _ := m.sh(c.user, c.script); out != c.want {
			t.Errorf("%s: %q, want %q", c.what, out, c.want)
		}
	}
}

// introduce tells the machine its environment, as a provider does.
func (m *machine) introduce() {
	m.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), bootTimeout)
	defer cancel()
	boot := m.boot
	boot.Env = map[string]string{"GREETING": "hello", "PATH": "/bin"}
	if err := microvm.Introduce(ctx, m.client, boot); err != nil {
		m.t.Fatal(err)
	}
}

const killSupervise = `for p in /proc/[0-9]*; do
	case "$(tr "\\0" " " < $p/cmdline)" in "/.skete/guest supervise"*) kill -9 ${p#/proc/};; esac
done`

func TestBoot_survivesDeathsOfSupervise(t *testing.T) {
	m := startVM(t, options{change: func(b *wire.Boot) { b.Root = true }})
	first := m.hello()
	m.introduce()
	ctx, cancel := context.WithTimeout(context.Background(), 5*bootTimeout)
	defer cancel()
	if _, err := m.client.Process.Start(ctx, connect.NewRequest(&wire.StartRequest{
		Key: "long", Argv: [][]byte{[]byte("/bin/sh"), []byte("-c"), []byte("read x; echo got $x")}, Stdin: true,
	})); err != nil {
		t.Fatal(err)
	}
	const kills = 10
	begin := time.Now()
	for i := range kills {
		before := m.hello().SuperviseStarts
		// The call that kills breaks; that is its success.
		kctx, kcancel := patience.Context(ctx, 20*time.Second)
		st, err := m.client.Process.Exec(kctx, connect.NewRequest(&wire.StartRequest{
			Argv: [][]byte{[]byte("/bin/sh"), []byte("-c"), []byte(killSupervise)}, User: "root",
		}))
		if err == nil {
			for st.Receive() {
			}
			st.Close()
		}
		kcancel()
		for end := time.Now().Add(patience.Of(30 * time.Second)); ; { // calls break meanwhile
			h, err := m.client.Hello(ctx)
			if err == nil && h.SuperviseStarts > before {
				break
			}
			if time.Now().After(end) {
				t.Fatalf("kill %d: no new supervise: %v", i, err)
			}
		}
	}
	t.Logf("%d deaths of supervise in %s", kills, time.Since(begin))
	h := m.hello()
	if h.BootId != first.BootId || h.SuperviseStarts <= kills {
		t.Errorf("hello: %v", h)
	}
	if _, err := m.client.Process.Input(ctx, connect.NewRequest(&wire.InputRequest{Key: "long", Data: []byte("it\n")})); err != nil {
		t.Fatal(err)
	}
	st, err := m.client.Process.Attach(ctx, connect.NewRequest(&wire.AttachRequest{Key: "long"}))
	if err != nil {
		t.Fatal(err)
	}
	defer st.Close()
	var out strings.Builder
	for st.Receive() {
		if o := st.Msg().GetOutput(); o != nil {
			out.Write(o.Data)
		}
	}
	if out.String() != "got it\n" {
		t.Errorf("the process that lived through it said %q (%v)", &out, st.Err())
	}
	if out, _ := m.sh("", "echo $GREETING"); out != "hello\n" {
		t.Errorf("the environment after supervise died: %q", out)
	}
}

func TestBoot_adoptSetsClockEntropyAndNames(t *testing.T) {
	m := startVM(t, options{})
	first := m.hello()
	ctx, cancel := context.WithTimeout(context.Background(), bootTimeout)
	defer cancel()
	later := time.Now().Add(36 * time.Hour)
	res, err := m.client.Control.Adopt(ctx, connect.NewRequest(&wire.AdoptRequest{
		Sandbox: "sbx_other", Hostname: "sbx-other", TimeUnixNs: later.UnixNano(), Entropy: bytes.Repeat([]byte{1}, 32),
		Env: map[string][]byte{"PATH": []byte("/bin")},
	}))
	if err != nil {
		t.Fatal(err)
	}
	a := res.Msg
	if !a.ClockSet || !a.Reseeded || a.BootId == first.BootId || time.Duration(a.SteppedNs) < 35*time.Hour {
		t.Errorf("adopt: %v", a)
	}
	id, _ := m.sh("", "cat /etc/machine-id")
	out, _ := m.sh("", "date +%s; hostname; cat /etc/hostname; echo $SKETE_SANDBOX")
	var at int64
	var names string
	if _, err := fmt.Sscanf(out, "%d\n%s", &at, &names); err != nil {
		t.Fatalf("%q: %v", out, err)
	}
	if skew := time.Unix(at, 0).Sub(later); skew < -2*time.Second || skew > 30*time.Second {
		t.Errorf("the clock inside is off by %s", skew)
	}
	if want := fmt.Sprintf("%d\nsbx-other\nsbx-other\nsbx_other\n", at); out != want {
		t.Errorf("got %q, want %q", out, want)
	}
	if len(id) != 33 {
		t.Errorf("machine-id %q", id)
	}
}

// A command that takes all memory ends, and the machine lives on.
func TestBoot_outlivesACommandThatTakesAllMemory(t *testing.T) {
	m := startVM(t, options{memMB: 192})
	first := m.hello()
	if out, code := m.sh("", "tail /dev/zero; echo $?"); code == 0 && out != "137\n" {
		t.Errorf("it ended with %d: %q", code, out)
	}
	if h := m.hello(); h.BootId != first.BootId || h.SuperviseStarts != 1 {
		t.Errorf("before %v, after %v", first, h)
	}
	if out, code := m.sh("", "echo alive"); code != 0 || out != "alive\n" {
		t.Errorf("afterwards: %d, %q", code, out)
	}
}

// A power cut and a boot on the same disks: what was synced is there.
func TestBoot_afterAPowerCutTheWorkspaceIsThere(t *testing.T) {
	m := startVM(t, options{})
	m.hello()
	if out, code := m.sh("", "echo kept > kept && sync && yes > grows & sleep 0.5; cat kept"); code != 0 || out != "kept\n" {
		t.Fatalf("%q, %d", out, code)
	}
	m.stop()
	again := startVM(t, options{dir: m.dir})
	again.hello()
	if out, _ := again.sh("", "cat kept; stat -c %u /workspace"); out != "kept\n1000\n" {
		t.Errorf("after the cut: %q", out)
	}
}

func TestBoot_saysOnTheConsoleWhyItCannotStart(t *testing.T) {
	dir := t.TempDir()
	makeDisks(t, dir)
	write(t, filepath.Join(dir, "work.img"), make([]byte, 16<<20), 0o600) // no file system
	m := startVM(t, options{dir: dir})
	select {
	case <-m.ended:
	case <-time.After(bootTimeout):
		t.Fatal("a machine that cannot start still runs")
	}
	if c := m.console(); !strings.Contains(c, "skete: this machine cannot start: mount the workspace: ") {
		t.Errorf("the console says:\n%s", c)
	}
}
