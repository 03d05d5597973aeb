package supervisor

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/skete-dev/skete/agent/definition"
	"github.com/skete-dev/skete/agent/replay"
	"github.com/skete-dev/skete/agent/runs"
	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/internal/clip"
	"github.com/skete-dev/skete/llm"
	"github.com/skete-dev/skete/thread"
)

// Start begins a run. With a Key the same call again returns the same run;
// Conflict: the key was used for something else, or the thread has a run under
// way. NotFound: no such agent or thread. Unsupported: no model can be reached.
func (k *Supervisor) Start(ctx context.Context, tenant string, s runs.Start) (runs.Run, error) {
	if err := s.Check(); err != nil {
		return runs.Run{}, err
	}
	id := idsOf(s)
	id, again, err := k.keyed(ctx, tenant, s, id)
	if err != nil {
		return runs.Run{}, err
	}
	if again {
		if e, err := k.begun(ctx, tenant, id.Run); e != nil || err != nil {
			return k.view(e), err
		}
	}
	if s, err = k.commanded(s); err != nil {
		return runs.Run{}, err
	}
	if s.Thread != "" {
		return k.goOn(ctx, tenant, id, s)
	}
	return k.begin(ctx, tenant, id, s)
}

// commanded puts what a command says in the place of its name, and the agent, model and
// mode that it names where the caller names none.
func (k *Supervisor) commanded(s runs.Start) (runs.Start, error) {
	c, input, err := k.command(s.Input)
	if err != nil || c.Name == "" || s.Replay != "" {
		return s, err
	}
	s.Title = s.Headline() // what was typed
	s.Input = input
	s.Planning = s.Planning || c.Plan
	if s.EndCheck == nil && (c.Check != "" || c.Rubric != "") {
		s.EndCheck = &thread.RunCheck{Command: c.Check, Rubric: c.Rubric}
	}
	if s.Thread == "" && s.Agent == "" && s.Inline == nil {
		s.Agent = c.Agent
	}
	s.Model = cmp.Or(s.Model, c.Model)
	return s, s.Check()
}

// command finds the command that a message begins with, and the message that it stands
// for; a text that begins with / and names none is what it is.
func (k *Supervisor) command(input []llm.Block) (definition.Command, []llm.Block, error) {
	if k.c.Command == nil || len(input) == 0 || input[0].Kind != llm.KindText {
		return definition.Command{}, input, nil
	}
	name, said, ok := definition.CommandOf(strings.TrimSpace(input[0].Text))
	if !ok {
		return definition.Command{}, input, nil
	}
	c, err := k.c.Command(name)
	if errs.Is(err, errs.NotFound) {
		return definition.Command{}, input, nil
	}
	input = slices.Clone(input)
	input[0].Text = c.Expand(said)
	return c, input, err
}

// MayStart finds out what keeps a run from being started now: that its agent, its
// thread or its model is not there, or that it may not name them. A later Start may
// fail all the same; nothing is written.
func (k *Supervisor) MayStart(ctx context.Context, tenant string, s runs.Start) error {
	if err := s.Check(); err != nil {
		return err
	}
	s, err := k.commanded(s)
	if err != nil {
		return err
	}
	if s.Thread == "" {
		_, _, _, err := k.chosen(ctx, tenant, s)
		return err
	}
	_, st, err := k.fold(ctx, tenant, s.Thread)
	if err != nil {
		return err
	}
	if err := s.MayName(definition.Definition{}); err != nil {
		return err
	}
	model, err := k.modelFor(ctx, st.Agent, s.Model, lastModel(st.Run), st.Agent.Model)
	if err != nil {
		return err
	}
	return k.fits(ctx, s, st.Agent, model)
}

// chosen is what a run on a new thread works with: its agent, its model, the first
// event of its thread.
func (k *Supervisor) chosen(ctx context.Context, tenant string, s runs.Start) (d definition.Definition, model string, opened thread.Opened, err error) {
	if d, err = k.definition(s); err != nil {
		return d, "", opened, err
	}
	if err = s.MayName(d); err != nil {
		return d, "", opened, err
	}
	if d, err = placed(d, s); err != nil {
		return d, "", opened, err
	}
	if d.Program != nil && s.Sandbox == "" {
		if d.Sandbox, err = k.programSandbox(ctx, d, s); err != nil {
			return d, "", opened, err
		}
		s.Spec, s.Model = d.Sandbox, ""
	}
	if err = k.toolsThere(tenant, d); err != nil {
		return d, "", opened, err
	}
	if model, err = k.modelFor(ctx, d, s.Model, d.Model); err != nil {
		return d, "", opened, err
	}
	if err = k.fits(ctx, s, d, model); err != nil {
		return d, "", opened, err
	}
	opened, err = s.Opened(d)
	return d, model, opened, err
}

