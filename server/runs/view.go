package runs

import (
	"bytes"
	"encoding/json"
	"path"
	"strings"
	"time"

	"github.com/skete-dev/skete/agent/definition"
	"github.com/skete-dev/skete/agent/keeper"
	"github.com/skete-dev/skete/api"
	"github.com/skete-dev/skete/server/outline"
	"github.com/skete-dev/skete/thread"
)

// view shows a run to callers.
func view(r keeper.Run) api.Run {
	v := api.Run{
		ID: string(r.ID), Thread: string(r.Thread), Agent: r.Agent, Model: modelName(r.Model), Title: r.Title, Labels: r.Labels, By: r.By,
		State: string(r.State), Reason: r.Reason, Text: r.Text, Result: r.Result,
		CreatedAt: r.Created.UTC(), EndedAt: optionalTime(r.Ended), Steps: r.Steps, Usage: outline.Usage(r.Usage), CostUSD: r.CostUSD,
		Budget:  api.Budget{Steps: r.Budget.Steps, Tokens: r.Budget.Tokens, CostUSD: r.Budget.CostUSD, WallMS: r.Budget.Wall.Milliseconds()},
		Sandbox: r.Sandbox, Waiting: r.Waiting, FirstSeq: r.First, LastSeq: r.Last, Replay: string(r.Replay),
	}
	if len(r.Todos) > 0 {
		v.Todos = outline.Todos(r.Todos)
	}
	if r.Fork != nil {
		v.Fork = &api.Fork{Thread: string(r.Fork.Thread), Seq: r.Fork.Seq}
	}
	return v
}

func optionalTime(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	t = t.UTC()
	return &t
}

func approvalView(a keeper.Approval) api.Approval {
	args := a.Args
	if len(args) == 0 || !json.Valid(args) {
		args = json.RawMessage("{}")
	}
	return api.Approval{
		Run: string(a.Run), Thread: string(a.Thread), Agent: a.Agent, Call: a.Call, Tool: a.Tool, Args: args, Reason: a.Reason,
		Allowed: outline.Decisions(a.Allowed), AskedAt: a.Asked.UTC(), ExpiresAt: optionalTime(a.Expires), Seq: a.Seq,
	}
}

// scriptPrefix begins the name of a model that is a file of the host. The log
// has its path, for the run must find it again; who reads the log gets its name.
const scriptPrefix = "script/"

// modelName is the name of a model as users see it.
func modelName(name string) string {
	if file, is := strings.CutPrefix(name, scriptPrefix); is {
		return scriptPrefix + path.Base(file)
	}
	return name
}

// withoutPaths leaves paths of scripts out of a definition in JSON. One that
// cannot be read is left out whole.
func withoutPaths(agent json.RawMessage) json.RawMessage {
	if !bytes.Contains(agent, []byte("script")) {
		return agent
	}
	var d map[string]json.RawMessage
	if json.Unmarshal(agent, &d) != nil {
		return nil
	}
	var name string
	if json.Unmarshal(d["model"], &name) == nil && name != modelName(name) {
		d["model"], _ = json.Marshal(modelName(name)) // a string
	}
	var beneath map[string]json.RawMessage
	if json.Unmarshal(d["subagents"], &beneath) == nil && len(beneath) > 0 {
		for k, sub := range beneath {
			beneath[k] = withoutPaths(sub)
		}
		d["subagents"], _ = json.Marshal(beneath) // of valid JSON
	}
	shown, err := json.Marshal(d)
	if err != nil {
		return nil
	}
	return shown
}

// publicEvent leaves out what the log has for the server alone. Every event that
// leaves here goes through it.
func publicEvent(e thread.Event) thread.Event {
	switch b := e.Body.(type) {
	case thread.RunStarted:
		b.Model = modelName(b.Model)
		e.Body = b
	case thread.Opened:
		b.Agent = withoutPaths(b.Agent)
		e.Body = b
	}
	return e
}

// eventView shows an event. The log's JSON is the wire's.
func eventView(e thread.Event) (*api.RunEvent, error) {
	e = publicEvent(e)
	data, err := json.Marshal(e)
	if err != nil {
		return nil, err
	}
	var v api.RunEvent
	return &v, json.Unmarshal(data, &v)
}

// agentView shows a definition; whole says whether with all of it.
func agentView(d definition.Definition, whole bool) (api.Agent, error) {
	a := api.Agent{Name: d.Name, Description: d.Description, Model: modelName(d.Model), Tools: d.Tools, Subagents: d.Agents}
	if !whole {
		return a, nil
	}
	var err error
	a.Definition, err = json.Marshal(d)
	a.Definition = withoutPaths(a.Definition)
	return a, err
}
