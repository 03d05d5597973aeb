package supervisor

import (
	"context"
	"log/slog"
	"strings"
	"time"

	"github.com/skete-dev/skete/agent/hook"
	"github.com/skete-dev/skete/agent/runs"
	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/internal/clip"
	"github.com/skete-dev/skete/thread"
	"github.com/skete-dev/skete/tool"
)

const markTextMax = 200 // bytes of what a Mark says

// Mark says between which moments of a thread a revision of its files lies.
type Mark struct {
	Thread thread.ID
	Run    thread.RunID
	Step   int    // of the run, from 1; 0 = before the first
	Call   string // "" = none: a user's turn begins
	Actor  string // "agent", "user", or "outside": what was found before a call
	Text   string
	// Time is when a revision was made, by a clock that may be set; zero: it is
	// not made yet.
	Time time.Time
}

// revisions makes a revision of the machine's files before and after each call
// that may write, and when a user's turn begins: whatever changed them, what
// was there can be had again.
type revisions struct {
	hook.Base
	revise func(context.Context, Mark) error
	call   func(context.Context) (done func())
	tools  map[string]tool.Tool
	log    *slog.Logger
}

// quietly is a tool whose calls begin and end as h.call says.
type quietly struct {
	tool.Planner
	call func(context.Context) (done func())
}

// Run implements tool.Tool.
func (q quietly) Run(ctx context.Context, r tool.Request) (tool.Result, error) {
	defer q.call(ctx)()
	return q.Planner.Run(ctx, r)
}

// Notice implements hook.Hook.
func (h *revisions) Notice(ctx context.Context, e hook.Event) hook.Verdict {
	if e.Name != hook.OnUserPromptSubmit {
		return hook.Verdict{}
	}
	// What is found when a turn begins was there before the run: to undo the run
	// leaves it, though the label says which one began then.
	m := Mark{Thread: e.Thread, Run: e.Run, Actor: "outside", Text: clip.Line(e.Text, markTextMax)}
	if err := h.revise(ctx, m); err != nil && !errs.Is(err, errs.Unsupported) {
		h.log.Warn("a user's turn begins without a revision", "thread", e.Thread, "error", err)
	}
	return hook.Verdict{}
}

// AroundTool implements hook.Hook. A call whose beginning cannot be kept does
// not begin: what it does could not be taken back. One that an earlier driver has
// started is settled: the model hears what it did, or that this is not known. Where no history can be kept
// at all it does, as the sandbox's own notes say.
func (h *revisions) AroundTool(next hook.RunTool) hook.RunTool {
	return func(ctx context.Context, c hook.ToolCall) (tool.Result, error) {
		t := h.tools[c.Name]
		if t == nil || t.Effect(c.Args).Class == tool.Read {
			return next(ctx, c)
		}
		defer h.call(ctx)()
		err := h.revise(ctx, Mark{Actor: "outside", Text: "before " + c.Name}) // what changed so far is not this call's
		if errs.Is(err, errs.Unsupported) {
			return next(ctx, c)
		}
		if errs.Temporary(err) {
			return tool.Result{}, err // nothing has begun; it is tried again when the machine can be reached
		}
		why := ""
		if err != nil {
			why = "the files as they are now could not be kept (" + errs.Public(err) + "), so what this does could not be taken back."
		}
		if err != nil && c.Again { // the log says that it has begun; "not begun" would not be true
			h.log.Warn("a call is not begun again: the files could not be kept", "thread", c.Thread, "call", c.ID, "error", err)
			c.Settle = why
		} else if err != nil {
			h.log.Warn("a call did not begin: its beginning could not be kept", "thread", c.Thread, "call", c.ID, "error", err)
			return tool.Fail("", "Not begun: "+why), nil
		}
		res, err := next(ctx, c)
		m := Mark{Thread: c.Thread, Run: c.Run, Step: c.Step, Call: c.ID, Actor: "agent", Text: clip.Line(c.Name+" "+string(c.Args), markTextMax)}
		if rerr := h.revise(context.WithoutCancel(ctx), m); rerr != nil {
			h.log.Warn("what a call changed is not a revision of its own", "thread", c.Thread, "call", c.ID, "error", rerr)
		}
		return res, err
	}
}

// rewindFiles takes back what the calls of a thread changed that began after an
// event, and those of the sub-agents that they started, and says what that
// changed. s is the thread's state.
func rewindFiles(ctx context.Context, machines Machines, tenant string, log thread.Log, id thread.ID, s *runs.State, to uint64, by string) ([]runs.Change, error) {
	if err := runs.MayRewind(s, to); err != nil {
		return nil, err
	}
	if machines == nil || s.Machine == "" {
		return nil, errs.New(errs.Unsupported, "the thread has no sandbox whose files could be taken back")
	}
	when, err := calls(ctx, log, id, to)
	if err != nil {
		return nil, err
	}
	return machines.Restore(ctx, tenant, s.Machine, when, by)
}

// calls tells where the calls of a thread, those of the sub-agents that they
// started, and what others did to its files lie, seen from an event.
// Unsupported: the event is of the thread that this one was forked from, and so
// are the files that were there then.
func calls(ctx context.Context, log thread.Log, id thread.ID, at uint64) (func(Mark) When, error) {
	began := map[string]When{}
	var then, later time.Time // when the event was made, and when the first call after it began
	for event, err := range log.Load(ctx, id, 1) {
		if err != nil {
			return nil, err
		}
		if event.Seq <= at {
			then = event.At
		}
		switch b := event.Body.(type) {
		case thread.Opened:
			if b.Fork != nil && at < b.Fork.Seq {
				return nil, errs.New(errs.Unsupported, "event %d is from before the thread was forked; its files are in the history of %s", at, b.Fork.Thread)
			}
		case thread.ToolStarted:
			if began[b.Call] = Earlier; event.Seq > at {
				began[b.Call] = Later
				if later.IsZero() {
					later = event.At
				}
			}
		}
	}
	return func(m Mark) When {
		if w, ok := began[workshopCallOf(id, m)]; ok {
			return w
		}
		switch {
		case m.Time.IsZero():
			return Elsewhere
		case !m.Time.After(then):
			return Earlier
		case later.IsZero() || m.Time.Before(later):
			return Between
		}
		return Elsewhere
	}, nil
}

// workshopCallOf returns the call of a thread that a revision is of, or beneath which a
// sub-agent made it; "" = none.
func workshopCallOf(id thread.ID, m Mark) string {
	if m.Call == "" || m.Actor == "outside" {
		return ""
	}
	if m.Thread == id {
		return m.Call
	}
	beneath, ok := strings.CutPrefix(string(m.Thread), string(id)+"/")
	if !ok {
		return ""
	}
	call, _, _ := strings.Cut(beneath, "/")
	return call
}
