package server_test

import (
	"context"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/skete-dev/skete/api"
	"github.com/skete-dev/skete/sandbox"
	"github.com/skete-dev/skete/sandbox/history"
	"github.com/skete-dev/skete/sandbox/manager"
	"github.com/skete-dev/skete/server"
	"github.com/skete-dev/skete/server/key"
)

// kept is the manager for a real history, over volumes that have nothing beside them.
type kept struct {
	*manager.Manager
	beside string
}

func (k kept) Files(ctx context.Context, tenant string, id sandbox.ID, f func(context.Context, sandbox.Files) error) error {
	return k.Manager.Files(ctx, tenant, id, func(ctx context.Context, files sandbox.Files) error {
		files.Volume.Disk = k.beside
		return f(ctx, files)
	})
}

type realSteps struct{ *history.Service }

func (s realSteps) Begin(ctx context.Context, tenant, id, who, what string) server.Step {
	return s.Step(ctx, tenant, sandbox.ID(id), who, what)
}

// withHistory gives a world real histories, and steps if it is to have them.
func withHistory(t testing.TB, steps bool) func(*server.Config) {
	return func(c *server.Config) {
		s := history.New(history.Config{Dir: t.TempDir(), Sandboxes: kept{c.Sandboxes.(*manager.Manager), t.TempDir()}})
		t.Cleanup(func() { must(t, s.Close()) })
		c.Histories = s
		if steps {
			c.Steps = realSteps{s}
		}
	}
}

// labels lists what the revisions of a sandbox are called, the oldest first.
func (w *world) labels(t *testing.T, id string) []string {
	t.Helper()
	var page api.RevisionPage
	w.call(t, w.admin, http.MethodGet, "/v1/sandboxes/"+id+"/history", nil, http.StatusOK, &page)
	list := make([]string, len(page.Items))
	for i, r := range page.Items {
		list[len(list)-1-i] = r.Label
	}
	return list
}

// A tenant that knows the id of another's sandbox takes no revision from it.
func TestSteps_ofAnotherTenantsSandbox(t *testing.T) {
	w := newWorld(t, withHistory(t, true))
	id := w.sandbox()
	other, _ := w.key(t, "other", "read", "write")
	put := func(key, query, text string, status int) {
		t.Helper()
		if a := w.send(t, key, http.MethodPut, "/v1/sandboxes/"+id+"/files?path=a"+query, strings.NewReader(text)); a.status != status {
			t.Fatalf("%d %s, want %d", a.status, a.body, status)
		}
	}
	put(w.admin, "&no_revision=true", "not in a revision yet", http.StatusOK)
	for range 2 {
		put(other, "", "never written", http.StatusNotFound)
	}
	put(w.admin, "", "2", http.StatusOK)
	if d := cmp.Diff([]string{"what was there at first", `write "a"`}, w.labels(t, id)); d != "" {
		t.Error(d)
	}
}

// begun notes the steps that calls become.
type begun struct {
	mu   sync.Mutex
	what []string
}

func (b *begun) Begin(_ context.Context, _, _, _, what string) server.Step {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.what = append(b.what, what)
	return nothing{}
}

// taken returns what was begun since the last time.
func (b *begun) taken() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	what := b.what
	b.what = nil
	return what
}

type nothing struct{}

func (nothing) End()                         {}
func (nothing) Follow(func(context.Context)) {}

// stepCall is one that becomes a step, and how that is named.
type stepCall struct {
	path string
	body any
	step string
}

