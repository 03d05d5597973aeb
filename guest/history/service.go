package history

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"connectrpc.com/connect"
	"golang.org/x/sys/unix"

	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/guest/wire"
	"github.com/skete-dev/skete/internal/volume/layout"
	"github.com/skete-dev/skete/workspace"
	"github.com/skete-dev/skete/workspace/capture"
	"github.com/skete-dev/skete/workspace/object"
)

// Limits of a history in a machine. The host keeps more, and gives back what an
// undo needs; so here the old goes soon when there is little room.
const (
	bytesMax   = 5 << 30 // and half of the disk
	segmentMin = 1 << 20 // and a thirty-second of the disk, at most segmentMax
	segmentMax = 64 << 20
	applyMax   = 10 * time.Minute
	// guard is when commands go on without us; it is wound up every guardEvery.
	guard      = time.Minute
	guardEvery = 20 * time.Second
)

// Commands are the sandbox's; process.Core is one.
type Commands interface {
	Quiesce(thawAfter time.Duration) uint32
	Thaw() uint32
}

// Config of a Service.
type Config struct {
	// Disk is where the workspace's disk is mounted.
	Disk string
	// Files is the workspace of a machine that mounts no disk, Disk being a directory
	// that need not be on its file system; "" = where the layout of the disk has it.
	Files    string
	Commands Commands
	// Now and Stage are for tests: see workspace.Config.
	Now   func() time.Time
	Stage func(name string)
}

// Service is guest.v1's History.
type Service struct {
	c Config

	applyMu sync.Mutex // one Apply at a time; taken before mu
	acked   atomic.Uint64

	mu     sync.Mutex // guards all below
	open   *workspace.Workspace
	closed bool
}

// New returns a service that has opened nothing yet.
func New(c Config) *Service { return &Service{c: c} }

// Has reports whether a disk with a workspace is mounted at path.
func Has(path string) bool {
	info, err := os.Lstat(filepath.Join(path, layout.Files))
	return err == nil && info.IsDir()
}

func (s *Service) files() string { return cmp.Or(s.c.Files, filepath.Join(s.c.Disk, layout.Files)) }

// stagingName is where new contents of files are put where nothing but the workspace is
// on its file system. It is there while an undo is under way, and no part of a revision.
const stagingName = ".skete.staging"

func (s *Service) staging() string {
	if s.c.Files != "" {
		return filepath.Join(s.c.Files, stagingName)
	}
	return filepath.Join(s.c.Disk, layout.Staging)
}

func (s *Service) rules() *capture.Rules {
	if s.c.Files == "" {
		return nil
	}
	r := capture.DefaultRules()
	r.Cache = append(r.Cache, stagingName)
	return &r
}

func (s *Service) store() string { return filepath.Join(s.c.Disk, layout.History) }

// Recover finishes an Apply that died with its machine or its supervise. It is
// called before the first command is started.
func (s *Service) Recover() error {
	if !workspace.Unfinished(s.store()) {
		return nil
	}
	stop := s.freeze() // supervise may have died alone
	defer s.thaw(stop)
	_, err := s.workspace()
	return err
}

// workspace opens the history when it is used first.
func (s *Service) workspace() (*workspace.Workspace, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.open != nil || s.closed {
		return s.open, closed(s.closed)
	}
	disk := s.diskBytes()
	room := min(bytesMax, disk/2) // at least half is the workspace's
	w, err := workspace.Open(workspace.Config{
		Dir: s.files(), Staging: s.staging(),
		Store: s.store(), BytesMax: room, SegmentBytes: min(max(disk/32, segmentMin), segmentMax), Now: s.c.Now, Stage: s.c.Stage,
		Capture: capture.Config{Watch: true, Rules: s.rules()},
		// What the host has last is what it is sent the difference to.
		Policy: &workspace.Policy{BytesMax: room, Keep: func(r workspace.Revision) bool { return r.N == s.acked.Load() }},
	})
	if err != nil {
		return nil, fmt.Errorf("open the workspace's history: %w", err)
	}
	s.open = w
	s.acked.Store(s.readAck())
	return w, nil
}

func closed(yes bool) error {
	if yes {
		return errs.New(errs.Unavailable, "the machine is about to end")
	}
	return nil
}

// diskBytes is the size of the workspace's disk.
func (s *Service) diskBytes() int64 {
	var st unix.Statfs_t
	if err := unix.Statfs(s.c.Disk, &st); err != nil {
		return 2 * bytesMax
	}
	return int64(st.Blocks) * st.Bsize
}

// Close closes the history; what is under way fails or comes to its end first.
func (s *Service) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	if s.open == nil {
		return nil
	}
	err := s.open.Close()
	s.open = nil
	return err
}

// freeze stops the sandbox's commands until thaw, or for guard after release.
func (s *Service) freeze() (release func()) {
	s.c.Commands.Quiesce(guard)
	stop, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		t := time.NewTicker(guardEvery)
		defer t.Stop()
		for {
			select {
			case <-t.C:
				s.c.Commands.Quiesce(guard)
			case <-stop:
				return
			}
		}
	}()
	return func() {
		close(stop)
		<-done
	}
}

