package docker

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/skete-dev/skete/sandbox"
	"github.com/skete-dev/skete/sandbox/docker/enginetest"
	"github.com/skete-dev/skete/sandbox/sandboxtest"
	"github.com/skete-dev/skete/sandbox/sandboxtest/escape"
	"github.com/skete-dev/skete/template"
)

// The kernel is the host's own, so root inside is asked more than elsewhere.
func TestEscape(t *testing.T) {
	onEngines(t, func(t *testing.T, e *enginetest.Engine) {
		p := open(t, e, t.TempDir())
		escape.Run(t, escape.World{
			Capabilities: p.Capabilities(),
			Boot:         func(t *testing.T) sandbox.Boot { return bootOf(t, sandboxtest.Rootfs(t)) },
			Create:       func(t *testing.T, b sandbox.Boot) sandbox.Machine { return create(t, p, b) },
			Special: []escape.Attack{
				{Name: "raise a limit", Line: "for f in $(find /sys/fs/cgroup -name pids.max -o -name memory.limit_in_bytes -o -name memory.max); do echo max > $f && exit 0; done; exit 1"},
				{Name: "leave the namespaces", Line: "nsenter -t 1 -m true || nsenter -t 1 -n -p true || unshare -m true || unshare -n true"},
				{Name: "seccomp", Line: "grep -w Seccomp: /proc/self/status", Free: true, Want: "Seccomp:\t2\n"},
				{Name: "new privileges of all", Line: "grep NoNewPrivs /proc/self/status", Free: true, Want: "NoNewPrivs:\t1\n"},
			},
		})
	})
}

func granted(t *testing.T, e *enginetest.Engine, root bool) sandboxtest.Guest {
	t.Helper()
	b := bootOf(t, sandboxtest.Rootfs(t))
	b.Spec.Root = root
	return sandboxtest.NewGuest(t, create(t, open(t, e, t.TempDir()), b))
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
			g := granted(t, e, c.root)
			if res := g.Shell("grep CapBnd /proc/self/status /proc/1/status"); strings.Count(res.Stdout, c.bounded) != 2 {
				t.Errorf("root granted: %t: %+v, want %s", c.root, res, c.bounded)
			}
			if res := g.Shell("echo by name > /dev/stdout"); res.Stdout != "by name\n" {
				t.Errorf("root granted: %t: %+v", c.root, res)
			}
		}
	})
}

// In / itself nothing can be made, by root neither: there is no layer above it.
func TestNothingIsMadeInTheRootItself(t *testing.T) {
	onEngines(t, func(t *testing.T, e *enginetest.Engine) {
		g := granted(t, e, true)
		if res := asRoot(t, g, "echo 1.2.3.4 far >> /etc/hosts; tail -qn 1 /etc/hosts; mkdir /new && echo made"); res.Stdout != "1.2.3.4 far\n" {
			t.Errorf("inside: %+v", res)
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
