package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/skete-dev/skete/cmd/skete/internal/app"
	"github.com/skete-dev/skete/cmd/skete/internal/history"
	"github.com/skete-dev/skete/cmd/skete/internal/runs"
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

In what follows ID is a sandbox: its id, the beginning of it, or its name; left
out it is the only one that runs. RUN is a run: its id, the beginning of it, or
last. Results are on stdout; logs, notes and errors are on stderr.

Exit status:
  0      done
  1      a check found something wrong (doctor, fsck, status), a run failed,
         or a revert needs a choice
  2      wrong usage: an argument, a flag or its value; nothing was done
  3 4 5  a run waits for an approval, was cancelled, ran out of time
  4      you were asked, and said no: nothing was done
  75     serve: another server has the data directory
  125    skete could not do it; the message says why
  126    the program in the sandbox cannot be run
  127    there is no such program in the sandbox
  128+n  signal n ended it: 130 is Ctrl-C, 137 is SIGKILL
  other  that of the command in the sandbox

Topics (skete help TOPIC):
` + topicList(),
		Example: `  skete run 'Fix the failing test' --sandbox ID
  skete vm temp --lang python --cmd 'python3 -c "print(6*7)"'
  skete vm create --lang python --mem 512 --cpus 2 -q
  skete vm exec ID -- python3 -V
  skete vm shell ID
  skete cp ./src ID:/workspace/src
  skete doctor`,
		Version:       version,
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
	// No Set…Template of cobra: text/template makes the linker keep all methods, 22 MB.
	root.SetFlagErrorFunc(app.FlagError)
	root.AddCommand(vm.Command(a.App), a.cp(), a.template(), a.poolCommand(), a.keyGroup(), a.fsck(), a.events(), a.auditGroup(), a.tenantGroup(), a.serveCommand(), a.status(), a.stop(), a.serviceUnit(), a.doctorCommand(), a.ui(), a.share(), a.version(), a.mcp(), a.acp())
	root.AddCommand(runs.Commands(a.App)...)
	root.AddCommand(history.Commands(a.App)...)
	root.AddCommand(vm.PreviewCommand(a.App), vm.ServiceCommand(a.App), vm.EgressCommand(a.App), vm.SecretCommand(a.App), vm.SkillCommand(a.App), vm.PluginCommand(a.App))
	root.SetHelpCommand(a.help())
	root.AddCommand(vm.Short(a.App)...)
	a.hints(root)
	a.completions(root)
	arrange(root)
	return root
}

const defaultHomeText = "/var/lib/skete as root, ~/.local/share/skete else"

// groups are the parts of the root's help.
var groups = []struct {
	title, names string
}{
	{"Sandboxes:", "vm cp template service preview egress secret pool"},
	{"Agents:", "run runs show attach send approve cancel resume fork rewind replay schedule workflow agent tool skill plugin model mcp acp"},
	{"What the files were:", "history diff undo redo revert restore"},
	{"Server:", "serve status stop service-unit doctor events audit fsck key tenant"},
	{"Short for skete vm …:", "ls ps exec logs shell start inspect"},
}

// arrange puts commands into groups.
func arrange(root *cobra.Command) {
	for _, g := range groups {
		root.AddGroup(&cobra.Group{ID: g.title, Title: g.title})
		for _, cmd := range root.Commands() {
			if slices.Contains(strings.Fields(g.names), cmd.Name()) {
				cmd.GroupID = g.title
			}
		}
	}
}

// hints makes wrong arguments of every command an error with a class.
func (a program) hints(cmd *cobra.Command) {
	if check := cmd.Args; check != nil {
		cmd.Args = func(c *cobra.Command, args []string) error {
			err := check(c, args)
			var classed *errs.Error
			if err == nil || errors.As(err, &classed) {
				return err
			}
			if strings.HasPrefix(err.Error(), "unknown command ") { // what cobra.NoArgs says
				err = fmt.Errorf("`%s` takes no arguments; what does %.40q mean?", c.CommandPath(), args[0])
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
