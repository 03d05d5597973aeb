package keeper

import (
	"context"
	"time"

	"github.com/skete-dev/skete/agent/definition"
	"github.com/skete-dev/skete/llm"
	"github.com/skete-dev/skete/thread"
	"github.com/skete-dev/skete/tool"
)

// This file holds what the Keeper needs from the rest of the house.

// Threads finds a tenant's logs and blobs. store.Threads is one.
type Threads interface {
	Log(ctx context.Context, tenant string) (thread.Log, error)
	Blobs(ctx context.Context, tenant string) (thread.Blobs, error)
}

// Registry keeps run records durably, like sandbox.Registry. store.KV is one.
type Registry interface {
	Create(ctx context.Context, key string, value []byte) (revision uint64, err error)
	Get(ctx context.Context, key string) (value []byte, revision uint64, err error)
	Update(ctx context.Context, key string, value []byte, revision uint64) (uint64, error)
	Delete(ctx context.Context, key string, revision uint64) error
	List(ctx context.Context, prefix string, visit func(key string, value []byte, revision uint64) error) error
}

// Leases keep two servers from driving the same thread, like sandbox.Leases.
// They save work; the log's fence is what makes it correct.
type Leases interface {
	Hold(ctx context.Context, key, holder string, ttl time.Duration) (lost <-chan struct{}, release func(context.Context) error, err error)
}

// Models opens models by name. llm/catalog is one.
type Models interface {
	// Open returns the model of a name, or the server's choice for "".
	// NotFound: no such name. Unsupported: no model can be reached; the hint
	// says what to do.
	Open(ctx context.Context, name string) (llm.Model, error)
}

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
}

// Definitions finds agents by name. definition.Set is one.
type Definitions interface {
	// Resolve returns an agent with its sub-agents, whole. NotFound.
	Resolve(name string) (definition.Definition, error)
	// Complete does the same for a definition that is not in the set.
	Complete(d definition.Definition) (definition.Definition, error)
	List() []definition.Entry
}

// Wire carries live news between those who make it and those who watch,
// wherever they are. It may lose some. Publish never blocks. store.Live is one.
type Wire interface {
	Publish(tenant string, id thread.ID, data []byte)
	// Subscribe visits what is published about a thread and those beneath it
	// until cancel is called; a slow visitor loses the oldest, and is told how many.
	Subscribe(tenant string, root thread.ID, visit func(data []byte, lost int)) (cancel func(), err error)
}
