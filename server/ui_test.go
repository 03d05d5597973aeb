package server_test

import (
	"net/http"
	"strings"
	"testing"
)

// The address alone leads somewhere: to the login, then to the page, which is the same for all.
func TestUI(t *testing.T) {
	w := newWorld(t, browse(t, nil))
	for path, next := range map[string]string{"/": "%2F", "/runs/run_1?at=3&pane=files": "%2Fruns%2Frun_1%3Fat%3D3%26pane%3Dfiles"} {
		if a := w.send(t, "", "GET", path, nil); a.status != http.StatusSeeOther || a.header.Get("Location") != "/login?next="+next {
			t.Fatalf("%s without a login: %d %v", path, a.status, a.header)
		}
	}
	person := w.send(t, "", "GET", "/runs?x=1", nil, "Sec-Fetch-Mode", "navigate")
	if to := person.header.Get("Location"); person.status != http.StatusSeeOther || to != strings.Replace(w.base, "127.0.0.1", "localhost", 1)+"/runs?x=1" {
		t.Errorf("a person at the address is led to %q", to)
	}
	secret, _ := w.key(t, "other", "read", "write")
	in := w.logIn(t, secret, "")
	if to := in.header.Get("Location"); to != "/" {
		t.Errorf("a login leads to %q", to)
	}
	cookie := in.cookie(t)
	page := w.send(t, "", "GET", "/vms/x/terminal", nil, "Cookie", cookie)
	policy := page.header.Get("Content-Security-Policy")
	_, rest, _ := strings.Cut(policy, "style-src 'self' 'nonce-")
	nonce, _, _ := strings.Cut(rest, "'")
	if page.status != 200 || len(nonce) < 20 || page.header.Get("Cache-Control") != "no-store" || !strings.Contains(string(page.body), nonce) {
		t.Fatalf("%d %v %s", page.status, page.header, page.body)
	}
	for _, part := range []string{"default-src 'none'", "script-src 'self';", "frame-ancestors 'none'", "require-trusted-types-for 'script'"} {
		if !strings.Contains(policy, part) {
			t.Errorf("the policy lacks %s: %s", part, policy)
		}
	}
	again := w.send(t, "", "GET", "/", nil, "Cookie", cookie)
	if strings.Contains(string(again.body), nonce) {
		t.Error("a nonce is used twice")
	}
	for _, secretText := range []string{"other", "SKETE-"} {
		if strings.Contains(string(page.body), secretText) {
			t.Errorf("the page has %q: %s", secretText, page.body)
		}
	}
	for part := range strings.SplitSeq(string(page.body), `"`) {
		if !strings.HasPrefix(part, "/ui/") {
			continue
		}
		plain := w.send(t, "", "GET", part, nil)
		packed := w.send(t, "", "GET", part, nil, "Accept-Encoding", "br, gzip")
		if plain.status != 200 || packed.status != 200 || len(plain.body) == 0 || plain.header.Get("X-Content-Type-Options") != "nosniff" {
			t.Errorf("%s: %d %d %v", part, plain.status, packed.status, plain.header)
		}
		if kept := strings.Contains(plain.header.Get("Cache-Control"), "immutable"); kept != strings.Contains(part, "/assets/") {
			t.Errorf("%s: %s", part, plain.header.Get("Cache-Control"))
		}
	}
	if a := w.send(t, "e2b_"+strings.Repeat("0", 40), "GET", "/v1/runs", nil); a.status != 401 {
		t.Errorf("a wrong key: %d", a.status)
	}
	for _, path := range []string{"/nothing", "/ui/", "/ui/index.html", "/ui/assets", "/ui/..%2fdoc.go", "/ui/first.js.gz"} {
		if a := w.send(t, "", "GET", path, nil); a.status != 404 {
			t.Errorf("%s: %d", path, a.status)
		}
	}
}
