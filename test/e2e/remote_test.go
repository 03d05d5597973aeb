package e2e

import (
	"encoding/json"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/skete-dev/skete/api"
	"github.com/skete-dev/skete/internal/hostproc"
	"github.com/skete-dev/skete/sandbox"
	"github.com/skete-dev/skete/sandbox/remote"
	"github.com/skete-dev/skete/sandbox/sandboxtest"
)

// newService starts a server B on whose machines others' sandboxes run, and returns the
// key with which its API for E2B's SDKs is used.
func newService(t *testing.T, args ...string) (b *world, address, key string) {
	address = listenAddress(t)
	b = newWorld(t, append([]string{"--providers", "gvisor", "--listen", address}, args...)...)
	b.start()
	made, err := b.c.CreateKey(b.ctx(), api.CreateKey{Name: "server-a"})
	b.ok(err)
	return b, "http://" + address + "/e2b", made.Secret
}

// remoteProvider is one whose machines are B's.
func remoteProvider(t testing.TB, dir, at, key string) *remote.Provider {
	u, err := url.Parse(at)
	if err != nil {
		t.Fatal(err)
	}
	p, err := remote.New(remote.Config{
		Name: remote.Name, Dir: dir, Keep: 2 * time.Minute,
		Service: remote.NewE2B(remote.E2B{URL: u, SandboxURL: u, Key: key, Template: "base"}),
	})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// Machines elsewhere pass the suite that all providers pass, with a second server of
// ours as the service.
func TestRemote_suite(t *testing.T) {
	b, at, key := newService(t)
	sandboxtest.Run(t, func(t *testing.T) sandboxtest.Fixture {
		dir := t.TempDir()
		return sandboxtest.Fixture{
			Dir: dir, Boot: 3 * time.Second,
			New:  func(t testing.TB) sandbox.Provider { return remoteProvider(t, dir, at, key) },
			Disk: func(t testing.TB, _ int64) string { return filepath.Join(t.TempDir(), "none") },
			HostPID: func(t testing.TB, id sandbox.ID) int {
				return pidOf(t, remoteID(t, filepath.Join(dir, "machines", string(id), "machine.json")))
			},
		}
	})
	if live := b.live(); len(live) != 0 {
		t.Errorf("%d machines are left at the service: %+v", len(live), live)
	}
}

// remoteID is the id of a machine at its service.
func remoteID(t testing.TB, record string) string {
	t.Helper()
	data, err := os.ReadFile(record)
	if err != nil {
		t.Fatal(err)
	}
	var r struct{ ID string }
	if err := json.Unmarshal(data, &r); err != nil || r.ID == "" {
		t.Fatalf("%s: %v", data, err)
	}
	return r.ID
}

// pidOf is the process of the host that a machine of gVisor is.
func pidOf(t testing.TB, id string) int {
	t.Helper()
	list, err := hostproc.List()
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range list {
		args := strings.Join(p.Args, " ")
		if strings.Contains(args, " boot ") && strings.Contains(args, "sbx_"+id) {
			return p.PID
		}
	}
	t.Fatalf("no machine of %s", id)
	return 0
}
