package template

import (
	"context"
	"strings"

	"github.com/skete-dev/skete/errs"
)

// StepPrefix begins the names of templates that are steps of a build, kept for
// the next one. They are not listed.
const StepPrefix = "step."

// Step reports whether a template of this name is a step of a build.
func Step(name string) bool { return strings.HasPrefix(name, StepPrefix) }

// Alias gives a template a second name; one of that name is replaced, for
// sandboxes that start from then on.
func (s *Store) Alias(_ context.Context, name, second string) (Info, error) {
	if err := checkName(second); err != nil {
		return Info{}, err
	}
	if name == HostName || second == HostName {
		return Info{}, errs.New(errs.Invalid, "the template host has one name, and nothing else has it")
	}
	s.mu.Lock() // a sweep must not come between
	defer s.mu.Unlock()
	r, err := s.record(name)
	if err != nil {
		return Info{}, err
	}
	return r.info(second), s.writeRecord(second, r)
}
