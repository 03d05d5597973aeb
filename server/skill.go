package server

import (
	"context"
	"encoding/json"
	"net/http"
	"slices"

	"github.com/skete-dev/skete/api"
	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/server/auth"
	"github.com/skete-dev/skete/server/route"
	"github.com/skete-dev/skete/skill"
	"github.com/skete-dev/skete/tool/declared"
)

// Skills is what the server needs of *skill.Store.
type Skills interface {
	List(ctx context.Context, tenant string) ([]skill.Installed, error)
	Get(ctx context.Context, tenant, name string) (skill.Installed, error)
	Tree(ctx context.Context, tenant, name, version string) (skill.Tree, error)
	Install(ctx context.Context, tenant string, in skill.Install) (skill.Installed, error)
	Change(ctx context.Context, tenant, name string, c skill.Change) (skill.Installed, error)
	Remove(ctx context.Context, tenant, name string) error
}

// skillBodyMax has room for the largest archive as base64, and for what stands beside it.
const skillBodyMax = skill.ArchiveBytesMax/3*4 + 64<<10

func (s *Server) registerSkills(t *route.Table) {
	skills := collection{"skills", "/v1/skills"}
	install := skills.all(http.MethodPost, "install-skill", "Install a skill, or a new version of it")
	install.BodyBytesMax = skillBodyMax
	route.JSON(t, skills.all(http.MethodGet, "list-skills", "List the skills that agents of the tenant have"), s.listSkills)
	route.JSON(t, install, s.installSkill)
	route.JSON(t, skills.one(http.MethodGet, "get-skill", "Get a skill with its instructions and the list of its files"), s.getSkill)
	route.JSON(t, skills.one(http.MethodPatch, "change-skill", "Go to another version of a skill, say which agents have it, or which version is trusted"), s.changeSkill)
	route.JSON(t, skills.one(http.MethodDelete, "remove-skill", "Remove a skill with all its versions"), s.removeSkill)
}

func (s *Server) skillStore() (Skills, error) { return opened(s.skills, "skills") }

// SkillPath names a skill. It is exported because the JSON layer looks only into exported
// embedded fields.
type SkillPath struct {
	Name string `path:"name" maxLength:"64" doc:"of the skill"`
}

type skillOut struct{ Body api.Skill }

type skillListOut struct{ Body api.SkillList }

func (s *Server) listSkills(ctx context.Context, _ *struct{}) (*skillListOut, error) {
	store, err := s.skillStore()
	if err != nil {
		return nil, err
	}
	list, err := store.List(ctx, auth.From(ctx).Tenant)
	if err != nil {
		return nil, err
	}
	out := &skillListOut{api.SkillList{Items: []api.Skill{}}}
	for _, i := range list {
		out.Body.Items = append(out.Body.Items, skillView(i))
	}
	return out, nil
}

type getSkillIn struct {
	SkillPath
	Version string `query:"version" maxLength:"64" doc:"default the one that new runs get"`
}

func (s *Server) getSkill(ctx context.Context, in *getSkillIn) (*skillOut, error) {
	store, err := s.skillStore()
	if err != nil {
		return nil, err
	}
	i, err := store.Get(ctx, auth.From(ctx).Tenant, in.Name)
	if err != nil {
		return nil, err
	}
	version := i.Current
	if in.Version != "" {
		if version, err = i.Find(in.Version); err != nil {
			return nil, err
		}
	}
	t, err := store.Tree(ctx, auth.From(ctx).Tenant, in.Name, version)
	if err != nil {
		return nil, err
	}
	return wholeSkill(skillView(i), t)
}

type installSkillIn struct{ Body api.InstallSkill }