// stepCalls are all routes that become a step.
func stepCalls(dir string) map[string]stepCall {
	return map[string]stepCall{
		"GET /exec":                     {step: "exec true"}, // a WebSocket, below
		"POST /exec:run":                {"/exec:run", api.RunCommand{Argv: []string{"true"}}, "exec true"},
		"POST /processes":               {"/processes", api.StartProcess{Argv: []string{"true"}}, "exec true"},
		"PUT /files":                    {"/files?path=" + dir + "/a", strings.NewReader("1"), `write "` + dir + `/a"`},
		"DELETE /files":                 {"/files?path=" + dir + "/a", nil, `remove "` + dir + `/a"`},
		"POST /files/chmod":             {"/files/chmod", api.ChmodFile{Path: "a", Mode: 0o600}, `chmod "a"`},
		"POST /files/copy":              {"/files/copy", api.CopyFile{Source: "a", Destination: "b"}, `copy "a" to "b"`},
		"POST /files/mkdir":             {"/files/mkdir", api.MakeDir{Path: dir + "/d"}, `mkdir "` + dir + `/d"`},
		"POST /files/move":              {"/files/move", api.MoveFile{Source: "a", Destination: "b"}, `move "a" to "b"`},
		"POST /files/symlink":           {"/files/symlink", api.SymlinkFile{Path: dir + "/l", Target: "a"}, `symlink "` + dir + `/l"`},
		"PUT /tree":                     {"/tree?path=" + dir, strings.NewReader(""), `unpack into "` + dir + `"`},
		"POST /services":                {"/services", api.ServiceSpec{Name: "web", Argv: []string{"true"}}, "service add web"},
		"POST /services/load":           {"/services/load", nil, "service load"},
		"POST /services/{name}/start":   {"/services/web/start", nil, "service start web"},
		"POST /services/{name}/stop":    {"/services/web/stop", nil, "service stop web"},
		"POST /services/{name}/restart": {"/services/web/restart", nil, "service restart web"},
		"DELETE /services/{name}":       {"/services/web", nil, "service remove web"},
	}
}

// noStepRoutes change no files, or what they change is another's: a command's,
// or a revision that they make themselves.
var noStepRoutes = []string{
	"POST /start", "POST /stop", "POST /pause", "POST /resume", "POST /fork", "POST /snapshots",
	"DELETE /processes/{key}", "GET /processes/{key}/attach", "POST /processes/{key}/resize", "POST /processes/{key}/signal", "POST /processes/{key}/stdin",
	"PUT /network", "PUT /models",
	"POST /history", "POST /history/plan", "POST /history/apply", "POST /history/move", "DELETE /history",
	"GET /ports/{port}/connect", "GET /previews", "POST /previews", "DELETE /previews/{preview}",
}

// Each route beneath a sandbox with the right to write becomes a step of its
// history, unless the list above says why not: a new one must decide.
func TestSteps_ofEachRoute(t *testing.T) {
	steps := &begun{}
	w := newWorld(t, func(c *server.Config) { c.Steps = steps })
	id := w.sandbox()
	steps.taken()
	calls := stepCalls(t.TempDir())
	undecided := map[string]bool{}
	for _, r := range w.server.Routes() {
		rest, beneath := strings.CutPrefix(r.Path, "/v1/sandboxes/{id}/")
		if name := r.Method + " /" + rest; beneath && r.Scope == key.Write {
			undecided[name] = true
		}
	}
	for _, name := range append(slices.Collect(maps.Keys(calls)), noStepRoutes...) {
		if !undecided[name] {
			t.Errorf("%s is no route that writes, or is listed twice", name)
		}
		delete(undecided, name)
	}
	for name := range undecided {
		t.Errorf("%s: is it a step of the history? Give it a line here", name)
	}
	for name, c := range calls {
		method, _, _ := strings.Cut(name, " ")
		if c.path == "" {
			w.exec(t, api.StartProcess{Argv: []string{"true"}}).rest()
		} else {
			w.send(t, w.admin, method, "/v1/sandboxes/"+id+c.path, c.body) // that it was asked for counts, also when it fails
		}
		if got := steps.taken(); len(got) != 1 || got[0] != c.step {
			t.Errorf("%s: the steps %q, want %q", name, got, c.step)
		}
		if c.path == "" {
			continue
		}
		with := map[bool]string{true: "&", false: "?"}[strings.Contains(c.path, "?")]
		w.send(t, w.admin, method, "/v1/sandboxes/"+id+c.path+with+"no_revision=true", c.body)
		if got := steps.taken(); len(got) != 0 {
			t.Errorf("%s without a revision: the steps %q", name, got)
		}
	}
}
