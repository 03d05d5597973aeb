package proxy_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/skete-dev/skete/egress"
	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/kv"
	"github.com/skete-dev/skete/kv/kvtest"
	"github.com/skete-dev/skete/secret"
)

const (
	loginURL = "https://login.example.com/oauth/token"
	mailURL  = "https://mail.example.com/v1/inbox"
)

// logins is a token endpoint, and a host that takes its tokens.
type logins struct {
	*world
	store   *secret.Store
	kept    *secret.Tokens
	buckets [2]kv.Store

	mu      sync.Mutex
	now     time.Time
	n       int    // of tokens that were answered
	access  string // that is good now
	refresh string
	got     []*http.Request
	forms   []url.Values
	body    string                         // the last one
	answer  func(http.ResponseWriter) bool // in place of the usual one
}

func newLogins(t testing.TB) *logins {
	t.Helper()
	return newLoginsOn(t, [2]kv.Store{kvtest.NewMemory(), kvtest.NewMemory()})
}

func newLoginsOn(t testing.TB, buckets [2]kv.Store) *logins {
	t.Helper()
	hosts := []string{"login.example.com", "mail.example.com", "other.example.com"}
	var p egress.Policy
	for _, h := range hosts {
		p.Allow = append(p.Allow, egress.Rule{Host: h})
	}
	l := &logins{world: newWorld(t, p), now: time.Now(), buckets: buckets}
	l.open()
	_, err := l.store.Put(t.Context(), "default", secret.Put{Name: "mail", Value: secret.New(canary), TTL: -1, Grants: []secret.Grant{
		{Where: egress.Rule{Host: hosts[0], Paths: []string{"/oauth/token"}}, As: secret.Basic, Key: "client", OAuth: true},
		{Where: egress.Rule{Host: hosts[1]}, As: secret.Bearer},
	}})
	must(l.t, err)
	l.serve(443, l.handle, hosts...)
	return l
}

// open opens the stores, as a server does that starts.
func (l *logins) open() {
	l.t.Helper()
	sealer, err := secret.NewSealer(bytes.Repeat([]byte{1}, 32))
	must(l.t, err)
	clock := func() time.Time {
		l.mu.Lock()
		defer l.mu.Unlock()
		return l.now
	}
	l.kept = secret.NewTokens(secret.TokenConfig{KV: l.buckets[1], Sealer: sealer, Now: clock})
	l.store, err = secret.Open(l.t.Context(), secret.Config{KV: l.buckets[0], Sealer: sealer, Tokens: l.kept, Now: clock})
	must(l.t, err)
	store := l.store
	l.t.Cleanup(func() { must(l.t, store.Close()) })
	l.secrets.Store(l.store)
	l.tokens.Store(l.kept.Of("default", "sbx_web"))
}

func (l *logins) handle(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	form, _ := url.ParseQuery(string(body))
	l.mu.Lock()
	defer l.mu.Unlock()
	l.got, l.forms, l.body = append(l.got, r), append(l.forms, form), string(body)
	if r.Host != "login.example.com" {
		if r.Header.Get("Authorization") != "Bearer "+l.access {
			w.WriteHeader(http.StatusUnauthorized)
		}
		fmt.Fprintf(w, "you said %s", r.Header.Get("Authorization"))
		return
	}
	if l.answer != nil && l.answer(w) {
		return
	}
	w.Header().Set("Content-Type", "application/json")
	if user, password, _ := r.BasicAuth(); user != "client" || password != canary {
		w.WriteHeader(http.StatusUnauthorized)
		return
	}
	if form.Get("grant_type") == "refresh_token" && form.Get("refresh_token") != l.refresh {
		w.WriteHeader(http.StatusBadRequest)
		_ = json.NewEncoder(w).Encode(map[string]string{"error": "invalid_grant", "what": form.Get("refresh_token"), "now": l.refresh})
		return
	}
	l.n++
	l.access, l.refresh = fmt.Sprintf("real/access-%d", l.n), fmt.Sprintf("real/refresh-%d", l.n)
	w.Header().Set("Set-Cookie", "t="+l.access)
	w.Header().Set("Etag", `"1"`)
	_ = json.NewEncoder(w).Encode(map[string]any{"access_token": l.access, "refresh_token": l.refresh, "expires_in": 600, "token_type": "Bearer"})
}

