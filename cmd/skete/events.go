package main

import (
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/skete-dev/skete/api"
	"github.com/skete-dev/skete/client"
	"github.com/skete-dev/skete/cmd/skete/internal/app"
	"github.com/skete-dev/skete/errs"
)

func (a program) events() *cobra.Command {
	var f client.EventFilter
	count := 0
	cmd := &cobra.Command{
		Use: "events", Short: "Follow what happens to sandboxes and runs",
		Long: `Print a line whenever a sandbox or a run changes its state: a number, the time,
what it is about and its state, its id, and its name or title. It begins with what
happens from now on; --from 1 begins with all that is kept, which is a week's, of
each sandbox and run the newest 64. The numbers grow, over restarts of the server
too; others' events leave gaps. A lost connection is resumed.

A line "resync" says that what came before is gone: list again (skete ls, skete
runs). --json prints each event as the API does, with all of the sandbox or run.`,
		Example: `  skete events
  skete events --kind run --json
  skete events --from 1 -n 10      # the oldest ten that are kept`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			switch {
			case f.Kind != "" && f.Kind != "sandbox" && f.Kind != "run":
				return errs.New(errs.Invalid, "--kind: %.40q is neither sandbox nor run", f.Kind)
			case count < 0:
				return errs.New(errs.Invalid, "-n: %d is negative", count)
			}
			c, err := a.Connect(cmd.Context())
			if err != nil {
				return err
			}
			left := count
			for e, err := range c.Events(cmd.Context(), f) {
				if err != nil {
					return err
				}
				if err := a.printEvent(e); err != nil {
					return err
				}
				if left--; left == 0 {
					return nil
				}
			}
			return cmd.Context().Err()
		},
	}
	cmd.Flags().StringVar(&f.Kind, "kind", "", "only those of: sandbox, run")
	cmd.Flags().Uint64Var(&f.From, "from", 0, "first number to print; 1 = all that are kept (default: from now on)")
	cmd.Flags().IntVarP(&count, "count", "n", 0, "end after so many (default: go on until Ctrl-C)")
	return cmd
}

func (a program) printEvent(e api.Event) error {
	if a.JSON {
		return app.PrintJSONLine(a.Out, e)
	}
	kind, name := e.Type, ""
	switch {
	case e.Resync:
		kind = "resync"
	case e.Sandbox != nil:
		name = e.Sandbox.Name
	case e.Run != nil:
		name = e.Run.Title
	}
	_, err := fmt.Fprintf(a.Out, "%6d  %s  %-18s %s  %s\n", e.Seq, e.Time.Local().Format(time.DateTime), kind, app.Cell(e.ID), app.Cell(name))
	if err != nil {
		return errs.Wrap(errs.Unavailable, err, "cannot print")
	}
	return nil
}
