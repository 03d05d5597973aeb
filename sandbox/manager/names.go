package manager

import (
	"context"
	"encoding/json"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/sandbox"
	"github.com/skete-dev/skete/sandbox/life"
)

// A name belongs to one sandbox of a tenant. It is claimed in the registry
// before the sandbox has it, so that no two servers give it away, and freed when
// the sandbox is destroyed. A claim without its sandbox, which a crash may leave,
// is worth nothing. Sandboxes of a time when names were not unique keep theirs:
// those that have one together are found by their IDs only.

const (
	namePrefix = "name/" // of claims in the registry
	nameTries  = 3
	nameWait   = 10 * time.Second // for a claim to be freed
)

// nameClaim is what the registry keeps of a name.
type nameClaim struct {
	V    int        `json:"v"`
	ID   sandbox.ID `json:"id"`
	Node string     `json:"node"`
}

func nameKey(tenant, name string) string { return namePrefix + tenant + "/" + name }

// claimName takes a name for a sandbox that is to have it. done ends the time in
// which the sandbox itself does not show it yet. Exists: another one has it.
func (m *Manager) claimName(ctx context.Context, tenant, name string, id sandbox.ID) (done func(), err error) {
	if name == "" {
		return func() {}, nil
	}
	key := nameKey(tenant, name)
	if err := m.reserve(key, tenant, name, id); err != nil {
		return nil, err
	}
	if err := m.storeClaim(ctx, key, name, id); err != nil {
		m.unreserve(key, id)
		return nil, err
	}
	return func() { m.unreserve(key, id) }, nil
}

func (m *Manager) reserve(key, tenant, name string, id sandbox.ID) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if other, ok := m.naming[key]; ok && other != id {
		return errNameTaken(name, other)
	}
	for _, k := range m.lives {
		if k.ID() != id && k.Tenant() == tenant && k.Name() == name {
			return errNameTaken(name, k.ID())
		}
	}
	m.naming[key] = id
	return nil
}

func (m *Manager) unreserve(key string, id sandbox.ID) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.naming[key] == id {
		delete(m.naming, key)
	}
}

func errNameTaken(name string, id sandbox.ID) error {
	return errs.New(errs.Exists, "sandbox %s has the name %.64q", id, name).
		WithHint("choose another one; `skete vm rename` and `skete vm clean` free a name")
}

// storeClaim writes a claim. One of our own node that is there already is of a
// sandbox that is gone: those that live were asked by reserve.
func (m *Manager) storeClaim(ctx context.Context, key, name string, id sandbox.ID) error {
	value, err := json.Marshal(nameClaim{V: 1, ID: id, Node: m.c.Node})
	if err != nil {
		return err
	}
	for range nameTries {
		_, err = m.c.Registry.Create(ctx, key, value)
		if !errs.Is(err, errs.Exists) {
			return err
		}
		old, rev, gerr := m.c.Registry.Get(ctx, key)
		var c nameClaim
		switch {
		case errs.Is(gerr, errs.NotFound):
			continue // freed meanwhile
		case gerr != nil:
			return gerr
		case json.Unmarshal(old, &c) == nil && c.Node != m.c.Node && c.ID != id:
			return errNameTaken(name, c.ID)
		}
		if _, err = m.c.Registry.Update(ctx, key, value, rev); !errs.Is(err, errs.Conflict) {
			return err
		}
	}
	return err
}

// freeName gives a name back, if it is still the sandbox's. What fails is done
// by the next claim, or the next start.
func (m *Manager) freeName(tenant, name string, id sandbox.ID) {
	if name == "" {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), nameWait)
	defer cancel()
	value, rev, err := m.c.Registry.Get(ctx, nameKey(tenant, name))
	if err == nil {
		var c nameClaim
		if json.Unmarshal(value, &c) != nil || c.ID != id {
			return
		}
		err = m.c.Registry.Delete(ctx, nameKey(tenant, name), rev)
	}
	if err != nil && !errs.Is(err, errs.NotFound) && !errs.Is(err, errs.Conflict) {
		m.c.Log.Warn("the name of a sandbox that is gone is freed later", "id", id, "error", err)
	}
}

