package mcp

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/skete-dev/skete/api"
	"github.com/skete-dev/skete/client"
	"github.com/skete-dev/skete/internal/clip"
)

var runTools = []*tool{
	does(tool{
		name: "run_start", title: "Start an agent", scope: runsWrite, hints: destroys | open,
		about: "Let an agent of the server work on a task in a sandbox. It goes on by itself; run_follow tells what it does.",
	}, startRun),
	does(tool{
		name: "run_list", title: "List runs", scope: runsRead, hints: reads,
		about: "List runs of agents, newest first.",
	}, listRuns),
	does(tool{
		name: "run_get", title: "Show a run", scope: runsRead, hints: reads,
		about: "Everything that is known of a run: state, result, usage, and the calls that wait for a person.",
	}, getRun),
	does(tool{
		name: "run_follow", title: "Follow a run", scope: runsRead, hints: reads,
		about: "Tell what happened in a run behind an event, and wait for more: until it is over, waits for a person, or the time is up.",
	}, followRun),
	does(tool{
		name: "run_send", title: "Say something to a run", scope: runsWrite, hints: open,
		about: "Send a message to a run, which takes it before its next step. One that is over is followed by a new one.",
	}, sendRun),
	does(tool{
		name: "run_decide", title: "Answer a run's question", scope: runsWrite, hints: destroys | open,
		about: "Approve or reject a call that waits for a person, or answer a question. Do that only when the person told you so.",
	}, decideRun),
	does(tool{
		name: "run_cancel", title: "Cancel a run", scope: runsWrite, hints: destroys | repeats,
		about: "End a run and what it started.",
	}, cancelRun),
}

type startRunIn struct {
	Task    string `json:"task" about:"what to do, in words"`
	Agent   string `json:"agent,omitempty" about:"default default"`
	Model   string `json:"model,omitempty" about:"default the agent's"`
	Sandbox string `json:"sandbox,omitempty" about:"to work in; left out: one of its own"`
	Thread  string `json:"thread,omitempty" about:"of an earlier run, to go on with"`
	Title   string `json:"title,omitempty"`
	Plan    bool   `json:"plan,omitempty" about:"only look, until a person has accepted the agent's plan"`
	Steps   int    `json:"steps_max,omitempty" minimum:"1"`
	Minutes int    `json:"minutes_max,omitempty" minimum:"1"`
	Keep    bool   `json:"keep,omitempty" about:"leave its own sandbox as it is when it is over"`
}

func startRun(ctx context.Context, s *Server, in *startRunIn) (*sdk.CallToolResult, error) {
	return runResult(s.Client.StartRun(ctx, api.StartRun{
		Task: in.Task, Agent: in.Agent, Model: in.Model, Sandbox: in.Sandbox, Thread: in.Thread, Title: in.Title, Plan: in.Plan, Keep: in.Keep,
		Budget: api.Budget{Steps: in.Steps, WallMS: (time.Duration(in.Minutes) * time.Minute).Milliseconds()},
	}))
}

type runView struct {
	ID        string    `json:"id"`
	Thread    string    `json:"thread"`
	Agent     string    `json:"agent"`
	Model     string    `json:"model"`
	Title     string    `json:"title,omitempty"`
	State     string    `json:"state"`
	Reason    string    `json:"reason,omitempty"`
	Text      string    `json:"text,omitempty"`
	Sandbox   string    `json:"sandbox,omitempty"`
	Steps     int       `json:"steps"`
	CreatedAt time.Time `json:"created_at"`
	LastSeq   uint64    `json:"last_seq"`
}

func viewOfRun(r api.Run) runView {
	return runView{r.ID, r.Thread, r.Agent, r.Model, r.Title, r.State, r.Reason, clip.Text(r.Text, lineMax), r.Sandbox, r.Steps, r.CreatedAt, r.LastSeq}
}

func runResult(r api.Run, err error) (*sdk.CallToolResult, error) {
	if err != nil {
		return nil, err
	}
	return object(viewOfRun(r))
}

type listRunsIn struct {
	State  string `json:"state,omitempty" enum:"pending,running,interrupted,succeeded,failed,cancelled,timed_out"`
	Offset int    `json:"offset,omitempty" minimum:"0" about:"next_offset of the call before"`
}

func listRuns(ctx context.Context, s *Server, in *listRunsIn) (*sdk.CallToolResult, error) {
	p, err := pageOf(s.Client.Runs(ctx, client.RunFilter{State: in.State}), in.Offset, listMax, viewOfRun)
	if err != nil {
		return nil, err
	}
	return object(p)
}

type runIn struct {
	Run string `json:"run" about:"its id"`
}

func getRun(ctx context.Context, s *Server, in *runIn) (*sdk.CallToolResult, error) {
	r := s.Client.Run(in.Run)
	run, err := r.Get(ctx)
	if err != nil {
		return nil, err
	}
	out := struct {
		api.Run
		Approvals []api.Approval `json:"approvals,omitempty"`
	}{Run: run}
	if !run.Final() {
		if out.Approvals, err = r.Approvals(ctx); err != nil {
			return nil, err
		}
		out.Waiting = max(out.Waiting, len(out.Approvals))
	}
	return object(out)
}

