package ui

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/skete-dev/skete/api"
	"github.com/skete-dev/skete/client"
	"github.com/skete-dev/skete/internal/patience"
	"github.com/skete-dev/skete/test/browser"
)

// with runs a function of machines.mjs, which is called by name.
func with[T any](w *world, name string, args map[string]any) T {
	w.t.Helper()
	if args == nil {
		args = map[string]any{}
	}
	args["do"], args["origin"], args["within"] = name, w.origin(), patience.Of(20*time.Second).Milliseconds()
	return browser.Run[T](w.t, w.page, "machines.mjs", args)
}

// The table says what really separates each machine from the host, an isolation that cannot
// be had is refused with the server's words, and fifteen machines are destroyed at once, each
// by a request of its own.
func TestMachines(t *testing.T) {
	w := newWorld(t, setup{providers: "gvisor,process"})
	info, err := w.c.Info(w.ctx())
	w.ok(err)
	want := map[string]string{"gvisor": "user-kernel gvisor", "process": "no isolation process"}
	if len(info.Providers) != len(want) {
		t.Fatalf("the providers are %+v", info.Providers)
	}
	for _, p := range info.Providers {
		_, err := w.c.CreateSandbox(w.ctx(), api.CreateSandbox{Name: "of-" + p.Name, Provider: p.Name})
		w.ok(err)
	}
	do[any](w, "open", map[string]any{"path": "/vms"})
	labels := with[[]string](w, "machines", map[string]any{"n": len(want)})
	for name, label := range want {
		if !slices.Contains(labels, label) {
			t.Errorf("the machine of %s is not called %q: the table says %q", name, label, labels)
		}
	}

	_, err = w.c.CreateSandbox(w.ctx(), api.CreateSandbox{Require: "microvm"})
	if err == nil {
		t.Fatal("there are machines of their own here, and no such provider")
	}
	said := with[string](w, "require", map[string]any{"isolation": "microvm"})
	if !strings.Contains(said, "microvm") || !strings.Contains(said, err.Error()) {
		t.Errorf("the page says %q, the server %q", said, err)
	}

	const all = 15
	var paths []string
	for i := range all - len(want) {
		_, err := w.c.CreateSandbox(w.ctx(), api.CreateSandbox{Name: fmt.Sprintf("box-%d", i), Provider: "process"})
		w.ok(err)
	}
	for sb, err := range w.c.Sandboxes(w.ctx(), client.SandboxFilter{}) {
		w.ok(err)
		paths = append(paths, "/v1/sandboxes/"+sb.ID)
	}
	with[[]string](w, "machines", map[string]any{"n": all})
	gone := with[struct {
		Chosen string   `json:"chosen"`
		Names  int      `json:"names"`
		Sent   []string `json:"sent"`
	}](w, "destroyAll", map[string]any{"n": all})
	slices.Sort(paths)
	if gone.Chosen != "15 machines chosen" || gone.Names != all || !slices.Equal(gone.Sent, paths) {
		t.Errorf("it was %+v, and the machines were %v", gone, paths)
	}
	for sb, err := range w.c.Sandboxes(w.ctx(), client.SandboxFilter{}) {
		w.ok(err)
		if sb.State != "destroyed" {
			t.Errorf("%s is %s", sb.Name, sb.State)
		}
	}
	w.clean()
}

// drawn is the graph of a workflow's run.
type drawn struct {
	Nodes  []string `json:"nodes"`
	Places []string `json:"places"`
	Edges  int      `json:"edges"`
}

// A server that is killed in the middle of a workflow goes on with it, and the page, which
// was there all the time, has the same graph, and then what happens next.
func TestWorkflow_graphOutlivesTheServer(t *testing.T) {
	w := newWorld(t, setup{scripts: map[string]string{
		"slow": "replies:\n  - calls: [{name: execute, args: {command: 'until [ -e go ]; do sleep 0.05; done'}}]\nelse: {text: done}\n",
		"fast": "else: {text: done}\n",
	}})
	run, err := w.c.StartWorkflow(w.ctx(), api.StartWorkflow{File: "flow.yaml", Text: `
name: flow
topology: sequential
nodes:
  - {name: begin, inline: {model: fast, instructions: Begin.}, task: Begin.}
  - {name: work, inline: {model: slow, instructions: Work.}, task: Work.}
  - {name: sign, human: {ask: Is it good?, choices: [yes, "no"]}}
`})
	w.ok(err)
	do[any](w, "open", map[string]any{"path": "/workflow-runs/" + run.ID})
	before := with[drawn](w, "graph", map[string]any{"node": "work", "state": "running"})
	if len(before.Nodes) != 5 || // with what leads from one to the next
		len(before.Places) < 3 || before.Edges != 2 {
		t.Fatalf("the graph is %+v", before)
	}
	w.end(syscall.SIGKILL)
	if dead := with[drawn](w, "graph", map[string]any{"node": "work", "state": ""}); !reflect.DeepEqual(dead.Places, before.Places) || dead.Edges != before.Edges {
		t.Errorf("without the server the graph is %+v; it was %+v", dead, before)
	}
	w.start()
	after := with[drawn](w, "graph", map[string]any{"node": "work", "state": "running"})
	if !reflect.DeepEqual(after, before) {
		t.Errorf("the graph is %+v; it was %+v", after, before)
	}
	now, err := w.c.WorkflowRun(w.ctx(), run.ID, 0, 0)
	w.ok(err)
	w.touch(now.Nodes[1].Run, "go")
	last := with[drawn](w, "graph", map[string]any{"node": "sign", "state": "needs you"})
	if !reflect.DeepEqual(last.Places, before.Places) || last.Edges != before.Edges {
		t.Errorf("at last the graph is %+v; it was %+v", last, before)
	}
	w.clean()
}
