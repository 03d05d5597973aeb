package plan_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"

	"github.com/skete-dev/skete/agent/plan"
	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/thread"
	"github.com/skete-dev/skete/tool"
)

const small = "when: always\nsteps:\n  - {title: One, goal: do it, done_when: it is done}\n  - title: Two\n"

func TestParse_readsBothForms(t *testing.T) {
	want := plan.Template{
		Name: "small", When: "always",
		Steps: []plan.Step{{Title: "One", Goal: "do it", DoneWhen: "it is done"}, {Title: "Two"}},
	}
	got, err := plan.Parse("plans/small.yaml", []byte(small))
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
	want.Advice = "Take care."
	if got, err = plan.Parse("small.md", []byte("---\n"+small+"---\nTake care.\n")); err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
	todos := []thread.Todo{
		{Content: "One: do it Done when: it is done", Status: "in_progress"},
		{Content: "Two", Status: "pending"},
	}
	if d := cmp.Diff(todos, got.Todos()); d != "" {
		t.Error(d)
	}
}

func TestParse_refusesWithThePlace(t *testing.T) {
	steps := func(n int) string {
		s := "when: x\nsteps:\n"
		for i := range n {
			s += fmt.Sprintf("- title: s%d\n", i)
		}
		return s
	}
	cases := []struct{ name, file, content, want string }{
		{"an unknown key", "a.yaml", "when: x\nsteps:\n- titel: x", `a.yaml:3:3: "titel" is not a key here; did you mean "title"?`},
		{"no steps", "a.yaml", "when: x", "a plan has 1 to 20 steps, this one has 0"},
		{"too many steps", "a.yaml", steps(21), "this one has 21"},
		{"no when", "a.yaml", "steps: [{title: x}]", "say when the plan is the right one"},
		{"a step without a title", "a.yaml", "when: x\nsteps:\n- goal: x", "a.yaml:3:3: a step needs a title"},
		{"a title of two lines", "a.yaml", "when: x\nsteps:\n- title: \"a\\nb\"", "one line of at most 80"},
		{"a title twice", "a.yaml", "when: x\nsteps: [{title: x}, {title: x}]", `the title "x" is there twice`},
		{"a long step", "a.yaml", "when: x\nsteps:\n- title: x\n  goal: " + strings.Repeat("x ", 300), "longer than 480 characters"},
		{"a long when", "a.yaml", "when: " + strings.Repeat("x", 401) + "\nsteps: [{title: x}]", "a.yaml:1:1: longer than 400"},
		{"much in wide letters", "a.yaml", wide(), "the steps are larger than 14 KiB together"},
		{"a bad name", "a.yaml", "name: A\nwhen: x\nsteps: [{title: x}]", "is no name"},
		{"no front matter", "a.md", "x", "a.md:1:1: "},
		{"advice twice", "a.md", "---\nadvice: x\nwhen: x\nsteps: [{title: x}]\n---\ny", "the advice is there twice"},
		{"much advice", "a.md", "---\nwhen: x\nsteps: [{title: x}]\n---\n" + strings.Repeat("x", 5000), "longer than 4096 bytes"},
		{"too large", "a.md", strings.Repeat("x", 65<<10), "larger than 64 KiB"},
	}
	for _, c := range cases {
		if _, err := plan.Parse(c.file, []byte(c.content)); !errs.Is(err, errs.Invalid) || !strings.Contains(errs.Public(err), c.want) {
			t.Errorf("%s: %v", c.name, err)
		}
	}
}

func TestBuiltIn_areThePlansThatAreShipped(t *testing.T) {
	want := map[string]string{"research": "Hypothesis Design Research Verify Write", "bug-fix": "Reproduce Locate Test Fix Check Report"}
	list := plan.BuiltIn().List()
	if len(list) != len(want) {
		t.Errorf("%d are built in", len(list))
	}
	for _, e := range list {
		var titles []string
		for _, s := range e.Template.Steps {
			titles = append(titles, s.Title)
		}
		if e.Err != nil || strings.Join(titles, " ") != want[e.Name] {
			t.Errorf("%s: %v %v", e.Name, titles, e.Err)
		}
	}
}

func file(s string) *fstest.MapFile { return &fstest.MapFile{Data: []byte(s)} }

