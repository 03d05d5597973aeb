package serve

import (
	"context"

	"github.com/skete-dev/skete/skill"
)

// openSkills opens what tenants have installed, and takes in what the operator's folders hold.
func (r *running) openSkills(ctx context.Context) error {
	records, err := r.store.KV(ctx, "skills")
	if err != nil {
		return err
	}
	files, err := r.store.KV(ctx, "skill-files")
	if err != nil {
		return err
	}
	if r.skills, err = skill.Open(ctx, records, files); err != nil {
		return err
	}
	left, err := r.skills.Adopt(ctx, r.in("skills"))
	for _, one := range left {
		r.c.Log.Warn("the files of a skill are left where they were", "error", one)
	}
	if err != nil {
		return err
	}
	left, err = r.skills.Serve(ctx, r.c.Agents.Skills)
	for _, one := range left {
		r.c.Log.Warn("a skill of the configuration is left out", "error", one)
	}
	return err
}
