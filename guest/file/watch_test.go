package file_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"
	"github.com/google/go-cmp/cmp"

	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/guest/wire"
	"github.com/skete-dev/skete/internal/patience"
)

// stream is a watch's stream as a test reads it.
type stream struct {
	g      *guest
	id     string
	next   uint64
	events chan *wire.WatchResponse
	stop   func()
}

func (g *guest) watch(m *wire.WatchRequest) *stream {
	g.t.Helper()
	ctx, cancel := patience.Context(context.Background(), 60*time.Second)
	in, err := g.c.Watch(ctx, connect.NewRequest(m))
	must(g.t, err)
	if !in.Receive() {
		cancel()
		g.t.Fatal(in.Err())
	}
	started := in.Msg().GetStarted()
	if started == nil {
		g.t.Fatalf("the first message is %v", in.Msg())
	}
	s := &stream{g: g, id: started.WatchId, next: started.NextSeq, events: make(chan *wire.WatchResponse, 100_000)}
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer close(s.events)
		for in.Receive() {
			s.events <- in.Msg()
		}
	}()
	stopped := false
	s.stop = func() {
		if !stopped {
			stopped = true
			cancel()
			<-done
			_ = in.Close()
		}
	}
	g.t.Cleanup(s.stop)
	return s
}

// until gathers "KIND path" lines until one is the wanted.
func (s *stream) until(want string) []string {
	s.g.t.Helper()
	var got []string
	deadline := time.After(patience.Of(20 * time.Second))
	for {
		select {
		case m, ok := <-s.events:
			if !ok {
				s.g.t.Fatalf("the stream ended; got %q", got)
			}
			line := s.line(m)
			if line == "" {
				continue
			}
			if got = append(got, line); line == want {
				return got
			}
		case <-deadline:
			s.g.t.Fatalf("no %q; got %q", want, got)
		}
	}
}

func (s *stream) line(m *wire.WatchResponse) string {
	if o := m.GetOverflow(); o != nil {
		s.next = o.Seq + 1
		return "OVERFLOW"
	}
	f := m.GetFile()
	if f == nil {
		return ""
	}
	if f.Seq != s.next {
		s.g.t.Errorf("event %d, want %d: a number is missing", f.Seq, s.next)
	}
	s.next = f.Seq + 1
	rel, _ := filepath.Rel(s.g.work, string(f.Path))
	kind := strings.TrimPrefix(f.Type.String(), "FILE_EVENT_TYPE_")
	if f.Directory {
		rel += "/"
	}
	return kind + " " + rel
}

func TestWatch_reportsWhatHappens(t *testing.T) {
	g := newGuest(t)
	g.put("d/old", "x")
	s := g.watch(&wire.WatchRequest{Path: []byte("."), Recursive: true})
	at := func(name string) string { return filepath.Join(g.work, name) }
	must(t, os.WriteFile(at("d/new"), []byte("x"), 0o644))
	must(t, os.Chmod(at("d/new"), 0o600))
	must(t, os.Rename(at("d/new"), at("moved")))
	must(t, os.Remove(at("moved")))
	must(t, g.writeFile("d/atomic", "whole"))
	must(t, os.Mkdir(at("end"), 0o755))
	want := []string{
		"CREATE d/new", "WRITE d/new", "CHMOD d/new", "RENAME d/new", "CREATE moved", "REMOVE moved",
		"CREATE d/atomic", "CREATE end/",
	}
	if diff := cmp.Diff(want, s.until("CREATE end/")); diff != "" {
		t.Fatal(diff)
	}
}

func TestWatch_losesNothingInNewDirectories(t *testing.T) {
	g := newGuest(t)
	s := g.watch(&wire.WatchRequest{Path: []byte("."), Recursive: true})
	want := map[string]bool{}
	for i := range 40 { // trees that are full before anyone can watch them
		for j := range 5 {
			name := fmt.Sprintf("t%02d/a/b/c/f%d", i, j)
			g.put(name, "x")
			want["CREATE "+name] = true
		}
	}
	must(t, os.Mkdir(filepath.Join(g.work, "end"), 0o755))
	count := map[string]int{}
	got := s.until("CREATE end/")
	// The end may overtake what is found by a look into a new directory only
	// if that directory's event came after it: it did not.
	for _, line := range got {
		count[line]++
	}
	for line := range want {
		if count[line] != 1 {
			t.Errorf("%s: %d times", line, count[line])
		}
	}
	must(t, os.WriteFile(filepath.Join(g.work, "t39/a/b/c/late"), nil, 0o644))
	s.until("CREATE t39/a/b/c/late")
}

