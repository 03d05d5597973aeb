package runs

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/skete-dev/skete/agent/definition"
	"github.com/skete-dev/skete/api"
	"github.com/skete-dev/skete/client"
	"github.com/skete-dev/skete/cmd/skete/internal/app"
	"github.com/skete-dev/skete/cmd/skete/internal/screen"
	"github.com/skete-dev/skete/errs"
)

func (a commands) agent() *cobra.Command {
	cmd := app.Group("agent", "Agents that runs can be started with", `  skete agent list
  skete agent show reviewer
  skete agent init reviewer
  skete agent commands
  skete agent validate agents/reviewer.md`)
	cmd.AddCommand(a.agentList(), a.agentCommands(), a.agentShow(), a.agentInit(), a.agentValidate())
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
					about := g.Description
					if g.Error != "" {
						about = "cannot be used: " + g.Error
					}
					return []string{g.Name, g.Model, screen.Cut(strings.ReplaceAll(about, "\n", " "), 80)}
				})
		},
	}
}

func (a commands) agentCommands() *cobra.Command {
	return &cobra.Command{
		Use: "commands", Short: "List tasks that have names: skete run /NAME …", Args: cobra.NoArgs,
		Long: `List tasks that have names. A command is a file commands/NAME.md in the server's
folder of agents; a task or a message that begins with /NAME stands for its text.`,
		Example: "  skete agent commands\n  skete run /review 'the last commit'",
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := a.Connect(cmd.Context())
			if err != nil {
				return err
			}
			items, err := c.SlashCommands(cmd.Context())
			if err != nil {
				return err
			}
			return app.List(a.App, items, func(s api.SlashCommand) string { return "/" + s.Name }, []string{"NAME", "AGENT", "DESCRIPTION"},
				func(s api.SlashCommand) []string {
					about := s.Description
					if s.Error != "" {
						about = "cannot be used: " + s.Error
					}
					return []string{"/" + s.Name, s.Agent, screen.Cut(strings.ReplaceAll(about, "\n", " "), 80)}
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

// agentTemplate is a file to begin with. %s is the agent's name.
const agentTemplate = `# The agent %[1]s: skete run --agent %[1]s '…'
# Each key is explained in skete help agents. Changes count for the next run.
description: What it is for, in one sentence. Other agents choose it by that.

# model: anthropic/claude-sonnet-5-5   # else the server's default
# tools: ["!delete"]                   # all but some; or those that it has, by name or pattern
# limits: {steps: 100, wall: 1h}
# approvals:
#   - {action: ask, tools: [execute], commands: ["git push *"]}

instructions: |
  You …
`

func (a commands) agentInit() *cobra.Command {
	var dir string
	cmd := &cobra.Command{
		Use: "init NAME", Short: "Write an agent's file to begin with",
		Long: `Write an agent's file to begin with, into the folder of the server of this
machine. The next run can use it.`,
		Example: "  skete agent init reviewer\n  skete agent init reviewer --dir agents", Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			name := args[0]
			switch {
			case dir == "" && a.URL != "":
				return errs.New(errs.Invalid, "the folder of a server elsewhere cannot be written to").WithHint("--dir DIR writes the file here")
			case dir == "":
				dir = filepath.Join(a.Home, "agents")
			}
			text := fmt.Sprintf(agentTemplate, name)
			if _, err := definition.Parse(name+".yaml", []byte(text), nil); err != nil || filepath.Base(name) != name {
				return errs.New(errs.Invalid, "%.80q is no name of an agent", name).WithHint("a to z, 0 to 9 and single hyphens")
			}
			if err := os.MkdirAll(dir, 0o755); err != nil {
				return errs.Wrap(errs.Denied, err, "the folder cannot be made: %v", err)
			}
			file := filepath.Join(dir, name+".yaml")
			f, err := os.OpenFile(file, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
			if err != nil {
				return errs.Wrap(errs.Exists, err, "the file cannot be written: %v", err)
			}
			if _, err := f.WriteString(text); err != nil {
				return errors.Join(err, f.Close())
			}
			if err := f.Close(); err != nil {
				return err
			}
			_, err = fmt.Fprintln(a.Out, file)
			return err
		},
	}
	cmd.Flags().StringVar(&dir, "dir", "", "the folder (default agents in the server's data directory)")
	return cmd
}

// agentFileMax is what the server takes.
const agentFileMax = 512 << 10

func (a commands) agentValidate() *cobra.Command {
	return &cobra.Command{
		Use: "validate [FILE…]", Short: "Say what is wrong with agent files",
		Long: `Say what is wrong with agent files, with its place; without a file, with those
in the server's folder. The status is 1 if anything is.`,
		Example: "  skete agent validate\n  skete agent validate agents/*.yaml agents/*.md",
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
			all := map[string]api.AgentValidated{}
			if len(args) == 0 {
				if args, err = folderValidated(cmd.Context(), c, all); err != nil {
					return err
				}
			}
			for i, name := range args {
				if _, known := all[name]; known {
					continue
				}
				if all[name], err = c.ValidateAgent(cmd.Context(), filepath.ToSlash(name), texts[i]); err != nil {
					return err
				}
			}
			return a.validated(args, all)
		},
	}
}

// folderValidated asks for the agents of the server's folder.
func folderValidated(ctx context.Context, c *client.Client, all map[string]api.AgentValidated) (names []string, err error) {
	items, err := c.Agents(ctx)
	for _, g := range items {
		v := api.AgentValidated{OK: g.Error == ""}
		for line := range strings.SplitSeq(g.Error, "\n") {
			if line != "" {
				v.Problems = append(v.Problems, api.AgentProblem{Text: line})
			}
		}
		names, all[g.Name] = append(names, g.Name), v
	}
	return names, err
}

func (a commands) validated(names []string, all map[string]api.AgentValidated) error {
	return app.Checked(a.App, names, all, func(name string) bool { return all[name].OK }, func(name string) { a.sayValidated(name, all[name]) })
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
