package api

import (
	"encoding/json"
	"time"
)

// StartRun asks for a run of an agent: on a new thread, or as the next run of
// Thread.
type StartRun struct {
	Task       string            `json:"task" minLength:"1" maxLength:"524288" doc:"what to do, in words; /NAME and words stand for a command (list-commands)"`
	Thread     string            `json:"thread,omitempty" doc:"goes on with this thread; then agent and definition are empty"`
	Agent      string            `json:"agent,omitempty" maxLength:"64" doc:"name of a definition; default default"`
	Definition json.RawMessage   `json:"definition,omitempty" doc:"a whole definition in place of a name: an object with the keys of an agent file"`
	Model      string            `json:"model,omitempty" maxLength:"200" doc:"default the definition's, then the server's choice"`
	Title      string            `json:"title,omitempty" maxLength:"200"`
	Labels     map[string]string `json:"labels,omitempty"`
	Budget     Budget            `json:"budget,omitzero"`
	Schema     json.RawMessage   `json:"schema,omitempty" doc:"JSON Schema of the result; default text"`
	Sandbox    string            `json:"sandbox,omitempty" doc:"an existing sandbox to work in, by its id, the beginning of it, or its name; default one of the thread's own"`
	Spec       map[string]any    `json:"spec,omitempty" doc:"of the thread's own sandbox: the keys of CreateSandbox"`
	Plan       bool              `json:"plan,omitempty" doc:"only tools that read can be used until a person has accepted the agent's plan"`
	Check      *RunCheck         `json:"check,omitempty" doc:"what has to hold before the run succeeds"`
	Images     []Image           `json:"images,omitempty" maxItems:"8" doc:"that belong to the task, for models that see images"`
	InSandbox  bool              `json:"in_sandbox,omitempty" doc:"the agent itself works in its sandbox too, for at most five minutes if nothing else is said; its own sandbox is removed when the run is over, unless keep or after_run say otherwise"`
	Keep       bool              `json:"keep,omitempty" doc:"leave the run's own sandbox as it is when the run is over; else what the agent's after_run says: it is stopped ten minutes after its last use"`
}

// RunCheck is what has to hold before a run succeeds. As long as it does not, the agent
// is told what is wrong and goes on, until its budget is used up.
type RunCheck struct {
	Command string `json:"command,omitempty" maxLength:"8192" doc:"runs in the run's sandbox and has to exit with 0"`
	Rubric  string `json:"rubric,omitempty" maxLength:"8192" doc:"what a critic, which is the run's model, has to find true of the work"`
}

// Image is a picture: PNG, JPEG, GIF or WebP.
type Image struct {
	Data []byte `json:"data" doc:"base64; at most 5 MB each"`
}

// Budget bounds a run and everything that it starts; 0 = the default.
type Budget struct {
	Steps   int     `json:"steps,omitempty" minimum:"0"`
	Tokens  int     `json:"tokens,omitempty" minimum:"0"`
	CostUSD float64 `json:"cost_usd,omitempty" minimum:"0"`
	WallMS  int64   `json:"wall_ms,omitempty" minimum:"0" doc:"time, waiting for people not counted"`
}

// Usage counts tokens.
type Usage struct {
	Input      int  `json:"input" doc:"neither read from nor written to a cache"`
	Output     int  `json:"output"`
	Reasoning  int  `json:"reasoning,omitempty" doc:"part of output"`
	CacheRead  int  `json:"cache_read,omitempty"`
	CacheWrite int  `json:"cache_write,omitempty"`
	Estimated  bool `json:"estimated,omitempty" doc:"the model's server told nothing"`
}

// Total is all tokens, in and out.
func (u Usage) Total() int { return u.Input + u.Output + u.CacheRead + u.CacheWrite }

// UsageReport says what runs used of models, with their sub-agents that are over. A run
// counts for the time at which it began, and for the agent and the model that are its
// own: what sub-agents with another model used counts there too. What programs in sandboxes
// use of models by themselves is not in it.
type UsageReport struct {
	By      string     `json:"by" enum:"day,run,agent,model"`
	From    time.Time  `json:"from"`
	To      time.Time  `json:"to"`
	Items   []UsageRow `json:"items" doc:"days that have runs in their order; else the most expensive first; at most 1000"`
	LeftOut int        `json:"left_out,omitempty" doc:"rows that are not listed: the oldest, or the least expensive"`
	Total   UsageRow   `json:"total" doc:"of all runs, also of rows that are not listed"`
}

