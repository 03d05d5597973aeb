package quota_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/sandbox"
	"github.com/skete-dev/skete/sandbox/quota"
)

func TestHost_marks(t *testing.T) {
	const mb = 1 << 20
	for _, tt := range []struct {
		free, pending int64
		begin, goOn   bool
		mark          quota.Mark
	}{
		{free: 300, begin: true, goOn: true, mark: quota.Plenty},
		{free: 199, goOn: true, mark: quota.Plenty},
		{free: 149, goOn: true, mark: quota.Near},
		{free: 99, mark: quota.Touched},
		{free: 300, pending: 210, mark: quota.Touched},
	} {
		h := quota.NewHost(quota.Disk{
			Name: "data directory", Reserve: 100 * mb,
			Space:   func() (int64, int64, error) { return 1000 * mb, tt.free * mb, nil },
			Pending: func() int64 { return tt.pending * mb },
		})
		marks, _ := h.Look()
		if marks != (quota.Marks{Workspaces: tt.mark, Rest: tt.mark}) || (h.Begin() == nil) != tt.begin || (h.GoOn() == nil) != tt.goOn {
			t.Errorf("%+v: marks %d, begin %v, go on %v", tt, marks, h.Begin(), h.GoOn())
		}
		if err := h.Begin(); err != nil && (!errs.Is(err, errs.Unavailable) || !strings.Contains(errs.Public(err), "its data directory has")) {
			t.Errorf("%+v: %v", tt, err)
		}
		if h.Fits(800) != nil || !errs.Is(h.Fits(801), errs.Limit) {
			t.Errorf("%v, %v", h.Fits(800), h.Fits(801))
		}
	}
	var none *quota.Host
	if marks, _ := none.Look(); marks.Worst() != quota.Plenty || none.Begin() != nil || none.Fits(1<<40) != nil {
		t.Error("a host of no disks has no room")
	}
}

// How large a workspace may be is a matter of the disk of workspaces, also while that
// cannot be read.
func TestHost_mostIsOfTheDiskOfWorkspaces(t *testing.T) {
	const mb = 1 << 20
	var broken error
	h := quota.NewHost(
		quota.Disk{Name: "data directory", Reserve: 10 * mb, Space: func() (int64, int64, error) { return 100 * mb, 100 * mb, nil }},
		quota.Disk{Name: "disk of workspaces", Reserve: 10 * mb, Space: func() (int64, int64, error) { return 1000 * mb, 1000 * mb, broken }},
	)
	broken = errors.New("input/output error")
	if most := h.MostMB(); most != 0 || h.Fits(500) != nil {
		t.Errorf("at most %d MB on a disk that cannot be read, %v", most, h.Fits(500))
	}
	broken = nil
	h.Look()
	if most := h.MostMB(); most != 980 || h.Fits(980) != nil || !errs.Is(h.Fits(981), errs.Limit) {
		t.Errorf("at most %d MB, %v", most, h.Fits(980))
	}
}

func TestCharge_disk(t *testing.T) {
	q := quota.New(sandbox.Limits{Sandboxes: 10, TenantDiskMB: 100})
	spec := sandbox.Spec{DiskMB: 60}
	if err := q.Charge("a", "one", quota.Kept(spec)); err != nil {
		t.Fatal(err)
	}
	if err := q.Charge("a", "two", quota.Kept(spec)); !errs.Is(err, errs.Limit) || !strings.Contains(errs.Public(err), "quota of 100 MB of disk is used up: its sandboxes were promised 60, and 60 more are asked for") {
		t.Errorf("over the quota: %v", err)
	}
	if err := q.Charge("b", "three", quota.Kept(spec)); err != nil {
		t.Errorf("another tenant: %v", err)
	}
	// A start of what is there adds no disk.
	if err := q.Charge("a", "one", quota.Machine(spec)); err != nil {
		t.Error(err)
	}
	q.Set("a", "one", quota.Usage{})
	if err := q.Charge("a", "two", quota.Kept(spec)); err != nil {
		t.Errorf("after a destroy: %v", err)
	}
}
