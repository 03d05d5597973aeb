package skill

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/internal/clip"
	"github.com/skete-dev/skete/kv"
)

// Bounds of a tenant.
const (
	InstalledMax = 1000
	VersionsMax  = 10 // that are kept of a skill; the oldest goes
	AgentsMax    = 100
)

const (
	recordForm = 1
	writeTries = 20
)

// Installed is a skill of a tenant.
type Installed struct {
	Name    string
	Current string // the version that new runs get
	// Versions are those that are kept, the oldest first.
	Versions []Version
	// Agents are those that have it, by name; none = all of the tenant.
	Agents      []string
	CreatedAt   time.Time
	UpdatedAt   time.Time
	Description string // of Current
}

// Version is one content of a skill.
type Version struct {
	ID          string    `json:"id"` // Tree.Version
	Description string    `json:"description"`
	Bytes       int64     `json:"bytes"`
	Files       int       `json:"files"`
	From        string    `json:"from,omitempty"` // where it came from, as its installer said
	InstalledAt time.Time `json:"installed_at"`
}

// Has reports whether a version is kept.
func (i Installed) Has(version string) bool {
	return slices.ContainsFunc(i.Versions, func(v Version) bool { return v.ID == version })
}

// Find returns the version that is kept and begins with a text of at least 8 characters.
// NotFound.
func (i Installed) Find(version string) (string, error) {
	r := record{Versions: i.Versions}
	return r.find(i.Name, version)
}

// For reports whether an agent has the skill.
func (i Installed) For(agent string) bool {
	return len(i.Agents) == 0 || slices.Contains(i.Agents, agent)
}

// Install is a skill that is to be installed, or a new version of one.
type Install struct {
	Tree Tree
	From string
	// Agents are those that shall have it; nil = as before, which is all at first.
	Agents []string
	// New refuses a skill of that name that is there.
	New bool
}

// Change is what is to be said of a skill from now on.
type Change struct {
	Version string   // or the beginning of one, of at least 8 characters; "" = stays
	Agents  []string // nil = stays; none = all
}

// Store has the skills of all tenants. Safe for concurrent use; a directory has one owner.
type Store struct {
	kv  kv.Store
	dir string
	now func() time.Time
	// one is held while contents are written or swept, so that none is swept between its
	// write and the record that names it.
	one sync.Mutex
}

// record is an Installed in the store.
type record struct {
	V         int       `json:"v"`
	Current   string    `json:"current"`
	Versions  []Version `json:"versions"`
	Agents    []string  `json:"agents,omitempty"`
	CreatedAt time.Time `json:"created_at"`
	UpdatedAt time.Time `json:"updated_at"`
}

// Open opens a store whose contents are in a directory, and removes contents that no record
// names.
func Open(ctx context.Context, records kv.Store, dir string) (*Store, error) {
	s := &Store{kv: records, dir: dir, now: time.Now}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, errs.Wrap(errs.Unavailable, err, "the directory of the skills cannot be made")
	}
	return s, s.sweep(ctx)
}

func keyOf(tenant, name string) string { return tenant + "/" + name }

// List returns the skills that a tenant has, by name: its own, and those of the server of
// other names.
func (s *Store) List(ctx context.Context, tenant string) ([]Installed, error) {
	list, err := s.Own(ctx, tenant)
	if err != nil {
		return nil, err
	}
	all, err := s.Own(ctx, serverTenant)
	for _, i := range all {
		if !slices.ContainsFunc(list, func(own Installed) bool { return own.Name == i.Name }) {
			list = append(list, i)
		}
	}
	slices.SortFunc(list, func(a, b Installed) int { return strings.Compare(a.Name, b.Name) })
	return list, err
}

// Own returns the skills that a tenant has installed, by name.
func (s *Store) Own(ctx context.Context, tenant string) ([]Installed, error) {
	var list []Installed
	err := s.kv.List(ctx, keyOf(tenant, ""), func(key string, value []byte, _ uint64) error {
		r, err := decode(value)
		list = append(list, r.installed(strings.TrimPrefix(key, keyOf(tenant, ""))))
		return err
	})
	slices.SortFunc(list, func(a, b Installed) int { return strings.Compare(a.Name, b.Name) })
	return list, err
}

