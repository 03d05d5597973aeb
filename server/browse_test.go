package server_test

import (
	"context"
	"encoding/json"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/skete-dev/skete/api"
	"github.com/skete-dev/skete/client"
	"github.com/skete-dev/skete/preview"
	"github.com/skete-dev/skete/sandbox"
	"github.com/skete-dev/skete/server"
	"github.com/skete-dev/skete/server/key"
	"github.com/skete-dev/skete/server/login"
)

const browserOrigin = "http://localhost:7733"

// browse gives a server logins and previews, as package serve does.
func browse(t *testing.T, dial func(ctx context.Context, tenant, id string, port uint16) (net.Conn, error)) func(*server.Config) {
	return func(c *server.Config) {
		records := c.Keys
		c.Ring = key.NewRing(c.Keys)
		c.Logins = login.New(login.Config{KV: records, Keys: c.Ring})
		if dial == nil {
			m := c.Sandboxes
			dial = func(ctx context.Context, tenant, id string, port uint16) (net.Conn, error) {
				return m.Dial(ctx, tenant, sandbox.ID(id), uint32(port))
			}
		}
		p, err := preview.Open(t.Context(), preview.Config{
			AppOrigin: browserOrigin, Grants: records, Owner: c.Logins.Good, Secret: key.Form, Dial: dial,
		})
		must(t, err)
		t.Cleanup(func() { _ = p.Close() })
		c.Previews = p
	}
}

// logIn shows a key as the page's form does.
func (w *world) logIn(t testing.TB, secret, next string, header ...string) answer {
	t.Helper()
	form := url.Values{"key": {secret}, "next": {next}}.Encode()
	if len(header) == 0 {
		header = []string{"Origin", w.base}
	}
	return w.send(t, "", http.MethodPost, "/login", strings.NewReader(form), append([]string{"Content-Type", "application/x-www-form-urlencoded"}, header...)...)
}

// cookie returns the Cookie header of a login that went well.
func (a answer) cookie(t testing.TB) string {
	t.Helper()
	c, err := http.ParseSetCookie(a.header.Get("Set-Cookie"))
	if err != nil || a.status != http.StatusSeeOther || c.Value == "" {
		t.Fatalf("not logged in: %d %v %s", a.status, err, a.body)
	}
	if c.Name != "__Host-sid" || !c.Secure || !c.HttpOnly || c.SameSite != http.SameSiteStrictMode || c.Domain != "" || c.Path != "/" {
		t.Errorf("the cookie is %s", a.header.Get("Set-Cookie"))
	}
	return c.Name + "=" + c.Value
}

func TestBrowserLogin(t *testing.T) {
	w := newWorld(t, browse(t, nil))
	secret, id := w.key(t, "other", "read", "write")
	in := w.logIn(t, secret, "/docs")
	cookie := in.cookie(t)
	if to := in.header.Get("Location"); to != "/docs" {
		t.Errorf("sent to %q", to)
	}
	var who api.Login
	a := w.send(t, "", "GET", "/v1/login", nil, "Cookie", cookie)
	if a.status != 200 {
		t.Fatalf("%d %s", a.status, a.body)
	}
	decode(t, a, &who)
	if who.By != "login" || who.Tenant != "other" || !slices.Equal(who.Scopes, []string{"read", "write"}) || !strings.HasPrefix(who.User, "usr_") {
		t.Errorf("%+v", who)
	}
	var by api.Login
	w.call(t, secret, "GET", "/v1/login", nil, 200, &by)
	if by.User != who.User || by.By != "key" {
		t.Errorf("by key %+v, by login %+v", by, who)
	}
	// A login has its key's tenant and rights, and no more.
	for _, tt := range []struct {
		method, path string
		want         int
	}{{"GET", "/v1/sandboxes", 200}, {"GET", "/v1/sandboxes/" + w.sandbox(), 404}, {"GET", "/v1/keys", 403}} {
		if a := w.send(t, "", tt.method, tt.path, nil, "Cookie", cookie); a.status != tt.want {
			t.Errorf("%s %s: %d %s", tt.method, tt.path, a.status, a.body)
		}
	}
	if page := w.send(t, "", "GET", "/login", nil, "Cookie", cookie); !strings.Contains(string(page.body), "Log out") {
		t.Errorf("%s", page.body)
	}
	again := w.logIn(t, secret, "", "Origin", w.base, "Cookie", cookie).cookie(t)
	if a := w.send(t, "", "GET", "/v1/login", nil, "Cookie", cookie); a.status != 401 {
		t.Errorf("a login that another one replaced: %d", a.status)
	}
	if a := w.send(t, "", "POST", "/logout", nil, "Cookie", again, "Origin", w.base); a.status != 303 {
		t.Errorf("logging out: %d", a.status)
	}
	if a := w.send(t, "", "GET", "/v1/login", nil, "Cookie", again); a.status != 401 {
		t.Errorf("after logging out: %d", a.status)
	}
	last := w.logIn(t, secret, "").cookie(t)
	w.call(t, w.admin, "DELETE", "/v1/keys/"+id, nil, 204, nil)
	if a := w.send(t, "", "GET", "/v1/login", nil, "Cookie", last); a.status != 401 {
		t.Errorf("after its key was revoked: %d", a.status)
	}
	if log := w.log.String(); strings.Contains(log, secret) || strings.Contains(log, strings.TrimPrefix(last, "__Host-sid=")) {
		t.Error("a secret is in the log")
	}
}

