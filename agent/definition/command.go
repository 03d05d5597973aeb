package definition

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/internal/pattern"
	"github.com/skete-dev/skete/internal/yamlfile"
)

// This file has commands: tasks that are given often, as files. "/review the parser" is
// what commands/review.md says, with "the parser" in its place.

// CommandsDir is the directory of commands within a folder of agents.
const CommandsDir = "commands"

// commandsMax bounds how many commands are listed.
const commandsMax = 256

// Command is a task with a name.
type Command struct {
	Name        string `yaml:"-" json:"name"` // the file's
	Description string `yaml:"description" json:"description,omitempty"`
	Agent       string `yaml:"agent" json:"agent,omitempty"` // "" = as the run says
	Model       string `yaml:"model" json:"model,omitempty"` // the same
	Plan        bool   `yaml:"plan" json:"plan,omitempty"`   // see a plan first
	Check       string `yaml:"check" json:"check,omitempty"` // a command that has to pass
	Rubric      string `yaml:"rubric" json:"rubric,omitempty"`
	// Text is the task. $ARGUMENTS stands for all that was said behind the name, $1 to
	// $9 for its words; where neither is in it, what was said is put behind it.
	Text string `yaml:"-" json:"text"`
}

// ParseCommand reads a command: Markdown, with front matter or without. Invalid lists
// all mistakes, one a line.
func ParseCommand(file string, data []byte) (Command, error) {
	c := Command{Name: strings.TrimSuffix(path.Base(file), path.Ext(file))}
	problems := yamlfile.NewProblems(file)
	if len(data) > yamlfile.BytesMax {
		problems.Add(yamlfile.Pos{}, "larger than %d KiB", yamlfile.BytesMax>>10)
		return c, problems.Err()
	}
	text := data
	if front, body, found := yamlfile.Split(data); found {
		if _, err := yamlfile.Decode(file, front, &c); err != nil {
			return c, err
		}
		text = body
	}
	c.Text = strings.TrimSpace(string(text))
	if !isName(c.Name) {
		problems.Add(yamlfile.Pos{}, "%.80q is no name for a command; use 1 to 64 of a-z, 0-9 and single hyphens", c.Name)
	}
	if c.Text == "" {
		problems.Add(yamlfile.Pos{}, "the command says nothing: its text stands below the keys")
	}
	return c, problems.Err()
}

var placeholder = pattern.Lazy(`\$(ARGUMENTS|[1-9])\b`)

// Expand returns the task for what was said behind the command's name.
func (c Command) Expand(said string) string {
	said = strings.TrimSpace(said)
	words := strings.Fields(said)
	used := false
	text := placeholder().ReplaceAllStringFunc(c.Text, func(p string) string {
		used = true
		if p == "$ARGUMENTS" {
			return said
		}
		n, _ := strconv.Atoi(p[1:]) // a digit
		if n > len(words) {
			return ""
		}
		return words[n-1]
	})
	if !used && said != "" {
		text += "\n\n" + said
	}
	return text
}

// CommandOf takes a task apart that begins with a command's name: "/review the parser"
// is review and "the parser".
func CommandOf(task string) (name, said string, ok bool) {
	rest, ok := strings.CutPrefix(task, "/")
	if !ok {
		return "", "", false
	}
	end := strings.IndexAny(rest, " \t\r\n")
	if end < 0 {
		end = len(rest)
	}
	return rest[:end], strings.TrimSpace(rest[end:]), isName(rest[:end])
}

// Command returns a command of the folder, as its file is now. NotFound; Invalid: the
// file is broken.
func (f *Folder) Command(name string) (Command, error) {
	if !isName(name) {
		return Command{}, errs.New(errs.NotFound, "no command %.64q", name)
	}
	file := path.Join(CommandsDir, name+".md")
	data, err := readBounded(filepath.Join(f.dir, file))
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return Command{}, errs.New(errs.NotFound, "no command %.64q", name)
	case err != nil:
		return Command{}, errs.Wrap(errs.Unavailable, err, "the command %s cannot be read", name)
	}
	return ParseCommand(file, data)
}

// readBounded reads a file, or so much of one that is too large that this is seen.
func readBounded(name string) ([]byte, error) {
	file, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	return io.ReadAll(io.LimitReader(file, yamlfile.BytesMax+1))
}

// CommandEntry is a command in a list; Err says what is wrong with its file.
type CommandEntry struct {
	Command
	Err error
}

// Commands lists the commands of the folder, by their names.
func (f *Folder) Commands() []CommandEntry {
	files, err := os.ReadDir(filepath.Join(f.dir, CommandsDir))
	if err != nil {
		return nil // there are none, or none that can be read
	}
	var list []CommandEntry
	for _, file := range files {
		name, ok := strings.CutSuffix(file.Name(), ".md")
		if !ok || !isName(name) || len(list) == commandsMax {
			continue
		}
		c, err := f.Command(name)
		c.Name = name
		list = append(list, CommandEntry{c, err})
	}
	slices.SortFunc(list, func(a, b CommandEntry) int { return strings.Compare(a.Name, b.Name) })
	return list
}
