package preview

import (
	"bufio"
	"context"
	"crypto/ed25519"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/internal/patience"
	"github.com/skete-dev/skete/kv/kvtest"
)

const appOrigin = "http://localhost:7733"

var (
	box   = Target{Sandbox: "sbx_" + boxID, Port: 5173}
	alice = Visitor{Tenant: "default", User: "usr_alice", Owner: "key_alice"}
)

// world is previews over one app, which tests take away and bring back.
type world struct {
	*Previews
	kv      *kvtest.Memory
	app     atomic.Pointer[net.TCPAddr] // nil = nothing listens
	dialled atomic.Int64
	revoked atomic.Pointer[string] // an owner who is no more
	front   *httptest.Server
}

func newWorld(t *testing.T, h http.Handler, change ...func(*Config)) *world {
	t.Helper()
	w := &world{kv: kvtest.NewMemory()}
	c := Config{
		AppOrigin: appOrigin, Grants: w.kv,
		Dial: func(ctx context.Context, tenant, id string, port uint16) (net.Conn, error) {
			if tenant != "default" || id != box.Sandbox || port != box.Port {
				return nil, errs.New(errs.NotFound, "nothing there")
			}
			w.dialled.Add(1)
			addr := w.app.Load()
			if addr == nil {
				return nil, errs.New(errs.Unavailable, "nothing listens on port %d", port)
			}
			return (&net.Dialer{}).DialContext(ctx, "tcp", addr.String())
		},
		Owner: func(_ context.Context, owner string) error {
			if r := w.revoked.Load(); r != nil && *r == owner {
				return errs.New(errs.Denied, "revoked")
			}
			return nil
		},
		Secret: func(s string) bool { return strings.HasPrefix(s, "e2b_") },
	}
	for _, f := range change {
		f(&c)
	}
	var err error
	w.Previews, err = Open(t.Context(), c)
	must(t, err)
	t.Cleanup(func() { must(t, w.Close()) })
	if h != nil {
		w.start(t, h)
	}
	w.front = httptest.NewServer(w.Previews)
	t.Cleanup(w.front.Close)
	return w
}

// start runs an app; the returned function kills it.
func (w *world) start(t *testing.T, h http.Handler) func() {
	s := httptest.NewServer(h)
	w.app.Store(s.Listener.Addr().(*net.TCPAddr))
	stop := sync.OnceFunc(func() {
		w.app.Store(nil)
		s.CloseClientConnections()
		s.Close()
	})
	t.Cleanup(stop)
	return stop
}

// ask sends a request to a target's host without following redirects.
func (w *world) ask(t testing.TB, method, url string, header ...string) *http.Response {
	t.Helper()
	host, rest, _ := strings.Cut(strings.TrimPrefix(url, "http://"), "/")
	req, err := http.NewRequestWithContext(t.Context(), method, w.front.URL+"/"+rest, nil)
	must(t, err)
	req.Host = host
	for i := 0; i < len(header); i += 2 {
		req.Header.Add(header[i], header[i+1])
	}
	c := http.Client{Transport: &http.Transport{DisableKeepAlives: true}, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	res, err := c.Do(req)
	must(t, err)
	body, err := io.ReadAll(res.Body)
	must(t, err)
	_ = res.Body.Close()
	res.Body = io.NopCloser(strings.NewReader(string(body)))
	return res
}

func text(t testing.TB, res *http.Response) string {
	t.Helper()
	b, err := io.ReadAll(res.Body)
	must(t, err)
	return string(b)
}

// visit lets v in and returns the Cookie header of the visit.
func (w *world) visit(t testing.TB, v Visitor, target Target) string {
	t.Helper()
	url, _, err := w.Invite(t.Context(), v, target, "")
	must(t, err)
	return cookieOf(t, w.ask(t, "GET", url, "Sec-Fetch-Mode", "navigate"))
}

func cookieOf(t testing.TB, res *http.Response) string {
	t.Helper()
	if res.StatusCode != http.StatusSeeOther || len(res.Cookies()) != 1 {
		t.Fatalf("not let in: %d %v %s", res.StatusCode, res.Header, text(t, res))
	}
	c := res.Cookies()[0]
	return c.Name + "=" + c.Value
}

var hello = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "hello") })