// Get returns a skill. NotFound.
func (s *Store) Get(ctx context.Context, tenant, name string) (Installed, error) {
	r, _, err := s.read(ctx, tenant, name)
	if errs.Is(err, errs.NotFound) {
		r, _, err = s.read(ctx, serverTenant, name)
	}
	return r.installed(name), err
}

// Install installs a skill, or a new version of it, which becomes the current one. Invalid
// lists the rules that it breaks. Exists, with New: it is there. Limit: the tenant has too
// many.
func (s *Store) Install(ctx context.Context, tenant string, in Install) (Installed, error) {
	if err := Error(Validate(in.Tree)); err != nil {
		return Installed{}, err
	}
	parsed, _, err := Load(in.Tree)
	if err != nil {
		return Installed{}, err
	}
	if err := checkAgents(in.Agents); err != nil {
		return Installed{}, err
	}
	if err := s.room(ctx, tenant, parsed.Name); err != nil {
		return Installed{}, err
	}
	s.one.Lock()
	defer s.one.Unlock()
	v := Version{
		ID: in.Tree.Version(), Description: parsed.Description, Bytes: in.Tree.Bytes(), Files: len(in.Tree.Files),
		From: clip.Text(in.From, 200), InstalledAt: s.now().UTC(),
	}
	if err := s.put(v.ID, in.Tree); err != nil {
		return Installed{}, err
	}
	return s.change(ctx, tenant, parsed.Name, true, func(r *record) error {
		if in.New && r.Current != "" {
			return errs.New(errs.Exists, "there is a skill %s", parsed.Name).WithHint("upgrade it: skete skill upgrade %s", parsed.Name)
		}
		if in.Agents != nil {
			r.Agents = in.Agents
		}
		r.add(v)
		return nil
	})
}

// add makes a version the current one.
func (r *record) add(v Version) {
	r.Current = v.ID
	if slices.ContainsFunc(r.Versions, func(w Version) bool { return w.ID == v.ID }) {
		return
	}
	r.Versions = append(r.Versions, v)
	if over := len(r.Versions) - VersionsMax; over > 0 {
		r.Versions = slices.Delete(r.Versions, 0, over)
	}
}

func checkAgents(agents []string) error {
	if len(agents) > AgentsMax {
		return errs.New(errs.Invalid, "agents: at most %d can be named", AgentsMax)
	}
	for _, a := range agents {
		if !NameOK(a) {
			return errs.New(errs.Invalid, "agents: %.80q is no name of an agent", a)
		}
	}
	return nil
}

// room refuses a skill more than a tenant may have.
func (s *Store) room(ctx context.Context, tenant, name string) error {
	n := 0
	err := s.kv.List(ctx, keyOf(tenant, ""), func(key string, _ []byte, _ uint64) error {
		if key != keyOf(tenant, name) {
			n++
		}
		return nil
	})
	if err == nil && n >= InstalledMax {
		err = errs.New(errs.Limit, "a tenant has at most %d skills", InstalledMax).WithHint("remove some: skete skill remove NAME")
	}
	return err
}

// Change goes to another version that is kept, or says which agents have the skill. NotFound:
// there is no such skill, or version.
func (s *Store) Change(ctx context.Context, tenant, name string, c Change) (Installed, error) {
	if err := checkAgents(c.Agents); err != nil {
		return Installed{}, err
	}
	return s.change(ctx, tenant, name, false, func(r *record) error {
		if c.Agents != nil {
			r.Agents = c.Agents
		}
		if c.Version == "" {
			return nil
		}
		v, err := r.find(name, c.Version)
		r.Current = v
		return err
	})
}

