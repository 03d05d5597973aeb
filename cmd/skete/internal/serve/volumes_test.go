package serve

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/internal/patience"
	"github.com/skete-dev/skete/internal/scratch"
	"github.com/skete-dev/skete/internal/volume"
	"github.com/skete-dev/skete/sandbox/quota"
)

// fillDisk leaves so many bytes of a disk until the returned function is called.
func fillDisk(t *testing.T, dir string, leave int64) (empty func()) {
	t.Helper()
	_, free, err := volume.Space(dir)
	must(t, err)
	filler := filepath.Join(dir, "filler")
	must(t, os.WriteFile(filler, make([]byte, free-leave), 0o600))
	return func() { must(t, os.Remove(filler)) }
}

// Workspaces on a disk of their own: each disk keeps its reserve, messages name the
// one that is full, histories need room on the data directory's alone, and how large
// a workspace may be is a matter of the workspaces' disk.
func TestHost_workspacesOnAnotherDisk(t *testing.T) {
	home, other := scratch.Disk(t, 64), scratch.Disk(t, 128)
	disks, err := volume.Open(filepath.Join(other, "volumes"))
	must(t, err)
	r := &running{c: Config{Home: home}}
	r.c.ReserveMB = 8
	all, data, err := r.host(disks)
	must(t, err)
	total, _, err := volume.Space(other)
	must(t, err)
	if got, want := all.MostMB(), int(total>>20)-2*r.c.ReserveMB; got != want {
		t.Errorf("a workspace has at most %d MB, want %d", got, want)
	}
	const mb = 1 << 20
	tests := []struct {
		name      string
		dir       string
		leave     int64
		full      string // what begins nothing new says; "" = something does
		goOn      bool
		histories bool
		marks     quota.Marks
	}{
		{"the data directory is nearly full", home, 14 * mb, "its data directory has", true, true, quota.Marks{}},
		{"the data directory is full", home, 4 * mb, "its data directory has", false, false, quota.Marks{Rest: quota.Touched}},
		{"the workspaces' disk is nearly full", other, 14 * mb, "its disk of workspaces has", true, true, quota.Marks{}},
		{"the workspaces' disk is full", other, 4 * mb, "its disk of workspaces has", false, true, quota.Marks{Workspaces: quota.Touched}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			empty := fillDisk(t, tt.dir, tt.leave)
			eventually(t, "it is noticed", func() bool { return all.Begin() != nil })
			if err := all.Begin(); !errs.Is(err, errs.Unavailable) || !strings.Contains(errs.Public(err), tt.full) {
				t.Errorf("something new: %v", err)
			}
			if marks, _ := all.Look(); marks != tt.marks || (all.GoOn() == nil) != tt.goOn {
				t.Errorf("marks %+v, go on: %v", marks, all.GoOn())
			}
			eventually(t, "histories know", func() bool { return (data.GoOn() == nil) == tt.histories })
			empty()
			eventually(t, "there is room again", func() bool { return all.Begin() == nil && data.GoOn() == nil })
		})
	}
}

func eventually(t *testing.T, what string, is func() bool) {
	t.Helper()
	patience.Until(t, 20*time.Second, what, is)
}

// What a guest wrote and the host has only in memory is spoken for on the workspaces'
// disk, not on the data directory's.
func TestHost_pendingWritesOfAnotherDisk(t *testing.T) {
	home, other := scratch.Disk(t, 64), scratch.Disk(t, 128)
	disks, err := volume.Open(filepath.Join(other, "volumes"))
	must(t, err)
	if err := disks.Weakness(); err != nil {
		t.Skipf("no images of volumes here: %v", err)
	}
	r := &running{c: Config{Home: home}}
	r.c.ReserveMB = 8
	all, data, err := r.host(disks)
	must(t, err)
	v, err := disks.Create(t.Context(), "sbx_a", 120<<20)
	must(t, err)
	t.Cleanup(func() { must(t, disks.Remove(context.Background(), "sbx_a")) })
	must(t, all.Begin())
	must(t, os.WriteFile(filepath.Join(v.Path, "large"), make([]byte, 100<<20), 0o600))
	eventually(t, "it is noticed", func() bool { return all.Begin() != nil })
	if err := all.Begin(); !strings.Contains(errs.Public(err), "its disk of workspaces has") {
		t.Error(err)
	}
	if err := data.Begin(); err != nil {
		t.Errorf("of the data directory's: %v", err)
	}
}
