package template

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/skete-dev/skete/errs"
)

// Limits bound an import. Zero = the built-in value.
type Limits struct {
	Bytes   int64 // of unpacked content; 20 GiB
	Entries int64 // 1,000,000
	Ratio   int64 // unpacked to packed, looked at beyond 64 MiB; 200
}

// Store keeps templates in a directory.
type Store struct {
	dir    string
	limits Limits

	mu     sync.Mutex // guards what follows; held while the host's tree is built
	inUse  func(hash string) bool
	host   Rootfs
	hostAt time.Time
}

// hostFresh is how long the host's tree is taken as up to date. It is a
// matter of a few milliseconds to look, but not for each of a hundred creates.
const hostFresh = 10 * time.Second

// Directories of a store.
const (
	namesDir = "names" // <name>.json -> hash
	treesDir = "trees" // <hash>/
	tempDir  = "tmp"   // under construction, each locked by who builds it
)

// Open makes the directory if need be and sweeps what killed processes left.
func Open(dir string) (*Store, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return nil, err
	}
	s := &Store{dir: dir, limits: Limits{Bytes: 20 << 30, Entries: 1_000_000, Ratio: 200}}
	for _, sub := range []string{namesDir, treesDir, tempDir} {
		if err := os.MkdirAll(filepath.Join(dir, sub), 0o700); err != nil {
			return nil, fmt.Errorf("open templates: %w", err)
		}
	}
	return s, s.sweepTemps()
}

// SetLimits changes the bounds of later imports; zero fields stay.
func (s *Store) SetLimits(l Limits) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.limits = Limits{cmp.Or(l.Bytes, s.limits.Bytes), cmp.Or(l.Entries, s.limits.Entries), cmp.Or(l.Ratio, s.limits.Ratio)}
}

// Guard tells the store which trees machines still run from. Until it is
// called no tree is ever deleted.
func (s *Store) Guard(inUse func(hash string) bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.inUse = inUse
}

func (s *Store) in(parts ...string) string {
	return filepath.Join(append([]string{s.dir}, parts...)...)
}

// record is a name's file.
type record struct {
	Hash      string    `json:"hash"`
	Bytes     int64     `json:"bytes"`
	Languages []string  `json:"languages"`
	CreatedAt time.Time `json:"created_at"`
}

var nameForm = regexp.MustCompile(`^[a-z0-9][a-z0-9._-]{0,63}$`)

func checkName(name string) error {
	if !nameForm.MatchString(name) {
		return errs.New(errs.Invalid, "%.80q is not a template name", name).
			WithHint("1 to 64 of a-z, 0-9, '.', '_' and '-', the first a letter or digit")
	}
	return nil
}

// List describes all templates, host first, then by name.
func (s *Store) List(ctx context.Context) ([]Info, error) {
	host, err := s.Get(ctx, HostName)
	if err != nil {
		return nil, err
	}
	infos := []Info{host}
	names, err := s.names()
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		info, err := s.Get(ctx, name)
		if errs.Is(err, errs.NotFound) {
			continue // removed meanwhile
		}
		if err != nil {
			return nil, err
		}
		infos = append(infos, info)
	}
	return infos, nil
}

func (s *Store) names() ([]string, error) {
	entries, err := os.ReadDir(s.in(namesDir))
	if err != nil {
		return nil, fmt.Errorf("list templates: %w", err)
	}
	var names []string
	for _, e := range entries {
		if name, ok := strings.CutSuffix(e.Name(), ".json"); ok && nameForm.MatchString(name) {
			names = append(names, name)
		}
	}
	return names, nil
}

// Get describes one template.
func (s *Store) Get(ctx context.Context, name string) (Info, error) {
	if name == HostName {
		root, err := s.hostRootfs(ctx)
		if err != nil {
			return Info{}, err
		}
		return Info{Name: name, Kind: "host", Hash: root.Hash, Languages: languagesIn(root)}, nil
	}
	r, err := s.record(name)
	if err != nil {
		return Info{}, err
	}
	return Info{Name: name, Kind: "import", Hash: r.Hash, Bytes: r.Bytes, Languages: r.Languages}, nil
}

func (s *Store) record(name string) (record, error) {
	if err := checkName(name); err != nil {
		return record{}, err
	}
	data, err := os.ReadFile(s.in(namesDir, name+".json"))
	if errors.Is(err, fs.ErrNotExist) {
		return record{}, s.notFound(name)
	}
	if err != nil {
		return record{}, err
	}
	var r record
	if err := json.Unmarshal(data, &r); err != nil || !hashForm.MatchString(r.Hash) {
		return record{}, errs.Wrap(errs.Corrupt, err, "the record of template %s is damaged", name).
			WithHint("import the template again")
	}
	return r, nil
}

var hashForm = regexp.MustCompile(`^[0-9a-f]{64}$`)

func (s *Store) notFound(name string) error {
	known, _ := s.names()
	all := strings.Join(append([]string{HostName}, known...), ", ")
	return errs.New(errs.NotFound, "no template %q; known: %s", name, all).WithHint("`skete template import NAME FILE` adds one")
}

