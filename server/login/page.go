package login

import (
	"context"
	"crypto/rand"
	"html"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/skete-dev/skete/api"
	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/server/auth"
	"github.com/skete-dev/skete/server/key"
	"github.com/skete-dev/skete/server/problem"
	"github.com/skete-dev/skete/server/route"
)

// Issuer is an identity provider by which people log in; *oidc.Issuer is one.
type Issuer interface {
	// Name is shown to people.
	Name() string
	// Begin returns where the browser goes, and what Finish needs of it then:
	// at most 1 KB that the browser keeps and no other client may see.
	Begin(ctx context.Context) (address, keep string, err error)
	// Finish takes the query with which the browser came back. Denied: it may
	// not in.
	Finish(ctx context.Context, query url.Values, keep string) (auth.Identity, error)
}

// PagesConfig of the routes.
type PagesConfig struct {
	Store  *Store // nil = no browser comes in
	Gate   *auth.Authenticator
	Issuer Issuer // nil = keys alone
}

type pages struct{ PagesConfig }

const (
	// formBytesMax bounds the body of a form.
	formBytesMax = 16 << 10
	nextLenMax   = 4096
	// keepCookie holds what an issuer must see again; Lax, since the browser
	// comes back from another site.
	keepCookie = auth.LoginCookie + "-away"
	awayFor    = 10 * time.Minute
)

// Register adds the routes to the table.
func Register(t *route.Table, c PagesConfig) {
	p := pages{c}
	route.JSON(t, route.Operation{
		Method: http.MethodGet, Path: "/v1/login", Scope: key.Read, ID: "get-login", Tag: "logins", Summary: "Say who is asking",
	}, p.whoami)
	if c.Store == nil {
		return
	}
	t.Plain("/login", route.Public, map[string]bool{"next": false, "code": false}, p.show)
	route.Raw(t, route.Operation{
		Method: http.MethodPost, Path: "/login", Scope: route.Public, ID: "login", Tag: "logins", Status: http.StatusSeeOther,
		Summary: "Log a browser in: a form with `key`, or `code`, and `next`", Takes: form, Sends: route.Bytes("text/html", "The page, or a redirect"),
	}, p.logIn)
	route.JSON(t, route.Operation{
		Method: http.MethodPost, Path: "/v1/login/codes", Scope: key.Read, ID: "create-login-code", Tag: "logins",
		Summary: "Get an address that logs one browser in as the caller, once and within two minutes",
	}, p.invite)
	route.Raw(t, route.Operation{
		Method: http.MethodPost, Path: "/logout", Scope: route.Public, ID: "logout", Tag: "logins", Status: http.StatusSeeOther,
		Summary: "Log a browser out, and whatever its login let in", Sends: route.Bytes("text/html", "A redirect"),
	}, p.logOut)
	if c.Issuer != nil {
		t.Plain("/login/away", route.Public, map[string]bool{"next": false}, p.away)
		t.Plain("/login/back", route.Public, nil, p.back)
	}
}

const form = "application/x-www-form-urlencoded"

type whoamiOut struct{ Body api.Login }

func (p pages) whoami(ctx context.Context, _ *struct{}) (*whoamiOut, error) {
	id := auth.From(ctx)
	out := api.Login{Tenant: id.Tenant, User: id.User, Name: id.Name, By: "key", Scopes: []string{}}
	switch {
	case id.Login != "":
		out.By = "login"
	case id.Local && id.Owner == "local":
		out.By = "socket"
	}
	for _, s := range id.Scopes {
		out.Scopes = append(out.Scopes, string(s))
	}
	return &whoamiOut{out}, nil
}

// who is logged in by the request's cookie; nil = the browser is not logged in.
func (p pages) who(r *http.Request) *auth.Identity {
	cookies := r.CookiesNamed(auth.LoginCookie)
	if len(cookies) != 1 || !p.Gate.OwnPage(r) {
		return nil
	}
	id, err := p.Store.Find(r.Context(), cookies[0].Value)
	if err != nil {
		return nil
	}
	return &id
}

func (p pages) show(w http.ResponseWriter, r *http.Request) {
	next, err := Next(r.URL.Query().Get("next"))
	if err != nil {
		problem.Write(w, err)
		return
	}
	if code := r.URL.Query().Get("code"); code != "" {
		p.offer(w, r, next, code)
		return
	}
	p.render(w, http.StatusOK, pageData{Who: p.who(r), Next: next})
}

// own refuses what is not from a page of ours.
func (p pages) own(r *http.Request) error {
	if !p.Gate.OwnPage(r) {
		return errs.New(errs.Denied, "a page of another origin may not do this")
	}
	return nil
}

