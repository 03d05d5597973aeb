package workspace

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/internal/scratch"
)

// A check on a full disk says that, and leaves nothing.
func TestRunning_onAFullDisk(t *testing.T) {
	disk := scratch.Disk(t, 8)
	dir, beside := filepath.Join(disk, "history"), filepath.Join(disk, "beside")
	if err := os.MkdirAll(filepath.Join(dir, "objects"), 0o700); err != nil {
		t.Fatal(err)
	}
	fill, err := os.Create(filepath.Join(disk, "fill"))
	if err != nil {
		t.Fatal(err)
	}
	for block := make([]byte, 4<<10); err == nil; {
		_, err = fill.Write(block)
	}
	fill.Close()
	_, err = checkRunning(t.Context(), dir, beside)
	if !errs.Is(err, errs.Unavailable) || !strings.Contains(errs.Public(err), "the server's disk is full") || strings.Contains(errs.Public(err), disk) {
		t.Errorf("%v (%q)", err, errs.Public(err))
	}
	if _, err := os.Lstat(beside); !os.IsNotExist(err) {
		t.Errorf("what it made: %v", err)
	}
	if err := os.Remove(fill.Name()); err != nil {
		t.Fatal(err)
	}
	if _, err := checkRunning(t.Context(), dir, beside); err != nil {
		t.Errorf("with room again: %v", err)
	}
}
