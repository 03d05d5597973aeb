// Package pattern is for regular expressions at the level of a package: they
// are compiled when they are first used, and not in every process that the
// package is linked into. `skete version` compiled thirty of them, for nothing.
package pattern

import (
	"regexp"
	"sync"
)

// Lazy returns a function that compiles the expression at its first call. It
// panics then if there is a mistake in it: an expression that no test uses is
// one that no test has compiled.
func Lazy(expr string) func() *regexp.Regexp {
	return sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(expr) })
}
