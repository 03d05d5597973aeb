package supervisor

import (
	"github.com/skete-dev/skete/agent"
	"github.com/skete-dev/skete/agent/replay"
	"github.com/skete-dev/skete/agent/runs"
	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/llm"
)

// place returns who drives a thread: a Runner here, or an agent in its machine. A run
// that only lacks its end gets it here, since an agent that should have ended it did not.
func (k *Supervisor) place(e *entry, p agent.Parts, m llm.Model) (agent.Driver, error) {
	s := p.State
	if !s.Agent.InSandbox || s.Agent.Program != nil || m.Info().Vendor == replay.Vendor || s.Next(k.c.Now()).Kind == runs.End {
		return agent.Assemble(p, m)
	}
	if k.c.Inside == nil {
		return nil, errs.New(errs.Unsupported, "this server lets no agents work in sandboxes")
	}
	return k.c.Inside(p, m, &e.paid)
}
