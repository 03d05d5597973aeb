package manager_test

import (
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/sandbox"
	"github.com/skete-dev/skete/sandbox/quota"
)

const gb = 1 << 30

// Over its tenant's quota a sandbox that grows is stopped, the largest is not: its
// stop would give nothing back. What was stopped can be started, and stays as long
// as it does not grow again.
func TestQuota_onlyWhoGrowsIsStopped(t *testing.T) {
	timeless(t, func(t *testing.T, w *world) {
		c := w.watched(w.config(nil))
		c.Limits.TenantDiskMB = 100 << 10
		var histories atomic.Int64
		c.Histories = func(string) int64 { return histories.Load() }
		m := w.open(t, c)
		large, small := create(t, m, "t", sandbox.Spec{}).ID, create(t, m, "t", sandbox.Spec{}).ID
		running := func(ids ...sandbox.ID) {
			t.Helper()
			pass(time.Minute)
			for _, id := range ids {
				wantState(t, m, id, sandbox.Running, "")
			}
		}
		w.use(large, 50*gb)
		w.use(small, gb)
		running(large, small)
		histories.Store(60 * gb)
		running(large, small)
		w.use(small, gb+growsLittle)
		running(large, small)
		stop := w.grow(small)
		running(large)
		wantState(t, m, small, sandbox.Stopped, sandbox.ReasonDiskQuota)
		stop()
		if _, err := m.Start(t.Context(), "t", small); err != nil {
			t.Fatal(err)
		}
		running(large, small)
		w.grow(large)
		running(small)
		wantState(t, m, large, sandbox.Stopped, sandbox.ReasonDiskQuota)
	})
}

// growsLittle is what a file that is edited may cost.
const growsLittle = 1 << 20

// What histories take counts, those of sandboxes that are gone too; the refusal says
// what holds how much, and the history of the tenant hears it as well.
func TestQuota_countsHistories(t *testing.T) {
	w := newWorld(t)
	c := w.watched(w.config(nil))
	c.Limits.TenantDiskMB = 100 << 10
	var histories atomic.Int64
	c.Histories = func(tenant string) int64 {
		if tenant != "t" {
			return 0
		}
		return histories.Load()
	}
	m := w.open(t, c)
	id := create(t, m, "t", sandbox.Spec{}).ID
	w.use(id, 39*gb)
	if err := m.Within("t"); err != nil {
		t.Errorf("within its quota: %v", err)
	}
	histories.Store(60 * gb)
	create(t, m, "t", sandbox.Spec{})
	histories.Store(61 * gb)
	refused := func(what string, err error) {
		t.Helper()
		const want = "quota of 102400 MB of disk is used up: sandboxes hold 39936 MB, snapshots 0, histories 62464"
		if !errs.Is(err, errs.Limit) || errs.Public(err) != want || !strings.Contains(errs.Hint(err), "histories of destroyed sandboxes") {
			t.Errorf("%s: %v (%s)", what, err, errs.Hint(err))
		}
	}
	_, err := m.Create(t.Context(), "t", sandbox.CreateRequest{})
	refused("create", err)
	eventually(t, "a history hears of it", func() bool { return m.Within("t") != nil })
	refused("a history", m.Within("t"))
	if held := m.Used("t").DiskHeldMB; held != 100<<10 {
		t.Errorf("%d MB are held", held)
	}
	create(t, m, "other", sandbox.Spec{})
	if err := m.Within("other"); err != nil {
		t.Errorf("another tenant: %v", err)
	}
	histories.Store(0)
	create(t, m, "t", sandbox.Spec{})
	eventually(t, "there is room again", func() bool { return m.Within("t") == nil })
}

// Where workspaces have a disk of their own, a sandbox that grows there runs on
// while the data directory's is full, and is held still for its own.
func TestHoldStill_onlyWhoFillsThatDisk(t *testing.T) {
	timeless(t, func(t *testing.T, w *world) {
		c := w.watched(w.config(nil))
		var data atomic.Int64
		disk := func(name string, free func() int64) quota.Disk {
			return quota.Disk{Name: name, Reserve: reserve, Space: func() (int64, int64, error) { return 1 << 40, free(), nil }}
		}
		c.Host = quota.NewHost(disk("data directory", data.Load), disk("disk of workspaces", func() int64 {
			w.mu.Lock()
			defer w.mu.Unlock()
			return w.free
		}))
		data.Store(plenty)
		m := w.open(t, c)
		id := create(t, m, "t", sandbox.Spec{}).ID
		data.Store(near)
		defer w.grow(id)()
		pass(20 * time.Second)
		wantState(t, m, id, sandbox.Running, "")
		w.setFree(near)
		pass(20 * time.Second)
		wantState(t, m, id, sandbox.Paused, sandbox.ReasonHostFull)
	})
}

// lateDisks answers late, as a disk does that is busy being filled.
type lateDisks struct{ sandbox.Disks }

func (d lateDisks) Held(id string) (held, pending int64, err error) {
	<-time.After(100 * time.Millisecond)
	return d.Disks.Held(id)
}

// A disk that is being filled answers late: the next look at it must not be later
// for that.
func TestHoldStill_looksOftenAtADiskThatAnswersLate(t *testing.T) {
	timeless(t, func(t *testing.T, w *world) {
		c := w.watched(w.config(nil))
		c.Disks = lateDisks{c.Disks}
		var data, looks atomic.Int64
		data.Store(plenty)
		c.Host = quota.NewHost(quota.Disk{Name: "disk", Reserve: reserve, Space: func() (int64, int64, error) {
			looks.Add(1)
			return 1 << 40, data.Load(), nil
		}})
		m := w.open(t, c)
		create(t, m, "t", sandbox.Spec{})
		data.Store(near)
		pass(2 * time.Second) // the look under way
		looks.Store(0)
		pass(10 * time.Second)
		if n := looks.Load(); n < 50 {
			t.Errorf("%d looks in ten seconds", n)
		}
	})
}
