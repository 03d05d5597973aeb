package docker

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/internal/patience"
	"github.com/skete-dev/skete/sandbox"
	"github.com/skete-dev/skete/sandbox/docker/engine"
	"github.com/skete-dev/skete/sandbox/docker/enginetest"
	"github.com/skete-dev/skete/sandbox/sandboxtest"
)

// odd is a guest that misbehaves as it is told, and starts faster.
func odd(t testing.TB, b *sandbox.Boot, mode string) {
	t.Helper()
	b.Guest = sandboxtest.Build(t, "github.com/skete-dev/skete/sandbox/sandboxtest/internal/oddguest")
	b.Spec.Env = map[string]string{"ODD": mode}
}

func exitOfMachine(t *testing.T, m sandbox.Machine) sandbox.Exit {
	t.Helper()
	ctx, cancel := patience.Context(t.Context(), 60*time.Second)
	defer cancel()
	exit, err := m.Wait(ctx)
	if err != nil {
		t.Fatal(err)
	}
	return exit
}

// ours is what the engine has of this provider.
func ours(t *testing.T, p *Provider) (containers []engine.Listed, images []engine.Image) {
	t.Helper()
	containers, err := p.engine.List(t.Context(), labelServer+"="+p.server)
	if err != nil {
		t.Fatal(err)
	}
	if images, err = p.engine.Images(t.Context(), labelServer+"="+p.server); err != nil {
		t.Fatal(err)
	}
	return containers, images
}

// The engine dies while a machine is being made, sooner or later: Create
// fails, or the machine is there when the engine is back. Either way Destroy
// leaves nothing.
func TestEngineKilledDuringCreate(t *testing.T) {
	onEngines(t, func(t *testing.T, e *enginetest.Engine) {
		p := open(t, e, t.TempDir())
		rootfs := sandboxtest.Rootfs(t)
		first := bootOf(t, rootfs) // brings the image, so that what is killed is a create
		odd(t, &first, "hello")
		if err := create(t, p, first).Destroy(t.Context()); err != nil {
			t.Fatal(err)
		}
		for _, after := range []time.Duration{10, 40, 80, 130, 200} {
			after *= time.Millisecond
			b := bootOf(t, rootfs)
			done := make(chan error, 1)
			go func() {
				ctx, cancel := patience.Context(context.Background(), 10*time.Second)
				defer cancel()
				_, err := p.Create(ctx, b)
				done <- err
			}()
			<-time.After(after)
			e.Kill()
			err := <-done
			t.Logf("killed after %v: %v", after, err)
			if err != nil && !errs.Is(err, errs.Unavailable) {
				t.Errorf("killed after %v: class %s: %v", after, errs.Of(err), err)
			}
			if err := p.Destroy(t.Context(), b.ID); !errs.Is(err, errs.Unavailable) {
				t.Errorf("destroy without an engine: %v", err)
			}
			if ids, err := p.List(t.Context()); err == nil {
				t.Errorf("List without an engine: %v", ids)
			}
			e.Up()
			if ids, err := p.List(t.Context()); err != nil || !slices.Contains(ids, b.ID) {
				t.Errorf("List with the engine back: %v, %v", ids, err)
			}
			if err := p.Destroy(t.Context(), b.ID); err != nil {
				t.Errorf("killed after %v: destroy: %v", after, err)
			}
			if e.EndOrphans(string(b.ID)) {
				t.Logf("killed after %v: the engine left a monitor of its own behind", after)
			}
			sandboxtest.Leaks(t, p.c.Dir, b.ID)
			if containers, _ := ours(t, p); len(containers) > 0 {
				t.Errorf("killed after %v: left: %v", after, containers)
			}
		}
	})
}

