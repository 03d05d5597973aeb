package server_test

import (
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/skete-dev/skete/api"
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
		"the page":            {"", "/s/web", http.StatusOK},
		"what looks like ids": {w.admin, "/v1/sandboxes/sbx_web", http.StatusBadRequest},
		"no page":             {"", "/s/sbx_web", http.StatusNotFound},
	} {
		if got := w.send(t, x.key, http.MethodGet, x.path, nil); got.status != x.status {
			t.Errorf("%s: %d %s, want %d", what, got.status, got.body, x.status)
		}
	}
	w.call(t, w.admin, http.MethodDelete, "/v1/sandboxes/web", nil, http.StatusNoContent, nil)
}
