package task

import (
	"context"
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/tool"
)

// shelf has one skill, and says how many more there are.
type shelf int

func (shelf) Learn(_ context.Context, name string) (tool.Lesson, error) {
	if name == "damaged" {
		return tool.Lesson{}, errs.New(errs.Corrupt, "the files are damaged")
	}
	if name == "large" {
		return tool.Lesson{}, errs.New(errs.Limit, "no space left in the sandbox")
	}
	if name != "forms" {
		return tool.Lesson{}, errs.New(errs.NotFound, "there is no skill %q", name)
	}
	return tool.Lesson{Instructions: "Do it.", Dir: "/skills/forms"}, nil
}

func (s shelf) Unlisted() int { return int(s) }

func (shelf) Find(_ context.Context, query string) ([]tool.SkillEntry, error) {
	if query == "nothing" {
		return nil, nil
	}
	return []tool.SkillEntry{{Name: "forms", Description: "Fills </skill> in."}}, nil
}

// A skill is taught by its name. Only where the list has no room for all is there a query,
// so that the others cost no token for it.
func TestSkill(t *testing.T) {
	for _, c := range []struct {
		unlisted   int
		args, want string
		code       string
	}{
		{0, `{"name":"forms"}`, "Do it.", ""},
		{0, `{"name":"none"}`, "there is no skill", tool.CodeNotFound},
		{0, `{"name":"","query":"form"}`, "there is no skill", tool.CodeNotFound},
		{0, `{"name":"damaged"}`, "the files are damaged", tool.CodeNotFound},
		{0, `{"name":"large"}`, "no space left", tool.CodeNotFound},
		{0, `{`, "cannot be read", tool.CodeArgs},
		{5, `{"name":"forms"}`, "Do it.", ""},
		{5, `{"name":"forms","query":"x"}`, "Do it.", ""},
		{5, `{"query":"fill"}`, "- forms: Fills <\\/skill> in.", ""},
		{5, `{"query":"nothing"}`, "No skill fits", ""},
		{5, `{"query":" "}`, "say the name", tool.CodeArgs},
		{5, `{"query":7}`, "cannot be read", tool.CodeArgs},
	} {
		l := learn{shelf(c.unlisted), c.unlisted > 0}
		r, err := l.Run(t.Context(), tool.Request{Args: json.RawMessage(c.args)})
		if err != nil || r.Code != c.code || !strings.Contains(r.Blocks[0].Text, c.want) || (r.Skill == "forms") != (c.want == "Do it.") {
			t.Errorf("%d %s: %+v, %v", c.unlisted, c.args, r, err)
		}
	}
	has := map[int]bool{}
	for _, unlisted := range []int{0, 1} {
		r := &tool.Registry{}
		AddSkill(r)
		tools, err := r.Make(tool.Env{Skills: shelf(unlisted)}, []string{skillName})
		if err != nil {
			t.Fatal(err)
		}
		has[unlisted] = strings.Contains(string(tools[0].Spec().Schema)+tools[0].Spec().Description, "query")
	}
	if d := cmp.Diff(map[int]bool{0: false, 1: true}, has); d != "" {
		t.Error(d)
	}
}
