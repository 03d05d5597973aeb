package history

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/sandbox"
	"github.com/skete-dev/skete/workspace"
)

// Checked is what Check found in the history of one sandbox.
type Checked struct {
	ID     sandbox.ID
	Tenant string
	Report workspace.Report
}

// Check reads the histories of a tenant, "" = of all, and tells visit what is
// damaged in each. It changes nothing, and no history waits for it: they go on
// meanwhile, and what is written since it began is not looked at.
func (s *Service) Check(ctx context.Context, tenant string, visit func(Checked) error) error {
	entries, err := os.ReadDir(s.c.Dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	for _, e := range entries {
		if strings.HasSuffix(e.Name(), goneSuffix) {
			continue
		}
		c := Checked{ID: sandbox.ID(e.Name())}
		if c.Tenant = s.owner(c.ID); tenant != "" && c.Tenant != tenant {
			continue
		}
		c.Report, err = s.check(ctx, c.ID)
		if errs.Is(err, errs.NotFound) { // none was begun, or it was swept meanwhile
			continue
		}
		if err == nil {
			err = visit(c)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (s *Service) check(ctx context.Context, id sandbox.ID) (workspace.Report, error) {
	defer s.checking.Lock(id)() // it needs a place of its own beside the history
	return workspace.CheckRunning(ctx, s.store(id), filepath.Join(s.dir(id), "check"))
}
