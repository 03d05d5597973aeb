// Package runs is the commands about runs of agents: run, attach, runs, show,
// send, approve, answer, compact, cancel, resume, fork, rewind, replay, schedule, workflow,
// agent.
//
//	root.AddCommand(runs.Commands(a)...)
//
// Exit status: 0 the run succeeded (or what was asked was done), 1 it failed,
// 2 the command line is wrong, 3 it waits for an approval that cannot be given
// here, 4 it was cancelled, 5 it ran out of time, 125 skete itself failed.
package runs

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/skete-dev/skete/api"
	"github.com/skete-dev/skete/client"
	"github.com/skete-dev/skete/cmd/skete/internal/app"
	"github.com/skete-dev/skete/cmd/skete/internal/screen"
	"github.com/skete-dev/skete/errs"
)

// exitUsage is the exit status of a wrong command line; watch.go has the others.
const exitUsage = 2

// exitCodes are listed in the help of what waits for a run.
const exitCodes = `
Exit status: 0 it succeeded, 1 it failed, 2 wrong usage, 3 it waits for an
approval that cannot be given here, 4 it was cancelled, 5 it ran out of time,
125 skete itself failed.`

// commands are the commands of one run of the program.
type commands struct{ *app.App }

// Commands returns them all.
func Commands(run *app.App) []*cobra.Command {
	a := commands{run}
	all := []*cobra.Command{
		a.run(), a.attach(), a.list(), a.show(), a.send(), a.approve(), a.answer(), a.compact(), a.cancel(), a.resume(), a.fork(), a.rewind(), a.replay(), a.schedule(), a.workflow(), a.tool(), a.agent(), a.model(),
	}
	for _, cmd := range all {
		asUsage(cmd)
	}
	return all
}

// asUsage gives wrong command lines their exit status.
func asUsage(cmd *cobra.Command) {
	cmd.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return &app.Coded{Status: exitUsage, Err: app.FlagError(cmd, err)}
	})
	if check := cmd.Args; check != nil {
		cmd.Args = func(cmd *cobra.Command, args []string) error {
			err := check(cmd, args)
			if err == nil {
				return nil
			}
			if own, ok := errors.AsType[*errs.Error](err); ok {
				return &app.Coded{Status: exitUsage, Err: own}
			}
			return usage("%s", err).WithHint("usage: %s", cmd.UseLine())
		}
	}
	for _, sub := range cmd.Commands() {
		asUsage(sub)
	}
}

// usage is a mistake on the command line.
func usage(format string, args ...any) *app.Coded { return app.Usage(exitUsage, format, args...) }

// with connects and finds the run that a command is about.
func (a commands) with(ctx context.Context, name string) (*client.Client, api.Run, error) {
	c, err := a.Connect(ctx)
	if err != nil {
		return nil, api.Run{}, err
	}
	run, err := app.FindRun(ctx, c, name)
	return c, run, err
}

// completeTimeout bounds the look-up for a completion.
const completeTimeout = 2 * time.Second

// complete offers ids of runs; it never starts a server.
func (a commands) complete(cmd *cobra.Command, args []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
	none := cobra.ShellCompDirectiveNoFileComp
	if len(args) > 0 || a.Setup() != nil {
		return nil, none
	}
	ctx, cancel := context.WithTimeout(cmd.Context(), completeTimeout)
	defer cancel()
	c, err := a.Dial()
	if err != nil {
		return nil, none
	}
	var found []cobra.Completion
	for r, err := range c.Runs(ctx, client.RunFilter{}) {
		if err != nil || len(found) == 50 {
			break
		}
		found = append(found, cobra.CompletionWithDesc(r.ID, app.Cell(strings.TrimSpace(r.State+" "+r.Title))))
	}
	return found, none
}

// runStates are those that a list can be bounded to.
var runStates = []string{"pending", "running", "interrupted", "succeeded", "failed", "cancelled", "timed_out"}

func (a commands) list() *cobra.Command {
	var f client.RunFilter
	var labels []string
	most := 30
	cmd := &cobra.Command{
		Use: "runs", Short: "List runs, newest first",
		Example: "  skete runs\n  skete runs --state running,interrupted\n  skete runs --label ticket=7 --json",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			var err error
			if f.Labels, err = app.Pairs("label", labels); err != nil {
				return &app.Coded{Status: exitUsage, Err: err}
			}
			for state := range strings.SplitSeq(f.State, ",") {
				if err := app.OneOf("state", state, runStates...); err != nil {
					return err
				}
			}
			c, err := a.Connect(cmd.Context())
			if err != nil {
				return err
			}
			f.PageSize = min(max(most, 1), 500)
			var items []api.Run
			for r, err := range c.Runs(cmd.Context(), f) {
				if err != nil {
					return err
				}
				if items = append(items, r); len(items) == most {
					break
				}
			}
			return app.List(a.App, items, func(r api.Run) string { return r.ID }, []string{"ID", "STATE", "AGENT", "STEPS", "COST", "AGE", "TITLE"}, runRow)
		},
	}
	fs := cmd.Flags()
	fs.StringVar(&f.State, "state", "", "only these, separated by commas: pending, running, interrupted, succeeded, failed, cancelled, timed_out")
	fs.StringVar(&f.Agent, "agent", "", "only of this agent")
	fs.StringVar(&f.Thread, "thread", "", "only of this thread")
	fs.StringArrayVar(&labels, "label", nil, "only with this label `key=value` (may be repeated)")
	fs.BoolVar(&f.Subagents, "subagents", false, "runs of sub-agents too")
	fs.IntVarP(&most, "last", "n", most, "at most so many")
	return cmd
}

func runRow(r api.Run) []string {
	state := r.State
	if r.Waiting > 0 {
		state = fmt.Sprintf("%s (%d)", state, r.Waiting)
	} else if r.Reason != "" && r.Reason != r.State && r.State != "succeeded" {
		state += " (" + r.Reason + ")"
	}
	return []string{r.ID, state, r.Agent, fmt.Sprint(r.Steps), screen.Cost(r.CostUSD), app.Age(r.CreatedAt), screen.Cut(strings.ReplaceAll(r.Title, "\n", " "), 60)}
}

// read reads a text that is given as a file's name or - for stdin.
func (a commands) read(name string, most int64) (string, error) {
	var r io.Reader = a.In
	if name != "-" {
		f, err := os.Open(name)
		if err != nil {
			return "", &app.Coded{Status: exitUsage, Err: errs.Wrap(errs.Invalid, err, "cannot read the file")}
		}
		defer f.Close()
		r = f
	}
	data, err := io.ReadAll(io.LimitReader(r, most+1))
	if err == nil && int64(len(data)) > most {
		return "", usage("%.80q is larger than %d bytes", name, most)
	}
	return string(data), err
}
