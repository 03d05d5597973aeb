// Package runsc is the part of a program that is gVisor: its command line, its
// kernel process (the sentry), its gofer and its umounter, all of them one
// program that starts itself again.
//
//	func main() {
//		runsc.Main() // first thing: never returns in a process that is gVisor
//		…
//	}
//
// It stands apart from package gvisor, which drives it, because every package
// that is linked into a program costs each sandbox three starts of its `init`
// functions, and is inside the kernel process of a hostile guest: cmd/skete-runsc
// links this package and nothing else of ours. It imports gVisor, the OCI
// specification and small parts of the standard library; a test pins that.
//
// Under the build tag packed it links no gVisor at all, and Main refuses the
// part: so is the skete that carries cmd/skete-runsc inside (see package binary).
package runsc

import (
	"os"
	"path/filepath"
	"strings"
)

// Verb as the first argument asks a program that calls Main to act as runsc.
const Verb = "__runsc"

// SelfExe is how gVisor starts itself again.
const SelfExe = "/proc/self/exe"

// SpecName is the bundle's specification, as OCI names it.
const SpecName = "config.json"

// Main turns this process into gVisor if it was started as such, and then
// never returns; else it returns at once. It must be the first thing that the
// program's main function does.
func Main() {
	args, ok := commandLine(os.Args)
	if !ok {
		return
	}
	become(args)
	os.Exit(1)
}

// commandLine recognises the four ways in which the program is started as
// gVisor, and returns the command line that gVisor shall see:
//
//   - ours: `skete __runsc …`
//   - the sentry and the gofer: argv[0] is runsc-sandbox or runsc-gofer (or runsc)
//   - the helper that unmounts /proc: `/proc/self/exe umount …`
//   - the second start in a user namespace (rootless): `/proc/self/exe --root=…`
//
// Nothing else may start our program through /proc/self/exe.
func commandLine(args []string) ([]string, bool) {
	if len(args) == 0 {
		return nil, false
	}
	name := filepath.Base(args[0])
	switch {
	case len(args) > 1 && args[1] == Verb:
		return append([]string{"runsc"}, args[2:]...), true
	case args[0] == SelfExe, name == "runsc", strings.HasPrefix(name, "runsc-"):
		return args, true
	}
	return nil, false
}
