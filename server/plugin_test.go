package server_test

import (
	"net/http"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/skete-dev/skete/api"
)

// A server without plug-ins has an empty list of them, for its operator alone: those of all tenants
// are in it.
func TestPlugins(t *testing.T) {
	w := newWorld(t)
	var list api.PluginList
	w.call(t, w.admin, http.MethodGet, "/v1/plugins", nil, http.StatusOK, &list)
	if d := cmp.Diff(api.PluginList{Items: []api.Plugin{}}, list); d != "" {
		t.Error(d)
	}
	other, _ := w.key(t, "other", "read", "write")
	w.call(t, other, http.MethodGet, "/v1/plugins", nil, http.StatusForbidden, nil)
}
