package runs

import (
	"encoding/json"
	"time"

	"github.com/skete-dev/skete/agent/definition"
	"github.com/skete-dev/skete/agent/runs"
	"github.com/skete-dev/skete/api"
	"github.com/skete-dev/skete/server/transcript"
	"github.com/skete-dev/skete/thread"
)

// View shows a run to callers.
func View(r runs.Run) api.Run {
	v := api.Run{
		ID: string(r.ID), Thread: string(r.Thread), Agent: r.Agent, Model: transcript.ModelName(r.Model), Title: r.Title, Labels: r.Labels, By: r.By,
		State: string(r.State), Reason: r.Reason, Text: r.Text, Result: r.Result,
		CreatedAt: r.Created.UTC(), EndedAt: optionalTime(r.Ended), Steps: r.Steps, Usage: transcript.Usage(r.Usage), CostUSD: r.CostUSD,
		Budget: budgetView(r.Budget), Sandbox: r.Sandbox, Waiting: r.Waiting, Background: r.Background, Below: r.Below, FirstSeq: r.First, LastSeq: r.Last, Replay: string(r.Replay),
		Keep: r.Keep, Planning: r.Planning, Checks: r.Checks,
	}
	if r.Check != nil {
		v.Check = &api.RunCheck{Command: r.Check.Command, Rubric: r.Check.Rubric}
	}
	if len(r.Todos) > 0 {
		v.Todos = transcript.Todos(r.Todos)
	}
	if r.Fork != nil {
		v.Fork = &api.Fork{Thread: string(r.Fork.Thread), Seq: r.Fork.Seq}
	}
	return v
}

func budgetView(b thread.Budget) api.Budget {
	return api.Budget{Steps: b.Steps, Tokens: b.Tokens, CostUSD: b.CostUSD, WallMS: b.Wall.Milliseconds()}
}

func optionalTime(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	t = t.UTC()
	return &t
}

func approvalView(a runs.Approval) api.Approval {
	args := a.Args
	if len(args) == 0 || !json.Valid(args) {
		args = json.RawMessage("{}")
	}
	return api.Approval{
		Ask: string(a.Ask), Run: string(a.Run), Thread: string(a.Thread), Agent: a.Agent, Call: a.Call, Tool: a.Tool, Args: args, ArgsHash: thread.ArgsHash(args), Reason: a.Reason,
		Allowed: transcript.Decisions(a.Allowed), AskedAt: a.Asked.UTC(), ExpiresAt: optionalTime(a.Expires), Seq: a.Seq,
	}
}

// agentView shows a definition; whole says whether with all of it.
func agentView(d definition.Definition, whole bool) (api.Agent, error) {
	a := api.Agent{Name: d.Name, Description: d.Description, Model: transcript.ModelName(d.Model), Tools: d.Tools, Subagents: d.Agents}
	if !whole {
		return a, nil
	}
	var err error
	a.Definition, err = json.Marshal(d)
	a.Definition = transcript.PublicAgent(a.Definition)
	return a, err
}