type tokens struct {
	Access  string `json:"access_token"`
	Refresh string `json:"refresh_token"`
}

// post sends a form to the token endpoint.
func (l *logins) post(at string, form url.Values) (*http.Response, string) {
	l.t.Helper()
	req, err := http.NewRequest(http.MethodPost, at, strings.NewReader(form.Encode()))
	must(l.t, err)
	req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	res, err := l.client().Do(req)
	must(l.t, err)
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	must(l.t, err)
	if all := fmt.Sprint(res.Header, string(body)); strings.Contains(all, "real/") || strings.Contains(all, "canary") {
		l.t.Errorf("the sandbox sees %s", all)
	}
	return res, string(body)
}

// login gets tokens, which are none.
func (l *logins) login(form url.Values) (got tokens) {
	l.t.Helper()
	res, body := l.post(loginURL, form)
	if res.StatusCode != http.StatusOK || json.Unmarshal([]byte(body), &got) != nil || !strings.HasPrefix(got.Access, "skete-token-") || !strings.HasPrefix(got.Refresh, "skete-token-") || got.Access == got.Refresh {
		l.t.Fatalf("%d %s", res.StatusCode, body)
	}
	if res.Header.Get("Etag") != "" || strings.Contains(res.Header.Get("Set-Cookie"), "access") {
		l.t.Errorf("%v", res.Header)
	}
	return got
}

