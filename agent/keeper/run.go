package keeper

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path"
	"strings"
	"time"

	"github.com/skete-dev/skete/agent"
	"github.com/skete-dev/skete/agent/archive"
	"github.com/skete-dev/skete/agent/hook"
	"github.com/skete-dev/skete/agent/hook/program"
	"github.com/skete-dev/skete/agent/prompt"
	"github.com/skete-dev/skete/agent/runs"
	"github.com/skete-dev/skete/agent/state"
	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/llm"
	"github.com/skete-dev/skete/thread"
	"github.com/skete-dev/skete/tool"
	"github.com/skete-dev/skete/tool/place"
)

const (
	memoryFileMax = 16 << 10 // of a file that the prompt shows
	memoryDir     = "/memories"
	threadDir     = "/thread"
)

// workshop is what one driver works with.
type workshop struct {
	k       *Keeper
	key     threadKey
	log     thread.Log
	blobs   thread.Blobs
	s       *state.State
	machine Machine
	id      string // of the machine with its boot, "" = none
	entry   *entry
	files   *place.Composite
	archive *archive.Archive
}

// run drives a thread that has something to do.
func (d *driver) run(ctx context.Context, log thread.Log, blobs thread.Blobs, s *state.State, e *entry) (agent.Outcome, error) {
	k := d.k
	if err := d.claim(ctx, log, s); err != nil {
		return agent.Outcome{}, err
	}
	if err := k.save(ctx, e, func(r *Run) { runs.Project(r, s, k.c.Now()) }); err != nil {
		return agent.Outcome{}, err
	}
	w := &workshop{k: k, key: d.key, log: log, blobs: blobs, s: s, entry: e}
	release, err := w.open(ctx)
	if err != nil {
		return agent.Outcome{}, err
	}
	defer release()
	r, err := w.runner(ctx)
	if err != nil {
		return agent.Outcome{}, d.stuck(ctx, log, s, err)
	}
	d.runner.Store(r)
	r.Poke() // what came in since the log was read
	return r.Run(ctx)
}

// stuck ends a run for which there is no model or no tool: trying again would
// go on for ever and tell nobody.
func (d *driver) stuck(ctx context.Context, log thread.Log, s *state.State, cause error) error {
	if errs.Temporary(cause) || ctx.Err() != nil {
		return cause
	}
	text := errs.Public(cause)
	if hint := errs.Hint(cause); hint != "" {
		text += " (" + hint + ")"
	}
	ended := thread.RunEnded{State: thread.RunFailed, Reason: state.ReasonModel, Text: runs.Clip(text, runs.TextMax)}
	if err := add(ctx, log, d.key.id, s, ended); err != nil {
		return err
	}
	d.dirty.Store(true) // look again, and settle
	return cause
}

// claim makes whoever drove the thread before stop at its next append.
func (d *driver) claim(ctx context.Context, log thread.Log, s *state.State) error {
	if s.Claim.Node == d.k.node {
		return nil
	}
	return add(ctx, log, d.key.id, s, thread.Claimed{Node: d.k.node, Term: s.Claim.Term + 1})
}

// add appends and applies, behind what others have just appended. ErrFenced:
// one of them drives the thread now.
func add(ctx context.Context, log thread.Log, id thread.ID, s *state.State, bodies ...thread.Body) error {
	events := make([]thread.Event, len(bodies))
	for i, b := range bodies {
		events[i] = thread.New(s.Run.ID, b)
	}
	for try := 1; ; try++ {
		_, err := log.Append(ctx, id, s.Seq, events...)
		if err == nil {
			break
		}
		if !errs.Is(err, errs.Conflict) || try == externalTries {
			return err
		}
		if err := agent.CatchUp(ctx, log, id, s, s.Apply); err != nil {
			return err
		}
	}
	for _, e := range events {
		if err := s.Apply(e); err != nil {
			return err
		}
	}
	return nil
}

