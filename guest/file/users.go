package file

import (
	"cmp"
	"context"
	"slices"
	"strings"

	"github.com/skete-dev/skete/errs"
)

// runner is how a call runs code with its user's rights.
type runner struct {
	quick, slow func(context.Context, func() error) error
}

// direct runs code with the process's own rights.
var direct = runner{plainly, plainly}

func plainly(_ context.Context, run func() error) error { return guarded(run) }

// hostDirs are where the host puts skills and plug-ins. They are root's, so that no program of
// the user can change them, or put a link in the way.
var hostDirs = []string{"/skills", "/plugins"}

// ofHost reports whether a path is of what the host puts there, which is written as root also
// where commands may not ask for root.
func (s *Service) ofHost(name string) bool {
	return s.threads.Root() && slices.ContainsFunc(hostDirs, func(dir string) bool { return name == dir || strings.HasPrefix(name, dir+"/") })
}

// as picks the runner for a request's user.
func (s *Service) as(user string) (runner, error) {
	switch user = cmp.Or(user, s.cfg.DefaultUser, s.cfg.User); {
	case user == s.cfg.User:
		return runner{s.threads.Quick, s.threads.Slow}, nil
	case user == "root" && s.cfg.Root && s.threads.Root():
		return direct, nil
	case user == "root" && !s.cfg.Root:
		return runner{}, errs.New(errs.Denied, "root was not granted to this sandbox")
	}
	return runner{}, errs.New(errs.Denied, "no user %.40q for files in this sandbox", user)
}