// call asks a host with a token, and returns what the host was sent.
func (l *logins) call(at, token string) (status int, sent string) {
	l.t.Helper()
	req, err := http.NewRequest(http.MethodGet, at, nil)
	must(l.t, err)
	req.Header.Set("Authorization", "Bearer "+token)
	req.Header.Set("Cookie", "mine=1")
	status, body := l.do(req)
	if strings.Contains(body, "real/") || strings.Contains(body, "canary") {
		l.t.Errorf("the sandbox sees %s", body)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	r := l.got[len(l.got)-1]
	if strings.Contains(fmt.Sprint(r.Header), "canary") {
		l.t.Errorf("the host is sent the secret itself: %v", r.Header)
	}
	return status, r.Header.Get("Authorization")
}

var refreshing = func(word string) url.Values {
	return url.Values{"grant_type": {"refresh_token"}, "refresh_token": {word}}
}

// A sandbox logs in, uses what it got, gets new ones, and never sees a token; also after the
// server was started anew.
func TestOAuth(t *testing.T) {
	l := newLogins(t)
	first := l.login(url.Values{"grant_type": {"client_credentials"}})
	if d := l.last(); d.Secrets != "mail" {
		t.Errorf("%+v", d)
	}
	if status, sent := l.call(mailURL, first.Access); status != http.StatusOK || sent != "Bearer real/access-1" || l.last().Secrets != "mail" {
		t.Errorf("%d, the host is sent %q, %+v", status, sent, l.last())
	}
	if l.got[1].Header.Get("Cookie") != "" {
		t.Error("another account can be used")
	}
	l.open()
	if status, _ := l.call(mailURL, first.Access); status != http.StatusOK {
		t.Errorf("after a start: %d", status)
	}
	second := l.login(refreshing(first.Refresh))
	if second == first || l.forms[len(l.forms)-1].Get("refresh_token") != "real/refresh-1" {
		t.Errorf("%+v, the host is sent %v", second, l.forms)
	}
	if status, sent := l.call(mailURL, second.Access); status != http.StatusOK || sent != "Bearer real/access-2" {
		t.Errorf("%d %q", status, sent)
	}
	if status, _ := l.call(mailURL, first.Access); status != http.StatusUnauthorized {
		t.Errorf("with an old one: %d", status)
	}
	// The error says both tokens, the one that was sent too.
	if res, body := l.post(loginURL, refreshing(first.Refresh)); res.StatusCode != http.StatusBadRequest || !strings.Contains(body, "invalid_grant") || !strings.Contains(body, first.Refresh) {
		t.Errorf("%d %s", res.StatusCode, body)
	}
}

// A placeholder is worth something in its sandbox, at the hosts of its secret, whole, while
// it lives.
func TestOAuth_worthless(t *testing.T) {
	l := newLogins(t)
	got := l.login(nil)
	same := "Bearer " + got.Access
	if _, sent := l.call("https://other.example.com/", got.Access); sent != same {
		t.Errorf("another host is sent %q", sent)
	}
	if _, sent := l.call("https://login.example.com/other", got.Access); sent != same {
		t.Errorf("another path of the token endpoint's host is sent %q", sent)
	}
	for _, word := range []string{got.Access + "x", " " + got.Access, strings.ToUpper(got.Access), got.Access[:40], "skete-token-", ""} {
		if _, sent := l.call(mailURL, word); sent != "" {
			t.Errorf("for %q the host is sent %q", word, sent)
		}
		if d := l.last(); d.Secrets != "" {
			t.Errorf("%+v", d)
		}
	}
	clear := make(chan string, 1)
	l.serve(80, func(_ http.ResponseWriter, r *http.Request) { clear <- r.Header.Get("Authorization") }, "mail.example.com")
	req, err := http.NewRequest(http.MethodGet, "http://mail.example.com/", nil)
	must(t, err)
	req.Header.Set("Authorization", same)
	if l.do(req); <-clear != same {
		t.Error("it is sent in the clear")
	}
}

// Forms have real tokens in the fields for them alone.
func TestOAuth_forms(t *testing.T) {
	l := newLogins(t)
	got := l.login(nil)
	l.answer = func(http.ResponseWriter) bool { return true }
	for name, c := range map[string]struct{ kind, form, want string }{
		"a field":             {"", "a=b&token=" + got.Refresh, "a=b&token=real%2Frefresh-1"},
		"an escaped name":     {"", "refresh%5Ftoken=" + got.Refresh, "refresh%5Ftoken=real%2Frefresh-1"},
		"with its characters": {"application/x-www-form-urlencoded; charset=UTF-8", "assertion=" + got.Access, "assertion=real%2Faccess-1"},
		"twice":               {"", "token=" + got.Refresh + "&token=" + got.Refresh, ""},
		"another field":       {"", "state=" + got.Refresh, ""},
		"a part":              {"", "token=x" + got.Refresh, ""},
		"JSON":                {"application/json", `{"refresh_token":"` + got.Refresh + `"}`, ""},
		"no kind":             {"text/plain", "token=" + got.Refresh, ""},
		"too long":            {"", "token=" + got.Refresh + "&a=" + strings.Repeat("x", 64<<10), ""},
	} {
		req, err := http.NewRequest(http.MethodPost, loginURL, io.MultiReader(strings.NewReader(c.form))) // its length is not said
		must(t, err)
		req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		if c.kind != "" {
			req.Header.Set("Content-Type", c.kind)
		}
		l.do(req)
		want := fmt.Sprintf("%d %s", len(c.want), c.want)
		if c.want == "" {
			want = "-1 " + c.form
		}
		if sent := fmt.Sprintf("%d %s", l.got[len(l.got)-1].ContentLength, l.body); sent != want {
			t.Errorf("%s: the host is sent %.200q, not %.200q", name, sent, want)
		}
	}
}

// Tokens end: by time, with the secret, and are of one sandbox.
func TestOAuth_ends(t *testing.T) {
	for name, end := range map[string]func(*logins){
		"another sandbox": func(l *logins) {
			l.tokens.Store(l.kept.Of("default", "sbx_db"))
		},
		"expiry": func(l *logins) {
			l.mu.Lock()
			defer l.mu.Unlock()
			l.now = l.now.Add(10 * time.Minute)
		},
		"the sandbox's end": func(l *logins) { must(l.t, l.kept.EraseSandbox(l.t.Context(), "sbx_web")) },
		"a secret of the same name": func(l *logins) {
			old, err := l.store.Get("default", "mail")
			must(l.t, err)
			must(l.t, l.buckets[0].Delete(l.t.Context(), "default/mail", revisionOf(l.t, l.buckets[0], "default/mail")))
			l.mu.Lock()
			l.now = l.now.Add(time.Second)
			l.mu.Unlock()
			l.open()
			_, err = l.store.Put(l.t.Context(), "default", secret.Put{Name: "mail", Value: secret.New(canary), Grants: old.Grants})
			must(l.t, err)
		},
	} {
		t.Run(name, func(t *testing.T) {
			l := newLogins(t)
			got := l.login(nil)
			if _, sent := l.call(mailURL, got.Access); sent != "Bearer real/access-1" {
				t.Fatalf("the host is sent %q", sent)
			}
			end(l)
			if _, sent := l.call(mailURL, got.Access); sent != "" {
				t.Errorf("the host is sent %q", sent)
			}
		})
	}
	l := newLogins(t)
	got := l.login(nil)
	must(t, l.store.Delete(t.Context(), "default", "mail"))
	if _, sent := l.call(mailURL, got.Access); sent != "Bearer "+got.Access {
		t.Errorf("without its secret the host is sent %q", sent)
	}
	must(t, l.buckets[1].List(t.Context(), "", func(key string, _ []byte, _ uint64) error { return fmt.Errorf("%s is left", key) }))
}

// A token that has ended is not exchanged any more, and is hidden still: its host may take it
// for longer than it said.
func TestOAuth_hiddenBehindItsEnd(t *testing.T) {
	l := newLogins(t)
	got := l.login(nil)
	l.mu.Lock()
	l.now = l.now.Add(10 * time.Minute)
	l.mu.Unlock()
	l.answer = func(w http.ResponseWriter) bool {
		_, _ = io.WriteString(w, `{"error":"it was real/access-1","access_token":"real/access-2"}`)
		return true
	}
	if _, body := l.post(loginURL, nil); !strings.Contains(body, got.Access) { // post looks for real ones
		t.Errorf("the token endpoint answers %s", body)
	}
	l.serve(443, func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintf(w, "you said %q, and real/access-1 before", r.Header.Get("Authorization"))
	}, "mail.example.com")
	req, err := http.NewRequest(http.MethodGet, mailURL, nil)
	must(t, err)
	req.Header.Set("Authorization", "Bearer "+got.Access)
	if _, body := l.do(req); body != `you said "", and ************* before` {
		t.Errorf("the host answers %s", body)
	}
}

