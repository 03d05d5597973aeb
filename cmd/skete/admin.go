package main

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/skete-dev/skete/api"
	"github.com/skete-dev/skete/cmd/skete/internal/app"
	"github.com/skete-dev/skete/errs"
)

func (a program) template() *cobra.Command {
	cmd := app.Group("template", "Root file systems that sandboxes start from", `  skete template list
  skete template import debian rootfs.tar.gz
  skete vm create --template debian`)
	cmd.AddCommand(a.templateList(), a.templatePrepare(), a.templateBuild(), a.templatePull(), a.templateImport(),
		a.templateShow(), a.templateExport(), a.templateRm(), a.templateGC())
	return cmd
}

func (a program) templateList() *cobra.Command {
	return &cobra.Command{
		Use: "list", Aliases: []string{"ls"}, Short: "List templates", Example: "  skete template list --json", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := a.Connect(cmd.Context())
			if err != nil {
				return err
			}
			items, err := c.Templates(cmd.Context())
			if err != nil {
				return err
			}
			return app.List(a.App, items, func(t api.Template) string { return t.Name }, []string{"NAME", "KIND", "LANGUAGES", "SIZE", "MACHINE", "HASH"},
				func(t api.Template) []string {
					return []string{t.Name, t.Kind, strings.Join(t.Languages, ","), app.BytesText(t.Bytes), machineText(t), t.Hash[:min(12, len(t.Hash))]}
				})
		},
	}
}

func (a program) templateRm() *cobra.Command {
	return &cobra.Command{
		Use: "rm NAME…", Short: "Remove imported templates", Example: "  skete template rm debian", Args: cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := a.Connect(cmd.Context())
			if err != nil {
				return err
			}
			for _, name := range args {
				if err := c.RemoveTemplate(cmd.Context(), name); err != nil {
					return err
				}
			}
			return nil
		},
	}
}

func (a program) keyGroup() *cobra.Command {
	cmd := app.Group("key", "API keys for callers over HTTP", `  skete key create --name ci
  skete key list
  skete key revoke ID`)
	cmd.AddCommand(a.keyCreate(), a.keyList(), a.keyRevoke())
	return cmd
}

func (a program) keyCreate() *cobra.Command {
	var k api.CreateKey
	cmd := &cobra.Command{
		Use: "create", Short: "Make a key; it is shown this once",
		Long:    "Make a key and print it on stdout. It is kept hashed and cannot be shown again.",
		Example: "  skete key create --name ci\n  skete key create --name dashboard --scope read",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if k.Name == "" {
				return errs.New(errs.Invalid, "a key needs a --name")
			}
			for _, scope := range k.Scopes {
				if err := app.OneOf("scope", scope, "read", "write", "admin", "runs:read", "runs:write"); err != nil {
					return err
				}
			}
			c, err := a.Connect(cmd.Context())
			if err != nil {
				return err
			}
			made, err := c.CreateKey(cmd.Context(), k)
			if err != nil {
				return err
			}
			if a.JSON {
				return app.PrintJSON(a.Out, made)
			}
			a.Note("key %s of tenant %s, scopes %s", made.ID, made.Tenant, strings.Join(made.Scopes, ","))
			_, err = fmt.Fprintln(a.Out, made.Secret)
			return err
		},
	}
	cmd.Flags().StringVar(&k.Name, "name", "", "what it is for")
	cmd.Flags().StringVar(&k.Tenant, "tenant", "", "whose it is (default the caller's)")
	cmd.Flags().StringSliceVar(&k.Scopes, "scope", nil, "what it may: read, write, admin, and for runs alone runs:read, runs:write (default read and write)")
	return cmd
}

func (a program) keyList() *cobra.Command {
	return &cobra.Command{
		Use: "list", Aliases: []string{"ls"}, Short: "List keys", Example: "  skete key list", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := a.Connect(cmd.Context())
			if err != nil {
				return err
			}
			items, err := c.Keys(cmd.Context())
			if err != nil {
				return err
			}
			return app.List(a.App, items, func(k api.Key) string { return k.ID }, []string{"ID", "NAME", "TENANT", "SCOPES", "AGE", "REVOKED"},
				func(k api.Key) []string {
					revoked := ""
					if k.RevokedAt != nil {
						revoked = app.Age(*k.RevokedAt) + " ago"
					}
					return []string{k.ID, k.Name, k.Tenant, strings.Join(k.Scopes, ","), app.Age(k.CreatedAt), revoked}
				})
		},
	}
}

func (a program) keyRevoke() *cobra.Command {
	return &cobra.Command{
		Use: "revoke ID…", Aliases: []string{"rm"}, Short: "Make keys worthless", Example: "  skete key revoke ID", Args: cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := a.Connect(cmd.Context())
			if err != nil {
				return err
			}
			for _, id := range args {
				if err := c.RevokeKey(cmd.Context(), id); err != nil {
					return err
				}
			}
			return nil
		},
	}
}
