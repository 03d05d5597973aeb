package agent

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/skete-dev/skete/agent/hook"
	"github.com/skete-dev/skete/agent/prompt"
	"github.com/skete-dev/skete/agent/runs"
	"github.com/skete-dev/skete/internal/clip"
	"github.com/skete-dev/skete/llm"
	"github.com/skete-dev/skete/thread"
	"github.com/skete-dev/skete/tool"
)

const (
	// tightMax is how often a prompt may turn out to be too long in a row.
	tightMax = 3
)

// step is one model call and the start of what it asks for.
func (r *Runner) step(ctx context.Context) error {
	if r.c.Tree != nil {
		budget, others := r.c.Tree()
		if reason := runs.Exceeds(r.s.Run.Spent().Add(others), budget); reason != "" {
			return r.stop(ctx, thread.RunFailed, reason, "With the sub-agents, "+lowerFirst(sentences[reason]))
		}
	}
	if err := r.tell(ctx); err != nil {
		return err
	}
	if stopped, err := r.greet(ctx); stopped || err != nil {
		return err
	}
	if stopped, err := r.guard(ctx); stopped || err != nil {
		return err
	}
	p, err := r.fit(ctx)
	if err != nil {
		return err
	}
	if r.c.Hook != nil {
		v := r.asked(r.c.Hook.BeforeModel(ctx, hook.ModelCall{Moment: r.moment().At(p.Request.Step), Tokens: p.Ledger.Total}))
		if v.Action == hook.Stop || v.Action == hook.Deny {
			return r.stop(ctx, thread.RunFailed, runs.ReasonHook, reason(sentences[runs.ReasonHook], v.Reason))
		}
		if bodies := r.contexts(v); bodies != nil {
			if err := r.append(ctx, bodies...); err != nil {
				return err
			}
			if p, err = r.fit(ctx); err != nil {
				return err
			}
		}
	}
	return r.call(ctx, p)
}

func lowerFirst(s string) string { return strings.ToLower(s[:1]) + s[1:] }

// tell logs what surrounds the thread, once a run.
func (r *Runner) tell(ctx context.Context) error {
	if r.told || r.c.Surroundings == nil || r.s.Run.Steps > 0 {
		return nil
	}
	r.told = true
	about, err := r.c.Surroundings(ctx)
	if err != nil {
		return fmt.Errorf("look at the surroundings: %w", err)
	}
	if r.s.Context != nil && same(*r.s.Context, about) {
		return nil
	}
	return r.append(ctx, about)
}

// same compares but for the time of day.
func same(a, b thread.Context) bool {
	const day = time.DateOnly
	if a.Now.Format(day) != b.Now.Format(day) {
		return false
	}
	a.Now = b.Now
	x, _ := json.Marshal(a)
	y, _ := json.Marshal(b)
	return string(x) == string(y)
}

// call asks the model.
func (r *Runner) call(ctx context.Context, p *prompt.Prompt) error {
	through, began := r.s.Seq, r.c.Now()
	attempts := 1
	response, err := r.consult(ctx, p, &attempts)
	if err != nil {
		return r.callFailed(ctx, err)
	}
	r.tight = 0
	return r.answered(ctx, response, thread.ModelCompleted{
		Usage: response.Usage, CostUSD: r.c.Model.Info().Price.Cost(response.Usage), Model: cmp.Or(response.Model, r.c.Model.Info().ID),
		Stop: response.Stop, Attempt: attempts, Prompt: p.Hash, Ledger: p.Ledger, Through: through, Took: r.c.Now().Sub(began),
	})
}

// consult returns the model's whole answer. tool.ErrCancelled, tool.ErrTimeUp: a
// cancel was asked for meanwhile, the run's time was up.
func (r *Runner) consult(ctx context.Context, p *prompt.Prompt, attempts *int) (*llm.Response, error) {
	opCtx, done := r.interruptible(ctx)
	defer done()
	failedAttempt := func(f llm.RetryFailure) {
		*attempts = f.Attempt + 1
		r.c.News(News{Reset: true})
		body := thread.ModelFailed{Attempt: f.Attempt, Trouble: f.Trouble, Text: clip.Text(f.Text, textMax), Wait: f.Wait, Model: r.c.Model.Info().Name}
		if f.Trouble == llm.Overflow {
			body.WindowTokens, body.PromptTokens, body.Estimated = f.Err.WindowTokens, f.Err.PromptTokens, p.Ledger.Total
		}
		_ = r.append(ctx, body)
	}
	for delta, err := range llm.Retry(opCtx, r.c.Model, p.Request, r.c.Patience, failedAttempt) {
		switch {
		case err != nil && interrupted(opCtx) != nil:
			return nil, interrupted(opCtx)
		case err != nil:
			return nil, err
		case delta.Response != nil:
			return delta.Response, nil
		}
		r.c.News(News{Delta: &delta})
	}
	return nil, &llm.Error{Trouble: llm.Malformed, Model: r.c.Model.Info().Name} // attempt sees to it
}

// interruptible returns a context that ends when a cancel is asked for, and when
// the run's time is up.
func (r *Runner) interruptible(ctx context.Context) (context.Context, func()) {
	ctx, stop := r.timed(ctx)
	w := newCancelWatcher(ctx, cancelWatchConfig{Asked: r.cancelSeen, Cause: tool.ErrCancelled, Pause: appendPause})
	r.watcher.Store(w)
	if len(r.poke) > 0 { // it came before the watcher was there
		w.Look()
	}
	return w.Context(), func() {
		r.watcher.Store(nil)
		w.End()
		stop()
	}
}

