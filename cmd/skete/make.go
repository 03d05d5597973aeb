package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/skete-dev/skete/api"
	"github.com/skete-dev/skete/client"
	"github.com/skete-dev/skete/cmd/skete/internal/app"
	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/template/recipe"
)

func (a program) templatePrepare() *cobra.Command {
	var p api.PrepareTemplates
	cmd := &cobra.Command{
		Use: "prepare NAME…", Short: "Make ready templates now instead of when they are first needed",
		Long: `Make ready templates (debian, python, node, go, ruby) that are not there yet.
They are Debian with a few packages, put together by mmdebstrap from the mirror
that this host's apt uses; that takes a minute and a network. Later they are
there, and need none.`,
		Example: "  skete template prepare debian python\n  skete template prepare --all",
		RunE: func(cmd *cobra.Command, args []string) error {
			if p.Names = args; len(args) == 0 && !p.All {
				return errs.New(errs.Invalid, "no template is named").WithHint("`skete template list` shows them; --all makes all that are ready to be made")
			}
			c, err := a.Connect(cmd.Context())
			if err != nil {
				return err
			}
			made, err := a.Making(c.PrepareTemplates(cmd.Context(), p))
			if err != nil {
				return err
			}
			return a.printMade(made)
		},
	}
	cmd.Flags().BoolVar(&p.All, "all", false, "all that there are")
	return cmd
}

func (a program) printMade(made []api.Template) error {
	if a.JSON {
		return app.PrintJSON(a.Out, made)
	}
	for _, t := range made {
		if _, err := fmt.Fprintln(a.Out, app.Cell(t.Name)); err != nil {
			return err
		}
	}
	return nil
}

func (a program) templateBuild() *cobra.Command {
	var o client.BuildOptions
	cmd := &cobra.Command{
		Use: "build [DIR|FILE]", Short: "Build a template from a recipe, " + recipe.FileName,
		Long: `Build a template from a recipe: which template it starts from, packages, files
to copy, commands to run. Steps run as root in a sandbox, which has no network;
packages are fetched by the server. A step that was done before, by this or an
earlier build that ended in the middle, is not done again.`,
		Example: "  skete template build --name tools\n  skete template build ./tools --name tools --fresh",
		Args:    cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			place := "."
			if len(args) == 1 {
				place = args[0]
			}
			if o.Name == "" {
				return errs.New(errs.Invalid, "the template needs a --name")
			}
			found, err := recipe.Open(place)
			if err != nil {
				return err
			}
			defer found.Close()
			c, err := a.Connect(cmd.Context())
			if err != nil {
				return err
			}
			tar := found.Tar(cmd.Context())
			defer tar.Close()
			made, err := a.Making(c.BuildTemplate(cmd.Context(), o, tar))
			if err != nil {
				return err
			}
			return a.printMade(made)
		},
	}
	cmd.Flags().StringVar(&o.Name, "name", "", "of the template")
	cmd.Flags().BoolVar(&o.Fresh, "fresh", false, "do every step, also those that were done before")
	return cmd
}
