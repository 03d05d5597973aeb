package server_test

import (
	"context"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/skete-dev/skete/api"
	"github.com/skete-dev/skete/sandbox"
	"github.com/skete-dev/skete/sandbox/history"
	"github.com/skete-dev/skete/sandbox/manager"
	"github.com/skete-dev/skete/server"
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
