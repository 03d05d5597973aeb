package store

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func FuzzKey(f *testing.F) {
	for _, s := range []string{"", "a", "a/b", "a.b", "=2e", "=", "*", ">", "\x00\xff/ü", "a//b", "/"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, key string) {
		if enc, err := encodeKey(key); err == nil {
			if strings.ContainsFunc(enc, func(r rune) bool { return !(r < 0x80 && plain(byte(r))) && r != '=' && r != '.' }) {
				t.Errorf("encoded %q as %q", key, enc)
			}
			if got, err := decodeKey(enc); err != nil || got != key {
				t.Errorf("decoded %q as %q, %v; it was %q", enc, got, err, key)
			}
		}
		if dec, err := decodeKey(key); err == nil {
			if enc, err := encodeKey(dec); err != nil || enc != key {
				t.Errorf("%q decodes to %q, which encodes to %q, %v", key, dec, enc, err)
			}
		}
	})
}

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
