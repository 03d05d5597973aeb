// Command stagedguest is skete-guest for tests, but for one thing: an Apply
// stops for good at the stage that a file names, after it has made another that
// says so. The test then kills the machine.
package main

import (
	"context"
	"fmt"
	"os"

	"github.com/skete-dev/skete/guest"
	"github.com/skete-dev/skete/guest/initd"
	"github.com/skete-dev/skete/guest/initd/pair"
	"github.com/skete-dev/skete/guest/stage"
	"github.com/skete-dev/skete/guest/wire"
)

const (
	wanted  = "/tmp/stage"
	reached = "/tmp/stage-reached"
)

func main() {
	if os.Args[0] == "/init" {
		os.Exit(stage.Run())
	}
	if err := run(os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, "stagedguest:", err)
		os.Exit(1)
	}
}

func run(role string) error {
	f, err := os.Open(wire.BootFile)
	if err != nil {
		return err
	}
	boot, err := wire.ReadBoot(f)
	if err != nil {
		return err
	}
	if role == "init" {
		self, err := os.Executable()
		if err != nil {
			return err
		}
		os.Exit(initd.Run(initd.Config{Boot: boot, Supervise: []string{self, "supervise"}, Log: os.Stderr}))
	}
	return guest.Supervise(context.Background(), guest.Config{
		Boot: boot, InitFD: pair.SocketFD, Own: guest.OwnsRoot(), Build: "staged", Log: os.Stderr,
		Stage: func(name string) {
			if want, err := os.ReadFile(wanted); err != nil || string(want) != name {
				return
			}
			_ = os.WriteFile(reached, nil, 0o644)
			select {}
		},
	})
}
