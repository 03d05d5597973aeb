package server_test

import (
	"net/http"
	"testing"

	"github.com/skete-dev/skete/api"
)

func TestSandboxLife(t *testing.T) {
	w := newWorld(t)
	sb := w.create(t, api.CreateSandbox{Name: "one", Metadata: map[string]string{"k": "v"}})
	if sb.State != "running" || sb.Isolation != "none" || sb.Provider != "process" || sb.Name != "one" || sb.BootMS <= 0 {
		t.Errorf("created %+v", sb)
	}
	path := "/v1/sandboxes/" + sb.ID
	var p api.Process
	w.call(t, w.admin, http.MethodPost, path+"/processes", api.StartProcess{Argv: []string{"/bin/sh", "-c", "exit 3"}}, http.StatusCreated, &p)
	w.call(t, w.admin, http.MethodGet, path+"/processes/"+p.Key+"/wait", nil, http.StatusOK, &p)
	if p.State != "exited" || p.Exit == nil || p.Exit.Code != 3 {
		t.Errorf("waited for %+v", p)
	}
	w.call(t, w.admin, http.MethodDelete, path, nil, http.StatusNoContent, nil)
	var gone api.Sandbox
	w.call(t, w.admin, http.MethodGet, path, nil, http.StatusOK, &gone)
	if gone.State != "destroyed" {
		t.Errorf("after destroy: %+v", gone)
	}
}
