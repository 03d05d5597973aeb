package server_test

import (
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/skete-dev/skete/api"
	"github.com/skete-dev/skete/server"
	"github.com/skete-dev/skete/server/key"
	"github.com/skete-dev/skete/server/route"
)

// pathOf fills a route's pattern.
func pathOf(r route.Route, sandboxID string) string {
	return strings.NewReplacer("{id}", sandboxID, "{key}", "nothing", "{port}", "1", "{n}", "1", "{name}", "nothing", "{call}", "c1", "{hash}", strings.Repeat("0", 64)).Replace(r.Path)
}

func (w *world) try(t *testing.T, r route.Route, path, secret string) answer {
	t.Helper()
	var body io.Reader
	if r.Method == http.MethodPost || r.Method == http.MethodPut || r.Method == http.MethodPatch {
		body = strings.NewReader("")
	}
	return w.send(t, secret, r.Method, path, body)
}

// Every route there is × every kind of caller. A route that is added without a
// right, or with the wrong idea of it, fails here.
func TestWhoMayDoWhat(t *testing.T) {
	w := newWorld(t, func(c *server.Config) { c.Limits.WrongKeysMax = 1000 })
	read, _ := w.key(t, "default", "read")
	write, _ := w.key(t, "default", "read", "write")
	watch, _ := w.key(t, "default", "runs:read")
	drive, _ := w.key(t, "default", "runs:write")
	foreign, _ := w.key(t, "other", "read", "write")
	revoked, id := w.key(t, "default", "admin")
	w.call(t, w.admin, http.MethodDelete, "/v1/keys/"+id, nil, http.StatusNoContent, nil)
	callers := []struct {
		name, secret string
		scopes       key.Scopes
	}{
		{"nobody", "", nil},
		{"a wrong key", "e2b_" + strings.Repeat("0", 40), nil},
		{"a malformed key", "hunter2", nil},
		{"a revoked key", revoked, nil},
		{"read", read, key.Scopes{key.Read}},
		{"write", write, key.Scopes{key.Read, key.Write}},
		{"watch", watch, key.Scopes{key.RunsRead}},
		{"drive", drive, key.Scopes{key.RunsWrite}},
		{"admin", w.admin, key.Scopes{key.Admin}},
	}
	mine := w.sandbox()
	wellKnown := "sbx_aaaaaaaaaaaaaaaaaaaa" // does not exist: nothing is destroyed by trying
	seen := map[key.Scope]int{}
	for _, r := range w.server.Routes() {
		if r.Scope == route.Own { // TestBridge_whoMayDoWhat, TestVercel_whoMayDoWhat
			continue
		}
		seen[r.Scope]++
		t.Run(r.Method+" "+r.Path, func(t *testing.T) {
			for _, c := range callers {
				a := w.try(t, r, pathOf(r, wellKnown), c.secret)
				switch {
				case r.Scope == route.Public:
					if a.status == http.StatusUnauthorized || a.status == http.StatusForbidden {
						t.Errorf("%s: %d from a public route", c.name, a.status)
					}
				case c.scopes == nil:
					p := a.problem(t, http.StatusUnauthorized)
					if p.Class != "denied" || a.header.Get("WWW-Authenticate") == "" {
						t.Errorf("%s: %+v", c.name, p)
					}
				case !c.scopes.Allow(r.Scope):
					a.problem(t, http.StatusForbidden)
				case a.status == http.StatusUnauthorized || a.status == http.StatusForbidden:
					t.Errorf("%s has the scope %s and gets %d: %s", c.name, r.Scope, a.status, a.body)
				case r.Local:
					a.problem(t, http.StatusNotFound)
				}
			}
			if strings.Contains(r.Path, "/sandboxes/{id}") {
				// Another tenant's sandbox looks like one that does not exist.
				if a := w.try(t, r, pathOf(r, mine)+needed(r), foreign); a.status != http.StatusNotFound && !early(a) {
					t.Errorf("a foreign tenant gets %d: %s", a.status, a.body)
				}
			}
		})
	}
	for _, scope := range []key.Scope{route.Public, key.Read, key.Write, key.Admin, key.RunsRead, key.RunsWrite} {
		if seen[scope] == 0 {
			t.Errorf("no route of scope %s was tried", scope)
		}
	}
	var sb api.Sandbox
	w.call(t, w.admin, http.MethodGet, "/v1/sandboxes/"+mine, nil, http.StatusOK, &sb)
	if sb.State != "running" {
		t.Errorf("a foreign tenant brought the sandbox to %s", sb.State)
	}
}

