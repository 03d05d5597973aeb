package definition

import (
	"embed"
	"encoding/json"
	"errors"
	"io/fs"
	"path"
	"slices"
	"strings"

	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/internal/yamlfile"
	"github.com/skete-dev/skete/thread"
)

// Bounds of a Set.
const (
	agentsMax = 64 // files of a folder
	// ResolvedBytesMax bounds a definition with all its sub-agents as JSON,
	// because a thread's first event has to hold it.
	ResolvedBytesMax = 40 << 10
	resolvedMax      = 64 // definitions in one resolved tree
)

// Names of what is built in.
const (
	Default        = "default"
	generalPurpose = "general-purpose"
)

//go:embed builtin/*.md builtin/*.yaml
var builtin embed.FS

// Entry is one agent of a Set.
type Entry struct {
	Name       string
	Definition Definition // as its file says, without Subagents; zero with Err
	File       string     // in its folder
	BuiltIn    bool
	Err        error // why the file cannot be used
}

// Set is the agents that there are. The zero value has none; see Load.
type Set struct {
	entries map[string]Entry
	check   Checker
}

// Load reads the agents of a folder (its *.yaml, *.yml and *.md files, but
// README.md and names that begin with "." or "_") and adds what is built in
// and not overridden by a file. A nil folder, or one that is not there, is
// empty. The Set is never nil: agents whose files are good can be used even if
// the error, which lists the mistakes of all others, is not nil. tools are as in
// Parse.
func Load(fsys fs.FS, tools []string) (*Set, error) {
	return Checker{Tools: tools}.load(fsys)
}

func (c Checker) load(fsys fs.FS) (*Set, error) {
	s := &Set{entries: map[string]Entry{}, check: c}
	if err := s.readAll(builtin, "builtin", true); err != nil || fsys == nil {
		return s, err
	}
	if err := s.readAll(fsys, ".", false); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return s, err
	}
	return s, s.broken()
}

// BuiltIn returns the Set without any file.
func BuiltIn() *Set {
	s, _ := Load(nil, nil)
	return s
}

func (s *Set) readAll(fsys fs.FS, dir string, own bool) error {
	return yamlfile.Folder(fsys, dir, "agents", agentsMax, FileBytesMax, func(name string, data []byte, err error) {
		var d Definition
		if err == nil {
			d, err = s.check.Parse(name, data)
		}
		s.add(name, own, d, err)
	})
}

// add keeps a file under its agent's name, a broken one under its file's.
func (s *Set) add(file string, own bool, d Definition, err error) {
	e := Entry{Name: d.Name, Definition: d, File: file, BuiltIn: own, Err: err}
	if err != nil {
		e.Name = strings.TrimSuffix(file, path.Ext(file))
	}
	if before, ok := s.entries[e.Name]; ok && !before.BuiltIn {
		e.Definition, e.Err = Definition{}, errs.New(errs.Invalid, "%s: the agent %q is in %s too", file, e.Name, before.File)
	}
	s.entries[e.Name] = e
}

// broken joins the mistakes of all files.
func (s *Set) broken() error {
	var lines []string
	for _, e := range s.List() {
		if e.Err != nil {
			lines = append(lines, errs.Public(e.Err))
		}
	}
	if lines == nil {
		return nil
	}
	return errs.New(errs.Invalid, "%s", strings.Join(lines, "\n"))
}

// List returns all agents, sorted by name.
func (s *Set) List() []Entry {
	list := make([]Entry, 0, len(s.entries))
	for _, e := range s.entries {
		list = append(list, e)
	}
	slices.SortFunc(list, func(a, b Entry) int { return strings.Compare(a.Name, b.Name) })
	return list
}

func (s *Set) names() []string {
	var names []string
	for _, e := range s.List() {
		names = append(names, e.Name)
	}
	return names
}

func (s *Set) find(name string) (Definition, error) {
	e, ok := s.entries[name]
	if !ok {
		return Definition{}, errs.New(errs.NotFound, "there is no agent %.80q%s", name, yamlfile.Suggest(name, s.names())).
			WithHint("the agents are: %s", strings.Join(s.names(), ", "))
	}
	return e.Definition, e.Err
}

