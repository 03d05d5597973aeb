package runner

import (
	"cmp"
	"context"
	"encoding/json"
	"strings"
	"sync"
	"time"

	"github.com/skete-dev/skete/agent/definition"
	"github.com/skete-dev/skete/agent/runs"
	"github.com/skete-dev/skete/cowork"
	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/internal/clip"
	"github.com/skete-dev/skete/llm"
	"github.com/skete-dev/skete/thread"
)

// Labels of a node's run.
const (
	LabelRun      = "workflow-run"
	LabelWorkflow = "workflow"
	LabelNode     = "node"
)

// resultBytesMax bounds what a node may answer.
const resultBytesMax = 1 << 20

// attempt looks after one attempt of an agent: it starts its run unless it was started, waits
// for the end, and tells the driver what came of it.
type attempt struct {
	d     *driver
	of    *cowork.Attempt
	v     *cowork.Vertex
	id    thread.RunID // of its run
	task  string
	fresh bool           // this process wrote down that it begins: there is no run yet
	ended <-chan nodeEnd // of its run
	end   *thread.RunEnded
	over  chan struct{} // closed when its goroutine has ended

	once    sync.Once
	stopped chan struct{} // closed when it is to end
	why     string        // set before
}

// runOf is the id of an attempt's run: the same attempt is the same run.
func runOf(tenant string, id ID, a thread.Attempt) thread.RunID {
	return runs.DerivedID(tenant, cowork.Key(id.Thread(), a))
}

func newAttempt(d *driver, a *cowork.Attempt, fresh bool) *attempt {
	return &attempt{
		d: d, of: a, v: d.s.Vertex(a.Attempt), id: runOf(d.run.Tenant, d.run.ID, a.Attempt), task: d.s.Task(a), fresh: fresh,
		over: make(chan struct{}), stopped: make(chan struct{}),
	}
}

// stop asks the attempt to end.
func (a *attempt) stop(why string) {
	a.once.Do(func() {
		a.why = why
		close(a.stopped)
	})
}

// stopping is why it is to end, "" = it is not.
func (a *attempt) stopping() string {
	select {
	case <-a.stopped:
		return a.why
	default:
		return ""
	}
}

func (a *attempt) look(ctx context.Context) {
	defer close(a.over)
	o := &outcome{ended: thread.NodeEnded{Attempt: a.of.Attempt}}
	a.ended = a.d.r.ended(a.d.run.Tenant, a.id) // before it can be over
	defer a.d.r.forget(a.d.run.Tenant, a.id)
	run, err := a.started(ctx, o)
	if err == nil && run.ID != "" {
		run, err = a.awaited(ctx, run)
	}
	if err == nil && run.ID != "" {
		err = a.gather(ctx, run, o)
	}
	if err != nil {
		if ctx.Err() != nil {
			return
		}
		o.ended.State, o.ended.Reason, o.ended.Text = thread.RunFailed, cmp.Or(o.ended.Reason, cowork.ReasonStart), runs.Explain(err)
	}
	select {
	case a.d.done <- o:
	case <-ctx.Done():
	}
}

func (a *attempt) key() string { return cowork.Key(a.d.run.ID.Thread(), a.of.Attempt) }

// started returns the attempt's run, which is begun unless it was; none: it is to end before.
func (a *attempt) started(ctx context.Context, o *outcome) (runs.Run, error) {
	stopped := a.stopped
	for wait := retryFirst; ; wait = min(2*wait, retryMax) {
		run, err := a.begun(ctx)
		if errs.Is(err, errs.NotFound) {
			if why := a.stopping(); why != "" {
				o.ended.State, o.ended.Reason, o.ended.Text = stateOf(why), why, "it was stopped before it began"
				return runs.Run{}, nil
			}
			run, err = a.start(ctx, o)
		} else if err == nil {
			o.ended.Machine = a.made(run)
		}
		if err == nil || !errs.Temporary(err) || ctx.Err() != nil {
			return run, err
		}
		a.d.r.c.Log.Warn("a node of a workflow could not be started; it will be tried again", "run", a.d.run.ID, "node", cowork.Label(a.of.Attempt), "err", err)
		select {
		case <-ctx.Done():
			return run, ctx.Err()
		case <-stopped: // it is looked once more whether there is a run to end
			stopped = nil
		case <-time.After(wait):
		}
	}
}