// Of runs whose agent works in its sandbox, where nothing else is said.
const (
	insideWall = 5 * time.Minute
	insideWait = time.Second // after the run, then its own sandbox is removed
)

// placed is a definition with where its agent works, and what follows from that.
func placed(d definition.Definition, s runs.Start) (definition.Definition, error) {
	if s.Replay != "" { // what is recorded needs no agent
		return d, nil
	}
	d.InSandbox = d.InSandbox || s.InSandbox
	if !d.InSandbox {
		return d, nil
	}
	if why := d.NotInSandbox(); why != "" {
		return d, errs.New(errs.Invalid, "the agent %s cannot work in its sandbox: %s", d.Name, why)
	}
	d.Limits.Wall = cmp.Or(d.Limits.Wall, insideWall)
	if d.AfterRun == (definition.AfterRun{}) {
		d.AfterRun = definition.AfterRun{Sandbox: definition.AfterRemove, Wait: insideWait}
	}
	return d, nil
}

// programSandbox is the sandbox of a program: its own with what the start says, of the template
// that has its name if there is one and no other is named, and with a model
// that it may use, which is the one that is named, or the server's choice if that is none of
// a script.
func (k *Supervisor) programSandbox(ctx context.Context, d definition.Definition, s runs.Start) (map[string]any, error) {
	spec := map[string]any{}
	maps.Copy(spec, d.Sandbox)
	maps.Copy(spec, s.Spec)
	if k.c.Template != nil && spec["template"] == nil && s.Spec["language"] == nil && k.c.Template(ctx, d.Name) {
		spec["template"] = d.Name // it is there, with what the program would install
		delete(spec, "language")
	}
	name := s.Model
	if name == "" && spec["models"] == nil {
		if m, err := k.c.Models.Open(ctx, ""); err == nil && m.Info().Vendor != scriptVendor {
			name = m.Info().Name
		}
	}
	if name == "" {
		return spec, nil
	}
	if _, err := k.c.Models.Open(ctx, name); err != nil {
		return nil, err
	}
	grant, _ := spec["models"].(map[string]any)
	grant = maps.Clone(grant)
	if grant == nil {
		grant = map[string]any{}
	}
	grant["models"] = []any{name}
	spec["models"] = grant
	return spec, nil
}

// scriptVendor is that of models that no program can call.
const scriptVendor = "script"

// begin opens a new thread with its first run.
func (k *Supervisor) begin(ctx context.Context, tenant string, id ids, s runs.Start) (runs.Run, error) {
	d, model, opened, err := k.chosen(ctx, tenant, s)
	if err != nil {
		return runs.Run{}, err
	}
	if err := k.machineThere(ctx, tenant, s.Sandbox); err != nil {
		return runs.Run{}, err
	}
	if k.c.Machines != nil && s.Sandbox == "" && s.Replay == "" {
		if s.Spec != nil && d.Program == nil {
			d.Sandbox = s.Spec
		}
		if d.Sandbox["none"] != true {
			if err := k.c.Machines.Check(d.Sandbox); err != nil {
				return runs.Run{}, err
			}
		}
	}
	bodies := []thread.Body{opened}
	if s.Sandbox != "" {
		bodies = append(bodies, thread.Bound{Machine: s.Sandbox})
	}
	budget := runs.BudgetOf(s.Budget, d.Limits.Budget)
	first := uint64(len(bodies) + 1)
	bodies = append(bodies, k.startedBy(ctx, s, budget, model)...)
	if d.Plan != "" && k.c.Plan != nil {
		text, err := k.c.Plan(d.Plan)
		if err != nil {
			return runs.Run{}, err
		}
		bodies = append(bodies, thread.Input{From: "skete", Name: "plan", Blocks: []llm.Block{llm.Text(clip.Text(text, thread.InlineBytesMax/2))}})
	}
	run := runs.Run{
		ID: id.Run, Thread: id.Thread, Tenant: tenant, Agent: d.Name, Model: shown(d, model), Title: s.Headline(), Labels: s.Labels, By: s.By,
		State: thread.RunPending, Created: k.c.Now().UTC().Truncate(time.Microsecond), Budget: budget, Sandbox: s.Sandbox, First: first, Replay: s.Replay,
		Keep: s.Keep,
	}
	return k.open(ctx, run, 0, bodies, s.Input)
}

