package app

import (
	"context"
	"strings"

	"github.com/skete-dev/skete/api"
	"github.com/skete-dev/skete/client"
	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/thread"
)

const (
	runPrefix    = "run_"
	sandboxOfRun = "run-" // begins the names of runs' own sandboxes
	runsLookMax  = 5000   // that are looked through for the beginning of an id
	runsShown    = 10     // of those that fit
)

// FindRun takes a run's id, a unique beginning of one, the name that its own
// sandbox was given, or "last" for the newest run.
func FindRun(ctx context.Context, c *client.Client, name string) (api.Run, error) {
	if name == "last" {
		for r, err := range c.Runs(ctx, client.RunFilter{PageSize: 1}) {
			return r, err
		}
		return api.Run{}, errs.New(errs.NotFound, "there is no run yet").WithHint("skete run 'TASK' starts one")
	}
	if _, err := thread.ParseRunID(name); err == nil {
		return c.Run(name).Get(ctx)
	}
	beginning, is := strings.CutPrefix(name, runPrefix)
	if !is {
		beginning, is = strings.CutPrefix(name, sandboxOfRun)
	}
	if !is || beginning == "" || strings.Trim(beginning, "abcdefghijklmnopqrstuvwxyz0123456789") != "" {
		return api.Run{}, errs.New(errs.Invalid, "%.80q is no run", name).WithHint("name it by its id, by the first characters of it, or say last: `skete runs` shows them")
	}
	var fits []api.Run
	looked := 0
	for r, err := range c.Runs(ctx, client.RunFilter{Subagents: true, PageSize: 500}) {
		if err != nil {
			return api.Run{}, err
		}
		if strings.HasPrefix(r.ID, runPrefix+beginning) {
			fits = append(fits, r)
		}
		if looked++; looked == runsLookMax {
			break
		}
	}
	switch len(fits) {
	case 1:
		return fits[0], nil
	case 0:
		return api.Run{}, errs.New(errs.NotFound, "there is no run %.80q", name).WithHint("`skete runs` shows them")
	}
	return api.Run{}, errs.New(errs.Invalid, "%.80q fits %d runs", name, len(fits)).WithHint("use more of the id: %s", describedRuns(fits))
}

// describedRuns lists runs to choose from.
func describedRuns(list []api.Run) string {
	var all []string
	for i, r := range list {
		if i == runsShown {
			all = append(all, "…")
			break
		}
		text := r.ID + " (" + r.State + ")"
		if title := []rune(Cell(r.Title)); r.Title != "" {
			text = r.ID + " (" + r.State + ", " + string(title[:min(len(title), 40)]) + ")"
		}
		all = append(all, text)
	}
	return strings.Join(all, ", ")
}
