package network

import (
	"context"
	"sync"
	"time"

	"github.com/skete-dev/skete/egress"
	"github.com/skete-dev/skete/sandbox"
)

// Stage is how much of where packages are is known.
type Stage int

// Stages of a set of registries.
const (
	// Asked: what the host's package managers are configured for, and so all that
	// machines are given.
	Asked Stage = iota + 1
	// Followed: at which hosts the registries' files are, too.
	Followed
)

// Bounds of how long is waited for a stage, from New on. They count where a package manager
// hangs: what cannot be found out is said at once. On an idle host the first stage takes
// two seconds, on a busy one ten; a machine that does not wait has no mirrors as long as it
// runs.
const (
	askedMax    = 20 * time.Second
	followedMax = 30 * time.Second
)

// gate lets nothing pass until it is open. It opens by itself when its time is over.
type gate struct {
	opened chan struct{}
	open   func() // may be repeated
}

func newGate(most time.Duration) gate {
	g := gate{opened: make(chan struct{})}
	once := sync.OnceFunc(func() { close(g.opened) })
	timer := time.AfterFunc(most, once)
	g.open = func() {
		timer.Stop()
		once()
	}
	return g
}

func (g gate) isOpen() bool {
	select {
	case <-g.opened:
		return true
	default:
		return false
	}
}

// known opens the gates up to a stage.
func (s *Service) known(stage Stage) {
	s.asked.open()
	if stage == Followed {
		s.followed.open()
	}
}

// awaitMirrors returns when it is known what machines with a profile are given. Those
// with none, which reach no mirror unless a rule names it, do not wait.
func (s *Service) awaitMirrors(ctx context.Context, profile string) {
	if profile != egress.Default && profile != egress.Open {
		return
	}
	select {
	case <-s.asked.opened:
	case <-ctx.Done():
	}
}

// awaitsRules returns what is closed when the profile default of a machine may allow
// more than now; nil = it will not soon.
func (s *Service) awaitsRules(host sandbox.ID) <-chan struct{} {
	if s.followed.isOpen() {
		return nil
	}
	if owner, ok := s.c.Find(host); !ok || owner.Policy.Profile != egress.Default {
		return nil
	}
	if s.asked.isOpen() {
		return s.followed.opened
	}
	return s.asked.opened
}
