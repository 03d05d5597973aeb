package envd

import (
	"net"
	"net/http"
	"strings"
)

// Names of the bridge beneath the domain where ports of sandboxes are shown. The
// label of a sandbox begins like that of its preview on the same port.
const (
	apiLabel        = "api"
	envdLabelPrefix = "49983-"
)

// Host is the name that the REST API has beneath a domain.
func Host(domain string) string { return apiLabel + "." + hostname(domain) }

// Named returns a request that came by a host name, as one for the paths that
// Register mounts; ok is false when the host is not one of the bridge's:
//
//	api.<domain>          the REST API
//	49983-<id>.<domain>   envd in a sandbox
//
// The name alone says for which sandbox it is: headers that would say otherwise are
// removed, so that a page which a sandbox serves cannot aim its own requests
// elsewhere.
func (b *Bridge) Named(r *http.Request) (named *http.Request, ok bool) {
	label, ok := strings.CutSuffix(hostname(r.Host), "."+hostname(b.Domain))
	if !ok || b.Domain == "" {
		return nil, false
	}
	id, sandboxes := strings.CutPrefix(label, envdLabelPrefix)
	if label != apiLabel && (!sandboxes || id == "") {
		return nil, false
	}
	named = r.Clone(r.Context())
	named.Header.Del(idHeader)
	named.Header.Del(portHeader)
	if sandboxes {
		named.Header.Set(idHeader, id)
		named.Header.Set(portHeader, strings.TrimSuffix(envdLabelPrefix, "-"))
	}
	named.Host = Host(b.Domain) // the server goes by one name of these
	named.URL.Path = prefix + r.URL.Path
	if r.URL.RawPath != "" {
		named.URL.RawPath = prefix + r.URL.RawPath
	}
	return named, true
}

// hostname is the lower-case name of a host without its port.
func hostname(host string) string {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	return strings.ToLower(host)
}