// shown is the model that lists show.
func shown(d definition.Definition, model string) string {
	if d.Program != nil && model == "" {
		return "program"
	}
	return model
}

// startedBy begins a run in the way that s asks for.
func (k *Supervisor) startedBy(ctx context.Context, s runs.Start, b thread.Budget, model string) []thread.Body {
	bodies := []thread.Body{thread.RunStarted{By: s.By, ByName: k.c.NameOf(ctx, s.By), Budget: b, Schema: s.Schema, Model: model, Planning: s.Planning, Check: s.EndCheck}}
	if s.Planning {
		bodies = append(bodies, planningNotice("Find out what you need to know, then hand in a plan with submit_plan. If nothing has to be changed, answer without one."))
	}
	return bodies
}

// planningNotice tells the model that it may only read, and what to do then.
func planningNotice(then string) thread.Input {
	return thread.Input{From: "skete", Name: "planning", Blocks: []llm.Block{llm.Text("The user wants to see a plan first. Only tools that read can be used until then. " + then)}}
}

// open writes the record, then the events, and lets the run go.
func (k *Supervisor) open(ctx context.Context, run runs.Run, after uint64, bodies []thread.Body, input []llm.Block) (runs.Run, error) {
	log, blobs, err := k.logOf(ctx, run.Tenant)
	if err != nil {
		return runs.Run{}, err
	}
	if len(input) > 0 {
		in, err := runs.KeepInput(ctx, blobs, thread.Input{From: "user", Blocks: input})
		if err != nil {
			return runs.Run{}, err
		}
		bodies = append(bodies, in)
	}
	e, err := k.enter(ctx, log, run, after, bodies)
	return k.view(e), err
}

// goOn starts the next run of a thread.
func (k *Supervisor) goOn(ctx context.Context, tenant string, id ids, s runs.Start) (runs.Run, error) {
	_, st, err := k.fold(ctx, tenant, s.Thread)
	if err != nil {
		return runs.Run{}, err
	}
	if st.Run != nil { // where that is, the thread's machine is
		if _, err := k.find(ctx, tenant, st.Run.ID); errs.Is(err, errs.Conflict) {
			return runs.Run{}, err
		}
	}
	if st.Run != nil && st.Run.Ended == nil {
		return runs.Run{}, errs.New(errs.Conflict, "the thread has a run under way: %s", st.Run.ID).WithHint("`skete send %s …` adds a message to it", st.Run.ID)
	}
	if err := s.MayName(definition.Definition{}); err != nil {
		return runs.Run{}, err
	}
	model, err := k.modelFor(ctx, st.Agent, s.Model, lastModel(st.Run), st.Agent.Model)
	if err != nil {
		return runs.Run{}, err
	}
	if err := k.fits(ctx, s, st.Agent, model); err != nil {
		return runs.Run{}, err
	}
	budget := runs.BudgetOf(s.Budget, st.Agent.Limits.Budget)
	run := runs.Run{
		ID: id.Run, Thread: s.Thread, Tenant: tenant, Agent: st.Agent.Name, Model: shown(st.Agent, model), Title: s.Headline(), Labels: s.Labels, By: s.By,
		State: thread.RunPending, Created: k.c.Now().UTC().Truncate(time.Microsecond), Budget: budget, Sandbox: st.Machine, First: st.Seq + 1,
		Keep: s.Keep,
	}
	return k.open(ctx, run, st.Seq, k.startedBy(ctx, s, budget, model), s.Input)
}

// again starts the next run of a thread in the way of the last one.
func (k *Supervisor) again(ctx context.Context, tenant string, last runs.Run, b thread.Budget, by string) (runs.Run, error) {
	_, st, err := k.fold(ctx, tenant, last.Thread)
	if err != nil {
		return runs.Run{}, err
	}
	return k.Start(ctx, tenant, runs.Start{
		Thread: last.Thread, Budget: b, By: by, Title: last.Title, Labels: last.Labels, Keep: last.Keep, Input: []llm.Block{llm.Text("Go on where you stopped.")},
		Model: st.Run.Started.Model, Schema: st.Run.Started.Schema, Planning: st.Run.Planning, EndCheck: st.Run.Started.Check, Operator: true, // the caller that named the model then was allowed to
	})
}

