package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/skete-dev/skete/api"
	"github.com/skete-dev/skete/client"
	"github.com/skete-dev/skete/cmd/skete/internal/launch"
	"github.com/skete-dev/skete/errs"
)

// ownFailure is the exit status of errors that are ours, not the guest's.
const ownFailure = 125

// app is one run of the program: its streams and global flags.
type app struct {
	in       *os.File
	out, err io.Writer
	signals  *signals

	json, quiet    bool
	home, url, key string
	logLevel       string
	logFile        string
	vmRuntime      string
	log            *slog.Logger
	warned         map[string]bool // sandboxes without isolation that were named already
	closers        []func()
}

// run is the program. It returns the exit status.
func run(args []string, in *os.File, out, errOut io.Writer) int {
	a := &app{in: in, out: out, err: errOut, warned: map[string]bool{}, log: slog.New(slog.DiscardHandler)}
	ctx, stop := a.catchSignals(context.Background())
	defer stop()
	root := a.root()
	root.SetArgs(args)
	root.SetIn(in)
	root.SetOut(out)
	root.SetErr(errOut)
	err := root.ExecuteContext(ctx)
	for _, f := range a.closers {
		f()
	}
	return a.finish(ctx, err)
}

// guestExit is the end of a command in a sandbox that is passed on as ours.
type guestExit int

func (g guestExit) Error() string { return fmt.Sprintf("exit status %d", int(g)) }

// finish prints the error for people, or as a problem, and returns the status.
func (a *app) finish(ctx context.Context, err error) int {
	var exit guestExit
	var sig signalled
	switch {
	case err == nil:
		return 0
	case errors.As(err, &exit):
		return int(exit)
	case errors.As(err, &sig):
	case errors.Is(err, context.Canceled) && errors.As(context.Cause(ctx), &sig):
	case errors.Is(err, syscall.EPIPE):
		return 128 + int(syscall.SIGPIPE) // who reads us has gone; nobody to tell
	default:
		a.complain(err)
		return ownFailure
	}
	return 128 + int(sig)
}

// complain writes an error to stderr.
func (a *app) complain(err error) {
	text := err.Error() // the whole chain: who calls us is the operator of their machine
	hint := errs.Hint(err)
	if a.json {
		p := api.Problem{Title: string(errs.Of(err)), Status: errs.Of(err).HTTPStatus(), Detail: text, Class: string(errs.Of(err)), Hint: hint}
		var e *client.Error
		if errors.As(err, &e) {
			p = e.Problem
		}
		_ = printJSON(a.err, p)
		return
	}
	fmt.Fprintf(a.err, "skete: %s\n", printable(text))
	if hint != "" {
		fmt.Fprintf(a.err, "hint: %s\n", printable(hint))
	}
}

// note says something to people, on stderr.
func (a *app) note(format string, args ...any) {
	if !a.quiet && !a.json {
		fmt.Fprintf(a.err, format+"\n", args...)
	}
}