// interrupted is why such a context ended, nil = it did not, or with its parent.
func interrupted(ctx context.Context) error {
	cause := context.Cause(ctx)
	for _, why := range []error{tool.ErrCancelled, tool.ErrTimeUp} {
		if errors.Is(cause, why) {
			return why
		}
	}
	return nil
}

// callFailed handles a model call that will not work by trying again.
func (r *Runner) callFailed(ctx context.Context, err error) error {
	switch {
	case errors.Is(err, tool.ErrCancelled), errors.Is(err, tool.ErrTimeUp):
		r.c.News(News{Reset: true})
		return errReplan
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case errors.Is(err, ErrFenced):
		return err
	case llm.TroubleOf(err) == llm.Overflow && r.tight < tightMax:
		r.tight++
		return errReplan // fit makes it shorter, by what the failure has shown
	}
	r.c.Logger.Warn("the model failed", "thread", r.c.Thread, "err", err)
	return r.stop(ctx, thread.RunFailed, runs.ReasonModel, modelText(err))
}

// answered logs a reply together with what can be started at once.
func (r *Runner) answered(ctx context.Context, response *llm.Response, done thread.ModelCompleted) error {
	form := replyOptions{Taken: func(id string) bool { return r.s.Call(id) != nil }, Seq: r.s.Seq + 1}
	if r.calling != nil {
		form.FromText = r.fromText
	}
	message, correction := normaliseReply(response, form)
	message = r.unwrap(message)
	if err := prompt.OffloadMessage(ctx, r.c.Blobs, &done, message); err != nil {
		return err
	}
	bodies := []thread.Body{done}
	switch wrong := ""; {
	case correction != "":
		bodies = append(bodies, notice("format", correction))
	case len(message.Calls()) == 0 && response.Stop == llm.StopRefusal:
		bodies = append(bodies, thread.RunEnded{State: thread.RunFailed, Reason: runs.ReasonRefusal, Text: clip.Text(cmp.Or(message.String(), sentences[runs.ReasonRefusal]), textMax)})
	case len(message.Calls()) == 0 && response.Stop == llm.StopFailed:
		bodies = append(bodies, thread.RunEnded{State: thread.RunFailed, Reason: runs.ReasonProgram, Text: clip.Text(message.String(), textMax)})
	case len(message.Calls()) == 0 && response.Stop != llm.StopPause:
		if wrong = r.checkAnswer(message); wrong != "" {
			bodies = append(bodies, notice("output", wrong))
		}
	}
	if r.c.Hook != nil { // hooks may take long: what was paid for is safe first
		if err := r.append(ctx, bodies...); err != nil {
			return err
		}
		if err := r.hydrate(ctx); err != nil {
			return err
		}
		return r.replied(ctx, message)
	}
	calls := callsOf(message)
	b := r.newBatch(ctx, len(calls))
	about, ready := b.judge(ctx, calls)
	plain, planners := b.choose(ready)
	starts := make([]thread.Body, 0, len(plain))
	for _, c := range plain {
		starts = append(starts, r.started(c, nil, nil))
	}
	bodies = append(append(bodies, about...), starts...)
	err := r.append(ctx, bodies...)
	if err == nil {
		err = r.hydrate(ctx)
	}
	if err != nil {
		b.end()
		return err
	}
	if len(calls) == 0 {
		b.end()
		return nil
	}
	b.begin(r.known(plain), r.known(planners), starts)
	_, err = r.runTools(ctx, b)
	return err
}

// replied tells the hooks.
func (r *Runner) replied(ctx context.Context, m llm.Message) error {
	v := r.asked(r.c.Hook.AfterModel(ctx, hook.ModelReply{Moment: r.moment(), Message: m}))
	if v.Action == hook.Stop {
		return r.stop(ctx, thread.RunFailed, runs.ReasonHook, reason(sentences[runs.ReasonHook], v.Reason))
	}
	return r.append(ctx, r.contexts(v)...)
}

// callsOf are the calls of a message that is not in the log yet.
func callsOf(m llm.Message) []*runs.Call {
	var calls []*runs.Call
	for _, c := range m.Calls() {
		calls = append(calls, &runs.Call{Call: *c})
	}
	return calls
}

// known replaces calls by those of the state.
func (r *Runner) known(calls []*runs.Call) []*runs.Call {
	for i, c := range calls {
		calls[i] = r.s.Call(c.ID)
	}
	return calls
}

// hydrate gives the open calls of a step whose message is a blob their arguments.
func (r *Runner) hydrate(ctx context.Context) error {
	last := r.s.Last()
	if last == nil || last.Step.Blob == "" || len(r.s.Open()) == 0 {
		return nil
	}
	m, err := prompt.Message(ctx, r.c.Blobs, last)
	if err != nil {
		return err
	}
	for _, c := range m.Calls() {
		if known := r.s.Call(c.ID); known != nil {
			known.Args = c.Args
		}
	}
	return nil
}

// notice is an input of the platform itself.
func notice(name, text string) thread.Input {
	return thread.Input{From: "skete", Name: name, Blocks: []llm.Block{llm.Text(text)}}
}