func (k *Supervisor) definition(s runs.Start) (definition.Definition, error) {
	if s.Inline != nil && s.Replay != "" {
		return *s.Inline, nil // whole already
	}
	if s.Inline != nil {
		d, err := k.c.Definitions.Complete(*s.Inline)
		if err == nil && d.HostHooks() {
			err = errs.New(errs.Denied, "only agents of the server's own folder may run hooks on the host")
		}
		return d, err
	}
	name := s.Agent
	if name == "" {
		name = definition.Default
	}
	return k.c.Definitions.Resolve(name)
}

// machineThere finds out at once that a named sandbox is not there.
func (k *Supervisor) machineThere(ctx context.Context, tenant, id string) error {
	switch {
	case id == "":
		return nil
	case k.c.Machines == nil:
		return errs.New(errs.Unsupported, "this server has no sandboxes")
	}
	_, release, err := k.c.Machines.Open(ctx, tenant, id)
	if err != nil {
		return err
	}
	release()
	return nil
}

// modelFor picks the first model that is named, and finds out at once that it is not
// there, and not in the middle of a run. It returns the name under which the thread
// goes on with it: what no name means may be another model tomorrow.
func (k *Supervisor) modelFor(ctx context.Context, d definition.Definition, names ...string) (string, error) {
	name := cmp.Or(names...)
	if d.Program != nil {
		if name != "" && !replay.Is(name) {
			return "", errs.New(errs.Invalid, "the agent %s is a program, which finds its own model", d.Name).WithHint("`skete vm models` says which a sandbox may use")
		}
		return name, nil
	}
	if replay.Is(name) {
		return name, nil
	}
	m, err := k.c.Models.Open(ctx, name)
	if err == nil {
		err = m.Info().ForAgents()
	}
	if err != nil || name != "" {
		return name, err
	}
	name = m.Info().Name
	if _, err := k.c.Models.Open(ctx, name); err != nil {
		return "", nil // a script: its name does not say where it is
	}
	return name, nil
}

// fits finds out at once that the model sees no images, or that there is no machine for
// a check.
func (k *Supervisor) fits(ctx context.Context, s runs.Start, d definition.Definition, model string) error {
	if s.EndCheck != nil && s.EndCheck.Command != "" && (k.c.Machines == nil || d.Sandbox["none"] == true) {
		return errs.New(errs.Invalid, "the check runs a command, and this agent has no sandbox").WithHint("a rubric needs none")
	}
	if d.Program != nil {
		if runs.HasMedia(s.Input) || s.Planning || len(s.Schema) > 0 {
			return errs.New(errs.Invalid, "the agent %s is a program: images, plans and forms of results mean nothing to it", d.Name)
		}
		return nil
	}
	return k.sees(ctx, model, s.Input)
}

// sees refuses images for a model that does not see them: it would be told that there
// is something that it cannot look at.
func (k *Supervisor) sees(ctx context.Context, model string, blocks []llm.Block) error {
	if !runs.HasMedia(blocks) || replay.Is(model) {
		return nil
	}
	m, err := k.c.Models.Open(ctx, model)
	if err != nil || m.Info().Media {
		return err
	}
	return errs.New(errs.Unsupported, "the model %s takes no images, as far as is known", m.Info().Name).
		WithHint("use another one; or, if it does, say `media: true` about it in `models:` of the configuration")
}

// lastModel is the model of a thread's last run. A recorded run is played to its
// end: there is no going on with it.
func lastModel(r *runs.CurrentRun) string {
	if r == nil || replay.Is(r.Started.Model) {
		return ""
	}
	return r.Started.Model
}

// external appends events that do not come from the driver, and lets the driver
// know.
func (k *Supervisor) external(ctx context.Context, t threadKey, look func(*runs.State) ([]thread.Body, error)) (uint64, error) {
	log, _, err := k.logOf(ctx, t.tenant)
	if err != nil {
		return 0, err
	}
	seq, wrote, err := appendDecided(ctx, log, t.id, look)
	if wrote {
		k.reached(t, seq)
		k.wake(t)
	}
	return seq, err
}

// reached lets the caller see at once that there is more to a run than what its driver has
// read: a client that follows it knows that it does not end with a question that was answered.
func (k *Supervisor) reached(t threadKey, seq uint64) {
	k.mu.Lock()
	e := k.byID[t]
	k.mu.Unlock()
	if e == nil {
		return
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.run.Last = max(e.run.Last, seq)
}
