package supervisor_test

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/skete-dev/skete/agent/definition"
	"github.com/skete-dev/skete/agent/runs"
	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/llm"
	"github.com/skete-dev/skete/thread"
	"github.com/skete-dev/skete/tool"
)

// asks is a supervisor with a run whose first call waits: execute, with a command.
func asks(t *testing.T, command string) (*house, interface {
	Decide(context.Context, string, thread.RunID, []runs.Decide) error
	Approvals(context.Context, string, thread.RunID) ([]runs.Approval, error)
	Cancel(ctx context.Context, tenant string, id thread.RunID, by, reason string) (runs.Run, error)
}, runs.Run,
) {
	t.Helper()
	h := newHouse(t, fake{"execute", func(context.Context, tool.Request) (tool.Result, error) { return tool.Text("ok"), nil }})
	h.agents["careful"] = definition.Definition{Name: "careful", Rules: []definition.Rule{{Action: definition.Ask, Tools: []string{"execute"}}}}
	args, _ := json.Marshal(map[string]string{"command": command})
	k := h.open(func(_ context.Context, req *llm.Request) (*llm.Response, error) {
		switch req.Step {
		case 1:
			return respond(call("c1", "execute", string(args)))
		case 2:
			return respond(call("c2", "execute", `{"command":"rm -rf /"}`))
		}
		return respond(llm.Text("done"))
	})
	run, err := k.Start(t.Context(), tenant, runs.Start{Agent: "careful", Input: text("go")})
	must(t, err)
	await(t, k, run.ID, waits)
	return h, k, run
}

// A decision about what was shown is not one about anything else.
func TestDecide_whatWasShown(t *testing.T) {
	_, k, run := asks(t, "make")
	list, err := k.Approvals(t.Context(), tenant, run.ID)
	must(t, err)
	other := runs.Decide{Call: "c1", Decision: thread.Approve, Shown: thread.ArgsHash(json.RawMessage(`{"command":"make clean"}`))}
	if err := k.Decide(t.Context(), tenant, run.ID, []runs.Decide{other}); !errs.Is(err, errs.Conflict) {
		t.Errorf("arguments that the call does not have: %v", err)
	}
	other.Shown = thread.ArgsHash(list[0].Args)
	must(t, k.Decide(t.Context(), tenant, run.ID, []runs.Decide{other}))
}

// What was decided is a part of the run at once, also before its driver has read it: a
// client that follows the run would take it for one that still asks.
func TestDecide_isSeenAtOnce(t *testing.T) {
	_, k, run := asks(t, "make")
	list, err := k.Approvals(t.Context(), tenant, run.ID)
	must(t, err)
	must(t, k.Decide(t.Context(), tenant, run.ID, []runs.Decide{{Call: "c1", Decision: thread.Approve}}))
	after, err := k.(interface {
		Get(context.Context, string, thread.RunID) (runs.Run, error)
	}).Get(t.Context(), tenant, run.ID)
	must(t, err)
	if after.Last <= list[0].Seq {
		t.Errorf("the run ends at event %d, with the question", after.Last)
	}
}

// A run that is to end asks nothing any more, as soon as that was said.
func TestCancel_asksNothingAnyMore(t *testing.T) {
	_, k, run := asks(t, "make")
	_, err := k.Cancel(t.Context(), tenant, run.ID, "ann", "")
	must(t, err)
	if list, err := k.Approvals(t.Context(), tenant, run.ID); err != nil || len(list) != 0 {
		t.Errorf("%+v %v", list, err)
	}
}

// "Always" is about the whole command, also where the model's message is so long that
// it is a blob and not in the state.
func TestDecide_alwaysIsAboutTheWholeCommand(t *testing.T) {
	for name, command := range map[string]string{"short": "make", "long": "make " + strings.Repeat("x", 1000), "in a blob": "make " + strings.Repeat("x", 2*thread.InlineBytesMax)} {
		t.Run(name, func(t *testing.T) {
			h, k, run := asks(t, command)
			err := k.Decide(t.Context(), tenant, run.ID, []runs.Decide{{Call: "c1", Decision: thread.Approve, Always: true}})
			if name == "in a blob" { // no rule can name so much
				if !errs.Is(err, errs.Invalid) {
					t.Fatalf("%v", err)
				}
				return
			}
			must(t, err)
			for _, e := range h.check(run.Thread) {
				if p, is := e.Body.(thread.PolicyChanged); is && !strings.Contains(string(p.Rules), "make") {
					t.Errorf("a rule for every command: %s", p.Rules)
				}
			}
		})
	}
}

// The log keeps who did something, by the id and by the name that it had then.
func TestTheLogHasNames(t *testing.T) {
	h, k, run := asks(t, "make")
	must(t, k.Decide(t.Context(), tenant, run.ID, []runs.Decide{{Call: "c1", Decision: thread.Approve, By: "key_1", Always: true}}))
	_, err := k.Cancel(t.Context(), tenant, run.ID, "key_2", "enough") // which has no name
	must(t, err)
	var got []string
	for _, e := range h.check(run.Thread) {
		switch b := e.Body.(type) {
		case thread.ApprovalDecided:
			got = append(got, "decided "+b.By+" "+b.ByName)
		case thread.PolicyChanged:
			got = append(got, "policy "+b.By+" "+b.ByName)
		case thread.CancelAsked:
			got = append(got, "cancel "+b.By+" "+b.ByName)
		}
	}
	if want := []string{"decided key_1 ana", "policy key_1 ana", "cancel key_2 "}; !slices.Equal(got, want) {
		t.Errorf("the log has %q, not %q", got, want)
	}
}
