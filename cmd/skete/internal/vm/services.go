package vm

import (
	"cmp"
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/skete-dev/skete/api"
	"github.com/skete-dev/skete/client"
	"github.com/skete-dev/skete/cmd/skete/internal/app"
	"github.com/skete-dev/skete/errs"
)

// This file is the command group `skete service`: processes that a
// sandbox keeps running.

// serviceCommands are the commands of one run.
type serviceCommands struct{ *app.App }

// serviceWaitDefault is how long a command waits for what it asked for.
const serviceWaitDefault = time.Minute

const serviceTailBytes = 1 << 10 // of a service's log, shown when it failed

// ServiceCommand returns the group.
func ServiceCommand(run *app.App) *cobra.Command {
	a := serviceCommands{run}
	cmd := app.Group("service", "Keep processes running in a sandbox", `  skete service add ID web --http 5173 -- npm run dev
  skete service list ID
  skete service logs ID web --follow
  skete service load ID`, "services")
	cmd.AddCommand(
		a.list(), a.add(), a.load(), a.remove(), a.logs(),
		a.act("start", "Start a service, at once if it waits for another try", (*client.Services).Start),
		a.act("stop", "Stop a service", (*client.Services).Stop),
		a.act("restart", "Stop a service and start it", (*client.Services).Restart),
	)
	return cmd
}

// open finds the sandbox and the service that words mean: [ID] NAME.
func (a serviceCommands) open(ctx context.Context, t *app.Target, words []string, names int) (s *client.Services, rest []string, err error) {
	var sandbox []string
	if rest = words; len(words) > names {
		sandbox, rest = words[:1], words[1:]
	}
	c, sb, err := a.InOne(ctx, t, sandbox)
	if err != nil {
		return nil, nil, err
	}
	return c.Sandbox(sb.ID).Services(), rest, nil
}

func (a serviceCommands) list() *cobra.Command {
	var t app.Target
	cmd := &cobra.Command{
		Use: "list [ID]", Aliases: []string{"ls"}, Short: "List the services of a sandbox",
		Example: "  skete service list ID\n  skete service list ID --json",
		Args:    cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			s, _, err := a.open(cmd.Context(), &t, args, 0)
			if err != nil {
				return err
			}
			items, err := s.List(cmd.Context())
			if err != nil {
				return err
			}
			return app.List(a.App, items, func(s api.Service) string { return s.Name },
				[]string{"NAME", "STATE", "PID", "RESTARTS", "PORTS", "SINCE", "COMMAND", "REASON"}, serviceRow)
		},
	}
	t.Flags(cmd, false)
	return a.WithCompletion(cmd, 1)
}

func serviceRow(s api.Service) []string {
	var ports []string
	for _, p := range s.Ports {
		ports = append(ports, strconv.Itoa(p))
	}
	pid := ""
	if s.PID != 0 {
		pid = strconv.Itoa(s.PID)
	}
	command := s.Command
	if command == "" {
		command = strings.Join(s.Argv, " ")
	}
	return []string{s.Name, s.State, pid, strconv.FormatUint(s.Restarts, 10), strings.Join(ports, ","), app.Age(s.Since), app.Cell(command), app.Cell(s.Reason)}
}

