// Package history is the commands on what was: `skete history`, `diff`, `undo`,
// `redo`, `revert` and `restore`.
//
//	root.AddCommand(history.Commands(a)...)
package history

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/skete-dev/skete/api"
	past "github.com/skete-dev/skete/client"
	"github.com/skete-dev/skete/cmd/skete/internal/app"
	"github.com/skete-dev/skete/errs"
)

// commands are the commands of one run.
type commands struct{ *app.App }

// Commands are those of the top level.
func Commands(run *app.App) []*cobra.Command {
	a := commands{run}
	return []*cobra.Command{a.list(), a.diff(), a.undo(), a.redo(), a.revert(), a.restore()}
}

// open finds the sandbox that a command means. Where more words follow, the
// first one is the sandbox unless --vm names it; rest are the others.
func (a commands) open(ctx context.Context, t *app.Target, args []string) (h *past.History, sb api.Sandbox, rest []string, err error) {
	c, err := a.Connect(ctx)
	if err != nil {
		return nil, sb, nil, err
	}
	var words []string
	if rest = args; len(t.VM) == 0 && len(args) > 0 {
		words, rest = args[:1], args[1:]
	}
	if sb, err = a.One(ctx, c, t, words); err != nil {
		return nil, sb, nil, err
	}
	return c.Sandbox(sb.ID).History(), sb, rest, nil
}

func revisionNumber(s string) (uint64, error) {
	n, err := strconv.ParseUint(s, 10, 64)
	if err != nil || n == 0 {
		return 0, errs.New(errs.Invalid, "%.40q is no number of a revision", s).WithHint("`skete history` lists them")
	}
	return n, nil
}

type listOptions struct {
	app.Target
	run, thread, path string
	last              int
}

func (a commands) list() *cobra.Command {
	var o listOptions
	cmd := &cobra.Command{
		Use: "history [ID]", Short: "List the revisions of a sandbox's workspace, newest first",
		Long: `List the revisions of a sandbox's workspace, newest first. A revision is the
state of all files at one moment: before and after each call that may write, of
an agent's tools or from outside (exec, cp, the API), before each undo, and when
files changed otherwise.

In the first column > is the revision whose content the files have now, u where
an undo would go, and r where a redo would. What was changed since and is in no
revision yet is a line of its own on top; then no revision has the >.

A revision is local when it is on the sandbox's disk, and durable when it
survives the sandbox.`,
		Example: `  skete history ID
  skete history ID --run RUN
  skete history ID --path src/app.js
  skete history export ID --git ./history`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if o.last < 0 {
				return errs.New(errs.Invalid, "--last: %d is less than 0", o.last)
			}
			var err error
			if o.run, args, err = a.ofRun(cmd.Context(), o.run, &o.Target, args); err != nil {
				return err
			}
			h, _, _, err := a.open(cmd.Context(), &o.Target, args)
			if err != nil {
				return err
			}
			if o.path != "" {
				return a.printOf(cmd.Context(), h, o.path)
			}
			return a.printList(cmd.Context(), h, o)
		},
	}
	o.Flags(cmd, false)
	fs := cmd.Flags()
	fs.StringVar(&o.run, "run", "", "only revisions of this `RUN`")
	fs.StringVar(&o.thread, "thread", "", "only revisions of this `THREAD`")
	fs.StringVar(&o.path, "path", "", "only revisions that changed this `PATH`")
	fs.IntVarP(&o.last, "last", "n", 50, "how many; 0 = all")
	cmd.AddCommand(a.save(), a.export(), a.move(), a.kept(), a.remove())
	return a.WithCompletion(cmd, 1)
}