func TestWatch_followsRenamedDirectories(t *testing.T) {
	g := newGuest(t)
	g.put("a/sub/f", "x")
	s := g.watch(&wire.WatchRequest{Path: []byte("."), Recursive: true})
	must(t, os.Rename(filepath.Join(g.work, "a"), filepath.Join(g.work, "b")))
	if diff := cmp.Diff([]string{"RENAME a/", "CREATE b/", "CREATE b/sub/", "CREATE b/sub/f"}, s.until("CREATE b/sub/f")); diff != "" {
		t.Fatal(diff)
	}
	must(t, os.WriteFile(filepath.Join(g.work, "b/sub/g"), nil, 0o644))
	if diff := cmp.Diff([]string{"CREATE b/sub/g"}, s.until("CREATE b/sub/g")); diff != "" {
		t.Fatal(diff)
	}
}

func TestWatch_resumesWhereItStopped(t *testing.T) {
	g := newGuest(t)
	s := g.watch(&wire.WatchRequest{Path: []byte("."), WatchId: "w1"})
	g.put("a", "x")
	s.until("CREATE a")
	next := s.next
	s.stop()
	for i := range 10 {
		g.mkdir(fmt.Sprintf("d%d", i))
	}
	s = g.watch(&wire.WatchRequest{Path: []byte("."), WatchId: "w1", FromSeq: next})
	s.next = next
	got := s.until("CREATE d9/")
	for i := range 10 {
		found := 0
		for _, line := range got {
			if line == fmt.Sprintf("CREATE d%d/", i) {
				found++
			}
		}
		if found != 1 {
			t.Errorf("d%d was reported %d times in %q", i, found, got)
		}
	}
	for name, c := range map[string]struct {
		m    *wire.WatchRequest
		want errs.Class
	}{
		"other path":  {&wire.WatchRequest{Path: []byte("d0"), WatchId: "w1", FromSeq: 2}, errs.Conflict},
		"unknown":     {&wire.WatchRequest{Path: []byte("."), WatchId: "w2", FromSeq: 2}, errs.NotFound},
		"no id":       {&wire.WatchRequest{Path: []byte("."), FromSeq: 2}, errs.Invalid},
		"future":      {&wire.WatchRequest{Path: []byte("."), WatchId: "w1", FromSeq: 1 << 40}, errs.Invalid},
		"bad id":      {&wire.WatchRequest{Path: []byte("."), WatchId: "a b"}, errs.Invalid},
		"long id":     {&wire.WatchRequest{Path: []byte("."), WatchId: strings.Repeat("x", 129)}, errs.Invalid},
		"no such dir": {&wire.WatchRequest{Path: []byte("none")}, errs.NotFound},
	} {
		in, err := g.c.Watch(context.Background(), connect.NewRequest(c.m))
		if err == nil {
			in.Receive()
			err = in.Err()
			in.Close()
		}
		if got := errs.Of(wire.Err(err)); got != c.want {
			t.Errorf("%s: %q, want %q (%v)", name, got, c.want, err)
		}
	}
}

func TestWatch_saysWhatTheRingLost(t *testing.T) {
	g := newGuest(t)
	s := g.watch(&wire.WatchRequest{Path: []byte("."), WatchId: "w"})
	g.put("a", "")
	s.until("CREATE a")
	next := s.next
	s.stop()
	for i := range 5000 {
		g.mkdir(fmt.Sprintf("d%04d", i))
	}
	s = g.watch(&wire.WatchRequest{Path: []byte("."), WatchId: "w", FromSeq: next})
	first := <-s.events
	o := first.GetOverflow()
	if o == nil || o.LostFrom != next || o.LostTo < next || o.Seq != o.LostTo {
		t.Fatalf("%v", first)
	}
	s.next = o.Seq + 1
	s.until("CREATE d4999/")
}

func TestWatch_deniedWhereReadingIs(t *testing.T) {
	needRoot(t)
	g := newGuest(t)
	secret := filepath.Join(g.work, "secret")
	must(t, os.Mkdir(secret, 0o700))
	wantClass(t, g.watchError([]byte("secret")), errs.Denied)
	s := g.watch(&wire.WatchRequest{Path: []byte("."), Recursive: true})
	must(t, os.WriteFile(filepath.Join(secret, "x"), nil, 0o644))
	g.mkdir("end")
	for _, line := range s.until("CREATE end/") {
		if strings.Contains(line, "secret/x") {
			t.Fatal("reported what the user may not read")
		}
	}
}

func TestWatch_countIsBounded(t *testing.T) {
	g := newGuest(t)
	for i := range 64 {
		s := g.watch(&wire.WatchRequest{Path: []byte("."), WatchId: fmt.Sprint("w", i)})
		s.stop() // without a stream it lives on, for a minute
	}
	wantClass(t, g.watchError([]byte(".")), errs.Limit)
}
