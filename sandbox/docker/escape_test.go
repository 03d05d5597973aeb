package docker

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/skete-dev/skete/guest/wire"
	"github.com/skete-dev/skete/sandbox"
	"github.com/skete-dev/skete/sandbox/docker/enginetest"
	"github.com/skete-dev/skete/sandbox/sandboxtest"
	"github.com/skete-dev/skete/template"
)

// prize is what an escape would find on the host.
type prize struct {
	token    string // in a file, in our environment, in a process's arguments
	file     string
	port     string // of a TCP server on the host's loopback
	socket   string // of a unix server
	abstract string // the same without a file
	pid      string // of a process
	address  string // of the host on some network, if it has one
}

func newPrize(t *testing.T) prize {
	t.Helper()
	p := prize{token: "prize-" + strings.TrimPrefix(string(sandbox.NewID()), "sbx_")}
	dir := t.TempDir()
	for d := dir; strings.HasPrefix(d, os.TempDir()+"/"); d = filepath.Dir(d) {
		_ = os.Chmod(d, 0o755) // the isolation shall protect it, not its mode
	}
	p.file = filepath.Join(dir, "secret")
	if err := os.WriteFile(p.file, []byte(p.token), 0o644); err != nil {
		t.Fatal(err)
	}
	t.Setenv("SKETE_TEST_PRIZE", p.token)
	p.socket, p.abstract = filepath.Join(dir, "s"), "@"+p.token
	for network, addr := range map[string]string{"tcp": "127.0.0.1:0", "unix": p.socket, "unix ": p.abstract} {
		ln, err := net.Listen(strings.TrimSpace(network), addr)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { ln.Close() })
		if network == "tcp" {
			_, p.port, _ = net.SplitHostPort(ln.Addr().String())
		}
	}
	if err := os.Chmod(p.socket, 0o777); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("sh", "-c", "sleep 1000; : "+p.token)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	p.pid = strconv.Itoa(cmd.Process.Pid)
	p.address = hostAddress()
	return p
}

func hostAddress() string {
	addrs, _ := net.InterfaceAddrs()
	for _, a := range addrs {
		if n, ok := a.(*net.IPNet); ok && !n.IP.IsLoopback() && n.IP.To4() != nil {
			return n.IP.String()
		}
	}
	return "192.0.2.1"
}

// attempt is one way to try; it must not succeed.
type attempt struct {
	name, line string
	// free: the command may succeed, only its output is judged
	free bool
	// never is what the output must not have, besides the token.
	never string
	// want is what the whole output must be, if set.
	want string
}

