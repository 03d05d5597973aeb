package remote

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/sandbox"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// service is one that does as a test says. What a real one does the suite shows
// (test/e2e, TestRemote_suite).
type service struct {
	mu     sync.Mutex
	down   error // what every call answers
	hangs  bool  // there is no answer to the question for an address
	kept   int
	found  []string
	killed []string
	labels map[string]string
}

func (s *service) answer() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.down
}

func (s *service) set(down error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.down = down
}

func (s *service) Create(_ context.Context, labels map[string]string, _ time.Duration) (Place, error) {
	s.labels = labels
	return Place{ID: "made"}, s.answer()
}

func (s *service) Find(_ context.Context, labels map[string]string) ([]string, error) {
	if labels[labelServer] != s.labels[labelServer] || labels[labelSandbox] != s.labels[labelSandbox] {
		return nil, errors.New("not the labels that it was made with")
	}
	return s.found, s.answer()
}

func (s *service) Look(context.Context, Place) (bool, error) { return false, s.answer() }

func (s *service) Keep(context.Context, Place, time.Duration) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.kept++
	return s.down
}

func (s *service) Kill(_ context.Context, id string) error {
	s.killed = append(s.killed, id)
	return s.answer()
}

func (s *service) Pause(context.Context, Place) error                       { return s.answer() }
func (s *service) Resume(context.Context, Place, time.Duration) error       { return s.answer() }
func (s *service) CanPause() bool                                           { return true }
func (s *service) Notes() []string                                          { return nil }
func (s *service) Put(context.Context, Place, string, string, []byte) error { return s.answer() }
func (s *service) Run(context.Context, Place, string) (string, error)       { return "", s.answer() }

func (s *service) Start(context.Context, Place, string) (string, error) { return "x", s.answer() }

func (s *service) Await(ctx context.Context, _ Place, _ string) (string, error) {
	<-ctx.Done()
	return "", ctx.Err()
}

func (s *service) Address(ctx context.Context, _ Place, _ int) (*url.URL, http.Header, error) {
	s.mu.Lock()
	hangs := s.hangs
	s.mu.Unlock()
	if hangs {
		<-ctx.Done()
		return nil, nil, ctx.Err()
	}
	return nil, nil, s.answer()
}

func (s *service) hang(hangs bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.hangs = hangs
}

func (s *service) Close() {}

func open(t *testing.T, s Service) *Provider {
	t.Helper()
	p, err := New(Config{Name: Name, Dir: t.TempDir(), Service: s, Keep: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

var unreachable = silent(call{name: "GET /sandboxes/x"}, errors.New("dial tcp 192.0.2.1:443: connect: connection refused"))

// later is after so much of a bubble's time.
func later(d time.Duration) { <-time.After(d) }

// A service that is silent for a moment loses no machine; one that is silent for as long
// as it would keep the machine has lost it, and the end says what was asked and how it
// failed, without an address.
func TestLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &service{}
		p := open(t, s)
		m := p.follow(sandbox.NewID(), record{}, false)
		defer m.Close()
		later(59 * time.Second)
		s.set(unreachable)
		later(35 * time.Second)
		s.set(nil)
		later(time.Minute)
		if m.lifetime.Ended() {
			t.Fatalf("lost after 35 s of silence: %+v", m.lifetime.Exit())
		}
		s.set(unreachable)
		e, err := m.Wait(t.Context())
		if err != nil || e.Reason != sandbox.ReasonLost {
			t.Fatalf("%+v, %v", e, err)
		}
		for _, word := range []string{"GET /sandboxes/x", "connection refused", "its service was asked for 1m"} {
			if !strings.Contains(e.Detail, word) {
				t.Errorf("%q is not in %q", word, e.Detail)
			}
		}
		if strings.Contains(e.Detail, "192.0.2.1") {
			t.Errorf("an address is in %q", e.Detail)
		}
	})
}

