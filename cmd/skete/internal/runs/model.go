package runs

import (
	"strconv"

	"github.com/spf13/cobra"

	"github.com/skete-dev/skete/api"
	"github.com/skete-dev/skete/cmd/skete/internal/app"
)

func (a commands) model() *cobra.Command {
	cmd := app.Group("model", "Models that agents can use", "  skete model list")
	cmd.AddCommand(a.modelList())
	return cmd
}

func (a commands) modelList() *cobra.Command {
	return &cobra.Command{
		Use: "list", Aliases: []string{"ls"}, Short: "List models",
		Long: `List the models of the configuration, of keys in the server's environment, and
of servers on this machine. The one with a star is used where nothing else is
said; none has a star when no model can be reached. ` + "`skete help models`" + ` says how to
add one.`,
		Example: "  skete model list", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := a.Connect(cmd.Context())
			if err != nil {
				return err
			}
			items, err := c.Models(cmd.Context())
			if err != nil {
				return err
			}
			return app.List(a.App, items, func(m api.Model) string { return m.Name }, []string{"", "NAME", "STATE", "WINDOW", "SOURCE"},
				func(m api.Model) []string {
					star, window := "", "?"
					if m.Default {
						star = "*"
					}
					if m.WindowTokens > 0 && !m.Guessed {
						window = strconv.Itoa(m.WindowTokens)
					}
					return []string{star, m.Name, m.State, window, m.Source}
				})
		},
	}
}
