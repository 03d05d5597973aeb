package serve

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/skete-dev/skete/agent/runs"
	"github.com/skete-dev/skete/api"
	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/event"
	"github.com/skete-dev/skete/llm"
	"github.com/skete-dev/skete/sandbox"
	"github.com/skete-dev/skete/sandbox/history"
	"github.com/skete-dev/skete/secret"
	"github.com/skete-dev/skete/server/share"
	"github.com/skete-dev/skete/skill"
	"github.com/skete-dev/skete/store"
	"github.com/skete-dev/skete/thread"
)

// ended are runs that are over, and which of their threads were retired.
type ended struct {
	runs    map[string][]runs.Run
	retired []thread.ID
	fails   error
}

func (e *ended) List(_ context.Context, tenant string, f runs.Filter) (runs.Page, error) {
	all := e.runs[tenant]
	switch {
	case f.PageToken != "":
		return runs.Page{Runs: all[1:]}, nil
	case len(all) > 1: // two pages, to see that both are read
		return runs.Page{Runs: all[:1], Next: "more"}, nil
	}
	return runs.Page{Runs: all}, nil
}

func (e *ended) Retire(_ context.Context, _ string, id thread.ID) error {
	e.retired = append(e.retired, id)
	return e.fails
}

// held are the sandboxes of tenants.
type held struct {
	boxes map[string][]sandbox.ID
	fails error
}

func (h *held) List(_ context.Context, tenant string, _ sandbox.Filter) (p sandbox.Page, err error) {
	for _, id := range h.boxes[tenant] {
		p.Items = append(p.Items, sandbox.Info{ID: id})
	}
	return p, nil
}

func (h *held) Discard(_ context.Context, tenant string, id sandbox.ID) error {
	if h.fails == nil {
		h.boxes[tenant] = slices.DeleteFunc(slices.Clone(h.boxes[tenant]), func(i sandbox.ID) bool { return i == id })
	}
	return h.fails
}

func (h *held) ListSnapshots(context.Context, string) []sandbox.Snapshot { return nil }

func (h *held) DeleteSnapshot(context.Context, string, sandbox.SnapshotID) error { return nil }

// timed are the tenants whose schedules were erased, while runs could be retired.
type timed struct {
	runs   *ended
	erased []string
}

func (d *timed) Erase(_ context.Context, tenant string) error {
	if len(d.runs.retired) == 0 {
		d.erased = append(d.erased, tenant)
	}
	return nil
}

// newUpkeep is what looks after a store, and the sandboxes there are beside.
func newUpkeep(t *testing.T, r *running, runs *ended, dir string) (upkeep, *held) {
	t.Helper()
	r.histories = history.New(history.Config{Dir: dir})
	r.c.Log = slog.New(slog.DiscardHandler)
	kv, err := r.store.KV(t.Context(), "secrets")
	must(t, err)
	sealer, err := secret.NewSealer(make([]byte, 32))
	must(t, err)
	r.secrets, err = secret.Open(t.Context(), secret.Config{KV: kv, Sealer: sealer})
	must(t, err)
	t.Cleanup(func() { must(t, r.secrets.Close()) })
	known, err := r.store.KV(t.Context(), "skills")
	must(t, err)
	files, err := r.store.KV(t.Context(), "skill-files")
	must(t, err)
	r.skills, err = skill.Open(t.Context(), known, files)
	must(t, err)
	u, err := r.openUpkeep(t.Context())
	must(t, err)
	h := &held{}
	u.Runs, u.Machines, u.Schedules = runs, h, &timed{runs: runs}
	return u, h
}

