package store_test

import (
	"bytes"
	"crypto/rand"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/internal/patience"
	"github.com/skete-dev/skete/internal/scratch"
	"github.com/skete-dev/skete/kv"
	"github.com/skete-dev/skete/kv/kvtest"
	"github.com/skete-dev/skete/store"
	"github.com/skete-dev/skete/store/storetest"
)

func TestDiskFull_isACleanErrorAndLosesNothing(t *testing.T) {
	dir := scratch.Disk(t, 96)
	home := filepath.Join(dir, "home")
	s := open(t, store.Config{Dir: home})
	kv := openKV(t, s, "b")
	acked := map[string]uint64{}
	value := make([]byte, 32<<10)
	_, _ = rand.Read(value)
	put := func(n int) error {
		key := fmt.Sprint(n)
		rev, err := kv.Create(t.Context(), key, value)
		if err == nil {
			acked[key] = rev
		}
		return err
	}
	for n := range 20 {
		if err := put(n); err != nil {
			t.Fatal(err)
		}
	}
	filler := storetest.Fill(t, dir, 4)
	for n := 20; n < 40; n++ {
		wantClass(t, "write on a full disk", put(n), errs.Unavailable)
	}
	wantClass(t, "health on a full disk", s.Healthy(t.Context()), errs.Unavailable)
	// What is there can be changed and removed: that is what the ballast is for.
	rev, err := kv.Update(t.Context(), "1", value, acked["1"])
	if err != nil {
		t.Errorf("update on a full disk: %v", err)
	}
	acked["1"] = rev
	if err := kv.Delete(t.Context(), "2", acked["2"]); err != nil {
		t.Errorf("delete on a full disk: %v", err)
	}
	delete(acked, "2")
	if _, _, err := kv.Get(t.Context(), "3"); err != nil {
		t.Errorf("read on a full disk: %v", err)
	}
	if err := os.Remove(filler); err != nil {
		t.Fatal(err)
	}
	storetest.Eventually(t, "writes go on once there is room", func() error { return put(40) })
	if err := s.Healthy(t.Context()); err != nil {
		t.Errorf("health with room again: %v", err)
	}
	_ = s.Close()
	s = open(t, store.Config{Dir: home})
	kv = openKV(t, s, "b")
	for key, rev := range acked {
		if got, at, err := kv.Get(t.Context(), key); err != nil || at != rev || !bytes.Equal(got, value) {
			t.Errorf("%s: %d bytes at %d, %v; acknowledged at %d", key, len(got), at, err, rev)
		}
	}
	storetest.Eventually(t, "space is kept back again", func() error { return allocated(home) })
	_ = s.Close()
	filler = storetest.Fill(t, dir, 0)
	s = open(t, store.Config{Dir: home})
	wantClass(t, "write after a start on a full disk", s.Healthy(t.Context()), errs.Unavailable)
	kv = openKV(t, s, "b")
	if err := kv.Delete(t.Context(), "3", acked["3"]); err != nil {
		t.Errorf("delete after a start on a full disk: %v", err)
	}
	if err := os.Remove(filler); err != nil {
		t.Fatal(err)
	}
	storetest.Eventually(t, "writes go on once there is room", func() error { return s.Healthy(t.Context()) })
	storetest.Eventually(t, "space is kept back again", func() error { return allocated(home) })
	_ = s.Close()
	if err := os.Remove(filepath.Join(home, "ballast")); err != nil {
		t.Fatal(err)
	}
	storetest.Fill(t, dir, 1)
	_, err = store.Open(t.Context(), store.Config{Dir: home})
	wantClass(t, "open on a full disk with nothing kept back", err, errs.Unavailable)
	if errs.Hint(err) == "" {
		t.Error("no hint what to do")
	}
}

// allocated fails unless the store has its ballast.
func allocated(home string) error {
	var st unix.Stat_t
	if err := unix.Lstat(filepath.Join(home, "ballast"), &st); err != nil {
		return err
	}
	if st.Blocks*512 < 8<<20 {
		return fmt.Errorf("the ballast has %d bytes", st.Blocks*512)
	}
	return nil
}