func (p pages) logIn(w http.ResponseWriter, r *http.Request, _ *struct{}) error {
	if err := p.own(r); err != nil {
		return err
	}
	if typ, _, _ := strings.Cut(r.Header.Get("Content-Type"), ";"); !strings.EqualFold(strings.TrimSpace(typ), form) {
		return problem.At(http.StatusUnsupportedMediaType, errs.New(errs.Invalid, "this takes a form"))
	}
	r.Body = http.MaxBytesReader(w, r.Body, formBytesMax)
	if err := r.ParseForm(); err != nil {
		return route.BodyError(err)
	}
	next, err := Next(r.PostForm.Get("next"))
	if err != nil {
		return err
	}
	if code := r.PostForm.Get("code"); code != "" {
		return p.byCode(w, r, next, code)
	}
	id, err := p.Gate.Present(r, key.Secret(strings.TrimSpace(r.PostForm.Get("key"))))
	if err != nil {
		if !errs.Is(err, errs.Denied) && !errs.Is(err, errs.Limit) {
			return err
		}
		p.refuse(w, next, err)
		return nil
	}
	return p.start(w, r, id, func() { redirect(w, next) })
}

// refuse shows the form again, with what is wrong.
func (p pages) refuse(w http.ResponseWriter, next string, err error) {
	p.render(w, problem.Of(err).Status, pageData{Next: next, Problem: errs.Public(err)})
}

// start gives the browser a login of id; an older one of it ends.
func (p pages) start(w http.ResponseWriter, r *http.Request, id auth.Identity, arrive func()) error {
	c, err := p.Store.Start(r.Context(), id)
	if err != nil {
		return err
	}
	for _, old := range r.CookiesNamed(auth.LoginCookie) {
		if err := p.Store.End(r.Context(), old.Value); err != nil {
			return err
		}
	}
	http.SetCookie(w, c)
	arrive()
	return nil
}

func redirect(w http.ResponseWriter, to string) {
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("Location", to)
	w.WriteHeader(http.StatusSeeOther)
}

func (p pages) logOut(w http.ResponseWriter, r *http.Request, _ *struct{}) error {
	if err := p.own(r); err != nil {
		return err
	}
	for _, c := range r.CookiesNamed(auth.LoginCookie) {
		if err := p.Store.End(r.Context(), c.Value); err != nil {
			return err
		}
	}
	http.SetCookie(w, cookie("", -1))
	redirect(w, "/login")
	return nil
}

// away sends the browser to the identity provider.
func (p pages) away(w http.ResponseWriter, r *http.Request) {
	next, err := Next(r.URL.Query().Get("next"))
	var address, keep string
	if err == nil {
		address, keep, err = p.Issuer.Begin(r.Context())
	}
	if err != nil {
		problem.Write(w, err)
		return
	}
	http.SetCookie(w, away(keep+"~"+url.QueryEscape(next), int(awayFor/time.Second)))
	redirect(w, address)
}

func away(value string, maxAge int) *http.Cookie {
	return &http.Cookie{Name: keepCookie, Value: value, Path: "/", MaxAge: maxAge, Secure: true, HttpOnly: true, SameSite: http.SameSiteLaxMode}
}

// back is where the identity provider sends the browser. It arrives by a page
// and not by a redirect: on a way that began at another site the browser would
// not show its new cookie.
func (p pages) back(w http.ResponseWriter, r *http.Request) {
	if err := p.finish(w, r); err != nil {
		http.SetCookie(w, away("", -1))
		if errs.Is(err, errs.Denied) || errs.Is(err, errs.Unavailable) {
			p.render(w, problem.Of(err).Status, pageData{Next: home, Problem: errs.Public(err)})
			return
		}
		problem.Write(w, err)
	}
}

func (p pages) finish(w http.ResponseWriter, r *http.Request) error {
	cookies := r.CookiesNamed(keepCookie)
	if len(cookies) != 1 {
		return errs.New(errs.Denied, "this browser did not ask to log in, or too long ago")
	}
	keep, escaped, _ := strings.Cut(cookies[0].Value, "~")
	next, err := url.QueryUnescape(escaped)
	if err == nil {
		next, err = Next(next)
	}
	if err != nil {
		return errs.Wrap(errs.Denied, err, "this browser did not ask to log in")
	}
	id, err := p.Issuer.Finish(r.Context(), r.URL.Query(), keep)
	if err != nil {
		return err
	}
	http.SetCookie(w, away("", -1))
	return p.start(w, r, id, func() { p.render(w, http.StatusOK, pageData{Next: next, Go: true}) })
}

// home is where a login leads when the browser was not on its way to a page.
const home = "/"

// Next checks where a login leads: a path on this server, nothing that a
// browser could take for another host. "" = the list of what there is.
func Next(s string) (string, error) {
	if s == "" {
		return home, nil
	}
	u, err := url.Parse(s)
	bad := err != nil || len(s) > nextLenMax || s[0] != '/' || strings.HasPrefix(s, "//") || u.Host != "" || u.Scheme != "" ||
		strings.ContainsFunc(s, func(r rune) bool { return r <= ' ' || r >= 0x7f || r == '\\' })
	if bad {
		return "", errs.New(errs.Invalid, "%.80q is not a path of this server", s)
	}
	return s, nil
}

type pageData struct {
	Who           *auth.Identity
	Next, Problem string
	Nonce, Issuer string
	Away          string
	Code          string // logs Invited in
	Invited       *auth.Identity
	Go            bool
}

