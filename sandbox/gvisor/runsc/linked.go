//go:build !packed

package runsc

import (
	"os"

	"gvisor.dev/gvisor/runsc/cli"
	"gvisor.dev/gvisor/runsc/cmd"
	"gvisor.dev/gvisor/runsc/cmd/sentry/sentrycmd"
	"gvisor.dev/gvisor/runsc/cmd/util"
)

// Linked says whether this program can be gVisor.
const Linked = true

// become is gVisor, until the process ends.
func become(args []string) {
	startQuickly()
	os.Args = tellLimits(args)
	useFilters()
	cli.Run(nil, commands(), nil)
}

// commands is the part of runsc that we use. Its sidecar programs are left
// out on purpose: they are for checkpoints in object stores and weigh 47 MB.
func commands() map[util.SubCommand]string {
	return map[util.SubCommand]string{
		new(cmd.Run):          "",
		new(cmd.Delete):       "",
		new(cmd.State):        "",
		new(cmd.Pause):        "",
		new(cmd.Resume):       "",
		new(cmd.Checkpoint):   "",
		new(cmd.Restore):      "",
		new(cmd.Exec):         "debug",
		new(cmd.Do):           "debug",
		new(cmd.Gofer):        "internal",
		new(sentrycmd.Boot):   "internal",
		new(sentrycmd.Umount): "internal",
	}
}
