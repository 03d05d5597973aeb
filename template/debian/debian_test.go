package debian_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/internal/patience"
	"github.com/skete-dev/skete/template"
	"github.com/skete-dev/skete/template/debian"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// world is a Maker on a store of its own. script stands in for mmdebstrap, the
// program that comes with the distribution; "" = the real one.
func world(t *testing.T, script string) (*debian.Maker, *template.Store, string) {
	t.Helper()
	if script != "" {
		bin := t.TempDir()
		must(t, os.WriteFile(filepath.Join(bin, "mmdebstrap"), []byte("#!/bin/sh\n"+script), 0o755)) //nolint:gosec // a program
		t.Setenv("PATH", bin+":/usr/sbin:/usr/bin:/sbin:/bin")
	}
	store, err := template.Open(t.TempDir())
	must(t, err)
	dir := filepath.Join(t.TempDir(), "make")
	m, err := debian.New(debian.Config{Store: store, Dir: dir, Mirror: "http://mirror.invalid/debian"})
	must(t, err)
	t.Cleanup(func() {
		if err := m.Close(); err != nil {
			t.Error(err)
		}
		if left, _ := os.ReadDir(dir); len(left) > 0 {
			t.Errorf("left %v", left)
		}
	})
	return m, store, dir
}

// tinyTar writes a tar as mmdebstrap would.
const tinyTar = `mkdir -p root/usr/bin; echo >root/usr/bin/python3; chmod 755 root/usr/bin/python3
echo "I: creating tarball..." >&2; tar -C root -c .`

func TestPrepare_makesOnceForAllWhoAsk(t *testing.T) {
	count := filepath.Join(t.TempDir(), "count")
	m, store, _ := world(t, "echo x >>"+count+"\nsleep 0.3\n"+tinyTar)
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			info, err := m.Prepare(t.Context(), "python", nil)
			if err != nil || info.Name != "python" || len(info.Hash) != 64 {
				t.Errorf("%+v, %v", info, err)
			}
		})
	}
	wg.Wait()
	root, err := m.Rootfs(t.Context(), "python")
	must(t, err)
	if _, err := os.Stat(filepath.Join(root.Dir, "usr/bin/python3")); err != nil {
		t.Error(err)
	}
	must(t, store.Language(t.Context(), "python", "python"))
	if b, _ := os.ReadFile(count); string(b) != "x\n" {
		t.Errorf("mmdebstrap ran %d times", len(b)/2)
	}
}

func TestRootfs_makesWhatIsReadyAndNothingElse(t *testing.T) {
	m, _, _ := world(t, tinyTar)
	if _, err := m.Rootfs(t.Context(), "debian"); err != nil {
		t.Fatal(err)
	}
	if _, err := m.Rootfs(t.Context(), "mine"); !errs.Is(err, errs.NotFound) {
		t.Errorf("a template that nobody can make: %v", err)
	}
	if _, err := m.Prepare(t.Context(), "mine", nil); !errs.Is(err, errs.NotFound) || errs.Hint(err) == "" {
		t.Errorf("prepare: %v", err)
	}
}

func TestPrepare_saysWhatHappensAndWhatIsWrong(t *testing.T) {
	for _, c := range []struct {
		name, says string
		class      errs.Class
		hint       string
	}{
		{"network", "E: Could not resolve 'mirror.invalid'", errs.Unavailable, "mirror"},
		{"disk", "E: write: No space left on device", errs.Limit, "GiB"},
		{"keys", "W: GPG error: NO_PUBKEY 0E98404D386FA1D9", errs.Unsupported, "keyring"},
		{"names", "E: newuidmap: not found", errs.Unsupported, "uidmap"},
		{"unknown", "E: the moon is full", errs.Internal, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			m, store, _ := world(t, tinyTar+"\necho \"I: hello\" >&2\necho \""+c.says+"\" >&2\nexit 1\n")
			var said []string
			_, err := m.Prepare(t.Context(), "debian", func(line string) { said = append(said, line) })
			if !errs.Is(err, c.class) || !strings.Contains(errs.Hint(err), c.hint) || !strings.Contains(err.Error(), c.says) {
				t.Errorf("%v; hint %q", err, errs.Hint(err))
			}
			if all := strings.Join(said, "\n"); !strings.Contains(all, "creating tarball") || !strings.Contains(all, "hello") {
				t.Errorf("said %q", all)
			}
			// The tar was whole; its program failed: the template must not be there.
			if _, err := store.Get(t.Context(), "debian"); !errs.Is(err, errs.NotFound) {
				t.Errorf("a template of a failed make: %v", err)
			}
		})
	}
}

func TestPrepare_saysWhenMmdebstrapIsMissing(t *testing.T) {
	m, _, _ := world(t, "")
	t.Setenv("PATH", t.TempDir())
	_, err := m.Prepare(t.Context(), "debian", nil)
	if !errs.Is(err, errs.Unsupported) || !strings.Contains(errs.Hint(err), "apt install mmdebstrap") {
		t.Errorf("%v; hint %q", err, errs.Hint(err))
	}
}

// gone waits until a process does not exist any more.
func gone(t *testing.T, pidFile string) {
	t.Helper()
	patience.Try(t, 20*time.Second, "a process that ends", func() error {
		b, err := os.ReadFile(pidFile)
		switch pid := strings.TrimSpace(string(b)); {
		case err != nil:
			return err
		case pid == "":
			return errors.New("it has not written its number")
		case runs(t, pid):
			return fmt.Errorf("process %s runs", pid)
		}
		return nil
	})
}

// runs reports whether there is a process of this number.
func runs(t *testing.T, pid string) bool {
	t.Helper()
	n, err := strconv.Atoi(pid)
	must(t, err)
	return syscall.Kill(n, 0) == nil
}

func TestPrepare_endsWhenNobodyWaits(t *testing.T) {
	pid := filepath.Join(t.TempDir(), "pid")
	fifo := filepath.Join(t.TempDir(), "began")
	must(t, exec.Command("mkfifo", fifo).Run())
	// In its own PID namespace $$ is 1; the host's number is in the host's /proc,
	// which the shell itself must read.
	m, store, _ := world(t, "read n rest </proc/self/stat; echo $n >"+pid+"; exec 3>"+fifo+"; echo go >&3; exec sleep 1000")
	ctx, cancel := context.WithCancel(t.Context())
	errc := make(chan error, 2)
	for range 2 {
		go func() { _, err := m.Prepare(ctx, "go", nil); errc <- err }()
	}
	f, err := os.Open(fifo) // until it runs
	must(t, err)
	_, _ = io.ReadAll(io.LimitReader(f, 3))
	_ = f.Close()
	if b, err := os.ReadFile(pid); err != nil || !runs(t, strings.TrimSpace(string(b))) {
		t.Fatalf("process %q does not run: %v", b, err)
	}
	cancel()
	for range 2 {
		if err := <-errc; !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	}
	gone(t, pid)
	must(t, m.Close())
	if _, err := store.Get(t.Context(), "go"); !errs.Is(err, errs.NotFound) {
		t.Error(err)
	}
}

func TestNew_removesWhatAKilledMakeLeft(t *testing.T) {
	dir := t.TempDir()
	must(t, os.MkdirAll(filepath.Join(dir, "debian-1/root/usr"), 0o700))
	m, err := debian.New(debian.Config{Dir: dir})
	must(t, err)
	must(t, m.Close())
	if left, _ := os.ReadDir(dir); len(left) > 0 {
		t.Errorf("left %v", left)
	}
}
