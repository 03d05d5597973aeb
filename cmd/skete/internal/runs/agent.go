package runs

import (
	"fmt"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/skete-dev/skete/api"
	"github.com/skete-dev/skete/cmd/skete/internal/app"
	"github.com/skete-dev/skete/cmd/skete/internal/screen"
)

func (a commands) agent() *cobra.Command {
	cmd := app.Group("agent", "Agents that runs can be started with", `  skete agent list
  skete agent show reviewer
  skete agent validate agents/reviewer.md`)
	cmd.AddCommand(a.agentList(), a.agentShow(), a.agentValidate())
	return cmd
}

func (a commands) agentList() *cobra.Command {
	return &cobra.Command{
		Use: "list", Aliases: []string{"ls"}, Short: "List agents", Example: "  skete agent list", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := a.Connect(cmd.Context())
			if err != nil {
				return err
			}
			items, err := c.Agents(cmd.Context())
			if err != nil {
				return err
			}
			return app.List(a.App, items, func(g api.Agent) string { return g.Name }, []string{"NAME", "MODEL", "DESCRIPTION"},
				func(g api.Agent) []string {
					return []string{g.Name, g.Model, screen.Cut(strings.ReplaceAll(g.Description, "\n", " "), 80)}
				})
		},
	}
}

func (a commands) agentShow() *cobra.Command {
	return &cobra.Command{
		Use: "show NAME", Short: "Show an agent's definition, resolved", Example: "  skete agent show default", Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := a.Connect(cmd.Context())
			if err != nil {
				return err
			}
			g, err := c.Agent(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			return app.PrintJSON(a.Out, g.Definition)
		},
	}
}

// agentFileMax is what the server takes.
const agentFileMax = 512 << 10

func (a commands) agentValidate() *cobra.Command {
	return &cobra.Command{
		Use: "validate FILE…", Short: "Say what is wrong with agent files",
		Long:    "Say what is wrong with agent files, with its place. The status is 1 if anything is.",
		Example: "  skete agent validate agents/*.yaml agents/*.md", Args: cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			texts := make([]string, len(args))
			for i, name := range args {
				var err error
				if texts[i], err = a.read(name, agentFileMax); err != nil {
					return err
				}
			}
			c, err := a.Connect(cmd.Context())
			if err != nil {
				return err
			}
			bad := false
			all := map[string]api.AgentValidated{}
			for i, name := range args {
				v, err := c.ValidateAgent(cmd.Context(), filepath.ToSlash(name), texts[i])
				if err != nil {
					return err
				}
				bad = bad || !v.OK
				all[name] = v
				if !a.JSON {
					a.sayValidated(name, v)
				}
			}
			if a.JSON {
				if err := app.PrintJSON(a.Out, all); err != nil {
					return err
				}
			}
			if bad {
				return app.Exit(1)
			}
			return nil
		},
	}
}

func (a commands) sayValidated(name string, v api.AgentValidated) {
	for _, p := range v.Problems {
		kind := "error"
		if p.Warning {
			kind = "warning"
		}
		text := screen.Clean(p.Text)
		if !strings.Contains(text, filepath.Base(name)) {
			text = name + ": " + text
		}
		fmt.Fprintf(a.Out, "%s: %s\n", kind, text)
	}
	if v.OK && !a.Quiet {
		fmt.Fprintf(a.Out, "%s: ok\n", app.Cell(name))
	}
}
