package login

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/server/auth"
	"github.com/skete-dev/skete/server/key"
)

// provider is a small identity provider: discovery, keys, codes bound to a PKCE
// challenge, tokens signed by ES256.
type provider struct {
	*httptest.Server
	signing *ecdsa.PrivateKey

	mu    sync.Mutex
	codes map[string]url.Values // what was asked, by code
	// change is applied to the claims of the next tokens.
	change func(map[string]any)
	forge  bool // sign by another key
	plain  bool // do not sign at all
}

func newProvider(t *testing.T) *provider {
	t.Helper()
	signing, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(t, err)
	p := &provider{signing: signing, codes: map[string]url.Values{}}
	mux := http.NewServeMux()
	mux.HandleFunc("/.well-known/openid-configuration", func(w http.ResponseWriter, _ *http.Request) {
		send(w, map[string]any{
			"issuer": p.URL, "authorization_endpoint": p.URL + "/authorize", "token_endpoint": p.URL + "/token", "jwks_uri": p.URL + "/keys",
			"id_token_signing_alg_values_supported": []string{"ES256"},
		})
	})
	mux.HandleFunc("/keys", func(w http.ResponseWriter, _ *http.Request) {
		raw, err := p.signing.PublicKey.Bytes()
		must(t, err)
		send(w, map[string]any{"keys": []any{map[string]any{
			"kty": "EC", "crv": "P-256", "alg": "ES256", "use": "sig", "kid": "1", "x": b64(raw[1:33]), "y": b64(raw[33:]),
		}}})
	})
	mux.HandleFunc("/token", p.token)
	p.Server = httptest.NewServer(mux)
	t.Cleanup(p.Close)
	return p
}

func send(w http.ResponseWriter, v any) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(v)
}

func b64(b []byte) string { return base64.RawURLEncoding.EncodeToString(b) }

// authorize is what a person does at the provider: they agree.
func (p *provider) authorize(t *testing.T, address string) url.Values {
	t.Helper()
	u, err := url.Parse(address)
	must(t, err)
	q := u.Query()
	if !strings.HasPrefix(address, p.URL+"/authorize?") || q.Get("code_challenge_method") != "S256" || q.Get("response_type") != "code" || !strings.Contains(q.Get("scope"), "openid") {
		t.Fatalf("asked by %s", address)
	}
	code := rand.Text()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.codes[code] = q
	return url.Values{"code": {code}, "state": {q.Get("state")}}
}

func (p *provider) token(w http.ResponseWriter, r *http.Request) {
	p.mu.Lock()
	defer p.mu.Unlock()
	_ = r.ParseForm()
	asked, ok := p.codes[r.Form.Get("code")]
	delete(p.codes, r.Form.Get("code"))
	sum := sha256.Sum256([]byte(r.Form.Get("code_verifier")))
	id, secret, _ := r.BasicAuth()
	if !ok || asked.Get("code_challenge") != b64(sum[:]) || asked.Get("redirect_uri") != r.Form.Get("redirect_uri") || id != "skete" || secret != "s3cret" {
		w.WriteHeader(http.StatusBadRequest)
		send(w, map[string]any{"error": "invalid_grant"})
		return
	}
	claims := map[string]any{
		"iss": p.URL, "aud": "skete", "sub": "u1", "nonce": asked.Get("nonce"), "iat": time.Now().Unix(), "exp": time.Now().Add(time.Hour).Unix(),
		"groups": []string{"people", "others"}, "org": "acme",
	}
	if p.change != nil {
		p.change(claims)
	}
	answer := map[string]any{"access_token": "x", "token_type": "Bearer", "id_token": p.sign(claims)}
	if claims["none"] != nil {
		delete(answer, "id_token")
	}
	send(w, answer)
}

func (p *provider) sign(claims map[string]any) string {
	body, _ := json.Marshal(claims)
	if p.plain {
		return b64([]byte(`{"alg":"none"}`)) + "." + b64(body) + "."
	}
	text := b64([]byte(`{"alg":"ES256","kid":"1"}`)) + "." + b64(body)
	signing := p.signing
	if p.forge {
		signing, _ = ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	}
	sum := sha256.Sum256([]byte(text))
	r, s, _ := ecdsa.Sign(rand.Reader, signing, sum[:])
	return text + "." + b64(append(r.FillBytes(make([]byte, 32)), s.FillBytes(make([]byte, 32))...))
}

func mapping() RoleMapping {
	return RoleMapping{TenantClaim: "org", RolesClaim: "groups", Roles: map[string]key.Scopes{"people": {key.Write, key.Read}, "admins": {key.Admin}}}
}

func (p *provider) config() OIDCConfig {
	return OIDCConfig{Issuer: p.URL, Client: "skete", Secret: "s3cret", Redirect: "http://localhost:7733/login/back", Mapping: mapping()}
}

func TestLogin(t *testing.T) {
	p := newProvider(t)
	issuer, err := NewOIDC(p.config())
	must(t, err)
	if issuer.Name() != "127.0.0.1" {
		t.Errorf("called %q", issuer.Name())
	}
	address, keep, err := issuer.Begin(t.Context())
	must(t, err)
	back := p.authorize(t, address)
	id, err := issuer.Finish(t.Context(), back, keep)
	must(t, err)
	user := auth.UserOf("acme", p.URL+"\x00u1")
	if d := cmp.Diff(auth.Identity{Tenant: "acme", Owner: user, User: user, Scopes: key.Scopes{key.Read, key.Write}}, id); d != "" {
		t.Error(d)
	}
	if _, err := issuer.Finish(t.Context(), back, keep); !errs.Is(err, errs.Denied) {
		t.Errorf("a code was good twice: %v", err)
	}
	if strings.Contains(address, strings.Split(keep, ".")[2]) {
		t.Error("the verifier is in the address")
	}
}

