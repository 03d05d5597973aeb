package store

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestMemoryLimit(t *testing.T) {
	for total, want := range map[int64]int64{0: 128 << 20, 256 << 20: 256 << 20 / 10 * 6, 64 << 30: 512 << 20} {
		if got := memoryLimit(total); got != want {
			t.Errorf("memoryLimit(%d) = %d, want %d", total, got, want)
		}
	}
	got := memoryLimitFiles("12:cpu,memory:/a/b\n1:name=systemd:/x\n0::/c\nrubbish\n")
	want := []string{
		"/sys/fs/cgroup/memory/a/b/memory.limit_in_bytes",
		"/sys/fs/cgroup/memory/a/memory.limit_in_bytes",
		"/sys/fs/cgroup/memory/memory.limit_in_bytes",
		"/sys/fs/cgroup/c/memory.max",
		"/sys/fs/cgroup/memory.max",
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
}
