package life

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/guest/wire"
)

func file(t *testing.T) string { return filepath.Join(t.TempDir(), "keys", "sbx_1") }

// holds fails unless the file at path tells another server of these keys.
func holds(t *testing.T, path string, want map[string]string) {
	t.Helper()
	list, err := openKeyJournal(path).all()
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	for _, k := range list {
		got[k.Key] = string(k.Fingerprint)
	}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Fatalf("the journal holds %q, want %q", got, want)
	}
}

func TestJournal_keepsKeysUntilTheyAreDropped(t *testing.T) {
	path := file(t)
	j := openKeyJournal(path)
	for i, key := range []string{"a", "b", "a", "c"} {
		existed, err := j.add(key, "print\x00\n of "+key)
		if err != nil || existed != (i == 2) {
			t.Fatalf("add %s: %v, %v", key, existed, err)
		}
	}
	j.drop("b")
	j.drop("never")
	j.hold(wire.NewKey())
	if list, err := j.all(); err != nil || len(list) != 3 {
		t.Fatalf("with the made-up one: %v, %v", list, err)
	}
	want := map[string]string{"a": "print\x00\n of a", "c": "print\x00\n of c"}
	holds(t, path, want) // a made-up key is in memory alone

	to := filepath.Join(t.TempDir(), "copy")
	if err := j.Copy(to); err != nil {
		t.Fatal(err)
	}
	moved := file(t)
	if err := takeKeyJournal(to, moved); err != nil {
		t.Fatal(err)
	}
	holds(t, moved, want)
	if err := takeKeyJournal(filepath.Join(t.TempDir(), "none"), moved+"2"); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := removeKeyJournal(path); err != nil {
			t.Fatal(err)
		}
	}
	holds(t, path, map[string]string{})
}

// TestJournal_tornLines: whatever a crash left of the last line, the keys
// before it are there and the next one does not join it.
func TestJournal_tornLines(t *testing.T) {
	whole := string(keyLine(lineAdd, "first", "p")) + string(keyLine(lineAdd, "second", ""))
	for cut := range len(whole) + 1 {
		path := file(t)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(whole[:cut]), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := openKeyJournal(path).add("next", "n"); err != nil {
			t.Fatal(err)
		}
		want := map[string]string{"next": "n"}
		if cut >= strings.IndexByte(whole, '\n')+1 {
			want["first"] = "p"
		}
		if cut == len(whole) {
			want["second"] = ""
		}
		holds(t, path, want)
	}
}

func TestJournal_staysBounded(t *testing.T) {
	path := file(t)
	j := openKeyJournal(path)
	if _, err := j.add("kept", "p"); err != nil {
		t.Fatal(err)
	}
	j.mu.Lock()
	for i := range 3 * keySlackMax { // without the sync of each
		key := fmt.Sprint("k", i)
		if err := j.append(keyLine(lineAdd, key, "p"), false); err != nil {
			t.Fatal(err)
		}
		j.used[key] = "p"
	}
	j.mu.Unlock()
	for i := range 3 * keySlackMax {
		j.drop(fmt.Sprint("k", i))
	}
	data, err := os.ReadFile(path)
	if err != nil || bytes.Count(data, []byte("\n")) > 2*keySlackMax {
		t.Errorf("%d lines for one key, %v", bytes.Count(data, []byte("\n")), err)
	}
	holds(t, path, map[string]string{"kept": "p"})
	if _, err := j.add("later", "p"); err != nil {
		t.Fatal(err)
	}
	holds(t, path, map[string]string{"kept": "p", "later": "p"})

	j.mu.Lock()
	for i := len(j.used); i < keysMax; i++ {
		j.used[fmt.Sprint("full", i)] = ""
	}
	j.mu.Unlock()
	if _, err := j.add("one more", ""); !errs.Is(err, errs.Limit) {
		t.Errorf("beyond the bound: %v", err)
	}
	for range 3 * recentKeysMax {
		j.hold(wire.NewKey())
	}
	if len(j.recent) > recentKeysMax {
		t.Errorf("%d made-up keys are held", len(j.recent))
	}
}

// TestJournal_fullDisk: no key counts as noted that is not, and the next one
// finds the file whole.
func TestJournal_fullDisk(t *testing.T) {
	path := file(t)
	j := openKeyJournal(path)
	if _, err := j.add("before", "p"); err != nil {
		t.Fatal(err)
	}
	var old unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_FSIZE, &old); err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	// A file that may grow by a few bytes only is as full as a disk is.
	if err := unix.Setrlimit(unix.RLIMIT_FSIZE, &unix.Rlimit{Cur: uint64(info.Size()) + 3, Max: old.Max}); err != nil {
		t.Fatal(err)
	}
	_, err = j.add("during", "p")
	if rerr := unix.Setrlimit(unix.RLIMIT_FSIZE, &old); rerr != nil {
		t.Fatal(rerr)
	}
	if err == nil || errors.Is(err, os.ErrNotExist) {
		t.Fatalf("with no room: %v", err)
	}
	holds(t, path, map[string]string{"before": "p"})
	if _, err := j.add("after", "p"); err != nil {
		t.Fatal(err)
	}
	holds(t, path, map[string]string{"before": "p", "after": "p"})
}

func TestJournal_manyAtOnce(t *testing.T) {
	path := file(t)
	j := openKeyJournal(path)
	var wg sync.WaitGroup
	for i := range 40 {
		wg.Go(func() {
			if _, err := j.add(fmt.Sprint("k", i%20), "p"); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	want := map[string]string{}
	for i := range 20 {
		want[fmt.Sprint("k", i)] = "p"
	}
	holds(t, path, want)
}

func TestMadeUp(t *testing.T) {
	if k := wire.NewKey(); !wire.MadeUp(k) || chosenKey(k) {
		t.Errorf("%q is not known as made up", k)
	}
	for _, k := range []string{"once", "cmd-1", "cmd-", strings.Repeat("A", 30), "cmd-abcdefghijklmnopqrstuvwxyz", wire.NewKey() + "A"} {
		if wire.MadeUp(k) || !chosenKey(k) {
			t.Errorf("%q is taken for one that no user chose", k)
		}
	}
	if chosenKey("") {
		t.Error("no key is one")
	}
}