// UsageRow is what some runs used.
type UsageRow struct {
	Key     string  `json:"key,omitempty" doc:"the day in UTC, as 2026-01-31; or the id of the run, or the name of the agent or the model"`
	Title   string  `json:"title,omitempty" doc:"of the run"`
	Runs    int     `json:"runs"`
	Steps   int     `json:"steps" doc:"also of sub-agents"`
	Usage   Usage   `json:"usage"`
	Tokens  int     `json:"tokens" doc:"input, output and both of the cache"`
	CostUSD float64 `json:"cost_usd"`
}

// Todo is an entry of an agent's plan.
type Todo struct {
	Content string `json:"content"`
	Status  string `json:"status" enum:"pending,in_progress,completed"`
}

// Run is what is known of a run without reading its log.
type Run struct {
	ID        string            `json:"id"`
	Thread    string            `json:"thread"`
	Agent     string            `json:"agent"`
	Model     string            `json:"model"`
	Title     string            `json:"title,omitempty"`
	Labels    map[string]string `json:"labels,omitempty"`
	By        string            `json:"by,omitempty" doc:"who asked for it"`
	State     string            `json:"state" enum:"pending,running,interrupted,succeeded,failed,cancelled,timed_out" doc:"interrupted: it waits for a person"`
	Reason    string            `json:"reason,omitempty" doc:"a code: done, steps, tokens, cost, wall, loop, model, machine, cancelled, output, format, hook, refusal, check, log"`
	Text      string            `json:"text,omitempty" doc:"the last words, or what went wrong"`
	Result    json.RawMessage   `json:"result,omitempty" doc:"structured output, when a schema asked for it"`
	CreatedAt time.Time         `json:"created_at"`
	EndedAt   *time.Time        `json:"ended_at,omitempty"`
	Steps     int               `json:"steps"`
	Usage     Usage             `json:"usage"`
	CostUSD   float64           `json:"cost_usd"`
	Budget    Budget            `json:"budget,omitzero"`
	Sandbox   string            `json:"sandbox,omitempty"`
	Keep      bool              `json:"keep,omitempty" doc:"its own sandbox is left as it is when it is over"`
	Todos     []Todo            `json:"todos,omitempty"`
	Planning  bool              `json:"planning,omitempty" doc:"only tools that read can be used: no plan has been accepted yet"`
	Check     *RunCheck         `json:"check,omitempty" doc:"what has to hold before it succeeds"`
	Checks    int               `json:"checks,omitempty" doc:"how often that was looked at"`
	Waiting   int               `json:"waiting,omitempty" doc:"approvals that are open in the run and beneath it"`
	// Background counts sub-agents that go on beneath it, also when it is over itself; in
	// answers about a single run.
	Background int    `json:"background,omitempty" doc:"sub-agents that go on beneath it; not in lists"`
	Below      int    `json:"subagent_steps,omitempty" doc:"steps of sub-agents that are over"`
	FirstSeq   uint64 `json:"first_seq" doc:"of its thread's events"`
	LastSeq    uint64 `json:"last_seq"`
	Fork       *Fork  `json:"fork,omitempty"`
	Replay     string `json:"replay,omitempty" doc:"the run that this one plays again"`
}

// Final reports whether the run is over.
func (r Run) Final() bool {
	switch r.State {
	case "succeeded", "failed", "cancelled", "timed_out":
		return true
	}
	return false
}

// Fork says where a thread came from.
type Fork struct {
	Thread string `json:"thread"`
	Seq    uint64 `json:"seq" doc:"the last event that was taken over"`
}

// RunPage is a page of runs, newest first.
type RunPage struct {
	Items         []Run  `json:"items"`
	NextPageToken string `json:"next_page_token,omitempty"`
}

// SendInput is a message to a run.
type SendInput struct {
	Text   string  `json:"text" minLength:"1" maxLength:"524288"`
	Images []Image `json:"images,omitempty" maxItems:"8" doc:"that belong to the message, for models that see images"`
}

// Sent answers SendInput.
type Sent struct {
	Run string `json:"run" doc:"that takes it: another one than was asked when that one was over"`
	Seq uint64 `json:"seq,omitempty" doc:"of the input in the thread's log"`
	New bool   `json:"new,omitempty" doc:"a new run was started on the thread"`
}

// CancelRun says why.
type CancelRun struct {
	Reason string `json:"reason,omitempty" maxLength:"2000"`
}

// ResumeRun lets a run go on after a budget or a failure ended it. Values of
// Budget that are 0 stay as they are.
type ResumeRun struct {
	Budget Budget `json:"budget,omitzero"`
	// Add is added to what the run has already used or was allowed, whichever is more.
	Add Budget `json:"add,omitzero" doc:"is added to the present budget"`
}

