package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync/atomic"
	"time"

	"github.com/skete-dev/skete/agent/action"
	"github.com/skete-dev/skete/agent/definition"
	"github.com/skete-dev/skete/agent/hook"
	"github.com/skete-dev/skete/agent/policy"
	"github.com/skete-dev/skete/agent/prompt"
	"github.com/skete-dev/skete/agent/runs"
	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/internal/clip"
	"github.com/skete-dev/skete/internal/sleep"
	"github.com/skete-dev/skete/llm"
	"github.com/skete-dev/skete/thread"
	"github.com/skete-dev/skete/tool"
)

// Bounds of a driver.
const (
	parallelMax    = 8
	toolTimeout    = 10 * time.Minute
	toolGrace      = 5 * time.Second // for a tool whose context has ended
	programGrace   = time.Minute     // for a program whose time is over
	appendTries    = 6
	appendPause    = 50 * time.Millisecond
	resultTokens   = 20_000
	correctionsMax = 3 // replies in a row that are no proper answer
)

// Config is what a Runner needs. Nil fields are left out where it says so.
type Config struct {
	Thread thread.ID
	// State is the thread as it is; the Runner goes on from there and owns it.
	State *runs.State
	Log   thread.Log
	Blobs thread.Blobs
	Model llm.Model
	Tools []tool.Tool
	// Hidden can be called, and are not in the prompt: the model looks for them.
	Hidden []tool.Tool
	Hook   hook.Hook // nil = none
	// Check runs the command of the run's check: the tool execute. nil = there is no
	// machine.
	Check tool.Tool
	// Surroundings describes memory, skills and the machine, once a run. nil = nothing.
	Surroundings func(context.Context) (thread.Context, error)
	// Grants are what people approved beforehand, as it is now; nil = nothing.
	Grants func(context.Context) ([]policy.Grant, error)
	// Applied is told of every event once it is in the log and in State; nil =
	// none. It is called in the Runner's goroutine and must be quick.
	Applied func(thread.Event)
	// News shows what is on its way; nil = none. It never blocks.
	News func(News)
	// Machine is the place where commands run, and changes with its boots; "" = none.
	Machine string
	// Patient: when a tool cannot reach what it acts on (Unavailable), Run
	// returns that error once nothing runs any more, and the call goes on in the
	// next Run; else it fails with it.
	Patient bool
	// Tree returns the budget of the whole run, which sub-agents share, and what all
	// others in it have spent so far; nil = there are no others. It is called before
	// each step, in the Runner's goroutine.
	Tree func() (thread.Budget, thread.Spent)
	// Patience bounds the attempts of a model call.
	Patience llm.RetryPolicy
	Now      func() time.Time // nil = time.Now
	Logger   *slog.Logger
}

// News is something on its way that the log will have whole.
type News struct {
	Delta  *llm.Delta // of the model
	Reset  bool       // the answer so far is void
	Call   string     // with Output: of a running tool
	Output string
}

// Outcome says why Run returned.
type Outcome struct {
	// Ended: the run is over, or there was none.
	Ended bool
	// Expires is when an open approval ends by itself, or the run that waits for
	// what goes on elsewhere; zero = never.
	Expires time.Time
	// Parked are calls that go on elsewhere.
	Parked []string
}

// ErrFenced says that the thread has another driver now.
var ErrFenced = errs.New(errs.Conflict, "another server drives this thread")

// Runner drives one thread.
type Runner struct {
	c     Config
	s     *runs.State
	b     *prompt.Builder
	tools map[string]tool.Tool
	specs []llm.ToolSpec
	// calling is not nil for models without native tool calls.
	calling *action.Calling
	poke    chan struct{}
	watcher atomic.Pointer[cancelWatcher] // during a model call
	at      atomic.Uint64                 // State.Seq, for the watcher
	limit   atomic.Int64                  // Budget.Wall of the run, stored before at
	waited  atomic.Pointer[waitTime]
	parked  map[string]bool
	row     row
	claim   thread.Claimed
	schema  *definition.ResultSchema // of the result, nil = text
	tight   int                      // prompts in a row that were too long
	told    bool

	hookCtx context.Context // of the run under way, for hooks that only listen

	skipped     []string // what is to be told of plug-ins that were passed over
	skippedTold int      // of them
	greeted     bool
	held        bool   // a hook did not let it end
	heardTo     uint64 // inputs up to here were told to the hooks
}

