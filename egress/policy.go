package egress

import (
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/skete-dev/skete/errs"
)

// Profiles that a policy begins with.
const (
	None    = "none"    // nothing
	Default = "default" // reading where packages and public repositories are
	Open    = "open"    // everything public
)

// Profiles are all of them.
var Profiles = []string{None, Default, Open}

// Access says how much of a host a rule allows.
type Access string

// Accesses.
const (
	All  Access = ""
	Read Access = "read" // GET, HEAD and OPTIONS, and what git fetches with
)

// Bounds of a policy.
const (
	RulesMax  = 500
	listMax   = 100 // of ports, methods and paths of a rule
	hostMax   = 253
	labelMax  = 63
	pathMax   = 1024
	methodMax = 20
)

// Policy is what people write.
type Policy struct {
	Profile string `json:"profile,omitempty" yaml:"profile"` // one of Profiles; "" = None
	Allow   []Rule `json:"allow,omitempty" yaml:"allow"`
	Deny    []Rule `json:"deny,omitempty" yaml:"deny"`
}

// Rule is about a host. Fields that are left out are about all of it.
type Rule struct {
	// Host is a name, "*.name" for all names beneath it (and not itself), "*" for
	// all names, or an address.
	Host string `json:"host" yaml:"host"`
	// Ports; none = 80 and 443 where it allows, all where it denies.
	Ports []int `json:"ports,omitempty" yaml:"ports"`
	// Access, Methods and Paths limit requests. A path begins with "/"; "*" is a part
	// of it and "**" any number of parts.
	Access  Access   `json:"access,omitempty" yaml:"access"`
	Methods []string `json:"methods,omitempty" yaml:"methods"`
	Paths   []string `json:"paths,omitempty" yaml:"paths"`
	// Pinned connections are passed on as they are, whatever they carry: for programs
	// that insist on the certificate of the real host, and for protocols other than
	// HTTP. Nothing about requests can be said of them.
	Pinned bool `json:"pinned,omitempty" yaml:"pinned"`
}

// limitsRequests reports whether the rule is about some requests only.
func (r Rule) limitsRequests() bool {
	return r.Access != All || len(r.Methods) > 0 || len(r.Paths) > 0
}

// String writes a rule on one line, as `skete egress show` does.
func (r Rule) String() string {
	var b strings.Builder
	b.WriteString(r.Host)
	if len(r.Ports) > 0 {
		b.WriteString(":" + joinInts(r.Ports))
	}
	if r.Access != All {
		b.WriteString(" " + string(r.Access))
	}
	for _, list := range [][]string{r.Methods, r.Paths} {
		if len(list) > 0 {
			b.WriteString(" " + strings.Join(list, ","))
		}
	}
	if r.Pinned {
		b.WriteString(" pinned")
	}
	return b.String()
}

func joinInts(list []int) string {
	var s []string
	for _, n := range list {
		s = append(s, strconv.Itoa(n))
	}
	return strings.Join(s, ",")
}

// Problem is a mistake in a policy. Field is its place, such as "allow[2].ports[0]".
type Problem struct{ Field, Text string }

// Problems lists all mistakes of a policy.
func Problems(p Policy) []Problem {
	var list []Problem
	add := func(field, format string, args ...any) {
		list = append(list, Problem{field, fmt.Sprintf(format, args...)})
	}
	if p.Profile != "" && !slices.Contains(Profiles, p.Profile) {
		add("profile", "%.60q is no profile; use %s", p.Profile, strings.Join(Profiles, ", "))
	}
	if n := len(p.Allow) + len(p.Deny); n > RulesMax {
		add("allow", "there are %d rules, at most %d are possible", n, RulesMax)
		return list
	}
	for i, r := range p.Allow {
		r.problems(fmt.Sprintf("allow[%d].", i), false, add)
	}
	for i, r := range p.Deny {
		r.problems(fmt.Sprintf("deny[%d].", i), true, add)
	}
	return list
}

