package server_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/skete-dev/skete/api"
)

// What the process provider can do of it: the files.
func TestSnapshotsAndForks(t *testing.T) {
	w := newWorld(t)
	orig := w.create(t, api.CreateSandbox{Name: "first", Env: map[string]string{"SECRET": "s"}})
	of := "/v1/sandboxes/" + orig.ID
	w.send(t, w.admin, http.MethodPut, of+"/files?path=note", strings.NewReader("here"))
	refusal := w.send(t, w.admin, http.MethodPost, of+"/snapshots", api.CreateSnapshot{})
	if refusal.status != http.StatusNotImplemented || !contains(refusal.body, "--disk-only") {
		t.Errorf("memory: %d %s", refusal.status, refusal.body)
	}
	var snap api.Snapshot
	w.call(t, w.admin, http.MethodPost, of+"/snapshots", api.CreateSnapshot{Name: "golden", DiskOnly: true}, http.StatusCreated, &snap)
	var list api.SnapshotList
	w.call(t, w.admin, http.MethodGet, "/v1/snapshots", nil, http.StatusOK, &list)
	if len(list.Items) != 1 || list.Items[0] != snap || snap.Sandbox != orig.ID || snap.Memory {
		t.Errorf("%+v; listed: %+v", snap, list)
	}
	var again api.Sandbox
	w.call(t, w.admin, http.MethodPost, "/v1/sandboxes", api.CreateSandbox{From: snap.ID, Name: "second"}, http.StatusCreated, &again)
	var forked api.Forked
	w.call(t, w.admin, http.MethodPost, of+"/fork", api.ForkSandbox{Count: 2, DiskOnly: true}, http.StatusCreated, &forked)
	if len(forked.Items) != 2 {
		t.Fatalf("%+v", forked)
	}
	for _, s := range append(forked.Items, again) {
		got := w.send(t, w.admin, http.MethodGet, "/v1/sandboxes/"+s.ID+"/files?path=note", nil)
		if string(got.body) != "here" || s.From == "" || s.ID == orig.ID {
			t.Errorf("%+v says %q", s, got.body)
		}
	}
	other, _ := w.key(t, "other", "read", "write")
	for what, got := range map[string]answer{
		"get":     w.send(t, other, http.MethodGet, "/v1/snapshots/"+snap.ID, nil),
		"delete":  w.send(t, other, http.MethodDelete, "/v1/snapshots/"+snap.ID, nil),
		"create":  w.send(t, other, http.MethodPost, "/v1/sandboxes", api.CreateSandbox{From: snap.ID}),
		"no id":   w.send(t, w.admin, http.MethodGet, "/v1/snapshots/snp_"+strings.Repeat("a", 20), nil),
		"of none": w.send(t, w.admin, http.MethodPost, "/v1/sandboxes/sbx_"+strings.Repeat("a", 20)+"/fork", api.ForkSandbox{}),
	} {
		if got.status != http.StatusNotFound {
			t.Errorf("%s: %d %s", what, got.status, got.body)
		}
	}
	if got := w.send(t, w.admin, http.MethodPost, "/v1/sandboxes", api.CreateSandbox{From: snap.ID, MemoryMB: 64}); got.status != http.StatusBadRequest {
		t.Errorf("another shape: %d %s", got.status, got.body)
	}
	if got := w.send(t, w.admin, http.MethodDelete, "/v1/snapshots/"+snap.ID, nil); got.status != http.StatusNoContent {
		t.Errorf("delete: %d %s", got.status, got.body)
	}
}