func TestOneTimeCode(t *testing.T) {
	w := newWorld(t, hello)
	url, until, err := w.Invite(t.Context(), alice, box, "/a?b=c")
	must(t, err)
	if d := time.Until(until); d > 30*time.Second || d < 25*time.Second {
		t.Errorf("a code is good for %s", d)
	}
	if !strings.HasPrefix(url, "http://5173-"+boxID+".preview.localhost:7733/.skete/enter?code=") {
		t.Errorf("the address is %q", url)
	}
	for name, other := range map[string]string{
		"another sandbox": strings.Replace(url, boxID, boxID[1:]+"a", 1),
		"another port":    strings.Replace(url, "5173-", "5174-", 1),
		"another code":    strings.Replace(url, "code=", "code=A", 1),
		"no code":         strings.Replace(url, "code=", "c=", 1),
		"another host":    strings.Replace(url, "to=%2Fa", "to=%2F%2Fevil.example", 1),
	} {
		if res := w.ask(t, "GET", other); res.StatusCode < 400 || len(res.Cookies()) != 0 {
			t.Errorf("a code for %s: %d %v", name, res.StatusCode, res.Cookies())
		}
	}
	res := w.ask(t, "GET", url)
	cookie := cookieOf(t, res)
	if got := res.Header.Get("Set-Cookie"); !strings.HasPrefix(got, "__Host-pv=") || !strings.HasSuffix(got, "; Path=/; Max-Age=43200; HttpOnly; Secure; SameSite=Lax") {
		t.Errorf("Set-Cookie: %s", got)
	}
	if to := res.Header.Get("Location"); to != "/a?b=c" {
		t.Errorf("sent to %q", to)
	}
	if res := w.ask(t, "GET", url); res.StatusCode != 403 || len(res.Cookies()) != 0 {
		t.Errorf("a code was good twice: %d", res.StatusCode)
	}
	if res := w.ask(t, "GET", w.URL(box), "Cookie", cookie); res.StatusCode != 200 || text(t, res) != "hello" {
		t.Errorf("a visitor sees %d", res.StatusCode)
	}
	for name, other := range map[string]Target{"another port": {box.Sandbox, 5174}, "another sandbox": {"sbx_" + boxID[1:] + "a", 5173}} {
		if res := w.ask(t, "GET", w.URL(other), "Cookie", cookie); res.StatusCode != 401 {
			t.Errorf("a cookie was good for %s: %d", name, res.StatusCode)
		}
	}
	if res := w.ask(t, "GET", w.URL(box)); res.StatusCode != 401 {
		t.Errorf("nobody sees %d", res.StatusCode)
	}
	if res := w.ask(t, "POST", w.URL(box)+".skete/leave", "Cookie", cookie, "Origin", strings.TrimSuffix(w.URL(box), "/")); res.StatusCode != 204 {
		t.Errorf("leaving: %d", res.StatusCode)
	}
	if res := w.ask(t, "GET", w.URL(box), "Cookie", cookie); res.StatusCode != 401 {
		t.Errorf("a visit went on after it was left: %d", res.StatusCode)
	}
	must(t, w.kv.List(t.Context(), "", func(key string, value []byte, _ uint64) error {
		if secret := strings.TrimPrefix(cookie, "__Host-pv="); strings.Contains(key+string(value), secret) {
			t.Errorf("a cookie is stored in clear: %s", key)
		}
		return nil
	}))
}

func TestCodesExpireAndAreSwept(t *testing.T) {
	w := newWorld(t, hello)
	url, _, err := w.Invite(t.Context(), alice, box, "")
	must(t, err)
	cookie := w.visit(t, alice, box)
	link, err := w.Share(t.Context(), alice, box, ShareRequest{For: time.Hour})
	must(t, err)
	var later atomic.Int64
	w.now = func() time.Time { return time.Now().Add(time.Duration(later.Load())) }
	later.Store(int64(31 * time.Second))
	if res := w.ask(t, "GET", url); res.StatusCode != 403 {
		t.Errorf("a code of 31 s ago: %d", res.StatusCode)
	}
	must(t, w.Sweep(t.Context()))
	if res := w.ask(t, "GET", w.URL(box), "Cookie", cookie); res.StatusCode != 200 {
		t.Errorf("a visit of 31 s ago: %d", res.StatusCode)
	}
	later.Store(int64(13 * time.Hour))
	if res := w.ask(t, "GET", w.URL(box), "Cookie", cookie); res.StatusCode != 401 {
		t.Errorf("a visit of 13 h ago: %d", res.StatusCode)
	}
	if res := w.ask(t, "GET", w.LinkURL(link)); res.StatusCode != 403 {
		t.Errorf("a link of 13 h ago: %d", res.StatusCode)
	}
	must(t, w.Sweep(t.Context()))
	must(t, w.kv.List(t.Context(), "", func(key string, _ []byte, _ uint64) error {
		if key != signerKey {
			t.Errorf("left is %s", key)
		}
		return nil
	}))
}

