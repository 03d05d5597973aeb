package vercel

import (
	"bytes"
	"encoding/json"
	"net/http"
	"net/netip"
	"slices"
	"strings"

	"github.com/skete-dev/skete/egress"
	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/sandbox"
	"github.com/skete-dev/skete/server/auth"
)

// Modes of a policy.
const (
	allowAll = "allow-all"
	denyAll  = "deny-all"
	custom   = "custom" // of answers alone
)

// networkPolicy is what may leave a sandbox, in the client's words.
type networkPolicy struct {
	Mode    string  `json:"mode"`
	Allow   domains `json:"allow"`
	Subnets subnets `json:"subnets"`
}

type subnets struct {
	Allow []string `json:"allow"`
	Deny  []string `json:"deny"`
}

// domains are names of hosts: a list, or an object in which each has rules.
type domains []string

// UnmarshalJSON implements json.Unmarshaler. Rules of requests are refused.
func (d *domains) UnmarshalJSON(data []byte) error {
	var list []string
	if bytes.HasPrefix(bytes.TrimSpace(data), []byte("[")) {
		err := json.Unmarshal(data, &list)
		*d = list
		return err
	}
	var rules map[string]json.RawMessage
	if err := json.Unmarshal(data, &rules); err != nil {
		return err
	}
	for name, r := range rules {
		if given(r) {
			return notSupported("networkPolicy: a rule for requests to " + name)
		}
		list = append(list, name)
	}
	slices.Sort(list)
	*d = list
	return nil
}

// policy is what may leave by our rules.
func (n networkPolicy) policy() (egress.Policy, error) {
	p := egress.Policy{Profile: egress.None}
	switch n.Mode {
	case "":
	case allowAll, denyAll:
		if len(n.Allow)+len(n.Subnets.Allow)+len(n.Subnets.Deny) > 0 {
			return p, errs.New(errs.Invalid, "networkPolicy: %s has no lists", n.Mode)
		}
		if n.Mode == allowAll {
			p.Profile = egress.Open
		}
		return p, nil
	default:
		return p, errs.New(errs.Invalid, "networkPolicy: %.40q is no mode; %s and %s are", n.Mode, allowAll, denyAll)
	}
	for _, host := range n.Allow {
		if host == "*" { // asked for by name
			p.Profile = egress.Open
			continue
		}
		p.Allow = append(p.Allow, egress.Rule{Host: strings.ToLower(host)})
	}
	for _, list := range []struct {
		from []string
		into *[]egress.Rule
	}{{n.Subnets.Allow, &p.Allow}, {n.Subnets.Deny, &p.Deny}} {
		for _, text := range list.from {
			r, err := addressOf(text)
			if err != nil {
				return p, err
			}
			*list.into = append(*list.into, r)
		}
	}
	for _, problem := range egress.Problems(p) {
		return p, errs.New(errs.Invalid, "networkPolicy: %s", problem.Text)
	}
	return p, nil
}

// addressOf makes a rule of a subnet of one address. Others cannot be kept.
func addressOf(text string) (egress.Rule, error) {
	prefix, err := netip.ParsePrefix(text)
	if err != nil || !prefix.IsSingleIP() {
		return egress.Rule{}, errs.New(errs.Invalid, "networkPolicy: subnets as %.60q are not supported here, but of one address", text).
			WithHint("name hosts")
	}
	return egress.Rule{Host: prefix.Addr().String()}, nil
}

// policyView is what may leave, in an answer.
type policyView struct {
	Mode           string   `json:"mode"`
	AllowedDomains []string `json:"allowedDomains,omitempty"`
	AllowedCIDRs   []string `json:"allowedCIDRs,omitempty"`
	DeniedCIDRs    []string `json:"deniedCIDRs,omitempty"`
}

// policyOf says what may leave a sandbox; nil where that is the server's profile, for
// which clients have no words.
func policyOf(s sandbox.Spec) *policyView {
	p := s.Policy()
	v := &policyView{Mode: custom}
	switch {
	case p.Profile == egress.Default:
		return nil
	case len(p.Allow)+len(p.Deny) == 0 && p.Profile == egress.Open:
		v.Mode = allowAll
		return v
	case len(p.Allow)+len(p.Deny) == 0:
		v.Mode = denyAll
		return v
	case p.Profile == egress.Open:
		v.AllowedDomains = append(v.AllowedDomains, "*")
	}
	for _, r := range p.Allow {
		if cidr, ok := cidrOf(r.Host); ok {
			v.AllowedCIDRs = append(v.AllowedCIDRs, cidr)
			continue
		}
		v.AllowedDomains = append(v.AllowedDomains, r.Host)
	}
	for _, r := range p.Deny {
		if cidr, ok := cidrOf(r.Host); ok {
			v.DeniedCIDRs = append(v.DeniedCIDRs, cidr)
		}
	}
	return v
}

func cidrOf(host string) (string, bool) {
	a, err := netip.ParseAddr(host)
	if err != nil {
		return "", false
	}
	return netip.PrefixFrom(a, a.BitLen()).String(), true
}

// updateNetwork replaces what may leave a sandbox.
func (b *Bridge) updateNetwork(w http.ResponseWriter, r *http.Request) error {
	var in networkPolicy
	if err := decode(w, r, &in); err != nil {
		return err
	}
	p, err := in.policy()
	if err != nil {
		return err
	}
	info, err := b.there(r.Context(), sandboxOf(r))
	if err != nil {
		return err
	}
	if info.State != sandbox.Running && info.State != sandbox.Paused {
		return notRunning(info)
	}
	info, err = b.Sandboxes.Update(r.Context(), auth.From(r.Context()).Tenant, info.ID, sandbox.UpdateRequest{Network: &p})
	if err != nil {
		return err
	}
	return writeJSON(w, http.StatusOK, map[string]any{"session": sessionOf(info)})
}
