package sandboxtest

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"connectrpc.com/connect"

	"github.com/skete-dev/skete/internal/patience"
	"github.com/skete-dev/skete/sandbox"
)

// testMemoryLimit: a hog ends, or its machine does; the reason is named.
func testMemoryLimit(s *suite) {
	if !s.p.Capabilities().LimitsMemory {
		s.Skipf("%s does not limit memory here: %q", s.p.Name(), s.p.Capabilities().Notes)
	}
	b := s.boot(func(b *sandbox.Boot) { b.Spec.MemoryMB = 192 })
	tool := s.tool(b)
	m, g := s.create(b)
	// At once, and after a time in which nothing moved: a guest that looks at its
	// memory may look less often then.
	for _, rest := range []string{"0", "4"} {
		ctx, cancel := patience.Context(s.Context(), time.Minute)
		defer cancel()
		res, err := g.Exec(ctx, Start(tool, "hog", "1024", rest))
		if strings.Contains(res.Stdout, "allocated") {
			s.Fatal("1 GiB was allocated in a machine of 192 MiB")
		}
		if err != nil || res.Reason != sandbox.ReasonOutOfMemory {
			s.Logf("the command's end: %+v, %v", res, err)
			if e := s.wait(m); e.Reason != sandbox.ReasonOutOfMemory {
				s.Errorf("the machine's exit = %+v", e)
			}
			return
		}
		if again := g.Run("/bin/echo", "alive"); again.Stdout != "alive\n" {
			s.Errorf("after the command's end: %+v", again)
		}
	}
}

// testCPULimit lets a machine of half a core do what it can. The host counts
// what that was: a kernel that is held back counts its own time badly, an
// emulated one's clock stands still and jumps. Other load on the host makes the
// share smaller, never greater.
func testCPULimit(s *suite) {
	if !s.p.Capabilities().LimitsCPU {
		s.Skipf("%s does not limit cpu here: %q", s.p.Name(), s.p.Capabilities().Notes)
	}
	b := s.boot(func(b *sandbox.Boot) { b.Spec.CPUs = 0.5 })
	tool := s.tool(b)
	_, g := s.create(b)
	pid := s.HostPID(s, b.ID)
	before, began := cpuTime(s, pid), time.Now()
	g.Run(tool, "spin", "3")
	cores := (cpuTime(s, pid) - before).Seconds() / time.Since(began).Seconds()
	if cores < 0.02 || cores > 0.65 {
		s.Errorf("a machine of half a core took %.2f", cores)
	}
}

// cpuTime is what the processes of pid's control group, and their children that
// have ended, took so far.
func cpuTime(t testing.TB, pid int) time.Duration {
	t.Helper()
	var ticks int64
	for _, pid := range neighbours(t, pid) {
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		if err != nil {
			continue // it has just ended
		}
		_, rest, _ := strings.Cut(string(stat), ") ") // no name has that in it here
		fields := strings.Fields(rest)
		for _, field := range fields[11:15] { // its own and of ended children: see proc_pid_stat(5)
			n, err := strconv.ParseInt(field, 10, 64)
			must(t, err)
			ticks += n
		}
	}
	const ticksPerSecond = 100 // USER_HZ, which is part of Linux's interface
	return time.Duration(ticks) * time.Second / ticksPerSecond
}

// neighbours are the processes in pid's control group of the cpu controller.
func neighbours(t testing.TB, pid int) []int {
	t.Helper()
	member, err := os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", pid))
	must(t, err)
	var dir string
	for line := range strings.Lines(string(member)) { // see cgroups(7)
		part := strings.SplitN(strings.TrimSpace(line), ":", 3)
		switch {
		case slices.Contains(strings.Split(part[1], ","), "cpu"):
			dir = filepath.Join("/sys/fs/cgroup", part[1], part[2])
		case part[1] == "" && dir == "":
			dir = filepath.Join("/sys/fs/cgroup", part[2])
		}
	}
	var pids []int
	must(t, filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if err != nil || d.Name() != "cgroup.procs" {
			return err
		}
		list, err := os.ReadFile(path)
		for word := range strings.FieldsSeq(string(list)) {
			pid, err := strconv.Atoi(word)
			must(t, err)
			pids = append(pids, pid)
		}
		return err
	}))
	if !slices.Contains(pids, pid) {
		t.Fatalf("process %d is not in its own control group %s: %v", pid, dir, pids)
	}
	return pids
}

