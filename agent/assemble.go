package agent

import (
	"context"
	"errors"
	"log/slog"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/skete-dev/skete/agent/definition"
	"github.com/skete-dev/skete/agent/hook"
	"github.com/skete-dev/skete/agent/policy"
	"github.com/skete-dev/skete/agent/prompt"
	"github.com/skete-dev/skete/agent/runs"
	"github.com/skete-dev/skete/llm"
	"github.com/skete-dev/skete/thread"
	"github.com/skete-dev/skete/tool"
	"github.com/skete-dev/skete/tool/backend"
)

// This file puts together what a thread is driven with: the files that the agent sees,
// its tools and hooks, and the Runner that uses them. It is the same on the host and in
// a sandbox.

const (
	memoryFileMax = 16 << 10 // of a file that the prompt shows
	memoryDir     = "/memories"
	threadDir     = "/thread"
)

// Parts are what Assemble makes a Runner of. Nil fields are left out.
type Parts struct {
	Thread thread.ID
	State  *runs.State // of the thread, with a run; the Runner owns it
	Log    thread.Log
	Blobs  thread.Blobs
	// Machine is where the tools act; the zero value = nowhere.
	Machine Machine
	// MachineID names the machine with its boot; "" = none.
	MachineID string
	Memories  tool.Files // what is at /memories
	Tools     *tool.Registry
	// External are the agent's tools that are not built in. Others: it may name some that
	// are not among them now.
	External []tool.Tool
	Others   bool
	Spawner  tool.Spawner
	Tasks    tool.Tasks
	Skills   tool.Skills // nil = there are none
	Plugins  Plugins     // that hooks may name; nil = there are none
	// TellSkills adds what the prompt says of Skills.
	TellSkills func(context.Context, *thread.Context) error
	// Grants is as in Config.
	Grants func(context.Context) ([]policy.Grant, error)
	// TellTools adds what the log keeps of External; nil = nothing.
	TellTools func(context.Context, *thread.Context) error
	// Live shows what is on its way. It never blocks.
	Live func(runs.Live)
	// Applied, Patient, Tree, Patience, Now and Logger are as in Config; Now and Logger
	// must be there.
	Applied  func(thread.Event)
	Patient  bool
	Tree     func() (thread.Budget, thread.Spent)
	Patience llm.RetryPolicy
	Now      func() time.Time
	Logger   *slog.Logger
}

// Plugins are the plug-ins of one tenant.
type Plugins = hook.Plugins

// PluginHook is an event that a plug-in is asked about.
type PluginHook = hook.Declared

// PluginFailure is what happens when it cannot be asked.
type PluginFailure = hook.Failure

// PluginFailureOf is what happens without a word of the manifest.
func PluginFailureOf(event string) PluginFailure { return hook.FailureOf(event) }

// assembly is what a Runner is made of, and works with.
type assembly struct {
	Parts
	files   *backend.Composite
	archive *offloaded
}

// Assemble returns the Runner that drives a thread with its parts and a model.
// NotFound, Invalid: the agent asks for tools or a result that there are not.
func Assemble(p Parts, model llm.Model) (*Runner, error) {
	w := &assembly{Parts: p}
	w.mount()
	builtIn, err := w.tools(model)
	if err != nil {
		return nil, err
	}
	tools, hidden := callable(builtIn, w.External)
	check, err := w.check()
	if err != nil {
		return nil, err
	}
	c := Config{
		Thread: p.Thread, State: p.State, Log: p.Log, Blobs: p.Blobs, Model: model, Tools: tools, Hidden: hidden, Hook: w.hook(slices.Concat(tools, hidden)), Check: check,
		Surroundings: w.surroundings, Grants: p.Grants, Machine: p.MachineID, Applied: w.applied, Patient: p.Patient, Tree: p.Tree, Patience: p.Patience, Now: p.Now, Logger: p.Logger,
	}
	if p.Live != nil {
		c.News = w.news
	}
	return New(c)
}

// mount puts the files together that the agent sees.
func (w *assembly) mount() {
	own := backend.NewMap(w.Blobs)
	for _, f := range w.State.Files() {
		own.Apply(f)
	}
	w.archive = newOffloaded(w.Blobs)
	for name, f := range w.State.Archive() {
		w.archive.Add(name, f)
	}
	shelf := backend.ReadOnly(w.archive.Files)
	routes := []backend.Route{{At: "/large_tool_results", Files: shelf}, {At: "/conversation_history", Files: shelf}}
	if w.Memories != nil {
		routes = append(routes, backend.Route{At: memoryDir, Files: w.Memories})
	}
	if w.Machine.Files == nil {
		w.files = backend.NewComposite(own, routes...)
		return
	}
	w.files = backend.NewComposite(w.Machine.Files, append(routes, backend.Route{At: threadDir, Files: own})...)
}

// applied keeps the archive and the record up with the log.
func (w *assembly) applied(e thread.Event) {
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
			if f, ok := w.State.Cleared(id); ok {
				w.archive.Add(runs.ResultFile(id), f)
			}
		}
	}
	if w.Applied != nil {
		w.Applied(e)
	}
}

// named are the names of built-in tools in the agent's list: the others are of External. A
// list that names some tools does not become one that names none.
func (w *assembly) named() []string {
	if !w.Others {
		return w.State.Agent.Tools
	}
	var names []string
	for _, n := range w.State.Agent.Tools {
		if w.Tools.Check([]string{n}) == nil {
			names = append(names, n)
		} else if !strings.HasPrefix(n, "!") && !slices.Contains(names, nothing) {
			names = append([]string{nothing}, names...)
		}
	}
	return names
}