// needed are query parameters without which a route does not look further.
func needed(r route.Route) string {
	switch {
	case strings.HasSuffix(r.Path, "/stdin"):
		return "?offset=0"
	case strings.HasSuffix(r.Path, "/glob"), strings.HasSuffix(r.Path, "/grep"):
		return "?pattern=x"
	case strings.HasSuffix(r.Path, "/history/path"), strings.HasSuffix(r.Path, "/history/{n}/file"):
		return "?path=x"
	case strings.Contains(r.Path, "/files"), strings.HasSuffix(r.Path, "/tree"):
		if r.Method != http.MethodPost {
			return "?path=x"
		}
	}
	return ""
}

// early: the request was refused for its form, before any sandbox was looked for.
func early(a answer) bool {
	return a.status == http.StatusBadRequest && strings.Contains(string(a.body), "request body is required")
}

func TestRevocationIsAtOnce(t *testing.T) {
	w := newWorld(t)
	secret, id := w.key(t, "default", "read", "write")
	w.call(t, secret, http.MethodGet, "/v1/sandboxes", nil, http.StatusOK, nil)
	s, _, err := w.socketAt(t, secret, "/v1/sandboxes/"+w.sandbox()+"/exec")
	must(t, err)
	s.sendJSON(api.FrameStart, api.StartProcess{Key: "survivor", Argv: []string{"/bin/sleep", "600"}})
	s.next()
	w.call(t, w.admin, http.MethodDelete, "/v1/keys/"+id, nil, http.StatusNoContent, nil)
	w.call(t, w.admin, http.MethodDelete, "/v1/keys/"+id, nil, http.StatusNoContent, nil) // may be repeated
	w.send(t, secret, http.MethodGet, "/v1/sandboxes", nil).problem(t, http.StatusUnauthorized)
	if r := s.rest(); r.Problem.Class != "denied" {
		t.Errorf("the key's open stream ended with %+v", r.Problem)
	}
	var p api.Process
	w.call(t, w.admin, http.MethodGet, "/v1/sandboxes/"+w.sandbox()+"/processes/survivor", nil, http.StatusOK, &p)
	if p.State != "running" {
		t.Errorf("the command is %s", p.State)
	}
	var list api.KeyList
	a := w.call(t, w.admin, http.MethodGet, "/v1/keys", nil, http.StatusOK, &list)
	found := false
	for _, k := range list.Items {
		found = found || k.ID == id && k.RevokedAt != nil
	}
	if !found || strings.Contains(string(a.body), secret) || strings.Contains(string(a.body), "hash") {
		t.Errorf("list: %s", a.body)
	}
}

func TestKeysByHeader(t *testing.T) {
	w := newWorld(t)
	for name, tt := range map[string]struct {
		header []string
		status int
	}{
		"X-API-Key":                 {[]string{"X-API-Key", w.admin}, http.StatusOK},
		"bearer in any case":        {[]string{"Authorization", "bEARER " + w.admin}, http.StatusOK},
		"both, equal":               {[]string{"Authorization", "Bearer " + w.admin, "X-API-Key", w.admin}, http.StatusOK},
		"both, different":           {[]string{"Authorization", "Bearer " + w.admin, "X-API-Key", "e2b_x"}, http.StatusUnauthorized},
		"another scheme":            {[]string{"Authorization", "Basic " + w.admin}, http.StatusUnauthorized},
		"no value":                  {[]string{"Authorization", "Bearer"}, http.StatusUnauthorized},
		"upper case is not a key":   {[]string{"X-API-Key", strings.ToUpper(w.admin)}, http.StatusUnauthorized},
		"a longer one is not a key": {[]string{"X-API-Key", w.admin + "0"}, http.StatusUnauthorized},
	} {
		t.Run(name, func(t *testing.T) {
			if a := w.send(t, "", http.MethodGet, "/v1/sandboxes", nil, tt.header...); a.status != tt.status {
				t.Errorf("status %d: %s", a.status, a.body)
			}
		})
	}
}

func TestUnixSocketVouchesForItsPeer(t *testing.T) {
	w := newWorld(t)
	for path, status := range map[string]int{
		"/v1/keys": http.StatusOK, "/metrics": http.StatusOK, "/debug/pprof/": http.StatusOK, "/debug/pprof/cmdline": http.StatusOK,
	} {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://skete"+path, nil)
		must(t, err)
		if a := do(t, w.unixClient(t), req); a.status != status {
			t.Errorf("%s: %d %s", path, a.status, a.body)
		}
	}
	// A key says who the caller wants to be.
	read, _ := w.key(t, "other", "read")
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://skete/v1/keys", nil)
	must(t, err)
	req.Header.Set("X-API-Key", read)
	do(t, w.unixClient(t), req).problem(t, http.StatusForbidden)
}