// loadNames makes the claims agree with the sandboxes: those of sandboxes that
// are gone are freed, and sandboxes of an earlier version get theirs, the oldest
// first.
func (m *Manager) loadNames(ctx context.Context) error {
	claimed := map[string]sandbox.ID{}
	err := m.c.Registry.List(ctx, namePrefix, func(key string, value []byte, _ uint64) error {
		var c nameClaim
		if json.Unmarshal(value, &c) == nil && c.Node == m.c.Node {
			claimed[key] = c.ID
		}
		return nil
	})
	if err != nil {
		return err
	}
	named := m.everyone()
	named = slices.DeleteFunc(named, func(k *life.Sandbox) bool { return k.Name() == "" })
	slices.SortFunc(named, func(a, b *life.Sandbox) int { return a.Info().CreatedAt.Compare(b.Info().CreatedAt) })
	owner := map[string]sandbox.ID{}
	for _, k := range named {
		key := nameKey(k.Tenant(), k.Name())
		if first, ok := owner[key]; ok {
			m.c.Log.Warn("two sandboxes have one name, from before names were unique; use their ids, or rename one",
				"tenant", k.Tenant(), "name", k.Name(), "id", first, "other", k.ID())
			continue
		}
		owner[key] = k.ID()
		if claimed[key] == k.ID() {
			continue
		}
		if err := m.storeClaim(ctx, key, k.Name(), k.ID()); err != nil {
			m.c.Log.Warn("a sandbox's name cannot be claimed", "id", k.ID(), "name", k.Name(), "error", err)
		}
	}
	for key, id := range claimed {
		if _, ok := owner[key]; !ok {
			tenant, name, _ := strings.Cut(strings.TrimPrefix(key, namePrefix), "/")
			m.freeName(tenant, name, id)
		}
	}
	return nil
}

// Find returns the ID of a tenant's sandbox by its ID, which need not exist, by
// the beginning of it, or by its name. NotFound: there is none. Invalid: several
// begin like that. Conflict: several have the name, from before names were unique.
func (m *Manager) Find(_ context.Context, tenant, name string) (sandbox.ID, error) {
	if id, err := sandbox.ParseID(name); err == nil || strings.HasPrefix(name, sandbox.IDPrefix) && !sandbox.IsIDBeginning(name) {
		return id, err
	}
	if sandbox.IsIDBeginning(name) {
		return m.findBeginning(tenant, name)
	}
	m.mu.Lock()
	var found []string
	for _, k := range m.lives {
		if name != "" && k.Tenant() == tenant && k.Name() == name {
			found = append(found, string(k.ID()))
		}
	}
	m.mu.Unlock()
	for id, far := range m.elsewhere.of(tenant) { // where it is, every call says
		if name != "" && far == name {
			found = append(found, string(id))
		}
	}
	slices.Sort(found)
	switch len(found) {
	case 0:
		return "", errs.New(errs.NotFound, "no sandbox %.80s", strconv.Quote(name)).WithHint("`skete vm list` shows their names and ids")
	case 1:
		return sandbox.ID(found[0]), nil
	}
	return "", errs.New(errs.Conflict, "%d sandboxes have the name %.64q, from before names were unique: %s", len(found), name, strings.Join(found, " ")).
		WithHint("use the id; `skete vm rename ID NAME` gives one of them another name")
}

// choicesMax is how many sandboxes are named to choose from.
const choicesMax = 10

// findBeginning finds a tenant's sandbox by the beginning of its ID.
func (m *Manager) findBeginning(tenant, beginning string) (sandbox.ID, error) {
	fits := map[sandbox.ID]string{}
	m.mu.Lock()
	for id, k := range m.lives {
		if k.Tenant() == tenant && strings.HasPrefix(string(id), beginning) {
			fits[id] = k.Name()
		}
	}
	m.mu.Unlock()
	for id, name := range m.elsewhere.of(tenant) {
		if strings.HasPrefix(string(id), beginning) {
			fits[id] = name
		}
	}
	ids := slices.Sorted(maps.Keys(fits))
	switch len(ids) {
	case 0:
		return "", errs.New(errs.NotFound, "no sandbox %s", strconv.Quote(beginning)).WithHint("`skete vm list` shows their names and ids")
	case 1:
		return ids[0], nil
	}
	var choices []string
	for _, id := range ids {
		if len(choices) == choicesMax {
			choices = append(choices, "…")
			break
		}
		choice := string(id)
		if fits[id] != "" {
			choice += " (" + fits[id] + ")"
		}
		choices = append(choices, choice)
	}
	return "", errs.New(errs.Invalid, "%q fits %d sandboxes", beginning, len(ids)).WithHint("use more of the id: %s", strings.Join(choices, ", "))
}

// rename gives a sandbox another name, with all else that u changes.
func (m *Manager) rename(ctx context.Context, k *life.Sandbox, u sandbox.UpdateRequest) (sandbox.Info, error) {
	old := k.Name()
	if *u.Name == old {
		return k.Update(u)
	}
	done, err := m.claimName(ctx, k.Tenant(), *u.Name, k.ID())
	if err != nil {
		return sandbox.Info{}, err
	}
	defer done()
	info, err := k.Update(u)
	if err != nil {
		m.freeName(k.Tenant(), *u.Name, k.ID())
		return info, err
	}
	m.freeName(k.Tenant(), old, k.ID())
	return info, nil
}