// What was begun of an erasure is finished by the next start, runs that are
// under way included, and takes nothing of another tenant.
func TestUpkeep_resumes(t *testing.T) {
	ctx, dir := t.Context(), t.TempDir()
	s, err := store.Open(ctx, store.Config{Dir: dir})
	must(t, err)
	t.Cleanup(func() { _ = s.Close() })
	past := filepath.Join(dir, "history")
	runs := &ended{runs: map[string][]runs.Run{"a": {{ID: thread.NewRunID(), Thread: thread.NewID(), State: thread.RunInterrupted}}}}
	u, held := newUpkeep(t, &running{store: s}, runs, past)
	held.boxes = map[string][]sandbox.ID{"a": {"sbx_1"}, "b": {"sbx_3"}}
	for id, tenant := range map[string]string{"sbx_1": "a", "sbx_2": "a", "sbx_3": "b"} {
		must(t, os.MkdirAll(filepath.Join(past, id, "store"), 0o700))
		must(t, os.WriteFile(filepath.Join(past, id, "tenant"), []byte(tenant), 0o600))
	}
	must(t, os.MkdirAll(filepath.Join(past, "sbx_4.gone", "store"), 0o700)) // died on its way out
	grants, err := s.KV(ctx, previewsBucket)
	must(t, err)
	for key, text := range map[string]string{"link/sbx_1/lnk_1": `{"tenant":"a"}`, "visit/x": `{"tenant":"a"}`, "visit/y": `{"tenant":"b"}`, "signer": "\x01"} {
		_, err = grants.Create(ctx, key, []byte(text))
		must(t, err)
	}
	bridges, err := s.KV(ctx, bridgesBucket)
	must(t, err)
	shares := share.New(grants)
	for _, tenant := range []string{"a", "b"} {
		_, _, err := shares.Create(ctx, share.Record{Tenant: tenant, Run: "run_" + thread.RunID(tenant)}, 0)
		must(t, err)
	}
	for key, text := range map[string]string{"sandbox/sbx_1": `{"tenant":"a"}`, "sandbox/sbx_3": `{"tenant":"b"}`, "seed": "\x01"} {
		_, err = bridges.Create(ctx, key, []byte(text))
		must(t, err)
	}
	for _, tenant := range []string{"a", "b"} {
		s.Events().Append(event.Event{Tenant: tenant, Kind: event.Sandbox, ID: "sbx_" + tenant, State: "destroyed", Revision: 1})
	}
	keep(t, u, "a", "forge")
	keep(t, u, "b", "forge")
	for _, tenant := range []string{"a", "b"} {
		_, err := u.Skills.Install(ctx, tenant, skill.Install{Tree: skill.Tree{Files: []skill.Entry{{Path: skill.File, Content: []byte("---\nname: forge\ndescription: Forges.\n---\n")}}}})
		must(t, err)
	}
	u.Resume(ctx)
	if len(held.boxes["a"]) != 1 || len(u.Secrets.List("a")) != 1 {
		t.Fatal("what nobody asked to erase is gone")
	}
	_, err = u.Pending.Put(ctx, "a", []byte("{}"))
	must(t, err)
	u.Resume(ctx)
	if d := cmp.Diff(map[string][]sandbox.ID{"a": {}, "b": {"sbx_3"}}, held.boxes); d != "" {
		t.Error(d)
	}
	left, err := filepath.Glob(filepath.Join(past, "*"))
	if err != nil || !cmp.Equal(left, []string{filepath.Join(past, "sbx_3")}) {
		t.Errorf("histories: %q, %v", left, err)
	}
	if keys := keysOf(t, ctx, grants, u.Pending); len(keys) != 3 || !strings.HasPrefix(keys[0], "share/") || !cmp.Equal(keys[1:], []string{"signer", "visit/y"}) {
		t.Errorf("left are %q", keys)
	}
	for tenant, want := range map[string]int{"a": 0, "b": 1} {
		if list, err := shares.List(ctx, tenant, "run_"+thread.RunID(tenant)); err != nil || len(list) != want {
			t.Errorf("%s: %+v, %v", tenant, list, err)
		}
	}
	if keys := keysOf(t, ctx, bridges); !cmp.Equal(keys, []string{"sandbox/sbx_3", "seed"}) {
		t.Errorf("left of bridges are %q", keys)
	}
	secrets, err := s.KV(ctx, "secrets")
	must(t, err)
	if keys := keysOf(t, ctx, secrets); !cmp.Equal(keys, []string{"b/forge"}) || len(u.Secrets.List("a")) != 0 {
		t.Errorf("left are the secrets %q", keys)
	}
	known, err := s.KV(ctx, "skills")
	must(t, err)
	if keys := keysOf(t, ctx, known); !cmp.Equal(keys, []string{"b/forge"}) {
		t.Errorf("left are the skills %q", keys)
	}
	files, err := s.KV(ctx, "skill-files")
	must(t, err)
	if keys := keysOf(t, ctx, files); len(keys) != 2 { // of b: a note, and a piece
		t.Errorf("left are the files %q", keys)
	}
	var told []string
	must(t, s.Events().Newest(ctx, event.Sandbox, func(e event.Event) error {
		told = append(told, e.Tenant)
		return nil
	}))
	if !cmp.Equal(told, []string{"b"}) {
		t.Errorf("there are events of %q", told)
	}
}

