package tool

import (
	"context"
	"time"

	"github.com/skete-dev/skete/llm"
	"github.com/skete-dev/skete/thread"
)

// Spawner starts sub-agents for `task`; the supervisor is one. Safe for
// concurrent use.
type Spawner interface {
	// Spawn starts a sub-agent once per Key, or says how the one that was
	// started under it is. It does not wait: Done false = it goes on.
	Spawn(ctx context.Context, req SpawnRequest) (SpawnResult, error)
}

// SpawnRequest asks for a sub-agent.
type SpawnRequest struct {
	Key    string
	Call   string    // the id of the call; the sub-agent's thread is Thread.Sub(Call)
	Thread thread.ID // the parent's
	Run    thread.RunID
	Agent  string // its type: a name of Env.Agents
	Prompt string
	// Inherit: it is shown the conversation so far.
	Inherit bool
	// Background: the parent goes on at once and is told when it has ended.
	Background bool
}

// SpawnResult is how a sub-agent is.
type SpawnResult struct {
	Done   bool
	Text   string // its last words, or what went wrong
	Failed bool
	Spent  thread.Spent // with everything beneath it
	Thread thread.ID
}

// Tasks are the sub-agents that a thread started in the background. The id of
// a task is that of the call which started it. Safe for concurrent use.
type Tasks interface {
	// Task returns one. NotFound (errs): this thread started none with the id.
	Task(ctx context.Context, parent thread.ID, id string) (Task, error)
	// Tasks returns all of a thread, the oldest first.
	Tasks(ctx context.Context, parent thread.ID) ([]Task, error)
	// Send adds a message to a task's conversation, once per key; one that has
	// ended goes on with it.
	Send(ctx context.Context, parent thread.ID, id, key, text string) error
	// Cancel ends a task. No error when it has ended already.
	Cancel(ctx context.Context, parent thread.ID, id, key string) error
}

// Task is a sub-agent in the background.
type Task struct {
	ID      string
	Agent   string
	Prompt  string
	State   thread.RunState
	Text    string // its last words so far, or what went wrong
	Started time.Time
	Usage   llm.Usage
	CostUSD float64
}

// Agent is a kind of sub-agent that `task` may start.
type Agent struct {
	Name        string
	Description string
}