// find returns the version that a text begins.
func (r *record) find(name, version string) (string, error) {
	const least = 8
	var found []string
	for _, v := range r.Versions {
		if v.ID == version || len(version) >= least && strings.HasPrefix(v.ID, version) {
			found = append(found, v.ID)
		}
	}
	if len(found) != 1 {
		return r.Current, errs.New(errs.NotFound, "the skill %s has no version %.80q", name, version).WithHint("skete skill show %s lists them", name)
	}
	return found[0], nil
}

// Remove removes a skill with all its versions. NotFound.
func (s *Store) Remove(ctx context.Context, tenant, name string) error {
	for range writeTries {
		_, revision, err := s.readOwn(ctx, tenant, name)
		if err != nil {
			return err
		}
		err = s.kv.Delete(ctx, keyOf(tenant, name), revision)
		if errs.Is(err, errs.Conflict) {
			continue
		}
		if err != nil {
			return err
		}
		return s.sweep(ctx)
	}
	return errBusy(name)
}

// Erase removes all skills of a tenant.
func (s *Store) Erase(ctx context.Context, tenant string) error {
	list, err := s.Own(ctx, tenant)
	for _, i := range list {
		if err == nil {
			err = s.Remove(ctx, tenant, i.Name)
		}
		if errs.Is(err, errs.NotFound) { // it was removed meanwhile
			err = nil
		}
	}
	return err
}

// Tree returns the files of a version of a tenant's skill, which are checked against it.
// NotFound: it is not kept.
func (s *Store) Tree(ctx context.Context, tenant, name, version string) (Tree, error) {
	if _, err := s.Get(ctx, tenant, name); err != nil {
		return Tree{}, err
	}
	gone := errs.New(errs.NotFound, "the skill %s has no version %.12s any more", name, version)
	if kept, err := s.keeps(ctx, tenant, name, version); err != nil || !kept {
		return Tree{}, cmp.Or(err, error(gone))
	}
	data, err := os.ReadFile(s.file(version))
	if errors.Is(err, fs.ErrNotExist) {
		return Tree{}, gone
	}
	if err != nil {
		return Tree{}, errs.Wrap(errs.Unavailable, err, "the files of the skill %s cannot be read", name)
	}
	t, err := Archive(data, "")
	if err != nil || t.Version() != version {
		return Tree{}, errs.Wrap(errs.Corrupt, err, "the files of the skill %s are damaged", name).WithHint("install it again")
	}
	t.Folder = name
	return t, nil
}

// change reads, changes and writes a record.
func (s *Store) change(ctx context.Context, tenant, name string, create bool, f func(*record) error) (Installed, error) {
	for range writeTries {
		r, revision, err := s.readOwn(ctx, tenant, name)
		fresh := create && (errs.Is(err, errs.NotFound) || errs.Is(err, errs.Denied)) // it goes before the server's
		if err != nil && !fresh {
			return Installed{}, err
		}
		if fresh {
			r = record{CreatedAt: s.now().UTC()}
		}
		if err := f(&r); err != nil {
			return Installed{}, err
		}
		r.V, r.UpdatedAt = recordForm, s.now().UTC()
		value, err := json.Marshal(r)
		if err != nil {
			return Installed{}, err
		}
		if fresh {
			_, err = s.kv.Create(ctx, keyOf(tenant, name), value)
		} else {
			_, err = s.kv.Update(ctx, keyOf(tenant, name), value, revision)
		}
		if errs.Is(err, errs.Conflict) || errs.Is(err, errs.Exists) {
			continue
		}
		return r.installed(name), err
	}
	return Installed{}, errBusy(name)
}

func errBusy(name string) error {
	return errs.New(errs.Conflict, "the skill %.80q is being changed by others", name).WithHint("try again")
}

func (s *Store) read(ctx context.Context, tenant, name string) (record, uint64, error) {
	none := errs.New(errs.NotFound, "there is no skill %.80q", name).WithHint("skete skill list lists them")
	if !NameOK(name) {
		return record{}, 0, none
	}
	value, revision, err := s.kv.Get(ctx, keyOf(tenant, name))
	if errs.Is(err, errs.NotFound) {
		return record{}, 0, none
	}
	if err != nil {
		return record{}, 0, err
	}
	r, err := decode(value)
	return r, revision, err
}