// A tenant may have secrets and nothing else; they go, and the others' stay.
func TestUpkeep_secrets(t *testing.T) {
	ctx, dir := t.Context(), t.TempDir()
	s, err := store.Open(ctx, store.Config{Dir: dir})
	must(t, err)
	t.Cleanup(func() { _ = s.Close() })
	u, _ := newUpkeep(t, &running{store: s}, &ended{}, filepath.Join(dir, "none"))
	for _, key := range [][2]string{{"a", "one"}, {"a", "two"}, {"ab", "one"}} {
		keep(t, u, key[0], key[1])
	}
	secrets, err := s.KV(ctx, "secrets")
	must(t, err)
	_, err = secrets.Create(ctx, "a/broken", []byte("{"))
	must(t, err)
	erased, err := u.Erase(ctx, "a")
	if err != nil || erased != (api.Erased{Tenant: "a"}) {
		t.Errorf("%+v, %v", erased, err)
	}
	if keys := keysOf(t, ctx, secrets); !cmp.Equal(keys, []string{"ab/one"}) {
		t.Errorf("left are %q", keys)
	}
	if n := len(u.Secrets.List("a")); n != 0 {
		t.Errorf("%d are shown", n)
	}
	if _, err := u.Erase(ctx, "a"); !errs.Is(err, errs.NotFound) {
		t.Errorf("erased twice: %v", err)
	}
}