// attempts that nobody may succeed with, root inside least of all.
func attempts(p prize) []attempt {
	return []attempt{
		{name: "host file", line: "cat " + p.file},
		{name: "host file through /proc/1/root", line: "cat /proc/1/root" + p.file},
		{name: "host file through /proc/self/root", line: "cat /proc/self/root" + p.file},
		{name: "host file through cwd of all", line: "cat /proc/*/cwd" + p.file + " /proc/*/root" + p.file},
		{name: "host file up from the workspace", line: "cat ../../../../../../.." + p.file},
		{name: "host file by a link", line: "ln -sf " + p.file + " link && cat link"},
		{name: "host file by a link in /tmp", line: "ln -sf " + p.file + " /tmp/link && cat /tmp/link"},
		{name: "the host's shadow", line: "cat /etc/shadow /usr/../etc/shadow"},
		{name: "everything readable", line: "grep -rls " + p.token[:12] + " / --exclude-dir=proc --exclude-dir=sys --exclude-dir=usr | grep -v link"},
		{name: "host process by number", line: "tr '\\0' ' ' < /proc/" + p.pid + "/cmdline | grep 'prize[-]'"},
		{name: "host process by name", line: "cat /proc/*/cmdline | tr '\\0' ' ' | grep 'sleep 100[0]'"},
		{name: "signal a host process", line: "kill -0 " + p.pid},
		{name: "the server's environment", line: "cat /proc/*/environ | tr '\\0' '\\n' | grep 'SKETE_TEST[_]PRIZE'"},
		{name: "mount", line: "mount -t tmpfs none /mnt || mount -t tmpfs none /tmp"},
		{name: "mount a device", line: "mount -t ext4 /dev/vda /tmp || mount -t ext4 /dev/sda1 /tmp"},
		{name: "remount /usr", line: "mount -o remount,rw /usr"},
		{name: "make a device", line: "mknod /tmp/disk b 254 0 && cat /tmp/disk"},
		{name: "devices of the host", line: "ls /dev | grep -E '^(vd|sd|nvme|loop|mem|kmsg|kvm|kcore)'"},
		{name: "write to /usr", line: "touch /usr/x /usr/bin/x"},
		{name: "write to the boot directory", line: "touch /.skete/x || rm /.skete/guest || ln -s " + p.file + " /.skete/x"},
		{name: "link out of /usr", line: "ln /usr/bin/env env"},
		{name: "host's loopback", line: "./tool dial tcp 127.0.0.1:" + p.port},
		{name: "host's loopback, version 6", line: "./tool dial tcp '[::1]:" + p.port + "'"},
		{name: "host's address", line: "./tool dial tcp " + p.address + ":" + p.port},
		{name: "the metadata service", line: "./tool dial tcp 169.254.169.254:80"},
		{name: "the internet", line: "./tool dial tcp 1.1.1.1:443 || ./tool dial udp 1.1.1.1:53"},
		{name: "a name", line: "./tool dial tcp example.com:80"},
		{name: "host's unix socket", line: "./tool dial unix " + p.socket},
		{name: "host's abstract socket", line: "./tool dial unix " + p.abstract},
		{name: "interfaces", line: "./tool interfaces", free: true, want: "lo\n"},
		{name: "paths of the host in the mount table", line: "cat /proc/mounts", free: true, never: "/Test"},
		{name: "the engine's socket", line: "find / -xdev -type s | grep -v /.skete/"},
		{name: "raise a limit", line: "for f in $(find /sys/fs/cgroup -name pids.max -o -name memory.limit_in_bytes -o -name memory.max); do echo max > $f && exit 0; done; exit 1"},
		{name: "leave the namespaces", line: "nsenter -t 1 -m true || nsenter -t 1 -n -p true || unshare -m true || unshare -n true"},
		{name: "seccomp", line: "grep -w Seccomp: /proc/self/status", free: true, want: "Seccomp:\t2\n"},
		{name: "new privileges", line: "grep NoNewPrivs /proc/self/status", free: true, want: "NoNewPrivs:\t1\n"},
		{name: "load a module", line: "insmod /tmp/x.ko || modprobe loop"},
		{name: "the kernel's memory", line: "cat /proc/kcore || cat /dev/mem"},
		{name: "a sysctl of the host", line: "echo 1 > /proc/sys/kernel/panic_on_oops"},
		{name: "the power button", line: "echo b > /proc/sysrq-trigger"},
		{name: "core pattern", line: "echo '|/bin/sh' > /proc/sys/kernel/core_pattern"},
	}
}

// attemptsOfUser are those that only the granted root may succeed with.
func attemptsOfUser() []attempt {
	return []attempt{
		{name: "who", line: "id -u; id -g; id -G", free: true, want: "1000\n1000\n1000\n"},
		{name: "capabilities", line: "grep -E 'Cap(Prm|Eff|Inh|Amb)' /proc/self/status | grep -v 0000000000000000"},
		{name: "become root", line: "su -c true || sudo -n true"},
		{name: "look into the boot directory", line: "ls /.skete || cat /.skete/boot.json || cat /.skete/guest"},
		{name: "the host's channel", line: "./tool dial unix " + wire.HostSocket},
		{name: "the guest's files", line: "ls /.skete-state"},
		{name: "the guest's memory", line: "cat /proc/1/mem || cat /proc/1/maps && cat /proc/1/environ"},
		{name: "the guest's descriptors", line: "readlink /proc/1/fd/* || cat /proc/1/fd/3"},
		{name: "end the guest", line: "kill -9 1 || kill -STOP 1"},
		{name: "raise the process limit", line: "for f in $(find /sys/fs/cgroup -name pids.max); do echo max > $f && exit 0; done; exit 1"},
		{name: "give a file away", line: "touch mine && chown 0:0 mine"},
		{name: "raw packets", line: "./tool dial ip4:icmp 127.0.0.1"},
	}
}