func (a commands) save() *cobra.Command {
	var t app.Target
	var label string
	cmd := &cobra.Command{
		Use: "save [ID]", Short: "Make a revision of the files as they are now, and print its number",
		Long: `Make a revision of the files as they are now, and print its number. If nothing
changed since the last one, it is that one's.`,
		Example: `  skete history save ID --label 'before the upgrade'
  skete restore ID $(skete history save ID)`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			h, _, _, err := a.open(cmd.Context(), &t, args)
			if err != nil {
				return err
			}
			r, err := h.Snapshot(cmd.Context(), label)
			if err != nil {
				return err
			}
			if a.JSON {
				return app.PrintJSON(a.Out, r)
			}
			_, err = fmt.Fprintln(a.Out, r.N)
			return err
		},
	}
	t.Flags(cmd, false)
	cmd.Flags().StringVar(&label, "label", "", "what it is, for people")
	return a.WithCompletion(cmd, 1)
}

func (a commands) printList(ctx context.Context, h *past.History, o listOptions) error {
	where, err := h.Page(ctx, 1, "")
	if err != nil {
		return err
	}
	var revs []api.Revision
	more := false
	for r, err := range h.Revisions(ctx, past.RevisionFilter{Run: o.run, Thread: o.thread}) {
		if err != nil {
			return err
		}
		if more = o.last > 0 && len(revs) == o.last; more {
			break
		}
		revs = append(revs, r)
	}
	mark := func(r api.Revision) string {
		switch r.N {
		case where.Current:
			return ">"
		case where.Undo:
			return "u"
		case where.Redo:
			return "r"
		}
		return " "
	}
	if a.JSON {
		where.Items, where.NextPageToken = revs, ""
		return app.PrintJSON(a.Out, where)
	}
	if err = a.printUnsaved(where); err != nil {
		return err
	}
	err = app.List(a.App, revs, number, []string{" ", "N", "AGE", "FILES", "SIZE", "WHO", "WHAT", "STATE"}, func(r api.Revision) []string {
		return append([]string{mark(r)}, row(r)...)
	})
	if more {
		a.Note("there are more: --last 0 shows all")
	}
	return err
}

// printUnsaved shows what no revision has, above the newest one.
func (a commands) printUnsaved(where api.RevisionPage) error {
	if where.Unseen != "" {
		a.Note("whether there are unsaved changes is not known: %s", where.Unseen)
	}
	if where.Unsaved == nil || a.Quiet {
		return nil
	}
	_, err := fmt.Fprintln(a.Out, "unsaved changes: "+unsaved(*where.Unsaved))
	return err
}

func unsaved(u api.Unsaved) string {
	text := "directories only"
	switch {
	case u.Files == 1:
		text = "1 file"
	case u.Files > 1:
		text = fmt.Sprintf("%d files", u.Files)
	}
	if u.Cut {
		text += " and more"
	}
	return text
}

func number(r api.Revision) string { return strconv.FormatUint(r.N, 10) }

func row(r api.Revision) []string {
	return []string{number(r), app.Age(r.Time), strconv.Itoa(r.Files), app.BytesText(r.Bytes), r.Who, what(r), r.State}
}

// what says of what a revision is the result.
func what(r api.Revision) string {
	parts := []string{r.Title}
	if r.Run != "" {
		run := r.Run
		if r.Step > 0 {
			run += fmt.Sprintf(" step %d", r.Step)
		}
		parts = append(parts, run)
	}
	if r.Torn > 0 {
		parts = append(parts, fmt.Sprintf("(%d files were changing)", r.Torn))
	}
	return strings.Join(parts, ", ")
}

// printOf shows the history of one path.
func (a commands) printOf(ctx context.Context, h *past.History, path string) error {
	list, err := h.Of(ctx, path)
	if err != nil {
		return err
	}
	if a.JSON {
		return app.PrintJSON(a.Out, list)
	}
	err = app.List(a.App, list.Items, func(r api.PathRevision) string { return number(r.Revision) }, []string{"N", "AGE", "SIZE", "WHO", "WHAT", "STATE"}, func(r api.PathRevision) []string {
		size := "removed"
		if r.Entry != nil {
			size = app.BytesText(r.Entry.Size)
		}
		return []string{number(r.Revision), app.Age(r.Time), size, r.Who, what(r.Revision), r.State}
	})
	if list.Cut {
		a.Note("there are more")
	}
	return err
}
