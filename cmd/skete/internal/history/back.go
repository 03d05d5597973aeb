package history

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/skete-dev/skete/api"
	past "github.com/skete-dev/skete/client"
	"github.com/skete-dev/skete/cmd/skete/internal/app"
	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/thread"
)

// Exit statuses beside 0 and 125.
const (
	exitConflict = 1 // paths need a choice; nothing was done
	exitDeclined = 4 // the person said no; nothing was done
)

// shownMax is how many paths of a plan a person is shown.
const shownMax = 40

const backLong = `

The plan is shown first: each path that would change. On a terminal you are
asked; --yes goes ahead, --dry-run never does. Without a terminal, and with
--json, one of the two must be given. What was shown is what is done: if
the files change in between, nothing happens. It is itself a revision, and what
was on disk before is one too, so it can always be taken back.

The exit status is 0 when it is done or nothing was to be done, 1 when paths
need a choice, 2 for wrong usage (one that would have to ask, without a terminal,
is such), 4 when you say no, 125 when it failed.`

// way is how a person wants it done.
type way struct {
	app.Target
	yes, dry bool
}

func (w *way) flags(cmd *cobra.Command) {
	w.Flags(cmd, false)
	cmd.Flags().BoolVarP(&w.yes, "yes", "y", false, "do not ask")
	cmd.Flags().BoolVar(&w.dry, "dry-run", false, "show the plan alone")
}

func (a commands) undo() *cobra.Command {
	var w way
	var p api.PlanChange
	var step, turn bool
	cmd := &cobra.Command{
		Use: "undo [ID]", Short: "Take back the last change of a sandbox's files",
		Long: `Take back the last change of a sandbox's files, whatever made it: the last
revision, or with a flag all since before the last step, turn, run or tool call
of an agent. Repeat it to go further back; ` + "`skete redo`" + ` goes forward again.` + backLong,
		Example: `  skete undo ID
  skete undo ID --step --dry-run
  skete undo --run RUN -y
  skete undo ID --call CALL`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			scopes := []string{}
			for scope, on := range map[string]bool{"step": step, "turn": turn, "run": p.Run != "", "call": p.Call != ""} {
				if on {
					scopes = append(scopes, scope)
				}
			}
			if len(scopes) > 1 {
				return errs.New(errs.Invalid, "--step, --turn, --run and --call exclude each other")
			}
			p.Do, p.Scope = api.PlanUndo, strings.Join(scopes, "")
			if err := a.mayAsk(&w); err != nil {
				return err
			}
			var err error
			if p.Run, args, err = a.ofRun(cmd.Context(), p.Run, &w.Target, args); err != nil {
				return err
			}
			return a.back(cmd.Context(), &w, args, p)
		},
	}
	w.flags(cmd)
	fs := cmd.Flags()
	fs.BoolVar(&step, "step", false, "all of the last step of a run")
	fs.BoolVar(&turn, "turn", false, "all since the last message to the agent")
	fs.StringVar(&p.Run, "run", "", "all since before this `RUN`")
	fs.StringVar(&p.Call, "call", "", "all since before this tool `CALL`")
	return a.WithCompletion(cmd, 1)
}

// ofRun reads the run of a flag, and the sandbox: who names only the run has
// named that too. The history may know runs that are deleted, by their ids.
func (a commands) ofRun(ctx context.Context, name string, t *app.Target, args []string) (id string, sandbox []string, err error) {
	named := len(args)+len(t.VM) > 0
	if _, err := thread.ParseRunID(name); name == "" || err == nil && named {
		return name, args, nil
	}
	c, err := a.Connect(ctx)
	if err != nil {
		return "", nil, err
	}
	run, err := app.FindRun(ctx, c, name)
	if err == nil && !named && run.Sandbox == "" {
		err = errs.New(errs.Invalid, "the run %s has no sandbox", run.ID)
	}
	if err != nil || named {
		return run.ID, args, err
	}
	return run.ID, []string{run.Sandbox}, nil
}

func (a commands) redo() *cobra.Command {
	var w way
	cmd := &cobra.Command{
		Use: "redo [ID]", Short: "Take back the last undo of a sandbox's files",
		Long: "Take back the last undo of a sandbox's files, as long as nothing else changed\nsince." + backLong,
		Example: `  skete redo ID
  skete redo ID --dry-run`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.back(cmd.Context(), &w, args, api.PlanChange{Do: api.PlanRedo})
		},
	}
	w.flags(cmd)
	return a.WithCompletion(cmd, 1)
}

