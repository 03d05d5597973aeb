package skill

import (
	"cmp"
	"context"
	"encoding/json"
	"slices"
	"strings"
	"time"

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

// toolFile is what makes a tool of a skill.
const toolFile = "tool.yaml"

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
	// Content is where the store has its files; "" = they were lost.
	Content string `json:"content,omitempty"`
	// Tool: it holds a tool.yaml, which package tool/declared reads.
	Tool bool `json:"tool,omitempty"`
	// TrustedBy is who has said that what it wants approved beforehand is, and TrustedAt
	// when; "" = it is not trusted. It is said of this content alone: a new version is not.
	TrustedBy string    `json:"trusted_by,omitempty"`
	TrustedAt time.Time `json:"trusted_at,omitzero"`
}

// Trusted reports whether new runs get a version that is trusted.
func (i Installed) Trusted() bool {
	return slices.ContainsFunc(i.Versions, func(v Version) bool { return v.ID == i.Current && v.TrustedBy != "" })
}

// HasTool reports whether the version that new runs get may be a tool as well.
func (i Installed) HasTool() bool {
	return slices.ContainsFunc(i.Versions, func(v Version) bool { return v.ID == i.Current && v.Tool })
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
	// TrustedBy is who trusts this content; "" = as before, which is no one at first.
	TrustedBy string
}

// Change is what is to be said of a skill from now on.
type Change struct {
	Version string   // or the beginning of one, of at least 8 characters; "" = stays
	Agents  []string // nil = stays; none = all
	// Trust is a version that By trusts from now on, Distrust one that is trusted no longer;
	// "" = stays. Both are whole: half of a hash is no promise about a content.
	Trust    string
	Distrust string
	By       string
}

// Store has the skills of all tenants. Safe for concurrent use, also by several servers.
type Store struct {
	kv    kv.Store
	files contents
	now   func() time.Time
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

// Open opens a store with its records and the files of its versions, and removes the files
// that a crash has left over.
func Open(ctx context.Context, records, files kv.Store) (*Store, error) {
	s := &Store{kv: records, files: contents{files, time.Now}, now: time.Now}
	return s, s.Sweep(ctx)
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
	v := Version{
		ID: in.Tree.Version(), Description: parsed.Description, Bytes: in.Tree.Bytes(), Files: len(in.Tree.Files),
		From: clip.Text(in.From, 200), InstalledAt: s.now().UTC(),
	}
	_, v.Tool = in.Tree.File(toolFile)
	if v.Content, err = s.put(ctx, tenant, parsed.Name, in.Tree); err != nil {
		return Installed{}, err
	}
	i, err := s.change(ctx, tenant, parsed.Name, true, func(r *record) error {
		if in.New && r.Current != "" {
			return errs.New(errs.Exists, "there is a skill %s", parsed.Name).WithHint("upgrade it: skete skill upgrade %s", parsed.Name)
		}
		if in.Agents != nil {
			r.Agents = in.Agents
		}
		if err := r.add(v); err != nil || in.TrustedBy == "" {
			return err
		}
		return r.trust(parsed.Name, v.ID, in.TrustedBy, s.now())
	})
	if err != nil && v.Content != "" && !errs.Temporary(err) { // else it may have happened
		s.files.drop(ctx, []string{v.Content})
	}
	return i, err
}

// put keeps the files of a version; "" = those that the tenant has are whole.
func (s *Store) put(ctx context.Context, tenant, name string, t Tree) (content string, err error) {
	r, _, err := s.read(ctx, tenant, name)
	if err != nil && !errs.Is(err, errs.NotFound) {
		return "", err
	}
	for _, v := range r.Versions {
		if v.ID != t.Version() {
			continue
		}
		if _, err := s.load(ctx, name, v); err == nil {
			return "", nil
		}
	}
	data, err := t.Tar()
	if err != nil {
		return "", err
	}
	return s.files.put(ctx, data)
}

// add makes a version the current one. Without a content it has that of the one that is there.
func (r *record) add(v Version) error {
	r.Current = v.ID
	i := slices.IndexFunc(r.Versions, func(w Version) bool { return w.ID == v.ID })
	switch {
	case i >= 0 && v.Content == "":
		r.Versions[i].Tool = v.Tool // of an earlier release it is not known
		return nil
	case i >= 0:
		r.Versions[i].Content = v.Content
		return nil
	case v.Content == "":
		return errs.New(errs.Conflict, "the skill is being removed by others").WithHint("try again")
	}
	r.Versions = append(r.Versions, v)
	if over := len(r.Versions) - VersionsMax; over > 0 {
		r.Versions = slices.Delete(r.Versions, 0, over)
	}
	return nil
}

// contents are the names of the files of all versions.
func (r record) contents() (ids []string) {
	for _, v := range r.Versions {
		if v.Content != "" {
			ids = append(ids, v.Content)
		}
	}
	return ids
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
		if err := r.trusts(name, c, s.now()); err != nil {
			return err
		}
		if c.Version == "" {
			return nil
		}
		v, err := r.find(name, c.Version)
		r.Current = v
		return err
	})
}

