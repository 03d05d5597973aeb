package serve

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"connectrpc.com/connect"

	"github.com/skete-dev/skete/agent"
	"github.com/skete-dev/skete/agent/definition"
	"github.com/skete-dev/skete/agent/inside"
	"github.com/skete-dev/skete/agent/plan"
	"github.com/skete-dev/skete/agent/schedule"
	"github.com/skete-dev/skete/agent/supervisor"
	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/llm"
	"github.com/skete-dev/skete/server/key"
	"github.com/skete-dev/skete/tool"
	"github.com/skete-dev/skete/tool/backend"
	"github.com/skete-dev/skete/tool/declared"
	"github.com/skete-dev/skete/tool/kit"
)

func wireRequest[T any](m *T) *connect.Request[T] { return connect.NewRequest(m) }

// Buckets of the store.
const (
	runsBucket      = "runs"
	schedulesBucket = "schedules"
	memoriesBucket  = "memories"
	keysBucket      = "keys"
)

// nameOf names the key that an id is of, for as long as the key is good.
func nameOf(ring *key.Ring) func(ctx context.Context, id string) string {
	return func(ctx context.Context, id string) string {
		rec, err := ring.Live(ctx, id)
		if err != nil {
			return ""
		}
		return rec.Name
	}
}

// openAgents makes what runs of agents need, and goes on with those that are
// under way.
func (r *running) openAgents(ctx context.Context) error {
	records, err := r.store.KV(ctx, runsBucket)
	if err != nil {
		return err
	}
	memories, err := r.store.KV(ctx, memoriesBucket)
	if err != nil {
		return err
	}
	keys, err := r.store.KV(ctx, keysBucket)
	if err != nil {
		return err
	}
	templates, err := plans(r.in("plans"))
	if err != nil {
		return err
	}
	r.tools = newTools(templates)
	agents := definition.NewFolder(filepath.Clean(r.agentDir()), r.tools.Names(), r.agentsRead)
	sources, own := r.sources(records)
	sources = append(sources, r.openMCP()...)
	sources = append(sources, declared.NewSkills(r.skills, records))
	r.covers = coveredBy(sources)
	r.toolRuns = toolRuns{sources, own.machines}
	agents.With(r.covers, r.toolFolder.Version)
	threads := r.store.Threads()
	c := supervisor.Config{
		Threads: auditedThreads{threads, r.audit}, Records: records, Events: r.events, Models: r.models.c, Machines: machines{r.manager, r.histories, &agentProgram{named: r.c.Agents.Program, home: r.c.Home}, own}, Definitions: agents, Sources: sources,
		Command: agents.Command, Commands: agents.Commands, Skills: r.skills, Tools: r.tools, Wire: r.store.Live(), Node: r.node.ID, RunsMax: r.c.Agents.Runs, Log: r.c.Log,
		Template: r.templates.built,
		NameOf:   nameOf(key.NewRing(keys)),
		Plugins:  r.pluginsOf,
		Inside: func(p agent.Parts, m llm.Model, paid *agent.Paid) (agent.Driver, error) {
			return inside.NewHost(p, m, paid)
		},
		Plan: func(name string) (string, error) {
			t, err := templates.Find(name)
			return t.Text(), err
		},
		Memories: func(ctx context.Context, tenant string) (tool.Files, error) {
			blobs, err := threads.Blobs(ctx, tenant)
			if err != nil {
				return nil, err
			}
			return backend.NewStore(memories, blobs, tenant), nil
		},
	}
	agents.Set() // what is wrong is in the log from the start
	if r.store.External() {
		if c.Leases, err = r.store.Leases(ctx); err != nil {
			return err
		}
	}
	ends := &workflowsRun{}
	c.Ended = ends.ended
	if r.supervisor, err = supervisor.Open(ctx, c); err != nil {
		return err
	}
	r.refused.Store(r.supervisor)
	r.onClose(r.supervisor.Close)
	if err := r.openWorkflows(ctx, c.Threads, ends); err != nil {
		return err
	}
	if err := r.openSchedules(ctx); err != nil {
		return err
	}
	r.startTidying()
	return nil
}

// openSchedules starts the runs that are due, and goes on with it.
func (r *running) openSchedules(ctx context.Context) error {
	records, err := r.store.KV(ctx, schedulesBucket)
	if err != nil {
		return err
	}
	if r.schedules, err = schedule.Open(ctx, schedule.Config{Records: records, Runs: r.supervisor, Node: r.node.ID, Log: r.c.Log}); err != nil {
		return err
	}
	r.onClose(r.schedules.Close)
	return nil
}

// agentDir is the folder of agents' files.
func (r *running) agentDir() string {
	if r.c.Agents.Dir != "" {
		return r.c.Agents.Dir
	}
	return r.in("agents")
}

// agentsRead tells the operator which agents cannot be used.
func (r *running) agentsRead(_ *definition.Set, err error) {
	if err == nil {
		return
	}
	for line := range strings.SplitSeq(errs.Public(err), "\n") {
		r.c.Log.Error("an agent's file cannot be used", "dir", r.agentDir(), "problem", line)
	}
}

// newTools are all that agents of this server may use.
func newTools(plans *plan.Set) *tool.Registry {
	r := kit.New()
	plan.Add(r, plans)
	return r
}

// plans reads the folder of plan templates; none is no error.
func plans(dir string) (*plan.Set, error) {
	if _, err := os.Stat(dir); errors.Is(err, fs.ErrNotExist) {
		return plan.BuiltIn(), nil
	}
	return plan.Load(os.DirFS(dir))
}
