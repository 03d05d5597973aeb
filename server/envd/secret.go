package envd

import (
	"context"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/skete-dev/skete/egress"
	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/internal/pattern"
	"github.com/skete-dev/skete/sandbox"
	"github.com/skete-dev/skete/secret"
	"github.com/skete-dev/skete/server/auth"
)

// Secrets of clients are those of the tenant. A client makes one that is sent nowhere;
// the rules of a sandbox's network grant it to that sandbox, as a header for a host.

// Secrets is what is needed of *secret.Store.
type Secrets interface {
	List(tenant string) []secret.Secret
	Get(tenant, name string) (secret.Secret, error)
	Put(ctx context.Context, tenant string, p secret.Put) (secret.Secret, error)
	Regrant(ctx context.Context, tenant, name string, f func([]secret.Grant) []secret.Grant) (secret.Secret, error)
	Delete(ctx context.Context, tenant, name string) error
}

// secretView is what is told of a secret. Its name is its id.
type secretView struct {
	SecretID       string            `json:"secretID"`
	Name           string            `json:"name"`
	CurrentVersion int               `json:"currentVersion"`
	Metadata       map[string]string `json:"metadata"`
	CreatedAt      time.Time         `json:"createdAt"`
	UpdatedAt      time.Time         `json:"updatedAt"`
}

func viewOfSecret(s secret.Secret) secretView {
	return secretView{
		SecretID: s.Name, Name: s.Name, CurrentVersion: s.Version, Metadata: map[string]string{}, CreatedAt: s.CreatedAt, UpdatedAt: s.UpdatedAt,
	}
}

func answerSecret(w http.ResponseWriter, status int, s secret.Secret, err error) error {
	if err == nil {
		writeJSON(w, status, viewOfSecret(s))
	}
	return err
}

// withSecrets is a handler of servers that keep secrets.
func (b *Bridge) withSecrets(h apiHandler) apiHandler {
	return func(w http.ResponseWriter, r *http.Request) error {
		if b.Secrets == nil {
			return notSupported("a secret")
		}
		return h(w, r)
	}
}

func (b *Bridge) listSecrets(w http.ResponseWriter, r *http.Request) error {
	size, from, err := pageOf(r.URL.Query().Get("limit"), r.URL.Query().Get("nextToken"))
	if err != nil {
		return err
	}
	all := b.Secrets.List(auth.From(r.Context()).Tenant)
	all = all[min(from, len(all)):]
	if len(all) > size {
		all = all[:size]
		w.Header().Set("X-Next-Token", strconv.Itoa(from+size))
	}
	views := []secretView{}
	for _, s := range all {
		views = append(views, viewOfSecret(s))
	}
	writeJSON(w, http.StatusOK, views)
	return nil
}

func (b *Bridge) getSecret(w http.ResponseWriter, r *http.Request) error {
	s, err := b.Secrets.Get(auth.From(r.Context()).Tenant, r.PathValue("secret"))
	return answerSecret(w, http.StatusOK, s, err)
}

// newSecret is a request to make a secret, or a new version of one.
type newSecret struct {
	Name     string            `json:"name"`
	Value    string            `json:"value"`
	Metadata map[string]string `json:"metadata"`
}

// putSecret sets the value of a secret that is there, or of one that is not.
func (b *Bridge) putSecret(w http.ResponseWriter, r *http.Request) error {
	var in newSecret
	if err := decode(w, r, &in); err != nil {
		return err
	}
	if len(in.Metadata) > 0 {
		return notSupported("metadata of secrets")
	}
	tenant, status := auth.From(r.Context()).Tenant, http.StatusCreated
	p := secret.Put{Name: in.Name, Value: secret.New(in.Value), TTL: -1}
	if name := r.PathValue("secret"); name != "" {
		if in.Name != "" {
			return errs.New(errs.Invalid, "a secret keeps its name")
		}
		p.Name, status = name, http.StatusOK
	}
	_, err := b.Secrets.Get(tenant, p.Name)
	switch {
	case status == http.StatusOK && err != nil:
		return err
	case status == http.StatusCreated && err == nil:
		return errs.New(errs.Exists, "there is a secret %.80q", p.Name)
	}
	s, err := b.Secrets.Put(r.Context(), tenant, p)
	return answerSecret(w, status, s, err)
}

