package store_test

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/internal/patience"
	"github.com/skete-dev/skete/internal/scratch"
	"github.com/skete-dev/skete/store"
	"github.com/skete-dev/skete/store/storetest"
	"github.com/skete-dev/skete/thread"
	"github.com/skete-dev/skete/thread/threadtest"
)

// threadLogChildEnv names the directory in which this test binary, started again,
// appends until it is killed.
const threadLogChildEnv = "SKETE_THREADLOG_TEST_CHILD"

func threadStore(s *store.Store) threadtest.Store {
	return threadtest.Store{
		Log: func(t *testing.T, tenant string) thread.Log {
			t.Helper()
			l, err := s.Threads().Log(t.Context(), tenant)
			if err != nil {
				t.Fatal(err)
			}
			return l
		},
		Blobs: func(t *testing.T, tenant string) thread.Blobs {
			t.Helper()
			b, err := s.Threads().Blobs(t.Context(), tenant)
			if err != nil {
				t.Fatal(err)
			}
			return b
		},
		Fail: func(t *testing.T, tenant string, f threadtest.Fault) { inside(t, s, tenant).FailNext(t, f) },
	}
}

// inside is the log behind the interface.
func inside(t *testing.T, s *store.Store, tenant string) *store.ThreadLog {
	t.Helper()
	return logOf(t, s, tenant).(*store.ThreadLog)
}

func TestThreads_passTheSuite(t *testing.T) {
	threadtest.Suite(t, func(t *testing.T) threadtest.Store { return threadStore(open(t, store.Config{})) })
}

func TestThreads_passTheSuiteOnAnExternalNATS(t *testing.T) {
	url, _ := storetest.External(t)
	threadtest.Suite(t, func(t *testing.T) threadtest.Store { return threadStore(open(t, store.Config{URL: url})) })
}

func drain(ctx context.Context, l thread.Log, id thread.ID, from uint64) (last uint64, err error) {
	for e, err := range l.Load(ctx, id, from) {
		if err != nil {
			return last, err
		}
		last = e.Seq
	}
	return last, nil
}

// A long thread is read at a glance; that must see as much.
func TestThreads_aDamagedLongLogStopsAndSaysWhere(t *testing.T) {
	const n = 1500 // more than one batch
	s := open(t, store.Config{SyncInterval: time.Minute})
	l := inside(t, s, "a")
	long := func() (id thread.ID, first uint64) {
		id = thread.NewID()
		for seq := uint64(0); seq < n; {
			seq = appendTo(t, l, id, seq, thread.Input{})
		}
		r, err := l.Oldest(t.Context(), id)
		if err != nil {
			t.Fatal(err)
		}
		return id, r.At
	}
	stops := func(id thread.ID, event, at uint64) {
		t.Helper()
		for _, from := range []uint64{1, event - 150} {
			last, err := drain(t.Context(), l, id, from)
			want := fmt.Sprintf("stream sequence %d", at)
			if last != event-1 || !errs.Is(err, errs.Corrupt) || !strings.Contains(errs.Public(err), want) || !strings.Contains(errs.Public(err), fmt.Sprintf("event %d", event)) {
				t.Errorf("load from %d ends at %d with %v; want event %d and %q", from, last, err, event, want)
			}
		}
	}
	for _, hole := range []uint64{200, 1000, 1001, n - 1} {
		id, first := long()
		l.Hole(t, first+hole-1)
		stops(id, hole, first+hole) // the record behind the hole begins with another event
	}
	id, _ := long()
	good, err := thread.Encode(n+1, []thread.Event{thread.New("", thread.Input{})})
	if err != nil {
		t.Fatal(err)
	}
	at := l.Inject(t, id, fmt.Sprintf("%d-%d", n+1, n+1), []byte("rubbish\n"))
	l.Inject(t, id, fmt.Sprintf("%d-%d", n+2, n+2), good)
	stops(id, n+1, at)
}

