package serve

import (
	"context"

	"github.com/skete-dev/skete/skill"
)

// openSkills opens what tenants have installed.
func (r *running) openSkills(ctx context.Context) error {
	records, err := r.store.KV(ctx, "skills")
	if err == nil {
		r.skills, err = skill.Open(ctx, records, r.in("skills"))
	}
	return err
}
