package client

import (
	"context"
	"crypto/rand"
	"io"
	"iter"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/skete-dev/skete/api"
	"github.com/skete-dev/skete/client/transport"
	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/internal/sleep"
)

// Run names one run of an agent; it holds no state of it.
type Run struct {
	ID string
	c  *Client
}

// Run returns a handle; it does not ask the server.
func (c *Client) Run(id string) *Run { return &Run{ID: id, c: c} }

// keyed is a call that may be repeated: the same key is the same deed.
func keyed(path string) transport.Call {
	return transport.Call{Method: http.MethodPost, Path: path, Repeatable: true, Header: http.Header{"Idempotency-Key": {rand.Text()}}}
}

// StartRun starts a run and returns at once; it goes on without us. A repeated
// attempt after a broken connection never starts a second one.
func (c *Client) StartRun(ctx context.Context, r api.StartRun) (api.Run, error) {
	return transport.Fetch[api.Run](ctx, c.t, keyed("/v1/runs").WithJSON(r))
}

// RunFilter selects runs; the zero value selects all but those of sub-agents.
type RunFilter struct {
	State     string // one or more, separated by commas
	Thread    string
	Agent     string
	Labels    map[string]string
	Subagents bool
	PageSize  int
}

func (f RunFilter) query() url.Values {
	q := url.Values{}
	for name, v := range map[string]string{"state": f.State, "thread": f.Thread, "agent": f.Agent} {
		if v != "" {
			q.Set(name, v)
		}
	}
	for k, v := range f.Labels {
		q.Add("label", k+"="+v)
	}
	if f.Subagents {
		q.Set("subagents", "true")
	}
	if f.PageSize > 0 {
		q.Set("page_size", strconv.Itoa(f.PageSize))
	}
	return q
}

// Runs goes through all runs that the filter selects, newest first. It ends
// after the first error.
func (c *Client) Runs(ctx context.Context, f RunFilter) iter.Seq2[api.Run, error] {
	return pages(ctx, f.query(), func(q url.Values) ([]api.Run, string, error) {
		p, err := transport.Fetch[api.RunPage](ctx, c.t, transport.Get("/v1/runs", q))
		return p.Items, p.NextPageToken, err
	})
}

// Usage says what runs used that began from a time on and before another one: by "day",
// "run", "agent" or "model". A zero time is the default: the last 30 days.
func (c *Client) Usage(ctx context.Context, by string, from, to time.Time) (api.UsageReport, error) {
	q := url.Values{"by": {by}}
	for name, t := range map[string]time.Time{"from": from, "to": to} {
		if !t.IsZero() {
			q.Set(name, t.UTC().Format(time.RFC3339Nano))
		}
	}
	return transport.Fetch[api.UsageReport](ctx, c.t, transport.Get("/v1/usage", q))
}

// Approvals lists all calls that wait for a person.
func (c *Client) Approvals(ctx context.Context) ([]api.Approval, error) {
	l, err := transport.Fetch[api.ApprovalList](ctx, c.t, transport.Get("/v1/approvals", nil))
	return l.Items, err
}

// Agents lists the agents that runs can be started with.
func (c *Client) Agents(ctx context.Context) ([]api.Agent, error) {
	l, err := transport.Fetch[api.AgentList](ctx, c.t, transport.Get("/v1/agents", nil))
	return l.Items, err
}

// SlashCommands lists the tasks that have names.
func (c *Client) SlashCommands(ctx context.Context) ([]api.SlashCommand, error) {
	l, err := transport.Fetch[api.SlashCommandList](ctx, c.t, transport.Get("/v1/commands", nil))
	return l.Items, err
}

// Models lists the models that agents can use.
func (c *Client) Models(ctx context.Context) ([]api.Model, error) {
	l, err := transport.Fetch[api.ModelList](ctx, c.t, transport.Get("/v1/models", nil))
	return l.Items, err
}

// Agent returns an agent with its whole definition.
func (c *Client) Agent(ctx context.Context, name string) (api.Agent, error) {
	return transport.Fetch[api.Agent](ctx, c.t, transport.Get("/v1/agents/"+url.PathEscape(name), nil))
}

// ValidateAgent says what is wrong with the text of an agent file.
func (c *Client) ValidateAgent(ctx context.Context, path, content string) (api.AgentValidated, error) {
	k := transport.Call{Method: http.MethodPost, Path: "/v1/agents/validate", Repeatable: true}
	return transport.Fetch[api.AgentValidated](ctx, c.t, k.WithJSON(api.ValidateAgent{Path: path, Content: content}))
}

// DeleteThread forgets a conversation, with all of its runs.
func (c *Client) DeleteThread(ctx context.Context, id string) error {
	return c.t.Send(ctx, transport.Call{Method: http.MethodDelete, Path: "/v1/threads/" + url.PathEscape(id), Repeatable: true})
}

