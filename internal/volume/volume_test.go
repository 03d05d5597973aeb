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
	"golang.org/x/sys/unix"

	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/internal/patience"
	"github.com/skete-dev/skete/internal/volume"
)

// churnEnv makes the test binary a program that makes and removes a volume
// until it is killed.
// What the test program does when it is run as a helper in a directory.
const (
	churnEnv = "SKETE_VOLUME_CHURN"
	blankEnv = "SKETE_VOLUME_BLANK"
)

func TestMain(m *testing.M) {
	if dir := os.Getenv(churnEnv); dir != "" {
		churn(dir, func() error { return nil })
		return
	}
	if dir := os.Getenv(blankEnv); dir != "" {
		churn(dir, func() error { return os.RemoveAll(filepath.Join(dir, ".blank")) })
		return
	}
	os.Exit(m.Run())
}

// churn makes and removes a volume until it is killed.
func churn(dir string, before func() error) {
	ctx := context.Background()
	s, err := volume.Open(dir)
	for err == nil {
		fmt.Println("again")
		if err = before(); err != nil {
			break
		}
		if _, err = s.Create(ctx, "churn", 16<<20); err == nil {
			err = errors.Join(s.Detach(ctx, "churn"), s.Remove(ctx, "churn"))
		}
	}
	fmt.Println("failed", err)
}

func open(t testing.TB) (*volume.Store, string) {
	t.Helper()
	dir := t.TempDir()
	s, err := volume.Open(dir)
	must(t, err)
	t.Cleanup(func() {
		sweep(t, s)
		noLeftovers(t, dir)
	})
	return s, dir
}

func sweep(t testing.TB, s *volume.Store) {
	ids, err := s.List(context.Background())
	must(t, err)
	for _, id := range ids {
		must(t, s.Remove(context.Background(), id))
	}
}

// noLeftovers checks the host for mounts, loop devices and files of a store.
func noLeftovers(t testing.TB, dir string) {
	t.Helper()
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	must(t, err)
	if bytes.Contains(mounts, []byte(dir)) {
		t.Errorf("a mount was left")
	}
	// The kernel frees a loop device a moment after its last use.
	deadline := time.Now().Add(patience.Of(10 * time.Second))
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for loops(dir) > 0 {
		if time.Now().After(deadline) {
			t.Fatalf("%d loop devices were left", loops(dir))
		}
		<-tick.C
	}
	names, err := os.ReadDir(dir)
	must(t, err)
	for _, n := range names {
		if n.Name() != ".blank" {
			t.Errorf("left behind: %s", n.Name())
		}
	}
}

func loops(dir string) int {
	count := 0
	files, _ := filepath.Glob("/sys/block/loop*/loop/backing_file")
	for _, f := range files {
		if b, err := os.ReadFile(f); err == nil && strings.HasPrefix(string(b), dir) {
			count++
		}
	}
	return count
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// needImages skips where the host cannot enforce sizes.
func needImages(t testing.TB, s *volume.Store) {
	t.Helper()
	v, err := s.Create(context.Background(), "probe", 16<<20)
	must(t, err)
	must(t, s.Remove(context.Background(), "probe"))
	if !v.Enforced {
		t.Skipf("images cannot be mounted here: %v", s.Weakness())
	}
}

// holdMounts starts a process that has a copy of our mounts until the test ends.
func holdMounts(t testing.TB) {
	t.Helper()
	cmd := exec.Command("cat")
	cmd.SysProcAttr = &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNS}
	in, err := cmd.StdinPipe()
	must(t, err)
	must(t, cmd.Start())
	t.Cleanup(func() { must(t, errors.Join(in.Close(), cmd.Wait())) })
}