// CompactRun asks for a shorter conversation.
type CompactRun struct {
	Focus string `json:"focus,omitempty" maxLength:"2048" doc:"what the summary must keep above all"`
}

// ForkRun starts a thread that begins as a copy of this one's first events.
type ForkRun struct {
	At    uint64 `json:"at" minimum:"1" doc:"the last event that is taken over"`
	Task  string `json:"task,omitempty" maxLength:"524288" doc:"what to do there; default to go on"`
	Title string `json:"title,omitempty" maxLength:"200"`
	Model string `json:"model,omitempty" maxLength:"200"`
	// Budget of the new run.
	Budget Budget `json:"budget,omitzero"`
	Keep   bool   `json:"keep,omitempty" doc:"leave the fork's own sandbox as it is when its run is over"`
}

// ReplayRun says how a run is played again.
type ReplayRun struct {
	Keep bool `json:"keep,omitempty" doc:"leave the replay's sandbox as it is; else it is removed ten minutes after its last use"`
}

// RewindRun takes a conversation back.
type RewindRun struct {
	To uint64 `json:"to" minimum:"1" doc:"the last event that stays part of the conversation"`
	// Files of the sandbox become what they were then, too.
	Files bool `json:"files,omitempty"`
}

// Rewound is a run whose conversation was taken back, and what that changed in
// its sandbox.
type Rewound struct {
	Run
	Files []PathChange `json:"files,omitempty"`
}

// Decisions of people about a call that waits.
const (
	DecisionApprove = "approve"
	DecisionEdit    = "edit"
	DecisionReject  = "reject"
	DecisionRespond = "respond"
	DecisionDismiss = "dismiss"
)

// What a person is asked; Approval.Ask.
const (
	AskQuestion = "question"
	AskPlan     = "plan"
	AskForm     = "form"
)

// Form is what Approval.Args has with AskForm. From is the operator's name of the program
// and Warning the server's; what is between them are the program's own words.
type Form struct {
	From    string          `json:"from"`
	Message string          `json:"message"`
	Schema  json.RawMessage `json:"schema,omitempty"`
	Warning string          `json:"warning,omitempty"`
}

// Approval is a tool call that waits for a person.
type Approval struct {
	Ask       string          `json:"ask,omitempty" enum:"question,plan,form" doc:"question: args has the question and perhaps options, respond is the answer; plan: args has the plan and its steps; form: the call runs, and the program that it calls asks: args has from, message, schema of the answer, and perhaps a warning; missing: whether the call may be done"`
	Run       string          `json:"run"`
	Thread    string          `json:"thread" doc:"the run's own, or a sub-agent's beneath it"`
	Agent     string          `json:"agent"`
	Call      string          `json:"call"`
	Tool      string          `json:"tool"`
	Args      json.RawMessage `json:"args"`
	ArgsHash  string          `json:"args_hash" doc:"of the arguments; a decision that carries it is about these alone"`
	Reason    string          `json:"reason,omitempty"`
	Allowed   []string        `json:"allowed" doc:"approve, edit, reject, respond, dismiss"`
	AskedAt   time.Time       `json:"asked_at"`
	ExpiresAt *time.Time      `json:"expires_at,omitempty" doc:"then it is a reject"`
	Seq       uint64          `json:"seq"`
}

// ApprovalList lists open approvals.
type ApprovalList struct {
	Items []Approval `json:"items"`
}

// Decide answers one approval.
type Decide struct {
	Call     string          `json:"call" minLength:"1" maxLength:"64"`
	Thread   string          `json:"thread,omitempty" doc:"default the run's own"`
	Decision string          `json:"decision" enum:"approve,edit,reject,respond,dismiss" doc:"dismiss: of a form, which is neither answered nor refused"`
	Args     json.RawMessage `json:"args,omitempty" doc:"with edit: the arguments that run"`
	Text     string          `json:"text,omitempty" maxLength:"65536" doc:"with reject: why; with respond: the result that the model sees; of a form, what was filled in, a JSON object, or the value of its only field"`
	Always   bool            `json:"always,omitempty" doc:"allows the same from now on in this thread"`
	ArgsHash string          `json:"args_hash,omitempty" maxLength:"64" doc:"of the arguments that were shown; refused if the call has others"`
}

// DecideList answers several; each is answered for itself.
type DecideList struct {
	Decisions []Decide `json:"decisions" minItems:"1" maxItems:"100"`
}

