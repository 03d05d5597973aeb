package tool

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path"
	"strings"

	"github.com/skete-dev/skete/llm"
	"github.com/skete-dev/skete/thread"
)

// Tool is one tool of one thread.
type Tool interface {
	Spec() llm.ToolSpec
	// Effect says what a call with these arguments would do. It is pure. Args
	// may be anything; for bad ones it answers as for the worst.
	Effect(args json.RawMessage) Effect
	// Run does it. See the package comment about errors and repetition.
	// ErrWaiting: the call goes on elsewhere; Run will be called again, with
	// Again set, when it may have ended.
	Run(ctx context.Context, req Request) (Result, error)
}

// Planner is a Tool that wants to note something durably before it acts: the
// agent calls Plan under the call's locks, logs what it returns in
// tool.started, and hands it to Run, also after a crash. Plan has no effects.
// A Result that is not nil ends the call without Run.
type Planner interface {
	Tool
	Plan(ctx context.Context, req Request) (plan json.RawMessage, done *Result, err error)
}

// Settler is a Tool that can say what an earlier run of a call did, and does
// nothing itself: where nothing new may begin, the agent calls Settle in place
// of Run. nil: it is not known, or the earlier run did nothing.
type Settler interface {
	Tool
	Settle(ctx context.Context, req Request) (*Result, error)
}

// Asker is a Tool whose calls are put before a person, whatever the rules allow.
type Asker interface {
	Tool
	Asks() thread.AskKind
}

// ErrWaiting says that a call goes on elsewhere (a sub-agent's thread).
var ErrWaiting = errors.New("the call goes on elsewhere")

// ErrCancelled is the cause (context.Cause) of a context that ended because
// the run was cancelled: tools end what they started. With any other cause
// (the server goes down) they leave it running, for the next run of the call
// to find.
var ErrCancelled = errors.New("the run was cancelled")

// ErrTimeUp is the cause of a context that ended because the run's time was up:
// tools end what they started, and hand in what there is. It is a
// context.DeadlineExceeded.
var ErrTimeUp = fmt.Errorf("the time of the run is up: %w", context.DeadlineExceeded)

// Class says what running a call again would mean.
type Class string

// Classes, from harmless to not.
const (
	Read  Class = "read"  // changes nothing: may be run again
	Keyed Class = "keyed" // acts once per Key, however often it is run
	Once  Class = "once"  // must never be run again
)

// Effect is what a call would do.
type Effect struct {
	Class Class
	// Touches are locked while the call runs: two calls that touch the same
	// path, or one beneath the other's, do not run at once unless both only read.
	Touches []Touch
}

// Touch is a path, cleaned and absolute, in the agent's view of the files.
type Touch struct {
	Path  string
	Write bool
}

// Clashes reports whether two touches may not happen at once.
func (t Touch) Clashes(u Touch) bool {
	return (t.Write || u.Write) && (within(t.Path, u.Path) || within(u.Path, t.Path))
}

func within(p, dir string) bool {
	p, dir = path.Clean(p), path.Clean(dir)
	return p == dir || dir == "/" || strings.HasPrefix(p, dir+"/")
}

// Request is one run of a call.
type Request struct {
	Key    string // the same for every run of this call, unique in the tenant
	Call   string // its id
	Thread thread.ID
	Run    thread.RunID
	Args   json.RawMessage
	Plan   json.RawMessage // of Planner
	Again  bool            // it was started before, and how far it came is not known
	// Moved: with Again, the machine in which it was started is gone.
	Moved bool
	// Emit shows output on its way to people who watch; nil = none. It does
	// not block and keeps nothing: the Result has to have it all.
	Emit func(text string)
	// Ask puts a form before a person, and returns what became of it once that is known:
	// hours later, perhaps. The limits of ctx stand still meanwhile (Pause). One call asks
	// one thing at a time. nil = this cannot be; see Inquirer. An error: the form cannot be
	// put, or ctx has ended.
	Ask func(ctx context.Context, f thread.Form) (FormAnswer, error)
}

// FormAnswer is what became of a form: Respond with what was filled in, Reject, or Dismiss
// when it was not decided about.
type FormAnswer struct {
	Decision thread.Decision
	Content  json.RawMessage // an object, with Respond
}

// Inquirer is a Tool whose calls may Ask while they run. The time of its calls is limited
// without a deadline.
type Inquirer interface {
	Tool
	Inquires() bool
}

// Result is what the model reads, and what the log keeps.
type Result struct {
	Blocks []llm.Block // text and media; text of any size: the agent makes previews
	// Failed: it was done and did not work; adapt.
	Failed bool
	// Code of a failure: one of those below, or "".
	Code string
	Exit *int // of a command
	// Bytes of the whole output when Blocks do not hold it all.
	Bytes int64
	Todos []thread.Todo
	// PlanAccepted and Compact are as in thread.ToolCompleted.
	PlanAccepted bool
	Compact      *thread.CompactAsked
	Skill        string // as in thread.ToolCompleted
	// Usage, CostUSD and Steps of sub-agents.
	Usage   llm.Usage
	CostUSD float64
	Steps   int
	// Whole: never replaced by a preview (tools that page by themselves).
	Whole bool
}

// Codes of failures. The first four are deepagents'.
const (
	CodeNotFound    = "file_not_found"
	CodeDenied      = "permission_denied"
	CodeIsDirectory = "is_directory"
	CodeInvalidPath = "invalid_path"

	CodeArgs        = "invalid_arguments"
	CodeUnknownTool = "unknown_tool"
	CodeConflict    = "conflict" // the file changed meanwhile
	CodeTimeout     = "timeout"
	CodeTooLarge    = "too_large"
	CodeInterrupted = "interrupted" // effects unknown
	CodeRejected    = "rejected"    // by a person or a policy
	CodeCancelled   = "cancelled"
	CodeInternal    = "internal_error"
	CodeLimit       = "limit" // a quota or a rate is used up
	CodeExit        = "exit"  // a command ended with a status that is not 0
)

// Text returns a result of text.
func Text(s string) Result { return Result{Blocks: []llm.Block{llm.Text(s)}} }

// Fail returns a failed result.
func Fail(code, text string) Result {
	return Result{Blocks: []llm.Block{llm.Text(text)}, Failed: true, Code: code}
}

type recorderKey struct{}

// WithRecorder makes RecordFile reach record: the agent collects the changes
// of the thread's own files during a call.
func WithRecorder(ctx context.Context, record func(thread.FileChange)) context.Context {
	return context.WithValue(ctx, recorderKey{}, record)
}

// RecordFile notes a change of the thread's own files. False: ctx has no
// recorder, so the change would be lost; the backend must refuse it.
func RecordFile(ctx context.Context, c thread.FileChange) bool {
	record, ok := ctx.Value(recorderKey{}).(func(thread.FileChange))
	if ok {
		record(c)
	}
	return ok
}