func TestEscape(t *testing.T) {
	onEngines(t, func(t *testing.T, e *enginetest.Engine) {
		p := newPrize(t)
		ofUser := append(attemptsOfUser(), attempt{name: "write to /etc", line: "echo x >> /etc/passwd"})
		for name, c := range map[string]struct {
			root  bool
			user  string
			tries []attempt
		}{
			"user":               {false, "", append(attempts(p), ofUser...)},
			"user where root is": {true, "", append(attempts(p), ofUser...)},
			"root":               {true, "root", attempts(p)},
		} {
			t.Run(name, func(t *testing.T) {
				g := escapee(t, e, c.root)
				for _, a := range c.tries {
					r := sandboxtest.Start("/bin/sh", "-c", a.line)
					r.User = c.user
					res, err := g.Exec(t.Context(), r)
					if err != nil {
						t.Errorf("%s: %v", a.name, err)
						continue
					}
					weigh(t, p, a, res)
				}
			})
		}
	})
}

func weigh(t *testing.T, p prize, a attempt, res sandboxtest.Result) {
	t.Helper()
	all := res.Stdout + res.Stderr
	switch {
	case strings.Contains(res.Stdout, p.token):
		t.Errorf("%s: the prize was taken: %+v", a.name, res)
	case !a.free && res.Code == 0:
		t.Errorf("%s: %q succeeded: %+v", a.name, a.line, res)
	case a.never != "" && strings.Contains(all, a.never):
		t.Errorf("%s: %q is in the output: %+v", a.name, a.never, res)
	case a.want != "" && res.Stdout != a.want:
		t.Errorf("%s: %+v, want %q", a.name, res, a.want)
	}
}

// escapee boots a machine with the suite's tool in its workspace.
func escapee(t *testing.T, e *enginetest.Engine, root bool) sandboxtest.Guest {
	t.Helper()
	p := open(t, e, t.TempDir())
	b := bootOf(t, sandboxtest.Rootfs(t))
	b.Spec.Root = root
	tool, err := os.ReadFile(sandboxtest.Build(t, "github.com/skete-dev/skete/sandbox/sandboxtest/internal/tool"))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(b.Workspace, "tool"), tool, 0o755); err != nil {
		t.Fatal(err)
	}
	return sandboxtest.NewGuest(t, create(t, p, b))
}

func asRoot(t *testing.T, g sandboxtest.Guest, line string) sandboxtest.Result {
	t.Helper()
	r := sandboxtest.Start("/bin/sh", "-c", line)
	r.User = "root"
	res, err := g.Exec(t.Context(), r)
	if err != nil {
		t.Fatalf("%q: %v", line, err)
	}
	return res
}

// The capabilities are those that we ask for, no more, and enough for what
// they are said to be needed for.
func TestCapabilitiesOfGuests(t *testing.T) {
	onEngines(t, func(t *testing.T, e *enginetest.Engine) {
		for _, c := range []struct {
			root    bool
			bounded string // CapBnd, see capabilities(7) for the bits
		}{{false, "00000000000000e1"}, {true, "00000000a00404fb"}} {
			g := escapee(t, e, c.root)
			if res := g.Shell("grep CapBnd /proc/self/status /proc/1/status"); strings.Count(res.Stdout, c.bounded) != 2 {
				t.Errorf("root granted: %t: %+v, want %s", c.root, res, c.bounded)
			}
			if res := g.Shell("echo by name > /dev/stdout"); res.Stdout != "by name\n" {
				t.Errorf("root granted: %t: %+v", c.root, res)
			}
		}
	})
}

