package history

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/skete-dev/skete/api"
	"github.com/skete-dev/skete/cmd/skete/internal/app"
)

func (a commands) move() *cobra.Command {
	var n uint64
	cmd := &cobra.Command{
		Use: "move FROM TO", Short: "Give a new sandbox the history and the files of another one",
		Long: `Give sandbox TO, which has no history yet, what is kept of sandbox FROM, and make
its files what they were at the last revision, or at revision --n. FROM may be
broken, destroyed (its history is kept for seven days), or of another provider.
What FROM has stays.`,
		Example: `  skete history move OLD $(skete vm create --provider qemu -q)
  skete history move OLD NEW --n 12`,
		Args: cobra.ExactArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := a.Connect(cmd.Context())
			if err != nil {
				return err
			}
			rev, err := c.Sandbox(args[1]).History().Move(cmd.Context(), api.MoveHistory{From: args[0], N: n})
			if err != nil {
				return err
			}
			if a.JSON {
				return app.PrintJSON(a.Out, rev)
			}
			_, err = fmt.Fprintf(a.Out, "%s has the files of %s now; this is revision %d\n", args[1], args[0], rev.N)
			return err
		},
	}
	cmd.Flags().Uint64Var(&n, "n", 0, "the revision to begin with (default the last)")
	return a.WithCompletion(cmd, 2)
}