func (a serviceCommands) add() *cobra.Command {
	var t app.Target
	var d api.ServiceSpec
	var env []string
	var timeout string
	var wait time.Duration
	var noWait bool
	cmd := &cobra.Command{
		Use: "add [ID] NAME [--cmd LINE | -- COMMAND…]", Short: "Declare a service and start it",
		Long: `Declare a service and start it: a process that is started again when it ends,
after 100 ms, then 200 ms and so on up to 10 s; one that ends five times within
a minute is tried every 30 s. One that is known is changed, and restarted if it
runs. The command waits until the service is ready, or has failed; one without
--http, --tcp or --log is ready if it runs for a second.

A Vite server works behind a preview as it is.`,
		Example: `  skete service add ID web --http 5173 -- npm run dev
  skete service add ID web --cmd 'PORT=3000 node server.js' --tcp 3000
  skete service add ID worker --log '^listening' --restart on-failure -- python3 worker.py`,
		Args: cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			words, argv := app.Split(cmd, args)
			if (len(argv) == 0) == (d.Command == "") {
				return errs.New(errs.Invalid, "a service needs a name and a command: either --cmd, or words after --").
					WithHint("for example: skete service add ID web -- npm run dev")
			}
			var err error
			if d.Env, err = app.Environment(env); err != nil {
				return err
			}
			if d.ReadyTimeoutMS, err = app.Milliseconds("ready-timeout", timeout); err != nil {
				return err
			}
			s, rest, err := a.open(cmd.Context(), &t, words, 1)
			if err != nil {
				return err
			}
			if len(rest) != 1 {
				return errs.New(errs.Invalid, "name one service, and its command after --")
			}
			d.Name, d.Argv = rest[0], argv
			if noWait {
				wait = 0
			}
			i, err := s.Declare(cmd.Context(), d, wait)
			return a.verdict(cmd.Context(), s, i, err, wait)
		},
	}
	t.Flags(cmd, false)
	f := cmd.Flags()
	f.StringVar(&d.Command, "cmd", "", "a `line` for the shell instead of a command after --")
	f.StringArrayVarP(&env, "env", "e", nil, "set a variable, `KEY=value` (may be repeated)")
	f.StringVar(&d.Workdir, "workdir", "", "where it runs; absolute, or beneath the sandbox's")
	f.StringVar(&d.User, "user", "", "who it runs as")
	f.IntSliceVar(&d.Ports, "port", nil, "that it serves, for people and previews (may be repeated)")
	f.IntVar(&d.ReadyHTTP, "http", 0, "ready when this `port` answers a request")
	f.StringVar(&d.ReadyPath, "path", "", "of --http; default /")
	f.IntVar(&d.ReadyTCP, "tcp", 0, "ready when this `port` accepts a connection")
	f.StringVar(&d.ReadyLog, "log", "", "ready when a line of its log matches this `pattern` (RE2)")
	f.StringVar(&timeout, "ready-timeout", "", "then it counts as unready; default 60s")
	f.StringVar(&d.Restart, "restart", "", "always (the default), on-failure, never")
	f.DurationVar(&wait, "wait", serviceWaitDefault, "for it to be ready; 0 = not at all")
	f.BoolVar(&noWait, "no-wait", false, "same as --wait 0")
	return a.WithCompletion(cmd, 1)
}

// verdict waits until it is known whether a service that was just started
// works, and shows it. What it wrote last is on stderr if it does not.
func (a serviceCommands) verdict(ctx context.Context, s *client.Services, i api.Service, err error, wait time.Duration) error {
	if err != nil {
		return err
	}
	if wait <= 0 {
		a.Note("not waited for: `skete service list` shows what becomes of it")
		return a.show(i, nil)
	}
	a.tell(ctx, s, i, wait)
	return a.show(i, nil)
}

// tell says of a service that does not work yet what there is to say.
func (a serviceCommands) tell(ctx context.Context, s *client.Services, i api.Service, wait time.Duration) {
	switch i.State {
	case "starting":
		a.Note("still starting after %s: `skete service list` shows what becomes of it", wait)
	case "unready", "backoff", "crash-loop", "failed":
		for ev, err := range s.Logs(ctx, i.Name, -serviceTailBytes-1, false) {
			if err == nil && !a.JSON {
				_, err = a.Err.Write(ev.Data)
			}
			if err != nil {
				break // what failed is said without it
			}
		}
	}
}

// show prints a service after it was asked for something. One that does not
// work is an error, so that scripts notice.
func (a serviceCommands) show(i api.Service, err error) error {
	if err != nil {
		return err
	}
	if a.JSON {
		err = app.PrintJSON(a.Out, i)
	} else {
		_, err = fmt.Fprintf(a.Out, "%s %s\n", i.Name, i.State)
	}
	if err != nil {
		return err
	}
	return serviceBroken(i)
}

// serviceBroken is the error of a service that does not work; nil = it does, or may yet.
func serviceBroken(i api.Service) error {
	switch i.State {
	case "unready", "backoff", "crash-loop", "failed":
		reason := app.Printable(i.Reason)
		if e := i.LastExit; reason == "" && e != nil {
			reason = fmt.Sprintf("it ended at once, with status %d", e.Code)
		}
		return errs.New(errs.Unavailable, "service %s is %s: %s", i.Name, i.State, reason).
			WithHint("`skete service logs` shows what it wrote")
	}
	return nil
}

func (a serviceCommands) act(use, short string, do func(*client.Services, context.Context, string, time.Duration) (api.Service, error)) *cobra.Command {
	var t app.Target
	var wait time.Duration
	cmd := &cobra.Command{
		Use: use + " [ID] NAME", Short: short, Example: "  skete service " + use + " ID web",
		Args: cobra.RangeArgs(1, 2),
		RunE: func(cmd *cobra.Command, args []string) error {
			s, rest, err := a.open(cmd.Context(), &t, args, 1)
			if err != nil {
				return err
			}
			i, err := do(s, cmd.Context(), rest[0], wait)
			if use != "stop" {
				return a.verdict(cmd.Context(), s, i, err, wait)
			}
			return a.show(i, err)
		},
	}
	t.Flags(cmd, false)
	cmd.Flags().DurationVar(&wait, "wait", serviceWaitDefault, "for it to be done; 0 = not at all")
	return a.WithCompletion(cmd, 1)
}