func (a commands) restore() *cobra.Command {
	var w way
	cmd := &cobra.Command{
		Use: "restore ID N [PATH]", Short: "Make a sandbox's files what they were at a revision",
		Long: "Make all files of a sandbox, or those at PATH and beneath it, what they were at\nrevision N. `skete undo` takes that back." + backLong,
		Example: `  skete restore ID 12
  skete restore ID 12 src/app.js
  skete restore ID 12 --dry-run`,
		Args: cobra.RangeArgs(1, 3),
		RunE: func(cmd *cobra.Command, args []string) error {
			rest, err := w.rest(args, "restore ID N [PATH]", 1, 2)
			if err != nil {
				return err
			}
			n, err := revisionNumber(rest[0])
			if err != nil {
				return err
			}
			p := api.PlanChange{Do: api.PlanRestore, N: n}
			if len(rest) > 1 {
				p.Path, p.PathBytes = pathOf(rest[1])
			}
			return a.back(cmd.Context(), &w, args[:len(args)-len(rest)], p)
		},
	}
	w.flags(cmd)
	return a.WithCompletion(cmd, 1)
}

func (a commands) revert() *cobra.Command {
	var w way
	var keep, take, markers []string
	cmd := &cobra.Command{
		Use: "revert ID N", Short: "Take back what one revision changed, and keep what came after it",
		Long: `Take back what revision N changed, and keep what came after it. Files that were
changed again since are merged line by line; where that cannot be done the paths
are listed, and nothing is done until each has a choice: --keep what is now,
--take what was before N, or write both with --markers.` + backLong,
		Example: `  skete revert ID 12
  skete revert ID 12 --keep go.sum --take main.go
  skete revert ID 12 --markers README.md`,
		Args: cobra.RangeArgs(1, 2),
		RunE: func(cmd *cobra.Command, args []string) error {
			rest, err := w.rest(args, "revert ID N", 1, 1)
			if err != nil {
				return err
			}
			n, err := revisionNumber(rest[0])
			if err != nil {
				return err
			}
			p := api.PlanChange{Do: api.PlanRevert, N: n}
			for _, c := range []struct {
				choice string
				paths  []string
			}{{"keep", keep}, {"take", take}, {"markers", markers}} {
				for _, path := range c.paths {
					choice := api.RevertChoice{Choice: c.choice}
					choice.Path, choice.PathBytes = pathOf(path)
					p.Choices = append(p.Choices, choice)
				}
			}
			return a.back(cmd.Context(), &w, args[:len(args)-len(rest)], p)
		},
	}
	w.flags(cmd)
	fs := cmd.Flags()
	fs.StringArrayVar(&keep, "keep", nil, "leave this `PATH` as it is now (may be repeated)")
	fs.StringArrayVar(&take, "take", nil, "make this `PATH` what it was before (may be repeated)")
	fs.StringArrayVar(&markers, "markers", nil, "write both sides into this `PATH` (may be repeated)")
	return a.WithCompletion(cmd, 1)
}

// rest are the words behind the sandbox.
func (w *way) rest(args []string, usage string, least, most int) ([]string, error) {
	if len(w.VM) == 0 {
		args = args[1:]
	}
	if len(args) < least || len(args) > most {
		return nil, errs.New(errs.Invalid, "wrong number of words").WithHint("usage: skete %s", usage)
	}
	return args, nil
}

// pathOf puts a path of the command line, which is any bytes, into a request.
func pathOf(path string) (text string, bytes []byte) {
	if valid := strings.ToValidUTF8(path, "\uFFFD"); valid != path {
		return valid, []byte(path)
	}
	return path, nil
}

// back plans, shows, asks, and does it.
func (a commands) back(ctx context.Context, w *way, sandbox []string, p api.PlanChange) error {
	if err := a.mayAsk(w); err != nil { // before a server is started
		return err
	}
	h, _, _, err := a.open(ctx, &w.Target, sandbox)
	if err != nil {
		return err
	}
	plan, err := h.Plan(ctx, p)
	if errs.Code(err) == errs.NothingToDo && a.known(ctx, p.Run) {
		a.Note("%s", errs.Public(err))
		return a.nothing(ctx, h)
	}
	if err != nil {
		return err
	}
	if w.dry && a.JSON {
		return planExit(app.PrintJSON(a.Out, plan), len(plan.Conflicts))
	}
	if len(plan.Conflicts) > 0 {
		return a.refuse(plan)
	}
	if !a.JSON {
		if err := a.show(plan, w); err != nil {
			return err
		}
	}
	if w.dry {
		return nil
	}
	if plan.Total == 0 {
		return a.nothing(ctx, h)
	}
	if !w.yes && !a.sure(plan) {
		a.Note("nothing was changed")
		return app.Exit(exitDeclined)
	}
	done, err := h.Apply(ctx, plan.ID)
	if err != nil {
		return err
	}
	return a.report(done)
}

// known reports whether there is such a run, or none is named: one that is
// named wrongly has nothing to undo either, and must not look undone.
func (a commands) known(ctx context.Context, run string) bool {
	if run == "" {
		return true
	}
	c, err := a.Connect(ctx)
	if err == nil {
		_, err = c.Run(run).Get(ctx)
	}
	return err == nil
}

