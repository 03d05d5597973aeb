package store_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/kv"
	"github.com/skete-dev/skete/kv/kvtest"
	"github.com/skete-dev/skete/sandbox"
	"github.com/skete-dev/skete/store"
	"github.com/skete-dev/skete/store/storetest"
)

var (
	_ kv.Store       = (*store.KV)(nil)
	_ sandbox.Leases = (*store.Leases)(nil)
)

// childEnv names the directory in which this test binary, started again,
// writes until it is killed.
const childEnv = "SKETE_STORE_TEST_CHILD"

func TestMain(m *testing.M) {
	if dir := os.Getenv(childEnv); dir != "" {
		os.Exit(writeForEver(dir))
	}
	if dir := os.Getenv(threadLogChildEnv); dir != "" {
		os.Exit(appendForEver(dir))
	}
	goleak.VerifyTestMain(m)
}

func open(t *testing.T, c store.Config) *store.Store { t.Helper(); return storetest.Open(t, c) }

func openKV(t *testing.T, s *store.Store, bucket string) *store.KV {
	t.Helper()
	kv, err := s.KV(t.Context(), bucket)
	if err != nil {
		t.Fatal(err)
	}
	return kv
}

func wantClass(t *testing.T, what string, err error, want errs.Class) {
	t.Helper()
	storetest.WantClass(t, what, err, want)
}

func TestKV_isARegistry(t *testing.T) {
	s := open(t, store.Config{})
	n := 0
	kvtest.Suite(t, func(t *testing.T) kv.Store {
		n++
		return openKV(t, s, fmt.Sprintf("suite%d", n))
	})
}

func TestKV_boundsWhatItTakes(t *testing.T) {
	s := open(t, store.Config{})
	kv := openKV(t, s, "bounds")
	if _, err := kv.Create(t.Context(), "max", make([]byte, 64<<10)); err != nil {
		t.Errorf("64 KB: %v", err)
	}
	_, err := kv.Create(t.Context(), "over", make([]byte, 64<<10+1))
	wantClass(t, "a byte more", err, errs.Limit)
	for _, name := range []string{"", "a.b", "*", "ü", "a b", strings.Repeat("b", 65)} {
		_, err := s.KV(t.Context(), name)
		wantClass(t, fmt.Sprintf("bucket %.10q", name), err, errs.Invalid)
	}
	_, err = kv.Update(t.Context(), "max", nil, 0)
	wantClass(t, "update without a revision", err, errs.Invalid)
	wantClass(t, "delete without a revision", kv.Delete(t.Context(), "max", 0), errs.Invalid)
}

// A watch must not outlive the store: a process that closes it waits for its
// watchers.
func TestKV_watchEndsWithTheStore(t *testing.T) {
	s := open(t, store.Config{})
	bucket := openKV(t, s, "watched")
	synced, ended := make(chan struct{}), make(chan error, 1)
	go func() {
		ended <- bucket.Watch(t.Context(), "", func(c kv.Change) error {
			if c.Synced {
				close(synced)
			}
			return nil
		})
	}()
	<-synced
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	wantClass(t, "watch", <-ended, errs.Unavailable)
}

func TestOpen_keepsWhatWasWritten(t *testing.T) {
	dir := t.TempDir()
	s := open(t, store.Config{Dir: dir})
	rev, err := openKV(t, s, "b").Create(t.Context(), "k", []byte("v"))
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Errorf("second close: %v", err)
	}
	got, at, err := openKV(t, open(t, store.Config{Dir: dir}), "b").Get(t.Context(), "k")
	if err != nil || string(got) != "v" || at != rev {
		t.Errorf("after reopening: %q at %d, %v", got, at, err)
	}
}

func TestOpen_refusesASecondServer(t *testing.T) {
	dir := t.TempDir()
	open(t, store.Config{Dir: dir})
	_, err := store.Open(t.Context(), store.Config{Dir: dir})
	wantClass(t, "second open", err, errs.Exists)
	if want := fmt.Sprintf("(pid %d)", os.Getpid()); !strings.Contains(errs.Public(err), want) || errs.Hint(err) == "" {
		t.Errorf("second open says %q, hint %q; want %q in it and a hint", errs.Public(err), errs.Hint(err), want)
	}
}

