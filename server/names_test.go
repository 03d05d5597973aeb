package server_test

import (
	"context"
	"encoding/json"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/skete-dev/skete/api"
	"github.com/skete-dev/skete/sandbox"
	"github.com/skete-dev/skete/server"
	"github.com/skete-dev/skete/server/history"
	"github.com/skete-dev/skete/workspace"
)

// Wherever a path has the id of a sandbox, its name does as well; a page too.
func TestNames_standForIDs(t *testing.T) {
	w := newWorld(t)
	sb := w.create(t, api.CreateSandbox{Name: "my web"})
	of := "/v1/sandboxes/" + url.PathEscape("my web")
	var got api.Sandbox
	w.call(t, w.admin, http.MethodGet, of, nil, http.StatusOK, &got)
	if got.ID != sb.ID {
		t.Errorf("%s, want %s", got.ID, sb.ID)
	}
	w.send(t, w.admin, http.MethodPut, of+"/files?path=note", strings.NewReader("here"))
	if got := w.send(t, w.admin, http.MethodGet, "/v1/sandboxes/"+sb.ID+"/files?path=note", nil); string(got.body) != "here" {
		t.Errorf("a file by the name: %d %s", got.status, got.body)
	}
	if got := w.send(t, w.admin, http.MethodPost, "/v1/sandboxes", api.CreateSandbox{Name: "my web"}); got.status != http.StatusConflict || !contains(got.body, sb.ID) {
		t.Errorf("the same name: %d %s", got.status, got.body)
	}
	web := "web"
	w.call(t, w.admin, http.MethodPatch, of, api.UpdateSandbox{Name: &web}, http.StatusOK, &got)
	if got.Name != web {
		t.Errorf("renamed: %+v", got)
	}
	other, _ := w.key(t, "other", "read", "write")
	for what, x := range map[string]struct {
		key, path string
		status    int
	}{
		"the old name":        {w.admin, of, http.StatusNotFound},
		"no name of another":  {other, "/v1/sandboxes/web", http.StatusNotFound},
		"without a key":       {"", "/v1/sandboxes/web", http.StatusUnauthorized},
		"the page":            {"", "/s/web", http.StatusSeeOther},
		"what looks like ids": {w.admin, "/v1/sandboxes/sbx_Web", http.StatusBadRequest},
		"no beginning of one": {w.admin, "/v1/sandboxes/" + sb.ID[:15] + "0", http.StatusBadRequest},
		"a beginning":         {w.admin, "/v1/sandboxes/" + sb.ID[:15], http.StatusOK},
		"one of another":      {other, "/v1/sandboxes/" + sb.ID[:15], http.StatusNotFound},
		"no page":             {"", "/s/sbx_web", http.StatusNotFound},
	} {
		if got := w.send(t, x.key, http.MethodGet, x.path, nil); got.status != x.status {
			t.Errorf("%s: %d %s, want %d", what, got.status, got.body, x.status)
		}
	}
	w.call(t, w.admin, http.MethodDelete, "/v1/sandboxes/web", nil, http.StatusNoContent, nil)
}

// moves notes which histories were moved.
type moves struct {
	history.Histories
	from, to sandbox.ID
}

func (m *moves) Move(_ context.Context, _ string, from, to sandbox.ID, _ uint64, _ workspace.Label) (workspace.Revision, error) {
	m.from, m.to = from, to
	return workspace.Revision{N: 1}, nil
}

// A sandbox that a body names is found as one in a path is.
func TestNames_inBodies(t *testing.T) {
	past := &moves{}
	w := newWorld(t, func(c *server.Config) { past.Histories, c.Histories = c.Histories, past })
	sb := w.create(t, api.CreateSandbox{Name: "web", NoStart: true})
	to := w.create(t, api.CreateSandbox{Name: "next", NoStart: true})
	other, _ := w.key(t, "other", "read", "write")
	for _, name := range []string{sb.ID, sb.ID[:15], "web"} {
		var run api.Run
		w.call(t, w.admin, http.MethodPost, "/v1/runs", api.StartRun{Task: "do it", Sandbox: name}, http.StatusCreated, &run)
		if run.Sandbox != sb.ID {
			t.Errorf("a run in %s is in %s, want %s", name, run.Sandbox, sb.ID)
		}
		past.from, past.to = "", ""
		w.call(t, w.admin, http.MethodPost, "/v1/sandboxes/next/history/move", api.MoveHistory{From: name}, http.StatusCreated, nil)
		if string(past.from) != sb.ID || string(past.to) != to.ID {
			t.Errorf("%s was moved from %s to %s", name, past.from, past.to)
		}
	}
	for name, status := range map[string]int{"wep": http.StatusNotFound, "sbx_W": http.StatusBadRequest} {
		for path, body := range map[string]any{"/v1/runs": api.StartRun{Task: "x", Sandbox: name}, "/v1/sandboxes/next/history/move": api.MoveHistory{From: name}} {
			if got := w.send(t, w.admin, http.MethodPost, path, body); got.status != status {
				t.Errorf("%s with %s: %d %s, want %d", path, name, got.status, got.body, status)
			}
		}
	}
	if got := w.send(t, other, http.MethodPost, "/v1/runs", api.StartRun{Task: "x", Sandbox: "web"}); got.status != http.StatusNotFound {
		t.Errorf("a run in a sandbox of another tenant: %d %s", got.status, got.body)
	}
	gone := sandbox.NewID() // the history of one that is gone goes by its whole id
	w.call(t, w.admin, http.MethodPost, "/v1/sandboxes/next/history/move", api.MoveHistory{From: string(gone)}, http.StatusCreated, nil)
	if past.from != gone {
		t.Errorf("moved from %s, want %s", past.from, gone)
	}
}

// The beginning of an id that fits several is refused, and says which.
func TestNames_aBeginningOfSeveral(t *testing.T) {
	w := newWorld(t)
	first := map[string]api.Sandbox{} // by the first character of their ids, of which there are 32
	for {
		sb := w.create(t, api.CreateSandbox{NoStart: true})
		beginning := sb.ID[:len("sbx_")+1]
		twin, twice := first[beginning]
		if first[beginning] = sb; !twice {
			continue
		}
		got := w.send(t, w.admin, http.MethodGet, "/v1/sandboxes/"+beginning, nil)
		var p api.Problem
		must(t, json.Unmarshal(got.body, &p))
		if got.status != http.StatusBadRequest || !strings.Contains(p.Hint, sb.ID) || !strings.Contains(p.Hint, twin.ID) {
			t.Errorf("%s: %d %s", beginning, got.status, got.body)
		}
		return
	}
}
