package login

import (
	"context"
	"crypto/rand"
	"crypto/subtle"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/coreos/go-oidc/v3/oidc"
	"golang.org/x/oauth2"

	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/server/auth"
	"github.com/skete-dev/skete/server/key"
)

// This file lets people log in by an identity provider: OpenID Connect with
// the code flow, PKCE, state and nonce.
//
// The provider says who a user is; RoleMapping says what that means here: which
// tenant, and which rights. A user without a role here is not let in. The
// provider is asked for its addresses at the first login, not at start, so that
// a server starts without it; keys do not need it at all.
//
// An OIDCIssuer is safe for concurrent use.

// OIDCConfig of an OIDCIssuer.
type OIDCConfig struct {
	Issuer   string // https://…; http only on loopback
	Name     string // for people; "" = the issuer's host
	Client   string // our id there
	Secret   string // "" = none, PKCE protects alone
	Redirect string // where the browser comes back
	Mapping  RoleMapping
	HTTP     *http.Client // nil = one with a timeout
}

// RoleMapping makes an identity of claims.
type RoleMapping struct {
	Tenant string // of all users, unless TenantClaim is set
	// TenantClaim is a claim whose value is the tenant.
	TenantClaim string
	// RolesClaim is a text or a list of texts; Roles says what each may do.
	RolesClaim string
	Roles      map[string]key.Scopes
}

const (
	askTimeout = 10 * time.Second
	rolesMax   = 1000
)

// OIDCIssuer is an identity provider. It is a login.Issuer.
type OIDCIssuer struct {
	c    OIDCConfig
	name string

	mu       sync.Mutex
	provider *oidc.Provider
}

// NewOIDC checks the configuration.
func NewOIDC(c OIDCConfig) (*OIDCIssuer, error) {
	u, err := url.Parse(c.Issuer)
	if err != nil || u.Host == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "" || u.Scheme != "https" && (u.Scheme != "http" || !isLoopback(u.Hostname())) {
		return nil, errs.New(errs.Invalid, "%.80q is no address of an identity provider", c.Issuer).WithHint("oidc.issuer looks like https://id.example")
	}
	if c.Client == "" || c.Redirect == "" {
		return nil, errs.New(errs.Invalid, "an identity provider needs the client's id, and an address to come back to").WithHint("set oidc.client, and origin")
	}
	if err := c.Mapping.check(); err != nil {
		return nil, err
	}
	i := &OIDCIssuer{c: c, name: c.Name}
	if i.name == "" {
		i.name = u.Hostname()
	}
	if i.c.HTTP == nil {
		i.c.HTTP = &http.Client{Timeout: askTimeout}
	}
	return i, nil
}

func isLoopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

func (m RoleMapping) check() error {
	switch {
	case (m.Tenant == "") == (m.TenantClaim == ""):
		return errs.New(errs.Invalid, "who logs in by an identity provider needs a tenant").WithHint("set one of oidc.tenant and oidc.tenant_claim")
	case m.Tenant != "" && !key.TenantOK(m.Tenant):
		return errs.New(errs.Invalid, "%.40q is not a tenant", m.Tenant)
	case m.RolesClaim == "" || len(m.Roles) == 0:
		return errs.New(errs.Invalid, "who logs in by an identity provider needs rights").WithHint("set oidc.roles_claim, and oidc.roles such as people=read+write")
	}
	return nil
}

// ParseRoles reads "people=read+write".
func ParseRoles(list []string) (map[string]key.Scopes, error) {
	roles := map[string]key.Scopes{}
	for _, entry := range list {
		value, scopes, ok := strings.Cut(entry, "=")
		if _, twice := roles[value]; !ok || value == "" || twice {
			return nil, errs.New(errs.Invalid, "%.80q is not a role", entry).WithHint("a role looks like people=read+write, each once")
		}
		for s := range strings.SplitSeq(scopes, "+") {
			if !key.ScopeOK(key.Scope(s)) {
				return nil, errs.New(errs.Invalid, "%.40q of the role %.40q is not a scope", s, value)
			}
			roles[value] = append(roles[value], key.Scope(s))
		}
	}
	return roles, nil
}

// Name implements login.Issuer.
func (i *OIDCIssuer) Name() string { return i.name }

// discover asks the provider for its addresses, until it has answered once.
func (i *OIDCIssuer) discover(ctx context.Context) (*oidc.Provider, *oauth2.Config, error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.provider == nil {
		// The context's client fetches keys later on, too.
		p, err := oidc.NewProvider(oidc.ClientContext(ctx, i.c.HTTP), i.c.Issuer)
		if err != nil {
			return nil, nil, errs.Wrap(errs.Unavailable, err, "%s cannot be asked", i.name).WithHint("try again later, or log in with a key")
		}
		i.provider = p
	}
	return i.provider, &oauth2.Config{
		ClientID: i.c.Client, ClientSecret: i.c.Secret, Endpoint: i.provider.Endpoint(), RedirectURL: i.c.Redirect, Scopes: []string{oidc.ScopeOpenID, "profile"},
	}, nil
}

