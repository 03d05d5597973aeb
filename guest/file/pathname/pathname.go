// Package pathname checks the paths of requests and makes them fit for messages.
//
//	path, err := pathname.Clean("~/x/../y", "/workspace", "/home/user") // /home/user/y
//
// Functions are pure.
package pathname

import (
	"path"
	"strconv"
	"strings"

	"github.com/skete-dev/skete/errs"
)

// Linux's own bounds, checked first so that the message names the path.
const (
	BytesMax     = 4095
	partBytesMax = 255
)

// Clean makes a path absolute and lexically clean: relative to workdir, "~" is
// home.
func Clean(name, workdir, home string) (string, error) {
	switch {
	case name == "":
		return "", errs.New(errs.Invalid, "the path is empty")
	case strings.IndexByte(name, 0) >= 0:
		return "", errs.New(errs.Invalid, "the path %s has a NUL in it", Show(name))
	case len(name) > BytesMax:
		return "", errs.New(errs.Invalid, "the path %s is longer than %d bytes", Show(name), BytesMax)
	case name == "~":
		name = home
	case strings.HasPrefix(name, "~/"):
		name = home + name[1:]
	case name[0] != '/':
		name = workdir + "/" + name
	}
	name = path.Clean(name)
	if len(name) > BytesMax {
		return "", errs.New(errs.Invalid, "the path %s is longer than %d bytes", Show(name), BytesMax)
	}
	for part := range strings.SplitSeq(name, "/") {
		if len(part) > partBytesMax {
			return "", errs.New(errs.Invalid, "the name %s is longer than %d bytes", Show(part), partBytesMax)
		}
	}
	return name, nil
}

// Show makes a path fit for a message: short, and quoted when it is odd.
func Show(name string) string {
	if len(name) > 200 {
		name = name[:100] + "…" + name[len(name)-90:]
	}
	quoted := strconv.Quote(name)
	if quoted == `"`+name+`"` && !strings.Contains(name, " ") {
		return name
	}
	return quoted
}
