package runs

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/skete-dev/skete/api"
	"github.com/skete-dev/skete/client"
	"github.com/skete-dev/skete/cmd/skete/internal/app"
	"github.com/skete-dev/skete/cmd/skete/internal/screen"
	"github.com/skete-dev/skete/errs"
)

func (a commands) schedule() *cobra.Command {
	cmd := app.Group("schedule", "Runs at times", `  skete schedule add morning --cron '0 9 * * 1-5' --tz Europe/Berlin 'Sum up the new issues.'
  skete schedule ls
  skete schedule show morning
  skete schedule run morning
  skete schedule pause morning`)
	cmd.Long = "Start runs of agents at times. The server does it: no terminal needs to be open,\nand what it misses while it is down is made up for once. `skete help schedules`\nhas the details."
	cmd.AddCommand(a.scheduleAdd(), a.scheduleList(), a.scheduleShow(), a.schedulePause(), a.scheduleResume(), a.scheduleRemove(), a.scheduleRun())
	return cmd
}

func (a commands) scheduleAdd() *cobra.Command {
	var f runFlags
	var req api.CreateSchedule
	every := ""
	cmd := &cobra.Command{
		Use: "add NAME TASK", Short: "Let runs be started at times",
		Long: `Let runs be started at times: by --cron, five fields (minute, hour, day of the
month, month, day of the week) or one of @hourly, @daily, @weekly, @monthly,
@yearly; or by --every, an interval of a minute or more.

The fields of --cron are in UTC unless --tz names another time zone. Each run
begins a new conversation, in a sandbox of its own unless --sandbox names one;
with --thread each goes on with that conversation. A time at which a run of the
schedule is still under way, or waits for a person, is skipped.

The runs have the label schedule=NAME: ` + "`skete runs --label schedule=NAME`" + ` lists them.`,
		Example: `  skete schedule add morning --cron '0 9 * * 1-5' --tz Europe/Berlin 'Sum up the new issues.'
  skete schedule add watch --every 30m --sandbox web 'Look whether the site answers.'
  skete schedule add nightly --cron @daily --agent reviewer --budget-cost 0.50 --file task.md
  skete schedule add diary --cron '0 18 * * *' --thread THREAD 'What happened today?'`,
		Args: cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			req.Name = args[0]
			var err error
			if req.EveryMS, err = app.Milliseconds("every", every); err != nil {
				return &app.Coded{Status: exitUsage, Err: err}
			}
			if (req.Cron == "") == (every == "") {
				return usage("one of --cron and --every says when").WithHint("--cron '0 9 * * 1-5' is 9:00 on workdays; --every 90m")
			}
			if req.Run, err = a.request(&f, args[1:]); err != nil {
				return err
			}
			return a.addSchedule(cmd.Context(), req, f.sandbox)
		},
	}
	a.startFlags(cmd, &f)
	fs := cmd.Flags()
	fs.StringVar(&req.Cron, "cron", "", "when: five fields, or @daily and such")
	fs.StringVar(&req.TimeZone, "tz", "", "time zone of --cron by its IANA name, as Europe/Berlin (default UTC)")
	fs.StringVar(&every, "every", "", "when: an interval, as 30m or 12h, counted from now")
	cmd.ValidArgsFunction = cobra.NoFileCompletions
	return cmd
}

func (a commands) addSchedule(ctx context.Context, req api.CreateSchedule, sandbox string) error {
	c, err := a.Connect(ctx)
	if err != nil {
		return err
	}
	if req.Run.Sandbox, err = a.named(ctx, c, sandbox); err != nil {
		return err
	}
	s, err := c.CreateSchedule(ctx, req)
	if errs.Is(err, errs.Invalid) {
		return &app.Coded{Status: exitUsage, Err: err}
	}
	if err != nil {
		return err
	}
	return a.printSchedule(s)
}

