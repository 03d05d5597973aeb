package supervisor

import (
	"context"
	"time"

	"github.com/skete-dev/skete/agent/definition"
	"github.com/skete-dev/skete/llm"
	"github.com/skete-dev/skete/thread"
)

// This file holds what the Supervisor needs from the rest of the house.

// Threads finds a tenant's logs and blobs. store.Threads is one.
type Threads interface {
	Log(ctx context.Context, tenant string) (thread.Log, error)
	Blobs(ctx context.Context, tenant string) (thread.Blobs, error)
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

// Definitions finds agents by name. definition.Set is one.
type Definitions interface {
	// Resolve returns an agent with its sub-agents, whole. NotFound.
	Resolve(name string) (definition.Definition, error)
	// Complete does the same for a definition that is not in the set.
	Complete(d definition.Definition) (definition.Definition, error)
	List() []definition.Entry
}
