package workshop

import (
	"context"

	"github.com/skete-dev/skete/thread"
	"github.com/skete-dev/skete/tool"
)

// Machines gives a thread its sandbox. Ids are sandbox ids.
type Machines interface {
	// Create makes the sandbox of a thread: the same key is the same sandbox.
	Create(ctx context.Context, tenant, key string, spec map[string]any) (id string, err error)
	// Open makes the machine usable (starting it if it is stopped) and returns
	// what tools act on, and what the prompt should say about it. NotFound: it
	// is gone for ever. release gives it back.
	Open(ctx context.Context, tenant, id string) (m Machine, release func(), err error)
	// Copy replaces the workspace of one sandbox by that of another. NotFound:
	// one of them is gone.
	Copy(ctx context.Context, tenant, from, to string) error
	// Restore makes the files of a sandbox what they were before the first
	// call that after chooses, by its Mark, and freezes what runs meanwhile;
	// false: no such call changed anything. Unsupported: no history is kept.
	Restore(ctx context.Context, tenant, id string, after func(Mark) bool, by string) (bool, error)
	// Destroy ends a sandbox that Create made. It may be repeated.
	Destroy(ctx context.Context, tenant, id string) error
}

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
	// Past is the history for the agent's own tools, nil = none is kept.
	Past tool.Past
	// Services are nil for machines that keep no programs running.
	Services tool.Services
}

// Wire carries live news between those who make it and those who watch,
// wherever they are. It may lose some. Publish never blocks. store.Live is one.
type Wire interface {
	Publish(tenant string, id thread.ID, data []byte)
	// Subscribe visits what is published about a thread and those beneath it
	// until cancel is called; a slow visitor loses the oldest, and is told how many.
	Subscribe(tenant string, root thread.ID, visit func(data []byte, lost int)) (cancel func(), err error)
}
