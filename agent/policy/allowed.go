package policy

import (
	"path"
	"slices"
	"strings"

	"github.com/bmatcuk/doublestar/v4"

	"github.com/skete-dev/skete/agent/definition"
	"github.com/skete-dev/skete/agent/policy/shell"
)

// This file makes rules of what a skill wants approved beforehand: the words of its
// allowed-tools. Skills are written for many clients, so the names that most of them use
// stand for our tools. A word that is not understood whole approves nothing.

// Names of tools in the words.
const (
	bash = "Bash"
	read = "Read"
)

// alike are our tools for the names that other clients have.
var alike = map[string][]string{
	bash:        {"execute"},
	read:        {"read_file"},
	"Write":     {"write_file"},
	"Edit":      {"edit_file", "apply_patch"},
	"MultiEdit": {"edit_file", "apply_patch"},
	"Glob":      {"glob"},
	"Grep":      {"grep"},
	"LS":        {"ls"},
	"Task":      {"task"},
	"TodoWrite": {"write_todos"},
}

// ofPaths are those of our tools that may be bounded by the paths that they touch, ofCommands
// by their commands.
var (
	ofPaths    = []string{"read_file", "write_file", "edit_file", "apply_patch", "glob", "grep", "ls", "list_files", "delete"}
	ofCommands = []string{"execute", "run_command"}
)

// Preapproved returns the rule that allows what a word names: a tool, and what stands in its
// brackets, "" = there are none. ok: it is understood.
func Preapproved(tool, pattern string) (r definition.Rule, ok bool) {
	r = definition.Rule{Action: definition.Allow, Tools: alike[tool]}
	if r.Tools == nil {
		r.Tools = []string{literal(tool)}
	}
	return r, tool != "" && (pattern == "" || bound(&r, pattern))
}

// bound takes in what stands in the brackets, and reports whether it is understood.
func bound(r *definition.Rule, pattern string) bool {
	within := func(tools []string) bool {
		return !slices.ContainsFunc(r.Tools, func(name string) bool { return !slices.Contains(tools, name) })
	}
	switch {
	case pattern == "*":
		return true
	case within(ofCommands):
		line, ok := command(pattern)
		r.Commands = []string{line}
		return ok
	case within(ofPaths):
		glob, ok := paths(pattern)
		r.Paths = []string{glob}
		return ok
	}
	return false
}

// command makes a pattern of ours of "git:*", which is git with any arguments, "git push *"
// or "git status".
func command(pattern string) (string, bool) {
	line, open := strings.CutSuffix(pattern, ":*")
	if strings.Contains(line, ":*") || strings.Trim(line, "* \t") == "" {
		return "", false
	}
	if open {
		line += " *"
	}
	_, err := shell.ParsePattern(line)
	return line, err == nil
}

// paths makes a glob of ours: //x is the absolute path x, what is relative begins at the
// workspace, and a bare name is meant anywhere. A home, and a way up, are not understood.
func paths(pattern string) (string, bool) {
	glob := pattern
	if strings.HasPrefix(glob, "//") {
		glob = glob[1:]
	}
	bad := strings.HasPrefix(glob, "~") || strings.HasPrefix(glob, "!") || strings.ContainsAny(glob, "$\\") ||
		slices.Contains(strings.Split(glob, "/"), "..") || strings.Contains(glob, "//") || path.Clean("/"+glob) == "/"
	return glob, !bad && doublestar.ValidatePattern(glob)
}
