package vm

import (
	"cmp"
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/skete-dev/skete/api"
	"github.com/skete-dev/skete/client"
	"github.com/skete-dev/skete/cmd/skete/internal/app"
	"github.com/skete-dev/skete/errs"
)

// This file is the part of `skete vm` that saves sandboxes and goes on from
// what was saved.

// forksMax is how many the server makes at once.
const forksMax = 100

// snapshotting are the commands of one run.
type snapshotting struct{ *app.App }

// snapshotCommands are those of the group `skete vm`.
func snapshotCommands(run *app.App) []*cobra.Command {
	a := snapshotting{run}
	return []*cobra.Command{a.snapshot(), a.snapshots(), a.fork()}
}

func (a snapshotting) snapshot() *cobra.Command {
	var t app.Target
	var r api.CreateSnapshot
	cmd := &cobra.Command{
		Use: "snapshot [ID]", Short: "Save a sandbox as it is, and print the snapshot's id",
		Long: `Save a sandbox as it is: the memory of all that runs in it, and its files. It
stands still for as long as that takes and then goes on; connections into it
break. ` + "`skete vm create --from`" + ` goes on from there, as often as you like.

A snapshot is a cache: where its memory does not load any more (another
version, another processor), its files are booted, and a note says so.
Use --disk-only for the files alone; that works on a stopped sandbox too.`,
		Example: `  skete vm snapshot ID --name ready
  skete vm snapshot ID --disk-only
  skete vm create --from $(skete vm snapshot -q ID)`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := a.Connect(cmd.Context())
			if err != nil {
				return err
			}
			sb, err := a.One(cmd.Context(), c, &t, args)
			if err != nil {
				return err
			}
			snap, err := c.Sandbox(sb.ID).Snapshot(cmd.Context(), r)
			if err != nil {
				return err
			}
			if a.JSON {
				return app.PrintJSON(a.Out, snap)
			}
			_, err = fmt.Fprintln(a.Out, snap.ID)
			return err
		},
	}
	t.Flags(cmd, false)
	cmd.Flags().StringVar(&r.Name, "name", "", "name for people")
	cmd.Flags().BoolVar(&r.DiskOnly, "disk-only", false, "the files alone, without the memory")
	return a.WithCompletion(cmd, 1)
}

func (a snapshotting) snapshots() *cobra.Command {
	cmd := &cobra.Command{
		Use: "snapshots", Short: "List snapshots, newest first",
		Example: `  skete vm snapshots
  skete vm snapshots --json
  skete vm snapshots rm SNAPSHOT`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := a.Connect(cmd.Context())
			if err != nil {
				return err
			}
			items, err := c.Snapshots(cmd.Context())
			if err != nil {
				return err
			}
			return app.List(a.App, items, func(s api.Snapshot) string { return s.ID },
				[]string{"ID", "NAME", "SANDBOX", "HOLDS", "PROVIDER", "MEM", "SIZE", "AGE"}, snapshotRow)
		},
	}
	cmd.AddCommand(a.remove())
	return cmd
}

func snapshotRow(s api.Snapshot) []string {
	holds := "files"
	if s.Memory {
		holds = "memory, files"
	}
	return []string{s.ID, s.Name, s.Sandbox, holds, s.Provider, fmt.Sprint(s.MemoryMB), app.BytesText(s.Bytes), app.Age(s.CreatedAt)}
}

func (a snapshotting) remove() *cobra.Command {
	return &cobra.Command{
		Use: "rm SNAPSHOT…", Short: "Delete snapshots",
		Long: `Delete snapshots by id or name. Sandboxes that were made from one go on; what
they need of its files goes with the last of them.`,
		Example: `  skete vm snapshots rm snp_k3j5…
  skete vm snapshots rm ready`,
		Args: cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := a.Connect(cmd.Context())
			if err != nil {
				return err
			}
			for _, name := range args {
				id, err := snapshotNamed(cmd.Context(), c, name)
				if err != nil {
					return err
				}
				if err := c.DeleteSnapshot(cmd.Context(), id); err != nil {
					return err
				}
				if _, err := fmt.Fprintln(a.Out, id); err != nil {
					return err
				}
			}
			return nil
		},
	}
}

