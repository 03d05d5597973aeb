package auth

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"net/http"
	"strings"

	"github.com/skete-dev/skete/errs"
)

// LoginCookie is the cookie of a browser that logged in. Its prefix makes the
// browser refuse it from any other host, so a preview cannot toss one.
const LoginCookie = "__Host-sid"

// Logins finds who a browser's cookie stands for; *login.Store is one.
type Logins interface {
	// Find returns who logged in. Denied: not logged in, or not any more.
	Find(ctx context.Context, cookie string) (Identity, error)
}

// UserOf is the name by which sandboxed apps know a key's holder: the same for
// ever, and nothing that opens anything.
func UserOf(tenant, owner string) string {
	sum := sha256.Sum256([]byte("skete user\x00" + tenant + "\x00" + owner))
	return "usr_" + hex.EncodeToString(sum[:])[:20]
}

// browser says who a request with a login's cookie is from; false = it has none.
func (g *Authenticator) browser(r *http.Request) (Identity, bool, error) {
	if g.logins == nil {
		return Identity{}, false, nil
	}
	cookies := r.CookiesNamed(LoginCookie)
	if len(cookies) == 0 {
		return Identity{}, false, nil
	}
	if len(cookies) > 1 {
		return Identity{}, true, unauthorised(errs.New(errs.Denied, "the request has two logins"))
	}
	if !g.OwnPage(r) {
		return Identity{}, true, errs.New(errs.Denied, "only this server's own pages may do this with a login").
			WithHint("a program shows an API key instead")
	}
	id, err := g.logins.Find(r.Context(), cookies[0].Value)
	if errs.Is(err, errs.Denied) {
		return Identity{}, true, unauthorised(err)
	}
	return id, true, err
}

// OwnPage reports whether a browser's request comes from a page of ours. What
// changes something, and every socket, must say so by its exact Origin: one
// that is missing does not count, since Sec-Fetch-Site is not sent everywhere.
// Where that is sent, it must agree; reading is for our own pages too, but a
// person may come from anywhere.
func (g *Authenticator) OwnPage(r *http.Request) bool {
	origins, site := r.Header["Origin"], r.Header.Get("Sec-Fetch-Site")
	if len(origins) > 1 || len(origins) == 1 && origins[0] != g.Origin(r) {
		return false
	}
	reading := (r.Method == http.MethodGet || r.Method == http.MethodHead) && r.Header.Get("Upgrade") == ""
	if !reading && len(origins) == 0 {
		return false
	}
	switch site {
	case "", "same-origin":
		return true
	case "none":
		return reading
	}
	return reading && r.Header.Get("Sec-Fetch-Mode") == "navigate" && r.Header.Get("Sec-Fetch-Dest") == "document"
}

// Origin is what a page of ours calls itself that was loaded from r's host.
func (g *Authenticator) Origin(r *http.Request) string {
	for _, o := range g.origins {
		if _, host, _ := strings.Cut(o, "://"); strings.EqualFold(host, r.Host) {
			return o
		}
	}
	scheme := "http://"
	if r.TLS != nil {
		scheme = "https://"
	}
	return scheme + strings.ToLower(r.Host)
}