func TestVolume_fullIsFullAndBytesStay(t *testing.T) {
	s, _ := open(t)
	needImages(t, s)
	ctx := context.Background()
	const size = 32 << 20
	v, err := s.Create(ctx, "sbx_a", size)
	must(t, err)
	if diff := cmp.Diff(volume.Volume{Path: v.Path, Disk: filepath.Dir(v.Path), Enforced: true, Method: volume.MethodImage}, v); diff != "" {
		t.Fatal(diff)
	}
	if names, _ := os.ReadDir(v.Path); len(names) != 0 {
		t.Fatalf("a new volume shows %v", names)
	}
	must(t, os.WriteFile(filepath.Join(v.Path, "keep"), []byte("kept"), 0o644))
	f, err := os.Create(filepath.Join(v.Path, "big"))
	must(t, err)
	written := 0
	chunk := make([]byte, 1<<20)
	for err == nil && written < size {
		var n int
		n, err = f.Write(chunk)
		written += n
	}
	must(t, f.Close())
	if !errors.Is(err, syscall.ENOSPC) || written < size/2 {
		t.Fatalf("wrote %d of %d: %v", written, size, err)
	}
	used, err := s.Usage(ctx, "sbx_a")
	must(t, err)
	if used < int64(written) || used > size {
		t.Fatalf("usage %d", used)
	}
	must(t, os.Remove(filepath.Join(v.Path, "big")))
	holdMounts(t)
	must(t, s.Detach(ctx, "sbx_a"))
	must(t, s.Detach(ctx, "sbx_a"))
	if _, err := os.Stat(filepath.Join(v.Path, "keep")); !errors.Is(err, os.ErrNotExist) {
		t.Fatal("still mounted")
	}
	// What was deleted inside is the host's again, also while another process
	// holds a copy of our mounts.
	// The kernel gives blocks back in its own time.
	patience.Try(t, 10*time.Second, "a detached volume holds little", func() error {
		used, err := s.Usage(ctx, "sbx_a")
		if err == nil && used > 8<<20 {
			err = fmt.Errorf("it holds %d bytes", used)
		}
		return err
	})
	for range 2 {
		again, err := s.Attach(ctx, "sbx_a")
		must(t, err)
		if diff := cmp.Diff(v, again); diff != "" {
			t.Fatal(diff)
		}
	}
	b, err := os.ReadFile(filepath.Join(v.Path, "keep"))
	must(t, err)
	if string(b) != "kept" {
		t.Fatalf("%q", b)
	}
}

func TestVolume_plainDirectoryIsHonest(t *testing.T) {
	s, _ := open(t)
	volume.WithoutImages(s)
	ctx := context.Background()
	v, err := s.Create(ctx, "sbx_a", 16<<20)
	must(t, err)
	if v.Enforced || v.Method != volume.MethodWatched {
		t.Fatalf("%+v", v)
	}
	must(t, os.WriteFile(filepath.Join(v.Path, "f"), make([]byte, 1<<20), 0o644))
	used, err := s.Usage(ctx, "sbx_a")
	must(t, err)
	if used < 1<<20 || used > 2<<20 {
		t.Fatalf("usage %d", used)
	}
	must(t, s.Detach(ctx, "sbx_a"))
	_, err = s.Attach(ctx, "sbx_a")
	must(t, err)
	must(t, s.Remove(ctx, "sbx_a"))
}

func TestVolume_refusals(t *testing.T) {
	s, _ := open(t)
	ctx := context.Background()
	for _, id := range []string{"", ".", "..", ".blank", "a/b", "a\x00", "a\n", "A", strings.Repeat("a", 65), "../x"} {
		_, createErr := s.Create(ctx, id, 16<<20)
		_, attachErr := s.Attach(ctx, id)
		_, usageErr := s.Usage(ctx, id)
		for _, err := range []error{createErr, attachErr, usageErr, s.Detach(ctx, id), s.Remove(ctx, id)} {
			if !errs.Is(err, errs.Invalid) {
				t.Errorf("%q: %v", id, err)
			}
		}
	}
	for _, bytes := range []int64{-1, 0, 1 << 20, 1 << 62} {
		if _, err := s.Create(ctx, "a", bytes); !errs.Is(err, errs.Invalid) {
			t.Errorf("%d bytes: %v", bytes, err)
		}
	}
	if _, err := s.Attach(ctx, "none"); !errs.Is(err, errs.NotFound) {
		t.Error(err)
	}
	if _, err := s.Usage(ctx, "none"); !errs.Is(err, errs.NotFound) {
		t.Error(err)
	}
	must(t, s.Detach(ctx, "none"))
	must(t, s.Remove(ctx, "none"))
}

