package browser_test

import (
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/skete-dev/skete/api"
	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/kv/kvtest"
	"github.com/skete-dev/skete/preview"
	"github.com/skete-dev/skete/sandbox"
	"github.com/skete-dev/skete/server"
	"github.com/skete-dev/skete/server/key"
	"github.com/skete-dev/skete/server/login"
	"github.com/skete-dev/skete/test/browser"
)

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

const boxID = "sbx_abcdefghijklmnop2345"

// boxes has one sandbox, of one tenant.
type boxes struct{ server.Sandboxes }

func (boxes) Get(_ context.Context, tenant string, id sandbox.ID) (sandbox.Info, error) {
	if tenant != key.DefaultTenant || id != boxID {
		return sandbox.Info{}, errs.New(errs.NotFound, "no sandbox %s", id)
	}
	return sandbox.Info{ID: id, State: sandbox.Running}, nil
}

func (boxes) Find(_ context.Context, tenant, name string) (sandbox.ID, error) {
	if tenant != key.DefaultTenant || name != boxID {
		return "", errs.New(errs.NotFound, "no sandbox %s", name)
	}
	return boxID, nil
}

func (boxes) List(context.Context, string, sandbox.Filter) (sandbox.Page, error) {
	return sandbox.Page{}, nil
}

func (boxes) Dial(context.Context, string, sandbox.ID, uint32) (net.Conn, error) {
	return nil, errs.New(errs.Unavailable, "nothing listens")
}

type templates struct{ server.Templates }

// world is a real server with its logins and previews; what runs in the
// sandbox is a hostile app of the test.
type world struct {
	ring     *key.Ring
	previews *preview.Previews
	origin   string // of the app
	secret   key.Secret
	app      atomic.Pointer[string] // address of what listens in the sandbox; nil = nothing

	mu   sync.Mutex
	seen []string // "METHOD host path status": what reached the app
	sids []string // Cookie headers that reached the app
	got  []http.Header
}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{}
	kv := kvtest.NewMemory()
	w.ring = key.NewRing(kv)
	desk := login.New(login.Config{KV: kv, Keys: w.ring})
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	_, port, _ := net.SplitHostPort(ln.Addr().String())
	w.origin = "http://localhost:" + port
	w.previews, err = preview.Open(t.Context(), preview.Config{
		AppOrigin: w.origin, Grants: kvtest.NewMemory(), Owner: desk.Good, Secret: key.Form,
		Dial: func(ctx context.Context, tenant, id string, _ uint16) (net.Conn, error) {
			addr := w.app.Load()
			if tenant != key.DefaultTenant || id != boxID || addr == nil {
				return nil, errs.New(errs.Unavailable, "nothing listens")
			}
			return (&net.Dialer{}).DialContext(ctx, "tcp", *addr)
		},
	})
	must(t, err)
	t.Cleanup(func() { must(t, w.previews.Close()) })
	s, err := server.New(server.Config{
		Sandboxes: boxes{}, Templates: templates{}, Keys: kv, Ring: w.ring, Logins: desk, Origins: []string{w.origin}, Previews: w.previews, Version: "test",
	})
	must(t, err)
	w.secret, _, err = w.ring.Create(t.Context(), key.Request{Name: "alice", Tenant: key.DefaultTenant, Scopes: key.Scopes{key.Admin}})
	must(t, err)
	front := &http.Server{Handler: w.watch(s.Handler()), ReadHeaderTimeout: time.Minute}
	go func() { _ = front.Serve(ln) }()
	t.Cleanup(func() { _ = front.Close() })
	return w
}

// status notes what was answered.
type status struct {
	http.ResponseWriter
	code int
}

func (s *status) Unwrap() http.ResponseWriter { return s.ResponseWriter }
func (s *status) WriteHeader(code int) {
	s.code = code
	s.ResponseWriter.WriteHeader(code)
}

