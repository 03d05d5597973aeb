package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"

	"github.com/skete-dev/skete/cmd/skete/internal/app"
	"github.com/skete-dev/skete/cmd/skete/internal/history"
	"github.com/skete-dev/skete/cmd/skete/internal/preview"
	"github.com/skete-dev/skete/cmd/skete/internal/runs"
	"github.com/skete-dev/skete/cmd/skete/internal/services"
	"github.com/skete-dev/skete/cmd/skete/internal/vm"
	"github.com/skete-dev/skete/errs"
)

// program is the commands of one run.
type program struct{ *app.App }

// run is the program. It returns the exit status.
func run(args []string, in *os.File, out, errOut io.Writer) int {
	a := program{app.New(in, out, errOut)}
	defer a.Close()
	ctx, stop := a.CatchSignals(context.Background())
	defer stop()
	root := a.root()
	root.SetArgs(args)
	root.SetIn(in)
	root.SetOut(out)
	root.SetErr(errOut)
	return a.Finish(ctx, root.ExecuteContext(ctx))
}

func (a program) root() *cobra.Command {
	root := &cobra.Command{
		Use:   "skete",
		Short: "Machines for agents: isolated, durable, in one program",
		Long: `skete gives each agent a machine of its own on this computer.

` + "`skete serve`" + ` is the server. Every other command is a client of it, through
the unix socket in the data directory or, with SKETE_URL, over HTTP. If no
server answers on the socket, the command starts one in the background.

Results are on stdout; logs, notes and errors are on stderr. The exit status
is that of the command in the sandbox, or 125 if skete itself failed.`,
		Example: `  skete run 'Fix the failing test' --sandbox ID
  skete vm temp --lang python --cmd 'python3 -c "print(6*7)"'
  skete vm create --lang python --mem 512 --cpus 2 -q
  skete vm exec ID -- python3 -V
  skete vm shell ID
  skete cp ./src ID:/workspace/src
  skete doctor`,
		SilenceErrors: true,
		SilenceUsage:  true,
		Args:          app.NoSuchCommand,
		RunE:          func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
		PersistentPreRunE: func(cmd *cobra.Command, _ []string) error {
			return a.Setup()
		},
	}
	f := root.PersistentFlags()
	f.BoolVar(&a.JSON, "json", false, "print JSON; errors are problem objects on stderr")
	f.BoolVarP(&a.Quiet, "quiet", "q", false, "print ids alone")
	f.StringVar(&a.Home, "home", "", "data directory (default $SKETE_HOME or "+defaultHomeText+")")
	f.StringVar(&a.URL, "url", os.Getenv("SKETE_URL"), "server: http://host:port, https://host or unix:///path (default $SKETE_URL or the local socket)")
	f.StringVar(&a.Key, "api-key", os.Getenv("SKETE_KEY"), "API key (default $SKETE_KEY)")
	f.StringVar(&a.Key, "key", os.Getenv("SKETE_KEY"), "same as --api-key, but where a command has a --key of its own")
	f.StringVar(&a.LogLevel, "log-level", "warn", "debug, info, warn or error")
	f.StringVar(&a.LogFile, "log-file", "", "write logs to this file")
	f.StringVar(&a.VMRuntime, "vm-runtime", "", "")
	_ = f.MarkHidden("log-file")
	_ = f.MarkHidden("vm-runtime")
	for _, name := range []string{"url", "api-key", "key"} {
		f.Lookup(name).DefValue = "" // help shows no secret
	}
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return errs.New(errs.Invalid, "%s", err).WithHint("`%s --help` shows the flags", cmd.CommandPath())
	})
	root.AddCommand(vm.Command(a.App), a.cp(), a.template(), a.poolCommand(), a.keyGroup(), a.fsck(), a.tenantGroup(), a.serveCommand(), a.doctorCommand(), a.version())
	root.AddCommand(runs.Commands(a.App)...)
	root.AddCommand(history.Commands(a.App)...)
	root.AddCommand(preview.Command(a.App), services.Command(a.App))
	a.hints(root)
	return root
}

const defaultHomeText = "/var/lib/skete as root, ~/.local/share/skete else"

// hints makes wrong arguments of every command an error with a class.
func (a program) hints(cmd *cobra.Command) {
	if check := cmd.Args; check != nil {
		cmd.Args = func(c *cobra.Command, args []string) error {
			err := check(c, args)
			var classed *errs.Error
			if err == nil || errors.As(err, &classed) {
				return err
			}
			return errs.New(errs.Invalid, "%s", err).WithHint("usage: %s", c.UseLine())
		}
	}
	for _, sub := range cmd.Commands() {
		a.hints(sub)
	}
}

func (a program) version() *cobra.Command {
	return &cobra.Command{
		Use:     "version",
		Short:   "Print the version",
		Example: "  skete version\n  skete version --json",
		Args:    cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			if a.JSON {
				return app.PrintJSON(a.Out, map[string]string{"version": version})
			}
			_, err := fmt.Fprintln(a.Out, "skete", version)
			return err
		},
	}
}