// Resolve returns the agent of a name ("" = default), whole: its sub-agents
// with theirs, and Ground in front of the instructions of each. NotFound: no
// such agent, the hint lists them. Invalid: its file or that of a sub-agent is
// broken, or the sub-agents go in a circle, nest too deep or are too much.
func (s *Set) Resolve(name string) (Definition, error) {
	if name == "" {
		name = Default
	}
	d, err := s.find(name)
	if err != nil {
		return Definition{}, err
	}
	return s.Complete(d)
}

// Complete does for a definition that is in no file what Resolve does for one
// that is.
func (s *Set) Complete(d Definition) (Definition, error) {
	if err := s.wrong(d); err != nil {
		return Definition{}, err
	}
	r := resolver{set: s}
	d, err := r.resolve(d, nil)
	if err != nil {
		return Definition{}, err
	}
	size, err := json.Marshal(d)
	if err != nil {
		return Definition{}, errs.Wrap(errs.Invalid, err, "the agent %s cannot be written as JSON", d.Name)
	}
	if len(size) > ResolvedBytesMax {
		return Definition{}, errs.New(errs.Invalid, "the agent %s is %d KiB with its sub-agents, at most %d are possible",
			d.Name, len(size)>>10, ResolvedBytesMax>>10).WithHint("move long instructions into a file that the agent reads, or into a skill")
	}
	return d, nil
}

func (s *Set) wrong(d Definition) error {
	for _, p := range s.check.Validate(d) {
		if !p.Warning {
			return errs.New(errs.Invalid, "the agent %.80q: %s", d.Name, p)
		}
	}
	return nil
}

type resolver struct {
	set   *Set
	count int
}

// resolve fills in the sub-agents of d. above are the names of those that lead to it.
func (r *resolver) resolve(d Definition, above []string) (Definition, error) {
	chain := append(slices.Clone(above), d.Name)
	switch {
	case slices.Contains(above, d.Name):
		return d, errs.New(errs.Invalid, "sub-agents go in a circle: %s", strings.Join(chain, " -> "))
	case len(above) > thread.DepthMax:
		return d, errs.New(errs.Invalid, "sub-agents nest deeper than %d: %s", thread.DepthMax, strings.Join(chain, " -> "))
	}
	if r.count++; r.count > resolvedMax {
		return d, errs.New(errs.Invalid, "the agent %s has more than %d sub-agents in all", chain[0], resolvedMax-1)
	}
	given := d.Subagents
	d.Subagents = nil
	names := d.Agents
	if len(above) == 0 && d.Uses("task") && !slices.Contains(names, generalPurpose) && d.Name != generalPurpose {
		names = append(slices.Clone(names), generalPurpose)
	}
	for _, name := range names {
		sub, err := r.sub(d, name, given, chain)
		if err != nil {
			return d, err
		}
		if d.Subagents == nil {
			d.Subagents = map[string]Definition{}
		}
		d.Subagents[name] = sub
	}
	d.Agents = nil
	return grounded(d), nil
}

// sub resolves one sub-agent. What it does not say about approvals and hooks
// is as its parent says: starting a sub-agent does not get around a rule.
func (r *resolver) sub(parent Definition, name string, given map[string]Definition, chain []string) (Definition, error) {
	sub, inline := given[name]
	if !inline {
		var err error
		if sub, err = r.set.find(name); err != nil {
			return sub, errs.Wrap(errs.Of(err), err, "a sub-agent of %s: %s", chain[len(chain)-1], errs.Public(err)).
				WithHint("%s", errs.Hint(err))
		}
	}
	sub.Name = name
	if name == generalPurpose {
		sub = like(sub, parent)
	}
	if sub.Rules == nil {
		sub.Rules = parent.Rules
	}
	if sub.Hooks == nil {
		sub.Hooks = parent.Hooks
	}
	return r.resolve(sub, chain)
}

// like gives the general-purpose agent what its file leaves open.
func like(sub, parent Definition) Definition {
	if sub.Tools == nil {
		sub.Tools = parent.Tools
	}
	if sub.Skills == nil {
		sub.Skills = parent.Skills
	}
	if sub.Memory == nil {
		sub.Memory = parent.Memory
	}
	if sub.Calling == "" {
		sub.Calling = parent.Calling
	}
	if sub.Effort == "" {
		sub.Effort = parent.Effort
	}
	if sub.Limits == (Limits{}) {
		sub.Limits = parent.Limits
		sub.Limits.Budget = thread.Budget{}
	}
	return sub
}