// watch notes what reaches the app's own host.
func (w *world) watch(h http.Handler) http.Handler {
	return http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		if w.previews.Match(r.Host) {
			h.ServeHTTP(rw, r)
			return
		}
		s := &status{ResponseWriter: rw, code: 200}
		h.ServeHTTP(s, r)
		w.mu.Lock()
		defer w.mu.Unlock()
		w.seen = append(w.seen, r.Method+" "+r.URL.Path+" "+http.StatusText(s.code))
		w.sids = append(w.sids, r.Header.Get("Cookie"))
	})
}

// hostile is an app that tries what it can by its answers.
func (w *world) hostile(t *testing.T) {
	s := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		w.mu.Lock()
		kept := r.Header.Clone()
		kept.Set("Test-Host", r.Host)
		w.got = append(w.got, kept)
		w.mu.Unlock()
		h := rw.Header()
		h.Set("Content-Type", "text/html")
		h.Add("Set-Cookie", "__Host-sid=tossed; Path=/; Secure")
		h.Add("Set-Cookie", "sid=tossed; Path=/; Domain=localhost")
		h.Add("Set-Cookie", "own=1; Path=/; Domain=preview.localhost")
		h.Set("X-Frame-Options", "ALLOWALL")
		h.Set("Access-Control-Allow-Origin", "*")
		_, _ = io.WriteString(rw, "<!doctype html><title>app</title><p id=x>hello from "+r.URL.Path+"</p>")
	}))
	t.Cleanup(s.Close)
	addr := s.Listener.Addr().String()
	w.app.Store(&addr)
}

type tries struct {
	LoggedIn   string            `json:"logged_in"`
	Sid        map[string]any    `json:"sid"`
	Preview    string            `json:"preview"`
	Readable   string            `json:"readable"`   // document.cookie in the preview
	AfterToss  int               `json:"after_toss"` // status of the app's own call
	Attempts   map[string]string `json:"attempts"`
	Replay     int               `json:"replay"`
	Stranger   int               `json:"stranger"`
	Frame      string            `json:"frame"`
	FrameFetch int               `json:"frame_fetch"`
	Framed     string            `json:"framed"`
	Framing    string            `json:"framing"`
	Returned   string            `json:"returned"`
	Cookies    []string          `json:"cookies"`
	PublicBy   int               `json:"public_by"`
	Afterwards int               `json:"afterwards"`
	LoggedOut  int               `json:"logged_out"`
	Waited     string            `json:"waited"`
	CameBack   string            `json:"came_back"`
}

