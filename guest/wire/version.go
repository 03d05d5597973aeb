package wire

import "github.com/skete-dev/skete/errs"

// Version is the one number of the protocol. It grows by one with every
// change that a peer could notice; each growth has a dated line here.
//
//	1  2026-11-21  first
//	2  2026-11-23  History.Unsaved
//	3  2026-11-26  Boot.Network, AdoptRequest.authority and files
const (
	Version    = 3
	VersionMin = 1 // the oldest that we still speak
)

// Negotiate returns the highest version that both sides speak.
func Negotiate(peerMin, peerMax uint32) (uint32, error) {
	if peerMin > peerMax || peerMax < VersionMin || peerMin > Version {
		return 0, errs.New(errs.Unsupported, "guest protocol %d..%d is not spoken here (%d..%d)", peerMin, peerMax, VersionMin, Version).
			WithHint("host and guest binary must come from the same build; run `make build`")
	}
	return min(peerMax, Version), nil
}
