package volume_test

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/internal/patience"
	"github.com/skete-dev/skete/internal/scratch"
	"github.com/skete-dev/skete/internal/volume"
)

func fillDisk(t *testing.T, dir string, leave int64) (filler string) {
	t.Helper()
	var st unix.Statfs_t
	must(t, unix.Statfs(dir, &st))
	filler = filepath.Join(dir, "filler")
	must(t, os.WriteFile(filler, make([]byte, max(int64(st.Bavail)*st.Bsize-leave, 0)), 0o600))
	return filler
}

// writeUntilRefused writes and syncs files until the file system takes no more.
// It returns what was synced.
func writeUntilRefused(t *testing.T, dir string) (kept map[string][]byte) {
	t.Helper()
	kept = map[string][]byte{}
	for n := range 4096 {
		name, data := fmt.Sprintf("f%d", n), bytes.Repeat([]byte{byte(n), byte(n >> 8), 1}, 40<<10)
		f, err := os.Create(filepath.Join(dir, name))
		if err == nil {
			_, err = f.Write(data)
			err = errors.Join(err, f.Sync(), f.Close())
		}
		if err == nil {
			kept[name] = data
		} else if errors.Is(err, unix.EROFS) {
			return kept
		}
	}
	t.Fatal("the file system never became read-only")
	return nil
}

// A workspace whose image found no room on the host turns read-only. Once there
// is room, the next Attach makes it writable, with all that was synced.
func TestAttach_mendsWhatAFullHostMadeReadOnly(t *testing.T) {
	disk := scratch.Disk(t, 96)
	s, err := volume.Open(filepath.Join(disk, "volumes"))
	must(t, err)
	v, err := s.Create(t.Context(), "v", 64<<20)
	must(t, err)
	t.Cleanup(func() { must(t, s.Remove(t.Context(), "v")) })
	if v.Method != volume.MethodImage {
		t.Skip("no images here")
	}
	filler := fillDisk(t, disk, 8<<20)
	kept := writeUntilRefused(t, v.Path)
	if why := s.Broken("v"); !errs.Is(why, errs.Unavailable) {
		t.Errorf("a file system that went read-only: %v", why)
	}
	for range 2 { // as a server that starts, and one more
		_, err = s.Attach(t.Context(), "v")
		if !errs.Is(err, errs.Unavailable) || !strings.Contains(errs.Public(err), "full") || strings.Contains(errs.Public(err), disk) {
			t.Fatalf("attach on a full disk: %v (%q)", err, errs.Public(err))
		}
	}
	must(t, os.Remove(filler))
	patience.Try(t, time.Minute, "the volume is attached", func() error {
		v, err = s.Attach(t.Context(), "v") // a mount namespace that another test has made may hold it
		return err
	})
	must(t, os.WriteFile(filepath.Join(v.Path, "after"), []byte("x"), 0o600))
	for name, want := range kept {
		if got, err := os.ReadFile(filepath.Join(v.Path, name)); err != nil || !bytes.Equal(got, want) {
			t.Errorf("%s was synced: %d bytes, %v", name, len(got), err)
		}
	}
	if why := s.Broken("v"); why != nil {
		t.Error(why)
	}
	t.Logf("%d files were synced before it was full", len(kept))
}

// A file system that the kernel has given up, and that something still holds, can
// be neither used nor checked: Attach says what it is, and not only that it failed.
func TestAttach_saysThatAWorkspaceTakesNoWrites(t *testing.T) {
	s, err := volume.Open(filepath.Join(t.TempDir(), "volumes"))
	must(t, err)
	v, err := s.Create(t.Context(), "v", 16<<20)
	must(t, err)
	t.Cleanup(func() { must(t, s.Remove(t.Context(), "v")) })
	if v.Method != volume.MethodImage {
		t.Skip("no images here")
	}
	held, err := os.Open(v.Path)
	must(t, err)
	defer held.Close()
	const goingDown, withoutFlush = 0x8004587d, 2 // EXT4_IOC_SHUTDOWN
	must(t, unix.IoctlSetPointerInt(int(held.Fd()), goingDown, withoutFlush))
	must(t, s.Detach(t.Context(), "v"))
	_, err = s.Attach(t.Context(), "v")
	if !errs.Is(err, errs.Unavailable) || !strings.Contains(errs.Public(err), "takes no writes") || errs.Hint(err) == "" {
		t.Errorf("%v (%q, %q)", err, errs.Public(err), errs.Hint(err))
	}
}

// A file system that the kernel made read-only, and that something still holds,
// is not handed out as one that can be written; it is once it was let go of.
func TestAttach_heldAndReadOnly(t *testing.T) {
	s, err := volume.Open(filepath.Join(t.TempDir(), "volumes"))
	must(t, err)
	v, err := s.Create(t.Context(), "v", 16<<20)
	must(t, err)
	t.Cleanup(func() { must(t, s.Remove(t.Context(), "v")) })
	if v.Method != volume.MethodImage {
		t.Skip("no images here")
	}
	var st unix.Stat_t
	must(t, unix.Stat(v.Path, &st))
	loop := fmt.Sprintf("loop%d", unix.Minor(st.Dev))
	if err := os.WriteFile("/sys/fs/ext4/"+loop+"/trigger_fs_error", []byte("a test"), 0); err != nil {
		t.Skip("this kernel makes no errors for tests: ", err)
	}
	held, err := os.Open(v.Path)
	must(t, err)
	defer held.Close()
	must(t, s.Detach(t.Context(), "v"))
	for range 2 {
		if _, err = s.Attach(t.Context(), "v"); !errs.Is(err, errs.Unavailable) || errs.Hint(err) == "" {
			t.Fatalf("%v (%q, %q)", err, errs.Public(err), errs.Hint(err))
		}
	}
	must(t, held.Close())
	patience.Try(t, time.Minute, "the volume is attached", func() error {
		v, err = s.Attach(t.Context(), "v")
		return err
	})
	must(t, os.WriteFile(filepath.Join(v.Path, "after"), []byte("x"), 0o600))
}
