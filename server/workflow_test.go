package server_test

import (
	"encoding/json"
	"net/http"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/skete-dev/skete/api"
)

// A client can draw a workflow without knowing what its topology means.
func TestPlanOfAWorkflow_hasItsGraph(t *testing.T) {
	const text = `
name: picture
topology: graph
start: [look]
nodes:
  - {name: look, agent: default, task: Look., artifacts: [a.md], sandbox: own, result: {type: object, properties: {ok: {type: boolean}}, required: [ok]}}
  - {name: ask, human: {ask: Is it good?}}
  - {name: mend, description: Mends it., inline: {instructions: Mend.}, task: Mend., input: {report: {node: look, artifact: a.md}}}
edges:
  - {from: look, to: mend, when: {node: look, path: ok, equals: false}}
  - {from: mend, to: ask}
loops:
  - {from: mend, to: look, when: {node: mend, status: succeeded}, max: 2, exhausted: continue}
`
	w := newWorld(t)
	body, err := json.Marshal(api.StartWorkflow{Text: text})
	must(t, err)
	a := w.send(t, w.admin, http.MethodPost, "/v1/workflow-plans", string(body))
	var plan api.WorkflowPlan
	if err := json.Unmarshal(a.body, &plan); err != nil || a.status != http.StatusOK {
		t.Fatalf("%d %s, %v", a.status, a.body, err)
	}
	want := api.WorkflowGraph{
		Vertices: []api.WorkflowVertex{
			{Node: "look", Agent: "default", Sandbox: "own"},
			{Node: "mend", Description: "Mends it.", Agent: "inline", Sandbox: "shared"},
			{Node: "ask", Human: true},
		},
		Edges: []api.WorkflowEdge{
			{From: "look", To: "mend", When: "look.ok = false", Artifacts: 1},
			{From: "mend", To: "ask"},
			{From: "mend", To: "look", When: "mend succeeded", Loop: true, Max: 2},
		},
	}
	if diff := cmp.Diff(want, plan.Graph); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	put, err := json.Marshal(api.PutWorkflow{Text: text + "input: {type: object, properties: {subject: {type: string}}, required: [subject]}\n"})
	must(t, err)
	w.send(t, w.admin, http.MethodPost, "/v1/workflows", string(put))
	a = w.send(t, w.admin, http.MethodGet, "/v1/workflows/picture", nil)
	var kept api.Workflow
	if err := json.Unmarshal(a.body, &kept); err != nil || kept.Topology != "graph" || !contains(kept.Input, `"subject"`) || cmp.Diff(&want, kept.Graph) != "" {
		t.Errorf("one that is kept is shown as %s, %v", a.body, err)
	}
}
