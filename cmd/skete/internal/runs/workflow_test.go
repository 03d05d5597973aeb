package runs_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const workflowExamples = "../../../../examples/workflows"

func TestWorkflow_validate(t *testing.T) {
	w := newWorld(t, nil)
	good := filepath.Join(workflowExamples, "article.yaml")
	bad := filepath.Join(t.TempDir(), "bad.yaml")
	if err := os.WriteFile(bad, []byte("topology: sequential\nnodes:\n  - name: a\n    agnet: x\n  - name: b\n    rounds: many\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	w.s.Close() // no server is asked
	if got := w.cli("", "workflow", "validate", good); got.code != 0 || got.out != good+": ok\n" {
		t.Errorf("%+v", got)
	}
	if got := w.cli("", "workflow", "validate", "-q", good); got.code != 0 || got.out != "" {
		t.Errorf("%+v", got)
	}
	got := w.cli("", "workflow", "validate", good, bad)
	want := good + ": ok\nerror: " + bad + `:4:5: nodes[0].agnet: "agnet" is not a key here; did you mean "agent"?` +
		"\nerror: " + bad + ":6:13: nodes[1].rounds: a whole number is wanted here, not text\n"
	if got.code != 1 || got.out != want {
		t.Errorf("%+v\nwant %s", got, want)
	}
	got = w.cli("", "workflow", "validate", "--json", good, bad)
	var list []struct {
		OK       bool
		Topology string
		Problems []struct {
			Line, Column int
			Field        string
		}
	}
	if err := json.Unmarshal([]byte(got.out), &list); err != nil || got.code != 1 {
		t.Fatalf("%+v, %v", got, err)
	}
	if len(list) != 2 || !list[0].OK || list[0].Topology != "sequential" || list[1].OK || len(list[1].Problems) != 2 || list[1].Problems[1].Line != 6 || list[1].Problems[1].Field != "nodes[1].rounds" {
		t.Errorf("%+v", list)
	}
	if got := w.cli("topology: x\n", "workflow", "validate", "-"); got.code != 1 || !strings.Contains(got.out, "error: stdin.yaml:1:1: topology: ") {
		t.Errorf("%+v", got)
	}
	for _, args := range [][]string{{"validate"}, {"validate", bad + ".not"}, {"graph"}, {"graph", good, bad}, {"schema", "x"}} {
		if got := w.cli("", append([]string{"workflow"}, args...)...); got.code != 2 || got.errOut == "" {
			t.Errorf("%q: %+v", args, got)
		}
	}
}

func TestWorkflow_graphAndSchema(t *testing.T) {
	w := newWorld(t, nil)
	text, err := os.ReadFile(filepath.Join(workflowExamples, "opinions.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	got := w.cli(string(text), "workflow", "graph", "-")
	if got.code != 0 || !strings.HasPrefix(got.out, "flowchart TD\n") || !strings.Contains(got.out, "n0 --> n3\n") {
		t.Errorf("%+v", got)
	}
	if got := w.cli("nodes: 1", "workflow", "graph", "-"); got.code != 2 || got.out != "" || !strings.Contains(got.errOut, "stdin.yaml:1:8: nodes: a list is wanted here") {
		t.Errorf("%+v", got)
	}
	schema, err := os.ReadFile("../../../../docs/workflow.schema.json")
	if err != nil {
		t.Fatal(err)
	}
	if got := w.cli("", "workflow", "schema"); got.code != 0 || got.out != string(schema) {
		t.Errorf("%+v", got)
	}
}
