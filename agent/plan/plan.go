// Package plan has plan templates: proven orders of work that an agent adopts
// and adapts instead of inventing its own.
//
//	set, err := plan.Load(os.DirFS("plans")) // with what is built in
//	t, err := set.Find("bug-fix")
//	todos, text := t.Todos(), t.Text()
//	plan.Add(registry, set)                  // the tool adopt_plan
//
// A template is a YAML file, or Markdown with front matter whose body is advice
// for the agent. Unknown keys are refused with their position. Everything is
// pure but Load, which reads a folder; a Set does not change and is safe for
// concurrent use.
package plan

import (
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/internal/yamlfile"
	"github.com/skete-dev/skete/thread"
)

// Bounds of templates. A plan stands in one event and in each prompt.
const (
	templatesMax = 64 // files of a folder
	StepsMax     = 20
	nameMax      = 64
	titleMax     = 80  // characters
	stepMax      = 480 // of a step's texts together
	whenMax      = 400 // of description and when, each
	adviceMax    = 4096
	planBytesMax = 14 << 10 // of all steps
)

// Template is an order of work.
type Template struct {
	Name        string `yaml:"name" json:"name"` // 1..64 of a-z 0-9 and single hyphens; the file's unless stated
	Description string `yaml:"description" json:"description"`
	When        string `yaml:"when" json:"when"` // for the model: which tasks it is for
	Steps       []Step `yaml:"steps" json:"steps"`
	// Advice for the agent, beyond the steps.
	Advice string `yaml:"advice" json:"advice,omitempty"`
}

// Step is one part of the work.
type Step struct {
	Title    string `yaml:"title" json:"title"`
	Goal     string `yaml:"goal" json:"goal"`
	DoneWhen string `yaml:"done_when" json:"done_when,omitempty"`
}

// Parse reads a template; see definition.Parse for how files are read. The
// error is Invalid and lists all mistakes, one a line.
func Parse(file string, data []byte) (Template, error) {
	var t Template
	front, body := data, []byte(nil)
	problems := yamlfile.NewProblems(file)
	if len(data) > yamlfile.BytesMax {
		problems.Add(yamlfile.Pos{}, "larger than %d KiB", yamlfile.BytesMax>>10)
		return Template{}, problems.Err()
	}
	if strings.EqualFold(path.Ext(file), ".md") {
		var found bool
		if front, body, found = yamlfile.Split(data); !found {
			problems.Add(yamlfile.Pos{Line: 1, Column: 1}, "the file should begin with --- and keys, and --- again before the advice")
			return Template{}, problems.Err()
		}
	}
	at, err := yamlfile.Decode(file, front, &t)
	if err != nil {
		return Template{}, err
	}
	if text := strings.TrimSpace(string(body)); text != "" {
		if t.Advice != "" {
			problems.Add(at.Of("advice"), "the advice is there twice: as a key, and below the second ---")
		}
		t.Advice = text
	}
	if t.Name == "" {
		t.Name = strings.TrimSuffix(path.Base(file), path.Ext(file))
	}
	t.check(func(path, format string, args ...any) { problems.Add(at.Of(path), format, args...) })
	if err := problems.Err(); err != nil {
		return Template{}, err
	}
	return t, nil
}

// check finds what is wrong with a template.
func (t *Template) check(fail func(path, format string, args ...any)) {
	if !isName(t.Name) {
		fail("name", "%.80q is no name; use 1 to %d of a-z, 0-9 and single hyphens", t.Name, nameMax)
	}
	if t.When == "" {
		fail("when", "say when the plan is the right one; the model chooses by it")
	}
	for _, text := range []struct{ path, text string }{{"description", t.Description}, {"when", t.When}} {
		if utf8.RuneCountInString(text.text) > whenMax {
			fail(text.path, "longer than %d characters", whenMax)
		}
	}
	if len(t.Advice) > adviceMax {
		fail("advice", "longer than %d bytes", adviceMax)
	}
	if n := len(t.Steps); n == 0 || n > StepsMax {
		fail("steps", "a plan has 1 to %d steps, this one has %d", StepsMax, n)
		return
	}
	size := 0
	for i, s := range t.Steps {
		at := fmt.Sprintf("steps[%d]", i)
		if size += len(s.text()) + 64; size > planBytesMax {
			fail(at, "the steps are larger than %d KiB together", planBytesMax>>10)
			return
		}
		switch {
		case strings.TrimSpace(s.Title) == "":
			fail(at+".title", "a step needs a title")
		case utf8.RuneCountInString(s.Title) > titleMax || strings.Contains(s.Title, "\n"):
			fail(at+".title", "a title is one line of at most %d characters", titleMax)
		case utf8.RuneCountInString(s.text()) > stepMax:
			fail(at, "the step is longer than %d characters", stepMax)
		}
		if j := slices.IndexFunc(t.Steps[:i], func(o Step) bool { return o.Title == s.Title }); j >= 0 && s.Title != "" {
			fail(at+".title", "the title %q is there twice", s.Title)
		}
	}
}