func TestLoginsAreForOurOwnPages(t *testing.T) {
	w := newWorld(t, browse(t, nil))
	cookie := w.logIn(t, w.admin, "").cookie(t)
	own := w.base
	for _, tt := range []struct {
		method, path string
		header       []string
		want         int
	}{
		{"POST", "/v1/keys", nil, 403},
		{"POST", "/v1/keys", []string{"Origin", "http://evil.example"}, 403},
		{"POST", "/v1/keys", []string{"Origin", "null"}, 403},
		{"POST", "/v1/keys", []string{"Origin", strings.Replace(own, "http", "https", 1)}, 403},
		{"POST", "/v1/keys", []string{"Origin", own, "Sec-Fetch-Site", "same-site"}, 403},
		{"POST", "/v1/keys", []string{"Origin", own, "Sec-Fetch-Site", "cross-site"}, 403},
		{"POST", "/v1/keys", []string{"Sec-Fetch-Site", "same-origin"}, 403},
		{"POST", "/v1/keys", []string{"Origin", own, "Sec-Fetch-Site", "same-origin"}, 400}, // the body is empty: it came in
		{"POST", "/v1/keys", []string{"Origin", own}, 400},
		{"DELETE", "/v1/sandboxes/" + w.sandbox(), nil, 403},
		{"GET", "/v1/keys", nil, 200},
		{"GET", "/v1/keys", []string{"Sec-Fetch-Site", "same-origin"}, 200},
		{"GET", "/v1/keys", []string{"Sec-Fetch-Site", "none"}, 200},
		{"GET", "/v1/keys", []string{"Sec-Fetch-Site", "same-site", "Sec-Fetch-Mode", "no-cors"}, 403},
		{"GET", "/v1/keys", []string{"Sec-Fetch-Site", "same-site", "Sec-Fetch-Mode", "navigate", "Sec-Fetch-Dest", "iframe"}, 403},
		{"GET", "/v1/keys", []string{"Sec-Fetch-Site", "same-site", "Sec-Fetch-Mode", "navigate", "Sec-Fetch-Dest", "document"}, 200},
		{"GET", "/v1/keys", []string{"Origin", "http://evil.example"}, 403},
		{"GET", "/v1/follow", []string{"Upgrade", "websocket", "Connection", "Upgrade"}, 403},
		{"GET", "/v1/follow", []string{"Upgrade", "websocket", "Connection", "Upgrade", "Origin", "http://evil.example"}, 403},
		{"GET", "/v1/keys", []string{"Cookie", cookie + "; " + cookie}, 401},
		{"GET", "/v1/keys", []string{"Cookie", cookie + "x"}, 401},
		{"GET", "/v1/keys", []string{"Cookie", "__Host-sid=" + strings.Repeat("A", 26)}, 401},
		{"GET", "/v1/keys", []string{"Cookie", "__Host-sid="}, 401},
	} {
		header := append([]string{"Cookie", cookie}, tt.header...)
		if a := w.send(t, "", tt.method, tt.path, nil, header...); a.status != tt.want {
			t.Errorf("%s %s %v: %d %s", tt.method, tt.path, tt.header, a.status, a.body)
		}
	}
}

