package sandboxtest

import (
	"bufio"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"connectrpc.com/connect"

	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/guest/wire"
	"github.com/skete-dev/skete/internal/patience"
	"github.com/skete-dev/skete/sandbox"
)

// clockOff is how far a guest's clock may be from the host's after a step.
const clockOff = 100 * time.Millisecond

// clockIs compares the guest's clock with ours, the way there and back left out.
func (s *suite) clockIs(g Guest, when string) {
	s.Helper()
	before := time.Now()
	res, err := g.Control.Metrics(s.Context(), connect.NewRequest(&wire.MetricsRequest{}))
	after := time.Now()
	must(s, wire.Err(err))
	at := time.Unix(0, res.Msg.TimeUnixNs)
	if at.Before(before.Add(-clockOff)) || at.After(after.Add(clockOff)) {
		s.Errorf("%s: the guest's clock shows %v, it is between %v and %v", when, at, before, after)
	}
}

// testClockAfterPause: the clock may stand still with the machine, but must
// be right when it has been stepped.
func testClockAfterPause(s *suite) {
	if !s.p.Capabilities().Pause {
		s.Skipf("%s does not pause", s.p.Name())
	}
	m, g := s.create(s.boot())
	s.clockIs(g, "after the boot")
	must(s, m.Pause(s.Context()))
	<-time.After(1500 * time.Millisecond) // what is measured is the passing of time
	must(s, m.Resume(s.Context()))
	must(s, g.AlignClock(s.Context(), time.Now))
	s.clockIs(g, "after a pause")
}

// countPort is where the tool's counter answers.
const countPort = 18239

// countAt asks the counter in a machine; conn stays open.
func (s *suite) countAt(g Guest) (token string, n int64, conn net.Conn) {
	s.Helper()
	Eventually(s, "the counter to answer", func() bool {
		ctx, cancel := patience.Context(s.Context(), 10*time.Second)
		defer cancel()
		c, err := g.DialTCP(ctx, countPort)
		if err != nil {
			return false
		}
		_ = c.SetDeadline(time.Now().Add(patience.Of(10 * time.Second)))
		line, err := bufio.NewReader(c).ReadString('\n')
		if _, scanErr := fmt.Sscan(line, &token, &n); err != nil || scanErr != nil {
			_ = c.Close()
			return false
		}
		_ = c.SetDeadline(time.Time{})
		conn = c
		return true
	})
	s.Cleanup(func() { _ = conn.Close() })
	return token, n, conn
}

// snapshot does what the life of a sandbox does: everything inside is stopped,
// the machine frozen and saved, the workspace copied meanwhile. What frozen
// must see is checked.
func (s *suite) snapshot(m sandbox.Machine, g Guest, b sandbox.Boot) (dir, workspace string) {
	s.Helper()
	ctx, cancel := patience.Context(s.Context(), 2*time.Minute)
	defer cancel()
	dir, workspace = filepath.Join(s.TempDir(), "snapshot"), filepath.Join(s.TempDir(), "workspace")
	must(s, os.Mkdir(dir, 0o700))
	_, err := g.Control.Quiesce(ctx, connect.NewRequest(&wire.QuiesceRequest{ThawAfterMs: min(patience.Of(2*time.Minute), 10*time.Minute).Milliseconds()}))
	must(s, wire.Err(err))
	calls := 0
	err = m.Snapshot(ctx, dir, func(context.Context) error {
		calls++
		before := s.sumWorkspace(b)
		copyAll(s, b.Workspace+b.Disk, workspace)
		<-time.After(50 * time.Millisecond)
		if after := s.sumWorkspace(b); after != before {
			s.Error("the workspace changed while all was frozen")
		}
		return nil
	})
	if err != nil {
		s.Fatalf("snapshot: %v", err)
	}
	if calls != 1 {
		s.Errorf("frozen was called %d times", calls)
	}
	s.thaw(g)
	return dir, workspace
}

func (s *suite) thaw(g Guest) {
	s.Helper()
	Eventually(s, "a thaw", func() bool { // the connection is a new one
		_, err := g.Control.Thaw(s.Context(), connect.NewRequest(&wire.ThawRequest{}))
		return err == nil
	})
}

func (s *suite) sumWorkspace(b sandbox.Boot) string {
	s.Helper()
	path := b.Disk
	if path == "" {
		path = filepath.Join(b.Workspace, "count")
	}
	f, err := os.Open(path)
	must(s, err)
	defer f.Close()
	h := sha256.New()
	_, err = io.Copy(h, f)
	must(s, err)
	return hex.EncodeToString(h.Sum(nil))
}

func copyAll(s *suite, from, to string) {
	s.Helper()
	if out, err := exec.Command("cp", "-a", "--sparse=always", "--", from, to).CombinedOutput(); err != nil {
		s.Fatalf("copy %s: %v: %s", from, err, out)
	}
}

