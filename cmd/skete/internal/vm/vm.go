// Package vm is the command group `skete vm`: sandboxes, and work in them.
//
//	root.AddCommand(vm.Command(a))
package vm

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/spf13/cobra"

	"github.com/skete-dev/skete/api"
	"github.com/skete-dev/skete/client"
	"github.com/skete-dev/skete/cmd/skete/internal/app"
	"github.com/skete-dev/skete/errs"
)

// commands are the commands of one run.
type commands struct{ *app.App }

// Command returns the group.
func Command(run *app.App) *cobra.Command {
	a := commands{run}
	cmd := app.Group("vm", "Make sandboxes and work in them", `  skete vm create --lang python --mem 512 --cpus 2
  skete vm exec ID --cmd 'echo hi'
  skete vm list
  skete vm clean --all`, "sandbox")
	cmd.AddCommand(
		a.vmCreate(), a.vmRun(), a.vmTemp(), a.vmExec(), a.vmShell(),
		a.vmList(), a.vmInspect(), a.vmStart(), a.vmStop(), a.vmPause(), a.vmResume(), a.vmRename(), a.vmModels(), a.vmClean(),
		a.vmPs(), a.vmLogs(), a.vmAttach(), a.vmKill(), a.vmForward(),
	)
	cmd.AddCommand(snapshotCommands(run)...)
	return cmd
}

// Short returns commands of the group that are used most, for the top level.
func Short(run *app.App) []*cobra.Command {
	a := commands{run}
	all := []*cobra.Command{a.vmList(), a.vmPs(), a.vmExec(), a.vmLogs(), a.vmShell(), a.vmStart(), a.vmInspect()}
	for _, cmd := range all {
		name := cmd.Name()
		if name == "list" {
			cmd.Use, cmd.Aliases = "ls"+strings.TrimPrefix(cmd.Use, name), nil
		}
		cmd.Example = strings.ReplaceAll(cmd.Example, "skete vm "+name, "skete "+cmd.Name())
	}
	return all
}

// Stop is the command that stops sandboxes.
func Stop(run *app.App) *cobra.Command { return commands{run}.vmStop() }

func (a commands) vmList() *cobra.Command {
	var state string
	var meta []string
	var all bool
	cmd := &cobra.Command{
		Use: "list", Aliases: []string{"ls"}, Short: "List sandboxes, newest first",
		Long: "List sandboxes, newest first. Destroyed ones are shown with --all only.",
		Example: `  skete vm list
  skete vm list --json
  skete vm list -q --state stopped
  skete vm list --meta project=blue`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			err := app.OneOf("state", stateNames(state), sandboxStates...)
			if err != nil {
				return err
			}
			f := client.SandboxFilter{State: stateNames(state)}
			if f.Metadata, err = app.Pairs("meta", meta); err != nil {
				return err
			}
			c, err := a.Connect(cmd.Context())
			if err != nil {
				return err
			}
			items, err := client.All(c.Sandboxes(cmd.Context(), f))
			if err == nil && all && state == "" {
				items, err = withDestroyed(cmd.Context(), c, f, items)
			}
			if err != nil {
				return err
			}
			for _, s := range items {
				a.WarnIsolation(s)
			}
			return app.List(a.App, items, func(s api.Sandbox) string { return s.ID }, app.SandboxHeader, app.SandboxRow)
		},
	}
	cmd.Flags().StringVar(&state, "state", "", "only this state: creating, running, paused, stopped, failed, destroyed")
	cmd.Flags().StringVar(&state, "status", "", "same as --state")
	cmd.Flags().BoolVar(&all, "all", false, "destroyed ones too")
	cmd.Flags().StringArrayVar(&meta, "meta", nil, "only with this metadata `key=value` (may be repeated)")
	_ = cmd.Flags().MarkHidden("status")
	_ = cmd.RegisterFlagCompletionFunc("state", cobra.FixedCompletions(
		sandboxStates, cobra.ShellCompDirectiveNoFileComp))
	return cmd
}

// sandboxStates are those that a list can be bounded to.
var sandboxStates = []string{"creating", "running", "paused", "stopped", "failed", "destroyed"}

// stateNames takes ERA's words for states too.
func stateNames(s string) string {
	switch s {
	case "provisioning":
		return "creating"
	case "ready":
		return "running"
	}
	return s
}

func withDestroyed(ctx context.Context, c *client.Client, f client.SandboxFilter, items []api.Sandbox) ([]api.Sandbox, error) {
	f.State = "destroyed"
	gone, err := client.All(c.Sandboxes(ctx, f))
	items = append(items, gone...)
	slices.SortStableFunc(items, func(x, y api.Sandbox) int { return y.CreatedAt.Compare(x.CreatedAt) })
	return items, err
}

