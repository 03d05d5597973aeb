package secret

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/skete-dev/skete/egress"
	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/internal/sleep"
	"github.com/skete-dev/skete/kv"
)

const (
	// TTLDefault is how long a secret lives of which nothing else was said.
	TTLDefault = 7 * 24 * time.Hour
	// SecretsMax is how many a tenant may have.
	SecretsMax = 200

	versionsMax = 5 // that are kept of a secret
	recordForm  = 1
	writeTries  = 20
	watchAgain  = time.Second
)

// Secret is what can be known of one.
type Secret struct {
	Name      string
	Version   int   // the one that is sent
	Versions  []int // those that are kept, the oldest first
	Grants    []Grant
	CreatedAt time.Time
	UpdatedAt time.Time
	ExpiresAt time.Time // zero = it does not
	Problem   string    // it cannot be sent
}

// Put is a secret that is set.
type Put struct {
	Name  string
	Value Value
	// Grants take the place of those that it has; nil = they stay.
	Grants []Grant
	// TTL is how long it lives from now on; 0 = TTLDefault, negative = for ever.
	TTL time.Duration
}

// Change is what is to be said of a secret from now on.
type Change struct {
	Grants  []Grant // in place of those that it has; nil = they stay
	Version int     // is sent, and is kept; 0 = the one that is
}

// record is a secret in the store.
type record struct {
	V         int       `json:"v"`
	Current   int       `json:"current"`
	Versions  []version `json:"versions"` // the oldest first
	Grants    []Grant   `json:"grants"`
	CreatedAt time.Time `json:"created_at"`
	UpdatedAt time.Time `json:"updated_at"`
	ExpiresAt time.Time `json:"expires_at,omitzero"`
}

type version struct {
	N      int    `json:"n"`
	Sealed []byte `json:"sealed"`
}

// Config of a Store.
type Config struct {
	KV     kv.Store
	Sealer Sealer
	Tokens *Tokens          // end with the secrets by which they were got; nil = there are none
	Now    func() time.Time // nil = time.Now
	Log    *slog.Logger
}

// Store has the secrets of all tenants. Other servers on the same store are seen in a
// moment. Safe for concurrent use.
type Store struct {
	c    Config
	stop context.CancelFunc
	done chan struct{}

	mu  sync.Mutex
	all map[string]*entry // by key
	// gone are keys that were deleted here, with their last revisions: what the watch
	// tells of them late is not learned again. One stays until the watch tells its end.
	gone map[string]uint64
}

// entry is a secret as it was last told.
type entry struct {
	revision uint64
	rec      record
	problem  string
	value    Value // of the current version; empty with a problem
}

// Open reads the secrets and goes on to see changes, until Close.
func Open(ctx context.Context, c Config) (*Store, error) {
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	s := &Store{c: c, done: make(chan struct{}), all: map[string]*entry{}, gone: map[string]uint64{}}
	watching, stop := context.WithCancel(context.WithoutCancel(ctx))
	s.stop = stop
	synced := make(chan struct{})
	go s.watch(watching, sync.OnceFunc(func() { close(synced) }))
	select {
	case <-synced:
		return s, nil
	case <-ctx.Done():
		_ = s.Close()
		return nil, ctx.Err()
	}
}

// Close ends what Open began.
func (s *Store) Close() error {
	s.stop()
	<-s.done
	return nil
}

func (s *Store) watch(ctx context.Context, synced func()) {
	defer close(s.done)
	for ctx.Err() == nil {
		seen := map[string]bool{}
		first := true
		known, gone := s.before()
		err := s.c.KV.Watch(ctx, "", func(c kv.Change) error {
			switch {
			case c.Synced:
				s.settle(known, gone, seen)
				first = false
				synced()
			case c.Deleted:
				s.forgetTold(c.Key, c.Revision)
			default:
				if first {
					seen[c.Key] = true
				}
				s.learn(ctx, c.Key, c.Value, c.Revision)
			}
			return nil
		})
		if ctx.Err() == nil {
			s.c.Log.Warn("secrets of other servers are not seen for a moment", "error", err)
			_ = sleep.For(ctx, watchAgain)
		}
	}
}

