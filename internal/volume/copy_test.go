package volume_test

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/internal/patience"
	"github.com/skete-dev/skete/internal/volume"
)

// A copy of a mounted volume is what it held at that moment, whole, and goes
// its own way; the image itself can be handed out too.
func TestVolume_copies(t *testing.T) {
	s, _ := open(t)
	for _, form := range []string{"image", "directory"} {
		if form == "directory" {
			volume.WithoutImages(s)
		} else {
			needImages(t, s)
		}
		a, err := s.Create(t.Context(), "a-"+form, 16<<20)
		must(t, err)
		must(t, os.WriteFile(filepath.Join(a.Path, "f"), []byte("one"), 0o640))
		must(t, s.Copy(t.Context(), "a-"+form, "b-"+form))
		must(t, os.WriteFile(filepath.Join(a.Path, "f"), []byte("two"), 0o640))
		b, err := s.Attach(t.Context(), "b-"+form)
		must(t, err)
		if got, err := os.ReadFile(filepath.Join(b.Path, "f")); err != nil || string(got) != "one" {
			t.Errorf("%s: the copy holds %q, %v", form, got, err)
		}
		if err := s.Copy(t.Context(), "none", "c"); !errs.Is(err, errs.NotFound) {
			t.Errorf("%s: copy of nothing: %v", form, err)
		}
		disk, err := s.AttachDisk(t.Context(), "b-"+form)
		if form == "directory" {
			if !errs.Is(err, errs.Unsupported) {
				t.Errorf("a directory as a disk: %v", err)
			}
			continue
		}
		must(t, err)
		if _, err := os.Stat(filepath.Join(b.Path, "f")); err == nil {
			t.Error("it is still mounted while a machine has the disk")
		}
		if info, err := os.Stat(disk.Path); err != nil || info.Size() != 16<<20 {
			t.Errorf("the disk: %v, %v", info, err)
		}
	}
	sweep(t, s)
}

// A process that is killed while it copies leaves the volume frozen: who
// writes to it waits, until the next one has attached it; and once that has
// removed it the kernel keeps nothing.
func TestVolume_frozenByAProcessThatDied(t *testing.T) {
	s, dir := open(t)
	needImages(t, s)
	for _, name := range []string{"attached", "detached", "removed"} {
		v, err := s.Create(t.Context(), name, 16<<20)
		must(t, err)
		freeze(t, v.Disk)
		switch name {
		case "attached":
			v, err = s.Attach(t.Context(), name)
			must(t, err)
			wrote := make(chan error, 1)
			go func() { wrote <- os.WriteFile(filepath.Join(v.Path, "f"), []byte("x"), 0o600) }()
			select {
			case err := <-wrote:
				must(t, err)
			case <-time.After(patience.Of(10 * time.Second)):
				t.Fatal("who writes still waits")
			}
		case "detached":
			must(t, s.Detach(t.Context(), name))
		}
		must(t, s.Remove(t.Context(), name))
	}
	noLeftovers(t, dir)
}

func freeze(t *testing.T, dir string) {
	t.Helper()
	const fifreeze = 0xc0045877
	fd, err := unix.Open(dir, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	must(t, err)
	must(t, unix.IoctlSetInt(fd, fifreeze, 0))
	must(t, unix.Close(fd))
}