// Decided tells what became of one decision.
type Decided struct {
	Call    string   `json:"call"`
	Thread  string   `json:"thread,omitempty"`
	OK      bool     `json:"ok"`
	Problem *Problem `json:"problem,omitempty" doc:"conflict: it was decided already, or it expired"`
}

// DecidedList answers a DecideList, in its order.
type DecidedList struct {
	Items []Decided `json:"items"`
}

// RunEvent is one entry of a thread's log. What data holds depends on kind;
// the kinds are documented in package thread. Kinds that a reader does not
// know are to be skipped.
type RunEvent struct {
	Seq  uint64          `json:"seq" doc:"1, 2, 3, … in its thread"`
	V    int             `json:"v"`
	Kind string          `json:"kind" example:"tool.completed"`
	At   time.Time       `json:"at"`
	Run  string          `json:"run,omitempty"`
	Data json.RawMessage `json:"data"`
}

// RunEventPage is a page of a run's events, oldest first, read from its end backwards.
type RunEventPage struct {
	Items []RunEvent `json:"items"`
	// Before asks for what stands before this page; 0 = nothing does.
	Before uint64 `json:"before,omitempty" doc:"pass as before for the page before this one; missing: this is the first"`
}

// Live is news on its way into the log: parts of an answer, output of a
// running call. Some may be lost (then a LiveGap says so); the event that ends
// them has it all.
type Live struct {
	Thread string `json:"thread"`
	Run    string `json:"run"`
	After  uint64 `json:"after" doc:"the thread's last event when it was sent"`
	Kind   string `json:"kind" enum:"text,reasoning,tool_call,tool_args,output,reset" doc:"reset: the answer that was streaming is void"`
	Index  int    `json:"index,omitempty" doc:"which call of the answer, from 0"`
	Name   string `json:"name,omitempty" doc:"of the tool"`
	Call   string `json:"call,omitempty" doc:"of an output"`
	Text   string `json:"text,omitempty"`
	Again  bool   `json:"again,omitempty" doc:"the text is the end of all that was sent of it so far, and takes its place; for a client that begins to follow in the middle"`
}

// LiveGap says that live news were dropped because they came faster than they
// were taken.
type LiveGap struct {
	Lost int `json:"lost"`
}

// StreamEnd is the last word of a stream of events whose run is over.
type StreamEnd struct {
	Seq   uint64 `json:"seq"`
	State string `json:"state"`
}

// RunStreamItem is what stands in the data of a run's event stream; the SSE
// event's name says which: event (id = its seq), live, gap, heartbeat, end, problem.
type RunStreamItem struct {
	Event *RunEvent  `json:"event,omitempty"`
	Live  *Live      `json:"live,omitempty"`
	Gap   *LiveGap   `json:"gap,omitempty"`
	End   *StreamEnd `json:"end,omitempty"`
}

// TopicEvents is the topic of FollowRequest that has the events of GET /v1/events. It
// needs the scope read, beside the socket's runs.read.
const TopicEvents = "events"

// FollowRequest is what a client says on the WebSocket /v1/follow; exactly one
// of Subscribe, Unsubscribe and Ping is set.
type FollowRequest struct {
	// Subscribe names a topic: "run:<run id>", "tree:<run id>" for the run and the
	// sub-agents beneath it, or "events" for what happens to the tenant's sandboxes,
	// workspaces, networks and runs.
	Subscribe string `json:"subscribe,omitempty" doc:"a topic: run:RUN, tree:RUN with the sub-agents beneath it, or events"`
	// From is the first event that is wanted; 0 = the run's first, of events from
	// now on.
	From uint64 `json:"from,omitempty" doc:"the first event that is wanted; missing: the run's first, of events from now on"`
	// Threads are the same for sub-agents' threads, by their ids; not with events.
	Threads map[string]uint64 `json:"threads,omitempty" doc:"the same for threads of sub-agents, by their ids; not with events"`
	// Live: live news too; events have none.
	Live        bool   `json:"live,omitempty" doc:"live news too; events have none"`
	Unsubscribe string `json:"unsubscribe,omitempty"`
	Ping        int64  `json:"ping,omitempty"`
}

