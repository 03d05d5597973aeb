package supervisor

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"time"

	"github.com/skete-dev/skete/agent"
	"github.com/skete-dev/skete/agent/policy"
	"github.com/skete-dev/skete/agent/runs"
	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/llm"
	"github.com/skete-dev/skete/thread"
	"github.com/skete-dev/skete/tool"
)

// This file makes the machine of a thread usable, and hands over what the thread is
// driven with.
//
// A session belongs to the goroutine of one driver.

// sessionConfig is what a session is made of.
type sessionConfig struct {
	Tenant string
	Thread thread.ID
	State  *runs.State // of the thread; shared with the Runner
	Log    thread.Log
	Blobs  thread.Blobs
	// Machines is nil for agents without a machine.
	Machines Machines
	// Memories is the backend of /memories of a tenant; nil = none.
	Memories func(ctx context.Context, tenant string) (tool.Files, error)
	Skills   Skills // nil = there are none
	Tools    *tool.Registry
	Sources  []tool.Source // of tools that are not built in
	// Top is the run that the caller started, and who that was; nil = the thread's run.
	Top func() (run thread.RunID, by string)
	// Plugins are those of a tenant; nil = there are none.
	Plugins  func(tenant string) agent.Plugins
	Spawner  tool.Spawner
	Tasks    tool.Tasks
	Wire     Wire                                 // nil = no live news
	Later    func(func())                         // runs in the background
	Applied  func(thread.Event)                   // called after each event that was applied; nil = none
	Patient  bool                                 // see agent.Config
	Tree     func() (thread.Budget, thread.Spent) // see agent.Config
	Patience llm.RetryPolicy
	Now      func() time.Time
	Logger   *slog.Logger
}

// session is what one driver works with.
type session struct {
	c       sessionConfig
	machine agent.Machine
	id      string // of the machine with its boot, "" = none
	x       *externals
	recap   *runs.Recap // nil = no live news
}

// newSession returns a session with nothing opened.
func newSession(c sessionConfig) *session { return &session{c: c} }

// Open makes the machine usable, making one if the thread has none.
func (w *session) Open(ctx context.Context) (release func(), err error) {
	release = func() {}
	if w.c.Machines == nil || w.c.State.Agent.Sandbox["none"] == true {
		return release, nil
	}
	if w.c.State.Machine == "" {
		if err := w.bind(ctx, ""); err != nil {
			return nil, err
		}
	}
	w.machine, release, err = w.enter(ctx)
	if errs.Is(err, errs.NotFound) {
		if err := w.bind(ctx, "lost"); err != nil {
			return nil, err
		}
		w.machine, release, err = w.enter(ctx)
	}
	if err != nil {
		return nil, fmt.Errorf("open the machine of %s: %w", w.c.Thread, err)
	}
	w.id = w.c.State.Machine + "#" + w.machine.Boot
	return release, nil
}

// enter makes the thread's machine usable. It is not put away while the run is
// under way; a sub-agent's run is a part of its parent's.
func (w *session) enter(ctx context.Context) (agent.Machine, func(), error) {
	s := w.c.State
	if w.c.Thread.Depth() == 0 {
		if err := w.c.Machines.Enter(ctx, w.c.Tenant, s.Machine, s.Run.ID, s.Agent.Name, s.OwnMachine); err != nil {
			return agent.Machine{}, nil, err
		}
	}
	return w.c.Machines.Open(ctx, w.c.Tenant, s.Machine)
}

// bind makes a machine for the thread and writes down which. The key, which
// names the run and the machine before it, makes it the same one when the server
// dies in between.
func (w *session) bind(ctx context.Context, why string) error {
	run := w.c.State.Run.ID
	key := agent.Key(w.c.Thread, string(run)+"."+runs.Pick(w.c.State.Machine, "first"))
	id, err := w.c.Machines.Create(ctx, w.c.Tenant, key, run, w.c.State.Agent.Name, w.c.State.Agent.Sandbox)
	if err != nil {
		return fmt.Errorf("make a machine for %s: %w", w.c.Thread, err)
	}
	bodies := []thread.Body{thread.Bound{Machine: id, Why: why, Own: true}}
	if why == "lost" {
		bodies = append(bodies, thread.Input{From: "skete", Name: "machine", Blocks: []llm.Block{llm.Text(
			"The sandbox was lost, with its files and all that ran in it. This is a new, empty one.")}})
	}
	return appendTo(ctx, w.c.Log, w.c.Thread, w.c.State, bodies...)
}

