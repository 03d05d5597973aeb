package app

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/skete-dev/skete/client"
)

// With makes a command that asks the server for one thing, and shows what it answered.
func With[T any](a *App, cmd *cobra.Command, ask func(ctx context.Context, c *client.Client, args []string) (T, error), show func(T) error) *cobra.Command {
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		c, err := a.Connect(cmd.Context())
		if err != nil {
			return err
		}
		answer, err := ask(cmd.Context(), c, args)
		if err != nil {
			return err
		}
		return show(answer)
	}
	return cmd
}
