package replica_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"
	"github.com/google/go-cmp/cmp"

	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/guest/wire"
	"github.com/skete-dev/skete/internal/volume/layout"
	"github.com/skete-dev/skete/workspace"
	"github.com/skete-dev/skete/workspace/replica"
	"github.com/skete-dev/skete/workspace/revlog"
)

// liar answers as the machine does, but for what a test changes.
type liar struct {
	wire.HistoryHandler
	snapshot func(*wire.SnapshotResponse)
	pull     func(*wire.PullRequest, *connect.ServerStream[wire.PullResponse]) error
}

func (l *liar) Snapshot(ctx context.Context, r *connect.Request[wire.SnapshotRequest]) (*connect.Response[wire.SnapshotResponse], error) {
	res, err := l.HistoryHandler.Snapshot(ctx, r)
	if err == nil && l.snapshot != nil {
		l.snapshot(res.Msg)
	}
	return res, err
}

func (l *liar) Pull(ctx context.Context, r *connect.Request[wire.PullRequest], st *connect.ServerStream[wire.PullResponse]) error {
	if l.pull == nil {
		return l.HistoryHandler.Pull(ctx, r, st)
	}
	return l.pull(r.Msg, st)
}

// Fault 15: what was kept stays as it was, whatever a machine says later.
func TestWhatIsKept_noMachineChanges(t *testing.T) {
	m := newMachine(t)
	m.stop()
	l := &liar{}
	m.start(func(h wire.HistoryHandler) wire.HistoryHandler { l.HistoryHandler = h; return l })
	dir := t.TempDir()
	h := open(t, replica.Config{Dir: dir, Guest: m.client})
	for i := range 3 {
		m.write("a", fmt.Sprint("honest ", i))
		snapshot(t, h, "")
	}
	want, err := h.Revisions(t.Context())
	must(t, err)
	everything := pulled(t, m.client, nil) // a stream from the first revision on
	sends := func(data []byte) func(*wire.PullRequest, *connect.ServerStream[wire.PullResponse]) error {
		return func(_ *wire.PullRequest, st *connect.ServerStream[wire.PullResponse]) error {
			return st.Send(&wire.PullResponse{Data: data})
		}
	}
	claims := func(change func(*workspace.Revision)) func(*wire.SnapshotResponse) {
		return func(res *wire.SnapshotResponse) {
			var rev workspace.Revision
			must(t, json.Unmarshal(res.Revision, &rev))
			change(&rev)
			res.Revision, err = json.Marshal(rev)
			must(t, err)
		}
	}
	for _, c := range []struct {
		name  string
		liar  liar
		class errs.Class
	}{
		{"all again", liar{pull: sends(everything)}, errs.Corrupt},
		{"all again, with another text", liar{pull: sends(bytes.ReplaceAll(everything, []byte(`"n":3`), []byte(`"n":2`)))}, errs.Corrupt},
		{"noise", liar{pull: sends([]byte("noise noise noise"))}, errs.Invalid},
		{"half of it", liar{pull: sends(everything[:len(everything)/2])}, errs.Corrupt},
		{"nothing", liar{pull: sends([]byte("skmove1\n"))}, errs.Unavailable},
		{"an end at once", liar{pull: sends([]byte("skmove1\ne\x00\x00\x00\x00"))}, errs.Corrupt},
		{"a revision that it does not send", liar{snapshot: claims(func(r *workspace.Revision) { r.N += 5 })}, errs.Corrupt},
		{"another tree under a kept number", liar{snapshot: claims(func(r *workspace.Revision) { r.N = 2 })}, errs.Corrupt},
		{"another tree", liar{snapshot: claims(func(r *workspace.Revision) { r.Root[0] ^= 1 })}, errs.Corrupt},
		{"no revision", liar{snapshot: func(res *wire.SnapshotResponse) { res.Revision = []byte("{}") }}, errs.Invalid},
		{"a revision of 1 MiB", liar{snapshot: func(res *wire.SnapshotResponse) { res.Revision = bytes.Repeat([]byte(" "), 1<<20) }}, errs.Invalid},
	} {
		t.Run(c.name, func(t *testing.T) {
			l.snapshot, l.pull = c.liar.snapshot, c.liar.pull
			m.write("a", c.name)
			rev, _, err := h.Snapshot(t.Context(), workspace.Label{})
			if !errs.Is(err, c.class) {
				t.Errorf("%+v, %v; want %s", rev, err, c.class)
			}
			l.snapshot, l.pull = nil, nil
			got, err := h.Revisions(t.Context())
			must(t, err)
			if diff := cmp.Diff(want, got[:3]); diff != "" {
				t.Error(diff)
			}
			for i := range 3 {
				if text := content(t, h, uint64(i+1), "a"); text != fmt.Sprint("honest ", i) {
					t.Errorf("revision %d: %q", i+1, text)
				}
			}
			m.write("a", "honest after "+c.name)
			if rev := snapshot(t, h, ""); h.Durable() != rev.N || content(t, h, rev.N, "a") != "honest after "+c.name {
				t.Errorf("the honest machine afterwards: %+v, durable %d", rev, h.Durable())
			}
		})
	}
	must(t, h.Close())
	h = open(t, replica.Config{Dir: dir})
	got, err := h.Revisions(t.Context())
	must(t, err)
	if diff := cmp.Diff(want, got[:3]); diff != "" {
		t.Error(diff)
	}
}

