package supervisor

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/skete-dev/skete/agent"
	"github.com/skete-dev/skete/agent/definition"
	"github.com/skete-dev/skete/agent/hook"
	"github.com/skete-dev/skete/agent/prompt"
	"github.com/skete-dev/skete/agent/runs"
	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/llm"
	"github.com/skete-dev/skete/thread"
	"github.com/skete-dev/skete/tool"
	"github.com/skete-dev/skete/tool/backend"
)

// This file puts together what a thread is driven with: its machine, the
// files that the agent sees, its tools and hooks, and the Runner that uses them.
//
// A session belongs to the goroutine of one driver.

const (
	memoryFileMax = 16 << 10 // of a file that the prompt shows
	memoryDir     = "/memories"
	threadDir     = "/thread"
)

// sessionConfig is what a Workshop is made of.
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
	Tools    *tool.Registry
	Spawner  tool.Spawner
	Tasks    tool.Tasks
	Wire     Wire                                 // nil = no live news
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
	machine Machine
	id      string // of the machine with its boot, "" = none
	files   *backend.Composite
	archive *offloaded
}

// newSession returns a Workshop with nothing opened.
func newSession(c sessionConfig) *session { return &session{c: c} }

// Open makes the machine usable, making one if the thread has none.
func (w *session) Open(ctx context.Context) (release func(), err error) {
	release = func() {}
	if w.c.Machines == nil || w.c.State.Agent.Sandbox["none"] == true {
		return release, w.mount(ctx)
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
	return release, w.mount(ctx)
}

// enter makes the thread's machine usable. It is not put away while the run is
// under way; a sub-agent's run is a part of its parent's.
func (w *session) enter(ctx context.Context) (Machine, func(), error) {
	s := w.c.State
	if w.c.Thread.Depth() == 0 {
		if err := w.c.Machines.Enter(ctx, w.c.Tenant, s.Machine, s.Run.ID, s.Agent.Name, s.OwnMachine); err != nil {
			return Machine{}, nil, err
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

// mount puts the files together that the agent sees.
func (w *session) mount(ctx context.Context) error {
	own := backend.NewMap(w.c.Blobs)
	for _, f := range w.c.State.Files() {
		own.Apply(f)
	}
	w.archive = newOffloaded(w.c.Blobs)
	for name, f := range w.c.State.Archive() {
		w.archive.Add(name, f)
	}
	shelf := backend.ReadOnly(w.archive.Files)
	routes := []backend.Route{{At: "/large_tool_results", Files: shelf}, {At: "/conversation_history", Files: shelf}}
	if w.c.Memories != nil {
		memories, err := w.c.Memories(ctx, w.c.Tenant)
		if err != nil {
			return err
		}
		routes = append(routes, backend.Route{At: memoryDir, Files: memories})
	}
	if w.machine.Files == nil {
		w.files = backend.NewComposite(own, routes...)
		return nil
	}
	w.files = backend.NewComposite(w.machine.Files, append(routes, backend.Route{At: threadDir, Files: own})...)
	return nil
}

// applied keeps the archive and the record up with the log.
func (w *session) applied(e thread.Event) {
	switch b := e.Body.(type) {
	case thread.ToolCompleted:
		if b.File != "" && b.Blob != "" {
			w.archive.Add(b.File, runs.Archived{Blob: b.Blob, Bytes: b.Bytes})
		}
	case thread.Compacted:
		if b.File != "" && b.Blob != "" {
			w.archive.Add(b.File, runs.Archived{Blob: b.Blob, Bytes: b.Bytes})
		}
	case thread.Cleared:
		for _, id := range b.Calls {
			if f, ok := w.c.State.Cleared(id); ok {
				w.archive.Add(runs.ResultFile(id), f)
			}
		}
	}
	if w.c.Applied != nil {
		w.c.Applied(e)
	}
}

// Runner returns who drives the thread with all of this.
func (w *session) Runner(model llm.Model) (*agent.Runner, error) {
	tools, err := w.tools(model)
	if err != nil {
		return nil, err
	}
	check, err := w.check()
	if err != nil {
		return nil, err
	}
	c := agent.Config{
		Thread: w.c.Thread, State: w.c.State, Log: w.c.Log, Blobs: w.c.Blobs, Model: model, Tools: tools, Hook: w.hook(tools), Check: check,
		Surroundings: w.surroundings, Machine: w.id, Applied: w.applied, Patient: w.c.Patient, Tree: w.c.Tree, Patience: w.c.Patience, Now: w.c.Now, Logger: w.c.Logger,
	}
	if w.c.Wire != nil {
		c.News = w.news
	}
	return agent.New(c)
}

// tools makes those that the agent may use and that can work here.
func (w *session) tools(model llm.Model) ([]tool.Tool, error) {
	env := tool.Env{
		Files: w.files, Commands: w.machine.Commands, Past: w.machine.Past, Boot: w.machine.Boot, Dir: w.machine.Dir,
		Media: model.Info().Media, Documents: model.Info().Documents,
		Person: w.c.Thread.Depth() == 0, Planning: w.c.Thread.Depth() == 0 && w.c.State.Run.Started.Planning,
		ResultBytesMax: min(prompt.Window(w.c.State, model.Info())/6, 20_000) * 4,
	}
	// A service is a command: an agent that was denied commands gets none by
	// being silent about services.
	if a := w.c.State.Agent; a.Uses("execute") || slices.Contains(a.Tools, "service") {
		env.Services = w.machine.Services
	}
	if len(w.c.State.Agent.Subagents) > 0 && w.c.Thread.Depth() < thread.DepthMax {
		env.Spawner, env.Tasks = w.c.Spawner, w.c.Tasks
		for name, d := range w.c.State.Agent.Subagents {
			env.Agents = append(env.Agents, tool.Agent{Name: name, Description: d.Description})
		}
	}
	tools, err := w.c.Tools.Fitting(env, w.c.State.Agent.Tools)
	if err != nil || model.Info().Profile.Edit != patchTool || !w.mayPatch() {
		return tools, err
	}
	for i, t := range tools {
		if t.Spec().Name == editTool {
			patch, err := w.c.Tools.Fitting(env, []string{patchTool})
			return slices.Replace(tools, i, i+1, patch...), err
		}
	}
	return tools, nil
}

// Two tools that change files; a model that was trained on the second one gets it in
// place of the first.
const (
	editTool  = "edit_file"
	patchTool = "apply_patch"
)

// mayPatch reports whether nothing in the agent's file or the thread's rules speaks of
// one of the two tools: what is said of edit_file would not hold for apply_patch.
func (w *session) mayPatch() bool {
	a := w.c.State.Agent
	if slices.ContainsFunc(a.Tools, func(name string) bool {
		return strings.TrimPrefix(name, "!") == editTool || strings.TrimPrefix(name, "!") == patchTool
	}) {
		return false
	}
	same := func(tools []string) bool {
		return definition.Picks(tools, editTool) == definition.Picks(tools, patchTool)
	}
	for _, r := range slices.Concat(w.c.State.Rules, a.Rules) {
		if !same(r.Tools) {
			return false
		}
	}
	for _, h := range a.Hooks {
		if !same(h.Tools) {
			return false
		}
	}
	return true
}

// check is the tool that runs the command of the run's check, whatever tools the agent
// has; nil = there is no machine, or no such command.
func (w *session) check() (tool.Tool, error) {
	c := w.c.State.Run.Started.Check
	if c == nil || c.Command == "" || w.machine.Commands == nil {
		return nil, nil
	}
	tools, err := w.c.Tools.Make(tool.Env{Commands: w.machine.Commands, Boot: w.machine.Boot, Dir: w.machine.Dir}, []string{"execute"})
	if err != nil {
		return nil, err
	}
	if planner, ok := tools[0].(tool.Planner); ok {
		return quietly{planner, w.calling}, nil
	}
	return tools[0], nil
}

// calling says to the machine that a call begins.
func (w *session) calling(ctx context.Context) (done func()) {
	if w.machine.Call == nil {
		return func() {}
	}
	return w.machine.Call(ctx)
}

// surroundings reads what the prompt says beside the conversation.
func (w *session) surroundings(ctx context.Context) (thread.Context, error) {
	about := thread.Context{Now: w.c.Now().UTC().Truncate(24 * time.Hour), Note: w.machine.Note}
	files := w.c.State.Agent.Memory
	if files == nil {
		files = []string{path.Join("/", w.machine.Dir, "AGENTS.md"), memoryDir + "/AGENTS.md"}
	}
	for _, name := range files {
		content, _, err := w.files.Read(ctx, path.Clean(name), memoryFileMax)
		if bad, ok := errors.AsType[*tool.FileError](err); ok {
			if bad.Code == tool.CodeTooLarge {
				about.Memory = append(about.Memory, thread.ContextFile{Path: name, Text: "[too large to show; read_file shows it]"})
			}
			continue
		}
		if err != nil {
			return about, err
		}
		f := thread.ContextFile{Path: name, Text: strings.ToValidUTF8(string(content), "�")}
		if len(f.Text) > 2<<10 {
			if f.Blob, err = w.c.Blobs.Put(ctx, []byte(f.Text)); err != nil {
				return about, err
			}
			f.Text = ""
		}
		about.Memory = append(about.Memory, f)
	}
	return about, nil
}

// news passes on what is on its way.
func (w *session) news(n agent.News) {
	l := runs.Live{Thread: w.c.Thread, Run: w.c.State.Run.ID, After: w.c.State.Seq}
	switch {
	case n.Reset:
		l.Kind = runs.LiveReset
	case n.Call != "":
		l.Kind, l.Call, l.Text = runs.LiveOutput, n.Call, n.Output
	case n.Delta != nil:
		l.Kind, l.Index, l.Name, l.Text = liveKinds[n.Delta.Kind], n.Delta.Index, n.Delta.Name, n.Delta.Text
	}
	if l.Kind == "" {
		return
	}
	if data, err := json.Marshal(l); err == nil {
		w.c.Wire.Publish(w.c.Tenant, w.c.Thread, data)
	}
}

var liveKinds = map[llm.DeltaKind]runs.LiveKind{
	llm.DeltaText: runs.LiveText, llm.DeltaReasoning: runs.LiveReasoning, llm.DeltaCall: runs.LiveCall, llm.DeltaArgs: runs.LiveArgs,
}

// hook puts together the programs that the agent's file names, and what keeps
// the history of its files: that is the innermost, and sees what they changed.
func (w *session) hook(tools []tool.Tool) hook.Hook {
	var named, kept hook.Hook
	if len(w.c.State.Agent.Hooks) > 0 {
		named = hook.Commands(w.c.State.Agent.Hooks, &hook.Programs{Files: w.machine.Files, Commands: w.machine.Commands}, w.machine.Dir)
	}
	if w.machine.Revise != nil {
		byName := make(map[string]tool.Tool, len(tools))
		for _, t := range tools {
			byName[t.Spec().Name] = t
		}
		kept = &revisions{revise: w.machine.Revise, call: w.calling, tools: byName, log: w.c.Logger}
	}
	if named == nil && kept == nil {
		return nil
	}
	return hook.Chain(named, kept)
}
