package envd

import (
	"encoding/json"
	"net/http"
	"net/netip"
	"strings"

	"github.com/skete-dev/skete/egress"
	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/sandbox"
	"github.com/skete-dev/skete/server/auth"
)

// network is what may leave a sandbox, in the client's words. Where a field is
// missing everything leaves there; here it is what the profile default allows.
type network struct {
	AllowPublicTraffic *bool    `json:"allowPublicTraffic,omitempty"` // ports need the token here in any case
	AllowOut           []string `json:"allowOut,omitempty"`
	DenyOut            []string `json:"denyOut,omitempty"`
	AllowInternet      *bool    `json:"allow_internet_access,omitempty"` // of updates
	// Rules by host; what they send is granted by secrets.
	Rules           map[string][]rule `json:"rules,omitempty"`
	EgressProxy     json.RawMessage   `json:"egressProxy,omitempty"`
	MaskRequestHost string            `json:"maskRequestHost,omitempty"`
	HTTPSPorts      []int             `json:"httpsPorts,omitempty"`
}

// allTraffic is how clients write everything.
const allTraffic = "0.0.0.0/0"

// unsupported names what was asked for and is not supported; "" = all is.
func (n network) unsupported() string {
	switch {
	case given(n.EgressProxy):
		return "network.egressProxy"
	case n.MaskRequestHost != "":
		return "network.maskRequestHost"
	case len(n.HTTPSPorts) > 0:
		return "network.httpsPorts"
	}
	return ""
}

// given reports whether a field holds anything.
func given(value json.RawMessage) bool {
	switch strings.Join(strings.Fields(string(value)), "") {
	case "", "null", "{}", "[]":
		return false
	}
	return true
}

// policy is what may leave by our rules.
func (n network) policy() (egress.Policy, error) {
	if name := n.unsupported(); name != "" {
		return egress.Policy{}, notSupported(name)
	}
	p := egress.Policy{Profile: egress.Default}
	if n.AllowInternet != nil && !*n.AllowInternet {
		p.Profile = egress.None
	}
	allowed := map[string]bool{}
	for _, host := range n.AllowOut {
		if host == allTraffic {
			p.Profile = egress.Open // asked for by name
			continue
		}
		r, err := ruleOf(host)
		if err != nil {
			return p, err
		}
		allowed[r.Host] = true
		p.Allow = append(p.Allow, r)
	}
	for _, host := range n.DenyOut {
		if host == allTraffic {
			if p.Profile != egress.Open { // what is allowed wins
				p.Profile = egress.None
			}
			continue
		}
		r, err := ruleOf(host)
		if err != nil {
			return p, err
		}
		if !allowed[r.Host] {
			p.Deny = append(p.Deny, r)
		}
	}
	for _, problem := range egress.Problems(p) {
		return p, errs.New(errs.Invalid, "network: %s", problem.Text)
	}
	return p, nil
}

// ruleOf makes a rule of a host. A range of one address is that address.
func ruleOf(host string) (egress.Rule, error) {
	prefix, err := netip.ParsePrefix(host)
	switch {
	case err != nil:
		return egress.Rule{Host: strings.ToLower(host)}, nil
	case prefix.IsSingleIP():
		return egress.Rule{Host: prefix.Addr().String()}, nil
	}
	return egress.Rule{}, errs.New(errs.Invalid, "network: ranges of addresses as %.60q are not supported here", host).
		WithHint("name hosts; %s is everything", allTraffic)
}

func notSupported(option string) error {
	return errs.New(errs.Invalid, "%.80s is not supported here", option).WithHint("`skete help bridges` lists what is")
}

// updateNetwork replaces what may leave a sandbox.
func (b *Bridge) updateNetwork(w http.ResponseWriter, r *http.Request) error {
	var in network
	if err := decode(w, r, &in); err != nil {
		return err
	}
	if in.AllowPublicTraffic != nil {
		return notSupported("allowPublicTraffic")
	}
	p, err := in.policy()
	if err != nil {
		return err
	}
	ctx := r.Context()
	rules, err := b.rules(auth.From(ctx).Tenant, &in)
	if err != nil {
		return err
	}
	info, err := b.find(ctx, sandboxOf(r))
	if err != nil {
		return err
	}
	rec, err := b.records.get(ctx, info.ID)
	if err != nil && !errs.Is(err, errs.NotFound) {
		return err
	}
	if len(rules) > 0 && rec.Tenant == "" {
		return errs.New(errs.Invalid, "network.rules are of sandboxes that were made or connected to here")
	}
	// First what it had, so that what is cut short leaves it with less and not with more.
	if err := b.revokeRules(ctx, rec); err != nil {
		return err
	}
	if _, err := b.Sandboxes.Update(ctx, info.Tenant, info.ID, sandbox.UpdateRequest{Network: &p}); err != nil {
		return err
	}
	if rec.Tenant != "" {
		if err := b.records.setNetwork(ctx, info.ID, &in); err != nil {
			return err
		}
	}
	if err := b.grant(ctx, info.Tenant, info.ID, rules); err != nil {
		return err
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}