// A restart of the engine: Podman's containers live on, Docker's end with an
// engine that stops in good order. Wait tells which, and never that a machine ended
// that has not.
func TestEngineRestarts(t *testing.T) {
	onEngines(t, func(t *testing.T, e *enginetest.Engine) {
		p := open(t, e, t.TempDir())
		m := create(t, p, bootOf(t, sandboxtest.Rootfs(t)))
		e.Stop()
		e.Up()
		d := inspect(t, p, m.ID())
		if !d.State.Running {
			if exit := exitOfMachine(t, m); exit.Reason != sandbox.ReasonKilled && exit.Reason != sandbox.ReasonExited {
				t.Errorf("exit = %+v", exit)
			}
			return
		}
		if res := sandboxtest.NewGuest(t, m).Run("/bin/echo", "alive"); res.Stdout != "alive\n" {
			t.Errorf("%+v", res)
		}
		if err := unix.Kill(d.State.Pid, unix.SIGKILL); err != nil {
			t.Fatal(err)
		}
		if exit := exitOfMachine(t, m); exit.Reason != sandbox.ReasonKilled {
			t.Errorf("exit = %+v, want killed", exit)
		}
	})
}

func TestContainerRemovedBehindOurBack(t *testing.T) {
	onEngines(t, func(t *testing.T, e *enginetest.Engine) {
		p := open(t, e, t.TempDir())
		b := bootOf(t, sandboxtest.Rootfs(t))
		odd(t, &b, "hello")
		m := create(t, p, b)
		if err := p.engine.Remove(t.Context(), p.container(b.ID)); err != nil {
			t.Fatal(err)
		}
		if exit := exitOfMachine(t, m); exit.Reason != sandbox.ReasonKilled {
			t.Errorf("exit = %+v, want killed", exit)
		}
		if _, err := p.Attach(t.Context(), b.ID); !errs.Is(err, errs.NotFound) {
			t.Errorf("attach: %v", err)
		}
		if ids, err := p.List(t.Context()); err != nil || !slices.Equal(ids, []sandbox.ID{b.ID}) {
			t.Errorf("List = %v, %v", ids, err)
		}
		if err := p.Destroy(t.Context(), b.ID); err != nil {
			t.Error(err)
		}
		sandboxtest.Leaks(t, p.c.Dir, b.ID)
	})
}

// An operator prunes images between two machines.
func TestImageRemovedBehindOurBack(t *testing.T) {
	onEngines(t, func(t *testing.T, e *enginetest.Engine) {
		p := open(t, e, t.TempDir())
		for range 2 {
			b := bootOf(t, sandboxtest.Rootfs(t))
			odd(t, &b, "hello")
			if err := create(t, p, b).Destroy(t.Context()); err != nil {
				t.Fatal(err)
			}
			_, images := ours(t, p)
			for _, i := range images {
				if err := p.engine.RemoveImage(t.Context(), i.ID); err != nil {
					t.Fatal(err)
				}
			}
			if len(images) != 1 {
				t.Errorf("images: %v", images)
			}
		}
	})
}

