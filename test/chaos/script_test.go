package chaos

import (
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"strings"

	"github.com/skete-dev/skete/agent/definition"
	"github.com/skete-dev/skete/agent/runs"
	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/llm"
	"github.com/skete-dev/skete/thread"
)

// sharedAtFirst is what each file holds that is edited.
const sharedAtFirst = "a=0;\nb=0;\n"

// plot is what the agents of one run do; their model is a function of it and
// of the request, and of nothing else.
type plot struct {
	Steps int // of a worker
	Boss  bool
	// People: one agent that plans, asks, is shown an image, has its conversation
	// shortened, and is held to a check by a command and a critic.
	People bool
}

// models finds the model of an agent by its name: boss or worker.
type models struct{ p plot }

// Open implements supervisor.Models.
func (m models) Open(_ context.Context, name string) (llm.Model, error) {
	switch name {
	case "boss":
		return model(m.p.boss), nil
	case "worker":
		return model(m.p.worker), nil
	case "planner":
		return model(m.p.planner), nil
	}
	return nil, errs.New(errs.NotFound, "no model %q", name)
}

type model func(*llm.Request) []llm.Block

// Info implements llm.Model: the window is small, so that outputs are cleared
// and the conversation is summed up on the way.
func (model) Info() llm.Info {
	return llm.Info{Name: "plot", WindowTokens: 24_000, Media: true, Documents: true}
}

// Stream implements llm.Model.
func (m model) Stream(_ context.Context, req *llm.Request) iter.Seq2[llm.Delta, error] {
	return func(yield func(llm.Delta, error) bool) {
		if err := inOrder(req); err != nil {
			yield(llm.Delta{}, &llm.Error{Trouble: llm.BadRequest, Cause: err})
			return
		}
		r := &llm.Response{Message: llm.Assistant(m(req)...), Stop: llm.StopEnd, Usage: llm.Usage{Input: 10, Output: 1, Estimated: true}}
		if len(r.Message.Calls()) > 0 {
			r.Stop = llm.StopTools
		}
		yield(llm.Delta{Kind: llm.DeltaDone, Response: r}, nil)
	}
}

// inOrder checks that every call of a request has its result, in the order of
// the calls, behind it.
func inOrder(req *llm.Request) error {
	var want []string
	for _, m := range req.Messages {
		for _, b := range m.Blocks {
			switch {
			case b.Result == nil:
			case len(want) == 0 || want[0] != b.Result.CallID:
				return fmt.Errorf("the result of %s stands where those of %v should", b.Result.CallID, want)
			default:
				want = want[1:]
			}
		}
		for _, c := range m.Calls() {
			want = append(want, c.ID)
		}
	}
	if len(want) > 0 {
		return fmt.Errorf("the calls %v have no result", want)
	}
	return nil
}

func call(id, name, args string, values ...any) llm.Block {
	return llm.Block{Kind: llm.KindCall, Call: &llm.Call{ID: id, Name: name, Args: json.RawMessage(fmt.Sprintf(args, values...))}}
}

func edit(id, who, name string, from, to int) llm.Block {
	return call(id, "edit_file", `{"file_path":"/workspace/%s.txt","old_string":"%s=%d;","new_string":"%[2]s=%[4]d;"}`, who, name, from, to)
}

// boss lets three workers work and looks at the end.
func (p plot) boss(req *llm.Request) []llm.Block {
	switch req.Step {
	case 0:
		return []llm.Block{llm.Text("a summary")}
	case 1:
		blocks := []llm.Block{call("look1", "look", `{"n":1}`)}
		for i := 1; i <= 3; i++ {
			blocks = append(blocks, call(fmt.Sprintf("task%d", i), "task", `{"description":"You are w%d.","subagent_type":"worker"}`, i))
		}
		return blocks
	}
	return []llm.Block{llm.Text("All have worked.")}
}

// planner turns to people, and is done when its check says so.
func (p plot) planner(req *llm.Request) []llm.Block {
	system := ""
	if len(req.System) > 0 {
		system = req.System[0].Text
	}
	switch {
	case req.Step == 0 && strings.Contains(system, "You judge"):
		if strings.Contains(text(req), "I looked again") {
			return []llm.Block{llm.Text("PASS")}
		}
		return []llm.Block{llm.Text("FAIL: look again")}
	case req.Step == 0:
		return []llm.Block{llm.Text("a summary")}
	}
	n := req.Step
	id := func(k int) string { return fmt.Sprintf("s%d_%d", n, k) }
	switch n {
	case 1:
		return []llm.Block{call(id(1), "ask_user", `{"question":"Which?","options":["a","b"]}`), call(id(2), "act", `{"n":1}`), call(id(3), "look", `{"n":1}`)}
	case 2:
		return []llm.Block{call(id(1), "submit_plan", `{"plan":"so","steps":["act"]}`), call(id(2), "fire", `{"n":2}`)}
	case 3:
		return []llm.Block{llm.Text(strings.Repeat("I think. ", 1000)), call(id(1), "act", `{"n":3}`), call(id(2), "compact_conversation", `{"focus":"the plan"}`)}
	case 4, 6:
		return []llm.Block{call(id(1), "act", `{"n":%d}`, n), call(id(2), "look", `{"n":%d}`, n)}
	case 5:
		return []llm.Block{llm.Text("It is done.")} // the command does not pass
	case 7:
		return []llm.Block{llm.Text("It is done now.")} // the critic does not
	}
	return []llm.Block{llm.Text("I looked again.")}
}

