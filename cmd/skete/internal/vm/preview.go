package vm

import (
	"context"
	"fmt"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/skete-dev/skete/api"
	"github.com/skete-dev/skete/client"
	"github.com/skete-dev/skete/cmd/skete/internal/app"
	"github.com/skete-dev/skete/errs"
)

// This file is the command group `skete preview`: ports of a sandbox in a
// browser.

// previewCommands are the commands of one run.
type previewCommands struct{ *app.App }

// PreviewCommand returns the group.
func PreviewCommand(run *app.App) *cobra.Command {
	a := previewCommands{run}
	cmd := app.Group("preview", "See a sandbox's ports in a browser", `  skete preview open ID 5173
  skete preview url ID 5173 --path /admin
  skete preview share ID 5173 --for 2h
  skete preview list ID
  skete preview revoke ID LINK`)
	cmd.AddCommand(a.open(), a.url(), a.share(), a.list(), a.revoke())
	return cmd
}

// one takes [ID] and a last word.
func (a previewCommands) one(ctx context.Context, t *app.Target, args []string) (*client.Sandbox, string, error) {
	c, err := a.Connect(ctx)
	if err != nil {
		return nil, "", err
	}
	last := len(args) - 1
	sb, err := a.One(ctx, c, t, args[:last])
	if err != nil {
		return nil, "", err
	}
	return c.Sandbox(sb.ID), args[last], nil
}

// ask gets a way to see the port that the last word names.
func (a previewCommands) ask(ctx context.Context, t *app.Target, args []string, r api.CreatePreview) (api.Preview, error) {
	port, err := strconv.Atoi(args[len(args)-1])
	if err != nil || port < 1 || port > 65535 {
		return api.Preview{}, errs.New(errs.Invalid, "%.40q is not a port", args[len(args)-1]).WithHint("ports are 1 to 65535")
	}
	sb, _, err := a.one(ctx, t, args)
	if err != nil {
		return api.Preview{}, err
	}
	r.Port = port
	p, err := sb.Previews().Open(ctx, r)
	if err == nil && p.Listens != nil && !*p.Listens {
		a.Note("nothing listens on port %d of %s yet: the page waits until something does", port, p.Sandbox)
	}
	return p, err
}

func (a previewCommands) print(p api.Preview) error {
	if a.JSON {
		return app.PrintJSON(a.Out, p)
	}
	_, err := fmt.Fprintln(a.Out, p.URL)
	return err
}

const previewOnceLong = `

The address lets one browser in, once and within 30 seconds; from then on that
browser has a cookie for this port of this sandbox, for 12 hours or until the
key is revoked. Port 8001 is the sandbox's own history and undo.`

func (a previewCommands) open() *cobra.Command {
	var t app.Target
	var r api.CreatePreview
	cmd := &cobra.Command{
		Use: "open [ID] PORT", Short: "Open a port of a sandbox in the browser",
		Long: "Open a port of a sandbox in the browser of this computer, or, where it has none,\nprint the address to open." + previewOnceLong,
		Example: `  skete preview open ID 5173
  skete preview open 8001`,
		Args: cobra.RangeArgs(1, 2),
		RunE: func(cmd *cobra.Command, args []string) error {
			p, err := a.ask(cmd.Context(), &t, args, r)
			if err != nil {
				return err
			}
			if !a.JSON && app.OpenBrowser(cmd.Context(), p.URL) {
				a.Note("opened %s", p.Address)
				return nil
			}
			return a.print(p)
		},
	}
	t.Flags(cmd, false)
	cmd.Flags().StringVar(&r.Path, "path", "", "where to arrive (default /)")
	return a.WithCompletion(cmd, 1)
}

func (a previewCommands) url() *cobra.Command {
	var t app.Target
	var r api.CreatePreview
	cmd := &cobra.Command{
		Use: "url [ID] PORT", Short: "Print an address that lets one browser in",
		Long: "Print an address that shows a port of a sandbox to one browser." + previewOnceLong,
		Example: `  skete preview url ID 5173
  skete preview url ID 5173 --path '/admin?tab=2'
  skete preview url ID 5173 --json`,
		Args: cobra.RangeArgs(1, 2),
		RunE: func(cmd *cobra.Command, args []string) error {
			p, err := a.ask(cmd.Context(), &t, args, r)
			if err != nil {
				return err
			}
			return a.print(p)
		},
	}
	t.Flags(cmd, false)
	cmd.Flags().StringVar(&r.Path, "path", "", "where to arrive (default /)")
	return a.WithCompletion(cmd, 1)
}

func (a previewCommands) share() *cobra.Command {
	var t app.Target
	var life string
	r := api.CreatePreview{Public: true}
	cmd := &cobra.Command{
		Use: "share [ID] PORT", Short: "Make a public link to a port of a sandbox",
		Long: `Make a public link to a port of a sandbox: all who have it may use what listens
there, until it expires or is revoked. The app does not learn who they are.`,
		Example: `  skete preview share ID 5173
  skete preview share ID 5173 --name 'for Bob' --for 2h`,
		Args: cobra.RangeArgs(1, 2),
		RunE: func(cmd *cobra.Command, args []string) error {
			var err error
			if life != "" {
				if r.TTLMS, err = app.Milliseconds("for", life); err != nil {
					return err
				}
			}
			p, err := a.ask(cmd.Context(), &t, args, r)
			if err != nil {
				return err
			}
			return a.print(p)
		},
	}
	t.Flags(cmd, false)
	cmd.Flags().StringVar(&r.Name, "name", "", "name for people")
	cmd.Flags().StringVar(&life, "for", "", "how long it is good, as 2h or 30m (default 7 days, at most 90)")
	return a.WithCompletion(cmd, 1)
}

func (a previewCommands) list() *cobra.Command {
	var t app.Target
	cmd := &cobra.Command{
		Use: "list [ID]", Aliases: []string{"ls"}, Short: "List the public links of a sandbox",
		Example: `  skete preview list ID
  skete preview list ID --json`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, sb, err := a.InOne(cmd.Context(), &t, args)
			if err != nil {
				return err
			}
			items, err := c.Sandbox(sb.ID).Previews().Links(cmd.Context())
			if err != nil {
				return err
			}
			return app.List(a.App, items, func(p api.Preview) string { return p.ID },
				[]string{"LINK", "PORT", "NAME", "EXPIRES", "URL"}, previewRow)
		},
	}
	t.Flags(cmd, false)
	return a.WithCompletion(cmd, 1)
}

func previewRow(p api.Preview) []string {
	return []string{p.ID, strconv.Itoa(p.Port), p.Name, app.Until(&p.ExpiresAt), p.URL}
}

func (a previewCommands) revoke() *cobra.Command {
	var t app.Target
	cmd := &cobra.Command{
		Use: "revoke [ID] LINK", Short: "Take a public link back",
		Long:    "Take a public link back. Who came by it is shown out at once, open pages included.",
		Example: `  skete preview revoke ID lnk_k3j5…`,
		Args:    cobra.RangeArgs(1, 2),
		RunE: func(cmd *cobra.Command, args []string) error {
			sb, link, err := a.one(cmd.Context(), &t, args)
			if err != nil {
				return err
			}
			if err := sb.Previews().Revoke(cmd.Context(), link); err != nil {
				return err
			}
			_, err = fmt.Fprintln(a.Out, link)
			return err
		},
	}
	t.Flags(cmd, false)
	return a.WithCompletion(cmd, 1)
}