// clone creates another machine from a snapshot and makes it one of its own.
func (s *suite) clone(dir, workspace string, edits ...func(*sandbox.Boot)) (sandbox.Machine, Guest, sandbox.Boot, string) {
	s.Helper()
	own := filepath.Join(s.TempDir(), "own")
	copyAll(s, workspace, own)
	b := s.boot(append(edits, func(b *sandbox.Boot) {
		b.From = dir
		if s.p.Capabilities().HostWorkspace {
			b.Workspace = own
		} else {
			b.Disk = own
		}
	})...)
	m, g := s.create(b)
	entropy := make([]byte, 64)
	_, _ = rand.Read(entropy)
	file := b.BootFile()
	res, err := g.Control.Adopt(s.Context(), connect.NewRequest(&wire.AdoptRequest{
		Sandbox: file.Sandbox, Hostname: file.Hostname, TimeUnixNs: time.Now().UnixNano(), Entropy: entropy,
		Env: map[string][]byte{"PATH": []byte(file.Env["PATH"]), "COLOUR": []byte("blue")},
	}))
	if err != nil {
		s.Fatalf("adopt: %v", wire.Err(err))
	}
	must(s, g.AlignClock(s.Context(), time.Now))
	s.thaw(g)
	return m, g, b, res.Msg.BootId
}

// start starts a keyed command and reports whether the key was known.
func (s *suite) start(g Guest, key, line string) bool {
	s.Helper()
	r := Start("/bin/sh", "-c", line)
	r.Key = key
	res, err := g.Process.Start(s.Context(), connect.NewRequest(r))
	must(s, wire.Err(err))
	_, err = g.AttachAll(s.Context(), key)
	must(s, err)
	return res.Msg.Existed
}

// testSnapshot: a machine goes on after it was saved, and so do two others
// that come from it, each as one of its own.
func testSnapshot(s *suite) {
	if !s.p.Capabilities().Snapshot {
		m, _ := s.create(s.boot(odd(s, "hello")))
		if err := m.Snapshot(s.Context(), s.TempDir(), func(context.Context) error { return nil }); !errs.Is(err, errs.Unsupported) {
			s.Errorf("snapshot: %v", err)
		}
		return
	}
	b := s.boot(twoCPUs) // both must be frozen, and go on
	tool := s.tool(b)
	m, g := s.create(b)
	g.Background("counter", tool, "count", fmt.Sprint(countPort), "count")
	s.start(g, "before", "echo once >> effect")
	token, n, conn := s.countAt(g)
	first, err := g.Hello(s.Context())
	must(s, err)

	dir, workspace := s.snapshot(m, g, b)
	_ = conn.SetReadDeadline(time.Now().Add(patience.Of(20 * time.Second)))
	_, _ = conn.Write([]byte("x"))
	if _, err := conn.Read(make([]byte, 1)); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		s.Errorf("a connection from before the snapshot: %v", err)
	}
	if t, after, _ := s.countAt(g); t != token || after <= n {
		s.Errorf("the original's counter: %s %d, was %s %d", t, after, token, n)
	}
	if h, err := g.Hello(s.Context()); err != nil || h.BootId != first.BootId {
		s.Errorf("the original's boot id: %v, %v, was %s", h, err, first.BootId)
	}
	s.start(g, "after", "echo late >> effect")

	seen := map[string]bool{first.BootId: true, g.Shell(randomLine).Stdout: true}
	for range 2 {
		mc, gc, bc, bootID := s.clone(dir, workspace, twoCPUs)
		s.checkClone(gc, bc, token, n)
		for _, what := range []string{bootID, gc.Shell(randomLine).Stdout} {
			if what == "" || seen[what] {
				s.Errorf("%q is not the clone's own", what)
			}
			seen[what] = true
		}
		defer func() {
			must(s, mc.Destroy(context.Background()))
			Leaks(s, s.Dir, bc.ID)
		}()
	}
	if res := g.Shell("cat effect"); res.Stdout != "once\nlate\n" {
		s.Errorf("the original's workspace: %+v", res)
	}
}

const randomLine = "head -c 32 /dev/urandom | sha256sum"

func (s *suite) checkClone(g Guest, b sandbox.Boot, token string, n int64) {
	s.Helper()
	s.clockIs(g, "in a clone")
	if t, after, _ := s.countAt(g); t != token || after < n {
		s.Errorf("the clone's counter: %s %d, want %s and %d or more", t, after, token, n)
	}
	if res := g.Shell("cat /proc/sys/kernel/hostname; echo $COLOUR; cat effect"); res.Stdout != b.BootFile().Hostname+"\nblue\nonce\n" {
		s.Errorf("the clone: %+v", res)
	}
	if _, err := g.AttachAll(s.Context(), "after"); !errs.Is(err, errs.NotFound) {
		s.Errorf("a command that the original started later: %v", err)
	}
	if !s.start(g, "before", "echo once >> effect") {
		s.Error("a command that ran before the snapshot was run again in the clone")
	}
	if res := g.Shell("cat effect"); res.Stdout != "once\n" {
		s.Errorf("the clone's workspace: %+v", res)
	}
}