// What a machine does to its root stays in its own layer: the template is
// never written, not even to make a mount point. In / itself nothing is made.
func TestRootfsStaysAsItWas(t *testing.T) {
	onEngines(t, func(t *testing.T, e *enginetest.Engine) {
		p := open(t, e, t.TempDir())
		b := bootOf(t, sandboxtest.Rootfs(t))
		b.Spec.Root = true
		before := listing(t, b.Rootfs.Dir)
		g := sandboxtest.NewGuest(t, create(t, p, b))
		res := asRoot(t, g, "echo x >> /etc/passwd; echo 1.2.3.4 far >> /etc/hosts; mkdir /var/new; chown 1000 /etc; rm /etc/group; touch /home/user/x; "+
			"tail -qn 1 /etc/passwd /etc/hosts; ls -d /var/new; stat -c %u /etc; mkdir /new && echo made")
		if res.Stdout != "x\n1.2.3.4 far\n/var/new\n1000\n" {
			t.Errorf("inside: %+v", res)
		}
		if diff := cmp.Diff(before, listing(t, b.Rootfs.Dir)); diff != "" {
			t.Errorf("the template changed (-before +after):\n%s", diff)
		}
	})
}

// A template is made by somebody: its links must not make the engine bind
// what they point to on the host, nor us write there.
func TestTemplateLinksStayInside(t *testing.T) {
	onEngines(t, func(t *testing.T, e *enginetest.Engine) {
		p := newPrize(t)
		outside := filepath.Dir(p.file)
		for name, link := range map[string]string{"var/tmp": outside, "etc/hosts": p.file, "etc/resolv.conf": p.file, "opt": outside, "srv": "../../../../../../../../.." + outside} {
			t.Run(strings.ReplaceAll(name, "/", "-"), func(t *testing.T) {
				b := bootOf(t, sandboxtest.Rootfs(t))
				b.Spec.Root = true
				path := filepath.Join(b.Rootfs.Dir, name)
				if err := errors.Join(os.RemoveAll(path), os.Symlink(link, path)); err != nil {
					t.Fatal(err)
				}
				g := sandboxtest.NewGuest(t, create(t, open(t, e, t.TempDir()), b))
				res := asRoot(t, g, "cat /"+name+" /"+name+"/secret; touch /"+name+"/mark; echo mark >> /"+name)
				if strings.Contains(res.Stdout, p.token) {
					t.Errorf("the prize was taken: %+v", res)
				}
				if data, err := os.ReadFile(p.file); err != nil || string(data) != p.token {
					t.Errorf("the host's file was written: %q, %v", data, err)
				}
				if _, err := os.Lstat(filepath.Join(outside, "mark")); err == nil {
					t.Error("the host's directory was written")
				}
			})
		}
	})
}

// A read-only bind is so only at its top: what the host has mounted below it
// must not be there at all.
func TestBindsHideMountsBelowThem(t *testing.T) {
	onEngines(t, func(t *testing.T, e *enginetest.Engine) {
		source := t.TempDir()
		below := filepath.Join(source, "below")
		if err := os.Mkdir(below, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := unix.Mount("tmpfs", below, "tmpfs", 0, "size=1m"); err != nil {
			t.Skip(err)
		}
		t.Cleanup(func() { _ = unix.Unmount(below, unix.MNT_DETACH) })
		b := bootOf(t, sandboxtest.Rootfs(t))
		b.Spec.Root = true
		if err := os.Mkdir(filepath.Join(b.Rootfs.Dir, "opt"), 0o755); err != nil {
			t.Fatal(err)
		}
		b.Rootfs.Binds = append(b.Rootfs.Binds, template.Bind{Source: source, Target: "/opt"})
		g := sandboxtest.NewGuest(t, create(t, open(t, e, t.TempDir()), b))
		if res := asRoot(t, g, "touch /opt/mark /opt/below/mark"); res.Code == 0 {
			t.Errorf("written: %+v", res)
		}
		if entries, err := os.ReadDir(below); err != nil || len(entries) > 0 {
			t.Errorf("the host has %v, %v", entries, err)
		}
	})
}

func listing(t *testing.T, dir string) []string {
	t.Helper()
	var all []string
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err == nil {
			all = append(all, fmt.Sprintf("%s %s %d", path, info.Mode(), info.Size()))
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}
