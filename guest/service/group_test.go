package service

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// Where the kernel is not the machine's own, as here, no group of it is touched.
func TestFind_leavesAHostAlone(t *testing.T) {
	if k := findGroups(); k != (cgroups{}) {
		t.Fatalf("%+v", k)
	}
	var k cgroups
	l := groupLimits{Memory: 1, Tasks: 1, CPUWeight: 1}
	if k.Gate("x.0", l) != "" || k.OutOfMemory("x.0") {
		t.Error("it waits for a group that nobody makes, or read one")
	}
	if d := cmp.Diff([]string{"cpu_weight", "pids"}, k.Put("x.0", l, func() []int { return []int{os.Getpid()} })); d != "" {
		t.Error(d)
	}
	k.Remove("x.0")
}

// A hierarchy is the machine's own if it has no groups but init's.
func TestGroupsIn(t *testing.T) {
	for _, tt := range []struct {
		there []string
		own   bool
		found int
	}{{nil, true, 0}, {[]string{"skete-1"}, true, 1}, {[]string{"skete-1", "system.slice"}, false, 0}, {[]string{"docker"}, false, 0}} {
		root := t.TempDir()
		for _, d := range tt.there {
			if err := os.Mkdir(filepath.Join(root, d), 0o755); err != nil {
				t.Fatal(err)
			}
		}
		if err := os.WriteFile(filepath.Join(root, "cgroup.procs"), nil, 0o644); err != nil {
			t.Fatal(err)
		}
		if groups, own := groupsIn(root, ownPrefix); own != tt.own || len(groups) != tt.found {
			t.Errorf("%v: %v %v", tt.there, groups, own)
		}
	}
	if _, own := groupsIn(filepath.Join(t.TempDir(), "none"), ownPrefix); own {
		t.Error("nothing is ours")
	}
}

func TestKills(t *testing.T) {
	for text, want := range map[string]uint64{
		"": 0, "low 0\nhigh 0\nmax 7\noom 1\noom_kill 2\noom_group_kill 1\n": 2, "oom_kill x\n": 0, "oom_kill": 0, "oom_kill -1\n": 0, "oom_group_kill 4\n": 0,
	} {
		if got := groupKills(text); got != want {
			t.Errorf("%q: %d, not %d", text, got, want)
		}
	}
}

func FuzzKills(f *testing.F) {
	f.Add("oom_kill 1\n")
	f.Fuzz(func(_ *testing.T, text string) { groupKills(text) })
}

// What is too much is said once; what is not, never; and it ends.
func TestWatch(t *testing.T) {
	self := func() []int { return []int{os.Getpid()} }
	said := 0
	cgroups{}.Watch(t.Context(), "x", groupLimits{Memory: 1}, self, func() { said++ })
	if said != 1 {
		t.Errorf("said %d times", said)
	}
	ctx, cancel := context.WithCancel(t.Context())
	looks := 0
	cgroups{}.Watch(ctx, "x", groupLimits{Memory: 1 << 50}, func() []int {
		if looks++; looks == 3 {
			cancel()
		}
		return self()
	}, func() { t.Error("it is not too much") })
	if looks < 3 {
		t.Errorf("it looked %d times", looks)
	}
	cgroups{}.Watch(ctx, "x", groupLimits{}, func() []int { t.Error("nothing is to be looked at"); return nil }, func() {})
}