// Of many who spend a code at the same time one gets in.
func TestCodesAreSpentOnce(t *testing.T) {
	w := newWorld(t, hello)
	url, _, err := w.Invite(t.Context(), alice, box, "")
	must(t, err)
	var in atomic.Int64
	var wg sync.WaitGroup
	for range 16 {
		wg.Go(func() {
			if w.ask(t, "GET", url).StatusCode == http.StatusSeeOther {
				in.Add(1)
			}
		})
	}
	wg.Wait()
	if in.Load() != 1 {
		t.Errorf("%d got in by one code", in.Load())
	}
}

func TestPublicLinks(t *testing.T) {
	w := newWorld(t, hello, func(c *Config) {
		c.Supervisor = hello
		c.Limits.LinksPerSandbox = 2
	})
	link, err := w.Share(t.Context(), alice, box, ShareRequest{Name: "for Bob"})
	must(t, err)
	url := w.LinkURL(link)
	for range 2 { // a link is good more than once
		cookie := cookieOf(t, w.ask(t, "GET", url, "Sec-Fetch-Mode", "navigate"))
		if res := w.ask(t, "GET", w.URL(box), "Cookie", cookie); res.StatusCode != 200 {
			t.Errorf("a visitor by link sees %d", res.StatusCode)
		}
	}
	cookie := cookieOf(t, w.ask(t, "GET", url, "Sec-Fetch-Mode", "navigate"))
	last := map[bool]string{true: "1", false: "0"}[strings.HasSuffix(url, "0")]
	for name, bad := range map[string]string{
		"a changed signature": url[:len(url)-1] + last, "no signature": url[:strings.LastIndex(url, ".")], "a changed id": strings.Replace(url, "lnk_", "lnk_a", 1),
		"another port": strings.Replace(url, "5173-", "5174-", 1), "a shorter signature": url[:len(url)-1],
	} {
		if res := w.ask(t, "GET", bad); res.StatusCode != 403 || len(res.Cookies()) != 0 {
			t.Errorf("%s: %d", name, res.StatusCode)
		}
	}
	if _, err := w.Share(t.Context(), alice, Target{box.Sandbox, SupervisorPort}, ShareRequest{}); !errs.Is(err, errs.Denied) {
		t.Errorf("the supervisor's port was shared: %v", err)
	}
	for _, r := range []ShareRequest{{For: time.Millisecond}, {For: -time.Hour}, {For: 91 * 24 * time.Hour}, {Name: strings.Repeat("x", 65)}, {Name: "a\nb"}} {
		if _, err := w.Share(t.Context(), alice, box, r); !errs.Is(err, errs.Invalid) {
			t.Errorf("%+v: %v", r, err)
		}
	}
	_, err = w.Share(t.Context(), alice, box, ShareRequest{})
	must(t, err)
	if _, err := w.Share(t.Context(), alice, box, ShareRequest{}); !errs.Is(err, errs.Limit) {
		t.Errorf("a third link of two: %v", err)
	}
	links, err := w.Links(t.Context(), "default", box.Sandbox)
	must(t, err)
	if len(links) != 2 || !cmp.Equal(links[0], link) && !cmp.Equal(links[1], link) {
		t.Errorf("%+v", links)
	}
	if links, err := w.Links(t.Context(), "other", box.Sandbox); err != nil || len(links) != 0 {
		t.Errorf("another tenant sees %+v, %v", links, err)
	}
	for _, bad := range [][3]string{{"other", box.Sandbox, link.ID}, {"default", "sbx_" + boxID[1:] + "a", link.ID}, {"default", box.Sandbox, "lnk_x"}, {"default", box.Sandbox, "../x"}} {
		if err := w.Revoke(t.Context(), bad[0], bad[1], bad[2]); !errs.Is(err, errs.NotFound) {
			t.Errorf("revoked %v: %v", bad, err)
		}
	}
	must(t, w.Revoke(t.Context(), "default", box.Sandbox, link.ID))
	if res := w.ask(t, "GET", w.URL(box), "Cookie", cookie); res.StatusCode != 401 {
		t.Errorf("a visit went on after its link was taken back: %d", res.StatusCode)
	}
	if res := w.ask(t, "GET", url); res.StatusCode != 403 {
		t.Errorf("a link that was taken back: %d", res.StatusCode)
	}
}