func (p pages) render(w http.ResponseWriter, status int, d pageData) {
	d.Nonce = rand.Text()
	if p.Issuer != nil {
		d.Issuer, d.Away = p.Issuer.Name(), "/login/away?"+url.Values{"next": {d.Next}}.Encode()
	}
	h := w.Header()
	h.Set("Content-Type", "text/html; charset=utf-8")
	h.Set("Cache-Control", "no-store")
	h.Set("Referrer-Policy", "same-origin")
	h.Set("Content-Security-Policy", "default-src 'none'; style-src 'nonce-"+d.Nonce+"'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'")
	w.WriteHeader(status)
	_, _ = io.WriteString(w, d.html())
}

// html is the page. Written by hand: with a template package in it, the linker
// would keep every method of every type of the program.
func (d pageData) html() string {
	e := html.EscapeString
	var b strings.Builder
	b.WriteString(`<!doctype html>
<html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width">
`)
	if d.Go {
		b.WriteString(`<meta http-equiv="refresh" content="0;url=` + e(d.Next) + `">`)
	}
	b.WriteString(`<title>skete</title>
<style nonce="` + e(d.Nonce) + `">
:root{color-scheme:light dark;--back:#f7f8fa;--card:#fff;--line:#c9ced6;--text:#171a1f;--quiet:#596270;--main:#0b5fbf;--on:#fff;--bad:#b3261e}
@media (prefers-color-scheme:dark){:root{--back:#111418;--card:#181c22;--line:#3b434f;--text:#e7eaee;--quiet:#9aa5b3;--main:#6cabf7;--on:#0a1726;--bad:#ff9389}}
body{font:15px/1.5 system-ui,sans-serif;background:var(--back);color:var(--text);min-height:100vh;margin:0;padding:1em;box-sizing:border-box;display:grid;place-items:center}
main{background:var(--card);border:1px solid var(--line);border-radius:12px;padding:2em;width:min(24em,100%);box-sizing:border-box;overflow-wrap:anywhere}
h1{font-size:1.3em;margin:.6em 0}label{display:block;font-weight:550}
input[type=password]{font:inherit;color:inherit;background:var(--card);border:1px solid var(--line);border-radius:7px;width:100%;box-sizing:border-box;padding:.5em .7em;margin:.3em 0 1em}
button{font:inherit;font-weight:550;padding:.5em 1.2em;width:100%;border:0;border-radius:7px;background:var(--main);color:var(--on);cursor:pointer}
:focus-visible{outline:2px solid var(--main);outline-offset:2px}
a{color:var(--main)}small{color:var(--quiet)}
[role=alert]{border-left:4px solid var(--bad);padding-left:.8em;color:var(--bad)}
</style><main>
<svg width="32" height="32" viewBox="0 0 16 16" aria-hidden="true"><rect width="16" height="16" rx="4" fill="#0b5fbf"/><path d="M5 5h4a2.5 2.5 0 0 1 0 5H5M7 3 5 5l2 2" fill="none" stroke="#fff" stroke-width="1.5" stroke-linecap="round" stroke-linejoin="round"/></svg>
`)
	switch {
	case d.Go:
		b.WriteString(`<p>You are logged in. <a href="` + e(d.Next) + `">Go on</a></p>`)
	case d.Who != nil:
		b.WriteString(`<h1>You are logged in</h1>
<p>Tenant <b>` + e(d.Who.Tenant) + `</b>, as ` + e(d.Who.Who()) + `.</p>
<p><a href="/">Sandboxes and runs</a></p>
<form method="post" action="/logout"><button>Log out</button></form>`)
	case d.Invited != nil:
		b.WriteString(`<h1>Log in to skete</h1>
<p>As <b>` + e(d.Invited.Who()) + `</b> of the tenant <b>` + e(d.Invited.Tenant) + `</b>.</p>
<form method="post" action="/login">
<input type="hidden" name="next" value="` + e(d.Next) + `"><input type="hidden" name="code" value="` + e(d.Code) + `">
<button autofocus>Log in</button>
</form>`)
	default:
		b.WriteString(d.form())
	}
	b.WriteString("</main></html>\n")
	return b.String()
}

// form asks for a key, or leads to the identity provider.
func (d pageData) form() string {
	e := html.EscapeString
	var b strings.Builder
	b.WriteString("<h1>Log in to skete</h1>\n")
	if d.Problem != "" {
		b.WriteString(`<p role="alert">` + e(d.Problem) + "</p>\n")
	}
	b.WriteString(`<form method="post" action="/login">
<input type="hidden" name="next" value="` + e(d.Next) + `">
<label>API key <input type="password" name="key" autocomplete="current-password" required autofocus></label>
<button>Log in</button>
</form>
`)
	if d.Issuer != "" {
		b.WriteString(`<p><a href="` + e(d.Away) + `">Log in with ` + e(d.Issuer) + "</a></p>\n")
	}
	b.WriteString(`<p><small><code>skete key create</code> makes a key, <code>skete ui</code> an address that needs none.</small></p>`)
	return b.String()
}