// open makes the machine usable, making one if the thread has none.
func (w *workshop) open(ctx context.Context) (release func(), err error) {
	release = func() {}
	if w.k.c.Machines == nil || w.s.Agent.Sandbox["none"] == true {
		return release, w.place(ctx)
	}
	if w.s.Machine == "" {
		if err := w.bind(ctx, ""); err != nil {
			return nil, err
		}
	}
	w.machine, release, err = w.k.c.Machines.Open(ctx, w.key.tenant, w.s.Machine)
	if errs.Is(err, errs.NotFound) {
		if err := w.bind(ctx, "lost"); err != nil {
			return nil, err
		}
		w.machine, release, err = w.k.c.Machines.Open(ctx, w.key.tenant, w.s.Machine)
	}
	if err != nil {
		return nil, fmt.Errorf("open the machine of %s: %w", w.key.id, err)
	}
	w.id = w.s.Machine + "#" + w.machine.Boot
	return release, w.place(ctx)
}

// bind makes a machine for the thread and writes down which. The key, which
// names the machine before it, makes it the same one when the server dies in
// between.
func (w *workshop) bind(ctx context.Context, why string) error {
	key := agent.Key(w.key.id, runs.Pick(w.s.Machine, "first"))
	id, err := w.k.c.Machines.Create(ctx, w.key.tenant, key, w.s.Agent.Sandbox)
	if err != nil {
		return fmt.Errorf("make a machine for %s: %w", w.key.id, err)
	}
	bodies := []thread.Body{thread.Bound{Machine: id, Why: why, Own: true}}
	if why == "lost" {
		bodies = append(bodies, thread.Input{From: "skete", Name: "machine", Blocks: []llm.Block{llm.Text(
			"The sandbox was lost, with its files and all that ran in it. This is a new, empty one.")}})
	}
	return add(ctx, w.log, w.key.id, w.s, bodies...)
}

// place puts the files together that the agent sees.
func (w *workshop) place(ctx context.Context) error {
	own := place.NewMap(w.blobs)
	for _, f := range w.s.Files() {
		own.Apply(f)
	}
	w.archive = archive.New(w.blobs)
	for name, f := range w.s.Archive() {
		w.archive.Add(name, f)
	}
	shelf := place.ReadOnly(w.archive.Files)
	routes := []place.Route{{At: "/large_tool_results", Files: shelf}, {At: "/conversation_history", Files: shelf}}
	if w.k.c.Memories != nil {
		memories, err := w.k.c.Memories(ctx, w.key.tenant)
		if err != nil {
			return err
		}
		routes = append(routes, place.Route{At: memoryDir, Files: memories})
	}
	if w.machine.Files == nil {
		w.files = place.NewComposite(own, routes...)
		return nil
	}
	w.files = place.NewComposite(w.machine.Files, append(routes, place.Route{At: threadDir, Files: own})...)
	return nil
}

// applied keeps the archive and the record up with the log.
func (w *workshop) applied(e thread.Event) {
	switch b := e.Body.(type) {
	case thread.ToolCompleted:
		if b.File != "" && b.Blob != "" {
			w.archive.Add(b.File, state.Archived{Blob: b.Blob, Bytes: b.Bytes})
		}
	case thread.Compacted:
		if b.File != "" && b.Blob != "" {
			w.archive.Add(b.File, state.Archived{Blob: b.Blob, Bytes: b.Bytes})
		}
	case thread.Cleared:
		for _, id := range b.Calls {
			if f, ok := w.s.Cleared(id); ok {
				w.archive.Add(state.ResultFile(id), f)
			}
		}
	}
	w.entry.progress(w.s, w.k.c.Now())
}

func (w *workshop) runner(ctx context.Context) (*agent.Runner, error) {
	model, err := w.model(ctx)
	if err != nil {
		return nil, err
	}
	tools, err := w.tools(ctx, model)
	if err != nil {
		return nil, err
	}
	c := agent.Config{
		Thread: w.key.id, State: w.s, Log: w.log, Blobs: w.blobs, Model: model, Tools: tools, Hook: w.hook(),
		Surroundings: w.surroundings, Machine: w.id, Applied: w.applied, Patience: w.k.c.Patience, Now: w.k.c.Now, Logger: w.k.c.Log,
	}
	if w.k.c.Wire != nil {
		c.News = w.news
	}
	return agent.New(c)
}

