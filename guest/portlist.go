package guest

import (
	"bufio"
	"encoding/binary"
	"encoding/hex"
	"io"
	"net/netip"
	"os"
	"sort"
	"strconv"
	"strings"

	"github.com/skete-dev/skete/guest/wire"
)

// Bounds of what is read from /proc: the programs of the sandbox decide how
// long it is.
const (
	portLineBytesMax = 4096
	portSocketsMax   = 1 << 16
	stateListen      = "0A"
)

// listPorts returns the listening TCP ports, one entry for each pair of port and
// address, sorted.
func listPorts() ([]*wire.OpenPort, error) {
	var all []*wire.OpenPort
	for _, name := range []string{"/proc/net/tcp", "/proc/net/tcp6"} {
		f, err := os.Open(name)
		if os.IsNotExist(err) { // no such protocol here
			continue
		}
		if err != nil {
			return nil, err
		}
		ports, err := parsePorts(f)
		f.Close()
		if err != nil {
			return nil, err
		}
		all = append(all, ports...)
	}
	sort.Slice(all, func(i, j int) bool { return portLess(all[i], all[j]) })
	return compactPorts(all), nil
}

func portLess(a, b *wire.OpenPort) bool {
	if a.Port != b.Port {
		return a.Port < b.Port
	}
	return a.Address < b.Address
}

// compactPorts drops repeated entries (SO_REUSEPORT) of a sorted list.
func compactPorts(ports []*wire.OpenPort) []*wire.OpenPort {
	out := ports[:0]
	for i, p := range ports {
		if i == 0 || p.Port != ports[i-1].Port || p.Address != ports[i-1].Address {
			out = append(out, p)
		}
	}
	return out
}

// parsePorts reads a table of /proc/net/tcp's form. Lines that it does not
// understand are passed over.
func parsePorts(r io.Reader) ([]*wire.OpenPort, error) {
	var ports []*wire.OpenPort
	s := bufio.NewScanner(r)
	s.Buffer(make([]byte, 0, 512), portLineBytesMax)
	for n := 0; s.Scan() && n < portSocketsMax; n++ {
		if p := parsePortLine(s.Text()); p != nil {
			ports = append(ports, p)
		}
	}
	return ports, s.Err()
}

// parsePortLine: "sl local rem st tx:rx tr:when retr uid …".
func parsePortLine(line string) *wire.OpenPort {
	f := strings.Fields(line)
	if len(f) < 8 || f[3] != stateListen {
		return nil
	}
	host, port, ok := strings.Cut(f[1], ":")
	if !ok {
		return nil
	}
	n, err := strconv.ParseUint(port, 16, 16)
	if err != nil || n == 0 {
		return nil
	}
	addr, ok := parsePortAddress(host)
	if !ok {
		return nil
	}
	uid, err := strconv.ParseUint(f[7], 10, 32)
	if err != nil {
		return nil
	}
	return &wire.OpenPort{Port: uint32(n), Address: addr, Uid: uint32(uid)}
}

// parsePortAddress: groups of four bytes, each in the byte order of the machine.
func parsePortAddress(s string) (string, bool) {
	b, err := hex.DecodeString(s)
	if err != nil || (len(b) != 4 && len(b) != 16) {
		return "", false
	}
	for i := 0; i < len(b); i += 4 {
		binary.BigEndian.PutUint32(b[i:], binary.NativeEndian.Uint32(b[i:]))
	}
	a, ok := netip.AddrFromSlice(b)
	return a.String(), ok
}