func TestWhoIsNotLetIn(t *testing.T) {
	p := newProvider(t)
	issuer, err := NewOIDC(p.config())
	must(t, err)
	for name, tt := range map[string]struct {
		claims map[string]any // that replace the good ones
		query  func(url.Values)
		keep   func(string) string
		forge  bool
		plain  bool
	}{
		"another state":       {query: func(q url.Values) { q.Set("state", "x") }},
		"no state":            {query: func(q url.Values) { q.Del("state") }},
		"no cookie":           {keep: func(string) string { return "" }},
		"an empty cookie":     {keep: func(string) string { return ".." }, query: func(q url.Values) { q.Set("state", "") }},
		"another verifier":    {keep: func(k string) string { return k + "A" }},
		"another nonce":       {claims: map[string]any{"nonce": "x"}},
		"no nonce":            {claims: map[string]any{"nonce": nil}},
		"another client":      {claims: map[string]any{"aud": "other"}},
		"another issuer":      {claims: map[string]any{"iss": "http://127.0.0.1:1"}},
		"another one answers": {query: func(q url.Values) { q.Set("iss", "https://evil.example") }},
		"expired":             {claims: map[string]any{"exp": time.Now().Add(-time.Hour).Unix()}},
		"a forged signature":  {forge: true},
		"no signature":        {plain: true},
		"no token":            {claims: map[string]any{"none": true}},
		"no role":             {claims: map[string]any{"groups": []string{"others"}}},
		"roles of no form":    {claims: map[string]any{"groups": map[string]any{"people": true}}},
		"no tenant":           {claims: map[string]any{"org": nil}},
		"a strange tenant":    {claims: map[string]any{"org": "../x"}},
		"tenant of no form":   {claims: map[string]any{"org": 1}},
		"no subject":          {claims: map[string]any{"sub": ""}},
		"an error":            {query: func(q url.Values) { q.Set("error", "access_denied") }},
		"no code":             {query: func(q url.Values) { q.Del("code") }},
		"another code":        {query: func(q url.Values) { q.Set("code", "x") }},
	} {
		p.mu.Lock()
		p.forge, p.plain, p.change = tt.forge, tt.plain, func(c map[string]any) {
			maps.Copy(c, tt.claims)
			maps.DeleteFunc(c, func(_ string, v any) bool { return v == nil })
		}
		p.mu.Unlock()
		address, keep, err := issuer.Begin(t.Context())
		must(t, err)
		back := p.authorize(t, address)
		if tt.query != nil {
			tt.query(back)
		}
		if tt.keep != nil {
			keep = tt.keep(keep)
		}
		if id, err := issuer.Finish(t.Context(), back, keep); !errs.Is(err, errs.Denied) || id.Tenant != "" {
			t.Errorf("%s: %+v, %v", name, id, err)
		}
	}
}

func TestProviderThatIsDown(t *testing.T) {
	p := newProvider(t)
	c := p.config()
	p.Close()
	issuer, err := NewOIDC(c)
	must(t, err) // a server starts without it
	if _, _, err := issuer.Begin(t.Context()); !errs.Is(err, errs.Unavailable) {
		t.Errorf("%v", err)
	}
}

func TestBadConfigs(t *testing.T) {
	good := OIDCConfig{Issuer: "https://id.example", Client: "skete", Redirect: "x", Mapping: mapping()}
	if _, err := NewOIDC(good); err != nil {
		t.Fatal(err)
	}
	for name, change := range map[string]func(*OIDCConfig){
		"no issuer": func(c *OIDCConfig) { c.Issuer = "" }, "http": func(c *OIDCConfig) { c.Issuer = "http://id.example" }, "a query": func(c *OIDCConfig) { c.Issuer += "?x" },
		"a user": func(c *OIDCConfig) { c.Issuer = "https://u@id.example" }, "no client": func(c *OIDCConfig) { c.Client = "" }, "nowhere": func(c *OIDCConfig) { c.Redirect = "" },
		"no tenant": func(c *OIDCConfig) { c.Mapping.TenantClaim = "" }, "two tenants": func(c *OIDCConfig) { c.Mapping.Tenant = "a" },
		"a bad tenant": func(c *OIDCConfig) { c.Mapping.Tenant, c.Mapping.TenantClaim = "A", "" }, "no roles": func(c *OIDCConfig) { c.Mapping.Roles = nil },
		"no claim": func(c *OIDCConfig) { c.Mapping.RolesClaim = "" },
	} {
		c := good
		change(&c)
		if _, err := NewOIDC(c); !errs.Is(err, errs.Invalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestParseRoles(t *testing.T) {
	got, err := ParseRoles([]string{"admins=admin", "people=read+runs:write"})
	must(t, err)
	if d := cmp.Diff(map[string]key.Scopes{"admins": {key.Admin}, "people": {key.Read, key.RunsWrite}}, got); d != "" {
		t.Error(d)
	}
	for _, s := range []string{"", "x", "=read", "x=", "x=root", "x=read+", "x=read,write", "x=Read"} {
		if got, err := ParseRoles([]string{s}); err == nil {
			t.Errorf("%q was taken: %v", s, got)
		}
	}
	if _, err := ParseRoles([]string{"x=read", "x=write"}); err == nil {
		t.Error("a role was given twice")
	}
}

func FuzzParseRoles(f *testing.F) {
	f.Add("people=read+write")
	f.Fuzz(func(t *testing.T, s string) {
		roles, err := ParseRoles([]string{s})
		for value, scopes := range roles {
			if err == nil && (value == "" || len(scopes) == 0) {
				t.Errorf("%q gives %v", s, roles)
			}
		}
	})
}