// New returns a Runner for a thread whose events are in c.State. Invalid: the
// schema of the result cannot be used.
func New(c Config) (*Runner, error) {
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	if c.News == nil {
		c.News = func(News) {}
	}
	r := &Runner{
		c: c, s: c.State, b: prompt.NewBuilder(c.Blobs), tools: map[string]tool.Tool{},
		poke: make(chan struct{}, 1), parked: map[string]bool{}, claim: c.State.Claim,
	}
	r.seen()
	if err := r.want(); err != nil {
		return nil, err
	}
	if err := r.hide(c.Hidden); err != nil {
		return nil, err
	}
	for _, t := range r.c.Tools {
		spec := t.Spec()
		r.tools[spec.Name] = t
		r.specs = append(r.specs, spec)
	}
	if calling(c.State.Agent, c.Model.Info()) == llm.CallingJSON {
		r.calling = action.New(r.specs)
	}
	return r, nil
}

// want prepares for a result of a wanted form.
func (r *Runner) want() (err error) {
	var run, file json.RawMessage
	if r.s.Run != nil {
		run = r.s.Run.Started.Schema
	}
	if r.s.Agent.Result != nil {
		if file, err = json.Marshal(r.s.Agent.Result); err != nil {
			return err
		}
	}
	if r.schema, err = wanted(run, file); err != nil || r.schema == nil {
		return err
	}
	if calling(r.s.Agent, r.c.Model.Info()) == llm.CallingNative {
		r.c.Tools = append(slices.Clone(r.c.Tools), finalTool{r.schema})
	}
	return nil
}

// calling returns how an agent asks for tools with a model.
func calling(d definition.Definition, info llm.Info) llm.Calling {
	switch {
	case d.Calling != "":
		return llm.Calling(d.Calling)
	case info.Calling != "":
		return info.Calling
	}
	return llm.CallingNative
}

// Notify says that another writer may have appended to the log.
func (r *Runner) Notify() {
	select {
	case r.poke <- struct{}{}:
	default:
	}
	if w := r.watcher.Load(); w != nil {
		w.Look()
	}
}

// Run drives the thread as far as it goes. ErrFenced: another driver does. Any
// other error is the platform's (no log, no model configured, ctx ended): the
// run is where it was, and may be tried again.
func (r *Runner) Run(ctx context.Context) (Outcome, error) {
	r.hookCtx = ctx
	if err := r.unreadable(ctx, r.hydrate(ctx)); err != nil {
		return Outcome{}, err
	}
	if err := r.closeForms(ctx); err != nil && !errors.Is(err, errReplan) {
		return Outcome{}, err
	}
	for {
		if err := ctx.Err(); err != nil {
			return Outcome{}, context.Cause(ctx)
		}
		if r.s.Run != nil && r.s.Run.Ended != nil {
			return Outcome{Ended: true}, nil // what stands behind that is of the next run
		}
		if err := r.catchUpIfPoked(ctx); err != nil {
			return Outcome{}, err
		}
		next := r.s.Next(r.c.Now())
		var err error
		switch next.Kind {
		case runs.Idle:
			return Outcome{Ended: true}, nil
		case runs.Wait:
			return Outcome{Expires: next.Expires}, nil
		case runs.End:
			err = r.end(ctx, next)
		case runs.CallModel:
			err = r.step(ctx)
		case runs.Check:
			err = r.check(ctx)
		case runs.RunTools:
			var waiting bool
			if waiting, err = r.runTools(ctx, nil); waiting && err == nil {
				return r.waiting(), nil
			}
		}
		if err := r.unreadable(ctx, err); err != nil && !errors.Is(err, errReplan) {
			return Outcome{}, err
		}
	}
}

// unreadable ends a run that needs what is no longer stored: another driver would
// not find it either. Other errors are passed on.
func (r *Runner) unreadable(ctx context.Context, err error) error {
	lost, ok := errors.AsType[*prompt.UnreadableError](err)
	if !ok || r.s.Run == nil || r.s.Run.Ended != nil {
		return err
	}
	r.c.Logger.Error("the log names what cannot be read", "thread", r.c.Thread, "event", lost.Event, "err", err)
	text := fmt.Sprintf("The run cannot go on: %s.", errs.Public(lost))
	if lost.Event > 1 {
		text = fmt.Sprintf("The run cannot go on: event %d cannot be read, since %s. `skete rewind %s --to %d` takes the conversation back to before it.",
			lost.Event, errs.Public(lost), r.s.Run.ID, lost.Event-1)
	}
	for {
		err := r.stop(ctx, thread.RunFailed, runs.ReasonLog, text)
		if !errors.Is(err, errReplan) {
			return err
		}
	}
}

