package task_test

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/llm"
	"github.com/skete-dev/skete/thread"
	"github.com/skete-dev/skete/tool"
	"github.com/skete-dev/skete/tool/task"
)

// office is a Spawner and Tasks that answers what it was told to.
type office struct {
	asked []tool.SpawnRequest
	res   tool.SpawnResult
	tasks []tool.Task
	sent  []string
	err   error
}

func (o *office) Spawn(_ context.Context, req tool.SpawnRequest) (tool.SpawnResult, error) {
	o.asked = append(o.asked, req)
	return o.res, o.err
}

func (o *office) Task(_ context.Context, _ thread.ID, id string) (tool.Task, error) {
	for _, t := range o.tasks {
		if t.ID == id {
			return t, o.err
		}
	}
	return tool.Task{}, errs.New(errs.NotFound, "no task %s", id)
}
func (o *office) Tasks(context.Context, thread.ID) ([]tool.Task, error) { return o.tasks, o.err }
func (o *office) Send(_ context.Context, _ thread.ID, id, key, text string) error {
	o.sent = append(o.sent, id+" "+key+" "+text)
	return o.err
}

func (o *office) Cancel(_ context.Context, _ thread.ID, id, key string) error {
	o.sent = append(o.sent, id+" "+key+" cancel")
	return o.err
}

func call(t *testing.T, o *office, name, args string) (tool.Result, error) {
	t.Helper()
	r := &tool.Registry{}
	task.Add(r)
	agents := []tool.Agent{{Name: "general-purpose", Description: "Does all."}, {Name: "reviewer", Description: "Reads code."}}
	tools, err := r.Make(tool.Env{Spawner: o, Tasks: o, Agents: agents}, []string{name})
	if err != nil {
		t.Fatal(err)
	}
	return tools[0].Run(t.Context(), tool.Request{Key: "k", Call: "call_1", Thread: "thr_a", Run: "run_a", Args: json.RawMessage(args)})
}

const doIt = `{"description":"do it","subagent_type":"reviewer"}`

func TestTask_waitsWithoutWaiting(t *testing.T) {
	o := &office{}
	if r, err := call(t, o, "task", doIt); !errors.Is(err, tool.ErrWaiting) {
		t.Errorf("%v, %v", r, err)
	}
	o.res = tool.SpawnResult{Done: true, Text: "fine", Spent: thread.Spent{Steps: 4, Usage: llm.Usage{Input: 3}, CostUSD: 0.5}}
	r, err := call(t, o, "task", doIt)
	want := tool.Text("fine")
	want.Usage, want.CostUSD, want.Steps = llm.Usage{Input: 3}, 0.5, 4
	if d := cmp.Diff(want, r); d != "" || err != nil {
		t.Errorf("%v %s", err, d)
	}
	asked := tool.SpawnRequest{Key: "k", Call: "call_1", Thread: "thr_a", Run: "run_a", Agent: "reviewer", Prompt: "do it"}
	if d := cmp.Diff([]tool.SpawnRequest{asked, asked}, o.asked); d != "" {
		t.Error(d)
	}
	o.res = tool.SpawnResult{Done: true, Failed: true}
	if r, err = call(t, o, "task", doIt); err != nil || !r.Failed || r.Blocks[0].Text != "(the sub-agent ended without an answer)" {
		t.Errorf("%v, %v", r, err)
	}
}

func TestTask_inherits(t *testing.T) {
	o := &office{}
	if _, err := call(t, o, "task", `{"description":"do it","subagent_type":"reviewer","inherit":true}`); !errors.Is(err, tool.ErrWaiting) || !o.asked[0].Inherit {
		t.Errorf("%+v, %v", o.asked, err)
	}
}

func TestTask_inTheBackground(t *testing.T) {
	o := &office{}
	r, err := call(t, o, "task", `{"description":"do it","subagent_type":"reviewer","background":"true"}`)
	if err != nil || r.Failed || !strings.Contains(r.Blocks[0].Text, "Its id is call_1.") || !o.asked[0].Background {
		t.Errorf("%v, %v", r, err)
	}
}

