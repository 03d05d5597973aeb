package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/skete-dev/skete/api"
	"github.com/skete-dev/skete/client"
	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/internal/clip"
	"github.com/skete-dev/skete/thread"
)

// Bounds of what is around a run.
const (
	prepareMax = 3 * time.Minute
	checkMax   = 2 * time.Minute
	cleanMax   = time.Minute
	// graceOfRun is how long after its limit a run is waited for. Then it is
	// cancelled, and the line says so.
	graceOfRun = 20 * time.Second
)

// runner does tasks with skete.
type runner struct {
	config
	c    *client.Client
	warn func(text string)
}

// try does a task in a sandbox of its own.
func (r runner) try(ctx context.Context, t task, l *line) {
	sb, err := r.prepare(ctx, t)
	if sb != nil {
		defer r.remove(ctx, sb)
	}
	if err != nil {
		l.fail("prepare the sandbox", err)
		return
	}
	r.work(ctx, sb, t, l)
	if ctx.Err() == nil { // else the evaluation was interrupted
		r.judge(ctx, sb, t, l)
	}
}

// prepare makes the sandbox of a task. One that is not nil must be removed, also
// when there is an error.
func (r runner) prepare(ctx context.Context, t task) (*client.Sandbox, error) {
	ctx, cancel := context.WithTimeout(ctx, prepareMax)
	defer cancel()
	made, err := r.c.CreateSandbox(ctx, api.CreateSandbox{Metadata: map[string]string{"task": t.name}})
	if err != nil {
		return nil, err
	}
	sb := r.c.Sandbox(made.ID).WithoutRevisions()
	if files := t.files(); files != "" {
		if _, err := sb.Files().UploadDir(ctx, files, "."); err != nil {
			return sb, err
		}
	}
	if t.setup == "" {
		return sb, nil
	}
	res, err := sb.RunCommand(ctx, api.RunCommand{Argv: []string{"sh", "-c", t.setup}})
	if err == nil && res.ExitCode != 0 {
		err = fmt.Errorf("setup.sh ended with status %d: %s", res.ExitCode, words(string(res.Err)))
	}
	return sb, err
}

// remove destroys a sandbox although the evaluation may be over.
func (r runner) remove(ctx context.Context, sb *client.Sandbox) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanMax)
	defer cancel()
	if err := sb.Destroy(ctx); err != nil {
		r.warn(fmt.Sprintf("%s is left: %v", sb.ID, err))
	}
}

// work lets the agent do the task.
func (r runner) work(ctx context.Context, sb *client.Sandbox, t task, l *line) {
	ctx, cancel := context.WithTimeout(ctx, r.limit+graceOfRun)
	defer cancel()
	start := api.StartRun{
		Task: t.text, Model: r.model, Sandbox: sb.ID, Title: t.name,
		Budget: api.Budget{WallMS: r.limit.Milliseconds()},
	}
	var err error
	if start.Definition, l.Prompt, err = r.definition(ctx); err != nil {
		l.fail("read the agent", err)
		return
	}
	began, err := r.c.StartRun(ctx, start)
	if err != nil {
		l.fail("start the run", err)
		return
	}
	run := r.c.Run(began.ID)
	err = follow(ctx, run)
	ended, waitErr := run.Wait(ctx)
	if waitErr != nil {
		ended = r.cancel(ctx, run, began)
		err = fmt.Errorf("it was cancelled, at the latest %s after its limit: %w", graceOfRun, waitErr)
	}
	if ended.Background > 0 { // sub-agents of it; the checker is to see files that nothing changes
		r.cancel(ctx, run, ended)
	}
	l.fail("the run", err)
	l.of(ended, r.limit)
}

// follow waits for the end of a run and answers what it and its sub-agents ask.
func follow(ctx context.Context, run *client.Run) error {
	for news, err := range run.Tree(ctx, 0) {
		if err == nil && news.Event != nil && thread.Kind(news.Event.Kind) == (thread.ApprovalAsked{}).Kind() {
			err = refuse(ctx, run, news.Thread, news.Event.Data)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// refuse answers a question of a run or its sub-agent: time that it waits for
// people does not count, and here are none.
func refuse(ctx context.Context, run *client.Run, of string, data json.RawMessage) error {
	var asked thread.ApprovalAsked
	if err := json.Unmarshal(data, &asked); err != nil {
		return err
	}
	_, err := run.Decide(ctx, api.Decide{Call: asked.Call, Thread: of, Decision: api.DecisionReject, Text: "There is no person to ask."})
	if errs.Is(err, errs.Conflict) { // it does not wait any more
		return nil
	}
	return err
}

// cancel ends a run, with what it started, and returns what is known of it then.
func (r runner) cancel(ctx context.Context, run *client.Run, known api.Run) api.Run {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanMax)
	defer cancel()
	_, err := run.Cancel(ctx, "the evaluation does not wait any longer")
	ended, waitErr := run.Wait(ctx)
	if err := errors.Join(err, waitErr); err != nil {
		r.warn(fmt.Sprintf("%s: %v", run.ID, err))
		return known
	}
	return ended
}

// definition returns what a run is to be started with, nil = the agent default as
// it is, and the version of what the agent is told.
func (r runner) definition(ctx context.Context) (sent json.RawMessage, version string, err error) {
	agent, err := r.c.Agent(ctx, "default")
	if err != nil {
		return nil, "", err
	}
	if version, err = promptVersion(agent.Definition, r.calling); err != nil || r.calling == "" {
		return nil, version, err
	}
	var whole map[string]json.RawMessage
	if err := json.Unmarshal(agent.Definition, &whole); err != nil {
		return nil, "", err
	}
	// Not its sub-agents and times, which a definition that is sent along writes
	// in another form; the default has the usual ones.
	d := map[string]any{"calling": r.calling}
	for _, key := range []string{"name", "description", "instructions", "tools", "memory"} {
		if v, ok := whole[key]; ok {
			d[key] = v
		}
	}
	sent, err = json.Marshal(d)
	return sent, version, err
}

// of takes over what is known of a run.
func (l *line) of(run api.Run, limit time.Duration) {
	l.State, l.Reason, l.Said = run.State, run.Reason, clip.Line(run.Text, wordsMax)
	l.Model = run.Model // of a script, its name without its folder
	l.Steps = run.Steps + run.Below
	l.InputTokens = run.Usage.Input + run.Usage.CacheRead + run.Usage.CacheWrite
	l.OutputTokens, l.CostUSD = run.Usage.Output, run.CostUSD
	if run.EndedAt != nil {
		l.took(run.EndedAt.Sub(run.CreatedAt), limit)
	}
	if !run.Final() || run.Reason == "" {
		l.fail("the run", fmt.Errorf("it is %s and says no reason", run.State))
	}
}

// judge runs the checker. It comes as an argument of its shell, so that it is in
// no file that a program which the agent left behind could change.
func (r runner) judge(ctx context.Context, sb *client.Sandbox, t task, l *line) {
	ctx, cancel := context.WithTimeout(ctx, checkMax+cleanMax)
	defer cancel()
	res, err := sb.RunCommand(ctx, api.RunCommand{Argv: []string{"sh", "-c", t.check}, TimeoutMS: checkMax.Milliseconds()})
	if err != nil || res.NotStarted {
		l.fail("run the checker", cmp.Or(err, errors.New(res.Reason)))
		return
	}
	l.Success, l.Words = res.ExitCode == 0, words(string(res.Out)+string(res.Err))
	if res.Reason != "" {
		l.Words = words("the checker was ended: " + res.Reason)
	}
}