func TestBadLogins(t *testing.T) {
	w := newWorld(t, browse(t, nil), func(c *server.Config) { c.Limits.WrongKeysMax = 3 })
	wrong := "e2b_" + strings.Repeat("0", 40)
	for name, tt := range map[string]struct {
		a    answer
		want int
	}{
		"no origin":       {w.logIn(t, w.admin, "", "X", "y"), 403},
		"another origin":  {w.logIn(t, w.admin, "", "Origin", "http://evil.example"), 403},
		"elsewhere":       {w.logIn(t, w.admin, "//evil.example"), 400},
		"elsewhere again": {w.logIn(t, w.admin, "/\\evil.example"), 400},
		"a script":        {w.logIn(t, w.admin, "javascript:alert(1)"), 400},
		"a wrong key":     {w.logIn(t, wrong, ""), 401},
		"no key":          {w.logIn(t, "", ""), 401},
		"JSON":            {w.send(t, "", "POST", "/login", `{"key":"x"}`, "Origin", w.base), 415},
		"too much":        {w.logIn(t, strings.Repeat("x", 32<<10), ""), 413},
		"logout, foreign": {w.send(t, "", "POST", "/logout", nil), 403},
		"a strange next":  {w.send(t, "", "GET", "/login?next=//evil", nil), 400},
		"unknown query":   {w.send(t, "", "GET", "/login?x=1", nil), 400},
	} {
		if tt.a.status != tt.want || tt.a.header.Get("Set-Cookie") != "" {
			t.Errorf("%s: %d %s", name, tt.a.status, tt.a.header.Get("Set-Cookie"))
		}
	}
	for range 3 {
		w.logIn(t, wrong, "")
	}
	if a := w.logIn(t, wrong, ""); a.status != 429 {
		t.Errorf("after many wrong keys: %d", a.status)
	}
	w.logIn(t, w.admin, "").cookie(t) // a right one still passes
	page := w.send(t, "", "GET", "/login?next=/a%22%3E%3Cscript%3E", nil)
	if strings.Contains(string(page.body), "<script>") || !strings.Contains(page.header.Get("Content-Security-Policy"), "frame-ancestors 'none'") {
		t.Errorf("%v %s", page.header, page.body)
	}
}

