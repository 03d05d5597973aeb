package supervisor

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"
	"unicode"

	"github.com/skete-dev/skete/agent"
	"github.com/skete-dev/skete/agent/definition"
	"github.com/skete-dev/skete/agent/policy"
	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/internal/clip"
	"github.com/skete-dev/skete/skill"
	"github.com/skete-dev/skete/thread"
	"github.com/skete-dev/skete/tool"
)

// This file finds the skills that a run may use: those that are installed, and those of the
// workspace, which is hostile.
//
// A run keeps the versions that it began with: the catalogue is an event, and the list of
// versions beside it a blob. Skills of the workspace are files that the agent itself may
// change; it is told when they have.

// Skills are what tenants have installed. skill.Store is one.
type Skills interface {
	List(ctx context.Context, tenant string) ([]skill.Installed, error)
	Tree(ctx context.Context, tenant, name, version string) (skill.Tree, error)
	// Trusted reports whether a version is trusted now: what it wants approved beforehand is.
	Trusted(ctx context.Context, tenant, name, version string) (bool, error)
}

// Bounds of what a prompt shows, and of what a workspace holds.
const (
	skillsDir         = "/skills"
	entryBytesMax     = 380 // of one entry of the catalogue: fewer than 100 tokens
	catalogueBytesMax = 64 << 10
	workspaceMax      = 100 // skills of a workspace
	skillsFound       = 10  // by a query
	mdBytesMax        = 256 << 10
	filesListed       = 200
)

// workspaceDirs are where a workspace has skills. The first one that has a name wins.
var workspaceDirs = []string{".agents/skills", ".claude/skills"}

// pinned is a skill as a run found it.
type pinned struct {
	Name        string `json:"name"`
	Description string `json:"description"`
	Version     string `json:"version"` // of one of the workspace: the hash of its SKILL.md
	Dir         string `json:"dir"`
}

func (p pinned) installed() bool { return path.Dir(p.Dir) == skillsDir }

// found are the skills of one driver. It is a tool.Skills.
type found struct {
	store   Skills
	tenant  string
	machine agent.Machine
	list    []pinned
	rules   map[string][]definition.Rule // of Grants, by version
}

// skills finds those of the thread: at the beginning of a run what there is now, later what
// there was then. nil = none.
func (w *session) skills(ctx context.Context) (*found, error) {
	if w.c.Skills == nil || w.machine.Files == nil || w.machine.Mount == nil || !w.c.State.Agent.Uses(agent.SkillTool) {
		return nil, nil //nolint:nilnil // there are none
	}
	f := &found{store: w.c.Skills, tenant: w.c.Tenant, machine: w.machine}
	s := w.c.State
	var err error
	if s.Run.Steps == 0 || s.Context == nil {
		if f.list, err = f.find(ctx, s.Agent.Name); err == nil {
			f.list = slices.DeleteFunc(f.list, func(p pinned) bool { return !definition.Picks(s.Agent.Skills, p.Name) })
		}
	} else if s.Context.Pinned != "" {
		f.list, err = f.pins(ctx, w.c.Blobs, s.Context.Pinned)
	}
	if err != nil || len(f.list) == 0 {
		return nil, err
	}
	return f, f.restore(ctx, s.Learned, s.Run.Steps == 0)
}

// pins reads what a run was told at its beginning.
func (f *found) pins(ctx context.Context, blobs thread.Blobs, hash string) (list []pinned, err error) {
	data, err := blobs.Get(ctx, hash)
	if err == nil {
		err = json.Unmarshal(data, &list)
	}
	if err != nil {
		return nil, fmt.Errorf("read which skills the run has: %w", err)
	}
	return list, nil
}

// find looks for skills. What is installed comes before what a workspace calls the same.
func (f *found) find(ctx context.Context, agent string) ([]pinned, error) {
	all, err := f.store.List(ctx, f.tenant)
	if err != nil {
		return nil, err
	}
	var list []pinned
	for _, i := range all {
		if i.For(agent) {
			list = append(list, pinned{i.Name, i.Description, i.Current, skillsDir + "/" + i.Name})
		}
	}
	for _, dir := range workspaceDirs {
		more, err := f.inWorkspace(ctx, path.Join("/", f.machine.Dir, dir))
		if err != nil {
			return nil, err
		}
		for _, p := range more {
			if !slices.ContainsFunc(list, func(q pinned) bool { return q.Name == p.Name }) {
				list = append(list, p)
			}
		}
	}
	return list, nil
}

