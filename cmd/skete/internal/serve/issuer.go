package serve

import (
	"net/url"
	"os"
	"strings"

	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/server/login"
)

// secretBytesMax bounds the file of a client's secret.
const secretBytesMax = 4 << 10

// issuer is the identity provider that is configured; nil = none.
func (r *running) issuer() (login.Issuer, error) {
	c := r.c.OIDC
	if c.Issuer == "" {
		return nil, nil
	}
	if r.origin() == "" {
		return nil, errs.New(errs.Invalid, "oidc needs an address to which browsers come back").WithHint("set origin, or listen")
	}
	roles, err := login.ParseRoles(c.Roles)
	if err != nil {
		return nil, err
	}
	secret, err := secretOf(c.SecretFile)
	if err != nil {
		return nil, err
	}
	return login.NewOIDC(login.OIDCConfig{
		Issuer: c.Issuer, Name: c.Name, Client: c.Client, Secret: secret, Redirect: r.origin() + "/login/back",
		Mapping: login.RoleMapping{Tenant: c.Tenant, TenantClaim: c.TenantClaim, RolesClaim: c.RolesClaim, Roles: roles},
	})
}

func secretOf(file string) (string, error) {
	if file == "" {
		return "", nil
	}
	data, err := os.ReadFile(file)
	if err != nil || len(data) > secretBytesMax {
		return "", errs.Wrap(errs.Invalid, err, "the file of oidc.secret_file cannot be read").WithHint("it holds the client's secret and nothing else")
	}
	return strings.TrimSpace(string(data)), nil
}

// hostOf is the name in an origin.
func hostOf(origin string) string {
	u, err := url.Parse(origin)
	if err != nil {
		return ""
	}
	return u.Hostname()
}
