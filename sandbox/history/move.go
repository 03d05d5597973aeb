package history

import (
	"cmp"
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/sandbox"
	"github.com/skete-dev/skete/workspace"
)

// ownerFile says whose a history is, for when its sandbox is gone.
const ownerFile = "tenant"

// own makes the directory of a history and notes whose it is.
func (s *Service) own(tenant string, id sandbox.ID) error {
	if s.owner(id) != "" {
		return nil
	}
	if err := os.MkdirAll(s.dir(id), 0o700); err != nil {
		return err
	}
	name := filepath.Join(s.dir(id), ownerFile)
	if err := os.WriteFile(name+".new", []byte(tenant), 0o600); err != nil {
		return err
	}
	return os.Rename(name+".new", name)
}

// owner is the tenant of a history, "" = there is none.
func (s *Service) owner(id sandbox.ID) string {
	data, err := os.ReadFile(filepath.Join(s.dir(id), ownerFile))
	if err != nil {
		return ""
	}
	return string(data)
}

// Move gives a sandbox without a history what is kept of another one, which
// may be gone or of another provider, and makes its files what they were at
// revision n (0 = the last). The first one's history stays.
//
// Exists: it has a history. NotFound: nothing is kept of the other one.
func (s *Service) Move(ctx context.Context, tenant string, from, to sandbox.ID, n uint64, l workspace.Label) (workspace.Revision, error) {
	if s.c.Copy == nil {
		return workspace.Revision{}, errs.New(errs.Unsupported, "histories cannot be moved here")
	}
	if s.owner(from) != tenant {
		return workspace.Revision{}, errs.New(errs.NotFound, "nothing is kept of sandbox %s", from)
	}
	if _, err := s.c.Sandboxes.Get(ctx, tenant, to); err != nil {
		return workspace.Revision{}, err
	}
	if err := s.room(tenant, to); err != nil {
		return workspace.Revision{}, err
	}
	if err := s.copy(ctx, tenant, from, to); err != nil {
		return workspace.Revision{}, err
	}
	h := &history{s: s, tenant: tenant, id: to}
	if n == 0 {
		// Not the last one of the copy: that may be of what is in the new sandbox.
		last, err := s.lastOf(ctx, tenant, from)
		if err != nil {
			return workspace.Revision{}, err
		}
		if last == 0 {
			return workspace.Revision{}, errs.New(errs.NotFound, "the history of sandbox %s is empty", from)
		}
		n = last
	}
	plan, err := h.PlanRestore(ctx, n, "")
	if err != nil {
		return workspace.Revision{}, err
	}
	rev, _, err := h.Apply(ctx, plan.ID, l)
	return rev, err
}

func (s *Service) lastOf(ctx context.Context, tenant string, id sandbox.ID) (uint64, error) {
	all, err := (&history{s: s, tenant: tenant, id: id}).Revisions(ctx)
	if err != nil || len(all) == 0 {
		return 0, err
	}
	return all[len(all)-1].N, nil
}

func (s *Service) used(d *handle) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return d.uses > 0
}

// copy copies a store while neither history is open.
func (s *Service) copy(ctx context.Context, tenant string, from, to sandbox.ID) error {
	if from == to {
		return errs.New(errs.Invalid, "a sandbox has its own history already")
	}
	for _, id := range []sandbox.ID{min(from, to), max(from, to)} { // one order for all
		d, err := s.sit(id)
		if err != nil {
			return err
		}
		defer s.leave(d)
		if err := take(ctx, d.turn); err != nil {
			return err
		}
		defer func() { <-d.turn }()
		if s.used(d) {
			return errs.New(errs.Conflict, "one of the histories is in use").WithHint("try again in a moment")
		}
		s.shut(d)
	}
	if err := s.own(tenant, to); err != nil {
		return err
	}
	err := s.c.Copy(s.store(from), s.store(to))
	s.measure(to)
	if errs.Is(err, errs.Exists) {
		return errs.Wrap(errs.Exists, err, "sandbox %s has a history of its own", to).WithHint("make a new sandbox, and give it the history before anything else")
	}
	return err
}

// goneSuffix marks what is being removed: its owner's name may be the first
// to go, and without that the rest would not be found.
const goneSuffix = ".gone"

// Sweep removes the histories of sandboxes that are gone for longer than
// Config.Keep, and returns how many.
func (s *Service) Sweep(ctx context.Context) (int, error) {
	return s.remove(func(id sandbox.ID, tenant string) bool {
		_, err := s.c.Sandboxes.Get(ctx, tenant, id)
		return errs.Is(err, errs.NotFound) && s.old(id)
	})
}

// Erase removes all histories of a tenant whose sandboxes are destroyed, and
// returns how many. It may die and be called again.
func (s *Service) Erase(tenant string) (int, error) {
	return s.remove(func(_ sandbox.ID, t string) bool { return t == tenant })
}

