package file

import (
	"path"
	"strconv"
	"strings"

	"github.com/skete-dev/skete/errs"
)

// This file checks the paths of requests and makes them fit for messages.
//
// Functions are pure.

// Linux's own bounds, checked first so that the message names the path.
const (
	pathBytesMax = 4095
	partBytesMax = 255
)

// cleanPath makes a path absolute and lexically clean: relative to workdir, "~" is
// home.
func cleanPath(name, workdir, home string) (string, error) {
	switch {
	case name == "":
		return "", badPath("the path is empty")
	case strings.IndexByte(name, 0) >= 0:
		return "", badPath("the path %s has a NUL in it", showPath(name))
	case len(name) > pathBytesMax:
		return "", badPath("the path %s is longer than %d bytes", showPath(name), pathBytesMax)
	case name == "~":
		name = home
	case strings.HasPrefix(name, "~/"):
		name = home + name[1:]
	case name[0] != '/':
		name = workdir + "/" + name
	}
	name = path.Clean(name)
	if len(name) > pathBytesMax {
		return "", badPath("the path %s is longer than %d bytes", showPath(name), pathBytesMax)
	}
	for part := range strings.SplitSeq(name, "/") {
		if len(part) > partBytesMax {
			return "", badPath("the name %s is longer than %d bytes", showPath(part), partBytesMax)
		}
	}
	return name, nil
}

func badPath(format string, args ...any) error {
	return errs.New(errs.Invalid, format, args...).WithCode(errs.InvalidPath)
}

// showPath makes a path fit for a message: short, and quoted when it is odd.
func showPath(name string) string {
	if len(name) > 200 {
		name = name[:100] + "…" + name[len(name)-90:]
	}
	quoted := strconv.Quote(name)
	if quoted == `"`+name+`"` && !strings.Contains(name, " ") {
		return name
	}
	return quoted
}