// begun finds the attempt's run. NotFound: it is to be started.
func (a *attempt) begun(ctx context.Context) (runs.Run, error) {
	if a.fresh {
		a.fresh = false // the start may come to half of it
		return runs.Run{}, errs.New(errs.NotFound, "it has just begun")
	}
	return a.d.r.c.Runs.Begun(ctx, a.d.run.Tenant, a.id)
}

func stateOf(why string) thread.RunState {
	if why == cowork.ReasonTimeout {
		return thread.RunTimedOut
	}
	return thread.RunCancelled
}

// made is the machine that was made for the attempt, by the run that works in it.
func (a *attempt) made(run runs.Run) string {
	if a.v.Sandbox == cowork.SandboxOwn || a.v.Sandbox == cowork.SandboxFork {
		if !run.OwnSandbox {
			return run.Sandbox
		}
	}
	return ""
}

// start makes the machine and begins the run.
func (a *attempt) start(ctx context.Context, o *outcome) (runs.Run, error) {
	s := nodeStart(a.v, a.d.workflow.Machine)
	s.Thread, s.Run, s.Budget = a.of.Thread, a.id, a.of.Budget
	s.Input = []llm.Block{llm.Text(a.task)}
	s.By, s.Operator = "workflow "+string(a.d.run.ID), a.d.started.Operator
	s.Title = a.d.run.Workflow + ": " + cowork.Label(a.of.Attempt)
	s.Labels = map[string]string{LabelRun: string(a.d.run.ID), LabelWorkflow: a.d.run.Workflow, LabelNode: cowork.Label(a.of.Attempt)}
	if s.Thread != "" { // it keeps its agent and its machine
		s.Agent, s.Inline, s.Spec = "", nil, nil
	}
	if s.Spec["none"] != true && a.d.r.c.Machines != nil {
		machine, own, err := a.machine(ctx)
		if own {
			o.ended.Machine = machine
		}
		if err != nil {
			o.ended.Reason = cowork.ReasonMachine
			return runs.Run{}, err
		}
		s.Sandbox, s.Spec = machine, nil
	} else if len(a.of.Files) > 0 {
		return runs.Run{}, errs.New(errs.Invalid, "%s is given files, and has no machine", a.of.Node)
	}
	if s.Thread != "" {
		s.Sandbox = ""
	}
	return a.d.r.c.Runs.Start(ctx, a.d.run.Tenant, s)
}

// nodeStart is what a node's run is asked for, as far as the definition says it.
func nodeStart(v *cowork.Vertex, shared map[string]any) runs.Start {
	var s runs.Start
	if v.Agent != "" {
		s.Agent = v.Agent
	} else {
		s.Inline = &definition.Definition{
			Name: v.Name, Description: clip.Line(v.Description, 256), Model: v.Inline.Model, Instructions: v.Inline.Instructions,
			Tools: v.Inline.Tools, Skills: v.Inline.Skills, Effort: v.Inline.Effort,
		}
	}
	if v.Result != nil {
		s.Schema, _ = json.Marshal(v.Result) // it was compiled
	}
	if spec := specOf(v, shared); spec != nil {
		s.Spec = spec
	}
	return s
}

// specOf is what a definition says of the machine of a node.
func specOf(v *cowork.Vertex, shared map[string]any) map[string]any {
	if v.Sandbox == cowork.SandboxOwn {
		return v.Machine
	}
	return shared
}

