package docker

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/skete-dev/skete/sandbox"
	"github.com/skete-dev/skete/sandbox/docker/enginetest"
	"github.com/skete-dev/skete/sandbox/sandboxtest"
)

// BenchmarkCreate is from nothing to a finished command; the machine's end is
// not counted. Beside it, what the same engine takes to run the same command
// as its own users do, in a container that is made for it.
func BenchmarkCreate(b *testing.B) {
	for _, kind := range enginetest.Kinds {
		b.Run(string(kind), func(b *testing.B) {
			e := enginetest.Start(b, kind)
			p := open(b, e, b.TempDir())
			rootfs := sandboxtest.Rootfs(b)
			b.Run("skete", func(b *testing.B) {
				var took []time.Duration
				for b.Loop() {
					began := time.Now()
					boot := bootOf(b, rootfs)
					m, err := p.Create(b.Context(), boot)
					if err != nil {
						b.Fatal(err)
					}
					if res := sandboxtest.NewGuest(b, m).Run("/bin/true"); res.Code != 0 {
						b.Fatalf("%+v", res)
					}
					took = append(took, time.Since(began))
					b.StopTimer()
					if err := m.Destroy(b.Context()); err != nil {
						b.Fatal(err)
					}
					b.StartTimer()
				}
				reportMedian(b, took)
			})
			if kind != enginetest.Podman {
				return // Docker's own command line is another program
			}
			b.Run("podman-run", func(b *testing.B) {
				var took []time.Duration
				for b.Loop() {
					began := time.Now()
					args := e.Command("run", "--rm", "--network=none", "--read-only", "--cap-drop=all", "--log-driver=none",
						"--ulimit=nproc=30000", "--ulimit=nofile=1024:1024", "--memory=512m", "--pids-limit=256", "--volume=/usr:/usr:ro", "--rootfs", rootfs.Dir, "/bin/true")
					if out, err := exec.Command(args[0], args[1:]...).CombinedOutput(); err != nil {
						b.Fatalf("%v: %s", err, out)
					}
					took = append(took, time.Since(began))
				}
				reportMedian(b, took)
			})
		})
	}
}

func reportMedian(b *testing.B, took []time.Duration) {
	slices.Sort(took)
	b.ReportMetric(float64(took[len(took)/2])/float64(time.Millisecond), "ms/p50")
}

// BenchmarkExec is a command in a machine that runs.
func BenchmarkExec(b *testing.B) {
	p := open(b, enginetest.Start(b, enginetest.Docker), b.TempDir())
	g := sandboxtest.NewGuest(b, create(b, p, bootOf(b, sandboxtest.Rootfs(b))))
	for b.Loop() {
		if res := g.Run("/bin/true"); res.Code != 0 {
			b.Fatalf("%+v", res)
		}
	}
}

// BenchmarkIdleMemory reports what an idle machine holds: its group's memory,
// and what the engine runs for it beside it.
func BenchmarkIdleMemory(b *testing.B) {
	for _, kind := range enginetest.Kinds {
		b.Run(string(kind), func(b *testing.B) {
			p := open(b, enginetest.Start(b, kind), b.TempDir())
			for b.Loop() {
				m := create(b, p, bootOf(b, sandboxtest.Rootfs(b)))
				b.ReportMetric(float64(idleBytes(b, p, m.ID()))/(1<<20), "MiB/guest")
				b.ReportMetric(float64(helperBytes(b, p, m.ID()))/(1<<20), "MiB/helper")
			}
		})
	}
}

// idleBytes adds up what the machine's processes have for themselves.
func idleBytes(b *testing.B, p *Provider, id sandbox.ID) int64 {
	pid := inspect(b, p, id).State.Pid
	group, err := os.ReadFile(fmt.Sprintf("/proc/%d/cpuset", pid))
	if err != nil {
		b.Fatal(err)
	}
	var sum int64
	all, _ := filepath.Glob("/proc/[0-9]*/cpuset")
	for _, path := range all {
		if data, _ := os.ReadFile(path); string(data) == string(group) {
			sum += privateBytes(filepath.Dir(path))
		}
	}
	return sum
}

// helperBytes is what the parent of the machine's first process holds: the
// engine's shim, or conmon.
func helperBytes(b *testing.B, p *Provider, id sandbox.ID) int64 {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", inspect(b, p, id).State.Pid))
	if err != nil {
		b.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(status), "PPid:")
	return privateBytes("/proc/" + strings.Fields(rest)[0])
}

func privateBytes(proc string) int64 {
	data, _ := os.ReadFile(filepath.Join(proc, "smaps_rollup"))
	var sum int64
	for line := range strings.Lines(string(data)) {
		if f := strings.Fields(line); len(f) > 1 && strings.HasPrefix(f[0], "Private_") {
			kb, _ := strconv.ParseInt(f[1], 10, 64)
			sum += kb << 10
		}
	}
	return sum
}
