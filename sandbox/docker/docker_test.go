package docker

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"github.com/skete-dev/skete/internal/guesttest"
	"github.com/skete-dev/skete/internal/patience"
	"github.com/skete-dev/skete/sandbox"
	"github.com/skete-dev/skete/sandbox/docker/engine"
	"github.com/skete-dev/skete/sandbox/docker/enginetest"
	"github.com/skete-dev/skete/sandbox/sandboxtest"
	"github.com/skete-dev/skete/template"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// onEngines runs the test on each engine that can be had here.
func onEngines(t *testing.T, test func(t *testing.T, e *enginetest.Engine)) {
	t.Helper()
	if testing.Short() {
		t.Skip("starts container engines")
	}
	for _, kind := range enginetest.Kinds {
		t.Run(string(kind), func(t *testing.T) { test(t, enginetest.Start(t, kind)) })
	}
}

func open(t testing.TB, e *enginetest.Engine, dir string) *Provider {
	t.Helper()
	p, err := New(Config{Dir: dir, Host: e.Host, Guest: guesttest.Binary(t), Serve: sandboxtest.ServeGuest})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.Close() })
	return p
}

func TestProvider(t *testing.T) {
	onEngines(t, func(t *testing.T, e *enginetest.Engine) {
		sandboxtest.Run(t, func(t *testing.T) sandboxtest.Fixture {
			dir := t.TempDir()
			return sandboxtest.Fixture{
				Dir:     dir,
				New:     func(t testing.TB) sandbox.Provider { return open(t, e, dir) },
				Rootfs:  sandboxtest.Rootfs(t),
				Volume:  sandboxtest.TmpfsVolume,
				HostPID: func(t testing.TB, id sandbox.ID) int { return inspect(t, open(t, e, dir), id).State.Pid },
			}
		})
	})
}

func inspect(t testing.TB, p *Provider, id sandbox.ID) engine.Details {
	t.Helper()
	d, err := p.engine.Inspect(t.Context(), p.container(id))
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func TestProbe(t *testing.T) {
	onEngines(t, func(t *testing.T, e *enginetest.Engine) {
		p := open(t, e, t.TempDir())
		if err := p.Probe(t.Context()); err != nil {
			t.Fatal(err)
		}
		ids, err := p.List(t.Context())
		if err != nil || len(ids) != 0 {
			t.Errorf("left by the probe: %v, %v", ids, err)
		}
	})
}

// bootOf describes a new machine.
func bootOf(t testing.TB, rootfs template.Rootfs) sandbox.Boot {
	t.Helper()
	ws := filepath.Join(t.TempDir(), "workspace")
	if err := os.Mkdir(ws, 0o755); err != nil {
		t.Fatal(err)
	}
	return sandbox.Boot{
		ID: sandbox.NewID(), Rootfs: rootfs, Workspace: ws, Guest: guesttest.Binary(t),
		Spec: sandbox.Spec{MemoryMB: 512, DiskMB: 256, CPUs: 2, PidsMax: 256, Workdir: sandbox.WorkspaceDir},
	}
}

func create(t testing.TB, p *Provider, b sandbox.Boot) sandbox.Machine {
	t.Helper()
	ctx, cancel := patience.Context(t.Context(), 90*time.Second)
	defer cancel()
	m, err := p.Create(ctx, b)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.Destroy(context.Background(), b.ID); err != nil {
			t.Error(err)
		}
	})
	return m
}

// Without root a server cannot mount: the engine is given the template as an
// image, once, owners and modes kept, and keeps what is written.
func TestTemplateAsImage(t *testing.T) {
	onEngines(t, func(t *testing.T, e *enginetest.Engine) {
		p := open(t, e, t.TempDir())
		p.roots.layered = false
		rootfs := sandboxtest.Rootfs(t)
		rootfs.Name = t.Name()
		in := func(name string) string { return filepath.Join(rootfs.Dir, name) }
		err := errors.Join(
			os.WriteFile(in("etc/a"), []byte("text"), 0o640),
			os.Chown(in("etc/a"), 33, 44),
			os.Link(in("etc/a"), in("etc/b")),
			os.Symlink("a", in("etc/c")),
			unix.Setxattr(in("etc/a"), "user.colour", []byte("green"), 0),
			unix.Mkfifo(in("etc/fifo"), 0o600),
		)
		if err != nil {
			t.Fatal(err)
		}
		for range 2 {
			b := bootOf(t, rootfs)
			b.Spec.Root = true
			m := create(t, p, b)
			g := sandboxtest.NewGuest(t, m)
			res := asRoot(t, g, "cd /etc; stat -c '%u %g %a %h %F' a; readlink c; stat -c %F fifo; cat b; stat -c ' %u %a' /home/user /tmp; touch /made && ls -d /.skete-state")
			want := "33 44 640 2 regular file\na\nfifo\ntext 1000 755\n 0 1777\n/.skete-state\n"
			if res.Stdout != want {
				t.Errorf("inside: %+v\nwant %q", res, want)
			}
			if err := m.Destroy(t.Context()); err != nil {
				t.Error(err)
			}
		}
		if _, images := ours(t, p); len(images) != 1 {
			t.Errorf("images: %v", images)
		}
	})
}
