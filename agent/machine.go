package agent

import (
	"context"
	"net"
	"time"

	"github.com/skete-dev/skete/thread"
	"github.com/skete-dev/skete/tool"
)

// Machine is what tools act on.
type Machine struct {
	Files    tool.Files
	Commands tool.Commands
	// Boot changes when the machine was started anew: what ran before is gone.
	Boot string
	Dir  string // where commands run
	Note string // for the prompt: isolation, languages, network
	// Revise makes a revision of the files, unless nothing changed since the
	// last one; nil = no history is kept. Unsupported: the same.
	Revise func(context.Context, Mark) error
	// Call says that a call begins that may write: until done is called, revisions are
	// made by Revise, and none because it is quiet for a moment. nil = none ever is.
	Call func(context.Context) (done func())
	// Past is the history for the agent's own tools, nil = none is kept.
	Past tool.Past
	// Mount makes an absolute directory hold what a tar does, and nothing else. No program of
	// the machine's user can change it. nil = that cannot be, and there are no skills.
	Mount func(ctx context.Context, dir string, tar []byte) error
	// Services are nil for machines that keep no programs running.
	Services tool.Services
	// Inside opens a connection to a new agent in the machine (package agent/inside),
	// which ends with it; nil = there can be none.
	Inside func(context.Context) (net.Conn, error)
}

// Driver brings a thread on: a Runner here, or one in the thread's machine.
type Driver interface {
	// Run is as Runner.Run.
	Run(ctx context.Context) (Outcome, error)
	// Notify is as Runner.Notify: it does not block.
	Notify()
}

// Mark says between which moments of a thread a revision of its files lies.
type Mark struct {
	Thread thread.ID
	Run    thread.RunID
	Step   int    // of the run, from 1; 0 = before the first
	Call   string // "" = none: a user's turn begins
	Actor  string // "agent", "user", or "outside": what was found before a call
	Text   string
	// Time is when a revision was made, by a clock that may be set; zero: it is
	// not made yet.
	Time time.Time
}