// FollowMessage is what the server says there. Topic is empty for Heartbeat,
// Pong, and problems of the whole connection.
//
// Of the topic events a message has Domain and Seq, which is Domain's, or Seq alone.
// Seq alone says that all up to it was told or is not wanted: it is the first message of
// the topic, so that the client knows that it misses nothing from there on, and stands
// in the place of an event that cannot be shown. A client that subscribes again asks
// From the last Seq + 1; a Seq that is missing is 0. Domain with resync says that
// events before Seq + 1 are gone: what the client knows, it has to list again.
type FollowMessage struct {
	Topic string `json:"topic,omitempty" doc:"missing: of the whole connection"`
	// Thread of the event or the live news, when it is a sub-agent's.
	Thread string     `json:"thread,omitempty" doc:"of the event or the live news, when it is a sub-agent's"`
	Seq    uint64     `json:"seq,omitempty" doc:"of the event; alone, with the topic events, all up to it was told or is not wanted: go on from the next"`
	Event  *RunEvent  `json:"event,omitempty"`
	Domain *Event     `json:"domain,omitempty" doc:"of the topic events"`
	Live   *Live      `json:"live,omitempty"`
	Gap    *LiveGap   `json:"gap,omitempty"`
	End    *StreamEnd `json:"end,omitempty" doc:"the topic is over"`
	// Problem ends its topic.
	Problem   *Problem   `json:"problem,omitempty" doc:"the topic is over, without one the connection"`
	Heartbeat *time.Time `json:"heartbeat,omitempty"`
	Pong      int64      `json:"pong,omitempty"`
}

// Bounds of the WebSocket /v1/follow.
const (
	FollowRequestBytesMax = 16 << 10
	FollowMessageBytesMax = 1 << 20
)

// OutlineEnded is the state of a sub-agent in the background that has reported its end to
// the thread above it, which is not told how in words for programs.
const OutlineEnded = "ended"

// RunOutline says where things are in a run's log, one small record a step. It is a
// pure function of the run's events, which are those that GET /v1/runs/{id}/events
// shows; a view can go on with it by the same rules. server/transcript/testdata/fold
// has events with the outlines that are made of them.
//
// Rules. A text is that of the text blocks, one behind the other; its beginning are the
// first 80 code points, as they are, without an ellipsis. Milliseconds are whole, and what is
// beyond is cut off. What is empty, 0 or false is missing, but for Steps, Total, LastSeq,
// FirstSeq, Usage and CostUSD of the outline, and Step, Seq, At, TookMS, Kind, Tokens
// and CostUSD of a step.
//
//   - state: that of the last run.ended, unless a run.started follows; without a
//     run.started pending; interrupted if the last step has calls without a result
//     and each of those waits for a person; else running.
//   - started_at: of the last run.started; ended_at and reason: of the run.ended
//     that holds. first_seq and last_seq: of the first and the last event.
//   - steps: one for each model.completed, numbered from 1. Inputs belong to the
//     first step whose through reaches their seq; those that none reaches are inputs of
//     the outline. failures counts the model.failed events since the step before, at
//     most 16.
//   - A step is rewound when a thread.rewound after it goes to an event before its own;
//     the route counts that of a later run on the thread, too.
//   - todos: of the last tool.completed that has some and did not fail; a
//     thread.rewound leaves those of calls alone whose model.completed stays.
//   - usage and cost_usd: sums of model.completed, tool.completed, context.compacted,
//     check.ended, and spent of inputs, in their order. Usage is estimated if one of
//     them is. Rewound steps were paid too.
//   - agents: one for each tool.started of the tool task. running until its
//     tool.completed: then failed or succeeded, with its steps and cost. One in the
//     background (the arguments that ran have background) goes on then unless the call
//     failed, and is ended by an input from "sub-agent" whose name ends in a space and
//     the call's id. The route replaces the state of those that are running or
//     ended by that of the newest run on their own thread, and of those that are
//     running also steps and cost. The last 256.
//   - marks: context.compacted, thread.rewound, cancel.asked, budget.changed,
//     check.ended, and machine.bound that says why. The last 1000.
type RunOutline struct {
	Run       string         `json:"run"`
	Thread    string         `json:"thread"`
	State     string         `json:"state" enum:"pending,running,interrupted,succeeded,failed,cancelled,timed_out"`
	Reason    string         `json:"reason,omitempty" doc:"a code, as in a run"`
	StartedAt *time.Time     `json:"started_at,omitempty"`
	EndedAt   *time.Time     `json:"ended_at,omitempty"`
	FirstSeq  uint64         `json:"first_seq"`
	LastSeq   uint64         `json:"last_seq" doc:"the last event that is in it"`
	Total     int            `json:"total" doc:"steps of the run"`
	Steps     []OutlineStep  `json:"steps" doc:"the newest, oldest first; at most 20000"`
	Before    int            `json:"before,omitempty" doc:"pass as before for the steps before these; missing: there are none"`
	Inputs    []OutlineInput `json:"inputs,omitempty" doc:"that no step has taken up yet; at most 8"`
	Todos     []Todo         `json:"todos,omitempty"`
	Waiting   []string       `json:"waiting,omitempty" doc:"calls of the run itself that wait for a person"`
	Agents    []OutlineAgent `json:"agents,omitempty" doc:"sub-agents that the run itself started"`
	Marks     []OutlineMark  `json:"marks,omitempty" doc:"other events that have a place in the whole"`
	Usage     Usage          `json:"usage"`
	CostUSD   float64        `json:"cost_usd"`
}