func TestBrowsersAreKeptOut(t *testing.T) {
	w := newWorld(t)
	self := strings.TrimPrefix(w.base, "http://")
	body := `{"name":"x"}`
	for name, tt := range map[string]struct {
		method, path string
		header       []string
		status       int
	}{
		"rebound name":            {http.MethodGet, "/healthz", []string{"Host", "evil.example"}, http.StatusMisdirectedRequest},
		"rebound name with port":  {http.MethodGet, "/v1/sandboxes", []string{"Host", "evil.example:7733"}, http.StatusMisdirectedRequest},
		"name that looks local":   {http.MethodGet, "/healthz", []string{"Host", "localhost.evil.example"}, http.StatusMisdirectedRequest},
		"address of another host": {http.MethodGet, "/healthz", []string{"Host", "10.0.0.1"}, http.StatusMisdirectedRequest},
		"localhost":               {http.MethodGet, "/healthz", []string{"Host", "LOCALHOST:1"}, http.StatusOK},
		"below localhost":         {http.MethodGet, "/healthz", []string{"Host", "a.localhost"}, http.StatusOK},
		"IPv6 loopback":           {http.MethodGet, "/healthz", []string{"Host", "[::1]:80"}, http.StatusOK},
		"foreign origin writes":   {http.MethodPost, "/v1/keys", []string{"Origin", "https://evil.example"}, http.StatusForbidden},
		"opaque origin writes":    {http.MethodPost, "/v1/keys", []string{"Origin", "null"}, http.StatusForbidden},
		"own origin writes":       {http.MethodPost, "/v1/keys", []string{"Origin", "http://" + self}, http.StatusCreated},
		"foreign origin reads":    {http.MethodGet, "/v1/keys", []string{"Origin", "https://evil.example"}, http.StatusOK},
		"foreign origin upgrades": {http.MethodGet, "/v1/sandboxes/" + w.sandbox() + "/exec", []string{"Origin", "https://evil.example", "Upgrade", "websocket", "Connection", "Upgrade"}, http.StatusForbidden},
	} {
		t.Run(name, func(t *testing.T) {
			var b any
			if tt.method == http.MethodPost {
				b = body
			}
			a := w.send(t, w.admin, tt.method, tt.path, b, tt.header...)
			if a.status != tt.status {
				t.Errorf("status %d: %s", a.status, a.body)
			}
			if a.header.Get("Access-Control-Allow-Origin") != "" {
				t.Error("another origin may read the answer")
			}
		})
	}
}

func TestWrongKeysAreBounded(t *testing.T) {
	w := newWorld(t)
	limited := false
	for range 40 {
		a := w.send(t, "e2b_"+strings.Repeat("1", 40), http.MethodGet, "/v1/sandboxes", nil)
		if a.status == http.StatusTooManyRequests {
			a.problem(t, http.StatusTooManyRequests)
			limited = a.header.Get("Retry-After") != ""
		}
	}
	if !limited {
		t.Error("40 wrong keys at once were all looked at calmly")
	}
	w.call(t, w.admin, http.MethodGet, "/v1/sandboxes", nil, http.StatusOK, nil) // a right one passes
}

func TestSecretsAreNotLogged(t *testing.T) {
	w := newWorld(t)
	w.send(t, w.admin, http.MethodGet, "/v1/sandboxes?token="+w.admin, nil).problem(t, http.StatusBadRequest)
	w.send(t, "", http.MethodGet, "/v1/sandboxes", nil, "X-API-Key", w.admin+"0").problem(t, http.StatusUnauthorized)
	secret, _ := w.key(t, "default", "read")
	w.create(t, api.CreateSandbox{Env: map[string]string{"TOKEN": "very-secret-value"}})
	for _, s := range []string{w.admin, secret, "very-secret-value"} {
		if strings.Contains(w.log.String(), s) {
			t.Errorf("the log has a secret:\n%s", w.log)
		}
	}
	if !strings.Contains(w.log.String(), `"route":"GET /v1/sandboxes"`) {
		t.Errorf("the log has no requests:\n%s", w.log)
	}
}
