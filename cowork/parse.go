package cowork

import (
	"path"
	"strings"

	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/internal/yamlfile"
)

// FileBytesMax bounds a file.
const FileBytesMax = 1 << 20

// Workflow is a definition that was found to be good, with what it is compiled to.
type Workflow struct {
	Definition
	Graph Graph
}

// Problem is something that is wrong with a definition. Field is the path of the key,
// such as nodes[2].retries.max.
type Problem struct {
	Line   int    `json:"line,omitempty"`
	Column int    `json:"column,omitempty"`
	Field  string `json:"field,omitempty"`
	Text   string `json:"text"`
}

// In writes the problem as one of a file: "file:line:column: field: text".
func (p Problem) In(file string) string {
	where := yamlfile.Where(file, yamlfile.Pos{Line: p.Line, Column: p.Column}) + ": "
	if p.Field != "" {
		where += p.Field + ": "
	}
	return where + p.Text
}

// Parse reads a definition. The error is Invalid and lists what Check finds, one a line.
func Parse(file string, data []byte) (Workflow, error) {
	w, problems := Check(file, data)
	if len(problems) == 0 {
		return w, nil
	}
	lines := make([]string, len(problems))
	for i, p := range problems {
		lines[i] = p.In(file)
	}
	return Workflow{}, errs.New(errs.Invalid, "%s", strings.Join(lines, "\n"))
}

// Check reads a definition, and says what is wrong with it. file is its path, after which
// the workflow is called unless it has a name. What is not there cannot be
// looked at: agents, tools, skills and models are those of the server that runs it.
func Check(file string, data []byte) (Workflow, []Problem) {
	var w Workflow
	found := yamlfile.NewProblems(file)
	at := found.Decode(data, FileBytesMax, &w.Definition)
	if len(found.List()) > 0 {
		return Workflow{}, problems(found)
	}
	if w.Name == "" {
		w.Name = strings.TrimSuffix(path.Base(file), path.Ext(file))
	}
	c := &checker{d: &w.Definition, at: at, problems: found}
	c.definition()
	if len(found.List()) == 0 {
		w.Graph = c.compile()
	}
	if len(found.List()) > 0 {
		return Workflow{}, problems(found)
	}
	return w, nil
}

func problems(found *yamlfile.Problems) []Problem {
	var list []Problem
	for _, p := range found.List() {
		list = append(list, Problem{Line: p.At.Line, Column: p.At.Column, Field: p.Path, Text: p.Text})
	}
	return list
}
