// Package task has the tools by which an agent arranges its work: those that start
// sub-agents and look after those in the background (task, task_output, task_send,
// task_cancel, task_list), the todos, questions to a person, and a shorter conversation.
//
//	task.Add(registry)
//	task.AddTodo(registry)    // write_todos
//	task.AddAsk(registry)     // ask_user, submit_plan
//	task.AddCompact(registry) // compact_conversation
//
// A sub-agent is a thread of its own. `task` opens it (once per key) and
// answers with tool.ErrWaiting until it has ended; the agent calls Run again
// then. So nothing waits in between, and a restart changes nothing. A task in
// the background is answered at once; its id is that of the call.
package task

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/llm"
	"github.com/skete-dev/skete/tool"
)

const (
	aboutTask = `Starts a sub-agent with a context of its own. Unless it inherits the conversation it sees only the description, so write down everything that it needs and what it should answer; ` +
		`only its last message comes back. With background you go on at once and are told when it has ended. ` +
		`Example: {"description":"Find every caller of parseDate in /workspace. Answer with file, line and argument.","subagent_type":"general-purpose"}` +
		"\n\nKinds of sub-agents:"
	aboutOutput = `Shows how a sub-agent in the background is, and its last words.`
	aboutSend   = `Sends a message to a sub-agent in the background. One that has ended goes on with it.`
	aboutCancel = `Ends a sub-agent in the background.`
	aboutList   = `Lists the sub-agents that you started in the background.`

	id         = `"id":{"type":"string","description":"The task's id"}`
	promptMax  = 256 << 10
	listedText = 200 // bytes of each task in a list
)

// Add adds the tools of tasks. task needs Env.Spawner and Agents, the others
// Env.Tasks.
func Add(r *tool.Registry) {
	r.Add("task", func(env tool.Env) (tool.Tool, error) {
		if env.Spawner == nil || len(env.Agents) == 0 {
			return nil, errs.New(errs.Unsupported, "task needs sub-agents, and this agent may start none")
		}
		env.Agents = slices.SortedFunc(slices.Values(env.Agents), func(a, b tool.Agent) int { return strings.Compare(a.Name, b.Name) })
		return spawn{env}, nil // the same agents in any order make the same prompt
	})
	add := func(name, about, properties string, required []string, class tool.Class, run func(context.Context, tool.Env, tool.Request, args) (tool.Result, error)) {
		r.Add(name, func(env tool.Env) (tool.Tool, error) {
			if env.Tasks == nil {
				return nil, errs.New(errs.Unsupported, "%s needs sub-agents in the background, and there are none here", name)
			}
			must, _ := json.Marshal(required) // strings
			schema := `{"type":"object","additionalProperties":false,"required":` + string(must) + `,"properties":{` + properties + `}}`
			return look{env: env, class: class, run: run, spec: llm.ToolSpec{Name: name, Description: about, Schema: json.RawMessage(schema)}}, nil
		})
	}
	add("task_output", aboutOutput, id, []string{"id"}, tool.Read, output)
	add("task_send", aboutSend, id+`,"message":{"type":"string","minLength":1}`, []string{"id", "message"}, tool.Keyed, send)
	add("task_cancel", aboutCancel, id, []string{"id"}, tool.Keyed, cancel)
	add("task_list", aboutList, `"status":{"type":"string","enum":["running","ended"],"description":"Only these; all unless given"}`, []string{}, tool.Read, list)
}

// spawn is task.
type spawn struct{ env tool.Env }

// Spec implements tool.Tool.
func (t spawn) Spec() llm.ToolSpec {
	about, names := aboutTask, []string{}
	for _, a := range t.env.Agents {
		about += "\n- " + a.Name + ": " + a.Description
		names = append(names, a.Name)
	}
	schema, _ := json.Marshal(map[string]any{ // nothing in it can fail
		"type": "object", "additionalProperties": false, "required": []string{"description", "subagent_type"},
		"properties": map[string]any{
			"description":   map[string]any{"type": "string", "minLength": 1, "maxLength": promptMax, "description": "The whole task"},
			"subagent_type": map[string]any{"type": "string", "enum": names},
			"inherit":       map[string]any{"type": "boolean", "default": false, "description": "Show it this conversation, shortened; costs its tokens"},
			"background":    map[string]any{"type": "boolean", "default": false, "description": "Do not wait for it"},
		},
	})
	return llm.ToolSpec{Name: "task", Description: about, Schema: schema}
}

// Effect implements tool.Tool.
func (spawn) Effect(json.RawMessage) tool.Effect { return tool.Effect{Class: tool.Keyed} }

