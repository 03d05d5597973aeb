package runner

import (
	"cmp"
	"context"
	"slices"

	"github.com/skete-dev/skete/cowork"
	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/internal/clip"
	"github.com/skete-dev/skete/thread"
)

// Get returns a run.
func (r *Runner) Get(ctx context.Context, tenant string, id ID) (Run, error) {
	run, _, err := r.find(ctx, tenant, id)
	return run, err
}

// List returns at most so many of a tenant's runs, the newest first, from the one behind after
// on; more reports whether there are others.
func (r *Runner) List(ctx context.Context, tenant, after string, most int) (list []Run, more bool, err error) {
	err = r.c.Records.List(ctx, runPrefix+tenant+"/", func(_ string, value []byte, _ uint64) error {
		if run, err := parseRecord(value); err == nil {
			list = append(list, run)
		}
		return nil
	})
	if err != nil {
		return nil, false, err
	}
	slices.SortFunc(list, func(a, b Run) int { return cmp.Or(b.Created.Compare(a.Created), cmp.Compare(a.ID, b.ID)) })
	if after != "" {
		at := slices.IndexFunc(list, func(run Run) bool { return string(run.ID) == after })
		list = list[at+1:]
	}
	if len(list) > most {
		return list[:most], true, nil
	}
	return list, false, nil
}

// State returns a run with its state as the log has it, which the caller may keep.
func (r *Runner) State(ctx context.Context, tenant string, id ID) (Run, *cowork.State, error) {
	run, _, err := r.find(ctx, tenant, id)
	if err != nil {
		return run, nil, err
	}
	log, blobs, err := r.logOf(ctx, tenant)
	if err != nil {
		return run, nil, err
	}
	s, err := load(ctx, log, blobs, id)
	return run, s, err
}

// Working is what an attempt works with that is under way.
type Working struct {
	Run            thread.RunID
	Model, Sandbox string
}

// NodeRun returns the run of an attempt that is under way; false: there is none yet.
func (r *Runner) NodeRun(ctx context.Context, tenant string, id ID, a thread.Attempt) (Working, bool) {
	run, err := r.c.Runs.Get(ctx, tenant, runOf(tenant, id, a))
	return Working{run.ID, run.Model, run.Sandbox}, err == nil
}

func (r *Runner) logOf(ctx context.Context, tenant string) (thread.Log, thread.Blobs, error) {
	log, err := r.c.Threads.Log(ctx, tenant)
	if err != nil {
		return nil, nil, err
	}
	blobs, err := r.c.Threads.Blobs(ctx, tenant)
	return log, blobs, err
}

// Cancel asks a run to end, with all that is under way in it. One that is over stays as it is.
func (r *Runner) Cancel(ctx context.Context, tenant string, id ID, by, reason string) (Run, error) {
	return r.external(ctx, tenant, id, func(s *cowork.State) (thread.Body, error) {
		if s.Ended != nil || s.Cancel != nil {
			return nil, nil
		}
		return thread.WorkflowCancelled{By: by, Reason: clip.Text(reason, textMax)}, nil
	})
}

// Answer says what a person chose whom a node asks. NotFound: it asks nothing. Invalid: that
// cannot be chosen.
func (r *Runner) Answer(ctx context.Context, tenant string, id ID, node, choice, text, by string) (Run, error) {
	return r.external(ctx, tenant, id, func(s *cowork.State) (thread.Body, error) {
		return s.Answer(node, choice, text, by)
	})
}

// external appends an event that does not come from the driver, and lets the driver know.
func (r *Runner) external(ctx context.Context, tenant string, id ID, look func(*cowork.State) (thread.Body, error)) (Run, error) {
	run, err := r.ours(ctx, tenant, id)
	if err != nil {
		return run, err
	}
	log, blobs, err := r.logOf(ctx, tenant)
	if err != nil {
		return run, err
	}
	for range 20 {
		s, err := load(ctx, log, blobs, id)
		if err != nil {
			return run, err
		}
		body, err := look(s)
		if err != nil || body == nil {
			return run, err
		}
		err = appendSurely(ctx, log, id.Thread(), s.Seq, []thread.Event{thread.New("", body)})
		if errs.Is(err, errs.Conflict) {
			continue
		}
		if err == nil {
			r.wake(run)
		}
		return run, err
	}
	return run, errs.New(errs.Unavailable, "%s moves too fast to be written to", id)
}

// Wait returns when the log of a run has an event behind seq, or the run is over, or ctx ends.
func (r *Runner) Wait(ctx context.Context, tenant string, id ID, seq uint64) error {
	run, err := r.Get(ctx, tenant, id)
	if err != nil || run.State.Final() {
		return err
	}
	log, err := r.c.Threads.Log(ctx, tenant)
	if err != nil {
		return err
	}
	for _, err := range log.Watch(ctx, id.Thread(), seq+1) {
		return err
	}
	return nil
}