// model opens the run's model, then the agent's, then the server's choice.
func (w *workshop) model(ctx context.Context) (llm.Model, error) {
	name := w.s.Run.Started.Model
	if name == "" {
		name = w.s.Agent.Model
	}
	if isReplay(name) {
		return w.k.replayed(ctx, w.key.tenant, name)
	}
	return w.k.c.Models.Open(ctx, name)
}

// tools makes those that the agent may use and that can work here.
func (w *workshop) tools(_ context.Context, model llm.Model) ([]tool.Tool, error) {
	p := &spawner{k: w.k, tenant: w.key.tenant, parent: w.s, model: w.s.Run.Started.Model, budget: func() thread.Budget { return runs.Left(w.s, w.k.c.Now()) }}
	env := tool.Env{
		Files: w.files, Commands: w.machine.Commands, Boot: w.machine.Boot, Dir: w.machine.Dir,
		ResultBytesMax: min(prompt.Window(w.s, model.Info())/6, 20_000) * 4,
	}
	if len(w.s.Agent.Subagents) > 0 && w.key.id.Depth() < thread.DepthMax {
		env.Spawner, env.Tasks = p, p
		for name, d := range w.s.Agent.Subagents {
			env.Agents = append(env.Agents, tool.Agent{Name: name, Description: d.Description})
		}
	}
	return w.k.c.Tools.Fitting(env, w.s.Agent.Tools)
}

// surroundings reads what the prompt says beside the conversation.
func (w *workshop) surroundings(ctx context.Context) (thread.Context, error) {
	about := thread.Context{Now: w.k.c.Now().UTC().Truncate(24 * time.Hour), Note: w.machine.Note}
	files := w.s.Agent.Memory
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
			if f.Blob, err = w.blobs.Put(ctx, []byte(f.Text)); err != nil {
				return about, err
			}
			f.Text = ""
		}
		about.Memory = append(about.Memory, f)
	}
	return about, nil
}

// news passes on what is on its way.
func (w *workshop) news(n agent.News) {
	l := Live{Thread: w.key.id, Run: w.s.Run.ID, After: w.s.Seq}
	switch {
	case n.Reset:
		l.Kind = LiveReset
	case n.Call != "":
		l.Kind, l.Call, l.Text = LiveOutput, n.Call, n.Output
	case n.Delta != nil:
		l.Kind, l.Index, l.Name, l.Text = liveKinds[n.Delta.Kind], n.Delta.Index, n.Delta.Name, n.Delta.Text
	}
	if l.Kind == "" {
		return
	}
	if data, err := json.Marshal(l); err == nil {
		w.k.c.Wire.Publish(w.key.tenant, w.key.id, data)
	}
}

var liveKinds = map[llm.DeltaKind]LiveKind{
	llm.DeltaText: LiveText, llm.DeltaReasoning: LiveReasoning, llm.DeltaCall: LiveCall, llm.DeltaArgs: LiveArgs,
}

// hook puts together the programs that the agent's file names.
func (w *workshop) hook() hook.Hook {
	if len(w.s.Agent.Hooks) == 0 {
		return nil
	}
	return hook.Commands(w.s.Agent.Hooks, &program.Runner{Files: w.machine.Files, Commands: w.machine.Commands}, w.machine.Dir)
}

// lastWords are the text of the last step.
func lastWords(ctx context.Context, blobs thread.Blobs, s *state.State) (string, error) {
	last := s.Last()
	if last == nil {
		return "", nil
	}
	m, err := prompt.Message(ctx, blobs, last.Step)
	return m.String(), err
}

// argsOf returns the arguments of an open call whole.
func argsOf(ctx context.Context, blobs thread.Blobs, s *state.State, c *state.Call) (json.RawMessage, error) {
	last := s.Last()
	if last.Step.Blob == "" || c.Asked != nil && c.Asked.Args != nil {
		return c.EffectiveArgs(), nil
	}
	m, err := prompt.Message(ctx, blobs, last.Step)
	if err != nil {
		return nil, err
	}
	for _, x := range m.Calls() {
		if x.ID == c.ID {
			return x.Args, nil
		}
	}
	return c.Args, nil
}