func (a commands) vmInspect() *cobra.Command {
	var t app.Target
	cmd := &cobra.Command{
		Use: "inspect [ID…]", Short: "Show all that is known of a sandbox",
		Long: "Show all that is known of a sandbox as JSON: one object, or an array for several.",
		Example: `  skete vm inspect ID
  skete vm inspect --all`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := t.Check(args); err != nil {
				return err
			}
			c, err := a.Connect(cmd.Context())
			if err != nil {
				return err
			}
			found, err := a.Sandboxes(cmd.Context(), c, &t, args, func(api.Sandbox) bool { return true })
			if err != nil {
				return err
			}
			for _, s := range found {
				a.WarnIsolation(s)
			}
			if len(found) == 1 && !t.All {
				return app.PrintJSON(a.Out, found[0])
			}
			return app.PrintJSON(a.Out, append([]api.Sandbox{}, found...))
		},
	}
	t.Flags(cmd, true)
	return a.WithCompletion(cmd, 0)
}

// lifeVerb is a command that changes the state of sandboxes.
type lifeVerb struct {
	use, short, example string
	fits                func(api.Sandbox) bool // for --all
	do                  func(context.Context, *client.Sandbox) (api.Sandbox, error)
}

func in(states ...string) func(api.Sandbox) bool {
	return func(s api.Sandbox) bool { return slices.Contains(states, s.State) }
}

func (a commands) vmStart() *cobra.Command {
	return a.life(lifeVerb{
		"start", "Boot stopped sandboxes again, with their workspace", "  skete vm start ID\n  skete vm start --all",
		in("stopped", "failed"), func(ctx context.Context, s *client.Sandbox) (api.Sandbox, error) { return s.Start(ctx) },
	})
}

func (a commands) vmStop() *cobra.Command {
	return a.life(lifeVerb{
		"stop", "End machines and keep their workspace", "  skete vm stop ID\n  skete vm stop --all",
		in("running", "paused"), func(ctx context.Context, s *client.Sandbox) (api.Sandbox, error) { return s.Stop(ctx) },
	})
}

func (a commands) vmPause() *cobra.Command {
	return a.life(lifeVerb{
		"pause", "Freeze sandboxes", "  skete vm pause ID",
		in("running"), func(ctx context.Context, s *client.Sandbox) (api.Sandbox, error) { return s.Pause(ctx) },
	})
}

func (a commands) vmResume() *cobra.Command {
	return a.life(lifeVerb{
		"resume", "Let paused sandboxes go on", "  skete vm resume ID",
		in("paused"), func(ctx context.Context, s *client.Sandbox) (api.Sandbox, error) { return s.Resume(ctx) },
	})
}

func (a commands) vmRename() *cobra.Command {
	return a.WithCompletion(&cobra.Command{
		Use: "rename ID NAME", Short: "Give a sandbox another name",
		Long: `Give a sandbox another name, which no other one has. The empty name takes it away.
A name stands for the id in every command, in the API and in /s/NAME.`,
		Example: `  skete vm rename ID web
  skete vm rename web ""`,
		Args: cobra.ExactArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			ctx := cmd.Context()
			c, sb, err := a.InOne(ctx, &app.Target{}, args[:1])
			if err != nil {
				return err
			}
			sb, err = c.Sandbox(sb.ID).Update(ctx, api.UpdateSandbox{Name: &args[1]})
			if err != nil {
				return err
			}
			return a.changed([]api.Sandbox{sb})
		},
	}, 1)
}

func (a commands) life(v lifeVerb) *cobra.Command {
	var t app.Target
	cmd := &cobra.Command{
		Use: v.use + " [ID…]", Short: v.short, Example: v.example,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := t.Check(args); err != nil {
				return err
			}
			ctx := cmd.Context()
			c, err := a.Connect(ctx)
			if err != nil {
				return err
			}
			found, err := a.Sandboxes(ctx, c, &t, args, v.fits)
			if err != nil {
				return err
			}
			told := func() {}
			if v.use == "start" {
				told = a.TellTurns(ctx, c)
			}
			after, err := a.each(found, func(s api.Sandbox) (api.Sandbox, error) { return v.do(ctx, c.Sandbox(s.ID)) })
			told()
			return errors.Join(err, a.changed(after))
		},
	}
	t.Flags(cmd, true)
	return a.WithCompletion(cmd, 0)
}

// eachAtOnce is how many sandboxes are worked on at the same time.
const eachAtOnce = 8

