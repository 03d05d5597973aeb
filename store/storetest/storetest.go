// Package storetest opens stores, disks and servers for tests.
package storetest

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"golang.org/x/sys/unix"

	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/store"
)

// Open opens a store, in a directory of its own unless c names one, and closes
// it with the test.
func Open(t testing.TB, c store.Config) *store.Store {
	t.Helper()
	if c.Dir == "" {
		c.Dir = t.TempDir()
	}
	s, err := store.Open(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

// WantClass compares the class of an error.
func WantClass(t testing.TB, what string, err error, want errs.Class) {
	t.Helper()
	if errs.Of(err) != want {
		t.Errorf("%s: %v (class %q), want class %q", what, err, errs.Of(err), want)
	}
}

// Eventually tries until it works; the test's own deadline bounds it.
func Eventually(t testing.TB, what string, try func() error) {
	t.Helper()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	deadline := time.After(30 * time.Second)
	for {
		err := try()
		if err == nil {
			return
		}
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatalf("%s: %v", what, err)
		}
	}
}

// SmallDisk mounts an ext4 file system of the size, or skips.
func SmallDisk(t testing.TB, mb int64) string {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("only root can mount a small disk to fill")
	}
	mkfs, err := exec.LookPath("mkfs.ext4")
	if err != nil {
		t.Skip("no mkfs.ext4 on this host")
	}
	image, dir := filepath.Join(t.TempDir(), "disk"), t.TempDir()
	if err := os.WriteFile(image, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(image, mb<<20); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command(mkfs, "-q", "-m", "0", image).CombinedOutput(); err != nil {
		t.Fatalf("mkfs: %v\n%s", err, out)
	}
	if out, err := exec.Command("mount", "-o", "loop", image, dir).CombinedOutput(); err != nil {
		t.Skipf("this host mounts no loop device: %v %s", err, out)
	}
	t.Cleanup(func() {
		if out, err := exec.Command("umount", dir).CombinedOutput(); err != nil {
			t.Errorf("umount: %v\n%s", err, out)
		}
	})
	return dir
}

// Fill writes a file until only the given number of MB is free.
func Fill(t testing.TB, dir string, leaveMB int64) (file string) {
	t.Helper()
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		t.Fatal(err)
	}
	free := int64(st.Bavail) * st.Bsize
	file = filepath.Join(dir, "filler")
	if err := os.WriteFile(file, make([]byte, max(free-leaveMB<<20, 0)), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// External runs a NATS server as an operator would.
func External(t testing.TB) (url string, stop func()) {
	t.Helper()
	s, err := server.NewServer(&server.Options{
		Host: "127.0.0.1", Port: -1, JetStream: true, StoreDir: t.TempDir(), NoLog: true, NoSigs: true, SyncAlways: true,
		Username: "skete", Password: "hunter2",
	})
	if err != nil {
		t.Fatal(err)
	}
	s.Start()
	stop = func() { s.Shutdown(); s.WaitForShutdown() }
	t.Cleanup(stop)
	if !s.ReadyForConnections(10 * time.Second) {
		t.Fatal("the server did not start")
	}
	return fmt.Sprintf("nats://skete:hunter2@%s", s.Addr()), stop
}