// What the app sees of a request, and of whom.
func TestAppSeesNothingOfOurs(t *testing.T) {
	var got atomic.Pointer[http.Request]
	w := newWorld(t, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { got.Store(r) }))
	cookie := w.visit(t, alice, box)
	res := w.ask(t, "GET", w.URL(box)+"x?y=z",
		"Cookie", "theme=dark; "+cookie+"; __Host-sid=s1; __HOST-SID=s2; =__Host-sid=s3; __Host-pvf=s4; __Host-pvx=s5; sess=app",
		"Cookie", "__Host-sid=s6; b=2",
		"Authorization", "Bearer e2b_0123", "X-Api-Key", "e2b_0123", "X-User-Id", "usr_evil", "X_User_Id", "usr_evil", "X-User-Role", "admin", "X-Sig", "v1.9.x",
		"X-Forwarded-For", "1.2.3.4", "X-Forwarded-User", "evil", "X_Forwarded_User", "evil", "Forwarded", "for=1.2.3.4", "X-Real-Ip", "1.2.3.4", "X-Skete-Tenant", "evil",
		"Connection", "X-User-Id, X-Sig", "Referer", w.URL(box)+".skete/link/secret", "X-App", "kept", "User-Agent", "test", "Accept-Encoding", "identity")
	if res.StatusCode != 200 {
		t.Fatal(res.StatusCode)
	}
	r := got.Load()
	sig := r.Header.Get("X-Sig")
	r.Header.Del("X-Sig")
	want := http.Header{
		"Cookie": {"theme=dark; sess=app; b=2"}, "X-User-Id": {"usr_alice"}, "X-App": {"kept"}, "User-Agent": {"test"}, "Accept-Encoding": {"identity"},
	}
	if d := cmp.Diff(want, r.Header); d != "" {
		t.Error(d)
	}
	if r.Host != "5173-"+boxID+".preview.localhost:7733" || r.RequestURI != "/x?y=z" {
		t.Errorf("%s %s", r.Host, r.RequestURI)
	}
	version, rest, _ := strings.Cut(sig, ".")
	until, encoded, _ := strings.Cut(rest, ".")
	raw, err := base64.RawURLEncoding.DecodeString(encoded)
	if err != nil || version != "v1" || !ed25519.Verify(w.PublicKey(), []byte("skete user v1\n5173-"+boxID+"\nusr_alice\n"+until), raw) {
		t.Errorf("the signature %q does not hold: %v", sig, err)
	}
	if ed25519.Verify(w.PublicKey(), []byte("skete user v1\n5173-"+boxID+"\nusr_bob\n"+until), raw) {
		t.Error("the signature holds for somebody else")
	}
	for _, theirs := range []string{"Bearer theirs", "Basic eDp5"} {
		_ = w.ask(t, "GET", w.URL(box), "Cookie", cookie, "Authorization", theirs)
		if a := got.Load().Header.Get("Authorization"); a != theirs {
			t.Errorf("the app's own Authorization %q became %q", theirs, a)
		}
	}
	link, err := w.Share(t.Context(), alice, box, ShareRequest{})
	must(t, err)
	_ = w.ask(t, "GET", w.URL(box), "Cookie", cookieOf(t, w.ask(t, "GET", w.LinkURL(link), "Sec-Fetch-Mode", "navigate")), "X-User-Id", "usr_evil")
	if h := got.Load().Header; h.Get("X-User-Id") != "" || h.Get("X-Sig") != "" || h.Get("Cookie") != "" {
		t.Errorf("the public is somebody: %v", h)
	}
}

