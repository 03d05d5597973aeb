package guest_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"connectrpc.com/connect"

	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/guest/wire"
	"github.com/skete-dev/skete/internal/patience"
)

// eventually polls until ok or the time is over.
func eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	patience.Until(t, 15*time.Second, what, ok)
}

// zombies counts the dead children of init that it has not reaped.
func (m *machine) zombies() int {
	n := 0
	stats, _ := filepath.Glob("/proc/[0-9]*/stat")
	for _, s := range stats {
		data, _ := os.ReadFile(s)
		_, rest, _ := strings.Cut(string(data), ") ")
		if f := strings.Fields(rest); len(f) > 1 && f[0] == "Z" && f[1] == strconv.Itoa(m.cmd.Process.Pid) {
			n++
		}
	}
	return n
}

func TestInit_tenThousandSpawnsExactStatusNoZombie(t *testing.T) {
	m := start(t, options{mustPID: true})
	m.hello()
	spawns, workers := 10_000, 4
	if testing.Short() {
		spawns = 1000
	}
	var wg sync.WaitGroup
	for w := range workers {
		wg.Go(func() {
			for i := w; i < spawns; i += workers {
				script, want := fmt.Sprintf("exit %d", i%256), int32(i%256)
				switch i % 50 {
				case 7: // leaves an orphan that init must reap
					script, want = "(true & exec true) & exit 3", 3
				case 9:
					script, want = "kill -KILL $$", 128+9
				}
				r, err := m.exec(&wire.StartRequest{Argv: sh(script)})
				if err != nil || r.exit.GetExit().GetCode() != want {
					t.Errorf("spawn %d (%s): %v, %v", i, script, r.exit, err)
					return
				}
			}
		})
	}
	wg.Wait()
	eventually(t, "no zombies", func() bool { return m.zombies() == 0 })
}

// retry repeats a call while the guest is away for a moment.
func retry[T any](t testing.TB, call func() (T, error)) (T, error) {
	end := time.Now().Add(patience.Of(time.Minute))
	for {
		v, err := call()
		if err = wire.Err(err); err == nil || !errs.Temporary(err) || time.Now().After(end) {
			return v, err
		}
	}
}

// killer kills supervise at random moments, n times, and closes done then.
func (m *machine) killer(seed uint64, n int, most time.Duration) (done <-chan struct{}) {
	ch := make(chan struct{})
	random := rand.New(rand.NewPCG(seed, 1))
	go func() {
		defer close(ch)
		for last := 0; n > 0; {
			select {
			case <-m.ended:
				return
			case <-time.After(time.Duration(random.Int64N(int64(most)))):
			}
			if pid := m.supervise(); pid > 0 && pid != last && syscall.Kill(pid, syscall.SIGKILL) == nil {
				last = pid
				n--
			}
		}
	}()
	return ch
}

func TestSupervise_killedHundredTimesLosesNoByte(t *testing.T) {
	m := start(t, options{})
	m.hello()
	kills, least := 100, int64(50<<20)
	if testing.Short() {
		kills, least = 20, 10<<20
	}
	_, err := m.client.Process.Start(background(t), connect.NewRequest(&wire.StartRequest{
		Key: "stream", Argv: argv("tee", "/dev/stderr"), Stdin: true, Overflow: wire.Overflow_OVERFLOW_WAIT,
	}))
	if err != nil {
		t.Fatal(err)
	}
	before, err := m.client.Process.Get(background(t), connect.NewRequest(&wire.GetProcessRequest{Key: "stream"}))
	if err != nil {
		t.Fatal(err)
	}
	killed := m.killer(1, kills, 60*time.Millisecond)
	total := make(chan int64, 1)
	go func() { total <- m.feed("stream", least, killed) }()
	seen := follow(t, m, "stream")
	sent := <-total
	t.Logf("%d bytes each way through %d kills", sent, m.hello().SuperviseStarts-1)
	if seen.exit.GetExit().GetCode() != 0 || seen.out != sent || seen.err != sent {
		t.Errorf("sent %d, stdout %d, stderr %d, %v", sent, seen.out, seen.err, seen.exit)
	}
	if seen.exit.Pid != before.Msg.Process.Pid {
		t.Errorf("pid was %d, then %d", before.Msg.Process.Pid, seen.exit.Pid)
	}
}

// pattern fills p with the bytes of an endless known stream from off on.
func pattern(p []byte, off int64) {
	for i := range p {
		n := off + int64(i)
		p[i] = byte(n>>16) ^ byte(n>>8)*31 ^ byte(n)*7
	}
}

