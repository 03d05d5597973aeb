// Package storetest opens stores, disks and servers for tests.
package storetest

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"golang.org/x/sys/unix"

	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/internal/patience"
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
	patience.Try(t, 30*time.Second, what, try)
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
	err := os.WriteFile(file, make([]byte, max(free-leaveMB<<20, 0)), 0o600)
	if err != nil && !(leaveMB == 0 && errors.Is(err, unix.ENOSPC)) {
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