// forkMachine gives the fork of a thread a machine: the one that is asked for, or a new
// one with the files as they were at the event where the fork begins. st is the
// fork's state, log the one of the thread that it comes from. Where the files
// cannot be had so, the second body says which ones are there.
func forkMachine(ctx context.Context, machines Machines, tenant string, log thread.Log, id thread.ID, run thread.RunID, st *runs.State, asked string) ([]thread.Body, error) {
	if asked != "" || machines == nil || st.Machine == "" {
		return []thread.Body{thread.Bound{Machine: asked, Why: "forked"}}, nil
	}
	spec := maps.Clone(st.Agent.Sandbox)
	delete(spec, "name") // the first one has it
	machine, err := machines.Create(ctx, tenant, string(id)+"/fork", run, st.Agent.Name, spec)
	if err != nil {
		return nil, fmt.Errorf("make a machine for the fork: %w", err)
	}
	from := st.Opened.Fork
	bodies := []thread.Body{thread.Bound{Machine: machine, Why: "forked", Own: true}}
	when, err := calls(ctx, log, from.Thread, from.Seq)
	if err == nil {
		err = machines.Copy(ctx, tenant, st.Machine, machine, when)
	}
	if err == nil {
		return bodies, nil
	}
	if !errs.Is(err, errs.NotFound) && !errs.Is(err, errs.Unsupported) && !errs.Is(err, errs.Conflict) {
		return nil, fmt.Errorf("copy the files for the fork: %w", err)
	}
	which := "They are those of the sandbox as it is now."
	if now := machines.CopyNow(ctx, tenant, st.Machine, machine); errs.Is(now, errs.NotFound) {
		which = "The sandbox is gone: this one begins empty."
	} else if now != nil {
		return nil, fmt.Errorf("copy the files for the fork: %w", now)
	}
	return append(bodies, thread.Input{From: "skete", Name: "machine", Blocks: []llm.Block{llm.Text(
		fmt.Sprintf("The files of event %d cannot be had (%s). %s", from.Seq, errs.Public(err), which))}}), nil
}

// Parts returns what the thread is driven with.
func (w *session) Parts(ctx context.Context) (agent.Parts, error) {
	p := agent.Parts{
		Thread: w.c.Thread, State: w.c.State, Log: w.c.Log, Blobs: w.c.Blobs, Machine: w.machine, MachineID: w.id, Tools: w.c.Tools,
		Spawner: w.c.Spawner, Tasks: w.c.Tasks, Applied: func(e thread.Event) { w.applied(ctx, e) }, Patient: w.c.Patient, Tree: w.c.Tree, Patience: w.c.Patience,
		Now: w.c.Now, Logger: w.c.Logger,
	}
	if w.c.Wire != nil {
		w.recap = &runs.Recap{Send: func(data []byte) { w.c.Wire.Publish(w.c.Tenant, w.c.Thread, data) }}
		p.Live = w.recap.Add
	}
	if w.c.Plugins != nil {
		p.Plugins = w.c.Plugins(w.c.Tenant)
	}
	if w.c.Memories != nil {
		memories, err := w.c.Memories(ctx, w.c.Tenant)
		if err != nil {
			return p, err
		}
		p.Memories = memories
	}
	if err := w.addExternals(ctx, &p); err != nil {
		return p, err
	}
	known, err := w.skills(ctx)
	if err != nil {
		return p, err
	}
	if known != nil {
		p.Skills = known
		p.Grants = func(ctx context.Context) ([]policy.Grant, error) { return known.Grants(ctx, w.c.State.Learned) }
		p.TellSkills = func(ctx context.Context, about *thread.Context) error { return known.tell(ctx, w.c.Blobs, about) }
	}
	return p, nil
}

// Recap lets clients that begin to follow hear what is on its way, until cancel is called.
func (w *session) Recap() (cancel func()) {
	if w.recap == nil {
		return func() {}
	}
	return w.c.Wire.Keep(w.c.Tenant, w.c.Thread, w.recap.Tell)
}

// addExternals adds the tools that are not built in.
func (w *session) addExternals(ctx context.Context, p *agent.Parts) error {
	x, err := w.externals(ctx)
	if x == nil || err != nil {
		return err
	}
	p.External, p.Others = x.tools, true
	p.TellTools = func(ctx context.Context, about *thread.Context) error { return x.tell(ctx, w.c.Blobs, about) }
	w.x = x
	return nil
}

// applied is called after each event that was applied.
func (w *session) applied(ctx context.Context, e thread.Event) {
	if done, is := e.Body.(thread.ToolCompleted); is && w.x != nil {
		if f := w.x.finished(ctx, done); f != nil {
			w.c.Later(f)
		}
	}
	if w.recap != nil {
		w.recap.Applied(e)
	}
	if w.c.Applied != nil {
		w.c.Applied(e)
	}
}
