package egress

import "net/netip"

// never are the addresses that are refused whatever a policy says: the host itself,
// its networks, and the services of clouds that give credentials to anyone who can
// reach them. Documentation ranges are not among them; nothing is there.
var never = prefixes(map[string]string{
	"0.0.0.0/8":        "an unspecified address",
	"10.0.0.0/8":       "a private address",
	"100.64.0.0/10":    "a private address of a carrier",
	"127.0.0.0/8":      "an address of the host itself",
	"168.63.129.16/32": "an address of a cloud's own services",
	"169.254.0.0/16":   "a link-local address, where metadata of clouds is",
	"172.16.0.0/12":    "a private address",
	"192.0.0.0/24":     "a special address",
	"192.168.0.0/16":   "a private address",
	"198.18.0.0/15":    "a special address",
	"224.0.0.0/4":      "a multicast address",
	"240.0.0.0/4":      "a special address",
	"::/96":            "a special address",
	"64:ff9b::/96":     "an address that stands for one of IPv4",
	"64:ff9b:1::/48":   "an address that stands for one of IPv4",
	"100::/64":         "a special address",
	"2001::/32":        "an address that stands for one of IPv4",
	"2002::/16":        "an address that stands for one of IPv4",
	"fc00::/7":         "a private address",
	"fe80::/10":        "a link-local address",
	"fec0::/10":        "a private address",
	"ff00::/8":         "a multicast address",
})

type prefix struct {
	netip.Prefix
	what string
}

func prefixes(m map[string]string) []prefix {
	var list []prefix
	for p, what := range m {
		list = append(list, prefix{netip.MustParsePrefix(p), what})
	}
	return list
}

// Refused says what an address is that nothing may be sent to, "" for one of the
// public network. An address of IPv4 that is written as one of IPv6 is that of IPv4.
func Refused(a netip.Addr) string {
	if !a.IsValid() {
		return "no address"
	}
	a = a.Unmap().WithZone("")
	for _, p := range never {
		if p.Contains(a) {
			return p.what
		}
	}
	return ""
}
