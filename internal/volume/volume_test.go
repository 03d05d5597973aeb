package volume_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/internal/volume"
)

// churnEnv makes this test binary the process that gets killed.
const churnEnv = "SKETE_TEST_VOLUME_CHURN"

func TestMain(m *testing.M) {
	if dir := os.Getenv(churnEnv); dir != "" {
		churn(dir)
	}
	os.Exit(m.Run())
}

// churn makes and removes volumes until it is killed.
func churn(dir string) {
	s, err := volume.Open(dir)
	for i := 0; err == nil; i++ {
		id := fmt.Sprintf("v%d", i%3)
		if _, err = s.Create(context.Background(), id, volume.BytesMin); err == nil && i%2 == 0 {
			err = s.Remove(context.Background(), id)
		}
	}
	fmt.Fprintln(os.Stderr, err)
	os.Exit(1)
}

func open(t *testing.T) (*volume.Store, string) {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "volumes")
	s, err := volume.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { sweep(t, s, dir) })
	return s, dir
}

func sweep(t *testing.T, s *volume.Store, dir string) {
	t.Helper()
	ids, err := s.List(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	for _, id := range ids {
		if err := s.Remove(context.Background(), id); err != nil {
			t.Error(err)
		}
	}
	if left := leftovers(dir); left != "" {
		t.Errorf("left behind:\n%s", left)
	}
}

// leftovers names mounts and loop devices beneath dir.
func leftovers(dir string) (left string) {
	mounts, _ := os.ReadFile("/proc/self/mountinfo")
	for l := range strings.Lines(string(mounts)) {
		if strings.Contains(l, dir) {
			left += l
		}
	}
	files, _ := filepath.Glob("/sys/block/loop*/loop/backing_file")
	for _, f := range files {
		if text, _ := os.ReadFile(f); strings.Contains(string(text), dir) {
			left += f + ": " + string(text)
		}
	}
	return left
}

func needImages(t *testing.T, s *volume.Store) {
	t.Helper()
	if err := s.Weakness(); err != nil {
		t.Skipf("no volumes of bounded size here: %v", err)
	}
}

func TestCreate_theKernelRefusesTheByteBeyond(t *testing.T) {
	s, _ := open(t)
	needImages(t, s)
	v, err := s.Create(t.Context(), "a", 32<<20)
	if err != nil {
		t.Fatal(err)
	}
	if !v.Enforced || v.Method != volume.MethodImage {
		t.Fatalf("%+v", v)
	}
	if entries, _ := os.ReadDir(v.Path); len(entries) != 0 {
		t.Errorf("a new volume holds %v", entries)
	}
	err = os.WriteFile(filepath.Join(v.Path, "big"), make([]byte, 64<<20), 0o600)
	if !errors.Is(err, syscall.ENOSPC) {
		t.Fatalf("64 MiB into 32: %v", err)
	}
	used, err := s.Usage(t.Context(), "a")
	if err != nil || used < 16<<20 || used > 32<<20 {
		t.Errorf("Usage = %d, %v", used, err)
	}
}

func TestDetach_keepsTheBytes(t *testing.T) {
	s, dir := open(t)
	v, err := s.Create(t.Context(), "a", volume.BytesMin)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(v.Path, "f")
	if err := os.WriteFile(file, []byte("kept"), 0o600); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := s.Detach(t.Context(), "a"); err != nil {
			t.Fatal(err)
		}
	}
	if left := leftovers(dir); left != "" {
		t.Errorf("after Detach: %s", left)
	}
	again, err := volume.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		got, err := again.Attach(t.Context(), "a")
		if err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(v, got); d != "" {
			t.Error(d)
		}
	}
	if text, err := os.ReadFile(file); err != nil || string(text) != "kept" {
		t.Errorf("%q, %v", text, err)
	}
}

func TestBadIDs_neverTouchTheDisk(t *testing.T) {
	s, _ := open(t)
	for _, id := range []string{"", ".", "..", "../x", "a/b", "a\x00", "A", ".blank", strings.Repeat("a", 65), "a.img"} {
		if _, err := s.Create(t.Context(), id, volume.BytesMin); !errs.Is(err, errs.Invalid) {
			t.Errorf("Create(%q) = %v", id, err)
		}
		if err := s.Remove(t.Context(), id); !errs.Is(err, errs.Invalid) {
			t.Errorf("Remove(%q) = %v", id, err)
		}
	}
	if _, err := s.Create(t.Context(), "a", 1); !errs.Is(err, errs.Invalid) {
		t.Errorf("a volume of one byte: %v", err)
	}
	if _, err := s.Attach(t.Context(), "nope"); !errs.Is(err, errs.NotFound) {
		t.Errorf("Attach of none: %v", err)
	}
	if err := s.Remove(t.Context(), "nope"); err != nil {
		t.Errorf("Remove of none: %v", err)
	}
}

func TestCreate_manyAtOnce(t *testing.T) {
	s, _ := open(t)
	var wg sync.WaitGroup
	for i := range 12 {
		wg.Go(func() {
			id := fmt.Sprintf("v%d", i)
			v, err := s.Create(t.Context(), id, volume.BytesMin)
			if err == nil {
				err = os.WriteFile(filepath.Join(v.Path, id), nil, 0o600)
			}
			if err != nil {
				t.Errorf("%s: %v", id, err)
				return
			}
			if entries, _ := os.ReadDir(v.Path); len(entries) != 1 {
				t.Errorf("%s holds %d files: a stranger's volume", id, len(entries))
			}
		})
	}
	wg.Wait()
	if ids, err := s.List(t.Context()); err != nil || len(ids) != 12 {
		t.Errorf("List = %v, %v", ids, err)
	}
}

func TestUsage_doesNotFollowLinks(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "volumes")
	s, err := volume.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	// A volume without an image is a plain one, whoever made it.
	path := filepath.Join(dir, "plain", "w")
	if err := os.MkdirAll(path, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(path, "f"), make([]byte, 1<<20), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("/usr", filepath.Join(path, "link")); err != nil {
		t.Fatal(err)
	}
	got, err := s.Usage(t.Context(), "plain")
	if err != nil || got < 1<<20 || got > 2<<20 {
		t.Errorf("Usage = %d, %v", got, err)
	}
	if v, err := s.Attach(t.Context(), "plain"); err != nil || v.Enforced {
		t.Errorf("Attach = %+v, %v", v, err)
	}
}

// TestKill_leavesNothingThatCannotBeSwept kills a process in the middle of
// making and removing volumes.
func TestKill_leavesNothingThatCannotBeSwept(t *testing.T) {
	s, dir := open(t)
	needImages(t, s)
	rounds := 30
	if testing.Short() {
		rounds = 8
	}
	for i := range rounds {
		cmd := exec.Command(os.Args[0])
		cmd.Env = append(os.Environ(), churnEnv+"="+dir)
		var said bytes.Buffer
		cmd.Stderr = &said
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		<-time.After(time.Duration(30+i*7) * time.Millisecond)
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		if said.Len() > 0 {
			t.Fatalf("round %d: %s", i, said.String())
		}
		sweep(t, s, dir)
	}
}

func BenchmarkCreateRemove(b *testing.B) {
	s, err := volume.Open(filepath.Join(b.TempDir(), "volumes"))
	if err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		if _, err := s.Create(b.Context(), "a", 2<<30); err != nil {
			b.Fatal(err)
		}
		if err := s.Remove(b.Context(), "a"); err != nil {
			b.Fatal(err)
		}
	}
}