// OutlineStep is one model call and the tool calls that it asked for.
type OutlineStep struct {
	Step   int       `json:"step" doc:"from 1"`
	Seq    uint64    `json:"seq" doc:"of model.completed"`
	At     time.Time `json:"at" doc:"of model.completed"`
	TookMS int64     `json:"took_ms" doc:"of the model's answer, whole milliseconds, cut off"`
	// Kind is the first of agent, edit, command, ask, tool, plan, read that one of all
	// its calls is of. agent: task and task_…; edit: write_file, edit_file, apply_patch,
	// delete, undo_changes; command: execute, run_command, process_…, service; ask:
	// ask_user; plan: write_todos, submit_plan, adopt_plan; read: ls, read_file, glob,
	// grep, list_files, list_revisions, diff_revisions, read_revision, skill; tool: any other.
	Kind       string         `json:"kind" enum:"agent,edit,command,ask,tool,plan,read,text" doc:"of its main work; text: it has no calls"`
	Text       string         `json:"text,omitempty" doc:"the beginning of the answer"`
	Inputs     []OutlineInput `json:"inputs,omitempty" doc:"what entered the conversation before it; at most 8"`
	Calls      []OutlineCall  `json:"calls,omitempty" doc:"at most 32"`
	CallsTotal int            `json:"calls_total,omitempty" doc:"when there are more than are listed"`
	Failures   int            `json:"failures,omitempty" doc:"attempts of the model call that failed"`
	Tokens     int            `json:"tokens" doc:"input, output and both of the cache"`
	CostUSD    float64        `json:"cost_usd"`
	Rewound    bool           `json:"rewound,omitempty" doc:"no longer part of the conversation"`
}

// OutlineCall is a tool call. Its state: pending until tool.started makes it running,
// or approval.asked waiting, which approval.decided makes pending again (of a form, whose
// call runs, running). tool.completed makes it rejected or answered if a person decided reject or
// respond, other than of a form; else failed or done. Only the first approval.decided
// after an approval.asked counts.
type OutlineCall struct {
	Call       string `json:"call"`
	Tool       string `json:"tool"`
	State      string `json:"state" enum:"pending,waiting,running,done,failed,rejected,answered"`
	Title      string `json:"title,omitempty" doc:"the beginning of a summary of its arguments, for people; no rule tells how it is made"`
	TookMS     int64  `json:"took_ms,omitempty" doc:"whole milliseconds, cut off"`
	Exit       *int   `json:"exit,omitempty" doc:"of a command"`
	StartedSeq uint64 `json:"started_seq,omitempty" doc:"of tool.started, the last one"`
	EndedSeq   uint64 `json:"ended_seq,omitempty" doc:"of tool.completed"`
	Ask        string `json:"ask,omitempty" enum:"approval,question,plan,form" doc:"what a person was asked last"`
	AskedSeq   uint64 `json:"asked_seq,omitempty" doc:"of approval.asked, the last one"`
	Decision   string `json:"decision,omitempty" enum:"approve,edit,reject,respond,dismiss"`
}

// OutlineInput is what entered the conversation.
type OutlineInput struct {
	Seq  uint64 `json:"seq"`
	From string `json:"from" doc:"user, parent, sub-agent, skete"`
	Name string `json:"name,omitempty"`
	Text string `json:"text,omitempty" doc:"its beginning"`
}

// OutlineAgent is a sub-agent.
type OutlineAgent struct {
	Thread     string  `json:"thread"`
	Call       string  `json:"call" doc:"that started it"`
	Agent      string  `json:"agent" doc:"subagent_type of the arguments that ran"`
	State      string  `json:"state" enum:"pending,running,interrupted,ended,succeeded,failed,cancelled,timed_out"`
	StartedSeq uint64  `json:"started_seq" doc:"of tool.started, the first one"`
	EndedSeq   uint64  `json:"ended_seq,omitempty" doc:"of tool.completed, or in the background of the input"`
	Steps      int     `json:"steps,omitempty"`
	CostUSD    float64 `json:"cost_usd,omitempty"`
}

