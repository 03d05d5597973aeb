package file

import (
	"cmp"
	"context"

	"github.com/skete-dev/skete/errs"
)

// runner is how a call runs code with its user's rights.
type runner struct {
	quick, slow func(context.Context, func() error) error
}

// as picks the runner for a request's user.
func (s *Service) as(user string) (runner, error) {
	switch user = cmp.Or(user, s.cfg.DefaultUser, s.cfg.User); {
	case user == s.cfg.User:
		return runner{s.threads.Quick, s.threads.Slow}, nil
	case user == "root" && s.cfg.Root && s.threads.Root():
		direct := func(_ context.Context, run func() error) error { return guarded(run) }
		return runner{direct, direct}, nil
	case user == "root" && !s.cfg.Root:
		return runner{}, errs.New(errs.Denied, "root was not granted to this sandbox")
	}
	return runner{}, errs.New(errs.Denied, "no user %.40q for files in this sandbox", user)
}
