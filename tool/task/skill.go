package task

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/llm"
	"github.com/skete-dev/skete/tool"
)

// This file has skill: the agent names one of the catalogue that its prompt shows, and gets
// the instructions and the list of the files, which are in its machine then. Where the
// catalogue has no room for all, the same tool finds the others: one more argument costs
// fewer tokens than another tool does.

const skillName = "skill"

const (
	aboutSkill = `Loads a skill of the list in your instructions. Call it before work that one is for, and do as it says.`
	aboutFind  = ` The list is not whole: with query it lists the skills that fit.`
)

const (
	skillSchema = `{"type":"object","additionalProperties":false,"required":["name"],"properties":{"name":{"type":"string"}}}`
	findSchema  = `{"type":"object","additionalProperties":false,"properties":{"name":{"type":"string"},"query":{"type":"string"}}}`
)

const skillFilesMax = 100 // that the answer lists

// AddSkill adds skill, which is there when there are skills.
func AddSkill(r *tool.Registry) {
	r.Add(skillName, func(env tool.Env) (tool.Tool, error) {
		if env.Skills == nil {
			return nil, errs.New(errs.Unsupported, "there are no skills")
		}
		return learn{env.Skills, env.Skills.Unlisted() > 0}, nil
	})
}

type learn struct {
	skills tool.Skills
	finds  bool
}

// Spec implements tool.Tool.
func (l learn) Spec() llm.ToolSpec {
	s := llm.ToolSpec{Name: skillName, Description: aboutSkill, Schema: json.RawMessage(skillSchema)}
	if l.finds {
		s.Description, s.Schema = aboutSkill+aboutFind, json.RawMessage(findSchema)
	}
	return s
}

// Effect implements tool.Tool. The files that it puts into the machine are the same however
// often it is done.
func (learn) Effect(json.RawMessage) tool.Effect { return tool.Effect{Class: tool.Read} }

// Run implements tool.Tool.
func (l learn) Run(ctx context.Context, req tool.Request) (tool.Result, error) {
	var args struct {
		Name  string `json:"name"`
		Query string `json:"query"`
	}
	switch err := json.Unmarshal(req.Args, &args); {
	case err != nil:
		return tool.Fail(tool.CodeArgs, "the arguments cannot be read"), nil
	case l.finds && args.Name == "" && strings.TrimSpace(args.Query) != "":
		return l.find(ctx, args.Query)
	case l.finds && args.Name == "":
		return tool.Fail(tool.CodeArgs, "say the name of a skill, or a query that finds one"), nil
	}
	lesson, err := l.skills.Learn(ctx, args.Name)
	switch {
	case errs.Is(err, errs.NotFound), errs.Is(err, errs.Invalid), errs.Is(err, errs.Unsupported), errs.Is(err, errs.Denied), errs.Is(err, errs.Limit), errs.Is(err, errs.Corrupt):
		return tool.Fail(tool.CodeNotFound, errs.Public(err)), nil
	case err != nil:
		return tool.Result{}, fmt.Errorf("learn the skill %.64q: %w", args.Name, err)
	}
	r := tool.Text(lessonText(args.Name, lesson))
	r.Whole, r.Skill = true, args.Name
	return r, nil
}

// find lists the skills that fit.
func (l learn) find(ctx context.Context, query string) (tool.Result, error) {
	list, err := l.skills.Find(ctx, query)
	if err != nil {
		return tool.Result{}, fmt.Errorf("find a skill: %w", err)
	}
	if len(list) == 0 {
		return tool.Text("No skill fits. Try other words, or work without one."), nil
	}
	var b strings.Builder
	for _, e := range list {
		b.WriteString("- " + e.Name + ": " + e.Description + "\n")
	}
	return tool.Text(llm.Marked("skill", "query", query, strings.TrimSpace(b.String()))), nil
}

// lessonText is what the model reads.
func lessonText(name string, l tool.Lesson) string {
	var b strings.Builder
	if l.Changed {
		b.WriteString("Note: this skill has changed since the run began.\n")
	}
	b.WriteString(llm.Marked("skill", "name", name, l.Instructions) + "\n")
	fmt.Fprintf(&b, "Its folder is %s: relative paths begin there. Run its scripts where they are; read its files when the instructions name them.\n", l.Dir)
	if l.Needs != "" {
		fmt.Fprintf(&b, "It needs: %s\n", l.Needs)
	}
	for i, f := range l.Files {
		if i == skillFilesMax {
			fmt.Fprintf(&b, "… and %d files more\n", len(l.Files)-skillFilesMax)
			break
		}
		b.WriteString("- " + f + "\n")
	}
	return b.String()
}
