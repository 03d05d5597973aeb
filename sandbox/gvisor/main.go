package gvisor

import (
	"os"

	"github.com/skete-dev/skete/sandbox/gvisor/runsc"
)

// PlaysItself says whether this program can be gVisor: not one that was built
// to carry gVisor as a program of its own (see package binary).
const PlaysItself = runsc.Linked

// Main turns this process into gVisor, or into the guest of a probe, if it was
// started as such, and then never returns; else it returns at once. It must be
// the first thing that the program's main function does.
func Main() {
	if len(os.Args) == 2 && os.Args[1] == probeVerb {
		probeGuest()
	}
	runsc.Main()
}
