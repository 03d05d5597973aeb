package login

import (
	"context"
	"io"
	"log/slog"
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
	"github.com/skete-dev/skete/server/route"
)

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

var alice = auth.Identity{Tenant: "acme", Owner: "usr_alice", User: "usr_alice", Scopes: key.Scopes{key.Read}}

func newDesk() (*Store, *kvtest.Memory) {
	kv := kvtest.NewMemory()
	return New(Config{KV: kv, Keys: key.NewRing(kv)}), kv
}

func TestLifeOfALogin(t *testing.T) {
	d, kv := newDesk()
	now := time.Now()
	d.now = func() time.Time { return now }
	c, err := d.Start(t.Context(), alice)
	must(t, err)
	id, err := d.Find(t.Context(), c.Value)
	must(t, err)
	if id.Tenant != "acme" || id.User != "usr_alice" || !id.Scopes.Allow(key.Read) || id.Scopes.Allow(key.Write) || !strings.HasPrefix(id.Login, "lgn_") {
		t.Errorf("%+v", id)
	}
	must(t, d.Good(t.Context(), id.Login))
	must(t, d.Good(t.Context(), "local"))
	must(t, kv.List(t.Context(), "", func(k string, v []byte, _ uint64) error {
		if strings.Contains(k+string(v), c.Value) {
			t.Errorf("the cookie is stored in clear: %s %s", k, v)
		}
		return nil
	}))
	for _, bad := range []string{"", "x", strings.ToLower(c.Value), c.Value + "A", c.Value[:25], strings.Repeat("A", 26), strings.Repeat("A", 1<<16), c.Value[:25] + "/"} {
		if _, err := d.Find(t.Context(), bad); !errs.Is(err, errs.Denied) {
			t.Errorf("%.30q: %v", bad, err)
		}
	}
	for _, owner := range []string{"", "lgn_x", "key_00000000000000000000", "usr_alice", "LOCAL"} {
		if err := d.Good(t.Context(), owner); !errs.Is(err, errs.Denied) {
			t.Errorf("owner %q: %v", owner, err)
		}
	}
	must(t, d.Sweep(t.Context()))
	must(t, d.Good(t.Context(), id.Login))
	now = now.Add(Lasts)
	if _, err := d.Find(t.Context(), c.Value); !errs.Is(err, errs.Denied) {
		t.Errorf("after %s: %v", Lasts, err)
	}
	must(t, d.Sweep(t.Context()))
	must(t, kv.List(t.Context(), "", func(k string, _ []byte, _ uint64) error {
		t.Errorf("left is %s", k)
		return nil
	}))
	must(t, d.End(t.Context(), c.Value))
}

// A record whose id fits but whose hash does not lets no browser in; a damaged
// one is an error of the store.
func TestDamagedRecords(t *testing.T) {
	d, kv := newDesk()
	c, err := d.Start(t.Context(), alice)
	must(t, err)
	k := prefix + idOf(hashOf(c.Value))
	data, rev, err := kv.Get(t.Context(), k)
	must(t, err)
	rev, err = kv.Update(t.Context(), k, []byte(strings.Replace(string(data), hashOf(c.Value)[20:], strings.Repeat("0", 44), 1)), rev)
	must(t, err)
	if _, err := d.Find(t.Context(), c.Value); !errs.Is(err, errs.Denied) {
		t.Errorf("a foreign hash: %v", err)
	}
	_, err = kv.Update(t.Context(), k, []byte("{"), rev)
	must(t, err)
	if _, err := d.Find(t.Context(), c.Value); !errs.Is(err, errs.Corrupt) {
		t.Errorf("a damaged record: %v", err)
	}
}

func TestNext(t *testing.T) {
	for _, s := range []string{"/", "/s/sbx_x?a=b#c", "/preview/x?to=%2F"} {
		if got, err := Next(s); err != nil || got != s {
			t.Errorf("%q: %q, %v", s, got, err)
		}
	}
	for _, s := range []string{"x", "//evil", "/\\evil", "http://evil/", "javascript:alert(1)", "/a\r\nSet-Cookie: x", "/ ", "/é", "/%zz", "?x", strings.Repeat("/a", 4096)} {
		if got, err := Next(s); err == nil {
			t.Errorf("%.40q was taken: %q", s, got)
		}
	}
}

