package client

import (
	"context"
	"net/http"
	"net/url"

	"github.com/skete-dev/skete/api"
	"github.com/skete-dev/skete/client/transport"
)

func skillPath(name string) string { return "/v1/skills/" + url.PathEscape(name) }

// Skills lists the skills of the caller's tenant.
func (c *Client) Skills(ctx context.Context) ([]api.Skill, error) {
	l, err := transport.Fetch[api.SkillList](ctx, c.t, transport.Get("/v1/skills", nil))
	return l.Items, err
}

// Skill returns a version of a skill, "" = the one that new runs get, with its instructions.
func (c *Client) Skill(ctx context.Context, name, version string) (api.Skill, error) {
	q := url.Values{}
	if version != "" {
		q.Set("version", version)
	}
	return transport.Fetch[api.Skill](ctx, c.t, transport.Get(skillPath(name), q))
}

// InstallSkill installs a skill, or a new version of it. A call that is repeated changes
// nothing more, unless it wants a new skill.
func (c *Client) InstallSkill(ctx context.Context, in api.InstallSkill) (api.Skill, error) {
	return transport.Fetch[api.Skill](ctx, c.t, transport.Call{Method: http.MethodPost, Path: "/v1/skills", Repeatable: !in.New}.WithJSON(in))
}

// ChangeSkill goes to another version, or says which agents have the skill.
func (c *Client) ChangeSkill(ctx context.Context, name string, in api.ChangeSkill) (api.Skill, error) {
	return transport.Fetch[api.Skill](ctx, c.t, transport.Call{Method: http.MethodPatch, Path: skillPath(name), Repeatable: true}.WithJSON(in))
}

// RemoveSkill removes a skill with all its versions.
func (c *Client) RemoveSkill(ctx context.Context, name string) error {
	return c.t.Send(ctx, transport.Call{Method: http.MethodDelete, Path: skillPath(name), Repeatable: true})
}