// Rootfs makes a template ready to boot from.
func (s *Store) Rootfs(ctx context.Context, name string) (Rootfs, error) {
	if name == HostName {
		return s.hostRootfs(ctx)
	}
	r, err := s.record(name)
	if err != nil {
		return Rootfs{}, err
	}
	dir := s.in(treesDir, r.Hash)
	if _, err := os.Stat(dir); err != nil {
		return Rootfs{}, errs.Wrap(errs.Corrupt, err, "the files of template %s are gone", name).
			WithHint("import the template again")
	}
	return Rootfs{Name: name, Hash: r.Hash, Dir: dir, Env: environment(view{dir: dir})}, nil
}

// Image returns a root file system as a read-only ext4 image.
func (s *Store) Image(_ context.Context, root Rootfs) (string, error) {
	return "", errs.New(errs.Unsupported, "template %s has no image", root.Name)
}

// Remove forgets a template and deletes its tree. Conflict: machines run from
// it (see Guard).
func (s *Store) Remove(_ context.Context, name string) error {
	if name == HostName {
		return errs.New(errs.Denied, "the template host is built in")
	}
	r, err := s.record(name)
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.inUse != nil && s.inUse(r.Hash) {
		return errs.New(errs.Conflict, "sandboxes run from the template %s", name).WithHint("stop them first")
	}
	if err := os.Remove(s.in(namesDir, name+".json")); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return s.sweepTrees()
}

// sweepTrees deletes trees that no name has and no machine uses. The lock is held.
func (s *Store) sweepTrees() error {
	if s.inUse == nil {
		return nil
	}
	wanted, err := s.hashes()
	if err != nil {
		return err
	}
	entries, err := os.ReadDir(s.in(treesDir))
	if err != nil {
		return err
	}
	var all error
	for _, e := range entries {
		hash := strings.TrimPrefix(e.Name(), hostPrefix)
		if !slices.Contains(wanted, hash) && hash != s.host.Hash && !s.inUse(hash) {
			all = errors.Join(all, s.deleteTree(s.in(treesDir, e.Name())))
		}
	}
	return all
}

func (s *Store) hashes() ([]string, error) {
	names, err := s.names()
	if err != nil {
		return nil, err
	}
	var all []string
	for _, name := range names {
		r, err := s.record(name)
		if errs.Is(err, errs.NotFound) {
			continue
		}
		if err != nil {
			return nil, err // delete nothing while a record cannot be read
		}
		all = append(all, r.Hash)
	}
	return all, nil
}

// deleteTree moves a tree aside first, so that half of one is never found.
func (s *Store) deleteTree(dir string) error {
	t, err := s.newTemp()
	if err != nil {
		return err
	}
	defer t.close()
	return os.Rename(dir, t.tree())
}

// temp is a directory under construction. Its lock tells other processes that
// somebody is at work; it ends with the process.
type temp struct {
	dir  string
	lock *os.File
}

func (t *temp) tree() string { return filepath.Join(t.dir, "root") }

func (t *temp) close() {
	_ = removeTree(t.dir)
	_ = t.lock.Close()
}

func (s *Store) newTemp() (*temp, error) {
	for {
		dir := s.in(tempDir, rand.Text())
		if err := os.Mkdir(dir, 0o700); err != nil {
			return nil, err
		}
		lock, err := lockDir(dir)
		if err != nil {
			return nil, err
		}
		if lock == nil {
			continue
		}
		// A sweep may have been faster than our lock.
		if _, err := os.Stat(dir); err == nil {
			return &temp{dir, lock}, nil
		}
		_ = lock.Close()
	}
}

// lockDir locks a directory; nil when somebody has it or it is gone.
func lockDir(dir string) (*os.File, error) {
	f, err := os.Open(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		_ = f.Close()
		if errors.Is(err, unix.EWOULDBLOCK) {
			return nil, nil
		}
		return nil, err
	}
	return f, nil
}

func (s *Store) sweepTemps() error {
	entries, err := os.ReadDir(s.in(tempDir))
	if err != nil {
		return err
	}
	var all error
	for _, e := range entries {
		dir := s.in(tempDir, e.Name())
		lock, err := lockDir(dir)
		if err != nil || lock == nil {
			all = errors.Join(all, err)
			continue
		}
		all = errors.Join(all, removeTree(dir), lock.Close())
	}
	return all
}

// removeTree removes a tree also where its directories may not be written,
// which without root needs their modes changed.
func removeTree(dir string) error {
	err := os.RemoveAll(dir)
	if err == nil || os.Geteuid() == 0 {
		return err
	}
	_ = filepath.WalkDir(dir, func(p string, d fs.DirEntry, _ error) error {
		if d != nil && d.IsDir() {
			_ = os.Chmod(p, 0o700)
		}
		return nil
	})
	return os.RemoveAll(dir)
}

// publish gives a finished tree its name by content. One that is there
// already is the same.
func (s *Store) publish(t *temp, name string) (string, error) {
	final := s.in(treesDir, name)
	err := os.Rename(t.tree(), final)
	if errors.Is(err, unix.EEXIST) || errors.Is(err, unix.ENOTEMPTY) {
		err = nil
	}
	return final, err
}

// writeRecord names a tree, durably.
func (s *Store) writeRecord(name string, r record) error {
	data, err := json.Marshal(r)
	if err != nil {
		return err
	}
	f, err := os.CreateTemp(s.in(namesDir), ".new-*")
	if err != nil {
		return err
	}
	defer os.Remove(f.Name())
	_, err = f.Write(data)
	err = errors.Join(err, f.Sync(), f.Close())
	if err != nil {
		return err
	}
	return os.Rename(f.Name(), s.in(namesDir, name+".json"))
}
