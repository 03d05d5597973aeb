package template

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/internal/pattern"
	"github.com/skete-dev/skete/template/oci"
)

// Limits bound an import. Zero = the built-in value.
type Limits struct {
	Bytes   int64 // of unpacked content; 20 GiB
	Entries int64 // 1,000,000
	Ratio   int64 // unpacked to packed, looked at beyond 64 MiB; 200
}

// Store keeps templates in a directory.
type Store struct {
	*oci.DirStore
	blobs  *oci.BlobCache
	limits Limits

	mu     sync.Mutex // guards what follows; held while the host's tree is built
	inUse  func(hash string) bool
	parts  Parts
	host   Rootfs
	hostAt time.Time
}

// hostFresh is how long the host's tree is taken as up to date. It is a
// matter of a few milliseconds to look, but not for each of a hundred creates.
const hostFresh = 10 * time.Second

// Directories of a store.
const (
	namesDir  = "names"  // <name>.json -> hash
	treesDir  = "trees"  // <hash>/
	listsDir  = "lists"  // <hash>.list, the manifest of the tree
	imagesDir = "images" // <hash>.ext4
	madeDir   = "made"   // <key of layers> -> record of the tree that they made
	blobsDir  = "blobs"  // layers as they came
)

// Open makes the directory if need be and sweeps what killed processes left.
func Open(dir string) (*Store, error) {
	sh, err := oci.OpenDirStore(dir, namesDir, treesDir, listsDir, imagesDir, madeDir)
	if err != nil {
		return nil, fmt.Errorf("open templates: %w", err)
	}
	blobs, err := oci.OpenBlobs(sh.Path(blobsDir))
	if err != nil {
		return nil, fmt.Errorf("open templates: %w", err)
	}
	return &Store{DirStore: sh, blobs: blobs, limits: Limits{Bytes: 20 << 30, Entries: 1_000_000, Ratio: 200}}, nil
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

// record is a name's file.
type record struct {
	Hash      string    `json:"hash"`
	Bytes     int64     `json:"bytes"`
	Skipped   int64     `json:"skipped,omitempty"` // devices and odd attributes that were left out
	Languages []string  `json:"languages"`
	CreatedAt time.Time `json:"created_at"`
	// Of an image:
	Source *Source  `json:"source,omitempty"`
	Blobs  []string `json:"blobs,omitempty"` // digests of its layers

	Want string `json:"-"` // the hash that it must have, "" = any
}

func (r record) info(name string) Info {
	return Info{
		Name: name, Kind: "import", Hash: r.Hash, Bytes: r.Bytes, Languages: r.Languages,
		Skipped: r.Skipped, CreatedAt: r.CreatedAt, Source: r.Source,
	}
}

// environment is what commands find set: the image's own where it says so.
func (r record) environment(v rootView) map[string]string {
	env := environment(v)
	if r.Source != nil {
		for _, pair := range r.Source.Config.Env {
			if k, val, ok := strings.Cut(pair, "="); ok && k != "" {
				env[k] = val
			}
		}
	}
	return env
}

var nameForm = pattern.Lazy(`^[a-z0-9][a-z0-9._-]{0,63}$`)

func checkName(name string) error {
	if !nameForm().MatchString(name) {
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
	entries, err := os.ReadDir(s.Path(namesDir))
	if err != nil {
		return nil, fmt.Errorf("list templates: %w", err)
	}
	var names []string
	for _, e := range entries {
		if name, ok := strings.CutSuffix(e.Name(), ".json"); ok && nameForm().MatchString(name) {
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
	return r.info(name), nil
}

func (s *Store) record(name string) (record, error) {
	if err := checkName(name); err != nil {
		return record{}, err
	}
	data, err := os.ReadFile(s.Path(namesDir, name+".json"))
	if errors.Is(err, fs.ErrNotExist) {
		return record{}, s.notFound(name)
	}
	if err != nil {
		return record{}, err
	}
	var r record
	if err := json.Unmarshal(data, &r); err != nil || !hashForm().MatchString(r.Hash) {
		return record{}, errs.Wrap(errs.Corrupt, err, "the record of template %s is damaged", name).
			WithHint("import the template again")
	}
	return r, nil
}

var hashForm = pattern.Lazy(`^[0-9a-f]{64}$`)

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
	dir := s.Path(treesDir, r.Hash)
	if _, err := os.Stat(dir); err != nil {
		return Rootfs{}, errs.Wrap(errs.Corrupt, err, "the files of template %s are gone", name).
			WithHint("import the template again")
	}
	return Rootfs{Name: name, Hash: r.Hash, Dir: dir, Env: r.environment(rootView{Dir: dir})}, nil
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
	return s.alone(func() error {
		if s.inUse != nil && s.inUse(r.Hash) {
			return errs.New(errs.Conflict, "sandboxes run from the template %s", name).WithHint("stop them first")
		}
		if err := os.Remove(s.Path(namesDir, name+".json")); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		_, err := s.sweep()
		return err
	})
}

// records lists what names have. One that cannot be read is an error: nothing
// may be deleted meanwhile.
func (s *Store) records() ([]record, error) {
	names, err := s.names()
	if err != nil {
		return nil, err
	}
	var all []record
	for _, name := range names {
		r, err := s.record(name)
		if errs.Is(err, errs.NotFound) {
			continue
		}
		if err != nil {
			return nil, err
		}
		all = append(all, r)
	}
	return all, nil
}

// writeRecord names a tree, durably.
func (s *Store) writeRecord(name string, r record) error {
	data, err := json.Marshal(r)
	if err != nil {
		return err
	}
	return s.WriteFile(s.Path(namesDir, name+".json"), data)
}