func (r Rule) problems(at string, denies bool, add func(field, format string, args ...any)) {
	if why := badHost(r.Host); why != "" {
		add(at+"host", "%.100q is no host: %s", r.Host, why)
	}
	if r.Access != All && r.Access != Read {
		add(at+"access", "%.40q is no access; use %s, or leave it out", r.Access, Read)
	}
	if n := max(len(r.Ports), len(r.Methods), len(r.Paths)); n > listMax {
		add(at+"host", "there are %d ports, methods or paths, at most %d are possible", n, listMax)
		return
	}
	for i, p := range r.Ports {
		if p < 1 || p > 65535 {
			add(fmt.Sprintf("%sports[%d]", at, i), "%d is no port; ports are 1 to 65535", p)
		}
	}
	for i, m := range r.Methods {
		if !isMethod(m) {
			add(fmt.Sprintf("%smethods[%d]", at, i), "%.40q is no method; they are written in capitals, such as GET", m)
		}
	}
	for i, p := range r.Paths {
		if why := badPattern(p); why != "" {
			add(fmt.Sprintf("%spaths[%d]", at, i), "%.100q: %s", p, why)
		}
	}
	switch {
	case r.Pinned && r.limitsRequests():
		add(at+"pinned", "nothing can be said of the requests of a pinned host: leave out access, methods and paths")
	case r.Pinned && denies:
		add(at+"pinned", "a host that is denied cannot be pinned")
	case r.Access != All && denies:
		add(at+"access", "a rule that denies names methods or paths; to allow reading alone, give the rule that allows this access")
	case r.Pinned && strings.Contains(r.Host, "*"):
		add(at+"pinned", "name the hosts that are pinned: what is sent to them cannot be seen")
	}
}

func isMethod(m string) bool {
	ok := m != "" && len(m) <= methodMax
	for _, c := range []byte(m) {
		ok = ok && (c >= 'A' && c <= 'Z' || c == '-')
	}
	return ok
}

// badHost says what is wrong with the host of a rule.
func badHost(h string) string {
	if h == "*" {
		return ""
	}
	if a, err := netip.ParseAddr(h); err == nil {
		if what := Refused(a); what != "" {
			return "it is " + what + ", which is always refused"
		}
		return ""
	}
	name := strings.TrimPrefix(h, "*.")
	if strings.Contains(name, "*") {
		return `"*" stands alone or in front, as in "*.example.com"`
	}
	if strings.ContainsAny(name, "/:@") {
		return "it is the name alone, without a scheme, a port or a path"
	}
	switch Name(name) {
	case "":
		return "a name has labels of a-z, 0-9, - and _ with dots between them; other letters are written in punycode (xn--…)"
	case name:
		return ""
	}
	return fmt.Sprintf("write %q", strings.TrimSuffix(h, name)+Name(name))
}

// Name returns a host's name as rules and decisions have it, in lower case and
// without a final dot; "" for what is no name. Names that look like an address
// (1.2, 0x7f.1, 2130706433) are none: some programs take them for one.
func Name(s string) string {
	s = strings.ToLower(strings.TrimSuffix(s, "."))
	if s == "" || len(s) > hostMax {
		return ""
	}
	labels := strings.Split(s, ".")
	for _, l := range labels {
		if !isLabel(l) {
			return ""
		}
	}
	if last := labels[len(labels)-1]; isNumber(last) {
		return ""
	}
	return s
}

func isLabel(l string) bool {
	if l == "" || len(l) > labelMax || l[0] == '-' || l[len(l)-1] == '-' {
		return false
	}
	for _, c := range []byte(l) {
		if (c < 'a' || c > 'z') && (c < '0' || c > '9') && c != '-' && c != '_' {
			return false
		}
	}
	return true
}

// isNumber reports whether inet_aton would take a label for a number.
func isNumber(l string) bool {
	_, err := strconv.ParseUint(l, 0, 64)
	if _, decimal := strconv.ParseUint(l, 10, 64); decimal == nil {
		return true
	}
	return err == nil || strings.HasPrefix(l, "0x") && len(l) == 2
}

// Compile checks a policy. Of the profile Default it allows what usual does, which
// package egress/registry knows. Invalid names all mistakes of the policy.
func Compile(p Policy, usual ...Rule) (*Rules, error) {
	problems := Problems(p)
	if len(problems) == 0 {
		r := &Rules{open: p.Profile == Open, allow: slices.Clone(p.Allow), deny: slices.Clone(p.Deny)}
		if p.Profile == Default {
			r.usual = slices.Clone(usual)
		}
		return r, nil
	}
	var texts []string
	for _, x := range problems {
		texts = append(texts, x.Field+": "+x.Text)
	}
	return nil, errs.New(errs.Invalid, "the network policy: %s", strings.Join(texts, "; "))
}
