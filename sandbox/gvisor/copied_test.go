package gvisor

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/internal/guesttest"
	"github.com/skete-dev/skete/sandbox/sandboxtest"
)

// A server on a copy of a data directory whose machines run does not wait for
// them, and does nothing to them.
func TestCopiedDirectory_leavesTheMachinesOfTheOriginal(t *testing.T) {
	skipUnlessItBoots(t)
	dir := t.TempDir()
	p := open(t, dir)
	b := bootOf(t, sandboxtest.Rootfs(t))
	b.Guest = guesttest.Binary(t)
	m := create(t, p, b)
	copied := filepath.Join(t.TempDir(), "copy")
	// Not all of it can be copied: a namespace that is mounted.
	out, err := exec.CommandContext(t.Context(), "cp", "-a", dir, copied).CombinedOutput()
	if _, rerr := readRecord(filepath.Join(copied, "machines", string(b.ID))); rerr != nil {
		t.Fatalf("%s, %v, %v", out, err, rerr)
	}
	other := open(t, copied)
	began := time.Now()
	if _, err := other.Attach(t.Context(), b.ID); !errs.Is(err, errs.NotFound) {
		t.Errorf("attach to another's machine: %v", err)
	}
	t.Logf("known after %s", time.Since(began))
	for range 2 { // the second one finds nothing
		if err := other.Destroy(t.Context(), b.ID); err != nil {
			t.Error(err)
		}
	}
	if ids, err := other.List(t.Context()); err != nil || len(ids) != 0 {
		t.Errorf("left in the copy: %v, %v", ids, err)
	}
	if res := sandboxtest.NewGuest(t, m).Run("/bin/echo", "alive"); res.Stdout != "alive\n" {
		t.Errorf("the original's machine: %+v", res)
	}
}

// What the probe of a server that was killed has left goes with a later probe;
// that of one that lives stays.
func TestProbe_sweepsWhatKilledOnesLeft(t *testing.T) {
	dir := t.TempDir()
	p := open(t, dir)
	old, young := filepath.Join(dir, "probe-1"), filepath.Join(dir, "probe-2")
	for _, d := range []string{old, young} {
		if err := os.MkdirAll(filepath.Join(d, "root", "proc"), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	past := time.Now().Add(-2 * probeAge)
	if err := os.Chtimes(old, past, past); err != nil {
		t.Fatal(err)
	}
	p.sweepProbes()
	if _, err := os.Stat(old); !os.IsNotExist(err) {
		t.Errorf("the old one: %v", err)
	}
	if _, err := os.Stat(young); err != nil {
		t.Errorf("the young one: %v", err)
	}
}
