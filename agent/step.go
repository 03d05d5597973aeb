package agent

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/skete-dev/skete/agent/hook"
	"github.com/skete-dev/skete/agent/lookout"
	"github.com/skete-dev/skete/agent/prompt"
	"github.com/skete-dev/skete/agent/state"
	"github.com/skete-dev/skete/llm"
	"github.com/skete-dev/skete/llm/attempt"
	"github.com/skete-dev/skete/thread"
	"github.com/skete-dev/skete/tool"
)

const (
	// callsMax bounds the calls of one reply; what is beyond is dropped, and said.
	callsMax = 24
	// tightMax is how often a prompt may turn out to be too long in a row.
	tightMax = 3
)

// step is one model call and the start of what it asks for.
func (r *Runner) step(ctx context.Context) error {
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
		v := r.asked(r.c.Hook.BeforeModel(ctx, hook.ModelCall{Moment: r.moment(), Step: p.Request.Step, Tokens: p.Ledger.Total}))
		if v.Action == hook.Stop || v.Action == hook.Deny {
			return r.stop(ctx, thread.RunFailed, state.ReasonHook, reason(sentences[state.ReasonHook], v.Reason))
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
		Usage: response.Usage, CostUSD: r.c.Model.Info().Price.Cost(response.Usage), Model: firstOf(response.Model, r.c.Model.Info().ID),
		Stop: response.Stop, Attempt: attempts, Prompt: p.Hash, Ledger: p.Ledger, Through: through, Took: r.c.Now().Sub(began),
	})
}

// consult returns the model's whole answer. tool.ErrCancelled: somebody asked to
// cancel meanwhile.
func (r *Runner) consult(ctx context.Context, p *prompt.Prompt, attempts *int) (*llm.Response, error) {
	opCtx, done := r.interruptible(ctx)
	defer done()
	failedAttempt := func(f attempt.Failure) {
		*attempts = f.Attempt + 1
		r.c.News(News{Reset: true})
		_ = r.append(ctx, thread.ModelFailed{Attempt: f.Attempt, Trouble: f.Trouble, Text: clip(f.Text, textMax), Wait: f.Wait, Model: r.c.Model.Info().Name})
	}
	for delta, err := range attempt.Stream(opCtx, r.c.Model, p.Request, r.c.Patience, failedAttempt) {
		switch {
		case err != nil && errors.Is(context.Cause(opCtx), tool.ErrCancelled):
			return nil, tool.ErrCancelled
		case err != nil:
			return nil, err
		case delta.Response != nil:
			return delta.Response, nil
		}
		r.c.News(News{Delta: &delta})
	}
	return nil, &llm.Error{Trouble: llm.Malformed, Model: r.c.Model.Info().Name} // attempt sees to it
}

// interruptible returns a context that ends when somebody asks to cancel.
func (r *Runner) interruptible(ctx context.Context) (context.Context, func()) {
	w := lookout.New(ctx, lookout.Config{Asked: r.cancelSeen, Cause: tool.ErrCancelled, Pause: appendPause})
	r.lookout.Store(w)
	if len(r.poke) > 0 { // it came before the lookout was there
		w.Look()
	}
	return w.Context(), func() {
		r.lookout.Store(nil)
		w.End()
	}
}

// callFailed handles a model call that will not work by trying again.
func (r *Runner) callFailed(ctx context.Context, err error) error {
	switch {
	case errors.Is(err, tool.ErrCancelled):
		r.c.News(News{Reset: true})
		return errReplan
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case errors.Is(err, ErrFenced):
		return err
	case llm.TroubleOf(err) == llm.Overflow && r.tight < tightMax:
		r.tight++
		return errReplan // fit makes it shorter
	}
	r.c.Logger.Warn("the model failed", "thread", r.c.Thread, "err", err)
	return r.stop(ctx, thread.RunFailed, state.ReasonModel, modelText(err))
}