func revisionOf(t testing.TB, s kv.Store, key string) uint64 {
	t.Helper()
	_, revision, err := s.Get(t.Context(), key)
	must(t, err)
	return revision
}

// What a token endpoint answers is passed on when all its tokens are found, or it has none.
func TestOAuth_answers(t *testing.T) {
	const good = `{"access_token":"real/access-9"}`
	say := func(status int, kind, body string, headers ...string) func(http.ResponseWriter) bool {
		return func(w http.ResponseWriter) bool {
			for i := 0; i < len(headers); i += 2 {
				w.Header().Set(headers[i], headers[i+1])
			}
			w.Header().Set("Content-Type", kind)
			w.WriteHeader(status)
			_, _ = io.WriteString(w, body)
			return true
		}
	}
	const js = "application/json; charset=utf-8"
	var zipped bytes.Buffer
	z := gzip.NewWriter(&zipped)
	_, _ = io.WriteString(z, good)
	must(t, z.Close())
	for name, c := range map[string]struct {
		answer func(http.ResponseWriter) bool
		status int
		text   string // that is in the answer
	}{
		"an error":             {say(400, js, `{"error": "invalid_grant"}`), 400, `{"error": "invalid_grant"}`},
		"an error with one":    {say(400, js, good), 400, "skete-token-"},
		"an error page":        {say(503, "text/html", "<p>later"), 503, "<p>later"},
		"a page with JSON":     {say(400, "text/html", good), 400, "skete-token-"},
		"nothing":              {say(200, js, ""), 200, ""},
		"of no kind":           {say(200, "", good), 200, "skete-token-"},
		"a copy in a header":   {say(200, js, good, "X-Token", "real/access-9", "Content-Digest", "x"), 200, "skete-token-"},
		"a form":               {say(200, "application/x-www-form-urlencoded", "access_token=real/access-9"), 502, "no JSON object"},
		"an error, half":       {say(400, js, good[:20]), 502, "no JSON object"},
		"a byte order mark":    {say(200, js, "\ufeff"+good), 502, "no JSON object"},
		"compressed":           {say(200, js, zipped.String(), "Content-Encoding", "gzip"), 502, "encoded"},
		"a part":               {say(206, js, good), 502, "part of one"},
		"a redirect":           {say(302, js, good, "Location", "https://x.example/#access_token=real/access-9"), 502, "redirects"},
		"a number":             {say(200, js, `{"access_token":12345678}`), 502, "no text"},
		"twice":                {say(200, js, `{"access_token":"real/access-8","access_token":"real/access-9"}`), 502, "twice"},
		"too long":             {say(200, js, `{"access_token":"real/access-9","a":"`+strings.Repeat("x", 256<<10)+`"}`), 502, "too long"},
		"an error, too long":   {say(500, "text/html", strings.Repeat("x", 256<<10+1)), 502, "too long"},
		"as long as it may be": {say(200, js, `{"access_token":"real/access-9","a":"`+strings.Repeat("x", 256<<10-len(`{"access_token":"real/access-9","a":""}`))+`"}`), 200, "skete-token-"},
		"in pieces, too long": {func(w http.ResponseWriter) bool {
			w.Header().Set("Content-Type", js)
			_, _ = io.WriteString(w, `{"access_token":"real/access-9"`)
			for range 300 {
				_, _ = io.WriteString(w, strings.Repeat(" ", 1<<10))
				w.(http.Flusher).Flush()
			}
			_, _ = io.WriteString(w, "}")
			return true
		}, 502, "too long"},
	} {
		t.Run(name, func(t *testing.T) {
			l := newLogins(t)
			l.answer = c.answer
			res, body := l.post(loginURL, nil)
			if res.StatusCode != c.status || !strings.Contains(body, c.text) || res.Header.Get("Content-Digest") != "" {
				t.Errorf("%d %.200s %v", res.StatusCode, body, res.Header)
			}
			if r := l.got[len(l.got)-1]; r.Header.Get("Accept-Encoding") != "identity" || r.Header.Get("Accept") != "application/json" {
				t.Errorf("the host is asked for %v", r.Header)
			}
		})
	}
}

// full is a bucket on a full disk.
type full struct{ kv.Store }

func (full) Create(context.Context, string, []byte) (uint64, error) {
	return 0, errs.New(errs.Unavailable, "the disk is full")
}

// What cannot be kept is not passed on, and where none are kept the secret is not sent.
func TestOAuth_notKept(t *testing.T) {
	l := newLogins(t)
	sealer, err := secret.NewSealer(make([]byte, 32))
	must(t, err)
	l.tokens.Store(secret.NewTokens(secret.TokenConfig{KV: full{l.buckets[1]}, Sealer: sealer}).Of("default", "sbx_web"))
	if res, body := l.post(loginURL, nil); res.StatusCode != http.StatusBadGateway || !strings.Contains(body, "could not be kept") {
		t.Errorf("%d %s", res.StatusCode, body)
	}
	l.tokens.Store(nil)
	before := len(l.got)
	if res, body := l.post(loginURL, nil); res.StatusCode != http.StatusBadGateway || !strings.Contains(body, "no tokens are kept here") || len(l.got) != before {
		t.Errorf("%d %s", res.StatusCode, body)
	}
}
