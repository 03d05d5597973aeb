package runs

import (
	"cmp"

	"github.com/skete-dev/skete/agent/definition"
)

// AfterRun is what is to become of the run's own sandbox when it is over, by
// what its agent's definition says. A replay can be played again, so its
// sandbox goes.
func (r Run) AfterRun(said definition.AfterRun) definition.AfterRun {
	usual := definition.AfterStop
	if r.Replay != "" {
		usual, said.Sandbox = definition.AfterRemove, ""
	}
	if r.Keep {
		said.Sandbox = definition.AfterKeep
	}
	return definition.AfterRun{Sandbox: cmp.Or(said.Sandbox, usual), Wait: cmp.Or(said.Wait, definition.AfterWait)}
}