// feed writes the pattern to a process until done and at least so many bytes,
// then closes stdin. It returns how many bytes the guest has accepted.
func (m *machine) feed(key string, least int64, done <-chan struct{}) int64 {
	t, ctx := m.t, background(m.t)
	buf := make([]byte, 512<<10)
	var off int64
	for eof := false; ; {
		select {
		case <-done:
			eof = off >= least
		default:
		}
		pattern(buf, off)
		req := &wire.InputRequest{Key: key, Offset: off, Data: buf, Eof: eof}
		r, err := retry(t, func() (*connect.Response[wire.InputResponse], error) {
			return m.client.Process.Input(ctx, connect.NewRequest(req))
		})
		if err != nil {
			t.Errorf("input at %d: %v", off, err)
			return off
		}
		if r.Msg.Acked != off+int64(len(buf)) {
			t.Errorf("input at %d of %d bytes: acked %d", off, len(buf), r.Msg.Acked)
			return off
		}
		off = r.Msg.Acked
		if eof {
			return off
		}
	}
}

// sighting is what follow saw of the pattern.
type sighting struct {
	out, err int64
	exit     *wire.ProcessInfo
}

// follow attaches until the process has ended, again where the stream broke,
// and compares each byte with the pattern.
func follow(t *testing.T, m *machine, key string) sighting {
	t.Helper()
	var s sighting
	want := make([]byte, wire.ChunkBytes)
	for s.exit == nil {
		st, err := m.client.Process.Attach(background(t), connect.NewRequest(&wire.AttachRequest{Key: key, StdoutFrom: s.out, StderrFrom: s.err}))
		if err != nil {
			if !errs.Temporary(wire.Err(err)) {
				t.Fatal(err)
			}
			continue
		}
		for st.Receive() {
			switch e := st.Msg().Event.(type) {
			case *wire.AttachEvent_Output:
				at := &s.out
				if e.Output.Stream == wire.Stream_STREAM_STDERR {
					at = &s.err
				}
				pattern(want[:len(e.Output.Data)], *at)
				if e.Output.Offset != *at || string(want[:len(e.Output.Data)]) != string(e.Output.Data) {
					t.Fatalf("%v at %d (offset %d): wrong bytes: %.100q", e.Output.Stream, *at, e.Output.Offset, e.Output.Data)
				}
				*at += int64(len(e.Output.Data))
			case *wire.AttachEvent_Gap:
				t.Fatalf("gap: %v", e.Gap)
			case *wire.AttachEvent_Exited:
				s.exit = e.Exited
			}
		}
		err = wire.Err(st.Err())
		st.Close()
		if err != nil && !errs.Temporary(err) {
			t.Fatal(err)
		}
	}
	return s
}

func TestStart_keyRunsOnceThroughKillsAndRaces(t *testing.T) {
	m := start(t, options{})
	m.hello()
	keys := 300
	if testing.Short() {
		keys = 60
	}
	killed := m.killer(2, 20, 60*time.Millisecond)
	var wg sync.WaitGroup
	slots := make(chan struct{}, 6)
	for i := range keys {
		for range 3 {
			wg.Go(func() {
				slots <- struct{}{}
				defer func() { <-slots }()
				key := fmt.Sprintf("k%d", i)
				_, err := retry(t, func() (*connect.Response[wire.StartResponse], error) {
					return m.client.Process.Start(background(t), connect.NewRequest(&wire.StartRequest{Key: key, Argv: sh("echo ran >> once." + key)}))
				})
				if err != nil {
					t.Errorf("%s: %v", key, err)
				}
			})
		}
	}
	wg.Wait()
	<-killed
	for i := range keys {
		key := fmt.Sprintf("k%d", i)
		w, err := retry(t, func() (*connect.Response[wire.WaitResponse], error) {
			return m.client.Process.Wait(background(t), connect.NewRequest(&wire.WaitRequest{Key: key, WaitMs: 20_000}))
		})
		if err != nil || w.Msg.Process.GetExit() == nil || w.Msg.Process.Exit.Code != 0 {
			t.Fatalf("%s: %v, %v", key, w, err)
		}
		data, _ := os.ReadFile(filepath.Join(m.boot.Workdir, "once."+key))
		if string(data) != "ran\n" {
			t.Errorf("%s ran %d times", key, strings.Count(string(data), "ran"))
		}
	}
}
