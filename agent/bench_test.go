package agent_test

import (
	"context"
	"fmt"
	"syscall"
	"testing"
	"time"

	"github.com/skete-dev/skete/agent/definition"
	"github.com/skete-dev/skete/llm"
	"github.com/skete-dev/skete/store"
	"github.com/skete-dev/skete/thread"
	"github.com/skete-dev/skete/tool"
)

// BenchmarkRun drives whole runs: what a step costs us. ns/op is of a step;
// cpu-µs/step is what the process used for it, which says more on a machine
// that is busy with something else.
func BenchmarkRun(b *testing.B) {
	for _, where := range []string{"memory", "interval"} {
		for _, calls := range []int{1, 8} {
			for _, steps := range []int{100, 1000, 10_000} {
				b.Run(fmt.Sprintf("log=%s/calls=%d/steps=%d", where, calls, steps), func(b *testing.B) { benchRun(b, where, calls, steps) })
			}
		}
	}
}

func benchRun(b *testing.B, where string, calls, steps int) {
	look := fake{name: "look", class: tool.Read, run: func(context.Context, tool.Request) (tool.Result, error) { return tool.Text("seen"), nil }}
	m := &model{info: llm.Info{WindowTokens: 100_000_000}, reply: func(req *llm.Request) (*llm.Response, error) {
		if req.Step > steps {
			return respond(say("ok")), nil
		}
		reply := llm.Assistant(llm.Text("I look."))
		for i := range calls {
			reply.Blocks = append(reply.Blocks, call(fmt.Sprintf("c%d_%d", req.Step, i), "look", fmt.Sprintf(`{"n":%d}`, 100*req.Step+i)))
		}
		return respond(reply), nil
	}}
	var log thread.Log
	if where == "interval" {
		s, err := store.Open(b.Context(), store.Config{Dir: b.TempDir(), SyncInterval: time.Minute})
		must(b, err)
		b.Cleanup(func() { _ = s.Close() })
		log, err = s.Threads().Log(b.Context(), "bench")
		must(b, err)
	}
	d := definition.Definition{Name: "a", Limits: definition.Limits{Budget: thread.Budget{Steps: steps + 1}}}
	b.ReportAllocs()
	cpu, done := time.Duration(0), 0
	for b.ResetTimer(); done < b.N; done += steps {
		b.StopTimer()
		w := newWorldOn(b, log, d, m, look)
		r := w.runner()
		began := used()
		b.StartTimer()
		if o, err := r.Run(b.Context()); err != nil || !o.Ended {
			b.Fatal(o, err)
		}
		cpu += used() - began
	}
	b.ReportMetric(float64(cpu.Microseconds())/float64(done), "cpu-µs/step")
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(done), "ns/op")
}

// used is the processor time of this process.
func used() time.Duration {
	var u syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u)
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
