package workspace

import (
	"context"

	"github.com/skete-dev/skete/workspace/check"
)

// Report is what Check found.
type Report = check.Report

// Check reads the history in a directory (Config.Store), which nobody has
// open, and says exactly what is damaged; it changes nothing. An error says
// that it could not look.
func Check(ctx context.Context, store string) (Report, error) { return check.Run(ctx, store) }

// CheckRunning is Check of a history that somebody may have open and go on
// with. scratch is a path beside it, for this call alone.
func CheckRunning(ctx context.Context, store, scratch string) (Report, error) {
	return check.Running(ctx, store, scratch)
}
