// Package app is what all commands have in common: the streams and global
// flags of one run, the server they talk to, the sandboxes that they mean, how
// results and errors are printed, where signals go.
//
//	a := app.New(os.Stdin, os.Stdout, os.Stderr)
//	ctx, stop := a.CatchSignals(context.Background())
//	c, err := a.Connect(ctx)
//	code := a.Finish(ctx, err)
//
// An App belongs to one run of the program.
package app

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

// OwnFailure is the exit status of errors that are ours, not the guest's.
const OwnFailure = 125

// App is one run of the program: its streams and global flags.
type App struct {
	In       *os.File
	Out, Err io.Writer
	Log      *slog.Logger

	JSON, Quiet    bool
	Home, URL, Key string
	LogLevel       string
	LogFile        string
	VMRuntime      string

	signals *signals
	warned  map[string]bool // sandboxes without isolation that were named already
	closers []func()
}

// New returns a run with the given streams; in may be nil.
func New(in *os.File, out, errOut io.Writer) *App {
	return &App{
		In: in, Out: out, Err: errOut, Log: slog.New(slog.DiscardHandler),
		signals: &signals{}, warned: map[string]bool{},
	}
}

// Close lets go of what the run holds.
func (a *App) Close() {
	for _, f := range a.closers {
		f()
	}
	a.closers = nil
}

// Exit is the end of a command in a sandbox that is passed on as ours.
type Exit int

func (g Exit) Error() string { return fmt.Sprintf("exit status %d", int(g)) }

// Coded is an error with an exit status of its own.
type Coded struct {
	Status int
	Err    error
}

func (c *Coded) Error() string { return c.Err.Error() }

// Unwrap returns the error.
func (c *Coded) Unwrap() error { return c.Err }

// Usage is a mistake on the command line that has an exit status of its own.
func Usage(status int, format string, args ...any) *Coded {
	return &Coded{status, errs.New(errs.Invalid, format, args...)}
}

// WithHint returns a copy with the hint set.
func (c *Coded) WithHint(format string, args ...any) *Coded {
	e, ok := errors.AsType[*errs.Error](c.Err)
	if !ok {
		return c
	}
	return &Coded{c.Status, e.WithHint(format, args...)}
}

// Finish prints the error for people, or as a problem, and returns the status.
func (a *App) Finish(ctx context.Context, err error) int {
	var exit Exit
	var sig signalled
	var coded *Coded
	switch {
	case err == nil:
		return 0
	case errors.As(err, &coded):
		a.Complain(coded.Err)
		return coded.Status
	case errors.As(err, &exit):
		return int(exit)
	case errors.As(err, &sig):
	case errors.Is(err, context.Canceled) && errors.As(context.Cause(ctx), &sig):
	case errors.Is(err, syscall.EPIPE):
		return 128 + int(syscall.SIGPIPE) // who reads us has gone; nobody to tell
	default:
		a.Complain(err)
		return OwnFailure
	}
	return 128 + int(sig)
}

// Complain writes an error to stderr.
func (a *App) Complain(err error) {
	text := err.Error() // the whole chain: who calls us is the operator of their machine
	hint := errs.Hint(err)
	if a.JSON {
		p := api.Problem{Title: string(errs.Of(err)), Status: errs.Of(err).HTTPStatus(), Detail: text, Class: string(errs.Of(err)), Hint: hint}
		if e, ok := errors.AsType[*client.Error](err); ok {
			p = e.Problem
		}
		_ = PrintJSON(a.Err, p)
		return
	}
	fmt.Fprintf(a.Err, "skete: %s\n", Printable(text))
	if hint != "" {
		fmt.Fprintf(a.Err, "hint: %s\n", Printable(hint))
	}
}

// Note says something to people, on stderr.
func (a *App) Note(format string, args ...any) {
	if !a.Quiet && !a.JSON {
		fmt.Fprintf(a.Err, format+"\n", args...)
	}
}

// Setup applies the global flags.
func (a *App) Setup() error {
	var level slog.Level
	if err := level.UnmarshalText([]byte(a.LogLevel)); err != nil {
		return errs.New(errs.Invalid, "--log-level: %.20q is none of debug, info, warn, error", a.LogLevel)
	}
	w := a.Err
	if a.LogFile != "" {
		f, err := os.OpenFile(a.LogFile, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
		if err != nil {
			return errs.Wrap(errs.Invalid, err, "--log-file: cannot be written")
		}
		a.closers = append(a.closers, func() { _ = f.Close() })
		w = f
	}
	a.Log = slog.New(slog.NewTextHandler(w, &slog.HandlerOptions{Level: level}))
	if a.VMRuntime != "" {
		return errs.New(errs.Unsupported, "there is no VM runtime %.20q in skete", a.VMRuntime).
			WithHint("leave --vm-runtime out; --provider and --require choose what runs a sandbox")
	}
	if a.Home == "" {
		a.Home = client.Home()
	}
	var err error
	a.Home, err = filepath.Abs(a.Home)
	return err
}

// Local reports whether the server is the one of our data directory.
func (a *App) Local() bool { return a.URL == "" }

// Connect returns a client of a server that answers; one is started if the
// server is ours and does not run.
func (a *App) Connect(ctx context.Context) (*client.Client, error) {
	c, err := a.Dial()
	if err != nil || !a.Local() {
		return c, err
	}
	err = launch.Ensure(ctx, launch.Config{Home: a.Home, Client: c, Say: a.Err})
	return c, err
}

// Dial returns a client without making sure that somebody answers.
func (a *App) Dial() (*client.Client, error) {
	cfg := client.Config{URL: a.URL, Key: a.Key}
	if a.Local() {
		cfg.Socket = client.SocketPath(a.Home)
	}
	c, err := client.New(cfg)
	if err == nil {
		a.closers = append(a.closers, c.Close)
	}
	return c, err
}

// DefaultHome is the data directory without SKETE_HOME.
func DefaultHome() string {
	if os.Getuid() == 0 {
		return "/var/lib/skete"
	}
	home, _ := os.UserHomeDir()
	return filepath.Join(home, ".local", "share", "skete")
}

// WarnIsolation says it loudly when a sandbox is none.
func (a *App) WarnIsolation(sb api.Sandbox) {
	if sb.Isolation != "none" || a.warned[sb.ID] {
		return
	}
	a.warned[sb.ID] = true
	fmt.Fprintf(a.Err, "skete: WARNING: %s has NO ISOLATION (provider %s): its programs run on this host as your own do\n", sb.ID, sb.Provider)
}

// NoSuchCommand refuses words behind a command that only groups others.
func NoSuchCommand(cmd *cobra.Command, args []string) error {
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

// Group is a command that only groups others.
func Group(use, short, example string, aliases ...string) *cobra.Command {
	return &cobra.Command{
		Use: use, Short: short, Aliases: aliases, Example: example, Args: NoSuchCommand,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
}

// short bounds calls that should not keep anybody waiting, as completion.
const short = 2 * time.Second
