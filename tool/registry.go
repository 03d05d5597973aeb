package tool

import (
	"path"
	"slices"
	"strings"
	"time"

	"github.com/skete-dev/skete/errs"
)

// Env is what the tools of one thread act on. What is nil is not there, and
// the tools that need it are left out.
type Env struct {
	Files    Files
	Commands Commands
	Spawner  Spawner
	Tasks    Tasks
	Past     Past // nil = no history of the files is kept
	Services Services
	Skills   Skills // nil = there are none
	// Agents are the kinds of sub-agents that Spawner knows.
	Agents []Agent
	// Person: there is one to ask. Planning: the run begins with a plan that a person
	// has to accept.
	Person, Planning bool
	// Media: the model sees images. Documents: and PDFs.
	Media, Documents bool
	// Dir is where commands run and searches begin; "" = the machine's own
	// working directory, and "/".
	Dir string
	// Boot changes when the machine was started anew and what ran in it is gone.
	Boot string
	// ResultBytesMax bounds what the paging tools show at once; 0 = 80,000,
	// which is about 20,000 tokens.
	ResultBytesMax int
	// CommandTimeout is for commands that state none, CommandTimeoutMax for
	// all that are waited for; 0 = 2 min and 1 h.
	CommandTimeout, CommandTimeoutMax time.Duration
}

// Maker makes a tool for a thread. Unsupported: the environment lacks what
// the tool needs; the text says what.
type Maker func(Env) (Tool, error)

// Registry knows tools by name.
//
//	r := kit.New()                                     // all that are built in
//	tools, err := r.Make(env, []string{"read_*", "ls"}) // in the order in which they were added
//
// Add everything first: from then on it is safe for concurrent use.
type Registry struct {
	entries []entry
}

type entry struct {
	name   string
	make   Maker
	hidden bool
}

// Add adds a tool. A name that is taken is a mistake in the program.
func (r *Registry) Add(name string, m Maker) { r.add(entry{name: name, make: m}) }

// AddHidden adds a tool that is made only when its very name is asked for.
func (r *Registry) AddHidden(name string, m Maker) { r.add(entry{name: name, make: m, hidden: true}) }

func (r *Registry) add(e entry) {
	if slices.Contains(r.Names(), e.name) {
		panic("tool: " + e.name + " was added twice")
	}
	r.entries = append(r.entries, e)
}

// Names lists all tools in the order in which they were added.
func (r *Registry) Names() []string {
	names := make([]string, len(r.entries))
	for i, e := range r.entries {
		names[i] = e.name
	}
	return names
}

// Make makes the tools that are named, each a *Checked. A name may be a glob
// ("*", "read_*"), or either with "!" in front, which takes away; the last that
// is about a tool decides. None at all, or only exceptions, means all others.
// What a glob finds is left out when the environment lacks something for it; a
// tool named in full is refused then (Unsupported). NotFound: no such tool.
func (r *Registry) Make(env Env, names []string) ([]Tool, error) { return r.make(env, names, true) }

// Fitting is Make for those who cannot know what the environment has: tools
// that lack something are left out also when they are named in full.
func (r *Registry) Fitting(env Env, names []string) ([]Tool, error) { return r.make(env, names, false) }

func (r *Registry) make(env Env, names []string, strict bool) ([]Tool, error) {
	if err := r.Check(names); err != nil {
		return nil, err
	}
	var tools []Tool
	for _, e := range r.entries {
		wanted, exact := e.wanted(names)
		if !wanted {
			continue
		}
		t, err := e.make(env)
		if errs.Is(err, errs.Unsupported) && !(exact && strict) {
			continue
		}
		if err != nil {
			return nil, err
		}
		checked, err := Check(t)
		if err != nil {
			return nil, err
		}
		tools = append(tools, checked)
	}
	return tools, nil
}

func (e entry) wanted(names []string) (wanted, exact bool) {
	wanted = !e.hidden && !slices.ContainsFunc(names, func(n string) bool { return !strings.HasPrefix(n, "!") })
	for _, n := range names {
		bare, not := strings.CutPrefix(n, "!")
		if e.matches(bare) {
			wanted, exact = !not && (!e.hidden || bare == e.name || wanted), !not && bare == e.name
		}
	}
	return wanted, exact
}

func (e entry) matches(glob string) bool {
	ok, _ := path.Match(glob, e.name)
	return ok
}

// Check reports whether every name, or glob, stands for a tool. NotFound
// names the nearest one, and all of them in the hint.
func (r *Registry) Check(names []string) error {
	for _, n := range names {
		n, not := strings.CutPrefix(n, "!")
		if slices.ContainsFunc(r.entries, func(e entry) bool { return e.matches(n) && (not || !e.hidden || n == e.name) }) {
			continue
		}
		known := r.Names()
		err := errs.New(errs.NotFound, "no tool %.64q", n)
		if near := nearest(n, known); near != "" {
			err = errs.New(errs.NotFound, "no tool %.64q; did you mean %s?", n, near)
		}
		return err.WithHint("the tools are %s", strings.Join(known, ", "))
	}
	return nil
}

// nearest returns the known word that is spelled most like a word, or "" when
// none is close.
func nearest(word string, known []string) string {
	if len(word) > 64 {
		return ""
	}
	best, least := "", len(word)/2+1
	for _, k := range known {
		d := distance(word, k)
		if strings.Contains(k, word) || strings.Contains(word, k) {
			d = min(d, 1) // path for file_path
		}
		if d < least {
			best, least = k, d
		}
	}
	return best
}

// distance counts the letters to add, remove or replace (Levenshtein).
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := diagonal
			if a[i] != b[j] {
				cost++
			}
			diagonal = row[j+1]
			row[j+1] = min(cost, row[j]+1, diagonal+1)
		}
	}
	return row[len(b)]
}