// answered logs a reply together with what can be started at once.
func (r *Runner) answered(ctx context.Context, response *llm.Response, done thread.ModelCompleted) error {
	message, correction := r.normalise(response)
	if err := r.keepMessage(ctx, &done, message); err != nil {
		return err
	}
	bodies := []thread.Body{done}
	switch wrong := ""; {
	case correction != "":
		bodies = append(bodies, notice("format", correction))
	case len(message.Calls()) == 0 && response.Stop == llm.StopRefusal:
		bodies = append(bodies, thread.RunEnded{State: thread.RunFailed, Reason: state.ReasonRefusal, Text: clip(firstOf(message.String(), sentences[state.ReasonRefusal]), textMax)})
	case len(message.Calls()) == 0 && response.Stop != llm.StopPause:
		if wrong = r.checkAnswer(message); wrong != "" {
			bodies = append(bodies, notice("output", wrong))
		}
	}
	if r.c.Hook != nil { // hooks may take long: what was paid for is safe first
		if err := r.append(ctx, bodies...); err != nil {
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
		b.cancel(nil)
		return err
	}
	if len(calls) == 0 {
		b.cancel(nil)
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
		return r.stop(ctx, thread.RunFailed, state.ReasonHook, reason(sentences[state.ReasonHook], v.Reason))
	}
	return r.append(ctx, r.contexts(v)...)
}

// callsOf are the calls of a message that is not in the log yet.
func callsOf(m llm.Message) []*state.Call {
	var calls []*state.Call
	for _, c := range m.Calls() {
		calls = append(calls, &state.Call{Call: *c})
	}
	return calls
}

// known replaces calls by those of the state.
func (r *Runner) known(calls []*state.Call) []*state.Call {
	for i, c := range calls {
		calls[i] = r.s.Call(c.ID)
	}
	return calls
}

// normalise makes a reply fit for the log: ids that are unique in the thread,
// arguments that are JSON, actions turned into calls. correction tells the
// model what was wrong with the reply as a whole.
func (r *Runner) normalise(response *llm.Response) (m llm.Message, correction string) {
	m = llm.Message{Role: llm.RoleAssistant}
	used, dropped := map[string]bool{}, 0
	blocks := response.Message.Blocks
	if r.calling != nil {
		blocks, correction = r.fromText(response.Message)
	}
	for _, b := range blocks {
		if b.Kind != llm.KindCall || b.Call == nil {
			m.Blocks = append(m.Blocks, b)
			continue
		}
		if len(used) == callsMax {
			dropped++
			continue
		}
		call := *b.Call
		if !thread.IsCallID(call.ID) || used[call.ID] || r.s.Call(call.ID) != nil {
			call.ID = fmt.Sprintf("call_%d_%d", r.s.Seq+1, len(used)+1)
		}
		for r.s.Call(call.ID) != nil || used[call.ID] {
			call.ID += "x"
		}
		used[call.ID] = true
		b.Call = argsOf(call)
		m.Blocks = append(m.Blocks, b)
	}
	switch {
	case dropped > 0:
		correction = fmt.Sprintf("A reply can ask for at most %d tools; %d more were dropped. Ask for them again if you still need them.", callsMax, dropped)
	case correction != "" || len(used) > 0:
	case response.Stop == llm.StopLength:
		correction = "Your reply was cut off at the output limit. Go on where it ended, in smaller pieces."
	case r.calling == nil && m.String() == "" && response.Stop == llm.StopEnd:
		correction = "Your reply was empty. Go on with the task, or say what the result is."
	}
	return m, correction
}

// argsOf makes sure that arguments are a JSON object, or says that they are not.
func argsOf(c llm.Call) *llm.Call {
	c.Args = bytes.TrimSpace(c.Args)
	if len(c.Args) == 0 || string(c.Args) == "null" {
		c.Args = json.RawMessage("{}")
	}
	if !c.Raw && (c.Args[0] != '{' || !json.Valid(c.Args)) {
		c.Args, _ = json.Marshal(string(c.Args))
		c.Raw = true
	}
	return &c
}

// keepMessage puts a message into an event, or into a blob when it is large.
func (r *Runner) keepMessage(ctx context.Context, done *thread.ModelCompleted, m llm.Message) error {
	done.Message = m
	if inline(m.Blocks) {
		return nil
	}
	content, err := json.Marshal(m)
	if err != nil || len(content) <= thread.InlineBytesMax {
		return err
	}
	done.Message = shape(m)
	if done.Blob, err = r.c.Blobs.Put(ctx, content); err != nil {
		return fmt.Errorf("keep a message: %w", err)
	}
	return nil
}

// shape is what an event keeps of a message that is a blob: enough for the
// state and for a line in a view.
func shape(m llm.Message) llm.Message {
	s := llm.Message{Role: m.Role}
	for _, b := range m.Blocks {
		short := llm.Block{Kind: b.Kind, Text: clip(b.Text, shapeTextMax)}
		if b.Call != nil {
			short.Call = &llm.Call{ID: b.Call.ID, Name: b.Call.Name, Args: json.RawMessage("{}"), Raw: b.Call.Raw}
			if short.Call.Raw {
				short.Call.Args = json.RawMessage(`""`)
			}
		}
		s.Blocks = append(s.Blocks, short)
	}
	return s
}

const shapeTextMax = 1 << 10

// hydrate gives the open calls of a step whose message is a blob their arguments.
func (r *Runner) hydrate(ctx context.Context) error {
	last := r.s.Last()
	if last == nil || last.Step.Blob == "" || len(r.s.Open()) == 0 {
		return nil
	}
	m, err := prompt.Message(ctx, r.c.Blobs, last.Step)
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