// testSnapshotFails: what frozen returns comes back, and the machine goes on;
// so it does when it is saved twice, and a saved clone is as good.
func testSnapshotFails(s *suite) {
	if !s.p.Capabilities().Snapshot {
		s.Skipf("%s does not make snapshots", s.p.Name())
	}
	b := s.boot()
	tool := s.tool(b)
	m, g := s.create(b)
	g.Background("counter", tool, "count", fmt.Sprint(countPort), "count")
	token, n, _ := s.countAt(g)
	mine := errors.New("the volume cannot be copied")
	dir := filepath.Join(s.TempDir(), "failed")
	must(s, os.Mkdir(dir, 0o700))
	if err := m.Snapshot(s.Context(), dir, func(context.Context) error { return mine }); !errors.Is(err, mine) {
		s.Errorf("snapshot: %v", err)
	}
	if t, after, _ := s.countAt(g); t != token || after <= n {
		s.Errorf("after a snapshot that failed: %s %d, was %s %d", t, after, token, n)
	}
	dir, workspace := s.snapshot(m, g, b)
	must(s, m.Destroy(s.Context())) // a clone does not need the original
	mc, gc, bc, _ := s.clone(dir, workspace)
	dir, workspace = s.snapshot(mc, gc, bc)
	_, gcc, _, _ := s.clone(dir, workspace)
	if t, after, _ := s.countAt(gcc); t != token || after < n {
		s.Errorf("the clone's clone: %s %d, want %s and %d or more", t, after, token, n)
	}
}

// testSnapshotDamaged: a snapshot with anything wrong does not become a
// machine, and nothing is left of the attempt.
func testSnapshotDamaged(s *suite) {
	if !s.p.Capabilities().Snapshot {
		s.Skipf("%s does not make snapshots", s.p.Name())
	}
	b := s.boot()
	tool := s.tool(b)
	m, g := s.create(b)
	g.Background("counter", tool, "count", fmt.Sprint(countPort), "count")
	token, n, _ := s.countAt(g)
	dir, workspace := s.snapshot(m, g, b)
	must(s, m.Destroy(s.Context()))

	s.refuse("not there", filepath.Join(s.TempDir(), "none"), workspace)
	empty := filepath.Join(s.TempDir(), "empty")
	must(s, os.Mkdir(empty, 0o700))
	s.refuse("empty", empty, workspace)
	for _, file := range filesBelow(s, dir) {
		for how, hurt := range map[string]func(path string) error{
			"removed":   os.Remove,
			"truncated": func(path string) error { return os.Truncate(path, sizeOf(s, path)/2) },
		} {
			hurtDir := filepath.Join(s.TempDir(), "hurt")
			copyAll(s, dir, hurtDir)
			must(s, hurt(filepath.Join(hurtDir, file)))
			s.refuse(file+" "+how, hurtDir, workspace)
		}
	}
	_, gc, _, _ := s.clone(dir, workspace)
	if t, after, _ := s.countAt(gc); t != token || after < n {
		s.Errorf("from the whole snapshot: %s %d, want %s and %d or more", t, after, token, n)
	}
}

func (s *suite) refuse(what, dir, workspace string) {
	s.Helper()
	own := filepath.Join(s.TempDir(), "own")
	copyAll(s, workspace, own)
	b := s.boot(func(b *sandbox.Boot) {
		b.From = dir
		if s.p.Capabilities().HostWorkspace {
			b.Workspace = own
		} else {
			b.Disk = own
		}
	})
	ctx, cancel := patience.Context(s.Context(), time.Minute)
	defer cancel()
	if _, err := s.p.Create(ctx, b); !errors.Is(err, sandbox.ErrSnapshot) {
		s.Errorf("%s: %v", what, err)
	}
	if ids, err := s.p.List(s.Context()); err != nil || slices.Contains(ids, b.ID) {
		s.Errorf("%s: listed afterwards: %v, %v", what, ids, err)
	}
	Leaks(s, s.Dir, b.ID)
}

func filesBelow(s *suite, dir string) []string {
	s.Helper()
	var files []string
	must(s, filepath.Walk(dir, func(path string, info os.FileInfo, err error) error {
		if err == nil && info.Mode().IsRegular() && info.Size() > 0 {
			files = append(files, strings.TrimPrefix(path, dir+"/"))
		}
		return err
	}))
	return files
}

func sizeOf(s *suite, path string) int64 {
	s.Helper()
	info, err := os.Stat(path)
	must(s, err)
	return info.Size()
}