func isName(s string) bool {
	if s == "" || len(s) > nameMax || s[0] == '-' || s[len(s)-1] == '-' || strings.Contains(s, "--") {
		return false
	}
	return strings.Trim(s, "abcdefghijklmnopqrstuvwxyz0123456789-") == ""
}

// text is the step as an entry of a plan.
func (s Step) text() string {
	text := strings.TrimSpace(s.Title)
	if goal := strings.TrimSpace(s.Goal); goal != "" {
		text += ": " + goal
	}
	if done := strings.TrimSpace(s.DoneWhen); done != "" {
		text += " Done when: " + done
	}
	return strings.Join(strings.Fields(text), " ")
}

// Todos are the steps, the first one in progress.
func (t Template) Todos() []thread.Todo {
	todos := make([]thread.Todo, len(t.Steps))
	for i, s := range t.Steps {
		todos[i] = thread.Todo{Content: s.text(), Status: "pending"}
	}
	if len(todos) > 0 {
		todos[0].Status = "in_progress"
	}
	return todos
}

// Text tells the model about the plan that it adopted.
func (t Template) Text() string {
	var b strings.Builder
	fmt.Fprintf(&b, "You adopted the plan %q, %d steps; the first is in progress:\n", t.Name, len(t.Steps))
	for i, s := range t.Steps {
		fmt.Fprintf(&b, "%d. %s\n", i+1, s.text())
	}
	if t.Advice != "" {
		fmt.Fprintf(&b, "\n%s\n", t.Advice)
	}
	b.WriteString("\nAdapt it to the task with write_todos: put in the names of files and parts, split what is large, drop what does not apply. " +
		"Keep what a step must reach before the next one begins.")
	return b.String()
}

//go:embed builtin/*.md
var builtin embed.FS

// Entry is one template of a Set.
type Entry struct {
	Name     string
	Template Template
	File     string
	BuiltIn  bool
	Err      error // why the file cannot be used
}

// Set is the templates that there are.
type Set struct {
	entries map[string]Entry
}

// Load reads the templates of a folder (*.yaml, *.yml, *.md, without README.md
// and names that begin with "." or "_") and adds those that are built in and
// not overridden. A nil folder, or one that is not there, is empty. The Set is
// never nil: good files can be used even if the error, which lists the
// mistakes of all others, is not nil.
func Load(fsys fs.FS) (*Set, error) {
	s := &Set{entries: map[string]Entry{}}
	if err := s.readAll(builtin, "builtin", true); err != nil || fsys == nil {
		return s, err
	}
	if err := s.readAll(fsys, ".", false); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return s, err
	}
	var lines []string
	for _, e := range s.List() {
		if e.Err != nil {
			lines = append(lines, errs.Public(e.Err))
		}
	}
	if lines != nil {
		return s, errs.New(errs.Invalid, "%s", strings.Join(lines, "\n"))
	}
	return s, nil
}

// BuiltIn returns the Set without any file.
func BuiltIn() *Set {
	s, _ := Load(nil) // a test reads them all
	return s
}

func (s *Set) readAll(fsys fs.FS, dir string, own bool) error {
	return yamlfile.Folder(fsys, dir, "plans", templatesMax, yamlfile.BytesMax, func(name string, data []byte, err error) {
		var t Template
		if err == nil {
			t, err = Parse(name, data)
		}
		e := Entry{Name: t.Name, Template: t, File: name, BuiltIn: own, Err: err}
		if err != nil {
			e.Name = strings.TrimSuffix(name, path.Ext(name))
		}
		if before, ok := s.entries[e.Name]; ok && !before.BuiltIn {
			e.Template, e.Err = Template{}, errs.New(errs.Invalid, "%s: the plan %q is in %s too", e.File, e.Name, before.File)
		}
		s.entries[e.Name] = e
	})
}

// List returns all templates, sorted by name.
func (s *Set) List() []Entry {
	list := make([]Entry, 0, len(s.entries))
	for _, e := range s.entries {
		list = append(list, e)
	}
	slices.SortFunc(list, func(a, b Entry) int { return strings.Compare(a.Name, b.Name) })
	return list
}

// names lists the templates that can be used.
func (s *Set) names() []string {
	var names []string
	for _, e := range s.List() {
		if e.Err == nil {
			names = append(names, e.Name)
		}
	}
	return names
}

// Find returns a template. NotFound: there is none of this name. Invalid: its
// file is broken.
func (s *Set) Find(name string) (Template, error) {
	e, ok := s.entries[name]
	if !ok {
		return Template{}, errs.New(errs.NotFound, "there is no plan %.80q%s", name, yamlfile.Suggest(name, s.names())).
			WithHint("the plans are: %s", strings.Join(s.names(), ", "))
	}
	return e.Template, e.Err
}