// The way into a preview through the API, the client, and a browser that lost
// its visit; and what ends it.
func TestPreviewsOfASandbox(t *testing.T) {
	app, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	inner := &http.Server{Handler: http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		rw.Header().Set("X-Seen-User", r.Header.Get("X-User-Id"))
		rw.Header().Set("X-Seen-Cookie", r.Header.Get("Cookie"))
	})}
	go func() { _ = inner.Serve(app) }()
	t.Cleanup(func() { _ = inner.Close() })
	w := newWorld(t, browse(t, func(ctx context.Context, _, _ string, _ uint16) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "tcp", app.Addr().String())
	}))
	base := "/v1/sandboxes/" + w.sandbox() + "/previews"
	cookie := w.logIn(t, w.admin, "").cookie(t)
	var who api.Login
	decode(t, w.send(t, "", "GET", "/v1/login", nil, "Cookie", cookie), &who)

	a := w.send(t, "", "POST", base, api.CreatePreview{Port: 5173, Path: "/x"}, "Cookie", cookie, "Origin", w.base)
	var p api.Preview
	decode(t, a, &p)
	if a.status != 201 || p.Public || p.ID != "" || p.Sandbox != w.sandbox() || !strings.HasPrefix(p.URL, p.Address+".skete/enter?code=") {
		t.Fatalf("%d %+v", a.status, p)
	}
	u, err := url.Parse(p.URL)
	must(t, err)
	enter := w.send(t, "", "GET", u.RequestURI(), nil, "Host", u.Host)
	visit, err := http.ParseSetCookie(enter.header.Get("Set-Cookie"))
	must(t, err)
	see := func() answer {
		return w.send(t, "", "GET", "/", nil, "Host", u.Host, "Cookie", visit.Name+"="+visit.Value+"; "+cookie+"; own=1")
	}
	if a := see(); a.status != 200 || a.header.Get("X-Seen-User") != who.User || a.header.Get("X-Seen-Cookie") != "own=1" {
		t.Errorf("%d %v", a.status, a.header)
	}

	// A browser that is logged in and was not let in.
	label, _, _ := strings.Cut(u.Host, ".")
	first := w.send(t, "", "GET", "/preview/"+label+"?to=/deep", nil)
	if !strings.Contains(string(first.body), `url=/preview/`+label+`?again=1&amp;to=%2Fdeep`) {
		t.Errorf("%d %s", first.status, first.body)
	}
	if a := w.send(t, "", "GET", "/preview/"+label+"?to=/deep&again=1", nil); !strings.Contains(string(a.body), "url=/login?next=%2Fpreview%2F"+label) {
		t.Errorf("%d %s", a.status, a.body)
	}
	if a := w.send(t, "", "GET", "/preview/"+label+"?to=/deep", nil, "Cookie", cookie); !strings.Contains(string(a.body), "url="+p.Address+".skete/enter?code=") {
		t.Errorf("%d %s", a.status, a.body)
	}
	for path, want := range map[string]int{"/preview/x": 400, "/preview/" + label + "?to=//evil": 400, "/preview/5173-aaaaaaaaaaaaaaaaaaaa": 404} {
		if a := w.send(t, "", "GET", path, nil, "Cookie", cookie); a.status != want {
			t.Errorf("%s: %d", path, a.status)
		}
	}

	c, err := client.New(client.Config{URL: w.base, Key: w.admin})
	must(t, err)
	t.Cleanup(c.Close)
	previews := c.Sandbox(w.sandbox()).Previews()
	link, err := previews.Open(t.Context(), api.CreatePreview{Port: 5173, Public: true, Name: "for Bob", TTLMS: 3600_000})
	must(t, err)
	if link.Listens == nil { // it is of the moment, and not of the link
		t.Error("it was not looked whether something listens")
	}
	link.Listens = nil
	list, err := previews.Links(t.Context())
	must(t, err)
	if len(list) != 1 || list[0] != link || link.CreatedBy != who.User || !link.Public || link.ID == "" {
		t.Errorf("%+v\n%+v", list, link)
	}
	lu, err := url.Parse(link.URL)
	must(t, err)
	if a := w.send(t, "", "GET", lu.RequestURI(), nil, "Host", lu.Host, "Sec-Fetch-Mode", "navigate"); a.status != 303 {
		t.Errorf("by the link: %d", a.status)
	}
	must(t, previews.Revoke(t.Context(), link.ID))
	if a := w.send(t, "", "GET", lu.RequestURI(), nil, "Host", lu.Host); a.status != 403 {
		t.Errorf("by a link that was taken back: %d", a.status)
	}

	stranger, _ := w.key(t, "other")
	for _, method := range []string{"GET", "POST"} {
		var body any
		if method == "POST" {
			body = api.CreatePreview{Port: 5173}
		}
		if a := w.send(t, stranger, method, base, body); a.status != 404 {
			t.Errorf("another tenant's %s: %d", method, a.status)
		}
	}
	reader, _ := w.key(t, "default", "read")
	if a := w.send(t, reader, "POST", base, api.CreatePreview{Port: 5173}); a.status != 403 {
		t.Errorf("who may only read gets in: %d", a.status)
	}
	if a := w.send(t, "", "POST", "/logout", nil, "Cookie", cookie, "Origin", w.base); a.status != 303 {
		t.Error(a.status)
	}
	if a := see(); a.status != 401 {
		t.Errorf("the visit of a login that ended: %d", a.status)
	}
}

