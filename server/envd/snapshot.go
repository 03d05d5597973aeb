package envd

import (
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/sandbox"
	"github.com/skete-dev/skete/server/auth"
	"github.com/skete-dev/skete/server/problem"
)

// Bounds of forks.
const forkTimeout = 15 // seconds, if none is asked for

// snapshotTag stands behind the ids of snapshots as clients know them.
const snapshotTag = ":default"

// snapshotView is a snapshot.
type snapshotView struct {
	SnapshotID string   `json:"snapshotID"`
	Names      []string `json:"names"`
}

func viewOf(s sandbox.Snapshot) snapshotView {
	v := snapshotView{SnapshotID: string(s.ID) + snapshotTag, Names: []string{}}
	if s.Name != "" {
		v.Names = append(v.Names, s.Name)
	}
	return v
}

// parseSnapshot reads the id of a snapshot where a template may stand.
func parseSnapshot(text string) (sandbox.SnapshotID, bool) {
	id, err := sandbox.ParseSnapshotID(strings.TrimSuffix(text, snapshotTag))
	return id, err == nil
}

// snapshot saves a sandbox: with its memory, or where that cannot be its files.
func (b *Bridge) snapshot(w http.ResponseWriter, r *http.Request) error {
	var in struct {
		Name string `json:"name"`
	}
	if err := decode(w, r, &in); err != nil {
		return err
	}
	ctx := r.Context()
	info, err := b.find(ctx, sandboxOf(r))
	if err != nil {
		return err
	}
	s, err := b.Sandboxes.Snapshot(ctx, info.Tenant, info.ID, sandbox.SnapshotRequest{Name: in.Name})
	if errs.Is(err, errs.Unsupported) {
		s, err = b.Sandboxes.Snapshot(ctx, info.Tenant, info.ID, sandbox.SnapshotRequest{Name: in.Name, DiskOnly: true})
	}
	if err != nil {
		return err
	}
	writeJSON(w, http.StatusCreated, viewOf(s))
	return nil
}

// snapshots answers a page of the caller's, newest first.
func (b *Bridge) snapshots(w http.ResponseWriter, r *http.Request) error {
	q := r.URL.Query()
	var of sandbox.ID
	if text := q.Get("sandboxID"); text != "" {
		var err error
		if of, err = parseID(text); err != nil {
			return err
		}
	}
	size, from, err := pageOf(q.Get("limit"), q.Get("nextToken"))
	if err != nil {
		return err
	}
	all := slices.DeleteFunc(b.Sandboxes.ListSnapshots(r.Context(), auth.From(r.Context()).Tenant), func(s sandbox.Snapshot) bool {
		name := strings.TrimSuffix(q.Get("name"), snapshotTag)
		return of != "" && s.Sandbox != of || name != "" && name != s.Name && name != string(s.ID)
	})
	slices.SortFunc(all, func(a, b sandbox.Snapshot) int {
		if c := b.CreatedAt.Compare(a.CreatedAt); c != 0 {
			return c
		}
		return strings.Compare(string(a.ID), string(b.ID))
	})
	all = all[min(from, len(all)):]
	if len(all) > size {
		all = all[:size]
		w.Header().Set("X-Next-Token", strconv.Itoa(from+size))
	}
	views := []snapshotView{}
	for _, s := range all {
		views = append(views, viewOf(s))
	}
	writeJSON(w, http.StatusOK, views)
	return nil
}

// pageOf reads the size and the beginning of a page.
func pageOf(limit, token string) (size, from int, err error) {
	size = pageDefault
	if limit != "" {
		if size, err = strconv.Atoi(limit); err != nil || size < 1 || size > pageDefault {
			return 0, 0, errs.New(errs.Invalid, "limit is 1 to %d", pageDefault)
		}
	}
	if token != "" {
		if from, err = strconv.Atoi(token); err != nil || from < 0 {
			return 0, 0, errs.New(errs.Invalid, "nextToken is not one of a list")
		}
	}
	return size, from, nil
}

// deleteTemplate removes a snapshot. Templates are the operator's.
func (b *Bridge) deleteTemplate(w http.ResponseWriter, r *http.Request) error {
	id, ok := parseSnapshot(r.PathValue("template"))
	if !ok {
		return errs.New(errs.Denied, "%.80q is no snapshot, and templates are not removed here", r.PathValue("template")).
			WithHint("`skete template rm NAME`, on the server's machine")
	}
	if err := b.Sandboxes.DeleteSnapshot(r.Context(), auth.From(r.Context()).Tenant, id); err != nil {
		return err
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

// alias says whether there is a template of that name.
func (b *Bridge) alias(w http.ResponseWriter, r *http.Request) error {
	name := r.PathValue("alias")
	if ours := templateName(name); ours != "" {
		all, err := b.Templates(r.Context())
		if err != nil {
			return err
		}
		if !slices.Contains(all, ours) {
			return withoutInterpreter(ours, errs.New(errs.NotFound, "there is no template %.80q", name))
		}
	}
	writeJSON(w, http.StatusOK, map[string]any{"templateID": name, "public": false})
	return nil
}

// fork makes sandboxes that go on from where one is.
func (b *Bridge) fork(w http.ResponseWriter, r *http.Request) error {
	var in struct {
		Timeout *int `json:"timeout"`
		Count   *int `json:"count"`
	}
	if err := decode(w, r, &in); err != nil {
		return err
	}
	ttl, err := timeoutOf(in.Timeout, forkTimeout)
	if err != nil {
		return err
	}
	count := 1
	if in.Count != nil {
		count = *in.Count
	}
	if count < 1 || count > sandbox.ForkMax {
		return errs.New(errs.Invalid, "count is 1 to %d", sandbox.ForkMax)
	}
	ctx := r.Context()
	info, err := b.find(ctx, sandboxOf(r))
	if err != nil {
		return err
	}
	rec, _ := b.records.get(ctx, info.ID)
	rules, err := rec.Network.grants()
	if err != nil {
		return err
	}
	req := sandbox.ForkRequest{Count: count, Changes: sandbox.Changes{
		Env: info.Spec.Env, Metadata: info.Spec.Metadata, TTL: ttl, IdleTimeout: b.Sandboxes.Limits().IdleTimeoutMax,
	}}
	forks, err := b.Sandboxes.Fork(ctx, info.Tenant, info.ID, req)
	if errs.Is(err, errs.Unsupported) {
		req.DiskOnly = true
		forks, err = b.Sandboxes.Fork(ctx, info.Tenant, info.ID, req)
	}
	if err != nil {
		return err
	}
	type result struct {
		Sandbox *made    `json:"sandbox,omitempty"`
		Error   *refusal `json:"error,omitempty"`
	}
	results := []result{}
	for _, f := range forks {
		m, err := b.made(ctx, f, record{Template: rec.Template, Internet: rec.Internet, Network: rec.Network})
		if err == nil {
			err = b.grant(ctx, f.Tenant, f.ID, rules)
		}
		if err != nil {
			p := problem.Of(err)
			results = append(results, result{Error: &refusal{Code: p.Status, Message: p.Detail}})
			continue
		}
		results = append(results, result{Sandbox: &m})
	}
	writeJSON(w, http.StatusCreated, results)
	return nil
}