func TestTask_namesTheKinds(t *testing.T) {
	o := &office{}
	r, err := call(t, o, "task", `{"description":"do it","subagent_type":"writer"}`)
	if err != nil || r.Code != tool.CodeArgs || !strings.Contains(r.Blocks[0].Text, "expected one of general-purpose, reviewer, got writer") || len(o.asked) > 0 {
		t.Errorf("%v, %v", r, err)
	}
	reg := &tool.Registry{}
	task.Add(reg)
	kinds := []tool.Agent{{Name: "b", Description: "x"}, {Name: "a", Description: "y"}}
	one, err1 := reg.Make(tool.Env{Spawner: o, Agents: kinds}, []string{"task"})
	two, err2 := reg.Make(tool.Env{Spawner: o, Agents: []tool.Agent{kinds[1], kinds[0]}}, []string{"task"})
	if err1 != nil || err2 != nil || !cmp.Equal(one[0].Spec(), two[0].Spec()) {
		t.Errorf("the order of the kinds shows: %v, %v", err1, err2)
	}
	if tools, err := reg.Make(tool.Env{}, nil); err != nil || len(tools) > 0 {
		t.Errorf("without sub-agents there are %d tools, %v", len(tools), err)
	}
	if _, err := reg.Make(tool.Env{Spawner: o}, []string{"task"}); !errs.Is(err, errs.Unsupported) {
		t.Errorf("%v", err)
	}
}

func TestTask_refusalsAreResultsAndTroubleIsNot(t *testing.T) {
	for err, code := range map[error]string{
		errs.New(errs.Limit, "sub-agents nest at most 4 deep"): tool.CodeDenied,
		errs.New(errs.Invalid, "no"):                           tool.CodeArgs,
	} {
		if r, got := call(t, &office{err: err}, "task", doIt); got != nil || r.Code != code || !strings.Contains(r.Blocks[0].Text, errs.Public(err)) {
			t.Errorf("%v: %v, %v", err, r, got)
		}
	}
	trouble := errs.New(errs.Unavailable, "the store is away")
	for name, args := range map[string]string{"task": doIt, "task_list": "{}", "task_send": `{"id":"c","message":"x"}`} {
		if r, err := call(t, &office{err: trouble}, name, args); !errors.Is(err, trouble) {
			t.Errorf("%s: %v, %v", name, r, err)
		}
	}
}

func TestTasks(t *testing.T) {
	o := &office{tasks: []tool.Task{
		{ID: "c1", Agent: "reviewer", Prompt: "look\nat  it", State: thread.RunRunning, Text: "so far"},
		{ID: "c2", Agent: "reviewer", Prompt: strings.Repeat("ä", 200), State: thread.RunFailed},
	}}
	for _, c := range []struct{ name, args, want string }{
		{"task_list", `{}`, "c1  reviewer  running  look at it\nc2  reviewer  failed  " + strings.Repeat("ä", 100)},
		{"task_list", `{"status":"running"}`, "c1  reviewer  running  look at it"},
		{"task_output", `{"id":"c1"}`, "c1 (reviewer) is running.\n\nso far"},
		{"task_output", `{"id":"c9"}`, "Error: no task c9"},
		{"task_send", `{"id":"c1","message":"faster"}`, "Sent to c1."},
		{"task_cancel", `{"id":"c1"}`, "Cancelled c1."},
	} {
		r, err := call(t, o, c.name, c.args)
		if err != nil || r.Blocks[0].Text != c.want {
			t.Errorf("%s %s: %q, %v, want %q", c.name, c.args, r.Blocks[0].Text, err, c.want)
		}
	}
	if d := cmp.Diff([]string{"c1 k faster", "c1 k cancel"}, o.sent); d != "" {
		t.Error(d)
	}
}