// A JetStream that met the full disk itself refuses every write until it is opened
// again; the store does that when there is room.
func TestDiskFull_aStoreThatMetItRecovers(t *testing.T) {
	dir := scratch.Disk(t, 96)
	s := open(t, store.Config{Dir: filepath.Join(dir, "home")})
	kv := openKV(t, s, "b")
	value := make([]byte, 60<<10)
	_, _ = rand.Read(value)
	rev, err := kv.Create(t.Context(), "kept", value)
	if err != nil {
		t.Fatal(err)
	}
	store.Unguarded(s, true)
	filler := storetest.Fill(t, dir, 0)
	err = nil
	for n := 0; err == nil && n < 100; n++ {
		_, err = kv.Put(t.Context(), fmt.Sprint(n), value)
	}
	if err == nil {
		t.Fatal("a full disk took everything")
	}
	t.Log(err)
	store.Unguarded(s, false)
	if err := os.Remove(filler); err != nil {
		t.Fatal(err)
	}
	storetest.Eventually(t, "writes go on once there is room", func() error {
		_, err := kv.Put(t.Context(), "after", value)
		return err
	})
	if got, at, err := kv.Get(t.Context(), "kept"); err != nil || at != rev || !bytes.Equal(got, value) {
		t.Errorf("what was acknowledged: %d bytes at %d, %v", len(got), at, err)
	}
	if err := s.Healthy(t.Context()); err != nil {
		t.Error(err)
	}
}

func TestStoreFull_isACleanError(t *testing.T) {
	s := open(t, store.Config{StoreBytesMax: 1 << 20})
	kv := openKV(t, s, "b")
	value := make([]byte, 32<<10)
	_, _ = rand.Read(value)
	var err error
	n := 0
	for ; n < 100 && err == nil; n++ {
		_, err = kv.Create(t.Context(), fmt.Sprint(n), value)
	}
	wantClass(t, "write into a full store", err, errs.Limit)
	if n < 10 {
		t.Errorf("full after %d writes of 32 KB, it may hold 1 MB", n)
	}
	wantClass(t, "health of a full store", s.Healthy(t.Context()), errs.Limit)
	// What changes and removes things must work while the store is full.
	for range 10 {
		_, rev, err := kv.Get(t.Context(), "1")
		if err != nil {
			t.Fatal(err)
		}
		if _, err := kv.Update(t.Context(), "1", value, rev); err != nil {
			t.Fatalf("update in a full store: %v", err)
		}
	}
	_, rev, err := kv.Get(t.Context(), "0")
	if err != nil {
		t.Fatal(err)
	}
	if err := kv.Delete(t.Context(), "0", rev); err != nil {
		t.Errorf("delete in a full store: %v", err)
	}
}

func TestExternal_isTheSame(t *testing.T) {
	url, stop := storetest.External(t)
	s := open(t, store.Config{URL: url})
	other := open(t, store.Config{URL: url})
	n := 0
	t.Run("registry", func(t *testing.T) {
		kvtest.Suite(t, func(t *testing.T) kv.Store {
			n++
			return openKV(t, s, fmt.Sprintf("suite%d", n))
		})
	})
	mine := acquire(t, openLeases(t, s), "node/one", "a", 2*time.Second)
	_, err := openLeases(t, other).Acquire(t.Context(), "node/one", "b", 2*time.Second)
	wantClass(t, "the lease of another server", err, errs.Exists)
	if err := s.Healthy(t.Context()); err != nil {
		t.Error(err)
	}
	stop()
	if err := s.Healthy(t.Context()); errs.Of(err) != errs.Unavailable {
		t.Errorf("health without the server: %v", err)
	}
	select {
	case <-mine.Lost():
	case <-time.After(patience.Of(20 * time.Second)):
		t.Error("the lease is still held although nobody can be asked")
	}
}