func TestVolume_createReplacesWhatWasHalfMade(t *testing.T) {
	s, dir := open(t)
	ctx := context.Background()
	must(t, os.MkdirAll(filepath.Join(dir, "sbx_a", "data"), 0o700))
	must(t, os.WriteFile(filepath.Join(dir, "sbx_a", "image.new"), nil, 0o600))
	v, err := s.Create(ctx, "sbx_a", 16<<20)
	must(t, err)
	must(t, os.WriteFile(filepath.Join(v.Path, "f"), nil, 0o644))
	v, err = s.Create(ctx, "sbx_a", 16<<20)
	must(t, err)
	if names, _ := os.ReadDir(v.Path); len(names) != 0 {
		t.Fatalf("%v", names)
	}
}

func TestVolume_usageDoesNotFollowLinks(t *testing.T) {
	s, _ := open(t)
	volume.WithoutImages(s)
	v, err := s.Create(context.Background(), "sbx_a", 16<<20)
	must(t, err)
	must(t, os.Symlink("/usr", filepath.Join(v.Path, "link")))
	if used, err := s.Usage(context.Background(), "sbx_a"); err != nil || used > 1<<20 {
		t.Fatalf("%d %v", used, err)
	}
}

func TestVolume_busyOnesAreRemovedToo(t *testing.T) {
	s, _ := open(t)
	needImages(t, s)
	v, err := s.Create(context.Background(), "sbx_a", 16<<20)
	must(t, err)
	f, err := os.Create(filepath.Join(v.Path, "open"))
	must(t, err)
	must(t, s.Remove(context.Background(), "sbx_a"))
	must(t, f.Close())
}

// Another process on the host has a copy of our mounts (every program with mounts of
// its own does). An unmount here does not end the file system then, and what
// was written must be there when the volume is attached again.
func TestVolume_detachedWhileMountedElsewhere(t *testing.T) {
	s, _ := open(t)
	needImages(t, s)
	ctx := context.Background()
	v, err := s.Create(ctx, "sbx_a", 16<<20)
	must(t, err)
	for round := range 5 {
		name := filepath.Join(v.Path, fmt.Sprint(round))
		must(t, os.WriteFile(name, []byte("kept"), 0o644))
		other := exec.Command("sleep", "1000")
		other.SysProcAttr = &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNS}
		must(t, other.Start())
		must(t, s.Detach(ctx, "sbx_a"))
		_, err := s.Attach(ctx, "sbx_a")
		_ = other.Process.Kill()
		_ = other.Wait()
		must(t, err)
		if got, err := os.ReadFile(name); err != nil || string(got) != "kept" {
			t.Fatalf("round %d: %q, %v", round, got, err)
		}
		must(t, os.WriteFile(name+"-after", nil, 0o644))
	}
}

// A process with mounts of its own, as gVisor's are, keeps neither the loop device
// of a volume that was mounted when it began, nor what the image has on the disk.
func TestVolume_copiesOfMountsHoldNothing(t *testing.T) {
	s, _ := open(t)
	needImages(t, s)
	for name, release := range map[string]func() error{
		"detach": func() error { return s.Detach(t.Context(), "sbx_a") },
		"remove": func() error { return s.Remove(t.Context(), "sbx_a") },
	} {
		v, err := s.Create(t.Context(), "sbx_a", 16<<20)
		must(t, err)
		var st unix.Stat_t
		must(t, unix.Stat(v.Path, &st))
		holdMounts(t)
		must(t, release())
		patience.Try(t, time.Minute, name+" lets the loop device go", func() error {
			backing, err := os.ReadFile(fmt.Sprintf("/sys/block/loop%d/loop/backing_file", unix.Minor(st.Dev)))
			if err == nil && strings.HasPrefix(string(backing), filepath.Dir(v.Disk)+"/") {
				return fmt.Errorf("it is over %s", backing)
			}
			return nil
		})
		must(t, s.Remove(t.Context(), "sbx_a"))
	}
}

