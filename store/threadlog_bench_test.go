package store_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/skete-dev/skete/llm"
	"github.com/skete-dev/skete/store"
	"github.com/skete-dev/skete/thread"
)

// step returns the two appends of a usual step: an answer with one call, and
// its result of 500 bytes.
func step(run thread.RunID, n int, through uint64) (first, second []thread.Event) {
	call := fmt.Sprintf("call_%d", n)
	first = []thread.Event{
		thread.New(run, thread.ModelCompleted{
			Message: llm.Assistant(llm.Text("I look at the file first."), llm.Block{Kind: llm.KindCall, Call: &llm.Call{
				ID: call, Name: "read_file", Args: json.RawMessage(`{"path": "/workspace/main.go", "limit": 200}`),
			}}),
			Model: "vendor/model", Stop: "tool_use", Attempt: 1, Through: through,
		}),
		thread.New(run, thread.ToolStarted{Call: call, Tool: "read_file", Key: "thr/" + call}),
	}
	second = []thread.Event{
		thread.New(run, thread.ToolCompleted{Call: call, Tool: "read_file", Blocks: []llm.Block{llm.Text(strings.Repeat("a line of a file\n", 30))}}),
	}
	return first, second
}

// threadlogBegin opens a thread with a run.
func threadlogBegin(tb testing.TB, log thread.Log, id thread.ID) (run thread.RunID, seq uint64) {
	tb.Helper()
	run = thread.NewRunID()
	seq, err := log.Append(tb.Context(), id, 0,
		thread.New("", thread.Opened{Agent: json.RawMessage(`{}`), Name: "a"}),
		thread.New(run, thread.RunStarted{}),
		thread.New(run, thread.Input{From: "user", Blocks: []llm.Block{llm.Text("do it")}}))
	if err != nil {
		tb.Fatal(err)
	}
	return run, seq
}

func walk(tb testing.TB, log thread.Log, id thread.ID, run thread.RunID, seq uint64, from, steps int) uint64 {
	tb.Helper()
	for n := from; n < from+steps; n++ {
		first, second := step(run, n, seq)
		for _, events := range [][]thread.Event{first, second} {
			var err error
			if seq, err = log.Append(tb.Context(), id, seq, events...); err != nil {
				tb.Fatal(err)
			}
		}
	}
	return seq
}

// cpu is what this process has used so far. Beside the time by the clock it
// says what a call costs on a machine that is busy with other things.
func cpu() time.Duration {
	var u syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u)
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

func reportCPU(b *testing.B, since time.Duration) {
	b.ReportMetric(float64((cpu()-since).Microseconds())/float64(b.N), "cpu-us/op")
}

func benchLog(b *testing.B, c store.Config) thread.Log {
	b.Helper()
	c.Dir = b.TempDir()
	s, err := store.Open(b.Context(), c)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = s.Close() })
	l, err := s.Threads().Log(b.Context(), "bench")
	if err != nil {
		b.Fatal(err)
	}
	return l
}

// BenchmarkAppend is beside the disk's own fsync of as many bytes.
func BenchmarkAppend(b *testing.B) {
	for name, c := range map[string]store.Config{"sync=always": {}, "sync=interval": {SyncInterval: time.Minute}} {
		b.Run(name, func(b *testing.B) {
			log, id := benchLog(b, c), thread.NewID()
			run, seq := threadlogBegin(b, log, id)
			first, _ := step(run, 1, seq)
			b.ReportAllocs()
			began := cpu()
			for b.Loop() {
				var err error
				if seq, err = log.Append(b.Context(), id, seq, first...); err != nil {
					b.Fatal(err)
				}
			}
			reportCPU(b, began)
		})
	}
	b.Run("raw fsync", func(b *testing.B) {
		f, err := os.Create(filepath.Join(b.TempDir(), "f"))
		if err != nil {
			b.Fatal(err)
		}
		defer f.Close()
		data := make([]byte, 900)
		for b.Loop() {
			if _, err := f.Write(data); err != nil {
				b.Fatal(err)
			}
			if err := f.Sync(); err != nil {
				b.Fatal(err)
			}
		}
	})
}

func BenchmarkLoad(b *testing.B) {
	for _, steps := range []int{100, 1000, 10_000} {
		b.Run(fmt.Sprintf("steps=%d", steps), func(b *testing.B) {
			log, id := benchLog(b, store.Config{SyncInterval: time.Minute}), thread.NewID()
			run, seq := threadlogBegin(b, log, id)
			seq = walk(b, log, id, run, seq, 0, steps)
			b.ReportAllocs()
			began := cpu()
			for b.Loop() {
				n := uint64(0)
				for e, err := range log.Load(b.Context(), id, 1) {
					if n++; err != nil || e.Seq != n {
						b.Fatal(e.Seq, err)
					}
				}
				if n != seq {
					b.Fatal(n)
				}
			}
			b.StopTimer()
			reportCPU(b, began)
			var m runtime.MemStats
			runtime.GC()
			runtime.ReadMemStats(&m)
			b.ReportMetric(float64(m.HeapAlloc)/1e6, "heap-MB")
		})
		b.Run(fmt.Sprintf("tail of steps=%d", steps), func(b *testing.B) {
			log, id := benchLog(b, store.Config{SyncInterval: time.Minute}), thread.NewID()
			run, seq := threadlogBegin(b, log, id)
			seq = walk(b, log, id, run, seq, 0, steps)
			for b.Loop() {
				for e, err := range log.Load(b.Context(), id, seq-20) {
					if err != nil {
						b.Fatal(e.Seq, err)
					}
				}
			}
		})
	}
}