type followIn struct {
	runIn
	From uint64 `json:"from,omitempty" about:"the first event that is wanted; default the run's first"`
	Wait int    `json:"wait_seconds,omitempty" minimum:"0" maximum:"300" about:"default 0: what there is now"`
}

// Bounds of what is told of a run at once.
const (
	eventsMax      = 200
	eventsBytesMax = 48 << 10
)

// asked is the kind of the event that says that a run waits for a person.
const asked = "approval.asked"

func followRun(ctx context.Context, s *Server, in *followIn) (*sdk.CallToolResult, error) {
	r := s.Client.Run(in.Run)
	run, err := r.Get(ctx)
	if err != nil {
		return nil, err
	}
	events, wait := r.History, !run.Final() && in.Wait > 0
	short, cancel := context.WithCancel(ctx)
	if wait {
		events = r.Events
		short, cancel = context.WithTimeout(ctx, time.Duration(in.Wait)*time.Second)
	}
	defer cancel()
	var b strings.Builder
	n, next, waiting := 0, in.From, 0
	for ev, err := range events(short, in.From) {
		if err != nil {
			if short.Err() != nil && ctx.Err() == nil {
				break // the time is up, whichever of the two ends says so
			}
			return nil, err
		}
		fmt.Fprintf(&b, "%d %s %s\n", ev.Seq, ev.Kind, clip.Text(string(ev.Data), 2*lineMax))
		n, next = n+1, ev.Seq+1
		if wait && ev.Kind == asked {
			if waiting, err = stillOpen(ctx, r, run.Thread, ev.Seq); err != nil {
				return nil, err
			}
		}
		if n == eventsMax || b.Len() > eventsBytesMax || waiting > 0 {
			break
		}
	}
	if run, err = r.Get(ctx); err != nil {
		return nil, err
	}
	run.Waiting = max(run.Waiting, waiting)
	return textResult(lines(b.String(), followed(run, next))), nil
}

// stillOpen returns how many calls of a run wait for a person, if the one that event seq of
// thread asks about is one of them. It asks the log: the numbers of the run come after it.
func stillOpen(ctx context.Context, r *client.Run, thread string, seq uint64) (int, error) {
	open, err := r.Approvals(ctx)
	if err != nil || !slices.ContainsFunc(open, func(a api.Approval) bool { return a.Seq == seq && a.Thread == thread }) {
		return 0, err
	}
	return len(open), nil
}

// followed says how a run is, and where to go on.
func followed(run api.Run, next uint64) string {
	text := "[" + run.State
	if run.Reason != "" {
		text += ": " + run.Reason
	}
	text += fmt.Sprintf("; steps %d; next: from %d", run.Steps, next)
	if next <= run.LastSeq {
		text += "; there is more"
	}
	if run.Waiting > 0 {
		text += fmt.Sprintf("; %d calls wait for a person: run_get shows them", run.Waiting)
	}
	text += "]"
	if run.Final() && run.Text != "" {
		text = lines(text, clip.Text(run.Text, eventsBytesMax))
	}
	return text
}

type sendIn struct {
	runIn
	Text string `json:"text"`
}

func sendRun(ctx context.Context, s *Server, in *sendIn) (*sdk.CallToolResult, error) {
	sent, err := s.Client.Run(in.Run).Send(ctx, in.Text)
	if err != nil {
		return nil, err
	}
	return object(sent)
}

type decideIn struct {
	runIn
	Call     string `json:"call" about:"as run_get shows it"`
	Thread   string `json:"thread,omitempty" about:"of the sub-agent whose call it is"`
	Decision string `json:"decision" enum:"approve,reject,respond"`
	Text     string `json:"text,omitempty" about:"with reject: why; with respond: the answer"`
}

func decideRun(ctx context.Context, s *Server, in *decideIn) (*sdk.CallToolResult, error) {
	r := s.Client.Run(in.Run)
	d := api.Decide{Call: in.Call, Thread: in.Thread, Decision: in.Decision, Text: in.Text}
	waiting, err := r.Approvals(ctx)
	if err != nil {
		return nil, err
	}
	at := slices.IndexFunc(waiting, func(a api.Approval) bool { return a.Call == in.Call && (in.Thread == "" || a.Thread == in.Thread) })
	if at >= 0 { // what is decided is what the call is now
		d.ArgsHash, d.Thread = waiting[at].ArgsHash, cmp.Or(d.Thread, waiting[at].Thread)
	}
	done, err := r.Decide(ctx, d)
	if err != nil {
		return nil, err
	}
	return object(done)
}

type cancelIn struct {
	runIn
	Reason string `json:"reason,omitempty"`
}

func cancelRun(ctx context.Context, s *Server, in *cancelIn) (*sdk.CallToolResult, error) {
	return runResult(s.Client.Run(in.Run).Cancel(ctx, in.Reason))
}
