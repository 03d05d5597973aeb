package cgroup

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/skete-dev/skete/internal/patience"
)

const v1Mounts = `26 25 0:24 / /sys/fs/cgroup rw - tmpfs tmpfs rw
27 26 0:25 / /sys/fs/cgroup/cpu rw,relatime shared:1 - cgroup cgroup rw,cpu
28 26 0:26 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory
29 26 0:27 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw
`

func TestParseMounts(t *testing.T) {
	for name, c := range map[string]struct {
		in   string
		want Tree
	}{
		"v1 and an empty v2": {v1Mounts, Tree{dirs: map[string]string{"cpu": "/sys/fs/cgroup/cpu", "memory": "/sys/fs/cgroup/memory"}}},
		"v2":                 {"30 25 0:27 / /sys/fs/cgroup rw shared:4 - cgroup2 cgroup2 rw\n", Tree{V2: true, dirs: map[string]string{"": "/sys/fs/cgroup"}}},
		"v2 and systemd's":   {"30 25 0:27 / /sys/fs/cgroup/unified rw - cgroup2 c rw\n31 25 0:28 / /sys/fs/cgroup/systemd rw - cgroup c rw\n", Tree{V2: true, dirs: map[string]string{"": "/sys/fs/cgroup/unified"}}},
		"none":               {"1 2 0:1 / / rw - ext4 /dev/a rw\n", Tree{dirs: map[string]string{}}},
		"broken lines":       {"cgroup2\n - cgroup2 x\n1 2 3 - cgroup2 x\n", Tree{dirs: map[string]string{}}},
	} {
		if diff := cmp.Diff(c.want, parseMounts([]byte(c.in)), cmp.AllowUnexported(Tree{})); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

func FuzzParseMounts(f *testing.F) {
	f.Add([]byte(v1Mounts))
	f.Fuzz(func(t *testing.T, data []byte) { parseMounts(data) })
}

// fakeTree is a version 2 hierarchy of plain files.
func fakeTree(t *testing.T, files map[string]string) (Tree, Group) {
	t.Helper()
	tree := Tree{V2: true, dirs: map[string]string{"": t.TempDir()}}
	g := tree.Group("/a/b")
	if err := os.MkdirAll(g.dir(""), 0o755); err != nil {
		t.Fatal(err)
	}
	for name, data := range files {
		if err := os.WriteFile(filepath.Join(g.dir(""), name), []byte(data), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return tree, g
}

func TestReadsVersionTwo(t *testing.T) {
	tree, g := fakeTree(t, map[string]string{
		"memory.events": "low 0\nhigh 1\noom 3\noom_kill 2\noom_group_kill 0\n",
		"memory.peak":   "4096\n",
		"cgroup.procs":  "12\n0\n1\nx\n-4\n12\n13\n",
	})
	if got := g.OOMKills(); got != 2 {
		t.Errorf("OOMKills = %d, want 2", got)
	}
	if got := g.MemoryMax(); got != 4096 {
		t.Errorf("MemoryMax = %d", got)
	}
	if diff := cmp.Diff([]int{12, 13}, g.PIDs()); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]string{"b"}, tree.Group("/a").Children()); diff != "" {
		t.Error(diff)
	}
	if absent := tree.Group("/none"); absent.Exists() || absent.OOMKills() != 0 || len(absent.PIDs()) != 0 {
		t.Error("a missing group is not empty")
	}
}

func TestCreatesInVersionTwo(t *testing.T) {
	tree, g := fakeTree(t, map[string]string{"memory.max": "", "pids.max": "", "cpu.max": "", "memory.swap.max": ""})
	for _, dir := range []string{"/", "/a"} { // the kernel makes these with a group
		if err := os.WriteFile(filepath.Join(tree.Group(dir).dir(""), "cgroup.subtree_control"), nil, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	limits := Limits{MemoryBytes: 1 << 20, SwapToo: true, CPUPeriodUS: 100_000, CPUQuotaUS: 50_000, Tasks: 9}
	if err := errors.Join(g.Create(limits), g.LimitCPU(limits)); err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	for _, file := range []string{"memory.max", "pids.max", "cpu.max", "memory.swap.max", "../cgroup.subtree_control"} {
		data, err := os.ReadFile(filepath.Join(g.dir(""), file))
		if err != nil {
			t.Fatal(err)
		}
		got[file] = string(data)
	}
	want := map[string]string{
		"memory.max": "1048576", "pids.max": "9", "cpu.max": "50000 100000", "memory.swap.max": "0",
		"../cgroup.subtree_control": "+memory +cpu +pids",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if err := g.Start(exec.Command("true")); err == nil {
		t.Error("a command was started in a directory that is no control group")
	}
}

func TestKillAndRemove(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("control groups need root here")
	}
	tree, err := Find()
	if err != nil {
		t.Skip(err)
	}
	path := "/skete-test-" + strconv.Itoa(os.Getpid())
	if err := tree.Probe(t.Context(), path); err != nil {
		t.Skipf("no control groups to use: %v", err)
	}
	g := tree.Group(path)
	if g.Exists() {
		t.Fatal("the probe left its group")
	}
	if err := os.MkdirAll(g.dir("memory"), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = g.Kill(context.Background()); _ = g.Remove(context.Background()) })
	cmd := exec.Command("sh", "-c", `echo 0 > "$0"/cgroup.procs; sleep 100 & sleep 100 & wait`, g.dir("memory"))
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(patience.Of(10 * time.Second)); len(g.PIDs()) < 3; {
		if time.Now().After(deadline) {
			t.Fatalf("processes in the group: %v", g.PIDs())
		}
	}
	if err := g.Kill(t.Context()); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
	for range 2 {
		if err := g.Remove(t.Context()); err != nil {
			t.Error(err)
		}
	}
	if g.Exists() {
		t.Error("the group is still there")
	}
}

// version1 is the host's tree where this process may make groups in it.
func version1(t *testing.T) Tree {
	t.Helper()
	tree, err := Find()
	if err != nil || tree.V2 || os.Geteuid() != 0 || !tree.Has("memory", "cpu", "pids") {
		t.Skip("needs root and control groups of version 1")
	}
	if err := tree.Probe(t.Context(), "/skete-test-probe-"+strconv.Itoa(os.Getpid())); err != nil {
		t.Skipf("no control groups to use: %v", err)
	}
	return tree
}

func TestWhatIsForkedInAGroupIsBornWithItsLimitsAndLeavesNobodyElseThere(t *testing.T) {
	g := version1(t).Group("/skete-test-enter-" + strconv.Itoa(os.Getpid()))
	t.Cleanup(func() { _ = g.Kill(context.Background()); _ = g.Remove(context.Background()) })
	limits := Limits{MemoryBytes: 64 << 20, CPUPeriodUS: 100_000, CPUQuotaUS: 50_000, Tasks: 7}
	if err := errors.Join(g.Create(limits), g.LimitCPU(limits)); err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	for file, c := range map[string]string{"memory.limit_in_bytes": "memory", "cpu.cfs_period_us": "cpu", "cpu.cfs_quota_us": "cpu", "pids.max": "pids"} {
		data, err := os.ReadFile(filepath.Join(g.dir(c), file))
		if err != nil {
			t.Fatal(err)
		}
		got[file] = strings.TrimSpace(string(data))
	}
	want := map[string]string{"memory.limit_in_bytes": "67108864", "cpu.cfs_period_us": "100000", "cpu.cfs_quota_us": "50000", "pids.max": "7"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	cmd := exec.Command("sleep", "100")
	if err := g.Run(cmd.Start); err != nil {
		t.Fatal(err)
	}
	for _, c := range limiting {
		for deadline := time.Now().Add(patience.Of(10 * time.Second)); ; {
			data, err := os.ReadFile(filepath.Join(g.dir(c), "tasks"))
			if err != nil {
				t.Fatal(err)
			}
			if strings.TrimSpace(string(data)) == strconv.Itoa(cmd.Process.Pid) {
				break
			}
			if time.Now().After(deadline) {
				t.Fatalf("%s: tasks %q, want only the child %d", c, data, cmd.Process.Pid)
			}
		}
	}
	if err := g.Kill(t.Context()); err != nil {
		t.Error(err)
	}
	_ = cmd.Wait()
	if err := g.Remove(t.Context()); err != nil || g.Exists() {
		t.Errorf("the group is still there: %v", err)
	}
}

// The main thread cannot end, so it would stay in the group for good.
func TestNoRunUsesTheMainThread(t *testing.T) {
	g := version1(t).Group("/skete-test-main-" + strconv.Itoa(os.Getpid()))
	t.Cleanup(func() { _ = g.Remove(context.Background()) })
	if err := g.Create(Limits{}); err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	for range 200 {
		wg.Go(func() {
			err := g.Run(func() error {
				if unix.Gettid() == unix.Getpid() {
					return errors.New("on the main thread")
				}
				return nil
			})
			if err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if err := g.Remove(t.Context()); err != nil {
		t.Error(err)
	}
}
