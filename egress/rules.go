package egress

import (
	"fmt"
	"net/netip"
	"net/url"
	"slices"
	"strings"
)

// Rules is a policy that can decide. nil lets nothing out.
type Rules struct {
	open        bool
	allow, deny []Rule
	usual       []Rule // that the profile allows
}

// Verdict is a decision.
type Verdict struct {
	Allowed bool
	Rule    string // that decided; "" = no rule speaks of it
	Why     string // it is refused
	Pinned  bool   // of a connection: it is passed on as it is
	Limited bool   // of a request: others to the same host are refused
}

// Request is what rules are about.
type Request struct {
	Host    string // as Name returns it, or an address
	Port    int
	Method  string
	Path    string // as it was sent, escaped
	Query   string
	Upgrade bool // it asks for another protocol, such as a WebSocket
}

// Connection decides about a connection before it has said anything. An allowed one
// that is not Pinned is asked about each of its requests.
func (r *Rules) Connection(host string, port int) Verdict {
	if what := refusedHost(host); what != "" {
		return Verdict{Why: what}
	}
	if d := r.denial(host, port, func(x Rule) bool { return !x.limitsRequests() }); d != nil {
		return *d
	}
	if r == nil {
		return unspoken(host, port)
	}
	for _, x := range r.allow {
		if !x.Pinned || !x.about(host, port, false) {
			continue
		}
		if d := r.denial(host, port, func(Rule) bool { return true }); d != nil {
			return *d // it is about requests, which are not seen here
		}
		return Verdict{Allowed: true, Rule: x.String(), Pinned: true}
	}
	for _, x := range r.allow {
		if x.about(host, port, false) {
			return Verdict{Allowed: true, Rule: x.String()}
		}
	}
	for _, x := range r.usual {
		if x.about(host, port, false) {
			return Verdict{Allowed: true, Rule: ofProfile(x)}
		}
	}
	if r.open {
		return Verdict{Allowed: true, Rule: Open}
	}
	return unspoken(host, port)
}

// ofProfile names a rule that no person wrote.
func ofProfile(x Rule) string { return Default + ": " + x.String() }

// Request decides about a request over a connection that is not pinned.
func (r *Rules) Request(q Request) Verdict {
	if what := refusedHost(q.Host); what != "" {
		return Verdict{Why: what}
	}
	if d := r.denial(q.Host, q.Port, func(x Rule) bool { return x.covers(q, true) }); d != nil {
		return *d
	}
	if r == nil {
		return unspoken(q.Host, q.Port)
	}
	// What is denied by its method shall not be taken for it by another name.
	limited := r.denial(q.Host, q.Port, func(Rule) bool { return true }) != nil
	var near *Rule
	for i, x := range r.allow {
		if x.Pinned || !x.about(q.Host, q.Port, false) {
			continue
		}
		if x.covers(q, false) {
			return Verdict{Allowed: true, Rule: x.String(), Limited: limited || x.limitsRequests()}
		}
		near = &r.allow[i]
	}
	for i, x := range r.usual {
		if !x.about(q.Host, q.Port, false) {
			continue
		}
		if x.covers(q, false) {
			return Verdict{Allowed: true, Rule: ofProfile(x), Limited: limited || x.limitsRequests()}
		}
		if near == nil {
			near = &r.usual[i]
		}
	}
	switch {
	case r.open:
		return Verdict{Allowed: true, Rule: Open, Limited: limited}
	case near != nil:
		return Verdict{Rule: near.String(), Why: fmt.Sprintf("of %s only this is allowed: %s", q.Host, near)}
	}
	return unspoken(q.Host, q.Port)
}

func unspoken(host string, port int) Verdict {
	return Verdict{Why: fmt.Sprintf("no rule allows %s, port %d", host, port)}
}

func refusedHost(host string) string {
	a, err := netip.ParseAddr(host)
	if err != nil {
		return ""
	}
	if what := Refused(a); what != "" {
		return host + " is " + what + ", which is always refused"
	}
	return ""
}

// denial is what a rule that denies says, nil = none does.
func (r *Rules) denial(host string, port int, applies func(Rule) bool) *Verdict {
	if r == nil {
		return nil
	}
	for _, x := range r.deny {
		if x.about(host, port, true) && applies(x) {
			return &Verdict{Rule: x.String(), Why: "a rule denies " + x.String()}
		}
	}
	return nil
}

