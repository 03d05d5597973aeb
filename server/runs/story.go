package runs

import (
	"context"

	"github.com/skete-dev/skete/api"
	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/server/transcript"
	"github.com/skete-dev/skete/thread"
)

// Stories shows runs to packages that have decided themselves who may see them. Safe for
// concurrent use.
type Stories struct{ k Supervisor }

// NewStories returns the stories of a Supervisor's runs; nil = there are none.
func NewStories(k Supervisor) Stories { return Stories{k} }

// Run returns a run of a tenant. NotFound: there is none.
func (s Stories) Run(ctx context.Context, tenant string, id thread.RunID) (api.Run, error) {
	if s.k == nil {
		return api.Run{}, errs.New(errs.Unsupported, "this server runs no agents")
	}
	r, err := s.k.Get(ctx, tenant, id)
	return View(r), err
}

// Story returns the run and the last steps of its transcript, those before a step or, 0, up to now.
func (s Stories) Story(ctx context.Context, tenant string, id thread.RunID, last, before int) (api.Run, api.Transcript, error) {
	if s.k == nil {
		return api.Run{}, api.Transcript{}, errs.New(errs.Unsupported, "this server runs no agents")
	}
	r, err := s.k.Get(ctx, tenant, id)
	if err != nil {
		return api.Run{}, api.Transcript{}, err
	}
	fold, err := found{s.k, tenant, r}.fold(ctx)
	if err != nil {
		return api.Run{}, api.Transcript{}, err
	}
	return View(r), transcript.Page(fold.Transcript(), last, before), nil
}