// Blob reads content that an event names by its hash, from an offset on.
func (c *Client) Blob(ctx context.Context, hash string, offset int64) (io.ReadCloser, error) {
	return c.open(ctx, "/v1/blobs/"+url.PathEscape(hash), offset)
}

func (c *Client) open(ctx context.Context, path string, offset int64) (io.ReadCloser, error) {
	q := url.Values{}
	if offset > 0 {
		q.Set("offset", strconv.FormatInt(offset, 10))
	}
	res, err := c.t.Do(ctx, transport.Get(path, q))
	if err != nil {
		return nil, err
	}
	return res.Body, nil
}

func (r *Run) path(rest string) string { return "/v1/runs/" + url.PathEscape(r.ID) + rest }

// post makes a call that may be repeated: what it asks for is done once.
func (r *Run) post(rest string, body any) transport.Call {
	return transport.Call{Method: http.MethodPost, Path: r.path(rest), Repeatable: true}.WithJSON(body)
}

// Get returns the run as it is now.
func (r *Run) Get(ctx context.Context) (api.Run, error) {
	return transport.Fetch[api.Run](ctx, r.c.t, transport.Get(r.path(""), nil))
}

// Send sends a message. A run that goes on takes it before its next step; one
// that is over is followed by a new run on its thread, which Sent names.
func (r *Run) Send(ctx context.Context, text string, images ...api.Image) (api.Sent, error) {
	return transport.Fetch[api.Sent](ctx, r.c.t, keyed(r.path("/send")).WithJSON(api.SendInput{Text: text, Images: images}))
}

// Approvals lists the calls of the run, and of its sub-agents, that wait for a person.
func (r *Run) Approvals(ctx context.Context) ([]api.Approval, error) {
	l, err := transport.Fetch[api.ApprovalList](ctx, r.c.t, transport.Get(r.path("/approvals"), nil))
	return l.Items, err
}

// Decide answers approvals. Each is answered for itself; the error is that of
// the first that was refused (Conflict: another client was quicker).
func (r *Run) Decide(ctx context.Context, decisions ...api.Decide) ([]api.Decided, error) {
	k := r.post("/decisions", api.DecideList{Decisions: decisions})
	k.Repeatable = false // a repetition would be told that it was decided already: by us
	l, err := transport.Fetch[api.DecidedList](ctx, r.c.t, k)
	if err != nil {
		return nil, err
	}
	for _, d := range l.Items {
		if !d.OK && d.Problem != nil {
			return l.Items, &Error{Problem: *d.Problem}
		}
	}
	return l.Items, nil
}

// Cancel ends the run, and what it started. It may be repeated.
func (r *Run) Cancel(ctx context.Context, reason string) (api.Run, error) {
	return transport.Fetch[api.Run](ctx, r.c.t, r.post("/cancel", api.CancelRun{Reason: reason}))
}

// Resume goes on with a run that a budget or a failure ended.
func (r *Run) Resume(ctx context.Context, how api.ResumeRun) (api.Run, error) {
	k := r.post("/resume", how)
	k.Repeatable = false // what is added would be added twice
	return transport.Fetch[api.Run](ctx, r.c.t, k)
}

// Compact asks that the conversation so far is replaced by a summary before the next
// model call, of the run or of the next one on its thread. focus is what the summary
// must keep above all, "" = nothing more. It may be repeated.
func (r *Run) Compact(ctx context.Context, focus string) (api.Run, error) {
	return transport.Fetch[api.Run](ctx, r.c.t, r.post("/compact", api.CompactRun{Focus: focus}))
}

// Fork starts a thread that begins as a copy of this one's events up to f.At.
func (r *Run) Fork(ctx context.Context, f api.ForkRun) (api.Run, error) {
	return transport.Fetch[api.Run](ctx, r.c.t, keyed(r.path("/fork")).WithJSON(f))
}

// Rewind takes the conversation back to an event, and with files the files of
// the sandbox too; the answer says what that changed.
func (r *Run) Rewind(ctx context.Context, to uint64, files bool) (api.Rewound, error) {
	return transport.Fetch[api.Rewound](ctx, r.c.t, r.post("/rewind", api.RewindRun{To: to, Files: files}))
}

// Replay plays the run's model answers again against a fresh sandbox.
func (r *Run) Replay(ctx context.Context, how api.ReplayRun) (api.Run, error) {
	return transport.Fetch[api.Run](ctx, r.c.t, r.post("/replay", how))
}

// Compare says where another run differs from this one.
func (r *Run) Compare(ctx context.Context, with string) (api.Comparison, error) {
	return transport.Fetch[api.Comparison](ctx, r.c.t, transport.Get(r.path("/compare"), url.Values{"with": {with}}))
}

