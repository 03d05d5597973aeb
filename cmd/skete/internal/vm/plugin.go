package vm

import (
	"fmt"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/skete-dev/skete/cmd/skete/internal/app"
	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/plugin"
)

// This file is the command group `skete plugin`: programs of others as models and hooks.

// pluginCommands are the commands of one run.
type pluginCommands struct{ *app.App }

// PluginCommand returns the group.
func PluginCommand(run *app.App) *cobra.Command {
	a := pluginCommands{run}
	cmd := app.Group("plugin", "Models and hooks as programs of others, in sandboxes", `  skete plugin validate ./guard
  skete plugin list
  skete help plugins`)
	cmd.AddCommand(a.validate(), a.list())
	return cmd
}

// pluginView is what is printed of a plug-in with --json.
type pluginView struct {
	Folder      string   `json:"folder"`
	OK          bool     `json:"ok"`
	Name        string   `json:"name,omitempty"`
	Version     string   `json:"version,omitempty"`
	Description string   `json:"description,omitempty"`
	Hash        string   `json:"hash,omitempty"`
	Files       int      `json:"files,omitempty"`
	Bytes       int64    `json:"bytes,omitempty"`
	Hooks       []string `json:"hooks,omitempty"`
	Models      []string `json:"models,omitempty"`
	Problems    []string `json:"problems,omitempty"`
}

func viewOf(folder string, p *plugin.Plugin, err error) pluginView {
	v := pluginView{Folder: folder, OK: err == nil}
	if err != nil {
		v.Problems = strings.Split(errs.Public(err), "\n")
		return v
	}
	v.Name, v.Version, v.Description, v.Hash, v.Files, v.Bytes = p.Name, p.Version, p.Description, p.Hash, p.Files, p.Bytes
	for _, h := range p.Hooks {
		v.Hooks = append(v.Hooks, strings.TrimSpace(h.Event+" "+strings.Join(h.Tools, " ")))
	}
	for _, m := range p.Models {
		v.Models = append(v.Models, p.Name+"/"+m.Name)
	}
	return v
}

func (a pluginCommands) validate() *cobra.Command {
	return &cobra.Command{
		Use: "validate FOLDER…", Short: "Say what is wrong with plug-ins",
		Long: `Say what is wrong with the folders of plug-ins: with plugin.yaml, each mistake with
its line and column, and with the files beside it. Nothing of them is run, and no
server is needed. The status is 1 if anything is wrong.`,
		Example: "  skete plugin validate ./guard\n  skete plugin validate plugins/* --json",
		Args:    cobra.MinimumNArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			all := make([]pluginView, len(args))
			for i, dir := range args {
				p, err := plugin.Read(dir)
				all[i] = viewOf(dir, p, err)
			}
			return a.print(all)
		},
	}
}

func (a pluginCommands) list() *cobra.Command {
	return &cobra.Command{
		Use: "list [FOLDER]", Short: "List the plug-ins of a folder", Aliases: []string{"ls"},
		Long: `List the plug-ins of a folder, with what they offer, or what is wrong with them. The
folder is plugins in the data directory unless another is named. A server reads its
own when it starts. The status is 1 if anything is wrong.`,
		Example: "  skete plugin list\n  skete plugin list /etc/skete/plugins --json",
		Args:    cobra.MaximumNArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			dir := filepath.Join(a.Home, "plugins")
			if len(args) > 0 {
				dir = args[0]
			}
			found, err := plugin.ReadDir(dir)
			if err != nil {
				return err
			}
			all := make([]pluginView, len(found))
			for i, f := range found {
				all[i] = viewOf(f.Name, f.Plugin, f.Err)
			}
			return a.print(all)
		},
	}
}

func (a pluginCommands) print(all []pluginView) error {
	return app.Checked(a.App, all, all, func(v pluginView) bool { return v.OK }, a.say)
}

func (a pluginCommands) say(v pluginView) {
	for _, p := range v.Problems {
		fmt.Fprintf(a.Out, "error: %s\n", app.Printable(p))
	}
	switch {
	case !v.OK:
		return
	case a.Quiet:
		fmt.Fprintln(a.Out, app.Printable(v.Name))
		return
	}
	fmt.Fprintf(a.Out, "%s %s: %s\n", app.Printable(v.Name), app.Printable(v.Version), app.Printable(v.Description))
	for _, h := range v.Hooks {
		fmt.Fprintf(a.Out, "    hook %s\n", app.Printable(h))
	}
	for _, m := range v.Models {
		fmt.Fprintf(a.Out, "    model %s\n", app.Printable(m))
	}
}