func TestOpen_refusesTheOtherMode(t *testing.T) {
	dir := t.TempDir()
	if err := open(t, store.Config{Dir: dir}).Close(); err != nil {
		t.Fatal(err)
	}
	_, err := store.Open(t.Context(), store.Config{Dir: dir, URL: "nats://127.0.0.1:1"})
	wantClass(t, "external on an embedded directory", err, errs.Conflict)
	if err := os.WriteFile(filepath.Join(dir, "mode"), []byte("external\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	_, err = store.Open(t.Context(), store.Config{Dir: dir})
	wantClass(t, "embedded on an external directory", err, errs.Conflict)
	if err := os.WriteFile(filepath.Join(dir, "mode"), []byte("quantum\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	_, err = store.Open(t.Context(), store.Config{Dir: dir})
	wantClass(t, "unknown mode", err, errs.Corrupt)
}

func TestOpen_saysWhenAnExternalStoreIsAway(t *testing.T) {
	_, err := store.Open(t.Context(), store.Config{Dir: t.TempDir(), URL: "nats://user:hunter2@127.0.0.1:1"})
	wantClass(t, "nobody listens", err, errs.Unavailable)
	if strings.Contains(err.Error(), "hunter2") {
		t.Errorf("the error holds the password: %v", err)
	}
}

func TestHealthy(t *testing.T) {
	s := open(t, store.Config{})
	if err := s.Healthy(t.Context()); err != nil {
		t.Errorf("open store: %v", err)
	}
	_ = s.Close()
	if err := s.Healthy(t.Context()); err == nil {
		t.Error("a closed store is healthy")
	}
}

// TestKill kills a writer again and again and looks for every write that it
// said was acknowledged.
func TestKill_losesNothingAcknowledged(t *testing.T) {
	dir := t.TempDir()
	acked := map[string]string{}
	for round := range 5 {
		writeAndKill(t, dir, 40*(round+1), acked)
	}
	kv := openKV(t, open(t, store.Config{Dir: dir}), "kill")
	got := map[string]string{}
	err := kv.List(t.Context(), "", func(key string, value []byte, _ uint64) error { got[key] = string(value); return nil })
	if err != nil {
		t.Fatal(err)
	}
	for key, value := range acked {
		if got[key] != value {
			t.Errorf("acknowledged %s=%s, found %q", key, value, got[key])
		}
	}
	t.Logf("%d acknowledged, %d found", len(acked), len(got))
}

// writeAndKill starts a writer, kills it after n acknowledged writes and adds
// all acknowledged ones to acked.
func writeAndKill(t *testing.T, dir string, n int, acked map[string]string) {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), childEnv+"="+dir)
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewReader(out)
	for i := 0; ; i++ {
		line, err := lines.ReadString('\n')
		if err != nil { // after the kill: all that was said has been read
			break
		}
		key, value, _ := strings.Cut(strings.TrimSpace(line), "=")
		acked[key] = value
		if i == n {
			_ = cmd.Process.Kill()
		}
	}
	if err := cmd.Wait(); len(acked) < n {
		t.Fatalf("the writer ended early: %v\n%s", err, stderr.String())
	}
}

// writeForEver is the child: it says "key=value" after each acknowledged write.
func writeForEver(dir string) int {
	ctx := context.Background()
	s, err := store.Open(ctx, store.Config{Dir: dir, Log: slog.New(slog.NewTextHandler(os.Stderr, nil))})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	kv, err := s.KV(ctx, "kill")
	for i := 0; err == nil; i++ {
		key, value := fmt.Sprintf("%d/%d", os.Getpid(), i), fmt.Sprint(i*7)
		if _, err = kv.Create(ctx, key, []byte(value)); err == nil {
			_, err = io.WriteString(os.Stdout, key+"="+value+"\n")
		}
	}
	if !errors.Is(err, os.ErrClosed) {
		fmt.Fprintln(os.Stderr, err)
	}
	return 1
}
