// Package snapshot keeps the snapshots of all sandboxes of a server: their
// records, their directories of memory, their copies of workspaces.
//
//	s := snapshot.New(snapshot.Config{…})
//	err := s.Load(ctx)                       // at the start of the server
//	dir, err := s.Begin(ctx, snap, false)    // the caller fills dir and VolumeOf(snap.ID)
//	snap, err = s.Finish(ctx, snap.ID)       // or Discard
//
// What it promises. The registry knows of a snapshot before the host does, so
// that a crash leaves either a whole one or, after Remove, nothing. Files that a
// machine needs stay until it is gone, even if the snapshot is deleted. One that
// the server keeps for itself (Keep) no tenant can see or delete.
//
// All methods are safe for concurrent use.
package snapshot

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/kv"
	"github.com/skete-dev/skete/sandbox"
)

// Config of a Store.
type Config struct {
	Dir      string // a directory per snapshot that has memory
	Node     string
	Registry kv.Store
	Volumes  sandbox.Volumes
	Max      int // per tenant; 0 = no bound
	Log      *slog.Logger
	Now      func() time.Time
}

const (
	prefix       = "snapshot/"
	version      = 1
	freeBytesMin = 256 << 20 // that a snapshot leaves free on the host
	writeTimeout = 15 * time.Second
)

// plan is what is under way with a snapshot; as of a sandbox, see package life.
type plan string

const (
	whole    plan = ""
	making   plan = "make"   // after a crash: nothing is left of it
	removing plan = "remove" // when no machine needs it
)

// record is what the registry keeps of a snapshot.
type record struct {
	V        int              `json:"v"`
	Node     string           `json:"node"`
	Plan     plan             `json:"plan,omitempty"`
	Hidden   bool             `json:"hidden,omitempty"` // made for a fork; no tenant sees it, and it goes with its last machine
	Use      string           `json:"use,omitempty"`    // hidden, but kept until it is dropped: what for, in the words of the caller of Keep
	Snapshot sandbox.Snapshot `json:"snapshot"`
}

func keyOf(id sandbox.SnapshotID) string { return prefix + string(id) }

func decode(key string, value []byte) (record, error) {
	var r record
	if err := json.Unmarshal(value, &r); err != nil {
		return r, errs.Wrap(errs.Corrupt, err, "the record %.64q cannot be read", key)
	}
	if r.V != version || keyOf(r.Snapshot.ID) != key {
		return r, errs.New(errs.Corrupt, "the record %.64q is of version %d or misplaced", key, r.V)
	}
	if _, err := sandbox.ParseSnapshotID(string(r.Snapshot.ID)); err != nil {
		return r, errs.Wrap(errs.Corrupt, err, "the record %.64q is of no snapshot", key)
	}
	return r, nil
}

// entry is one snapshot of the store.
type entry struct {
	record
	revision uint64
	held     map[sandbox.ID]bool // machines that need its files
	busy     bool                // it is being written or removed
	left     bool                // by the fork of an earlier server, which died before it could drop it
}

// Store keeps snapshots.
type Store struct {
	c Config

	mu         sync.Mutex // guards all below; not held over slow work
	entries    map[sandbox.SnapshotID]*entry
	unreadable map[sandbox.SnapshotID]bool // left alone
	elsewhere  map[sandbox.SnapshotID]placed
}

// New returns an empty store. Load fills it.
func New(c Config) *Store {
	return &Store{c: c, entries: map[sandbox.SnapshotID]*entry{}, unreadable: map[sandbox.SnapshotID]bool{}, elsewhere: map[sandbox.SnapshotID]placed{}}
}

