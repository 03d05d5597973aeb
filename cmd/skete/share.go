package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/skete-dev/skete/api"
	"github.com/skete-dev/skete/client"
	"github.com/skete-dev/skete/cmd/skete/internal/app"
	"github.com/skete-dev/skete/errs"
)

// sharedRun is what `skete share --json` prints.
type sharedRun struct {
	api.Share
	URL string `json:"url"`
}

func (a program) share() *cobra.Command {
	var lasts, end string
	var list bool
	cmd := &cobra.Command{
		Use: "share RUN", Short: "Let people without a key read a run",
		Long: `Print an address at which a run can be read without a key: what was said and done,
each text and output by its beginning. Nothing can be done there, and the address leads
to nothing else. It is shown once; --list shows which ones there are, and --end takes
one back at once.`,
		Example: `  skete share last
  skete share RUN --for 24h
  skete share RUN --list
  skete share RUN --end shr_0123456789abcdef0123`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if list && end != "" || lasts != "" && (list || end != "") {
				return errs.New(errs.Invalid, "one of --for, --list and --end")
			}
			ctx := cmd.Context()
			c, err := a.Connect(ctx)
			if err != nil {
				return err
			}
			run, err := app.FindRun(ctx, c, args[0])
			if err != nil {
				return err
			}
			switch {
			case list:
				return a.listShares(ctx, c.Run(run.ID))
			case end != "":
				return c.Run(run.ID).EndShare(ctx, end)
			}
			return a.shareRun(ctx, c.Run(run.ID), lasts)
		},
	}
	fs := cmd.Flags()
	fs.StringVar(&lasts, "for", "", "how long it can be read: 2h, 720h (default a week, at most 90 days)")
	fs.BoolVar(&list, "list", false, "list the addresses that there are, without their secrets")
	fs.StringVar(&end, "end", "", "take this one back")
	return cmd
}

func (a program) shareRun(ctx context.Context, run *client.Run, lasts string) error {
	var how api.CreateShare
	if lasts != "" {
		var err error
		if how.TTLMS, err = app.Milliseconds("for", lasts); err != nil {
			return err
		}
	}
	base, err := a.browserURL()
	if err != nil {
		return err
	}
	s, err := run.Share(ctx, how)
	if err != nil {
		return err
	}
	out := sharedRun{s, strings.TrimSuffix(base, "/") + s.Path}
	if a.JSON {
		return app.PrintJSON(a.Out, out)
	}
	a.Note("%s can be read there until %s; `skete share %s --end %s` takes it back", s.Run, s.ExpiresAt.Local().Format(time.DateTime), s.Run, s.ID)
	_, err = fmt.Fprintln(a.Out, out.URL)
	return err
}

func (a program) listShares(ctx context.Context, run *client.Run) error {
	list, err := run.Shares(ctx)
	if err != nil {
		return err
	}
	return app.List(a.App, list.Items, func(s api.Share) string { return s.ID }, []string{"SHARE", "AGE", "UNTIL", "BY"}, func(s api.Share) []string {
		return []string{s.ID, app.Age(s.CreatedAt), s.ExpiresAt.Local().Format(time.DateTime), s.ByName}
	})
}