func (b *Bridge) deleteSecret(w http.ResponseWriter, r *http.Request) error {
	if err := b.Secrets.Delete(r.Context(), auth.From(r.Context()).Tenant, r.PathValue("secret")); err != nil {
		return err
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

// Bounds of the rules of a network.
const (
	ruleHostsMax   = 10
	ruleHeadersMax = 20
)

// rule says what is changed in requests for a host.
type rule struct {
	Transform *transform `json:"transform,omitempty"`
}

type transform struct {
	Headers map[string]string `json:"headers,omitempty"`
}

// granted is a secret and where a rule sends it.
type granted struct {
	name  string
	grant secret.Grant // without its sandbox
}

// headerForm is a value of a header that is a secret.
var headerForm = pattern.Lazy(`^(Bearer )?\$\{e2b\.secrets\.([^{}]+)\}$`)

// grants are the rules in our words. What stands in a header is never repeated: it may be
// a secret in plain text.
func (n *network) grants() ([]granted, error) {
	if n == nil {
		return nil, nil
	}
	if len(n.Rules) > ruleHostsMax {
		return nil, errs.New(errs.Invalid, "network.rules: at most %d hosts", ruleHostsMax)
	}
	var all []granted
	for _, host := range slices.Sorted(maps.Keys(n.Rules)) {
		rules := n.Rules[host]
		if len(rules) > 1 {
			return nil, errs.New(errs.Invalid, "network.rules: there is more than one rule for %.100q", host)
		}
		if len(rules) == 0 || rules[0].Transform == nil {
			continue
		}
		headers := rules[0].Transform.Headers
		if len(headers) > ruleHeadersMax {
			return nil, errs.New(errs.Invalid, "network.rules: at most %d headers for a host", ruleHeadersMax)
		}
		for _, header := range slices.Sorted(maps.Keys(headers)) {
			one, err := grantOf(host, header, headerForm().FindStringSubmatch(headers[header]))
			if err != nil {
				return nil, err
			}
			all = append(all, one)
		}
	}
	return all, nil
}

// grantOf reads one header of a rule, whose value has matched headerForm or not.
func grantOf(host, header string, value []string) (granted, error) {
	g := secret.Grant{Where: egress.Rule{Host: strings.ToLower(host)}, As: secret.Header, Key: header}
	switch {
	case value == nil:
		return granted{}, errs.New(errs.Invalid, "network.rules: the header %.60q for %.100q is no secret; other values are not supported here", header, host).
			WithHint("make it a secret with Secret.create, and write Secret.fill(name) or `Bearer ${Secret.fill(name)}`")
	case value[1] != "" && !strings.EqualFold(header, "Authorization"):
		return granted{}, errs.New(errs.Invalid, "network.rules: Bearer is of the header Authorization, not of %.60q", header)
	case value[1] != "":
		g.As, g.Key = secret.Bearer, ""
	}
	return granted{value[2], g}, nil
}

// rules refuses those that cannot be kept, before there is a sandbox.
func (b *Bridge) rules(tenant string, n *network) ([]granted, error) {
	all, err := n.grants()
	if err != nil || len(all) == 0 {
		return nil, err
	}
	if b.Secrets == nil {
		return nil, notSupported("network.rules")
	}
	for _, g := range all {
		if _, err := b.Secrets.Get(tenant, g.name); errs.Is(err, errs.NotFound) {
			return nil, errs.Wrap(errs.Invalid, err, "network.rules: there is no secret %.80q", g.name)
		} else if err != nil {
			return nil, err
		}
	}
	return all, nil
}

// grant lets a sandbox use secrets, each as its rule says.
func (b *Bridge) grant(ctx context.Context, tenant string, id sandbox.ID, all []granted) error {
	for _, g := range all {
		_, err := b.Secrets.Regrant(ctx, tenant, g.name, func(list []secret.Grant) []secret.Grant {
			i := slices.IndexFunc(list, g.is)
			if i < 0 {
				one := g.grant
				one.Sandboxes = []string{string(id)}
				return append(list, one)
			}
			if !slices.Contains(list[i].Sandboxes, string(id)) {
				list[i].Sandboxes = append(slices.Clone(list[i].Sandboxes), string(id))
			}
			return list
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// is reports whether a grant is of the same rule, for whichever sandboxes.
func (g granted) is(x secret.Grant) bool {
	return x.Where.Host == g.grant.Where.Host && len(x.Where.Ports)+len(x.Where.Methods)+len(x.Where.Paths) == 0 &&
		x.As == g.grant.As && x.Key == g.grant.Key && !x.OAuth && x.Env == "" && len(x.Agents) == 0 && len(x.Sandboxes) > 0
}

// revoke takes from a sandbox what its rules have granted. It may be repeated.
func (b *Bridge) revoke(ctx context.Context, tenant string, id sandbox.ID, all []granted) error {
	for _, g := range all {
		_, err := b.Secrets.Regrant(ctx, tenant, g.name, func(list []secret.Grant) []secret.Grant {
			return without(list, id, g.is)
		})
		if err != nil && !errs.Is(err, errs.NotFound) {
			return err
		}
	}
	return nil
}

// revokeRules takes from a sandbox what its record says that its rules have granted.
func (b *Bridge) revokeRules(ctx context.Context, rec record) error {
	all, err := rec.Network.grants()
	if err != nil || b.Secrets == nil {
		return err
	}
	return b.revoke(ctx, rec.Tenant, rec.Sandbox, all)
}

// without takes a sandbox out of grants. One that was for it alone goes: without any
// sandbox it would be for all.
func without(list []secret.Grant, id sandbox.ID, which func(secret.Grant) bool) []secret.Grant {
	kept := []secret.Grant{}
	for _, g := range list {
		if which(g) && slices.Contains(g.Sandboxes, string(id)) {
			g.Sandboxes = slices.DeleteFunc(slices.Clone(g.Sandboxes), func(s string) bool { return s == string(id) })
			if len(g.Sandboxes) == 0 {
				continue
			}
		}
		kept = append(kept, g)
	}
	return kept
}