// Load reads the node's records.
func (s *Store) Load(ctx context.Context) error {
	err := s.c.Registry.List(ctx, prefix, func(key string, value []byte, revision uint64) error {
		r, err := decode(key, value)
		s.mu.Lock()
		defer s.mu.Unlock()
		switch {
		case err != nil:
			s.c.Log.Error("a snapshot's record cannot be read; it is left alone", "key", key, "error", err)
			s.unreadable[sandbox.SnapshotID(strings.TrimPrefix(key, prefix))] = true
		case r.Node == s.c.Node:
			s.entries[r.Snapshot.ID] = &entry{record: r, revision: revision, held: map[sandbox.ID]bool{}}
		default:
			s.place(r)
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("read the registry: %w", err)
	}
	return nil
}

// Leftovers is what a crash left of snapshots.
type Leftovers struct {
	over    []sandbox.SnapshotID // half made, half removed, or hidden and needed by no machine
	strays  []sandbox.SnapshotID // directories that no record owns
	volumes []string             // the same
}

// Leftovers finds what a crash left half made or half removed, hidden snapshots
// that no machine needs, and directories and volumes that no record owns. It is
// called before snapshots are made. Only the caller removes what it returns.
func (s *Store) Leftovers(ctx context.Context) (l Leftovers) {
	s.mu.Lock()
	for id, e := range s.entries {
		if e.Plan == making || (e.Plan == removing || e.passing()) && len(e.held) == 0 {
			l.over = append(l.over, id)
			e.busy = true
		}
		e.left = e.passing()
	}
	s.mu.Unlock()
	entries, err := os.ReadDir(s.c.Dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		s.c.Log.Error("cannot read the directory of snapshots", "error", err)
	}
	for _, e := range entries {
		if id, ok := s.stray(strings.TrimSuffix(e.Name(), keysSuffix)); ok {
			l.strays = append(l.strays, id)
		}
	}
	volumes, err := s.c.Volumes.List(ctx)
	if err != nil {
		s.c.Log.Error("cannot list volumes", "error", err)
	}
	for _, name := range volumes {
		if _, ok := s.stray(name); ok {
			l.volumes = append(l.volumes, name)
		}
	}
	return l
}

// Remove removes them. The sandboxes must be in order by then: a machine may go
// on from a half made one.
func (s *Store) Remove(ctx context.Context, l Leftovers) {
	for _, id := range l.over {
		if err := s.remove(ctx, id); err != nil {
			s.c.Log.Error("cannot remove a snapshot; will try at the next start", "id", id, "error", err)
		}
	}
	for _, id := range l.strays {
		if _, ok := s.stray(string(id)); !ok {
			continue // there is one of this name again
		}
		if err := errors.Join(os.RemoveAll(s.Dir(id)), os.RemoveAll(s.KeysFile(id))); err != nil {
			s.c.Log.Error("cannot remove a snapshot without an owner", "id", id, "error", err)
		}
	}
	for _, name := range l.volumes {
		if _, ok := s.stray(name); !ok {
			continue
		}
		if err := s.c.Volumes.Remove(ctx, name); err != nil {
			s.c.Log.Error("cannot remove the volume of a snapshot without an owner", "volume", name, "error", err)
		}
	}
}

func (s *Store) stray(name string) (sandbox.SnapshotID, bool) {
	id, err := sandbox.ParseSnapshotID(name)
	if err != nil {
		return "", false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return id, s.entries[id] == nil && !s.unreadable[id]
}

// Dir is where a snapshot's memory is.
func (s *Store) Dir(id sandbox.SnapshotID) string { return filepath.Join(s.c.Dir, string(id)) }

// KeysFile is where the keys are that the sandbox had used for its commands.
func (s *Store) KeysFile(id sandbox.SnapshotID) string { return s.Dir(id) + keysSuffix }

const keysSuffix = ".keys"

// VolumeOf names the volume with a snapshot's workspace.
func VolumeOf(id sandbox.SnapshotID) string { return string(id) }

// Begin notes a snapshot that is to be made and makes its directory, empty, if
// it is to have memory. need is how many bytes it may take at most.
//
// Limit: the tenant has as many as it may. Unavailable: the disk has no room.
func (s *Store) Begin(ctx context.Context, snap sandbox.Snapshot, hidden bool, need int64) (dir string, err error) {
	return s.begin(ctx, record{Hidden: hidden, Snapshot: snap}, need)
}

// Keep is Begin of a snapshot that is the server's own: no tenant sees it, has
// it counted or can name it, and it stays, over restarts too, until Drop. use
// says to the next server what it is for; it is not empty.
func (s *Store) Keep(ctx context.Context, snap sandbox.Snapshot, use string, need int64) (dir string, err error) {
	return s.begin(ctx, record{Hidden: true, Use: use, Snapshot: snap}, need)
}

func (s *Store) begin(ctx context.Context, r record, need int64) (dir string, err error) {
	if err := os.MkdirAll(s.c.Dir, 0o700); err != nil {
		return "", errs.Wrap(errs.Internal, err, "cannot make the directory of snapshots")
	}
	if err := s.room(need); err != nil {
		return "", err
	}
	r.V, r.Node, r.Plan, r.Snapshot.CreatedAt = version, s.c.Node, making, s.c.Now().Round(0).UTC()
	e, snap := &entry{record: r, held: map[sandbox.ID]bool{}, busy: true}, r.Snapshot
	if err := s.enter(e); err != nil {
		return "", err
	}
	if err = s.create(ctx, e); err == nil && snap.Memory {
		dir = s.Dir(snap.ID)
		err = os.Mkdir(dir, 0o700)
	}
	if err != nil {
		return "", errors.Join(fmt.Errorf("begin snapshot %s: %w", snap.ID, err), s.Discard(ctx, snap.ID))
	}
	return dir, nil
}

// room looks at the disk before it is filled.
func (s *Store) room(need int64) error {
	var st unix.Statfs_t
	if err := unix.Statfs(s.c.Dir, &st); err != nil {
		return errs.Wrap(errs.Internal, err, "cannot look at the disk of snapshots")
	}
	if free := int64(st.Bavail) * st.Bsize; free < need+freeBytesMin {
		return errs.New(errs.Unavailable, "no room for a snapshot: it may take %d MB, and %d MB are free", need>>20, free>>20).
			WithHint("delete snapshots (`skete vm snapshots`) or sandboxes, or give the server more disk")
	}
	return nil
}

// Short reports whether the disk has less room than snapshots must leave free.
func (s *Store) Short() bool {
	return errs.Is(s.room(0), errs.Unavailable) // not if there is no directory yet
}

// enter counts a snapshot against its tenant's.
func (s *Store) enter(e *entry) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.entries[e.Snapshot.ID] != nil { // of a key, and what it left is not removed yet
		return errs.New(errs.Unavailable, "snapshot %s is still being cleaned up", e.Snapshot.ID).WithHint("try again in a moment")
	}
	n := 0
	for _, far := range s.elsewhere {
		if far.tenant == e.Snapshot.Tenant {
			n++
		}
	}
	for _, other := range s.entries {
		if other.Snapshot.Tenant == e.Snapshot.Tenant && !other.Hidden && other.Plan != removing {
			n++
		}
	}
	if s.c.Max > 0 && n >= s.c.Max && !e.Hidden {
		return errs.New(errs.Limit, "quota of %d snapshots is used up", s.c.Max).WithHint("delete some: `skete vm snapshots`")
	}
	s.entries[e.Snapshot.ID] = e
	return nil
}

func (s *Store) create(ctx context.Context, e *entry) error {
	value, err := json.Marshal(e.record)
	if err == nil {
		e.revision, err = s.c.Registry.Create(ctx, keyOf(e.Snapshot.ID), value)
	}
	return err
}

// Finish makes a snapshot that was begun whole: from now on it is seen.
func (s *Store) Finish(ctx context.Context, id sandbox.SnapshotID) (sandbox.Snapshot, error) {
	e := s.entry(id)
	if e == nil {
		return sandbox.Snapshot{}, errUnknown(id)
	}
	var bytes int64
	var err error
	if !e.passing() { // that one does not outlive a crash, see Leftovers
		bytes, err = s.settle(ctx, id)
	}
	if err == nil {
		err = s.change(ctx, e, func(r *record) { r.Plan, r.Snapshot.Bytes = whole, bytes })
	}
	if err != nil {
		return sandbox.Snapshot{}, errors.Join(fmt.Errorf("finish snapshot %s: %w", id, err), s.Discard(ctx, id))
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	e.busy = false
	return e.Snapshot, nil
}

// settle brings the files to the disk and counts them: a snapshot that a power
// cut made holes in would load, and be wrong.
func (s *Store) settle(ctx context.Context, id sandbox.SnapshotID) (int64, error) {
	var total int64
	err := filepath.WalkDir(s.Dir(id), func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		n, err := syncFile(path)
		total += n
		return err
	})
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return 0, err
	}
	n, err := s.c.Volumes.Usage(ctx, VolumeOf(id))
	if errs.Is(err, errs.NotFound) {
		err = nil
	}
	return total + n, err
}

func syncFile(path string) (int64, error) {
	f, err := os.Open(path)
	if err != nil {
		return 0, err
	}
	defer f.Close()
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		return 0, err
	}
	return st.Blocks * 512, f.Sync()
}