func TestVolume_manyAtOnce(t *testing.T) {
	const many = 100 // as many as one request may fork
	s, _ := open(t)
	var wg sync.WaitGroup
	for i := range many {
		wg.Go(func() {
			id := fmt.Sprintf("sbx_%d", i)
			v, err := s.Create(context.Background(), id, 16<<20)
			if err == nil {
				err = os.WriteFile(filepath.Join(v.Path, "f"), []byte(id), 0o644)
			}
			if err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	ids, err := s.List(context.Background())
	must(t, err)
	if len(ids) != many {
		t.Fatalf("%v", ids)
	}
}

// A process that makes and removes a volume is killed at fifty different
// moments; afterwards a sweep finds everything and leaves nothing.
func TestVolume_killedAnywhereSweepsClean(t *testing.T) {
	s, dir := open(t)
	needImages(t, s)
	for i := range 50 {
		killHelper(t, churnEnv, dir, time.Duration(i)*700*time.Microsecond)
		if i%10 == 9 {
			sweep(t, s)
			noLeftovers(t, dir)
		}
	}
}

// TestBlanks_perSize: sizes are the callers' to choose, so that few are kept; and
// no caller waits for another one's.
func TestBlanks_perSize(t *testing.T) {
	s, dir := open(t)
	needImages(t, s)
	const most = 16
	size := func(i int) int64 { return 16<<20 + int64(i)<<20 }
	create := func(i int) {
		t.Helper()
		v, err := s.Create(context.Background(), "sized", size(i))
		must(t, err)
		if !v.Enforced {
			t.Fatal("no image was made")
		}
	}
	for i := range most + 4 {
		create(i)
		create(0) // in use
	}
	blanks, err := os.ReadDir(filepath.Join(dir, ".blank"))
	must(t, err)
	if len(blanks) != most {
		t.Errorf("%d blanks are kept, want %d", len(blanks), most)
	}
	end := volume.HoldBlanks(s)
	create(0)
	create(most + 3)
	if err := s.Weakness(); err != nil {
		t.Error(err)
	}
	waiting, cancel := context.WithCancel(context.Background())
	done := make(chan error)
	go func() { // of a size that was dropped: it must be made
		_, err := s.Create(waiting, "other", size(1))
		done <- err
	}()
	cancel()
	end()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Errorf("a call that was over waited for its blank: %v", err)
	}
}

// TestKill_whileTheBlankIsMade: the next one is made, with its limit.
func TestKill_whileTheBlankIsMade(t *testing.T) {
	s, dir := open(t)
	needImages(t, s)
	for i := range 25 {
		killHelper(t, blankEnv, dir, time.Duration(i)*2*time.Millisecond)
		must(t, os.RemoveAll(filepath.Join(dir, ".blank")))
		fresh, err := volume.Open(dir)
		must(t, err)
		v, err := fresh.Create(context.Background(), "after", 16<<20)
		must(t, err)
		if !v.Enforced {
			t.Fatalf("killed at %d: images are made no more: %v", i, fresh.Weakness())
		}
		sweep(t, s)
		noLeftovers(t, dir)
	}
}

// killHelper runs the test program as a helper and kills it after a while.
func killHelper(t *testing.T, env, dir string, after time.Duration) {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), env+"="+dir)
	out, err := cmd.StdoutPipe()
	must(t, err)
	must(t, cmd.Start())
	line := make([]byte, 6)
	_, err = out.Read(line) // it is at work
	must(t, err)
	timer := time.NewTimer(after)
	<-timer.C
	must(t, cmd.Process.Kill())
	_ = cmd.Wait()
	if !strings.HasPrefix(string(line), "again") {
		t.Fatalf("the helper said %q", line)
	}
}

func BenchmarkCreateRemove(b *testing.B) {
	s, _ := open(b)
	needImages(b, s)
	for b.Loop() {
		if _, err := s.Create(context.Background(), "sbx_a", 2<<30); err != nil {
			b.Fatal(err)
		}
		if err := s.Remove(context.Background(), "sbx_a"); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkCreate(b *testing.B) {
	s, _ := open(b)
	needImages(b, s)
	i := 0
	for b.Loop() {
		if _, err := s.Create(context.Background(), fmt.Sprintf("sbx_%d", i), 2<<30); err != nil {
			b.Fatal(err)
		}
		i++
		if i%32 == 0 {
			b.StopTimer()
			sweep(b, s)
			b.StartTimer()
		}
	}
}
