package gvisor

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/skete-dev/skete/internal/guesttest"
	"github.com/skete-dev/skete/sandbox"
	"github.com/skete-dev/skete/sandbox/sandboxtest"
)

// installed copies the slim program to where a server of some version keeps it.
func installed(t *testing.T, dir, version string) string {
	t.Helper()
	path := filepath.Join(dir, "skete-runsc-"+version)
	copyFile(t, slim(t), path)
	return path
}

// An upgrade of the server, from and to every variant: the machine runs on,
// and the next server can do with it what it likes.
func TestMachinesOutliveTheirProgram(t *testing.T) {
	skipUnlessItBoots(t)
	rootfs, guest := sandboxtest.Rootfs(t), guesttest.Binary(t)
	for name, c := range map[string]struct {
		own, ownThen, lost bool
	}{
		"skete itself and then a program": {own: false, ownThen: true},
		"a program and then skete itself": {own: true, ownThen: false},
		"a program and then its next":     {own: true, ownThen: true},
		"its program was removed":         {own: true, ownThen: true, lost: true},
	} {
		t.Run(name, func(t *testing.T) {
			dir, programs := t.TempDir(), t.TempDir()
			var from, to string
			if c.own {
				from = installed(t, programs, "old")
			}
			b := bootOf(t, rootfs)
			b.Guest = guest
			p := openWith(t, Config{Dir: dir, Runsc: from})
			m := create(t, p, b)
			if exe := programOf(t, dir, b.ID); c.own && exe != from {
				t.Fatalf("the machine is run by %s", exe)
			}
			if err := p.Close(); err != nil {
				t.Fatal(err)
			}
			if c.ownThen {
				to = installed(t, programs, "late")
			}
			if c.lost {
				if err := os.Remove(from); err != nil {
					t.Fatal(err)
				}
			}
			p = openWith(t, Config{Dir: dir, Runsc: to})
			if _, err := os.Stat(from); c.own && !c.lost && err != nil {
				t.Errorf("the program of a machine that runs is gone: %v", err)
			}
			m, err := p.Attach(t.Context(), b.ID)
			if err != nil {
				t.Fatal(err)
			}
			for _, act := range []func() error{
				func() error { return m.Pause(t.Context()) },
				func() error { return m.Resume(t.Context()) },
			} {
				if err := act(); err != nil {
					t.Error(err)
				}
			}
			if res := sandboxtest.NewGuest(t, m).Run("/bin/true"); res.Code != 0 {
				t.Errorf("%+v", res)
			}
			ref := recordOf(t, dir, b.ID).Sentry
			if err := p.Destroy(t.Context(), b.ID); err != nil || ref.Alive() {
				t.Errorf("destroyed: %v; alive: %t", err, ref.Alive())
			}
		})
	}
}

// programOf is what the kernel says that the sentry runs.
func programOf(t *testing.T, dir string, id sandbox.ID) string {
	t.Helper()
	rec := recordOf(t, dir, id)
	if rec.Program == "" {
		t.Error("the record does not name the program")
	}
	path, err := os.Readlink(filepath.Join("/proc", strconv.Itoa(rec.Sentry.PID), "exe"))
	if err != nil {
		t.Fatal(err)
	}
	return path
}

func TestProgramsThatNoMachineRunsAreRemoved(t *testing.T) {
	dir, programs := t.TempDir(), t.TempDir()
	old, used, now := installed(t, programs, "old"), installed(t, programs, "used"), installed(t, programs, "now")
	p := openWith(t, Config{Dir: dir, Runsc: used})
	id := sandbox.NewID()
	if err := os.Mkdir(p.dir(id), 0o700); err != nil {
		t.Fatal(err)
	}
	copyFile(t, slim(t), old) // it went when used was the newest
	if err := writeRecord(p.dir(id), record{Program: used}); err != nil {
		t.Fatal(err)
	}
	copyFile(t, slim(t), now)
	openWith(t, Config{Dir: dir, Runsc: now})
	left, _ := filepath.Glob(filepath.Join(programs, "*"))
	if len(left) != 2 || left[0] != now || left[1] != used {
		t.Errorf("left: %v", left)
	}
}

// Where the program for gVisor alone is kept from running, skete plays its part.
func TestProbeFallsBackToSketeItself(t *testing.T) {
	skipUnlessItBoots(t)
	broken := sandboxtest.Build(t, "github.com/skete-dev/skete/sandbox/sandboxtest/internal/oddguest")
	p := openWith(t, Config{Dir: t.TempDir(), Runsc: broken})
	if path, own := p.Program(); path != broken || !own {
		t.Fatalf("%s, %t", path, own)
	}
	if err := p.Probe(t.Context()); err != nil {
		t.Fatal(err)
	}
	if path, own := p.Program(); own || !strings.HasSuffix(path, "runsctest") {
		t.Errorf("%s, %t", path, own)
	}
	ids, err := p.List(t.Context())
	if err != nil || len(ids) != 0 {
		t.Errorf("left by the probe: %v, %v", ids, err)
	}
}
