// Package runs serves runs of agents: it starts and steers them, shows what
// they did, streams what they do, takes people's decisions, and keeps the
// schedules that start them at times.
//
//	runs.Register(table, runs.Config{Supervisor: supervisor, Schedules: scheduler, Hub: hub})
//
// Whatever it shows is read from the log of the run's thread, within the
// caller's tenant; a foreign run looks like one that does not exist. Without a
// Supervisor the routes are there and answer Unsupported. All handlers are safe
// for concurrent use; a stream holds up no writer and no other stream (follow.go).
package runs

import (
	"cmp"
	"context"
	"net/http"
	"time"

	"github.com/skete-dev/skete/agent/definition"
	"github.com/skete-dev/skete/agent/runs"
	"github.com/skete-dev/skete/api"
	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/server/auth"
	"github.com/skete-dev/skete/server/key"
	"github.com/skete-dev/skete/server/route"
	"github.com/skete-dev/skete/server/stream"
	"github.com/skete-dev/skete/thread"
)

// Supervisor is what is needed of *supervisor.Supervisor. Everything happens within a
// tenant: what is another's is NotFound.
type Supervisor interface {
	// Start begins a run. Conflict: its thread has one that is not over.
	Start(ctx context.Context, tenant string, s runs.Start) (runs.Run, error)
	Get(ctx context.Context, tenant string, id thread.RunID) (runs.Run, error)
	List(ctx context.Context, tenant string, f runs.Filter) (runs.Page, error)
	// Send queues an input into a live run. Conflict: the run is over.
	Send(ctx context.Context, tenant string, id thread.RunID, in thread.Input) (seq uint64, err error)
	// Approvals are those of the run and the sub-agents beneath it; "" = of the tenant.
	Approvals(ctx context.Context, tenant string, id thread.RunID) ([]runs.Approval, error)
	// Decide answers approvals. Conflict: decided already, or expired.
	Decide(ctx context.Context, tenant string, id thread.RunID, d []runs.Decide) error
	// Cancel ends a run; on one that is over it changes nothing.
	Cancel(ctx context.Context, tenant string, id thread.RunID, by, reason string) (runs.Run, error)
	// Resume goes on with a run that a budget or a failure ended.
	Resume(ctx context.Context, tenant string, id thread.RunID, b thread.Budget, by string) (runs.Run, error)
	Fork(ctx context.Context, tenant string, id thread.RunID, at uint64, s runs.Start) (runs.Run, error)
	// Compact asks for a shorter conversation before the next model call.
	Compact(ctx context.Context, tenant string, id thread.RunID, focus, by string) (runs.Run, error)
	Rewind(ctx context.Context, tenant string, id thread.RunID, to uint64, files bool, by string) ([]runs.Change, error)
	Replay(ctx context.Context, tenant string, id thread.RunID, keep bool, by string) (runs.Run, error)
	// Compare says where two runs differ; the report is shown as JSON.
	Compare(ctx context.Context, tenant string, a, b thread.RunID) (report any, err error)
	// Delete forgets a thread and those beneath it. Conflict: a run is going on.
	Delete(ctx context.Context, tenant string, id thread.ID) error
	Log(ctx context.Context, tenant string) (thread.Log, error)
	Blobs(ctx context.Context, tenant string) (thread.Blobs, error)
	// Watch visits live news, JSON of runs.Live, of a thread and those beneath
	// it until cancel is called. visit does not block.
	Watch(tenant string, root thread.ID, visit func(data []byte, lost int)) (cancel func(), err error)
	Agents(ctx context.Context) ([]definition.Entry, error)
	Commands(ctx context.Context) ([]definition.CommandEntry, error)
	// Agent returns a definition as a run would get it: resolved. NotFound.
	Agent(ctx context.Context, name string) (definition.Definition, error)
}

// Config of the routes.
type Config struct {
	Supervisor Supervisor // nil = this server runs no agents
	Schedules  Schedules  // nil = the same
	Hub        *stream.Hub
	// Tools are the names of all tools, against which agent files are checked; nil = no check.
	Tools []string
	// Covers is as in definition.Checker.
	Covers func(name string) bool
	// HeartbeatEvery is how often a stream says that it lives; 0 = HeartbeatEvery, and
	// SocketHeartbeatEvery for a WebSocket.
	HeartbeatEvery time.Duration
	// Events opens what happens to the sandboxes, workspaces and runs of a tenant, from a
	// number on, 0 = from now on. nil = this server tells of none.
	Events func(ctx context.Context, tenant string, from uint64) (Events, error)
}

// Events are the domain events of a tenant. What opened them ends with its context.
type Events struct {
	From uint64 // the number of the first that can come
	// Next waits for the next event; shown is nil if it cannot be shown.
	Next func(ctx context.Context) (seq uint64, shown *api.Event, err error)
}