// While the service is known not to answer, a dial ends soon, also one that has time; at
// the first that has no answer the service is asked, and once that answers dials have
// their time again.
func TestDial_silentService(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &service{}
		p := open(t, s)
		m := p.follow(sandbox.NewID(), record{}, false)
		defer m.Close()
		later(time.Second)
		asked := func() int { s.mu.Lock(); defer s.mu.Unlock(); return s.kept }
		dial := func(want time.Duration) {
			t.Helper()
			ctx, cancel := context.WithTimeout(t.Context(), 40*time.Second)
			defer cancel()
			began := time.Now()
			_, err := m.Dial(ctx, 1)
			if took := time.Since(began); took != want || !errs.Is(err, errs.Unavailable) && took != 40*time.Second {
				t.Errorf("after %s, not %s: %v", took, want, err)
			}
		}
		before := asked()
		s.set(unreachable)
		dial(0) // refused
		later(time.Millisecond)
		if got := asked(); got != before+1 {
			t.Errorf("the service was asked %d times", got-before)
		}
		s.hang(true)
		dial(silentDialMax)
		dial(silentDialMax)
		s.set(nil)
		later(retryMax)
		dial(40 * time.Second)
	})
}

// A machine that the service does not know is lost at once.
func TestGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &service{}
		m := open(t, s).follow(sandbox.NewID(), record{}, false)
		defer m.Close()
		later(time.Second)
		s.set(errs.New(errs.NotFound, "none"))
		if e, err := m.Wait(t.Context()); err != nil || e.Reason != sandbox.ReasonLost || !strings.Contains(e.Detail, "no such machine") {
			t.Errorf("%+v, %v", e, err)
		}
	})
}

// A machine that the service made while the server died is found by its labels.
func TestDestroy_madeWhileTheServerDied(t *testing.T) {
	s := &service{found: []string{"a", "b"}}
	p := open(t, s)
	id := sandbox.NewID()
	if err := os.Mkdir(p.dir(id), 0o700); err != nil {
		t.Fatal(err)
	}
	if _, err := p.make(t.Context(), id); err != nil {
		t.Fatal(err)
	}
	if ids, err := p.List(t.Context()); err != nil || len(ids) != 1 {
		t.Fatalf("%v, %v", ids, err)
	}
	s.set(unreachable)
	if err := p.Destroy(t.Context(), id); !errs.Is(err, errs.Unavailable) {
		t.Errorf("destroy without the service: %v", err)
	}
	s.set(nil)
	s.killed = nil
	for range 2 {
		if err := p.Destroy(t.Context(), id); err != nil {
			t.Fatal(err)
		}
	}
	if fmt.Sprint(s.killed) != "[a b]" {
		t.Errorf("killed: %v", s.killed)
	}
	if ids, _ := p.List(t.Context()); len(ids) != 0 {
		t.Errorf("left: %v", ids)
	}
}

// What cannot be had elsewhere is refused before the service is asked for anything.
func TestCreate_refuses(t *testing.T) {
	s := &service{down: errors.New("it was asked")}
	p := open(t, s)
	for name, spec := range map[string]sandbox.Spec{
		"root": {Root: true}, "network": {Network: "open"}, "models": {Models: &sandbox.ModelGrant{}},
	} {
		_, err := p.Create(t.Context(), sandbox.Boot{ID: sandbox.NewID(), Spec: spec})
		if !errs.Is(err, errs.Unsupported) || errs.Hint(err) == "" {
			t.Errorf("%s: %v", name, err)
		}
	}
	if c := p.Capabilities(); c.Isolation != sandbox.Remote || c.Network || c.LimitsMemory || c.HidesHostFiles || c.Isolation.AtLeast(sandbox.MicroVM) || c.Isolation.AtLeast(sandbox.None) {
		t.Errorf("%+v", c)
	}
}

// Two servers with the same path on two hosts are two; one that starts again is itself.
func TestServerID(t *testing.T) {
	path := filepath.Join(t.TempDir(), serverName)
	a, err := serverID(path)
	again, err2 := serverID(path)
	other, err3 := serverID(filepath.Join(t.TempDir(), serverName))
	if errors.Join(err, err2, err3) != nil || a != again || a == other || a == "" {
		t.Errorf("%q, %q, %q", a, again, other)
	}
}

func TestParseURL(t *testing.T) {
	for text, good := range map[string]bool{
		"https://api.example": true, "https://api.example:8443/e2b": true, "http://127.0.0.1:7733/e2b": true, "http://localhost:1": true, "http://[::1]:1": true,
		"": false, "api.example": false, "http://api.example": false, "http://10.0.0.1": false, "ftp://x": false, "https://u:p@x": false,
		"https://x?a=b": false, "https://x#f": false, "http://127.0.0.1.evil.example": false, "https://": false,
	} {
		if _, err := ParseURL("url", text); (err == nil) != good {
			t.Errorf("%q: %v", text, err)
		}
	}
}