// Run implements tool.Tool.
func (t spawn) Run(ctx context.Context, req tool.Request) (tool.Result, error) {
	var a struct {
		Description string `json:"description"`
		Agent       string `json:"subagent_type"`
		Inherit     bool   `json:"inherit"`
		Background  bool   `json:"background"`
	}
	if err := json.Unmarshal(req.Args, &a); err != nil {
		return tool.Fail(tool.CodeArgs, "the arguments cannot be read"), nil
	}
	if !slices.ContainsFunc(t.env.Agents, func(k tool.Agent) bool { return k.Name == a.Agent }) {
		return tool.Fail(tool.CodeArgs, fmt.Sprintf("Error: there is no sub-agent %.64q", a.Agent)), nil
	}
	res, err := t.env.Spawner.Spawn(ctx, tool.SpawnRequest{
		Key: req.Key, Call: req.Call, Thread: req.Thread, Run: req.Run, Agent: a.Agent, Prompt: a.Description, Inherit: a.Inherit, Background: a.Background,
	})
	switch {
	case err != nil:
		return refused(err)
	case a.Background && !res.Done:
		return tool.Text(fmt.Sprintf("Started %s in the background. Its id is %s. You will be told when it has ended; task_output shows how it is.", a.Agent, req.Call)), nil
	case !res.Done:
		return tool.Result{}, tool.ErrWaiting
	}
	r := tool.Text(orNone(res.Text))
	r.Failed, r.Usage, r.CostUSD, r.Steps = res.Failed, res.Spent.Usage, res.Spent.CostUSD, res.Spent.Steps
	return r, nil
}

func orNone(text string) string {
	if strings.TrimSpace(text) == "" {
		return "(the sub-agent ended without an answer)"
	}
	return text
}

// refused turns what the caller can do something about into a result.
func refused(err error) (tool.Result, error) {
	code := ""
	switch errs.Of(err) {
	case errs.Invalid, errs.NotFound, errs.Exists, errs.Conflict:
		code = tool.CodeArgs
	case errs.Denied, errs.Limit, errs.Unsupported:
		code = tool.CodeDenied
	default:
		return tool.Result{}, err
	}
	return tool.Fail(code, "Error: "+errs.Public(err)), nil
}

type args struct {
	ID      string `json:"id"`
	Message string `json:"message"`
	Status  string `json:"status"`
}

// look is a tool about tasks in the background.
type look struct {
	env   tool.Env
	class tool.Class
	spec  llm.ToolSpec
	run   func(context.Context, tool.Env, tool.Request, args) (tool.Result, error)
}

// Spec implements tool.Tool.
func (t look) Spec() llm.ToolSpec { return t.spec }

// Effect implements tool.Tool.
func (t look) Effect(json.RawMessage) tool.Effect { return tool.Effect{Class: t.class} }

// Run implements tool.Tool.
func (t look) Run(ctx context.Context, req tool.Request) (tool.Result, error) {
	var a args
	if err := json.Unmarshal(req.Args, &a); err != nil {
		return tool.Fail(tool.CodeArgs, "the arguments cannot be read"), nil
	}
	r, err := t.run(ctx, t.env, req, a)
	if err != nil {
		return refused(err)
	}
	return r, nil
}

func output(ctx context.Context, env tool.Env, req tool.Request, a args) (tool.Result, error) {
	t, err := env.Tasks.Task(ctx, req.Thread, a.ID)
	if err != nil {
		return tool.Result{}, err
	}
	r := tool.Text(fmt.Sprintf("%s (%s) is %s.\n\n%s", t.ID, t.Agent, t.State, t.Text))
	return r, nil
}

func send(ctx context.Context, env tool.Env, req tool.Request, a args) (tool.Result, error) {
	if err := env.Tasks.Send(ctx, req.Thread, a.ID, req.Key, a.Message); err != nil {
		return tool.Result{}, err
	}
	return tool.Text("Sent to " + a.ID + "."), nil
}

func cancel(ctx context.Context, env tool.Env, req tool.Request, a args) (tool.Result, error) {
	if err := env.Tasks.Cancel(ctx, req.Thread, a.ID, req.Key); err != nil {
		return tool.Result{}, err
	}
	return tool.Text("Cancelled " + a.ID + "."), nil
}

func list(ctx context.Context, env tool.Env, req tool.Request, a args) (tool.Result, error) {
	all, err := env.Tasks.Tasks(ctx, req.Thread)
	if err != nil {
		return tool.Result{}, err
	}
	var b strings.Builder
	for _, t := range all {
		if a.Status != "" && t.State.Final() != (a.Status == "ended") {
			continue
		}
		prompt := strings.Join(strings.Fields(t.Prompt), " ")
		fmt.Fprintf(&b, "%s  %s  %s  %s\n", t.ID, t.Agent, t.State, strings.ToValidUTF8(prompt[:min(len(prompt), listedText)], ""))
	}
	if b.Len() == 0 {
		return tool.Text("No tasks."), nil
	}
	return tool.Text(strings.TrimSuffix(b.String(), "\n")), nil
}
