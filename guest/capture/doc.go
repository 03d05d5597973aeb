// Package capture takes the connections that programs of a machine open to the public
// network, so that they can be carried to the host.
//
//	c, err := capture.Start(capture.Config{Open: dialHost, Log: log})
//	defer c.Close()
//
// The machine has no network interface but the loopback one. All addresses of IPv4 are
// given to that, so that a connection to any of them ends in the machine, and a rule of
// the kernel's address translation redirects it to our listener; the kernel remembers
// where it was to go. Programs need no settings, and ports stay free for them. Datagrams
// but queries of names are refused at once, so that programs which try QUIC first fall
// back; IPv6 is unreachable, with the same effect.
//
// This works alike in gVisor, whose loopback interface takes each address of its prefix
// for its own, and in Linux, which has routes of the type "local" for it. It needs
// CAP_NET_ADMIN and CAP_NET_RAW in the machine's network namespace, which no command has.
//
// Each stream to the host begins with a line: "tcp ADDRESS:PORT", or "dns" for queries
// of names as in RFC 7766, each with its length in front.
package capture