// printSchedule prints a schedule that a command changed.
func (a commands) printSchedule(s api.Schedule) error {
	if a.JSON {
		return app.PrintJSON(a.Out, s)
	}
	if s.NextAt != nil {
		a.Note("%s is next due at %s, %s", s.Name, clockText(s, *s.NextAt), app.Until(s.NextAt))
	}
	_, err := fmt.Fprintln(a.Out, s.ID)
	return err
}

func (a commands) scheduleList() *cobra.Command {
	return &cobra.Command{
		Use: "ls", Aliases: []string{"list"}, Short: "List schedules", Example: "  skete schedule ls\n  skete schedule ls --json", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := a.Connect(cmd.Context())
			if err != nil {
				return err
			}
			items, err := client.All(c.Schedules(cmd.Context()))
			if err != nil {
				return err
			}
			return app.List(a.App, items, func(s api.Schedule) string { return s.ID }, []string{"ID", "NAME", "WHEN", "NEXT", "LAST", "TASK"}, scheduleRow)
		},
	}
}

func scheduleRow(s api.Schedule) []string {
	next := app.Until(s.NextAt)
	if s.Paused {
		next = "paused"
	}
	last := ""
	switch {
	case s.Last == nil:
	case s.Last.Error != "":
		last = "not started " + app.Age(s.Last.DueAt) + " ago"
	default:
		last = lastState(*s.Last) + " " + app.Age(s.Last.DueAt) + " ago"
	}
	return []string{s.ID, s.Name, whenText(s), next, last, screen.Cut(strings.ReplaceAll(s.Run.Task, "\n", " "), 60)}
}

// lastState is that of a run, which may be gone.
func lastState(r api.ScheduleRun) string {
	if r.State == "" {
		return "deleted"
	}
	return r.State
}

// whenText says when a schedule is due.
func whenText(s api.Schedule) string {
	if s.EveryMS > 0 {
		text := (time.Duration(s.EveryMS) * time.Millisecond).String() // 1h30m0s
		for _, rest := range []struct{ long, short string }{{"m0s", "m"}, {"h0m", "h"}} {
			if t, has := strings.CutSuffix(text, rest.long); has {
				text = t + rest.short
			}
		}
		return "every " + text
	}
	if s.TimeZone == "" || s.TimeZone == "UTC" {
		return s.Cron
	}
	return s.Cron + " " + s.TimeZone
}

// clockText is a time as the schedule's clock on the wall shows it.
func clockText(s api.Schedule, at time.Time) string {
	zone, err := time.LoadLocation(s.TimeZone)
	if err != nil {
		zone = time.UTC // this host knows fewer than the server
	}
	return at.In(zone).Format("2006-01-02 15:04 MST")
}

// doing is what a command does with a schedule.
type doing func(ctx context.Context, c *client.Client, s *client.Schedule) error

// about is a command about one schedule.
func (a commands) about(use, short, example string, do doing) *cobra.Command {
	return &cobra.Command{
		Use: use, Short: short, Example: example, Args: cobra.ExactArgs(1), ValidArgsFunction: a.completeSchedule,
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := a.Connect(cmd.Context())
			if err != nil {
				return err
			}
			return do(cmd.Context(), c, c.Schedule(args[0]))
		},
	}
}

// changes prints how a schedule is after a call.
func (a commands) changes(call func(*client.Schedule, context.Context) (api.Schedule, error)) doing {
	return func(ctx context.Context, _ *client.Client, s *client.Schedule) error {
		now, err := call(s, ctx)
		if err != nil {
			return err
		}
		return a.printSchedule(now)
	}
}

func (a commands) schedulePause() *cobra.Command {
	return a.about("pause NAME", "Start no runs of a schedule until it is resumed", "  skete schedule pause morning", a.changes((*client.Schedule).Pause))
}

func (a commands) scheduleResume() *cobra.Command {
	return a.about("resume NAME", "Go on with a schedule, from its next time on", "  skete schedule resume morning", a.changes((*client.Schedule).Resume))
}

