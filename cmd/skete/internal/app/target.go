package app

import (
	"context"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/skete-dev/skete/api"
	"github.com/skete-dev/skete/client"
	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/sandbox"
)

// Target says which sandboxes a command means: words, --vm, --all, then
// $SKETE_VM and $AGENT_VM, then the single running one.
type Target struct {
	VM  []string
	All bool
}

// Flags adds --vm and, where it makes sense, --all.
func (t *Target) Flags(cmd *cobra.Command, all bool) {
	cmd.Flags().StringArrayVar(&t.VM, "vm", nil, "sandbox: id, beginning of an id, or name (may be repeated)")
	if all {
		cmd.Flags().BoolVar(&t.All, "all", false, "every sandbox")
	}
}

// Named are the sandboxes that the command line or the environment names.
func (t *Target) Named(words []string) []string {
	names := slices.Concat(words, t.VM)
	if len(names) > 0 {
		return names
	}
	for _, v := range []string{"SKETE_VM", "AGENT_VM"} {
		if id := os.Getenv(v); id != "" {
			return []string{id}
		}
	}
	return nil
}

// Check refuses what can mean no sandbox, before a server is asked.
func (t *Target) Check(words []string) error {
	if t.All && len(words)+len(t.VM) > 0 {
		return errs.New(errs.Invalid, "--all and named sandboxes exclude each other")
	}
	if slices.Contains(slices.Concat(words, t.VM), "") { // sandboxes without a name would fit
		return errs.New(errs.Invalid, "the sandbox that is named is the empty text").
			WithHint("is a variable of your script unset? Leave the word out to mean the only sandbox that runs")
	}
	return nil
}

// Sandboxes resolves the Target. fits selects for --all.
func (a *App) Sandboxes(ctx context.Context, c *client.Client, t *Target, words []string, fits func(api.Sandbox) bool) ([]api.Sandbox, error) {
	if err := t.Check(words); err != nil {
		return nil, err
	}
	if t.All {
		all, err := client.All(c.Sandboxes(ctx, client.SandboxFilter{}))
		return slices.DeleteFunc(all, func(s api.Sandbox) bool { return !fits(s) }), err
	}
	names := t.Named(words)
	if len(names) == 0 {
		sb, err := a.single(ctx, c)
		return []api.Sandbox{sb}, err
	}
	var found []api.Sandbox
	for _, name := range names {
		sb, err := a.Find(ctx, c, name)
		if err != nil {
			return nil, err
		}
		found = append(found, sb)
	}
	return found, nil
}

// One resolves a Target that must be a single sandbox.
func (a *App) One(ctx context.Context, c *client.Client, t *Target, words []string) (api.Sandbox, error) {
	found, err := a.Sandboxes(ctx, c, t, words, isLive)
	if err != nil {
		return api.Sandbox{}, err
	}
	if len(found) != 1 {
		return api.Sandbox{}, errs.New(errs.Invalid, "this needs one sandbox, not %d", len(found))
	}
	a.WarnIsolation(found[0])
	return found[0], nil
}

// Find takes an id, a unique beginning of one, or a unique name.
func (a *App) Find(ctx context.Context, c *client.Client, name string) (api.Sandbox, error) {
	if name == "" { // sandboxes without a name would fit
		return api.Sandbox{}, errs.New(errs.Invalid, "the sandbox that is named is the empty text").
			WithHint("is a variable of your script unset? Leave the word out to mean the only sandbox that runs")
	}
	if _, err := sandbox.ParseID(name); err == nil {
		return c.Sandbox(name).Get(ctx)
	}
	all, err := client.All(c.Sandboxes(ctx, client.SandboxFilter{}))
	if err != nil {
		return api.Sandbox{}, err
	}
	var fits []api.Sandbox
	for _, s := range all {
		if s.Name == name || strings.HasPrefix(name, "sbx_") && len(name) > len("sbx_") && strings.HasPrefix(s.ID, name) {
			fits = append(fits, s)
		}
	}
	switch len(fits) {
	case 1:
		return fits[0], nil
	case 0:
		if _, err := c.Sandbox(name).Get(ctx); errs.Is(err, errs.Conflict) { // it is, but not here
			return api.Sandbox{}, err
		}
		return api.Sandbox{}, errs.New(errs.NotFound, "there is no sandbox %.80q", name).WithHint("`skete vm list` shows them")
	}
	return api.Sandbox{}, errs.New(errs.Invalid, "%.80q fits %d sandboxes", name, len(fits)).WithHint("use the id, or rename one: %s", described(fits))
}