// pulled returns what a machine sends.
func pulled(t testing.TB, c *wire.Client, after *wire.RevisionMark) (data []byte) {
	t.Helper()
	st, err := c.History.Pull(t.Context(), connect.NewRequest(&wire.PullRequest{After: after}))
	must(t, err)
	defer st.Close()
	for st.Receive() {
		data = append(data, st.Msg().Data...)
	}
	must(t, st.Err())
	return data
}

func TestWhatDoesNotFit_staysInTheMachine(t *testing.T) {
	const quota = 1 << 20
	m, dir := newMachine(t), t.TempDir()
	h := open(t, replica.Config{Dir: dir, Guest: m.client, BytesMax: quota})
	m.write("small", "it")
	one := snapshot(t, h, "")
	noise := make([]byte, 2*quota)
	_, _ = rand.Read(noise)
	m.write("large", string(noise))
	two := snapshot(t, h, "")
	if h.Durable() != one.N || !errs.Is(h.Behind(), errs.Limit) {
		t.Errorf("durable %d: %v", h.Durable(), h.Behind())
	}
	revs, err := h.Revisions(t.Context())
	must(t, err)
	if len(revs) != 2 || revs[1].N != two.N {
		t.Errorf("%+v", revs)
	}
	if err := h.Content(t.Context(), two.N, "large", io.Discard); !errs.Is(err, errs.Unavailable) {
		t.Errorf("content that is not here: %v", err)
	}
	if n := bytesOf(t, dir); n > quota+64<<10 {
		t.Errorf("%d bytes on the host", n)
	}
	if rev := restore(t, h, one.N); rev.Root != one.Root { // undo goes on in the machine
		t.Error("another root")
	}
	if _, err := os.Stat(filepath.Join(m.files(), "large")); err == nil {
		t.Error("the undo did not remove what came later")
	}
	if again := restore(t, h, two.N); again.Root != two.Root { // and back, from what only the machine has
		t.Error("another root")
	}
}

func bytesOf(t testing.TB, dir string) (n int64) {
	t.Helper()
	must(t, filepath.WalkDir(dir, func(_ string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		info, err := d.Info()
		n += info.Size()
		return err
	}))
	return n
}

// A host that dies between a revision and its acknowledgement has it whole or
// not at all, and goes on.
func TestPullThatBreaksOff_goesOnLater(t *testing.T) {
	m := newMachine(t)
	m.stop()
	l := &liar{}
	m.start(func(h wire.HistoryHandler) wire.HistoryHandler { l.HistoryHandler = h; return l })
	dir := t.TempDir()
	h := open(t, replica.Config{Dir: dir, Guest: m.client})
	for i := range 20 {
		m.write(fmt.Sprintf("dir/%d", i), fmt.Sprint(i))
	}
	whole := pulledAfterSnapshot(t, m)
	for cut := 1; cut < len(whole); cut += len(whole)/10 + 1 {
		l.pull = func(_ *wire.PullRequest, st *connect.ServerStream[wire.PullResponse]) error {
			_ = st.Send(&wire.PullResponse{Data: whole[:cut]})
			return wire.ToConnect(errs.New(errs.Unavailable, "cut"))
		}
		if _, _, err := h.Snapshot(t.Context(), workspace.Label{}); !errs.Is(err, errs.Unavailable) || h.Durable() != 0 {
			t.Fatalf("cut at %d: %v, durable %d", cut, err, h.Durable())
		}
		must(t, h.Close())
		h = open(t, replica.Config{Dir: dir, Guest: m.client})
	}
	l.pull = nil
	if rev := snapshot(t, h, ""); rev.N != 1 || h.Durable() != 1 || content(t, h, 1, "dir/7") != "7" {
		t.Errorf("%+v", rev)
	}
}

func pulledAfterSnapshot(t testing.TB, m *machine) []byte {
	t.Helper()
	_, err := m.client.History.Snapshot(t.Context(), connect.NewRequest(&wire.SnapshotRequest{}))
	must(t, err)
	return pulled(t, m.client, nil)
}

