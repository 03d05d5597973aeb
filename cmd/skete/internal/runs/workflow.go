package runs

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/skete-dev/skete/cmd/skete/internal/app"
	"github.com/skete-dev/skete/cmd/skete/internal/screen"
	"github.com/skete-dev/skete/cowork"
	"github.com/skete-dev/skete/docs"
)

func (a commands) workflow() *cobra.Command {
	cmd := app.Group("workflow", "Workflows of several agents", `  skete workflow validate workflows/*.yaml
  skete workflow run workflows/article.yaml --input subject=snails --follow
  skete workflow show wfr_k3j5…
  skete help workflows`)
	cmd.AddCommand(
		a.workflowValidate(), a.workflowGraph(), a.workflowSchema(), a.workflowRun(), a.workflowList(), a.workflowShow(), a.workflowCancel(), a.workflowAnswer(),
		a.workflowPut(), a.workflowGet(), a.workflowRemove(),
	)
	return cmd
}

// workflowChecked is what is printed about a file with --json.
type workflowChecked struct {
	File     string           `json:"file"`
	OK       bool             `json:"ok"`
	Name     string           `json:"name,omitempty"`
	Version  string           `json:"version,omitempty"`
	Topology string           `json:"topology,omitempty"`
	Nodes    int              `json:"nodes,omitempty"`
	Starts   int              `json:"starts_max,omitempty"`
	Problems []cowork.Problem `json:"problems,omitempty"`
}

func (a commands) workflowValidate() *cobra.Command {
	return &cobra.Command{
		Use: "validate FILE…", Short: "Say what is wrong with workflow files",
		Long: `Say what is wrong with workflow files, each mistake with its line, its column and
its key. - is stdin. No server is asked: whether it has the agents, tools, skills
and models that a file names, it says when the workflow is run. The status is 1 if
anything is wrong.`,
		Example: "  skete workflow validate audit.yaml\n  skete workflow validate workflows/*.yaml --json",
		Args:    cobra.MinimumNArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			all := make([]workflowChecked, len(args))
			for i, name := range args {
				text, err := a.read(name, cowork.FileBytesMax)
				if err != nil {
					return err
				}
				all[i] = checkedWorkflow(name, text)
			}
			return a.workflowsChecked(all)
		},
	}
}

// shownFile is what a file is called in messages.
func shownFile(name string) string {
	if name == "-" {
		return "stdin.yaml"
	}
	return name
}

func checkedWorkflow(name, text string) workflowChecked {
	w, problems := cowork.Check(shownFile(name), []byte(text))
	return workflowChecked{
		File: name, OK: len(problems) == 0, Name: w.Name, Version: w.Version, Topology: w.Topology,
		Nodes: len(w.Nodes), Starts: w.Graph.Starts, Problems: problems,
	}
}

func (a commands) workflowsChecked(all []workflowChecked) error {
	return app.Checked(a.App, all, all, func(c workflowChecked) bool { return c.OK }, func(c workflowChecked) {
		for _, p := range c.Problems {
			fmt.Fprintf(a.Out, "error: %s\n", screen.Clean(p.In(shownFile(c.File))))
		}
		if c.OK && !a.Quiet {
			fmt.Fprintf(a.Out, "%s: ok\n", app.Cell(c.File))
		}
	})
}

func (a commands) workflowGraph() *cobra.Command {
	return &cobra.Command{
		Use: "graph FILE", Short: "Draw a workflow, as Mermaid",
		Long: `Print what a workflow is compiled to as a flowchart of Mermaid, which many viewers
of Markdown draw. Solid arrows are edges with their conditions, dotted ones are
loops with their bounds; a person is a hexagon, a node that works for each element
of a list has double sides, and paths meet in a circle. - is stdin.`,
		Example: "  skete workflow graph article.yaml\n  skete workflow graph article.yaml > article.mmd",
		Args:    cobra.ExactArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			text, err := a.read(args[0], cowork.FileBytesMax)
			if err != nil {
				return err
			}
			w, err := cowork.Parse(shownFile(args[0]), []byte(text))
			if err != nil {
				return err
			}
			if a.JSON {
				return app.PrintJSON(a.Out, map[string]string{"mermaid": w.Graph.Mermaid()})
			}
			_, err = fmt.Fprint(a.Out, w.Graph.Mermaid())
			return err
		},
	}
}

func (a commands) workflowSchema() *cobra.Command {
	return &cobra.Command{
		Use: "schema", Short: "Print the JSON Schema of workflow files",
		Long: `Print the JSON Schema of workflow files, by which editors complete keys and mark
mistakes. What a schema cannot say, such as that nothing goes in circles, validate
finds.`,
		Example: "  skete workflow schema > workflow.schema.json",
		Args:    cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			text, err := docs.Files.ReadFile("workflow.schema.json")
			if err != nil {
				return err
			}
			_, err = a.Out.Write(text)
			return err
		},
	}
}
