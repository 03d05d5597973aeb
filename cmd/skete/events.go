package main

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/skete-dev/skete/api"
	"github.com/skete-dev/skete/client"
	"github.com/skete-dev/skete/cmd/skete/internal/app"
	"github.com/skete-dev/skete/errs"
)

var eventKinds = []string{"sandbox", "run", "workspace", "network", "models"}

func (a program) events() *cobra.Command {
	var f client.EventFilter
	count := 0
	cmd := &cobra.Command{
		Use: "events", Short: "Follow what happens to sandboxes, their workspaces and networks, and runs",
		Long: `Print a line whenever a sandbox or a run changes its state, a workspace has a new
revision, something that a sandbox sent was allowed or refused, or a program in one has
called a model: a number, the time, what it is about and its state, its id (all but a run
have that of their sandbox), and its name, its title, what the revision is the result of,
where to the request was, or what the call cost. It begins with what happens from now on;
--from 1 begins with all that is kept, which is a week's, of each sandbox and run the
newest 64 of a kind.
The numbers grow, over restarts of the server too; others' events leave gaps. A
lost connection is resumed.

A workspace is "changed" by what runs in it, and "restored" by an undo, a redo, a
restore or a revert. What a network decides alike in a row is told once, and of many
decisions a second some; skete egress log has the last thousand. Of many calls of
models some are told, each with what all have used.

A line "resync" says that what came before is gone: list again (skete ls, skete
runs). --json prints each event as the API does, with all of the sandbox,
revision, decision or run.`,
		Example: `  skete events
  skete events --kind run --json
  skete events --from 1 -n 10      # the oldest ten that are kept`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			switch {
			case f.Kind != "" && !slices.Contains(eventKinds, f.Kind):
				return errs.New(errs.Invalid, "--kind: %.40q is none of %s", f.Kind, strings.Join(eventKinds, ", "))
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
	cmd.Flags().StringVar(&f.Kind, "kind", "", "only those of: "+strings.Join(eventKinds, ", "))
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
	case e.Workspace != nil:
		name = e.Workspace.Title
	case e.Network != nil:
		name = strings.TrimSpace(fmt.Sprintf("%s:%d %s %s", e.Network.Host, e.Network.Port, e.Network.Method, e.Network.Path))
	case e.Models != nil:
		name = fmt.Sprintf("%s %d tokens $%.4f", e.Models.Model, e.Models.TokensIn+e.Models.TokensOut, e.Models.CostUSD)
	}
	_, err := fmt.Fprintf(a.Out, "%6d  %s  %-18s %s  %s\n", e.Seq, e.Time.Local().Format(time.DateTime), kind, app.Cell(e.ID), app.Cell(name))
	if err != nil {
		return errs.Wrap(errs.Unavailable, err, "cannot print")
	}
	return nil
}
