package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// kinds of tasks, in the order of the table.
var kinds = []string{"fix", "refactor", "build", "investigate", "data"}

// task is a folder of tasks, named KIND-NAME.
type task struct {
	name, kind string
	dir        string
	text       string // what the agent is told
	setup      string // prepares the workspace beyond files, "" = nothing to do
	check      string // looks whether it was done; the agent never sees it
}

// files is where the workspace begins; "" = it is made by setup alone.
func (t task) files() string {
	dir := filepath.Join(t.dir, "files")
	if _, err := os.Stat(dir); err != nil {
		return ""
	}
	return dir
}

// solution is a script of a model that does the task.
func (t task) solution() string { return filepath.Join(t.dir, "solution.yaml") }

// wrong is a script whose work looks right and is not; not every task has one.
func (t task) wrong() string { return filepath.Join(t.dir, "wrong.yaml") }

// load reads the tasks of a folder whose names begin with only, the first few of
// each kind; 0 = all.
func load(dir, only string, each int) ([]task, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	var tasks []task
	count := map[string]int{}
	for _, e := range entries {
		if !strings.HasPrefix(e.Name(), only) {
			continue
		}
		t, err := read(filepath.Join(dir, e.Name()))
		if err != nil {
			return nil, fmt.Errorf("task %s: %w", e.Name(), err)
		}
		if count[t.kind]++; each == 0 || count[t.kind] <= each {
			tasks = append(tasks, t)
		}
	}
	if len(tasks) == 0 {
		return nil, fmt.Errorf("no task in %s begins with %q", dir, only)
	}
	return tasks, nil
}

func read(dir string) (t task, err error) {
	if dir, err = filepath.Abs(dir); err != nil {
		return t, err
	}
	t = task{name: filepath.Base(dir), dir: dir}
	t.kind, _, _ = strings.Cut(t.name, "-")
	for name, to := range map[string]*string{"task.md": &t.text, "check.sh": &t.check, "setup.sh": &t.setup} {
		text, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil && (name != "setup.sh" || !errors.Is(err, fs.ErrNotExist)) {
			return t, err
		}
		*to = string(text)
	}
	return t, nil
}