// Fault 19 of issue 6, and its acceptance 7: a page that an agent wrote can not
// read the app's cookie, act as the user, toss a cookie, open a socket across
// origins, or come in by a code that was spent.
func TestPreviewsAreIsolatedInARealBrowser(t *testing.T) {
	b := browser.Start(t)
	w := newWorld(t)
	w.hostile(t)
	other, _, err := w.previews.Invite(t.Context(), preview.Visitor{Tenant: key.DefaultTenant, User: "usr_mallory"}, preview.Target{Sandbox: boxID, Port: 5174}, "/other")
	must(t, err)
	target := preview.Target{Sandbox: boxID, Port: 5173}
	link, err := w.previews.Share(t.Context(), preview.Visitor{Tenant: key.DefaultTenant}, target, preview.ShareRequest{})
	must(t, err)
	before, err := w.ring.List(t.Context(), "")
	must(t, err)
	got := browser.Run[tries](t, b, "isolation.mjs", map[string]any{
		"origin": w.origin, "key": w.secret.Reveal(), "box": boxID, "other": other, "link": w.previews.LinkURL(link), "address": w.previews.URL(target),
	})
	t.Logf("%+v", got)
	if got.LoggedIn != "Runs" || got.Sid["httpOnly"] != true || got.Sid["sameSite"] != "Strict" || got.Sid["secure"] != true || got.Sid["domain"] != "localhost" {
		t.Errorf("the login: %q, %v", got.LoggedIn, got.Sid)
	}
	if got.Preview != "hello from /" {
		t.Errorf("the preview shows %q", got.Preview)
	}
	if strings.Contains(got.Readable, "__Host") || !strings.Contains(got.Readable, "own=1") {
		t.Errorf("the preview reads %q", got.Readable)
	}
	if got.AfterToss != 200 {
		t.Errorf("after the tossing of cookies the app's own call is answered by %d", got.AfterToss)
	}
	for name, result := range got.Attempts {
		if result != "refused" {
			t.Errorf("%s: %s", name, result)
		}
	}
	want := []string{"fetch to the API", "form to /logout", "image of the API", "post of a key", "read of the API", "read of the other preview", "socket to the API", "socket to the other preview", "write to the other preview"}
	if d := cmp.Diff(want, keysOf(got.Attempts)); d != "" {
		t.Errorf("what was tried: %s", d)
	}
	if got.Replay != 403 || got.Stranger != 403 {
		t.Errorf("a spent code: %d in the same browser, %d in another", got.Replay, got.Stranger)
	}
	if got.Frame != "hello from /in-a-frame" || got.FrameFetch != 200 {
		t.Errorf("in a frame of the app: %q, its own call %d", got.Frame, got.FrameFetch)
	}
	if got.Framed != "refused" || got.Framing != "refused" {
		t.Errorf("a preview in another's frame: %s; the app in a preview's: %s", got.Framed, got.Framing)
	}
	if got.Returned != "hello from /deep" {
		t.Errorf("who is logged in and lost the visit comes back to %q", got.Returned)
	}
	if got.PublicBy != 200 || got.Afterwards != 401 {
		t.Errorf("by a link %d, after it was taken back %d", got.PublicBy, got.Afterwards)
	}
	if got.LoggedOut != 401 {
		t.Errorf("after logging out the preview answers %d", got.LoggedOut)
	}
	w.checkWhatArrived(t, before)
}

func keysOf(m map[string]string) []string {
	var names []string
	for n := range m {
		names = append(names, n)
	}
	slices.Sort(names)
	return names
}