// Hundreds of revisions on a host that has room for a few of them.
func TestOldRevisionsGo_whenThereIsNoRoom(t *testing.T) {
	const quota = 2 << 20
	m, dir := newMachine(t), t.TempDir()
	h := open(t, replica.Config{Dir: dir, Guest: m.client, BytesMax: quota})
	noise := make([]byte, 64<<10)
	var last workspace.Revision
	for i := range 120 { // 7.5 MiB
		_, _ = rand.Read(noise)
		m.write("a", string(noise))
		last = snapshot(t, h, fmt.Sprint(i))
		if h.Durable() != last.N {
			t.Fatalf("revision %d, durable %d: %v", last.N, h.Durable(), h.Behind())
		}
	}
	if n := bytesOf(t, dir); n > quota+256<<10 {
		t.Errorf("%d bytes on the host", n)
	}
	revs, err := h.Revisions(t.Context())
	must(t, err)
	if len(revs) < 10 || len(revs) > 32 {
		t.Errorf("%d revisions are left", len(revs))
	}
	if text := content(t, h, last.N, "a"); text != string(noise) {
		t.Error("the newest has another content")
	}
	oldest := revs[0]
	if rev := restore(t, h, oldest.N); rev.Root != oldest.Root {
		t.Error("another root")
	}
}

// Fault 11: what stays on the host goes by the order of revisions, whatever the
// machine's clock says, and so do undo and redo.
func TestOldRevisionsGo_whateverTheClockSays(t *testing.T) {
	const quota = 2 << 20
	year := 365 * 24 * time.Hour
	real := time.Now()
	for name, clock := range map[string]func(i int) time.Time{
		"1970":             func(i int) time.Time { return time.Unix(int64(i), 0) },
		"a year ahead":     func(i int) time.Time { return real.Add(year) },
		"ahead and back":   func(i int) time.Time { return real.Add(time.Duration(i/10%2) * year) },
		"ever backwards":   func(i int) time.Time { return real.Add(-time.Duration(i) * year) },
		"ahead at the end": func(i int) time.Time { return real.Add(time.Duration(i/50) * year) },
	} {
		t.Run(strings.ReplaceAll(name, " ", "_"), func(t *testing.T) {
			m, dir, i := newMachine(t), t.TempDir(), 0
			m.stop()
			m.now = func() time.Time { return clock(i) }
			m.start(nil)
			h := open(t, replica.Config{Dir: dir, Guest: m.client, BytesMax: quota})
			noise := make([]byte, 64<<10)
			for ; i < 60; i++ {
				_, _ = rand.Read(noise)
				m.write("a", string(noise))
				if rev := snapshot(t, h, ""); h.Durable() != rev.N {
					t.Fatalf("revision %d, durable %d: %v", rev.N, h.Durable(), h.Behind())
				}
			}
			revs, err := h.Revisions(t.Context())
			must(t, err)
			if len(revs) < 10 || len(revs) > 32 || revs[0].N != uint64(60-len(revs)+1) {
				t.Errorf("%d revisions are left, from %d", len(revs), revs[0].N)
			}
			if current, undo, _ := workspace.Position(revs); current != 60 || undo != 59 {
				t.Errorf("at %d, undo to %d", current, undo)
			}
			if rev := restore(t, h, 59); rev.Root != revs[len(revs)-2].Root || rev.N != 61 {
				t.Errorf("undo made %+v", rev)
			}
		})
	}
}

// What a machine says of how long its history was open makes nothing old here.
func TestAges_areTheHosts(t *testing.T) {
	m := newMachine(t)
	h := open(t, replica.Config{Dir: t.TempDir(), Guest: m.client})
	m.write("a", "1")
	snapshot(t, h, "")
	m.stop()
	list := filepath.Join(m.disk, layout.History, "revisions")
	log, revs, err := revlog.Open(list)
	must(t, err)
	lie := revs[0]
	lie.N, lie.Clock = 2, (100 * 365 * 24 * time.Hour).Microseconds()
	must(t, log.Append(lie))
	must(t, log.Close())
	m.start(nil)
	m.write("a", "2")
	if rev := snapshot(t, h, ""); rev.N != 3 || h.Durable() != 3 {
		t.Fatalf("%+v, durable %d", rev, h.Durable())
	}
	revs, err = h.Revisions(t.Context())
	must(t, err)
	for _, r := range revs {
		if age := time.Duration(r.Clock) * time.Microsecond; age > time.Hour {
			t.Errorf("revision %d was made after %s", r.N, age)
		}
	}
}