func (a commands) scheduleRemove() *cobra.Command {
	remove := func(ctx context.Context, _ *client.Client, s *client.Schedule) error { return s.Delete(ctx) }
	return a.about("rm NAME", "Forget a schedule; its runs stay", "  skete schedule rm morning", remove)
}

func (a commands) scheduleRun() *cobra.Command {
	attach := false
	start := func(ctx context.Context, c *client.Client, s *client.Schedule) error {
		run, err := s.Run(ctx)
		if err != nil {
			return err
		}
		return a.started(ctx, c, run, !attach, "ask")
	}
	cmd := a.about("run NAME", "Start a run of a schedule now", "  skete schedule run morning\n  skete schedule run morning --attach", start)
	cmd.Long = "Start a run of a schedule now, also of one that is paused. The times at which it is\ndue stay as they are."
	cmd.Flags().BoolVar(&attach, "attach", false, "and watch the run")
	return cmd
}

func (a commands) scheduleShow() *cobra.Command {
	show := func(ctx context.Context, _ *client.Client, h *client.Schedule) error {
		s, err := h.Get(ctx)
		switch {
		case err != nil:
			return err
		case a.JSON:
			return app.PrintJSON(a.Out, s)
		case a.Quiet:
			_, err = fmt.Fprintln(a.Out, s.ID)
			return err
		}
		for _, line := range scheduleLines(s) {
			if line[1] == "" {
				continue
			}
			if _, err := fmt.Fprintf(a.Out, "%-8s %s\n", line[0], strings.ReplaceAll(app.Printable(line[1]), "\n", "\n         ")); err != nil {
				return err
			}
		}
		return nil
	}
	return a.about("show NAME", "Show a schedule, and what became of it last", "  skete schedule show morning\n  skete schedule show morning --json", show)
}

// scheduleLines are what there is to say of a schedule.
func scheduleLines(s api.Schedule) [][2]string {
	next := "never"
	switch {
	case s.Paused:
		next = "paused: `skete schedule resume " + s.Name + "`"
	case s.NextAt != nil:
		next = clockText(s, *s.NextAt) + ", " + app.Until(s.NextAt)
	}
	lines := [][2]string{{"name", s.Name}, {"id", s.ID}, {"when", whenText(s)}, {"next", next}, {"last", lastText(s)}}
	if s.Missed > 0 {
		lines = append(lines, [2]string{"missed", fmt.Sprintf("%d, while no server ran", s.Missed)})
	}
	if s.Skipped > 0 {
		lines = append(lines, [2]string{"skipped", fmt.Sprintf("%d, while a run was under way", s.Skipped)})
	}
	return append(lines, [][2]string{
		{"agent", s.Run.Agent}, {"model", s.Run.Model}, {"thread", s.Run.Thread}, {"sandbox", s.Run.Sandbox}, {"made by", s.By}, {"task", s.Run.Task},
	}...)
}

func lastText(s api.Schedule) string {
	switch {
	case s.Last == nil:
		return ""
	case s.Last.Error != "":
		return clockText(s, s.Last.DueAt) + ": not started: " + s.Last.Error
	}
	return clockText(s, s.Last.DueAt) + ": " + s.Last.Run + " " + lastState(*s.Last)
}

// completeSchedule offers names; it never starts a server.
func (a commands) completeSchedule(cmd *cobra.Command, args []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
	none := cobra.ShellCompDirectiveNoFileComp
	if len(args) > 0 || a.Setup() != nil {
		return nil, none
	}
	ctx, cancel := context.WithTimeout(cmd.Context(), completeTimeout)
	defer cancel()
	c, err := a.Dial()
	if err != nil {
		return nil, none
	}
	var found []cobra.Completion
	for s, err := range c.Schedules(ctx) {
		if err != nil {
			break
		}
		found = append(found, cobra.CompletionWithDesc(s.Name, app.Cell(whenText(s))))
	}
	return found, none
}