// single is the default when nothing is named.
func (a *App) single(ctx context.Context, c *client.Client) (api.Sandbox, error) {
	running, err := client.All(c.Sandboxes(ctx, client.SandboxFilter{State: string(sandbox.Running)}))
	if err != nil {
		return api.Sandbox{}, err
	}
	switch len(running) {
	case 1:
		return running[0], nil
	case 0:
		return api.Sandbox{}, errs.New(errs.NotFound, "no sandbox is named and none is running").
			WithHint("`skete vm create` makes one; `skete vm list` shows all")
	}
	return api.Sandbox{}, errs.New(errs.Invalid, "no sandbox is named and %d are running", len(running)).
		WithHint("name one, or set SKETE_VM: %s", ids(running))
}

func ids(list []api.Sandbox) string {
	var names []string
	for i, s := range list {
		if i == 5 {
			names = append(names, "…")
			break
		}
		names = append(names, s.ID)
	}
	return strings.Join(names, " ")
}

// described lists sandboxes to choose from.
func described(list []api.Sandbox) string {
	var all []string
	for _, s := range list {
		text := s.ID + " (" + s.State + ")"
		if s.Name != "" {
			text = s.ID + " (" + s.Name + ", " + s.State + ")"
		}
		all = append(all, text)
	}
	if len(all) > 10 {
		all = append(all[:10], "…")
	}
	return strings.Join(all, ", ")
}

// isLive reports whether a sandbox has a machine.
func isLive(s api.Sandbox) bool { return s.State == "running" || s.State == "paused" }

// Split parts the words before -- from the argument list behind it.
func Split(cmd *cobra.Command, args []string) (words, argv []string) {
	n := cmd.ArgsLenAtDash()
	if n < 0 {
		return args, nil
	}
	return args[:n], args[n:]
}

// Complete offers ids of sandboxes; it never starts a server.
func (a *App) Complete(max int) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
		if max > 0 && len(args) >= max || a.Setup() != nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		ctx, cancel := context.WithTimeout(cmd.Context(), Short)
		defer cancel()
		c, err := a.Dial()
		if err != nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		var found []cobra.Completion
		for s, err := range c.Sandboxes(ctx, client.SandboxFilter{}) {
			if err != nil {
				break
			}
			if !slices.Contains(args, s.ID) {
				found = append(found, cobra.CompletionWithDesc(s.ID, Cell(strings.TrimSpace(s.Name+" "+s.State+" "+s.Language))))
			}
			if s.Name != "" && !slices.Contains(args, s.Name) {
				found = append(found, cobra.CompletionWithDesc(s.Name, Cell(strings.TrimSpace(s.State+" "+s.Language))))
			}
		}
		return found, cobra.ShellCompDirectiveNoFileComp
	}
}

// WithCompletion sets the completion of ids for words and --vm.
func (a *App) WithCompletion(cmd *cobra.Command, max int) *cobra.Command {
	cmd.ValidArgsFunction = a.Complete(max)
	if cmd.Flags().Lookup("vm") != nil {
		_ = cmd.RegisterFlagCompletionFunc("vm", a.Complete(0))
	}
	return cmd
}

// InOne connects and resolves a Target that must be one sandbox.
func (a *App) InOne(ctx context.Context, t *Target, words []string) (*client.Client, api.Sandbox, error) {
	if err := t.Check(words); err != nil {
		return nil, api.Sandbox{}, err
	}
	c, err := a.Connect(ctx)
	if err != nil {
		return nil, api.Sandbox{}, err
	}
	sb, err := a.One(ctx, c, t, words)
	return c, sb, err
}
