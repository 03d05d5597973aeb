package runs

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/skete-dev/skete/api"
	"github.com/skete-dev/skete/cmd/skete/internal/app"
	"github.com/skete-dev/skete/cmd/skete/internal/screen"
)

// printRun prints a run that a command changed.
func (a commands) printRun(run api.Run) error {
	if a.JSON {
		return app.PrintJSON(a.Out, run)
	}
	_, err := fmt.Fprintln(a.Out, run.ID)
	return err
}

func (a commands) send() *cobra.Command {
	var file string
	var pictures []string
	attach := false
	cmd := &cobra.Command{
		Use: "send RUN TEXT", Short: "Send a message to a run",
		Long: `Send a message. A run that goes on reads it before its next step; one that is
over is followed by a new run on the same thread, whose id is printed.`,
		Example: "  skete send last 'Leave the tests alone.'\n  skete send RUN 'Now write the changelog.' --attach\n  skete send RUN --file notes.md",
		Args:    cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			text, err := a.task(file, args[1:])
			if err != nil {
				return err
			}
			images, err := a.images(pictures, text)
			if err != nil {
				return err
			}
			ctx := cmd.Context()
			c, run, err := a.with(ctx, args[0])
			if err != nil {
				return err
			}
			sent, err := c.Run(run.ID).Send(ctx, text, images...)
			if err != nil {
				return err
			}
			if attach {
				if run, err = c.Run(sent.Run).Get(ctx); err != nil {
					return err
				}
				return watchRun(ctx, a.App, c, run, watchOptions{Policy: "ask", Begun: sent.New})
			}
			if a.JSON {
				return app.PrintJSON(a.Out, sent)
			}
			if sent.New {
				a.Note("that run is over: a new one goes on with its thread")
			}
			_, err = fmt.Fprintln(a.Out, sent.Run)
			return err
		},
	}
	cmd.Flags().StringVarP(&file, "file", "f", "", "read the message from this file, - is stdin")
	cmd.Flags().StringArrayVar(&pictures, "image", nil, "show this `file` to the model: PNG, JPEG, GIF, WebP (may be repeated)")
	cmd.Flags().BoolVar(&attach, "attach", false, "and watch the run")
	cmd.ValidArgsFunction = a.complete
	return cmd
}

func (a commands) cancel() *cobra.Command {
	reason := ""
	cmd := &cobra.Command{
		Use: "cancel RUN…", Short: "End runs, and what they started",
		Example: "  skete cancel last\n  skete cancel RUN --reason 'wrong branch'",
		Args:    cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			for _, name := range args {
				c, run, err := a.with(cmd.Context(), name)
				if err != nil {
					return err
				}
				if run.Final() && run.Background == 0 {
					a.Note("%s is over already: %s", run.ID, run.State)
				} else if run, err = c.Run(run.ID).Cancel(cmd.Context(), reason); err != nil {
					return err
				}
				if err := a.printRun(run); err != nil {
					return err
				}
			}
			return nil
		},
	}
	cmd.Flags().StringVar(&reason, "reason", "", "why; the log keeps it")
	cmd.ValidArgsFunction = a.complete
	return cmd
}

func (a commands) compact() *cobra.Command {
	cmd := &cobra.Command{
		Use: "compact RUN [FOCUS]", Short: "Replace the conversation so far by a summary",
		Long: `Replace the conversation so far by a summary, before the run's next model call;
of a run that is over, before the first one of the next run on its thread. FOCUS is
what the summary must keep above all. The agent can read the whole conversation as
a file afterwards, and ` + "`skete show`" + ` shows it.`,
		Example: "  skete compact last\n  skete compact RUN 'the names of the failing tests'",
		Args:    cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, run, err := a.with(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			if run, err = c.Run(run.ID).Compact(cmd.Context(), strings.Join(args[1:], " ")); err != nil {
				return err
			}
			if run.Final() {
				a.Note("that run is over: the next one on its thread begins with a summary")
			}
			return a.printRun(run)
		},
	}
	cmd.ValidArgsFunction = a.complete
	return cmd
}

func (a commands) resume() *cobra.Command {
	var set, add budgetFlags
	var detach bool
	cmd := &cobra.Command{
		Use: "resume RUN", Short: "Go on with a run that a budget or a failure ended",
		Long:    "Go on with a run that a budget or a failure ended, and watch it. --add-… gives it\nthat much beyond what it has used.\n" + exitCodes,
		Example: "  skete resume last\n  skete resume RUN --add-steps 50 --add-cost 1\n  skete resume RUN --add-timeout 30m -d",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			var how api.ResumeRun
			var err error
			if how.Add, err = add.budget("add-timeout"); err != nil {
				return err
			}
			if how.Budget, err = set.budget("timeout"); err != nil {
				return err
			}
			ctx := cmd.Context()
			c, run, err := a.with(ctx, args[0])
			if err != nil {
				return err
			}
			if run, err = c.Run(run.ID).Resume(ctx, how); err != nil {
				return err
			}
			if detach {
				return a.printRun(run)
			}
			return watchRun(ctx, a.App, c, run, watchOptions{Policy: "ask"})
		},
	}
	add.flags(cmd, "add-", "so many more")
	cmd.Flags().StringVar(&add.wall, "add-timeout", "", "so much more time: 10m, 2h")
	set.flags(cmd, "budget-", "in all at most so many")
	cmd.Flags().StringVar(&set.wall, "timeout", "", "in all at most so long")
	cmd.Flags().BoolVarP(&detach, "detach", "d", false, "do not watch it")
	cmd.ValidArgsFunction = a.complete
	return cmd
}