func FuzzNext(f *testing.F) {
	for _, s := range []string{"/", "//x", "/\\x", "/a?b#c", "http:x"} {
		f.Add(s)
	}
	base, _ := url.Parse("https://skete.example/login")
	f.Fuzz(func(t *testing.T, s string) {
		got, err := Next(s)
		if err != nil {
			return
		}
		if u, err := base.Parse(got); err != nil || u.Host != base.Host || u.Scheme != base.Scheme || strings.HasPrefix(got, "//") {
			t.Errorf("%q leads to %v, %v", s, u, err)
		}
	})
}

// issuer lets in who comes back with the right words.
type issuer struct{}

func (issuer) Name() string { return "Example" }

func (issuer) Begin(context.Context) (string, string, error) {
	return "https://id.example/?state=s", "s.n.v", nil
}

func (issuer) Finish(_ context.Context, q url.Values, keep string) (auth.Identity, error) {
	if q.Get("state") != "s" || keep != "s.n.v" {
		return auth.Identity{}, errs.New(errs.Denied, "no")
	}
	return alice, nil
}

func TestLoginByAnIssuer(t *testing.T) {
	d, _ := newDesk()
	g := auth.New(auth.Config{Keys: d.keys, Logins: d})
	table := route.New(route.Config{Gate: g, Log: slog.New(slog.DiscardHandler), Observe: func(string, int, time.Duration) {}})
	Register(table, PagesConfig{Store: d, Gate: g, Issuer: issuer{}})
	s := httptest.NewServer(table.Handler())
	t.Cleanup(s.Close)
	get := func(path, cookie string) (*http.Response, string) {
		req, err := http.NewRequestWithContext(t.Context(), "GET", s.URL+path, nil)
		must(t, err)
		if cookie != "" {
			req.Header.Set("Cookie", cookie)
		}
		c := http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
		res, err := c.Do(req)
		must(t, err)
		defer res.Body.Close()
		body, err := io.ReadAll(res.Body)
		must(t, err)
		return res, string(body)
	}
	if _, body := get("/login?next=/s/x", ""); !strings.Contains(body, `href="/login/away?next=%2Fs%2Fx">Log in with Example`) {
		t.Error(body)
	}
	res, _ := get("/login/away?next=/s/x", "")
	if res.StatusCode != 303 || res.Header.Get("Location") != "https://id.example/?state=s" || len(res.Cookies()) != 1 {
		t.Fatalf("%d %v", res.StatusCode, res.Header)
	}
	c := res.Cookies()[0]
	if !strings.HasPrefix(c.Name, "__Host-sid") || !c.Secure || !c.HttpOnly || c.SameSite != http.SameSiteLaxMode {
		t.Errorf("%s", c)
	}
	keep := c.Name + "=" + c.Value
	res, body := get("/login/back?state=s&code=x", keep)
	if res.StatusCode != 200 || !strings.Contains(body, `content="0;url=/s/x"`) {
		t.Errorf("%d %s", res.StatusCode, body)
	}
	value := ""
	for _, c := range res.Cookies() {
		if c.Name == auth.LoginCookie {
			value = c.Value
		}
	}
	if id, err := d.Find(t.Context(), value); err != nil || id.User != "usr_alice" {
		t.Errorf("%+v, %v", id, err)
	}
	for name, tt := range map[string]struct{ query, cookie string }{
		"no cookie": {"?state=s", ""}, "another state": {"?state=x", keep}, "two cookies": {"?state=s", keep + "; " + keep},
		"elsewhere": {"?state=s", c.Name + "=s.n.v~%2F%2Fevil.example"}, "a broken next": {"?state=s", c.Name + "=s.n.v~%zz"},
	} {
		res, body := get("/login/back"+tt.query, tt.cookie)
		if res.StatusCode != 403 || strings.Contains(body, "evil.example") {
			t.Errorf("%s: %d", name, res.StatusCode)
		}
		for _, c := range res.Cookies() {
			if c.Name == auth.LoginCookie {
				t.Errorf("%s: let in", name)
			}
		}
	}
	http.DefaultTransport.(*http.Transport).CloseIdleConnections()
}