// OutlineMark is the place of an event.
type OutlineMark struct {
	Seq  uint64    `json:"seq"`
	Kind string    `json:"kind"`
	At   time.Time `json:"at"`
}

// Transcript is the story of a run: one record a step.
type Transcript struct {
	Run   string           `json:"run,omitempty"`
	Steps []TranscriptStep `json:"steps"`
	// Before asks for the steps before these; 0 = there are none.
	Before int `json:"before,omitempty"`
	// Total counts all steps of the run.
	Total int    `json:"total"`
	Todos []Todo `json:"todos,omitempty"`
	// Waiting are calls of the run itself that wait for a person.
	Waiting []string `json:"waiting,omitempty"`
	Usage   Usage    `json:"usage"`
	CostUSD float64  `json:"cost_usd"`
	State   string   `json:"state,omitempty"`
	Reason  string   `json:"reason,omitempty"`
	Text    string   `json:"text,omitempty"`
	Seq     uint64   `json:"seq" doc:"the last event that is in it"`
}

// Window says what fills the model's window, in tokens. The parts are estimates;
// the total is the best guess, from the vendor's own count where there is one.
type Window struct {
	Instructions int `json:"instructions"`
	Tools        int `json:"tools" doc:"their schemas"`
	Memory       int `json:"memory,omitempty" doc:"memory, skills, notes"`
	Summary      int `json:"summary,omitempty" doc:"of what was said before"`
	Inputs       int `json:"inputs" doc:"messages of people and of other agents"`
	Replies      int `json:"replies" doc:"of the model, with its calls"`
	Results      int `json:"results" doc:"of tool calls"`
	Total        int `json:"total"`
	Size         int `json:"size,omitempty" doc:"how many tokens fit; missing: not known"`
}

// TranscriptStep is one model call and the tool calls that it asked for. A step
// whose seq is 0 has no answer yet: the model works on it, or failed.
type TranscriptStep struct {
	Step      int                 `json:"step" doc:"from 1"`
	Seq       uint64              `json:"seq" doc:"of model.completed"`
	Through   uint64              `json:"through,omitempty" doc:"the last event that its prompt knew"`
	At        *time.Time          `json:"at,omitempty"`
	TookMS    int64               `json:"took_ms,omitempty"`
	Model     string              `json:"model,omitempty"`
	Inputs    []TranscriptInput   `json:"inputs,omitempty" doc:"what entered the conversation before it"`
	Text      string              `json:"text,omitempty" doc:"its beginning"`
	TextBytes int                 `json:"text_bytes,omitempty" doc:"of the whole text, when text is only its beginning"`
	Reasoning string              `json:"reasoning,omitempty" doc:"its beginning"`
	Stop      string              `json:"stop,omitempty"`
	Calls     []TranscriptCall    `json:"calls,omitempty"`
	Failures  []TranscriptFailure `json:"failures,omitempty" doc:"attempts of the model call that failed"`
	Notes     []string            `json:"notes,omitempty" doc:"what else happened: compacted, rewound, another machine"`
	Usage     Usage               `json:"usage"`
	CostUSD   float64             `json:"cost_usd"`
	Window    *Window             `json:"window,omitempty" doc:"what filled the model's window"`
	Rewound   bool                `json:"rewound,omitempty" doc:"no longer part of the conversation"`
}

// TranscriptInput is what entered the conversation.
type TranscriptInput struct {
	Seq  uint64 `json:"seq"`
	From string `json:"from" doc:"user, parent, sub-agent, skete"`
	Name string `json:"name,omitempty"`
	Text string `json:"text" doc:"its beginning"`
}

// TranscriptFailure is an attempt of a model call that failed.
type TranscriptFailure struct {
	Seq     uint64 `json:"seq"`
	Attempt int    `json:"attempt"`
	Trouble string `json:"trouble"`
	Text    string `json:"text,omitempty"`
	WaitMS  int64  `json:"wait_ms,omitempty" doc:"before the next attempt"`
}

