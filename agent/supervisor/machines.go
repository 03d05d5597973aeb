package supervisor

import (
	"context"

	"github.com/skete-dev/skete/agent"
	"github.com/skete-dev/skete/agent/definition"
	"github.com/skete-dev/skete/agent/runs"
	"github.com/skete-dev/skete/thread"
)

// Machines gives a thread its sandbox. Ids are sandbox ids.
type Machines interface {
	// Check refuses a spec of which no sandbox can be made here.
	Check(spec map[string]any) error
	// Create makes the sandbox of a thread, for a run of it by an agent, which enters
	// it: the same key is the same sandbox.
	Create(ctx context.Context, tenant, key string, run thread.RunID, agent string, spec map[string]any) (id string, err error)
	// Enter says that a run of an agent works in a sandbox; own: in the one of its thread. It
	// may be repeated. NotFound: it is gone for ever.
	Enter(ctx context.Context, tenant, id string, run thread.RunID, agent string, own bool) error
	// Leave says that a run is over, and what is to become of the sandbox that was
	// made for it or its thread, if no other run is in it. It may be repeated.
	Leave(ctx context.Context, tenant string, run thread.RunID, then definition.AfterRun) error
	// Entered visits the runs that have entered sandboxes and not left them.
	Entered(visit func(tenant string, run thread.RunID))
	// Open makes the machine usable (starting it if it is stopped) and returns
	// what tools act on, and what the prompt should say about it. NotFound: it
	// is gone for ever. release gives it back.
	Open(ctx context.Context, tenant, id string) (m agent.Machine, release func(), err error)
	// Copy puts the workspace of one sandbox into a new one: as it was before the
	// first call that is Later, or else in the last revision that is Earlier, by
	// the history of the first; as it is now, if none is either. Nothing of it is
	// copied with NotFound (a sandbox is gone, or that revision is not kept any
	// more, or may not be) and Unsupported (no history is kept).
	Copy(ctx context.Context, tenant, from, to string, when func(agent.Mark) When) error
	// CopyNow is Copy of the files as they are.
	CopyNow(ctx context.Context, tenant, from, to string) error
	// Restore makes the files of a sandbox what they were before the first
	// call that is Later, and freezes what runs meanwhile. It returns what that
	// changed; nothing: no such call changed anything. NotFound: that is not kept
	// any more. Unsupported: no history is kept.
	Restore(ctx context.Context, tenant, id string, when func(agent.Mark) When, by string) ([]runs.Change, error)
	// Destroy ends a sandbox that Create made. It may be repeated.
	Destroy(ctx context.Context, tenant, id string) error
}

// When says where a revision lies, seen from an event of a thread.
type When int

// A call that began up to the event is Earlier, one that began after it is
// Later. What is of no call of the thread goes by the time: Earlier up to the
// event, Between after it and before any call that is Later, else Elsewhere.
const (
	Elsewhere When = iota
	Earlier
	Between
	Later
)

// Wire carries live news between those who make it and those who watch,
// wherever they are. It may lose some. Publish never blocks. store.Live is one.
type Wire interface {
	Publish(tenant string, id thread.ID, data []byte)
	// Keep calls recap for each visitor that comes to the thread or one above it. recap calls
	// join once, with what is on its way already; what this server publishes about the thread goes
	// to that visitor from then on. cancel may be repeated.
	Keep(tenant string, id thread.ID, recap func(join func(pieces [][]byte))) (cancel func())
	// Subscribe visits what is published about a thread and those beneath it
	// until cancel is called; a slow visitor loses the oldest, and is told how many.
	Subscribe(tenant string, root thread.ID, visit func(data []byte, lost int)) (cancel func(), err error)
}