// Transcript tells the story of the last steps (0 = 100 of them) that stand
// before a step (0 = the end).
func (r *Run) Transcript(ctx context.Context, last, before int) (api.Transcript, error) {
	return transport.Fetch[api.Transcript](ctx, r.c.t, transport.Get(r.path("/transcript"), steps(last, before)))
}

// steps asks for some steps of a run.
func steps(last, before int) url.Values {
	q := url.Values{}
	for name, n := range map[string]int{"last": last, "before": before} {
		if n > 0 {
			q.Set(name, strconv.Itoa(n))
		}
	}
	return q
}

// Outline says where things are in the run: one small record a step, of the last steps (0
// = 20,000 of them) that stand before a step (0 = the end).
func (r *Run) Outline(ctx context.Context, last, before int) (api.RunOutline, error) {
	return transport.Fetch[api.RunOutline](ctx, r.c.t, transport.Get(r.path("/outline"), steps(last, before)))
}

// Todos returns the agent's plan.
func (r *Run) Todos(ctx context.Context) ([]api.Todo, error) {
	l, err := transport.Fetch[api.TodoList](ctx, r.c.t, transport.Get(r.path("/todos"), nil))
	return l.Items, err
}

// Call returns all that is known of a tool call but its output.
func (r *Run) Call(ctx context.Context, call string) (api.CallDetail, error) {
	return transport.Fetch[api.CallDetail](ctx, r.c.t, transport.Get(r.path("/calls/"+url.PathEscape(call)), nil))
}

// Output reads the whole output of a tool call, from an offset on. Conflict:
// the call has none yet.
func (r *Run) Output(ctx context.Context, call string, offset int64) (io.ReadCloser, error) {
	return r.c.open(ctx, r.path("/calls/"+url.PathEscape(call)+"/output"), offset)
}

// Events goes through the run's events from a number on (0 = all) and goes on
// as they come, until the run is over. A broken connection is resumed: no
// event is left out or repeated. What the data of each kind holds is documented
// in package thread; kinds that a program does not know are to be skipped.
func (r *Run) Events(ctx context.Context, from uint64) iter.Seq2[api.RunEvent, error] {
	return newsEvents(streamNews(ctx, r.c.t, r.path(""), url.Values{}, from))
}

// History goes through the events that there are now, from a number on.
func (r *Run) History(ctx context.Context, from uint64) iter.Seq2[api.RunEvent, error] {
	return newsEvents(streamNews(ctx, r.c.t, r.path(""), url.Values{"follow": {"false"}}, from))
}

// Live is Events with live news between them: parts of answers, output of
// running calls. Its last piece is the End.
func (r *Run) Live(ctx context.Context, from uint64) iter.Seq2[News, error] {
	return streamNews(ctx, r.c.t, r.path(""), url.Values{"live": {"true"}}, from)
}

// Tree is Live with the events and live news of the sub-agents beneath the
// run, over a WebSocket. Each thread's events come in order; threads are mixed
// as they happen.
func (r *Run) Tree(ctx context.Context, from uint64) iter.Seq2[News, error] {
	return followTree(ctx, r.c.t, r.ID, from)
}

// finalWaits is how often Wait looks again for a record that lags behind the log.
const finalWaits = 10

// Wait returns the run when it is over, however long it takes. A broken
// connection is resumed.
func (r *Run) Wait(ctx context.Context) (api.Run, error) {
	run, err := r.Get(ctx)
	if err != nil || run.Final() {
		return run, err
	}
	for _, err := range r.Events(ctx, run.LastSeq) {
		if err != nil {
			return run, err
		}
	}
	for attempt := 1; ; attempt++ {
		run, err = r.Get(ctx)
		if err != nil || run.Final() {
			return run, err
		}
		if attempt == finalWaits {
			return run, errs.New(errs.Unavailable, "run %s has ended, and its record does not say how", r.ID)
		}
		if err := sleep.For(ctx, transport.Backoff(attempt)); err != nil {
			return run, err
		}
	}
}

// Share makes an address at which the run can be read without a key. Its path is in this answer alone.
func (r *Run) Share(ctx context.Context, how api.CreateShare) (api.Share, error) {
	return transport.Fetch[api.Share](ctx, r.c.t, r.post("/shares", how))
}

// Shares lists the addresses at which the run can be read, without their secrets.
func (r *Run) Shares(ctx context.Context) (api.ShareList, error) {
	return transport.Fetch[api.ShareList](ctx, r.c.t, transport.Get(r.path("/shares"), nil))
}

// EndShare takes one of them back.
func (r *Run) EndShare(ctx context.Context, share string) error {
	return r.c.t.Send(ctx, transport.Call{Method: http.MethodDelete, Path: r.path("/shares/" + url.PathEscape(share))})
}
