package server_test

import (
	"net/http"
	"strconv"
	"strings"
	"testing"

	"github.com/skete-dev/skete/api"
	"github.com/skete-dev/skete/audit"
	"github.com/skete-dev/skete/server"
)

func newAuditWorld(t *testing.T) *world {
	t.Helper()
	l, err := audit.Open(t.Context(), audit.Config{Dir: t.TempDir(), Node: "test"})
	must(t, err)
	t.Cleanup(func() { must(t, l.Close()) })
	return newWorld(t, func(c *server.Config) { c.Audit = l })
}

func (w *world) audit(t *testing.T, query string) []api.AuditRecord {
	t.Helper()
	var list api.AuditList
	w.call(t, w.admin, http.MethodGet, "/v1/audit"+query, nil, http.StatusOK, &list)
	return list.Items
}

// A call that may change something is a record: by whom, what, on what, and how it ended.
// One that reads is none. The values of secrets are in none.
func TestAudit_calls(t *testing.T) {
	w := newAuditWorld(t)
	sb := w.create(t, api.CreateSandbox{Name: "web"})
	ci, _ := w.key(t, "default", "read", "write")
	w.call(t, ci, http.MethodGet, "/v1/sandboxes/"+sb.ID, nil, http.StatusOK, nil)
	w.call(t, ci, http.MethodPost, "/v1/sandboxes/web/exec:run", api.RunCommand{Command: "true; echo $X"}, http.StatusOK, nil)
	w.call(t, ci, http.MethodPut, "/v1/secrets/forge", api.PutSecret{Value: canary}, http.StatusOK, nil)
	w.call(t, w.admin, http.MethodDelete, "/v1/sandboxes/"+sb.ID, nil, http.StatusNoContent, nil)
	var got []string
	for _, r := range w.audit(t, "?tenant=default") {
		got = append(got, strings.Join([]string{r.What, r.On, r.Result, r.Detail["asked"]}, " "))
		if strings.Contains(strings.Join([]string{r.On, r.Detail["asked"], r.Detail["call"]}, " "), canary) || r.Who == "" || r.Detail["from"] == "" || r.Detail["request"] == "" {
			t.Errorf("%+v", r)
		}
	}
	want := []string{
		"api.destroy-sandbox " + sb.ID + " 204 ", "api.put-secret forge 200 ", "api.run-command " + sb.ID + " 200 exec true; echo $X",
		"api.create-key  201 ", "api.create-sandbox  201 ",
	}
	if len(got) != len(want) {
		t.Fatalf("%q", got)
	}
	for i := range want {
		if got[i] != want[i] && !strings.HasPrefix(want[i], "api.create-key") {
			t.Errorf("%q, not %q", got[i], want[i])
		}
	}
	var r api.AuditReport
	w.call(t, w.admin, http.MethodGet, "/v1/audit/verify", nil, http.StatusOK, &r)
	if len(r.Bad) > 0 || r.Records != uint64(len(want)) {
		t.Errorf("%+v", r)
	}
	a := w.send(t, w.admin, http.MethodGet, "/v1/audit/export", nil)
	if n := strings.Count(string(a.body), "\n"); a.status != http.StatusOK || n != 1+len(want) {
		t.Errorf("%d: %d lines", a.status, n)
	}
}

// Who is not admitted is told of, and cannot fill the log.
func TestAudit_refused(t *testing.T) {
	w := newAuditWorld(t)
	reader, _ := w.key(t, "default", "read")
	sb := w.sandbox()
	for range 100 {
		w.send(t, reader, http.MethodDelete, "/v1/sandboxes/"+sb, nil)
	}
	w.send(t, "wrong", http.MethodGet, "/v1/sandboxes", nil)
	list := w.audit(t, "?what=api.refused&page_size=1000")
	if len(list) < 20 || len(list) > 60 {
		t.Errorf("%d refusals are told of", len(list))
	}
	for _, r := range list {
		if _, err := strconv.Atoi(r.Result); err != nil || r.Result[0] != '4' {
			t.Errorf("%+v", r)
		}
	}
	other, _ := w.key(t, "other", "read", "write")
	for range 100 { // calls that are admitted, and fail
		w.send(t, other, http.MethodDelete, "/v1/sandboxes/none", nil)
	}
	if n := len(w.audit(t, "?tenant=other&page_size=1000")); n < 20 || n > 60 {
		t.Errorf("%d calls that failed are told of", n)
	}
	third, _ := w.key(t, "third", "read")
	w.send(t, third, http.MethodDelete, "/v1/sandboxes/"+sb, nil)
	if list := w.audit(t, "?tenant=third"); len(list) != 1 || list[0].What != "api.refused" || list[0].Result != "403" || list[0].Detail["key"] == "" {
		t.Errorf("the refusal of another tenant: %+v", list)
	}
	for _, path := range []string{"", "/verify", "/export"} {
		if got := w.send(t, reader, http.MethodGet, "/v1/audit"+path, nil); got.status != http.StatusForbidden {
			t.Errorf("%s: %d", path, got.status)
		}
	}
	plain := newWorld(t)
	for _, path := range []string{"", "/verify", "/export"} {
		if got := plain.send(t, plain.admin, http.MethodGet, "/v1/audit"+path, nil); got.status != http.StatusNotImplemented {
			t.Errorf("a server without a log: %s: %d", path, got.status)
		}
	}
}