func answer(words ...string) string {
	return "skete:" + strings.Join(words, "\nskete:") + "\n"
}

func TestParseUser(t *testing.T) {
	arch := machineNames[runtime.GOARCH]
	good := []string{"user", "1000", "1000", "/home/user", "/bin", arch, "/workspace"}
	u, err := parseUser(answer(good...))
	if err != nil || u != (user{name: "user", uid: 1000, gid: 1000, home: "/home/user", path: "/bin", workspace: "/workspace"}) {
		t.Errorf("%+v, %v", u, err)
	}
	for name, words := range map[string][]string{
		"nothing": {}, "one": {"user"}, "no name": {"", "1000", "1000", "/h", "/bin", arch, "/w"}, "id": {"u", "-1", "0", "/h", "/bin", arch, "/w"},
		"large id": {"u", "4294967296", "0", "/h", "/bin", arch, "/w"}, "relative": {"u", "1", "1", "h", "/bin", arch, "/w"},
		"root": {"u", "1", "1", "/", "/bin", arch, "/w"}, "dots": {"u", "1", "1", "/h/..", "/bin", arch, "/w"}, "no path": {"u", "1", "1", "/h", "", arch, "/w"},
		"other processor": {"u", "1", "1", "/h", "/bin", "riscv64", "/w"}, "workspace": {"u", "1", "1", "/h", "/bin", arch, "w"},
		"more": append(good, "x"), "long": {strings.Repeat("u", 70), "1", "1", "/h", "/bin", arch, "/w"},
	} {
		if u, err := parseUser(answer(words...)); err == nil {
			t.Errorf("%s: %+v", name, u)
		}
	}
	if _, err := parseUser("hello\n" + answer(good...)); err == nil {
		t.Error("a line that is not ours was taken")
	}
}

func FuzzParseUser(f *testing.F) {
	f.Add(answer("user", "1000", "1000", "/home/user", "/bin", "x86_64", "/workspace"))
	f.Add("skete:\n\n")
	f.Fuzz(func(t *testing.T, s string) {
		if u, err := parseUser(s); err == nil && (!proper(u.home) || !proper(u.workspace) || u.name == "") {
			t.Errorf("%q: %+v", s, u)
		}
	})
}

func message(flags byte, text string) string {
	return string(binary.BigEndian.AppendUint32([]byte{flags}, uint32(len(text)))) + text
}

func TestReadEvents(t *testing.T) {
	const start, end = `{"event":{"start":{"pid":7}}}`, `{"event":{"end":{"exitCode":3,"exited":true}}}`
	var codes []int
	in := message(0, start) + message(0, `{"event":{"keepalive":{}}}`) + message(0, end) + "left"
	err := readEvents("x", strings.NewReader(in), func(e event) bool {
		if e.End != nil {
			codes = append(codes, e.End.ExitCode)
		}
		return e.End != nil
	})
	if err != nil || fmt.Sprint(codes) != "[3]" {
		t.Errorf("%v, %v", codes, err)
	}
	for name, c := range map[string]struct {
		in   string
		want errs.Class
	}{
		"nothing": {"", errs.Unavailable}, "half a head": {"\x00\x00", errs.Unavailable}, "half a message": {message(0, start)[:20], errs.Unavailable},
		"huge": {"\x00\xff\xff\xff\xff", errs.Unavailable}, "no JSON": {message(0, "{"), errs.Unavailable}, "compressed": {message(1, start), errs.Unavailable},
		"early end": {message(2, "{}"), errs.Unavailable}, "not found": {message(2, `{"error":{"code":"not_found"}}`), errs.NotFound},
		"other error": {message(2, `{"error":{"code":"zzz","message":"m"}}`), errs.Unavailable}, "end that is none": {message(2, "x"), errs.Unavailable},
	} {
		if err := readEvents("x", strings.NewReader(c.in), func(event) bool { return false }); errs.Of(err) != c.want {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func FuzzReadEvents(f *testing.F) {
	f.Add([]byte(message(0, `{"event":{"data":{"stdout":"aGk="}}}`) + message(2, "{}")))
	f.Fuzz(func(t *testing.T, in []byte) {
		n := 0
		if err := readEvents("x", bytes.NewReader(in), func(event) bool { n++; return n > 100 }); err == nil && n <= 100 {
			t.Error("it ended without an end")
		}
	})
}
