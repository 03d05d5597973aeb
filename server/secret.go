package server

import (
	"context"
	"net/http"

	"github.com/skete-dev/skete/api"
	"github.com/skete-dev/skete/egress"
	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/secret"
	"github.com/skete-dev/skete/server/auth"
	"github.com/skete-dev/skete/server/route"
)

// Secrets is what the server needs of *secret.Store.
type Secrets interface {
	List(tenant string) []secret.Secret
	Get(tenant, name string) (secret.Secret, error)
	Put(ctx context.Context, tenant string, p secret.Put) (secret.Secret, error)
	Change(ctx context.Context, tenant, name string, c secret.Change) (secret.Secret, error)
	Regrant(ctx context.Context, tenant, name string, f func([]secret.Grant) []secret.Grant) (secret.Secret, error)
	Delete(ctx context.Context, tenant, name string) error
}

func (s *Server) registerSecrets(t *route.Table) {
	secrets := collection{"secrets", "/v1/secrets"}
	put := secrets.one(http.MethodPut, "put-secret", "Set a secret: a new one, or a new version")
	change := secrets.one(http.MethodPatch, "change-secret", "Change where a secret is sent, or go back to a version")
	put.Private, change.Private = true, true // a value may be sent to the latter by mistake
	route.JSON(t, secrets.all(http.MethodGet, "list-secrets", "List secrets, never their values"), s.listSecrets)
	route.JSON(t, secrets.one(http.MethodGet, "get-secret", "Get what is known of a secret, never its value"), s.getSecret)
	route.JSON(t, put, s.putSecret)
	route.JSON(t, change, s.changeSecret)
	route.JSON(t, secrets.one(http.MethodDelete, "delete-secret", "Delete a secret with all its versions"), s.deleteSecret)
}

func (s *Server) secretStore() (Secrets, error) { return opened(s.secrets, "secrets") }

// SecretPath names a secret. It is exported because the JSON layer looks only into
// exported embedded fields.
type SecretPath struct {
	Name string `path:"name" maxLength:"63" doc:"of the secret"`
}

type secretOut struct{ Body api.Secret }

func secretAnswer(sec secret.Secret, err error) (*secretOut, error) {
	if err != nil {
		return nil, err
	}
	return &secretOut{secretView(sec)}, nil
}

type secretListOut struct{ Body api.SecretList }

func (s *Server) listSecrets(ctx context.Context, _ *struct{}) (*secretListOut, error) {
	store, err := s.secretStore()
	if err != nil {
		return nil, err
	}
	out := &secretListOut{api.SecretList{Items: []api.Secret{}}}
	for _, sec := range store.List(auth.From(ctx).Tenant) {
		out.Body.Items = append(out.Body.Items, secretView(sec))
	}
	return out, nil
}

func (s *Server) getSecret(ctx context.Context, in *SecretPath) (*secretOut, error) {
	store, err := s.secretStore()
	if err != nil {
		return nil, err
	}
	return secretAnswer(store.Get(auth.From(ctx).Tenant, in.Name))
}

type putSecretIn struct {
	SecretPath
	Body api.PutSecret
}

func (s *Server) putSecret(ctx context.Context, in *putSecretIn) (*secretOut, error) {
	store, err := s.secretStore()
	if err != nil {
		return nil, err
	}
	p := secret.Put{Name: in.Name, Value: secret.New(in.Body.Value), TTL: -1}
	if in.Body.TTLMS >= 0 {
		if p.TTL, err = durationOf("ttl_ms", in.Body.TTLMS); err != nil {
			return nil, err
		}
	}
	if in.Body.Grants != nil {
		p.Grants = secretGrants(*in.Body.Grants)
	}
	return secretAnswer(store.Put(ctx, auth.From(ctx).Tenant, p))
}

type changeSecretIn struct {
	SecretPath
	Body api.ChangeSecret
}

func (s *Server) changeSecret(ctx context.Context, in *changeSecretIn) (*secretOut, error) {
	store, err := s.secretStore()
	if err != nil {
		return nil, err
	}
	c := secret.Change{Version: in.Body.Version}
	if in.Body.Grants != nil {
		c.Grants = secretGrants(*in.Body.Grants)
	}
	if c.Grants == nil && c.Version == 0 {
		return nil, errs.New(errs.Invalid, "nothing is to be changed: name grants or a version")
	}
	return secretAnswer(store.Change(ctx, auth.From(ctx).Tenant, in.Name, c))
}

func (s *Server) deleteSecret(ctx context.Context, in *SecretPath) (*struct{}, error) {
	store, err := s.secretStore()
	if err != nil {
		return nil, err
	}
	return nil, store.Delete(ctx, auth.From(ctx).Tenant, in.Name)
}

func secretGrants(list []api.SecretGrant) []secret.Grant {
	out := []secret.Grant{}
	for _, g := range list {
		out = append(out, secret.Grant{
			Where: egress.Rule{Host: g.Host, Ports: g.Ports, Methods: g.Methods, Paths: g.Paths},
			As:    secret.As(g.As), Key: g.Key, OAuth: g.OAuth, Env: g.Env, Agents: g.Agents, Sandboxes: g.Sandboxes,
		})
	}
	return out
}

func secretView(sec secret.Secret) api.Secret {
	out := api.Secret{
		Name: sec.Name, Version: sec.Version, Versions: sec.Versions, Grants: []api.SecretGrant{},
		CreatedAt: sec.CreatedAt, UpdatedAt: sec.UpdatedAt, ExpiresAt: optionalTime(sec.ExpiresAt), Problem: sec.Problem,
	}
	for _, g := range sec.Grants {
		out.Grants = append(out.Grants, api.SecretGrant{
			Host: g.Where.Host, Ports: g.Where.Ports, Methods: g.Where.Methods, Paths: g.Where.Paths,
			As: string(g.As), Key: g.Key, OAuth: g.OAuth, Env: g.Env, Agents: g.Agents, Sandboxes: g.Sandboxes,
		})
	}
	return out
}