// each does something to all sandboxes, a few at a time; it goes on after an
// error, reports each, and returns one.
func (a commands) each(list []api.Sandbox, do func(api.Sandbox) (api.Sandbox, error)) ([]api.Sandbox, error) {
	after := make([]api.Sandbox, len(list))
	failures := make([]error, len(list))
	slots := make(chan struct{}, eachAtOnce)
	var wg sync.WaitGroup
	for i, s := range list {
		a.WarnIsolation(s)
		slots <- struct{}{}
		wg.Go(func() {
			defer func() { <-slots }()
			after[i], failures[i] = do(s)
		})
	}
	wg.Wait()
	var done []api.Sandbox
	var bad []error
	for i, err := range failures {
		if err == nil {
			done = append(done, after[i])
			continue
		}
		bad = append(bad, fmt.Errorf("%s: %w", list[i].ID, err))
	}
	if len(bad) > 1 {
		for _, err := range bad[1:] {
			a.Complain(err)
		}
	}
	if len(bad) > 0 {
		return done, bad[0]
	}
	return done, nil
}

// changed prints sandboxes that a command changed.
func (a commands) changed(after []api.Sandbox) error {
	if a.JSON {
		return app.PrintJSON(a.Out, append([]api.Sandbox{}, after...))
	}
	for _, s := range after {
		if _, err := fmt.Fprintln(a.Out, s.ID); err != nil {
			return err
		}
	}
	return nil
}

func (a commands) vmClean() *cobra.Command {
	var t app.Target
	var keepPersist, noRevision, yes bool
	cmd := &cobra.Command{
		Use: "clean [ID…]", Aliases: []string{"rm"}, Short: "Destroy sandboxes and their workspaces",
		Long: `Destroy sandboxes with all that is in them; their histories are kept for seven
days (skete history move). Without a name only those that do not run any more
(stopped, failed) are destroyed; --all destroys every one. What was not named
is shown first, and you are asked; without a terminal --yes is needed.

Exit status: 4 you said no, and nothing was destroyed.`,
		Example: `  skete vm clean              # what is stopped or failed
  skete vm clean ID
  skete vm clean --all --yes
  skete vm clean --all --keep-persist`,
		RunE: func(cmd *cobra.Command, args []string) error {
			named := len(args)+len(t.VM) > 0
			err := t.Check(args)
			if err == nil && !named && !yes && !a.HasKeyboard() {
				err = errs.New(errs.Invalid, "no sandbox is named, and there is no terminal to ask at").
					WithHint("name what to destroy, or say --yes; `skete vm list` shows what there is")
			}
			if err != nil {
				return err
			}
			ctx := cmd.Context()
			c, err := a.Connect(ctx)
			if err != nil {
				return err
			}
			doomed := in("running", "paused", "creating", "stopped", "failed")
			if !t.All && !named {
				t.All, doomed = true, in("stopped", "failed")
			}
			found, err := a.Sandboxes(ctx, c, &t, args, doomed)
			if err != nil {
				return err
			}
			if keepPersist {
				found = slices.DeleteFunc(found, func(s api.Sandbox) bool { return s.Persist })
			}
			if !named && len(found) > 0 {
				if ok, err := a.agreeToClean(found, yes); err != nil || !ok {
					return err
				}
			}
			after, err := a.each(found, func(s api.Sandbox) (api.Sandbox, error) {
				s.State = "destroyed"
				box := c.Sandbox(s.ID)
				if noRevision {
					box = box.WithoutRevisions()
				}
				return s, box.Destroy(ctx)
			})
			return errors.Join(err, a.changed(after))
		},
	}
	t.Flags(cmd, true)
	cmd.Flags().BoolVar(&noRevision, "no-revision", false, "make no last revision; what is in none yet may be lost")
	cmd.Flags().BoolVar(&keepPersist, "keep-persist", false, "leave those that were made with --persist")
	cmd.Flags().BoolVarP(&yes, "yes", "y", false, "do not ask")
	return a.WithCompletion(cmd, 0)
}

// declined is the exit status of who said no.
const declined = app.Exit(4)

// agreeToClean shows what is destroyed, and asks. What is shown is what is
// destroyed: what comes into being meanwhile stays.
func (a commands) agreeToClean(found []api.Sandbox, yes bool) (bool, error) {
	if !yes {
		for _, s := range found {
			fmt.Fprintf(a.Err, "  %s\n", app.Cell(strings.TrimSpace(fmt.Sprintf("%s %s %s, %s old, %d MiB disk", s.ID, s.Name, s.State, app.Age(s.CreatedAt), s.DiskMB))))
		}
	}
	question := "Destroy this sandbox with its files?"
	if len(found) > 1 {
		question = fmt.Sprintf("Destroy these %d sandboxes with their files?", len(found))
	}
	ok, err := a.Agree(yes, question)
	if err == nil && !ok {
		a.Note("nothing was destroyed")
		err = declined
	}
	return ok, err
}