// before is what is known, and known to be gone, when a watch begins.
func (s *Store) before() (known, gone map[string]uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	known = map[string]uint64{}
	for key, e := range s.all {
		known[key] = e.revision
	}
	return known, maps.Clone(s.gone)
}

// settle forgets what was known before a watch began and was not there then. What has
// changed since, the watch is yet to tell.
func (s *Store) settle(known, gone map[string]uint64, seen map[string]bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for key, revision := range known {
		if e := s.all[key]; e != nil && e.revision == revision && !seen[key] {
			delete(s.all, key)
		}
	}
	for key, revision := range gone {
		if s.gone[key] == revision {
			delete(s.gone, key)
		}
	}
}

// forgetTold forgets a key of whose end the watch tells.
func (s *Store) forgetTold(key string, revision uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.gone[key] < revision {
		delete(s.gone, key)
	}
	if e := s.all[key]; e != nil && e.revision < revision {
		delete(s.all, key)
	}
}

// forget forgets a key that was deleted here at a revision.
func (s *Store) forget(key string, revision uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if e := s.all[key]; e == nil || e.revision <= revision {
		delete(s.all, key)
		s.gone[key] = revision
	}
}

// learn takes over a record, unless a newer one is known.
func (s *Store) learn(ctx context.Context, key string, data []byte, revision uint64) {
	e := &entry{revision: revision}
	var err error
	if err = json.Unmarshal(data, &e.rec); err == nil && e.rec.V != recordForm {
		err = errs.New(errs.Unsupported, "it is of a later version of skete")
	}
	if err == nil {
		e.value, err = s.open(ctx, key, e.rec)
	}
	if err != nil {
		e.problem = errs.Public(err)
		s.c.Log.Error("a secret cannot be used", "secret", key, "error", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if old := s.all[key]; (old == nil || old.revision < revision) && s.gone[key] < revision {
		s.all[key] = e
		delete(s.gone, key)
	}
}

func (s *Store) open(ctx context.Context, key string, r record) (Value, error) {
	i := slices.IndexFunc(r.Versions, func(v version) bool { return v.N == r.Current })
	if i < 0 {
		return Value{}, errs.New(errs.Corrupt, "its version %d is not there", r.Current)
	}
	plain, err := s.c.Sealer.Open(ctx, r.Versions[i].Sealed, about(key, r.Current))
	return Value{string(plain)}, err
}

// about is what a version is sealed to.
func about(key string, n int) []byte { return fmt.Appendf(nil, "skete secret %s %d", key, n) }

func keyOf(tenant, name string) string { return tenant + "/" + name }

// Put sets a secret: a new one, or a new version. Invalid names all that is wrong.
// Limit: the tenant has too many.
func (s *Store) Put(ctx context.Context, tenant string, p Put) (Secret, error) {
	if err := check(p.Name, p.Value, p.Grants); err != nil {
		return Secret{}, err
	}
	return s.change(ctx, tenant, p.Name, true, func(r *record) error {
		n := 1
		for _, v := range r.Versions {
			n = max(n, v.N+1)
		}
		sealed, err := s.c.Sealer.Seal(ctx, []byte(p.Value.text), about(keyOf(tenant, p.Name), n))
		if err != nil {
			return err
		}
		r.Versions = append(r.Versions, version{n, sealed})
		if over := len(r.Versions) - versionsMax; over > 0 {
			r.Versions = r.Versions[over:]
		}
		r.Current = n
		if p.Grants != nil {
			r.Grants = p.Grants
		}
		r.ExpiresAt = time.Time{}
		if p.TTL >= 0 {
			r.ExpiresAt = s.c.Now().Add(cmp.Or(p.TTL, TTLDefault)).UTC()
		}
		return check(p.Name, p.Value, r.Grants) // the value has to suit those that stay
	})
}

// Change changes what is said of a secret, all of it or nothing. NotFound: there is no
// such secret, or the version is not kept. Invalid: the value that would be sent does not
// suit the grants.
func (s *Store) Change(ctx context.Context, tenant, name string, c Change) (Secret, error) {
	if list := checkGrants(c.Grants); len(list) > 0 {
		return Secret{}, errs.New(errs.Invalid, "the secret: %s", strings.Join(list, "; "))
	}
	return s.change(ctx, tenant, name, false, func(r *record) error {
		if c.Version != 0 {
			if !slices.ContainsFunc(r.Versions, func(v version) bool { return v.N == c.Version }) {
				return errs.New(errs.NotFound, "version %d of the secret %s is not kept", c.Version, name)
			}
			r.Current = c.Version
		}
		if c.Grants != nil {
			r.Grants = c.Grants
		}
		value, err := s.open(ctx, keyOf(tenant, name), *r)
		if err != nil {
			return err
		}
		return check(name, value, r.Grants)
	})
}

// Regrant changes the grants of a secret to what f makes of them. Others who change them
// meanwhile lose nothing: f is called again with theirs. Errors are those of Change.
func (s *Store) Regrant(ctx context.Context, tenant, name string, f func([]Grant) []Grant) (Secret, error) {
	return s.change(ctx, tenant, name, false, func(r *record) error {
		r.Grants = f(slices.Clone(r.Grants))
		value, err := s.open(ctx, keyOf(tenant, name), *r)
		if err != nil {
			return err
		}
		return check(name, value, r.Grants)
	})
}

// Delete deletes a secret with all its versions. NotFound: there is none.
func (s *Store) Delete(ctx context.Context, tenant, name string) error {
	key := keyOf(tenant, name)
	for range writeTries {
		_, revision, err := s.c.KV.Get(ctx, key)
		if errs.Is(err, errs.NotFound) {
			return errNone(name)
		}
		if err == nil {
			err = s.c.KV.Delete(ctx, key, revision)
		}
		if errs.Is(err, errs.Conflict) {
			continue
		}
		if err == nil {
			s.forget(key, revision)
		}
		if err == nil && s.c.Tokens != nil {
			err = s.c.Tokens.EraseSecret(ctx, tenant, name)
		}
		return err
	}
	return errBusy(name)
}

// Erase deletes all secrets of a tenant, also those that cannot be read. It may be
// repeated.
func (s *Store) Erase(ctx context.Context, tenant string) error {
	var names []string
	err := s.c.KV.List(ctx, keyOf(tenant, ""), func(key string, _ []byte, _ uint64) error {
		names = append(names, strings.TrimPrefix(key, keyOf(tenant, "")))
		return nil
	})
	for _, name := range names {
		if err == nil {
			err = s.Delete(ctx, tenant, name)
		}
		if errs.Is(err, errs.NotFound) { // it was deleted meanwhile
			err = nil
		}
	}
	if err == nil && s.c.Tokens != nil { // also of secrets that were gone before
		err = s.c.Tokens.EraseTenant(ctx, tenant)
	}
	return err
}

func errNone(name string) error { return errs.New(errs.NotFound, "there is no secret %.80q", name) }

func errBusy(name string) error {
	return errs.New(errs.Conflict, "the secret %.80q is being changed by others", name).WithHint("try again")
}

// change reads, changes and writes a record.
func (s *Store) change(ctx context.Context, tenant, name string, create bool, f func(*record) error) (Secret, error) {
	key := keyOf(tenant, name)
	for range writeTries {
		var r record
		now := s.c.Now().UTC()
		data, revision, err := s.c.KV.Get(ctx, key)
		fresh := errs.Is(err, errs.NotFound)
		switch {
		case fresh && !create:
			return Secret{}, errNone(name)
		case fresh:
			if err := s.room(tenant); err != nil {
				return Secret{}, err
			}
			r = record{V: recordForm, CreatedAt: now}
		case err != nil:
			return Secret{}, err
		default:
			if err := json.Unmarshal(data, &r); err != nil || r.V != recordForm {
				return Secret{}, errs.New(errs.Corrupt, "the secret %s cannot be read", name).WithHint("delete it and set it anew")
			}
		}
		if err := f(&r); err != nil {
			return Secret{}, err
		}
		r.UpdatedAt = now
		if data, err = json.Marshal(r); err != nil {
			return Secret{}, err
		}
		if fresh {
			revision, err = s.c.KV.Create(ctx, key, data)
		} else {
			revision, err = s.c.KV.Update(ctx, key, data, revision)
		}
		switch {
		case errs.Is(err, errs.Exists), errs.Is(err, errs.Conflict):
			continue
		case err != nil:
			return Secret{}, err
		}
		s.learn(ctx, key, data, revision)
		return s.Get(tenant, name)
	}
	return Secret{}, errBusy(name)
}

func (s *Store) room(tenant string) error {
	if len(s.List(tenant)) >= SecretsMax {
		return errs.New(errs.Limit, "the tenant has %d secrets, which is the most", SecretsMax).WithHint("delete some")
	}
	return nil
}

// Get tells of one secret. NotFound: there is none.
func (s *Store) Get(tenant, name string) (Secret, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.all[keyOf(tenant, name)]
	if e == nil {
		return Secret{}, errNone(name)
	}
	return s.view(name, e), nil
}

// List tells of a tenant's secrets, by name.
func (s *Store) List(tenant string) []Secret {
	s.mu.Lock()
	defer s.mu.Unlock()
	var list []Secret
	for key, e := range s.all {
		if name, ok := strings.CutPrefix(key, tenant+"/"); ok {
			list = append(list, s.view(name, e))
		}
	}
	slices.SortFunc(list, func(a, b Secret) int { return cmp.Compare(a.Name, b.Name) })
	return list
}

// view is an entry for people. Precondition: s.mu is held.
func (s *Store) view(name string, e *entry) Secret {
	out := Secret{
		Name: name, Version: e.rec.Current, Grants: slices.Clone(e.rec.Grants),
		CreatedAt: e.rec.CreatedAt, UpdatedAt: e.rec.UpdatedAt, ExpiresAt: e.rec.ExpiresAt, Problem: e.problem,
	}
	for _, v := range e.rec.Versions {
		out.Versions = append(out.Versions, v.N)
	}
	if out.Problem == "" && s.over(e) {
		out.Problem = "it has expired"
	}
	return out
}

func (s *Store) over(e *entry) bool {
	return !e.rec.ExpiresAt.IsZero() && !s.c.Now().Before(e.rec.ExpiresAt)
}

// Held returns what is granted to a user for a request, by the names of the secrets.
func (s *Store) Held(tenant string, u User, q egress.Request) []Held {
	s.mu.Lock()
	defer s.mu.Unlock()
	var list []Held
	s.granted(tenant, u, func(name string, e *entry, g Grant) {
		if g.covers(q) && u.wantsAt(name, q.Host) {
			oauth := slices.ContainsFunc(e.rec.Grants, func(g Grant) bool { return g.OAuth })
			list = append(list, Held{name, e.rec.Current, g, e.value, e.rec.CreatedAt, oauth})
		}
	})
	slices.SortStableFunc(list, func(a, b Held) int { return cmp.Compare(a.Name, b.Name) })
	return list
}

// Env is the variables of a user's commands that stand for secrets.
func (s *Store) Env(tenant string, u User) map[string]string {
	s.mu.Lock()
	defer s.mu.Unlock()
	env := map[string]string{}
	s.granted(tenant, u, func(name string, _ *entry, g Grant) {
		if g.Env != "" {
			env[g.Env] = Placeholder(name)
		}
		if g.As == AWS { // programs sign nothing without
			env["AWS_ACCESS_KEY_ID"], env["AWS_SECRET_ACCESS_KEY"] = Placeholder(name), Placeholder(name)
		}
	})
	return env
}

// Placeholder stands for a secret inside of sandboxes.
func Placeholder(name string) string { return "skete-secret-" + name }

// granted visits the grants of a user. Precondition: s.mu is held.
func (s *Store) granted(tenant string, u User, visit func(name string, e *entry, g Grant)) {
	for key, e := range s.all {
		name, ok := strings.CutPrefix(key, tenant+"/")
		if !ok || e.problem != "" || s.over(e) {
			continue
		}
		for _, g := range e.rec.Grants {
			if g.allows(u) && u.wants(name) {
				visit(name, e, g)
			}
		}
	}
}
