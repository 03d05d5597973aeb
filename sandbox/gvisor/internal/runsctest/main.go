// Command runsctest is the smallest program that can be re-executed as gVisor:
// tests build it, because a test binary is dynamic and does not call Main.
package main

import (
	"os"

	"github.com/skete-dev/skete/sandbox/gvisor"
)

func main() {
	gvisor.Main()
	os.Stderr.WriteString("runsctest: not called as runsc\n")
	os.Exit(2)
}