// snapshotNamed takes an id, or the name of a single snapshot.
func snapshotNamed(ctx context.Context, c *client.Client, name string) (string, error) {
	if strings.HasPrefix(name, "snp_") {
		return name, nil
	}
	all, err := c.Snapshots(ctx)
	if err != nil {
		return "", err
	}
	var fits []string
	for _, s := range all {
		if s.Name == name {
			fits = append(fits, s.ID)
		}
	}
	switch len(fits) {
	case 1:
		return fits[0], nil
	case 0:
		return "", errs.New(errs.NotFound, "there is no snapshot %.80q", name).WithHint("`skete vm snapshots` shows them")
	}
	return "", errs.New(errs.Invalid, "%.80q fits %d snapshots", name, len(fits)).WithHint("use the id: %s", strings.Join(fits, ", "))
}

func (a snapshotting) fork() *cobra.Command {
	var t app.Target
	var r api.ForkSandbox
	var ttl, idle string
	var env, meta []string
	cmd := &cobra.Command{
		Use: "fork [ID]", Short: "Make sandboxes that go on from where one is, and print their ids",
		Long: `Make sandboxes that go on from where this one is: what runs in it runs in each
of them too, with the same memory and the same files, and then goes its own way.
Each has its own name, its own randomness and the right time. The environment
that was given to the original is not taken over; give --env.`,
		Example: `  skete vm fork ID --count 3
  skete vm fork ID --name try --env TOKEN=x
  skete vm fork ID --disk-only`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if r.Count < 1 || r.Count > forksMax {
				return errs.New(errs.Invalid, "--count: 1 to %d, got %d", forksMax, r.Count)
			}
			if err := forkFlags(&r, ttl, idle, env, meta); err != nil {
				return err
			}
			r.Ephemeral = cmd.Flags().Changed("persist") && !r.Persist
			c, err := a.Connect(cmd.Context())
			if err != nil {
				return err
			}
			sb, err := a.One(cmd.Context(), c, &t, args)
			if err != nil {
				return err
			}
			told := a.TellTurns(cmd.Context(), c)
			made, err := c.Sandbox(sb.ID).Fork(cmd.Context(), r)
			told()
			if err != nil {
				return err
			}
			for _, s := range made {
				for _, n := range s.Notes {
					a.Note("note: %s: %s", s.ID, app.Printable(n))
				}
			}
			if a.JSON {
				return app.PrintJSON(a.Out, made)
			}
			for _, s := range made {
				if _, err := fmt.Fprintln(a.Out, s.ID); err != nil {
					return err
				}
			}
			return nil
		},
	}
	t.Flags(cmd, false)
	fs := cmd.Flags()
	fs.IntVar(&r.Count, "count", 1, "how many, at most 100")
	fs.BoolVar(&r.DiskOnly, "disk-only", false, "copy the files alone and boot: nothing goes on")
	fs.StringVar(&r.Name, "name", "", "a name that no other sandbox has; with --count NAME-1, NAME-2, …")
	fs.StringArrayVarP(&env, "env", "e", nil, "environment `K=V` of their commands (may be repeated)")
	fs.StringArrayVar(&meta, "meta", nil, "metadata `k=v` (may be repeated)")
	fs.StringVar(&ttl, "ttl", "", "end them after this long: 90, 5m, 2h (default the original's)")
	fs.StringVar(&idle, "idle", "", "pause them after this long without use (default the original's)")
	fs.BoolVar(&r.Persist, "persist", false, "expiry stops them and keeps their workspaces (default as the original); =false removes them")
	return a.WithCompletion(cmd, 1)
}

// forkFlags puts what needs parsing into the request.
func forkFlags(r *api.ForkSandbox, ttl, idle string, env, meta []string) error {
	var errEnv, errMeta, errTTL, errIdle error
	r.Env, errEnv = app.Environment(env)
	r.Metadata, errMeta = app.Pairs("meta", meta)
	r.TTLMS, errTTL = app.Milliseconds("ttl", ttl)
	r.IdleTimeoutMS, errIdle = app.Milliseconds("idle", idle)
	return cmp.Or(errEnv, errMeta, errTTL, errIdle)
}