func (a commands) fork() *cobra.Command {
	var f api.ForkRun
	var detach bool
	cmd := &cobra.Command{
		Use: "fork RUN --at EVENT [TEXT]", Short: "Go on differently from an earlier moment",
		Long: `Start a new thread that begins as a copy of the run's events up to --at (the
numbers of ` + "`skete show`" + `), and goes on from there: with TEXT as the next message
if there is one. Its sandbox has the files as they were then; where they are not
kept any more, the new run says which ones it has. The run itself stays as it is.
` + exitCodes,
		Example: "  skete fork RUN --at 12 'Try it without the cache.'\n  skete fork last --at 7 --model other -d",
		Args:    cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if f.At == 0 {
				return usage("--at says where").WithHint("`skete show RUN` shows the numbers of events")
			}
			f.Task = strings.Join(args[1:], " ")
			var err error
			if f.Model, err = modelName(f.Model); err != nil {
				return err
			}
			ctx := cmd.Context()
			c, run, err := a.with(ctx, args[0])
			if err != nil {
				return err
			}
			if run, err = c.Run(run.ID).Fork(ctx, f); err != nil {
				return err
			}
			return a.started(ctx, c, run, detach, "ask")
		},
	}
	fs := cmd.Flags()
	fs.Uint64Var(&f.At, "at", 0, "the last event that is taken over")
	fs.StringVar(&f.Title, "title", "", "what lists show (default: fork of …)")
	fs.StringVarP(&f.Model, "model", "m", "", "another model")
	fs.BoolVar(&f.Keep, "keep", false, "leave its sandbox as it is when the run is over")
	fs.BoolVarP(&detach, "detach", "d", false, "print the run's id and leave it running")
	cmd.ValidArgsFunction = a.complete
	return cmd
}

func (a commands) rewind() *cobra.Command {
	var to uint64
	var files bool
	cmd := &cobra.Command{
		Use: "rewind RUN --to EVENT", Short: "Take a conversation back to an event, and the files with it",
		Long: `Take a conversation back: what came after the event is no longer part of it.
The log keeps everything. Files in the sandbox stay as they are, unless --files
is given: then they become what they were before the first call after the event,
and that can be undone; the paths that changed are printed.`,
		Example: "  skete rewind RUN --to 12 --files && skete send RUN 'Now differently.'",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if to == 0 {
				return usage("--to says where").WithHint("`skete show RUN` shows the numbers of events")
			}
			c, run, err := a.with(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			rewound, err := c.Run(run.ID).Rewind(cmd.Context(), to, files)
			if err != nil {
				return err
			}
			if a.JSON {
				return app.PrintJSON(a.Out, rewound)
			}
			if err := a.printRun(rewound.Run); err != nil || a.Quiet {
				return err
			}
			return a.printChanged(rewound.Files, files)
		},
	}
	cmd.Flags().Uint64Var(&to, "to", 0, "the last event that stays")
	cmd.Flags().BoolVar(&files, "files", false, "take the sandbox's files back too")
	cmd.ValidArgsFunction = a.complete
	return cmd
}

// printChanged lists the paths that a rewind changed.
func (a commands) printChanged(files []api.PathChange, asked bool) error {
	if asked && len(files) == 0 {
		a.Note("no file had to change")
	}
	for _, f := range files {
		if _, err := fmt.Fprintf(a.Out, "  %-10s %s\n", f.Action, screen.Clean(f.Path)); err != nil {
			return err
		}
	}
	return nil
}

func (a commands) replay() *cobra.Command {
	var detach, diff bool
	var how api.ReplayRun
	cmd := &cobra.Command{
		Use: "replay RUN", Short: "Play a run again against a fresh sandbox",
		Long: `Play the model's part of a run again, as it was recorded, against a fresh
sandbox, which is removed ten minutes after its last use unless --keep is given.
With --diff it is said where the results differ, when it has ended, and the
status is 1 if they do.
` + exitCodes,
		Example: "  skete replay last\n  skete replay RUN --diff --json",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			ctx := cmd.Context()
			c, run, err := a.with(ctx, args[0])
			if err != nil {
				return err
			}
			again, err := c.Run(run.ID).Replay(ctx, how)
			if err != nil {
				return err
			}
			if !diff {
				return a.started(ctx, c, again, detach, "ask")
			}
			if again, err = c.Run(again.ID).Wait(ctx); err != nil {
				return err
			}
			comparison, err := c.Run(run.ID).Compare(ctx, again.ID)
			if err != nil {
				return err
			}
			return a.compared(comparison.Report, again.State)
		},
	}
	cmd.Flags().BoolVarP(&detach, "detach", "d", false, "print the new run's id and leave it running")
	cmd.Flags().BoolVar(&how.Keep, "keep", false, "leave its sandbox as it is when the run is over")
	cmd.Flags().BoolVar(&diff, "diff", false, "wait for its end and say where the two differ")
	cmd.ValidArgsFunction = a.complete
	return cmd
}