// errReplan says that the log moved: what is next must be asked again.
var errReplan = errors.New("the log moved")

// waiting is how a run rests that only people or other threads can bring on.
func (r *Runner) waiting() Outcome {
	o := Outcome{Expires: r.expires()}
	for _, c := range r.s.Open() {
		if r.parked[c.ID] {
			o.Parked = append(o.Parked, c.ID)
		}
	}
	if left, bounded := r.s.TimeLeft(r.c.Now()); bounded && len(o.Parked) > 0 {
		o.Expires = earlier(o.Expires, r.c.Now().Add(left))
	}
	return o
}

// expires is when the first open approval ends by itself, zero = never.
func (r *Runner) expires() (first time.Time) {
	for _, c := range r.s.Open() {
		if c.Waits() && !c.Asked.Expires.IsZero() {
			first = earlier(first, c.Asked.Expires)
		}
	}
	return first
}

// earlier returns the first of two times; zero = never.
func earlier(a, b time.Time) time.Time {
	if a.IsZero() || b.Before(a) {
		return b
	}
	return a
}

// end writes the end of the run, with a result for every call that has none.
func (r *Runner) end(ctx context.Context, a runs.Action) error {
	ended := thread.RunEnded{State: a.State, Reason: a.Reason, Text: sentences[a.Reason]}
	switch a.Reason {
	case runs.ReasonDone:
		final, err := r.answer(ctx)
		if err != nil {
			return err
		}
		if ok, err := r.mayEnd(ctx, final.text); !ok || err != nil {
			return err
		}
		ended.Text, ended.Result = final.text, final.result
		if len(final.result) > thread.InlineBytesMax {
			if ended.Blob, err = r.c.Blobs.Put(ctx, final.result); err != nil {
				return err
			}
			ended.Result = nil
		}
	case runs.ReasonCancelled:
		if why := r.s.Run.Cancel.Reason; why != "" {
			ended.Text = why
		}
	}
	return r.appendStrict(ctx, append(r.unanswered(), ended)...)
}

func (r *Runner) unanswered() []thread.Body {
	return Unanswered(r.s, tool.CodeCancelled, "The run was ended before this call had a result.")
}

// Unanswered returns failed results for the calls that will have none, as one of the
// tool.Code… and a text for the model. Each end of a run needs them: the next run of
// the thread would take the calls up.
func Unanswered(s *runs.State, code, text string) []thread.Body {
	var bodies []thread.Body
	for _, c := range s.Open() {
		bodies = append(bodies, failed(c, code, text))
	}
	return bodies
}

// sentences tell people why a run ended.
var sentences = map[string]string{
	runs.ReasonCancelled: "It was cancelled.",
	runs.ReasonSteps:     "The budget of steps is used up.",
	runs.ReasonTokens:    "The budget of tokens is used up.",
	runs.ReasonCost:      "The budget of money is used up.",
	runs.ReasonWall:      "The time is up.",
	runs.ReasonLoop:      "It went in circles.",
	runs.ReasonFormat:    "The model did not keep to the form of answers.",
	runs.ReasonOutput:    "The model did not give a result of the wanted form.",
	runs.ReasonRefusal:   "The model refused.",
	runs.ReasonHook:      "A hook stopped it.",
	runs.ReasonCheck:     "Its check could not be made.",
}

// stop ends the run early.
func (r *Runner) stop(ctx context.Context, s thread.RunState, reason, text string) error {
	if text == "" {
		text = sentences[reason]
	}
	return r.appendStrict(ctx, append(r.unanswered(), thread.RunEnded{State: s, Reason: reason, Text: clip.Text(text, textMax)})...)
}

// textMax bounds texts for people in events.
const textMax = 8 << 10

// failed is the result of a call that was not run, or not to its end.
func failed(c *runs.Call, code, text string) thread.ToolCompleted {
	return thread.ToolCompleted{Call: c.ID, Tool: c.Name, Blocks: []llm.Block{llm.Text(text)}, Failed: true, Code: code}
}

// append writes events, taking in what others wrote meanwhile.
func (r *Runner) append(ctx context.Context, bodies ...thread.Body) error {
	return r.write(ctx, false, bodies)
}