func TestAnswersStayOnTheirHost(t *testing.T) {
	w := newWorld(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		h := w.Header()
		h["Set-Cookie"] = []string{
			"a=1; Domain=localhost; Path=/", "b=2; domain = preview.localhost", "__Host-pv=x; Secure; Path=/", " __host-SID=x", "=__Host-sid=x", "c=3;DOMAIN", "d=domain=x; HttpOnly",
		}
		h.Set("Service-Worker-Allowed", "/")
		h.Set("X-Frame-Options", "DENY")
		h.Set("Strict-Transport-Security", "max-age=1; includeSubDomains")
		h.Set("Alt-Svc", `h3="evil.example:443"`)
		h.Set("Clear-Site-Data", `"cookies"`)
		h["Content-Security-Policy"] = []string{"default-src 'self'; frame-ancestors *; img-src *, frame-ancestors 'none'"}
		h.Set("X-Own", "kept")
	}))
	res := w.ask(t, "GET", w.URL(box), "Cookie", w.visit(t, alice, box))
	h := res.Header
	h.Del("Date")
	want := http.Header{
		"Set-Cookie":              {"a=1; Path=/", "b=2", "c=3", "d=domain=x; HttpOnly"},
		"Content-Security-Policy": {"default-src 'self'; img-src *", "frame-ancestors 'self' http://localhost:7733"},
		"Content-Length":          {"0"},
		"X-Own":                   {"kept"},
	}
	if d := cmp.Diff(want, h); d != "" {
		t.Error(d)
	}
}

// An undo and a redo can be in one second, and a browser must not guess.
func TestFilesAreAskedForAfterAnUndo(t *testing.T) {
	const date = "Sun, 01 Nov 2026 10:00:00 GMT"
	for name, tt := range map[string]struct{ app, want http.Header }{
		"a time alone":      {http.Header{"Last-Modified": {date}}, http.Header{"Cache-Control": {"no-cache"}}},
		"a tag":             {http.Header{"Last-Modified": {date}, "Etag": {`"1"`}}, http.Header{"Last-Modified": {date}, "Etag": {`"1"`}, "Cache-Control": {"no-cache"}}},
		"the app's own age": {http.Header{"Last-Modified": {date}, "Etag": {`"1"`}, "Cache-Control": {"max-age=60"}}, http.Header{"Last-Modified": {date}, "Etag": {`"1"`}, "Cache-Control": {"max-age=60"}}},
		"nothing":           {http.Header{}, http.Header{}},
	} {
		w := newWorld(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { maps.Copy(w.Header(), tt.app) }))
		h := w.ask(t, "GET", w.URL(box), "Cookie", w.visit(t, alice, box)).Header
		for _, n := range []string{"Date", "Content-Length", "Content-Security-Policy"} {
			h.Del(n)
		}
		if d := cmp.Diff(tt.want, h); d != "" {
			t.Errorf("%s: %s", name, d)
		}
	}
}

func TestOtherOriginsGetNothing(t *testing.T) {
	const own = "http://x"
	for _, tt := range []struct {
		method string
		header []string
		ok     bool
	}{
		{"GET", nil, true},
		{"GET", []string{"Sec-Fetch-Site", "none"}, true},
		{"GET", []string{"Sec-Fetch-Site", "same-origin"}, true},
		{"GET", []string{"Sec-Fetch-Site", "cross-site", "Sec-Fetch-Mode", "navigate"}, true},
		{"GET", []string{"Sec-Fetch-Site", "cross-site", "Sec-Fetch-Mode", "no-cors"}, false},
		{"GET", []string{"Sec-Fetch-Site", "same-site", "Sec-Fetch-Mode", "cors"}, false},
		{"GET", []string{"Origin", own}, true},
		{"GET", []string{"Origin", "http://y"}, false},
		{"GET", []string{"Origin", own, "Sec-Fetch-Site", "cross-site"}, false},
		{"GET", []string{"Origin", own, "Origin", own}, false},
		{"GET", []string{"Origin", "null"}, false},
		{"GET", []string{"Upgrade", "websocket"}, false},
		{"GET", []string{"Upgrade", "websocket", "Origin", own}, true},
		{"GET", []string{"Upgrade", "websocket", "Origin", "http://x:80"}, false},
		{"GET", []string{"Upgrade", "websocket", "Origin", "https://x"}, false},
		{"GET", []string{"Upgrade", "websocket", "Sec-Fetch-Site", "cross-site", "Sec-Fetch-Mode", "navigate"}, false},
		{"POST", nil, false},
		{"POST", []string{"Origin", own}, true},
		{"POST", []string{"Origin", own, "Sec-Fetch-Site", "same-site"}, false},
		{"POST", []string{"Origin", "http://X"}, false},
		{"POST", []string{"Origin", "null"}, false},
		{"POST", []string{"Origin", "null", "Sec-Fetch-Site", "same-origin"}, true},
		{"POST", []string{"Sec-Fetch-Site", "same-origin"}, true},
		{"POST", []string{"Sec-Fetch-Site", "none"}, false},
		{"OPTIONS", []string{"Origin", "http://y"}, false},
		{"DELETE", nil, false},
	} {
		r := httptest.NewRequest(tt.method, "/", nil)
		for i := 0; i < len(tt.header); i += 2 {
			r.Header.Add(tt.header[i], tt.header[i+1])
		}
		if got := ownOrigin(r, own); got != tt.ok {
			t.Errorf("%s %v: %v", tt.method, tt.header, got)
		}
	}
	w := newWorld(t, hello) // and it is asked
	cookie := w.visit(t, alice, box)
	for origin, want := range map[string]int{strings.TrimSuffix(w.URL(box), "/"): 200, appOrigin: 403, "http://evil.example": 403, "null": 403} {
		if res := w.ask(t, "POST", w.URL(box), "Cookie", cookie, "Origin", origin); res.StatusCode != want {
			t.Errorf("a POST from %s: %d", origin, res.StatusCode)
		}
	}
}