// TranscriptCall is a tool call.
type TranscriptCall struct {
	ID     string `json:"id"`
	Tool   string `json:"tool"`
	Args   string `json:"args" doc:"a summary for people, on one line"`
	Status string `json:"status" enum:"pending,waiting,running,done,failed,rejected,answered" doc:"waiting: for a person; answered: by one, in place of the tool"`
	Code   string `json:"code,omitempty" doc:"of a failure"`
	Exit   *int   `json:"exit,omitempty" doc:"of a command"`
	TookMS int64  `json:"took_ms,omitempty"`
	Bytes  int64  `json:"bytes" doc:"of the whole output"`
	Head   string `json:"head,omitempty" doc:"the beginning of the output"`
	Thread string `json:"thread,omitempty" doc:"of the sub-agent that it started"`
	// StartedSeq and EndedSeq are where a fork or a rewind can go to.
	StartedSeq uint64              `json:"started_seq,omitempty" doc:"the event with which it began"`
	EndedSeq   uint64              `json:"ended_seq,omitempty" doc:"the event with its result"`
	Approval   *TranscriptApproval `json:"approval,omitempty"`
}

// TranscriptApproval is the question about a call, and its answer.
type TranscriptApproval struct {
	Ask        string     `json:"ask,omitempty" enum:"question,plan,form" doc:"missing: whether the call may be done"`
	Reason     string     `json:"reason,omitempty"`
	Allowed    []string   `json:"allowed"`
	AskedAt    time.Time  `json:"asked_at"`
	AskedSeq   uint64     `json:"asked_seq"`
	DecidedSeq uint64     `json:"decided_seq,omitempty"`
	ExpiresAt  *time.Time `json:"expires_at,omitempty"`
	Decision   string     `json:"decision,omitempty" doc:"missing: it is not decided yet"`
	By         string     `json:"by,omitempty" doc:"the id of the key that decided, or what did so by itself"`
	ByName     string     `json:"by_name,omitempty" doc:"what the key was called then"`
	Text       string     `json:"text,omitempty"`
}

// CallDetail is all that is known of one tool call but its output.
type CallDetail struct {
	TranscriptCall
	Step        int             `json:"step"`
	Arguments   json.RawMessage `json:"arguments" doc:"that the model wrote"`
	Ran         json.RawMessage `json:"ran,omitempty" doc:"the arguments that ran, when they were changed"`
	Machine     string          `json:"machine,omitempty"`
	StartedAt   *time.Time      `json:"started_at,omitempty"`
	EndedAt     *time.Time      `json:"ended_at,omitempty"`
	File        string          `json:"file,omitempty" doc:"where the agent finds the whole output"`
	OutputTypes []string        `json:"output_types,omitempty" doc:"kinds of the blocks of the result"`
}

// TodoList is an agent's plan.
type TodoList struct {
	Items []Todo `json:"items"`
}

// Agent is a definition that runs can be started with.
type Agent struct {
	Name        string   `json:"name"`
	Description string   `json:"description,omitempty"`
	Model       string   `json:"model,omitempty"`
	Tools       []string `json:"tools,omitempty"`
	Subagents   []string `json:"subagents,omitempty"`
	// Error is why its file cannot be used, a mistake a line; in lists only.
	Error string `json:"error,omitempty"`
	// Definition is the whole of it, as it was resolved; missing in lists.
	Definition json.RawMessage `json:"definition,omitempty"`
}

// AgentList lists agents by name.
type AgentList struct {
	Items []Agent `json:"items"`
}

// SlashCommand is a task that has a name: a task or message that begins with /NAME
// stands for what its file says.
type SlashCommand struct {
	Name        string `json:"name"`
	Description string `json:"description,omitempty"`
	Agent       string `json:"agent,omitempty" doc:"that works on it where the caller names none"`
	Model       string `json:"model,omitempty" doc:"the same"`
	Error       string `json:"error,omitempty" doc:"what is wrong with its file"`
}

// SlashCommandList lists them by name.
type SlashCommandList struct {
	Items []SlashCommand `json:"items"`
}

// ValidateAgent asks whether the text of an agent file is one.
type ValidateAgent struct {
	Path    string `json:"path" maxLength:"512" doc:"its name says what it is: .yaml, .yml, .json or .md"`
	Content string `json:"content" maxLength:"524288"`
}

// AgentValidated answers ValidateAgent.
type AgentValidated struct {
	OK       bool           `json:"ok" doc:"there is nothing but warnings"`
	Agent    *Agent         `json:"agent,omitempty"`
	Problems []AgentProblem `json:"problems,omitempty"`
}

// AgentProblem is something that is wrong with an agent file.
type AgentProblem struct {
	Text    string `json:"text" doc:"with its place in the file"`
	Warning bool   `json:"warning,omitempty"`
}

// Comparison says where two runs differ. Its keys are agent/replay.Report's.
type Comparison struct {
	Report json.RawMessage `json:"report"`
}
