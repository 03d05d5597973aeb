package process

import (
	"bytes"
	"fmt"
	"os"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"

	"github.com/skete-dev/skete/guest/initd/pair"
	"github.com/skete-dev/skete/guest/process/spool"
	"github.com/skete-dev/skete/guest/wire"
)

// What a command wrote before its end is told with the end, also on a host where the
// pump does not get a turn in settleWait, while a process that the command left behind
// holds the streams open.
func TestEnd_outputIsOwed(t *testing.T) {
	for _, c := range []struct {
		name     string
		after    func(t *testing.T, p *pump, w *os.File) // the end of the process
		settled  bool                                    // by it
		finished bool                                    // the stream, by it
	}{
		{"not moved", func(*testing.T, *pump, *os.File) {}, false, false},
		{"moved", func(t *testing.T, p *pump, _ *os.File) { drained(t, p, false) }, true, false},
		{"thrown away", func(t *testing.T, p *pump, _ *os.File) {
			if done, err := p.discard(int(p.in.Fd()), unix.ENOSPC); done || err != nil {
				t.Fatal(done, err)
			}
		}, true, false},
		{"more is written later, and not all is moved", func(t *testing.T, p *pump, w *os.File) {
			drained(t, p, false)
			write(t, w, 100)
		}, true, false},
		{"read by a process that has the pipe", func(t *testing.T, p *pump, _ *os.File) {
			if _, err := unix.Read(int(p.in.Fd()), make([]byte, 1<<20)); err != nil {
				t.Fatal(err)
			}
		}, true, false},
		{"moved, and the stream has ended", func(t *testing.T, p *pump, w *os.File) {
			w.Close()
			drained(t, p, true)
		}, true, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			p, w := brokenOff(t)
			write(t, w, 50<<10)
			synctest.Test(t, func(t *testing.T) {
				p.settled, p.exited = make(chan struct{}), make(chan struct{})
				p.end(pair.Exit{ID: 1})
				<-time.After(3 * settleWait) // of the bubble
				if isClosed(p.settled) {
					t.Fatal("the end is told without what was written before it")
				}
				c.after(t, p.streams[0], w)
				if c.finished {
					p.streamEnded()
					if !isClosed(p.settled) {
						t.Error("waited for more after the end of the stream")
					}
				}
				<-time.After(2 * settleWait) // of the bubble
				if got := isClosed(p.settled); got != c.settled {
					t.Errorf("settled: %v, want %v", got, c.settled)
				}
				p.halt() // ends the clock
				p.core.wg.Wait()
			})
		})
	}
}

// The end of a process can be told as soon as it is known: what it wrote is moved all the same.
func TestRegister_theEndComesAtOnce(t *testing.T) {
	const said = "over http\n"
	dir := t.TempDir()
	for i := range 500 {
		r, w, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		if _, err := w.WriteString(said); err != nil {
			t.Fatal(err)
		}
		w.Close()
		c := &Core{
			quit: make(chan struct{}), usedMax: outputBytesDefault, running: make(chan struct{}, 1),
			byKey: map[string]*proc{}, byID: map[uint64]*proc{}, early: map[uint64]pair.Exit{},
		}
		p := &proc{
			core: c, id: 1, key: "k", req: &wire.StartRequest{}, stdin: closedStdin(), released: true,
			stop: make(chan struct{}), exited: make(chan struct{}), settled: make(chan struct{}),
		}
		p.out, p.err = spool.New(dir, fmt.Sprintf("%d.out", i), spool.BoundsOf(0), &c.used), spool.New(dir, fmt.Sprintf("%d.err", i), spool.BoundsOf(0), &c.used)
		p.entry.Stdout = r
		var wg sync.WaitGroup
		wg.Go(func() {
			for known := false; !known; {
				c.mu.Lock()
				known = c.byID[p.id] != nil
				c.mu.Unlock()
			}
			c.onExit(pair.Exit{ID: p.id})
		})
		c.register(p)
		<-p.settled
		_, _, size, _ := p.out.Extent()
		wg.Wait()
		p.pumps.Wait()
		c.wg.Wait()
		r.Close()
		if size != int64(len(said)) {
			t.Fatalf("process %d: the end is told after %d bytes of %d", i, size, len(said))
		}
	}
}

// brokenOff is a process whose only pump does not get a turn.
func brokenOff(t *testing.T) (*proc, *os.File) {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.Close(); w.Close() })
	if err := unix.SetNonblock(int(r.Fd()), true); err != nil {
		t.Fatal(err)
	}
	c := &Core{quit: make(chan struct{}), usedMax: outputBytesDefault}
	p := &proc{core: c, id: 1, stdin: closedStdin(), stop: make(chan struct{}), released: true, live: 1}
	p.out = spool.New(t.TempDir(), "1.out", spool.BoundsOf(0), &c.used)
	p.streams = []*pump{{core: c, spool: p.out, in: r, stop: p.stop}}
	return p, w
}

func write(t *testing.T, w *os.File, n int) {
	t.Helper()
	if _, err := w.Write(bytes.Repeat([]byte{'x'}, n)); err != nil {
		t.Fatal(err)
	}
}

func drained(t *testing.T, p *pump, end bool) {
	t.Helper()
	if done, err := p.drain(int(p.in.Fd())); done != end || err != nil {
		t.Fatalf("done: %v, want %v: %v", done, end, err)
	}
}