// Discard removes a snapshot that came to nothing.
func (s *Store) Discard(ctx context.Context, id sandbox.SnapshotID) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), writeTimeout)
	defer cancel()
	return s.remove(ctx, id)
}

// remove takes away the files, then the record; one that says whole is
// changed first, even if this server never learnt that it says so.
func (s *Store) remove(ctx context.Context, id sandbox.SnapshotID) error {
	rev, err := s.unmake(ctx, id)
	if err != nil {
		return err
	}
	if err := errors.Join(os.RemoveAll(s.Dir(id)), os.RemoveAll(s.KeysFile(id))); err != nil {
		return err
	}
	if err := s.c.Volumes.Remove(ctx, VolumeOf(id)); err != nil {
		return err
	}
	if rev != 0 {
		if err := s.c.Registry.Delete(ctx, keyOf(id), rev); err != nil {
			return err
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.entries, id)
	return nil
}

// unmake returns the revision of a record that is not whole; 0 = there is none.
func (s *Store) unmake(ctx context.Context, id sandbox.SnapshotID) (uint64, error) {
	value, rev, err := s.c.Registry.Get(ctx, keyOf(id))
	if errs.Is(err, errs.NotFound) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	r, err := decode(keyOf(id), value)
	if err != nil || r.Plan != whole {
		return rev, err
	}
	r.Plan = removing
	if value, err = json.Marshal(r); err != nil {
		return 0, err
	}
	return s.c.Registry.Update(ctx, keyOf(id), value, rev)
}

// change writes a record, and then believes it.
func (s *Store) change(ctx context.Context, e *entry, edit func(*record)) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), writeTimeout)
	defer cancel()
	s.mu.Lock()
	r, rev := e.record, e.revision
	s.mu.Unlock()
	edit(&r)
	value, err := json.Marshal(r)
	if err != nil {
		return err
	}
	next, err := s.c.Registry.Update(ctx, keyOf(r.Snapshot.ID), value, rev)
	if errs.Is(err, errs.Conflict) { // we are the only writer: an earlier one of ours landed unseen
		if _, rev, err = s.c.Registry.Get(ctx, keyOf(r.Snapshot.ID)); err == nil {
			next, err = s.c.Registry.Update(ctx, keyOf(r.Snapshot.ID), value, rev)
		}
	}
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	e.record, e.revision = r, next
	return nil
}

