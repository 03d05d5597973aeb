package declared

import (
	"context"
	"encoding/json"
	"fmt"
	"path"
	"sync"
	"time"

	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/kv"
	"github.com/skete-dev/skete/skill"
	"github.com/skete-dev/skete/tool"
)

// This file has the tools of skills: a skill that holds a tool.yaml beside its SKILL.md is a
// tool as well, whose command runs in the run's sandbox with the skill at /skills/NAME.
//
// The standard lets a skill hold any other files, and metadata is text alone, so the manifest
// is a file. It was not written by the operator: it can ask for no sandbox of its own, and
// unless its version is trusted a person allows each call, and that it only reads is not
// believed.

// SkillName is the name of the source.
const SkillName = "skill"

// Bounds of what a source remembers.
const (
	knownMax   = 1000
	coversTime = 5 * time.Second
)

const skillsDir = "/skills"

// OfSkill reads the tool of a skill. ok: there is one. The error is Invalid.
func OfSkill(t skill.Tree) (m Manifest, ok bool, err error) {
	data, ok := t.File(manifestFile)
	if !ok {
		return Manifest{}, false, nil
	}
	m, err = Parse(path.Join(t.Folder, manifestFile), data)
	switch {
	case err != nil:
	case m.HTTP != nil:
		err = errs.New(errs.Invalid, "%s: http: the host makes no request for a skill; let a command make it in the sandbox", manifestFile)
	case m.Sandbox.Scope != "":
		err = errs.New(errs.Invalid, "%s: sandbox.scope: the tool of a skill runs in the run's sandbox; leave it out", manifestFile)
	}
	return m, err == nil, err
}

// Skills are what tenants have installed. skill.Store is one.
type Skills interface {
	List(ctx context.Context, tenant string) ([]skill.Installed, error)
	Tree(ctx context.Context, tenant, name, version string) (skill.Tree, error)
	Trusted(ctx context.Context, tenant, name, version string) (bool, error)
}

// SkillSource has the tools of skills. It is a tool.Source.
type SkillSource struct {
	s      *Source
	skills Skills

	mu    sync.Mutex
	known map[string]Manifest // by version; without a name: it has none that can be used
	put   map[string]string   // which version was put into a machine last, by boot and directory
}

// NewSkills returns the tools of the skills that are installed. Their rates are counted in
// records, as those of Config are.
func NewSkills(skills Skills, rates kv.Store) *SkillSource {
	return &SkillSource{s: New(Config{Rates: rates}), skills: skills, known: map[string]Manifest{}, put: map[string]string{}}
}

// Name implements tool.Source.
func (*SkillSource) Name() string { return SkillName }

// Covers implements tool.Source.
func (k *SkillSource) Covers(tenant, name string) bool {
	ctx, cancel := context.WithTimeout(context.Background(), coversTime)
	defer cancel()
	list, err := k.skills.List(ctx, tenant)
	if err != nil {
		return false
	}
	for _, i := range list {
		if !i.HasTool() {
			continue
		}
		m, err := k.manifest(ctx, tenant, i)
		if ok, bad := path.Match(name, m.Name); err == nil && ok && bad == nil && m.Name != "" {
			return true
		}
	}
	return false
}

// ofSkill is what a run keeps of a skill's tool.
type ofSkill struct {
	Skill    string   `json:"skill"`
	Version  string   `json:"version"`
	Manifest Manifest `json:"manifest"`
}

// Find implements tool.Source.
func (k *SkillSource) Find(ctx context.Context, p tool.Place) (found []tool.External, notes []string, err error) {
	if p.Mount == nil || p.Commands == nil {
		return nil, nil, nil // where nothing isolates, skills are not taught either
	}
	list, err := k.skills.List(ctx, p.Tenant)
	if err != nil {
		return nil, nil, err
	}
	for _, i := range list {
		if !i.HasTool() || !i.For(p.Agent) || p.Skill != nil && !p.Skill(i.Name) {
			continue
		}
		m, err := k.manifest(ctx, p.Tenant, i)
		if err != nil {
			notes = append(notes, i.Name+": "+errs.Public(err))
			continue
		}
		if m.Name == "" || !m.mayHave(p.Agent) {
			continue
		}
		data, err := json.Marshal(ofSkill{i.Name, i.Current, m})
		if err != nil {
			return nil, nil, err
		}
		e := tool.External{Source: SkillName, Spec: m.spec(), Class: m.class(), Asks: m.Approval == "ask" || !i.Trusted(), Data: data}
		if e.Class == tool.Read && !i.Trusted() {
			e.Class = tool.Keyed
		}
		found = append(found, e)
	}
	return found, notes, nil
}

// manifest is that of the version that new runs get.
func (k *SkillSource) manifest(ctx context.Context, tenant string, i skill.Installed) (Manifest, error) {
	k.mu.Lock()
	m, known := k.known[i.Current]
	k.mu.Unlock()
	if known {
		return m, nil
	}
	t, err := k.skills.Tree(ctx, tenant, i.Name, i.Current)
	if err != nil {
		return Manifest{}, err
	}
	if m, _, err = OfSkill(t); err != nil {
		return Manifest{}, err
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if len(k.known) >= knownMax {
		clear(k.known)
	}
	k.known[i.Current] = m
	return m, nil
}

// Call implements tool.Source.
func (k *SkillSource) Call(ctx context.Context, p tool.Place, e tool.External, req tool.Request) (tool.Result, error) {
	var of ofSkill
	if err := json.Unmarshal(e.Data, &of); err != nil {
		return tool.Result{}, fmt.Errorf("read the tool %s: %w", e.Spec.Name, err)
	}
	if !e.Asks { // no person has seen the call
		if ok, err := k.skills.Trusted(ctx, p.Tenant, of.Skill, of.Version); err != nil || !ok {
			return result(failed(tool.CodeDenied, "the skill %s is trusted no longer", of.Skill), err)
		}
	}
	t, err := k.skills.Tree(ctx, p.Tenant, of.Skill, of.Version)
	if errs.Is(err, errs.NotFound) || errs.Is(err, errs.Corrupt) {
		return tool.Fail(tool.CodeNotFound, "Error: "+errs.Public(err)), nil
	}
	if err != nil {
		return tool.Result{}, err
	}
	if late, err := k.s.late(ctx, p.Tenant, of.Manifest, req); late != nil || err != nil {
		return result(late, err)
	}
	c := &call{s: k.s, p: p, req: req, what: pinned{of.Manifest, t.Files}}
	c.m = Machine{Files: p.Files, Commands: p.Commands, Boot: p.Boot, Dir: p.Dir, Mount: p.Mount}
	if bad := unfit(c.m); bad != nil {
		return *bad, nil
	}
	c.at = path.Join(skillsDir, of.Skill)
	c.there = func(ctx context.Context) (bool, error) { return k.there(ctx, c, of.Version) }
	return c.run(ctx)
}

// there reports whether a version is in the machine, and notes that it is about to be.
func (k *SkillSource) there(ctx context.Context, c *call, version string) (bool, error) {
	key := c.p.Tenant + "/" + c.m.Boot + c.at
	k.mu.Lock()
	same := k.put[key] == version
	if len(k.put) >= knownMax {
		clear(k.put)
	}
	k.put[key] = version
	k.mu.Unlock()
	if !same {
		return false, nil
	}
	_, err := c.m.Files.Stat(ctx, path.Join(c.at, skill.File)) // it is written last
	if bad, err := about(err); bad != nil || err != nil {
		return false, err
	}
	return true, nil
}

var _ tool.Source = (*SkillSource)(nil)
