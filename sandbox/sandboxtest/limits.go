package sandboxtest

import (
	"context"
	"strconv"
	"strings"
	"time"

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
	ctx, cancel := context.WithTimeout(s.Context(), 60*time.Second)
	defer cancel()
	res, err := g.Exec(ctx, Start(tool, "hog", "1024"))
	if strings.Contains(res.Stdout, "allocated") {
		s.Fatal("1 GiB was allocated in a machine of 192 MiB")
	}
	if err == nil && res.Reason == sandbox.ReasonOutOfMemory {
		if again := g.Run("/bin/echo", "alive"); again.Stdout != "alive\n" {
			s.Errorf("after the command's end: %+v", again)
		}
		return
	}
	s.Logf("the command's end: %+v, %v", res, err)
	if e := s.wait(m); e.Reason != sandbox.ReasonOutOfMemory {
		s.Errorf("the machine's exit = %+v", e)
	}
}

// testCPULimit lets a machine of half a core do what it can. The command's own
// clocks are no judge, since a kernel that is held back does not count its
// time well: the work is compared with that of the command's own best moment.
// Other load on the host makes the share smaller, never greater.
func testCPULimit(s *suite) {
	if !s.p.Capabilities().LimitsCPU {
		s.Skipf("%s does not limit cpu here: %q", s.p.Name(), s.p.Capabilities().Notes)
	}
	b := s.boot(func(b *sandbox.Boot) { b.Spec.CPUs = 0.5 })
	tool := s.tool(b)
	_, g := s.create(b)
	res := g.Run(tool, "spin", "3")
	share, _, _ := strings.Cut(res.Stdout, " ")
	cores, err := strconv.ParseFloat(share, 64)
	must(s, err)
	s.Logf("half a core did the work of %.2f", cores)
	if cores < 0.02 || cores > 0.75 {
		s.Errorf("a machine of half a core did the work of %.2f", cores)
	}
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
	if _, err := g.Hello(s.Context()); err != nil {
		s.Errorf("the guest after the bomb: %v", err)
	}
}

// testDiskLimit fills every place that a command can write to.
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
	places := []string{"/home/user", "/tmp", "/dev/shm", "/var/tmp"}
	if s.Volume != nil || !caps.HostWorkspace {
		places = append(places, sandbox.WorkspaceDir)
	}
	for _, place := range places {
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
