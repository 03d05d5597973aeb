package serve

import (
	"bytes"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/skete-dev/skete/cmd/skete/internal/config"
	"github.com/skete-dev/skete/cmd/skete/internal/launch"
	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/internal/guesttest"
	"github.com/skete-dev/skete/sandbox/process"
	"github.com/skete-dev/skete/store/storetest"
)

// plain is a server that needs nothing of this machine, and does not run yet.
func plain(t *testing.T, change func(*config.Config)) *running {
	t.Helper()
	c := config.Builtin()
	c.HostRegistries = false
	c.Listen, c.Providers, c.UnsafeNoIsolation, c.Guest = "", []string{process.Name}, true, guesttest.Binary(t)
	if change != nil {
		change(&c)
	}
	r := &running{c: Config{Config: c, Home: t.TempDir(), Version: "test", Log: slog.New(slog.DiscardHandler), Say: io.Discard}}
	t.Cleanup(func() {
		r.doing("")
		if err := r.close(); err != nil {
			t.Error(err)
		}
	})
	return r
}

// A server does not open a store that is another server's, and touches nothing
// of it: it ends before it reads the sandboxes, and says what it was at.
func TestOpen_refusesTheStoreOfAnother(t *testing.T) {
	url, _ := storetest.External(t)
	external := func(c *config.Config) { c.Store.URL = url }
	first := plain(t, external)
	if err := first.open(t.Context()); err != nil {
		t.Fatal(err)
	}
	second := plain(t, external)
	if err := second.open(t.Context()); !errs.Is(err, errs.Exists) || !strings.Contains(errs.Public(err), first.node.ID) {
		t.Errorf("a second server opened it: %v", err)
	}
	if second.manager != nil {
		t.Error("the second server read the sandboxes")
	}
	if got := launch.Starting(second.c.Home, os.Getpid()); got != "opening the store" {
		t.Errorf("it ended while %q", got)
	}
}

// A start says of each of its parts that it is at it, where `skete status` looks.
func TestOpen_saysWhatItDoes(t *testing.T) {
	r := plain(t, nil)
	// What is said there is overwritten, so the place is a pipe, which keeps it all.
	place := filepath.Join(r.c.Home, "starting")
	if err := syscall.Mkfifo(place, 0o600); err != nil {
		t.Fatal(err)
	}
	pipe, err := os.OpenFile(place, os.O_RDWR, 0) // both, so that a writer never waits
	if err != nil {
		t.Fatal(err)
	}
	defer pipe.Close()
	if err := r.open(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := pipe.WriteString("end\n"); err != nil {
		t.Fatal(err)
	}
	var said []byte
	for !bytes.HasSuffix(said, []byte("end\n")) {
		more := make([]byte, 4096)
		n, err := pipe.Read(more)
		if err != nil {
			t.Fatal(err)
		}
		said = append(said, more[:n]...)
	}
	var got []string
	for line := range strings.Lines(string(said)) {
		if _, what, ok := strings.Cut(strings.TrimSpace(line), " "); ok {
			got = append(got, what)
		}
	}
	want := []string{"opening the store", "preparing templates and providers", "reading the sandboxes", "reading the runs", "opening the API"}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
	r.doing("")
	if _, err := os.Stat(place); !os.IsNotExist(err) {
		t.Errorf("the start has ended, and is still told: %v", err)
	}
}
