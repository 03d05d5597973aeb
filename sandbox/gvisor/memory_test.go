package gvisor

import (
	"sync/atomic"
	"testing"

	"connectrpc.com/connect"

	"github.com/skete-dev/skete/guest/wire"
	"github.com/skete-dev/skete/internal/guesttest"
	"github.com/skete-dev/skete/sandbox"
	"github.com/skete-dev/skete/sandbox/sandboxtest"
)

// A command that the kernel killed at the machine's limit says so, in each
// answer; one that was killed by a process inside does not. No test can make
// the kernel quicker than the guest, so what it counts is made up here.
func TestMemoryKills(t *testing.T) {
	skipUnlessItBoots(t)
	b := bootOf(t, sandboxtest.Rootfs(t))
	b.Guest = guesttest.Binary(t)
	m := create(t, open(t, t.TempDir()), b)
	g := sandboxtest.NewGuest(t, m)
	var kills atomic.Uint64
	m.(*machine).kills.count = kills.Load
	if res := g.Shell("kill -9 $$"); res.Code != 137 || res.Reason != "" {
		t.Fatalf("killed inside: %+v", res)
	}
	kills.Store(1)
	start := sandboxtest.Start("/bin/sh", "-c", "kill -9 $$")
	start.Key = "of-the-kernel"
	if res, err := g.Exec(t.Context(), start); err != nil || res.Code != 137 || res.Reason != sandbox.ReasonOutOfMemory {
		t.Errorf("killed by the kernel: %+v, %v", res, err)
	}
	if res := g.Shell("kill -9 $$"); res.Code != 137 || res.Reason != "" {
		t.Errorf("killed inside, after that: %+v", res)
	}
	got, err := m.Guest().Process.Get(t.Context(), connect.NewRequest(&wire.GetProcessRequest{Key: start.Key}))
	if err != nil || got.Msg.Process.Exit.Reason != sandbox.ReasonOutOfMemory {
		t.Errorf("Get: %v, %v", got, err)
	}
	all, err := m.Guest().Process.List(t.Context(), connect.NewRequest(&wire.ListProcessesRequest{}))
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range all.Msg.Processes {
		want := ""
		if p.Key == start.Key {
			want = sandbox.ReasonOutOfMemory
		}
		if p.Exit.GetReason() != want {
			t.Errorf("%s: reason %q, want %q", p.Key, p.Exit.GetReason(), want)
		}
	}
}
