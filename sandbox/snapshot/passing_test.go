package snapshot_test

import (
	"context"
	"log/slog"
	"os"
	"testing"
	"time"

	"github.com/skete-dev/skete/kv/kvtest"
	"github.com/skete-dev/skete/sandbox"
	"github.com/skete-dev/skete/sandbox/snapshot"
)

// noVolumes has none.
type noVolumes struct{ sandbox.Volumes }

func (noVolumes) List(context.Context) ([]string, error)       { return nil, nil }
func (noVolumes) Remove(context.Context, string) error         { return nil }
func (noVolumes) Usage(context.Context, string) (int64, error) { return 0, nil }

// A server that dies after the machines of a fork have come up, and before it
// drops the fork's snapshot, leaves it to them: it goes with the last.
func TestLeftovers_aForksSnapshotGoesWithItsLastMachine(t *testing.T) {
	ctx := t.Context()
	c := snapshot.Config{
		Dir: t.TempDir(), Node: "one", Registry: kvtest.NewMemory(), Volumes: noVolumes{},
		Log: slog.New(slog.DiscardHandler), Now: time.Now,
	}
	died := snapshot.New(c)
	snap := sandbox.Snapshot{ID: sandbox.NewSnapshotID(), Tenant: "t", Memory: true}
	dir, err := died.Begin(ctx, snap, true, 0)
	if err == nil {
		_, err = died.Finish(ctx, snap.ID)
	}
	if err != nil {
		t.Fatal(err)
	}
	s := snapshot.New(c)
	if err := s.Load(ctx); err != nil {
		t.Fatal(err)
	}
	a, b := sandbox.NewID(), sandbox.NewID()
	s.Rehold(snap.ID, a)
	s.Rehold(snap.ID, b)
	s.Remove(ctx, s.Leftovers(ctx))
	s.Release(ctx, snap.ID, a)
	if _, err := os.Stat(dir); err != nil {
		t.Fatalf("a machine needs it: %v", err)
	}
	s.Release(ctx, snap.ID, b)
	if _, err := os.Stat(dir); !os.IsNotExist(err) {
		t.Errorf("no machine needs it, and it is there: %v", err)
	}
}
