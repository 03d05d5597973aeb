package agent

import (
	"context"
	"log/slog"
	"slices"
	"sync"

	"github.com/skete-dev/skete/agent/hook"
	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/internal/clip"
	"github.com/skete-dev/skete/tool"
)

// MarkTextMax bounds what a Mark says, in bytes.
const MarkTextMax = 200

// revisions makes a revision of the machine's files before and after each call
// that may write, and when a user's turn begins: whatever changed them, what
// was there can be had again.
type revisions struct {
	hook.Base
	revise func(context.Context, Mark) error
	call   func(context.Context) (done func())
	tools  map[string]tool.Tool
	log    *slog.Logger

	mu   sync.Mutex      // held while a call's beginning is kept
	open []hook.ToolCall // that have begun and whose changes are not all kept, in their order
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
	m := Mark{Thread: e.Thread, Run: e.Run, Actor: "outside", Text: clip.Line(e.Text, MarkTextMax)}
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
		err := h.begin(ctx, c)
		defer h.end(c)
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
		if rerr := h.revise(context.WithoutCancel(ctx), markOf(c)); rerr != nil {
			h.log.Warn("what a call changed is not a revision of its own", "thread", c.Thread, "call", c.ID, "error", rerr)
		}
		return res, err
	}
}

func markOf(c hook.ToolCall) Mark {
	return Mark{Thread: c.Thread, Run: c.Run, Step: c.Step, Call: c.ID, Actor: "agent", Text: clip.Line(c.Name+" "+string(c.Args), MarkTextMax)}
}

// begin keeps what is there before a call. What changed so far is not this call's: it is that of
// one beside it, if there is one, and else from outside. Were it always from outside, an undo of
// the step would leave what a call had written when the next one began.
func (h *revisions) begin(ctx context.Context, c hook.ToolCall) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	m := Mark{Actor: "outside", Text: "before " + c.Name}
	if len(h.open) > 0 {
		m = markOf(h.open[0])
	}
	err := h.revise(ctx, m)
	h.open = append(h.open, c)
	return err
}

func (h *revisions) end(c hook.ToolCall) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.open = slices.DeleteFunc(h.open, func(o hook.ToolCall) bool { return o.ID == c.ID })
}