type service struct {
	k         Supervisor
	schedules Schedules
	hub       *stream.Hub
	tools     definition.Checker
	beat      time.Duration
	pulse     time.Duration // beat of a WebSocket
	events    func(ctx context.Context, tenant string, from uint64) (Events, error)
	// sandboxOf finds the id of a sandbox that a body names.
	sandboxOf func(ctx context.Context, name string) (id string, err error)
}

// Register adds the routes to the table.
func Register(t *route.Table, c Config) {
	s := &service{
		k: c.Supervisor, schedules: c.Schedules, hub: c.Hub, tools: definition.Checker{Tools: c.Tools, Covers: c.Covers}, beat: cmp.Or(c.HeartbeatEvery, HeartbeatEvery), sandboxOf: t.SandboxOf,
		pulse: cmp.Or(c.HeartbeatEvery, SocketHeartbeatEvery), events: c.Events,
	}
	s.registerRuns(t)
	s.registerDecisions(t)
	s.registerStory(t)
	s.registerStreams(t)
	s.registerUsage(t)
	s.registerAgents(t)
	s.registerSchedules(t)
}

// RunPath names a run. It is exported because the JSON layer looks only into
// exported embedded fields.
type RunPath struct {
	ID string `path:"id" maxLength:"64" doc:"of the run, run_…"`
}

// supervisor returns the Supervisor, and the caller's tenant.
func (s *service) supervisor(ctx context.Context) (Supervisor, string, error) {
	if s.k == nil {
		return nil, "", errs.New(errs.Unsupported, "this server runs no agents")
	}
	return s.k, auth.From(ctx).Tenant, nil
}

// found is a run that the caller may see.
type found struct {
	Supervisor
	tenant string
	run    runs.Run
}

// find looks a run up.
func (s *service) find(ctx context.Context, id string) (found, error) {
	k, tenant, err := s.supervisor(ctx)
	if err != nil {
		return found{}, err
	}
	rid, err := thread.ParseRunID(id)
	if err != nil {
		return found{}, err
	}
	run, err := k.Get(ctx, tenant, rid)
	return found{k, tenant, run}, err
}

// operator reports whether the caller may do what the server's own user may.
func operator(ctx context.Context) bool {
	who := auth.From(ctx)
	return who.Local || who.Scopes.Allow(key.Admin)
}

func by(ctx context.Context) string { return auth.From(ctx).Owner }

func (s *service) registerRuns(t *route.Table) {
	const tag, base = "runs", "/v1/runs"
	post := func(path, id, summary string, status int) route.Operation {
		return route.Operation{Method: http.MethodPost, Path: base + path, Scope: key.RunsWrite, ID: id, Tag: tag, Summary: summary, Status: status}
	}
	get := func(path, id, summary string) route.Operation {
		return route.Operation{Method: http.MethodGet, Path: base + path, Scope: key.RunsRead, ID: id, Tag: tag, Summary: summary}
	}
	withImages := func(o route.Operation) route.Operation {
		o.BodyBytesMax = imagesBodyMax
		return o
	}
	route.JSON(t, withImages(post("", "start-run", "Start a run of an agent", http.StatusCreated)), s.startRun)
	route.JSON(t, get("", "list-runs", "List runs, newest first"), s.listRuns)
	route.JSON(t, get("/{id}", "get-run", "Get a run as it is now"), s.getRun)
	route.JSON(t, withImages(post("/{id}/send", "send-to-run", "Send a message: to the run, or to a new one on its thread when it is over", 0)), s.sendRun)
	route.JSON(t, post("/{id}/cancel", "cancel-run", "End a run, and what it started", 0), s.cancelRun)
	route.JSON(t, post("/{id}/resume", "resume-run", "Go on with a run that a budget or a failure ended", 0), s.resumeRun)
	route.JSON(t, post("/{id}/compact", "compact-run", "Replace the conversation so far by a summary, before the next model call", 0), s.compactRun)
	route.JSON(t, post("/{id}/fork", "fork-run", "Start a thread that begins as a copy of this one's first events", http.StatusCreated), s.forkRun)
	route.JSON(t, post("/{id}/rewind", "rewind-run", "Take the conversation back to an event", 0), s.rewindRun)
	route.JSON(t, post("/{id}/replay", "replay-run", "Play the run's model answers again against a fresh sandbox", http.StatusCreated), s.replayRun)
	route.JSON(t, get("/{id}/compare", "compare-runs", "Say where two runs differ"), s.compareRuns)
	route.JSON(t, route.Operation{
		Method: http.MethodDelete, Path: "/v1/threads/{id}", Scope: key.RunsWrite, ID: "delete-thread", Tag: tag,
		Summary: "Forget a conversation: its log, and those of its sub-agents",
	}, s.deleteThread)
}