// appendStrict writes events that only hold for the log as it is known:
// errReplan when it moved.
func (r *Runner) appendStrict(ctx context.Context, bodies ...thread.Body) error {
	return r.write(ctx, true, bodies)
}

func (r *Runner) write(ctx context.Context, strict bool, bodies []thread.Body) error {
	if len(bodies) == 0 {
		return nil
	}
	events := make([]thread.Event, len(bodies))
	for i, b := range bodies {
		events[i] = thread.New(r.s.Run.ID, b)
	}
	for try := 1; ; try++ {
		err := r.writeOnce(ctx, events)
		switch {
		case err == nil:
			return nil
		case errs.Is(err, errs.Conflict):
			if err := r.catchUp(ctx); err != nil {
				return err
			}
			if strict {
				return errReplan
			}
			if events = r.stillWanted(events); len(events) == 0 {
				return errReplan
			}
		case !errs.Temporary(err) || try == appendTries || ctx.Err() != nil:
			return fmt.Errorf("append to %s: %w", r.c.Thread, err)
		default:
			if sleep.For(ctx, appendPause<<try) != nil {
				return context.Cause(ctx)
			}
		}
	}
}

func (r *Runner) writeOnce(ctx context.Context, events []thread.Event) error {
	if _, err := r.c.Log.Append(ctx, r.c.Thread, r.s.Seq, events...); err != nil {
		return err
	}
	for _, e := range events {
		if err := r.apply(e); err != nil {
			return err
		}
	}
	return nil
}

func (r *Runner) apply(e thread.Event) error {
	err := r.s.Apply(e)
	r.seen()
	if err == nil && r.c.Applied != nil {
		r.c.Applied(e)
	}
	return err
}

// seen tells other goroutines how far the log was taken in.
func (r *Runner) seen() {
	if r.s.Run != nil {
		r.limit.Store(int64(r.s.Run.Budget.Wall))
		w := &waitTime{before: r.s.Run.Waited}
		if r.s.Run.Ended == nil && r.s.WaitsForPeople() {
			w.since = r.s.At
		}
		r.waited.Store(w)
	}
	r.at.Store(r.s.Seq)
}

// stillWanted drops starts once the run is to be cancelled, and decisions about what was
// decided meanwhile.
func (r *Runner) stillWanted(events []thread.Event) []thread.Event {
	var kept []thread.Event
	for _, e := range events {
		_, start := e.Body.(thread.ToolStarted)
		d, decides := e.Body.(thread.ApprovalDecided)
		switch {
		case start && r.s.Run.Cancel != nil:
		case decides && r.s.Call(d.Call) != nil && r.s.Call(d.Call).Decided != nil:
		default:
			kept = append(kept, e)
		}
	}
	return kept
}

func (r *Runner) catchUpIfPoked(ctx context.Context) error {
	select {
	case <-r.poke:
		return r.catchUp(ctx)
	default:
		return nil
	}
}

// catchUp takes in what others appended. ErrFenced: one of them drives now.
func (r *Runner) catchUp(ctx context.Context) error {
	return CatchUp(ctx, r.c.Log, r.c.Thread, r.s, r.apply)
}

// CatchUp hands to apply what others than the driver appended behind s.
// ErrFenced: one of them drives the thread now.
func CatchUp(ctx context.Context, log thread.Log, id thread.ID, s *runs.State, apply func(thread.Event) error) error {
	for e, err := range log.Load(ctx, id, s.Seq+1) {
		if err != nil {
			return fmt.Errorf("read %s: %w", id, err)
		}
		switch e.Body.(type) {
		case thread.Input, thread.ApprovalDecided, thread.CancelAsked, thread.BudgetChanged, thread.PolicyChanged, thread.CompactAsked, thread.NetworkRefused, thread.Unknown:
		default:
			return ErrFenced
		}
		if err := apply(e); err != nil {
			return err
		}
	}
	return nil
}

// cancelSeen may be called from any goroutine: it looks for a cancel in the log,
// without taking it in.
func (r *Runner) cancelSeen(ctx context.Context) bool {
	for e, err := range r.c.Log.Load(ctx, r.c.Thread, r.at.Load()+1) {
		if err != nil {
			return false
		}
		if _, is := e.Body.(thread.CancelAsked); is {
			return true
		}
	}
	return false
}