func (a serviceCommands) remove() *cobra.Command {
	var t app.Target
	cmd := &cobra.Command{
		Use: "remove [ID] NAME", Aliases: []string{"rm"}, Short: "Stop a service and forget it and its log",
		Example: "  skete service remove ID web",
		Args:    cobra.RangeArgs(1, 2),
		RunE: func(cmd *cobra.Command, args []string) error {
			s, rest, err := a.open(cmd.Context(), &t, args, 1)
			if err != nil {
				return err
			}
			return s.Remove(cmd.Context(), rest[0])
		},
	}
	t.Flags(cmd, false)
	return a.WithCompletion(cmd, 1)
}

func (a serviceCommands) load() *cobra.Command {
	var t app.Target
	var wait time.Duration
	var noWait bool
	cmd := &cobra.Command{
		Use: "load [ID]", Short: "Declare what skete.yaml of the workspace says",
		Long: `Declare what skete.yaml of the workspace says, and remove what it does not say
any more. What is equal goes on running. A file that is wrong changes nothing.
The command waits until each service is ready, or has failed, as add does.

  services:
    web:
      command: npm run dev
      ports: [5173]
      ready: {http: 5173, path: /, timeout: 60s}
      restart: always`,
		Example: "  skete cp skete.yaml ID:skete.yaml && skete service load ID",
		Args:    cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			s, _, err := a.open(cmd.Context(), &t, args, 0)
			if err != nil {
				return err
			}
			if noWait {
				wait = 0
			}
			l, err := s.Load(cmd.Context(), wait)
			if err != nil {
				return err
			}
			return a.loaded(cmd.Context(), s, l, wait)
		},
	}
	t.Flags(cmd, false)
	cmd.Flags().DurationVar(&wait, "wait", serviceWaitDefault, "for all of them to be ready; 0 = not at all")
	cmd.Flags().BoolVar(&noWait, "no-wait", false, "same as --wait 0")
	return a.WithCompletion(cmd, 1)
}

// loaded shows what became of the services of a skete.yaml. One that does not
// work is an error, after all were shown.
func (a serviceCommands) loaded(ctx context.Context, s *client.Services, l api.ServicesLoaded, wait time.Duration) error {
	if !l.Found {
		a.Note("there is no skete.yaml in the workspace")
	}
	if wait <= 0 && len(l.Declared) > 0 {
		a.Note("not waited for: `skete service list` shows what becomes of them")
	}
	var lines []string
	var failed error
	for _, i := range l.Services {
		a.tell(ctx, s, i, wait)
		lines = append(lines, i.Name+" "+i.State)
		failed = cmp.Or(failed, serviceBroken(i))
	}
	if l.Services == nil {
		lines = l.Declared
	}
	if a.JSON {
		return cmp.Or(app.PrintJSON(a.Out, l), failed)
	}
	for _, line := range lines {
		if _, err := fmt.Fprintln(a.Out, line); err != nil {
			return err
		}
	}
	return failed
}

func (a serviceCommands) logs() *cobra.Command {
	var t app.Target
	var from int64
	var follow bool
	cmd := &cobra.Command{
		Use: "logs [ID] NAME", Short: "Show what a service wrote",
		Long: `Show what a service wrote, all its runs after one another. Offsets count bytes
of that; with --json each piece tells its own.`,
		Example: `  skete service logs ID web
  skete service logs ID web --from -10001    # the last 10,000 bytes
  skete service logs ID web --follow`,
		Args: cobra.RangeArgs(1, 2),
		RunE: func(cmd *cobra.Command, args []string) error {
			s, rest, err := a.open(cmd.Context(), &t, args, 1)
			if err != nil {
				return err
			}
			for ev, err := range s.Logs(cmd.Context(), rest[0], from, follow) {
				if err == nil {
					err = a.print(ev)
				}
				if err != nil {
					return err
				}
			}
			return nil
		},
	}
	t.Flags(cmd, false)
	cmd.Flags().Int64Var(&from, "from", 0, "the `offset` to begin at; -1 is the present end, -n are the last n-1 bytes")
	cmd.Flags().BoolVarP(&follow, "follow", "f", false, "wait for more")
	return a.WithCompletion(cmd, 1)
}

func (a serviceCommands) print(ev api.ServiceLogEvent) error {
	if a.JSON {
		return app.PrintJSONLine(a.Out, ev)
	}
	if ev.GapTo > 0 {
		a.Note("bytes %d to %d are not kept any more", ev.Offset, ev.GapTo)
		return nil
	}
	_, err := a.Out.Write(ev.Data)
	return err
}
