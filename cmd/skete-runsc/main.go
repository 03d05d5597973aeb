// Command skete-runsc is gVisor and nothing else: the program that skete runs
// machines with. `make build` puts it inside skete, which places it in its data
// directory (see sandbox/gvisor/binary); it is never started by hand.
//
// skete itself could play the part, and does when it was built without this
// program. But a machine starts its program three times, and skete's libraries
// take longer to set themselves up than gVisor does.
package main

import (
	"fmt"
	"os"

	"github.com/skete-dev/skete/sandbox/gvisor/runsc"
)

func main() {
	runsc.Main()
	fmt.Fprintln(os.Stderr, "skete-runsc: this is a part of skete, which starts it by itself")
	os.Exit(2)
}