func (s *Store) entry(id sandbox.SnapshotID) *entry {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.entries[id]
}

func errUnknown(id sandbox.SnapshotID) error {
	return errs.New(errs.NotFound, "no snapshot %.40s", strconv.Quote(string(id))).WithHint("`skete vm snapshots` shows them")
}

// Get returns a snapshot that is whole. NotFound also for one of another tenant.
// Conflict: it is on another node.
func (s *Store) Get(tenant string, id sandbox.SnapshotID) (sandbox.Snapshot, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.entries[id]
	if e == nil || !e.seenBy(tenant) {
		if far, ok := s.elsewhere[id]; ok && far.tenant == tenant {
			return sandbox.Snapshot{}, errs.OnNode("snapshot "+string(id), far.node)
		}
		return sandbox.Snapshot{}, errUnknown(id)
	}
	return e.Snapshot, nil
}

// Whole returns a snapshot that is whole, hidden ones too.
func (s *Store) Whole(tenant string, id sandbox.SnapshotID) (sandbox.Snapshot, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.entries[id]
	if e == nil || e.Snapshot.Tenant != tenant || e.Plan != whole {
		return sandbox.Snapshot{}, false
	}
	return e.Snapshot, true
}

// passing: it goes with its last machine, also at the next start.
func (e *entry) passing() bool { return e.Hidden && e.Use == "" }

