package ui

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/skete-dev/skete/api"
	"github.com/skete-dev/skete/client"
	"github.com/skete-dev/skete/internal/patience"
	"github.com/skete-dev/skete/test/browser"
)

// decide runs a function of decide.mjs, which is called by name.
func decide[T any](w *world, name string, args map[string]any) T {
	w.t.Helper()
	if args == nil {
		args = map[string]any{}
	}
	args["do"], args["origin"], args["within"] = name, w.origin(), patience.Of(20*time.Second).Milliseconds()
	return browser.Run[T](w.t, w.page, "decide.mjs", args)
}

// colleague is another person at the same server, with a browser of their own.
func (w *world) colleague(name string) *world {
	w.t.Helper()
	other := *w
	other.page = browser.Start(w.t)
	key, err := w.c.CreateKey(w.ctx(), api.CreateKey{Name: name, Scopes: []string{"admin"}})
	w.ok(err)
	do[struct{}](&other, "enter", map[string]any{"key": key.Secret})
	return &other
}

// keyID is that of the key of a person's login: logs have it beside the name.
func (w *world) keyID(name string) string {
	w.t.Helper()
	keys, err := w.c.Keys(w.ctx())
	w.ok(err)
	for _, k := range keys {
		if k.Name == name {
			return k.ID
		}
	}
	w.t.Fatalf("no key %s", name)
	return ""
}

// events are those of a run's own log.
func (w *world) events(id string) (all []api.RunEvent) {
	w.t.Helper()
	for e, err := range w.c.Run(id).History(w.ctx(), 1) {
		w.ok(err)
		all = append(all, e)
	}
	return all
}

// data reads what an event holds.
func data[T any](w *world, e api.RunEvent) (v T) {
	w.t.Helper()
	w.ok(json.Unmarshal(e.Data, &v))
	return v
}

// touch writes an empty file into the workspace of a run.
func (w *world) touch(id, name string) {
	w.t.Helper()
	run, err := w.c.Run(id).Get(w.ctx())
	w.ok(err)
	_, err = w.c.Sandbox(run.Sandbox).Files().Write(w.ctx(), "/workspace/"+name, nil, client.WriteOptions{})
	w.ok(err)
}

type waits struct {
	Cards []struct {
		Text string   `json:"text"`
		Acts []string `json:"acts"`
	} `json:"cards"`
	Rows    int  `json:"rows"`
	Focused bool `json:"focused"`
}

type decidedData struct {
	Call     string `json:"call"`
	Decision string `json:"decision"`
	By       string `json:"by"`
	ByName   string `json:"by_name"`
	Text     string `json:"text"`
	Args     struct {
		Command string `json:"command"`
	} `json:"args"`
}

const (
	rejectText  = "not on my watch, said the person"
	respondText = "the port is 4711, said the person"
)

// gatedScript calls four tools in one turn, and then says what it was told of each.
const gatedScript = `
replies:
  - calls:
      - {name: execute, id: c-approve, args: {command: 'echo ran-as-asked'}}
      - {name: execute, id: c-edit, args: {command: 'echo before-the-edit'}}
      - {name: write_file, id: c-reject, args: {file_path: /workspace/unwanted, content: x}}
      - {name: execute, id: c-respond, args: {command: 'echo which-port'}}
  - when: {result: "` + rejectText + `"}
    text: 'first {{result "1"}} second {{result "2"}} third {{result "3"}} fourth {{result "4"}}'
else: {text: the model was not told}
`

// teamScript starts three sub-agents at once; each waits for a file, and one of them has to
// ask before it writes.
func teamScript() string {
	var calls, scenes strings.Builder
	for _, name := range team {
		fmt.Fprintf(&calls, "      - {name: task, id: t-%s, args: {description: 'Do the %[1]s work.', subagent_type: %[1]s}}\n", name)
		fmt.Fprintf(&scenes, "  - system: ROLE=%s\n    replies:\n      - calls: [{name: execute, args: {command: 'echo begun-%[1]s; until [ -e go-%[1]s ]; do sleep 0.05; done'}}]\n", name)
		if name == asks {
			fmt.Fprintf(&scenes, "      - calls: [{name: write_file, id: w, args: {file_path: /workspace/result, content: yes}}]\n")
		}
		fmt.Fprintf(&scenes, "    else: {text: '%s is done'}\n", name)
	}
	return "replies:\n  - calls:\n" + calls.String() + "else: {text: all are done}\nscenes:\n" + scenes.String()
}