func TestWaitingPage(t *testing.T) {
	w := newWorld(t, nil)
	cookie := w.visit(t, alice, box)
	page := w.ask(t, "GET", w.URL(box), "Cookie", cookie, "Accept", "text/html,*/*")
	body := text(t, page)
	if page.StatusCode != 503 || page.Header.Get("Retry-After") != "1" || !strings.Contains(body, "location.reload()") || !strings.Contains(body, "nothing listens on port 5173") ||
		!strings.Contains(page.Header.Get("Content-Security-Policy"), "frame-ancestors 'self' "+appOrigin) {
		t.Errorf("%d %v %s", page.StatusCode, page.Header, body)
	}
	if res := w.ask(t, "GET", w.URL(box)+"data.json", "Cookie", cookie, "Accept", "*/*"); res.StatusCode != 503 || res.Header.Get("Content-Type") != "application/problem+json" {
		t.Errorf("%d %v", res.StatusCode, res.Header)
	}
	up := w.URL(box) + ".skete/up"
	if res := w.ask(t, "GET", up, "Cookie", cookie); res.StatusCode != 503 {
		t.Errorf("up while down: %d", res.StatusCode)
	}
	before := w.dialled.Load()
	if res := w.ask(t, "GET", up); res.StatusCode != 401 || w.dialled.Load() != before {
		t.Errorf("a stranger reached the sandbox: %d", res.StatusCode)
	}
	w.start(t, hello)
	if res := w.ask(t, "GET", up, "Cookie", cookie); res.StatusCode != 204 {
		t.Errorf("down while up: %d", res.StatusCode)
	}
	if res := w.ask(t, "GET", w.URL(box), "Cookie", cookie, "Accept", "text/html"); text(t, res) != "hello" {
		t.Errorf("still %d", res.StatusCode)
	}
	for _, res := range []*http.Response{w.ask(t, "GET", w.URL(box)+"a?b=c", "Accept", "text/html")} {
		if body := text(t, res); res.StatusCode != 401 || !strings.Contains(body, appOrigin+"/preview/5173-"+boxID+"?to=%2Fa%3Fb%3Dc") {
			t.Errorf("nobody is told %d %s", res.StatusCode, body)
		}
	}
}

// echo is an app that upgrades and says back what it hears; dying, it closes
// its connections.
type echo struct{ conns chan net.Conn }

func newEcho() echo { return echo{make(chan net.Conn, 10)} }

func (e echo) die() {
	for len(e.conns) > 0 {
		_ = (<-e.conns).Close()
	}
}