// testProcessLimit lets a fork bomb run into the bound; the machine and its
// supervisor live on.
func testProcessLimit(s *suite) {
	if !s.p.Capabilities().LimitsPids {
		s.Skipf("%s does not limit processes: %q", s.p.Name(), s.p.Capabilities().Notes)
	}
	b := s.boot(func(b *sandbox.Boot) { b.Spec.PidsMax = 100 })
	tool := s.tool(b)
	_, g := s.create(b)
	res := g.Run(tool, "fork", "200")
	started, _ := strconv.Atoi(strings.Fields(res.Stdout + " 0")[0])
	if started < 5 || started > 100 {
		s.Errorf("%d of 200 children started with a bound of 100 tasks: %+v", started, res)
	}
	// All that is left is taken too, and taken again when it is given back. Then
	// the supervisor has much to do at once: it must not need what is not there.
	hold := Start("/bin/sh", "-c", "while :; do (exec /bin/sleep 1000) & done")
	for i := range 3 {
		hold.Key, hold.Background = fmt.Sprint("hold", i), true
		_, _ = g.Process.Start(s.Context(), connect.NewRequest(hold))
	}
	var all sync.WaitGroup
	for i := range stormSize {
		all.Go(func() {
			for j := range 4 {
				g.Write(fmt.Sprintf("storm-%d-%d", i, j), 0o644, make([]byte, 64<<10))
			}
		})
	}
	all.Wait()
	if h, err := g.Hello(s.Context()); err != nil || h.SuperviseStarts != 1 {
		s.Errorf("the guest after the bomb: %v, %v", h, err)
	}
}

// stormSize is how many files are written at once.
const stormSize = 24

// testDiskLimit fills every place that a command can write to. Each says how
// large it is: its own bound, not the host's disk.
func testDiskLimit(s *suite) {
	caps := s.p.Capabilities()
	if !caps.LimitsDisk {
		s.Skipf("%s does not limit the disk: %q", s.p.Name(), caps.Notes)
	}
	const mb = 64
	b := s.boot(func(b *sandbox.Boot) {
		b.Spec.DiskMB = mb
		switch {
		case !caps.HostWorkspace:
			b.Disk = s.Disk(s, mb<<20)
		case s.Volume != nil:
			b.Workspace = s.Volume(s, mb<<20)
		}
	})
	tool := s.tool(b)
	_, g := s.create(b)
	largest := int64(max(2*mb, b.Spec.MemoryMB)) << 20
	places := []string{"/home/user", "/tmp", "/dev/shm", "/var/tmp"}
	if s.Volume != nil || !caps.HostWorkspace {
		places = append(places, sandbox.WorkspaceDir)
	}
	for _, place := range places {
		shown := g.Run(tool, "room", place)
		if bytes, err := strconv.ParseInt(strings.TrimSpace(shown.Stdout), 10, 64); err != nil || bytes <= 0 || bytes > largest {
			s.Errorf("%s: df would show %d bytes of a sandbox of %d MB: %+v", place, bytes, mb, shown)
		}
		res := g.Run(tool, "fill", place+"/filler", "600")
		if verdict, n, _ := strings.Cut(strings.TrimSpace(res.Stdout), " "); verdict != "full" {
			s.Errorf("%s: %+v (%s), want full", place, res, n)
		}
		if res := g.Run("/bin/rm", "-f", place+"/filler"); res.Code != 0 {
			s.Errorf("rm in a full %s: %+v", place, res)
		}
	}
	if res := g.Run("/bin/echo", "alive"); res.Stdout != "alive\n" {
		s.Errorf("after the fillers: %+v", res)
	}
}