// nothing takes away all tools that are named before it.
const nothing = "!*"

// tools makes the built-in ones that the agent may use and that can work here.
func (w *assembly) tools(model llm.Model) ([]tool.Tool, error) {
	env := tool.Env{
		Files: w.files, Commands: w.Machine.Commands, Past: w.Machine.Past, Boot: w.Machine.Boot, Dir: w.Machine.Dir,
		Media: model.Info().Media, Documents: model.Info().Documents,
		Skills: w.Skills,
		Person: w.Thread.Depth() == 0, Planning: w.Thread.Depth() == 0 && w.State.Run.Started.Planning,
		ResultBytesMax: min(prompt.Window(w.State, model.Info())/6, 20_000) * 4,
	}
	// A service is a command: an agent that was denied commands gets none by
	// being silent about services.
	if a := w.State.Agent; a.Uses("execute") || slices.Contains(a.Tools, "service") {
		env.Services = w.Machine.Services
	}
	if len(w.State.Agent.Subagents) > 0 && w.Thread.Depth() < thread.DepthMax {
		env.Spawner, env.Tasks = w.Spawner, w.Tasks
		for name, d := range w.State.Agent.Subagents {
			env.Agents = append(env.Agents, tool.Agent{Name: name, Description: d.Description})
		}
	}
	tools, err := w.Tools.Fitting(env, w.named())
	if err != nil || model.Info().Profile.Edit != patchTool || !w.mayPatch() {
		return tools, err
	}
	for i, t := range tools {
		if t.Spec().Name == editTool {
			patch, err := w.Tools.Fitting(env, []string{patchTool})
			return slices.Replace(tools, i, i+1, patch...), err
		}
	}
	return tools, nil
}

// SkillTool is the tool that teaches skills.
const SkillTool = "skill"

// Two tools that change files; a model that was trained on the second one gets it in
// place of the first.
const (
	editTool  = "edit_file"
	patchTool = "apply_patch"
)

// mayPatch reports whether nothing in the agent's file or the thread's rules speaks of
// one of the two tools: what is said of edit_file would not hold for apply_patch.
func (w *assembly) mayPatch() bool {
	a := w.State.Agent
	if slices.ContainsFunc(a.Tools, func(name string) bool {
		return strings.TrimPrefix(name, "!") == editTool || strings.TrimPrefix(name, "!") == patchTool
	}) {
		return false
	}
	same := func(tools []string) bool {
		return definition.Picks(tools, editTool) == definition.Picks(tools, patchTool)
	}
	for _, r := range slices.Concat(w.State.Rules, a.Rules) {
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
func (w *assembly) check() (tool.Tool, error) {
	c := w.State.Run.Started.Check
	if c == nil || c.Command == "" || w.Machine.Commands == nil {
		return nil, nil
	}
	tools, err := w.Tools.Make(tool.Env{Commands: w.Machine.Commands, Boot: w.Machine.Boot, Dir: w.Machine.Dir}, []string{"execute"})
	if err != nil {
		return nil, err
	}
	if planner, ok := tools[0].(tool.Planner); ok {
		return quietly{planner, w.calling}, nil
	}
	return tools[0], nil
}

// calling says to the machine that a call begins.
func (w *assembly) calling(ctx context.Context) (done func()) {
	if w.Machine.Call == nil {
		return func() {}
	}
	return w.Machine.Call(ctx)
}

// surroundings reads what the prompt says beside the conversation.
func (w *assembly) surroundings(ctx context.Context) (thread.Context, error) {
	about := thread.Context{Now: w.Now().UTC().Truncate(24 * time.Hour), Note: w.Machine.Note}
	files := w.State.Agent.Memory
	if files == nil {
		files = []string{path.Join("/", w.Machine.Dir, "AGENTS.md"), memoryDir + "/AGENTS.md"}
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
			if f.Blob, err = w.Blobs.Put(ctx, []byte(f.Text)); err != nil {
				return about, err
			}
			f.Text = ""
		}
		about.Memory = append(about.Memory, f)
	}
	for _, tell := range []func(context.Context, *thread.Context) error{w.TellSkills, w.TellTools} {
		if tell == nil {
			continue
		}
		if err := tell(ctx, &about); err != nil {
			return about, err
		}
	}
	return about, nil
}

// news passes on what is on its way.
func (w *assembly) news(n News) {
	l := runs.Live{Thread: w.Thread, Run: w.State.Run.ID, After: w.State.Seq}
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
	w.Live(l)
}

var liveKinds = map[llm.DeltaKind]runs.LiveKind{
	llm.DeltaText: runs.LiveText, llm.DeltaReasoning: runs.LiveReasoning, llm.DeltaCall: runs.LiveCall, llm.DeltaArgs: runs.LiveArgs,
}

// hook puts together the programs that the agent's file names, and what keeps
// the history of its files: that is the innermost, and sees what they changed.
func (w *assembly) hook(tools []tool.Tool) hook.Hook {
	var named, kept hook.Hook
	if len(w.State.Agent.Hooks) > 0 {
		programs := &hook.Programs{Files: w.Machine.Files, Commands: w.Machine.Commands}
		named = hook.Commands(w.State.Agent.Hooks, programs, w.Plugins, w.Machine.Dir)
	}
	if w.Machine.Revise != nil {
		byName := make(map[string]tool.Tool, len(tools))
		for _, t := range tools {
			byName[t.Spec().Name] = t
		}
		kept = &revisions{revise: w.Machine.Revise, call: w.calling, tools: byName, log: w.Logger}
	}
	if named == nil && kept == nil {
		return nil
	}
	return hook.Chain(named, kept)
}