// thaw lets the commands go on.
func (s *Service) thaw(release func()) {
	release()
	s.c.Commands.Thaw()
}

// Snapshot makes a revision.
func (s *Service) Snapshot(ctx context.Context, r *connect.Request[wire.SnapshotRequest]) (*connect.Response[wire.SnapshotResponse], error) {
	w, err := s.workspace()
	if err != nil {
		return nil, wire.ToConnect(err)
	}
	rev, fresh, err := w.Snapshot(ctx, label(r.Msg.Label))
	if err != nil {
		return nil, wire.ToConnect(err)
	}
	text, err := json.Marshal(rev)
	if err != nil {
		return nil, wire.ToConnect(err)
	}
	return connect.NewResponse(&wire.SnapshotResponse{Revision: text, Fresh: fresh}), nil
}

func label(l *wire.RevisionLabel) workspace.Label {
	return workspace.Label{Thread: l.GetThread(), Run: l.GetRun(), Call: l.GetCall(), Actor: l.GetActor(), Text: l.GetText(), Step: int(l.GetStep()), Jump: l.GetJump()}
}

// keptMax is how many paths an answer of Apply names.
const keptMax = 10_000

// Apply goes to its end, whether the host waits for it or not.
func (s *Service) Apply(ctx context.Context, r *connect.Request[wire.ApplyRequest]) (*connect.Response[wire.ApplyResponse], error) {
	w, err := s.workspace()
	if err != nil {
		return nil, wire.ToConnect(err)
	}
	s.applyMu.Lock()
	defer s.applyMu.Unlock()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), applyMax)
	defer cancel()
	release := s.freeze()
	rev, result, err := w.Apply(ctx, r.Msg.Plan, label(r.Msg.Label))
	if err == nil && r.Msg.Hold {
		release()
	} else {
		s.thaw(release)
	}
	if err != nil {
		return nil, wire.ToConnect(err)
	}
	text, err := json.Marshal(rev)
	if err != nil {
		return nil, wire.ToConnect(err)
	}
	res := &wire.ApplyResponse{Revision: text}
	for _, path := range result.Kept[:min(len(result.Kept), keptMax)] {
		res.Kept = append(res.Kept, []byte(path))
	}
	return connect.NewResponse(res), nil
}

// Status says how far this history is, and whether it is the host's.
func (s *Service) Status(_ context.Context, r *connect.Request[wire.HistoryStatusRequest]) (*connect.Response[wire.HistoryStatusResponse], error) {
	w, err := s.workspace()
	if err != nil {
		return nil, wire.ToConnect(err)
	}
	res := &wire.HistoryStatusResponse{Known: true}
	err = w.Export(func(store *object.Store, revs []workspace.Revision) error {
		res.Bytes = store.Bytes()
		if n := len(revs); n > 0 {
			res.Last = revs[n-1].N
		}
		if r.Msg.Mark != nil {
			_, err := find(revs, r.Msg.Mark)
			res.Known = err == nil
		}
		return nil
	})
	if err != nil {
		return nil, wire.ToConnect(err)
	}
	res.Acked = s.acked.Load()
	return connect.NewResponse(res), nil
}

// find returns where a revision stands.
func find(revs []workspace.Revision, m *wire.RevisionMark) (int, error) {
	for i, rev := range revs {
		if rev.N == m.N && string(rev.Root[:]) == string(m.Root) && rev.Time.UnixNano() == m.TimeUnixNs {
			return i, nil
		}
	}
	return 0, errs.New(errs.Conflict, "the machine's history does not have revision %d as it was", m.N)
}

// Ack remembers how far the host is.
func (s *Service) Ack(ctx context.Context, r *connect.Request[wire.AckRequest]) (*connect.Response[wire.AckResponse], error) {
	w, err := s.workspace()
	if err != nil {
		return nil, wire.ToConnect(err)
	}
	revs, err := w.Revisions(ctx)
	if err != nil {
		return nil, wire.ToConnect(err)
	}
	if r.Msg.Mark == nil {
		return nil, wire.ToConnect(errs.New(errs.Invalid, "which revision?"))
	}
	if _, err := find(revs, r.Msg.Mark); err != nil {
		return nil, wire.ToConnect(err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.acked.Store(r.Msg.Mark.N)
	return connect.NewResponse(&wire.AckResponse{}), wire.ToConnect(s.writeAck())
}

func (s *Service) ackFile() string { return filepath.Join(s.store(), "acked") }

// writeAck is not synced: the host says it again.
func (s *Service) writeAck() error {
	text := fmt.Appendf(nil, "%d\n", s.acked.Load())
	if err := os.WriteFile(s.ackFile()+".new", text, 0o600); err != nil {
		return err
	}
	return os.Rename(s.ackFile()+".new", s.ackFile())
}

func (s *Service) readAck() (n uint64) {
	f, err := os.Open(s.ackFile())
	if err != nil {
		return 0
	}
	defer f.Close()
	if _, err := fmt.Fscanf(io.LimitReader(f, 32), "%d\n", &n); err != nil && !errors.Is(err, io.EOF) {
		return 0
	}
	return n
}
