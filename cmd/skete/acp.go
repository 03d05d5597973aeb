package main

import (
	"context"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/skete-dev/skete/acp"
	"github.com/skete-dev/skete/api"
	"github.com/skete-dev/skete/client"
	"github.com/skete-dev/skete/cmd/skete/internal/app"
	"github.com/skete-dev/skete/errs"
)

func (a program) acp() *cobra.Command {
	var c acp.Config
	var spec acpSandbox
	cmd := &cobra.Command{
		Use: "acp", Short: "Be an agent of an editor, over stdin and stdout (ACP)",
		Long: `Be an agent of an editor that speaks the Agent Client Protocol (ACP): Zed, the
IDEs of JetBrains, plug-ins of Neovim and Emacs. The editor starts this command
and speaks with it over stdin and stdout.

A session is a sandbox on the server, and the runs of an agent in it. They go on
when the editor is closed; it can load the session again. The files of the
editor's directory are copied into the sandbox, without .git and what
.gitignore names, and before each prompt those that you have changed. What the
agent changed is shown as diffs after each prompt, and written to your files
only if you permit it there; one that you changed too is left as it is.

Zed (settings.json):

  {"agent_servers": {"skete": {"type": "custom",
    "command": "skete", "args": ["acp"],
    "env": {"SKETE_URL": "http://127.0.0.1:7733", "SKETE_KEY": "e2b_…"}}}}

JetBrains (~/.jetbrains/acp.json):

  {"agent_servers": {"skete": {"command": "skete", "args": ["acp"]}}}

Neovim, CodeCompanion:

  adapters = {acp = {skete = function()
    return require("codecompanion.adapters").extend("gemini_cli",
      {name = "skete", commands = {default = {"skete", "acp"}}}) end}}

` + "`skete help bridges`" + ` says what of the protocol works.`,
		Example: `  skete acp
  skete acp --agent reviewer --model MODEL --template node
  skete acp --write never`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if a.In == nil {
				return errs.New(errs.Invalid, "there is no stdin to read requests from")
			}
			if c.Write != acp.Ask && c.Write != acp.Always && c.Write != acp.Never {
				return errs.New(errs.Invalid, "--write is ask, always or never")
			}
			var err error
			if c.Sandbox, err = spec.request(); err != nil {
				return err
			}
			c.Connect = func(ctx context.Context) (*client.Client, error) { return a.Connect(ctx) }
			c.State, c.Version, c.Log = acpState(), version, a.Log
			return acp.New(c).Run(cmd.Context(), a.In, a.Out)
		},
	}
	f := cmd.Flags()
	f.StringVarP(&c.Name, "agent", "a", "", "which agent (default the one that is called default): see skete agent list")
	f.StringVarP(&c.Model, "model", "m", "", "which model (default the agent's, then the server's choice)")
	f.StringVar(&c.Write, "write", acp.Ask, "what to do with files that the agent changed: ask, always (write them), never")
	f.BoolVar(&c.NoFiles, "no-files", false, "do not copy the editor's directory, and write nothing to it")
	spec.flags(cmd)
	_ = cmd.RegisterFlagCompletionFunc("write", cobra.FixedCompletions([]string{acp.Ask, acp.Always, acp.Never}, cobra.ShellCompDirectiveNoFileComp))
	return cmd
}

// acpSandbox is what the sandboxes of sessions are.
type acpSandbox struct {
	api.CreateSandbox
	lang, mem, disk, network string
}

func (s *acpSandbox) flags(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVar(&s.Template, "template", "", "template of the sandboxes")
	f.StringVar(&s.lang, "lang", "", "language of the sandboxes: python, node, go, ruby")
	f.StringVar(&s.mem, "mem", "", "memory of each: 512, 2g")
	f.StringVar(&s.disk, "disk", "", "disk of each: 2g")
	f.Float64Var(&s.CPUs, "cpus", 0, "cpus of each")
	f.StringVar(&s.Provider, "provider", "", "provider of the sandboxes")
	f.StringVar(&s.Require, "require", "", "isolation that they must have at least")
	f.StringVar(&s.network, "network", "", "what leaves them: none, default, open, or a file of rules (see skete vm create --help)")
}

func (s *acpSandbox) request() (spec api.CreateSandbox, err error) {
	spec = s.CreateSandbox
	spec.Language = app.Language(s.lang)
	if spec.MemoryMB, err = app.Megabytes("mem", s.mem); err != nil {
		return spec, err
	}
	if spec.DiskMB, err = app.Megabytes("disk", s.disk); err != nil {
		return spec, err
	}
	spec.Network, spec.Egress, err = app.NetworkOf(s.network)
	return spec, err
}

// acpState is where is kept what editors and sandboxes agree on; "" = nowhere.
func acpState() string {
	dir, err := os.UserCacheDir()
	if err != nil {
		return ""
	}
	return filepath.Join(dir, "skete", "acp")
}
