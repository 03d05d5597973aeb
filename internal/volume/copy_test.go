package volume_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/skete-dev/skete/errs"
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