func TestLoad_addsAndOverrides(t *testing.T) {
	set, err := plan.Load(fstest.MapFS{
		"mine.yaml": file(small), "bug-fix.yaml": file(small), "bad.yaml": file("x: y"), "twin.yaml": file(small),
		"twin.md": file("---\n" + small + "---\n"), "README.md": file("no"), "_x.yaml": file("{"),
	})
	if !errs.Is(err, errs.Invalid) || !strings.Contains(err.Error(), "bad.yaml:1:1: ") || !strings.Contains(err.Error(), `the plan "twin" is in twin.md too`) {
		t.Errorf("%v", err)
	}
	if p, err := set.Find("bug-fix"); err != nil || len(p.Steps) != 2 {
		t.Errorf("%+v, %v", p, err)
	}
	if _, err := set.Find("bad"); !errs.Is(err, errs.Invalid) {
		t.Errorf("%v", err)
	}
	if _, err := set.Find("bug-fx"); !errs.Is(err, errs.NotFound) || !strings.Contains(err.Error(), `did you mean "bug-fix"?`) || errs.Hint(err) != "the plans are: bug-fix, mine, research" {
		t.Errorf("%v %q", err, errs.Hint(err))
	}
}

func TestAdoptPlan(t *testing.T) {
	r := &tool.Registry{}
	set, err := plan.Load(fstest.MapFS{"mine.md": file("---\n" + small + "---\nTake care.")})
	if err != nil {
		t.Fatal(err)
	}
	plan.Add(r, set)
	tools, err := r.Make(tool.Env{}, nil)
	if err != nil || len(tools) != 1 {
		t.Fatalf("%v, %v", tools, err)
	}
	adopt := tools[0]
	if e := adopt.Effect(json.RawMessage(`{}`)); e.Class != tool.Read || len(e.Touches) > 0 {
		t.Errorf("%+v", e)
	}
	if spec := adopt.Spec(); spec.Name != "adopt_plan" || !strings.Contains(spec.Description, "\n- mine: always") || !strings.Contains(string(spec.Schema), `["bug-fix","mine","research"]`) {
		t.Errorf("%s", spec.Schema)
	}
	for range 2 { // once more after a crash is the same
		res, err := adopt.Run(t.Context(), tool.Request{Args: json.RawMessage(`{"name":"mine"}`)})
		if err != nil || res.Failed {
			t.Fatalf("%+v, %v", res, err)
		}
		if len(res.Todos) != 2 || res.Todos[0].Status != "in_progress" {
			t.Errorf("%+v", res.Todos)
		}
		for _, want := range []string{"1. One: do it", "2. Two", "Take care.", "write_todos"} {
			if !strings.Contains(res.Blocks[0].Text, want) {
				t.Errorf("%s\nlacks %q", res.Blocks[0].Text, want)
			}
		}
	}
	for _, args := range []string{`{"name":"nope"}`, `{}`, `[]`, `{"name":"mine","x":1}`} {
		if res, err := adopt.Run(t.Context(), tool.Request{Args: json.RawMessage(args)}); err != nil || !res.Failed || res.Code != tool.CodeArgs || res.Todos != nil {
			t.Errorf("%s: %+v, %v", args, res, err)
		}
	}
}

func wide() string {
	s := "when: x\nsteps:\n"
	for i := range plan.StepsMax {
		s += fmt.Sprintf("- {title: s%02d, goal: %s}\n", i, strings.Repeat("字", 400))
	}
	return s
}

// TestTodos_fitWhatWriteTodosTakes: a template as large as it may be is a plan
// that write_todos would accept.
func TestTodos_fitWhatWriteTodosTakes(t *testing.T) {
	s := "when: x\nsteps:\n"
	for i := range plan.StepsMax {
		s += fmt.Sprintf("- {title: s%02d, goal: %s}\n", i, strings.Repeat("x", 470))
	}
	p, err := plan.Parse("a.yaml", []byte(s))
	if err != nil {
		t.Fatal(err)
	}
	total := 0
	for _, todo := range p.Todos() {
		if total += len(todo.Content) + 64; len([]rune(todo.Content)) > 500 {
			t.Errorf("%d characters", len(todo.Content))
		}
	}
	if total > 16<<10 {
		t.Errorf("%d bytes", total)
	}
}

func FuzzParse(f *testing.F) {
	f.Add("a.yaml", []byte(small))
	f.Add("a.md", []byte("---\n"+small+"---\nx"))
	f.Fuzz(func(t *testing.T, name string, data []byte) {
		p, err := plan.Parse(name, data)
		if err != nil {
			if !errs.Is(err, errs.Invalid) {
				t.Fatal(err)
			}
			return
		}
		for _, todo := range p.Todos() {
			if todo.Content == "" || len([]rune(todo.Content)) > 500 {
				t.Fatalf("%q", todo.Content)
			}
		}
		if p.Text() == "" {
			t.Fatal("no text")
		}
	})
}
