package sandbox

import "github.com/skete-dev/skete/template"

// Settled fills in what depends on the provider: without a template, a machine
// that can see the host's programs gets them. One with a root image cannot,
// and gets the ready template of its language, or debian.
//
// The request of a create is the spec before this, so that a repetition of it
// is recognised whichever provider was chosen.
func (s Spec) Settled(c Capabilities) Spec {
	switch {
	case s.Template != "":
	case !c.RootImage:
		s.Template = template.HostName
	case s.Language != "":
		s.Template = s.Language
	default:
		s.Template = template.DebianName
	}
	return s
}
