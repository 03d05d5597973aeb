package server_test

import (
	"context"
	"net/http"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/skete-dev/skete/api"
	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/server"
)

// upkeep has one tenant, a.
type upkeep struct{ busy bool }

func (u *upkeep) Check(_ context.Context, tenant string) (api.Checked, error) {
	if tenant != "" && tenant != "a" {
		return api.Checked{}, errs.New(errs.NotFound, "nothing is kept for the tenant %s", tenant)
	}
	return api.Checked{Tenants: 1, Threads: 2, Events: 3, Blobs: 4}, nil
}

func (u *upkeep) Erase(_ context.Context, tenant string) (api.Erased, error) {
	if u.busy {
		return api.Erased{}, errs.New(errs.Conflict, "runs are under way").WithHint("cancel them")
	}
	return api.Erased{Tenant: tenant, Threads: 2}, nil
}

func TestUpkeep(t *testing.T) {
	u := &upkeep{}
	w := newWorld(t, func(c *server.Config) { c.Upkeep = u })
	for _, path := range []string{"/v1/fsck", "/v1/fsck?tenant=a"} {
		var got api.Checked
		w.call(t, w.admin, http.MethodGet, path, nil, http.StatusOK, &got)
		if d := cmp.Diff(api.Checked{Tenants: 1, Threads: 2, Events: 3, Blobs: 4, Problems: []api.StoreProblem{}}, got); d != "" {
			t.Error(d)
		}
	}
	w.send(t, w.admin, http.MethodGet, "/v1/fsck?tenant=b", nil).problem(t, http.StatusNotFound)
	u.busy = true
	if p := w.send(t, w.admin, http.MethodDelete, "/v1/tenants/a", nil).problem(t, http.StatusConflict); p.Hint == "" {
		t.Errorf("%+v", p)
	}
	u.busy = false
	var erased api.Erased
	w.call(t, w.admin, http.MethodDelete, "/v1/tenants/a", nil, http.StatusOK, &erased)
	if erased != (api.Erased{Tenant: "a", Threads: 2}) {
		t.Errorf("%+v", erased)
	}
	write, _ := w.key(t, "a", "read", "write", "runs:write")
	w.send(t, write, http.MethodDelete, "/v1/tenants/a", nil).problem(t, http.StatusForbidden)
	w.send(t, write, http.MethodGet, "/v1/fsck?tenant=a", nil).problem(t, http.StatusForbidden)
}
