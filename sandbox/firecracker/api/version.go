package api

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/skete-dev/skete/errs"
)

// Version of a Firecracker. A development version ("1.17.0-dev") counts as
// older than the release of the same number.
type Version struct {
	Major, Minor, Patch int
	Pre                 string // "dev", …; empty for a release
}

const (
	versionBytesMax = 64
	numberMax       = 1 << 20 // of one part; far from any overflow
)

// ParseVersion reads "1.16.1", "v1.16.1" or "1.17.0-dev".
func ParseVersion(s string) (Version, error) {
	var v Version
	if len(s) > versionBytesMax {
		return v, errs.New(errs.Invalid, "version longer than %d bytes", versionBytesMax)
	}
	rest := strings.TrimPrefix(s, "v")
	rest, v.Pre, _ = strings.Cut(rest, "-")
	parts := strings.Split(rest, ".")
	if len(parts) != 3 {
		return Version{}, errs.New(errs.Invalid, "%q is no version", s)
	}
	for i, into := range []*int{&v.Major, &v.Minor, &v.Patch} {
		n, err := strconv.ParseUint(parts[i], 10, 32)
		if err != nil || n > numberMax {
			return Version{}, errs.New(errs.Invalid, "%q is no version", s)
		}
		*into = int(n)
	}
	return v, nil
}

// ParseVersionOutput reads what `firecracker --version` and `jailer --version`
// print: "Firecracker v1.16.1" and more lines that do not matter.
func ParseVersionOutput(out string) (Version, error) {
	line, _, _ := strings.Cut(out, "\n")
	_, word, ok := strings.Cut(strings.TrimSpace(line), " v")
	if !ok {
		return Version{}, errs.New(errs.Invalid, "%.64q names no version", line)
	}
	return ParseVersion(word)
}

// AtLeast reports whether v is w or newer.
func (v Version) AtLeast(w Version) bool {
	for _, p := range [][2]int{{v.Major, w.Major}, {v.Minor, w.Minor}, {v.Patch, w.Patch}} {
		if p[0] != p[1] {
			return p[0] > p[1]
		}
	}
	return v.Pre == "" || w.Pre != ""
}

// String is the form without a leading "v".
func (v Version) String() string {
	s := fmt.Sprintf("%d.%d.%d", v.Major, v.Minor, v.Patch)
	if v.Pre != "" {
		s += "-" + v.Pre
	}
	return s
}