// Kept lists what is kept of a tenant's sandboxes that are gone, the largest first.
func (s *Service) Kept(ctx context.Context, tenant string) ([]sandbox.KeptHistory, error) {
	entries, err := s.entries()
	if err != nil {
		return nil, err
	}
	var all []sandbox.KeptHistory
	for _, e := range entries {
		id := sandbox.ID(e.Name())
		if s.owner(id) != tenant || strings.HasSuffix(e.Name(), goneSuffix) {
			continue
		}
		gone, err := s.gone(ctx, tenant, id)
		if err != nil {
			return nil, err
		}
		if gone {
			all = append(all, sandbox.KeptHistory{ID: id, Bytes: bytesBelow(s.store(id)), Written: s.written(id)})
		}
	}
	slices.SortFunc(all, func(a, b sandbox.KeptHistory) int {
		return cmp.Or(cmp.Compare(b.Bytes, a.Bytes), cmp.Compare(a.ID, b.ID))
	})
	return all, nil
}

// Delete removes what is kept of a tenant's sandbox that is gone, for ever. It may
// die and be called again. Conflict: the sandbox is there. NotFound: nothing is
// kept of it.
func (s *Service) Delete(ctx context.Context, tenant string, id sandbox.ID) error {
	switch gone, err := s.gone(ctx, tenant, id); {
	case err != nil:
		return err
	case !gone:
		return errs.New(errs.Conflict, "sandbox %s is not destroyed, and its history is how its files can be taken back", id).WithHint("destroy it first: `skete vm clean %s`", id)
	}
	done, err := s.removeOne(id, func(_ sandbox.ID, t string) bool { return t == tenant })
	if err == nil && !done {
		err = errs.New(errs.NotFound, "nothing is kept of sandbox %s", id).WithHint("`skete history kept` lists what is")
	}
	return err
}

// gone reports whether a sandbox is destroyed. Its record stays for a while.
func (s *Service) gone(ctx context.Context, tenant string, id sandbox.ID) (bool, error) {
	info, err := s.c.Sandboxes.Get(ctx, tenant, id)
	if errs.Is(err, errs.NotFound) {
		return true, nil
	}
	return info.State == sandbox.Destroyed, err
}

// Any reports whether a tenant has histories.
func (s *Service) Any(tenant string) (bool, error) {
	entries, err := s.entries()
	return slices.ContainsFunc(entries, func(e os.DirEntry) bool { return s.owner(sandbox.ID(e.Name())) == tenant }), err
}

func (s *Service) entries() ([]os.DirEntry, error) {
	entries, err := os.ReadDir(s.c.Dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	return entries, err
}

// remove removes the histories that are chosen, and what died on its way out.
func (s *Service) remove(choose func(id sandbox.ID, tenant string) bool) (removed int, err error) {
	entries, err := s.entries()
	if err != nil {
		return 0, err
	}
	for _, e := range entries {
		if strings.HasSuffix(e.Name(), goneSuffix) {
			err = errors.Join(err, os.RemoveAll(filepath.Join(s.c.Dir, e.Name())))
			continue
		}
		done, rerr := s.removeOne(sandbox.ID(e.Name()), choose)
		if rerr != nil {
			err = errors.Join(err, rerr)
		} else if done {
			removed++
		}
	}
	return removed, err
}

func (s *Service) removeOne(id sandbox.ID, choose func(id sandbox.ID, tenant string) bool) (done bool, err error) {
	if tenant := s.owner(id); tenant == "" || !choose(id, tenant) {
		return false, nil
	}
	defer s.checking.Lock(id)() // a check has links to what goes
	if s.owner(id) == "" {
		return false, nil // another call has removed it
	}
	return true, s.drop(id)
}

// drop removes a history that no call can open any more.
func (s *Service) drop(id sandbox.ID) error {
	d, err := s.sit(id)
	if err != nil {
		return err
	}
	defer s.leave(d)
	d.turn <- struct{}{}
	defer func() { <-d.turn }()
	s.shut(d)
	if err := s.forget(s.owner(id), id); err != nil {
		return err
	}
	gone := s.dir(id) + goneSuffix
	if err := os.RemoveAll(gone); err != nil {
		return err
	}
	if err := os.Rename(s.dir(id), gone); err != nil {
		return err
	}
	defer s.measure(id) // it takes nothing now
	return os.RemoveAll(gone)
}

// old: nothing was written for longer than a history outlives its sandbox.
func (s *Service) old(id sandbox.ID) bool { return s.c.Now().Sub(s.written(id)) > s.c.Keep }

// written is when something was written to a history last.
func (s *Service) written(id sandbox.ID) (at time.Time) {
	at = time.Unix(0, 0)
	_ = filepath.WalkDir(s.dir(id), func(_ string, d fs.DirEntry, err error) error {
		if err != nil {
			return nil //nolint:nilerr // what cannot be looked at is not younger
		}
		if info, err := d.Info(); err == nil && info.ModTime().After(at) {
			at = info.ModTime()
		}
		return nil
	})
	return at
}
