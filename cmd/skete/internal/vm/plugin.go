package vm

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/skete-dev/skete/api"
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
  skete plugin show guard
  skete help plugins`)
	cmd.AddCommand(a.validate(), a.list(), a.show())
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
		Use: "list [FOLDER]", Short: "List the plug-ins of the server, or of a folder", Aliases: []string{"ls"},
		Long: `List the plug-ins that the server read when it started, and how their processes are;
that needs a key with the scope admin. PROCESSES counts those that run; there is one
for each tenant. show says more of one.

With a FOLDER, list the plug-ins there, with what they offer, or what is wrong with
them. No server is needed, and the status is 1 if anything is wrong.`,
		Example: "  skete plugin list\n  skete plugin list /etc/skete/plugins --json",
		Args:    cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 {
				return a.listFolder(args[0])
			}
			c, err := a.Connect(cmd.Context())
			if err != nil {
				return err
			}
			list, err := c.Plugins(cmd.Context())
			if err != nil {
				return err
			}
			if a.JSON {
				return app.PrintJSON(a.Out, list)
			}
			return app.List(a.App, list, func(p api.Plugin) string { return p.Name }, []string{"NAME", "VERSION", "STATE", "PROCESSES", "OFFERS", "ERROR"}, pluginRow)
		},
	}
}

func (a pluginCommands) listFolder(dir string) error {
	found, err := plugin.ReadDir(dir)
	if err != nil {
		return err
	}
	all := make([]pluginView, len(found))
	for i, f := range found {
		all[i] = viewOf(f.Name, f.Plugin, f.Err)
	}
	return a.print(all)
}

func pluginRow(p api.Plugin) []string {
	running, why := 0, strings.Join(p.Problems, "; ")
	for _, x := range p.Processes {
		if x.State == string(plugin.Running) {
			running++
		}
		why = cmp.Or(why, x.Error)
	}
	return []string{p.Name, p.Version, p.State, strconv.Itoa(running), pluginOffers(p), why}
}

// pluginOffers counts what a plug-in is for.
func pluginOffers(p api.Plugin) string {
	var parts []string
	for word, n := range map[string]int{"hook": len(p.Hooks), "model": len(p.Models)} {
		switch n {
		case 0:
		case 1:
			parts = append(parts, "1 "+word)
		default:
			parts = append(parts, fmt.Sprintf("%d %ss", n, word))
		}
	}
	slices.Sort(parts)
	return strings.Join(parts, ", ")
}

func (a pluginCommands) show() *cobra.Command {
	return &cobra.Command{
		Use: "show NAME", Short: "Show a plug-in of the server, and its processes",
		Long: `Show what a plug-in of the server offers and may do, and for each tenant that it works
for its process: how it is, its sandbox, how often it was started, and why it broke.
It needs a key with the scope admin. The sandbox is of the operator's tenant; skete vm
looks into it.`,
		Example: "  skete plugin show guard\n  skete plugin show guard --json",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := a.Connect(cmd.Context())
			if err != nil {
				return err
			}
			list, err := c.Plugins(cmd.Context())
			if err != nil {
				return err
			}
			i := slices.IndexFunc(list, func(p api.Plugin) bool { return p.Name == args[0] })
			if i < 0 {
				return errs.New(errs.NotFound, "there is no plug-in %.80q", args[0]).WithHint("`skete plugin list` lists those that the server read when it started")
			}
			if a.JSON {
				return app.PrintJSON(a.Out, list[i])
			}
			a.printOne(list[i])
			return nil
		},
	}
}

func (a pluginCommands) printOne(p api.Plugin) {
	say := func(format string, args ...any) {
		fmt.Fprintln(a.Out, app.Printable(fmt.Sprintf(format, args...)))
	}
	say("%s %s, %s: %s", p.Name, p.Version, p.State, p.Description)
	for _, problem := range p.Problems {
		say("    error: %s", problem)
	}
	for _, h := range p.Hooks {
		say("    hook %s; on failure %s", strings.TrimSpace(h.Event+" "+strings.Join(h.Tools, " ")), h.OnFailure)
	}
	for _, m := range p.Models {
		say("    model %s", m)
	}
	for _, s := range p.Secrets {
		say("    secret %s at %s", s.Name, strings.Join(s.Hosts, ", "))
	}
	for _, x := range p.Processes {
		say("    for %s: %s in %s, started %d times", x.Tenant, x.State, cmp.Or(x.Sandbox, "no sandbox"), x.Starts)
		if x.Error != "" {
			say("        %s", x.Error)
		}
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
