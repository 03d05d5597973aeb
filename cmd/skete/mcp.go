package main

import (
	"io"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/skete-dev/skete/api"
	"github.com/skete-dev/skete/cmd/skete/internal/app"
	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/mcp"
)

func (a program) mcp() *cobra.Command {
	var sandbox string
	cmd := &cobra.Command{
		Use: "mcp", Short: "Serve sandboxes to a model as MCP tools, over stdin and stdout",
		Long: `Serve sandboxes to an assistant or an editor as tools of the Model Context
Protocol (MCP), over stdin and stdout: that program starts this command, and
its model makes sandboxes, runs commands, reads and writes files, undoes what
it did, starts services and agents. The tools are those that the key allows;
with one that only reads they change nothing.

Its configuration names the command and, for a server elsewhere, its address.
Claude Desktop (claude_desktop_config.json), Claude Code (.mcp.json), Cursor
(.cursor/mcp.json) and Gemini CLI (settings.json):

  {"mcpServers": {"skete": {
    "command": "skete", "args": ["mcp"],
    "env": {"SKETE_URL": "http://127.0.0.1:7733", "SKETE_KEY": "e2b_…"}}}}

VS Code (.vscode/mcp.json):

  {"servers": {"skete": {"type": "stdio", "command": "skete", "args": ["mcp"]}}}

Codex (~/.codex/config.toml):

  [mcp_servers.skete]
  command = "skete"
  args = ["mcp"]

A server also speaks MCP itself, over streamable HTTP: at /mcp, with a key.

  {"mcpServers": {"skete": {"type": "http", "url": "http://127.0.0.1:7733/mcp",
    "headers": {"Authorization": "Bearer e2b_…"}}}}

` + "`skete help bridges`" + ` lists the tools.`,
		Example: `  skete mcp
  skete mcp --sandbox my-box
  claude mcp add skete -- skete mcp
  SKETE_KEY=$(skete key create --name reader --scope read) skete mcp`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if a.In == nil {
				return errs.New(errs.Invalid, "there is no stdin to read requests from")
			}
			c, err := a.Connect(cmd.Context())
			if err != nil {
				return err
			}
			login, err := c.Login(cmd.Context())
			if err != nil {
				return err
			}
			s := mcp.New(mcp.Config{Client: c, Scopes: login.Scopes, Sandbox: sandbox, Version: version, Log: a.Log})
			return s.Run(cmd.Context(), a.In, unclosed{a.Out})
		},
	}
	cmd.Flags().StringVar(&sandbox, "sandbox", "", "what calls mean that name no sandbox (default the only one that runs)")
	_ = cmd.RegisterFlagCompletionFunc("sandbox", cobra.NoFileCompletions)
	cmd.AddCommand(a.mcpServers())
	return cmd
}

func (a program) mcpServers() *cobra.Command {
	return &cobra.Command{
		Use: "servers", Short: "List the MCP servers of others whose tools agents use", Aliases: []string{"ls"},
		Long: `List the MCP servers that skete.yaml names, whose tools agents use, and how each was
when it was last used: unused, working, broken or refused, with how many tools it
had, for how many threads it is open, and why it failed. None is started or asked
for that. A server that no run has needed since skete began is unused.

With a key of a tenant they are those that it may use, as they were for the tenant;
with the scope admin they are listed for each tenant.`,
		Example: "  skete mcp servers\n  skete mcp servers --json\n  skete mcp servers --url https://vm.example.com",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := a.Connect(cmd.Context())
			if err != nil {
				return err
			}
			list, err := c.MCPServers(cmd.Context())
			if err != nil {
				return err
			}
			return app.List(a.App, list, func(s api.MCPServer) string { return s.Name }, []string{"NAME", "TENANT", "TRANSPORT", "STATE", "TOOLS", "OPEN", "SINCE", "ERROR"}, mcpServerRow)
		},
	}
}

func mcpServerRow(s api.MCPServer) []string {
	since := ""
	if !s.Since.IsZero() {
		since = app.Age(s.Since)
	}
	return []string{s.Name, s.Tenant, s.Transport, s.State, strconv.Itoa(s.Tools), strconv.Itoa(s.Sessions), since, s.Error}
}

// unclosed is a writer that others must not close.
type unclosed struct{ io.Writer }

func (unclosed) Close() error { return nil }