func decode(t testing.TB, a answer, into any) {
	t.Helper()
	must(t, json.Unmarshal(a.body, into))
}

func TestServerWithoutPreviews(t *testing.T) {
	w := newWorld(t)
	w.send(t, w.admin, "POST", "/v1/sandboxes/"+w.sandbox()+"/previews", api.CreatePreview{Port: 80}).problem(t, 501)
	if a := w.send(t, "", "GET", "/v1/keys", nil, "Cookie", "__Host-sid="+strings.Repeat("A", 26)); a.status != 401 {
		t.Errorf("%d", a.status)
	}
}

// A page of another origin opens no socket with a person's login: not that of a preview,
// which is a sibling of ours on the same machine, nor one that differs in its scheme or
// port alone. A program that shows a key says no origin.
func TestSocketsAreForOurOwnPages(t *testing.T) {
	w := newWorld(t, browse(t, nil))
	cookie := w.logIn(t, w.admin, "").cookie(t)
	var p api.Preview
	w.call(t, w.admin, "POST", "/v1/sandboxes/"+w.sandbox()+"/previews", api.CreatePreview{Port: 5173}, 201, &p)
	preview, err := url.Parse(p.Address)
	must(t, err)
	_, port, err := net.SplitHostPort(strings.TrimPrefix(w.base, "http://"))
	must(t, err)
	upgrade := []string{"Upgrade", "websocket", "Connection", "Upgrade", "Sec-WebSocket-Version", "13", "Sec-WebSocket-Key", "dGhlIHNhbXBsZSBub25jZQ=="}
	login, byKey := []string{"Cookie", cookie}, []string{"X-API-Key", w.admin}
	for _, path := range []string{"/v1/follow", "/v1/sandboxes/" + w.sandbox() + "/exec"} {
		for name, tt := range map[string]struct {
			who    []string
			header []string
			want   int
		}{
			"our page":                  {login, []string{"Origin", w.base}, 101},
			"our page, says so twice":   {login, []string{"Origin", w.base, "Sec-Fetch-Site", "same-origin"}, 101},
			"no origin":                 {login, nil, 403},
			"no origin, but the site":   {login, []string{"Sec-Fetch-Site", "same-origin"}, 403},
			"foreign":                   {login, []string{"Origin", "https://evil.example"}, 403},
			"a preview":                 {login, []string{"Origin", preview.Scheme + "://" + preview.Host}, 403},
			"a preview, same site":      {login, []string{"Origin", preview.Scheme + "://" + preview.Host, "Sec-Fetch-Site", "same-site"}, 403},
			"a preview of our port":     {login, []string{"Origin", "http://" + preview.Hostname() + ":" + port}, 403},
			"a name beneath localhost":  {login, []string{"Origin", "http://3000-sbx.localhost:" + port}, 403},
			"another port":              {login, []string{"Origin", "http://127.0.0.1:1"}, 403},
			"another scheme":            {login, []string{"Origin", strings.Replace(w.base, "http", "https", 1)}, 403},
			"ours, and more":            {login, []string{"Origin", w.base + ".evil.example"}, 403},
			"opaque":                    {login, []string{"Origin", "null"}, 403},
			"our origin, another site":  {login, []string{"Origin", w.base, "Sec-Fetch-Site", "same-site"}, 403},
			"a key of no page":          {byKey, nil, 101},
			"a key in a foreign page":   {byKey, []string{"Origin", "https://evil.example"}, 403},
			"a key in a preview's page": {byKey, []string{"Origin", preview.Scheme + "://" + preview.Host}, 403},
		} {
			if got := w.upgrade(t, path, append(append(slices.Clone(upgrade), tt.who...), tt.header...)); got != tt.want {
				t.Errorf("%s %s: %d, want %d", path, name, got, tt.want)
			}
		}
	}
}

// upgrade asks for a WebSocket and returns the status of the answer.
func (w *world) upgrade(t *testing.T, path string, header []string) int {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, w.base+path, nil)
	must(t, err)
	for i := 0; i < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	res, err := httpClient(t).Do(req)
	must(t, err)
	must(t, res.Body.Close())
	return res.StatusCode
}
