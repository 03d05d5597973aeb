package server_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/skete-dev/skete/api"
)

// The address alone leads somewhere: to the login, then to what the key may see.
func TestHome(t *testing.T) {
	w := newWorld(t, browse(t, nil))
	if a := w.send(t, "", "GET", "/", nil); a.status != http.StatusSeeOther || a.header.Get("Location") != "/login?next=%2F" {
		t.Fatalf("without a login: %d %v", a.status, a.header)
	}
	secret, _ := w.key(t, "other", "read", "write")
	in := w.logIn(t, secret, "")
	cookie := in.cookie(t)
	if to := in.header.Get("Location"); to != "/" {
		t.Errorf("a login leads to %q", to)
	}
	get := func(header ...string) string {
		t.Helper()
		a := w.send(t, "", "GET", "/", nil, header...)
		policy := a.header.Get("Content-Security-Policy")
		if a.status != 200 || !strings.Contains(policy, "default-src 'none'") || strings.Contains(policy, "unsafe") || strings.Contains(policy, "script-src") || a.header.Get("Cache-Control") != "no-store" {
			t.Fatalf("%d %v %s", a.status, a.header, a.body)
		}
		if strings.Contains(string(a.body), "<script") || strings.Contains(string(a.body), "style=") {
			t.Errorf("inline: %s", a.body)
		}
		return string(a.body)
	}
	empty := get("Cookie", cookie)
	for _, part := range []string{"skete vm create", "skete run", "tenant other", "Log out"} {
		if !strings.Contains(empty, part) {
			t.Errorf("the empty list lacks %q: %s", part, empty)
		}
	}
	mine := w.create(t, api.CreateSandbox{Name: `<b>"mine" & yours`}) // of the default tenant
	if page := get("Cookie", cookie); page != empty {
		t.Errorf("another tenant's: %s", page)
	}
	all := get("X-API-Key", w.admin)
	for _, part := range []string{`<a href="/s/%3Cb%3E%22mine%22%20&amp;%20yours">&lt;b&gt;&#34;mine&#34; &amp; yours</a>`, "running"} {
		if !strings.Contains(all, part) {
			t.Errorf("the list lacks %q: %s", part, all)
		}
	}
	var run api.Run
	w.call(t, w.admin, "POST", "/v1/runs", api.StartRun{Task: "<script>x</script>", Title: "<i>my run</i>", Sandbox: mine.ID}, http.StatusCreated, &run)
	if page := get("X-API-Key", w.admin); !strings.Contains(page, "&lt;i&gt;my run&lt;/i&gt;") || !strings.Contains(page, run.ID[:12]) ||
		strings.Contains(page, mine.ID) || strings.Count(page, `<a href="/s/%3Cb%3E%22mine`) != 2 {
		t.Errorf("the list lacks the run %s: %s", run.ID, page)
	}
	if strings.Contains(all, "Log out") {
		t.Error("a key cannot log out")
	}
	runsOnly, _ := w.key(t, "default", "runs:read")
	if page := get("X-API-Key", runsOnly); strings.Contains(page, "mine") || !strings.Contains(page, "runs alone") {
		t.Errorf("a key for runs sees %s", page)
	}
	if a := w.send(t, "e2b_"+strings.Repeat("0", 40), "GET", "/", nil); a.status != 401 {
		t.Errorf("a wrong key: %d", a.status)
	}
	if a := w.send(t, "", "GET", "/nothing", nil); a.status != 404 {
		t.Errorf("a path that is none: %d", a.status)
	}
}
