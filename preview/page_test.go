package preview

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/skete-dev/skete/errs"
)

// What an app, a guest or an address says is text on our page, wherever it stands.
func TestPageEscapes(t *testing.T) {
	const hostile = `"'><script>alert(1)</script>&`
	got := pageData{Title: hostile, Text: hostile, Hint: hostile, Up: "</script>" + hostile, SignIn: hostile, Nonce: "n", Wait: true}.html()
	if n := strings.Count(got, "<script"); n != 1 || strings.Count(got, "</script>") != 1 || strings.Contains(got, `"'>`) {
		t.Errorf("%d scripts: %s", n, got)
	}
}

// Cookies are cleared for a whole registrable domain: the app's login among them.
func TestClearSiteDataStaysWithinADomainOfItsOwn(t *testing.T) {
	for _, c := range []struct {
		domain, app string
		want        bool
	}{
		{"localhost", "http://localhost:7733", false},
		{"example.net", "http://example.net", false},
		{"example.net", "http://app.example.net", false},
		{"previews.example.net", "http://app.example.net", false},
		{"example.co.uk", "http://other.co.uk", false}, // not known to be registrable
		{"example-previews.net", "http://app.example.net", true},
	} {
		w := newWorld(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Clear-Site-Data", `"cookies"`)
		}), func(cfg *Config) { cfg.Domain, cfg.AppOrigin = c.domain, c.app })
		res := w.ask(t, "GET", w.URL(box), "Cookie", w.visit(t, alice, box))
		if got := res.Header.Get("Clear-Site-Data") != ""; got != c.want {
			t.Errorf("%s, app %s: %t", c.domain, c.app, got)
		}
	}
}

// A tenant that holds all that it may leaves the others theirs.
func TestStreamsAreBoundedPerTenant(t *testing.T) {
	a := active{all: map[*stay]bool{}, perBox: map[string]int{}, tenant: map[string]int{}, max: 10, tenantMax: 2, boxMax: 10}
	of := func(tenant, box string) *stay {
		return &stay{visitor: Visitor{Tenant: tenant}, target: Target{Sandbox: box}, cancel: func() {}}
	}
	first := of("a", "1")
	for _, s := range []*stay{first, of("a", "2")} {
		must(t, a.add(s))
	}
	if err := a.add(of("a", "3")); !errs.Is(err, errs.Limit) {
		t.Errorf("a third stream of a tenant that may have two: %v", err)
	}
	must(t, a.add(of("b", "4")))
	a.remove(first)
	must(t, a.add(of("a", "3")))
}

// curl, with a cookie jar and without one, gets what a browser gets.
func TestPublicLinkOverPlainHTTPForPrograms(t *testing.T) {
	w := newWorld(t, http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		fmt.Fprintf(rw, "%s %s", r.RequestURI, r.Header.Get("Cookie"))
	}))
	link, err := w.Share(t.Context(), alice, box, ShareRequest{})
	must(t, err)
	at := w.LinkURL(link)
	for in, want := range map[string]string{at: "/ ", at + "?to=%2Fa%3Fb%3D1": "/a?b=1 "} {
		if res := w.ask(t, "GET", in); res.StatusCode != 200 || text(t, res) != want {
			t.Errorf("%s: %d, want %q", in, res.StatusCode, want)
		}
	}
	var kept []string // what curl keeps over plain http
	for _, c := range w.ask(t, "GET", at).Cookies() {
		if !c.Secure {
			kept = append(kept, c.Name+"="+c.Value)
		}
	}
	if res := w.ask(t, "GET", w.URL(box)+"next", "Cookie", strings.Join(kept, "; ")+"; own=1"); res.StatusCode != 200 || text(t, res) != "/next own=1" {
		t.Errorf("with %v: %d", kept, res.StatusCode)
	}
	if res := w.ask(t, "GET", at, "Sec-Fetch-Mode", "navigate"); res.StatusCode != 303 {
		t.Errorf("a browser: %d", res.StatusCode)
	}
	visit := strings.TrimPrefix(w.visit(t, alice, box), cookieName+"=")
	if res := w.ask(t, "GET", w.URL(box), "Cookie", plainCookieName+"="+visit); res.StatusCode != 401 {
		t.Errorf("a visit in the cookie of links: %d", res.StatusCode)
	}
}