func (e echo) ServeHTTP(w http.ResponseWriter, _ *http.Request) {
	conn, rw, err := http.NewResponseController(w).Hijack()
	if err != nil {
		return
	}
	defer conn.Close()
	e.conns <- conn
	fmt.Fprintf(rw, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSet-Cookie: __Host-pv=x\r\n\r\n")
	_ = rw.Flush()
	_, _ = io.Copy(conn, rw)
}

// socketTo opens a socket to the app.
func (w *world) socketTo(t *testing.T, cookie string) (net.Conn, *bufio.Reader) {
	t.Helper()
	conn, err := net.Dial("tcp", w.front.Listener.Addr().String())
	must(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	must(t, conn.SetDeadline(time.Now().Add(patience.Of(20*time.Second))))
	own := strings.TrimSuffix(w.URL(box), "/")
	fmt.Fprintf(conn, "GET /hmr HTTP/1.1\r\nHost: %s\r\nOrigin: %s\r\nCookie: %s\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n", strings.TrimPrefix(own, "http://"), own, cookie)
	br := bufio.NewReader(conn)
	res, err := http.ReadResponse(br, nil)
	must(t, err)
	if res.StatusCode != 101 || len(res.Header["Set-Cookie"]) != 0 {
		t.Fatalf("%d %v", res.StatusCode, res.Header)
	}
	return conn, br
}

func say(t *testing.T, conn net.Conn, br *bufio.Reader, line string) {
	t.Helper()
	_, err := io.WriteString(conn, line+"\n")
	must(t, err)
	got, err := br.ReadString('\n')
	if err != nil || got != line+"\n" {
		t.Fatalf("%q came back as %q, %v", line, got, err)
	}
}

// A socket of an app that dies ends when the app is back, and not before.
func TestSocketsWaitForTheirApp(t *testing.T) {
	w := newWorld(t, nil)
	app := newEcho()
	kill := w.start(t, app)
	conn, br := w.socketTo(t, w.visit(t, alice, box))
	say(t, conn, br, "hello")
	before := w.dialled.Load()
	kill()
	app.die()
	for deadline := time.Now().Add(patience.Of(10 * time.Second)); w.dialled.Load() < before+3; {
		if time.Now().After(deadline) {
			t.Fatal("nobody looks whether the app is back")
		}
		must(t, conn.SetReadDeadline(time.Now().Add(20*time.Millisecond)))
		if _, err := br.ReadByte(); err == io.EOF {
			t.Fatal("the socket ended while there is nothing to reload")
		}
	}
	_, err := io.WriteString(conn, "into the void\n")
	must(t, err)
	w.start(t, hello)
	must(t, conn.SetReadDeadline(time.Now().Add(patience.Of(10*time.Second))))
	if _, err := br.ReadByte(); err != io.EOF {
		t.Errorf("the socket did not end when the app was back: %v", err)
	}
}

func TestRevokingEndsSocketsAtOnce(t *testing.T) {
	w := newWorld(t, newEcho(), func(c *Config) { c.Limits.RevocationWithin = 20 * time.Millisecond })
	link, err := w.Share(t.Context(), alice, box, ShareRequest{})
	must(t, err)
	public, publicIn := w.socketTo(t, cookieOf(t, w.ask(t, "GET", w.LinkURL(link), "Sec-Fetch-Mode", "navigate")))
	own, ownIn := w.socketTo(t, w.visit(t, alice, box))
	say(t, public, publicIn, "public")
	say(t, own, ownIn, "own")
	must(t, w.Revoke(t.Context(), "default", box.Sandbox, link.ID))
	if _, err := publicIn.ReadByte(); err == nil || errIsTimeout(err) {
		t.Errorf("the socket of a link that was taken back: %v", err)
	}
	say(t, own, ownIn, "still here")
	owner := alice.Owner
	w.revoked.Store(&owner) // by another server, as it were
	if _, err := ownIn.ReadByte(); err == nil || errIsTimeout(err) {
		t.Errorf("the socket of a key that was taken back: %v", err)
	}
}

func errIsTimeout(err error) bool {
	n, ok := errors.AsType[net.Error](err)
	return ok && n.Timeout()
}

func TestBounds(t *testing.T) {
	hold := make(chan struct{})
	began := make(chan struct{}, 2)
	w := newWorld(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/hold":
			began <- struct{}{}
			<-hold
		case "/big":
			w.Header().Set("X-Big", strings.Repeat("x", 64<<10))
		case "/body":
			_, _ = io.Copy(io.Discard, r.Body)
		}
	}), func(c *Config) {
		c.Limits.StreamsPerBox, c.Limits.RequestBytesMax, c.Limits.HeaderBytesMax = 2, 1000, 16<<10
	})
	cookie := w.visit(t, alice, box)
	if res := w.ask(t, "GET", w.URL(box)+"big", "Cookie", cookie); res.StatusCode != 503 {
		t.Errorf("a header of 64 KiB: %d", res.StatusCode)
	}
	own := strings.TrimSuffix(w.URL(box), "/")
	req, err := http.NewRequestWithContext(t.Context(), "POST", w.front.URL+"/body", strings.NewReader(strings.Repeat("x", 1001)))
	must(t, err)
	req.Host, req.Header = strings.TrimPrefix(own, "http://"), http.Header{"Cookie": {cookie}, "Origin": {own}}
	res, err := w.front.Client().Do(req)
	must(t, err)
	_ = res.Body.Close()
	if res.StatusCode != 413 {
		t.Errorf("a body of 1001 bytes: %d", res.StatusCode)
	}
	var wg sync.WaitGroup
	for range 2 {
		wg.Go(func() { w.ask(t, "GET", w.URL(box)+"hold", "Cookie", cookie) })
	}
	<-began
	<-began
	if res := w.ask(t, "GET", w.URL(box), "Cookie", cookie); res.StatusCode != 429 {
		t.Errorf("a third request of two: %d", res.StatusCode)
	}
	close(hold)
	wg.Wait()
	if n := w.Streams(); n != 0 {
		t.Errorf("%d requests are still counted", n)
	}
	w.front.Client().CloseIdleConnections()
}

