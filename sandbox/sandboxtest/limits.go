package sandboxtest

import (
	"context"
	"runtime"
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
	if e := s.wait(m); e.Reason != sandbox.ReasonOutOfMemory {
		s.Errorf("the machine's exit = %+v, the command's = %+v, %v", e, res, err)
	}
}

// testCPULimit compares the work that half a core does with the work of all
// cores. The command's own clocks are no judge: a kernel that is held back
// does not count its time well. Other load on the host may distort a round,
// so there are three; without a limit all three would come out near 1.
func testCPULimit(s *suite) {
	if !s.p.Capabilities().LimitsCPU {
		s.Skipf("%s does not limit cpu here: %q", s.p.Name(), s.p.Capabilities().Notes)
	}
	cores := float64(runtime.NumCPU())
	work := func(cpus float64) float64 {
		b := s.boot(func(b *sandbox.Boot) { b.Spec.CPUs = cpus })
		tool := s.tool(b)
		_, g := s.create(b)
		res := g.Run(tool, "spin", "2")
		n, err := strconv.ParseFloat(strings.TrimSpace(res.Stdout), 64)
		must(s, err)
		return n
	}
	var shares []float64
	for range 3 {
		share := work(0.5) / work(cores)
		if shares = append(shares, share); share < 1.5*0.5/cores {
			return
		}
	}
	s.Errorf("half a core did these shares of the work of %v cores: %.2f", cores, shares)
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
		if s.Volume != nil {
			b.Workspace = s.Volume(s, mb<<20)
		}
	})
	tool := s.tool(b)
	_, g := s.create(b)
	places := []string{"/home/user", "/tmp", "/dev/shm", "/var/tmp"}
	if s.Volume != nil {
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