func TestThreads_surviveAReopen(t *testing.T) {
	dir := t.TempDir()
	s := open(t, store.Config{Dir: dir})
	l, id := logOf(t, s, "a"), thread.NewID()
	run, seq := threadlogBegin(t, l, id)
	seq = walk(t, l, id, run, seq, 0, 20)
	gone := thread.NewID()
	threadlogBegin(t, l, gone)
	if err := l.Delete(t.Context(), gone); err != nil {
		t.Fatal(err)
	}
	_ = s.Close()
	s = open(t, store.Config{Dir: dir})
	l = logOf(t, s, "a")
	if last, err := drain(t.Context(), l, id, 1); last != seq || err != nil {
		t.Errorf("after a reopen the thread ends at %d, %v; it was %d", last, err, seq)
	}
	walk(t, l, id, run, seq, 20, 5)
	_, err := l.Append(t.Context(), gone, 0, thread.New("", thread.Opened{}))
	wantClass(t, "a zombie from before the reopen", err, errs.NotFound)
	tenants, err := s.Threads().Tenants(t.Context())
	if d := cmp.Diff([]string{"a"}, tenants); d != "" || err != nil {
		t.Error(d, err)
	}
}

// TestThreads_corrupt: whatever is damaged is named by thread, event and place;
// nothing behind it is shown, nothing is repaired.
func TestThreads_aDamagedLogStopsAndSaysWhere(t *testing.T) {
	s := open(t, store.Config{})
	l := logOf(t, s, "a")
	good := func(first uint64, n int) []byte {
		var events []thread.Event
		for range n {
			events = append(events, thread.New("", thread.Input{From: "user"}))
		}
		record, err := thread.Encode(first-1, events)
		if err != nil {
			t.Fatal(err)
		}
		return record
	}
	for name, c := range map[string]struct {
		events string
		data   []byte
		want   string
		class  errs.Class
	}{
		"twice":           {"3-4", good(3, 2), "event 5 is missing: the record at stream sequence %d begins with 3", errs.Corrupt},
		"a gap":           {"6-6", good(6, 1), "event 5 is missing: the record at stream sequence %d begins with 6", errs.Corrupt},
		"a lying header":  {"5-5", good(6, 1), "stream sequence %d: event 5: the record there has number 6", errs.Corrupt},
		"a short record":  {"5-7", good(5, 2), "stream sequence %d: event 7: the record ends before it", errs.Corrupt},
		"torn":            {"5-6", good(5, 2)[:100], "stream sequence %d: event 5: its record is torn", errs.Corrupt},
		"rubbish":         {"5-5", []byte("rubbish\n"), "stream sequence %d: event 5: an event is no JSON", errs.Corrupt},
		"no header":       {"", good(5, 1), "the record at stream sequence %d does not say which events it has", errs.Corrupt},
		"a broken header": {"5-x", good(5, 1), "the record at stream sequence %d does not say which events it has", errs.Corrupt},
		"of the future": {
			"5-5", []byte(`{"seq":5,"v":2,"kind":"input","at":"2026-01-02T03:04:05Z","data":{}}` + "\n"),
			"stream sequence %d: event 5: an event \"input\" of version 2 was written by a newer skete", errs.Unsupported,
		},
	} {
		t.Run(strings.ReplaceAll(name, " ", "_"), func(t *testing.T) {
			id := thread.NewID()
			seq := appendTo(t, l, id, 0, thread.Opened{}, thread.Input{})
			appendTo(t, l, id, seq, thread.Input{}, thread.Input{})
			at := inside(t, s, "a").Inject(t, id, c.events, c.data)
			want := fmt.Sprintf(c.want, at)
			last, err := drain(t.Context(), l, id, 1)
			if errs.Of(err) != c.class || !strings.Contains(errs.Public(err), want) {
				t.Errorf("load through %d: %v (%s), want %q", last, err, errs.Of(err), want)
			}
			if !strings.Contains(c.want, "does not say") && (last != 4 || !strings.Contains(errs.Public(err), string(id))) {
				t.Errorf("load ends at %d with %q, want 4 and the thread's id", last, errs.Public(err))
			}
			checked, err := s.Threads().Fsck(t.Context(), "a")
			if err != nil {
				t.Fatal(err)
			}
			if !slices.ContainsFunc(checked.Problems, func(p store.ThreadProblem) bool {
				return p.Thread == id && strings.Contains(p.String(), want)
			}) {
				t.Errorf("fsck found %v", checked.Problems)
			}
			if _, err := s.Threads().Sweep(t.Context(), "a", time.Nanosecond); err != nil && !errs.Is(err, errs.Corrupt) {
				t.Errorf("sweep of a damaged log: %v", err)
			}
			if err := l.Delete(t.Context(), id); err != nil && !strings.Contains(c.want, "does not say") {
				t.Errorf("a damaged thread cannot be deleted: %v", err)
			}
		})
	}
	t.Run("a hole", func(t *testing.T) {
		id := thread.NewID()
		run, seq := threadlogBegin(t, l, id)
		seq = walk(t, l, id, run, seq, 0, 3)
		at := inside(t, s, "b").Inject(t, id, "1-1", nil) // another tenant's does not matter
		_ = at
		info := inside(t, s, "a").Inject(t, thread.NewID(), "1-1", good(1, 1))
		inside(t, s, "a").Hole(t, info-3) // of the three steps' six records the fourth
		last, err := drain(t.Context(), l, id, 1)
		wantClass(t, "load over a hole", err, errs.Corrupt)
		if last >= seq || last == 0 {
			t.Errorf("load over a hole ends at %d", last)
		}
	})
}

