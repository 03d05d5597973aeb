package agent

import (
	"context"
	"encoding/json"
	"time"

	"github.com/skete-dev/skete/agent/runs"
	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/internal/clip"
	"github.com/skete-dev/skete/thread"
	"github.com/skete-dev/skete/tool"
)

// This file puts the forms of calls that run before a person (tool.Request.Ask).
//
// The form and the answer are in the log, as approvals are, so that every client shows and
// answers them. The call that asks is in this process: a form outlives it in the log, and
// the next driver dismisses it (ADR 0055).

// formWait is how long a form waits for a person: it holds the call, its program, and the
// machine.
const formWait = 24 * time.Hour

// formAsked is a form on its way into the log; with one that was withdrawn nothing waits.
type formAsked struct {
	call  *runs.Call
	form  thread.Form
	reply chan formReply
	// gone: the call does not wait for the answer any more.
	gone bool
}

type formReply struct {
	answer tool.FormAnswer
	err    error
}

// inquires reports whether calls of a tool may ask while they run.
func (r *Runner) inquires(name string) bool {
	t := r.tools[name]
	if checked, ok := t.(*tool.Checked); ok {
		t = checked.Tool
	}
	i, ok := t.(tool.Inquirer)
	return ok && i.Inquires()
}

// ask implements tool.Request.Ask, in the goroutine of a call.
func (b *batch) ask(ctx context.Context, c *runs.Call, f thread.Form) (tool.FormAnswer, error) {
	if err := runs.CheckForm(f); err != nil {
		return tool.FormAnswer{}, err
	}
	defer tool.Pause(ctx)()
	asked := formAsked{call: c, form: f, reply: make(chan formReply, 1)}
	select {
	case b.forms <- asked:
	case <-ctx.Done():
		return tool.FormAnswer{}, context.Cause(ctx)
	case <-b.ctx.Done():
		return tool.FormAnswer{}, context.Cause(b.ctx)
	}
	select {
	case reply := <-asked.reply:
		return reply.answer, reply.err
	case <-ctx.Done():
	}
	asked.gone = true
	select {
	case b.forms <- asked:
	case <-b.ctx.Done(): // the call ends, and its form with it
	}
	return tool.FormAnswer{}, context.Cause(ctx)
}

// askForm writes a form down, or that it is not asked any more.
func (b *batch) askForm(ctx context.Context, f formAsked) error {
	c := f.call
	waits, is := b.asking[c.ID]
	switch {
	case f.gone && is && waits.reply == f.reply:
		return b.r.appendSoft(ctx, b.withdrawn(c)...)
	case f.gone:
		return nil
	case is:
		f.reply <- formReply{err: errs.New(errs.Limit, "the call asks another thing already")}
		return nil
	case b.r.replays() || b.r.s.Run.Cancel != nil:
		f.reply <- formReply{answer: tool.FormAnswer{Decision: thread.Dismiss}}
		return nil
	}
	asked := thread.ApprovalAsked{
		Ask: thread.AskForm, Call: c.ID, Tool: c.Name, Allowed: thread.AskForm.Decisions(), Form: &f.form,
		Reason: clip.Text("while it runs, "+f.form.From+" asks", textMax), Expires: b.r.c.Now().Add(formWait).UTC().Truncate(time.Microsecond),
	}
	b.asking[c.ID] = f
	return b.r.appendSoft(ctx, asked)
}

// replays reports whether a recorded run is played again: there is no person to ask.
func (r *Runner) replays() bool {
	_, plays := r.c.Model.(interface {
		Decided(call string) (thread.ApprovalDecided, bool)
	})
	return plays
}

// appendSoft is append where that the log has moved on is fine.
func (r *Runner) appendSoft(ctx context.Context, bodies ...thread.Body) error {
	err := r.append(ctx, bodies...)
	if err == errReplan { //nolint:errorlint // it is not wrapped
		r.Notify()
		return nil
	}
	return err
}

// withdrawn is the end of a form that its call does not wait for any more.
func (b *batch) withdrawn(c *runs.Call) []thread.Body {
	if _, is := b.asking[c.ID]; !is {
		return nil
	}
	delete(b.asking, c.ID)
	if c.Form() == nil {
		return nil
	}
	return []thread.Body{dismissed(c, "It is not asked any more.")}
}

func dismissed(c *runs.Call, why string) thread.ApprovalDecided {
	return thread.ApprovalDecided{Call: c.ID, Decision: thread.Dismiss, By: "skete", Text: why}
}

// answerForms hands on what was decided about forms, and ends those whose time is over.
func (b *batch) answerForms(ctx context.Context) error {
	for id, f := range b.asking {
		c := b.r.s.Call(id)
		if c.Form() != nil && !b.r.c.Now().Before(c.Asked.Expires) {
			if err := b.r.appendSoft(ctx, dismissed(c, "No answer came in time.")); err != nil {
				return err
			}
		}
		if c.Decided == nil {
			continue
		}
		delete(b.asking, id)
		answer := tool.FormAnswer{Decision: c.Decided.Decision}
		if answer.Decision == thread.Respond {
			answer.Content = json.RawMessage(c.Decided.Text)
		}
		f.reply <- formReply{answer: answer}
	}
	return nil
}

// closeForms dismisses what calls of an earlier driver asked: no call waits for it.
func (r *Runner) closeForms(ctx context.Context) error {
	if r.s.Run == nil || r.s.Run.Ended != nil {
		return nil
	}
	var bodies []thread.Body
	for _, c := range r.s.Open() {
		if c.Form() != nil {
			bodies = append(bodies, dismissed(c, "The server was started again while this was asked."))
		}
	}
	return r.append(ctx, bodies...)
}