func (s *Server) installSkill(ctx context.Context, in *installSkillIn) (*skillOut, error) {
	store, err := s.skillStore()
	if err != nil {
		return nil, err
	}
	t, err := skill.Archive(in.Body.Archive, in.Body.Path)
	if err != nil {
		return nil, err
	}
	if err := skill.Error(skill.Validate(t)); err != nil {
		return nil, err
	}
	if in.Body.DryRun {
		return wholeSkill(api.Skill{Version: t.Version(), Versions: []api.SkillVersion{}, Agents: []string{}}, t)
	}
	install := skill.Install{Tree: t, From: in.Body.From, New: in.Body.New}
	if in.Body.Trust {
		install.TrustedBy = auth.From(ctx).Who()
	}
	if in.Body.Agents != nil {
		install.Agents = slices.Concat([]string{}, *in.Body.Agents)
	}
	i, err := store.Install(ctx, auth.From(ctx).Tenant, install)
	if err != nil {
		return nil, err
	}
	return wholeSkill(skillView(i), t)
}

type changeSkillIn struct {
	SkillPath
	Body api.ChangeSkill
}

func (s *Server) changeSkill(ctx context.Context, in *changeSkillIn) (*skillOut, error) {
	store, err := s.skillStore()
	if err != nil {
		return nil, err
	}
	c := skill.Change{Version: in.Body.Version, Trust: in.Body.Trust, Distrust: in.Body.Distrust, By: auth.From(ctx).Who()}
	if in.Body.Agents != nil {
		c.Agents = slices.Concat([]string{}, *in.Body.Agents)
	}
	if c.Agents == nil && c.Version+c.Trust+c.Distrust == "" {
		return nil, errs.New(errs.Invalid, "nothing is to be changed: name a version, agents, or what is trusted")
	}
	i, err := store.Change(ctx, auth.From(ctx).Tenant, in.Name, c)
	if err != nil {
		return nil, err
	}
	return &skillOut{skillView(i)}, nil
}

func (s *Server) removeSkill(ctx context.Context, in *SkillPath) (*struct{}, error) {
	store, err := s.skillStore()
	if err != nil {
		return nil, err
	}
	return nil, store.Remove(ctx, auth.From(ctx).Tenant, in.Name)
}

func skillView(i skill.Installed) api.Skill {
	out := api.Skill{
		Name: i.Name, Description: i.Description, Version: i.Current, Versions: []api.SkillVersion{},
		Agents: slices.Concat([]string{}, i.Agents), Trusted: i.Trusted(), CreatedAt: i.CreatedAt, UpdatedAt: i.UpdatedAt,
	}
	for _, v := range i.Versions {
		out.Versions = append(out.Versions, api.SkillVersion{
			Version: v.ID, Description: v.Description, Bytes: v.Bytes, Files: v.Files, From: v.From, InstalledAt: v.InstalledAt, TrustedBy: v.TrustedBy, TrustedAt: v.TrustedAt,
		})
	}
	return out
}

// wholeSkill adds what a version holds.
func wholeSkill(out api.Skill, t skill.Tree) (*skillOut, error) {
	s, warnings, err := skill.Load(t)
	if err != nil {
		return nil, err
	}
	out.Name, out.Description, out.License, out.Compatibility = s.Name, s.Description, s.License, s.Compatibility
	out.Metadata, out.AllowedTools, out.Instructions, out.Files = s.Metadata, s.AllowedTools, s.Instructions, t.Paths()
	for _, w := range warnings {
		out.Warnings = append(out.Warnings, w.String())
	}
	if t.Folder == "" {
		t.Folder = s.Name
	}
	m, isTool, err := declared.OfSkill(t)
	if err != nil {
		out.Warnings = append(out.Warnings, "it is no tool as well: "+errs.Public(err))
	}
	if isTool {
		out.Tool = toolView(m)
	}
	return &skillOut{out}, nil
}

func toolView(m declared.Manifest) *api.SkillTool {
	schema := func(s map[string]any) json.RawMessage {
		if data, err := json.Marshal(s); err == nil && s != nil {
			return data
		}
		return nil
	}
	return &api.SkillTool{Name: m.Name, Description: m.Description, Input: schema(m.Input), Output: schema(m.Output)}
}
