package workshop

import (
	"context"
	"log/slog"
	"strings"

	"github.com/skete-dev/skete/agent/hook"
	"github.com/skete-dev/skete/agent/runs"
	"github.com/skete-dev/skete/agent/state"
	"github.com/skete-dev/skete/errs"
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
}

// revisions makes a revision of the machine's files before and after each call
// that may write, and when a user's turn begins: whatever changed them, what
// was there can be had again.
type revisions struct {
	hook.Base
	revise func(context.Context, Mark) error
	tools  map[string]tool.Tool
	log    *slog.Logger
}

// Notice implements hook.Hook.
func (h *revisions) Notice(ctx context.Context, e hook.Event) hook.Verdict {
	if e.Name != hook.OnUserPromptSubmit {
		return hook.Verdict{}
	}
	// What is found when a turn begins was there before the run: to undo the run
	// leaves it, though the label says which one began then.
	m := Mark{Thread: e.Thread, Run: e.Run, Actor: "outside", Text: clip(e.Text)}
	if err := h.revise(ctx, m); err != nil && !errs.Is(err, errs.Unsupported) {
		h.log.Warn("a user's turn begins without a revision", "thread", e.Thread, "error", err)
	}
	return hook.Verdict{}
}

// AroundTool implements hook.Hook. A call whose beginning cannot be kept does
// not begin: nobody could take back what it does. Where no history can be kept
// at all it does, as the sandbox's own notes say.
func (h *revisions) AroundTool(next hook.RunTool) hook.RunTool {
	return func(ctx context.Context, c hook.ToolCall) (tool.Result, error) {
		t := h.tools[c.Name]
		if t == nil || t.Effect(c.Args).Class == tool.Read {
			return next(ctx, c)
		}
		err := h.revise(ctx, Mark{Actor: "outside", Text: "before " + c.Name}) // what changed so far is not this call's
		if errs.Is(err, errs.Unsupported) {
			return next(ctx, c)
		}
		if errs.Temporary(err) {
			return tool.Result{}, err // nothing has begun; it is tried again when the machine can be reached
		}
		if err != nil {
			h.log.Warn("a call did not begin: its beginning could not be kept", "thread", c.Thread, "call", c.ID, "error", err)
			return tool.Fail("", "Not begun: the files as they are now could not be kept ("+errs.Public(err)+"), so what this does could not be taken back."), nil
		}
		res, err := next(ctx, c)
		m := Mark{Thread: c.Thread, Run: c.Run, Step: c.Step, Call: c.ID, Actor: "agent", Text: clip(c.Name + " " + string(c.Args))}
		if rerr := h.revise(context.WithoutCancel(ctx), m); rerr != nil {
			h.log.Warn("what a call changed is not a revision of its own", "thread", c.Thread, "call", c.ID, "error", rerr)
		}
		return res, err
	}
}

// clip makes a line of a text.
func clip(s string) string {
	s = strings.Join(strings.Fields(strings.ToValidUTF8(s, "�")), " ")
	if len(s) <= markTextMax {
		return s
	}
	return strings.ToValidUTF8(s[:markTextMax], "") + "…"
}

// Rewind takes back what the calls of a thread changed that began after an
// event, and those of the sub-agents that they started. s is the thread's state.
func Rewind(ctx context.Context, machines Machines, tenant string, log thread.Log, id thread.ID, s *state.State, to uint64, by string) error {
	if err := runs.MayRewind(s, to); err != nil {
		return err
	}
	if machines == nil || s.Machine == "" {
		return errs.New(errs.Unsupported, "the thread has no sandbox whose files could be taken back")
	}
	later := map[string]bool{}
	for event, err := range log.Load(ctx, id, to+1) {
		if err != nil {
			return err
		}
		if started, ok := event.Body.(thread.ToolStarted); ok {
			later[started.Call] = true
		}
	}
	_, err := machines.Restore(ctx, tenant, s.Machine, func(m Mark) bool {
		if m.Thread == id {
			return later[m.Call]
		}
		beneath, ok := strings.CutPrefix(string(m.Thread), string(id)+"/")
		call, _, _ := strings.Cut(beneath, "/")
		return ok && later[call]
	}, by)
	return err
}
