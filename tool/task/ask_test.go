package task_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/thread"
	"github.com/skete-dev/skete/tool"
	"github.com/skete-dev/skete/tool/task"
)

func made(t *testing.T, name string) *tool.Checked {
	t.Helper()
	r := &tool.Registry{}
	task.AddAsk(r)
	tools, err := r.Make(tool.Env{Person: true, Planning: true}, []string{name})
	if err != nil {
		t.Fatal(err)
	}
	return tools[0].(*tool.Checked)
}

func TestAddAsk_whereAPersonIs(t *testing.T) {
	r := &tool.Registry{}
	task.AddAsk(r)
	if tools, err := r.Make(tool.Env{}, nil); err != nil || len(tools) != 0 {
		t.Errorf("%d tools, %v", len(tools), err)
	}
	for _, name := range r.Names() {
		if _, err := r.Make(tool.Env{}, []string{name}); !errs.Is(err, errs.Unsupported) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if kind := made(t, "ask_user").Tool.(tool.Asker).Asks(); kind != thread.AskQuestion {
		t.Errorf("a question is a %q", kind)
	}
	if kind := made(t, "submit_plan").Tool.(tool.Asker).Asks(); kind != thread.AskPlan {
		t.Errorf("a plan is a %q", kind)
	}
}

func TestAskArgs(t *testing.T) {
	many := `"` + strings.Join(strings.Split(strings.Repeat("x", 10), ""), `","`) + `"`
	for _, c := range []struct {
		tool, args string
		good       bool
	}{
		{"ask_user", `{"question":"Which?"}`, true},
		{"ask_user", `{"question":"Which?","options":["a","b"]}`, true},
		{"ask_user", `{"question":"Which?","options":null}`, true},
		{"ask_user", `{}`, false},
		{"ask_user", `{"question":""}`, false},
		{"ask_user", `{"question":"x","options":[` + many + `]}`, false},
		{"ask_user", `{"question":"x","options":[""]}`, false},
		{"ask_user", `{"question":"` + strings.Repeat("x", 4001) + `"}`, false},
		{"submit_plan", `{"plan":"p","steps":["s"]}`, true},
		{"submit_plan", `{"plan":"p"}`, false},
		{"submit_plan", `{"plan":"p","steps":[]}`, false},
		{"submit_plan", `{"plan":"p","steps":["` + strings.Repeat("x", 301) + `"]}`, false},
	} {
		if _, bad := made(t, c.tool).Args(json.RawMessage(c.args)); (bad == nil) != c.good {
			t.Errorf("%s %.60s: %v", c.tool, c.args, bad)
		}
	}
}

func TestSubmitPlan_becomesTheTodos(t *testing.T) {
	r, err := made(t, "submit_plan").Run(t.Context(), tool.Request{Args: json.RawMessage(`{"plan":"p","steps":["look","mend"]}`)})
	want := []thread.Todo{{Content: "look", Status: "pending"}, {Content: "mend", Status: "pending"}}
	if err != nil || !r.PlanAccepted || !cmp.Equal(want, r.Todos) || !strings.Contains(r.Blocks[0].Text, "- look\n- mend") {
		t.Errorf("%+v, %v", r, err)
	}
}
