package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/skete-dev/skete/api"
	"github.com/skete-dev/skete/cmd/skete/internal/app"
	"github.com/skete-dev/skete/errs"
)

func (a program) fsck() *cobra.Command {
	tenant := ""
	cmd := &cobra.Command{
		Use: "fsck", Short: "Check all that is kept of runs and workspaces",
		Long: `Read every log and every blob that it names, and the histories of all
workspaces, of one tenant or of all, and say what is wrong, one problem a line.
Nothing is repaired. It reads everything once, and runs and sandboxes go on
meanwhile. It needs the local socket or a key with scope admin.

Exit status: 0 all is well, 1 something is wrong, 125 it could not be looked at.`,
		Example: "  skete fsck\n  skete fsck --tenant default --json",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := a.Connect(cmd.Context())
			if err != nil {
				return err
			}
			checked, err := c.Check(cmd.Context(), tenant)
			if err != nil {
				return err
			}
			if err := a.sayChecked(checked); err != nil {
				return err
			}
			if len(checked.Problems) > 0 {
				return app.Exit(1)
			}
			return nil
		},
	}
	cmd.Flags().StringVar(&tenant, "tenant", "", "only this one")
	return cmd
}

func (a program) sayChecked(c api.Checked) error {
	if a.JSON {
		return app.PrintJSON(a.Out, c)
	}
	for _, p := range c.Problems {
		line := fmt.Sprintf("%s %s: after event %d (record %d): ", p.Tenant, p.Thread, p.Event, p.Sequence)
		if p.Sandbox != "" {
			line = fmt.Sprintf("%s %s: history: ", p.Tenant, p.Sandbox)
		}
		if p.Blob != "" {
			line += "blob " + p.Blob + ": "
		}
		if _, err := fmt.Fprintln(a.Out, app.Cell(line+p.Text)); err != nil {
			return err
		}
	}
	if a.Quiet {
		return nil
	}
	found := "nothing is wrong"
	if n := len(c.Problems); n > 0 {
		found = fmt.Sprintf("problems: %d", n)
	}
	if c.Truncated {
		found += " or more"
	}
	_, err := fmt.Fprintf(a.Out, "tenants %d, threads %d, events %d, blobs %d, histories %d, revisions %d: %s\n",
		c.Tenants, c.Threads, c.Events, c.Blobs, c.Histories, c.Revisions, found)
	return err
}

func (a program) tenantGroup() *cobra.Command {
	cmd := app.Group("tenant", "Look after tenants, each with sandboxes, runs and keys of its own", "  skete tenant erase NAME --yes")
	cmd.AddCommand(a.tenantErase())
	return cmd
}

func (a program) tenantErase() *cobra.Command {
	yes := false
	cmd := &cobra.Command{
		Use: "erase NAME --yes", Short: "Erase all that there is of a tenant but its keys, for ever",
		Long: `Erase a tenant's conversations, run records, large contents and memories, all
its sandboxes with their workspaces, whichever key made them, the histories of these
and of those that are gone, its snapshots, public links and secrets. There is no way
back. It is refused while runs are under way. What it has begun is finished,
also when the server dies: by the next start. API keys stay: ` + "`skete key revoke`" + `.

It needs the local socket or a key with scope admin.`,
		Example: "  skete tenant erase acme --yes", Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if !yes {
				return errs.New(errs.Invalid, "this erases all conversations, sandboxes and histories of the tenant %.40q for ever", args[0]).WithHint("say --yes if you mean it")
			}
			c, err := a.Connect(cmd.Context())
			if err != nil {
				return err
			}
			erased, err := c.EraseTenant(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			if a.JSON {
				return app.PrintJSON(a.Out, erased)
			}
			a.Note("%d conversations, %d sandboxes, %d histories and %d snapshots of the tenant are gone", erased.Threads, erased.Sandboxes, erased.Histories, erased.Snapshots)
			_, err = fmt.Fprintln(a.Out, app.Cell(erased.Tenant))
			return err
		},
	}
	cmd.Flags().BoolVar(&yes, "yes", false, "I mean it")
	return cmd
}