// trusts takes in what a change says of trust.
func (r *record) trusts(name string, c Change, now time.Time) error {
	if c.Trust != "" {
		if err := r.trust(name, c.Trust, cmp.Or(c.By, "unknown"), now); err != nil {
			return err
		}
	}
	if c.Distrust == "" {
		return nil
	}
	return r.trust(name, c.Distrust, "", time.Time{})
}

// trust says of one content who trusts it, "" = it is trusted no longer.
func (r *record) trust(name, version, by string, now time.Time) error {
	for i := range r.Versions {
		if v := &r.Versions[i]; v.ID == version {
			v.TrustedBy, v.TrustedAt = clip.Text(by, 200), now.UTC()
			if by == "" {
				v.TrustedAt = time.Time{}
			}
			return nil
		}
	}
	return errs.New(errs.NotFound, "the skill %s has no version %.80q", name, version).WithHint("name all of it: skete skill show %s --json lists them", name)
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
		r, revision, err := s.readOwn(ctx, tenant, name)
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
		s.files.drop(ctx, r.contents())
		return nil
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
	v, err := s.kept(ctx, tenant, name, version)
	if err != nil {
		return Tree{}, err
	}
	t, err := s.load(ctx, name, v)
	if errs.Is(err, errs.Corrupt) { // or it was replaced, or removed, meanwhile
		if v, err = s.kept(ctx, tenant, name, version); err == nil {
			t, err = s.load(ctx, name, v)
		}
	}
	return t, err
}

// Trusted reports whether a version of a tenant's skill is trusted now. One that is not kept
// any more is not.
func (s *Store) Trusted(ctx context.Context, tenant, name, version string) (bool, error) {
	v, err := s.kept(ctx, tenant, name, version)
	if errs.Is(err, errs.NotFound) {
		return false, nil
	}
	return v.TrustedBy != "", err
}

// load reads the files of a version. Corrupt: they are not what they were.
func (s *Store) load(ctx context.Context, name string, v Version) (Tree, error) {
	data, err := s.files.get(ctx, v.Content)
	if err != nil && !errs.Is(err, errs.NotFound) {
		return Tree{}, err
	}
	var t Tree
	if err == nil {
		t, err = Archive(data, "")
	}
	if err != nil || t.Version() != v.ID {
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
		had := r.contents()
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
		if err == nil {
			s.files.drop(ctx, slices.DeleteFunc(had, func(id string) bool { return slices.Contains(r.contents(), id) }))
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

// kept is a version that the tenant has or had: a run that began with the server's goes on
// with it when the tenant installs one of that name. NotFound: it is not kept.
func (s *Store) kept(ctx context.Context, tenant, name, version string) (Version, error) {
	for _, owner := range []string{tenant, serverTenant} {
		r, _, err := s.read(ctx, owner, name)
		if err != nil && !errs.Is(err, errs.NotFound) {
			return Version{}, err
		}
		for _, v := range r.Versions {
			if v.ID == version {
				return v, nil
			}
		}
	}
	return Version{}, errs.New(errs.NotFound, "the skill %s has no version %.12s any more", name, version)
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

// Sweep removes the files that no record names, and that none will.
func (s *Store) Sweep(ctx context.Context) error {
	old, err := s.files.old(ctx)
	if err != nil || len(old) == 0 {
		return err
	}
	named := map[string]bool{}
	err = s.kv.List(ctx, "", func(_ string, value []byte, _ uint64) error {
		r, err := decode(value)
		for _, id := range r.contents() {
			named[id] = true
		}
		return err
	})
	for _, id := range old {
		if err == nil && !named[id] {
			err = s.files.remove(ctx, id)
		}
	}
	return err
}