// awaited returns the run when it is over, and ends it when that is wanted.
func (a *attempt) awaited(ctx context.Context, run runs.Run) (runs.Run, error) {
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	stopped := a.stopped
	for !run.State.Final() {
		select {
		case <-ctx.Done():
			return run, ctx.Err()
		case e := <-a.ended:
			a.end = e.end
			return e.run, nil
		case <-tick.C:
			stopped = a.stopped // it may not have been heard
		case <-stopped:
			stopped = nil
			if _, err := a.d.r.c.Runs.Cancel(ctx, a.d.run.Tenant, a.id, "workflow", a.why); err != nil {
				a.d.r.c.Log.Warn("the run of a workflow's node could not be cancelled", "run", a.id, "err", err)
			}
		}
		now, err := a.d.r.c.Runs.Get(ctx, a.d.run.Tenant, a.id)
		if err == nil {
			run = now
		} else if !errs.Temporary(err) {
			return run, err
		}
	}
	return run, nil
}

// gather writes into the outcome what the run came to.
func (a *attempt) gather(ctx context.Context, run runs.Run, o *outcome) error {
	e := &o.ended
	e.Run, e.Thread, e.State, e.Reason, e.Text = run.ID, run.Thread, run.State, run.Reason, run.Text
	e.Model = run.Model
	e.Spent = thread.Spent{Steps: run.Steps + run.Below, Usage: run.Usage, CostUSD: run.CostUSD}
	if why := a.stopping(); why != "" && run.State != thread.RunSucceeded {
		e.State, e.Reason = stateOf(why), why
	}
	if e.State != thread.RunSucceeded {
		return nil
	}
	e.Text = ""
	var err error
	if e.Result, err = a.result(ctx, run); err != nil {
		e.Reason = cowork.ReasonResult
		return err
	}
	if len(a.v.Artifacts) == 0 {
		return nil
	}
	if err := a.collect(ctx, run.Sandbox, o); err != nil {
		e.Reason, e.Artifacts, o.files = cowork.ReasonArtifact, nil, nil
		return err
	}
	return nil
}

// result is what the run answered, as JSON: by its schema, else its last words.
func (a *attempt) result(ctx context.Context, run runs.Run) (json.RawMessage, error) {
	end, err := a.endOf(ctx, run)
	if err != nil {
		return nil, err
	}
	result := end.Result
	switch {
	case end.Blob != "":
		if result, err = a.d.blobs.Get(ctx, end.Blob); err != nil {
			return nil, err
		}
	case len(result) == 0:
		text, err := a.words(ctx, run, end.Text)
		if err != nil {
			return nil, err
		}
		result, _ = json.Marshal(text) // of a string
	}
	if len(result) > resultBytesMax {
		return nil, errs.New(errs.Limit, "the result has %d bytes, at most %d", len(result), resultBytesMax).WithHint("let it leave a file: artifacts")
	}
	if !json.Valid(result) {
		return nil, errs.New(errs.Invalid, "the result is no JSON")
	}
	return result, nil
}

// endOf is what the log of the run says of its end, read unless it was told.
func (a *attempt) endOf(ctx context.Context, run runs.Run) (*thread.RunEnded, error) {
	if a.end != nil {
		return a.end, nil
	}
	for e, err := range a.d.log.Load(ctx, run.Thread, run.First) {
		if err != nil {
			return nil, err
		}
		if b, is := e.Body.(thread.RunEnded); is && e.Run == run.ID {
			return &b, nil
		}
	}
	return nil, errs.New(errs.Corrupt, "the end of %s is not in its log", run.ID)
}

// words are the last ones of a run, whole: its end has the beginning of them, which ends with
// an ellipsis where it was cut.
func (a *attempt) words(ctx context.Context, run runs.Run, beginning string) (string, error) {
	if !strings.HasSuffix(beginning, "…") {
		return beginning, nil
	}
	var last thread.ModelCompleted
	for e, err := range a.d.log.Load(ctx, run.Thread, run.First) {
		if err != nil {
			return "", err
		}
		if b, is := e.Body.(thread.ModelCompleted); is && e.Run == run.ID {
			last = b
		}
	}
	m := last.Message
	if last.Blob != "" {
		content, err := a.d.blobs.Get(ctx, last.Blob)
		if err == nil {
			m = llm.Message{}
			err = json.Unmarshal(content, &m)
		}
		if err != nil {
			return "", err
		}
	}
	if whole := m.String(); len(whole) > len(beginning) {
		return whole, nil
	}
	return beginning, nil
}