func (e *entry) seenBy(tenant string) bool {
	return e.Snapshot.Tenant == tenant && e.Plan == whole && !e.Hidden
}

// List returns the tenant's snapshots, newest first.
func (s *Store) List(tenant string) []sandbox.Snapshot {
	s.mu.Lock()
	all := []sandbox.Snapshot{}
	for _, e := range s.entries {
		if e.seenBy(tenant) {
			all = append(all, e.Snapshot)
		}
	}
	s.mu.Unlock()
	sandbox.NewestFirst(all)
	return all
}

// Kept is a whole snapshot of the server's own.
type Kept struct {
	sandbox.Snapshot
	Use string // as it was said to Keep
}

// Kept lists the server's own snapshots that are whole, newest first.
func (s *Store) Kept() []Kept {
	s.mu.Lock()
	defer s.mu.Unlock()
	var all []Kept
	for _, e := range s.entries {
		if e.Use != "" && e.Plan == whole {
			all = append(all, Kept{e.Snapshot, e.Use})
		}
	}
	slices.SortFunc(all, func(a, b Kept) int { return b.CreatedAt.Compare(a.CreatedAt) })
	return all
}

// Delete makes a snapshot unknown. Its files go when no machine needs them.
func (s *Store) Delete(ctx context.Context, tenant string, id sandbox.SnapshotID) error {
	if _, err := s.Get(tenant, id); err != nil {
		return err
	}
	return s.Drop(ctx, id)
}

// Drop is Delete of a snapshot that may be hidden; no error if there is none.
func (s *Store) Drop(ctx context.Context, id sandbox.SnapshotID) error {
	e := s.entry(id)
	if e == nil {
		return nil
	}
	if err := s.change(ctx, e, func(r *record) { r.Plan = removing }); err != nil {
		return fmt.Errorf("delete snapshot %s: %w", id, err)
	}
	return s.clear(ctx, id)
}

// clear removes a deleted or left snapshot that no machine needs.
func (s *Store) clear(ctx context.Context, id sandbox.SnapshotID) error {
	s.mu.Lock()
	e := s.entries[id]
	over := e != nil && (e.Plan == removing || e.left) && len(e.held) == 0 && !e.busy
	if over {
		e.busy = true
	}
	s.mu.Unlock()
	if !over {
		return nil
	}
	err := s.remove(ctx, id)
	if err != nil {
		s.mu.Lock()
		e.busy = false
		s.mu.Unlock()
		return fmt.Errorf("delete snapshot %s: %w", id, err)
	}
	return nil
}

// Hold keeps the files for a machine until Release. NotFound: they are going.
func (s *Store) Hold(id sandbox.SnapshotID, by sandbox.ID) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.entries[id]
	if e == nil || e.Plan != whole {
		return errUnknown(id)
	}
	e.held[by] = true
	return nil
}

// Rehold is Hold after a restart: what runs, runs.
func (s *Store) Rehold(id sandbox.SnapshotID, by sandbox.ID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if e := s.entries[id]; e != nil {
		e.held[by] = true
	}
}

// Release ends a Hold; it may be repeated.
func (s *Store) Release(ctx context.Context, id sandbox.SnapshotID, by sandbox.ID) {
	s.mu.Lock()
	if e := s.entries[id]; e != nil {
		delete(e.held, by)
	}
	s.mu.Unlock()
	if err := s.clear(ctx, id); err != nil {
		s.c.Log.Error("cannot remove a snapshot; will try at the next start", "id", id, "error", err)
	}
}

// Uses tells whether a snapshot is of a machine that ran from the root file
// system with this hash.
func (s *Store) Uses(hash string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, e := range s.entries {
		if e.Snapshot.Memory && e.Snapshot.RootfsHash == hash {
			return true
		}
	}
	return false
}
