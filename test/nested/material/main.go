// Material prints what test/nested/run needs to know of this host, as shell
// assignments: a kernel, its modules, and the rate of the time stamp counter.
//
//	eval "$(go run ./test/nested/material CACHE)"
package main

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/skete-dev/skete/sandbox/microvm"
)

const fetchTimeout = 5 * time.Minute

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: material CACHE")
		os.Exit(2)
	}
	ctx, cancel := context.WithTimeout(context.Background(), fetchTimeout)
	defer cancel()
	k, err := microvm.EnsureKernel(ctx, microvm.KernelConfig{Dir: os.Args[1]})
	if err != nil {
		fmt.Fprintln(os.Stderr, "material:", err)
		os.Exit(1)
	}
	fmt.Printf("VMLINUX=%q\nMODULES=%q\nRELEASE=%q\nKHZ=%d\n", k.Path, k.Modules, k.Release, microvm.TSCKHz())
}