// inWorkspace looks into a folder of the machine. What cannot be read there is left out: the
// agent sees the files themselves.
func (f *found) inWorkspace(ctx context.Context, dir string) ([]pinned, error) {
	entries, err := f.machine.Files.List(ctx, dir)
	if theirs(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var list []pinned
	for _, e := range entries {
		if !e.Dir || len(list) == workspaceMax {
			continue
		}
		s, version, err := f.read(ctx, e.Path)
		if theirs(err) || errs.Is(err, errs.Invalid) {
			continue
		}
		if err != nil {
			return nil, err
		}
		list = append(list, pinned{s.Name, s.Description, version, e.Path})
	}
	return list, nil
}

// theirs reports whether an error is about the files, and not the platform's.
func theirs(err error) bool {
	_, is := errors.AsType[*tool.FileError](err)
	return is
}

func (f *found) read(ctx context.Context, dir string) (skill.Skill, string, error) {
	data, _, err := f.machine.Files.Read(ctx, path.Join(dir, skill.File), mdBytesMax)
	if err != nil {
		return skill.Skill{}, "", err
	}
	s, _, err := skill.Read(path.Base(dir), data)
	sum := sha256.Sum256(data)
	return s, hex.EncodeToString(sum[:]), err
}

// tell adds the catalogue to what a run is told at its beginning.
func (f *found) tell(ctx context.Context, blobs thread.Blobs, about *thread.Context) error {
	data, err := json.Marshal(f.list)
	if err != nil {
		return err
	}
	if about.Pinned, err = blobs.Put(ctx, data); err != nil {
		return err
	}
	text, _ := f.catalogue()
	shown := thread.ContextFile{Path: skillsDir, Text: text}
	if len(shown.Text) > 2<<10 {
		if shown.Blob, err = blobs.Put(ctx, []byte(shown.Text)); err != nil {
			return err
		}
		shown.Text = ""
	}
	about.Skills = []thread.ContextFile{shown}
	return nil
}

// catalogue is a line for each skill, with its name and what it is for. rest is how many
// there is no room for.
func (f *found) catalogue() (text string, rest int) {
	var b strings.Builder
	for i, p := range f.list {
		e := p.entry()
		line := "- " + e.Name + ": " + e.Description + "\n"
		if b.Len()+len(line) > catalogueBytesMax {
			rest = len(f.list) - i
			fmt.Fprintf(&b, "… and %d more: call %s with a query to find one", rest, agent.SkillTool)
			break
		}
		b.WriteString(line)
	}
	return strings.TrimSpace(b.String()), rest
}

// entry is the skill on one line of bounded length.
func (p pinned) entry() tool.SkillEntry {
	about := strings.Join(strings.FieldsFunc(p.Description, func(r rune) bool { return unicode.IsSpace(r) || unicode.IsControl(r) }), " ")
	return tool.SkillEntry{Name: p.Name, Description: clip.Text(about, entryBytesMax-len("- : ")-len(p.Name))}
}

// Unlisted implements tool.Skills.
func (f *found) Unlisted() int {
	_, rest := f.catalogue()
	return rest
}

// Find implements tool.Skills.
func (f *found) Find(_ context.Context, query string) ([]tool.SkillEntry, error) {
	var texts []string
	for _, p := range f.list {
		texts = append(texts, p.Name+" "+p.Name+" "+p.Description) // the name says more
	}
	var list []tool.SkillEntry
	for _, i := range skill.Best(texts, query, skillsFound) {
		list = append(list, f.list[i].entry())
	}
	return list, nil
}

// Learn implements tool.Skills.
func (f *found) Learn(ctx context.Context, name string) (tool.Lesson, error) {
	i := slices.IndexFunc(f.list, func(p pinned) bool { return p.Name == name })
	if i < 0 {
		return tool.Lesson{}, errs.New(errs.NotFound, "there is no skill %.64q; the list of skills in your instructions has the names", name)
	}
	p := f.list[i]
	if !p.installed() {
		return f.learnHere(ctx, p)
	}
	t, err := f.mount(ctx, p)
	if err != nil {
		return tool.Lesson{}, err
	}
	s, _, err := skill.Load(t)
	return lesson(s, p, t.Paths()), err
}

func lesson(s skill.Skill, p pinned, files []string) tool.Lesson {
	files = slices.DeleteFunc(files, func(f string) bool { return f == skill.File })
	return tool.Lesson{Instructions: s.Instructions, Dir: p.Dir, Files: files, Needs: s.Compatibility}
}

// mount puts the files of an installed skill into the machine.
func (f *found) mount(ctx context.Context, p pinned) (skill.Tree, error) {
	t, err := f.store.Tree(ctx, f.tenant, p.Name, p.Version)
	if err != nil {
		return t, err
	}
	data, err := t.Tar()
	if err != nil {
		return t, err
	}
	return t, f.machine.Mount(ctx, p.Dir, data)
}

// learnHere is Learn of a skill of the workspace, whose files stay where they are.
func (f *found) learnHere(ctx context.Context, p pinned) (tool.Lesson, error) {
	s, version, err := f.read(ctx, p.Dir)
	if theirs(err) {
		return tool.Lesson{}, errs.New(errs.NotFound, "the skill %s is not in the workspace any more", p.Name)
	}
	if err != nil {
		return tool.Lesson{}, err
	}
	infos, _, err := f.machine.Files.Glob(ctx, p.Dir, "**/*", filesListed)
	if err != nil && !theirs(err) {
		return tool.Lesson{}, err
	}
	var files []string
	for _, info := range infos {
		files = append(files, strings.TrimPrefix(info.Path, p.Dir+"/"))
	}
	l := lesson(s, p, files)
	l.Changed = version != p.Version
	return l, nil
}

// restore puts back what was learned in a machine that has lost it: one that booted anew, or
// another one. A version that is gone or damaged meanwhile, and a disk that is full, are told
// when it is asked for. When a run begins they are put there in any case: the run before may
// have had another version, and what is trusted of one is not of the files of another.
func (f *found) restore(ctx context.Context, learned []string, begins bool) error {
	for _, p := range f.list {
		if !p.installed() || !slices.Contains(learned, p.Name) {
			continue
		}
		_, err := f.machine.Files.Stat(ctx, path.Join(p.Dir, skill.File))
		if begins || theirs(err) {
			_, err = f.mount(ctx, p)
		}
		if err != nil && !errs.Is(err, errs.NotFound) && !errs.Is(err, errs.Corrupt) && !errs.Is(err, errs.Limit) {
			return err
		}
	}
	return nil
}

var _ tool.Skills = (*found)(nil)

// Grants are what the skills that the thread has learned want approved beforehand, of
// versions that are trusted now. Those of the workspace are not: they are files that the
// agent, or what it works on, has written.
func (f *found) Grants(ctx context.Context, learned []string) (grants []policy.Grant, err error) {
	for _, p := range f.list {
		if !p.installed() || !slices.Contains(learned, p.Name) {
			continue
		}
		trusted, err := f.store.Trusted(ctx, f.tenant, p.Name, p.Version)
		if err != nil {
			return nil, err
		}
		if !trusted {
			continue
		}
		rules, err := f.allowed(ctx, p)
		if err != nil {
			return nil, err
		}
		if len(rules) > 0 {
			grants = append(grants, policy.Grant{By: "skill " + p.Name + " version " + p.Version, Rules: rules})
		}
	}
	return grants, nil
}

// allowed are the rules that a version's allowed-tools stand for.
func (f *found) allowed(ctx context.Context, p pinned) ([]definition.Rule, error) {
	if rules, known := f.rules[p.Version]; known {
		return rules, nil
	}
	t, err := f.store.Tree(ctx, f.tenant, p.Name, p.Version)
	if err != nil {
		return nil, err
	}
	s, _, err := skill.Load(t)
	if err != nil {
		return nil, err
	}
	rules := []definition.Rule{}
	for _, word := range s.AllowedTools[:min(len(s.AllowedTools), skill.AllowedMax)] {
		a, err := skill.ParseAllowed(word)
		if err != nil {
			continue
		}
		if r, ok := policy.Preapproved(a.Tool, a.Pattern); ok {
			rules = append(rules, r)
		}
	}
	if f.rules == nil {
		f.rules = map[string][]definition.Rule{}
	}
	f.rules[p.Version] = rules
	return rules, nil
}