// TestWatch_isCheap: watchers cost the server nothing, and memory only for what
// they have not seen.
func TestWatch_isCheap(t *testing.T) {
	const n = 200
	s := open(t, store.Config{SyncInterval: time.Minute})
	l := logOf(t, s, "a")
	ids := make([]thread.ID, n)
	for i := range ids {
		ids[i] = thread.NewID()
		threadlogBegin(t, l, ids[i])
	}
	heap := func() int64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc + m.StackInuse)
	}
	before, goroutines := heap(), runtime.NumGoroutine()
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	var seen atomic.Int64
	ready := make(chan struct{}, n)
	for _, id := range ids {
		wg.Go(func() {
			for e, err := range l.Watch(ctx, id, 1) {
				if err != nil {
					return
				}
				if e.Seq == 3 {
					ready <- struct{}{}
				}
				seen.Add(1)
			}
		})
	}
	for range n {
		<-ready
	}
	if more := runtime.NumGoroutine() - goroutines; more > n+8 {
		t.Errorf("%d watchers have %d goroutines; they are their callers' own", n, more)
	}
	each := (heap() - before) / n
	if each > 32<<10 {
		t.Errorf("a watcher takes %d bytes", each)
	}
	t.Logf("a watcher takes %d bytes", each)
	appendTo(t, l, ids[0], 3, thread.Input{})
	storetest.Eventually(t, "the one that changed is seen", func() error {
		if got := seen.Load(); got != 3*n+1 {
			return fmt.Errorf("%d events", got)
		}
		return nil
	})
	cancel()
	wg.Wait()
	if _, _, topics := inside(t, s, "a").Remembered(); topics != 0 {
		t.Errorf("%d topics are left", topics)
	}
}

func TestThreads_rememberLittle(t *testing.T) {
	s := open(t, store.Config{SyncInterval: time.Minute})
	l := logOf(t, s, "a")
	ids := make([]thread.ID, 4200)
	for i := range ids {
		ids[i] = thread.NewID()
		appendTo(t, l, ids[i], 0, thread.Opened{})
	}
	if ends, _, _ := inside(t, s, "a").Remembered(); ends > 4096 {
		t.Errorf("the ends of %d threads are remembered", ends)
	}
	for _, id := range ids[:200] { // also those that were forgotten go on
		appendTo(t, l, id, 1, thread.Input{})
	}
	n := 0
	for _, err := range l.List(t.Context(), "") {
		if n++; err != nil {
			t.Fatal(err)
		}
	}
	if n != len(ids) {
		t.Errorf("%d threads are listed of %d", n, len(ids))
	}
}

func TestWatch_endsWithTheStore(t *testing.T) {
	s := open(t, store.Config{})
	l := logOf(t, s, "a")
	got := make(chan error, 1)
	started := make(chan struct{})
	id := thread.NewID()
	threadlogBegin(t, l, id)
	go func() {
		for e, err := range l.Watch(t.Context(), id, 1) {
			if err != nil {
				got <- err
				return
			}
			if e.Seq == 3 {
				close(started)
			}
		}
	}()
	<-started
	_ = s.Close()
	wantClass(t, "a watch of a closed store", <-got, errs.Unavailable)
}