// keep sets a secret.
func keep(t *testing.T, u upkeep, tenant, name string) {
	t.Helper()
	_, err := u.Secrets.Put(t.Context(), tenant, secret.Put{Name: name, Value: secret.New("x")})
	must(t, err)
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func TestUpkeep(t *testing.T) {
	ctx, dir := t.Context(), t.TempDir()
	s, err := store.Open(ctx, store.Config{Dir: dir})
	must(t, err)
	t.Cleanup(func() { _ = s.Close() })
	r := &running{store: s}
	over := &ended{runs: map[string][]runs.Run{}}
	u, held := newUpkeep(t, r, over, filepath.Join(dir, "none"))
	kv, err := s.KV(ctx, runsBucket)
	must(t, err)
	memories, err := s.KV(ctx, memoriesBucket)
	must(t, err)
	var damaged string
	for _, tenant := range []string{"a", "b"} {
		log, err := s.Threads().Log(ctx, tenant)
		must(t, err)
		blobs, err := s.Threads().Blobs(ctx, tenant)
		must(t, err)
		hash, err := blobs.Put(ctx, []byte("large content of "+tenant))
		must(t, err)
		root, run := thread.NewID(), thread.NewRunID()
		for _, id := range []thread.ID{root, root.Sub("c1")} {
			_, err = log.Append(ctx, id, 0,
				thread.New("", thread.Opened{Agent: []byte(`{}`), Name: "x"}), thread.New(run, thread.RunStarted{}),
				thread.New(run, thread.Input{From: "user", Blocks: []llm.Block{llm.Text("hi")}, Shown: hash}))
			must(t, err)
			over.runs[tenant] = append(over.runs[tenant], runs.Run{ID: thread.NewRunID(), Thread: id, State: thread.RunSucceeded})
		}
		for _, key := range []string{"run/" + tenant + "/1", "start/" + tenant + "/2"} {
			_, err = kv.Create(ctx, key, []byte("{}"))
			must(t, err)
		}
		_, err = memories.Create(ctx, tenant+"/notes", []byte("x"))
		must(t, err)
		damaged = hash
	}

	got, err := u.Check(ctx, "")
	must(t, err)
	if d := cmp.Diff(api.Checked{Tenants: 2, Threads: 4, Events: 12, Blobs: 2}, got); d != "" {
		t.Error(d)
	}
	must(t, os.WriteFile(filepath.Join(dir, "blobs", "b", damaged[:2], damaged[2:4], damaged), []byte("x"), 0o600))
	got, err = u.Check(ctx, "")
	must(t, err)
	if len(got.Problems) != 2 || got.Problems[0].Tenant != "b" || got.Problems[0].Blob != damaged {
		t.Errorf("%+v", got)
	}
	if _, err := u.Check(ctx, "nobody"); !errs.Is(err, errs.NotFound) {
		t.Errorf("the check of a tenant that is not there: %v", err)
	}
	if _, err := u.Erase(ctx, "nobody"); !errs.Is(err, errs.NotFound) {
		t.Errorf("the erasure of a tenant that is not there: %v", err)
	}

	erasesAll(t, u, over, held)
	if keys := keysOf(t, ctx, kv, memories); !cmp.Equal(keys, []string{"b/notes", "run/b/1", "start/b/2"}) {
		t.Errorf("left are %q", keys)
	}
	if tenants, err := s.Threads().Tenants(ctx); err != nil || !cmp.Equal(tenants, []string{"b"}) {
		t.Errorf("tenants %q, %v", tenants, err)
	}
	if _, err := u.Erase(ctx, "a"); !errs.Is(err, errs.NotFound) {
		t.Errorf("erased twice: %v", err)
	}
}

// erasesAll erases the tenant a: not while a run is under way, not when a
// sandbox cannot be removed, then for good.
func erasesAll(t *testing.T, u upkeep, over *ended, held *held) {
	t.Helper()
	ctx, last := t.Context(), &over.runs["a"][1]
	last.State = thread.RunInterrupted
	if _, err := u.Erase(ctx, "a"); !errs.Is(err, errs.Conflict) || !strings.Contains(errs.Hint(err), "skete cancel") {
		t.Errorf("with a run under way: %v", err)
	}
	last.State = thread.RunCancelled
	over.fails = errs.New(errs.Unavailable, "the sandbox cannot be removed")
	if _, err := u.Erase(ctx, "a"); !errs.Is(err, errs.Unavailable) {
		t.Errorf("with a sandbox that stays: %v", err)
	}
	if c, err := u.Check(ctx, "a"); err != nil || c.Threads != 2 {
		t.Errorf("an erasure that failed has removed what names the sandboxes: %+v, %v", c, err)
	}
	over.fails, over.retired = nil, nil
	held.boxes = map[string][]sandbox.ID{"a": {"sbx_1", "sbx_2"}, "b": {"sbx_3"}}
	held.fails = errs.New(errs.Unavailable, "it hangs")
	if _, err := u.Erase(ctx, "a"); !errs.Is(err, errs.Unavailable) {
		t.Errorf("with a sandbox that stays: %v", err)
	}
	held.fails = nil
	erased, err := u.Erase(ctx, "a")
	if err != nil || erased != (api.Erased{Tenant: "a", Threads: 1, Sandboxes: 2}) {
		t.Errorf("%+v, %v", erased, err)
	}
	if len(held.boxes["a"]) != 0 || len(held.boxes["b"]) != 1 {
		t.Errorf("sandboxes: %v", held.boxes)
	}
	if len(over.retired) != 2 || over.retired[0] != last.Thread.Root() {
		t.Errorf("retired are %v", over.retired)
	}
	if erased := slices.Compact(u.Schedules.(*timed).erased); !cmp.Equal(erased, []string{"a"}) {
		t.Errorf("the schedules of %q were erased before their runs", erased)
	}
	delete(over.runs, "a")
}

func keysOf(t *testing.T, ctx context.Context, buckets ...store.ThreadKeys) (keys []string) {
	t.Helper()
	for _, b := range buckets {
		must(t, b.List(ctx, "", func(key string, _ []byte, _ uint64) error {
			keys = append(keys, key)
			return nil
		}))
	}
	slices.Sort(keys)
	return keys
}
