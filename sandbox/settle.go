package sandbox

import (
	"cmp"

	"github.com/skete-dev/skete/egress"
	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/template"
)

// Fits says what of a spec a provider with these capabilities cannot keep.
// Unsupported: a bound that was asked for would not hold.
func (s Spec) Fits(c Capabilities) error {
	if (s.DiskMBps > 0 || s.DiskIOPS > 0) && !c.LimitsDiskRate {
		return errs.New(errs.Unsupported, "the sandbox's provider cannot bound how fast its disks are").
			WithHint("leave these bounds out, or ask for a provider that boots machines with disks of their own (firecracker, qemu)")
	}
	if s.HasNetwork() && !c.Network {
		return errs.New(errs.Unsupported, "the sandbox's provider gives machines no network").
			WithHint("leave the network out, or ask for a provider that isolates")
	}
	return nil
}

// Settled fills in what depends on the provider: without a template, a machine
// that can see the host's programs gets them. One with a root image cannot,
// and gets the ready template of its language, or debian. One that can have a network
// gets that of d.
//
// The request of a create is the spec before this, so that a repetition of it
// is recognised whichever provider was chosen.
func (s Spec) Settled(c Capabilities, d Defaults) Spec {
	switch {
	case s.Template != "":
	case !c.RootImage:
		s.Template = template.HostName
	case s.Language != "":
		s.Template = s.Language
	default:
		s.Template = template.DebianName
	}
	if s.Network == "" {
		s.Network = egress.None
		if c.Network {
			s.Network = cmp.Or(d.Network, egress.None)
		}
	}
	return s
}
