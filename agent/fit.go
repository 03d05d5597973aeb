package agent

import (
	"context"
	"fmt"

	"github.com/skete-dev/skete/agent/hook"
	"github.com/skete-dev/skete/agent/prompt"
	"github.com/skete-dev/skete/agent/runs"
	"github.com/skete-dev/skete/internal/clip"
	"github.com/skete-dev/skete/llm"
	"github.com/skete-dev/skete/thread"
)

// fit builds the prompt, making the conversation shorter until it leaves room
// for an answer: first old outputs go, then a summary replaces the beginning.
func (r *Runner) fit(ctx context.Context) (*prompt.Prompt, error) {
	spec := prompt.Spec{Tools: r.specs, Model: r.c.Model.Info()}
	if r.calling != nil {
		spec.Calling = r.calling
	}
	if err := r.compactAsked(ctx, spec.Model); err != nil {
		return nil, err
	}
	for try := 0; ; try++ {
		window := prompt.Room(r.s, spec.Model)
		p, err := r.b.Build(ctx, r.s, spec)
		if err != nil {
			return nil, fmt.Errorf("build the prompt of %s: %w", r.c.Thread, err)
		}
		if !prompt.Full(p.Ledger.Total, window) || try == tightMax {
			return p, nil
		}
		if calls := prompt.ToClear(r.s, window); calls != nil {
			if err := r.append(ctx, clearings(calls)...); err != nil {
				return nil, err
			}
			continue
		}
		cut, ok := prompt.ToCompact(r.s, window, window/keepTailPart)
		if !ok {
			return p, nil
		}
		if err := r.compact(ctx, cut, window, "auto", ""); err != nil {
			return nil, err
		}
	}
}

// What a compaction leaves as it is at the end of the conversation: a fifth of the
// window, enough to go on in the middle of a thought, or little when it is asked for.
const (
	keepTailPart    = 5
	keepAskedTokens = 1000
)

// compactAsked shortens the conversation because a person or the model wants it so.
func (r *Runner) compactAsked(ctx context.Context, model llm.Info) error {
	if r.s.CompactAsked == nil {
		return nil
	}
	window := prompt.Room(r.s, model)
	cut, ok := prompt.ToCompact(r.s, window, min(keepAskedTokens, window/keepTailPart))
	if !ok {
		return nil // the next step forgets that it was asked for
	}
	return r.compact(ctx, cut, window, "manual", r.s.CompactAsked.Focus)
}

// clearings splits a long list over several events.
func clearings(calls []string) []thread.Body {
	const each = 256
	var bodies []thread.Body
	for len(calls) > 0 {
		n := min(each, len(calls))
		bodies = append(bodies, thread.Cleared{Calls: calls[:n]})
		calls = calls[n:]
	}
	return bodies
}

// compact replaces the beginning of the conversation by a summary. The whole of
// it stays readable as a file. why is "auto" or "manual".
func (r *Runner) compact(ctx context.Context, cut prompt.Cut, window int, why, focus string) error {
	_ = r.announce(ctx, hook.Event{Name: hook.OnPreCompact, Text: why})
	whole, err := prompt.Transcript(ctx, r.c.Blobs, cut.Items, false)
	if err != nil {
		return err
	}
	done := thread.Compacted{Through: cut.Through, Keep: cut.Keep, File: fmt.Sprintf("/conversation_history/%d.md", r.s.Seq+1)}
	whole = clip.Text(whole, historyMax)
	if done.Blob, err = r.c.Blobs.Put(ctx, []byte(whole)); err != nil {
		return fmt.Errorf("keep the history: %w", err)
	}
	done.Bytes = int64(len(whole))
	excerpt, err := prompt.Transcript(ctx, r.c.Blobs, cut.Items, true)
	if err != nil {
		return err
	}
	ask := func(ctx context.Context, req *llm.Request) (*llm.Response, error) {
		response, err := r.once(ctx, req)
		if err != nil {
			r.c.Logger.Warn("a summary failed", "thread", r.c.Thread, "err", err)
			return nil, err
		}
		done.Usage = done.Usage.Add(response.Usage)
		done.Cost += r.c.Model.Info().Price.Cost(response.Usage)
		return response, nil
	}
	opCtx, over := r.interruptible(ctx)
	defer over()
	if done.Summary, err = prompt.Summarise(opCtx, excerpt, focus, window, ask); err != nil {
		if ctx.Err() == nil && interrupted(opCtx) != nil {
			return errReplan
		}
		return err
	}
	return r.append(ctx, done)
}

// historyMax bounds the file of a conversation.
const historyMax = 32 << 20

// once asks the model without showing it to anybody.
func (r *Runner) once(ctx context.Context, req *llm.Request) (*llm.Response, error) {
	for delta, err := range llm.Retry(ctx, r.c.Model, req, r.c.Patience, func(llm.RetryFailure) {}) {
		if err != nil {
			return nil, err
		}
		if delta.Response != nil {
			return delta.Response, nil
		}
	}
	return nil, &llm.Error{Trouble: llm.Malformed, Model: r.c.Model.Info().Name}
}

// guard looks whether the run goes in circles, or does not keep to the form.
func (r *Runner) guard(ctx context.Context) (stopped bool, err error) {
	if n := r.s.Corrections("format"); n >= correctionsMax {
		return true, r.stop(ctx, thread.RunFailed, runs.ReasonFormat, "")
	}
	if n := r.s.Corrections("output"); n >= correctionsMax {
		return true, r.stop(ctx, thread.RunFailed, runs.ReasonOutput, "")
	}
	last := r.s.Last()
	if last == nil || last.Seq < r.s.Run.First || r.s.Warned("guard", last.Seq) {
		return false, nil
	}
	limits := limitsOf(r.s.Agent.Limits.RepeatsMax)
	v := detectLoop(r.recent(limits.reach()), limits)
	switch v.Action {
	case loopStop:
		return true, r.stop(ctx, thread.RunFailed, runs.ReasonLoop, reason(sentences[runs.ReasonLoop], v.Text))
	case loopNudge:
		return false, r.append(ctx, notice("guard", v.Text))
	}
	return false, nil
}
