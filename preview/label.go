package preview

import (
	"net"
	"strconv"
	"strings"

	"github.com/skete-dev/skete/errs"
)

const (
	idPrefix = "sbx_"
	// idLen is of a sandbox's id without its prefix: 100 random bits in base 32.
	idLen    = 20
	idDigits = "abcdefghijklmnopqrstuvwxyz234567"
	// hostBytesMax is the longest DNS name, and a port.
	hostBytesMax = 253 + 6
)

// Target is a port of a sandbox.
type Target struct {
	Sandbox string `json:"sandbox"` // sbx_…
	Port    uint16 `json:"port"`
}

// Label is the target's part of a host name: "5173-<id without sbx_>". All
// random bits of the id are in it, so hosts are as hard to guess as ids.
func (t Target) Label() string {
	return strconv.Itoa(int(t.Port)) + "-" + strings.TrimPrefix(t.Sandbox, idPrefix)
}

// ParseLabel reads what Label wrote, and nothing else: each target has one label.
func ParseLabel(s string) (Target, error) {
	digits, id, ok := strings.Cut(s, "-")
	port, err := strconv.ParseUint(digits, 10, 16)
	if !ok || err != nil || port == 0 || digits != strconv.FormatUint(port, 10) || !idOK(id) {
		return Target{}, errs.New(errs.Invalid, "%.80q names no port of a sandbox", s).WithHint("it looks like 5173-k3j5…")
	}
	return Target{Sandbox: idPrefix + id, Port: uint16(port)}, nil
}

// ParseTarget checks a sandbox's id and a port.
func ParseTarget(sandbox string, port int) (Target, error) {
	id, ok := strings.CutPrefix(sandbox, idPrefix)
	if !ok || !idOK(id) {
		return Target{}, errs.New(errs.Invalid, "%.40q is not a sandbox id", sandbox)
	}
	if port < 1 || port > 65535 {
		return Target{}, errs.New(errs.Invalid, "%d is not a port", port).WithHint("ports are 1 to 65535")
	}
	return Target{Sandbox: sandbox, Port: uint16(port)}, nil
}

func idOK(id string) bool { return len(id) == idLen && strings.Trim(id, idDigits) == "" }

// hostName is the lower-case name of a Host header without its port. A final
// dot stays: such a host is another origin to a browser, and none of ours.
func hostName(host string) string {
	if len(host) > hostBytesMax {
		return ""
	}
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	return strings.ToLower(host)
}

// parseHost finds the target that a Host header names.
func (p *Previews) parseHost(host string) (Target, error) {
	label, ok := strings.CutSuffix(hostName(host), p.suffix)
	if !ok {
		return Target{}, errs.New(errs.NotFound, "this is no host of previews")
	}
	return ParseLabel(label)
}

// Match reports whether a Host header is one of previews: preview.<domain> and
// everything beneath it, well-formed or not, so that no such name can ever reach
// the app.
func (p *Previews) Match(host string) bool {
	name := hostName(host)
	return strings.HasSuffix(name, p.suffix) || name == p.bare
}

// origin is where a target is shown.
func (p *Previews) origin(t Target) string {
	return p.scheme + "://" + t.Label() + p.suffix + p.port
}
