package task

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/llm"
	"github.com/skete-dev/skete/thread"
	"github.com/skete-dev/skete/tool"
)

// This file has the tools by which an agent turns to a person: ask_user for a question,
// and submit_plan for a plan that must be accepted before it goes to work.
//
// A call of either waits as one that needs approval does, whatever the rules say
// (tool.Asker): it holds nothing, and outlives restarts. The answer to a question is
// the text of a Respond, which becomes the result without Run; a plan that is accepted
// runs, and its steps become the todos.

// Names of the tools.
const (
	questionTool = "ask_user"
	planTool     = "submit_plan"
)

// Bounds of what is asked: it stands in one event, and on one screen.
const (
	questionMax = 4000
	optionsMax  = 9 // a key each
	optionMax   = 300
	planMax     = 32 << 10
	stepsMax    = 50
)

const (
	aboutQuestion = `Asks the user one question and waits for the answer: when the task can be understood in ways that lead to different work, ` +
		`or when only the user can know. Not for what you can find out, and not for permission to go on. ` +
		`Example: {"question":"Which database shall the service use?","options":["SQLite","PostgreSQL"]}`

	aboutPlan = `Hands in the plan for the task and waits until the user accepts it; before, only tools that read can be used. ` +
		`plan is for the user: what you found, what you will do and why, what could go wrong. steps become your todos. ` +
		`Example: {"plan":"The parser drops the last field, since …","steps":["Write a failing test","Mend the parser"]}`
)

// AddAsk adds ask_user, and submit_plan, for threads whose person can be asked.
func AddAsk(r *tool.Registry) {
	r.Add(questionTool, func(env tool.Env) (tool.Tool, error) {
		if !env.Person {
			return nil, errs.New(errs.Unsupported, "%s needs a person to ask, and this agent works for another one", questionTool)
		}
		return question{}, nil
	})
	r.Add(planTool, func(env tool.Env) (tool.Tool, error) {
		if !env.Planning {
			return nil, errs.New(errs.Unsupported, "%s is for runs that begin with a plan", planTool)
		}
		return plan{}, nil
	})
}

type question struct{}

// Spec implements tool.Tool.
func (question) Spec() llm.ToolSpec {
	return llm.ToolSpec{Name: questionTool, Description: aboutQuestion, Schema: json.RawMessage(fmt.Sprintf(
		`{"type":"object","additionalProperties":false,"required":["question"],"properties":{`+
			`"question":{"type":"string","minLength":1,"maxLength":%d,"description":"With what the user needs to know to answer it"},`+
			`"options":{"type":"array","maxItems":%d,"items":{"type":"string","minLength":1,"maxLength":%d},"description":"Answers to choose from, your advice first; others are possible"}}}`,
		questionMax, optionsMax, optionMax))}
}

// Effect implements tool.Tool.
func (question) Effect(json.RawMessage) tool.Effect { return tool.Effect{Class: tool.Read} }

// Asks implements tool.Asker.
func (question) Asks() thread.AskKind { return thread.AskQuestion }

// Run implements tool.Tool. A question is answered by the person and never run.
func (question) Run(context.Context, tool.Request) (tool.Result, error) {
	return tool.Fail(tool.CodeRejected, "The question was not answered."), nil
}

type plan struct{}

// Spec implements tool.Tool.
func (plan) Spec() llm.ToolSpec {
	return llm.ToolSpec{Name: planTool, Description: aboutPlan, Schema: json.RawMessage(fmt.Sprintf(
		`{"type":"object","additionalProperties":false,"required":["plan","steps"],"properties":{`+
			`"plan":{"type":"string","minLength":1,"maxLength":%d,"description":"Markdown"},`+
			`"steps":{"type":"array","minItems":1,"maxItems":%d,"items":{"type":"string","minLength":1,"maxLength":%d}}}}`,
		planMax, stepsMax, optionMax))}
}

// Effect implements tool.Tool.
func (plan) Effect(json.RawMessage) tool.Effect { return tool.Effect{Class: tool.Read} }

// Asks implements tool.Asker.
func (plan) Asks() thread.AskKind { return thread.AskPlan }

// Run implements tool.Tool: the plan was accepted.
func (plan) Run(_ context.Context, req tool.Request) (tool.Result, error) {
	var args struct {
		Steps []string `json:"steps"`
	}
	if err := json.Unmarshal(req.Args, &args); err != nil {
		return tool.Fail(tool.CodeArgs, "the arguments cannot be read"), nil
	}
	r := tool.Text("The plan was accepted. All tools can be used now. The steps are your todos:\n- " + strings.Join(args.Steps, "\n- "))
	r.PlanAccepted = true
	for _, s := range args.Steps {
		r.Todos = append(r.Todos, thread.Todo{Content: s, Status: "pending"})
	}
	return r, nil
}
