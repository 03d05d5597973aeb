package history

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/skete-dev/skete/api"
	"github.com/skete-dev/skete/cmd/skete/internal/app"
	"github.com/skete-dev/skete/errs"
)

func (a commands) kept() *cobra.Command {
	return &cobra.Command{
		Use: "kept", Short: "List what is kept of destroyed sandboxes",
		Long: `List the histories of destroyed sandboxes, the largest first. Each goes by itself
seven days after the last write to it; until then it counts in the tenant's quota
of disk, can be read and exported, and ` + "`skete history move`" + ` gives it to a new sandbox.`,
		Example: `  skete history kept
  skete history kept --json`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := a.Connect(cmd.Context())
			if err != nil {
				return err
			}
			items, err := c.KeptHistories(cmd.Context())
			if err != nil {
				return err
			}
			return app.List(a.App, items, func(k api.KeptHistory) string { return k.Sandbox }, []string{"SANDBOX", "SIZE", "AGE"},
				func(k api.KeptHistory) []string {
					return []string{k.Sandbox, app.BytesText(k.Bytes), app.Age(k.Written)}
				})
		},
	}
}

func (a commands) remove() *cobra.Command {
	var yes bool
	cmd := &cobra.Command{
		Use: "rm SANDBOX… --yes", Short: "Delete what is kept of destroyed sandboxes, for ever",
		Long: `Delete the histories of destroyed sandboxes, named by their whole ids, for ever.
Nothing of them can be read or moved afterwards.`,
		Example: `  skete history rm --yes sbx_k3j5…
  skete history rm --yes $(skete history kept -q)`,
		Args: cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if !yes {
				return errs.New(errs.Invalid, "this deletes what is kept of %s for ever", strings.Join(args, ", ")).WithHint("say --yes if you mean it")
			}
			c, err := a.Connect(cmd.Context())
			if err != nil {
				return err
			}
			for _, id := range args {
				if err := c.Sandbox(id).History().Delete(cmd.Context()); err != nil {
					return err
				}
				if _, err := fmt.Fprintln(a.Out, id); err != nil {
					return err
				}
			}
			return nil
		},
	}
	cmd.Flags().BoolVarP(&yes, "yes", "y", false, "I mean it")
	return cmd
}