// Whatever single trace a dead server left is listed and removed, also when
// its directory is lost. Another server's machines are not touched.
func TestLeftoversOfADeadServer(t *testing.T) {
	onEngines(t, func(t *testing.T, e *enginetest.Engine) {
		p, other := open(t, e, t.TempDir()), open(t, e, t.TempDir())
		rootfs := sandboxtest.Rootfs(t)
		theirs := bootOf(t, rootfs)
		odd(t, &theirs, "hello")
		create(t, other, theirs)
		made := func(start bool) func(sandbox.ID) error {
			return func(id sandbox.ID) error {
				b := bootOf(t, rootfs)
				b.ID = id
				odd(t, &b, "absent")
				if err := os.MkdirAll(p.bootDir(id), 0o700); err != nil {
					return err
				}
				if err := place(b.Guest, filepath.Join(p.bootDir(id), "guest")); err != nil {
					return err
				}
				root, err := p.roots.make(t.Context(), b)
				if err != nil {
					return err
				}
				spec := plan{boot: b, labels: p.labels(id), bootDir: p.bootDir(id), root: root, most: ownMost()}.spec()
				c, err := p.engine.Create(t.Context(), p.container(id), spec)
				if err == nil && start {
					err = p.engine.Start(t.Context(), c)
				}
				return err
			}
		}
		for name, leave := range map[string]func(id sandbox.ID) error{
			"directory": func(id sandbox.ID) error { return os.Mkdir(p.dir(id), 0o700) },
			"volume": func(id sandbox.ID) error {
				_, err := p.roots.scratch.Create(t.Context(), string(id), 16<<20)
				return err
			},
			"state": func(id sandbox.ID) error {
				_, err := p.roots.scratch.Create(t.Context(), stateOf(id), 16<<20)
				return err
			},
			"root": func(id sandbox.ID) error {
				b := bootOf(t, rootfs)
				b.ID = id
				if err := os.Mkdir(p.dir(id), 0o700); err != nil {
					return err
				}
				_, err := p.roots.make(t.Context(), b)
				return err
			},
			"container that was never started": made(false),
			"container that runs":              made(true),
			"container without a directory": func(id sandbox.ID) error {
				if err := made(false)(id); err != nil {
					return err
				}
				if err := p.roots.remove(t.Context(), id); err != nil {
					return err
				}
				return os.RemoveAll(p.dir(id))
			},
		} {
			id := sandbox.NewID()
			if err := leave(id); err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			if ids, err := p.List(t.Context()); err != nil || !slices.Equal(ids, []sandbox.ID{id}) {
				t.Errorf("%s: List = %v, %v", name, ids, err)
			}
			for range 2 {
				if err := p.Destroy(context.Background(), id); err != nil {
					t.Errorf("%s: %v", name, err)
				}
			}
			if ids, err := p.List(t.Context()); err != nil || len(ids) != 0 {
				t.Errorf("%s: still listed: %v, %v", name, ids, err)
			}
			sandboxtest.Leaks(t, p.c.Dir, id)
		}
		if ids, err := other.List(t.Context()); err != nil || !slices.Equal(ids, []sandbox.ID{theirs.ID}) {
			t.Errorf("the other server has %v, %v", ids, err)
		}
	})
}

// hostState is what a leak would add to.
func hostState(t *testing.T, e *enginetest.Engine) map[string]int {
	t.Helper()
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		t.Fatal(err)
	}
	groups, _ := filepath.Glob("/sys/fs/cgroup/*/" + filepath.Base(filepath.Dir(strings.TrimPrefix(e.Host, "unix://"))) + "/*")
	conmon, _ := filepath.Glob("/sys/fs/cgroup/*/libpod_parent/*")
	loops, _ := filepath.Glob("/sys/block/loop*/loop/backing_file")
	n := 0
	for _, l := range loops {
		if data, _ := os.ReadFile(l); strings.Contains(string(data), "docker") { // this test's, by its name
			n++
		}
	}
	return map[string]int{"mounts": strings.Count(string(mounts), "docker"), "groups": len(groups) + len(conmon), "loop devices": n}
}

func TestFiftyCyclesLeaveNothing(t *testing.T) {
	onEngines(t, func(t *testing.T, e *enginetest.Engine) {
		p := open(t, e, filepath.Join(t.TempDir(), "docker"))
		rootfs := sandboxtest.Rootfs(t)
		cycle := func() sandbox.ID {
			b := bootOf(t, rootfs)
			odd(t, &b, "hello")
			m, err := p.Create(t.Context(), b)
			if err != nil {
				t.Fatal(err)
			}
			if err := m.Destroy(t.Context()); err != nil {
				t.Fatal(err)
			}
			return b.ID
		}
		cycle()
		before := hostState(t, e)
		var ids []sandbox.ID
		for range 50 {
			ids = append(ids, cycle())
		}
		sandboxtest.Leaks(t, p.c.Dir, ids...)
		if after := hostState(t, e); fmt.Sprint(before) != fmt.Sprint(after) {
			t.Errorf("before: %v\nafter: %v", before, after)
		}
		containers, images := ours(t, p)
		if len(containers) != 0 || len(images) != 1 {
			t.Errorf("in the engine: %v, %v", containers, images)
		}
		if err := p.Close(); err != nil {
			t.Error(err)
		}
		if _, images := ours(t, p); len(images) != 0 {
			t.Errorf("after Close: %v", images)
		}
	})
}
