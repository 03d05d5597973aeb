package login

import (
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/kv/kvtest"
	"github.com/skete-dev/skete/server/auth"
	"github.com/skete-dev/skete/server/key"
)

// A code logs one browser in, once and for a time, as its maker and with no other rights.
func TestCodes(t *testing.T) {
	d, kv := newDesk()
	now := time.Now()
	d.now = func() time.Time { return now }
	code, expires, err := d.Invite(t.Context(), alice)
	must(t, err)
	if !expires.Equal(now.Add(codeLasts).UTC()) {
		t.Errorf("it ends at %s", expires)
	}
	must(t, kv.List(t.Context(), "", func(k string, v []byte, _ uint64) error {
		if strings.Contains(k+string(v), code) {
			t.Errorf("the code is stored in clear: %s %s", k, v)
		}
		return nil
	}))
	for range 2 { // a look takes nothing away
		id, err := d.Invited(t.Context(), code, false)
		must(t, err)
		if id.User != alice.User || id.Tenant != alice.Tenant || id.Scopes.Allow(key.Write) {
			t.Errorf("%+v", id)
		}
	}
	_, err = d.Invited(t.Context(), code, true)
	must(t, err)
	other, _, err := d.Invite(t.Context(), alice)
	must(t, err)
	for _, bad := range []string{"", "x", code, strings.ToLower(other), other + "A", other[:25] + "/", strings.Repeat("A", 26), strings.Repeat("A", 1<<16)} {
		for _, take := range []bool{false, true} {
			if _, err := d.Invited(t.Context(), bad, take); !errs.Is(err, errs.Denied) {
				t.Errorf("%.30q: %v", bad, err)
			}
		}
	}
	now = now.Add(codeLasts)
	if _, err := d.Invited(t.Context(), other, true); !errs.Is(err, errs.Denied) {
		t.Errorf("after %s: %v", codeLasts, err)
	}
	must(t, d.Sweep(t.Context()))
	must(t, kv.List(t.Context(), "", func(k string, _ []byte, _ uint64) error {
		t.Errorf("left is %s", k)
		return nil
	}))
	browser := alice
	browser.Login = "lgn_x"
	if _, _, err := d.Invite(t.Context(), browser); !errs.Is(err, errs.Denied) {
		t.Errorf("by a browser: %v", err)
	}
}

// The local socket's user has a name that people know, in the browser too.
func TestCodesOfTheLocalSocket(t *testing.T) {
	kv := kvtest.NewMemory()
	d := New(Config{KV: kv, Keys: key.NewRing(kv)})
	local := auth.Identity{Tenant: key.DefaultTenant, Owner: "local", User: auth.UserOf(key.DefaultTenant, "local"), Scopes: key.Scopes{key.Admin}, Local: true}
	code, _, err := d.Invite(t.Context(), local)
	must(t, err)
	id, err := d.Invited(t.Context(), code, true)
	must(t, err)
	if id.Who() != "local" {
		t.Errorf("the code is for %q", id.Who())
	}
	cookie, err := d.Start(t.Context(), id)
	must(t, err)
	id, err = d.Find(t.Context(), cookie.Value)
	must(t, err)
	if id.Who() != "local" || id.Owner != local.User || id.Local {
		t.Errorf("the browser is %+v", id)
	}
}

// The address asks first; the button's request, from our own page, logs in.
func TestCodesInABrowser(t *testing.T) {
	kv := kvtest.NewMemory()
	d := New(Config{KV: kv, Keys: key.NewRing(kv)})
	p := pages{PagesConfig{Store: d, Gate: auth.New(auth.Config{Keys: d.keys, Logins: d})}}
	code, _, err := d.Invite(t.Context(), alice)
	must(t, err)
	show := httptest.NewRecorder()
	p.show(show, httptest.NewRequest(http.MethodGet, "/login?next=/runs&code="+code, nil))
	if body := show.Body.String(); show.Code != 200 || !strings.Contains(body, "usr_alice") || !strings.Contains(body, `value="/runs"`) || len(show.Result().Cookies()) != 0 {
		t.Fatalf("%d %s", show.Code, body)
	}
	post := func(code, origin string) *httptest.ResponseRecorder {
		r := httptest.NewRequest(http.MethodPost, "http://skete.example/login", strings.NewReader(url.Values{"code": {code}, "next": {"/runs"}}.Encode()))
		r.Header.Set("Content-Type", form)
		r.Header.Set("Origin", origin)
		w := httptest.NewRecorder()
		if err := p.logIn(w, r, nil); err != nil {
			w.Code = http.StatusForbidden
		}
		return w
	}
	if w := post(code, "http://evil.example"); w.Code != http.StatusForbidden || len(w.Result().Cookies()) != 0 {
		t.Errorf("from elsewhere: %d", w.Code)
	}
	in := post(code, "http://skete.example")
	if in.Code != http.StatusSeeOther || in.Header().Get("Location") != "/runs" || len(in.Result().Cookies()) != 1 {
		t.Fatalf("%d %v", in.Code, in.Header())
	}
	if id, err := d.Find(t.Context(), in.Result().Cookies()[0].Value); err != nil || id.User != "usr_alice" {
		t.Errorf("%+v %v", id, err)
	}
	if again := post(code, "http://skete.example"); again.Code != http.StatusForbidden || len(again.Result().Cookies()) != 0 || !strings.Contains(again.Body.String(), "skete ui") && !strings.Contains(again.Body.String(), "once") {
		t.Errorf("used twice: %d %s", again.Code, again.Body)
	}
}