// Begin implements login.Issuer.
func (i *OIDCIssuer) Begin(ctx context.Context) (address, keep string, err error) {
	_, c, err := i.discover(ctx)
	if err != nil {
		return "", "", err
	}
	state, nonce, verifier := rand.Text(), rand.Text(), rand.Text()+rand.Text()
	address = c.AuthCodeURL(state, oidc.Nonce(nonce), oauth2.S256ChallengeOption(verifier))
	return address, state + "." + nonce + "." + verifier, nil
}

// Finish implements login.Issuer.
func (i *OIDCIssuer) Finish(ctx context.Context, query url.Values, keep string) (auth.Identity, error) {
	parts := strings.Split(keep, ".")
	if len(parts) != 3 || parts[0] == "" || subtle.ConstantTimeCompare([]byte(parts[0]), []byte(query.Get("state"))) != 1 {
		return auth.Identity{}, errs.New(errs.Denied, "this is not the answer to what this browser asked").WithHint("log in once more")
	}
	if iss := query.Get("iss"); iss != "" && iss != i.c.Issuer {
		return auth.Identity{}, errs.New(errs.Denied, "another identity provider has answered")
	}
	if e := query.Get("error"); e != "" || query.Get("code") == "" {
		return auth.Identity{}, errs.New(errs.Denied, "%s says no: %.80q", i.name, e)
	}
	token, err := i.exchange(ctx, query.Get("code"), parts[2])
	if err != nil {
		return auth.Identity{}, err
	}
	if subtle.ConstantTimeCompare([]byte(token.Nonce), []byte(parts[1])) != 1 {
		return auth.Identity{}, errs.New(errs.Denied, "the identity is of another login")
	}
	claims := map[string]any{}
	if err := token.Claims(&claims); err != nil {
		return auth.Identity{}, errs.Wrap(errs.Denied, err, "the identity cannot be read")
	}
	return i.c.Mapping.identity(i.c.Issuer, token.Subject, claims)
}

// exchange swaps a code for a checked token.
func (i *OIDCIssuer) exchange(ctx context.Context, code, verifier string) (*oidc.IDToken, error) {
	provider, c, err := i.discover(ctx)
	if err != nil {
		return nil, err
	}
	ctx = oidc.ClientContext(ctx, i.c.HTTP)
	answer, err := c.Exchange(ctx, code, oauth2.VerifierOption(verifier))
	if err != nil {
		return nil, errs.Wrap(errs.Denied, err, "%s does not know this login", i.name).WithHint("log in once more")
	}
	raw, ok := answer.Extra("id_token").(string)
	if !ok {
		return nil, errs.New(errs.Denied, "%s sent no identity", i.name)
	}
	token, err := provider.Verifier(&oidc.Config{ClientID: i.c.Client}).Verify(ctx, raw)
	if err != nil {
		return nil, errs.Wrap(errs.Denied, err, "the identity that %s sent does not hold", i.name)
	}
	return token, nil
}

// identity says what claims mean here.
func (m RoleMapping) identity(issuer, subject string, claims map[string]any) (auth.Identity, error) {
	tenant := m.Tenant
	if m.TenantClaim != "" {
		tenant, _ = claims[m.TenantClaim].(string)
	}
	if subject == "" || !key.TenantOK(tenant) {
		return auth.Identity{}, errs.New(errs.Denied, "you belong to no tenant here").WithHint("ask who runs this server")
	}
	var scopes key.Scopes
	for _, role := range claimTexts(claims[m.RolesClaim]) {
		scopes = append(scopes, m.Roles[role]...)
	}
	if len(scopes) == 0 {
		return auth.Identity{}, errs.New(errs.Denied, "you have no role here").WithHint("ask who runs this server")
	}
	slices.Sort(scopes)
	user := auth.UserOf(tenant, issuer+"\x00"+subject)
	return auth.Identity{Tenant: tenant, Owner: user, User: user, Scopes: slices.Compact(scopes)}, nil
}

// claimTexts reads a claim that is a text or a list of them.
func claimTexts(claim any) []string {
	switch v := claim.(type) {
	case string:
		return []string{v}
	case []any:
		var list []string
		for _, e := range v[:min(len(v), rolesMax)] {
			if s, ok := e.(string); ok {
				list = append(list, s)
			}
		}
		return list
	}
	return nil
}
