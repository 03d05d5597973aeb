//go:build packed

package runsc

import (
	"fmt"
	"os"
)

// Linked says whether this program can be gVisor.
const Linked = false

// become refuses: what was asked for is in a program of its own.
func become([]string) {
	fmt.Fprintln(os.Stderr, "skete: gVisor is a program of its own here, and not a part of this one")
}