// proxy forwards to a NATS server and cuts connections when told.
type proxy struct {
	net.Listener
	mu    sync.Mutex
	conns []net.Conn
}

func newProxy(t *testing.T, target string) *proxy {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &proxy{Listener: ln}
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			in, err := ln.Accept()
			if err != nil {
				return
			}
			out, err := net.Dial("tcp", target)
			if err != nil {
				_ = in.Close()
				continue
			}
			p.mu.Lock()
			p.conns = append(p.conns, in, out)
			p.mu.Unlock()
			wg.Go(func() { _, _ = io.Copy(in, out); _ = in.Close() })
			wg.Go(func() { _, _ = io.Copy(out, in); _ = out.Close() })
		}
	})
	t.Cleanup(func() { _ = ln.Close(); p.cut(); wg.Wait() })
	return p
}

func (p *proxy) cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range p.conns {
		_ = c.Close()
	}
	p.conns = nil
}

// TestExternal_cutConnections: a driver that repeats what was Unavailable loses
// nothing and doubles nothing, whenever the connection breaks; and a watcher
// sees it all.
func TestExternal_cutConnectionsNeverLoseAndNeverDouble(t *testing.T) {
	url, _ := storetest.External(t)
	target := url[strings.LastIndex(url, "@")+1:]
	p := newProxy(t, target)
	s := open(t, store.Config{URL: strings.Replace(url, target, p.Addr().String(), 1)})
	inside(t, s, "a").Hurry(100 * time.Millisecond)
	l, id := logOf(t, s, "a"), thread.NewID()
	_, seq := threadlogBegin(t, l, id)
	const appends = 300
	watched := make(chan error, 1)
	go func() {
		next := uint64(1)
		for e, err := range l.Watch(t.Context(), id, 1) {
			if err != nil && !errs.Temporary(err) || err == nil && e.Seq != next {
				watched <- fmt.Errorf("event %d instead of %d: %w", e.Seq, next, err)
				return
			}
			if next++; next == 3+appends+1 {
				watched <- nil
				return
			}
		}
		watched <- fmt.Errorf("the watch ended at %d", next)
	}()
	random := rand.New(rand.NewPCG(5, 6))
	for i := range appends {
		if i%15 == 7 {
			go func(d time.Duration) { <-time.After(d); p.cut() }(time.Duration(random.IntN(2000)) * time.Microsecond)
		}
		e := thread.New("", thread.Input{Name: fmt.Sprint(i)})
		deadline := time.Now().Add(patience.Of(30 * time.Second))
		for {
			got, err := l.Append(t.Context(), id, seq, e)
			if err == nil {
				seq = got
				break
			}
			if !errs.Temporary(err) || time.Now().After(deadline) {
				t.Fatalf("append %d: %v", i, err)
			}
		}
	}
	var names []string
	for e, err := range l.Load(t.Context(), id, 4) {
		if err != nil {
			t.Fatal(err)
		}
		names = append(names, e.Body.(thread.Input).Name)
	}
	for i, name := range names {
		if name != fmt.Sprint(i) {
			t.Fatalf("append %d is %s", i, name)
		}
	}
	if len(names) != appends {
		t.Errorf("%d events", len(names))
	}
	select {
	case err := <-watched:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(patience.Of(40 * time.Second)):
		t.Error("the watcher misses something")
	}
}

func TestThreads_twoServersOnOneNATS(t *testing.T) {
	url, _ := storetest.External(t)
	a, b := open(t, store.Config{URL: url}), open(t, store.Config{URL: url})
	la, lb, id := logOf(t, a, "t"), logOf(t, b, "t"), thread.NewID()
	_, seq := threadlogBegin(t, la, id)
	seen := make(chan uint64, 10)
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	wg.Go(func() {
		for e, err := range lb.Watch(ctx, id, 1) {
			if err != nil {
				return
			}
			seen <- e.Seq
		}
	})
	seq = appendTo(t, lb, id, seq, thread.Claimed{Node: "b", Term: 1})
	_, err := la.Append(t.Context(), id, seq-1, thread.New("", thread.Input{}))
	wantClass(t, "the server that was fenced off", err, errs.Conflict)
	appendTo(t, la, id, seq, thread.Input{})
	for want := uint64(1); want <= seq+1; want++ {
		select {
		case got := <-seen:
			if got != want {
				t.Errorf("the other server sees event %d, want %d", got, want)
			}
		case <-time.After(patience.Of(30 * time.Second)):
			t.Fatal("the other server does not see what was appended")
		}
	}
	cancel()
	wg.Wait()
	if err := la.Delete(t.Context(), id); err != nil {
		t.Fatal(err)
	}
	_, err = lb.Append(t.Context(), id, seq+1, thread.New("", thread.Input{}))
	wantClass(t, "the other server after the deletion", err, errs.NotFound)
}