var team = []string{"reader", "writer", "tester"}

const asks = "writer"

// Scenarios 4 to 6: whatever waits for a person is seen wherever one looks for it, each call
// has a decision of its own, it reaches the tool and the model, and the first one counts.
func TestApproval(t *testing.T) {
	agents := map[string]string{
		"careful": "approvals:\n  - {action: ask, tools: [execute, write_file]}\n",
		"lead":    "agents: [" + strings.Join(team, ", ") + "]\napprovals: []\n",
	}
	for _, name := range team {
		agents[name] = "description: Does the " + name + " work.\ninstructions: ROLE=" + name + "\napprovals: []\n"
	}
	agents[asks] = strings.Replace(agents[asks], "approvals: []", "approvals: [{action: ask, tools: [write_file]}]", 1)
	w := newWorld(t, setup{agents: agents, scripts: map[string]string{
		"gated": gatedScript,
		"once":  "replies:\n  - calls: [{name: execute, id: c-once, args: {command: 'echo once >> count'}}]\nelse: {text: done}\n",
		"team":  teamScript(),
	}})
	t.Run("Subagents", func(t *testing.T) { subagents(t, w.with(t)) })
	t.Run("AllFour", func(t *testing.T) { allFour(t, w.with(t)) })
	t.Run("Stale", func(t *testing.T) { stale(t, w.with(t)) })
	w.clean()
}

func subagents(t *testing.T, w *world) {
	run := w.run("team", api.StartRun{Agent: "lead"})
	do[any](w, "open", map[string]any{"path": "/runs/" + run.ID, "row": true})
	tree := func(states ...string) {
		t.Helper()
		want := []string{states[0]}
		for i, name := range team {
			want = append(want, name+": "+states[i+1])
		}
		decide[any](w, "agents", map[string]any{"want": want})
	}
	tree("lead: running", "running", "running", "running")
	for _, name := range team {
		decide[string](w, "inside", map[string]any{"agent": name, "words": "begun-" + name})
	}
	w.touch(run.ID, "go-"+asks)
	// In the parent, in the sub-agent, and among all that waits.
	parent := decide[waits](w, "waits", map[string]any{"n": 1})
	if !strings.Contains(parent.Cards[0].Text, "lead / "+asks) || !strings.Contains(parent.Cards[0].Text, "result") {
		t.Errorf("in the parent the card says %q", parent.Cards[0].Text)
	}
	if parent.Focused {
		t.Error("a card took the focus by itself")
	}
	if above := decide[string](w, "focus", map[string]any{"agent": asks}); !strings.Contains(above, "lead") {
		t.Errorf("the way back from the sub-agent is %q", above)
	}
	if child := decide[waits](w, "waits", map[string]any{"n": 1, "row": "write_file"}); child.Rows != 1 {
		t.Errorf("in the sub-agent %d rows wait", child.Rows)
	}
	decide[any](w, "another", map[string]any{"name": "list", "path": "/approvals"})
	listed := decide[waits](w, "waits", map[string]any{"tab": "list", "n": 1})
	if !strings.Contains(listed.Cards[0].Text, asks) || !strings.Contains(listed.Cards[0].Text, "Open the run") {
		t.Errorf("in the list the card says %q", listed.Cards[0].Text)
	}
	decide[any](w, "notice", nil)
	decide[any](w, "decide", map[string]any{"tab": "list", "call": "write_file", "act": "approve"})
	decide[seen](w, "decided", map[string]any{"words": []string{"approved"}})
	for _, name := range team {
		if name != asks {
			w.touch(run.ID, "go-"+name)
		}
	}
	ended := w.ended(run.ID)
	if ended.Text != "all are done" {
		t.Errorf("the run says %q", ended.Text)
	}
	tree("lead: succeeded", "succeeded", "succeeded", "succeeded")
}

type seen struct {
	Text string `json:"text"`
	MS   int64  `json:"ms"`
}