// worker makes four calls a step, of every kind.
func (p plot) worker(req *llm.Request) []llm.Block {
	n := req.Step
	if n == 0 {
		return []llm.Block{llm.Text("a summary of what was said")}
	}
	if n > p.Steps {
		return []llm.Block{llm.Text("It is done.")}
	}
	who := workers[0]
	for _, w := range workers[1:] {
		if strings.Contains(text(req), "You are "+w) {
			who = w
		}
	}
	id := func(k int) string { return fmt.Sprintf("s%d_%d", n, k) }
	blocks := []llm.Block{call(id(1), "look", `{"n":%d}`, n)}
	if n%7 == 0 {
		blocks[0] = call(id(1), "read_file", `{"file_path":"/workspace/w0.txt"}`)
	}
	blocks = append(blocks, call(id(2), "act", `{"n":%d}`, n))
	switch {
	case n%2 == 1 && !p.Boss: // two edits of one file in one step
		blocks = append(blocks, edit(id(3), who, "b", n/2, n/2+1))
	case n%5 == 0:
		blocks = append(blocks, call(id(3), "write_file", `{"file_path":"/workspace/%s/%d.txt","content":"step %[2]d"}`, who, n))
	default:
		blocks = append(blocks, call(id(3), "fire", `{"n":%d}`, n))
	}
	return append(blocks, edit(id(4), who, "a", n-1, n))
}

func text(req *llm.Request) string {
	var all strings.Builder
	for _, m := range req.Messages {
		all.WriteString(m.String())
	}
	return all.String()
}

// workers are those who edit, each a file: one that is alone is the first.
var workers = []string{"w0", "w1", "w2", "w3"}

// file is what the file of a worker holds when a run of the plot is over.
func (p plot) file(worker int) string {
	switch {
	case p.People:
		return sharedAtFirst
	case p.Boss && worker > 0:
		return fmt.Sprintf("a=%d;\nb=0;\n", p.Steps)
	case p.Boss || worker > 0:
		return sharedAtFirst
	}
	return fmt.Sprintf("a=%d;\nb=%d;\n", p.Steps, (p.Steps+1)/2)
}

// agents are the definitions of the plot.
type agents struct{ p plot }

// Resolve implements supervisor.Definitions.
func (a agents) Resolve(string) (definition.Definition, error) {
	if a.p.People {
		return definition.Definition{Name: "planner", Model: "planner", Tools: []string{"!execute", "!process_*"}}, nil
	}
	worker := definition.Definition{Name: "worker", Description: "works", Model: "worker"}
	if !a.p.Boss {
		return worker, nil
	}
	worker.Rules = []definition.Rule{{Action: definition.Ask, Tools: []string{"fire"}}}
	return definition.Definition{Name: "boss", Model: "boss", Subagents: map[string]definition.Definition{"worker": worker}}, nil
}

// Complete implements supervisor.Definitions.
func (agents) Complete(d definition.Definition) (definition.Definition, error) { return d, nil }

// List implements supervisor.Definitions.
func (agents) List() []definition.Entry { return nil }

// verdict is what people say about a call: each of the four decisions.
func verdict(a runs.Approval) runs.Decide {
	d := runs.Decide{Thread: a.Thread, Call: a.Call, By: "anna"}
	switch a.Ask {
	case thread.AskQuestion:
		d.Decision, d.Text = thread.Respond, "b"
		return d
	case thread.AskPlan:
		d.Decision, d.Args = thread.Edit, json.RawMessage(`{"plan":"so","steps":["act","look"]}`)
		return d
	}
	switch n := numberOf(a.Call); n % 4 {
	case 0:
		d.Decision = thread.Approve
	case 1:
		d.Decision, d.Args = thread.Edit, json.RawMessage(fmt.Sprintf(`{"n":%d}`, 1000+n))
	case 2:
		d.Decision, d.Text = thread.Reject, "not today"
	case 3:
		d.Decision, d.Text = thread.Respond, "I did it by hand"
	}
	return d
}

func numberOf(call string) (n int) {
	_, _ = fmt.Sscanf(call, "s%d_", &n)
	return n
}