// mayAsk refuses what needs a person's answer where there is no person to ask,
// before anything is planned.
func (a commands) mayAsk(w *way) error {
	if w.yes || w.dry || !a.JSON && a.HasKeyboard() {
		return nil
	}
	return errs.New(errs.Invalid, "this changes files, and there is no terminal to ask at").
		WithHint("--yes goes ahead, --dry-run shows what would change")
}

// nothing ends what has nothing to do: no revision is made of it.
func (a commands) nothing(ctx context.Context, h *past.History) error {
	if !a.JSON {
		return nil
	}
	page, err := h.Page(ctx, 1, "")
	done := api.Applied{Files: []api.PathResult{}}
	if len(page.Items) > 0 {
		done.Revision = page.Items[0]
	}
	if err != nil {
		return err
	}
	return app.PrintJSON(a.Out, done)
}

// planExit is how a printed plan ends.
func planExit(err error, conflicts int) error {
	if err == nil && conflicts > 0 {
		return app.Exit(exitConflict)
	}
	return err
}

// refuse lists the paths that need a choice.
func (a commands) refuse(plan api.ChangePlan) error {
	if a.JSON {
		return planExit(app.PrintJSON(a.Out, plan), len(plan.Conflicts))
	}
	for _, c := range plan.Conflicts {
		name := quoted("", past.ChangedPath(api.PathChange{Path: c.Path, PathBytes: c.PathBytes}))
		fmt.Fprintf(a.Err, "conflict: %s: %s\n", name, app.Printable(c.Why))
	}
	fmt.Fprintf(a.Err, "skete: %d paths need a choice; nothing was changed\nhint: --keep PATH, --take PATH, or --markers PATH for texts\n", len(plan.Conflicts))
	return app.Exit(exitConflict)
}

// show prints the plan: what a person is asked about, or a dry run's result.
func (a commands) show(plan api.ChangePlan, w *way) error {
	out := io.Writer(a.Err)
	if w.dry {
		out = a.Out
	} else if a.Quiet {
		return nil
	}
	files := plan.Files
	if !w.dry && len(files) > shownMax {
		files = files[:shownMax]
	}
	for _, f := range files {
		name := quoted("", past.ChangedPath(f))
		if w.dry && a.Quiet {
			fmt.Fprintln(out, name)
			continue
		}
		fmt.Fprintf(out, "%s %s%s\n", sign(f.Action), name, sizes(f))
	}
	if more := plan.Total - len(files); more > 0 {
		a.Note("and %d more", more)
	}
	for _, l := range plan.Left {
		a.Note("%s stays as it is: %s", quoted("", past.ChangedPath(api.PathChange{Path: l.Path, PathBytes: l.PathBytes})), l.Why)
	}
	if plan.Total == 0 {
		a.Note("nothing would change")
	}
	return nil
}

func sizes(f api.PathChange) string {
	switch {
	case f.Before != nil && f.Before.Type != "file", f.After != nil && f.After.Type != "file":
		return ""
	case f.Before == nil && f.After != nil:
		return "  " + app.BytesText(f.After.Size)
	case f.After == nil || f.Before == nil || f.Before.Size == f.After.Size:
		return ""
	}
	return "  " + app.BytesText(f.Before.Size) + " -> " + app.BytesText(f.After.Size)
}

// sure asks who sits at the terminal.
func (a commands) sure(plan api.ChangePlan) bool {
	fmt.Fprintf(a.Err, "%s revision %d: change %s? [y/N] ", goes(plan), plan.N, paths(plan.Total, ""))
	line, _ := bufio.NewReader(io.LimitReader(a.In, 1<<10)).ReadString('\n')
	answer := strings.ToLower(strings.TrimSpace(line))
	return answer == "y" || answer == "yes"
}

// paths counts paths in words.
func paths(n int, more string) string {
	if n == 1 && more == "" {
		return "1 path"
	}
	return fmt.Sprintf("%d paths%s", n, more)
}

func goes(plan api.ChangePlan) string {
	if plan.Do == api.PlanRevert {
		return "take back"
	}
	return plan.Do + " to"
}

// report prints what was done.
func (a commands) report(done api.Applied) error {
	if a.JSON {
		return app.PrintJSON(a.Out, done)
	}
	changed := 0
	for _, f := range done.Files {
		if f.Result == "kept" {
			fmt.Fprintf(a.Err, "kept: %s holds what the history does not have\n", quoted("", past.ChangedPath(f.PathChange)))
			continue
		}
		changed++
	}
	more := ""
	if done.Cut {
		more = " and more"
	}
	a.Note("%s changed; this is revision %d", paths(changed, more), done.Revision.N)
	_, err := fmt.Fprintln(a.Out, done.Revision.N)
	return err
}