func allFour(t *testing.T, w *world) {
	run := w.run("gated", api.StartRun{Agent: "careful"})
	bea, person := w.colleague("bea"), w.keyID("ana")
	for _, who := range []*world{w, bea} {
		do[any](who, "open", map[string]any{"path": "/runs/" + run.ID, "row": true})
		got := decide[waits](who, "waits", map[string]any{"n": 4})
		for _, card := range got.Cards {
			if want := []string{"approve", "edit", "reject", "respond"}; !slices.Equal(card.Acts, want) {
				t.Errorf("a card offers %v, the server allows %v", card.Acts, want)
			}
		}
	}
	decide[any](bea, "notice", nil)
	decide[any](w, "decide", map[string]any{"call": "ran-as-asked", "act": "approve"})
	decide[any](w, "decide", map[string]any{"call": "before-the-edit", "act": "edit", "field": "command", "value": "echo after-the-edit"})
	decide[any](w, "decide", map[string]any{"call": "unwanted", "act": "reject", "text": rejectText})
	decide[any](w, "decide", map[string]any{"call": "which-port", "act": "respond", "text": respondText})
	other := decide[seen](bea, "decided", map[string]any{"words": []string{"ana approved", "ana approved with changes", "ana rejected", "ana answered", rejectText, respondText}})
	t.Logf("the other browser had seen all four %d ms later", other.MS)
	ended := w.ended(run.ID)
	for _, part := range []string{"first ran-as-asked", "second [A person changed this call", "\n\nafter-the-edit\n", "third", rejectText, "fourth " + respondText} {
		if !strings.Contains(ended.Text, part) {
			t.Errorf("the model was not told %q: it says %q", part, ended.Text)
		}
	}
	want := map[string]string{"c-approve": "approve", "c-edit": "edit", "c-reject": "reject", "c-respond": "respond"}
	decisions, began := map[string]string{}, map[string]string{}
	for _, e := range w.events(run.ID) {
		switch e.Kind {
		case "approval.decided":
			d := data[decidedData](w, e)
			decisions[d.Call] += d.Decision
			if d.By != person || d.ByName != "ana" {
				t.Errorf("the log says that %q, called %q, decided %s", d.By, d.ByName, d.Call)
			}
		case "tool.started":
			d := data[decidedData](w, e)
			began[d.Call] += d.Args.Command
		}
	}
	if fmt.Sprint(decisions) != fmt.Sprint(want) {
		t.Errorf("the log has the decisions %v, not %v", decisions, want)
	}
	// Where a call has the model's own arguments its start does not repeat them.
	if want := map[string]string{"c-approve": "", "c-edit": "echo after-the-edit"}; fmt.Sprint(began) != fmt.Sprint(want) {
		t.Errorf("these calls ran: %v, not %v", began, want)
	}
	bea.clean()
}

func stale(t *testing.T, w *world) {
	run := w.run("once", api.StartRun{Agent: "careful"})
	path, person := "/runs/"+run.ID, w.keyID("ana")
	do[any](w, "open", map[string]any{"path": path, "row": true})
	decide[waits](w, "waits", map[string]any{"n": 1})
	decide[any](w, "another", map[string]any{"name": "late", "path": path})
	decide[waits](w, "waits", map[string]any{"tab": "late", "n": 1})
	// The late one is on its way when the other one is done.
	decide[any](w, "notice", map[string]any{"tab": "late"})
	decide[any](w, "hold", map[string]any{"tab": "late"})
	decide[any](w, "decide", map[string]any{"tab": "late", "call": "once", "act": "reject", "text": "too late"})
	decide[any](w, "decide", map[string]any{"call": "once", "act": "approve"})
	ended := w.ended(run.ID)
	got := decide[api.DecidedList](w, "release", map[string]any{"tab": "late"})
	if len(got.Items) != 1 || got.Items[0].OK || got.Items[0].Problem == nil || got.Items[0].Problem.Status != 409 {
		t.Errorf("the late decision was answered with %+v", got)
	}
	decide[seen](w, "decided", map[string]any{"tab": "late", "words": []string{"ana approved", "What you decided came later and does not count."}})
	var decisions, starts int
	for _, e := range w.events(run.ID) {
		switch e.Kind {
		case "approval.decided":
			decisions++
			if d := data[decidedData](w, e); d.Decision != "approve" || d.By != person {
				t.Errorf("the log has %+v", d)
			}
		case "tool.started":
			starts++
		}
	}
	if decisions != 1 || starts != 1 {
		t.Errorf("the log has %d decisions and %d starts of the call", decisions, starts)
	}
	r, err := w.c.Sandbox(ended.Sandbox).RunCommand(w.ctx(), api.RunCommand{Command: "cat count"})
	w.ok(err)
	if string(r.Out) != "once\n" {
		t.Errorf("the call left %q", r.Out)
	}
}
