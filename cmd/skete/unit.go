package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/skete-dev/skete/cmd/skete/internal/app"
	"github.com/skete-dev/skete/cmd/skete/internal/launch"
)

func (a program) serviceUnit() *cobra.Command {
	own := false
	cmd := &cobra.Command{
		Use: "service-unit", Short: "Print a unit that runs the server under systemd",
		Long: `Print a unit of systemd that runs the server with this program and this data
directory, with less rights than root has otherwise. Put it in place, and let
systemd start it; sandboxes outlive a stop and a restart of it.

With --user it is a unit of your own systemd, for a server without root: then
limits are watched instead of enforced.`,
		Example: `  skete service-unit | sudo tee /etc/systemd/system/skete.service
  sudo systemctl daemon-reload && sudo systemctl enable --now skete
  skete service-unit --user > ~/.config/systemd/user/skete.service`,
		Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			exe, err := os.Executable()
			if err != nil {
				return err
			}
			home := a.Home
			if !own && !rootsHome(a) {
				home = app.RootHome
			}
			_, err = fmt.Fprint(a.Out, unitText(exe, home, own))
			return err
		},
	}
	cmd.Flags().BoolVar(&own, "user", false, "a unit of your own systemd, without root")
	return cmd
}

// rootsHome reports whether the data directory is meant for the system's
// server: it was named, or we are root. Otherwise it is our own, which root's
// server must not take.
func rootsHome(a program) bool { return os.Getuid() == 0 || a.Home != app.DefaultHome() }

// unitText is a unit of systemd. Nothing in it may give the server a mount
// namespace (ProtectSystem=, PrivateTmp=, ProtectKernelModules= and their like
// do): the mounts of workspaces must be there for the next server too. Filters
// of system calls are inherited by machines and by what builds templates, which
// makes setuid files and runs code of its own making; so there are none but
// for foreign architectures.
func unitText(exe, home string, own bool) string {
	var b strings.Builder
	line := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }
	line("[Unit]")
	line("Description=skete: machines for agents")
	line("Wants=network-online.target")
	line("After=network-online.target docker.service")
	line("")
	line("[Service]")
	line("Type=notify")
	line("ExecStart=%s serve --home %s", quoted(exe), quoted(home))
	line("# A start first finds its machines and goes on with its runs.")
	line("TimeoutStartSec=5min")
	line("TimeoutStopSec=90s")
	line("# Not after a wrong command line (2), nor where another server has the data (%d).", launch.InUse)
	line("Restart=on-failure")
	line("RestartSec=1s")
	line("RestartPreventExitStatus=2 %d", launch.InUse)
	line("")
	line("# Machines outlive the server: the next one finds them. So only the server is")
	line("# signalled, and one machine out of memory does not end it.")
	line("KillMode=process")
	line("OOMPolicy=continue")
	line("# Each machine has a control group with limits.")
	line("Delegate=yes")
	line("TasksMax=infinity")
	line("LimitNOFILE=1048576")
	line("LimitNPROC=infinity")
	line("LimitCORE=0")
	line("UMask=0077")
	if !own {
		if dir, ok := strings.CutPrefix(filepath.Clean(home), "/var/lib/"); ok {
			line("StateDirectory=%s", strings.ReplaceAll(strings.ReplaceAll(dir, "%", "%%"), " ", `\x20`))
			line("StateDirectoryMode=0700")
		}
		line("")
		line("# No option that makes a mount namespace belongs here (ProtectSystem=,")
		line("# PrivateTmp=, PrivateDevices=, …): mounts of workspaces must outlive a restart.")
		line("NoNewPrivileges=yes")
		line("SystemCallArchitectures=native")
		line("RestrictRealtime=yes")
		line("KeyringMode=private")
		line("RestrictAddressFamilies=AF_UNIX AF_INET AF_INET6 AF_NETLINK AF_VSOCK AF_PACKET")
		line("CapabilityBoundingSet=~%s", strings.Join(droppedCapabilities, " "))
	}
	line("")
	line("[Install]")
	if own {
		line("WantedBy=default.target")
	} else {
		line("WantedBy=multi-user.target")
	}
	return b.String()
}

// droppedCapabilities are those that neither the server nor what it starts
// needs. Mounts, namespaces, devices, owners and networks need the others.
var droppedCapabilities = []string{
	"CAP_SYS_MODULE", "CAP_SYS_RAWIO", "CAP_SYS_BOOT", "CAP_SYS_TIME", "CAP_SYS_PACCT", "CAP_SYS_TTY_CONFIG", "CAP_SYSLOG",
	"CAP_MAC_ADMIN", "CAP_MAC_OVERRIDE", "CAP_AUDIT_CONTROL", "CAP_AUDIT_READ", "CAP_WAKE_ALARM", "CAP_BLOCK_SUSPEND",
	"CAP_LINUX_IMMUTABLE", "CAP_LEASE", "CAP_IPC_OWNER", "CAP_BPF", "CAP_PERFMON", "CAP_CHECKPOINT_RESTORE",
}

// quoted is a word of ExecStart.
func quoted(s string) string {
	s = strings.NewReplacer(`%`, `%%`, `$`, `$$`, `\`, `\\`, `"`, `\"`).Replace(s)
	if strings.ContainsAny(s, " \t'\"\\;") {
		return `"` + s + `"`
	}
	return s
}
