// Program is fcmodel as a program: named firecracker or jailer, it takes the
// place of those in tests.
package main

import (
	"os"

	"github.com/skete-dev/skete/sandbox/firecracker/fcmodel"
)

func main() { os.Exit(fcmodel.Main(os.Args)) }