func TestPorts(t *testing.T) {
	var asked atomic.Pointer[Visitor]
	w := newWorld(t, hello, func(c *Config) {
		c.PlatformPorts = []uint16{22}
		c.Ports = func(_ context.Context, _, _ string, port uint16) error {
			if port != 5173 && port != 22 {
				return errs.New(errs.Denied, "port %d is not on the list", port)
			}
			return nil
		}
		c.Supervisor = http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
			v, target := VisitorOf(r.Context())
			asked.Store(&v)
			fmt.Fprintf(rw, "history of %s; %s%s", target.Sandbox, r.Header.Get("Cookie"), r.Header.Get("X-User-Id"))
		})
	})
	for _, port := range []uint16{22, 80} {
		if _, _, err := w.Invite(t.Context(), alice, Target{box.Sandbox, port}, ""); !errs.Is(err, errs.Denied) {
			t.Errorf("port %d: %v", port, err)
		}
	}
	w.app.Store(nil) // nothing in the sandbox works
	page := Target{box.Sandbox, SupervisorPort}
	cookie := w.visit(t, alice, page)
	res := w.ask(t, "GET", w.URL(page), "Cookie", cookie, "X-User-Id", "evil")
	if got := text(t, res); got != "history of "+box.Sandbox+"; " || res.Header.Get("Content-Security-Policy") != framePolicy(appOrigin) {
		t.Errorf("%q %v", got, res.Header)
	}
	if d := cmp.Diff(&alice, asked.Load()); d != "" {
		t.Error(d)
	}
	if res := w.ask(t, "POST", w.URL(page), "Cookie", cookie, "Origin", strings.TrimSuffix(w.URL(box), "/")); res.StatusCode != 403 {
		t.Errorf("the app may write to the history's page: %d", res.StatusCode)
	}
	none := newWorld(t, hello)
	if _, _, err := none.Invite(t.Context(), alice, page, ""); !errs.Is(err, errs.NotFound) {
		t.Errorf("without a supervisor: %v", err)
	}
}

func TestBadConfigs(t *testing.T) {
	kv := kvtest.NewMemory()
	dial := func(context.Context, string, string, uint16) (net.Conn, error) { return nil, io.EOF }
	for _, c := range []Config{
		{AppOrigin: appOrigin, Dial: dial},
		{AppOrigin: appOrigin, Grants: kv},
		{Grants: kv, Dial: dial},
		{AppOrigin: "localhost:7733", Grants: kv, Dial: dial},
		{AppOrigin: "http://localhost:7733/", Grants: kv, Dial: dial},
		{AppOrigin: "ftp://localhost", Grants: kv, Dial: dial},
		{AppOrigin: "http://a b", Grants: kv, Dial: dial},
		{AppOrigin: "http://a;b", Grants: kv, Dial: dial},
		{AppOrigin: "http://u@a", Grants: kv, Dial: dial},
		{AppOrigin: "http://*", Domain: "*", Grants: kv, Dial: dial},
		{AppOrigin: appOrigin, Domain: "A", Grants: kv, Dial: dial},
		{AppOrigin: "http://preview.localhost:7733", Grants: kv, Dial: dial},
		{AppOrigin: "http://App.Preview.localhost:7733", Grants: kv, Dial: dial},
		{AppOrigin: "https://5173-x.preview.example.net", Domain: "example.net", Grants: kv, Dial: dial},
	} {
		if p, err := Open(t.Context(), c); err == nil {
			t.Errorf("%q, %q was taken", c.AppOrigin, c.Domain)
			_ = p.Close()
		}
	}
	_, err := kv.Create(t.Context(), signerKey, []byte("short"))
	must(t, err)
	if _, err := Open(t.Context(), Config{AppOrigin: appOrigin, Grants: kv, Dial: dial}); !errs.Is(err, errs.Corrupt) {
		t.Errorf("a damaged secret: %v", err)
	}
}
