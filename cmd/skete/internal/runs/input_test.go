package runs

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/skete-dev/skete/api"
	"github.com/skete-dev/skete/cmd/skete/internal/app"
)

// What a run of a workflow is started with: objects, pairs, files of JSON, and others, whose
// name is the one text that is wanted.
func TestWorkflow_input(t *testing.T) {
	dir := t.TempDir()
	script, object := filepath.Join(dir, "script.py"), filepath.Join(dir, "in.json")
	for name, text := range map[string]string{script: "print(1)", object: `{"n": 1}`} {
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	const flow = "name: w\ntopology: sequential\nnodes: [{name: a, inline: {}, task: x}]\ninput: {type: object, properties: {path: {type: string}, to: {type: string}, n: {type: integer}}, required: [n, "
	for name, c := range map[string]struct {
		flow   string
		in     workflowInput
		want   string // "" = refused
		files  string
		within string
	}{
		"pairs":              {flow + "path]}", workflowInput{values: []string{"n=1", "path=a b"}}, `{"n":1,"path":"a b"}`, "", ""},
		"a file of JSON":     {flow + "path]}", workflowInput{values: []string{object}}, `{"n":1}`, "", ""},
		"another file":       {flow + "path]}", workflowInput{values: []string{object, script}}, `{"n":1,"path":"script.py"}`, "script.py", "print(1)"},
		"two texts":          {flow + "path, to]}", workflowInput{values: []string{script}}, "", "", ""},
		"two, one is given":  {flow + "path, to]}", workflowInput{values: []string{"to=x", script}}, `{"path":"script.py","to":"x"}`, "script.py", "print(1)"},
		"no text":            {flow[:len(flow)-2] + "]}", workflowInput{values: []string{script}}, "", "", ""},
		"of a server's own":  {"", workflowInput{values: []string{script}}, "", "", ""},
		"a file beside":      {"", workflowInput{values: []string{"path=script.py"}, files: []string{script}}, `{"path":"script.py"}`, "script.py", "print(1)"},
		"a file that is not": {flow + "path]}", workflowInput{values: []string{script + ".not"}}, "", "", ""},
		"a broken object":    {flow + "path]}", workflowInput{values: []string{`{"n":`}}, "", "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			req := api.StartWorkflow{Text: c.flow}
			err := commands{&app.App{}}.setInput(&req, c.in)
			if c.want == "" {
				if err == nil {
					t.Errorf("it was taken: %s", req.Input)
				}
				return
			}
			if err != nil || string(req.Input) != c.want {
				t.Fatalf("%s, %v", req.Input, err)
			}
			if c.files == "" && len(req.Files) > 0 || c.files != "" && (len(req.Files) != 1 || req.Files[0].Path != c.files || string(req.Files[0].Content) != c.within) {
				t.Errorf("%+v", req.Files)
			}
		})
	}
}