// about reports whether a rule is about a host and port.
func (r Rule) about(host string, port int, denies bool) bool {
	switch {
	case len(r.Ports) > 0 && !slices.Contains(r.Ports, port):
		return false
	case len(r.Ports) == 0 && !denies && port != 80 && port != 443:
		return false
	}
	switch r.Host {
	case host:
		return true
	case "*":
		_, err := netip.ParseAddr(host)
		return err != nil || denies
	}
	domain, ok := strings.CutPrefix(r.Host, "*")
	return ok && strings.HasSuffix(host, domain) && len(host) > len(domain)
}

// Covers reports whether a rule that allows is about a request.
func (r Rule) Covers(q Request) bool { return r.about(q.Host, q.Port, false) && r.covers(q, false) }

// covers reports whether a rule that is about the host is about this request too.
// A path that servers may read in more than one way is covered by no rule that
// allows, and by all that deny.
func (r Rule) covers(q Request, denies bool) bool {
	if r.Access == Read && q.writes() {
		return false
	}
	if len(r.Methods) > 0 && !slices.Contains(r.Methods, q.Method) {
		return false
	}
	if len(r.Paths) == 0 {
		return true
	}
	if !plainPath(q.Path) {
		return denies
	}
	unescaped, err := url.PathUnescape(q.Path)
	return slices.ContainsFunc(r.Paths, func(p string) bool {
		return matches(p, q.Path) || denies && (err != nil || matches(p, unescaped))
	})
}

// writes reports whether a request may change what is at the host, or opens a
// channel in which that cannot be seen.
func (q Request) writes() bool {
	if q.Upgrade {
		return true
	}
	switch q.Method {
	case "GET", "HEAD", "OPTIONS":
		return asksToPush(q)
	case "POST":
		return !strings.HasSuffix(q.Path, "/git-upload-pack") || !plainPath(q.Path)
	}
	return true
}

// asksToPush reports whether git asks what it may push.
func asksToPush(q Request) bool {
	if !strings.HasSuffix(q.Path, "/info/refs") {
		return false
	}
	v, err := url.ParseQuery(q.Query)
	return err != nil || slices.ContainsFunc(v["service"], func(s string) bool { return s != "git-upload-pack" })
}

// plainPath reports whether all servers take a path for the same one.
func plainPath(p string) bool {
	if !strings.HasPrefix(p, "/") || strings.ContainsAny(p, "\\;") || strings.Contains(p, "//") {
		return false
	}
	lower := strings.ToLower(p)
	for _, s := range []string{"%2e", "%2f", "%5c", "%00", "%3b", "%25"} {
		if strings.Contains(lower, s) {
			return false
		}
	}
	for part := range strings.SplitSeq(p, "/") {
		if part == "." || part == ".." {
			return false
		}
	}
	return true
}

// badPattern says what is wrong with a path of a rule.
func badPattern(p string) string {
	switch {
	case len(p) > pathMax:
		return fmt.Sprintf("it is longer than %d bytes", pathMax)
	case !strings.HasPrefix(p, "/"):
		return `a path begins with "/"`
	case !plainPath(p):
		return `a path has no "//", "..", ";" or escaped "." and "/" in it`
	case strings.ContainsAny(p, "?#"):
		return `a path ends before "?" and "#"`
	}
	for part := range strings.SplitSeq(p, "/") {
		if strings.Contains(part, "*") && part != "*" && part != "**" {
			return `"*" and "**" stand alone between "/"`
		}
	}
	if strings.Count(p, "**") > 2 {
		return `"**" may be there twice`
	}
	return ""
}

// matches compares a path with a pattern part by part.
func matches(pattern, path string) bool {
	return matchParts(strings.Split(pattern[1:], "/"), strings.Split(path[1:], "/"))
}

// matchParts tries each length of a "**"; badPattern bounds how many there are.
func matchParts(pattern, path []string) bool {
	for i, p := range pattern {
		if p == "**" {
			for n := i; n <= len(path); n++ {
				if matchParts(pattern[i+1:], path[n:]) {
					return true
				}
			}
			return false
		}
		if i >= len(path) || p != "*" && p != path[i] {
			return false
		}
	}
	return len(pattern) == len(path)
}
