package qemu

import (
	"testing"
	"time"
)

// TestDiskRate: the bound is the host's, whatever the guest does.
func TestDiskRate(t *testing.T) {
	p := open(t, t.TempDir())
	b := bootOf(t)
	b.Spec.DiskMBps = 3
	_, g := create(t, p, b)
	start := time.Now()
	res := g.Run("/bin/sh", "-c", "dd if=/dev/zero of=/workspace/file bs=1M count=24 2>/dev/null && sync")
	took := time.Since(start)
	if res.Code != 0 {
		t.Fatalf("%+v", res)
	}
	// 25 MB at 3 MB a second; a second's worth may come at once.
	if took < 6*time.Second {
		t.Errorf("25 MB were on the disk after %s", took)
	}
	t.Log(took)
}
