package registry

import (
	"cmp"
	"net"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/skete-dev/skete/egress"
	"github.com/skete-dev/skete/errs"
)

// Set is where package managers fetch from.
type Set struct {
	Sources []Source `json:"sources"`
	// Env and Files make the package managers of a machine use the same mirrors as
	// those of the host do. Nothing is there for a mirror that is nobody's choice.
	Env   map[string]string `json:"env,omitempty"`
	Files map[string]string `json:"files,omitempty"` // absolute paths and contents
}

// Source is a place that one package manager fetches from.
type Source struct {
	Tool string `json:"tool"` // apt, cargo, go, npm or pip; operator: the configuration names it
	URL  string `json:"url"`  // http or https, without credentials
	// Hosts have the files that the URL's host lists; Follow fills them in.
	Hosts []string `json:"hosts,omitempty"`
}

// gitHosts are those from which the public may clone, and the hosts that they redirect
// downloads to.
var gitHosts = []string{
	"github.com", "api.github.com", "codeload.github.com", "*.githubusercontent.com", "gitlab.com", "bitbucket.org", "codeberg.org",
}

// Of returns the source at a URL that the operator names. Invalid: rules cannot name it.
func Of(raw string) (Source, error) {
	clean := cleanURL(raw)
	if clean == "" {
		return Source{}, errs.New(errs.Invalid, "%.100q is no place of packages", raw).WithHint("http:// or https:// and a host's name; private addresses are refused to all sandboxes")
	}
	return Source{Tool: "operator", URL: clean}, nil
}

// Rules allow to read from the sources, and from public git hosts.
func (s Set) Rules() []egress.Rule {
	var rules []egress.Rule
	for _, h := range gitHosts {
		rules = append(rules, egress.Rule{Host: h, Access: egress.Read})
	}
	for _, src := range s.Sources {
		u, err := url.Parse(src.URL)
		if err != nil {
			continue
		}
		rule := egress.Rule{Host: u.Hostname(), Access: egress.Read}
		if port, err := strconv.Atoi(u.Port()); err == nil && port != 80 && port != 443 {
			rule.Ports = []int{port}
		}
		rules = append(rules, rule)
		for _, h := range src.Hosts {
			rules = append(rules, egress.Rule{Host: h, Access: egress.Read})
		}
	}
	slices.SortFunc(rules, func(a, b egress.Rule) int { return cmp.Compare(a.String(), b.String()) })
	rules = slices.CompactFunc(rules, func(a, b egress.Rule) bool { return a.String() == b.String() })
	return rules[:min(len(rules), egress.RulesMax)]
}

// Bounds of a Set, which may come from a machine.
const (
	urlMax     = 1024
	sourcesMax = 64
	hostsMax   = 8 // of a source, beside its own
)

// add notes a source once. What is no URL of a public registry is left out.
func (s *Set) add(tool, raw string) (clean string) {
	clean = cleanURL(raw)
	if clean == "" || len(s.Sources) == sourcesMax {
		return clean
	}
	if !slices.ContainsFunc(s.Sources, func(o Source) bool { return o.Tool == tool && o.URL == clean }) {
		s.Sources = append(s.Sources, Source{Tool: tool, URL: clean})
	}
	return clean
}

// cleanURL returns a URL without what is not to be told to machines: credentials, and
// a query, which may have some; "" for one that names no host which can be allowed.
func cleanURL(raw string) string {
	if len(raw) > urlMax {
		return ""
	}
	u, err := url.Parse(strings.TrimPrefix(strings.TrimSpace(raw), "sparse+"))
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Opaque != "" {
		return ""
	}
	host := egress.Name(u.Hostname())
	if host == "" || !strings.Contains(host, ".") {
		return ""
	}
	if port := u.Port(); port != "" {
		if n, err := strconv.Atoi(port); err != nil || n < 1 || n > 65535 {
			return ""
		}
		host = net.JoinHostPort(host, port)
	}
	u.Host, u.User, u.RawQuery, u.ForceQuery, u.Fragment, u.RawFragment = host, nil, "", false, "", ""
	return u.String()
}
