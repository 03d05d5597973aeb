// Skete-guest is the program that runs inside every sandbox: init, which is
// PID 1 and keeps the processes, and supervise, which talks to the host.
//
//	skete-guest init [--boot FILE]
//	skete-guest supervise [--boot FILE]   (started by init)
//	skete-guest version
//
// As /init of a virtual machine's initramfs it first makes that a root file
// system (guest/stage).
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"runtime/debug"
	"syscall"

	"github.com/skete-dev/skete/guest"
	"github.com/skete-dev/skete/guest/initd"
	"github.com/skete-dev/skete/guest/initd/pair"
	"github.com/skete-dev/skete/guest/stage"
	"github.com/skete-dev/skete/guest/wire"
)

// version is set by the build.
var version = "unknown"

const usage = "usage: skete-guest init|supervise [--boot FILE]\n       skete-guest version\n"

func main() { os.Exit(run(os.Args)) }

func run(args []string) int {
	if args[0] == "/init" { // the kernel ran us, from the initramfs
		return stage.Run()
	}
	if len(args) < 2 {
		fmt.Fprint(os.Stderr, usage)
		return 2
	}
	path := wire.BootFile
	switch {
	case len(args) == 4 && args[2] == "--boot":
		path = args[3]
	case len(args) != 2:
		fmt.Fprint(os.Stderr, usage)
		return 2
	}
	switch args[1] {
	case "init":
		return runInit(path)
	case "supervise":
		return runSupervise(path)
	case "version":
		fmt.Println(version)
		return 0
	}
	fmt.Fprint(os.Stderr, usage)
	return 2
}

func readBoot(path string) (wire.Boot, error) {
	f, err := os.Open(path)
	if err != nil {
		return wire.Boot{}, err
	}
	defer f.Close()
	return wire.ReadBoot(f)
}

func runInit(path string) int {
	if err := becomeRoot(); err != nil {
		return fail("init", err)
	}
	boot, err := readBoot(path)
	if err != nil {
		return fail("init", err)
	}
	keepThreads(boot.Threads)
	self, err := os.Executable()
	if err != nil {
		return fail("init", err)
	}
	return initd.Run(initd.Config{Boot: boot, Supervise: []string{self, "supervise", "--boot", path}, Log: os.Stderr})
}

// superviseBytes is what supervise may take before it collects garbage
// eagerly; live data is a few MB, and 512 KiB for each open stream.
const superviseBytes = 64 << 20

func runSupervise(path string) int {
	boot, err := readBoot(path)
	if err != nil {
		return fail("supervise", err)
	}
	keepThreads(boot.Threads)
	// Streaming makes garbage of chunk size, and pools keep it from one
	// collection to the next: without a limit a hundred broken streams grew
	// this process to the size of a small machine, which then died of it.
	debug.SetMemoryLimit(superviseBytes)
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	err = guest.Supervise(ctx, guest.Config{Boot: boot, InitFD: pair.SocketFD, Own: guest.OwnsRoot(), Build: version, Log: os.Stderr})
	if err != nil {
		return fail("supervise", err)
	}
	return 0
}

func fail(what string, err error) int {
	fmt.Fprintf(os.Stderr, "skete-guest %s: %v\n", what, err)
	return 1
}