// checkWhatArrived looks at what the servers saw, whatever the browser says.
func (w *world) checkWhatArrived(t *testing.T, before []key.Record) {
	t.Helper()
	after, err := w.ring.List(t.Context(), "")
	must(t, err)
	if len(after) != len(before) {
		t.Error("a preview made an API key")
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for i, cookies := range w.sids {
		if strings.Contains(cookies, "tossed") || strings.Count(cookies, "__Host-sid=") > 1 {
			t.Errorf("%s came with %q", w.seen[i], cookies)
		}
	}
	var refused int
	for _, line := range w.seen {
		if strings.HasPrefix(line, "POST /v1/keys ") {
			refused++
			if line != "POST /v1/keys Forbidden" && line != "POST /v1/keys Unauthorized" {
				t.Error(line)
			}
		}
	}
	if refused == 0 {
		t.Error("no POST of a preview arrived, so nothing was refused")
	}
	for _, h := range w.got {
		if c := h.Get("Cookie"); strings.Contains(c, "__Host-pv") || strings.Contains(c, "__Host-sid") {
			t.Errorf("the sandboxed app got %q", c)
		}
		if o := h.Get("Origin"); o != "" && o != "http://"+h.Get("Test-Host") {
			t.Errorf("the app at %s was reached by a page of %s", h.Get("Test-Host"), o)
		}
		if s := h.Get("Sec-Fetch-Site"); s != "same-origin" && s != "none" && h.Get("Sec-Fetch-Mode") != "navigate" {
			t.Errorf("the app at %s was reached by a page of a %s", h.Get("Test-Host"), s)
		}
		for name, values := range h {
			if strings.Contains(strings.Join(values, " "), w.secret.Reveal()) {
				t.Errorf("the sandboxed app got the key in %s", name)
			}
		}
	}
}

// Host headers are the client's word: a login is of no use at a preview's host,
// nor a visit at the app's or at another preview's.
func TestSpoofedHosts(t *testing.T) {
	w := newWorld(t)
	w.hostile(t)
	target := preview.Target{Sandbox: boxID, Port: 5173}
	enter, _, err := w.previews.Invite(t.Context(), preview.Visitor{Tenant: key.DefaultTenant, User: "usr_alice"}, target, "")
	must(t, err)
	ask := func(host, path string, header ...string) *http.Response {
		req, err := http.NewRequestWithContext(t.Context(), "GET", strings.Replace(w.origin, "localhost", "127.0.0.1", 1)+path, nil)
		must(t, err)
		req.Host = host
		for i := 0; i < len(header); i += 2 {
			req.Header.Set(header[i], header[i+1])
		}
		tr := &http.Transport{DisableKeepAlives: true}
		res, err := (&http.Client{Transport: tr, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}).Do(req)
		must(t, err)
		t.Cleanup(func() { _ = res.Body.Close() })
		return res
	}
	host := strings.TrimSuffix(strings.TrimPrefix(w.previews.URL(target), "http://"), "/")
	res := ask(host, enter[strings.Index(enter, "/.skete"):])
	if len(res.Cookies()) != 1 {
		t.Fatalf("not let in: %d", res.StatusCode)
	}
	visit := "__Host-pv=" + res.Cookies()[0].Value
	desk := ask("localhost", "/login")
	if desk.StatusCode != 200 {
		t.Fatal(desk.StatusCode)
	}
	for _, tt := range []struct {
		host, path, cookie string
		want               int
	}{
		{host, "/", visit, 200},
		{"localhost", "/v1/login", visit, 401},
		{strings.Replace(host, "5173", "5174", 1), "/", visit, 401},
		{strings.Replace(host, "5173", "8001", 1), "/", visit, 401},
		{strings.Replace(host, ":", ".:", 1), "/", visit, 421},
		{"x." + host, "/", visit, 404},
		{"preview.localhost", "/", visit, 404},
		{"evil.example", "/", visit, 421},
		{host, "/", "__Host-sid=ABCDEFGHIJKLMNOPQRSTUVWXYZ", 401},
	} {
		if res := ask(tt.host, tt.path, "Cookie", tt.cookie, "X-Forwarded-Host", host, "X-Api-Key", ""); res.StatusCode != tt.want {
			t.Errorf("%s%s with %.12s: %d, not %d", tt.host, tt.path, tt.cookie, res.StatusCode, tt.want)
		}
	}
	// A key shown to a preview's host opens nothing and reaches no app.
	if res := ask(host, "/", "Authorization", "Bearer "+w.secret.Reveal()); res.StatusCode != 401 {
		t.Errorf("a key at a preview's host: %d", res.StatusCode)
	}
	var who api.Login
	res = ask("localhost", "/v1/login", "Authorization", "Bearer "+w.secret.Reveal())
	must(t, json.NewDecoder(res.Body).Decode(&who))
	if who.By != "key" || who.Tenant != "default" || !strings.HasPrefix(who.User, "usr_") {
		t.Errorf("%+v", who)
	}
}

// A page that waits comes back by itself.
func TestWaitingPageComesBack(t *testing.T) {
	b := browser.Start(t)
	w := newWorld(t)
	enter, _, err := w.previews.Invite(t.Context(), preview.Visitor{Tenant: key.DefaultTenant, User: "usr_alice"}, preview.Target{Sandbox: boxID, Port: 5173}, "/")
	must(t, err)
	got := browser.Run[tries](t, b, "waiting.mjs", map[string]any{"url": enter})
	if got.Waited != "Waiting for the app" {
		t.Fatalf("there is %q", got.Waited)
	}
	w.hostile(t)
	began := time.Now()
	got = browser.Run[tries](t, b, "waiting.mjs", map[string]any{"until": "hello from /"})
	if got.CameBack != "hello from /" {
		t.Errorf("there is %q", got.CameBack)
	}
	t.Logf("the page was back after %s", time.Since(began).Round(time.Millisecond))
}
