package preview

import (
	"slices"
	"strconv"
	"strings"

	"github.com/skete-dev/skete/errs"
)

// Ports is a list of ports that may be shown; empty = every one.
type Ports []PortRange

// PortRange is a port, or several in a row.
type PortRange struct{ First, Last uint16 }

const portRangesMax = 32

// ParsePorts reads "5173,8000-8010". "" = every port, "none" = none.
func ParsePorts(s string) (Ports, error) {
	switch s {
	case "":
		return nil, nil
	case "none":
		return Ports{{}}, nil // port 0, which nothing has
	}
	if strings.Count(s, ",") >= portRangesMax {
		return nil, errs.New(errs.Invalid, "a list of ports has at most %d parts", portRangesMax)
	}
	var list Ports
	for part := range strings.SplitSeq(s, ",") {
		first, last, isRange := strings.Cut(part, "-")
		if !isRange {
			last = first
		}
		r := PortRange{parsePort(first), parsePort(last)}
		if r.First == 0 || r.Last < r.First {
			return nil, errs.New(errs.Invalid, "%.40q is no port and no range of ports", part).WithHint("a list looks like 5173,8000-8010")
		}
		list = append(list, r)
	}
	return list, nil
}

// parsePort returns 0 for what is no port.
func parsePort(s string) uint16 {
	n, err := strconv.ParseUint(s, 10, 16)
	if err != nil || s != strconv.FormatUint(n, 10) {
		return 0
	}
	return uint16(n)
}

// Allow reports whether a port is on the list.
func (l Ports) Allow(port uint16) bool {
	return len(l) == 0 || slices.ContainsFunc(l, func(r PortRange) bool { return r.First <= port && port <= r.Last })
}
