// Command skete is the whole program: the server, and the command line that
// drives it. `skete --help` lists the commands; `skete serve` is the server,
// everything else is a client of it.
//
// Exit status: that of the command in the sandbox; 125 when skete itself
// failed; 128+n when signal n ended it before there was a command.
package main

import (
	"os"

	"github.com/skete-dev/skete/sandbox/gvisor"
	"github.com/skete-dev/skete/store"
)

// version is set by the linker.
var version = "devel"

func main() {
	// The same program is started again as gVisor, three times for each
	// sandbox. It must notice before anything else happens; and gVisor's
	// filters kill a process that does what a library's timer would.
	store.StopSampling()
	gvisor.Main()
	os.Exit(run(os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
}