func TestThreadsDiskFull_isACleanErrorAndLosesNothing(t *testing.T) {
	dir := scratch.Disk(t, 96)
	home := filepath.Join(dir, "home")
	s := open(t, store.Config{Dir: home})
	l, b, id := logOf(t, s, "a"), threadStore(s).Blobs(t, "a"), thread.NewID()
	run, seq := threadlogBegin(t, l, id)
	seq = walk(t, l, id, run, seq, 0, 20)
	hash := put(t, b, "kept")
	filler := storetest.Fill(t, dir, 4)
	for range 3 {
		_, err := l.Append(t.Context(), id, seq, thread.New(run, thread.Input{}))
		wantClass(t, "append on a full disk", err, errs.Unavailable)
		_, err = b.Put(t.Context(), []byte("more"))
		wantClass(t, "put on a full disk", err, errs.Unavailable)
	}
	if last, err := drain(t.Context(), l, id, 1); last != seq || err != nil {
		t.Errorf("load on a full disk: %d, %v", last, err)
	}
	if _, err := b.Get(t.Context(), hash); err != nil {
		t.Errorf("get on a full disk: %v", err)
	}
	if err := os.Remove(filler); err != nil {
		t.Fatal(err)
	}
	storetest.Eventually(t, "appends go on once there is room", func() error {
		_, err := l.Append(t.Context(), id, seq, thread.New(run, thread.Input{}))
		return err
	})
	storetest.Fill(t, dir, 30)
	_, err := b.Put(t.Context(), make([]byte, 24<<20))
	wantClass(t, "a blob that would fill the disk", err, errs.Unavailable)
}

func TestThreadsStoreFull_stillDeletes(t *testing.T) {
	s := open(t, store.Config{StoreBytesMax: 2 << 20})
	l := logOf(t, s, "a")
	var err error
	text := strings.Repeat("x", 40<<10)
	id, seq := thread.NewID(), uint64(0)
	for n := 0; n < 200 && err == nil; n++ {
		var got uint64
		if got, err = l.Append(t.Context(), id, seq, thread.New("", thread.Opened{Title: text})); err == nil {
			seq = got
		}
	}
	wantClass(t, "append to a full store", err, errs.Limit)
	_, err = l.Append(t.Context(), thread.NewID(), 0, thread.New("", thread.Opened{}))
	wantClass(t, "a new thread in a full store", err, errs.Limit)
	if err := l.Delete(t.Context(), id); err != nil {
		t.Fatalf("delete in a full store: %v", err)
	}
	storetest.Eventually(t, "there is room again", func() error {
		_, err := l.Append(t.Context(), thread.NewID(), 0, thread.New("", thread.Opened{Title: text}))
		return err
	})
}

func TestTenantFull_isACleanErrorForThatTenantOnly(t *testing.T) {
	s := open(t, store.Config{TenantBytesMax: 1 << 20})
	l, id, seq := logOf(t, s, "a"), thread.NewID(), uint64(0)
	var err error
	text := strings.Repeat("x", 40<<10)
	for n := 0; n < 100 && err == nil; n++ {
		var got uint64
		if got, err = l.Append(t.Context(), id, seq, thread.New("", thread.Opened{Title: text})); err == nil {
			seq = got
		}
	}
	wantClass(t, "append of a full tenant", err, errs.Limit)
	if last, err := drain(t.Context(), l, id, 1); last != seq || err != nil {
		t.Errorf("the full tenant's thread: %d, %v, acknowledged %d", last, err, seq)
	}
	threadlogBegin(t, logOf(t, s, "b"), thread.NewID())
	if err := l.Delete(t.Context(), id); err != nil {
		t.Errorf("delete of a full tenant: %v", err)
	}
}
