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
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/skete-dev/skete/api"
	"github.com/skete-dev/skete/client"
	"github.com/skete-dev/skete/cmd/skete/internal/launch"
	"github.com/skete-dev/skete/errs"
)

// Exit statuses of errors that are not the guest's.
const (
	wrongUsage = 2   // the request must change: a flag, an argument, a value
	OwnFailure = 125 // all others
)

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
		return 128 + int(syscall.SIGPIPE) // the reader of our output is gone and cannot be told
	case errs.Exit(err) != 0: // the command's failure to start, not ours
		a.Complain(err)
		return errs.Exit(err)
	case errs.Is(err, errs.Invalid):
		a.Complain(err)
		return wrongUsage
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

// Agree asks for a yes at the terminal; yes is that of a flag. Without a
// terminal the flag is needed.
func (a *App) Agree(yes bool, question string) (bool, error) {
	if yes {
		return true, nil
	}
	if !a.HasKeyboard() {
		return false, errs.New(errs.Invalid, "there is no terminal to ask at").WithHint("say --yes if you mean it")
	}
	fmt.Fprintf(a.Err, "%s [y/N] ", question)
	line, _ := bufio.NewReader(io.LimitReader(a.In, 1<<10)).ReadString('\n')
	answer := strings.ToLower(strings.TrimSpace(line))
	return answer == "y" || answer == "yes", nil
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

// Dial returns a client without making sure that a server answers.
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

// RootHome is root's data directory without SKETE_HOME.
const RootHome = "/var/lib/skete"

// DefaultHome is the data directory without SKETE_HOME.
func DefaultHome() string {
	if os.Getuid() == 0 {
		return RootHome
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
	err := errs.New(errs.Invalid, "there is no command %.40q in %q", args[0], cmd.CommandPath())
	var names []string
	for _, sub := range cmd.Commands() {
		if sub.IsAvailableCommand() {
			names = append(append(names, sub.Name()), sub.Aliases...)
		}
	}
	for _, group := range cmd.Commands() { // `skete clean` means `skete vm clean`
		if sub, _, e := group.Find(args[:1]); e == nil && sub != group && sub.IsAvailableCommand() {
			return err.WithHint("did you mean `%s`?", sub.CommandPath())
		}
	}
	if near := Nearest(args[0], names); near != "" {
		return err.WithHint("did you mean `%s %s`?", cmd.CommandPath(), near)
	}
	return err.WithHint("`%s --help` lists the commands", cmd.CommandPath())
}

// FlagError explains flags that do not fit.
func FlagError(cmd *cobra.Command, err error) error {
	if words := cmd.Flags().Args(); cmd.HasAvailableSubCommands() && len(words) > 0 {
		return NoSuchCommand(cmd, words) // the flag is of a command that is not there
	}
	wrong := errs.New(errs.Invalid, "%s", err)
	if bad, ok := errors.AsType[*pflag.InvalidValueError](err); ok {
		wrong = errs.New(errs.Invalid, "--%s: %.80q is not %s", bad.GetFlag().Name, bad.GetValue(), kindOf(bad.GetFlag()))
	}
	if unknown, ok := errors.AsType[*pflag.NotExistError](err); ok {
		var names []string
		cmd.Flags().VisitAll(func(f *pflag.Flag) {
			names = append(names, f.Name)
		})
		if near := Nearest(unknown.GetSpecifiedName(), names); near != "" {
			return wrong.WithHint("did you mean --%s? `%s --help` shows the flags", near, cmd.CommandPath())
		}
	}
	return wrong.WithHint("`%s --help` shows the flags", cmd.CommandPath())
}

// kindOf says what a flag takes.
func kindOf(f *pflag.Flag) string {
	switch f.Value.Type() {
	case "int", "int64", "int32":
		return "a whole number"
	case "uint", "uint64", "uint32":
		return "a whole number from 0 on"
	case "float64":
		return "a number"
	case "bool":
		return "true or false"
	case "duration":
		return "a duration: write 90s, 5m or 1h30m"
	}
	return "of the kind " + f.Value.Type()
}

// OneOf refuses a value of a flag that is none of those that there are.
func OneOf(flag, value string, values ...string) error {
	if value == "" || slices.Contains(values, value) {
		return nil
	}
	err := errs.New(errs.Invalid, "--%s: one of %s, got %.40q", flag, strings.Join(values, ", "), value)
	if near := Nearest(value, values); near != "" {
		return err.WithHint("did you mean %s?", near)
	}
	return err
}

// Nearest is the name that was most likely meant; "" = none is near.
func Nearest(said string, names []string) string {
	best, least := "", max(len(said)/3, 1)+1
	for _, name := range names {
		d := distance(strings.ToLower(said), name)
		if d >= least && len(said) > 2 && (strings.HasPrefix(name, said) || strings.HasPrefix(said, name) && len(name) > 2) {
			d = least - 1
		}
		if d < least {
			best, least = name, d
		}
	}
	return best
}

// distance counts the letters that must be put in, left out, changed or
// swapped with the next to make a into b.
func distance(a, b string) int {
	rows := [3][]int{make([]int, len(b)+1), make([]int, len(b)+1), make([]int, len(b)+1)}
	for j := range rows[1] {
		rows[1][j] = j
	}
	for i := 1; i <= len(a); i++ {
		before, last, now := rows[(i-1)%3], rows[i%3], rows[(i+1)%3]
		now[0] = i
		for j := 1; j <= len(b); j++ {
			cost := 1
			if a[i-1] == b[j-1] {
				cost = 0
			}
			now[j] = min(last[j]+1, now[j-1]+1, last[j-1]+cost)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				now[j] = min(now[j], before[j-2]+1)
			}
		}
	}
	return rows[(len(a)+1)%3][len(b)]
}

// Group is a command that only groups others.
func Group(use, short, example string, aliases ...string) *cobra.Command {
	return &cobra.Command{
		Use: use, Short: short, Aliases: aliases, Example: example, Args: NoSuchCommand,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
}

// Short bounds calls that must not keep a person waiting, as completion.
const Short = 2 * time.Second
