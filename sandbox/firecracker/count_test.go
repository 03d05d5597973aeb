package firecracker

import (
	"context"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/sandbox"
	"github.com/skete-dev/skete/sandbox/firecracker/api"
	"github.com/skete-dev/skete/sandbox/firecracker/jail"
)

func TestModelCounts(t *testing.T) {
	w := modelWorld(t)
	b := w.boot()
	m, _ := w.create(b)
	counter := m.(sandbox.Counter)
	for i := range int64(3) {
		c, err := counter.Counts(t.Context())
		if err != nil || c.DiskReads != i+1 || c.DiskReadBytes != 512*(i+1) {
			t.Errorf("%+v, %v", c, err)
		}
	}
	// More than the pipe holds, without a read: some is lost, and the rest is
	// whole lines.
	for range 600 {
		must(t, m.(*machine).api.FlushMetrics(t.Context()))
	}
	if c, err := counter.Counts(t.Context()); err != nil || c.DiskReads < 100 || c.DiskReads > 604 || c.DiskReadBytes != 512*c.DiskReads {
		t.Errorf("after a long time: %+v, %v", c, err)
	}
	must(t, m.Pause(t.Context()))
	if _, err := counter.Counts(t.Context()); err != nil {
		t.Errorf("of a paused machine: %v", err)
	}

	// A guest that has taken Firecracker over can put anything there.
	pipe := w.p.jail(b.ID).Path(jail.Metrics)
	must(t, os.Remove(pipe))
	must(t, os.WriteFile(pipe, []byte("x"), 0o600))
	if _, err := counter.Counts(t.Context()); !errs.Is(err, errs.Corrupt) {
		t.Errorf("a file in the place of the pipe: %v", err)
	}
	must(t, os.Remove(pipe))
	must(t, os.Symlink("/etc/passwd", pipe))
	if _, err := counter.Counts(t.Context()); err == nil {
		t.Error("a link in the place of the pipe was followed")
	}
	must(t, m.Destroy(t.Context()))
	if _, err := counter.Counts(t.Context()); !errs.Is(err, errs.Unavailable) {
		t.Errorf("of a machine that is gone: %v", err)
	}
}

// TestConfigure_saysWhatTheMachineIs: the disks have their limits, and there is
// no network interface, since no policy asks for one.
func TestConfigure_saysWhatTheMachineIs(t *testing.T) {
	var mu sync.Mutex
	var said []string
	socket := filepath.Join(t.TempDir(), "api")
	ln, err := net.Listen("unix", socket)
	must(t, err)
	srv := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body := make([]byte, r.ContentLength)
		_, _ = r.Body.Read(body)
		mu.Lock()
		said = append(said, r.Method+" "+r.URL.Path+" "+string(body))
		mu.Unlock()
		w.WriteHeader(http.StatusNoContent)
	})}
	go func() { _ = srv.Serve(ln) }()
	defer srv.Close()
	c := api.New(func(ctx context.Context) (net.Conn, error) { return new(net.Dialer).DialContext(ctx, "unix", socket) })
	defer c.Close()
	must(t, configure(t.Context(), c, savedShape{VCPUs: 1, MemoryMiB: 128, DiskMBps: 20, DiskIOPS: 500}, api.BootSource{Kernel: "k"}))
	var paths []string
	const limit = `"rate_limiter":{"bandwidth":{"size":20000000,"refill_time":1000},"ops":{"size":500,"refill_time":1000}}`
	for _, s := range said {
		method, rest, _ := strings.Cut(s, " ")
		path, body, _ := strings.Cut(rest, " ")
		paths = append(paths, method+" "+path)
		if drive := strings.HasPrefix(path, "/drives/"); drive != strings.Contains(body, limit) {
			t.Errorf("%s: %s", path, body)
		}
	}
	slices.Sort(paths)
	want := []string{"PUT /boot-source", "PUT /drives/layer", "PUT /drives/root", "PUT /drives/work", "PUT /entropy", "PUT /machine-config", "PUT /vsock"}
	if d := cmp.Diff(want, paths); d != "" {
		t.Error(d)
	}
}

func TestLimiter(t *testing.T) {
	for _, s := range []savedShape{{}, {DiskMBps: 3}, {DiskIOPS: 7}} {
		l := limiter(s)
		switch {
		case s == (savedShape{}):
			if l != nil {
				t.Errorf("a bound that nobody asked for: %+v", l)
			}
		case l == nil || (l.Bandwidth != nil) != (s.DiskMBps > 0) || (l.Ops != nil) != (s.DiskIOPS > 0):
			t.Errorf("%+v: %+v", s, l)
		}
	}
}
