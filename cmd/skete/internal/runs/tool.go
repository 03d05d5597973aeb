package runs

import (
	"cmp"
	"encoding/json"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/skete-dev/skete/api"
	"github.com/skete-dev/skete/client"
	"github.com/skete-dev/skete/cmd/skete/internal/app"
	"github.com/skete-dev/skete/cmd/skete/internal/screen"
	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/tool/declared"
)

// These commands read files alone, and ask no server; but for run.

func (a commands) tool() *cobra.Command {
	cmd := app.Group("tool", "Tools of your own, as files: commands that run in sandboxes, and requests", `  skete tool validate tools/scan.yaml
  skete tool list
  skete tool run scan --args '{"path": "app"}' --sandbox web
  skete help tools`)
	cmd.AddCommand(a.toolValidate(), a.toolList(), a.toolShow(), a.toolRun())
	return cmd
}

func (a commands) toolRun() *cobra.Command {
	var in api.RunTool
	var args, file string
	cmd := &cobra.Command{
		Use: "run NAME", Short: "Call a tool once, as an agent would",
		Long: `Call a tool once, as an agent would: one that is declared, or one of an MCP server
(mcp__SERVER__TOOL). What requires a sandbox of its own gets one, which is removed
after the call; another command works in --sandbox. No person is asked: the caller is
one. Ctrl-C ends what the tool does.

The status is 0, that of the tool's command, or 1 for another failure.`,
		Example: `  skete tool run scan --args '{"path": "app"}' --sandbox web
  skete tool run create_issue --args-file issue.json --json
  echo '{"q": "late"}' | skete tool run search --args-file -
  skete tool run audit_only --agent auditor`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, words []string) error {
			given, err := a.toolArgs(args, file)
			if err != nil {
				return err
			}
			in.Args = given
			c, err := a.Connect(cmd.Context())
			if err != nil {
				return err
			}
			r, err := c.RunTool(cmd.Context(), words[0], in)
			if err != nil {
				return err
			}
			return a.toolResult(r)
		},
	}
	cmd.Flags().StringVar(&args, "args", "", "the arguments, as `JSON`; default {}")
	cmd.Flags().StringVar(&file, "args-file", "", "a `file` with them, - for stdin")
	cmd.Flags().StringVar(&in.Sandbox, "sandbox", "", "where the tool works that has no sandbox of its own, and has its files from")
	cmd.Flags().StringVar(&in.Agent, "agent", "", "the tool as this agent has it, with its secrets")
	return cmd
}

// argsBytesMax bounds the arguments of a call.
const argsBytesMax = 1 << 20

// toolArgs are the arguments of a call.
func (a commands) toolArgs(args, file string) (json.RawMessage, error) {
	if args != "" && file != "" {
		return nil, usage("the arguments stand in --args or in --args-file, not both")
	}
	if file != "" {
		var err error
		if args, err = a.read(file, argsBytesMax); err != nil {
			return nil, err
		}
	}
	if args = strings.TrimSpace(args); args == "" {
		return nil, nil
	}
	var object map[string]any
	if err := json.Unmarshal([]byte(args), &object); err != nil || object == nil {
		return nil, usage("the arguments are no JSON object: %.80q", args)
	}
	return json.RawMessage(args), nil
}

// toolResult prints what a tool has answered.
func (a commands) toolResult(r api.ToolResult) error {
	if a.JSON {
		if err := app.PrintJSON(a.Out, r); err != nil {
			return err
		}
	} else {
		fmt.Fprintln(a.Out, strings.TrimSuffix(screen.Clean(r.Text), "\n"))
	}
	switch {
	case !r.Failed:
		return nil
	case r.Exit != nil && *r.Exit > 0 && *r.Exit < 256:
		return app.Exit(*r.Exit)
	}
	return app.Exit(1)
}

// toolView is what is printed about a tool with --json.
type toolView struct {
	File     string             `json:"file"`
	OK       bool               `json:"ok"`
	Name     string             `json:"name,omitempty"`
	Problems []string           `json:"problems,omitempty"`
	Beside   []string           `json:"files_beside,omitempty"`
	Manifest *declared.Manifest `json:"manifest,omitempty"`
}

func viewTool(file string, e declared.Entry, whole bool) toolView {
	v := toolView{File: file, OK: e.Err == nil, Name: e.Name}
	if e.Err != nil {
		v.Problems = strings.Split(errs.Public(e.Err), "\n")
		return v
	}
	for _, f := range e.Files {
		v.Beside = append(v.Beside, f.Path)
	}
	if whole {
		v.Manifest = &e.Manifest
	}
	return v
}

func (a commands) toolValidate() *cobra.Command {
	return &cobra.Command{
		Use: "validate FILE…", Short: "Say what is wrong with the manifests of tools",
		Long: `Say what is wrong with the manifests of tools, each mistake with its line and its
key. A folder stands for the tool.yaml in it, and the files beside that are looked at
too. No server is asked. The status is 1 if anything is wrong.`,
		Example: "  skete tool validate tools/scan.yaml\n  skete tool validate tools/* --json",
		Args:    cobra.MinimumNArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			all := make([]toolView, len(args))
			for i, name := range args {
				all[i] = viewTool(name, declared.Load(name), false)
			}
			return a.tools(all, true)
		},
	}
}

// tools prints what is known of tools; strict: one that is broken is an error.
func (a commands) tools(all []toolView, strict bool) error {
	return app.Checked(a.App, all, all, func(v toolView) bool { return v.OK || !strict }, func(v toolView) {
		for _, p := range v.Problems {
			fmt.Fprintf(a.Out, "error: %s\n", screen.Clean(p))
		}
		if v.OK && !a.Quiet {
			fmt.Fprintf(a.Out, "%s: the tool %s\n", app.Cell(v.File), v.Name)
		}
	})
}

const toolDirHelp = "the folder of manifests (tools.dir of skete.yaml; default tools in the data directory)"

// toolFolder is the folder of manifests.
func (a commands) toolFolder(dir string) *declared.Folder {
	return declared.NewFolder(cmp.Or(dir, filepath.Join(cmp.Or(a.Home, client.Home()), "tools")))
}

func (a commands) toolList() *cobra.Command {
	var dir string
	cmd := &cobra.Command{
		Use: "list", Aliases: []string{"ls"}, Short: "List the tools of a folder, and what is wrong with it",
		Example: "  skete tool list\n  skete tool list --dir ./tools --json",
		Args:    cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			all := []toolView{}
			for _, e := range a.toolFolder(dir).List() {
				all = append(all, viewTool(e.File, e, false))
			}
			return a.tools(all, false)
		},
	}
	cmd.Flags().StringVar(&dir, "dir", "", toolDirHelp)
	return cmd
}

func (a commands) toolShow() *cobra.Command {
	var dir string
	cmd := &cobra.Command{
		Use: "show NAME", Short: "Print a tool as JSON, with what its manifest leaves open",
		Example: "  skete tool show scan\n  skete tool show scan --dir ./tools",
		Args:    cobra.ExactArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			for _, e := range a.toolFolder(dir).List() {
				if e.Name == args[0] {
					return app.PrintJSON(a.Out, viewTool(e.File, e, true))
				}
			}
			return errs.New(errs.NotFound, "there is no tool %.80q", args[0]).WithHint("skete tool list shows them")
		},
	}
	cmd.Flags().StringVar(&dir, "dir", "", toolDirHelp)
	return cmd
}