// setup applies the global flags.
func (a *app) setup() error {
	var level slog.Level
	if err := level.UnmarshalText([]byte(a.logLevel)); err != nil {
		return errs.New(errs.Invalid, "--log-level: %.20q is none of debug, info, warn, error", a.logLevel)
	}
	w := a.err
	if a.logFile != "" {
		f, err := os.OpenFile(a.logFile, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
		if err != nil {
			return errs.Wrap(errs.Invalid, err, "--log-file: cannot be written")
		}
		a.closers = append(a.closers, func() { _ = f.Close() })
		w = f
	}
	a.log = slog.New(slog.NewTextHandler(w, &slog.HandlerOptions{Level: level}))
	if a.vmRuntime != "" {
		return errs.New(errs.Unsupported, "there is no VM runtime %.20q in skete", a.vmRuntime).
			WithHint("leave --vm-runtime out; --provider and --require choose what runs a sandbox")
	}
	if a.home == "" {
		a.home = client.Home()
	}
	var err error
	a.home, err = filepath.Abs(a.home)
	return err
}

// local reports whether the server is the one of our data directory.
func (a *app) local() bool { return a.url == "" }

// connect returns a client of a server that answers; one is started if the
// server is ours and does not run.
func (a *app) connect(ctx context.Context) (*client.Client, error) {
	c, err := a.dial()
	if err != nil || !a.local() {
		return c, err
	}
	err = launch.Ensure(ctx, launch.Config{Home: a.home, Client: c, Say: a.err})
	return c, err
}

// dial returns a client without making sure that somebody answers.
func (a *app) dial() (*client.Client, error) {
	cfg := client.Config{URL: a.url, Key: a.key}
	if a.local() {
		cfg.Socket = client.SocketPath(a.home)
	}
	c, err := client.New(cfg)
	if err == nil {
		a.closers = append(a.closers, c.Close)
	}
	return c, err
}

// defaultHome is the data directory without SKETE_HOME.
func defaultHome() string {
	if os.Getuid() == 0 {
		return "/var/lib/skete"
	}
	home, _ := os.UserHomeDir()
	return filepath.Join(home, ".local", "share", "skete")
}

// warnIsolation says it loudly when a sandbox is none.
func (a *app) warnIsolation(sb api.Sandbox) {
	if sb.Isolation != "none" || a.warned[sb.ID] {
		return
	}
	a.warned[sb.ID] = true
	fmt.Fprintf(a.err, "skete: WARNING: %s has NO ISOLATION (provider %s): its programs run on this host as your own do\n", sb.ID, sb.Provider)
}

func (a *app) root() *cobra.Command {
	root := &cobra.Command{
		Use:   "skete",
		Short: "Machines for agents: isolated, durable, in one program",
		Long: `skete gives each agent a machine of its own on this computer.

` + "`skete serve`" + ` is the server. Every other command is a client of it, through
the unix socket in the data directory or, with SKETE_URL, over HTTP. If no
server answers on the socket, the command starts one in the background.

Results are on stdout; logs, notes and errors are on stderr. The exit status
is that of the command in the sandbox, or 125 if skete itself failed.`,
		Example: `  skete vm temp --lang python --cmd 'python3 -c "print(6*7)"'
  skete vm create --lang python --mem 512 --cpus 2 -q
  skete vm exec ID -- python3 -V
  skete vm shell ID
  skete cp ./src ID:/workspace/src
  skete doctor`,
		SilenceErrors: true,
		SilenceUsage:  true,
		Args:          noSuchCommand,
		RunE:          func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
		PersistentPreRunE: func(cmd *cobra.Command, _ []string) error {
			return a.setup()
		},
	}
	f := root.PersistentFlags()
	f.BoolVar(&a.json, "json", false, "print JSON; errors are problem objects on stderr")
	f.BoolVarP(&a.quiet, "quiet", "q", false, "print ids alone")
	f.StringVar(&a.home, "home", "", "data directory (default $SKETE_HOME or "+defaultHomeText+")")
	f.StringVar(&a.url, "url", os.Getenv("SKETE_URL"), "server: http://host:port, https://host or unix:///path (default $SKETE_URL or the local socket)")
	f.StringVar(&a.key, "api-key", os.Getenv("SKETE_KEY"), "API key (default $SKETE_KEY)")
	f.StringVar(&a.key, "key", os.Getenv("SKETE_KEY"), "same as --api-key, but where a command has a --key of its own")
	f.StringVar(&a.logLevel, "log-level", "warn", "debug, info, warn or error")
	f.StringVar(&a.logFile, "log-file", "", "write logs to this file")
	f.StringVar(&a.vmRuntime, "vm-runtime", "", "")
	_ = f.MarkHidden("log-file")
	_ = f.MarkHidden("vm-runtime")
	for _, name := range []string{"url", "api-key", "key"} {
		f.Lookup(name).DefValue = "" // help shows no secret
	}
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return errs.New(errs.Invalid, "%s", err).WithHint("`%s --help` shows the flags", cmd.CommandPath())
	})
	root.AddCommand(a.vm(), a.cp(), a.template(), a.keys(), a.serve(), a.doctor(), a.version())
	a.hints(root)
	return root
}

const defaultHomeText = "/var/lib/skete as root, ~/.local/share/skete else"

// noSuchCommand refuses words behind a command that only groups others.
func noSuchCommand(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	cmd.SuggestionsMinimumDistance = 2
	err := errs.New(errs.Invalid, "there is no command %.40q in %q", args[0], cmd.CommandPath())
	if near := cmd.SuggestionsFor(args[0]); len(near) > 0 {
		return err.WithHint("did you mean %s?", strings.Join(near, " or "))
	}
	return err.WithHint("`%s --help` lists the commands", cmd.CommandPath())
}

// hints makes wrong arguments of every command an error with a class.
func (a *app) hints(cmd *cobra.Command) {
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

func group(use, short, example string, aliases ...string) *cobra.Command {
	return &cobra.Command{
		Use: use, Short: short, Aliases: aliases, Example: example, Args: noSuchCommand,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
}

func (a *app) version() *cobra.Command {
	return &cobra.Command{
		Use:     "version",
		Short:   "Print the version",
		Example: "  skete version\n  skete version --json",
		Args:    cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			if a.json {
				return printJSON(a.out, map[string]string{"version": version})
			}
			_, err := fmt.Fprintln(a.out, "skete", version)
			return err
		},
	}
}

// short bounds calls that should not keep anybody waiting, as completion.
const short = 2 * time.Second