// readOwn is read of a skill that the tenant may change. Denied: it is the server's.
func (s *Store) readOwn(ctx context.Context, tenant, name string) (record, uint64, error) {
	r, revision, err := s.read(ctx, tenant, name)
	if errs.Is(err, errs.NotFound) && tenant != serverTenant {
		if _, _, other := s.read(ctx, serverTenant, name); other == nil {
			err = errs.New(errs.Denied, "the skill %s is the server's", name).WithHint("one of that name that you install goes before it")
		}
	}
	return r, revision, err
}

// keeps reports whether a version is kept that the tenant has or had: a run that began with the
// server's goes on with it when the tenant installs one of that name.
func (s *Store) keeps(ctx context.Context, tenant, name, version string) (bool, error) {
	for _, owner := range []string{tenant, serverTenant} {
		r, _, err := s.read(ctx, owner, name)
		if err != nil && !errs.Is(err, errs.NotFound) {
			return false, err
		}
		if err == nil && r.installed(name).Has(version) {
			return true, nil
		}
	}
	return false, nil
}

func decode(value []byte) (record, error) {
	var r record
	if err := json.Unmarshal(value, &r); err != nil || r.V != recordForm {
		return record{}, errs.Wrap(errs.Corrupt, err, "the record of a skill cannot be read")
	}
	return r, nil
}

func (r record) installed(name string) Installed {
	i := Installed{Name: name, Current: r.Current, Versions: r.Versions, Agents: r.Agents, CreatedAt: r.CreatedAt, UpdatedAt: r.UpdatedAt}
	for _, v := range r.Versions {
		if v.ID == r.Current {
			i.Description = v.Description
		}
	}
	return i
}

// file is where the files of a version are.
func (s *Store) file(version string) string { return filepath.Join(s.dir, version+".tar") }

// put writes the files of a version: whole or not at all, also after a power cut. One that is
// there but damaged is replaced.
func (s *Store) put(version string, t Tree) error {
	data, err := t.Tar()
	if err != nil {
		return err
	}
	if err := s.write(version, data); err != nil {
		class := errs.Unavailable
		if errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT) {
			class = errs.Limit
		}
		return errs.Wrap(class, err, "the files of the skill cannot be written")
	}
	return nil
}

func (s *Store) write(version string, data []byte) error {
	f, err := os.CreateTemp(s.dir, "new-*")
	if err != nil {
		return err
	}
	defer os.Remove(f.Name()) // fails once it is renamed
	if _, err = f.Write(data); err == nil {
		err = f.Sync()
	}
	if err = cmp.Or(err, f.Close()); err != nil {
		return err
	}
	if err := os.Rename(f.Name(), s.file(version)); err != nil {
		return err
	}
	d, err := os.Open(s.dir)
	if err != nil {
		return err
	}
	defer d.Close()
	return d.Sync()
}

// sweep removes the files that no record names.
func (s *Store) sweep(ctx context.Context) error {
	s.one.Lock()
	defer s.one.Unlock()
	named := map[string]bool{}
	err := s.kv.List(ctx, "", func(_ string, value []byte, _ uint64) error {
		r, err := decode(value)
		for _, v := range r.Versions {
			named[v.ID+".tar"] = true
		}
		return err
	})
	if err != nil {
		return err
	}
	entries, err := os.ReadDir(s.dir)
	if err != nil {
		return errs.Wrap(errs.Unavailable, err, "the directory of the skills cannot be read")
	}
	for _, e := range entries {
		if !named[e.Name()] {
			if err := os.Remove(filepath.Join(s.dir, e.Name())); err != nil {
				return errs.Wrap(errs.Unavailable, err, "the directory of the skills cannot be swept")
			}
		}
	}
	return nil
}
