package workspace

import (
	"context"
)

// Report is what Check found.
type Report = CheckReport

// Check reads the history in a directory (Config.Store), which nobody has
// open, and says exactly what is damaged; it changes nothing. An error says
// that it could not look.
func Check(ctx context.Context, store string) (Report, error) { return runCheck(ctx, store) }

// CheckRunning is Check of a history that somebody may have open and go on
// with. scratch is a path beside it, for this call alone.
func CheckRunning(ctx context.Context, store, scratch string) (Report, error) {
	return checkRunning(ctx, store, scratch)
}
